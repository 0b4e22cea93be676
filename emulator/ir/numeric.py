"""Floating-point operations that LLVM lacks: directed rounding, small formats, approximations.

A narrow result that is computed in a wider format must not be rounded to nearest twice. So the wide value is first
rounded to *odd*: its last bit is set if any bit was lost. The second rounding then gives the correct result.

Not here: the rounding of each instruction (`emulator.nv.ptx.floats`, `emulator.nv.ptx.convert`). Next: `lanes`,
operations across lanes.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emulator.ir.ir_text import bits_of, like, mangle
from emulator.ir.vector import IrValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

ROUND_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""PTX's names of rounding modes -> their numbers in `llvm.set.rounding`."""

_OPERATIONS = {
    "add": ("fadd", 2),
    "sub": ("fsub", 2),
    "mul": ("fmul", 2),
    "div": ("fdiv", 2),
    "fma": ("fma", 3),
    "sqrt": ("sqrt", 1),
    "fptrunc": ("fptrunc", 1),
    "sitofp": ("sitofp", 1),
    "uitofp": ("uitofp", 1),
}


def rounded(lib: Library, c: CodeBuilder, operation: str, mode: str, result: str, *values: IrValue) -> IrValue:
    """Append an operation of `_OPERATIONS` with a rounding mode of `ROUND_MODES`; `result` is the type of its value.

    Its helper sets the host's rounding mode, and to nearest afterwards.
    """
    name, _ = _OPERATIONS[operation]
    source = values[0].type
    changes = source != result

    def body(k: CodeBuilder, *inside: IrValue) -> None:
        k.call("llvm.set.rounding", "void", IrValue("i32", str(ROUND_MODES[mode])))
        full = f"llvm.experimental.constrained.{name}.{mangle(result)}" + (
            f".{mangle(source)}" if changes else ""
        )
        how = (IrValue("metadata", '!"round.dynamic"'), IrValue("metadata", '!"fpexcept.ignore"'))
        value = k.call(full, result, *inside, *how)
        k.call("llvm.set.rounding", "void", IrValue("i32", "1"))
        k.ret(value)

    helper = lib.define(
        f"emu.{name}.{mode}.{mangle(source)}.{mangle(result)}",
        result,
        {f"a{i}": v.type for i, v in enumerate(values)},
        body,
        attributes="#2",
    )
    return c.call(helper, result, *values)


def flush(c: CodeBuilder, value: IrValue) -> IrValue:
    """Replace subnormal values (half, float or double) by zeros of the same sign."""
    smallest = {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}[bits_of(value.type)]
    tiny = c.fcmp("olt", c.intrinsic("fabs", value), c.fconst(value.type, smallest))
    return c.select(tiny, c.intrinsic("copysign", c.fconst(value.type, 0.0), value), value)


def odd_sum(c: CodeBuilder, a: IrValue, b: IrValue) -> IrValue:
    """Add doubles, rounded to odd. The two-sum algorithm gives the error of the sum; if it is not 0, the last bit is set."""
    total = c.op("fadd", a, b)
    part = c.op("fsub", total, a)
    lost = c.op("fadd", c.op("fsub", a, c.op("fsub", total, part)), c.op("fsub", b, part))
    bits = c.as_int(total)
    inexact = c.fcmp("one", lost, c.fconst(lost.type, 0.0))
    even = c.icmp("eq", c.op("and", bits, 1), 0)
    outward = c.fcmp(
        "oeq",
        c.intrinsic("copysign", c.fconst(lost.type, 1.0), lost),
        c.intrinsic("copysign", c.fconst(total.type, 1.0), total),
    )
    step = c.select(outward, c.op("add", bits, 1), c.op("sub", bits, 1))
    return c.as_float(c.select(c.op("and", inexact, even), step, bits))


def odd_float(c: CodeBuilder, value: IrValue) -> IrValue:
    """Convert doubles to float32, rounded to odd: overflow gives the largest finite value."""
    near = c.cast("fptrunc", value, "float")
    back = c.cast("fpext", near, "double")
    bits = c.as_int(near)
    beyond = c.fcmp("ogt", c.intrinsic("fabs", back), c.intrinsic("fabs", value))
    toward = c.op("sub", bits, c.resize(beyond, 32))
    return c.as_float(c.op("or", toward, c.resize(c.fcmp("une", back, value), 32)))


def fma_odd(c: CodeBuilder, a: IrValue, b: IrValue, addend: IrValue) -> IrValue:
    """Return a * b + addend as float32, rounded to odd. The operands are float32 values that a 16-bit format holds exactly."""
    wide = [c.cast("fpext", v, "double") for v in (a, b, addend)]
    return odd_float(c, odd_sum(c, c.op("fmul", wide[0], wide[1]), wide[2]))


