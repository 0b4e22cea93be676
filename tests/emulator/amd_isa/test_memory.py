"""Accesses at any alignment and far from each other, and reports of scalar loads; what each loads: `test_pcode`."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from emulator.shared.memory import AddressSpace
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir, single
from tests.emulator.amd_isa.conftest import Bench

QUICK = LaunchOptions(tier="quick", threads=1)
TARGETS = ["gfx1100", "gfx1201", "gfx942"]


def _unaligned(space: str, type_: str) -> str:
    """Return a kernel that moves one element a lane between odd addresses, by global memory, LDS or scratch."""
    step = {"i16": 3, "i32": 5, "i64": 9, "<4 x i32>": 17}[type_]
    memory = {
        "global": "  %l = getelementptr i8, ptr addrspace(1) %o, i32 %at\n",
        "lds": "  %l = getelementptr [4480 x i8], ptr addrspace(3) @lds, i32 0, i32 %at\n",
        "scratch": "  %room = alloca [64 x i8], addrspace(5)\n"
        "  %own = and i32 %i, 3\n  %l = getelementptr i8, ptr addrspace(5) %room, i32 %own\n",
    }[space]
    number = {"global": 1, "lds": 3, "scratch": 5}[space]
    back = f"""  %y = load volatile {type_}, ptr addrspace({number}) %l, align 1
  %po = getelementptr i8, ptr addrspace(1) %o, i32 %at
  store {type_} %y, ptr addrspace(1) %po, align 1
"""
    return (
        ir.HEAD
        + f"""@lds = internal addrspace(3) global [4480 x i8] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {ir.BOUNDS} {{
{ir.INDEX}
  %from = mul i32 %i, {step}
  %at = add i32 %from, 1
  %pa = getelementptr i8, ptr addrspace(1) %a, i32 %at
  %x = load {type_}, ptr addrspace(1) %pa, align 1
{memory}  store volatile {type_} %x, ptr addrspace({number}) %l, align 1
{back if space != "global" else ""}  ret void
}}
"""
    )


@pytest.mark.sampled(11)
@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize("space", ["global", "lds", "scratch"])
def test_accesses_may_have_any_alignment(processor: str, space: str) -> None:
    bench = Bench(processor)
    rng = np.random.default_rng(3)
    for type_, size in (("i16", 2), ("i32", 4), ("i64", 8), ("<4 x i32>", 16)):
        step = size + 1
        values = bench.new(rng.integers(0, 255, 256 * step + 1), "u1")
        out = bench.new(np.zeros(256 * step + 1), "u1")
        done = bench.run(_unaligned(space, type_), 1, 256, out, values, options=QUICK)
        assert done.fault is None, (type_, done.fault)
        wanted = values.copy()
        wanted[0::step] = 0
        assert np.array_equal(out, wanted), type_


STRIDED = (
    ir.HEAD
    + "define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, i32 %n) {\n"
    + ir.INDEX
    + """  %inside = icmp ult i32 %i, %n
  br i1 %inside, label %work, label %end
work:
  %far = mul i32 %i, 37
  %from = and i32 %far, 255
  %pa = getelementptr TYPE, ptr addrspace(1) %a, i32 %from
  %x = load TYPE, ptr addrspace(1) %pa
  %back = sub i32 255, %from
  %po = getelementptr TYPE, ptr addrspace(1) %o, i32 %back
  store TYPE %x, ptr addrspace(1) %po
  br label %end
end:
  ret void
}
"""
)


@pytest.mark.parametrize("processor", ["gfx1100", "gfx942"])
@pytest.mark.parametrize(("type_", "dtype"), [("i8", "u1"), ("i16", "u2"), ("i32", "u4"), ("i64", "u8")])
def test_lanes_far_from_each_other_load_and_store(processor: str, type_: str, dtype: str) -> None:
    """Waves of which all lanes take part, and one of which only some do."""
    bench = Bench(processor)
    rng = np.random.default_rng(3)
    values = bench.new(rng.integers(1, 255, 256), dtype)
    program, kernel = bench.kernel(STRIDED.replace("TYPE", type_))
    places = np.arange(256) * 37 % 256
    for count in (256, 230, 3):
        out = bench.new(np.zeros(256), dtype)
        done = bench.launch(program, kernel, 1, 256, out, values, count, options=QUICK)
        assert done.fault is None, done.fault
        wanted = np.zeros(256, dtype)
        wanted[255 - places[:count]] = values[places[:count]]
        assert np.array_equal(out, wanted), count


COUNTED = (
    ir.HEAD
    + "define amdgpu_kernel void @k(ptr addrspace(1) %o, i64 %n) {\nentry:\n"
    + ir.INDEX
    + """  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %more ]
  %sum = phi i32 [ %i, %entry ], [ %added, %more ]
  %again = icmp slt i64 %k, %n
  br i1 %again, label %more, label %done
more:
  %next = add i64 %k, 1
  %added = add i32 %sum, 3
  br label %loop
done:
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %sum, ptr addrspace(1) %po
  ret void
}
"""
)


@pytest.mark.parametrize("processor", TARGETS)
def test_a_loop_over_a_64_bit_number_that_all_lanes_share(processor: str) -> None:
    """The comparison is a vector instruction of scalar operands."""
    bench = Bench(processor)
    out = bench.new(np.zeros(256), "u4")
    program, kernel = bench.kernel(COUNTED)
    for low, high, rounds in ((5, 0, 5), (0, 0, 0), (-3, -1, 0)):
        done = bench.launch(program, kernel, 1, 256, out, low, high, options=QUICK)
        assert done.fault is None, done.fault
        assert np.array_equal(out, np.arange(256) + 3 * rounds)


LOADS = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(4) %a) {
  %x = load <8 x i32>, ptr addrspace(4) %a, align 4
  store <8 x i32> %x, ptr addrspace(1) %o, align 4
  ret void
}
"""
def test_a_load_that_reaches_beyond_an_allocation_is_reported() -> None:
    bench = Bench()
    a, out = bench.new(np.zeros(6), "u4"), bench.new(np.zeros(8), "u4")
    done = bench.run(LOADS, 1, 32, out, a, options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.OUT_OF_BOUNDS
    assert done.fault.address == a.ctypes.data + 24


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201", "gfx942"])
def test_a_constant_and_a_register_below_the_base_are_reported(name: str) -> None:
    """AMD's documents call it undefined; the register is s2."""
    more = {"imm": 1, "soffset_en": 1} if name == "gfx942" else {}
    words = single.encode(name, "s_load_b32", "SMEM", sdata=4, sbase=0, offset=-8, soffset=2, **more)
    ready, memory, data = single.program(name, words), AddressSpace(), np.zeros(4, "u4")
    low, high = single.mapped(memory, data)
    single.run(ready, memory, [low, high, 8], 1)
    with pytest.raises(AssertionError, match="access outside every allocation"):
        single.run(ready, memory, [low + 8, high, 4], 1)
