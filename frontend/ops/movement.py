"""Movement methods: the same values in another shape or order. No arithmetic, no copy.

Their results are views (`frontend.evaluation.views`), except those of `flip`, `repeat`, `repeat_interleave`
and `contiguous`.

An axis that does not exist raises `UsageIndexError`, an axis named twice `UsageError`, arguments of other
classes `UsageTypeError`.

Not here: joining and splitting (`splitting`), padding (`resizing`). Next: `indexing`, `x[key]`.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, cast

from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import (
    Axes, Place, axes_of, axis_of, broadcast, fill_in, is_pair, plain, repeated, shape_of, sizes, tensor,
    whole,
)  # fmt: skip
from frontend.arguments.conversion import converting, read, shown
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import spread
from frontend.evaluation.trace import apply, method
from frontend.evaluation.views import flattening, reshaping, viewing
from hcq.errors import UsageError, UsageIndexError, UsageTypeError


@reshaping
def reshape(self: T, *shape: int | Sequence[int]) -> T:
    """Return the elements, in row-major order, in another shape; one size may be -1.

    The result is a view, or a copy of a view whose elements have no strides in that shape, as in PyTorch: of
    a transposed matrix in one row. Raises `UsageError` when the number of elements differs, for several sizes
    of -1, and for other negative sizes.
    """
    return apply(Ops.RESHAPE, fill_in(sizes(shape, "reshape"), self.expr.shape, "reshape"), self)


@viewing
def permute(self: T, *order: int | Sequence[int]) -> T:
    """Return the axes in another order: axis i of the result is axis order[i].

    A view. Raises `UsageError` unless every axis is named exactly once.
    """
    shape = self.expr.shape
    axes = tuple([axis_of(a, shape, "permute") for a in sizes(order, "permute")])
    if sorted(axes) != list(range(len(shape))):
        raise UsageError(f"permute of {shape} by {axes}: wanted every axis 0..{len(shape) - 1} exactly once")
    return apply(Ops.PERMUTE, axes, self)


@viewing
def transpose(self: T, first: int = 1, second: int = 0) -> T:
    """Return two axes swapped. A view."""
    shape = self.expr.shape
    a, b = axis_of(first, shape or (1,), "transpose"), axis_of(second, shape or (1,), "transpose")
    if not shape:
        return apply(Ops.PERMUTE, (), self)
    order = list(range(len(shape)))
    order[a], order[b] = b, a
    return apply(Ops.PERMUTE, tuple(order), self)


@viewing
def expand(self: T, *shape: int | Sequence[int]) -> T:
    """Return self in another shape, in which axes of size 1 are repeated; -1 keeps a size.

    New axes come first. A view: elements are repeated without memory. Raises `UsageError` for fewer axes, and
    for another size of an axis that has not size 1.
    """
    wanted, old = sizes(shape, "expand"), self.expr.shape
    if len(wanted) < len(old):
        raise UsageError(f"expand of {old} to {wanted}: wanted at least {len(old)} sizes")
    if -1 in wanted[: len(wanted) - len(old)]:
        raise UsageError(f"expand of {old} to {wanted}: a new axis in front has no size to keep")
    aligned = (1,) * (len(wanted) - len(old)) + old
    full = tuple([n if m == -1 else m for n, m in zip(aligned, wanted, strict=True)])
    if broadcast((aligned, full), "expand") != full:
        raise UsageError(f"expand of {old} to {full}: only sizes of 1 can be repeated")
    return spread(self, full)


@method
def flip(self: T, *axes: int | Sequence[int]) -> T:
    """Return the order of elements reversed along axes, along all of them when none is named.

    The result is no view, unlike NumPy's.
    """
    shape = self.expr.shape
    named = sizes(axes, "flip") if axes else None
    found = tuple([a for a in axes_of(named, shape, "flip") if shape[a] > 1])
    return apply(Ops.FLIP, found, self)


@viewing
def shrink(self: T, bounds: tuple[tuple[int, int] | None, ...]) -> T:
    """Return the part begin <= i < end of each axis; None keeps an axis whole.

    A view. Raises `UsageError` unless there is one pair or None for each axis, and 0 <= begin <= end <= size;
    `UsageTypeError` for bounds that are no pairs.
    """
    shape = self.expr.shape
    if any(b is not None and not is_pair(b) for b in bounds):
        raise UsageTypeError(f"shrink of {shape}: wanted (begin, end) or None for each axis, saw {bounds}")
    if len(bounds) != len(shape):
        raise UsageError(f"shrink of {shape}: wanted one (begin, end) for each axis, saw {bounds}")
    full = tuple(
        [
            (0, n) if b is None else (whole(b[0], "shrink"), whole(b[1], "shrink"))
            for b, n in zip(bounds, shape, strict=True)
        ]
    )
    if any(not 0 <= begin <= end <= n for (begin, end), n in zip(full, shape, strict=True)):
        raise UsageError(f"shrink of {shape} to {full}: wanted 0 <= begin <= end <= size for each axis")
    return apply(Ops.SHRINK, full, self)


@viewing
def squeeze(self: T, axis: Axes = None) -> T:
    """Return self without the named axes of size 1, or without all axes of size 1. A view.

    A named axis of another size stays.
    """
    shape = self.expr.shape
    axes = axes_of(axis, shape, "squeeze")
    return apply(Ops.RESHAPE, tuple([n for i, n in enumerate(shape) if n != 1 or i not in axes]), self)


@viewing
def unsqueeze(self: T, axis: int) -> T:
    """Return self with a new axis of size 1, axis number `axis` of the result; -1 is the last. A view."""
    shape = self.expr.shape
    a = axis_of(axis, shape, "unsqueeze", extra=1)
    return apply(Ops.RESHAPE, (*shape[:a], 1, *shape[a:]), self)


@converting
def flatten(self: T, start: int = 0, end: int = -1) -> T:
    """Return the axes start..end as one.

    A view or a copy, as of `reshape`; one axis is self. Both axes are included; negative ones count from the
    end. Shape () becomes (1,). Raises `UsageError` for an end before the start.
    """
    shape = self.expr.shape
    a, b = axis_of(start, shape or (1,), "flatten"), axis_of(end, shape or (1,), "flatten")
    if a > b:
        raise UsageError(f"flatten of {shape}: start {start} is after end {end}")
    if shape and a == b:
        return self
    return reshape(self, *shape[:a], prod(shape[a : b + 1]), *shape[b + 1 :])


@viewing
def unflatten(self: T, axis: int, shape: tuple[int, ...]) -> T:
    """Return one axis as several; one size may be -1.

    A view. Raises `UsageError` unless the sizes multiply to that of the axis, and for no sizes.
    """
    old = self.expr.shape
    a = axis_of(axis, old, "unflatten")
    if not shape:
        raise UsageError("unflatten: wanted at least one size, saw none")
    return apply(
        Ops.RESHAPE,
        (*old[:a], *fill_in(sizes((shape,), "unflatten"), old[a : a + 1], "unflatten"), *old[a + 1 :]),
        self,
    )


@method
def repeat(self: T, *repeats: int | Sequence[int]) -> T:
    """Return self tiled: repeats[i] times along axis i, axes aligned at the end.

    Counts beyond the axes of self make new axes in front. The result is always a copy, as of NumPy's `tile`.
    Raises `UsageError` for fewer counts than axes, and for negative ones.

        Tensor([[1, 2]]).repeat(2, 2)      # [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    counts = shape_of(repeats, "repeat")
    old = self.expr.shape
    if len(counts) < len(old):
        raise UsageError(f"repeat of {old}: wanted at least {len(old)} counts, saw {counts}")
    shape = (1,) * (len(counts) - len(old)) + old
    x = apply(Ops.RESHAPE, tuple([n for m in shape for n in (1, m)]), self)
    x = apply(Ops.EXPAND, tuple([n for c, m in zip(counts, shape, strict=True) for n in (c, m)]), x)
    return apply(Ops.RESHAPE, tuple([c * m for c, m in zip(counts, shape, strict=True)]), x)


