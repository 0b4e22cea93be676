"""Writing: `x[key] = value` builds the new value of x and assigns it.

Tensors computed from x before keep their values. The root and the other views of x change with it
(`frontend.views`). Slices are selected by masks of coordinates, integer tensors by `scatter`.

Not here: reading (`indexing`), the assignment (`frontend.assignment`), methods `name_` that assign the result
of the method `name` (`frontend.assignment.in_place`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from compiler.ir.ops import Ops
from frontend.assignment import change
from frontend.device import LOCK
from frontend.ops.along import written as written_along
from frontend.ops.arguments import Shape, broadcast
from frontend.ops.casts import cast
from frontend.ops.creation import full_like
from frontend.ops.elementwise import add, eq, gt, lt, mul, where
from frontend.ops.indexing import (
    Cut,
    Entry,
    entries_of,
    interleaved,
    is_mask,
    item,
    part_of,
    refuse_outside,
    unmasked,
    with_tensors,
)
from frontend.ops.moving import has_symbolic_size, moving_parts, only_at, place_at
from frontend.ops.sources import constant, coordinate, number_like, spread, stopped, suited
from frontend.tensor_base import T, TensorBase
from frontend.trace import apply, composite
from frontend.views import detach, link_of
from hcq.errors import UnsupportedError, UsageError


def setitem(self: TensorBase, key: Any, value: Any) -> None:
    """Assign `value`, broadcast, to the part that `key` names.

    The key is one of `x[key]`, or a bool mask of the shape of the first axes (size 1 means all). Of
    several values for one place, the last is written; what integer tensors name outside, nowhere.
    """
    if value.__class__ is self.__class__ and _is_there(self, key, value):
        return
    with LOCK:  # the new value has what other threads wrote to other parts
        change(self, written(self, key, value))


def _is_there(x: T, key: Any, value: T) -> bool:
    """Return whether a value is the view x[key] itself, whose change is written already (`x[key] += 1`)."""
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
    key = with_tensors(self, key)
    if is_mask(key, self):
        own = getattr(self.operand(value), "shape", ())
        if prod(own) == 1 or set(own[: max(0, len(own) - len(self.expr.shape) + len(key.expr.shape))]) <= {1}:
            where_true: T = _written_where(self, key, self.operand(value))
            return where_true
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
        made: T = constant(x, suited(given, x.expr.dtype), x.expr.dtype, ())
        return made
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
    """Return x written where a mask holds: of the first axes, as an index of these axes would be."""
    shape, named = x.expr.shape, mask.expr.shape
    if len(named) > len(shape) or any(m not in {1, n} for m, n in zip(named, shape, strict=False)):
        raise UsageError(f"writing where a mask of shape {named} holds: wanted the first axes of {shape}")
    own = value.expr.shape if value.__class__ is x.__class__ else ()
    beside = len(shape) - len(named)
    if own != shape and any(n != 1 for n in own[: max(0, len(own) - beside)]):
        raise UsageError(
            f"writing {own} where a mask of shape {named} holds: how many places that are depends on values\n"
            f"hint: wanted one value for all of them, or one for each place, {shape}"
        )
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
    """Return self with the part replaced.

    The value, spread back to where it belongs, chosen by a mask of coordinates.
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
            inside = mul(lt(place, low + (c.count - 1) * step + 1), _at_least(place, low))
            if step > 1:
                inside = mul(inside, eq(_remainder(place, low, step), 0))
            mask = inside if mask is None else mul(mask, inside)
    return x if mask is None else where(mask, x, self)


def _at_least(x: T, low: int) -> T:
    return lt(number_like(x, low - 1), x)


def _remainder(x: T, low: int, step: int) -> T:
    return apply(Ops.MOD, None, add(x, -low), number_like(x, step))


def zero_(self: T) -> T:
    """Set all elements to 0; return self."""
    return change(self, 0)


def fill_(self: T, value: Any) -> T:
    """Set all elements to a number, or to the value of a tensor of shape (); return self."""
    return change(self, cast(value, self.expr.dtype) if hasattr(value, "expr") else full_like(self, value))


def copy_(self: T, src: T) -> T:
    """Set the elements to those of another tensor, broadcast, moved and converted; return self."""
    return change(self, cast(self.operand(src).to(self.expr.device), self.expr.dtype))


def uniform_(self: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Set the elements to numbers uniform in [low, high); return self."""
    e = self.expr
    return change(self, self.uniform(e.shape, low=low, high=high, dtype=e.dtype, device=e.device))


def normal_(self: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Set the elements to numbers of a normal distribution; return self."""
    e = self.expr
    return change(self, self.normal(e.shape, mean=mean, std=std, dtype=e.dtype, device=e.device))


def detach_(self: Any) -> Any:
    """End the history of self: no gradient flows through it any more, and it requires none; return self."""
    self.requires_grad = False
    return self if self.is_realized else self.replace(stopped(self))
