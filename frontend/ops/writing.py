"""Writing: `x[key] = value` and methods such as `index_add` compute the new value of x; some assign it.

Tensors computed from x before keep their values. An assignment changes the other views of the same memory,
too (`frontend.evaluation.views`). Slices are selected by masks of coordinates, integer tensors by `scatter`.

An index out of range raises `UsageIndexError` as in `indexing`, and so does an axis that does not exist. A
value whose shape or dtype does not fit raises `UsageError`, arguments of other classes `UsageTypeError`, a
write that is not supported `UnsupportedError`.

Not here: reading (`indexing`), most methods whose names end in "_" (`frontend.assignment.in_place`).
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import Shape, axis_of, broadcast
from frontend.arguments.conversion import converting, read, shown
from frontend.assignment import change
from frontend.device import LOCK
from frontend.evaluation.base import EPOCH, T, TensorBase
from frontend.evaluation.constants import (
    Number, constant, convert, coordinate, number_like, spread, stopped, suited,
)  # fmt: skip
from frontend.evaluation.limits import refuse_known
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.refresh import refresh
from frontend.evaluation.trace import apply, composite
from frontend.evaluation.views import detach, link_of
from frontend.ops.casts import cast
from frontend.ops.creation import full_like
from frontend.ops.elementwise import add, eq, gt, lt, mul, where
from frontend.ops.gather_scatter import nonzero, scatter, scatter_add, scatter_reduce, with_axes
from frontend.ops.gather_scatter import written as written_along
from frontend.ops.indexing import (
    Cut, Entry, entries_of, has_symbolic_size, interleaved, is_mask, item, limit_of, moving_parts, only_at,
    part_of, parts_of, place_at, refuse_outside, unmasked, with_places, with_tensors, wrapped,
)  # fmt: skip
from frontend.ops.movement import expand, reshape
from frontend.ops.scan import cumsum
from hcq.errors import UnsupportedError, UsageError, UsageIndexError, UsageTypeError


def setitem(self: TensorBase, key: Any, value: Any) -> None:
    """Assign `value`, broadcast, to the part that `key` names.

    The key is one of `x[key]`. Of several values for one element, the last is written. An index out of range
    raises `UsageIndexError` if the host knows its value, or under `HCQ_VALIDATE=1`; otherwise its value is
    ignored. Raises `UsageError` for a value that does not broadcast.
    """
    key = parts_of(key)
    if value.__class__ is self.__class__ and _is_there(self, key, value):
        return
    with LOCK:  # the new value has what other threads wrote to other parts
        if value.__class__ is self.__class__ and value.epoch not in {0, EPOCH[0]}:
            refresh(value)  # while it can be rebuilt
        change(self, written(self, key, value))


def _is_there(x: T, key: Any, value: T) -> bool:
    """Return whether a value is the view x[key] itself: then `x[key] += 1` has changed x already."""
    if any(part.__class__ is x.__class__ for part in (key if isinstance(key, tuple) else (key,))):
        return False
    link, own = link_of(value), link_of(x)
    if link is not None and link.read is detach:  # taken inside `no_grad`
        link = link.parent
    if link is None or own is None or link.parent is not own or link.read is not item:
        return False
    return link.args[0] is key or bool(link.args[0] == key)


def written(self: T, key: Any, value: Any) -> T:
    """Return self with `value`, broadcast, in the part that `key` names."""
    if has_symbolic_size(key):
        key, value = self.symbolic_rules["written"](self, key, value)
    key = with_tensors(self, parts_of(key))
    if is_mask(key, self):
        own = getattr(self.operand(value), "shape", ())
        if prod(own) == 1 or set(own[: max(0, len(own) - len(self.expr.shape) + len(key.expr.shape))]) <= {1}:
            where_true: T = _written_where(self, key, self.operand(value))
            return where_true
    shape, key = with_places(self, key)
    if shape != self.expr.shape:
        return reshape(written(reshape(self, shape), key, value), self.expr.shape)
    key = unmasked(self, key)
    moving, key = moving_parts(key, self.expr.shape)
    entries, tensors = entries_of(key, self.expr.shape, self.__class__)
    if tensors:
        refuse_outside("writing", self.expr.shape, entries, tensors)
        if moving:
            raise UnsupportedError("writing by integer tensors and variables at once; write in two steps")
        found: T = _written_at(self, _value(self, value), tuple(entries), *tensors)
        return found
    cuts = [e for e in entries if isinstance(e, Cut)]
    for m in moving:
        cuts[m.axis] = Cut(0, m.size, 1, drop=m.drop)
    value = _fitting(_value(self, value), _named(entries, cuts))
    if moving:
        value = apply(Ops.RESHAPE, tuple([c.count for c in cuts]), value)
        for m in moving:
            value = place_at(self, value, m.start.scalar(self), m.axis)
            cuts[m.axis] = Cut(0, self.expr.shape[m.axis], 1, drop=False)
    new: T = _written(self, value, tuple(cuts))
    for m in moving:
        new = only_at(self, new, m.start.scalar(self), m.size, m.axis)
    return new


def _value(x: T, value: Any) -> T:
    """Return the value to write as a tensor, converted to the dtype of x as PyTorch does."""
    given: Any = x.operand(value)
    if given.__class__ is not x.__class__:
        return constant(x, suited(given, x.expr.dtype), x.expr.dtype, ())
    return cast(given, x.expr.dtype)


def _named(entries: list[Entry], cuts: list[Cut]) -> Shape:
    """Return the shape of the part that the entries select, with their new axes."""
    each = iter(cuts)
    found = [1 if e is None else next(each) for e in entries]
    return tuple([n if isinstance(n, int) else n.count for n in found if isinstance(n, int) or not n.drop])


def _fitting(value: T, shape: Shape) -> T:
    """Return a value broadcast to the shape of a part; additional leading axes must have size 1."""
    own = value.expr.shape
    more = max(0, len(own) - len(shape))
    if set(own[:more]) == {1}:
        value = apply(Ops.RESHAPE, own[more:], value)
    if broadcast((shape, value.expr.shape), "writing a part") != shape:
        raise UsageError(
            f"writing {value.expr.shape} into a part of shape {shape}: wanted what broadcasts to it"
        )
    return spread(value, shape)


def _written_where(x: T, mask: T, value: Any) -> T:
    """Return x with values where a mask of its first axes is true."""
    shape, named = x.expr.shape, mask.expr.shape
    if named != shape[: len(named)]:
        raise UsageIndexError(
            f"writing where a mask of shape {named} holds: wanted the first axes of {shape}\n"
            "hint: masked_fill and where broadcast the mask"
        )
    own = value.expr.shape if value.__class__ is x.__class__ else ()
    beside = len(shape) - len(named)
    if own != shape and any(n != 1 for n in own[: max(0, len(own) - beside)]):
        raise UsageError(
            f"writing {own} where a mask of shape {named} holds: how many places that are depends on values\n"
            f"hint: wanted one value for all of them, or one for each place, {shape}"
        )
    if len(own) > len(shape):  # the axis that selecting by the mask would add
        value = reshape(value, own[len(own) - len(shape) :])
    mask = apply(Ops.RESHAPE, (*named, *(1,) * beside), mask)
    found: T = cast(where(mask, value, x), x.expr.dtype)
    return found


@composite
def _written_at(self: T, value: T, entries: tuple[Entry, ...], *tensors: T) -> T:
    """Return self with values written at integer tensors, combined with slices of other axes."""
    shape = self.expr.shape
    total = prod(shape)
    number = add(coordinate(self, (total,), 0), 1)
    places = part_of(apply(Ops.RESHAPE, shape, number), entries, *tensors)  # 0: outside
    values = _fitting(value, places.expr.shape)
    count = prod(places.expr.shape)
    index = apply(Ops.RESHAPE, (count,), where(gt(places, 0), add(places, -1), total))
    flat = written_along(apply(Ops.RESHAPE, (total,), self), 0, index, apply(Ops.RESHAPE, (count,), values))
    return apply(Ops.RESHAPE, shape, flat)


@composite
def _written(self: T, value: T, cuts: tuple[Cut, ...]) -> T:
    """Return self with the part that the cuts select replaced by a value.

    The value is padded to the shape of self, and chosen by a mask of coordinates.
    """
    full = tuple([c.count for c in cuts])
    if 0 in full:
        return self
    shape = self.expr.shape
    x = apply(Ops.RESHAPE, full, value)
    x = apply(Ops.FLIP, tuple([i for i, c in enumerate(cuts) if c.step < 0 and c.count > 1]), x)
    mask: T | None = None
    for i, (c, n) in enumerate(zip(cuts, shape, strict=True)):
        step = abs(c.step)
        low = c.begin if c.step > 0 else c.begin + (c.count - 1) * c.step
        x = interleaved(x, i, step, low, n)
        if low or c.count != n:
            place = coordinate(self, shape, i)
            inside = mul(lt(place, low + (c.count - 1) * step + 1), lt(number_like(place, low - 1), place))
            if step > 1:
                inside = mul(inside, eq(apply(Ops.MOD, None, add(place, -low), number_like(place, step)), 0))
            mask = inside if mask is None else mul(mask, inside)
    return x if mask is None else where(mask, x, self)


def zero_(self: T) -> T:
    """Set all elements to 0; return self."""
    return change(self, 0)


def fill_(self: T, value: Any) -> T:
    """Set all elements to a number, or to those of a tensor, broadcast and converted; return self."""
    return change(self, cast(value, self.expr.dtype) if hasattr(value, "expr") else full_like(self, value))


def copy_(self: T, src: Any) -> T:
    """Set the elements to those of another tensor, broadcast, moved and converted; return self."""
    return fill_(self, self.operand(src).to(self.expr.device) if hasattr(src, "expr") else src)


def uniform_(self: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Set the elements to numbers uniform in [low, high); return self."""
    e = self.expr
    return change(self, self.uniform(e.shape, low=low, high=high, dtype=e.dtype, device=e.device))


