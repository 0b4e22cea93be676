"""Matrix operations agree with matmul in float64; operands lie as the facts' register maps say."""

# ruff: noqa: E501 - lines of IR and rows of cases read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from emulator.amd.isa.instruction import IsaError
from emulator.ir.report import ReportKind
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa.conftest import Bench
from tests.facts.amd_matrix import LAYOUTS, Layout

Array = np.ndarray
QUICK = LaunchOptions(tier="quick", threads=1)
MFMA = ", i32 0, i32 0, i32 0"


@dataclass(frozen=True)
class Case:
    """One operation as LLVM's intrinsic; `call` is its arguments where they are not a, b, c and `tail`."""

    processor: str
    layout: str
    intrinsic: str
    a: str
    c: str
    types: tuple[str, str, str]
    """Elements of A, B and D."""
    tail: str = ""
    call: str = ""
    features: str = ""
    high: bool = False
    """Whether the upper halves of C and D are meant."""

    def kernel(self) -> str:
        """Return a kernel of the operation: each lane loads its registers of A, B, C and stores those of D over C."""
        a, c = self.a, self.c
        arguments = self.call.format(a=a, c=c) or f"{a} %x, {a} %y, {c} %z{self.tail}"
        types = re.sub(r"(?<!x)(?<!<) (%\w+|true|false|\d+)(?=,|$)", "", arguments)
        return f"""target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare {c} @llvm.amdgcn.{self.intrinsic}({types})
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %b) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr {a}, ptr addrspace(1) %b, i32 %i
  %po = getelementptr {c}, ptr addrspace(1) %o, i32 %i
  %x = load {a}, ptr addrspace(1) %pa, align 4
  %y = load {a}, ptr addrspace(1) %pb, align 4
  %z = load {c}, ptr addrspace(1) %po, align 4
  %r = call {c} @llvm.amdgcn.{self.intrinsic}({arguments})
  store {c} %r, ptr addrspace(1) %po, align 4
  ret void
}}
"""


def _iu8(a_signed: str, b_signed: str, clamp: str = "false") -> str:
    return f"i1 {a_signed}, {{a}} %x, i1 {b_signed}, {{a}} %y, {{c}} %z, i1 {clamp}"


