"""Launch descriptors: valid fields, and kernels that stop their channel."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, method
from tests.emulator.nv_machine.launching import (
    INCREMENT,
    REVERSE,
    STACK,
    STORE,
    Launcher,
    cubin,
    upload,
)

Make = Callable[..., Client]


def releases(launcher: Launcher, va: int, **more: Any) -> dict[str, Any]:
    fields = {
        "RELEASE_ENABLE": (True,),
        "RELEASE_SEMAPHORE0_ADDR_LOWER": va & 0xFFFF_FFFF,
        "RELEASE_MEMBAR_TYPE": (1,),
    }
    return fields | {"RELEASE_SEMAPHORE0_ADDR_UPPER": va >> 32, "RELEASE_SEMAPHORE0_PAYLOAD_LOWER": 5} | more


def test_a_release_can_reduce_and_trap(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    struct.pack_into("<I", data.view, 64, 7)
    more = {"RELEASE_REDUCTION_ENABLE": (True,), "RELEASE_STRUCTURE_SIZE": (1,), "RELEASE_TRAP_TYPE": (1,)}
    launcher.run(code, "store", struct.pack("<QI", data.va, 1), **releases(launcher, data.va + 64, **more))
    assert struct.unpack_from("<I", data.view, 64)[0] == 12


def test_a_release_of_one_word_has_no_wide_payload(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    more = {"RELEASE_PAYLOAD64B": (True,), "RELEASE_STRUCTURE_SIZE": (1,)}
    text = launcher.fails(
        code, "store", struct.pack("<QI", data.va, 1), **releases(launcher, data.va, **more)
    )
    assert "one word" in text


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"QMD_TYPE": 3}, FindingKind.LAUNCH, "clusters of"),
        ({"GPC_CGA_WIDTH": 2}, FindingKind.LAUNCH, "GPC_CGA_WIDTH"),
        ({"GRID_WIDTH": 1 << 31}, FindingKind.LAUNCH, "wider"),
        ({"CTA_THREAD_DIMENSION0": 1024, "REGISTER_COUNT": 255}, FindingKind.LAUNCH, "fit an SM"),
    ],
)
def test_more_descriptors_are_refused(
    launcher: Launcher, fields: dict[str, int], kind: FindingKind, text: str
) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    block = (fields.get("CTA_THREAD_DIMENSION0", 1), 1, 1)
    assert text in launcher.fails(code, "store", bytes(12), block=block, **fields)
    assert launcher.client.kernel.reports[0].kind is kind


def test_ampere_has_one_dependent_pointer(make: Make) -> None:
    launcher = Launcher.make(make("sm_80").up())
    code = upload(launcher.client, cubin("sm_80", STORE))
    fields = {"DEPENDENT_QMD1_ENABLE": True, "DEPENDENT_QMD1_ACTION": 1}
    assert "no pointer" in launcher.fails(code, "store", bytes(12), **fields)


def test_all_zero_carve_outs_go_with_no_shared_memory(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    zeros = {f"{name}_SM_CONFIG_SHARED_MEM_SIZE": 0 for name in ("MIN", "TARGET", "MAX")}
    launcher.run(code, "store", struct.pack("<QI", data.va, 1), **zeros)


def test_a_bank_that_the_image_does_not_have_is_refused(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    other = {2: (launcher.place(bytes(64)), 64)}
    assert "the image has none" in launcher.fails(code, "store", bytes(12), banks=other)


def test_an_invalidate_without_waiting_and_one_of_a_descriptor(launcher: Launcher) -> None:
    client = launcher.client
    code = upload(client, cubin("sm_90", INCREMENT))
    data = client.memory(4096)
    quiet = {"INVALIDATE_SHADER_CONSTANT_CACHE": False}
    params = struct.pack("<Q", data.va)
    first = launcher.place(launcher.bank0(params, (1, 1, 1), (1, 1, 1)))
    va = launcher.qmd(launcher.descriptor(code, "increment", params, bank0=first, **quiet))
    launcher.finish(launcher.send(va))
    at = first - launcher.arguments.va + 0x210
    struct.pack_into("<Q", launcher.arguments.view, at, data.va + 64)
    invalidate = method(1, M.INVALIDATE_SHADER_CACHES_NO_WFI, 0x1011)
    launcher.finish(invalidate + launcher.send(va, 1) + launcher.send(va))
    assert struct.unpack_from("<I", data.view, 64)[0] == 1


def test_a_local_window_that_is_not_set_is_refused(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STACK))
    assert "was never set" in launcher.fails(
        code, "stack", bytes(12), low=0x200, words={"stack_pointer": 0x200}
    )


def test_a_kernel_that_writes_its_own_parameters_is_a_lifetime_error(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    launcher.used = 4096
    first = launcher.arguments.va + launcher.used
    launcher.fails(code, "store", struct.pack("<QI", first + 0x210, 9))
    assert launcher.client.kernel.reports[0].kind is FindingKind.LIFETIME


def test_a_block_that_the_kernel_does_not_allow_is_refused(launcher: Launcher) -> None:
    text = STORE.replace("store(", "fixed(").replace(") {", ") .reqntid 32 {", 1)
    code = upload(launcher.client, cubin("sm_90", text))
    assert "reqntid" in launcher.fails(code, "fixed", bytes(12))


def test_a_sanitizer_finding_stops_the_channel(make: Make) -> None:
    from emulator.ir.library import Sanitizers

    text = REVERSE.replace("bar.sync 0;", "")
    for checks, found in ((None, False), (Sanitizers.all(), True)):
        launcher = Launcher.make(make(checks=checks).up())
        code = upload(launcher.client, cubin("sm_90", text))
        data = launcher.client.memory(4096)
        shape: dict[str, Any] = {"block": (128, 1, 1), "shared": 0x600}
        if found:
            assert "uninitialized" in launcher.fails(code, "reverse", struct.pack("<Q", data.va), **shape)
        else:
            launcher.run(code, "reverse", struct.pack("<Q", data.va), **shape)
