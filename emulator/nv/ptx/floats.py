"""PTX's floating-point arithmetic, extremes and signs, exact to the bit. Source: PTX ISA 9.7.3, 9.7.4, 9.7.6.

Not here: directed rounding (`emulator.ir.numeric`). Next: `roots`, quotients, roots and approximations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir import numeric
from emulator.nv.ptx.core import MEANINGS, Modifiers, PtxTranslator, operands
from emulator.nv.ptx.integers import FLOATING, join_halves
from emulator.nv.ptx.statements import TYPES, Operand, PtxImm, PtxInstruction

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.ir.vector import IrValue
    from emulator.nv.ptx.integers import Typed

_THREE_INPUTS = 100
"""The lowest architecture whose min and max take three inputs."""
SMALL = ("f16", "bf16", "f16x2", "bf16x2")
"""Types with elements of 16 bits, which are computed in float32."""
ROUNDING = ("rn", "rz", "rm", "rp")
"""Rounding modes of arithmetic."""
_MIXED = 100
"""The lowest architecture with sums of float32 and 16-bit floats."""


def floating(*opcodes: str) -> Callable[[Typed], Typed]:
    """Register the translation of opcodes for floating-point types."""

    def register(function: Typed) -> Typed:
        for opcode in opcodes:
            FLOATING[opcode] = function
            if opcode not in MEANINGS:
                MEANINGS[opcode] = _dispatch
        return function

    return register


def _dispatch(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    FLOATING[i.opcode](t, i, m, m.type())


def flushed(t: PtxTranslator, value: IrValue) -> IrValue:
    """Replace subnormal values by zeros of the same sign."""
    return numeric.flush(t.c, value)


def sources(t: PtxTranslator, type_: str, ftz: bool, *items: Operand) -> list[IrValue]:  # noqa: FBT001 - a modifier
    """Return operands as floating-point values; with `ftz` subnormal values become zeros."""
    values = [t.float(item, type_) for item in items]
    return [flushed(t, v) for v in values] if ftz else values


def finish(t: PtxTranslator, d: Operand, value: IrValue, *, ftz: bool, sat: bool) -> None:
    """Write a result with a canonical NaN; `ftz` flushes subnormal values, `sat` clamps to [0, 1]."""
    if ftz:
        value = flushed(t, value)
    if sat:
        value = saturate(t, value)
    t.write_float(d, value)


def saturate(t: PtxTranslator, value: IrValue) -> IrValue:
    """Clamp to [0, 1]; NaN becomes 0."""
    c = t.c
    above = c.fcmp("ogt", value, c.fconst(value.type, 0.0))
    value = c.select(above, value, c.fconst(value.type, 0.0))
    return c.select(c.fcmp("olt", value, c.fconst(value.type, 1.0)), value, c.fconst(value.type, 1.0))


def small_halves(t: PtxTranslator, operand: Operand, type_: str) -> list[IrValue]:
    """Return a 16-bit float, or the two of a packed pair, as float32."""
    c, format_ = t.c, type_.removesuffix("x2")
    raw = t.bits(operand, TYPES[type_])
    if not type_.endswith("x2"):
        return [numeric.from_small(c, raw, format_)]
    parts = (c.resize(raw, 16), c.resize(c.op("lshr", raw, 16), 16))
    return [numeric.from_small(c, part, format_) for part in parts]


def write_small(t: PtxTranslator, d: Operand, values: list[IrValue], type_: str) -> None:
    """Round float32 values to a 16-bit format and write them, packed if there are two."""
    bits = [numeric.to_small(t.c, v, type_.removesuffix("x2")) for v in values]
    t.write(d, bits[0] if len(bits) == 1 else join_halves(t, *bits))


def compute_small(
    t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str, compute: Callable[..., IrValue]
) -> None:
    """Apply `compute`, an operation on float32, to each 16-bit element, and write the rounded results.

    The modifiers .rn, .ftz, .sat and .relu are consumed.
    """
    m.one_of("rn")
    ftz, sat, relu = m.flag("ftz"), m.flag("sat"), m.flag("relu")
    d, *sources = i.operands
    parts = [small_halves(t, s, type_) for s in sources]
    results: list[IrValue] = []
    c = t.c
    for element in zip(*parts, strict=True):
        value = compute(*((flush_small(t, part) for part in element) if ftz else element))
        if ftz:
            narrow = numeric.to_small(c, value, type_.removesuffix("x2"))
            value = flush_small(t, numeric.from_small(c, narrow, type_.removesuffix("x2")))
        if sat:
            value = saturate(t, value)
        if relu:
            positive = c.op(
                "or", c.fcmp("ogt", value, c.fconst(value.type, 0.0)), c.fcmp("uno", value, value)
            )
            value = c.select(positive, value, c.fconst(value.type, 0.0))
        results.append(value)
    write_small(t, d, results, type_)


def _rounded(t: PtxTranslator, operation: str, mode: str, *values: IrValue) -> IrValue:
    if mode != "rn":
        return numeric.rounded(t.wf.lib, t.c, operation, mode, values[0].type, *values)
    return t.c.intrinsic("fma", *values) if operation == "fma" else t.c.op(f"f{operation}", *values)


def _pairwise(t: PtxTranslator, i: PtxInstruction, *, ftz: bool, compute: Callable[..., IrValue]) -> None:
    """Apply an operation to each of the two float32 of 64-bit registers. Raises `PtxError` before sm_100."""
    if t.arch < 100:
        raise t.error("f32x2 needs sm_100")
    c = t.c
    d, *sources = i.operands
    halves = []
    for at in (0, 32):
        parts = [c.as_float(c.resize(c.op("lshr", t.bits(s, 64), at), 32)) for s in sources]
        value = compute(*(flushed(t, p) if ftz else p for p in parts))
        halves.append(t.canonical(c.as_int(flushed(t, value) if ftz else value)))
    t.write(d, c.op("or", c.resize(halves[0], 64), c.op("shl", c.resize(halves[1], 64), 32)))


@floating("add", "sub", "mul", "fma", "mad")
def _arithmetic(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    fused = i.opcode in ("fma", "mad")
    d, *given = operands(t, i, 4 if fused else 3)
    if type_ in SMALL and i.opcode != "mul" and m.flag("f32"):
        _mixed(t, i, m, type_)
        return
    if type_ in SMALL and fused:
        if m.flag("oob"):
            raise t.error(".oob is not supported")
        compute_small(t, i, m, type_, lambda a, b, addend: numeric.fma_odd(t.c, a, b, addend))
        return
    if type_ in SMALL:
        compute_small(t, i, m, type_, lambda a, b: t.c.op(f"f{i.opcode}", a, b))
        return
    operation = "fma" if fused else i.opcode
    mode = m.one_of(*ROUNDING, default="rn")
    ftz, sat = m.flag("ftz"), m.flag("sat")
    if type_ == "f32x2":
        _pairwise(t, i, ftz=ftz, compute=lambda *v: _rounded(t, operation, mode, *v))
        return
    finish(t, d, _rounded(t, operation, mode, *sources(t, type_, ftz, *given)), ftz=ftz, sat=sat)


def _mixed(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Translate add, sub and fma of float32 whose first operands, all but the last, are 16-bit floats."""
    if t.arch < _MIXED or type_.endswith("x2") or i.opcode == "mad":
        raise t.error(f".f32.{type_} needs sm_{_MIXED}, and .f16 or .bf16")
    mode, sat = m.one_of(*ROUNDING, default="rn"), m.flag("sat")
    d, *small, last = i.operands
    values = [small_halves(t, item, type_)[0] for item in small] + [t.float(last, "f32")]
    finish(t, d, _rounded(t, i.opcode, mode, *values), ftz=False, sat=sat)


