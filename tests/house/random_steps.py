"""The kinds of steps of random tensor programs.

Each adds one step, on tensors and in NumPy, where the values so far allow it. One table of many small
functions, hence one long file.
"""
# ruff: noqa: ARG005 - the functions of one table take the same arguments

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.dtype import by_name, promote
from frontend import Tensor
from tests.house.random_program import FLOATS, INTS, Array, Kinds, Maker, Step, Value, ideal, leaf_data

if TYPE_CHECKING:
    from collections.abc import Callable


def _promoted(a: str, b: str) -> str:

    return promote(by_name(a), by_name(b)).name


def _as_float(dtype: str) -> str:
    return dtype if dtype.startswith("float") else "float32"


# -- kinds of steps -----------------------------------------------------------------------------------
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
    dtype = _promoted(a.dtype, b.dtype)
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
    dtype = _promoted(a.dtype, b.dtype)
    m.add(
        "where",
        (c, *pair),
        lambda q, x, y: q.where(x, y),
        np.where,
        dtype,
        exact=a.exact and b.exact and a.dtype == b.dtype,
    )


def reshape(m: Maker) -> None:
    i = m.pick()
    if i is None:
        return
    v = m.values[i]
    n, shape = v.data.size, []
    while n > 1 and len(shape) < 4:
        d = m.r.choice([d for d in range(1, n + 1) if n % d == 0])
        shape.append(d)
        n //= d
    shape.append(n)
    if m.r.random() < 0.3:
        shape.insert(m.r.randint(0, len(shape)), 1)
    s = tuple(shape)
    m.add(f"reshape{s}", [i], lambda t: t.reshape(s), lambda x: x.reshape(s), v.dtype, exact=v.exact)


