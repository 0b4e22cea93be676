"""Gradients of 3 x 3 filters by Winograd's algorithm: which kernels, values, small integers."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.pipeline import lower, planned, planned_by
from compiler.plan.choice import WinogradChoice
from compiler.plan.proposal import prepared
from compiler.plan.winograd_roles import gradient_of
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops
from hcq.config import override
from tests.compiler.host_kernel import ARCH, HostKernel

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

Sizes = tuple[int, int, int, int, int]
"""Pictures, channels, height and width, filters, padding."""
ARCHES = [ARCH, "x86_64-v3"]
SIZES = [(1, 16, 16, 16, 1), (2, 16, 28, 32, 1), (3, 20, 18, 18, 0), (2, 17, 12, 16, 2), (1, 32, 56, 16, 1)]


def gradient(x: Tensor, w: Tensor, g: Tensor, *, padding: int, stride: int = 1) -> Tensor:
    """Return the gradient of the filters, not computed yet."""
    w.requires_grad = True
    x.conv2d(w, padding=padding, stride=stride).backward(g)
    assert w.grad is not None
    return w.grad


def kernel_of(sizes: Sizes, *, taps: int = 3, stride: int = 1) -> UOp:
    """Return the AST of the gradient's kernel."""
    count, channels, side, filters, padding = sizes
    out = (side + 2 * padding - taps) // stride + 1
    shapes = (count, channels, side, side), (filters, channels, taps, taps), (count, filters, out, out)
    x, w, g = [Tensor.zeros(*shape).contiguous().realize() for shape in shapes]
    made = gradient(x, w, g, padding=padding, stride=stride)
    (item,) = schedule(uops([(made.expr, tuple(range(len(made.leaves))))]), verify=True)
    return item.ast


def exact(x: np.ndarray, g: np.ndarray, padding: int) -> np.ndarray:
    """Return the gradient in float64."""
    border, out = (padding, padding), g.shape[2]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), border, border))
    taps = [padded[:, :, p : p + out, q : q + out] for p in range(3) for q in range(3)]
    made = [np.einsum("nchw,nfhw->fc", tap, g.astype(np.float64), optimize=True) for tap in taps]
    return np.stack(made, -1).reshape(g.shape[1], x.shape[1], 3, 3)


def computed(x: np.ndarray, g: np.ndarray, padding: int, *, arch: str, cores: int) -> np.ndarray:
    """Return the results of the plan by Winograd's algorithm, whatever the estimate is."""
    (count, channels, side, _), filters = x.shape, g.shape[1]
    target = replace(target_of(arch), cores=cores)
    ast, plan = planned_by(kernel_of((count, channels, side, filters, padding)), target, WinogradChoice())
    room = np.full(filters * channels * 9 + 64, np.nan, np.float32)
    kernel = HostKernel(target.emit(lower(ast, target, plan)[0], target.machine(), 0))
    kernel.run([v.ctypes.data for v in (room, x, g)], groups=plan.launch()[0][0])
    assert np.isnan(room[-64:]).all(), "the kernel wrote behind its results"
    return room[:-64].reshape(filters, channels, 3, 3)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("sizes", SIZES)
def test_values_are_those_of_the_sums(arch, cores, sizes) -> None:
    count, channels, side, filters, padding = sizes
    rng, out = np.random.default_rng(0), side + 2 * padding - 2
    x = rng.standard_normal((count, channels, side, side), dtype=np.float32)
    g = rng.standard_normal((count, filters, out, out), dtype=np.float32)
    got, want = computed(x, g, padding, arch=arch, cores=cores), exact(x, g, padding)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_small_integers_are_exact() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-6, 7, (2, 16, 28, 28)).astype(np.float32)
    g = rng.integers(-6, 7, (2, 16, 28, 28)).astype(np.float32)
    np.testing.assert_array_equal(computed(x, g, 1, arch=ARCH, cores=1), exact(x, g, 1))


def test_large_gradient_is_planned_in_pieces_unless_the_setting_forbids_it() -> None:
    ast, target = kernel_of((32, 64, 56, 64, 1)), replace(target_of("x86_64-v4"), cores=2)
    plan = planned(ast, target)[1]
    assert [phase.when for phase in plan.phases] == ["before", *["each"] * 5, "after"]
    assert plan.launch()[0][0] == 2, "each core has half of the filters"
    assert plan.pieces is not None
    assert plan.pieces[2] % 32 == 0, "pieces do not overlap"
    with override(winograd=False):
        assert not planned(ast, replace(target_of("x86_64-v4"), cores=2))[1].phases


@pytest.mark.parametrize(
    ("sizes", "taps", "stride"),
    [
        ((2, 32, 24, 32, 2), 5, 1),
        ((2, 32, 24, 32, 1), 3, 2),
        ((2, 32, 25, 32, 1), 3, 1),
        ((2, 8, 24, 32, 1), 3, 1),
        ((2, 32, 24, 8, 1), 3, 1),
    ],
    ids=["taps", "stride", "odd", "channels", "filters"],
)
def test_other_gradients_are_summed(sizes, taps, stride) -> None:
    assert gradient_of(prepared(kernel_of(sizes, taps=taps, stride=stride)).ast) is None


def test_a_step_with_the_gradient_is_computed_in_the_last_part() -> None:
    rng = np.random.default_rng(2)
    shapes = (4, 32, 16, 16), (32, 32, 3, 3), (4, 32, 16, 16)
    x, w, g = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    filters = Tensor(w).realize()
    made = gradient(Tensor(x).realize(), filters, Tensor(g).realize(), padding=1)
    step = filters.detach() - made * 0.01
    (item,) = schedule(uops([(step.expr, tuple(range(len(step.leaves))))]), verify=True)
    assert gradient_of(prepared(item.ast).ast) is not None
    np.testing.assert_allclose(step.numpy(), w - 0.01 * exact(x, g, 1), rtol=1e-4, atol=1e-3)
