"""Matrix operations of a wave: WMMA of gfx11 and gfx12, MFMA of gfx942.

D = A * B + C, sums in float32 (or int32) from k = 0 upwards, each step fused; the hardware's order is not documented.
Register maps: facts of AMD's matrix instruction calculator. Which element of k lies where changes nothing as long as A and B
agree, so operands whose map is not published lie as those of the same width.

Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.matrix_sums import BYTES, copies_differ, element, sums
from drivers.amd.emu.isa.meanings import MEANINGS
from drivers.amd.emu.isa.operands import Imm, Operand, Reg
from drivers.emu.report import ReportKind
from drivers.emu.simt.findings import i32

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Code, Value

Place = tuple[int, int, int]
"""(register of the operand, part of it, lane)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One operation: its sizes, what its elements are, and where they lie; B lies as A with j for i."""

    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str
    """"f32", "i32", or 16 bits: "f16", "bf16"."""
    a_place: Callable[[int, int], Place]
    d_place: Callable[[int, int], Place]
    a_registers: int
    d_registers: int
    copies: int = 1
    """How often A and B are there, in lanes that follow one another; all must be equal."""
    packed: bool = False
    """Whether 16-bit results fill both halves of a register."""


def _gfx11(a: str, b: str, d: str, lanes: int) -> Shape:
    a_registers = 16 * BYTES[a] // 4
    parts = 4 // BYTES[a]
    rows = lanes // 16
    return Shape(
        m=16, n=16, k=16, a_type=a, b_type=b, d_type=d, a_registers=a_registers, d_registers=16 // rows, copies=rows,
        a_place=lambda i, k: (k // parts, k % parts, i), d_place=lambda i, j: (i // rows, 0, 16 * i % lanes + j),
    )  # fmt: skip


def _gfx12(a: str, b: str, d: str, lanes: int) -> Shape:
    small = BYTES[a] == 1
    if lanes == 32:
        registers = 2 if small else 4

        def a_place(i: int, k: int) -> Place:
            return (
                (k // 4 % 2, k % 4, 16 * (k // 8) + i)
                if small
                else (2 * (k // 8) + k // 2 % 2, k % 2, 16 * (k // 4 % 2) + i)
            )

        def d_place(i: int, j: int) -> Place:
            return (i % 8, 0, 16 * (i // 8) + j) if d[-2:] == "32" else (i // 2 % 4, i % 2, 16 * (i // 8) + j)

        return Shape(m=16, n=16, k=16, a_type=a, b_type=b, d_type=d, a_registers=registers, d_registers=8 if d[-2:] == "32" else 4,
                     a_place=a_place, d_place=d_place, packed=d[-2:] != "32")  # fmt: skip
    return Shape(
        m=16, n=16, k=16, a_type=a, b_type=b, d_type=d, a_registers=2, d_registers=4,
        a_place=lambda i, k: (k // 2 % 2, k % 2, 32 * (k // 8 % 2) + 16 * (k // 4 % 2) + i),
        d_place=lambda i, j: (i % 4, 0, 32 * (i // 4 % 2) + 16 * (i // 8) + j),
    )  # fmt: skip


def _mfma(size: int, k: int, a: str, b: str, d: str) -> Shape:
    """One block: a lane holds the elements of k that follow one another."""
    groups = 64 // size
    each = k // groups
    parts = 4 // BYTES[a]
    if size == 16:
        return Shape(m=16, n=16, k=k, a_type=a, b_type=b, d_type=d, a_registers=each // parts, d_registers=4,
                     a_place=lambda i, x: (x % each // parts, x % parts, 16 * (x // each) + i),
                     d_place=lambda i, j: (i % 4, 0, 16 * (i // 4) + j))  # fmt: skip
    return Shape(m=32, n=32, k=k, a_type=a, b_type=b, d_type=d, a_registers=each // parts, d_registers=16,
                 a_place=lambda i, x: (x % each // parts, x % parts, 32 * (x // each) + i),
                 d_place=lambda i, j: (4 * (i // 8) + i % 4, 0, 32 * (i // 4) % 64 + j))  # fmt: skip


_MFMA = {
    f"v_mfma_f32_{size}x{size}x{k}_{name}": (size, k, *types, "f32")
    for size, k, name, types in (
        (16, 16, "f16", ("f16", "f16")), (32, 8, "f16", ("f16", "f16")), (16, 16, "bf16", ("bf16", "bf16")),
        (32, 8, "bf16", ("bf16", "bf16")), (16, 4, "f32", ("f32", "f32")), (32, 2, "f32", ("f32", "f32")),
        *((s, k, f"{a}_{b}", (a, b)) for s, k in ((16, 32), (32, 16)) for a in ("fp8", "bf8") for b in ("fp8", "bf8")),
    )
} | {"v_mfma_i32_16x16x32_i8": (16, 32, "i8", "i8", "i32"), "v_mfma_i32_32x32x16_i8": (32, 16, "i8", "i8", "i32")}  # fmt: skip


def shape_of(stem: str, family: str, lanes: int, *, signs: tuple[bool, bool] = (True, True)) -> Shape | None:
    """Return what a matrix instruction computes, or None where its map is not known."""
    if family == "gfx9":
        return _mfma(*_MFMA[stem]) if stem in _MFMA else None
    prefix = "16x16x16_"
    head, _, tail = stem.removeprefix("v_wmma_").partition(f"_{prefix}")
    if tail == "iu8":
        kinds = ["i8" if s else "u8" for s in signs]
    elif tail in ("f16", "bf16") and head in ("f32", tail):
        kinds = [tail, tail]
    elif family == "gfx12" and tail.count("_") == 1 and set(tail.split("_")) <= {"fp8", "bf8"}:
        kinds = tail.split("_")
    else:
        return None
    if family == "gfx11":
        return _gfx11(kinds[0], kinds[1], head, lanes)
    wide = lanes == 64 and (tail not in ("f16", "bf16") or head != "f32")
    return None if wide else _gfx12(kinds[0], kinds[1], head, lanes)


def _from_results(c: Code, shape: Shape, value: Value) -> Value:
    """Return sums as the bits of a result."""
    if shape.d_type == "i32":
        return value
    if shape.d_type == "f32":
        return c.as_int(value)
    if shape.d_type == "f16":
        return c.resize(c.as_int(c.cast("fptrunc", value, "half")), 32)
    raw = c.as_int(value)
    rounded = c.op("add", raw, c.op("add", c.op("and", c.op("lshr", raw, 16), 1), 0x7FFF))
    nan = c.fcmp("uno", value, value)
    return c.select(nan, c.const(raw.type, 0x7FC0), c.op("lshr", rounded, 16))


def _registers(t: Translator, operand: Operand, count: int) -> list[Value]:
    if isinstance(operand, Imm):
        return [t.raw(operand)] * count
    if not isinstance(operand, Reg) or operand.file == "s":
        raise t.error(f"{operand} is no matrix operand")
    if operand.count != count:
        raise t.error(f"{operand} has {operand.count} registers where {count} are known")
    return [t.vgpr(operand.index + n, operand.file) for n in range(count)]


def _check(t: Translator, shape: Shape, a: list[Value], b: list[Value]) -> None:
    """WMMA wants every lane to execute, and on gfx11 equal copies of its operands."""
    c, every = t.c, t.c.const(t.lib.mask, -1)
    bad = c.icmp("ne", t.active, every)
    if shape.copies > 1:
        every_register = (*a, *b)
        differ = c.call(copies_differ(t.lib, len(every_register)), "i1", *every_register)
        bad = c.op("or", bad, differ)
    site = t.site()
    with c.when(bad, likely=False):
        t.wf.report(ReportKind.BAD_MATRIX, site, i32(0))


def _matrix(t: Translator) -> None:
    i, c = t.instruction, t.c
    family = t.target.family
    d, x, y, z = i.operands
    integer = "_iu8" in t.stem
    signs = (bool(i.get("neg") & 1), bool(i.get("neg") & 2)) if integer else (True, True)
    if any(i.get(m) for m in ("clamp", "neg_hi", "cbsz", "abid", "blgp")) or (i.get("neg") and not integer):
        raise t.error("this modifier of a matrix operation is not supported")
    shape = shape_of(t.stem, family, t.lanes, signs=signs)
    if shape is None:
        raise t.error("the register map of this matrix operation is not known")
    a, b = (_registers(t, operand, shape.a_registers) for operand in (x, y))
    if family != "gfx9":
        _check(t, shape, a, b)
    old = _registers(t, z, shape.d_registers)
    high = bool(i.get("op_sel") & 4)
    if i.get("op_sel") & 3 or (high and shape.d_type[-2:] == "32"):
        raise t.error("this op_sel of a matrix operation is not supported")
    start = _begin(c, shape, old, high=high)
    helper, type_ = sums(t.lib, shape, family)
    whole = c.call(helper, type_, *a, *b, *start)
    numbers = [c.let(v.type, f"extractvalue {whole}, {n}") for n, v in enumerate(start)]
    results = [_from_results(c, shape, v) for v in numbers]
    if not isinstance(d, Reg):
        raise t.error(f"{d} is no matrix operand")
    if shape.packed:
        results = [
            c.op("or", low, c.op("shl", up, 16)) for low, up in zip(results[::2], results[1::2], strict=True)
        ]
    for n, value in enumerate(results):
        both = value
        if shape.d_type[-2:] != "32" and not shape.packed:
            kept = t.vgpr(d.index + n, d.file)
            both = (
                c.op("or", c.op("and", kept, 0xFFFF), c.op("shl", value, 16))
                if high
                else c.op("or", c.op("and", kept, 0xFFFF_0000), value)
            )
        t.set_vgpr(d.index + n, both, d.file, every=True)


def _begin(c: Code, shape: Shape, old: list[Value], *, high: bool) -> list[Value]:
    """Return C as what sums begin with, in the order of registers and parts."""
    if shape.d_type == "i32":
        return old
    if shape.d_type == "f32":
        return [c.as_float(v) for v in old]
    parts = (0, 1) if shape.packed else (1 if high else 0,)
    return [element(c, v, shape.d_type, part, "") for v in old for part in parts]


for _d in ("f32", "f16", "bf16"):
    for _a in ("f16", "bf16", *(f"{p}_{q}" for p in ("fp8", "bf8") for q in ("fp8", "bf8"))):
        MEANINGS[f"v_wmma_{_d}_16x16x16_{_a}"] = _matrix
MEANINGS["v_wmma_i32_16x16x16_iu8"] = _matrix
for _name in _MFMA:
    MEANINGS[_name] = _matrix
