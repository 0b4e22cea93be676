"""Gradient state of tensors: `requires_grad`, and the gradients that `backward` stored in `grad`.

Not here: computing gradients (`engine`), switching them off in a block, which `Tensor.no_grad` does
(`frontend.tensor`).
"""

from __future__ import annotations

import weakref
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from frontend.expr import PARAM
from frontend.realize import realize_many
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontend.tensor import Tensor


class Past(Enum):
    """What a pending tensor keeps of what it was computed from when its value is looked at."""

    KEPT = auto()
    """All that its gradient needs."""
    SPENT = auto()
    """Nothing, as its backward has run; a gradient that would flow through it is refused."""
    CUT = auto()
    """Nothing: it is a gradient that `backward` gave."""


class Gradient:
    """What a tensor that takes part in differentiation keeps.

    Whether it wants a gradient, and the gradient.
    """

    __slots__ = ("of", "past", "value", "wanted")

    def __init__(self) -> None:
        self.wanted: bool | None = None
        self.value: Tensor | None = None
        self.of: weakref.ref[Tensor] | None = None
        """The tensor whose backward gave the value."""
        self.past = Past.KEPT


_wanting: Final[dict[int, weakref.ref[Any]]] = {}
"""All living tensors with requires_grad, in order of their marking."""


def want(tensors: Sequence[Tensor], wanted: bool | None) -> None:  # noqa: FBT001 - the value of a property
    """Set whether `backward` gives tensors a gradient.

    Those that want one are realized, in one launch, unless they were computed from others that do: nodes
    are known by structure, and two pending tensors of zeros would be one.
    """
    if wanted:
        wrong = next((t for t in tensors if not t.expr.dtype.is_float), None)
        if wrong is not None:
            raise UsageError(
                f"only floats have gradients, this tensor is {wrong.expr.dtype.name}; cast it with .float()"
            )
        inner = {leaf for t in wanting() for leaf in t.leaves}
        realize_many([t for t in tensors if t.expr.op is not PARAM and inner.isdisjoint(t.leaves)])
    for t in tensors:
        state_of(t).wanted = wanted
        if wanted:
            _wanting[id(t)] = weakref.ref(t, partial(_forget, id(t)))
        else:
            _wanting.pop(id(t), None)


def _forget(number: int, ref: weakref.ref[Any]) -> None:
    if _wanting.get(number) is ref:
        del _wanting[number]


def state_of(t: Tensor) -> Gradient:
    """Return a tensor's gradient state, made at first use."""
    try:
        return t.state
    except AttributeError:
        t.state = Gradient()
        return t.state


def anyone() -> bool:
    """Return whether any tensor has requires_grad."""
    return bool(_wanting)


def wanting() -> list[Tensor]:
    """Return all living tensors with requires_grad."""
    found = [ref() for ref in list(_wanting.values())]
    return [t for t in found if t is not None]
