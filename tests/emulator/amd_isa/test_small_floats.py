"""Conversions between f32 and 8-bit floats: every code and its neighbours, as PyTorch rounds them."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa import modes, programs
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench, compiled
from tests.emulator.amd_isa.pcode_small_floats import values as values_of
from tests.emulator.amd_isa.single import QUICK

if TYPE_CHECKING:
    from emulator.simt.engine import TranslatedProgram

Array = np.ndarray
FORMATS = {  # bits of the mantissa, bias, code of the largest, of what overflows, of NaN
    ("fp8", "gfx1201"): (3, 7, 0x7E, 0x7F, 0x7F),
    ("bf8", "gfx1201"): (2, 15, 0x7B, 0x7C, 0x7F),
    ("fp8", "gfx942"): (3, 8, 0x7F, 0x80, 0x80),
    ("bf8", "gfx942"): (2, 16, 0x7F, 0x80, 0x80),
}
DECLARED = """declare i32 @llvm.amdgcn.cvt.pk.{0}.f32(float, float, i32, i1)
declare float @llvm.amdgcn.cvt.f32.{0}(i32, i32)
declare <2 x float> @llvm.amdgcn.cvt.pk.f32.{0}(i32, i1)
"""
FROM_TORCH = """
    0 -0.0 1 -1.5 448 464 465 -500 240 247 248 249 57344 61439 61440 1e6 0.015625 0.00859375 0.001953125 0.0009765625
    0.000986328125 -0.00048828125 6.103515625e-05 1.52587890625e-05 7.62939453125e-06 8.392333984375e-06 3.14159 -27.3 0.0173
"""
CODES = {  # the bytes of the values above, by PyTorch 2.13; e4m3fn and e5m2 where nothing overflows
    ("fp8", "gfx942"): "00 00 40 c4 80 80 80 80 7f 7f 80 80 80 80 80 80 10 09 02 01 01 00 00 00 00 00 4d e6 11",
    ("bf8", "gfx942"): "00 00 40 c2 63 63 63 e4 60 60 60 60 7f 7f 80 80 28 24 1c 18 18 94 08 02 01 01 46 d3 28",
    ("fp8", "gfx1201"): "00 80 38 bc 7e 7e -- -- 77 77 78 78 -- -- -- -- 08 04 01 00 01 80 00 00 00 00 45 de 09",
    ("bf8", "gfx1201"): "00 80 3c be 5f 5f 5f e0 5c 5c 5c 5c 7b 7b 7c 7c 24 20 18 14 14 90 04 01 00 01 42 cf 24",
}


def values(type_: str, processor: str) -> Array:
    """Return the value of each of the 256 codes."""
    return values_of(type_, fnuz=processor == "gfx942").astype("f4")


@functools.cache
def conversion(processor: str, type_: str, *, saturates: bool) -> tuple[Bench, programs.KernelCode, TranslatedProgram]:
    """Return a kernel that converts x twice into each half of a register, the second source negated and back."""
    code = f"""  %n = fneg float %y
  %a = call i32 @llvm.amdgcn.cvt.pk.{type_}.f32(float %x, float %n, i32 -1, i1 false)
  %b = call i32 @llvm.amdgcn.cvt.pk.{type_}.f32(float %x, float %n, i32 %a, i1 true)
  %r = bitcast i32 %b to float
