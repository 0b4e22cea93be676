"""Images in device memory: the search for them, and their relocated calls and addresses."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from drivers.nv.layouts.cubin import Relocation
from emulator.nv.engines.cubins import Cubin
from tests.emulator.nv_machine.client import MIB, Client
from tests.emulator.nv_machine.launching import (
    CALL,
    CONSTANTS,
    REVERSE,
    STORE,
    Launcher,
    cubin,
    upload,
)

Make = Callable[..., Client]


@pytest.fixture
def launcher(make: Make) -> Launcher:
    return Launcher.make(make().up())


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
def test_calls_are_relocated(make: Make, profile: str) -> None:
    launcher = Launcher.make(make(profile).up())
    client = launcher.client
    raw = cubin(profile, CALL)
    code = upload(client, raw)
    patches = [p for k in Cubin.parse(raw).kernels.values() for p in k.patches]
    data = client.memory(4096)
    local = {"low": 0x200, "words": {"stack_pointer": 0x200}}
    launcher.local(0x200 * 32 * 64 * 2)
    launcher.run(code, "calls", struct.pack("<QI", data.va, 14), **local)
    assert struct.unpack_from("<I", data.view)[0] == 42

    assert {p.type for p in patches} & {Relocation.R_CUDA_ABS47_34, Relocation.R_CUDA_ABS55_16_34}


def test_a_call_to_the_wrong_place_is_named(make: Make) -> None:
    launcher = Launcher.make(make("sm_90").up())
    raw = cubin("sm_90", CONSTANTS)
    code = upload(launcher.client, raw)
    kernel = Cubin.parse(raw).kernels["constants"]
    at = code.at(".text.constants") - code.memory.va
    low = next(p for p in kernel.patches if p.type == Relocation.R_CUDA_ABS32_LO)
    high = next(p for p in kernel.patches if p.type == Relocation.R_CUDA_ABS32_HI)
    banks = launcher.banks(code, "constants")
    struct.pack_into("<I", code.memory.view, at + low.offset + 4, 0x1002)
    struct.pack_into("<I", code.memory.view, at + high.offset + 4, 7)
    text = launcher.fails(code, "constants", bytes(12), banks=banks)
    assert "aligned" in text or "not mapped" in text


def test_a_broken_image_is_reported(launcher: Launcher) -> None:
    raw = bytearray(cubin("sm_90", STORE))
    struct.pack_into("<H", raw, 18, 62)
    code = upload(launcher.client, cubin("sm_90", STORE), whole=False)
    code.memory.view[MIB // 2 : MIB // 2 + len(raw)] = bytes(raw)
    assert "is broken" in launcher.fails(code, "store", bytes(12))


def test_an_image_elsewhere_in_memory_is_found(launcher: Launcher) -> None:
    raw = cubin("sm_90", STORE)
    code = upload(launcher.client, raw, whole=False)
    other, data = launcher.client.memory(MIB), launcher.client.memory(4096)
    other.view[4096 : 4096 + len(raw)] = raw
    launcher.run(code, "store", struct.pack("<QI", data.va, 9))
    assert data.view[0] == 9


DIVIDE = """
.visible .entry divide(.param .u64 at, .param .f64 v) {
 .reg .b64 %d<2>; .reg .f64 %f<4>;
 ld.param.u64 %d0, [at]; ld.param.f64 %f0, [v]; ld.global.f64 %f1, [%d0];
 div.rn.f64 %f2, %f0, %f1; st.global.f64 [%d0], %f2; ret;
}
"""


def test_code_that_calls_the_assemblers_own_functions(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", DIVIDE))
    data = launcher.client.memory(4096)
    struct.pack_into("<d", data.view, 0, 3.0)
    launcher.run(code, "divide", struct.pack("<Qd", data.va, 1.0))
    assert struct.unpack_from("<d", data.view)[0] == 1.0 / 3.0


def test_a_call_target_that_is_wrong_is_named(launcher: Launcher) -> None:
    raw = cubin("sm_90", CALL)
    code = upload(launcher.client, raw)
    patch = next(
        p for p in Cubin.parse(raw).kernels["calls"].patches if p.type == Relocation.R_CUDA_ABS55_16_34
    )
    at = code.at(".text.calls") - code.memory.va + patch.offset
    from drivers.nv.layouts.cubin import CallAbs55

    word = CallAbs55.from_bytes(code.memory.view, at)
    code.memory.view[at : at + 16] = word.replace(TARGET=code.at(".text.calls")).to_bytes()
    text = launcher.fails(code, "calls", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert "where other bytes are" in text


def test_the_device_function_itself_is_compared_too(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", CALL))
    code.memory.view[code.at(".text.triple") - code.memory.va] ^= 1
    text = launcher.fails(code, "calls", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert "where other bytes are" in text


@pytest.mark.parametrize("profile", ["sm_80", "sm_120"])
def test_code_that_reads_the_shared_window_must_find_it(make: Make, profile: str) -> None:
    launcher = Launcher.make(make(profile).up())
    code = upload(launcher.client, cubin(profile, REVERSE))
    words = {"shared_window": 0}
    text = launcher.fails(code, "reverse", bytes(8), block=(128, 1, 1), shared=0x600, words=words)
    assert "shared_window is 0" in text


@pytest.mark.parametrize("kind", [Relocation.R_CUDA_ABS32_LO, Relocation.R_CUDA_ABS32_HI])
def test_half_an_address_that_is_wrong_is_named(launcher: Launcher, kind: Relocation) -> None:
    raw = cubin("sm_90", CALL)
    code = upload(launcher.client, raw)
    patch = next(p for p in Cubin.parse(raw).kernels["calls"].patches if p.type == kind)
    code.memory.view[code.at(".text.calls") - code.memory.va + patch.offset + 4] ^= 0x40
    text = launcher.fails(code, "calls", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert kind.name in text
