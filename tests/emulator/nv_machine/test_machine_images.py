"""Images in device memory: the search for them, relocations, images that are kept, repeated launches."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.cubin import Relocation
from drivers.nv.layouts.qmd_values import SemaphoreSize
from emulator.nv.engines.cubins import Cubin
from emulator.nv.engines.images import Images
from emulator.nv.engines.ready import Modules
from emulator.nv.ptx.accuracy import counts
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import MIB, Client
from tests.emulator.nv_machine.launching import (
    CALL,
    CONSTANTS,
    HEAD,
    JUMPS,
    SHARED_WINDOW,
    STORE,
    Code,
    Launcher,
    cubin,
    upload,
)

Make = Callable[..., Client]


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


@pytest.mark.parametrize("kind", [Relocation.R_CUDA_ABS32_LO, Relocation.R_CUDA_ABS32_HI])
def test_half_an_address_that_is_wrong_is_named(launcher: Launcher, kind: Relocation) -> None:
    raw = cubin("sm_90", CALL)
    code = upload(launcher.client, raw)
    patch = next(p for p in Cubin.parse(raw).kernels["calls"].patches if p.type == kind)
    code.memory.view[code.at(".text.calls") - code.memory.va + patch.offset + 4] ^= 0x40
    text = launcher.fails(code, "calls", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert kind.name in text


MOST = 3


def numbered(number: int) -> str:
    """Return a kernel that stores its parameter plus a number."""
    added = f"add.u32 %r0, %r0, {number}; st.global"
    return STORE.replace("store(", f"store{number}(").replace("st.global", added)


def text(number: int) -> str:
    return HEAD.format(arch="sm_90") + numbered(number)


@pytest.fixture
def few_launcher(make: Make) -> Launcher:
    """Return a launcher whose machine keeps few images and modules."""
    few_launcher = Launcher.make(make("sm_90").up())
    machine = few_launcher.client.machine
    machine.images = Images(most=MOST)
    machine.grids.modules = Modules(machine.grids.settings, most=MOST)
    return few_launcher


def test_a_machine_keeps_the_images_and_modules_that_ran_last(few_launcher: Launcher) -> None:
    machine, data = few_launcher.client.machine, few_launcher.client.memory(4096)
    codes = [upload(few_launcher.client, cubin("sm_90", numbered(number))) for number in range(3 * MOST)]
    for turn in range(2):
        for number, code in enumerate(codes):
            few_launcher.run(code, f"store{number}", struct.pack("<QI", data.va, 10 * turn))
            assert struct.unpack_from("<I", data.view)[0] == 10 * turn + number
            assert len(machine.images) == len(machine.grids.modules) == min(MOST, number + 1 + turn * MOST)


def test_an_image_that_is_registered_stays(few_launcher: Launcher) -> None:
    machine, data = few_launcher.client.machine, few_launcher.client.memory(4096)
    raw = cubin("sm_90", numbered(0))
    machine.images.learn(raw)
    hidden = upload(few_launcher.client, raw, whole=False)
    for number in range(1, 2 * MOST):
        code = upload(few_launcher.client, cubin("sm_90", numbered(number)))
        few_launcher.run(code, f"store{number}", struct.pack("<QI", data.va, 0))
    few_launcher.run(hidden, "store0", struct.pack("<QI", data.va, 77))
    assert struct.unpack_from("<I", data.view)[0] == 77
    assert len(machine.images) == MOST + 1


def test_modules_are_one_for_equal_ptx_and_the_first_used_is_dropped_first(few_launcher: Launcher) -> None:
    modules = few_launcher.client.machine.grids.modules
    first, second = modules.find(text(0), "sm_90"), modules.find(text(1), "sm_90")
    assert modules.find(text(0), "sm_90") is first
    for number in range(2, MOST + 1):
        modules.find(text(number), "sm_90")
    assert modules.find(text(0), "sm_90") is first
    assert modules.find(text(1), "sm_90") is not second
    assert len(modules) == MOST


def test_instructions_of_a_module_that_was_dropped_are_counted_again(few_launcher: Launcher) -> None:
    modules = few_launcher.client.machine.grids.modules
    kernel = modules.find(text(0), "sm_90").kernel("store0", {})
    counted = modules.counts(text(0), kernel)
    assert counted == counts(kernel.flat)
    assert modules.counts(text(0), kernel) is counted
    for number in range(1, MOST + 1):
        modules.find(text(number), "sm_90")
    assert modules.counts(text(0), kernel) == counted


def test_ptx_that_is_refused_is_not_kept(few_launcher: Launcher) -> None:
    modules = few_launcher.client.machine.grids.modules
    for _ in range(2):
        with pytest.raises(UsageError):
            modules.find(HEAD.format(arch="sm_120"), "sm_90")
    assert not len(modules)


def prepared(make: Make, profile: str, *texts: str) -> tuple[Launcher, Code, int]:
    """Return a launcher, an image of which kernel "store" has run twice, and the address of its result."""
    launcher = Launcher.make(make(profile).up())
    code = upload(launcher.client, cubin(profile, STORE, *texts))
    data = launcher.client.memory(4096)
    for value in (5, 6):
        launcher.run(code, "store", struct.pack("<QI", data.va, value))
        assert struct.unpack_from("<I", data.view)[0] == value
    return launcher, code, data.va


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"words": {"ntid": (2, 1, 1)}}, "ntid is (2, 1, 1)"),
        ({"words": {"shared_window": 1 << 32}}, "shared_window"),
        ({"grid": (0, 1, 1)}, "has a zero"),
        ({"BARRIER_COUNT": 0, "CTA_THREAD_DIMENSION2": 65, "block": (1, 1, 65)}, "64 in z"),
        ({"SASS_VERSION": 1}, "SASS_VERSION"),
        ({"CONSTANT_BUFFER_SIZE_SHIFTED4": (0,)}, "wanted 0x10"),
    ],
)
def test_a_wrong_launch_is_refused_after_right_ones(
    make: Make, profile: str, wrong: dict[str, Any], text: str
) -> None:
    launcher, code, va = prepared(make, profile)
    assert text in launcher.fails(code, "store", struct.pack("<QI", va, 7), **wrong)


def test_a_bank_that_is_not_aligned_is_refused_after_right_ones(make: Make) -> None:
    launcher, code, va = prepared(make, "sm_80")
    content = launcher.bank0(struct.pack("<QI", va, 7), (1, 1, 1), (1, 1, 1))
    launcher.place(bytes(64), align=64)
    at = launcher.place(content, align=64)
    assert at % 256
    assert "not aligned to 256" in launcher.fails(code, "store", struct.pack("<QI", va, 7), bank0=at)


def test_a_release_that_cannot_be_is_refused_after_a_right_one(make: Make) -> None:
    launcher, code, va = prepared(make, "sm_90")
    right: dict[str, Any] = {
        "RELEASE_ENABLE": (True,),
        "RELEASE_MEMBAR_TYPE": (1,),
        "RELEASE_STRUCTURE_SIZE": (SemaphoreSize.SEMAPHORE_ONE_WORD,),
        "RELEASE_SEMAPHORE0_ADDR_UPPER": va >> 32,
    }
    for at in (64, 128):
        own = {"RELEASE_SEMAPHORE0_ADDR_LOWER": va + at & 0xFFFF_FFFF, "RELEASE_SEMAPHORE0_PAYLOAD_LOWER": at}
        launcher.run(code, "store", struct.pack("<QI", va, 7), **right, **own)
        raw = launcher.client.machine.maps()[0].read(va + at, 4)
        assert struct.unpack("<I", raw)[0] == at
    wrong = right | {"RELEASE_SEMAPHORE0_ADDR_LOWER": va + 2 & 0xFFFF_FFFF}
    assert "must be aligned to 4 bytes" in launcher.fails(code, "store", struct.pack("<QI", va, 7), **wrong)


def test_memory_mapped_in_a_window_is_found_at_the_next_launch(make: Make) -> None:
    launcher, code, va = prepared(make, "sm_90")
    client = launcher.client
    client.next_va = SHARED_WINDOW
    client.memory(4096)
    text = launcher.fails(code, "store", struct.pack("<QI", va, 7))
    assert "lies in the shared memory window" in text


def test_another_table_of_jumps_is_refused_after_the_right_one(make: Make) -> None:
    launcher = Launcher.make(make("sm_90").up())
    code = upload(launcher.client, cubin("sm_90", JUMPS))
    va, banks = launcher.client.memory(4096).va, launcher.banks(code, "jumps")
    for _ in range(2):
        launcher.run(code, "jumps", struct.pack("<Q", va), banks=banks)
    at, size = banks[2]
    first = at - launcher.arguments.va
    content = bytearray(launcher.arguments.view[first : first + size])
    content[0] ^= 16
    wrong = banks | {2: (launcher.place(bytes(content)), size)}
    text = launcher.fails(code, "jumps", struct.pack("<Q", va), banks=wrong)
    assert "jumps" in text
    assert "wanted" in text or "does not hold" in text