@accepts_aliases
def repeat_interleave(
    self: T, repeats: Place | None = None, axis: int | None = None, *, output_size: int | None = None
) -> T:
    """Return each element `repeats` times in a row along an axis; without an axis, self is flattened first.

    Without `repeats`, self has them: the result has the number of each element so many times.
    `repeats` is one number, or a vector with a number for each element of the axis. A tensor of repeats is
    computed. `output_size` has no effect but a check: it must be the new size of the axis. Raises
    `UsageError` for another size, another number of repeats, and negative ones.
    """
    if repeats is None:
        if len(self.expr.shape) != 1 or axis is not None:
            text = "wanted repeats, or a vector of them and no axis"
            raise UsageError(f"repeat_interleave of {self.expr.shape}: {text}, saw {shown(axis)}")
        make: Any = self.__class__
        places = make(list(range(self.expr.shape[0])), dtype="int64", device=self.expr.device)
        return cast("T", repeat_interleave(places, self, output_size=output_size))
    counts = plain(repeats)
    counts = list(counts) if isinstance(counts, (tuple, list)) else [counts]
    if any(whole(n, "repeat_interleave") < 0 for n in counts):
        raise UsageError(f"repeat_interleave: wanted repeats that are not negative, saw {min(counts)}")
    x = self if axis is not None else reshape(self, (prod(self.expr.shape),))
    a = axis_of(0 if axis is None else axis, x.expr.shape, "repeat_interleave")
    n = x.expr.shape[a]
    if len(counts) not in {1, n}:
        raise UsageError(f"repeat_interleave: wanted one number of repeats or {n}, saw {len(counts)}")
    total = sum(counts) if len(counts) == n else n * counts[0]
    if output_size is not None and whole(output_size, "repeat_interleave, output_size") != total:
        raise UsageError(f"repeat_interleave: the axis gets {total} elements, saw output_size={output_size}")
    if len({*counts}) == 1:
        return _repeated(x, counts[0], a)
    make = self.__class__
    places = [i for i, count in enumerate(counts) for _ in range(count)]
    index: T = make(places, dtype="int64", device=x.expr.device)
    return _chosen(x, index, a)


