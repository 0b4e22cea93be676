"""Cases of writes to a tensor with a gradient: in-place operators, assignment, index assignment.

Next: `case`, what a case is; `cases`, the list of all groups.
"""

# ruff: noqa: ARG005 - PyTorch's side gets its module, whether it needs it or not

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.gradients.case import INF, NAN, Case, given

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: Final[list[Case]] = []
_TWO: Final = given([1.0, 0.0, -2.0, INF, NAN, 3.0], [0.5, 2.0, 3.0, 1.0, 2.0, -1.0])
_MATRICES: Final = given([[1.0, INF], [0.0, -2.0]], [[2.0, 0.5], [-1.0, NAN]])


def _stored(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function that applies an in-place operation with y to a copy of x, and returns the copy."""

    def result(x: Any, y: Any) -> Any:
        copy = x * 2
        found = operation(copy, y)
        return copy if found is None else found

    return result


def _add(method: str, operation: Callable[[Any, Any], Any], theirs: Callable[..., Any] | None = None) -> None:
    ours, asked = _stored(operation), _stored(theirs or operation)
    CASES.append(Case(method, "", _TWO, ours, lambda t, x, y: asked(x, y)))


def _written(copy: Any, y: Any) -> None:
    copy[1:4] = y[:3]
    copy[5] = 7.0


_add("__iadd__", operator.iadd)
_add("__isub__", operator.isub)
_add("__imul__", operator.imul)
_add("__itruediv__", operator.itruediv)
_add("__ifloordiv__", operator.ifloordiv, lambda x, y: x.div(y, rounding_mode="floor"))
_add("__imod__", operator.imod, lambda x, y: x.remainder(y))
_add("__ipow__", operator.ipow, lambda x, y: x.pow(y))
_add("__setitem__", _written)
_add("assign", lambda x, y: x.assign(y * 3), lambda x, y: y * 3)
_add("replace", lambda x, y: x.replace(y * 3), lambda x, y: y * 3)
CASES.append(Case("__imatmul__", "", _MATRICES, _stored(operator.imatmul), lambda t, x, y: (x * 2) @ y))
