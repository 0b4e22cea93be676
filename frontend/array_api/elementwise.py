"""Elementwise functions of the array API standard: methods of `Tensor` under the standard's names.

Of two operands one may be a Python number. Two arrays are cast to the dtype that they promote to and
broadcast to one shape; `UsageError` where the shapes do not allow that, `UsageTypeError` for no array.

Not here: promotion (`data_types`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from frontend.arguments.aliases import accepts_aliases
from frontend.array_api.data_types import result_type
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError


def _array(x: Any, what: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise UsageTypeError(f"{what}: wanted an array, saw {type(x).__name__}")
    return x


def _unary(method: Any) -> Callable[[Tensor], Tensor]:
    @wraps(method)
    def call(x: Tensor, /) -> Tensor:
        found: Tensor = method(_array(x, method.__name__))
        return found

    return accepts_aliases(call)


def _binary(method: Any) -> Callable[[Any, Any], Tensor]:
    @wraps(method)
    def call(x1: Any, x2: Any, /) -> Tensor:
        a, b = agreed(x1, x2, method.__name__)
        found: Tensor = method(a, b)
        return found

    return accepts_aliases(call)


def agreed(x1: Any, x2: Any, what: str) -> tuple[Tensor, Any]:
    """Return two operands as arrays of the dtype that they promote to.

    Raises `UsageTypeError` if none is an array, `UsageError` for a number that the dtype cannot hold.
    """
    arrays = [x for x in (x1, x2) if isinstance(x, Tensor)]
    if not arrays:
        raise UsageTypeError(f"{what}: wanted an array, saw {type(x1).__name__} and {type(x2).__name__}")
    dtype = result_type(x1, x2)
    a, b = (
        x.cast(dtype) if isinstance(x, Tensor) else Tensor(x, dtype=dtype, device=arrays[0].device)
        for x in (x1, x2)
    )
    return a, b


abs = _unary(Tensor.abs)
acos = _unary(Tensor.acos)
acosh = _unary(Tensor.acosh)
asin = _unary(Tensor.asin)
asinh = _unary(Tensor.asinh)
atan = _unary(Tensor.atan)
atanh = _unary(Tensor.atanh)
bitwise_invert = _unary(Tensor.bitwise_not)
ceil = _unary(Tensor.ceil)
conj = _unary(Tensor.conj)
cos = _unary(Tensor.cos)
cosh = _unary(Tensor.cosh)
exp = _unary(Tensor.exp)
expm1 = _unary(Tensor.expm1)
floor = _unary(Tensor.floor)
isfinite = _unary(Tensor.isfinite)
isinf = _unary(Tensor.isinf)
isnan = _unary(Tensor.isnan)
log = _unary(Tensor.log)
log1p = _unary(Tensor.log1p)
log2 = _unary(Tensor.log2)
log10 = _unary(Tensor.log10)
logical_not = _unary(Tensor.logical_not)
negative = _unary(Tensor.neg)
positive = _unary(Tensor.positive)
reciprocal = _unary(Tensor.reciprocal)
round = _unary(Tensor.round)
sign = _unary(Tensor.sign)
signbit = _unary(Tensor.signbit)
sin = _unary(Tensor.sin)
sinh = _unary(Tensor.sinh)
sqrt = _unary(Tensor.sqrt)
square = _unary(Tensor.square)
tan = _unary(Tensor.tan)
tanh = _unary(Tensor.tanh)
trunc = _unary(Tensor.trunc)

add = _binary(Tensor.add)
atan2 = _binary(Tensor.atan2)
bitwise_and = _binary(Tensor.bitwise_and)
bitwise_left_shift = _binary(Tensor.bitwise_left_shift)
bitwise_or = _binary(Tensor.bitwise_or)
bitwise_right_shift = _binary(Tensor.bitwise_right_shift)
bitwise_xor = _binary(Tensor.bitwise_xor)
copysign = _binary(Tensor.copysign)
divide = _binary(Tensor.true_divide)
equal = _binary(Tensor.eq)
greater = _binary(Tensor.gt)
greater_equal = _binary(Tensor.ge)
hypot = _binary(Tensor.hypot)
less = _binary(Tensor.lt)
less_equal = _binary(Tensor.le)
logaddexp = _binary(Tensor.logaddexp)
logical_and = _binary(Tensor.logical_and)
logical_or = _binary(Tensor.logical_or)
logical_xor = _binary(Tensor.logical_xor)
maximum = _binary(Tensor.maximum)
minimum = _binary(Tensor.minimum)
multiply = _binary(Tensor.mul)
nextafter = _binary(Tensor.nextafter)
not_equal = _binary(Tensor.ne)
pow = _binary(Tensor.pow)
subtract = _binary(Tensor.sub)


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """Return the quotient rounded down, by the standard's special cases, which are not PyTorch's.

    An infinity divided by a finite number is an infinity; a finite number divided by an infinity is a zero.
    `UsageZeroDivisionError` for an integer divided by a 0 that the host knows; see `Tensor.floor_divide`.
    """
    a, b = agreed(x1, x2, "floor_divide")
    if not a.dtype.is_float:
        return a.floor_divide(b)
    exact: Tensor = (a.isinf() | b.isinf()).where(a / b, a.floor_divide(b))
    return exact


def remainder(x1: Any, x2: Any, /) -> Tensor:
    """Return x1 - x2 * floor(x1 / x2), with the sign of the divisor, also for a zero.

    Raises as `floor_divide`.
    """
    a, b = agreed(x1, x2, "remainder")
    found = a.remainder(b)
    return (found == 0).where(found.copysign(b), found) if a.dtype.is_float else found


def real(x: Tensor, /) -> Tensor:
    """Return the array itself, as there are no complex arrays."""
    return _array(x, "real")


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Return values limited to min..max, in the dtype of x; None: no limit; without both limits, a copy.

    Where `min` is greater than `max` the result is `max`. Raises `UsageError` for a limit that is neither a
    number nor an array.
    """
    if min is None and max is None:
        return _array(x, "clip").clone()
    if not all(b is None or isinstance(b, (int, float, Tensor)) for b in (min, max)):
        raise UsageError("clip: wanted limits that are numbers or arrays")
    bounds = [b.cast(x.dtype) if isinstance(b, Tensor) else b for b in (min, max)]
    return _array(x, "clip").clip(*bounds).cast(x.dtype)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Return x1 where the condition is true, else x2.

    Raises `UsageError` for a condition that is not bool.
    """
    return condition.where(*agreed(x1, x2, "where"))
