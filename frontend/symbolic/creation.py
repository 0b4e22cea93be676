"""New tensors with symbolic sizes: `Tensor.zeros(n, 3)`, `Tensor.full((n,), 1.0)`, `Tensor.arange(n)`.

Not here: the functions for fixed sizes (`frontend.ops.creation`, `frontend.ops.random`).
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from frontend.symbolic import sizes as algebra
from frontend.symbolic.sizes import capacities, capacity
from frontend.symbolic.tensor import made
from frontend.variable import Bound
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.symbolic.sizes import Size

P = ParamSpec("P")


def _symbolic(args: tuple[Any, ...]) -> bool:
    for a in args:
        if a.__class__ is Bound or (isinstance(a, (tuple, list)) and any(n.__class__ is Bound for n in a)):
            return True
    return False


def sized(fn: Callable[Concatenate[type[Any], P], Any]) -> Callable[Concatenate[type[Any], P], Any]:
    """Let a function that makes a tensor of a shape take bound variables as sizes."""

    @wraps(fn)
    def call(cls: type[Any], /, *args: P.args, **names: P.kwargs) -> Any:
        if _symbolic(args):
            return _made(fn, cls, args, names)
        return fn(cls, *args, **names)

    return call


def _made(fn: Any, cls: type[Any], args: tuple[Any, ...], names: dict[str, Any]) -> Any:
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
