"""Random statements that write a tensor in place, for the tensor fuzzer.

Each function appends at most one statement to the program that a `Maker` builds, and none if no tensor
fits. `Maker.write` takes it as two format strings, for tensors and for NumPy: {0} is the target, {1} the
first operand.

Not here: a whole program and `Maker` (`tensor_programs`), other kinds of statements (`tensor_kinds` lists
them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.tensor_movement import key

if TYPE_CHECKING:
    import random

    from tests.fuzz.tensor_programs import Maker


def write(m: Maker) -> None:
    """Assign a whole tensor, update it by `+=`, `-=` or `*=`, or write a number to a part."""
    a = m.pick()
    if a is None or not m.writable(a):
        return
    x = m.env[a]
    others = [  # same dtype and shape, in other memory
        n
        for n in m.alias
        if n not in m.frozen
        and m.env[n].dtype == x.dtype
        and m.env[n].shape == x.shape
        and m.alias[n] != m.alias[a]
    ]
    draw = m.r.random()
    if draw < 0.4 and others:
        b = m.r.choice(others)
        m.write(a, (b,), "{0}.assign({1})", "{0}[...] = {1}")
    elif draw < 0.7 and others and x.dtype.kind != "b":
        b = m.r.choice(others)
        op = m.r.choice(("+", "-", "*"))
        m.write(a, (b,), f"{{0}} {op}= {{1}}", f"np.copyto({{0}}, {{0}} {op} {{1}})" if not m.views else "")
    elif x.ndim and x.dtype.kind != "b":
        number = m.r.choice((0, 1, 5))
        m.write(a, (), f"{{0}}[{key(m, x.shape)}] = {number}")


def write_at_variable(m: Maker) -> None:
    """Write one element of a vector, at an index that is a `Variable`."""
    a = m.pick("iuf", rank=1, nonempty=True)
    if a is not None and m.writable(a):
        k = m.bound(len(m.env[a]) - 1)
        m.write(a, (k,), f"{{0}}[{{1}}] = {m.r.choice((0, 1, 5))}")


_OF_ROW: Final = (
    ("rows[{k}] = {n}", "rows[{k}] = {n}"),
    ("rows[{k}] += {n}", "rows[{k}] += {n}"),
    ("rows[{k}] = {n} - rows[{k}]", "rows[{k}] = {n} - rows[{k}]"),
    ("rows[{k}].assign(rows[{k}] + {n})", "rows[{k}] += {n}"),
    ("rows[{k}:{k} + 1].add_({n})", "rows[{k}] += {n}"),
    ("rows[[{k}]] = {n}", "rows[{k}] = {n}"),
    ("rows[Tensor.arange(len(rows)) == {k}] = {n}", "rows[{k}] = {n}"),
    ("part = rows[{k}]; part.sub_({n}); del part", "rows[{k}] -= {n}"),
    ("rows[{k}, ..., -1:] = {n}", "rows[{k}, ..., -1:] = {n}"),
    ("gone = rows * 2; del gone", "pass"),
    ("rows.realize()", "pass"),
    ("rows.numpy()", "pass"),
)
"""Statements of a thread that writes only row k of a tensor of all threads, for tensors and for NumPy."""


def of_row(r: random.Random, row: int, count: int) -> list[tuple[str, str]]:
    """Return random statements that write one row of `rows` or read it, for tensors and for NumPy."""
    chosen = [(r.choice(_OF_ROW), r.randint(0, 5)) for _ in range(count)]
    return [(one.format(k=row, n=n), same.format(k=row, n=n)) for (one, same), n in chosen]