def move(m: Maker) -> None:
    i = m.pick(rank=1)
    if i is None:
        return
    v = m.values[i]
    rank = v.data.ndim
    name = m.r.choice(
        ["permute", "flip", "pad", "shrink", "expand", "repeat", "roll", "slice", "interleave", "triu", "cut"]
    )
    t: Callable[..., Any]
    n: Callable[..., Any]
    if name == "permute":
        order = tuple(m.r.sample(range(rank), rank))
        t, n = lambda x: x.permute(order), lambda x: x.transpose(order)
        name += str(order)
    elif name == "flip":
        axes = tuple(m.r.sample(range(rank), m.r.randint(1, rank)))
        t, n = lambda x: x.flip(axes), lambda x: np.flip(x, axes)
        name += str(axes)
    elif name == "pad":
        pads = tuple([(m.r.randint(0, 2), m.r.randint(0, 2)) for _ in range(rank)])
        fill = 0 if v.kind == "b" else m.r.choice([0, 0, 1])
        t, n = lambda x: x.pad(pads, fill), lambda x: np.pad(x, pads, constant_values=fill)
        name += f"{pads, fill}"
    elif name == "shrink":
        bounds = []
        for k in v.shape:
            lo = m.r.randint(0, k - 1)
            bounds.append((lo, m.r.randint(lo + 1, k)))
        b = tuple(bounds)
        t, n = lambda x: x.shrink(b), lambda x: x[tuple([slice(*p) for p in b])]
        name += str(b)
    elif name == "expand":
        s = (m.r.randint(1, 3), *[m.r.choice([2, 3, 6]) if k == 1 else k for k in v.shape])
        t, n = lambda x: x.expand(s), lambda x: np.broadcast_to(x, s)
        name += str(s)
    elif name == "repeat":
        s = tuple([m.r.randint(1, 3) for _ in range(rank)])
        t, n = lambda x: x.repeat(s), lambda x: np.tile(x, s)
        name += str(s)
    elif name == "roll":
        axis, by = m.r.randrange(rank), m.r.randint(-9, 9)
        t, n = lambda x: x.roll(by, axis), lambda x: np.roll(x, by, axis)
        name += str((by, axis))
    elif name == "slice":
        key: list[Any] = []
        for k in v.shape:
            what = m.r.random()
            if what < 0.15:
                key.append(m.r.randrange(-k, k))
            elif what < 0.3:
                key.append(None)
                key.append(slice(None))
            else:
                key.append(
                    slice(
                        m.r.choice([None, 0, 1, -2]),
                        m.r.choice([None, k, -1]),
                        m.r.choice([None, 1, 2, 3, -1, -2]),
                    )
                )
        q = tuple(key)
        t, n = lambda x: x[q], lambda x: x[q]
        name += str(q)
    elif name == "interleave":
        axis, by = m.r.randrange(rank), m.r.randint(1, 3)
        t, n = lambda x: x.repeat_interleave(by, axis), lambda x: np.repeat(x, by, axis)
        name += str((by, axis))
    elif name == "triu":
        if rank < 2:
            return
        k = m.r.randint(-2, 2)
        t, n = (
            (lambda x: x.triu(k), lambda x: np.triu(x, k))
            if m.r.random() < 0.5
            else (lambda x: x.tril(k), lambda x: np.tril(x, k))
        )
        name += str(k)
    else:
        axis = m.r.randrange(rank)
        at = m.r.randint(1, v.shape[axis])
        piece = m.r.randint(0, -(-v.shape[axis] // at) - 1)
        t = lambda x: x.split(at, axis)[piece]  # noqa: E731 - one of two
        n = lambda x: np.split(x, range(at, x.shape[axis], at), axis)[piece]  # noqa: E731 - as above
        name = f"split{at, axis, piece}"
    m.add(name, [i], t, n, v.dtype, exact=v.exact)


def join(m: Maker) -> None:
    i = m.pick(rank=1)
    if i is None:
        return
    v = m.values[i]
    axis = m.r.randrange(v.data.ndim)
    same = [
        k for k, w in enumerate(m.values)
        if w.dtype == v.dtype and w.data.ndim == v.data.ndim
        and all(a == b for j, (a, b) in enumerate(zip(w.shape, v.shape, strict=True)) if j != axis)
    ]  # fmt: skip
    others = [m.r.choice(same) for _ in range(m.r.randint(1, 2))]
    exact = all(m.values[k].exact for k in (i, *others))
    if m.r.random() < 0.3 and all(m.values[k].shape == v.shape for k in others):
        m.add(
            f"stack{axis}",
            [i, *others],
            lambda *t: t[0].stack(*t[1:], axis=axis),
            lambda *x: np.stack(x, axis),
            v.dtype,
            exact=exact,
        )
    else:
        m.add(
            f"cat{axis}",
            [i, *others],
            lambda *t: t[0].cat(*t[1:], axis=axis),
            lambda *x: np.concatenate(x, axis),
            v.dtype,
            exact=exact,
        )


def _axes(m: Maker, rank: int) -> Any:
    if m.r.random() < 0.25:
        return None
    found = tuple(sorted(m.r.sample(range(rank), m.r.randint(1, rank)))) if rank else None
    return found[0] if found and len(found) == 1 and m.r.random() < 0.7 else found


def reduce(m: Maker) -> None:
    i = m.pick()
    if i is None:
        return
    v = m.values[i]
    axis, keep = _axes(m, v.data.ndim), m.r.random() < 0.4
    if v.kind == "b":
        name, t, n = m.r.choice(
            [
                ("any", lambda x: x.any(axis, keep), lambda x: np.any(x, axis, keepdims=keep)),
                ("all", lambda x: x.all(axis, keep), lambda x: np.all(x, axis, keepdims=keep)),
            ]
        )
        m.add(f"{name}{axis, keep}", [i], t, n, "bool", exact=True)
        return
    names = ["sum", "max", "min", "sum", "max"] + (
        ["mean", "var", "logsumexp", "mean"] if v.kind == "f" else []
    )
    name = m.r.choice(names)
    if name == "var" and ((axis is None and v.data.size < 2) or np.mean(v.data, axis).size * 2 > v.data.size):
        return
    functions: dict[str, Callable[[Array], Array]] = {
        "sum": lambda x: np.sum(x, axis, keepdims=keep),
        "max": lambda x: np.max(x, axis, keepdims=keep),
        "min": lambda x: np.min(x, axis, keepdims=keep),
        "mean": lambda x: np.mean(x, axis, keepdims=keep),
        "var": lambda x: np.var(x, axis, keepdims=keep, ddof=1),
        "logsumexp": lambda x: np.log(np.sum(np.exp(x), axis, keepdims=keep)),
    }
    if name == "logsumexp" and np.max(np.abs(v.data)) > 50:
        return
    dtype = v.dtype
    if v.kind == "i" and name == "sum" and dtype in {"int16", "uint8"}:
        dtype = "int32" if dtype == "int16" else "uint32"
        if dtype == "uint32":
            return
    exact = v.kind == "i" or (v.exact and name in {"max", "min"})
    m.add(
        f"{name}{axis, keep}",
        [i],
        lambda x: getattr(x, name)(axis, keepdim=keep),
        functions[name],
        dtype,
        exact=exact,
        weight=4.0,
    )


def place(m: Maker) -> None:
    """argmax, argmin, cumsum."""
    i = m.pick("fi", rank=1)
    if i is None:
        return
    v = m.values[i]
    axis = m.r.randrange(v.data.ndim)
    if m.r.random() < 0.5:
        if v.dtype in {"int16", "uint8"}:
            return
        m.add(
            f"cumsum{axis}",
            [i],
            lambda t: t.cumsum(axis),
            lambda x: np.cumsum(x, axis),
            v.dtype,
            exact=v.kind == "i",
            weight=4.0,
        )
    elif v.exact:
        if m.r.random() < 0.5:
            m.add(
                f"argmax{axis}",
                [i],
                lambda t: t.argmax(axis),
                lambda x: np.argmax(x, axis),
                "int32",
                exact=True,
            )
        else:
            m.add(
                f"argmin{axis}",
                [i],
                lambda t: t.argmin(axis),
                lambda x: np.argmin(x, axis),
                "int32",
                exact=True,
            )


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _normed(x: Array, axis: int) -> Array:
    d = x - x.mean(axis, keepdims=True)
    return d / np.sqrt((d * d).mean(axis, keepdims=True) + 0.1)


def rows(m: Maker) -> None:
    i = m.pick("f", rank=1)
    if i is None:
        return
    v = m.values[i]
    axis = m.r.choice([-1, m.r.randrange(v.data.ndim)])
    name, t, n = m.r.choice(
        [
            ("softmax", lambda t: t.softmax(axis), lambda x: _softmax(x, axis)),
            ("log_softmax", lambda t: t.log_softmax(axis), lambda x: np.log(_softmax(x, axis))),
            ("layernorm", lambda t: t.layernorm(axis, 0.1), lambda x: _normed(x, axis)),
            (
                "rmsnorm",
                lambda t: t.rmsnorm(axis, 0.1),
                lambda x: x / np.sqrt((x * x).mean(axis, keepdims=True) + 0.1),
            ),
        ]
    )
    m.add(f"{name}{axis}", [i], t, n, v.dtype, weight=8.0)


def product(m: Maker) -> None:
    i = m.pick("f", rank=1)
    if i is None:
        return
    v = m.values[i]
    k = v.shape[-1]
    fits = [
        j for j, w in enumerate(m.values)
        if w.kind == "f" and w.data.ndim and w.data.size and w.shape[-2 if w.data.ndim > 1 else 0] == k
    ]  # fmt: skip
    for j in m.r.sample(fits, len(fits)):
        try:
            np.broadcast_shapes(v.shape[:-2], m.values[j].shape[:-2])
        except ValueError:
            continue
        m.add(
            "matmul",
            [i, j],
            lambda x, y: (x @ y) / k,
            lambda x, y: (x @ y) / k,
            _promoted(v.dtype, m.values[j].dtype),
            weight=4.0,
        )
        return
    m.add(
        "gram",
        [i],
        lambda x: (x.reshape(-1, k) @ x.reshape(-1, k).T) / k,
        lambda x: (x.reshape(-1, k) @ x.reshape(-1, k).T) / k,
        v.dtype,
        weight=4.0,
    )


def _conv(x: Array, w: Array, stride: int, padding: int, dilation: int) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    kh, kw = ((k - 1) * dilation + 1 for k in w.shape[2:])
    out = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (2, 3))[
        :, :, ::stride, ::stride, ::dilation, ::dilation
    ]
    return np.einsum("nchwij,ocij->nohw", out, w)


def conv(m: Maker) -> None:
    i = m.pick("f", rank=2)
    if i is None:
        return
    v = m.values[i]
    if v.data.ndim < 4:
        s = (1,) * (4 - v.data.ndim) + v.shape
        if v.data.ndim == 3 and m.r.random() < 0.5:
            s = (v.shape[0], 1, *v.shape[1:])
        m.add(f"reshape{s}", [i], lambda t: t.reshape(s), lambda x: x.reshape(s), v.dtype, exact=v.exact)
        if m.values[-1].shape != s:
            return
        i, v = len(m.values) - 1, m.values[-1]
    stride, padding, dilation = m.r.randint(1, 2), m.r.randint(0, 1), m.r.choice([1, 1, 2])
    _, c, h, w = v.shape[-4:]
    if v.data.ndim != 4 or c > 8:
        return
    k = m.r.randint(1, 3)
    if min(h, w) + 2 * padding < (k - 1) * dilation + 1:
        return
    if m.r.random() < 0.4:
        if k > 2 or dilation > 1:
            return
        m.add(
            f"max_pool{k}",
            [i],
            lambda t: t.max_pool2d((k, k), stride),
            lambda x: np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[
                :, :, ::stride, ::stride
            ].max((-1, -2)),
            v.dtype,
            exact=v.exact,
        ) if min(h, w) >= k else None
        return
    o = m.r.randint(1, 4)
    data = leaf_data((o, c, k, k), "float32", np.random.default_rng(m.r.getrandbits(30))) / 4
    dtype = v.dtype
    m.add(
        f"conv{o, k, stride, padding, dilation}",
        [i],
        lambda t: t.conv2d(constant(data, dtype), stride=stride, padding=padding, dilation=dilation),
        lambda x: _conv(x, data, stride, padding, dilation),
        dtype,
        weight=8.0,
    )


_constants: dict[bytes, Any] = {}


def constant(data: Array, dtype: str) -> Any:
    """Return data as a realized tensor, the same for the same data: a captured function makes none."""
    key = data.tobytes() + dtype.encode() + str(data.shape).encode()
    if key not in _constants:
        _constants[key] = Tensor(data.astype(dtype), dtype=dtype)
    return _constants[key]


def index(m: Maker) -> None:
    i, k = m.pick(rank=1), m.pick("i")
    if i is None or k is None:
        return
    v = m.values[i]
    axis = m.r.randrange(v.data.ndim)
    size = v.shape[axis]
    if m.values[k].data.size * v.data.size // size > m.most or (
        m.values[k].dtype in {"uint8", "int16"} and size > 100
    ):
        return
    if m.r.random() < 0.5:
        m.add(
            f"take{axis}",
            [i, k],
            lambda t, q: t.take(q % size, axis),
            lambda x, q: np.take(x, q % size, axis),
            v.dtype,
            exact=v.exact,
        )
    else:
        key = (slice(None),) * axis
        m.add(
            f"index{axis}",
            [i, k],
            lambda t, q: t[(*key, q % size)],
            lambda x, q: x[(*key, q % size)],
            v.dtype,
            exact=v.exact,
        )


