"""Elementwise lines of tensor programs: arithmetic, comparison, selection, casts.

Not here: a whole program (`tensor_programs`), other kinds of lines (`tensor_kinds` lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from compiler.dtype import by_name, promote
from tests import float8
from tests.fuzz.tensor_programs import fits
from tests.fuzz.tensor_values import DTYPES, FLOATS, INTS

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Maker


def binary(m: Maker) -> None:
    """Append a binary operation: arithmetic, division, bitwise operations, maximum or minimum."""
    a = m.pick()
    b = m.mate(a) if a is not None else None
    if a is None or b is None:
        return
    kind = m.env[a].dtype.kind
    if kind == "b":
        m.add((a, b), m.r.choice(("{0} & {1}", "{0} | {1}", "{0} ^ {1}")))
    elif kind == "f":
        row = m.r.choice(
            (
                ("{0} + {1}", ""),
                ("{0} - {1}", ""),
                ("{0} * {1}", ""),
                ("{0} / {1}", ""),
                ("{0}.maximum({1}) + 0.0", "np.maximum({0}, {1}) + {0}.dtype.type(0)"),
                ("{0}.minimum({1}) + 0.0", "np.minimum({0}, {1}) + {0}.dtype.type(0)"),
            )
        )
        m.add((a, b), *row)
    else:
        row = m.r.choice(
            (
                ("{0} + {1}", ""),
                ("{0} - {1}", ""),
                ("{0} * {1}", ""),
                ("{0} & {1}", ""),
                ("{0} ^ {1}", ""),
                ("{0}.maximum({1})", "np.maximum({0}, {1})"),
                ("{0}.minimum({1})", "np.minimum({0}, {1})"),
                ("{0} // ({1} | 1)", ""),
                ("{0} % ({1} | 1)", ""),
            )
        )
        m.add((a, b), *row)


def mixed(m: Maker) -> None:
    """Append an operation of two dtypes, which is computed in the one that both are promoted to."""
    a, b = m.pick("biuf"), m.pick("biuf")
    if a is None or b is None or not (m.env[a].ndim and m.env[b].ndim):  # without axes a value widens less
        return
    x, y = m.env[a], m.env[b]
    if x.dtype == y.dtype or not fits(x.shape, y.shape) or "uint64" in {str(x.dtype), str(y.dtype)}:
        return
    to = promote(by_name(str(x.dtype)), by_name(str(y.dtype))).name
    if to != "bool":
        op = m.r.choice("+*")
        m.add((a, b), f"{{0}} {op} {{1}}", f"cast({{0}}, {to!r}) {op} cast({{1}}, {to!r})")


def compare(m: Maker) -> None:
    """Append a comparison of two values of one dtype."""
    a = m.pick("iuf")
    b = m.mate(a) if a is not None else None
    if a is not None and b is not None:
        m.add((a, b), f"{{0}} {m.r.choice(('<', '<=', '>', '>=', '==', '!='))} {{1}}")


def unary(m: Maker) -> None:
    """Append a unary operation: negation, absolute value, square, float classes, logical and bitwise not."""
    a = m.pick()
    if a is None:
        return
    kind = m.env[a].dtype.kind
    rows = {
        "b": (("~{0}", ""), ("{0}.logical_not()", "~{0}")),
        "i": (("-{0}", ""), ("{0}.abs()", "np.abs({0})"), ("~{0}", ""), ("{0}.square()", "{0} * {0}"),
              ("{0} << 3", ""), ("{0} >> 2", "")),
        "u": (("~{0}", ""), ("{0} << 3", ""), ("{0} >> 2", ""), ("{0} + 7", "{0} + {0}.dtype.type(7)")),
        "f": (("-{0}", ""), ("{0}.abs()", "np.abs({0})"), ("{0}.isnan()", "np.isnan({0})"),
              ("{0}.isinf()", "np.isinf({0})"), ("{0}.isfinite()", "np.isfinite({0})"),
              ("{0}.floor()", "np.floor({0})"), ("{0}.ceil()", "np.ceil({0})"),
              ("{0}.trunc()", "np.trunc({0})"), ("{0}.sqrt()", "np.sqrt({0})"),
              ("{0}.relu() + 0.0", "np.maximum({0}, {0}.dtype.type(0)) + {0}.dtype.type(0)")),
    }  # fmt: skip
    m.add((a,), *m.r.choice(rows[kind]))


def choose(m: Maker) -> None:
    """Append a selection by a mask (`where`)."""
    c, a = m.pick("b"), m.pick()
    b = m.mate(a) if a is not None else None
    if c is None or a is None or b is None:
        return
    shapes = [m.env[n].shape for n in (a, b, c)]
    if fits(np.broadcast_shapes(*shapes[:2]), shapes[2]):
        text = "{1}.where({0}, {2})" if m.env[a].dtype.kind == "b" else "{0}.where({1}, {2})"
        m.add((c, a, b), text, "np.where({0}, {1}, {2})")


def convert(m: Maker) -> None:
    """Append one or two casts, or a bitcast."""
    a = m.pick()
    if a is None:
        return
    dtype = str(m.env[a].dtype)
    if m.r.random() < 0.15 and dtype != "bool":
        size = m.env[a].dtype.itemsize
        to = m.r.choice([d for d in (*INTS, *FLOATS) if np.dtype(d).itemsize == size])
        if not (to in FLOATS and dtype in FLOATS):
            to = to if to in INTS else dtype
            if to == dtype:
                return  # the same dtype is a view, not a bitcast
            m.add((a,), f"{{0}}.bitcast({to!r})", f"{{0}}.copy().view({to!r})")
        return
    others = [d for d in DTYPES if d != dtype]
    first, second = m.r.choice(others), m.r.choice(DTYPES)
    if m.r.random() < 0.5:
        m.add((a,), f"{{0}}.cast({first!r})", f"cast({{0}}, {first!r})")
    else:
        m.add((a,), f"{{0}}.cast({first!r}).cast({second!r})", f"cast(cast({{0}}, {first!r}), {second!r})")


def through_bfloat16(m: Maker) -> None:
    """Append a computation in bfloat16, which NumPy lacks, with casts from and to other dtypes."""
    a = m.pick("biuf")
    b = m.mate(a) if a is not None else None
    if a is None or b is None or m.env[a].dtype.itemsize > (4 if m.env[a].dtype.kind == "f" else 2):
        return
    to = m.r.choice([d for d in DTYPES if d not in {"int64", "uint64"}])
    one, two = "{0}.cast('bfloat16')", "{1}.cast('bfloat16')"
    op = m.r.choice(("+", "-", "*"))
    rows = (
        ((a,), f"{one}.cast({to!r})", f"cast(brief({{0}}), {to!r})"),
        ((a, b), f"({one} {op} {two}).cast({to!r})", f"cast(brief(brief({{0}}) {op} brief({{1}})), {to!r})"),
        ((a,), f"{one}.abs().sqrt().cast({to!r})", f"cast(brief(np.sqrt(np.abs(brief({{0}})))), {to!r})"),
        ((a, b), f"({one} < {two})", "brief({0}) < brief({1})"),
    )
    m.add(*m.r.choice(rows))


def through_float8(m: Maker) -> None:
    """Append casts through an 8-bit float, and a comparison of two."""
    a = m.pick("biuf")
    b = m.mate(a) if a is not None else None
    if a is None or b is None or m.env[a].dtype.itemsize > (4 if m.env[a].dtype.kind == "f" else 2):
        return
    to, name = m.r.choice(DTYPES), m.r.choice(list(float8.FIELDS))
    one, two = f"{{0}}.cast({name!r})", f"{{1}}.cast({name!r})"
    first, second = f"byte({{0}}, {name!r})", f"byte({{1}}, {name!r})"
    rows = (
        ((a,), f"{one}.cast({to!r})", f"cast({first}, {to!r})"),
        ((a, b), f"({one} == {two}).where({one}, 0.5).cast({to!r})",
         f"cast(np.where({first} == {second}, {first}, np.float32(0.5)), {to!r})"),
    )  # fmt: skip
    m.add(*m.r.choice(rows))


def beside_variable(m: Maker) -> None:
    """Append an addition of a multiple of a `Variable` to integers."""
    a = m.pick("iu")
    if a is not None:
        k = m.bound(7)
        m.add((a, k), "{0} + ({1} * 3 + 1)", "{0} + {0}.dtype.type({1} * 3 + 1)")
