"""Matrix operations of a wave: WMMA of gfx11 and gfx12, MFMA of gfx942.

D = A * B + C, sums in float32 (or int32) from k = 0 upwards, each step fused; the hardware's order is not documented.
Register maps: facts of AMD's matrix instruction calculator. Which element of k lies where changes nothing as long as A and B
agree, so operands whose map is not published lie as those of the same width.

Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: E501, PLR0917 - sums take the operands one by one; tables of operations read best one a line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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


_BYTES = {"f16": 2, "bf16": 2, "i8": 1, "u8": 1, "fp8": 1, "bf8": 1, "f32": 4}


def _gfx11(a: str, b: str, d: str, lanes: int) -> Shape:
    a_registers = 16 * _BYTES[a] // 4
    parts = 4 // _BYTES[a]
    rows = lanes // 16
    return Shape(
        m=16, n=16, k=16, a_type=a, b_type=b, d_type=d, a_registers=a_registers, d_registers=16 // rows, copies=rows,
        a_place=lambda i, k: (k // parts, k % parts, i), d_place=lambda i, j: (i // rows, 0, 16 * i % lanes + j),
    )  # fmt: skip


def _gfx12(a: str, b: str, d: str, lanes: int) -> Shape:
    small = _BYTES[a] == 1
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
    parts = 4 // _BYTES[a]
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


def _element(c: Code, register: Value, type_: str, part: int, family: str) -> Value:
    """Return one part of every lane's register as float32 or int32."""
    if type_ == "f32":
        return c.as_float(register)
    bits = 8 * _BYTES[type_]
    shifted = c.op("lshr", register, bits * part) if part else register
    if type_ in ("i8", "u8"):
        return c.resize(c.resize(shifted, 8), 32, signed=type_ == "i8")
    small = c.resize(shifted, bits)
    if type_ == "f16":
        return c.cast("fpext", c.as_float(small), "float")
    if type_ == "bf16":
        return c.as_float(c.op("shl", c.resize(small, 32), 16))
    return small_float(c, c.resize(small, 32), type_, fnuz=family == "gfx9")


def small_float(c: Code, bits: Value, type_: str, *, fnuz: bool) -> Value:
    """Return 8-bit floats (in i32) as float32: fp8 is e4m3, bf8 e5m2, of OCP or, with `fnuz`, without infinities and -0."""
    mantissa = 3 if type_ == "fp8" else 2
    bias = {"fp8": 7, "bf8": 15}[type_] + (1 if fnuz else 0)
    magnitude = c.op("and", bits, 0x7F)
    value = c.as_float(c.op("shl", magnitude, 23 - mantissa))
    value = c.op("fmul", value, c.fconst(value.type, 2.0 ** (127 - bias)))
    if not fnuz and type_ == "bf8":  # the top exponent is infinity and NaN
        special = c.op("or", c.op("shl", c.op("and", magnitude, 3), 21), 0x7F80_0000)
        value = c.select(c.icmp("uge", magnitude, 0x7C), c.as_float(special), value)
    nan = c.as_float(c.const(bits.type, 0x7FC0_0000))
    if fnuz:
        is_nan = c.icmp("eq", bits, 0x80)
    elif type_ == "fp8":
        is_nan = c.icmp("eq", magnitude, 0x7F)
    else:
        is_nan = c.icmp("ugt", magnitude, 0x7C)
    value = c.select(is_nan, nan, value)
    negative = c.icmp("ne", c.op("and", bits, 0x80), 0)
    return c.select(c.op("and", negative, c.not_(is_nan)), c.let(value.type, f"fneg {value}"), value)


def _sums(
    c: Code, shape: Shape, lanes: int, family: str, a: list[Value], b: list[Value], start: list[Value]
) -> list[Value]:
    """Return the results by register: each lane's element of D, from that of C on."""
    where: dict[tuple[int, int, int], tuple[int, int]] = {}
    for i in range(shape.m):
        for j in range(shape.n):
            where[shape.d_place(i, j)] = (i, j)
    integer = shape.d_type == "i32"
    found = []
    parts: dict[tuple[str, int], Value] = {}
    for side, registers, type_ in (("a", a, shape.a_type), ("b", b, shape.b_type)):
        for k in range(shape.k):
            register, part, _ = shape.a_place(0, k)
            parts[side, k] = _element(c, registers[register], type_, part, family)
    columns: dict[tuple[int, tuple[int, ...]], Value] = {}
    keys = sorted({(r, p) for r, p, _ in where})
    for (register, part), begin in zip(keys, start, strict=True):
        total = begin
        elements = [where[register, part, lane] for lane in range(lanes)]
        for k in range(shape.k):
            rows = c.shuffle(parts["a", k], None, [shape.a_place(i, k)[2] for i, _ in elements])
            picks = tuple(shape.a_place(j, k)[2] for _, j in elements)
            if (k, picks) not in columns:
                columns[k, picks] = c.shuffle(parts["b", k], None, picks)
            other = columns[k, picks]
            total = (
                c.op("add", total, c.op("mul", rows, other))
                if integer
                else c.intrinsic("fma", rows, other, total)
            )
        found.append(total)
    return found


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
        for register in (*a, *b):
            first = c.shuffle(register, None, [lane % 16 for lane in range(t.lanes)])
            differs = c.mask_bits(c.icmp("ne", register, first))
            bad = c.op("or", bad, c.icmp("ne", differs, 0))
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
    results = [_from_results(c, shape, v) for v in _sums(c, shape, t.lanes, family, a, b, start)]
    if not isinstance(d, Reg):
        raise t.error(f"{d} is no matrix operand")
    if shape.packed:
        results = [
            c.op("or", low, c.op("shl", up, 16)) for low, up in zip(results[::2], results[1::2], strict=True)
        ]
    for n, value in enumerate(results):
        whole = value
        if shape.d_type[-2:] != "32" and not shape.packed:
            kept = t.vgpr(d.index + n, d.file)
            whole = (
                c.op("or", c.op("and", kept, 0xFFFF), c.op("shl", value, 16))
                if high
                else c.op("or", c.op("and", kept, 0xFFFF_0000), value)
            )
        t.set_vgpr(d.index + n, whole, d.file, every=True)


def _begin(c: Code, shape: Shape, old: list[Value], *, high: bool) -> list[Value]:
    """Return C as what sums begin with, in the order of registers and parts."""
    if shape.d_type == "i32":
        return old
    if shape.d_type == "f32":
        return [c.as_float(v) for v in old]
    parts = (0, 1) if shape.packed else (1 if high else 0,)
    return [_element(c, v, shape.d_type, part, "") for v in old for part in parts]


for _d in ("f32", "f16", "bf16"):
    for _a in ("f16", "bf16", *(f"{p}_{q}" for p in ("fp8", "bf8") for q in ("fp8", "bf8"))):
        MEANINGS[f"v_wmma_{_d}_16x16x16_{_a}"] = _matrix
MEANINGS["v_wmma_i32_16x16x16_iu8"] = _matrix
for _name in _MFMA:
    MEANINGS[_name] = _matrix
