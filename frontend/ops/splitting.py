"""Splitting and joining along an axis: `split`, `chunk`, `cat`, `stack`, `roll` and others.

An axis that does not exist raises `UsageIndexError`, a part outside the tensor `UsageError`, arguments of
other classes `UsageTypeError`.

Not here: slices (`indexing`), changes of shape (`movement`). Next: `rearranging`, other names of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, cast

from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import Axes, axis_of, repeated, whole, whole_or_none
from frontend.arguments.conversion import held
from frontend.device import LOCK, Device
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, coordinate, ruled
from frontend.evaluation.expr import leaf_expr
from frontend.evaluation.history import KEPT_BYTES, has_history
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.realize import realize_many
from frontend.evaluation.refresh import USES
from frontend.evaluation.storage import Leaf
from frontend.evaluation.trace import apply, composite, make, method
from frontend.ops.elementwise import result_dtype
from frontend.ops.movement import reshape, several, shrink, unsqueeze
from hcq.errors import UsageError

COPIED: Final = 4
"""The fewest tensors that `stack` copies, if half of them are in memory."""


def part(self: T, axis: int, begin: int, end: int) -> T:
    """Return the elements begin <= i < end of one axis. A view."""
    bounds: list[tuple[int, int] | None] = [None] * len(self.expr.shape)
    bounds[axis] = (begin, end)
    return shrink(self, tuple(bounds))


@accepts_aliases
def split(self: T, size: int | Sequence[int], axis: int = 0) -> tuple[T, ...]:
    """Return parts of `size` along an axis (the last may be smaller), or parts of the sizes given.

    All parts are views, in order. Raises `UsageError` for a size below 1 (0 is one of an axis without
    elements), for a negative size among several, and for several that do not add up to the size of the axis.
    """
    a = axis_of(axis, self.expr.shape, "split")
    n = self.expr.shape[a]
    if isinstance(size, (tuple, list)):
        lengths = [whole(s, "split") for s in size]
        if sum(lengths) != n:
            raise UsageError(f"split of {self.expr.shape} along axis {a}: {lengths} do not add up to {n}")
    else:
        step = whole(size, "split")
        if step < 0 or (not step and n):
            raise UsageError(f"split: wanted a positive size, saw {step}")
        lengths = [min(step, n - i) for i in range(0, max(n, 1), step or 1)]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return tuple([part(self, a, s, s + k) for s, k in zip(starts, lengths, strict=True)])


@accepts_aliases
def chunk(self: T, count: int, axis: int = 0) -> tuple[T, ...]:
    """Return at most `count` parts of one size along an axis; the last may be smaller.

    All parts are views, in order: 7 elements in 3 chunks are 3, 3 and 1. An axis of no elements gives `count`
    empty parts. Raises `UsageError` for a count below 1.
    """
    a = axis_of(axis, self.expr.shape, "chunk")
    if whole(count, "chunk") < 1:
        raise UsageError(f"chunk: wanted a positive number of parts, saw {count}")
    if not self.expr.shape[a]:
        return tuple([part(self, a, 0, 0) for _ in range(count)])
    return split(self, -(-self.expr.shape[a] // count), a)


@accepts_aliases
def unbind(self: T, axis: int = 0) -> tuple[T, ...]:
    """Return the elements of an axis as separate tensors, without the axis.

    All parts are views, in order.
    """
    shape = self.expr.shape
    a = axis_of(axis, shape, "unbind")
    return tuple([reshape(part(self, a, i, i + 1), (*shape[:a], *shape[a + 1 :])) for i in range(shape[a])])


@accepts_aliases
def cat(self: T | Sequence[T], *others: T | int, axis: int = 0) -> T:
    """Return tensors, given singly or as one sequence, joined along an axis: `Tensor.cat([a, b], 1)`.

    Dtypes are promoted. A vector of no elements, of shape (0,), fits any shape. Raises `UsageError` when the
    sizes of another axis differ, `UsageTypeError` for no tensors.
    """
    tensors, axis = _with_axis(self, others, axis)
    sized: Any = _sized(self, tensors)
    if sized is not None:
        return cast("T", sized.dispatch(cat, (self, *tensors), {"axis": axis}))
    joined: T = _joined(*several(self, tensors, "cat"), axis=axis)
    return joined


def _with_axis(first: Any, others: tuple[Any, ...], axis: int) -> tuple[tuple[Any, ...], int]:
    """Return the tensors beside the first argument, and the axis, which may be the last by position.

    A tensor beside a list of tensors is an axis.
    """
    given = others[-1] if others else None
    if hasattr(given, "expr"):
        given = held(given) if isinstance(first, (list, tuple)) else None
    last = whole_or_none(given)
    return (others, axis) if last is None else (others[:-1], last)


def _sized(first: Any, others: tuple[Any, ...]) -> Any:
    """Return a tensor with symbolic sizes among the arguments; None without one."""
    every = (first, *others) if others or not isinstance(first, (list, tuple)) else first
    return next((t for t in every if hasattr(t, "dispatch")), None)


@composite
def _joined(self: T, *others: T, axis: int) -> T:
    every = [self, *others]
    first = next((t.expr.shape for t in every if t.expr.shape != (0,)), (0,))
    a = axis_of(axis, first, "cat")
    nothing = tuple([0 if i == a else n for i, n in enumerate(first)])
    every = [reshape(t, nothing) if t.expr.shape == (0,) else t for t in every]
    for t in every:
        shape = t.expr.shape
        if len(shape) != len(first) or any(
            i != a and n != m for i, (n, m) in enumerate(zip(shape, first, strict=True))
        ):
            raise UsageError(
                f"cat along axis {a}: shapes {[x.expr.shape for x in every]} must be equal in the other axes"
            )
    dtype = result_dtype(*every)
    empty = [t for t in every if not t.expr.shape[a]]
    every = [convert(t, dtype) for t in every if t.expr.shape[a]] or [convert(every[0], dtype)]
    total = sum([t.expr.shape[a] for t in every])
    result, begin = None, 0
    for t in every:
        n = t.expr.shape[a]
        pairs = tuple([(begin, total - begin - n) if i == a else (0, 0) for i in range(len(first))])
        begin += n
        padded = apply(Ops.PAD, pairs, t)
        result = padded if result is None else _beside(result, padded, a, begin - n)
    assert result is not None  # there is at least self
    return ruled("beside", result, result, *empty) if empty else result


def _beside(left: T, right: T, axis: int, border: int) -> T:
    """Return the elements of `left` before the border of an axis, those of `right` from there on."""
    before = coordinate(left, left.expr.shape, axis)
    return apply(
        Ops.WHERE,
        None,
        apply(Ops.LT, None, before, constant(left, border, before.expr.dtype, left.expr.shape)),
        left,
        right,
    )


@accepts_aliases
def stack(self: T | Sequence[T], *others: T | int, axis: int = 0) -> T:
    """Return tensors of one shape, given singly or as one sequence, joined along a new axis.

    `axis` is the index of the new axis in the result. Dtypes are promoted. Raises `UsageError` when the
    shapes differ, `UsageTypeError` for no tensors.
    """
    tensors, axis = _with_axis(self, others, axis)
    sized: Any = _sized(self, tensors)
    if sized is not None:
        return cast("T", sized.dispatch(stack, (self, *tensors), {"axis": axis}))
    every: Sequence[T] = several(self, tensors, "stack")
    shape = every[0].expr.shape
    if any(t.expr.shape != shape for t in every):
        raise UsageError(f"stack: shapes must be equal, saw {[t.expr.shape for t in every]}")
    a = axis_of(axis, shape, "stack", extra=1)
    if a == 0 and len(every) >= COPIED and (found := _copied(every)) is not None:
        return found
    return cat(*[unsqueeze(t, a) for t in every], axis=a)


def _copied(every: Sequence[T]) -> T | None:
    """Return tensors side by side, copied to new memory at once; None where the copies are not plain ones.

    Which of them are one tensor would be part of an expression. Random samples, as of a replay memory, would
    compile kernels for each batch.
    """
    e, device = every[0].expr.leaf, Device[every[0].expr.device]
    there = [t for t in every if t.expr is e]
    nbytes = prod(e.shape) * e.dtype.itemsize
    if (
        2 * len(there) < len(every)
        or any(t.expr.leaf is not e or (t.leaves and t.leaves[0].__class__ is not Leaf) for t in every)
        or not 0 < nbytes * len(every) <= KEPT_BYTES
        or device.devices
        or CAPTURE.now is not None
        or CAPTURE.notes is not None
        or USES.now is not None
        or any(has_history(t) for t in every)
    ):
        return None
    with LOCK:
        realize_many(every)
        new = device.alloc(nbytes * len(every))
        copies = device.queue.record(label="stack")
        for n, t in enumerate(every):
            copies.copy(new.view(n * nbytes, nbytes), t.leaves[0].buffer, nbytes)
        device.queue.submit(copies)
    return make(every[0], (leaf_expr((len(every), *e.shape), e.dtype, device.name), (Leaf(new),)))


@method
def roll(self: T, shifts: int | tuple[int, ...], axes: Axes = None) -> T:
    """Return elements shifted cyclically along axes.

    An axis named twice is shifted by the sum. Without axes, the flattened tensor is shifted and reshaped.
    Raises `UsageError` unless there is one shift for each axis, or one without axes.

        Tensor([1, 2, 3]).roll(1)      # [3, 1, 2]
    """
    shape = self.expr.shape
    if axes is None:
        if isinstance(shifts, (tuple, list)) and len(shifts) != 1:
            raise UsageError(f"roll: without axes wanted one shift, saw {shifts}")
        return reshape(roll(reshape(self, -1), shifts, 0), shape)
    named = axes if isinstance(axes, (tuple, list)) else (axes,)
    if len(named) != (len(shifts) if isinstance(shifts, (tuple, list)) else 1):
        raise UsageError(f"roll: wanted a shift for each axis, saw {shifts} for the axes {named}")
    x = self
    for shift, axis in zip(repeated(shifts, len(named), "roll"), named, strict=True):
        a = axis_of(axis, shape, "roll")
        n = shape[a]
        by = shift % n if n else 0
        if by:
            x = cat(part(x, a, n - by, n), part(x, a, 0, n - by), axis=a)
    return x
