"""Movement methods: the same values in another shape or order. No arithmetic, no copy."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, cast

from compiler.dtype import dtypes, promote
from compiler.ops import Ops
from frontend.lazy import apply, composite, method
from frontend.ops.arguments import (
    Axes,
    Shape,
    axes_of,
    axis_of,
    broadcast,
    fill_in,
    repeated,
    shape_of,
    sizes,
    whole,
)
from frontend.ops.elementwise import where
from frontend.ops.sources import constant, convert, coordinate, spread
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontend.tensor import Tensor


@method
def reshape(self: Tensor, *shape: int | Sequence[int]) -> Tensor:
    """Return the elements, in row-major order, in another shape; one size may be -1."""
    return apply(Ops.RESHAPE, fill_in(sizes(shape, "reshape"), self.expr.shape, "reshape"), self)


@method
def permute(self: Tensor, *order: int | Sequence[int]) -> Tensor:
    """Return the axes in another order: axis i of the result is axis order[i]."""
    shape = self.expr.shape
    axes = tuple([axis_of(a, shape, "permute") for a in sizes(order, "permute")])
    if sorted(axes) != list(range(len(shape))):
        raise UsageError(f"permute of {shape} by {axes}: wanted every axis 0..{len(shape) - 1} exactly once")
    return apply(Ops.PERMUTE, axes, self)


@method
def transpose(self: Tensor, first: int = 1, second: int = 0) -> Tensor:
    """Return two axes swapped."""
    shape = self.expr.shape
    a, b = axis_of(first, shape, "transpose"), axis_of(second, shape, "transpose")
    order = list(range(len(shape)))
    order[a], order[b] = b, a
    return apply(Ops.PERMUTE, tuple(order), self)


@method
def expand(self: Tensor, *shape: int | Sequence[int]) -> Tensor:
    """Return axes of size 1 repeated, new axes in front; -1 keeps a size."""
    wanted, old = sizes(shape, "expand"), self.expr.shape
    if len(wanted) < len(old):
        raise UsageError(f"expand of {old} to {wanted}: wanted at least {len(old)} sizes")
    aligned = (1,) * (len(wanted) - len(old)) + old
    full = tuple([n if m == -1 else m for n, m in zip(aligned, wanted, strict=True)])
    if broadcast((aligned, full), "expand") != full:
        raise UsageError(f"expand of {old} to {full}: only sizes of 1 can be repeated")
    return spread(self, full)


@method
def flip(self: Tensor, *axes: int | Sequence[int]) -> Tensor:
    """Return the axes reversed; without axes, all of them."""
    shape = self.expr.shape
    named = sizes(axes, "flip") if axes else None
    found = tuple([a for a in axes_of(named, shape, "flip") if shape[a] > 1])
    return apply(Ops.FLIP, found, self)


@method
def shrink(self: Tensor, bounds: tuple[tuple[int, int] | None, ...]) -> Tensor:
    """Return the part begin <= i < end of each axis; None keeps an axis whole."""
    shape = self.expr.shape
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


def _padding(padding: Sequence[Any], shape: Shape) -> tuple[tuple[int, int], ...]:
    """Read ((before, after), ...) for all axes, or the field's flat (last before, last after, ...)."""
    rank = len(shape)
    if all(p is None or isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != rank:
            raise UsageError(
                f"pad of {shape}: wanted one (before, after) for each axis, saw {tuple(padding)}"
            )
        return tuple([(0, 0) if p is None else (whole(p[0], "pad"), whole(p[1], "pad")) for p in padding])
    if len(padding) % 2 or len(padding) > 2 * rank:
        raise UsageError(
            f"pad of {shape}: wanted pairs for at most {rank} axes, last axis first, saw {tuple(padding)}"
        )
    pairs = [(whole(padding[i], "pad"), whole(padding[i + 1], "pad")) for i in range(0, len(padding), 2)]
    return (*[(0, 0)] * (rank - len(pairs)), *reversed(pairs))


@method
def pad(self: Tensor, padding: Sequence[Any], value: float = 0.0) -> Tensor:
    """Return self with `value` around.

    `padding` is ((before, after) or None, ...) for every axis, or flat pairs for the last axes, last one
    first. Negative padding cuts.
    """
    shape = self.expr.shape
    pairs = _padding(padding, shape)
    cut = tuple([(max(0, -lo), n - max(0, -hi)) for (lo, hi), n in zip(pairs, shape, strict=True)])
    if any(begin > end for begin, end in cut):
        raise UsageError(f"pad of {shape} by {pairs}: cuts more than there is")
    x = apply(Ops.SHRINK, cut, self)
    grow = tuple([(max(0, lo), max(0, hi)) for lo, hi in pairs])
    padded = apply(Ops.PAD, grow, x)
    if value == 0:
        return padded
    inside = apply(Ops.PAD, grow, spread(constant(x, True, dtypes.bool, ()), x.expr.shape))
    return where(inside, padded, value)


@method
def squeeze(self: Tensor, axis: int | None = None) -> Tensor:
    """Return self without an axis of size 1, or without all of them; an axis of another size stays."""
    shape = self.expr.shape
    if axis is None:
        return apply(Ops.RESHAPE, tuple([n for n in shape if n != 1]), self)
    a = axis_of(axis, shape, "squeeze")
    return self if shape[a] != 1 else apply(Ops.RESHAPE, shape[:a] + shape[a + 1 :], self)


@method
def unsqueeze(self: Tensor, axis: int) -> Tensor:
    """Return self with a new axis of size 1."""
    shape = self.expr.shape
    a = axis_of(axis, shape, "unsqueeze", extra=1)
    return apply(Ops.RESHAPE, (*shape[:a], 1, *shape[a:]), self)


@method
def flatten(self: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Return the axes start..end as one."""
    shape = self.expr.shape
    if not shape:
        return apply(Ops.RESHAPE, (1,), self)
    a, b = axis_of(start, shape, "flatten"), axis_of(end, shape, "flatten")
    if a > b:
        raise UsageError(f"flatten of {shape}: start {start} is after end {end}")
    return apply(Ops.RESHAPE, (*shape[:a], prod(shape[a : b + 1]), *shape[b + 1 :]), self)


@method
def unflatten(self: Tensor, axis: int, shape: tuple[int, ...]) -> Tensor:
    """Return one axis as several; one size may be -1."""
    old = self.expr.shape
    a = axis_of(axis, old, "unflatten")
    return apply(
        Ops.RESHAPE,
        (*old[:a], *fill_in(sizes((shape,), "unflatten"), old[a : a + 1], "unflatten"), *old[a + 1 :]),
        self,
    )


@method
def repeat(self: Tensor, *repeats: int | Sequence[int]) -> Tensor:
    """Return self tiled: repeats[i] times along axis i, axes aligned at the end."""
    counts = shape_of(repeats, "repeat")
    old = self.expr.shape
    if len(counts) < len(old):
        raise UsageError(f"repeat of {old}: wanted at least {len(old)} counts, saw {counts}")
    shape = (1,) * (len(counts) - len(old)) + old
    x = apply(Ops.RESHAPE, tuple([n for m in shape for n in (1, m)]), self)
    x = apply(Ops.EXPAND, tuple([n for c, m in zip(counts, shape, strict=True) for n in (c, m)]), x)
    return apply(Ops.RESHAPE, tuple([c * m for c, m in zip(counts, shape, strict=True)]), x)


@method
def repeat_interleave(self: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Return each element `repeats` times in a row along an axis; without an axis, flattened first."""
    x = apply(Ops.RESHAPE, (prod(self.expr.shape),), self) if axis is None else self
    shape = x.expr.shape
    a = axis_of(0 if axis is None else axis, shape, "repeat_interleave")
    x = apply(Ops.RESHAPE, (*shape[: a + 1], 1, *shape[a + 1 :]), x)
    x = apply(Ops.EXPAND, (*shape[: a + 1], whole(repeats, "repeat_interleave"), *shape[a + 1 :]), x)
    return apply(Ops.RESHAPE, (*shape[:a], shape[a] * repeats, *shape[a + 1 :]), x)


def part(self: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """Return begin <= i < end of one axis."""
    bounds: list[tuple[int, int] | None] = [None] * len(self.expr.shape)
    bounds[axis] = (begin, end)
    return shrink(self, tuple(bounds))


def split(self: Tensor, size: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Return parts of `size` along an axis (the last may be smaller), or parts of the sizes given."""
    a = axis_of(axis, self.expr.shape, "split")
    n = self.expr.shape[a]
    if isinstance(size, (tuple, list)):
        lengths = [whole(s, "split") for s in size]
        if sum(lengths) != n:
            raise UsageError(f"split of {self.expr.shape} along axis {a}: {lengths} do not add up to {n}")
    else:
        step = whole(size, "split")
        if step < 1:
            raise UsageError(f"split: wanted a positive size, saw {step}")
        lengths = [min(step, n - i) for i in range(0, max(n, 1), step)]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return tuple([part(self, a, s, s + k) for s, k in zip(starts, lengths, strict=True)])


def chunk(self: Tensor, count: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Return at most `count` parts of one size along an axis; the last may be smaller."""
    a = axis_of(axis, self.expr.shape, "chunk")
    if whole(count, "chunk") < 1:
        raise UsageError(f"chunk: wanted a positive number of parts, saw {count}")
    return split(self, max(1, -(-self.expr.shape[a] // count)), a)


def cat(self: Tensor | Sequence[Tensor], *others: Tensor, axis: int = 0) -> Tensor:
    """Return tensors, given singly or as one sequence, joined along an axis.

    Other sizes must be equal, dtypes are promoted.
    """
    return _joined(*_every(self, others, "cat"), axis=axis)


def _every(first: Tensor | Sequence[Tensor], others: tuple[Tensor, ...], what: str) -> Sequence[Tensor]:
    every = first if isinstance(first, (list, tuple)) and not others else (first, *others)
    if not every or not all(hasattr(t, "expr") for t in every):
        kinds = ", ".join([type(t).__name__ for t in every]) or "none"
        raise UsageError(f"{what}: wanted tensors, or one list of tensors, saw {kinds}")
    return cast("Sequence[Tensor]", every)


@composite
def _joined(self: Tensor, *others: Tensor, axis: int) -> Tensor:
    every = [self, *others]
    first = self.expr.shape
    a = axis_of(axis, first, "cat")
    for t in others:
        shape = t.expr.shape
        if len(shape) != len(first) or any(
            i != a and n != m for i, (n, m) in enumerate(zip(shape, first, strict=True))
        ):
            raise UsageError(
                f"cat along axis {a}: shapes {[x.expr.shape for x in every]} must be equal in the other axes"
            )
    dtype = self.expr.dtype
    for t in others:
        dtype = promote(dtype, t.expr.dtype)
    every = [convert(t, dtype) for t in every if t.expr.shape[a]] or [convert(self, dtype)]
    total = sum([t.expr.shape[a] for t in every])
    result, begin = None, 0
    for t in every:
        n = t.expr.shape[a]
        pairs = tuple([(begin, total - begin - n) if i == a else (0, 0) for i in range(len(first))])
        begin += n
        padded = apply(Ops.PAD, pairs, t)
        result = padded if result is None else _beside(result, padded, a, begin - n)
    assert result is not None  # there is at least self
    return result


def _beside(left: Tensor, right: Tensor, axis: int, border: int) -> Tensor:
    """Return left before the border of an axis, right from there on."""
    before = coordinate(left, left.expr.shape, axis)
    return apply(
        Ops.WHERE,
        None,
        apply(Ops.LT, None, before, constant(left, border, before.expr.dtype, left.expr.shape)),
        left,
        right,
    )


def stack(self: Tensor | Sequence[Tensor], *others: Tensor, axis: int = 0) -> Tensor:
    """Return tensors of one shape, given singly or as one sequence, joined along a new axis."""
    every = _every(self, others, "stack")
    shape = every[0].expr.shape
    if any(t.expr.shape != shape for t in every):
        raise UsageError(f"stack: shapes must be equal, saw {[t.expr.shape for t in every]}")
    a = axis_of(axis, shape, "stack", extra=1)
    return cat(*[unsqueeze(t, a) for t in every], axis=a)


@method
def roll(self: Tensor, shifts: int | tuple[int, ...], axes: Axes = None) -> Tensor:
    """Return elements moved along axes, those pushed out coming in at the other end.

    Without axes, flattened for it.
    """
    shape = self.expr.shape
    if axes is None:
        return reshape(roll(reshape(self, -1), shifts, 0), shape)
    named = axes if isinstance(axes, (tuple, list)) else (axes,)
    x = self
    for shift, axis in zip(repeated(shifts, len(named), "roll"), named, strict=True):
        a = axis_of(axis, shape, "roll")
        n = shape[a]
        by = shift % n if n else 0
        if by:
            x = cat(part(x, a, n - by, n), part(x, a, 0, n - by), axis=a)
    return x


@method
def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    """Return self with zeros above a diagonal of the last two axes."""
    return _triangle(self, diagonal, lower=True)


@method
def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    """Return self with zeros below a diagonal of the last two axes."""
    return _triangle(self, diagonal, lower=False)


def _triangle(x: Tensor, diagonal: int, *, lower: bool) -> Tensor:

    shape = x.expr.shape
    rank = len(shape)
    if rank < 2:
        raise UsageError(f"{'tril' if lower else 'triu'} wants at least two axes, saw the shape {shape}")
    row, column = coordinate(x, shape, rank - 2), coordinate(x, shape, rank - 1)
    border = apply(Ops.ADD, None, row, constant(x, diagonal + (1 if lower else 0), row.expr.dtype, shape))
    before = apply(Ops.LT, None, column, border)
    zero = constant(x, 0, x.expr.dtype, shape)
    return apply(Ops.WHERE, None, before, *((x, zero) if lower else (zero, x)))


@method
def contiguous(self: Tensor) -> Tensor:
    """Return the same values in a buffer of their own, once realized."""
    return apply(Ops.CONTIGUOUS, None, self)


@method
def windows(
    self: Tensor,
    axes: Axes,
    size: int | tuple[int, ...],
    stride: int | tuple[int, ...] = 1,
    dilation: int | tuple[int, ...] = 1,
) -> Tensor:
    """Return sliding windows.

    One axis more per axis named, out[..., o, ..., w] = self[..., o * stride + w * dilation, ...].
    """
    shape = self.expr.shape
    named = axes_of(axes, shape, "windows")
    rank = len(named)
    args = [repeated(v, rank, "windows") for v in (size, stride, dilation)]
    return apply(Ops.WINDOW, (named, *args), self)


def meshgrid(self: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Return the coordinates of the grid over vectors.

    One tensor of the grid's shape per vector ("ij" order).
    """
    every = (self, *others)
    if any(len(t.expr.shape) != 1 for t in every):
        raise UsageError(f"meshgrid wants vectors, saw shapes {[t.expr.shape for t in every]}")
    shape = tuple([t.expr.shape[0] for t in every])
    rank = len(every)
    return tuple(
        [expand(reshape(t, (1,) * i + (-1,) + (1,) * (rank - i - 1)), shape) for i, t in enumerate(every)]
    )
