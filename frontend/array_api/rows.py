"""Functions of the array API standard that are one call of a method of `Tensor`: a row each.

Of the two operands of `BINARY` one may be a Python number. Two arrays are cast to the dtype that they promote
to. Shapes that do not broadcast raise `UsageError`, values that are no arrays `UsageTypeError`; other errors
are those of the methods.

Not here: functions that need more than a call (`elementwise`, `creation`, `manipulation`, `statistics`).
"""

# ruff: noqa: E501 - a row is a line

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frontend.arguments.checks import broadcast
from frontend.array_api.elementwise import agreed, array
from frontend.array_api.statistics import over_axes
from frontend.tensor import Tensor

UNARY: Final = """
abs acos acosh asin asinh atan atanh bitwise_invert=bitwise_not ceil conj cos cosh exp expm1 floor isfinite
isinf isnan log log1p log2 log10 logical_not negative=neg positive reciprocal round signbit sin sinh sqrt
square tan tanh trunc
"""
"""Functions of one array; `own=method` where the names differ."""
BINARY: Final = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide=true_divide
equal=eq greater=gt greater_equal=ge hypot less=lt less_equal=le logaddexp logical_and logical_or logical_xor
maximum minimum multiply=mul nextafter not_equal=ne pow subtract=sub
"""
"""Functions of two operands."""
CALLS: Final[dict[str, Callable[..., Any]]] = {
    # makers
    "arange": lambda start, /, stop=None, step=1, *, dtype=None, device=None: Tensor.arange(
        start, stop, step, dtype=dtype, device=device
    ),
    "empty": lambda shape, *, dtype=None, device=None: Tensor.empty(shape, dtype=dtype, device=device),
    "zeros": lambda shape, *, dtype=None, device=None: Tensor.zeros(shape, dtype=dtype, device=device),
    "ones": lambda shape, *, dtype=None, device=None: Tensor.ones(shape, dtype=dtype, device=device),
    "full": lambda shape, fill_value, *, dtype=None, device=None: Tensor.full(
        shape, fill_value, dtype=dtype, device=device
    ),
    "full_like": lambda x, /, fill_value, *, dtype=None, device=None: x.new_full(
        x.shape, fill_value, dtype=dtype, device=device
    ),
    "zeros_like": lambda x, /, *, dtype=None, device=None: x.new_full(x.shape, 0, dtype=dtype, device=device),
    "ones_like": lambda x, /, *, dtype=None, device=None: x.new_full(x.shape, 1, dtype=dtype, device=device),
    "empty_like": lambda x, /, *, dtype=None, device=None: x.new_empty(x.shape, dtype=dtype, device=device),
    "meshgrid": lambda *arrays, indexing="xy": (
        list(arrays[0].meshgrid(*arrays[1:], indexing=indexing)) if arrays else []
    ),
    "tril": lambda x, /, *, k=0: x.tril(k),
    "triu": lambda x, /, *, k=0: x.triu(k),
    "sign": lambda x, /: (array(x, "sign") == x).where(x.sign(), x),  # NaN stays NaN
    # movement
    "broadcast_to": lambda x, /, shape: x.expand(shape),
    "broadcast_arrays": lambda *arrays: list(arrays[0].broadcast_tensors(*arrays[1:])) if arrays else [],
    "broadcast_shapes": lambda *shapes: broadcast(shapes, "broadcast_shapes"),
    "unstack": lambda x, /, *, axis=0: x.unbind(axis),
    "expand_dims": lambda x, /, axis=0: x.unsqueeze(axis),
    "flip": lambda x, /, *, axis=None: x.flip(tuple(range(x.ndim)) if axis is None else axis),
    "moveaxis": lambda x, source, destination, /: x.movedim(source, destination),
    "permute_dims": lambda x, /, axes: x.permute(axes),
    "tile": lambda x, repetitions, /: x.tile(repetitions),
    "take_along_axis": lambda x, indices, /, *, axis=-1: x.take_along_dim(indices, axis),
    "diff": lambda x, /, *, axis=-1, n=1, prepend=None, append=None: x.diff(n, axis, prepend, append),
    # reductions, sorting, searching
    "max": lambda x, /, *, axis=None, keepdims=False: x.amax(axis, keepdims),
    "min": lambda x, /, *, axis=None, keepdims=False: x.amin(axis, keepdims),
    "mean": lambda x, /, *, axis=None, keepdims=False: x.mean(axis, keepdims),
    "std": lambda x, /, *, axis=None, correction=0.0, keepdims=False: x.var(
        axis, keepdim=keepdims, correction=correction
    ).sqrt(),
    "var": lambda x, /, *, axis=None, correction=0.0, keepdims=False: x.var(
        axis, keepdim=keepdims, correction=correction
    ),
    "any": lambda x, /, *, axis=None, keepdims=False: x.bool().any(axis, keepdims),
    "all": lambda x, /, *, axis=None, keepdims=False: x.bool().all(axis, keepdims),
    "argmax": lambda x, /, *, axis=None, keepdims=False: x.argmax(axis, keepdims),
    "argmin": lambda x, /, *, axis=None, keepdims=False: x.argmin(axis, keepdims),
    "argsort": lambda x, /, *, axis=-1, descending=False, stable=True: x.argsort(axis, descending, stable),
    "sort": lambda x, /, *, axis=-1, descending=False, stable=True: x.sort(axis, descending).values,  # noqa: ARG005 - it always is stable
    "isin": lambda x1, x2, /, *, invert=False: x1.isin(x2, invert=invert),
    "unique_values": lambda x, /: x.unique(),
}
"""Other functions: arrays by position, the standard's other arguments by name."""


def _unary(method: Any) -> Callable[[Any], Tensor]:
    return lambda x, /: method(array(x, method.__name__))


def _binary(method: Any) -> Callable[[Any, Any], Tensor]:
    return lambda x1, x2, /: method(*agreed(x1, x2, method.__name__))


def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of the three tables by name."""
    found = dict(CALLS)
    for names, kind in ((UNARY, _unary), (BINARY, _binary)):
        for name in names.split():
            own, _, method = name.partition("=")
            found[own] = kind(getattr(Tensor, method or own))
    found |= {n: over_axes(found[n]) for n in ("max", "min", "mean", "std", "var", "any", "all")}
    for name, function in found.items():
        function.__name__ = function.__qualname__ = name
        function.__module__ = __name__
        function.__doc__ = f"Return `{name}` as the array API standard says; errors are those of the method."
    return found