@floating("min", "max")
def _extreme(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    if len(operands(t, i, 3, 4)) == 4:
        _extreme_of_three(t, i, m, type_)
        return
    nan, xorsign = m.flag("NaN"), m.flag("xorsign")
    if xorsign and not m.flag("abs"):
        raise t.error(".xorsign needs .abs")
    c = t.c
    name = f"{i.opcode}imum" + ("" if nan else "num")

    def pick(a: IrValue, b: IrValue) -> IrValue:
        if not xorsign:
            return c.intrinsic(name, a, b)
        sign = c.op("and", c.op("xor", c.as_int(a), c.as_int(b)), 1 << 31)
        best = c.intrinsic(name, c.intrinsic("fabs", a), c.intrinsic("fabs", b))
        return c.as_float(c.op("or", c.op("and", c.as_int(best), (1 << 31) - 1), sign))

    if type_ in SMALL:
        compute_small(t, i, m, type_, pick)
        return
    ftz = m.flag("ftz")
    d, x, y = i.operands
    finish(t, d, pick(*sources(t, type_, ftz, x, y)), ftz=ftz, sat=False)


def _extreme_of_three(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Translate min and max of three operands."""
    if type_ != "f32" or t.arch < _THREE_INPUTS:
        raise t.error("three inputs need .f32 and sm_100")
    nan, magnitudes, ftz = m.flag("NaN"), m.flag("abs"), m.flag("ftz")
    name = f"{i.opcode}imum" + ("" if nan else "num")
    d, *given = i.operands
    values = sources(t, type_, ftz, *given)
    if magnitudes:
        values = [t.c.intrinsic("fabs", value) for value in values]
    best = t.c.intrinsic(name, t.c.intrinsic(name, values[0], values[1]), values[2])
    finish(t, d, best, ftz=ftz, sat=False)


@floating("neg", "abs")
def _sign(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    c, bits = t.c, TYPES[type_]
    ftz = m.flag("ftz")
    if type_ in SMALL:
        mask = 0x8000 if bits == 16 else 0x8000_8000
        raw = t.bits(x, bits)
        if ftz:
            write_small(
                t,
                d,
                [
                    c.let(v.type, f"fneg {v}") if i.opcode == "neg" else c.intrinsic("fabs", v)
                    for v in (flush_small(t, h) for h in small_halves(t, x, type_))
                ],
                type_,
            )
            return
        t.write(d, c.op("xor", raw, mask) if i.opcode == "neg" else c.op("and", raw, ~mask))
        return
    (a,) = sources(t, type_, ftz, x)
    t.write_float(d, c.let(a.type, f"fneg {a}") if i.opcode == "neg" else c.intrinsic("fabs", a))


def flush_small(t: PtxTranslator, value: IrValue) -> IrValue:
    """Replace float32 values that are subnormal in f16 by zeros of the same sign."""
    c = t.c
    small = c.fcmp("olt", c.intrinsic("fabs", value), c.fconst(value.type, 2.0**-14))
    return c.select(small, c.intrinsic("copysign", c.fconst(value.type, 0.0), value), value)


@floating("copysign")
def _copysign(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    t.write(d, t.c.as_int(t.c.intrinsic("copysign", t.float(y, type_), t.float(x, type_))))


@floating("testp")
def _testp(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    how = m.need("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    d, x = operands(t, i, 2)
    c, a = t.c, t.float(x, type_)
    size = c.intrinsic("fabs", a)
    infinite, zero = c.fconst(a.type, float("inf")), c.fconst(a.type, 0.0)
    smallest = c.fconst(a.type, 2.0**-126 if type_ == "f32" else 2.0**-1022)
    value = {
        "finite": lambda: c.fcmp("olt", size, infinite),
        "infinite": lambda: c.fcmp("oeq", size, infinite),
        "number": lambda: c.fcmp("ord", a, a),
        "notanumber": lambda: c.fcmp("uno", a, a),
        "normal": lambda: c.op(  # zero counts as normal: PTX ISA, testp
            "and",
            c.op("or", c.fcmp("oge", size, smallest), c.fcmp("oeq", size, zero)),
            c.fcmp("olt", size, infinite),
        ),
        "subnormal": lambda: c.op("and", c.fcmp("olt", size, smallest), c.fcmp("ogt", size, zero)),
    }[how]()
    t.write(d, value)


def is_float_result(instruction: PtxInstruction) -> bool:
    """Return whether an instruction writes a result of f32 or f64 arithmetic, whose NaNs are canonical."""
    if instruction.opcode not in FLOATING or instruction.opcode in ("setp", "copysign", "testp"):
        return False
    return instruction.modifiers[-1:] in (("f32",), ("f64",))


def is_neutral(operand: Operand) -> bool:
    """Return whether an operand is a constant that is neither NaN nor infinite as float32, and no f64."""
    return (
        isinstance(operand, PtxImm) and operand.value & 0x7F80_0000 != 0x7F80_0000 and operand.kind != "f64"
    )
