"""Quotients, roots, powers, logarithms, sines. Source: PTX ISA 9.7.3, 9.7.4.

Those with a rounding mode are exact to the bit. The `.approx` and `.full` forms are computed in double
precision and rounded once, which is within their documented bounds but not what the hardware's tables give.

Not here: exact arithmetic (`floats`). Next: `core`, how an instruction is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir import numeric
from emulator.nv.ptx.core import Modifiers, PtxTranslator, operands
from emulator.nv.ptx.floats import ROUNDING, SMALL, compute_small, finish, floating, flushed, sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.ir.vector import IrValue
    from emulator.nv.ptx.statements import Operand, PtxInstruction


@floating("div")
def _div(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Divide; `.approx` and `.full` are exact here (allowed: 2 ulp)."""
    how = m.one_of("approx", "full", *ROUNDING, default="approx")
    ftz = m.flag("ftz")
    d, x, y = operands(t, i, 3)
    a, b = sources(t, type_, ftz, x, y)
    exact = how in ("approx", "full", "rn")
    value = t.c.op("fdiv", a, b) if exact else numeric.rounded(t.wf.lib, t.c, "div", how, a.type, a, b)
    finish(t, d, value, ftz=ftz, sat=False)


@floating("rcp")
def _rcp(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Reciprocal; `.approx` is exact here (allowed: 1 ulp); for f64 it uses and gives upper halves only."""
    how = m.one_of("approx", *ROUNDING, default="approx")
    ftz = m.flag("ftz")
    d, x = operands(t, i, 2)
    (a,) = sources(t, type_, ftz, x)
    one = t.c.fconst(a.type, 1.0)
    if how == "approx" and type_ == "f64":
        _coarse(t, d, a, lambda upper: t.c.op("fdiv", one, upper))
        return
    value = (
        t.c.op("fdiv", one, a)
        if how in ("approx", "rn")
        else numeric.rounded(t.wf.lib, t.c, "div", how, a.type, one, a)
    )
    finish(t, d, value, ftz=ftz, sat=False)


def _coarse(t: PtxTranslator, d: Operand, a: IrValue, compute: Callable[[IrValue], IrValue]) -> None:
    """Write an f64 approximation as it is defined: from the upper half of an operand to that of a result."""
    c = t.c
    upper = c.as_float(c.op("and", c.as_int(a), ~0xFFFF_FFFF))
    # A NaN may have all its bits in the lower half.
    upper = c.select(c.fcmp("uno", a, a), a, upper)
    value = flushed(t, compute(upper))
    t.write_float(d, c.as_float(c.op("and", c.as_int(value), ~0xFFFF_FFFF)))


@floating("sqrt")
def _sqrt(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Square root; `.approx` is exact here."""
    how = m.one_of("approx", *ROUNDING, default="approx")
    ftz = m.flag("ftz")
    d, x = operands(t, i, 2)
    (a,) = sources(t, type_, ftz, x)
    value = (
        t.c.intrinsic("sqrt", a)
        if how in ("approx", "rn")
        else numeric.rounded(t.wf.lib, t.c, "sqrt", how, a.type, a)
    )
    finish(t, d, value, ftz=ftz, sat=False)


def _approximate(
    t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str, compute: Callable[[IrValue], IrValue]
) -> None:
    """Apply a function on doubles to f32 or to each 16-bit element."""
    c = t.c

    def single(value: IrValue) -> IrValue:
        return c.cast("fptrunc", compute(c.cast("fpext", value, "double")), "float")

    m.one_of("approx")
    if type_ in SMALL:
        compute_small(t, i, m, type_, single)
        return
    if type_ == "f64":
        ftz = m.flag("ftz")
        d, x = operands(t, i, 2)
        (a,) = sources(t, type_, ftz, x)
        finish(t, d, compute(a), ftz=ftz, sat=False)
        return
    ftz = m.flag("ftz")
    d, x = operands(t, i, 2)
    (a,) = sources(t, type_, ftz, x)
    finish(t, d, single(a), ftz=ftz, sat=False)


@floating("rsqrt")
def _rsqrt(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Reciprocal square root, rounded once from double; `.ftz.f64` uses and gives upper halves only."""
    c = t.c
    if type_ == "f64" and m.flag("ftz"):
        m.need("approx")
        d, x = operands(t, i, 2)
        (a,) = sources(t, type_, True, x)
        one = c.fconst(a.type, 1.0)
        _coarse(t, d, a, lambda upper: c.op("fdiv", one, c.intrinsic("sqrt", upper)))
        return
    _approximate(t, i, m, type_, lambda x: c.op("fdiv", c.fconst(x.type, 1.0), c.intrinsic("sqrt", x)))


@floating("ex2")
def _ex2(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """2^x (allowed: 2 ulp)."""
    c = t.c

    def compute(x: IrValue) -> IrValue:
        return c.select(c.fcmp("uno", x, x), x, numeric.exp2(c, x))

    _approximate(t, i, m, type_, compute)


@floating("lg2")
def _lg2(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Base-2 logarithm (allowed: absolute error 2^-22 in [0.5, 2], 2^-22 relative elsewhere)."""
    c = t.c

    def compute(x: IrValue) -> IrValue:
        infinite = c.fconst(x.type, float("inf"))
        good = c.op("and", c.fcmp("ogt", x, c.fconst(x.type, 0.0)), c.fcmp("olt", x, infinite))
        value = numeric.log2(c, c.select(good, x, c.fconst(x.type, 1.0)))
        value = c.select(c.fcmp("oeq", x, infinite), infinite, value)
        value = c.select(c.fcmp("oeq", x, c.fconst(x.type, 0.0)), c.fconst(x.type, float("-inf")), value)
        bad = c.fcmp("ult", x, c.fconst(x.type, 0.0))
        return c.select(bad, c.fconst(x.type, float("nan")), value)

    _approximate(t, i, m, type_, compute)


@floating("sin", "cos")
def _sine(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Sine and cosine (allowed: absolute error 2^-20.5 in [-2 pi, 2 pi]); infinities give NaN."""
    c = t.c

    def compute(x: IrValue) -> IrValue:
        finite = c.fcmp("olt", c.intrinsic("fabs", x), c.fconst(x.type, float("inf")))
        value = numeric.sine(c, c.select(finite, x, c.fconst(x.type, 0.0)), cosine=i.opcode == "cos")
        if i.opcode == "sin":
            value = c.select(c.fcmp("oeq", x, c.fconst(x.type, 0.0)), x, value)  # -0 stays
        return c.select(finite, value, c.fconst(x.type, float("nan")))

    _approximate(t, i, m, type_, compute)


@floating("tanh")
def _tanh(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Hyperbolic tangent (allowed: relative error 2^-11); NaN and zeros stay."""
    c = t.c

    def compute(x: IrValue) -> IrValue:
        return c.select(c.fcmp("ueq", x, c.fconst(x.type, 0.0)), x, numeric.tanh(c, x))

    _approximate(t, i, m, type_, compute)