HALVES, WORDS, FOUR = "<16 x half>", "<16 x i16>", "<4 x float>"
SINGLE, INTEGER = "<8 x float>", "<8 x i32>"
CASES = {
    "gfx11 f32 f16": Case(
        "gfx1100", "gfx11 w32 f32_16x16x16_f16", "wmma.f32.16x16x16.f16.v8f32.v16f16", HALVES, SINGLE, ("f16", "f16", "f32")
    ),
    "gfx11 w64 f32 f16": Case(
        "gfx1100", "gfx11 w64 f32_16x16x16_f16", "wmma.f32.16x16x16.f16.v4f32.v16f16", HALVES, FOUR, ("f16", "f16", "f32"), features="+wavefrontsize64"
    ),
    "gfx11 f32 bf16": Case(
        "gfx1100", "gfx11 w32 f32_16x16x16_f16", "wmma.f32.16x16x16.bf16.v8f32.v16i16", WORDS, SINGLE, ("bf16", "bf16", "f32")
    ),
    "gfx11 f16 f16": Case(
        "gfx1100", "gfx11 w32 f16_16x16x16_f16", "wmma.f16.16x16x16.f16.v16f16.v16f16", HALVES, HALVES, ("f16", "f16", "f16"), ", i1 false"
    ),
    "gfx11 f16 f16 upper": Case(
        "gfx1100", "gfx11 w32 f16_16x16x16_f16", "wmma.f16.16x16x16.f16.v16f16.v16f16", HALVES, HALVES, ("f16", "f16", "f16"), ", i1 true", high=True
    ),
    "gfx11 bf16 bf16": Case(
        "gfx1100", "gfx11 w32 f16_16x16x16_f16", "wmma.bf16.16x16x16.bf16.v16i16.v16i16", WORDS, WORDS, ("bf16", "bf16", "bf16"), ", i1 false"
    ),
    "gfx11 i32 i8": Case(
        "gfx1100", "gfx11 w32 i32_16x16x16_iu8", "wmma.i32.16x16x16.iu8.v8i32.v4i32", "<4 x i32>", INTEGER, ("i8", "i8", "i32"), call=_iu8("true", "true")
    ),
    "gfx11 i32 u8 i8": Case(
        "gfx1100", "gfx11 w32 i32_16x16x16_iu8", "wmma.i32.16x16x16.iu8.v8i32.v4i32", "<4 x i32>", INTEGER, ("u8", "i8", "i32"), call=_iu8("false", "true")
    ),
    "gfx12 f32 f16": Case(
        "gfx1201", "gfx12 w32 f32_16x16x16_f16", "wmma.f32.16x16x16.f16.v8f32.v8f16", "<8 x half>", SINGLE, ("f16", "f16", "f32")
    ),
    "gfx12 w64 f32 f16": Case(
        "gfx1201", "gfx12 w64 f32_16x16x16_f16", "wmma.f32.16x16x16.f16.v4f32.v4f16", "<4 x half>", FOUR, ("f16", "f16", "f32"), features="+wavefrontsize64"
    ),
    "gfx12 f32 bf16": Case(
        "gfx1201", "gfx12 w32 f32_16x16x16_f16", "wmma.f32.16x16x16.bf16.v8f32.v8i16", "<8 x i16>", SINGLE, ("bf16", "bf16", "f32")
    ),
    "gfx12 f16 f16": Case(
        "gfx1201", "gfx12 w32 f16_16x16x16_f16", "wmma.f16.16x16x16.f16.v8f16.v8f16", "<8 x half>", "<8 x half>", ("f16", "f16", "f16"), ", i1 false"
    ),
    "gfx12 bf16 bf16": Case(
        "gfx1201", "gfx12 w32 f16_16x16x16_f16", "wmma.bf16.16x16x16.bf16.v8i16.v8i16", "<8 x i16>", "<8 x i16>", ("bf16", "bf16", "bf16"), ", i1 false"
    ),
    "gfx12 i32 i8 u8": Case(
        "gfx1201", "gfx12 w32 f32_16x16x16_fp8", "wmma.i32.16x16x16.iu8.v8i32.v2i32", "<2 x i32>", INTEGER, ("i8", "u8", "i32"), call=_iu8("true", "false")
    ),
    "gfx12 f32 fp8": Case(
        "gfx1201", "gfx12 w32 f32_16x16x16_fp8", "wmma.f32.16x16x16.fp8.fp8.v8f32.v2i32", "<2 x i32>", SINGLE, ("fp8", "fp8", "f32")
    ),
    "gfx12 f32 bf8 fp8": Case(
        "gfx1201", "gfx12 w32 f32_16x16x16_fp8", "wmma.f32.16x16x16.bf8.fp8.v8f32.v2i32", "<2 x i32>", SINGLE, ("bf8", "fp8", "f32")
    ),
    "gfx942 16x16x16 f16": Case(
        "gfx942", "gfx90a mfma f32_16x16x16", "mfma.f32.16x16x16f16", "<4 x half>", FOUR, ("f16", "f16", "f32"), MFMA
    ),
    "gfx942 32x32x8 f16": Case(
        "gfx942", "gfx90a mfma f32_32x32x8", "mfma.f32.32x32x8f16", "<4 x half>", "<16 x float>", ("f16", "f16", "f32"), MFMA
    ),
    "gfx942 16x16x16 bf16": Case(
        "gfx942", "gfx90a mfma f32_16x16x16", "mfma.f32.16x16x16bf16.1k", "<4 x i16>", FOUR, ("bf16", "bf16", "f32"), MFMA
    ),
    "gfx942 32x32x8 bf16": Case(
        "gfx942", "gfx90a mfma f32_32x32x8", "mfma.f32.32x32x8bf16.1k", "<4 x i16>", "<16 x float>", ("bf16", "bf16", "f32"), MFMA
    ),
    "gfx942 16x16x32 i8": Case(
        "gfx942", "gfx942 mfma f32_16x16x32_fp8", "mfma.i32.16x16x32.i8", "i64", "<4 x i32>", ("i8", "i8", "i32"), MFMA
    ),
    "gfx942 16x16x32 fp8": Case(
        "gfx942", "gfx942 mfma f32_16x16x32_fp8", "mfma.f32.16x16x32.fp8.fp8", "i64", FOUR, ("fp8", "fp8", "f32"), MFMA
    ),
    "gfx942 16x16x32 bf8 fp8": Case(
        "gfx942", "gfx942 mfma f32_16x16x32_fp8", "mfma.f32.16x16x32.bf8.fp8", "i64", FOUR, ("bf8", "fp8", "f32"), MFMA
    ),
}  # fmt: skip


def _bits(type_: str) -> int:
    return {"f16": 16, "bf16": 16, "f32": 32, "i32": 32}.get(type_, 8)


def _patterns(rng: np.random.Generator, type_: str, shape: tuple[int, ...], *, fnuz: bool) -> Array:
    """Return random elements as their patterns: numbers alone, no infinity or NaN."""
    if type_ in ("i8", "u8"):
        return rng.integers(0, 256, shape)
    if type_ == "i32":
        return rng.integers(-1000, 1000, shape).astype("i4").view("u4")
    if type_ in ("fp8", "bf8"):
        last = 127 if fnuz else {"fp8": 126, "bf8": 0x7B}[type_]
        return rng.choice(np.array([*range(last + 1), *range(129, 129 + last)]), shape)
    values = rng.standard_normal(shape).astype("f4")
    if type_ == "f16":
        return values.astype("f2").view("u2")
    return values.view("u4") if type_ == "f32" else values.view("u4") >> 16