def normal_(self: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Set the elements to numbers of a normal distribution; return self."""
    e = self.expr
    return change(self, self.normal(e.shape, mean=mean, std=std, dtype=e.dtype, device=e.device))


def detach_(self: Any) -> Any:
    """Detach self: no gradient flows back through it, and requires_grad becomes False; return self."""
    self.requires_grad = False
    return self if self.is_realized else self.replace(stopped(self))


def _rows(what: str, x: T, axis: int, index: T) -> tuple[int, T, Shape]:
    """Return the axis, the index spread over the other axes, and the shape of what it names."""
    shape = x.expr.shape or (1,)
    a = axis_of(axis, shape, what)
    found: T = index if index.__class__ is x.__class__ else read(scatter, "index", index, x)
    if len(found.expr.shape) > 1 or not found.expr.dtype.is_int:
        raise UsageIndexError(
            f"{what}: wanted a vector of integers, saw {found.expr.dtype.name}{list(found.expr.shape)}"
        )
    n = prod(found.expr.shape)
    wanted = (*shape[:a], n, *shape[a + 1 :])
    return a, expand(reshape(found, (1,) * a + (n,) + (1,) * (len(shape) - a - 1)), wanted), wanted


def _source(what: str, x: T, source: T, wanted: Shape) -> T:
    if source.expr.shape != wanted and not (not x.expr.shape and prod(source.expr.shape) == 1):
        raise UsageError(f"{what}: wanted a source of the shape {wanted}, saw {source.expr.shape}")
    if source.expr.dtype is not x.expr.dtype:
        raise UsageError(
            f"{what}: the source is {source.expr.dtype.name}, self is {x.expr.dtype.name}; cast one of them"
        )
    return reshape(source, wanted)


@converting
def index_add(self: T, axis: int, index: T, source: T, *, alpha: Number = 1) -> T:
    """Return self with alpha * source added at the indices (a vector of integers) of an axis.

    At an index that occurs twice, both values are added. Raises `UsageError` for a source of another shape or
    dtype than self has there, `UsageIndexError` for an index that is no vector of integers, and as `gather`.
    """
    a, every, wanted = _rows("index_add", self, axis, index)
    values = _source("index_add", self, source, wanted)
    return reshape(
        scatter_add(with_axes(self), a, every, values if alpha == 1 else mul(values, alpha)), self.expr.shape
    )


@converting
def index_copy(self: T, axis: int, index: T, source: T) -> T:
    """Return self with the source written at the indices of an axis, of equal indices the last value.

    Errors are those of `index_add`.
    """
    a, every, wanted = _rows("index_copy", self, axis, index)
    values = _source("index_copy", self, source, wanted)
    return reshape(scatter(with_axes(self), a, every, values), self.expr.shape)


@converting
def index_fill(self: T, axis: int, index: T, value: T | Number) -> T:
    """Return self with one number, or the value of a tensor of shape (), at the indices of an axis.

    Errors of the index are those of `index_add`.
    """
    a, every, wanted = _rows("index_fill", self, axis, index)
    if isinstance(value, (int, float)):
        return reshape(scatter(with_axes(self), a, every, value), self.expr.shape)
    if value.expr.shape:
        raise UsageError(f"index_fill: wanted a number or a tensor of shape (), saw {value.expr.shape}")
    values = expand(convert(reshape(value, (1,) * len(wanted)), self.expr.dtype), wanted)
    return reshape(scatter(with_axes(self), a, every, values), self.expr.shape)


@converting
def index_reduce(self: T, axis: int, index: T, source: T, reduce: str, *, include_self: bool = True) -> T:
    """Return self with the source combined at the indices of an axis: "prod", "mean", "amax" or "amin".

    `include_self` as of `scatter_reduce`; errors are those of `index_add`.
    """
    if reduce not in {"prod", "mean", "amax", "amin"}:
        raise UsageError(f"index_reduce: wanted prod, mean, amax or amin, saw {reduce!r}")
    a, every, wanted = _rows("index_reduce", self, axis, index)
    values = _source("index_reduce", self, source, wanted)
    found = scatter_reduce(with_axes(self), a, every, values, reduce, include_self=include_self)
    return reshape(found, self.expr.shape)


@converting
def index_put(self: T, indices: Sequence[T], values: T, accumulate: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return self with `self[indices] = values`; with `accumulate` the values are added there.

    `values` broadcasts. Masks among the indices are computed. Raises `UsageTypeError` for indices that are no
    tuple or list, and as `x[key] = value`.
    """
    if not isinstance(indices, (tuple, list)):
        raise UsageTypeError(f"index_put: wanted a tuple of indices, saw {shown(indices)}")
    key: tuple[Any, ...] = tuple(indices)
    if not accumulate:
        return written(self, key, values)
    masks = [getattr(getattr(i, "expr", None), "dtype", None) is dtypes.bool for i in key]
    every: Any = [nonzero(i, as_tuple=True) if mask else (i,) for i, mask in zip(key, masks, strict=True)]
    key = tuple([i for part in every for i in part])
    for axis, (i, n) in enumerate(zip(key, self.expr.shape, strict=False)):
        if hasattr(i, "expr"):
            refuse_known(i, limit_of("index_put", axis, n))
    added: T = _accumulated(self, values, *key)
    return added


@composite
def _accumulated(self: T, values: T, *indices: T) -> T:
    shape = self.expr.shape
    if len(indices) > len(shape):
        raise UsageIndexError(f"index_put: {len(indices)} indices for the shape {shape}")
    where_to = broadcast([i.expr.shape for i in indices], "index_put")
    rest = shape[len(indices) :]
    place, inside = constant(self, 0, dtypes.int64, ()), constant(self, True, dtypes.bool, ())
    for axis, (i, n) in enumerate(zip(indices, shape, strict=False)):
        at = convert(wrapped(i, n, "index_put", axis), dtypes.int64)
        place = add(mul(place, n), at)
        inside = mul(inside, mul(lt(at, n), gt(at, -1)))
    place = where(inside, mul(place, prod(rest)), prod(shape))
    every = (*where_to, *rest)
    flat = expand(reshape(expand(place, where_to), (*where_to, *(1,) * len(rest))), every)
    within = reshape(coordinate(self, (prod(rest),), 0), (1,) * len(where_to) + rest)
    at = reshape(add(flat, within), (prod(every),))
    source = reshape(expand(convert(values, self.expr.dtype), every), (prod(every),))
    return reshape(scatter_add(reshape(self, (prod(shape),)), 0, at, source), shape)


@converting
def put(self: T, index: T, source: T, accumulate: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return self with the source written, or with `accumulate` added, at indices of the flattened tensor.

    Raises `UsageError` for another number of values than indices, and for a source of another dtype.
    """
    found: T = index if index.__class__ is self.__class__ else read(scatter, "index", index, self)
    if prod(found.expr.shape) != prod(source.expr.shape):
        raise UsageError(
            f"put: wanted a value for each of {prod(found.expr.shape)} indices, saw {source.expr.shape}"
        )
    if source.expr.dtype is not self.expr.dtype:
        raise UsageError(f"put: the source is {source.expr.dtype.name}, self is {self.expr.dtype.name}")
    flat, at, values = (reshape(x, (prod(x.expr.shape),)) for x in (self, found, source))
    done = scatter_add(flat, 0, at, values) if accumulate else scatter(flat, 0, at, values)
    return reshape(done, self.expr.shape)


@converting
def masked_scatter(self: T, mask: T, source: T) -> T:
    """Return self with the elements of the source, in order, where a bool mask is true.

    self and mask broadcast. A source with fewer elements than places raises `UsageError` where the mask is
    true at more places: the mask is computed. Inside a captured function these places become 0. Raises
    `UsageTypeError` for a mask that is not bool, `UsageError` for a source of another dtype.
    """
    if mask.expr.dtype is not dtypes.bool:
        raise UsageTypeError(f"masked_scatter: wanted a bool mask, saw {mask.expr.dtype.name}; compare it")
    if source.expr.dtype is not self.expr.dtype:
        raise UsageError(f"masked_scatter: source {source.expr.dtype.name}, self {self.expr.dtype.name}")
    shape = broadcast((self.expr.shape, mask.expr.shape), "masked_scatter")
    count = prod(source.expr.shape)
    if count < prod(shape) and CAPTURE.now is None:
        every: Any = mask
        places = int(every.numpy().sum()) * (prod(shape) // prod(mask.expr.shape))
        if places > count:
            raise UsageError(
                f"masked_scatter: the mask is true at {places} places, the source has {count} elements"
            )
    return _scattered(self, mask, source, shape)


@composite
def _scattered(self: T, mask: T, source: T, shape: Shape) -> T:
    x, wanted = expand(self, shape), expand(mask, shape)
    count = prod(source.expr.shape)
    if not prod(shape) or not count:
        return x
    flat = reshape(wanted, (prod(shape),))
    place = add(cumsum(flat, 0), -1)
    at = where(flat, place, number_like(place, count))
    taken = apply(Ops.GATHER, 0, reshape(source, (count,)), at)
    return where(wanted, reshape(taken, shape), x)
