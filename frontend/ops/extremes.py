"""Greatest and least values by PyTorch's other names, and what `max` and `min` are not: a pair.

`max(axis)` and `min(axis)` give values alone, as NumPy's do; PyTorch's give values and places. A result of
two rows would unpack into two names all the same, so that is refused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from frontend.lazy import method
from frontend.ops import reduce
from frontend.spelling import spelled
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.ops.arguments import Axes
    from frontend.tensor import Tensor


class Extremes(NamedTuple):
    """The least and the greatest values."""

    min: Tensor
    max: Tensor


@method
def amax(self: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - the field's signature
    """Return the greatest value over axes, all when None or (); NaN when there is one.

    Its gradient is shared evenly among those that attain it.
    """
    return reduce.max(self, _several(axis, self), keepdim)


@method
def amin(self: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - the field's signature
    """Return the least value over axes, all when None or (); NaN when there is one.

    Its gradient is shared evenly among those that attain it.
    """
    return reduce.min(self, _several(axis, self), keepdim)


def _several(axis: Axes, x: Tensor) -> Axes:
    """Return axes as several, all for None or ()."""
    if axis is None or (isinstance(axis, (tuple, list)) and not axis):
        return tuple(range(len(x.expr.shape)))
    return axis if isinstance(axis, (tuple, list)) else (axis,)


@spelled
def aminmax(self: Tensor, *, axis: int | None = None, keepdim: bool = False) -> Extremes:
    """Return the least and the greatest value along an axis, of all when None. Both are one kernel."""
    return Extremes(amin(self, axis, keepdim), amax(self, axis, keepdim))


def refuse_pair(t: Tensor) -> None:
    """Refuse to go through the two rows of what max or min gave: `values, places = x.max(1)` wants a pair."""
    recipe = t.recipe
    made = recipe[0] if recipe.__class__ is tuple else None
    if made.__class__ is partial:
        made = made.func
    for name, fn in (("max", reduce.max), ("min", reduce.min)):
        if made is fn:
            raise UsageError(
                f"{name}() gives values alone, here two rows of them, and no pair of values and places\n"
                f"hint: x.{name}(axis), x.arg{name}(axis) are the pair; unbind() gives the two rows"
            )
