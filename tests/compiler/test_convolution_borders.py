"""Convolutions with a border whose products with it are left out: which ones, the loops, and results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.ir import index as symbolic
from compiler.pipeline import lower, planned
from compiler.plan.choice import ProductChoice
from compiler.targets import target_of
from frontend.tuning.space import Space
from tests.compiler.host_kernel import ARCH
from tests.compiler.kernels import load, loop, op, reduce, sink, store
from tests.compiler.pictures import ARCHES, Convolution, run_plan

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest


def without_border(ast: UOp, arch: str = ARCH, *, groups: int = 0) -> list[tuple[UOp, LoopNest]]:
    """Return a kernel with each of its plans that leave out products with the border."""
    space = Space(ast, replace(target_of(arch), winograd=False))
    found = []
    for role in range(6):
        for rows in range(2, 29):
            for vectors in range(1, 7):
                choice = ProductChoice(
                    role=role, rows=rows, vectors=vectors, staged=True, inside=True, groups=groups
                )
                made = space.candidate(choice)
                found += [] if made is None else [(made.ast, made.plan)]
    return found


@pytest.mark.sampled(9)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "shape",
    [
        Convolution(3, 8, 10, 32, 3, padding=2), Convolution(2, 7, 20, 40, 5, padding=4),
        Convolution(1, 16, 7, 48, 3, padding=1), Convolution(2, 12, 13, 33, 3, stride=2, padding=1),
        Convolution(2, 8, 9, 16, 4, padding=3), Convolution(1, 20, 28, 16, 3, padding=1),
        Convolution(2, 16, 4, 64, 3, padding=1), Convolution(2, 16, 11, 24, 5, stride=3, padding=3),
        Convolution(2, 33, 2, 64, 3, padding=1),
    ],
)  # fmt: skip
def test_results_without_products_with_the_border(shape: Convolution, arch: str) -> None:
    plans = without_border(shape.ast(), arch)
    if shape.out <= (28 if target_of(arch).registers > 16 else 12):
        assert plans
    for plan in plans:
        shape.check(arch, plan)


@pytest.mark.parametrize("groups", [1, 3, 16])
def test_workgroups_divide_pictures_and_filters(groups: int) -> None:
    shape = Convolution(5, 9, 9, 80, 3, padding=1)
    plans = without_border(shape.ast(), groups=groups)
    assert plans
    for plan in plans:
        shape.check(ARCH, plan)


def test_the_loop_over_taps_has_those_inside_and_the_picture_is_read_in_place() -> None:
    ast = Convolution(128, 32, 20, 32, 5, padding=4).ast()
    target = target_of("x86_64-v4")
    kernel, plan = planned(ast, target)
    assert "without border" in plan.text()
    assert "window" not in plan.text()
    ir, _ = lower(kernel, target, plan)
    assert ir.count("@llvm.fma.v16f32(") - 1 == 20 * 5, "each of 24 places has up to five taps"
    assert "masked.scatter" not in ir


def test_a_place_without_taps_has_no_such_plan() -> None:
    assert not without_border(Convolution(2, 8, 6, 32, 2, padding=3).ast())


def test_a_mask_of_other_sums_has_no_such_plan() -> None:
    assert not without_border(Convolution(2, 8, 30, 32, 3, padding=1).ast()), "rows exceed the registers"
    y, f, c, p = loop(0, 12), loop(1, 64), loop(2, 40), loop(3, 3)
    place = y + p - 1
    for mask in (symbolic.lt(place, 11), symbolic.lt(y, 11), symbolic.lt(place + c, 40), symbolic.lt(c, 39)):
        picture = load(1, c * 14 + place + 1, mask=mask)
        ast = sink(
            store(0, f * 12 + y, reduce(op("MUL", picture, load(2, (f * 40 + c) * 3 + p)), "ADD", c, p))
        )
        assert bool(without_border(ast)) == (mask is symbolic.lt(place, 11))


def test_one_side_of_a_dilated_convolution_may_have_a_border() -> None:
    """Taps two apart along one side; along rows of the picture no place is outside."""
    y, x, f, c, p, q = loop(0, 9), loop(1, 10), loop(2, 48), loop(3, 6), loop(4, 3), loop(5, 4)
    column = x + q * 2 - 3
    inside = symbolic.both(symbolic.lt(-column, 1), symbolic.lt(column, 10))
    picture = load(1, (c * 11 + y + p) * 10 + column, mask=inside)
    weight = load(2, ((f * 6 + c) * 3 + p) * 4 + q)
    ast = sink(store(0, (f * 9 + y) * 10 + x, reduce(op("MUL", picture, weight), "ADD", c, p, q)))
    rng = np.random.default_rng(3)
    image = rng.integers(-4, 5, (6, 11, 10)).astype(np.float32)
    weights = rng.integers(-4, 5, (48, 6, 3, 4)).astype(np.float32)
    wide = np.pad(image, ((0, 0), (0, 0), (3, 3)))
    want = np.zeros((48, 9, 10), np.float32)
    for i in range(3):
        for j in range(4):
            want += np.einsum("cyx,fc->fyx", wide[:, i : i + 9, 2 * j : 2 * j + 10], weights[:, :, i, j])
    plans = without_border(ast)
    assert plans
    for kernel, plan in plans:
        got = run_plan((kernel, plan), (np.full(want.size, np.nan, np.float32), image, weights))
        np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_an_infinite_filter_has_no_effect_where_the_border_is() -> None:
    shape = Convolution(1, 16, 8, 32, 3, padding=1)
    plan = without_border(shape.ast())[0]
    image = np.ones((16, 8, 8), np.float32)
    weights = np.ones((32, 16, 3, 3), np.float32)
    weights[:, :, 0, :] = np.inf
    got = run_plan(plan, (np.zeros((32, 8, 8), np.float32), image, weights))
    assert np.isfinite(got[:, 0]).all(), "the first row of taps is outside the picture"
    assert np.isinf(got[:, 1:]).all()
