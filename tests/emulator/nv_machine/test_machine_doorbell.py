"""The doorbell page: the clock through BAR0 only, doorbells through both BARs, and the classes."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.chips import GENERATIONS
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.gpfifo import USERMODE_BYTES, UsermodeRegister
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from emulator.nv.machine import FindingKind
from emulator.nv.profiles import PROFILES
from hcq.errors import DriverError
from tests.emulator.nv_machine.client import Client, Status, sem, wait_until, wait_word
from tests.facts import nv_classes

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.kernel import Mmio

ALL_ONES = 0xFFFF_FFFF
USERMODE = {
    "sm_80": "GA100", "sm_86": "GA10x", "sm_89": "AD10x", "sm_90": "GH100", "sm_100": "GB100",
    "sm_120": "GB20x",
}  # fmt: skip
"""Profile -> the chip whose classes it has."""


def advances(page: Mmio, client: Client) -> None:
    first = page.read32(UsermodeRegister.TIME_0)
    wait_until(lambda: page.read32(UsermodeRegister.TIME_0) != first, client)
    assert first % 32 == 0
    assert page.read32(UsermodeRegister.TIME_1) < 1 << 29


@pytest.mark.parametrize(
    ("profile", "cls"),
    [("sm_80", 0xC461), ("sm_90", 0xC661), ("sm_90", 0xC461), ("sm_90", 0xC561), ("sm_120", 0xC761)],
)
def test_the_clock_moves_in_a_page_mapped_through_bar0(make: Callable[..., Client], profile: str, cls: int):
    client = make(profile, filtered=cls != 0xC561).nodes().objects()  # which sandboxes do not list
    advances(client.page(bar1=False, cls=cls), client)
    assert client.reports() == []


def test_a_page_without_parameters_is_mapped_through_bar0(up: Client):
    page = up.alloc(up.subdevice, 0xC661)
    fd = up.map_fd(up.subdevice, page, USERMODE_BYTES, "/dev/nvidia0")
    advances(up.kernel.mmio(fd, USERMODE_BYTES, 0), up)


@pytest.mark.parametrize("profile", ["sm_90", "sm_120"])
@pytest.mark.parametrize("register", [UsermodeRegister.TIME_0, UsermodeRegister.TIME_1])
def test_a_page_mapped_through_bar1_shows_no_clock(
    make: Callable[..., Client], profile: str, register: UsermodeRegister
):
    client = make(profile).nodes().objects()
    page = client.page(bar1=True)
    assert {page.read32(register) for _ in range(3)} == {ALL_ONES}
    assert [one.kind for one in client.machine.fatal] == [FindingKind.HOST], "told once for each mapping"
    assert f"{register.name} was read through BAR1, which takes stores only" in client.reports()[0]


def test_the_clock_of_one_page_is_independent_of_the_other(up: Client):
    clock = up.page(bar1=False)
    assert up.doorbell.read32(UsermodeRegister.TIME_0) == ALL_ONES
    advances(clock, up)
    up.doorbell.close()
    advances(clock, up)


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("bar1", [False, True])
def test_doorbells_work_through_either_mapping(make: Callable[..., Client], profile: str, *, bar1: bool):
    client = make(profile).up()
    client.doorbell = client.page(bar1=bar1)
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    ring.push(sem(memory.va, 7))
    wait_word(memory, 0, 7, client)
    assert client.reports() == []


def test_doorbells_of_two_pages_reach_the_same_channel(up: Client):
    bar1, bar0 = up.doorbell, up.page(bar1=False)
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    for value in range(1, 5):
        up.doorbell = bar0 if value % 2 else bar1
        ring.push(sem(memory.va, value))
        wait_word(memory, 0, value, up)
    assert up.reports() == []


@pytest.mark.parametrize("profile", PROFILES)
def test_the_class_list_has_the_doorbell_classes_of_the_chip_alone(make: Callable[..., Client], profile: str):
    client = make(profile).nodes().objects()
    listed = client.control(client.device, Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2)
    seen = {one for one in listed.classList[: listed.numClasses] if one & 0xF0FF == 0xC061}
    assert seen == {*nv_classes.BY_ROLE[USERMODE[profile]]["usermode"], *_OLDER[profile]}


_OLDER = {
    "sm_80": (0xC361, 0xC461, 0xC561),
    "sm_86": (0xC361, 0xC461, 0xC561),
    "sm_89": (0xC361, 0xC461, 0xC561),
    "sm_90": (0xC361, 0xC461, 0xC561),
    "sm_100": (0xC361, 0xC461, 0xC561),
    "sm_120": (0xC361, 0xC461, 0xC561, 0xC661),
}
"""Those of older generations, which every list has too (g_gpu_class_list.c)."""


@pytest.mark.parametrize(
    ("profile", "older"),
    [
        ("sm_80", {0xC36F, 0xC46F}),
        ("sm_90", {0xC36F, 0xC46F, 0xC56F}),
        ("sm_100", {0xC36F, 0xC46F, 0xC56F, 0xC86F}),
        ("sm_120", {0xC36F, 0xC46F, 0xC56F, 0xC86F, 0xC96F}),
    ],
)
def test_the_class_list_has_the_channel_classes_of_older_chips(
    make: Callable[..., Client], profile: str, older: set[int]
):
    client = make(profile).nodes().objects()
    listed = client.control(client.device, Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2)
    seen = {one for one in listed.classList[: listed.numClasses] if one & 0xF0FF == 0xC06F}
    assert seen == {*nv_classes.BY_ROLE[USERMODE[profile]]["gpfifo"], *older}


@pytest.mark.parametrize(
    ("profile", "cls"), [("sm_90", 0xC56F), ("sm_120", 0xC56F), ("sm_120", 0xC86F), ("sm_120", 0xC96F)]
)
def test_a_channel_of_an_older_class_runs(make: Callable[..., Client], profile: str, cls: int):
    client = make(profile).up()
    client.generation = replace(client.generation, gpfifo=(cls,))
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    ring.push(sem(memory.va, 7))
    wait_word(memory, 0, 7, client)
    assert client.reports() == []


@pytest.mark.parametrize("cls", [0xC461, 0xC661])
def test_doorbells_work_through_a_page_of_an_older_class(make: Callable[..., Client], cls: int):
    client = make("sm_120").up()
    client.doorbell = client.page(bar1=False, cls=cls)
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    ring.push(sem(memory.va, 7))
    wait_word(memory, 0, 7, client)


def test_the_doorbell_page_is_mapped_through_the_device_too(up: Client):
    page = up.alloc(up.subdevice, 0xC661)
    fd = up.map_fd(up.device, page, USERMODE_BYTES, "/dev/nvidia0")
    advances(up.kernel.mmio(fd, USERMODE_BYTES, 0), up)


@pytest.mark.parametrize(("profile", "enabled"), [("sm_80", 0), ("sm_90", 0), ("sm_100", 0), ("sm_120", 1)])
def test_tokens_of_gb20x_carry_runlist_doorbell(make: Callable[..., Client], profile: str, enabled: int):
    client = make(profile).up()
    assert [ring.token >> 30 for ring in (client.copy_channel(), client.compute_channel())] == [enabled] * 2


@pytest.mark.parametrize(
    ("mask", "name"),
    [(~(1 << 30), "RUNLIST_DOORBELL"), (0xFFF, "RUNLIST"), (0x7FFF_FFFF ^ 0x3F0000, "RUNLIST")],
)
def test_a_masked_token_is_reported_with_its_lost_bits(make: Callable[..., Client], mask: int, name: str):
    client = make("sm_120").up()
    ring = client.copy_channel()
    whole, ring.token = ring.token, ring.token & mask
    ring.push(sem(client.memory(4096).va, 1))
    (text,) = client.kernel.diagnostics()
    assert f"{name} differs" in text or f"{name}, " in text
    assert f"{whole:#x}" in text
    assert client.machine.channels[0].run.name in text


@pytest.mark.parametrize(("compute", "cls"), [(0xCDC0, 0xC661), (0xCBC0, 0xC661)])
def test_doorbell_classes_of_other_chips_are_refused(make: Callable[..., Client], compute: int, cls: int):
    client = make("sm_120")
    client.generation = GENERATIONS[compute]
    client.machine.gpus[0].profile = replace(
        client.machine.gpus[0].profile, generation=client.generation, listed=PROFILES["sm_90"].listed
    )
    client.nodes().objects()
    assert cls in client.machine.gpus[0].profile.classes
    other = 0xC761
    params = rm_classes.NV_HOPPER_USERMODE_A_PARAMS()
    with pytest.raises(Status, match=f"no class {other:#x}") as got:
        client.alloc(client.subdevice, other, params)
    assert got.value.code == NvStatus.INVALID_CLASS
    advances(client.page(bar1=False, cls=cls), client)


def _again(client: Client, what: str, fd: int) -> Any:
    """Prepare a second mapping of a descriptor."""
    if what == "page":
        page = client.alloc(client.subdevice, client.generation.usermode[0])
        return client.map_fd(client.subdevice, page, USERMODE_BYTES, "", fd=fd)
    handle = client.alloc(client.device, RmClass.NV01_MEMORY_LOCAL_USER, client.memory_params(4096))
    return client.map_fd(client.device, handle, 4096, "", fd=fd)


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("what", ["page", "memory"])
def test_a_descriptor_takes_no_second_mapping(
    make: Callable[..., Client], what: str, *, filtered: bool, used: bool
):
    client = make(filtered=filtered).up()
    page = client.alloc(client.subdevice, client.generation.usermode[0])
    fd = client.map_fd(client.subdevice, page, USERMODE_BYTES, "/dev/nvidia0")
    if used:
        client.kernel.mmio(fd, USERMODE_BYTES, 0)
    with pytest.raises(DriverError if filtered else Status, match="has a mapping already") as got:
        _again(client, what, fd)
    code = got.value.code if isinstance(got.value, Status) else got.value.status
    assert code == (errno.EINVAL if filtered else NvStatus.STATE_IN_USE)


def test_the_first_mapping_outlives_a_refused_second(up: Client):
    page = up.alloc(up.subdevice, 0xC661)
    fd = up.map_fd(up.subdevice, page, USERMODE_BYTES, "/dev/nvidia0")
    with pytest.raises(DriverError, match="has a mapping already"):
        _again(up, "memory", fd)
    advances(up.kernel.mmio(fd, USERMODE_BYTES, 0), up)


def test_unmapping_does_not_make_a_descriptor_fresh(up: Client):
    memory = up.memory(4096)
    fd = up.map_fd(up.device, memory.handle, 4096, "/dev/nvidia0")
    got = up.kernel.mmap(4096, fd=fd)
    up.kernel.munmap(got.va, 4096)
    params = rm.NVOS34_PARAMETERS(
        hClient=up.root, hDevice=up.device, hMemory=memory.handle, pLinearAddress=up.cookie
    )
    block = bytearray(params.to_bytes())
    up.escape(up.ctl, Escape.NV_ESC_RM_UNMAP_MEMORY, block)
    assert rm.NVOS34_PARAMETERS.from_bytes(block).status == NvStatus.OK
    with pytest.raises(DriverError, match="has a mapping already"):
        _again(up, "memory", fd)
