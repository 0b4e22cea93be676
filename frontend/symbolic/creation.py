"""New tensors with symbolic sizes: `Tensor.zeros(n, 3)`, `Tensor.full((n,), 1.0)`, `Tensor.arange(n)`.

Not here: the functions for fixed sizes (`frontend.ops.creation`, `frontend.ops.random`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend.symbolic import sizes as algebra
from frontend.symbolic.sizes import capacities, capacity
from frontend.symbolic.tensor import made
from frontend.variable import Bound
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from frontend.symbolic.sizes import Size


def made_with(fn: Any, cls: type[Any], args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """Return the tensor that a function makes, of a shape with bound variables."""
    if fn.__name__ == "arange":
        return _arange(fn, cls, args, names)
    first, *rest = args
    if isinstance(first, (tuple, list)):
        shape = tuple(first)
    elif fn.__name__ == "full":
        shape = (first,)
    else:
        shape, rest = args, []
    return made(fn(cls, capacities(shape), *rest, **names), shape)


def _arange(fn: Any, cls: type[Any], args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, *(0, 0, 1)[len(args) :])
    size: Size = algebra.add(stop, algebra.negative(start), "arange")
    low = size.low if isinstance(size, Bound) else size
    if step != 1 or not isinstance(start, int) or low < 0:
        raise UnsupportedError(
            f"arange{args}: with a bound variable wanted a start that is a plain number, a size that is "
            "never negative, and the step 1\nhint: arange(n) * step + start"
        )
    return made(fn(cls, start, start + capacity(size), **names), (size,))