@method
def _chosen(self: T, index: T, axis: int) -> T:
    return apply(Ops.GATHER, axis, self, index)


@method
def _repeated(self: T, count: int, axis: int) -> T:
    x, a = self, axis
    shape = x.expr.shape
    x = apply(Ops.RESHAPE, (*shape[: a + 1], 1, *shape[a + 1 :]), x)
    x = apply(Ops.EXPAND, (*shape[: a + 1], count, *shape[a + 1 :]), x)
    return apply(Ops.RESHAPE, (*shape[:a], shape[a] * count, *shape[a + 1 :]), x)


@method
def contiguous(self: T) -> T:
    """Return the same values in memory of their own, never as a view.

    The result is a new tensor also if self is realized: writes to one do not change the other.
    """
    return apply(Ops.CONTIGUOUS, None, self)


@viewing
def windows(
    self: T,
    axes: Axes,
    size: int | tuple[int, ...],
    stride: int | tuple[int, ...] = 1,
    dilation: int | tuple[int, ...] = 1,
) -> T:
    """Return sliding windows of the named axes, each along a new axis at the end, in the order of `axes`.

    out[..., o, ..., w] = self[..., o * stride + w * dilation, ...]. Numbers hold for each named axis. A view.
    Raises `UsageError` for a window that does not fit the axis, and for sizes, strides and dilations below 1.

        Tensor.arange(5).windows(0, 3)      # [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """
    shape = self.expr.shape
    named = axes_of(axes, shape, "windows")
    rank = len(named)
    args = [repeated(v, rank, "windows") for v in (size, stride, dilation)]
    return apply(Ops.WINDOW, (named, *args), self)


@viewing
def unfold(self: T, axis: int, size: int, step: int = 1) -> T:
    """Return windows of an axis, `step` apart, each along a new last axis.

    A view. Raises `UsageError` for a window that does not fit the axis, and for a size or step below 1.

        Tensor.arange(5).unfold(0, 3, 2)      # [[0, 1, 2], [2, 3, 4]]
    """
    shape = self.expr.shape
    if not shape and (axis, size) in {(0, 1), (-1, 1)}:
        return apply(Ops.RESHAPE, (1,), self)
    a = axis_of(axis, shape, "unfold")
    if size < 1 or step < 1 or size > shape[a]:
        raise UsageError(
            f"unfold: windows of {size}, {step} apart, of the axis {a} of {shape}: wanted 1..{shape[a]}"
        )
    return apply(Ops.WINDOW, ((a,), (size,), (step,), (1,)), self)


@viewing
def movedim(self: T, source: Axes, destination: Axes) -> T:
    """Return self with the axes `source` as the axes `destination`; the others keep their order. A view.

    Raises `UsageError` unless both name equally many axes, each once.
    """
    shape = self.expr.shape
    there, wanted = (
        [axis_of(a, shape or (1,), "movedim") for a in (axes if isinstance(axes, (tuple, list)) else (axes,))]
        for axes in (source, destination)
    )
    if len(there) != len(wanted) or len(set(there)) != len(there) or len(set(wanted)) != len(wanted):
        raise UsageError(f"movedim: wanted as many places as axes, each once, saw {source} and {destination}")
    rest = iter([i for i in range(len(shape)) if i not in there])
    moved = dict(zip(wanted, there, strict=True))
    order = tuple([moved[i] if i in moved else next(rest) for i in range(len(shape))])
    return apply(Ops.PERMUTE, order, self)


@viewing
def narrow(self: T, axis: int, start: Place, length: int) -> T:
    """Return `length` elements of an axis from `start` on; a negative start counts from the end.

    `start` may be an integer tensor of shape (), which is computed. A view. Raises `UsageIndexError` for
    elements outside the axis and a negative length.
    """
    shape = self.expr.shape
    a = axis_of(axis, shape, "narrow")
    start = whole(start, "narrow")
    begin = start + shape[a] if start < 0 else start
    if not 0 <= begin <= begin + length <= shape[a]:
        raise UsageIndexError(
            f"narrow: {length} elements from {start} of axis {a} of {shape}: there are fewer"
        )
    return apply(
        Ops.SHRINK, tuple([(begin, begin + length) if i == a else (0, n) for i, n in enumerate(shape)]), self
    )