def from_small(c: CodeBuilder, bits: IrValue, format_: str) -> IrValue:
    """Convert 16-bit patterns (i16) of f16 or bf16 to float32."""
    if format_ == "f16":
        return c.cast("fpext", c.bitcast(bits, like(bits.type, "half")), "float")
    return c.as_float(c.op("shl", c.resize(bits, 32), 16))


def to_small(c: CodeBuilder, value: IrValue, format_: str, mode: str = "rn") -> IrValue:
    """Round float32 to 16-bit patterns (i16) of f16 or bf16 by a mode of `ROUND_MODES`; NaNs become 0x7fff."""
    nan = c.fcmp("uno", value, value)
    if format_ == "f16" and mode == "rn":
        bits = c.bitcast(c.cast("fptrunc", value, "half"), like(value.type, "i16"))
    elif format_ == "f16":
        bits = small_float(c, value, 5, 10, mode)
    else:
        raw = c.as_int(value)
        if mode == "rn":
            raw = c.op("add", raw, c.op("add", c.op("and", c.op("lshr", raw, 16), 1), 0x7FFF))
        elif mode in ("rp", "rm"):
            negative = c.icmp("slt", raw, 0)
            away = negative if mode == "rm" else c.not_(negative)
            raw = c.op("add", raw, c.select(away, c.const(raw.type, 0xFFFF), c.const(raw.type, 0)))
        bits = c.resize(c.op("lshr", raw, 16), 16)
    return c.select(nan, c.const(bits.type, 0x7FFF), bits)


def small_float(
    c: CodeBuilder, value: IrValue, exponent_bits: int, mantissa_bits: int, mode: str, *, largest: int = 0
) -> IrValue:
    """Round float32 to a small IEEE-like format with integer arithmetic, by a mode of `ROUND_MODES`. Returns i16 patterns.

    Overflow gives infinity, or the largest finite value if the mode rounds toward zero there. With `largest` not 0,
    infinities and overflow give that bit pattern instead, with their sign. The caller replaces the results of NaNs.
    """
    bias = (1 << (exponent_bits - 1)) - 1
    bits = c.as_int(value)
    sign, rest = c.op("lshr", c.op("and", bits, -(1 << 31)), 31), c.op("and", bits, 0x7FFF_FFFF)
    exponent = c.op("sub", c.op("lshr", rest, 23), 127)
    below = c.op("sub", c.const(bits.type, 1 - bias), exponent)
    extra = c.intrinsic("smin", c.intrinsic("smax", below, c.const(bits.type, 0)), c.const(bits.type, 25))
    mantissa = c.op("or", c.op("and", rest, 0x7F_FFFF), 0x80_0000)
    drop = c.op("add", extra, 23 - mantissa_bits)
    drop = c.intrinsic("umin", drop, c.const(bits.type, 31))
    kept = c.op("lshr", mantissa, drop)
    lost = c.op("sub", mantissa, c.op("shl", kept, drop))
    half = c.op("shl", c.const(bits.type, 1), c.op("sub", drop, 1))
    if mode == "rn":
        odd = c.icmp("ne", c.op("and", kept, 1), 0)
        up = c.op("or", c.icmp("ugt", lost, half), c.op("and", c.icmp("eq", lost, half), odd))
    elif mode == "rz":
        up = c.const(like(bits.type, "i1"), 0)
    else:
        negative = c.icmp("eq", sign, 1 if mode == "rm" else 0)
        up = c.op("and", negative, c.icmp("ne", lost, 0))
    kept = c.op("add", kept, c.resize(up, 32))
    field = c.intrinsic(
        "smax", c.op("sub", c.op("add", exponent, bias - 1), c.const(bits.type, 0)), c.const(bits.type, 0)
    )
    normal = c.op("add", c.op("shl", field, mantissa_bits), kept)
    subnormal = c.icmp("sgt", below, 0)
    result = c.select(subnormal, kept, normal)
    top = ((1 << exponent_bits) - 1) << mantissa_bits
    over = c.icmp("ugt", result, largest) if largest else c.icmp("uge", result, top)
    infinite = c.icmp("eq", rest, 0x7F80_0000)
    if largest:
        limit = c.const(bits.type, largest)
    elif mode == "rn":
        limit = c.const(bits.type, top)
    elif mode == "rz":
        limit = c.const(bits.type, top - 1)
    else:
        outward = c.icmp("eq", sign, 1 if mode == "rm" else 0)
        limit = c.select(outward, c.const(bits.type, top), c.const(bits.type, top - 1))
    over_value = limit if largest else c.select(infinite, c.const(bits.type, top), limit)
    result = c.select(c.op("or", over, infinite), over_value, result)
    zero = c.icmp("eq", rest, 0)
    result = c.select(zero, c.const(bits.type, 0), result)
    return c.resize(c.op("or", result, c.op("shl", sign, exponent_bits + mantissa_bits)), 16)


