"""Launches without the resources that the image requires, on every architecture; one violation in each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from drivers.elf import Elf
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.cubin import InfoAttribute, InfoFormat, InfoRecord
from drivers.nv.layouts.fault import RcCode
from emulator.ir.library import Sanitizers
from emulator.nv.engines.cubins import Cubin
from emulator.nv.machine import FindingKind
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import Client, method
from tests.emulator.nv_machine.launching import (
    CONSTANTS,
    LOCAL_WINDOW,
    REVERSE,
    SHARED_WINDOW,
    STACK,
    STORE,
    Launcher,
    cubin,
    set_pair,
    split,
    upload,
)

PROFILES = ["sm_80", "sm_90", "sm_120"]
PARAM_BASE = {"sm_80": 0x160, "sm_90": 0x210, "sm_120": 0x380}
REVERSE_SHARED = 512 + 0x400
"""Its variable and the reserved part, which .nv.shared includes or not (nv.md 5.6)."""

Make = Callable[..., Client]


@pytest.fixture(params=PROFILES)
def launcher(make: Make, request: Any) -> Launcher:
    return Launcher.make(make(request.param).up())


@pytest.fixture
def hopper(make: Make) -> Launcher:
    return Launcher.make(make().up())


def record(raw: bytes, section: str, attribute: InfoAttribute) -> int:
    """Return where the first info record of an attribute lies in an image."""
    elf = Elf(raw)
    found = elf.section(section)
    assert found is not None
    at = found.offset
    while at < found.offset + found.size:
        head = InfoRecord.from_bytes(raw, at)
        if head.attribute == attribute:
            return at
        at += InfoRecord.SIZE + (head.value if head.format == InfoFormat.SVAL else 0)
    raise AssertionError(f"{section} has no {attribute.name}")


def patched(raw: bytes, changes: Mapping[int, bytes]) -> bytes:
    """Return an image with other bytes at some offsets."""
    out = bytearray(raw)
    for at, data in changes.items():
        out[at : at + len(data)] = data
    return bytes(out)


def header_of(raw: bytes, section: str) -> int:
    """Return where the section header of a name lies in an image."""
    elf = Elf(raw)
    found = elf.section(section)
    assert found is not None
    (table,) = struct.unpack_from("<Q", raw, 0x28)
    return int(table) + found.index * 64


def test_the_parameter_base_must_be_the_architectures(launcher: Launcher) -> None:
    base = PARAM_BASE[launcher.profile]
    raw = cubin(launcher.profile, STORE)
    at = record(raw, ".nv.info.store", InfoAttribute.PARAM_CBANK) + 8
    assert struct.unpack_from("<H", raw, at) == (base,)
    code = upload(launcher.client, patched(raw, {at: struct.pack("<H", base + 0x10)}))
    text = launcher.fails(code, "store", bytes(12))
    assert "the parameters of store" in text
    assert f"{base + 0x10:#x}" in text
    assert f"{base:#x}" in text


def test_bank_0_must_cover_the_size_in_the_image(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin(launcher.profile, STORE))
    base = PARAM_BASE[launcher.profile]
    text = launcher.fails(code, "store", bytes(12), CONSTANT_BUFFER_SIZE_SHIFTED4=(base >> 4,))
    assert f"constant bank 0 has {base:#x} bytes, store reads {base + 12:#x}" in text


def test_bank_0_must_cover_what_the_text_reads_beyond_the_size_in_the_image(launcher: Launcher) -> None:
    base = PARAM_BASE[launcher.profile]
    raw = cubin(launcher.profile, STORE)
    size = record(raw, ".nv.info.store", InfoAttribute.PARAM_CBANK) + 10
    bank = header_of(raw, ".nv.constant0.store") + 0x20
    less = patched(raw, {size: struct.pack("<H", 0), bank: struct.pack("<Q", base)})
    code = upload(launcher.client, less)
    text = launcher.fails(code, "store", bytes(12), CONSTANT_BUFFER_SIZE_SHIFTED4=(base >> 4,))
    assert "store reads 12 bytes of parameters, bank 0 has 0 after the driver's words" in text


def test_shared_memory_must_hold_the_static_part(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin(launcher.profile, REVERSE))
    text = launcher.fails(code, "reverse", bytes(8), block=(128, 1, 1), shared=0x500)
    assert f"reverse needs {REVERSE_SHARED:#x} bytes shared, the descriptor gives 0x500" in text


def test_dynamic_shared_memory_must_have_room(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin(launcher.profile, REVERSE))
    shape: dict[str, Any] = {"block": (128, 1, 1), "shared": 0x700}
    text = launcher.fails(code, "reverse", bytes(8), words={"dynamic_shared_size": 0x101}, **shape)
    assert "0x101 bytes of dynamic shared memory, room is for 0x100" in text


def test_the_reserved_part_alone_needs_no_window(launcher: Launcher) -> None:
    """Also where the image counts it as static memory (nv.md 5.6)."""
    code = upload(launcher.client, cubin(launcher.profile, STORE))
    data = launcher.client.memory(4096)
    params = struct.pack("<QI", data.va, 3)
    launcher.run(code, "store", params, shared=0x400, words={"shared_window": 0})
    assert data.view[0] == 3


@pytest.mark.parametrize("profile", ["sm_80", "sm_120"])
def test_dynamic_memory_alone_needs_the_window_too(make: Make, profile: str) -> None:
    launcher = Launcher.make(make(profile).up())
    code = upload(launcher.client, cubin(profile, STORE))
    text = launcher.fails(code, "store", bytes(12), shared=0x800, words={"shared_window": 0})
    assert "shared_window is 0" in text


def test_registers_must_reach_the_images_need(launcher: Launcher) -> None:
    raw = cubin(launcher.profile, STORE)
    needed = Cubin.parse(raw).kernels["store"].registers
    code = upload(launcher.client, raw)
    old = launcher.client.generation.qmd == "V03"
    count = {"REGISTER_COUNT_V" if old else "REGISTER_COUNT": needed - 1}
    text = launcher.fails(code, "store", bytes(12), **count)
    assert f"store needs {needed} registers, the descriptor gives {needed - 1}" in text


def test_an_image_without_a_register_count_is_refused(hopper: Launcher) -> None:
    raw = cubin("sm_90", STORE)
    at = record(raw, ".nv.info", InfoAttribute.REGCOUNT)
    code = upload(hopper.client, patched(raw, {at + 1: b"\x50"}))
    assert "how many registers store needs" in hopper.fails(code, "store", bytes(12))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0x1F0, 0), (0, 0x1F0)])
def test_local_memory_must_hold_the_stack(launcher: Launcher, low: int, high: int) -> None:
    raw = cubin(launcher.profile, STACK)
    stack = Cubin.parse(raw).kernels["stack"].stack
    assert stack == 0x200
    code = upload(launcher.client, raw)
    launcher.local(0x400 * 32 * 64 * 2)
    text = launcher.fails(code, "stack", bytes(12), low=low, high=high, words={"stack_pointer": 0x200})
    assert f"stack needs 0x200 bytes of stack, the descriptor gives {(low, high)}" in text


@pytest.mark.parametrize(
    ("kw", "pointer"),
    [({"low": 0x200}, 0), ({"low": 0x200}, 0x240), ({"high": 0x430}, 0xFFFDC0), ({"high": 0x440}, 0x200)],
)
def test_the_stack_pointer_must_go_with_a_size(launcher: Launcher, kw: Any, pointer: int) -> None:
    code = upload(launcher.client, cubin(launcher.profile, STACK))
    launcher.local(0x600 * 32 * 64 * 2)
    text = launcher.fails(code, "stack", bytes(12), **kw, words={"stack_pointer": pointer})
    assert f"the stack pointer {pointer:#x} fits neither" in text


LOCAL = {"low": 0x200, "words": {"stack_pointer": 0x200}}


@pytest.mark.parametrize(
    ("a", "b", "c", "text"),
    [
        (0, 0x20_4000, 0xFF, "in steps of 0x8000"),
        (0, 0x1F_8000, 0xFF, "needs 0x200000"),
        (0, 0x20_0000, 1, "1 SMs: wanted"),
        (0, 0x20_0000, None, "was never set"),
    ],
)
def test_the_sizes_of_local_memory_are_validated(
    launcher: Launcher, a: int, b: int, c: Any, text: str
) -> None:
    code = upload(launcher.client, cubin(launcher.profile, STACK))
    backing = launcher.client.memory(0x24_0000 * launcher.client.machine.gpus[0].profile.tpcs)
    launcher.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_A, backing.va), ring=False)
    words = (a, b) if c is None else (a, b, c)
    launcher.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, *words), ring=False)
    assert text in launcher.fails(code, "stack", bytes(12), **LOCAL)


def test_local_memory_is_mapped_to_its_rounded_end(hopper: Launcher) -> None:
    """66 TPCs of 0x208000 bytes end 0x10000 before the next multiple of 0x20000 (nv.md 2.8)."""
    code = upload(hopper.client, cubin("sm_90", STACK))
    per_tpc = 0x20_8000
    backing = hopper.client.memory(per_tpc * 66)
    assert backing.size % 0x20000 == 0x10000
    hopper.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_A, backing.va), ring=False)
    hopper.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 0, per_tpc, 0xFF), ring=False)
    params = struct.pack("<QI", hopper.client.memory(4096).va, 1)
    assert "local memory of stack touches" in hopper.fails(code, "stack", params, **LOCAL)
    assert hopper.ring.error() == RcCode.MMU_FAULT


LITTER = {"sm_80": (8, 8), "sm_90": (8, 9), "sm_120": (12, 8)}
"""GPCs of the full die, and TPCs of each."""
IN_USE = {"sm_80": 54, "sm_90": 66, "sm_120": 85}


PER_TPC = 0x20_0000


def strict(make: Make, profile: str) -> Launcher:
    """Return a launcher of a machine on which doubtful findings stop a channel."""
    return Launcher.make(make(profile, checks=Sanitizers.all()).up())


def back(launcher: Launcher, parts: int) -> None:
    """Back local memory with a part for each of so many TPCs."""
    backing = launcher.client.memory(PER_TPC * parts)
    launcher.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_A, backing.va), ring=False)
    launcher.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 0, PER_TPC, 0xFF), ring=False)


def launch_stack(launcher: Launcher) -> dict[str, Any]:
    """Return the launch of a kernel with local memory."""
    code = upload(launcher.client, cubin(launcher.profile, STACK))
    data = launcher.client.memory(4096)
    return {"code": code, "name": "stack", "params": struct.pack("<QI", data.va, 0)} | LOCAL


@pytest.mark.sampled(7)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("parts", ["in use", "all but one"])
def test_local_memory_is_backed_for_the_full_die(make: Make, profile: str, parts: str) -> None:
    launcher = strict(make, profile)
    gpcs, tpcs = LITTER[profile]
    number = IN_USE[profile] if parts == "in use" else gpcs * tpcs - 1
    back(launcher, number)
    text = launcher.fails(**launch_stack(launcher))
    assert f"backing of local memory of stack has {PER_TPC * number:#x} bytes" in text
    assert f"wanted {PER_TPC * gpcs * tpcs:#x}: {PER_TPC:#x} per TPC x {gpcs * tpcs} TPCs" in text
    assert launcher.ring.error() == RcCode.GR_EXCEPTION


@pytest.mark.sampled(3)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_backing_for_the_full_die_is_enough(make: Make, profile: str) -> None:
    launcher = strict(make, profile)
    gpcs, tpcs = LITTER[profile]
    back(launcher, gpcs * tpcs)
    launcher.run(**launch_stack(launcher))
    assert launcher.client.kernel.reports == []


def test_memory_behind_a_backing_is_no_part_of_it(make: Make) -> None:
    launcher = strict(make, "sm_90")
    client = launcher.client
    back(launcher, 66)
    client.next_va -= 64 << 10  # the hole that is left behind every allocation
    client.memory(PER_TPC * 6)
    assert "backing of local memory of stack has" in launcher.fails(**launch_stack(launcher))


def test_a_backing_for_the_tpcs_in_use_gets_advice_by_default(hopper: Launcher) -> None:
    back(hopper, 66)
    hopper.run(**launch_stack(hopper))
    (report,) = hopper.client.kernel.reports
    assert report.kind is FindingKind.ADVICE
    assert "backing of local memory of stack has" in report.message


def test_hopper_may_count_further_with_local_memory(hopper: Launcher) -> None:
    code = upload(hopper.client, cubin("sm_90", STACK))
    hopper.local(0x20_0000)
    data = hopper.client.memory(4096)
    hopper.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C, 0x4242_00FF), ring=False)
    hopper.run(code, "stack", struct.pack("<QI", data.va, 1), **LOCAL)


@pytest.mark.parametrize(("profile", "word"), [("sm_90", 0x3FF), ("sm_80", 0x1_00FF), ("sm_120", 0x1_00FF)])
def test_other_bits_of_the_count_are_refused(make: Make, profile: str, word: int) -> None:
    client = make(profile).up()
    ring = client.compute_channel()
    ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C, word))
    assert ring.wait_error() == RcCode.GR_CLASS_ERROR


CLUSTERS = [
    ("cluster_nctaid", (2, 1, 1), (1, 1, 1)),
    ("nclusterid", (1, 1, 1), (3, 2, 1)),
    ("cluster_nctarank", 2, 1),
]


@pytest.mark.parametrize(("word", "bad", "good"), CLUSTERS)
def test_the_words_of_clusters_are_for_none(hopper: Launcher, word: str, bad: Any, good: Any) -> None:
    code = upload(hopper.client, cubin("sm_90", STORE))
    params = struct.pack("<QI", hopper.client.memory(4096).va, 1)
    hopper.run(code, "store", params, grid=(3, 2, 1), words={word: good})
    text = hopper.fails(code, "store", params, grid=(3, 2, 1), words={word: bad})
    assert f"{word} is {bad}, wanted {good} or nothing" in text


@pytest.mark.parametrize(
    ("shared", "local"), [(SHARED_WINDOW, SHARED_WINDOW), (SHARED_WINDOW, SHARED_WINDOW + (1 << 24))]
)
def test_windows_that_overlap_are_an_invalid_address_space(hopper: Launcher, shared: int, local: int) -> None:
    code = upload(hopper.client, cubin("sm_90", STORE))
    hopper.ring.push(set_pair(M.SET_SHADER_SHARED_MEMORY_WINDOW_A, shared), ring=False)
    hopper.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_WINDOW_A, local), ring=False)
    words = {"shared_window": 0, "local_window": 0}
    assert "windows overlap" in hopper.fails(code, "store", bytes(12), words=words)
    assert hopper.ring.error() == RcCode.GR_EXCEPTION


@pytest.mark.parametrize(("window", "text"), [(0, "zero"), (LOCAL_WINDOW + 4096, "not aligned to 0x1000000")])
def test_the_local_window_is_validated(launcher: Launcher, window: int, text: str) -> None:
    code = upload(launcher.client, cubin(launcher.profile, STORE))
    launcher.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_WINDOW_A, window), ring=False)
    assert text in launcher.fails(code, "store", bytes(12), words={"local_window": 0})


def prefetch(va: int, size: int) -> dict[str, int]:
    return split("PROGRAM_PREFETCH_ADDR", va >> 8, "_SHIFTED") | {"PROGRAM_PREFETCH_SIZE": size >> 8}


def test_the_prefetch_is_checked_at_every_launch(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin(launcher.profile, STORE))
    params = struct.pack("<QI", launcher.client.memory(4096).va, 1)
    program = code.at(".text.store")
    launcher.run(code, "store", params, **prefetch(program & -256, 0x200))
    other = prefetch((program & -256) + 0x400, 0x200)
    text = launcher.fails(code, "store", params, **other)
    assert f"is not the program at {program:#x}" in text


def test_a_prefetch_that_is_not_mapped_faults(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin(launcher.profile, STORE))
    first = code.memory.va - 0x100
    text = launcher.fails(code, "store", bytes(12), **prefetch(first, 0x1_0000))
    assert "the prefetch of code touches" in text
    assert launcher.ring.error() == RcCode.MMU_FAULT


@pytest.mark.parametrize(
    ("what", "change", "text"),
    [
        ("machine", {18: b"\x3e\0"}, "no cubin: machine 62"),
        ("ABI", {7: b"\x40"}, "ABI 0x40 version 8"),
        ("ABI version", {8: b"\x07"}, "ABI 0x41 version 7"),
    ],
)
def test_other_containers_are_refused(what: str, change: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Cubin.parse(patched(cubin("sm_90", STORE), change))
    assert what


def test_info_records_of_an_unknown_format_or_cut_off_are_refused() -> None:
    raw = cubin("sm_90", STORE)
    info = Elf(raw).section(".nv.info.store")
    assert info is not None
    with pytest.raises(UsageError, match="format 5"):
        Cubin.parse(patched(raw, {info.offset: b"\x05"}))
    size = header_of(raw, ".nv.info.store") + 0x20
    for less in (1, 5):
        with pytest.raises(UsageError):
            Cubin.parse(patched(raw, {size: struct.pack("<Q", info.size - less)}))


def test_relocations_that_cannot_be_are_refused() -> None:
    raw = cubin("sm_90", CONSTANTS)
    elf = Elf(raw)
    table = next(s for s in elf.sections if s.name == ".rela.text.constants")
    for change, text in (
        ({table.offset: struct.pack("<Q", 1 << 20)}, "lies outside"),
        ({table.offset + 8: struct.pack("<I", 99)}, "type 99 has no formula"),
        ({table.offset + 12: struct.pack("<I", 0)}, "does not define"),
    ):
        with pytest.raises(UsageError, match=text):
            Cubin.parse(patched(raw, change))


def test_an_image_whose_ptx_lacks_the_kernel_is_refused(hopper: Launcher) -> None:
    raw = bytearray(cubin("sm_90", STORE))
    at = raw.index(b".entry store") + 7
    raw[at : at + 5] = b"other"
    code = upload(hopper.client, bytes(raw))
    assert "store cannot be launched" in hopper.fails(code, "store", bytes(12))
    assert hopper.client.kernel.reports[0].kind is FindingKind.LAUNCH