@viewing
def select(self: T, axis: int, index: int) -> T:
    """Return the elements at one index of an axis, without the axis; negative indices count from the end.

    A view. Raises `UsageIndexError` for an index out of range.
    """
    shape = self.expr.shape
    a = axis_of(axis, shape, "select")
    if not -shape[a] <= index < shape[a]:
        raise UsageIndexError(f"select: index {index} of axis {a} is outside its {shape[a]} elements")
    i = index % shape[a]
    part = apply(Ops.SHRINK, tuple([(i, i + 1) if k == a else (0, n) for k, n in enumerate(shape)]), self)
    return apply(Ops.RESHAPE, (*shape[:a], *shape[a + 1 :]), part)


def t(self: T) -> T:
    """Return the transpose of a matrix; a vector and a scalar unchanged. A view.

    Raises `UsageError` for more than two axes.
    """
    if len(self.expr.shape) > 2:
        raise UsageError(f"t() is of at most two axes, saw the shape {self.expr.shape}; see permute")
    return transpose(self, 0, 1) if len(self.expr.shape) == 2 else self


@flattening
def ravel(self: T) -> T:
    """Return the elements as a vector, in row-major order. A view or a copy, as of `reshape`."""
    return apply(Ops.RESHAPE, (prod(self.expr.shape),), self)


def view_as(self: T, other: TensorBase) -> T:
    """Return self in the shape of another tensor. A view; raises as `reshape`."""
    tensor(other, "view_as", self)
    return reshape(self, other.expr.shape)


def expand_as(self: T, other: TensorBase) -> T:
    """Return self broadcast to the shape of another tensor. A view; raises as `expand`."""
    tensor(other, "expand_as", self)
    return expand(self, other.expr.shape)


@method
def fliplr(self: T) -> T:
    """Return axis 1 reversed. Raises `UsageIndexError` for fewer than two axes."""
    return flip(self, 1)


@method
def flipud(self: T) -> T:
    """Return axis 0 reversed. Raises `UsageIndexError` for shape ()."""
    axis_of(0, self.expr.shape, "flipud")
    return flip(self, 0)


def along(x: T, axis: int, what: str) -> tuple[T, int]:
    """Return a tensor and its axis, counted from the front; shape () counts as (1,), as in PyTorch."""
    shape = x.expr.shape or (1,)
    return (x if x.expr.shape else apply(Ops.RESHAPE, (1,), x)), axis_of(axis, shape, what)


def meshgrid(self: T | Sequence[T], *others: T, indexing: Literal["ij", "xy"] = "ij") -> tuple[T, ...]:
    """Return the coordinates of the grid over vectors, given singly or as one sequence.

    The result has one tensor in the shape of the grid for each vector; "xy" swaps the first two axes of the
    grid. Raises `UsageError` for more than one axis and for another `indexing`, `UsageTypeError` for no
    tensors.
    """
    every = several(self, others, "meshgrid")
    if any(len(t.expr.shape) > 1 for t in every):
        raise UsageError(f"meshgrid needs vectors or numbers, saw {[t.expr.shape for t in every]}")
    indexing = read(meshgrid, "indexing", indexing, every[0])
    shape = tuple([prod(t.expr.shape) for t in every])
    rank = len(every)
    flat = [
        reshape(t, (1,) * i + (n,) + (1,) * (rank - i - 1))
        for i, (t, n) in enumerate(zip(every, shape, strict=True))
    ]
    grids = [expand(t, shape) for t in flat]
    return tuple(grids if indexing == "ij" or rank < 2 else [transpose(g, 0, 1) for g in grids])


def several(first: T | Sequence[T], others: tuple[T, ...], what: str) -> Sequence[T]:
    """Return tensors, given singly or as one sequence; arrays beside a tensor are converted to tensors.

    Raises `UsageTypeError` for none and for other values.
    """
    every = list(first) if isinstance(first, (list, tuple)) and not others else [first, *others]
    like: Any = next((t for t in every if hasattr(t, "expr")), None)
    if like is None or not all(hasattr(t, "expr") or hasattr(t, "__array__") for t in every):
        kinds = ", ".join([type(t).__name__ for t in every]) or "none"
        raise UsageTypeError(f"{what}: wanted tensors, or one list of tensors, saw {kinds}")
    device = like.expr.device
    made = [t if hasattr(t, "expr") else like.__class__(t, device=device) for t in every]
    return cast("Sequence[T]", made)
