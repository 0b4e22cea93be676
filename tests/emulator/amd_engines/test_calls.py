"""Kernels with functions that were not inlined: calls by `s_swappc_b64`, returns by `s_setpc_b64`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from drivers.amd.layouts.code import Descriptor
from drivers.amd.layouts.kfd import QueueType
from drivers.elf import Elf
from emulator.amd.reports import QueueFault
from tests.emulator.amd_engines.loaded import DESCRIPTOR, KERNARG, NO_INPUTS, SUMS, VALUES, Loaded
from tests.emulator.amd_engines.test_aql import dispatch, opened
from tests.emulator.amd_engines.test_dispatch import launch
from tests.emulator.amd_isa.conftest import compiled
from tests.emulator.amd_isa.ir import HEAD, INDEX

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

TEXT = DESCRIPTOR + 256
SCRATCH, WAVE_BYTES, WAVES = 0xA0_0000, 0x4000, 8
COUNT = 1024
REL32_LO, REL32_HI = 10, 11
FUNCTIONS = """
define internal i32 @deep(i32 %x) noinline {
  %r = xor i32 %x, 12345
  ret i32 %r
}
define internal i32 @twice(i32 %x, i32 %y) noinline {
  %c = icmp ugt i32 %x, 100
  br i1 %c, label %large, label %small
large:
  %p = mul i32 %x, %y
  ret i32 %p
small:
  %q = call i32 @deep(i32 %x)
  %r = add i32 %q, %y
  ret i32 %r
}
"""
NESTED = """
  %f = call i32 @twice(i32 %x, i32 %i)
  %g = call i32 @twice(i32 %f, i32 7)
"""
CHOSEN = """
  %lower = icmp ult i32 %group, 2
  br i1 %lower, label %one, label %two
one:
  br label %both
two:
  br label %both
both:
  %of = phi ptr [ @deep, %one ], [ @other, %two ]
  %g = call i32 %of(i32 %x)
