"""Registers: elements that a number at run time selects, upper halves of gfx9, inline constants of halves."""



from __future__ import annotations

import numpy as np
import pytest

from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa.conftest import Bench

QUICK = LaunchOptions(tier="quick", threads=1)
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