def _polynomial(c: CodeBuilder, x: IrValue, coefficients: Sequence[float]) -> IrValue:
    """Evaluate a polynomial, lowest coefficient first."""
    value = c.fconst(x.type, coefficients[-1])
    for k in reversed(coefficients[:-1]):
        value = c.intrinsic("fma", value, x, c.fconst(x.type, k))
    return value


def exp2(c: CodeBuilder, x: IrValue) -> IrValue:
    """Return 2^x of doubles that hold float32 values; x is clamped to [-200, 200]. The caller replaces the results of NaNs."""
    x = c.intrinsic("minnum", c.intrinsic("maxnum", x, c.fconst(x.type, -200.0)), c.fconst(x.type, 200.0))
    whole = c.intrinsic("rint", x)
    part = c.op("fsub", x, whole)
    series = _polynomial(c, part, [math.log(2) ** n / math.factorial(n) for n in range(14)])
    number = c.cast("fptosi", whole, "i64")
    scale = c.as_float(c.op("shl", c.op("add", number, 1023), 52))
    return c.op("fmul", series, scale)


def log2(c: CodeBuilder, x: IrValue) -> IrValue:
    """Return log2 of positive finite doubles that hold float32 values. The caller replaces the results of others."""
    bits = c.as_int(x)
    shifted = c.op("sub", bits, 0x3FE6_A09E_667F_3BCD)
    exponent = c.op("ashr", shifted, 52)
    mantissa = c.as_float(c.op("sub", bits, c.op("shl", exponent, 52)))
    one = c.fconst(x.type, 1.0)
    ratio = c.op("fdiv", c.op("fsub", mantissa, one), c.op("fadd", mantissa, one))
    square = c.op("fmul", ratio, ratio)
    series = _polynomial(c, square, [2 / math.log(2) / (2 * n + 1) for n in range(11)])
    return c.intrinsic("fma", ratio, series, c.cast("sitofp", exponent, "double"))


def sine(c: CodeBuilder, x: IrValue, *, cosine: bool) -> IrValue:
    """Return sin or cos of doubles that hold float32 values; NaN for infinities and NaNs.

    Multiples of pi/2 are subtracted in two steps, so the absolute error grows with the magnitude of x.
    """
    turns = c.intrinsic("rint", c.op("fmul", x, c.fconst(x.type, 2 / math.pi)))
    first, second = 1.5707963267341256, 6.077100506506192e-11
    rest = c.intrinsic("fma", turns, c.fconst(x.type, -first), x)
    rest = c.intrinsic("fma", turns, c.fconst(x.type, -second), rest)
    square = c.op("fmul", rest, rest)
    odd = c.op(
        "fmul", rest, _polynomial(c, square, [(-1) ** n / math.factorial(2 * n + 1) for n in range(9)])
    )
    even = _polynomial(c, square, [(-1) ** n / math.factorial(2 * n) for n in range(10)])
    small = c.intrinsic(
        "minnum", c.intrinsic("maxnum", turns, c.fconst(x.type, -(2.0**62))), c.fconst(x.type, 2.0**62)
    )
    quarter = c.cast("fptosi", small, "i64")
    if cosine:
        quarter = c.op("add", quarter, 1)
    value = c.select(c.icmp("ne", c.op("and", quarter, 1), 0), even, odd)
    negative = c.icmp("ne", c.op("and", quarter, 2), 0)
    return c.select(negative, c.let(value.type, f"fneg {value}"), value)


def tanh(c: CodeBuilder, x: IrValue) -> IrValue:
    """Return tanh of doubles that hold float32 values. The caller replaces the results of NaNs."""
    power = exp2(c, c.op("fmul", x, c.fconst(x.type, 2 / math.log(2))))
    one = c.fconst(x.type, 1.0)
    value = c.op("fdiv", c.op("fsub", power, one), c.op("fadd", power, one))
    tiny = c.fcmp("olt", c.intrinsic("fabs", x), c.fconst(x.type, 2.0**-12))
    cubic = c.op("fmul", c.op("fmul", x, x), c.op("fmul", x, c.fconst(x.type, -1 / 3)))
    return c.select(tiny, c.op("fadd", x, cubic), value)
