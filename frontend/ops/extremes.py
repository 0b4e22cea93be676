"""Greatest and least values as in PyTorch: `max` and `min` along an axis return values and indices.

`amax` and `amin` return values only, over any axes. A NaN is both greatest and least. An axis without
elements raises `UsageIndexError`, and so does an axis that does not exist; arguments of other classes raise
`UsageTypeError`.

Not here: elementwise `maximum` and `minimum` (`elementwise`). Next: `reductions`.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

from frontend.arguments.aliases import accepts_aliases
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.trace import method
from frontend.ops import reductions
from frontend.ops.elementwise import maximum, minimum
from hcq.errors import UsageTypeError

if TYPE_CHECKING:
    from frontend.arguments.checks import Axes


class Extreme(NamedTuple, Generic[T]):
    """The greatest or least values along an axis, and their indices (int64)."""

    values: T
    indices: T


class Extremes(NamedTuple, Generic[T]):
    """The least and the greatest values."""

    min: T
    max: T


@method
def amax(self: T, axis: Axes = None, keepdim: bool = False) -> T:
    """Return the greatest value over axes, NaN if there is one; None or (): over all axes.

    The dtype is that of self. A gradient is shared evenly by the elements that equal the value. Raises
    `UsageIndexError` for an axis without elements.
    """
    return reductions.max(self, _several(axis, self), keepdim)


@method
def amin(self: T, axis: Axes = None, keepdim: bool = False) -> T:
    """Return the least value over axes, NaN if there is one; otherwise as `amax`."""
    return reductions.min(self, _several(axis, self), keepdim)


def _several(axis: Axes, x: TensorBase) -> Axes:
    """Return axes as a tuple or list; all axes for None and ()."""
    if axis is None or (isinstance(axis, (tuple, list)) and not axis):
        return tuple(range(len(x.expr.shape)))
    return axis if isinstance(axis, (tuple, list)) else (axis,)


@accepts_aliases
def aminmax(self: T, *, axis: int | None = None, keepdim: bool = False) -> Extremes[T]:
    """Return the least and the greatest value along an axis, None: of all elements. Raises as `amax`."""
    return Extremes(amin(self, axis, keepdim), amax(self, axis, keepdim))


@overload
def max(self: T, axis: None = None, keepdim: bool = False) -> T: ...
@overload
def max(self: T, axis: int, keepdim: bool = False) -> Extreme[T]: ...
@overload
def max(self: T, axis: T | tuple[int, ...]) -> T: ...
@accepts_aliases
def max(self: T, axis: Any = None, keepdim: bool = False) -> T | Extreme[T]:
    """Return the greatest value of all; along one axis the pair `(values, indices)`; NaN if there is one.

    Values have the dtype of self, indices are int64. An index is that of the first NaN, else of the first
    greatest element. The gradient of `values` goes to that element; the gradient of the greatest value of all
    is shared evenly by the elements that equal it. With a tensor in place of the axis, return `maximum`.

        values, indices = Tensor([[3, 1], [2, 5]]).max(1)      # [3, 5], [0, 1]

    Raises `UsageIndexError` for an axis without elements, `UsageTypeError` for several axes: use `amax`.
    """
    return _extreme(self, axis, keepdim, reductions.max, reductions.argmax, maximum)


@overload
def min(self: T, axis: None = None, keepdim: bool = False) -> T: ...
@overload
def min(self: T, axis: int, keepdim: bool = False) -> Extreme[T]: ...
@overload
def min(self: T, axis: T | tuple[int, ...]) -> T: ...
@accepts_aliases
def min(self: T, axis: Any = None, keepdim: bool = False) -> T | Extreme[T]:
    """Return the least value of all; along one axis the pair `(values, indices)`; NaN if there is one.

    With a tensor in place of the axis, return `minimum`. Otherwise as `max`.
    """
    return _extreme(self, axis, keepdim, reductions.min, reductions.argmin, minimum)


def _extreme(  # noqa: PLR0917 - internal
    x: T, axis: Any, keepdim: bool, whole: Callable[..., T], place: Callable[..., T], each: Callable[..., T]
) -> T | Extreme[T]:
    if axis.__class__ is x.__class__:
        return each(x, axis)
    if axis is None:
        return whole(x, None, keepdim)
    if isinstance(axis, (tuple, list)):
        name = whole.__name__
        raise UsageTypeError(
            f"{name}: a pair of values and indices is of one axis, saw {axis}\n"
            f"hint: a{name}({axis}) gives values"
        )
    return Extreme(whole(x, axis, keepdim), place(x, axis, keepdim))
