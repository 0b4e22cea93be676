"""Rows that are fetched ahead: in which kernels, by which loop, how far, and that results stay the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.ir.ops import Ops
from compiler.ir.walk import ordered
from compiler.nest.kernel_shape import inner_nodes
from compiler.nest.loop_nest import Ahead
from compiler.pipeline import planned, steps
from compiler.targets import target_of
from tests.compiler.host_kernel import HostKernel
from tests.compiler.kernels import load, loop, op, reduce, sink, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp
    from compiler.pipeline import Steps
    from compiler.targets.shared.target import Target

ROWS, COLUMNS = 32, 1024
CACHE = 1 << 16
"""Bytes of the last cache of the targets here; a matrix of 32 x 1024 floats exceeds it."""


def target_for(cache: int = CACHE) -> Target:
    return replace(target_of("x86_64-v3"), cores=1, last_level_bytes=cache)


def steps_for(ast: UOp, cache: int = CACHE) -> Steps:
    return steps(ast, target_for(cache))


def softmax_like(rows: int = ROWS, columns: int = COLUMNS) -> UOp:
    i, j, k, m = loop(0, rows), loop(1, columns), loop(2, columns), loop(3, columns)

    def shifted(place: UOp, top: UOp) -> UOp:
        return op("EXP", op("SUB", load(1, i * columns + place), top))

    top = reduce(load(1, i * columns + m), "MAX", m)
    total = reduce(shifted(k, top), "ADD", k)
    return sink(store(0, i * columns + j, op("DIV", shifted(j, top), total)))


def centred(rows: int = ROWS, columns: int = COLUMNS) -> UOp:
    i, j, k = loop(0, rows), loop(1, columns), loop(2, columns)
    total = reduce(load(1, i * columns + k), "ADD", k)
    return sink(store(0, i * columns + j, op("SUB", load(1, i * columns + j), total)))


def ran(made: Steps, x: np.ndarray) -> np.ndarray:
    target, out = target_of("x86_64-v3"), np.zeros(x.size, np.float32)
    kernel = HostKernel(target.emit(made.ir, target.machine(), 0), made.name)
    kernel.run([out.ctypes.data, x.ctypes.data], [], made.plan.launch()[0][0])
    return out


def test_the_loop_over_exponentials_of_a_softmax_fetches_the_next_row() -> None:
    ast, plan = planned(softmax_like(), target_for())
    (ahead,) = plan.ahead
    assert ahead.distance == COLUMNS
    top, total = [n for n in ordered(ast) if n.op is Ops.REDUCE]
    assert (top.arg[0], total.arg[0]) == ("MAX", "ADD")
    assert ahead.load in inner_nodes(total.src)
    assert ahead.load not in inner_nodes(top.src)
    assert "fetch 1024 elements ahead of buffer 1" in plan.text()
    assert "llvm.prefetch" in steps_for(softmax_like()).ir


@pytest.mark.parametrize(
    ("ast", "cache"),
    [
        (softmax_like(), 4 * ROWS * COLUMNS),  # it may be in the last cache
        (softmax_like(), 0),  # its size is unknown
        (softmax_like(1, 32 * COLUMNS), CACHE),  # there is no next row
        (softmax_like(2, 256 * COLUMNS), CACHE),  # two rows exceed the second cache
    ],
)
def test_other_rows_are_not_fetched(ast: UOp, cache: int) -> None:
    assert steps_for(ast, cache).plan.ahead == ()
    assert "llvm.prefetch" not in steps_for(ast, cache).ir


def test_rows_that_are_read_once_are_not_fetched() -> None:
    i, j, k = loop(0, ROWS), loop(1, COLUMNS), loop(2, COLUMNS)
    doubled = sink(store(0, i * COLUMNS + j, op("ADD", load(1, i * COLUMNS + j), load(1, i * COLUMNS + j))))
    total = sink(store(0, i, reduce(load(1, i * COLUMNS + k), "ADD", k)))
    assert steps_for(doubled).plan.ahead == steps_for(total).plan.ahead == ()


@pytest.mark.parametrize("make", [softmax_like, centred])
@pytest.mark.parametrize("columns", [1024, 1000, 517])
def test_results_are_those_without_fetching(make: Callable[[int, int], UOp], columns: int) -> None:
    x = np.random.default_rng(columns).standard_normal((64, columns), dtype=np.float32)
    fetching, plain = steps_for(make(64, columns)), steps_for(make(64, columns), 1 << 19)
    assert [a.__class__ for a in fetching.plan.ahead] == [Ahead]
    assert plain.plan.ahead == ()
    assert ran(fetching, x).tobytes() == ran(plain, x).tobytes()


def product(rows: int, columns: int) -> UOp:
    i, k = loop(0, rows), loop(1, columns)
    return sink(store(0, i, reduce(op("MUL", load(1, i * columns + k), load(2, k)), "ADD", k)))


@pytest.mark.parametrize(("rows", "columns"), [(512, 1024), (509, 1000), (4096, 129)])
def test_a_matrix_that_a_product_reads_once_is_fetched_ahead(rows: int, columns: int) -> None:
    made, target = steps_for(product(rows, columns)), target_for()
    assert [a.load.src[0].arg for a in made.plan.ahead] == [1]
    assert made.plan.ahead[0].distance % columns == 0
    assert "llvm.prefetch" in made.ir
    assert steps(product(16, columns), target).plan.ahead == ()  # the caches hold it
    assert steps(product(1, columns * rows), target).plan.ahead == ()  # there is no next row
    rng = np.random.default_rng(rows)
    a, x, out = rng.integers(-8, 9, (rows, columns)), rng.integers(-8, 9, columns), np.zeros(rows, np.float32)
    kernel = HostKernel(target_of("x86_64-v3").emit(made.ir, target.machine(), 0), made.name)
    held = [out, a.astype(np.float32), x.astype(np.float32)]
    kernel.run([h.ctypes.data for h in held], [], made.plan.launch()[0][0])
    assert out.tolist() == (a @ x).tolist()
