"""Elementwise steps of random tensor programs: functions, casts, arithmetic, comparisons."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.dtype import by_name, promote
from tests.house.random_program import FLOATS, INTS, Array, Maker, Value

if TYPE_CHECKING:
    from collections.abc import Callable


def promoted(a: str, b: str) -> str:
    return promote(by_name(a), by_name(b)).name


def joint(a: Value, b: Value) -> str:
    """Return the dtype of two operands: one of shape () does not widen the other within its category."""
    if (a.data.ndim == 0) == (b.data.ndim == 0):
        return promoted(a.dtype, b.dtype)
    wide, scalar = (a, b) if a.data.ndim else (b, a)
    return scalar.dtype if "bif".index(scalar.kind) > "bif".index(wide.kind) else wide.dtype


def _as_float(dtype: str) -> str:
    return dtype if dtype.startswith("float") else "float32"


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


SMOOTH: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "exp": (lambda t: t.clip(-3, 3).exp(), lambda x: np.exp(np.clip(x, -3, 3))),
    "log": (lambda t: (t.abs() + 1).log(), lambda x: np.log(np.abs(x) + 1)),
    "sqrt": (lambda t: (t.abs() + 1).sqrt(), lambda x: np.sqrt(np.abs(x) + 1)),
    "rsqrt": (lambda t: (t * t + 1).rsqrt(), lambda x: 1 / np.sqrt(x * x + 1)),
    "recip": (lambda t: (t.abs() + 1).reciprocal(), lambda x: 1 / (np.abs(x) + 1)),
    "sin": (lambda t: t.sin(), np.sin),
    "cos": (lambda t: t.cos(), np.cos),
    "tanh": (lambda t: t.tanh(), np.tanh),
    "sigmoid": (lambda t: t.sigmoid(), _sigmoid),
    "relu": (lambda t: t.relu(), lambda x: np.maximum(x, 0)),
    "silu": (lambda t: t.silu(), lambda x: x * _sigmoid(x)),
    "abs": (lambda t: t.abs(), np.abs),
    "neg": (lambda t: -t, np.negative),
    "square": (lambda t: t.tanh().square(), lambda x: np.tanh(x) ** 2),
    "affine": (lambda t: 3 * t - 0.25, lambda x: 3 * x - 0.25),
    "rdiv": (lambda t: 2 / (t.square() + 1), lambda x: 2 / (x * x + 1)),
    "rsub": (lambda t: 1 - t / 2, lambda x: 1 - x / 2),
    "pow": (lambda t: (t.abs() + 0.5) ** 0.5, lambda x: (np.abs(x) + 0.5) ** 0.5),
    "leaky": (lambda t: t.leaky_relu(0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "clip": (lambda t: t.clip(-1, 1.5), lambda x: np.clip(x, -1, 1.5)),
    "softplus": (lambda t: t.softplus(), lambda x: np.logaddexp(x, 0)),
}
STEPPED: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "floor": (lambda t: t.floor(), np.floor),
    "ceil": (lambda t: t.ceil(), np.ceil),
    "round": (lambda t: t.round(), np.round),
    "trunc": (lambda t: t.trunc(), np.trunc),
    "sign": (lambda t: t.sign(), np.sign),
}


def unary(m: Maker) -> None:
    i = m.pick("fi")
    if i is None:
        return
    v = m.values[i]
    if v.kind == "i":
        small = v.dtype == "uint8"
        name, t, n = m.r.choice(
            [
                ("mod", lambda t: t % 5, lambda x: x % 5),
                ("floordiv", lambda t: t // 3, lambda x: x // 3),
                ("mul", lambda t: t * 3, lambda x: x * 3),
                ("clip", lambda t: t.clip(0, 4), lambda x: np.clip(x, 0, 4)),
                *([] if small else [("neg", lambda t: -t, lambda x: -x), ("abs", lambda t: t.abs(), np.abs)]),
            ]
        )
        m.add(name, [i], t, n, v.dtype, exact=True)
        return
    name = m.r.choice([*SMOOTH, *(STEPPED if v.exact else ())])
    t, n = {**SMOOTH, **STEPPED}[name]
    m.add(name, [i], t, n, v.dtype, weight=4.0, exact=name in STEPPED)


def cast(m: Maker) -> None:
    i = m.pick()
    if i is None:
        return
    v = m.values[i]
    to = m.r.choice([*FLOATS, *INTS, "bool"])
    if to[0] in "iu" and v.kind == "f" and not v.exact:
        return
    if to == "bool" and not v.exact:
        return
    if to == "bool":
        m.add("cast bool", [i], lambda t: t.bool(), lambda x: x != 0, to, exact=True)
    elif to[0] == "u":
        m.add(
            f"abs cast {to}",
            [i],
            lambda t: t.int().abs().cast(by_name(to)),
            lambda x: np.abs(np.trunc(x)).astype(np.int64),
            to,
            exact=True,
        )
    elif to[0] == "i":
        m.add(
            f"cast {to}",
            [i],
            lambda t: t.cast(by_name(to)),
            lambda x: np.trunc(x).astype(np.int64),
            to,
            exact=True,
        )
    else:
        exact = v.exact and (v.kind != "f" or to != "float16")
        m.add(
            f"cast {to}", [i], lambda t: t.cast(by_name(to)), lambda x: x.astype(np.float64), to, exact=exact
        )


def _pair(m: Maker, kinds: str) -> tuple[int, int] | None:
    """Return two values that broadcast together."""
    a = m.pick(kinds)
    if a is None:
        return None
    fits = []
    for i, v in enumerate(m.values):
        if v.kind in kinds and v.data.size:
            try:
                size = prod(np.broadcast_shapes(v.shape, m.values[a].shape))
            except ValueError:
                continue
            if size <= m.most:
                fits.append(i)
    b = m.r.choice(fits or [a])
    return (a, b) if m.r.random() < 0.5 else (b, a)


def binary(m: Maker) -> None:
    pair = _pair(m, "fi")
    if pair is None:
        return
    a, b = (m.values[i] for i in pair)
    dtype = joint(a, b)
    name, t, n = m.r.choice(
        [
            ("add", lambda x, y: x + y, np.add),
            ("sub", lambda x, y: x - y, np.subtract),
            ("mul", lambda x, y: x * y, np.multiply),
            ("maximum", lambda x, y: x.maximum(y), np.maximum),
            ("minimum", lambda x, y: x.minimum(y), np.minimum),
            ("div", lambda x, y: x / (y * y + 1), lambda x, y: x / (y * y + 1)),
            ("lerp", lambda x, y: x.lerp(y, 0.25), lambda x, y: x + (y - x) * 0.25),
        ]
    )
    ints = dtype[0] in "iu"
    if name == "lerp" and ints:
        return
    if name == "div" and ints:
        if np.max(np.abs(b.data)) > 10 or "int8" in a.dtype + b.dtype:
            return
        dtype = "float32"
        m.add(name, pair, t, n, dtype)
        return
    if ints and name == "sub" and dtype == "uint8":
        return
    m.add(name, pair, t, n, dtype, exact=ints, weight=2.0)


def compare(m: Maker) -> None:
    pair = _pair(m, "fi")
    if pair is None or not all(m.values[i].exact for i in pair):
        return
    name, t, n = m.r.choice(
        [
            ("lt", lambda x, y: x < y, np.less),
            ("le", lambda x, y: x <= y, np.less_equal),
            ("gt", lambda x, y: x > y, np.greater),
            ("ge", lambda x, y: x >= y, np.greater_equal),
            ("eq", lambda x, y: x == y, np.equal),
            ("ne", lambda x, y: x != y, np.not_equal),
        ]
    )
    m.add(name, pair, t, n, "bool", exact=True)


def logic(m: Maker) -> None:
    pair = _pair(m, "b")
    if pair is None:
        return
    name, t, n = m.r.choice(
        [
            ("and", lambda x, y: x & y, np.logical_and),
            ("or", lambda x, y: x | y, np.logical_or),
            ("xor", lambda x, y: x ^ y, np.logical_xor),
            ("andnot", lambda x, y: x & ~y, lambda x, y: x & ~y),
        ]
    )
    m.add(name, pair, t, n, "bool", exact=True)


def where(m: Maker) -> None:
    c = m.pick("b")
    pair = _pair(m, "fi")
    if c is None or pair is None:
        return
    try:
        np.broadcast_shapes(*[m.values[i].shape for i in (c, *pair)])
    except ValueError:
        return
    a, b = (m.values[i] for i in pair)
    dtype = joint(a, b)
    m.add(
        "where",
        (c, *pair),
        lambda q, x, y: q.where(x, y),
        np.where,
        dtype,
        exact=a.exact and b.exact and a.dtype == b.dtype,
    )
