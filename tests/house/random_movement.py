"""Steps of random tensor programs that move elements: reshapes, slices, pads, joins, indices."""
# ruff: noqa: E731 - a pair of one-line functions reads best as such

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.house.random_program import Maker


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
        t = lambda x: x.split(at, axis)[piece]
        n = lambda x: np.split(x, range(at, x.shape[axis], at), axis)[piece]
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
