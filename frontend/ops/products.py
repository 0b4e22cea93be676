"""Products under PyTorch's names that are made of `matmul`, sums and elementwise products.

Shapes and numbers of axes that do not fit raise `UsageError`, arguments of other classes `UsageTypeError`, an
axis that does not exist `UsageIndexError`; dtypes are those of `matmul`.

Not here: products of any rank (`linalg`). Next: `decompositions`, inverses and factorisations.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import Shape, axis_of, broadcast, tensor, whole_or_none
from frontend.arguments.conversion import shown
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import (
    constant, convert, coordinate, narrowed, number_like, ruled, widened, widened_float,
)  # fmt: skip
from frontend.evaluation.expr import float_dtype
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.trace import apply, composite, method
from frontend.ops import reductions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, agree, clip, ge, gt, maximum, mul, result_dtype, sub, where
from frontend.ops.functions import reciprocal, sqrt
from frontend.ops.linalg import contract, diagonal, matmul, summed, wide_matmul
from frontend.ops.movement import expand, permute, reshape, transpose
from frontend.ops.splitting import roll
from hcq.errors import UsageError, UsageTypeError


def _ranks(what: str, *wanted: tuple[TensorBase, int]) -> None:
    """Raise `UsageError` unless each tensor has as many axes as wanted."""
    if any(len(x.expr.shape) != rank for x, rank in wanted):
        shapes = " and ".join([str(x.expr.shape) for x, _ in wanted])
        ranks = " and ".join([str(rank) for _, rank in wanted])
        raise UsageError(f"{what}: wanted tensors of {ranks} axes, saw the shapes {shapes}")


@composite
def mm(self: T, other: T) -> T:
    """Return the product of two matrices; `matmul` multiplies more axes."""
    _ranks("mm", (self, 2), (other, 2))
    return matmul(self, other)


@composite
def bmm(self: T, other: T) -> T:
    """Return the products of two stacks, (n, a, b) and (n, b, c), of equally many matrices."""
    _stacks("bmm", self, other)
    return matmul(self, other)


def _stacks(what: str, first: TensorBase, second: TensorBase) -> None:
    _ranks(what, (first, 3), (second, 3))
    if first.expr.shape[0] != second.expr.shape[0]:
        raise UsageError(
            f"{what}: wanted as many matrices on both sides, saw {first.expr.shape} and {second.expr.shape}"
        )


@composite
def mv(self: T, other: T) -> T:
    """Return the product of a matrix and a vector."""
    _ranks("mv", (self, 2), (other, 1))
    return matmul(self, other)


@composite
def vdot(self: T, other: T) -> T:
    """Return the sum of the products of two vectors."""
    _ranks("vdot", (self, 1), (other, 1))
    return matmul(self, other)


@composite
def outer(self: T, other: T) -> T:
    """Return the products of each element of one vector with each of another."""
    _ranks("outer", (self, 1), (other, 1))
    return mul(reshape(self, (-1, 1)) if self.expr.shape[0] else reshape(self, (0, 1)), other)


@composite
def inner(self: T, other: T) -> T:
    """Return the sums of products over the last axis of both: the other axes of self, then those of other.

    With a tensor of shape (), return the elementwise product.
    """
    a, b = self.expr.shape, other.expr.shape
    if not a or not b:
        return mul(self, other)
    if a[-1] != b[-1]:
        raise UsageError(f"inner: the last axes of {a} and {b} must be equal")
    return tensordot(self, other, ((len(a) - 1,), (len(b) - 1,)))


def tensordot(self: T, other: T, axes: int | Sequence[Any] = 2) -> T:
    """Return the sums of products over some axes: the other axes of self, then those of other.

    `axes` is a number n, for the last n axes of self and the first n of other; or a pair, the axes of self
    and those of other. Raises `UsageError` for axes of different sizes, `UsageIndexError` for an axis that
    does not exist.
    """
    if isinstance(axes, (list, tuple)):
        axes = tuple([tuple(n) if isinstance(n, (list, tuple)) else n for n in axes])
    elif whole_or_none(axes) is None:
        raise UsageTypeError(f"tensordot: wanted a number of axes or the axes of both, saw {shown(axes)}")
    return _tensordot(self, other, axes)


@composite
def _tensordot(self: T, other: T, axes: Any) -> T:
    a, b = self.expr.shape, other.expr.shape
    if isinstance(axes, int):
        if not 0 <= axes <= min(len(a), len(b)):
            raise UsageError(f"tensordot: wanted 0 to {min(len(a), len(b))} axes of {a} and {b}, saw {axes}")
        pairs = (tuple(range(len(a) - axes, len(a))), tuple(range(axes)))
    else:
        pairs = _pairs(axes, a, b)
    left, right = pairs
    if len(left) != len(right) or any(a[i] != b[j] for i, j in zip(left, right, strict=True)):
        raise UsageError(f"tensordot: the axes {left} of {a} must have the sizes of {right} of {b}")
    rest_a = [i for i in range(len(a)) if i not in left]
    rest_b = [i for i in range(len(b)) if i not in right]
    x = permute(self, *rest_a, *left)
    y = permute(other, *rest_b, *right)
    shape = tuple([a[i] for i in rest_a])
    inside = tuple([a[i] for i in left])
    x = reshape(x, (*shape, *(1,) * len(rest_b), *inside))
    y = reshape(y, ((1,) * len(rest_a) + y.expr.shape))
    rank = len(rest_a) + len(rest_b)
    return contract(x, y, tuple(range(rank, rank + len(left))))


def _pairs(axes: tuple[Any, Any], a: Shape, b: Shape) -> tuple[Shape, Shape]:
    if len(axes) != 2:
        raise UsageError(f"tensordot: wanted the axes of both, such as ((0, 1), (1, 0)), saw {axes}")
    first, second = ((n,) if isinstance(n, int) else tuple(n) for n in axes)
    return (
        tuple([axis_of(i, a, "tensordot") for i in first]),
        tuple([axis_of(i, b, "tensordot") for i in second]),
    )


def _scaled(start: T, product: T, beta: float, alpha: float, *factors: T, skip: bool = True) -> T:
    """Return beta * start + alpha * product, rounded once to the promoted dtype of start and the factors.

    With beta 0, start is not read, so its NaN is not passed on, and its gradient is 0; so the product with
    alpha 0, if it may be skipped. For integers and bools, fractions of alpha and beta are cut off.
    """
    dtype = result_dtype(start, *factors)
    if skip and not alpha:
        product = ruled("zero", number_like(product, 0), product)
    if dtype.is_float:
        return convert(_sum_of_scaled(widened_float(start), product, beta, alpha), dtype)
    return summed(_sum_of_scaled(start, product, int(beta), int(alpha)), dtype)


def _sum_of_scaled(start: T, product: T, beta: float, alpha: float) -> T:
    product = product if alpha == 1 else mul(product, alpha)
    if beta == 0:
        wide = expand(product, broadcast((start.expr.shape, product.expr.shape), "addmm"))
        return ruled("beside", wide, wide, start)
    return add(start if beta == 1 else mul(start, beta), product)


@composite
def addmm(self: T, first: T, second: T, *, beta: float = 1, alpha: float = 1) -> T:
    """Return beta * self + alpha * (first @ second), of matrices."""
    _ranks("addmm", (first, 2), (second, 2))
    return _scaled(self, wide_matmul(first, second), beta, alpha, first, second)


@composite
def addmv(self: T, first: T, second: T, *, beta: float = 1, alpha: float = 1) -> T:
    """Return beta * self + alpha * (first @ second), of a matrix and a vector."""
    _ranks("addmv", (first, 2), (second, 1))
    return _scaled(self, wide_matmul(first, second), beta, alpha, first, second)


@composite
def addr(self: T, first: T, second: T, *, beta: float = 1, alpha: float = 1) -> T:
    """Return beta * self + alpha * outer(first, second); of bools (beta and self) or (alpha and outer)."""
    if all(x.expr.dtype is dtypes.bool for x in (self, first, second)):
        beta, alpha = bool(beta), bool(alpha)
        product = mul(outer(first, second), alpha)
        return add(mul(self, beta), product)
    product = outer(widened_float(first), widened_float(second))
    return _scaled(self, product, beta, alpha, first, second, skip=False)


@composite
def baddbmm(self: T, first: T, second: T, *, beta: float = 1, alpha: float = 1) -> T:
    """Return beta * self + alpha * (first @ second), of stacks of matrices."""
    _stacks("baddbmm", first, second)
    return _scaled(self, wide_matmul(first, second), beta, alpha, first, second, skip=False)


@composite
def addbmm(self: T, first: T, second: T, *, beta: float = 1, alpha: float = 1) -> T:
    """Return beta * self + alpha * the sum of first @ second over a stack of matrices."""
    _stacks("addbmm", first, second)
    return _scaled(self, reductions.sum(wide_matmul(first, second), 0), beta, alpha, first, second)


@composite
def kron(self: T, other: T) -> T:
    """Return the Kronecker product: self with each element replaced by other scaled by that element."""
    rank = max(len(self.expr.shape), len(other.expr.shape))
    a, b = ((1,) * (rank - len(x.expr.shape)) + x.expr.shape for x in (self, other))
    x = reshape(self, tuple([n for m in a for n in (m, 1)]))
    y = reshape(other, tuple([n for m in b for n in (1, m)]))
    return reshape(mul(x, y), tuple([n * m for n, m in zip(a, b, strict=True)]))


@composite
def cross(self: T, other: T, axis: int | None = None) -> T:
    """Return the cross product along an axis of size 3 (None: the first such axis); shapes broadcast."""
    a, b = agree("cross", self, other)
    shape = a.expr.shape
    found = next((i for i, n in enumerate(shape) if n == 3), 0) if axis is None else axis
    i = axis_of(found, shape, "cross")
    if shape[i] != 3:
        raise UsageError(f"cross: wanted an axis of size 3, saw axis {i} of {shape}")
    left = mul(roll(a, -1, i), roll(b, -2, i))
    return sub(left, mul(roll(a, -2, i), roll(b, -1, i)))


@method
def trace(self: T) -> T:
    """Return the sum of the diagonal of a matrix."""
    _ranks("trace", (self, 2))
    return reductions.sum(diagonal(self))


@composite
def dist(self: T, other: T, p: float = 2.0) -> T:
    """Return the p-norm of the difference of two tensors, which broadcast, over all elements."""
    return reductions.power_norm(sub(self, other), p)


@accepts_aliases
def cov(self: T, *, correction: int = 1, fweights: T | None = None, aweights: T | None = None) -> T:
    """Return the covariances of the rows of a matrix, which are variables; columns are observations.

    Sums of products are divided by the number of observations - `correction`, or by 0 if that is negative.
    `fweights`, integers, is how often each observation counts; `aweights`, floats, is its weight. The result
    is a matrix, or of shape () for one variable; a vector is one variable.

    Raises `UsageError` for more than two axes and for weights of another dtype or size. Outside captured
    functions the weights are computed, and negative ones, or all 0, raise `UsageError`.
    """
    given = []
    for what, weights, kinds in (("fweights", fweights, "uint"), ("aweights", aweights, "float")):
        w = weights if weights is None else self.operand(weights)
        given.append(w)
        if w is None:
            continue
        tensor(w, f"cov, {what}", self)
        if w.expr.dtype.kind not in kinds:
            wanted = "floats" if kinds == "float" else "whole numbers"
            raise UsageError(f"cov, {what}: wanted {wanted}, saw {w.expr.dtype.name}")
        if CAPTURE.now is None and not mul(reductions.all(ge(w, 0)), reductions.any(w)).item():
            raise UsageError(f"cov, {what}: wanted weights from 0 on, not all 0; saw others")
    found: T = _cov(self, correction, *given)
    return found


@composite
def _cov(self: T, correction: int, fweights: T | None, aweights: T | None) -> T:
    x = reshape(self, (1, -1)) if len(self.expr.shape) < 2 else self
    _ranks("cov", (x, 2))
    weights = [w for w in (fweights, aweights) if w is not None]
    x = convert(x, float_dtype(result_dtype(x, *weights)))
    if any(w.expr.shape != x.expr.shape[1:] for w in weights):
        raise UsageError(f"cov: wanted a weight for each of {x.expr.shape[1]} observations")
    if not weights:
        apart = sub(x, reductions.mean(x, 1, keepdim=True))
        found = div(matmul(apart, transpose(apart, 0, 1)), float(max(0, x.expr.shape[1] - correction)))
    else:
        each = convert(weights[0] if len(weights) == 1 else mul(*weights), x.expr.dtype)
        total = reductions.sum(each)
        apart = sub(x, div(reductions.sum(mul(x, each), 1, keepdim=True), total))
        lost = mul(each, aweights) if aweights is not None else each
        one = constant(x, 1.0, x.expr.dtype, ())
        lost = one if aweights is None else div(reductions.sum(lost), total)
        free = maximum(sub(total, mul(lost, correction)), 0.0)
        found = div(matmul(mul(apart, each), transpose(apart, 0, 1)), free)
    return reshape(found, ()) if found.expr.shape == (1, 1) else found


@method
def corrcoef(self: T) -> T:
    """Return the correlations of the rows of a matrix, within -1..1; a vector gives 1.

    A row of equal numbers gives NaN.
    """
    found = _cov(self, 1, None, None)
    if not found.expr.shape:
        return div(found, found)
    size = sqrt(diagonal(found))
    return clip(div(div(found, reshape(size, (-1, 1))), size), -1.0, 1.0)


@method
def renorm(self: T, p: float, axis: int, maxnorm: float) -> T:
    """Return self scaled at each index of an axis, so that the p-norm there is at most `maxnorm`."""
    a = axis_of(axis, self.expr.shape, "renorm")
    others = tuple([i for i in range(len(self.expr.shape)) if i != a])
    x = widened(self)
    size = reductions.power_norm(x, p, others, keepdim=True)
    scaled = mul(x, mul(reciprocal(add(size, 1e-7)), maxnorm))
    return narrowed(where(gt(size, maxnorm), scaled, x), self)


@method
def power_of(self: T, n: int) -> T:
    """Return square matrices to the power n >= 0; the power 0 is the identity."""
    shape = self.expr.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise UsageError(f"matrix_power: wanted square matrices, saw the shape {shape}")
    if n == 0:
        return unit(self)
    half = power_of(self, n // 2) if n > 1 else self
    if n == 1:
        return self
    square = matmul(half, half)
    return matmul(square, self) if n % 2 else square


def unit(like: T) -> T:
    """Return identity matrices in the shape and dtype of a tensor of square matrices."""
    shape = like.expr.shape
    rank = len(shape)
    same = apply(Ops.EQ, None, coordinate(like, shape, rank - 2), coordinate(like, shape, rank - 1))
    return convert(same, like.expr.dtype)