def _meant(patterns: Array, type_: str, *, fnuz: bool = False) -> Array:
    """Return what patterns mean, as float64."""
    if type_ == "f16":
        return patterns.astype("u2").view("f2").astype("f8")
    if type_ in ("f32", "bf16"):
        return (patterns.astype("u4") << (16 if type_ == "bf16" else 0)).view("f4").astype("f8")
    if type_ in ("i8", "u8", "i32"):
        unsigned, own = {"i8": ("u1", "i1"), "u8": ("u1", "u1"), "i32": ("u4", "i4")}[type_]
        return patterns.astype(unsigned).view(own).astype("f8")
    mantissa = 3 if type_ == "fp8" else 2
    exponent, rest = (patterns & 127) >> mantissa, patterns & (1 << mantissa) - 1
    bias = {"fp8": 7, "bf8": 15}[type_] + fnuz
    part = rest / 2.0**mantissa
    size = np.where(exponent == 0, part * 2.0 ** (1 - bias), (1 + part) * 2.0 ** (exponent - float(bias)))
    return np.where(patterns & 128, -size, size)


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


def _gather(layout: Layout, registers: Array, bits: int, *, high: bool = False) -> Array:
    """Return the patterns of D."""
    found = np.zeros((layout.m, layout.n), "u4")
    for i in range(layout.m):
        for j in range(layout.n):
            register, part, lane = layout.d(i, j)
            found[i, j] = registers[lane, register] >> (bits * (part + high)) & (1 << bits) - 1
    return found


@pytest.mark.sampled(23)
@pytest.mark.parametrize("name", CASES)
def test_a_matrix_operation_agrees_with_matmul(name: str) -> None:
    case = CASES[name]
    layout, fnuz, (*types, to) = LAYOUTS[case.layout], case.processor == "gfx942", case.types
    bench, rng = Bench(case.processor, case.features), np.random.default_rng(5)
    shapes = ((layout.m, layout.k), (layout.n, layout.k))
    raw = [_patterns(rng, type_, shape, fnuz=fnuz) for type_, shape in zip(types, shapes, strict=True)]
    a, b = (_meant(r, type_, fnuz=fnuz) for r, type_ in zip(raw, types, strict=True))
    registers = [bench.new(_spread(layout, r, _bits(t)), "u4") for r, t in zip(raw, types, strict=True)]
    parts = 32 // _bits(to)
    start = [
        _patterns(rng, to, (layout.wave, layout.d_registers), fnuz=fnuz).astype("u4") << _bits(to) * part
        for part in range(parts)
    ]
    before = np.bitwise_or.reduce(start)
    out = bench.new(before, "u4")
    added = _meant(_gather(layout, before, _bits(to), high=case.high), to)
    done = bench.run(case.kernel(), 1, layout.wave, out, *registers, options=QUICK)
    assert done.fault is None, done.fault
    got = _meant(_gather(layout, out, _bits(to), high=case.high), to)
    wanted, size = a @ b.T + added, np.abs(a) @ np.abs(b).T + np.abs(added)
    half_ulp = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 0.0, "i32": 0.0}[to] * np.abs(wanted)
    bound = np.zeros_like(size) if to == "i32" else size * 2.0**-20 + half_ulp
    assert np.all(np.abs(got - wanted) <= bound)
    if parts == 2 and layout.d_parts == 1:
        assert np.array_equal(
            out >> (0 if case.high else 16) & 0xFFFF, before >> (0 if case.high else 16) & 0xFFFF
        )


def test_copies_of_an_operand_must_be_equal() -> None:
    case = CASES["gfx11 f32 f16"]
    layout, bench = LAYOUTS[case.layout], Bench(case.processor)
    ones = np.full((16, 16), np.float16(1).view("u2"))
    a, b = (_spread(layout, ones, 16) for _ in range(2))
    a[17, 3] ^= 1
    out = bench.new(np.zeros((32, 8)), "u4")
    done = bench.run(case.kernel(), 1, 32, out, bench.new(a, "u4"), bench.new(b, "u4"), options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.BAD_MATRIX
    assert "v_wmma_f32_16x16x16_f16" in done.fault.instruction


def test_broadcasts_of_an_operation_on_one_block_are_refused() -> None:
    text = CASES["gfx942 16x16x16 f16"].kernel().replace("%z, i32 0", "%z, i32 1")
    with pytest.raises(IsaError, match=r"1 blocks, saw cbsz 1"):
        Bench("gfx942").kernel(text)
