"""Loops over a register tile, for results and for copies: where they are, and that values are the same."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import DType, dtypes
from compiler.emit.linear import dump
from compiler.nest.loop_nest import Stage, Step
from compiler.nest.operand_roles import candidates
from compiler.pipeline import arguments, planned, to_lines
from compiler.plan import contraction
from compiler.plan.choice import ProductChoice
from compiler.plan.proposal import prepared
from compiler.targets import target_of
from tests.compiler.host_kernel import ARCH
from tests.compiler.kernels import load, loop, number, op, proposed, reduce, run, sink, store, stored_as
from tests.compiler.pictures import Convolution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest

ARCHES = [ARCH, "x86_64-v3"]


def summed(m: int, n: int, k: int, dtype: DType = dtypes.float32) -> UOp:
    """Return the product of operands 1 and 2; ranges 0 and 1 are its rows and columns."""
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    return reduce(op("MUL", load(1, i * k + r, dtype), load(2, r * n + j, dtype)), "ADD", r)


def gelu(x: UOp) -> UOp:
    """Return half of x times 1 + tanh(0.8 x)."""
    scaled = op("MUL", x, number(0.8, x.dtype))
    return op("MUL", op("MUL", x, number(0.5, x.dtype)), op("ADD", op("TANH", scaled), number(1.0, x.dtype)))


def with_gelu(m: int, n: int, k: int, *, turned: bool = False) -> UOp:
    """Return a product plus a row and a matrix, through `gelu`; `turned` stores its columns as rows."""
    i, j = loop(0, m), loop(1, n)
    at = j * m + i if turned else i * n + j
    total = op("ADD", op("ADD", summed(m, n, k), load(3, j)), load(4, at))
    return sink(store(0, at, gelu(total)))


def plan_of(ast: UOp, arch: str) -> LoopNest:
    """Return the plan of a product."""
    made = proposed(contraction.propose, ast, target_of(arch))
    assert made is not None
    return made.plan


def variants(plan: LoopNest) -> Iterator[LoopNest]:
    """Yield a plan with no loop over its tile, with one for the results, and with one for each copy."""
    steps = [replace(s, looped=False) if isinstance(s, Stage) else s for s in plan.steps]
    plain = replace(plan, steps=tuple(steps), looped=None)
    yield plain
    unrolled = [axis.range for axis in plan.axes if axis.upcast > 1]
    for r in unrolled:
        yield replace(plain, looped=r)
    for k, step in enumerate(steps):
        if isinstance(step, Stage) and step.axis in unrolled and not step.wide and not step.window:
            yield replace(plain, steps=(*steps[:k], replace(step, looped=True), *steps[k + 1 :]))


def same(
    ast: UOp, given: dict[int, np.ndarray], out: dict[int, tuple[int, DType]], arch: str, *, least: int = 2
) -> dict[int, np.ndarray]:
    """Return the results of a product, equal to the bit in at least so many variants of its plan."""
    results = [run(ast, given, out, arch=arch, plan=plan) for plan in variants(plan_of(ast, arch))]
    assert len(results) >= least
    for other in results[1:]:
        for slot, values in results[0].items():
            assert values.tobytes() == other[slot].tobytes()
    return results[0]


def operands(m: int, n: int, k: int, dtype: str = "float32") -> dict[int, np.ndarray]:
    """Return random operands 1 to 4 of `with_gelu`."""
    rng = np.random.default_rng(m)
    shapes = {1: (m, k), 2: (k, n), 3: (n,), 4: (m, n)}
    return {slot: rng.standard_normal(shape).astype(dtype) for slot, shape in shapes.items()}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 64, 64), (67, 129, 45), (2, 300, 64), (300, 10, 50), (33, 200, 1100), (130, 9, 600)],
)
def test_the_loop_computes_the_same_values(m, n, k, arch):
    ast, given = with_gelu(m, n, k), operands(m, n, k)
    got = same(ast, given, {0: (m * n, dtypes.float32)}, arch)[0].reshape(m, n)
    total = given[1].astype(np.float64) @ given[2] + given[3] + given[4]
    np.testing.assert_allclose(got, total * 0.5 * (1 + np.tanh(0.8 * total)), rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("arch", ARCHES)
def test_totals_between_pieces_of_a_sum_are_loaded_by_the_loop(arch):
    m, n, k = 40, 100, 6000
    ast = with_gelu(m, n, k)
    cut = [s.range for s in plan_of(ast, arch).steps if isinstance(s, Step)]
    assert loop(2, k) in cut
    same(ast, operands(m, n, k), {0: (m * n, dtypes.float32)}, arch)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("layout", ["aB", "Ab", "AB"])
def test_copies_by_vectors_are_the_same(layout, arch):
    """Operands in every layout, one of them computed."""
    m, n, k = 70, 90, 1100
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    a = load(1, r * m + i if layout[0] == "A" else i * k + r)
    b = op("MAX", load(2, j * k + r if layout[1] == "B" else r * n + j), number(-1.0))
    ast = sink(store(0, i * n + j, reduce(op("MUL", a, b), "ADD", r)))
    x, y = operands(m, n, k)[1], operands(m, n, k)[2]
    given = {1: x.T.copy() if layout[0] == "A" else x, 2: y.T.copy() if layout[1] == "B" else y}
    got = same(ast, given, {0: (m * n, dtypes.float32)}, arch, least=3)[0].reshape(m, n)
    np.testing.assert_allclose(got, x.astype(np.float64) @ np.maximum(y, -1), rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize("arch", ARCHES)
def test_copies_by_vectors_of_padded_pictures_are_the_same(arch):
    """The rows are masked places of pictures, or the columns are."""
    for filters in (9, 64):
        case = Convolution(2, 10, 15, filters, 5, padding=2, stride=2)
        kernel, target = prepared(case.ast()), target_of(arch)
        tried = 0
        for role, inside in itertools.product(range(len(candidates(kernel.shape))), (False, True)):
            one = contraction.by_choice(kernel, target, ProductChoice(role=role, rows=0, inside=inside))
            if one is not None and isinstance(one.choice, ProductChoice):
                one = contraction.by_choice(kernel, target, replace(one.choice, staged=True))
            for made in () if one is None else variants(one.plan):
                case.check(arch, (kernel.ast, made))
                tried += 1
        assert tried > 2


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("m", "n"), [(64, 64), (50, 70)])
def test_results_that_are_transposed_have_the_same_values(m, n, arch):
    given = operands(m, n, 600)
    given[4] = np.ascontiguousarray(given[4].T)
    same(with_gelu(m, n, 600, turned=True), given, {0: (m * n, dtypes.float32)}, arch)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
def test_sums_of_other_dtypes(dtype):
    m, n, k = 45, 70, 64
    i, j = loop(0, m), loop(1, n)
    ast = sink(store(0, i * n + j, gelu(summed(m, n, k, dtype))))
    given = {slot: x.astype(stored_as(dtype)) for slot, x in operands(m, n, k).items() if slot < 3}
    if dtype is dtypes.bfloat16:
        given = {s: (operands(m, n, k)[s].view(np.uint32) >> 16).astype(np.uint16) for s in given}
    same(ast, given, {0: (m * n, dtype)}, ARCH)


def test_two_results_and_the_sums_themselves():
    m, n, k = 50, 70, 64
    i, j = loop(0, m), loop(1, n)
    total = summed(m, n, k)
    ast = sink(store(0, i * n + j, total), store(3, i * n + j, gelu(total)))
    given = {slot: x for slot, x in operands(m, n, k).items() if slot < 3}
    same(ast, given, {0: (m * n, dtypes.float32), 3: (m * n, dtypes.float32)}, ARCH)


def test_sums_of_bytes_beside_the_products():
    """The sums of one operand, which become part of the results, are loaded by the loop, too."""
    m, n, k = 70, 90, 64
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    wide = [
        op("CAST", load(s, at, dtypes.int8), dtype=dtypes.int32) for s, at in ((1, i * k + r), (2, r * n + j))
    ]
    total = op("CAST", reduce(op("MUL", *wide), "ADD", r), dtype=dtypes.float32)
    ast = sink(store(0, i * n + j, gelu(op("MUL", total, number(0.01)))))
    made, plan = planned(ast, target_of("x86_64-znver4"))
    assert "matrix vpdpbusd" in plan.text()
    assert plan.looped is not None
    text = dump(to_lines(made, plan, arguments(made)))
    assert text.count("results") == 2, "scratch memory for the sums of products, and for those of rows"
    assert prepared(ast).ast is not made
