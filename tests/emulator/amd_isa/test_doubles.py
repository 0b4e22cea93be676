"""Operations of f64 that other compilers emit: matrix operations of gfx942, and segments of 2 / pi.

Register maps are those of AMD's matrix instruction calculator (2ef9189): element A[i][k] of f64 16x16x4 lies in lane
16 k + i, B[k][j] in 16 k + j, D[i][j] in register pair i / 4 and lane 16 (i % 4) + j; of 4x4x4 with four blocks
A[i][k] lies in lane 16 k + 4 block + i, B[k][j] in 16 k + 4 block + j, D[i][j] in 16 i + 4 block + j.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import math

import numpy as np
import pytest

from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa.conftest import Bench
from tests.emulator.amd_isa.ir import HEAD, INDEX
from tests.emulator.amd_isa.pcode_small_floats import two_over_pi

Array = np.ndarray
QUICK = LaunchOptions(tier="quick", threads=1)
LANES = 64
WIDE = ("mfma.f64.16x16x4f64", "<4 x double>", 16, 1)
SMALL = ("mfma.f64.4x4x4f64", "double", 4, 4)


def product(operation: tuple[str, str, int, int], a: Array, b: Array, c: Array, signs: int) -> Array:
    """Return what a wave makes of matrices [block][row][column]; `signs` is BLGP."""
    intrinsic, type_, size, blocks = operation
    bench = Bench("gfx942")
    lane = np.arange(LANES)
    k, block, at = lane // 16, lane % 16 // size, lane % size
    x = bench.new(a[block, at, k], "f8")
    y = bench.new(b[block, k, at], "f8")
    pairs = size * size * blocks // LANES
    rows = 4 * np.arange(pairs)[None, :] + (lane // 16)[:, None]
    block, column = block[:, None], at[:, None]
    o = bench.new(c[block, rows, column], "f8")
    text = f"""target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare {type_} @llvm.amdgcn.{intrinsic}(double, double, {type_}, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %b) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr double, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr double, ptr addrspace(1) %b, i32 %i
  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  %x = load double, ptr addrspace(1) %pa
  %y = load double, ptr addrspace(1) %pb
  %z = load {type_}, ptr addrspace(1) %po, align 8
  %r = call {type_} @llvm.amdgcn.{intrinsic}(double %x, double %y, {type_} %z, i32 0, i32 0, i32 {signs})
  store {type_} %r, ptr addrspace(1) %po, align 8
  ret void
}}
"""
    done = bench.run(text, 1, LANES, o, x, y, options=QUICK)
    assert done.fault is None, done.fault
    found = np.zeros_like(c)
    found[block, rows, column] = o.reshape(LANES, pairs)
    return found


@pytest.mark.parametrize("operation", [WIDE, SMALL], ids=["16x16x4", "4x4x4"])
@pytest.mark.parametrize("signs", range(8))
def test_matrix_operations_of_doubles(operation: tuple[str, str, int, int], signs: int) -> None:
    """Small integers, so that every order of additions is exact; BLGP negates A, B and C."""
    _, _, size, blocks = operation
    rng = np.random.default_rng(signs)
    a, b = (rng.integers(-99, 99, (blocks, *shape)).astype("f8") for shape in ((size, 4), (4, size)))
    c = rng.integers(-9999, 9999, (blocks, size, size)).astype("f8")
    sign = [-1.0 if signs >> n & 1 else 1.0 for n in range(3)]
    wanted = sign[0] * a @ (sign[1] * b) + sign[2] * c
    assert np.array_equal(product(operation, a, b, c, signs), wanted)


def test_matrix_operations_of_doubles_round_each_step_once() -> None:
    a, b = np.full((1, 16, 4), 1 + 2.0**-30), np.full((1, 4, 16), 1 - 2.0**-30)
    found = product(WIDE, a, b, np.full((1, 16, 16), -1.0), 0)
    assert np.all(found == 3 - 2.0**-58)  # the first product less one is exactly -2^-60


def segment(bits: int, exponent: int, number: int) -> float:
    """Return what the ISA's document defines: 53 bits, as far behind the point as they lie there."""
    shift = 53 * number + max(exponent - 1077, 0)
    part = bits << shift >> 1201 - 53 & (1 << 53) - 1
    return math.ldexp(part, -53 - shift + (128 if exponent >= 1968 else 0))


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "gfx1201"])
def test_segments_of_two_over_pi(name: str) -> None:
    """Every exponent with every segment; the sign and the mantissa play no part."""
    bench = Bench(name)
    exponents, numbers = np.meshgrid(np.arange(2048, dtype="u8"), np.arange(32))
    count = exponents.size
    mantissas = np.random.default_rng(1).integers(0, 1 << 52, count, "u8")
    x = bench.new(exponents.ravel() << np.uint64(52) | mantissas | (mantissas & 1) << 63, "u8")
    y, o = bench.new(numbers.ravel() | 1 << 20, "u4"), bench.new(np.zeros(count), "f8")
    text = f"""{HEAD}
declare double @llvm.amdgcn.trig.preop.f64(double, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %b) {{
{INDEX}
  %pa = getelementptr double, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr i32, ptr addrspace(1) %b, i32 %i
  %po = getelementptr double, ptr addrspace(1) %o, i32 %i
  %x = load double, ptr addrspace(1) %pa
  %y = load i32, ptr addrspace(1) %pb
  %r = call double @llvm.amdgcn.trig.preop.f64(double %x, i32 %y)
  store double %r, ptr addrspace(1) %po
  ret void
}}
"""
    done = bench.run(text, count // 256, 256, o, x, y, options=QUICK)
    assert done.fault is None, done.fault
    bits = two_over_pi()
    parts = {
        (e, n): segment(bits, e, n)
        for e, n in zip(exponents.ravel().tolist(), numbers.ravel().tolist(), strict=True)
    }
    assert o.tolist() == list(parts.values())
