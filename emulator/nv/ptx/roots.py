"""Quotients, roots, powers, logarithms, sines. Source: PTX ISA 9.7.3, 9.7.4.

Results with a rounding mode are exact to the bit. The `.approx` and `.full` forms are computed in double
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
    """Translate div; `.approx` and `.full` are rounded correctly (allowed: 2 ulp)."""
    how = m.one_of("approx", "full", *ROUNDING, default="approx")
    ftz = m.flag("ftz")
    d, x, y = operands(t, i, 3)
    a, b = sources(t, type_, ftz, x, y)
    exact = how in ("approx", "full", "rn")
    value = t.c.op("fdiv", a, b) if exact else numeric.rounded(t.wf.lib, t.c, "div", how, a.type, a, b)
    finish(t, d, value, ftz=ftz, sat=False)


@floating("rcp")
def _rcp(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Translate rcp.

    `.approx` is rounded correctly (allowed: 1 ulp), but of f64 it has the upper half only.
    """
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
    """Write an f64 approximation: the upper half of `compute(a)`; the lower half of `a` counts as 0."""
    c = t.c
    upper = c.as_float(c.op("and", c.as_int(a), ~0xFFFF_FFFF))
    # A NaN may have all its bits in the lower half.
    upper = c.select(c.fcmp("uno", a, a), a, upper)
    value = flushed(t, compute(upper))
    t.write_float(d, c.as_float(c.op("and", c.as_int(value), ~0xFFFF_FFFF)))


@floating("sqrt")
def _sqrt(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Translate sqrt; `.approx` is rounded correctly."""
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
    """Translate an instruction with one operand as a function of doubles, rounded to its type.

    The type is f64, f32, or one of 16-bit elements, each of which is computed alone.
    """
    c = t.c

    def single(value: IrValue) -> IrValue:
        return c.cast("fptrunc", compute(c.cast("fpext", value, "double")), "float")

    m.one_of("approx")
    if type_ in SMALL:
        compute_small(t, i, m, type_, single)
        return
    ftz = m.flag("ftz")
    d, x = operands(t, i, 2)
    (a,) = sources(t, type_, ftz, x)
    finish(t, d, compute(a) if type_ == "f64" else single(a), ftz=ftz, sat=False)


@floating("rsqrt")
def _rsqrt(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Translate rsqrt; `.ftz.f64` has the upper halves of operand and result only."""
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
    """Translate ex2, 2^x (allowed: 2 ulp)."""
    c = t.c

    def compute(x: IrValue) -> IrValue:
        return c.select(c.fcmp("uno", x, x), x, numeric.exp2(c, x))

    _approximate(t, i, m, type_, compute)


@floating("lg2")
def _lg2(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    """Translate lg2 (allowed: an absolute error of 2^-22 in [0.5, 2], a relative one of 2^-22 elsewhere)."""
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
    """Translate sin and cos (allowed: an absolute error of 2^-20.5 in [-2 pi, 2 pi]); infinities give NaN."""
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
    """Translate tanh (allowed: a relative error of 2^-11); NaN and zeros are their own results."""
    c = t.c

    def compute(x: IrValue) -> IrValue:
        return c.select(c.fcmp("ueq", x, c.fconst(x.type, 0.0)), x, numeric.tanh(c, x))

    _approximate(t, i, m, type_, compute)
