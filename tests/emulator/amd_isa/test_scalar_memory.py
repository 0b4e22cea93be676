"""Scalar loads: of any number of dwords, through buffer descriptors, and reported where nothing is mapped."""



from __future__ import annotations

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from emulator.shared.memory import AddressSpace
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import single
from tests.emulator.amd_isa.conftest import Bench

QUICK = LaunchOptions(tier="quick", threads=1)
LOADS = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(4) %a) {
  %x = load <COUNT x i32>, ptr addrspace(4) %a, align 4
  store <COUNT x i32> %x, ptr addrspace(1) %o, align 4
  ret void
}
"""
BUFFER = """target triple = "amdgcn-amd-amdhsa"
declare <4 x i32> @llvm.amdgcn.s.buffer.load.v4i32(<4 x i32>, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(4) %descriptor, i32 %at) {
  %d = load <4 x i32>, ptr addrspace(4) %descriptor, align 16
  %x = call <4 x i32> @llvm.amdgcn.s.buffer.load.v4i32(<4 x i32> %d, i32 %at, i32 0)
  store <4 x i32> %x, ptr addrspace(1) %o, align 16
  ret void
}
"""


@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_dwords_go_to_registers_in_order(processor: str, count: int) -> None:
    bench = Bench(processor)
    a = bench.new(np.arange(1, count + 1), "u4")
    out = bench.new(np.zeros(count), "u4")
    done = bench.run(LOADS.replace("COUNT", str(count)), 2, 64, out, a, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == a.tolist()


def test_a_load_that_reaches_beyond_an_allocation_is_reported() -> None:
    bench = Bench()
    a, out = bench.new(np.zeros(6), "u4"), bench.new(np.zeros(8), "u4")
    done = bench.run(LOADS.replace("COUNT", "8"), 1, 32, out, a, options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.OUT_OF_BOUNDS
    assert done.fault.address == a.ctypes.data + 24


@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize(("stride", "records", "left"), [(0, 40, 2), (0, 64, 4), (8, 5, 2)])
def test_a_buffer_reads_zero_behind_its_end(processor: str, stride: int, records: int, left: int) -> None:
    """`records` are bytes, or structures of `stride` bytes; dwords 8 to 11 are loaded."""
    bench = Bench(processor)
    data = bench.new(np.arange(100, 116), "u4")
    low, high = data.ctypes.data & 0xFFFF_FFFF, data.ctypes.data >> 32
    descriptor = bench.new(np.array([low, high | stride << 16, records, 0]), "u4")
    out = bench.new(np.zeros(4), "u4")
    done = bench.run(BUFFER, 1, 32, out, descriptor, 32, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == [*range(108, 108 + left), *[0] * (4 - left)]


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
