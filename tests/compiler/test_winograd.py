"""Convolutions by Winograd's algorithm: which kernels, small integers, rounding errors, fused results."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.ir import index as symbolic
from compiler.ir.index import loop
from compiler.pipeline import lower, planned, planned_by
from compiler.plan import tiling, winograd
from compiler.plan.choice import ProductChoice, SplitChoice, WinogradChoice
from compiler.plan.proposal import KernelForm, prepared
from compiler.plan.winograd_roles import convolution_of
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops
from frontend.tuning.space import Space
from hcq.config import override
from tests.compiler.host_kernel import ARCH, HostKernel
from tests.compiler.kernels import load, op, sink, store
from tests.compiler.pictures import Convolution

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest
    from compiler.targets.shared.target import Target

ARCHES = [ARCH, "x86_64-v3"]
LARGE = Convolution(32, 64, 56, 64, 3, padding=1)


def of(case: Convolution, arch: str) -> tuple[UOp, LoopNest]:
    """Return the kernel and its plan by Winograd's algorithm, whatever the estimate is."""
    return planned_by(case.ast(), target_of(arch), WinogradChoice())


def two_cores() -> Target:
    """Return a target whose plans do not depend on this machine."""
    return replace(target_of("x86_64-v4"), cores=2)


def kernel_of(result: Tensor) -> UOp:
    """Return the AST of the one kernel of a tensor."""
    (item,) = schedule(uops([(result.expr, tuple(range(len(result.leaves))))]), verify=True)
    return item.ast


def exact(x: np.ndarray, w: np.ndarray, padding: int) -> np.ndarray:
    """Return a convolution in float64."""
    border = (padding, padding)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), border, border))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("ncyxpq,fcpq->nfyx", windows, w.astype(np.float64), optimize=True)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 16, 16, 16, 1), (2, 16, 28, 20, 1), (1, 16, 30, 16, 0), (3, 17, 18, 16, 2), (2, 32, 8, 16, 1),
        (1, 16, 56, 18, 1),
    ],
)  # fmt: skip
def test_results_are_those_of_the_sums(arch, sizes) -> None:
    count, channels, height, filters, padding = sizes
    case = Convolution(count, channels, height, filters, 3, padding=padding)
    case.check(arch, of(case, arch))


def test_blocks_that_do_not_divide_the_rows_overlap() -> None:
    case, target = Convolution(2, 16, 26, 20, 3, padding=1), target_of("x86_64-v3")
    (made,) = winograd.propose(prepared(case.ast()), replace(target, cores=1, l2_bytes=3 << 16))
    assert (made.plan.axes[-1].edge, made.plan.axes[-1].block) == ("overlap", 7)
    case.check("x86_64-v3", (made.ast, made.plan))


def test_large_convolution_is_planned_in_parts_unless_the_setting_forbids_it() -> None:
    assert [phase.when for phase in planned(LARGE.ast(), two_cores())[1].phases] == [
        "once", "before", "before", "before", "before",
    ]  # fmt: skip
    with override(winograd=False):
        assert not planned(LARGE.ast(), two_cores())[1].phases
        assert not [*winograd.propose(prepared(LARGE.ast()), two_cores())]
        assert target_of(ARCH).settings.endswith("winograd 0")
    assert target_of(ARCH).settings.endswith("winograd 1")


@pytest.mark.parametrize(
    "case",
    [
        Convolution(1, 64, 56, 64, 5, padding=2),
        Convolution(1, 64, 56, 64, 3, stride=2, padding=1),
        Convolution(1, 64, 55, 64, 3, padding=1),
        Convolution(1, 8, 56, 64, 3, padding=1),
        Convolution(1, 64, 56, 8, 3, padding=1),
        Convolution(1, 64, 56, 64, 1),
    ],
    ids=["taps", "stride", "odd", "channels", "filters", "points"],
)
def test_other_convolutions_are_summed(case) -> None:
    assert convolution_of(prepared(case.ast()).ast) is None


def test_convolutions_of_other_types_or_with_dilation_are_summed() -> None:
    x = Tensor.zeros(1, 32, 32, 32).contiguous().realize()
    w = Tensor.zeros(32, 32, 3, 3).contiguous().realize()
    assert convolution_of(prepared(kernel_of(x.conv2d(w, padding=1))).ast) is not None
    assert convolution_of(prepared(kernel_of(x.conv2d(w, padding=2, dilation=2))).ast) is None
    assert (
        convolution_of(prepared(kernel_of(x.half().realize().conv2d(w.half().realize(), padding=1))).ast)
        is None
    )
    assert (
        convolution_of(prepared(kernel_of(x.conv2d(w[:, :16].contiguous().realize(), groups=2))).ast) is None
    )


def test_gradient_of_the_pictures_is_such_a_convolution() -> None:
    rng = np.random.default_rng(1)
    x, w, g = [
        rng.standard_normal(s, dtype=np.float32) for s in ((2, 32, 16, 16), (48, 32, 3, 3), (2, 48, 16, 16))
    ]
    picture = Tensor(x).realize()
    picture.requires_grad = True
    picture.conv2d(Tensor(w).realize(), padding=1).backward(Tensor(g).realize())
    assert picture.grad is not None
    assert planned(kernel_of(picture.grad), two_cores())[1].phases[0].when == "once"
    want = exact(g, w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1], 1)
    np.testing.assert_allclose(picture.grad.numpy(), want, rtol=1e-4, atol=1e-3)


