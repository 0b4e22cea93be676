"""Sums over the rows of a large matrix: which plans have pieces, and their results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.nest.loop_nest import Step
from compiler.pipeline import Steps, steps
from compiler.targets import target_of
from tests.compiler.host_kernel import HostKernel
from tests.compiler.kernels import load, loop, number, op, reduce, sink, store

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

TARGET = replace(target_of("x86_64-v3"), cores=2, l2_bytes=8 << 10)
"""Small matrices exceed its caches."""


def row_times_matrix(k: int, n: int) -> UOp:
    j, s = loop(0, n), loop(1, k)
    total = reduce(op("MUL", load(1, s), load(2, s * n + j)), "ADD", s)
    return sink(store(0, j, op("MAX", op("ADD", total, load(3, j)), number(0.0))))


def column_sums(b: int, k: int, n: int, dtype=dtypes.float32) -> UOp:  # noqa: ANN001  # a dtype
    i, j, s = loop(0, b), loop(1, n), loop(2, k)
    return sink(store(0, i * n + j, reduce(load(1, i * k * n + s * n + j, dtype), "ADD", s)))


def cut(made: Steps) -> list[tuple[int, int]]:
    """Return (number, size) of the summed ranges that are cut into pieces."""
    (reduction,) = made.plan.reductions.values()
    inner = [s for s in made.plan.steps if isinstance(s, Step) and s.range in reduction.ranges]
    return [(s.range.arg[0], s.size) for s in inner]


def ran(made: Steps, out: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    groups = made.plan.launch()[0][0]
    kernel = HostKernel(TARGET.emit(made.ir, TARGET.machine(), 0))
    kernel.run([x.ctypes.data for x in (out, *inputs)], [], groups)
    return out


@pytest.mark.parametrize(("k", "n"), [(64, 256), (65, 320), (515, 256), (4097, 256)])
def test_row_times_matrix_is_summed_in_pieces(k: int, n: int) -> None:
    made = steps(row_times_matrix(k, n), TARGET)
    assert cut(made) == [(1, max(8, -(-k // 512)))]
    rng = np.random.default_rng(k)
    x, w, bias = (rng.standard_normal(s, dtype=np.float32) for s in (k, (k, n), n))
    got = ran(made, np.full(n, np.nan, np.float32), x, w, bias)
    wanted = np.maximum(x.astype(np.float64) @ w + bias, 0)
    np.testing.assert_allclose(got, wanted, atol=2e-5 * np.sqrt(k))


def test_sums_of_columns_of_several_matrices() -> None:
    made = steps(column_sums(3, 100, 256), TARGET)
    assert cut(made) == [(2, 8)]
    x = np.random.default_rng(0).integers(-9, 9, (3, 100, 256)).astype(np.float32)
    got = ran(made, np.full((3, 256), np.nan, np.float32), x)
    assert (got == x.sum(1)).all()


def test_sums_of_integers_are_exact() -> None:
    made = steps(column_sums(1, 129, 512, dtypes.int32), TARGET)
    assert cut(made) == [(1, 8)] or cut(made) == [(2, 8)]
    x = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, (129, 512)).astype(np.int32)
    got = ran(made, np.zeros(512, np.int32), x)
    assert (got == x.sum(0, dtype=np.int32)).all()


def test_totals_of_many_columns_are_kept_for_a_part_of_them() -> None:
    made = steps(row_times_matrix(64, 16384), TARGET)
    sizes = [s.size for s in made.plan.steps if isinstance(s, Step) and s.range.arg[0] == 0]
    assert sizes[-2:] == [64, 1] or sizes[-2:] == [32, 1]
    rng = np.random.default_rng(1)
    x, w, bias = (rng.integers(-3, 4, s).astype(np.float32) for s in (64, (64, 16384), 16384))
    assert (ran(made, np.zeros(16384, np.float32), x, w, bias) == np.maximum(x @ w + bias, 0)).all()


@pytest.mark.parametrize(
    "ast",
    [
        column_sums(1, 32, 256),
        column_sums(1, 100, 192),
        column_sums(1, 100, 250),
        sink(store(0, loop(0, 256), reduce(load(1, loop(0, 256) * 100 + loop(1, 100)), "ADD", loop(1, 100)))),
        sink(store(0, loop(0, 256), reduce(load(1, loop(1, 100) * 256 + loop(0, 256)), "MAX", loop(1, 100)))),
    ],
    ids=["few rows", "few columns", "ragged", "along rows", "greatest"],
)
def test_other_sums_are_not_cut(ast: UOp) -> None:
    assert cut(steps(ast, TARGET)) == []
