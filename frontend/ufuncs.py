"""NumPy's functions on tensors: `np.sin(x)` is `x.sin()`, and `array + x` is a tensor.

A function that is not in `NAMES`, and one called with named arguments such as `out=` or as `reduce`, raises
`UsageTypeError`.

Not here: conversion to an array (`frontend.tensor`). Next: `frontend.ops`, the methods.
"""

from __future__ import annotations

from typing import Any, Final

from hcq.errors import UsageTypeError

_SAME: Final = """
    exp exp2 expm1 log log2 log10 log1p sqrt square reciprocal sin cos tan tanh sign floor ceil trunc isnan
    isinf isfinite logical_not maximum minimum copysign sinh cosh hypot logaddexp
    logical_and logical_or logical_xor fmod signbit deg2rad rad2deg heaviside
"""
NAMES: Final[dict[str, str]] = {
    **{name: name for name in _SAME.split()}, "add": "__add__", "subtract": "__sub__", "multiply": "__mul__",
    "divide": "__truediv__", "floor_divide": "__floordiv__", "remainder": "__mod__", "power": "__pow__",
    "float_power": "__pow__", "matmul": "__matmul__", "bitwise_and": "__and__", "bitwise_or": "__or__",
    "bitwise_xor": "__xor__", "left_shift": "__lshift__", "right_shift": "__rshift__", "negative": "__neg__",
    "positive": "__pos__", "absolute": "abs", "fabs": "abs", "invert": "__invert__", "rint": "round",
    **{f"arc{n}": f"a{n}" for n in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")},
    "greater": "__gt__", "greater_equal": "__ge__", "less": "__lt__", "less_equal": "__le__",
    "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip
"""Name of a NumPy function -> the method that computes it."""


def applied(self: Any, function: Any, how: str, *operands: Any, **names: Any) -> Any:
    """Return the result of a NumPy function whose operands include a tensor, as a tensor; `__array_ufunc__`.

    Other operands become tensors on the device of `self`, one of the tensors. `how` is "__call__", "reduce"
    and so on. Raises as the module says, as the method, and as `Tensor(...)` for another operand.
    """
    name = NAMES.get(function.__name__)
    if name is None or how != "__call__" or names:
        more = f" with {', '.join(names)}" if names else ""
        raise UsageTypeError(
            f"np.{function.__name__}{'' if how == '__call__' else '.' + how}{more} of a tensor: there is no "
            "method for it; convert with .numpy() first"
        )
    first, *rest = operands
    if first.__class__ is not self.__class__:
        first = self.__class__(first, device=self.expr.device) if hasattr(first, "shape") else first
    if not hasattr(first, "expr"):
        first = (
            self.__class__.full((), first, device=self.expr.device)
            if first.__class__ is int
            else self.__class__(first, device=self.expr.device)
        )
    return getattr(first, name)(*rest)
