"""Rows that are fetched ahead: in which kernels, by which loop, how far, and that results stay the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from compiler.ir.walk import ordered
from compiler.nest.kernel_shape import inner_nodes
from compiler.nest.loop_nest import Ahead
from compiler.pipeline import planned, steps
from compiler.plan.row_reuse import NEAR_BYTES, STREAM_BYTES
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


def scaled(rows: int, blocks: int) -> UOp:
    """Return rows of blocks, each a float16 and two runs of 8 int8, times a vector."""
    i, b, k = loop(0, rows), loop(1, blocks), loop(2, 8)
    row = (i * blocks + b) * 18

    def run(at: int) -> UOp:
        value = op("CAST", load(1, row + k + (2 + at), dtype=dtypes.int8), dtype=dtypes.float32)
        return op("MUL", value, load(2, b * 16 + k + at))

    scale = op("CAST", load(3, i * blocks * 9 + b * 9, dtype=dtypes.float16), dtype=dtypes.float32)
    return sink(store(0, i, reduce(op("MUL", op("ADD", run(0), run(8)), scale), "ADD", b, k)))


def multiplied(made: Steps, *given: np.ndarray) -> list[float]:
    target, out = target_of("x86_64-v3"), np.zeros(len(given[0]), np.float32)
    kernel = HostKernel(target.emit(made.ir, target.machine(), 0), made.name)
    kernel.run([h.ctypes.data for h in (out, *given)], [], made.plan.launch()[0][0])
    return out.tolist()


def of_product(made: Steps, rows: int, columns: int) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(rows)
    a, x = rng.integers(-8, 9, (rows, columns)), rng.integers(-8, 9, columns)
    return multiplied(made, a.astype(np.float32), x.astype(np.float32)), (a @ x).tolist()


@pytest.mark.parametrize(("rows", "columns"), [(512, 1024), (509, 1000), (4096, 129), (64, 8192)])
def test_a_matrix_that_a_product_reads_once_is_fetched_ahead(rows: int, columns: int) -> None:
    made, target = steps_for(product(rows, columns)), target_for()
    assert [a.load.src[0].arg for a in made.plan.ahead] == [1]
    assert "llvm.prefetch" in made.ir
    assert steps(product(16, columns), replace(target, l1_bytes=1 << 20)).plan.ahead == ()  # caches hold it
    assert steps(product(1, columns * rows), target).plan.ahead == ()  # there is no next row
    found, wanted = of_product(made, rows, columns)
    assert found == wanted


def test_rows_beside_a_short_vector_are_one_stream_to_the_first_cache() -> None:
    short, long = steps_for(product(512, 1024)), steps_for(product(64, 8192))
    assert [(a.distance, a.near) for a in short.plan.ahead] == [(NEAR_BYTES // 4, True)]
    assert short.plan.axes[0].upcast == 1
    assert "i32 0, i32 3, i32 1" in short.ir
    (ahead,), block = long.plan.ahead, long.plan.axes[0].block * 8192
    assert (long.plan.axes[0].upcast, ahead.near, ahead.distance % block) == (4, False, 0)
    assert ahead.distance * 4 >= STREAM_BYTES


@pytest.mark.parametrize("rows", [1, 2, 7, 16])
@pytest.mark.parametrize("columns", [1, 2, 13, 32, 64])
def test_products_are_the_same_in_a_stream_and_by_blocks(rows: int, columns: int) -> None:
    for cache in (16, 96, 1 << 15):
        made = steps(product(rows, columns), replace(target_for(), l1_bytes=cache))
        found, wanted = of_product(made, rows, columns)
        assert found == wanted


@pytest.mark.parametrize("rows", [1, 2, 7, 16])
@pytest.mark.parametrize("blocks", [1, 2, 5, 8])
def test_blocks_of_one_scale_are_multiplied(rows: int, blocks: int) -> None:
    rng = np.random.default_rng(rows)
    packed = rng.integers(-128, 128, (rows, blocks, 18), np.int8)
    scale = rng.integers(1, 9, (rows, blocks, 1)).astype(np.float16)
    packed[:, :, :2] = scale.view(np.int8)
    x = rng.integers(-8, 9, blocks * 16).astype(np.float32)
    found = multiplied(steps(scaled(rows, blocks), replace(target_for(), l1_bytes=16)), packed, x, packed)
    assert found == ((packed[:, :, 2:] * scale.astype(np.float32)).reshape(rows, -1) @ x).tolist()


def test_a_line_of_two_runs_is_fetched_once_and_a_scale_is_converted_in_all_lanes() -> None:
    made = steps_for(scaled(1024, 64))
    assert len(made.plan.ahead) == 2
    assert made.ir.count("call void @llvm.prefetch") == made.plan.axes[0].upcast
    assert "fpext <8 x half>" in made.ir
    assert "fpext half" not in made.ir
