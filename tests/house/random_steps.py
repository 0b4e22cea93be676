"""The kinds of steps of random tensor programs, and how often each is taken.

Each adds one step, on tensors and in NumPy, where the values so far allow it.
"""
# ruff: noqa: ARG005 - the functions of one table take the same arguments

from __future__ import annotations

from typing import Any

import numpy as np

from tests.house.random_elementwise import binary, cast, compare, logic, unary, where
from tests.house.random_movement import index, join, move, reshape
from tests.house.random_program import Kinds, Maker, Step, Value, ideal
from tests.house.random_reductions import conv, place, product, reduce, rows, softmax


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
                lambda x, y: softmax(x, 0) + y if rank else x,
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
    m.give(target, Value(data, v.dtype, exact, 8 * max(v.weight, m.values[other].weight)))


def realize(m: Maker) -> None:
    chosen = tuple(m.r.sample(range(len(m.values)), m.r.randint(1, min(2, len(m.values)))))
    m.program.steps.append(Step("realize", chosen, None, None, realize=True))  # type: ignore[arg-type]


KINDS: Kinds = (
    (unary, 6), (cast, 2), (binary, 6), (compare, 2), (logic, 1), (where, 3), (reshape, 3), (move, 8),
    (join, 3),
    (reduce, 5), (place, 2), (rows, 2), (product, 3), (conv, 2), (index, 3), (assign, 3), (realize, 3),
)  # fmt: skip
