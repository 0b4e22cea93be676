"""Gradients of convolutions with stride: one dense part for each remainder, and the values of the whole."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.index import loop
from compiler.ir.ops import Ops
from compiler.ir.uop import uop
from compiler.ir.walk import ordered
from compiler.pipeline import planned, planned_by
from compiler.plan.choice import PartsChoice
from compiler.rewrite.residue_classes import split_residues
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops
from frontend.tuning.space import Space
from tests.compiler.kernels import load, number, op, reduce, sink, store

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

Sizes = tuple[int, int, int, int, int, int, int, int]
"""Batch, channels, filters, height and width, kernel, stride, padding, dilation."""


def gradient(x: Tensor, w: Tensor, g: Tensor, sizes: Sizes) -> Tensor:
    """Return the gradient of the pictures, not computed yet."""
    *_, stride, padding, dilation = sizes
    x.requires_grad = True
    x.conv2d(w, stride=stride, padding=padding, dilation=dilation).backward(g)
    assert x.grad is not None
    return x.grad


def operands(sizes: Sizes) -> list[np.ndarray]:
    """Return pictures, filters, and the gradient of the result."""
    batch, channels, filters, side, kernel, stride, padding, dilation = sizes
    out = (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    shapes = [(batch, channels, side, side), (filters, channels, kernel, kernel), (batch, filters, out, out)]
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def exact(w: np.ndarray, g: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Return the gradient in float64, place by place of the filter."""
    batch, channels, _, side, kernel, stride, padding, dilation = sizes
    wide = np.zeros((batch, channels, side + 2 * padding, side + 2 * padding))
    count = stride * g.shape[2]
    for y in range(kernel):
        for x in range(kernel):
            part = np.einsum("nohw,oc->nchw", g.astype(np.float64), w[:, :, y, x])
            rows, columns = y * dilation, x * dilation
            wide[:, :, rows : rows + count : stride, columns : columns + count : stride] += part
    return wide[:, :, padding : padding + side, padding : padding + side]


def kernel_of(sizes: Sizes) -> UOp:
    """Return the AST of the gradient's kernel."""
    result = gradient(*[Tensor(a).realize() for a in operands(sizes)], sizes)
    (item,) = schedule(uops([(result.expr, tuple(range(len(result.leaves))))]), verify=True)
    return item.ast


def test_gradient_with_stride_is_planned_as_four_dense_parts() -> None:
    ast = kernel_of((4, 32, 32, 28, 3, 2, 1, 1))
    same, plan = planned(ast, target_of("x86_64-v3"))
    assert same is not None
    assert len(plan.phases) == 4
    for phase in plan.phases:
        assert not any(n.op in (Ops.IMOD, Ops.IDIV) for n in ordered(phase.ast))


def test_search_starts_at_the_parts_that_a_compilation_has() -> None:
    ast, target = kernel_of((4, 32, 32, 28, 3, 2, 1, 1)), target_of("x86_64-v3")
    made = Space(ast, target).estimated()
    assert made.choice == PartsChoice()
    assert made.plan == planned(ast, target)[1] == planned_by(ast, target, made.choice)[1]


def test_kernel_without_remainders_is_not_split() -> None:
    assert split_residues(kernel_of((2, 8, 8, 12, 3, 1, 1, 1))) is None


def test_dilation_that_shares_a_factor_with_the_stride_is_not_split() -> None:
    assert split_residues(kernel_of((2, 8, 8, 12, 3, 4, 2, 2))) is None


@pytest.mark.parametrize(
    "sizes",
    [
        (4, 32, 32, 28, 3, 2, 1, 1), (3, 16, 24, 27, 3, 3, 0, 1), (2, 16, 16, 23, 5, 2, 2, 1),
        (2, 16, 40, 16, 1, 2, 0, 1), (2, 16, 16, 31, 3, 2, 3, 3), (1, 3, 32, 33, 7, 2, 3, 1),
    ],
    ids=["3x3", "stride-3", "5x5", "1x1-with-empty-parts", "dilated", "one-picture"],
)  # fmt: skip
def test_gradient_with_stride_against_float64(sizes) -> None:
    pictures, filters, upper = operands(sizes)
    got = gradient(Tensor(pictures).realize(), Tensor(filters).realize(), Tensor(upper).realize(), sizes)
    np.testing.assert_allclose(got.numpy(), exact(filters, upper, sizes), atol=2e-4, rtol=1e-5)


def test_load_that_only_other_remainders_need_is_zero() -> None:
    i, j, k = loop(0, 16), loop(1, 32), loop(2, 24)
    odd = symbolic.lt((i + 1) % 2, 1)
    total = reduce(op("MUL", load(1, i // 2 * 24 + k, mask=odd), load(2, k * 32 + j)), "ADD", k)
    ast = sink(store(0, i * 32 + j, op("ADD", total, load(3, (i * 5 + j) % 37, mask=odd))))
    split = split_residues(ast)
    assert split is not None
    even, whole = split[0]
    assert [n.arg for n in ordered(even) if n.op is Ops.BUFFER] == [0]
    assert {n.arg for n in ordered(whole) if n.op is Ops.BUFFER} == {0, 1, 2, 3}
    assert not any(len(n.src) > 2 for n in ordered(whole) if n.op is Ops.LOAD)


def selected(otherwise: UOp) -> UOp:
    """Return a product whose factor is loaded for odd rows, and is something else for even ones."""
    i, j, k = loop(0, 16), loop(1, 32), loop(2, 24)
    odd = symbolic.lt((i + 1) % 2, 1)
    factor = op("WHERE", uop(Ops.IVALUE, dtypes.bool, (odd,)), load(1, i // 2 * 24 + k, mask=odd), otherwise)
    return sink(store(0, i * 32 + j, reduce(op("MUL", factor, load(2, k * 32 + j)), "ADD", k)))


def test_mask_that_selects_between_two_factors_is_not_split() -> None:
    assert split_residues(selected(load(3, loop(2, 24)))) is None
    assert split_residues(selected(number(1.0))) is None
    assert split_residues(selected(number(0.0))) is not None


def test_gradient_of_a_product_with_a_stacked_tensor() -> None:
    """Its kernel loads one of two parts of the stack, by the remainder of an output range."""
    x = np.random.default_rng(0).integers(-3, 4, (8, 4)).astype(np.float32)
    g = (np.arange(64).reshape(4, 2, 8) % 5).astype(np.float32)
    t = Tensor(x, requires_grad=True)
    both = t.stack(t, axis=0)
    (both.reshape(4, 2, 8).matmul(both.reshape(8, 8)) * Tensor(g).realize()).sum().backward()
    a = np.stack((x, x))
    left = np.einsum("abn,kn->abk", g, a.reshape(8, 8))
    right = np.einsum("abk,abn->kn", a.reshape(4, 2, 8), g)
    assert t.grad is not None
    assert (t.grad.numpy() == (left.ravel() + right.ravel()).reshape(2, 8, 4).sum(0)).all()
