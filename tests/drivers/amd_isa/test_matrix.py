"""Matrix operations agree with matmul in float64; operands lie as the facts' register maps say."""

# ruff: noqa: E501 - lines of IR and rows of cases read best on one line

from __future__ import annotations

import numpy as np
import pytest

from drivers.emu.report import ReportKind
from drivers.emu.simt.launch import Options
from tests.drivers.amd_isa.conftest import Bench
from tests.facts.amd_matrix import LAYOUTS, Layout

Array = np.ndarray
QUICK = Options(tier="quick", threads=1)


def _kernel(intrinsic: str, a: str, b: str, c: str, tail: str) -> str:
    arguments = f"{a} %x, {b} %y, {c} %z{tail}"
    types = f"{a}, {b}, {c}{tail.replace(' 0', '')}"
    return f"""target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare {c} @llvm.amdgcn.{intrinsic}({types})
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %b) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr {b}, ptr addrspace(1) %b, i32 %i
  %po = getelementptr {c}, ptr addrspace(1) %o, i32 %i
  %x = load {a}, ptr addrspace(1) %pa, align 4
  %y = load {b}, ptr addrspace(1) %pb, align 4
  %z = load {c}, ptr addrspace(1) %po, align 4
  %r = call {c} @llvm.amdgcn.{intrinsic}({arguments})
  store {c} %r, ptr addrspace(1) %po, align 4
  ret void
}}
"""


def _spread(layout: Layout, values: Array, bits: int) -> Array:
    """Return the registers (lane, register) of an operand A: `values` are its elements' patterns, [i][k]."""
    registers = np.zeros((layout.wave, layout.a_registers), "u4")
    rows = layout.wave // layout.copies
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            register, part, lane = layout.a(i, k)
            for copy in range(layout.copies):
                registers[lane + copy * rows, register] |= np.uint32(int(values[i, k]) << bits * part)
    return registers


def _gather(layout: Layout, registers: Array) -> Array:
    """Return D of 32-bit elements."""
    found = np.zeros((layout.m, layout.n), "u4")
    for i in range(layout.m):
        for j in range(layout.n):
            register, _, lane = layout.d(i, j)
            found[i, j] = registers[lane, register]
    return found


CASES = {
    "gfx11 w32 f32_16x16x16_f16": (
        "gfx1100", "", ("wmma.f32.16x16x16.f16.v8f32.v16f16", "<16 x half>", "<16 x half>", "<8 x float>", "")
    ),
    "gfx11 w64 f32_16x16x16_f16": (
        "gfx1100", "+wavefrontsize64",
        ("wmma.f32.16x16x16.f16.v4f32.v16f16", "<16 x half>", "<16 x half>", "<4 x float>", ""),
    ),
    "gfx12 w32 f32_16x16x16_f16": (
        "gfx1201", "", ("wmma.f32.16x16x16.f16.v8f32.v8f16", "<8 x half>", "<8 x half>", "<8 x float>", "")
    ),
    "gfx90a mfma f32_16x16x16": (
        "gfx942", "", ("mfma.f32.16x16x16f16", "<4 x half>", "<4 x half>", "<4 x float>", ", i32 0, i32 0, i32 0")
    ),
    "gfx90a mfma f32_32x32x8": (
        "gfx942", "", ("mfma.f32.32x32x8f16", "<4 x half>", "<4 x half>", "<16 x float>", ", i32 0, i32 0, i32 0")
    ),
    "gfx942 mfma f32_16x16x32_fp8": (
        "gfx942", "", ("mfma.f32.16x16x32.fp8.fp8", "i64", "i64", "<4 x float>", ", i32 0, i32 0, i32 0")
    ),
    "gfx12 w32 f32_16x16x16_fp8": (
        "gfx1201", "",
        ("wmma.f32.16x16x16.fp8.fp8.v8f32.v2i32", "<2 x i32>", "<2 x i32>", "<8 x float>", ""),
    ),
}  # fmt: skip


def _fp8(patterns: Array, *, fnuz: bool) -> Array:
    """Return what e4m3 patterns mean."""
    exponent, mantissa = patterns >> 3 & 15, patterns & 7
    bias = 8 if fnuz else 7
    size = np.where(
        exponent == 0, mantissa / 8 * 2.0 ** (1 - bias), (1 + mantissa / 8) * 2.0 ** (exponent - float(bias))
    )
    return np.where(patterns & 128, -size, size)


@pytest.mark.parametrize("name", CASES)
def test_a_matrix_operation_agrees_with_matmul(name: str) -> None:
    layout, (processor, features, parts) = LAYOUTS[name], CASES[name]
    bench = Bench(processor, features)
    rng = np.random.default_rng(5)
    shape_a, shape_b = (layout.m, layout.k), (layout.n, layout.k)
    if "fp8" in name:
        raw = [rng.choice(np.array([*range(127), *range(129, 255)]), s) for s in (shape_a, shape_b)]
        a, b = (_fp8(r, fnuz=processor == "gfx942") for r in raw)
        bits = 8
    else:
        a, b = (rng.standard_normal(s).astype("f2") for s in (shape_a, shape_b))
        raw = [v.view("u2") for v in (a, b)]
        bits = 16
    registers = [bench.new(_spread(layout, r, bits), "u4") for r in raw]
    start = rng.standard_normal((layout.wave, layout.d_registers)).astype("f4")
    out = bench.new(start.view("u4"), "u4")
    added = _gather(layout, out).view("f4").astype("f8")
    done = bench.run(_kernel(*parts), 1, layout.wave, out, *registers, options=QUICK)
    assert done.fault is None, done.fault
    wanted = a.astype("f8") @ b.astype("f8").T + added
    size = np.abs(a.astype("f8")) @ np.abs(b.astype("f8")).T + np.abs(added)
    assert np.all(np.abs(_gather(layout, out).view("f4") - wanted) <= size * 2.0**-20)


def test_copies_of_an_operand_must_be_equal() -> None:
    layout, (processor, features, parts) = (
        LAYOUTS["gfx11 w32 f32_16x16x16_f16"],
        CASES["gfx11 w32 f32_16x16x16_f16"],
    )
    bench = Bench(processor, features)
    ones = np.full((16, 16), np.float16(1).view("u2"))
    a, b = (_spread(layout, ones, 16) for _ in range(2))
    a[17, 3] ^= 1
    out = bench.new(np.zeros((32, 8)), "u4")
    done = bench.run(_kernel(*parts), 1, 32, out, bench.new(a, "u4"), bench.new(b, "u4"), options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.BAD_MATRIX
    assert "v_wmma_f32_16x16x16_f16" in done.fault.instruction
