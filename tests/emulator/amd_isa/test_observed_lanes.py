"""Results without a mask: only where no one reads the lanes that do not execute."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa import programs
from emulator.amd.isa.observed_lanes import everywhere, unobserved
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import cut, read_kernel
from emulator.ir.report import ReportKind
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench, compiled

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Instruction

QUICK = LaunchOptions(tier="quick", threads=1)
TARGETS = ["gfx1100", "gfx1201", "gfx942"]
GUARDED = (
    ir.HEAD
    + """declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, i32 %n) {
entry:
"""
    + ir.INDEX
    + """  %inside = icmp ult i32 %i, %n
  br i1 %inside, label %work, label %end
work:
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %pa
  BODY
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %y, ptr addrspace(1) %po
  br label %end
end:
  ret void
}
"""
)
MERGED = (
    ir.HEAD
    + """define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {
entry:
"""
    + ir.INDEX
    + """  %pa = getelementptr i64, ptr addrspace(1) %a, i32 %i
  %x = load i64, ptr addrspace(1) %pa
  %bit = and i64 %x, 1
  %odd = icmp eq i64 %bit, 1
  br i1 %odd, label %more, label %end
more:
  %p2 = getelementptr i64, ptr addrspace(1) %pa, i32 256
  %b = load volatile i64, ptr addrspace(1) %p2
  %sum = add i64 %x, %b
  %difference = sub i64 %sum, 81985529216486895
  br label %end
end:
  %y = phi i64 [ %x, %entry ], [ %difference, %more ]
  %po = getelementptr i64, ptr addrspace(1) %o, i32 %i
  store i64 %y, ptr addrspace(1) %po
  ret void
}
"""
)
TRIPLES = (
    ir.HEAD
    + "define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {\n"
    + ir.INDEX
    + """  %three = mul i32 %i, 3
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %three
  %x = load <3 x i32>, ptr addrspace(1) %pa, align 4
  %y = extractelement <3 x i32> %x, i32 0
  %z = extractelement <3 x i32> %x, i32 2
  %s = add i32 %y, %z
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %s, ptr addrspace(1) %po
  ret void
}
"""
)


def _masked(text: str, processor: str) -> list[Instruction]:
    """Return the instructions that write vector registers under a mask."""
    kernel = programs.kernels(compiled(text, processor), processor)["k"]
    code = read_kernel(kernel.code, kernel.target, lanes=kernel.lanes, kernel="k")
    blocks = cut(code)
    full = everywhere(blocks, kernel.lanes)
    free = full | unobserved(blocks, target(processor).family, kernel.lanes, full)
    return [
        i
        for i in code
        if i.address not in free and i.stem.startswith(("v_", "global_load")) and "cmp" not in i.stem
    ]


@pytest.mark.parametrize("processor", TARGETS)
def test_a_guarded_body_needs_no_mask(processor: str) -> None:
    assert _masked(GUARDED.replace("BODY", "%y = add i32 %x, 1"), processor) == []


@pytest.mark.parametrize("processor", TARGETS)
def test_what_a_lane_reads_of_another_keeps_its_mask(processor: str) -> None:
    body = "%s = call i32 @llvm.amdgcn.readlane.i32(i32 %x, i32 3)\n  %y = add i32 %s, 1"
    assert "load" in [i.stem.split("_")[1] for i in _masked(GUARDED.replace("BODY", body), processor)]


@pytest.mark.parametrize("processor", TARGETS)
def test_what_is_read_where_lanes_have_joined_again_keeps_its_mask(processor: str) -> None:
    assert _masked(MERGED, processor)
    bench = Bench(processor)
    values = np.random.default_rng(7).integers(0, 1 << 63, 512, dtype="u8")
    a, out = bench.new(values, "u8"), bench.new(np.zeros(256), "u8")
    done = bench.run(MERGED, 1, 256, out, a, options=QUICK)
    assert done.fault is None, done.fault
    changed = values[:256] + values[256:] - np.uint64(81985529216486895)
    assert np.array_equal(out, np.where(values[:256] & np.uint64(1), changed, values[:256]))


def test_accesses_of_two_sizes_by_one_instruction_are_both_checked() -> None:
    """Three dwords are loaded as two and one: what was found for the one must not widen the bounds of the two."""
    bench = Bench()
    a, out = bench.new(np.zeros(768), "u4"), bench.new(np.zeros(512), "u4")
    done = bench.run(TRIPLES, 2, 256, out, a, options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.OUT_OF_BOUNDS
    assert done.fault.address == a.ctypes.data + a.nbytes


@pytest.mark.parametrize("extra", [0, 1, 16, 31])
def test_a_row_that_reaches_beyond_an_allocation_is_reported(extra: int) -> None:
    bench = Bench()
    a, out = bench.new(np.arange(256 + extra), "u4"), bench.new(np.zeros(512), "u4")
    text = GUARDED.replace("BODY", "%y = add i32 %x, 1")
    done = bench.run(text, 2, 256, out, a, 256 + extra, options=QUICK)
    assert done.fault is None, done.fault
    assert np.array_equal(out[: 256 + extra], np.arange(1, 257 + extra))
    done = bench.run(text, 2, 256, out, a, 257 + extra, options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.OUT_OF_BOUNDS
    assert done.fault.address == a.ctypes.data + a.nbytes
