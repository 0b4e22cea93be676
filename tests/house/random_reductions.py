"""Steps of random tensor programs that reduce: sums, scans, rows, products, convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from frontend import Tensor
from tests.house.random_elementwise import promoted
from tests.house.random_program import Array, Maker, leaf_data

if TYPE_CHECKING:
    from collections.abc import Callable


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
        lambda x: (
            x.sum(axis, keep, dtype if v.kind == "i" else None)  # integers else give int64
            if name == "sum"
            else getattr(x, "a" * (name in {"max", "min"}) + name)(axis, keepdim=keep)
        ),
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
            lambda t: t.cumsum(axis, v.dtype if v.kind == "i" else None),
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


def softmax(x: Array, axis: int) -> Array:
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
            ("softmax", lambda t: t.softmax(axis), lambda x: softmax(x, axis)),
            ("log_softmax", lambda t: t.log_softmax(axis), lambda x: np.log(softmax(x, axis))),
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
            promoted(v.dtype, m.values[j].dtype),
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
