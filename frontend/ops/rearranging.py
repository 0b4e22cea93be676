"""Methods that split, tile and rotate, and parts written into a copy of a tensor, under PyTorch's names.

An axis that does not exist raises `UsageIndexError`; shapes that do not fit raise `UsageError`, arguments of
other classes `UsageTypeError`.

Not here: joining, shifting (`splitting`), changes of shape (`movement`). Next: `writing`, at indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import Place, axis_of, broadcast, sizes, whole
from frontend.arguments.conversion import converting
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import constant, convert, coordinate
from frontend.evaluation.expr import leaf_expr
from frontend.evaluation.trace import abstract, apply, composite, method
from frontend.evaluation.views import put_back
from frontend.ops import reductions
from frontend.ops.elementwise import agree, ne, sub, where
from frontend.ops.functions import isnan
from frontend.ops.indexing import getitem
from frontend.ops.linalg import diag, diagonal
from frontend.ops.movement import contiguous, expand, flip, movedim, narrow, reshape, select, transpose
from frontend.ops.movement import repeat as repeated
from frontend.ops.splitting import cat, part
from frontend.ops.writing import written
from hcq.errors import UsageError, UsageIndexError


@method
def tile(self: T, *repeats: int | Sequence[int]) -> T:
    """Return self repeated repeats[i] times along axis i, axes aligned at the end; missing counts are 1.

    The result is a copy. Raises `UsageError` for negative counts.
    """
    counts = sizes(repeats, "tile")
    return repeated(self, (1,) * (len(self.expr.shape) - len(counts)) + counts)


@converting
def tensor_split(self: T, sections: Place, axis: int = 0) -> tuple[T, ...]:
    """Return `sections` parts along an axis, of sizes that differ by 1 at most.

    A list, or a tensor, which is computed, has the indices before which self is cut instead. All parts are
    views. Raises `UsageError` for a number of parts outside 1..2**20.
    """
    shape = self.expr.shape
    a = axis_of(axis, shape, "tensor_split")
    n = shape[a]
    if isinstance(sections, (tuple, list)):
        cuts = [whole(c, "tensor_split") for c in sections]
        places = [0, *[min(max(c + n if c < 0 else c, 0), n) for c in cuts], n]
        return tuple([part(self, a, i, max(i, j)) for i, j in pairwise(places)])
    count = whole(sections, "tensor_split")
    if not 1 <= count <= _MOST:
        raise UsageError(f"tensor_split: wanted 1 to {_MOST} parts, saw {count}")
    least, more = divmod(n, count)
    ends = [least * i + min(i, more) for i in range(count + 1)]
    return tuple([part(self, a, i, j) for i, j in pairwise(ends)])


_MOST: Final = 1 << 20
"""The most parts that a tensor is split into."""


def _split_along(x: T, sections: int | Sequence[int], axis: int, least: int, what: str) -> tuple[T, ...]:
    shape = x.expr.shape
    if len(shape) < least:
        raise UsageError(f"{what}: wanted at least {least} axes, saw the shape {shape}")
    if not isinstance(sections, (tuple, list)) and (
        whole(sections, what) < 1 or shape[axis] % whole(sections, what)
    ):
        raise UsageError(f"{what}: {shape[axis]} elements of axis {axis} are not {sections} equal parts")
    return tensor_split(x, sections, axis)


@converting
def hsplit(self: T, sections: int | Sequence[int]) -> tuple[T, ...]:
    """Return equal parts, or parts cut before indices, of axis 1; of axis 0 of a vector. Views.

    Raises `UsageError` if the parts cannot be equal.
    """
    return _split_along(self, sections, min(1, max(0, len(self.expr.shape) - 1)), 1, "hsplit")


@converting
def vsplit(self: T, sections: int | Sequence[int]) -> tuple[T, ...]:
    """Return equal parts, or parts cut before indices, of axis 0; errors as `hsplit`. Views."""
    return _split_along(self, sections, 0, 2, "vsplit")


@converting
def dsplit(self: T, sections: int | Sequence[int]) -> tuple[T, ...]:
    """Return equal parts, or parts cut before indices, of axis 2; errors as `hsplit`. Views."""
    return _split_along(self, sections, 2, 3, "dsplit")


@method
def rot90(self: T, k: int = 1, axes: tuple[int, ...] = (0, 1)) -> T:
    """Return self rotated k times by 90 degrees in the plane of two axes, from the first to the second.

    Raises `UsageError` for the same axis twice.
    """
    if len(axes) != 2:
        raise UsageError(f"rot90: wanted two axes, saw {axes}")
    a, b = (axis_of(i, self.expr.shape, "rot90") for i in axes)
    if a == b:
        raise UsageError(f"rot90: wanted two axes, saw {axes}")
    turned = self if k % 2 == 0 else transpose(self, a, b)
    flips = {0: (), 1: (a,), 2: (a, b), 3: (b,)}[k % 4]
    return flip(turned, flips) if flips else turned


@method
def diag_embed(self: T, offset: int = 0, axis1: int = -2, axis2: int = -1) -> T:
    """Return matrices over two new axes with the last axis on a diagonal, and 0 elsewhere.

    `offset` chooses the diagonal as in `diag`. Raises `UsageIndexError` for shape (), `UsageError` for the
    same axis twice.
    """
    shape = self.expr.shape
    if not shape:
        raise UsageIndexError("diag_embed: wanted at least one axis, saw the shape ()")
    n = shape[-1] + abs(offset)
    square = (*shape[:-1], n, n)
    a, b = axis_of(axis1, square, "diag_embed"), axis_of(axis2, square, "diag_embed")
    if a == b:
        raise UsageError(f"diag_embed: wanted two axes, saw {axis1} and {axis2}")
    rank = len(square)
    row, column = coordinate(self, square, rank - 2), coordinate(self, square, rank - 1)
    place = apply(Ops.SUB, None, column, constant(row, offset, row.expr.dtype, square))
    low = max(0, -offset)
    lead = [(0, 0)] * (rank - 2)
    spread = apply(Ops.PAD, (*lead, (low, n - shape[-1] - low)), self)
    wide = apply(Ops.EXPAND, square, apply(Ops.RESHAPE, (*shape[:-1], n, 1), spread))
    found = where(apply(Ops.EQ, None, place, row), wide, constant(wide, 0, wide.expr.dtype, square))
    return movedim(found, (rank - 2, rank - 1), (a, b))


@method
def diagflat(self: T, offset: int = 0) -> T:
    """Return a matrix with the elements of self, flattened, on a diagonal; `offset` as in `diag`."""
    return diag(reshape(self, prod(self.expr.shape)), offset)


def _in_part(self: T, src: T, what: str, read: Any, *args: Any) -> T:
    """Return self with `src`, converted to its dtype, in the part that `read(self, *args)` views."""
    e = self.expr
    seen = read(abstract(self, leaf_expr(e.shape, e.dtype, e.device), (0,)), *args)
    if src.expr.shape != seen.expr.shape:
        raise UsageError(f"{what}: wanted a tensor of the shape {seen.expr.shape}, saw {src.expr.shape}")
    found: Any = put_back(self, convert(src, e.dtype), seen.expr)
    made: T = found
    return made


@composite
def select_scatter(self: T, src: T, axis: int, index: int) -> T:
    """Return self with `select(axis, index)` replaced by `src`, of the same shape."""
    return _in_part(self, src, "select_scatter", select, axis, index)


@composite
def diagonal_scatter(self: T, src: T, offset: int = 0, axis1: int = 0, axis2: int = 1) -> T:
    """Return self with `diagonal(offset, axis1, axis2)` replaced by `src`, of the same shape."""
    return _in_part(self, src, "diagonal_scatter", diagonal, offset, axis1, axis2)


@composite
def slice_scatter(  # noqa: PLR0917 - the field's signature
    self: T, src: T, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> T:
    """Return self with `[start:end:step]` of an axis replaced by `src`, of the same shape.

    Raises `UsageError` for a step below 1.
    """
    a = axis_of(axis, self.expr.shape, "slice_scatter")
    if step < 1:
        raise UsageError(f"slice_scatter: wanted a positive step, saw {step}")
    key = (*[slice(None)] * a, slice(start, end, step))
    wanted = getitem(self, key).expr.shape
    if src.expr.shape != wanted:
        raise UsageError(f"slice_scatter: wanted a tensor of the shape {wanted}, saw {src.expr.shape}")
    return written(self, key, src)


@converting
def narrow_copy(self: T, axis: int, start: int, length: int) -> T:
    """Return `narrow(axis, start, length)` in memory of its own."""
    return apply(Ops.CONTIGUOUS, None, narrow(self, axis, start, length))


@composite
def _differences(self: T, axis: int) -> T:
    n = self.expr.shape[axis]
    after, before = part(self, axis, min(1, n), n), part(self, axis, 0, max(0, n - 1))
    return ne(after, before) if self.expr.dtype is dtypes.bool else sub(after, before)


@converting
def diff(self: T, n: int = 1, axis: int = -1, prepend: T | None = None, append: T | None = None) -> T:
    """Return the differences of neighbours along an axis, n times; of bools, whether they differ.

    `prepend` and `append` are joined to the axis first; n = 0 gives a copy. Raises `UsageError` for shape ()
    and a negative n.
    """
    if not self.expr.shape:
        raise UsageError("diff: wanted at least one axis, saw the shape ()")
    a = axis_of(axis, self.expr.shape, "diff")
    if whole(n, "diff") < 0:
        raise UsageError(f"diff: wanted a count that is not negative, saw {n}")
    if n == 0:
        return contiguous(self)
    every = [x for x in (prepend, self, append) if x is not None]
    found = cat(*every, axis=a) if len(every) > 1 else self
    for _ in range(min(n, found.expr.shape[a])):
        found = _differences(found, a)
    return found


@converting
def sum_to_size(self: T, *shape: int | Sequence[int]) -> T:
    """Return self summed over axes, in the shape `shape`, which broadcasts to its own; self for that."""
    wanted, old = sizes(shape, "sum_to_size"), self.expr.shape
    if len(wanted) > len(old) or broadcast((wanted, old), "sum_to_size") != old:
        raise UsageError(f"sum_to_size: {wanted} does not broadcast to {old}")
    if wanted == old and wanted:
        return self
    lead = len(old) - len(wanted)
    axes = tuple([i for i in range(len(old)) if i < lead or (wanted[i - lead] == 1 and old[i] != 1)])
    return reshape(reductions.sum(self, axes), wanted)


@converting
def broadcast_tensors(self: T, *others: T) -> tuple[T, ...]:
    """Return tensors in the shape that they broadcast to together: views, or a tensor that has it itself."""
    every = (self, *others)
    shape = broadcast([x.expr.shape for x in every], "broadcast_tensors")
    return tuple([x if x.expr.shape == shape else expand(x, shape) for x in every])


@converting
def equal(self: TensorBase, other: TensorBase) -> bool:
    """Return whether both have one shape and equal elements; NaN equals nothing. Both are computed."""
    if self.expr.shape != other.expr.shape:
        return False
    return not bool(reductions.any(ne(self, other)).item())


@composite
def fmax(self: T, other: T) -> T:
    """Return the greater of two; if one is NaN, the other."""
    return _number_beside_nan(self, other, Ops.MAX)


@composite
def fmin(self: T, other: T) -> T:
    """Return the lesser of two; if one is NaN, the other."""
    return _number_beside_nan(self, other, Ops.MIN)


def _number_beside_nan(a: T, b: T, op: str) -> T:
    x, y = agree("fmax", a, b)
    ahead = apply(Ops.LT, None, y, x) if op is Ops.MAX else apply(Ops.LT, None, x, y)
    same = apply(Ops.EQ, None, x, y)
    first = apply(Ops.OR, None, apply(Ops.OR, None, ahead, same), isnan(y))
    return where(first, x, y)