"""
OTHER = """
define internal i32 @other(i32 %x) noinline {
  %r = sub i32 %x, 99
  ret i32 %r
}
"""


def kernel(body: str, functions: str = FUNCTIONS) -> str:
    return f"""{HEAD}{functions}
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {NO_INPUTS} {{
{INDEX}
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %pa
{body}
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %g, ptr addrspace(1) %po
  ret void
}}
"""


def loaded(b: Bench, name: str, text: str, changes: dict[int, int]) -> tuple[Loaded, Descriptor, int]:
    """Put all code of an object into memory, relocated; return the kernel, its descriptor and its address.

    `changes` are words of the code and what takes their place.
    """
    data = compiled(text, name)
    elf = Elf(data)
    symbols = {one.name: one for one in elf.symbols}
    section = elf.sections[symbols["k"].section]
    code = bytearray(elf.content(section))
    for one in elf.relocations_of(section):
        value = one.symbol.value + one.addend - one.offset
        assert one.type in (REL32_LO, REL32_HI)
        assert elf.sections[one.symbol.section] == section
        struct.pack_into(
            "<I", code, one.offset, (value >> 32 if one.type == REL32_HI else value) & 0xFFFF_FFFF
        )
    for old, new in changes.items():
        words = np.frombuffer(code, "u4")
        assert old in words
        words[words == old] = new
    at = symbols["k.kd"]
    descriptor = bytearray(elf.content(elf.sections[at.section])[at.value : at.value + 64])
    entry = TEXT + symbols["k"].value
    struct.pack_into("<q", descriptor, 16, entry - DESCRIPTOR)
    b.map(DESCRIPTOR, 0x4000)
    b.space.map.write(DESCRIPTOR, descriptor)
    b.space.map.write(TEXT, code)
    b.space.map.write(KERNARG, struct.pack("<QQ", SUMS, VALUES))
    b.space.map.write(VALUES, np.arange(COUNT, dtype="u4").tobytes())
    b.engines.kernels.invalidate(b.space)
    found = Descriptor.from_bytes(bytes(descriptor))
    rsrc = found.compute_pgm_rsrc1, found.compute_pgm_rsrc2, found.compute_pgm_rsrc3
    return Loaded(*rsrc, 0, 0), found, entry


def run(b: Bench, name: str, text: str, changes: dict[int, int] | None = None) -> np.ndarray:
    """Run a kernel with scratch for its stack; return what it stored."""
    parts = loaded(b, name, text, changes or {})
    b.map(SCRATCH, 8 * WAVES * WAVE_BYTES)
    start(b, name, *parts)
    return np.frombuffer(b.space.map.read(SUMS, 4 * COUNT), "u4")


def start(b: Bench, name: str, made: Loaded, descriptor: Descriptor, entry: int) -> None:
    """Launch a kernel."""
    if name == "gfx942":
        b.put(0x20_0000 + 140, WAVES | WAVE_BYTES // 1024 << 12, SCRATCH, 1 << 31, WAVES * WAVE_BYTES)
        b.put64(0x20_0000 + 160, SCRATCH)
        b.put(0x20_0000 + 176, 256)
        packet = dispatch(made)
        b.do(*packet[:6], descriptor.private_segment_fixed_size, *packet[7:])
    else:
        words = list(launch(made, code=entry, rsrc2=made.rsrc2))
        at = words.index(0xC0007600 | 1 << 16)
        while words[at + 1] != 0x218:
            at = words.index(0xC0007600 | 1 << 16, at + 1)
        words[at + 2] = 2 | WAVE_BYTES // 256 << 12
        b.do(0xC0027600, 0x210, SCRATCH >> 8, 0, *words)


def bench_of(bench: Callable[..., Bench], name: str) -> Bench:
    return opened(bench) if name == "gfx942" else bench(QueueType.COMPUTE, name)


def twice(x: np.ndarray, y: np.ndarray | int) -> np.ndarray:
    return np.where(x > 100, x * y, (x ^ 12345) + y).astype("u4")


X = np.arange(COUNT, dtype="u4")
NAMES = ["gfx1100", "gfx1201", "gfx942"]


@pytest.mark.parametrize("name", NAMES)
def test_functions_call_functions_and_return_to_each_caller(bench: Callable[..., Bench], name: str) -> None:
    found = run(bench_of(bench, name), name, kernel(NESTED))
    assert np.array_equal(found, twice(twice(X, X), np.uint32(7)))


@pytest.mark.parametrize("name", NAMES)
def test_a_function_may_be_chosen(bench: Callable[..., Bench], name: str) -> None:
    found = run(bench_of(bench, name), name, kernel(CHOSEN, FUNCTIONS + OTHER))
    assert np.array_equal(found, np.where(X < 512, X ^ 12345, X - np.uint32(99)))


@pytest.mark.parametrize("name", NAMES)
def test_an_address_from_memory_is_refused_by_name(bench: Callable[..., Bench], name: str) -> None:
    body = """
  %slot = load ptr, ptr addrspace(1) %a
  %g = call i32 %slot(i32 %x)
"""
    with pytest.raises(QueueFault, match=r"s_swappc_b64 .*the target of this jump is not known"):
        run(bench_of(bench, name), name, kernel(body))


def test_a_return_to_where_no_call_was_is_a_fault(bench: Callable[..., Bench]) -> None:
    """The functions return by s[28:29] instead of s[30:31], which the calls set."""
    with pytest.raises(QueueFault, match=r"branch index outside its table .*s_setpc_b64 s\[28:29\]"):
        run(bench_of(bench, "gfx1100"), "gfx1100", kernel(NESTED), {0xBE80_481E: 0xBE80_481C})


@pytest.mark.parametrize("name", NAMES)
def test_functions_wait_for_what_they_use(bench: Callable[..., Bench], name: str) -> None:
    """Without the waits at their begin they use values that the kernel has loaded and not waited for."""
    waits = {"gfx1100": 0xBF89_0000, "gfx1201": 0xBFC8_0000, "gfx942": 0xBF8C_0000}[name]
    with pytest.raises(QueueFault, match="not waited for"):
        run(bench_of(bench, name), name, kernel(NESTED), {waits: 0xBF80_0000})


def test_a_function_that_changed_is_not_executed_from_the_cache(bench: Callable[..., Bench]) -> None:
    b = bench()
    parts = loaded(b, "gfx1100", kernel(NESTED), {})
    b.map(SCRATCH, 8 * WAVES * WAVE_BYTES)
    start(b, "gfx1100", *parts)
    at = TEXT + b.space.map.read(TEXT, 64).index(struct.pack("<I", 12345))
    b.space.map.write(at, struct.pack("<I", 54321))
    with pytest.raises(QueueFault, match=r"code at .* changed since a kernel ran there"):
        start(b, "gfx1100", *parts)