def assign(m: Maker) -> None:
    """Give a leaf a new value, computed from it and others."""
    target = m.r.randrange(len(m.program.leaves))
    v = m.values[target]
    if not v.data.size:
        return
    fits = [j for j, w in enumerate(m.values) if w.dtype == v.dtype and w.shape == v.shape and j != target]
    other = m.r.choice(fits) if fits else target
    rank = v.data.ndim
    choices: list[tuple[str, Any, Any]] = [("set", lambda x, y: y, lambda x, y: y)]
    if v.kind == "f":
        choices += [
            ("halfsum", lambda x, y: (x + y) * 0.5, lambda x, y: (x + y) * 0.5),
            (
                "plus mean",
                lambda x, y: x * 0.5 + y.mean() - x.max(),
                lambda x, y: x * 0.5 + y.mean() - x.max(),
            ),
            (
                "cumsum",
                lambda x, y: x.cumsum(0).tanh() if rank else x,
                lambda x, y: np.tanh(np.cumsum(x, 0)) if rank else x,
            ),
            (
                "softmax",
                lambda x, y: x.softmax(0) + y if rank else x,
                lambda x, y: _softmax(x, 0) + y if rank else x,
            ),
        ]
    if rank:
        choices += [
            ("flip", lambda x, y: x.flip(0), lambda x, y: np.flip(x, 0)),
            ("roll", lambda x, y: y.roll(1, 0), lambda x, y: np.roll(y, 1, 0)),
        ]
    name, t, n = m.r.choice(choices)
    data = ideal(np.asarray(n(v.data, m.values[other].data)))
    if np.max(np.abs(data.astype(np.float64))) > (60 if v.dtype == "float16" else 1000):
        return
    m.program.steps.append(Step(name, (target, other), t, n, assign=target))
    exact = name in {"set", "flip", "roll"} and v.exact and m.values[other].exact
    m.values[target] = Value(data, v.dtype, exact, 8 * max(v.weight, m.values[other].weight))


def realize(m: Maker) -> None:
    chosen = tuple(m.r.sample(range(len(m.values)), m.r.randint(1, min(2, len(m.values)))))
    m.program.steps.append(Step("realize", chosen, None, None, realize=True))  # type: ignore[arg-type]


KINDS: Kinds = (
    (unary, 6), (cast, 2), (binary, 6), (compare, 2), (logic, 1), (where, 3), (reshape, 3), (move, 8),
    (join, 3),
    (reduce, 5), (place, 2), (rows, 2), (product, 3), (conv, 2), (index, 3), (assign, 3), (realize, 3),
)  # fmt: skip
