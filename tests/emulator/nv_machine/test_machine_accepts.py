"""Sequences that hardware accepts and public drivers use: they are accepted, at most with an advice."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from drivers.kernel import address_of
from drivers.nv.layouts import controls as ctl
from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.controls import Control, GrInfo
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from emulator.nv.machine import FindingKind
from hcq.errors import DriverError
from tests.emulator.nv_machine.client import Client, Memory, Status, method, sem, wait_word
from tests.emulator.nv_machine.launching import STORE, Launcher, cubin, upload
from tests.emulator.nv_machine.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

PROFILES = ["sm_80", "sm_90", "sm_120"]


def lint(client: Client) -> list[str]:
    """Return the advice in the reports; fail at any other report."""
    assert client.machine.fatal == []
    return [one.message for one in client.kernel.reports if one.kind is FindingKind.ADVICE]


def test_a_header_of_zero_is_a_nop(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    ring.push([0, 0, *sem(memory.va, 7), 0])
    wait_word(memory, 0, 7, up)
    assert lint(up) == []


@pytest.mark.parametrize("profile", PROFILES)
def test_an_address_space_may_end_at_49_bits(make: Callable[..., Client], profile: str) -> None:
    client = make(profile).nodes().objects()
    assert client.space(vaBase=0x1000, vaSize=0x1_FFFF_FB00_0000, flags=8)


@pytest.mark.parametrize("profile", ["sm_80"])
def test_an_address_space_beyond_49_bits_is_refused(make: Callable[..., Client], profile: str) -> None:
    client = make(profile).nodes().objects()
    refused(0x1F, client.space, vaBase=1 << 49, vaSize=4096, flags=8)


class Owned:
    """An address space of the resource manager, mapped by MAP_MEMORY_DMA."""

    def __init__(self, client: Client, *, vaspace: int = 0, offset: int = 0) -> None:
        self.client = client
        params = rm_classes.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS(
            offset=offset, limit=0x1_FFFF_FFFF_FFFF, hVASpace=vaspace
        )
        self.handle = client.alloc(client.device, RmClass.NV01_MEMORY_VIRTUAL, params)

    def call(self, escape: Escape, kind: Any, **fields: Any) -> Any:
        """Map or unmap; returns the structure afterwards."""
        client = self.client
        fields |= {"hClient": client.root, "hDevice": client.device, "hDma": self.handle}
        out = client.call(client.ctl, escape, kind, **fields)
        if out.status != NvStatus.OK:
            raise Status(int(out.status), client.machine.refusals[-1])
        return out

    def map(self, memory: Memory, *, va: int = 0, flags: int = 0x10, **fields: Any) -> int:
        """Map memory; returns its address."""
        kind = self.client.structs["NVOS46_PARAMETERS"]
        values = {"hMemory": memory.handle, "length": memory.size, "dmaOffset": va} | fields
        fixed = 0x8000 if va else 0
        got = self.call(Escape.NV_ESC_RM_MAP_MEMORY_DMA, kind, flags=flags | fixed, **values)
        return int(got.dmaOffset)

    def unmap(self, memory: Memory, va: int) -> None:
        """Unmap memory."""
        kind = rm.NVOS47_PARAMETERS
        self.call(Escape.NV_ESC_RM_UNMAP_MEMORY_DMA, kind, hMemory=memory.handle, dmaOffset=va)


class Unaided(Client):
    """A client without UVM: the resource manager owns its address space."""

    def address_space(self) -> Client:
        """Make the space and a window into it."""
        self.vaspace = self.space()
        self.window = Owned(self, vaspace=self.vaspace)
        return self

    def map_gpu(self, handle: int, va: int, size: int, **_: Any) -> None:
        """Map memory at an address."""
        self.window.map(Memory(handle, va, size, None), va=va)


@pytest.mark.parametrize("driver", ["570", "580", "595"])
def test_memory_is_mapped_into_an_address_space_of_the_resource_manager(
    make: Callable[..., Client], driver: str
) -> None:
    client = make(driver=driver, filtered=False).up()
    window = Owned(client, offset=0x40_0000)
    one, two = client.memory(4096, gpu=False), client.memory(8192, gpu=False, system=True)
    first, second = window.map(one), window.map(two)
    assert first == 0x40_0000
    assert second >= first + 4096
    assert window.map(one, va=0x80_0000) == 0x80_0000
    refused(int(NvStatus.INVALID_ADDRESS), window.map, two, va=0x80_0000)
    window.unmap(one, 0x80_0000)
    assert window.map(two, va=0x80_0000) == 0x80_0000
    refused(int(NvStatus.INVALID_ADDRESS), window.unmap, one, first + 4096)
    refused(int(NvStatus.INVALID_ADDRESS), window.map, one, va=0x1000)
    refused(0x29, window.map, one, flags=1 << 31)
    client.free(window.handle, client.device)
    assert lint(client) == []


def test_a_channel_runs_in_an_address_space_of_the_resource_manager() -> None:
    client = Unaided(filtered=False)
    client.up()
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    ring.push(sem(memory.va, 7))
    wait_word(memory, 0, 7, client)
    assert lint(client) == []
    client.close()


def test_a_mapping_of_system_memory_without_snooping_is_remarked_on(make: Callable[..., Client]) -> None:
    client = make(filtered=False).up()
    Owned(client).map(client.memory(4096, gpu=False, system=True), flags=0)
    (text,) = lint(client)
    assert "CACHE_SNOOP" in text


def test_map_memory_dma_into_an_address_space_of_uvm_is_refused(make: Callable[..., Client]) -> None:
    client = make(filtered=False).up()
    window = Owned(client, vaspace=client.vaspace)
    refused(int(NvStatus.INVALID_STATE), window.map, client.memory(4096, gpu=False))


def test_a_sandbox_refuses_both_calls(up: Client) -> None:
    with pytest.raises(Status, match="sandbox"):
        Owned(up)
    kind = rm.NVOS47_PARAMETERS
    with pytest.raises(DriverError, match="sandbox"):
        up.escape(up.ctl, Escape.NV_ESC_RM_UNMAP_MEMORY_DMA, bytearray(kind().to_bytes()))


def launcher_of(client: Client, *texts: str) -> tuple[Launcher, Any, Memory]:
    launcher = Launcher.make(client)
    return launcher, upload(client, cubin(launcher.profile, *texts)), client.memory(4096)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("word", ["ntid", "nctaid"])
def test_an_unset_shape_that_no_code_reads_gets_advice(
    make: Callable[..., Client], profile: str, word: str
) -> None:
    client = make(profile).up()
    launcher, code, memory = launcher_of(client, STORE)
    params = struct.pack("<QI", memory.va, 5)
    launcher.run(code, "store", params, words={word: (0, 0, 0)})
    launcher.run(code, "store", params, words={word: (0, 0, 0)})
    assert memory.view[0] == 5
    (text,) = lint(client)
    assert f"{word} is (0, 0, 0)" in text


@pytest.mark.parametrize("profile", ["sm_80", "sm_120"])
def test_shared_memory_comes_in_steps_of_128_bytes(make: Callable[..., Client], profile: str) -> None:
    client = make(profile).up()
    launcher, code, memory = launcher_of(client, STORE)
    launcher.run(code, "store", struct.pack("<QI", memory.va, 5), shared=0x480)
    assert lint(client) == []


def bank_fields(client: Client, size: int) -> dict[str, Any]:
    return {"CONSTANT_BUFFER_SIZE_SHIFTED4": (size // 16, *[0] * 7)}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_declared_bank_that_is_not_mapped_to_its_end_is_remarked_on(
    make: Callable[..., Client], profile: str
) -> None:
    client = make(profile).up()
    launcher, code, memory = launcher_of(client, STORE)
    params = struct.pack("<QI", memory.va, 5)
    page = client.memory(4096)
    content = launcher.bank0(params, (1, 1, 1), (1, 1, 1))
    page.view[4096 - 1024 * 2 : 4096 - 1024 * 2 + len(content)] = content
    launcher.run(code, "store", params, bank0=page.va + 2048, **bank_fields(client, 0x4000))
    assert memory.view[0] == 5
    (text,) = lint(client)
    assert "not all are mapped" in text


def test_the_unused_end_of_a_bank_may_change_between_launches(up: Client) -> None:
    launcher, code, memory = launcher_of(up, STORE)
    params = struct.pack("<QI", memory.va, 5)
    page = up.memory(4096)
    content = launcher.bank0(params, (1, 1, 1), (1, 1, 1))
    page.view[: len(content)] = content
    fields = bank_fields(up, 0x1000) | {"INVALIDATE_SHADER_CONSTANT_CACHE": False}
    for value in (1, 2, 3):
        page.view[4000] = value
        launcher.run(code, "store", params, bank0=page.va, **fields)
    assert lint(up) == []


def test_a_copy_onto_itself_is_remarked_on_once(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    memory.view[0:4] = b"abcd"
    for value in (1, 2):
        words = (memory.va >> 32, memory.va & 0xFFFF_FFFF) * 2
        ring.push([*method(4, 0x400, *words), *method(4, 0x418, 4), *method(4, 0x300, 0x186)])
        ring.push(sem(memory.va + 64, value, RELEASE_WFI=True))
        wait_word(memory, 64, value, up)
    assert bytes(memory.view[0:4]) == b"abcd"
    (text,) = lint(up)
    assert "to itself" in text


def test_a_sibling_of_a_generation_has_its_own_sm_version(make: Callable[..., Client]) -> None:
    """sm_87 is of the generation of sm_86: its descriptors, its methods and its information differ."""
    client = make("sm_86").up()
    launcher, code, memory = launcher_of(client, STORE)
    client.card.profile = replace(client.card.profile, name="sm_87")
    params = struct.pack("<QI", memory.va, 5)
    launcher.ring.push(method(1, M.SET_SPA_VERSION, 0x807), ring=False)
    launcher.run(code, "store", params, SASS_VERSION=0x87)
    pair = bytearray(ctl.NV2080_CTRL_GR_INFO(index=GrInfo.SM_VERSION).to_bytes())
    where = {"grInfoListSize": 1, "grInfoList": address_of(pair)}
    client.control(client.subdevice, Control.NV2080_CTRL_CMD_GR_GET_INFO, **where)
    assert ctl.NV2080_CTRL_GR_INFO.from_bytes(pair).data == 0x807
    assert "SASS_VERSION 0x86 is not 0x87" in launcher.fails(code, "store", params, SASS_VERSION=0x86)
