"""Bytes picked from two registers, and registers that M0 numbers, on three targets."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import numpy as np
import pytest

from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa.conftest import Bench

QUICK = LaunchOptions(tier="quick", threads=1)
PERM = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.perm(i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %s) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr i32, ptr addrspace(1) %b, i32 %i
  %ps = getelementptr i32, ptr addrspace(1) %s, i32 %i
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  %x = load i32, ptr addrspace(1) %pa
  %y = load i32, ptr addrspace(1) %pb
  %z = load i32, ptr addrspace(1) %ps
  %r = call i32 @llvm.amdgcn.perm(i32 %x, i32 %y, i32 %z)
  store i32 %r, ptr addrspace(1) %po
  ret void
}
"""
INDEXED = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, i32 %at, i32 %from) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr <8 x i32>, ptr addrspace(1) %a, i32 %i
  %po = getelementptr <8 x i32>, ptr addrspace(1) %o, i32 %i
  %v = load <8 x i32>, ptr addrspace(1) %pa
  %x = extractelement <8 x i32> %v, i32 %from
  %w = insertelement <8 x i32> %v, i32 %x, i32 %at
  store <8 x i32> %w, ptr addrspace(1) %po
  ret void
}
"""
TARGETS = ["gfx1100", "gfx1201", "gfx942"]


def picked(a: int, b: int, select: int) -> int:
    both, found = a << 32 | b, 0
    for k in range(4):
        code = select >> 8 * k & 0xFF
        if code < 8:
            byte = both >> 8 * code & 0xFF
        elif code < 12:
            byte = 0xFF * (both >> 16 * (code - 8) + 15 & 1)
        else:
            byte = 0 if code == 12 else 0xFF
        found |= byte << 8 * k
    return found


@pytest.mark.parametrize("processor", TARGETS)
def test_each_byte_of_a_selector_picks_a_byte(processor: str) -> None:
    rng = np.random.default_rng(5)
    bench = Bench(processor)
    a, b = (bench.new(rng.integers(0, 2**32, 64), "u4") for _ in range(2))
    select = bench.new(rng.integers(0, 16, 256).astype("u1").view("u4"), "u4")
    select[0] = 0xFF80_0D0C
    out = bench.new(np.zeros(64), "u4")
    done = bench.run(PERM, 1, 64, out, a, b, select, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == [picked(*map(int, row)) for row in zip(a, b, select, strict=True)]


@pytest.mark.parametrize("processor", TARGETS)
def test_an_element_of_registers_is_read_and_written_by_its_number(processor: str) -> None:
    bench = Bench(processor)
    a = bench.new(np.arange(8 * 64).reshape(64, 8), "u4")
    for at, start in ((0, 7), (5, 2), (7, 7)):
        out = bench.new(np.zeros((64, 8)), "u4")
        done = bench.run(INDEXED, 1, 64, out, a, at, start, options=QUICK)
        assert done.fault is None, done.fault
        wanted = a.copy()
        wanted[:, at] = a[:, start]
        assert np.array_equal(out, wanted)
