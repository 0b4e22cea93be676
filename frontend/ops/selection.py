"""Elements and places that a condition selects: `masked_select`, `nonzero`.

Without `size` how many there are is read on the host. With it the shape is known beforehand, and the methods
can be captured.

Not here: `x[mask]` (`indexing`), selections that keep the shape (`elementwise.where`).
"""

from __future__ import annotations

from math import prod

from compiler.dtype import dtypes
from frontend.arg_aliases import accepts_aliases
from frontend.ops.arguments import broadcast, whole
from frontend.ops.division import floordiv, mod
from frontend.ops.elementwise import invert, lt, ne, where
from frontend.ops.indexing import getitem, places_of
from frontend.ops.movement import expand, reshape
from frontend.ops.padding import pad
from frontend.ops.parts import part, stack
from frontend.ops.sorting import argsort
from frontend.ops.sources import convert, coordinate, suited
from frontend.parameters import flag, read
from frontend.tensor_base import T
from frontend.trace import method
from hcq.errors import UsageError, UsageTypeError


@accepts_aliases
def masked_select(self: T, mask: T, *, size: int | None = None, fill_value: float = 0) -> T:
    """Return the elements where a bool mask is true, as a vector; self and mask broadcast.

    Computes the mask, unless `size` gives the length: what is beyond is cut, what is missing `fill_value`.

        Tensor([3, 1, 2]).masked_select(Tensor([True, False, True]))      # [3, 2]

    Raises `UsageTypeError` for a mask that is not bool, `UsageError` inside a captured function
    without `size`.
    """
    mask = mask if mask.__class__ is self.__class__ else read(masked_select, "mask", mask, self)
    if mask.expr.dtype is not dtypes.bool:
        raise UsageTypeError(f"masked_select: wanted a bool mask, saw {mask.expr.dtype.name}; compare it")
    shape = broadcast((self.expr.shape, mask.expr.shape), "masked_select")
    x, wanted = expand(self, shape), expand(mask, shape)
    if size is None:
        return getitem(x, wanted) if shape else getitem(reshape(x, 1), reshape(wanted, 1))
    places = _first_places(wanted, _length("masked_select", size))
    missing = lt(places, 0)
    like = x if prod(shape) else pad(x, [(0, int(not n)) for n in shape])
    taken = getitem(reshape(like, -1), where(missing, 0, places))
    return where(missing, suited(fill_value, x.expr.dtype), taken)


@accepts_aliases
def nonzero(
    self: T, *, as_tuple: bool = False, size: int | None = None, fill_value: int = 0
) -> T | tuple[T, ...]:
    """Return the coordinates (int32) of elements that are not zero: a row each, or a vector for each axis.

    Computes self, unless `size` gives the number of rows: what is beyond is cut, what is missing
    `fill_value`. Raises `UsageError` inside a captured function without `size`.

        Tensor([[0, 5], [7, 0]]).nonzero()      # [[0, 1], [1, 0]]
    """
    as_tuple = flag(as_tuple, "nonzero, as_tuple")
    shape = self.expr.shape
    mask = ne(self, 0)
    if size is None:
        axes = places_of(mask)
    else:
        flat = _first_places(mask, _length("nonzero", size))
        steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
        each = [mod(floordiv(flat, max(1, step)), max(1, n)) for step, n in zip(steps, shape, strict=True)]
        axes = [where(lt(flat, 0), fill_value, axis) for axis in each]
    count = 0 if axes else int(bool(self.item())) if size is None else size
    if as_tuple:
        return tuple(axes) or (convert(coordinate(self, (count,), 0), dtypes.int32),)
    if axes:
        return stack(axes, axis=1)
    return convert(coordinate(self, (count, 0), 1), dtypes.int32)


def _length(what: str, size: int) -> int:
    if whole(size, f"{what}, size") < 0:
        raise UsageError(f"{what}: wanted a size that is not negative, saw {size}")
    return size


@method
def _first_places(self: T, size: int) -> T:
    """Return the first `size` places of a mask of any shape that are true, then -1."""
    n = prod(self.expr.shape)
    flat = reshape(self, n)
    order = argsort(convert(invert(flat), dtypes.int32)) if n else convert(flat, dtypes.int32)
    held = where(getitem(flat, order), order, -1) if n else order
    return pad(part(held, 0, 0, min(size, n)), ((0, max(0, size - n)),), -1)
