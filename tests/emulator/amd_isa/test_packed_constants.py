"""Inline constants of operations on two halves: an f16 for floats, as `op_sel` takes it for one half or both.

LLVM's `getInlineEncodingV2F16` gives the constants as it encodes them: -1.0 is 0xbc00 in the low half.
"""

from __future__ import annotations

import numpy as np
import pytest

from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa.conftest import Bench
from tests.emulator.amd_isa.ir import elementwise

COUNT = 256
CODE = """  %a = bitcast i32 %x to <2 x half>
  %b = fadd <2 x half> %a, <half LOW, half HIGH>
  %r = bitcast <2 x half> %b to i32"""


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize(("low", "high"), [(-1.0, -1.0), (4.0, 0.0)])
def test_a_constant_of_packed_floats_is_an_f16(target: str, low: float, high: float) -> None:
    bench = Bench(target)
    halves = np.random.default_rng(1).standard_normal((COUNT, 2)).astype("f2")
    source, out = bench.new(halves.view("u4")[:, 0], "u4"), bench.new(np.zeros(COUNT), "u4")
    code = CODE.replace("LOW", str(low)).replace("HIGH", str(high))
    options = LaunchOptions(tier="quick", threads=1)
    done = bench.run(elementwise("i32", code), 1, COUNT, out, source, source, source, options=options)
    assert done.fault is None, done.fault
    np.testing.assert_array_equal(out.view("f2").reshape(COUNT, 2), halves + np.array([low, high], "f2"))