def test_bias_relu_and_a_second_picture_are_computed_in_the_last_part() -> None:
    rng = np.random.default_rng(2)
    shapes = (2, 32, 16, 16), (32, 32, 3, 3), (32,), (2, 32, 16, 16)
    x, w, bias, other = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    a, b, c, d = [Tensor(v).realize() for v in (x, w, bias, other)]
    result = (a.relu().conv2d(b, c, padding=1) + d).relu()
    assert planned(kernel_of(result), two_cores())[1].phases[0].when == "once"
    want = np.maximum(exact(np.maximum(x, 0), w, 1) + bias[:, None, None] + other, 0)
    np.testing.assert_allclose(result.numpy(), want, rtol=1e-4, atol=1e-3)


def test_small_integers_are_exact() -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-15, 16, (2, 64, 16, 16)).astype(np.float32)
    w = rng.integers(-15, 16, (32, 64, 3, 3)).astype(np.float32)
    a, b = Tensor(x).realize(), Tensor(w).realize()
    result = a.conv2d(b, padding=1)
    assert planned(kernel_of(result), two_cores())[1].phases
    np.testing.assert_array_equal(result.numpy(), exact(x, w, 1))


def test_rounding_errors_are_at_most_twice_those_of_sums() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 64, 28, 28), dtype=np.float32)
    w = rng.standard_normal((64, 64, 3, 3), dtype=np.float32)
    want, target, ast = exact(x, w, 1), target_of(ARCH), Convolution(2, 64, 28, 64, 3, padding=1).ast()
    errors = []
    for choice in (ProductChoice(rows=6, vectors=2, staged=True), WinogradChoice()):
        made, plan = planned_by(ast, target, choice)
        got = np.zeros(want.shape, np.float32)
        kernel = HostKernel(target.emit(lower(made, target, plan)[0], target.machine(), 0))
        kernel.run([v.ctypes.data for v in (got, x, w)], groups=plan.launch()[0][0])
        errors.append(np.sqrt(np.mean((got - want) ** 2)))
    assert 0 < errors[1] <= 2 * errors[0]


def test_infinite_value_reaches_only_results_that_depend_on_it() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 16, 16, 16), dtype=np.float32)
    w = rng.standard_normal((16, 16, 3, 3), dtype=np.float32)
    x[0, 3, 6, 9] = np.inf
    (ast, plan), target = of(Convolution(1, 16, 16, 16, 3, padding=1), ARCH), target_of(ARCH)
    got = np.zeros((1, 16, 16, 16), np.float32)
    kernel = HostKernel(target.emit(lower(ast, target, plan)[0], target.machine(), 0))
    kernel.run([v.ctypes.data for v in (got, x, w)], groups=plan.launch()[0][0])
    inside = np.zeros(got.shape, bool)
    inside[:, :, 5:8, 8:11] = True
    np.testing.assert_array_equal(np.isfinite(got), ~inside)


def test_space_has_the_plan_and_estimates_it_like_the_pipeline() -> None:
    target = two_cores()
    space = Space(LARGE.ast(), target)
    assert space.estimated().choice == WinogradChoice()
    assert space.estimated().plan == planned(LARGE.ast(), target)[1]
    assert not space.moves(WinogradChoice())
    small = Space(Convolution(1, 64, 56, 64, 5, padding=2).ast(), target)
    assert WinogradChoice() not in [c.choice for c in small.starts()]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("wide", [7, 16, 20])
def test_lanes_that_are_neighbours_in_turn_are_stored_as_rows(arch, wide) -> None:
    y, x, b = loop(0, 8), loop(1, wide), loop(2, 2)
    at = (y * wide + x) * 2 + b
    value = op("ADD", load(1, y * wide + x), load(2, b))
    masked = store(0, at, value, symbolic.lt(x * 2 + b, 2 * wide - 3))
    places, ends = np.arange(8 * wide, dtype=np.float32), np.array([0.25, 0.5], np.float32)
    want = (places[:, None] + ends).reshape(8, 2 * wide)
    for ast, columns in ((sink(store(0, at, value)), 2 * wide), (sink(masked), 2 * wide - 3)):
        target = target_of(arch)
        plan = tiling.by_choice(KernelForm(ast), target, SplitChoice(vector=1, upcast=((2, 2),))).plan
        ir, _ = lower(ast, target, plan)
        assert "scatter" not in ir
        got = np.full(16 * wide + 64, -1, np.float32)
        HostKernel(target.emit(ir, target.machine(), 0)).run([v.ctypes.data for v in (got, places, ends)])
        np.testing.assert_array_equal(got[16 * wide :], -1)
        rows = got[: 16 * wide].reshape(want.shape)
        np.testing.assert_array_equal(rows[:, :columns], want[:, :columns])
        np.testing.assert_array_equal(rows[:, columns:], -1)


@pytest.mark.parametrize(("height", "width"), [(2, 16), (2, 40), (4, 16), (16, 2)])
def test_results_of_one_row_of_tiles_are_exact(height: int, width: int) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 10, (2, 32, height, width)).astype(np.float32)
    w = rng.integers(-9, 10, (48, 32, 3, 3)).astype(np.float32)
    a, b = Tensor(x).realize(), Tensor(w).realize()
    np.testing.assert_array_equal(a.conv2d(b, padding=1).numpy(), exact(x, w, 1))