"""
    text = ir.elementwise("float", code, extra=DECLARED.format(type_))
    found = programs.kernels(compiled(text, processor), processor)["k"]
    found = replace(found, entry=replace(found.entry, modes=modes.KEEP_ALL | (modes.SATURATES if saturates else 0)))
    bench = Bench(processor)
    return bench, found, programs.program(found, bench.settings)


def packed(processor: str, type_: str, x: Array, *, saturates: bool = False) -> Array:
    """Return the codes of x."""
    bench, found, ready = conversion(processor, type_, saturates=saturates)
    out, groups = bench.new(np.zeros(x.size), "f4"), x.size // 256
    sent = [out, *(bench.new(v, "f4") for v in (x, -x, x))]
    assert bench.launch(ready, found, groups, 256, *sent, options=QUICK).fault is None
    got = out.view("u1").reshape(-1, 4)
    assert (got == got[:, :1]).all()
    return got[:, 0]


@pytest.mark.parametrize(("type_", "processor"), FORMATS)
def test_f32_is_rounded_to_the_nearest_code(type_: str, processor: str) -> None:
    _, _, largest, infinite, nan = FORMATS[type_, processor]
    grid = values(type_, processor)[: largest + 1]
    between = (grid[:-1] + grid[1:]) / 2
    x = np.concatenate([grid, between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(np.inf))])
    wanted = np.concatenate([np.arange(largest + 1), *(np.arange(largest) for _ in range(3))])
    wanted[largest + 1 :][:largest] += np.arange(largest) & 1  # a tie goes to the even code
    wanted[-largest:] += 1
    x, wanted = np.resize(x, 512), np.resize(wanted, 512)
    assert np.array_equal(packed(processor, type_, x), wanted)
    negative = np.where((wanted == 0) & (nan == 0x80), 0, wanted | 0x80)
    assert np.array_equal(packed(processor, type_, -x, saturates=True), negative)
    assert infinite in (largest + 1, 0x80)


@pytest.mark.parametrize(("type_", "processor"), FORMATS)
def test_codes_are_those_of_pytorch(type_: str, processor: str) -> None:
    x = np.resize(np.array(FROM_TORCH.split(), "f4"), 256)
    wanted = np.resize(np.array([-1 if c == "--" else int(c, 16) for c in CODES[type_, processor].split()]), 256)
    got = packed(processor, type_, x)
    assert np.array_equal(got[wanted >= 0], wanted[wanted >= 0])


@pytest.mark.parametrize(("type_", "processor"), FORMATS)
def test_what_overflows_is_the_largest_where_fp16_ovfl_is_set(type_: str, processor: str) -> None:
    _, _, largest, infinite, nan = FORMATS[type_, processor]
    x = np.resize(np.array([1e5, -1e5, 3e38, -3e38, np.inf, -np.inf, np.nan, 1], "f4"), 256)
    one = FORMATS[type_, processor][1] << FORMATS[type_, processor][0]
    ends = [infinite, infinite | 0x80]
    tail = [*ends, nan, one]
    assert np.array_equal(packed(processor, type_, x)[:8], [*ends, *ends, *tail])
    assert np.array_equal(packed(processor, type_, x, saturates=True)[:8], [*[largest, largest | 0x80] * 2, *tail])


@pytest.mark.parametrize(("type_", "processor"), FORMATS)
def test_every_code_has_its_value(type_: str, processor: str) -> None:
    """Of each byte of a register alone, and of both halves in pairs."""
    lines = ["  %w = bitcast float %x to i32"]
    for k in range(4):
        lines += [f"  %f{k} = call float @llvm.amdgcn.cvt.f32.{type_}(i32 %w, i32 {k})"]
    for k, flag in enumerate(("false", "true")):
        lines += [f"  %p{k} = call <2 x float> @llvm.amdgcn.cvt.pk.f32.{type_}(i32 %w, i1 {flag})"]
        lines += [f"  %g{2 * k + n} = extractelement <2 x float> %p{k}, i32 {n}" for n in range(2)]
    lines += ["  %v0 = insertelement <8 x float> poison, float %f0, i32 0"]
    parts = ["f1", "f2", "f3", "g0", "g1", "g2", "g3"]
    lines += [f"  %v{n} = insertelement <8 x float> %v{n - 1}, float %{name}, i32 {n}" for n, name in enumerate(parts, 1)]
    text = ir.elementwise("float", "\n".join(lines).replace("%v7", "%r"), "<8 x float>", DECLARED.format(type_))
    codes = np.random.default_rng(1).permutation(np.tile(np.arange(256, dtype="u1"), 4)).reshape(256, 4)
    bench = Bench(processor)
    out = bench.new(np.zeros((256, 8)), "f4")
    sent = [out, *(bench.new(codes.view("f4").ravel(), "f4") for _ in range(3))]
    assert bench.run(text, 1, 256, *sent, options=QUICK).fault is None
    wanted = values(type_, processor)[codes]
    assert np.array_equal(out[:, :4], wanted, equal_nan=True)
    assert np.array_equal(out[:, 4:], wanted, equal_nan=True)
