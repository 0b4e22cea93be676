"""Sharding rules: what each primitive operation does on several devices, by the layouts of its sources.

Elementwise operations take the layout of their first divided source; what is whole is cut where it is used,
which costs nothing. A reduction over the divided axis is *pending*: each device has its part of the sum. A
pending value becomes whole by an all-reduce, or divided by a reduce-scatter. An operation without a rule for
the layouts of its sources gets them whole, by an all-gather, so every operation is right on every layout.

Not here: the exchanges (`partition`). Next: `frontend.evaluation.expr`, the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from compiler.ir.ops import ELEMENTWISE, Ops
from frontend.distributed.layout import TensorLayout
from frontend.distributed.parts import Value, summed_in
from frontend.evaluation.expr import CONV, LIMIT, join
from frontend.primitives.erf import ERF
from frontend.primitives.gather_scatter import LAST_INDEX, SEGMENT_SUM, TAKE_ALONG_AXIS
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from frontend.distributed.partition import Partition


def _axis(sources: Sequence[Value]) -> TensorLayout:
    """Return the layout of the first divided source."""
    return next(v.layout for v in sources if v.layout.axis is not None)


def _elementwise(on: Partition, e: Any, sources: list[Value]) -> Value:
    layout = _axis(sources)
    return on.on_each(e, [on.divided(v, layout) for v in sources], layout, e.arg)


def _reduce(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    """Over the divided axis: pending. Of a pending value by the same operation: pending still."""
    (v,), (op, axes) = sources, e.arg
    layout = v.layout
    if layout.pending is not None:
        if layout.pending == op and not v.dtype.is_float:
            return on.on_each(e, sources, layout, e.arg)
        return None
    assert layout.axis is not None, layout
    if layout.axis in axes:
        own = [layout.shape_on(d, v.shape) for d in range(on.count)]
        if v.dtype is e.dtype and all(shape[a] == 1 for shape in own for a in axes):
            parts = tuple([join(Ops.RESHAPE, e.shape, p) for p in v.parts])  # one row each: nothing to add
            return Value(TensorLayout(pending=op), parts, e.shape, e.dtype)
        return on.on_each(e, [_widened(v, op)], TensorLayout(pending=op), e.arg)
    left = layout.axis - sum([a < layout.axis for a in axes])
    return on.on_each(e, sources, TensorLayout(left, layout.bounds), e.arg)


def _permute(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    if layout.pending is not None:
        return on.on_each(e, sources, layout, e.arg)
    assert layout.axis is not None, layout
    return on.on_each(e, sources, TensorLayout(e.arg.index(layout.axis), layout.bounds), e.arg)


def _expand(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    assert layout.axis is not None, layout
    if sources[0].shape[layout.axis] != e.shape[layout.axis]:
        return None
    made = on.on_each(e, sources, layout, lambda d: layout.shape_on(d, e.shape))
    return replace(made, repeats=sources[0])


def _reshape(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    """The divided axis stays, is merged with axes behind it, or is split, where no device's part is torn."""
    v = sources[0]
    layout, old, new = v.layout, v.shape, e.shape
    if layout.pending is not None:
        return on.on_each(e, sources, layout, e.arg)
    assert layout.axis is not None, layout
    if 0 in old:
        return None
    before, inner = prod(old[: layout.axis]), prod(old[layout.axis + 1 :])
    for axis, n in enumerate(new):
        step = prod(new[axis + 1 :])
        ends = [(begin * inner, end * inner) for begin, end in layout.bounds]
        if prod(new[:axis]) == before and n > 1 and not any(x % step for pair in ends for x in pair):
            kept = TensorLayout(axis, tuple([(begin // step, end // step) for begin, end in ends]))
            return on.on_each(e, sources, kept, lambda d, to=kept: to.shape_on(d, new))
    return None


def _pad(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    assert layout.axis is not None, layout
    if any(e.arg[layout.axis]):
        return None
    return on.on_each(e, sources, layout, e.arg)


def _shrink(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    """Each device keeps what it has of the range."""
    layout = sources[0].layout
    axis = layout.axis
    assert axis is not None, layout
    if not all(isinstance(x, int) for pair in e.arg for x in pair):
        raise UnsupportedError("a slice by a bound variable has no sharding rule")
    low, high = e.arg[axis]
    kept = tuple([(min(max(b, low), high) - low, min(max(x, low), high) - low) for b, x in layout.bounds])

    def own(d: int) -> Any:
        begin = layout.bounds[d][0]
        at = min(max(begin, low), high) - begin if kept[d][1] > kept[d][0] else 0
        pair = (at, at + kept[d][1] - kept[d][0])
        return tuple([pair if i == axis else old for i, old in enumerate(e.arg)])

    found = on.on_each(e, sources, TensorLayout(axis, kept), own)
    return found if high - low >= on.count else on.whole(found)  # a row or two are wanted by all


def _flip(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    layout, axes = sources[0].layout, e.arg[0] if e.op is Ops.WINDOW else e.arg
    return None if layout.axis in axes else on.on_each(e, sources, layout, e.arg)


def _gather(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    """Divided indices of a whole table, or a table that is divided along another axis."""
    x, indices = sources
    if x.layout.axis is None and indices.layout.axis is not None:
        layout = TensorLayout(e.arg + indices.layout.axis, indices.layout.bounds)
        return on.on_each(e, sources, layout, e.arg)
    if x.layout.axis is None or x.layout.axis == e.arg:
        return None
    axis = x.layout.axis
    axis += len(indices.shape) - 1 if axis > e.arg else 0
    return on.on_each(e, [x, on.whole(indices)], TensorLayout(axis, x.layout.bounds), e.arg)


def _along(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    """Elements or sums along an axis that is not divided: rows of their own on each device.

    An index of size 1 in all other axes is that of every row, and whole unless it is divided along its own.
    """
    axis, (x, index, *more) = e.arg[0], sources
    shared = all(n == 1 for i, n in enumerate(index.shape) if i != axis)
    sources = [x, on.whole(index) if shared and index.layout.axis != axis else index, *more]
    if more or all(v.layout.axis is None for v in sources):
        return None
    layout = _axis(sources)
    if layout.axis == axis:
        return _segment_sum(on, e, sources) if e.op is SEGMENT_SUM else None
    given = [on.divided(x, layout), on.whole(index) if shared else on.divided(index, layout)]
    return on.on_each(e, given, layout, e.arg)


def _segment_sum(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    """Sums by index whose values are divided along the axis of the index: pending."""
    layout = _axis(sources)
    x, index = [on.divided(v, layout) for v in sources]
    return on.on_each(e, [_widened(x, Ops.ADD), index], TensorLayout(pending=Ops.ADD), e.arg)


def _widened(v: Value, op: str) -> Value:
    """Return a value whose parts are of the dtype in which contributions are added: they are rounded once."""
    wide = summed_in(op, v.dtype)
    if wide is v.dtype:
        return v
    return Value(v.layout, tuple([join(Ops.CAST, wide, p) for p in v.parts]), v.shape, wide)


def _convolution(on: Partition, e: Any, sources: list[Value]) -> Value | None:
    """A divided batch, or a whole batch and divided output channels."""
    x, weight = sources
    if x.layout.axis == 0:
        return on.on_each(e, [x, on.whole(weight)], x.layout, e.arg)
    if x.layout.axis is None and weight.layout.axis == 0 and e.arg[2] == 1:
        return on.on_each(e, sources, TensorLayout(1, weight.layout.bounds), e.arg)
    return None


PENDING: Final = (_reduce, _permute, _reshape)
"""Rules that take a pending source; other operations get it whole."""
RULES: Final[dict[str, Any]] = {
    **dict.fromkeys((*ELEMENTWISE, Ops.CONTIGUOUS, ERF, LIMIT), _elementwise),
    Ops.REDUCE: _reduce,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.RESHAPE: _reshape,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.WINDOW: _flip,
    Ops.GATHER: _gather,
    CONV: _convolution,
    TAKE_ALONG_AXIS: _along,
    SEGMENT_SUM: _along,
    LAST_INDEX: lambda *_: None,
}
"""Operation -> its rule, called as rule(rules, expression, sources) with a divided source.

None from a rule: the sources are made whole.
"""
