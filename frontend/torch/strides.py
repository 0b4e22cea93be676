"""Reading by strides, methods that change the shape of their tensor, and Python functions of elements.

`as_strided` counts elements in row-major order. Places outside a tensor raise `UsageIndexError`. It raises
`UsageError` for a view, except for its first element, as does a change of shape of shared elements.

Not here: views (`frontend.ops.movement`). Next: `frontend.assignment`, which changes tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any

from compiler.dtype import DType, dtypes
from frontend.arguments.checks import axis_of, shape_of, tensor, whole
from frontend.arguments.conversion import converting
from frontend.assignment import refer
from frontend.evaluation.base import BORROWED, Rebound, T, TensorBase
from frontend.evaluation.constants import constant, coordinate
from frontend.evaluation.gradient_state import wants
from frontend.evaluation.plan import refuse
from frontend.evaluation.printing import described
from frontend.evaluation.views import link_of, others, strides
from frontend.ops.casts import cast
from frontend.ops.creation import new_empty, new_zeros
from frontend.ops.elementwise import add, mul
from frontend.ops.gather_scatter import take
from frontend.ops.indexing import getitem
from frontend.ops.movement import contiguous, expand, reshape
from frontend.ops.splitting import cat
from frontend.ops.writing import put
from hcq.errors import UsageError, UsageIndexError, UsageTypeError


@converting
def stride(self: TensorBase, dim: int | None = None) -> Any:
    """Return how many elements neighbours along each axis, or along `dim`, are apart in memory."""
    found = strides(self)
    return found if dim is None else found[axis_of(dim, self.expr.shape, "stride")]


def _places(what: str, self: T, size: Any, stride: Any, offset: int | None) -> T:
    """Return the places of elements in a flattened tensor, as int64 of the shape `size`."""
    shape, each = shape_of((size,), what), shape_of((stride,), f"{what}, stride")
    first = whole(0 if offset is None else offset, f"{what}, storage_offset")
    if len(shape) != len(each) or first < 0:
        raise UsageError(f"{what}: wanted a stride for each of {shape}, from {first} >= 0 on, saw {each}")
    last = first + sum([(n - 1) * step for n, step in zip(shape, each, strict=True)])
    if getattr(link_of(self), "parent", None) is not None and (offset is not None or last):
        raise UsageError(f"{what} of a view, {described(self)}\nhint: clone() has memory of its own")
    if 0 not in shape and last >= prod(self.expr.shape):
        raise UsageIndexError(f"{what}: place {last} of the {prod(self.expr.shape)} elements")
    place = constant(self, first, dtypes.int64, shape)
    for axis, step in enumerate(each):
        place = add(place, mul(coordinate(self, shape, axis), step))
    return place


@converting
def as_strided(
    self: T, size: int | Sequence[int], stride: int | Sequence[int], storage_offset: int | None = None
) -> T:
    """Return the elements `storage_offset` + sum of index * stride of the flattened tensor; no view.

    Raises `UsageError` for another number of strides than sizes; see the module.
    """
    return take(self, _places("as_strided", self, size, stride, storage_offset))


@converting
def as_strided_scatter(
    self: T, src: T, size: int | Sequence[int], stride: int | Sequence[int], storage_offset: int | None = None
) -> T:
    """Return self with the elements of `src` where `as_strided` reads them; of several, the last."""
    places = _places("as_strided_scatter", self, size, stride, storage_offset)
    tensor(src, "as_strided_scatter", self)
    if src.expr.shape != places.expr.shape:
        raise UsageError(f"as_strided_scatter: wanted src of shape {places.expr.shape}, saw {src.expr.shape}")
    return put(self, places, cast(src, self.expr.dtype))


@converting
def new_empty_strided(
    self: T,
    size: int | Sequence[int],
    stride: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
) -> T:
    """Return `new_empty` of a size: rows follow each other, whichever strides are given."""
    if len(shape_of((size,), "new_empty_strided")) != len(shape_of((stride,), "new_empty_strided, stride")):
        raise UsageError(f"new_empty_strided: wanted a stride for each of {size}, saw {stride}")
    return new_empty(self, size, dtype=dtype, device=device)


def resized(self: T, *size: Any) -> T:
    """Return the first elements in the shape `size`, or that of a tensor; further ones are 0.

    Raises `UsageError` for a tensor with a gradient.
    """
    known: Any = self
    if known.requires_grad:
        raise UsageError("resize_: elements without a place have no gradient\nhint: detach() first, or slice")
    like = getattr(size[0], "expr", None) if len(size) == 1 else None
    shape, flat = shape_of(size, "resize_") if like is None else like.shape, reshape(self, -1)
    more = prod(shape) - prod(self.expr.shape)
    if more > 0:
        flat = cat(flat, new_zeros(flat, more))
    return reshape(getitem(flat, slice(prod(shape))), shape)


def reshaping(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that gives its tensor the result of `operation`, of another shape, and returns it.

    Raises `UsageError` for a leaf with requires_grad, for a tensor that shares elements with a living view or
    is one, inside a captured function, and as `operation`.
    """

    @wraps(operation)
    def call(self: Any, *args: Any, **names: Any) -> Any:
        name, hint = operation.__name__, "hint: give it another name: y = x.reshape(...)"
        refuse(f"{name} in place inside a captured function: a replay would not repeat it\n{hint}")
        if wants(self) or others(self):
            why = "requires a gradient" if wants(self) else "shares elements with other tensors"
            raise UsageError(f"{name} in place: {described(self)} {why}\n{hint}")
        new = contiguous(operation(self, *args, **names))
        refer(self, new)
        self.recipe = Rebound(None, BORROWED)
        return self

    return call


def mapped(self: T, *given: Any) -> T:
    """Return what a Python function, the last argument, returns of each element, in the dtype of self.

    `map_` and `map2_` give it the elements of further tensors, too, and all are read. Raises `UsageTypeError`
    for other arguments, `UsageError` for a tensor with a gradient and inside a captured function.
    """
    *others, function = given or (None,)
    if not callable(function) or len(others) > 2:
        raise UsageTypeError(f"apply_: wanted at most two tensors and a function of numbers, saw {given}")
    refuse("apply_ inside a captured function: a replay would not call the Python function")
    for x in others:
        tensor(x, "map_", self)
    every: Any = [self, *[expand(x, self.expr.shape) for x in others]]
    if every[0].requires_grad:
        raise UsageError("apply_: a Python function has no derivative\nhint: detach() first")
    found = [function(*numbers) for numbers in zip(*[x.reshape(-1).tolist() for x in every], strict=True)]
    kind: Any = self.__class__
    made: T = kind(found, device=self.expr.device)
    return reshape(cast(made, self.expr.dtype), self.expr.shape)
