"""Elementwise functions of the array API standard that are more than a method of `Tensor`.

A function of arrays raises `UsageTypeError` for an operand that is none.

Not here: promotion (`data_types`), functions that are one method (`rows`).
"""

from __future__ import annotations

from typing import Any

from frontend.array_api.data_types import result_type
from frontend.ops.elementwise import chosen
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError


def array(x: Any, what: str) -> Tensor:
    """Return an array itself. Raises `UsageTypeError` for anything else."""
    if not isinstance(x, Tensor):
        raise UsageTypeError(f"{what}: wanted an array, saw {type(x).__name__}")
    return x


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


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """Return the quotient rounded down, by the standard's special cases, which are not PyTorch's.

    An infinity divided by a finite number is an infinity; a finite number divided by an infinity is a zero.
    Raises as `agreed`, and `UsageZeroDivisionError` for an integer divided by a 0 that the host knows; see
    `Tensor.floor_divide`.
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
    """Return the array itself, as there are no complex arrays. Raises as `array`."""
    return array(x, "real")


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Return values limited to min..max, in the dtype of x; None: no limit; without both limits, a copy.

    Where `min` is greater than `max` the result is `max`. Raises `UsageError` for a limit that is neither a
    number nor an array, `UsageTypeError` for an x that is no array.
    """
    if min is None and max is None:
        return array(x, "clip").clone()
    if not all(b is None or isinstance(b, (int, float, Tensor)) for b in (min, max)):
        raise UsageError("clip: wanted limits that are numbers or arrays")
    bounds = [b.cast(x.dtype) if isinstance(b, Tensor) else b for b in (min, max)]
    return array(x, "clip").clip(*bounds).cast(x.dtype)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Return x1 where the condition is true, else x2.

    Raises `UsageError` for a condition that is not bool, and as `agreed`.
    """
    return chosen(condition, *agreed(x1, x2, "where"))
