"""Assignment: giving a tensor a new value.

A tensor is a value; only what stands here changes one. The new value is pending like any other, and is
stored in the memory that the tensor has when it is computed (`frontend.realize`).
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from frontend.autograd import detach
from frontend.device import LOCK
from frontend.expr import PARAM
from frontend.lazy import PLAIN, Rebound, become
from frontend.ops import arguments, movement
from frontend.ops.sources import constant
from frontend.plan import CAPTURE
from frontend.realize import PENDING
from frontend.storage import home_of
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.tensor import Tensor

Kind = TypeVar("Kind", bound="Tensor")


def assign(self: Kind, value: Any) -> Kind:
    """Give this tensor a new value of its dtype, and of its shape or broadcasting to it; return self.

    The value is computed at the next realize and stored in the memory that this tensor has. Whatever
    was built from the old value before keeps meaning that.
    """
    new = self.operand(value)
    e = self.expr
    if new.__class__ is not self.__class__:
        common = new in PLAIN or CAPTURE.now is not None
        new = constant(self, new, e.dtype, e.shape) if common else self.parameter(new)
    if new.expr.device != e.device:
        raise UsageError(
            f"assign: this tensor is on {e.device}, the value on {new.expr.device}\n"
            f"hint: move it with .to({e.device!r})"
        )
    if new.expr.dtype is not e.dtype:
        raise UsageError(
            f"assign: this tensor is {e.dtype.name}, the value {new.expr.dtype.name}; cast it first"
        )
    if new.expr.shape != e.shape:
        if arguments.broadcast((e.shape, new.expr.shape), "assign") != e.shape:
            raise UsageError(
                f"assign: this tensor has the shape {e.shape}, the value {new.expr.shape}; "
                "wanted one that broadcasts to it"
            )
        new = movement.expand(new, e.shape)
    if new is not self:
        with LOCK:
            _rebind(self, new)
    return self


def replace(self: Kind, other: Tensor) -> Kind:
    """Take over another tensor's value without storing it anywhere; return self."""
    if other.expr.shape != self.expr.shape or other.expr.dtype is not self.expr.dtype:
        raise UsageError(
            f"replace: wanted {self.expr.dtype.name}{list(self.expr.shape)} as this tensor has, saw "
            f"{other.expr.dtype.name}{list(other.expr.shape)}; cast or reshape it"
        )
    with LOCK:
        become(self, other.expr, other.leaves)
        self.epoch = other.epoch
        self.recipe = Rebound(None)
        PENDING.pop(id(self), None)
    other.used = True
    return self


def in_place(operation: Callable[[Tensor, Any], Tensor]) -> Callable[[Kind, Any], Kind]:
    """Return the operation as one that assigns its result to its first operand."""

    def call(self: Kind, other: Any) -> Kind:
        return assign(self, operation(self, other))

    return call


def _rebind(t: Tensor, new: Tensor) -> None:
    """Give a tensor a new expression; where it has memory, that is where the value goes."""
    recipe = t.recipe
    home = recipe.home if recipe.__class__ is Rebound else None
    if home is None and t.expr.op is PARAM:
        home = home_of(t.leaves[0])
    if home is not None and home.buffer.lost and not home.buffer.device.closed:
        home = None  # its memory was lost to a fault: the new value gets its own
    if home is not None:
        home.buffer.live()  # else the pending assign would fail later, for whoever computes what is pending
        if new.expr.op is PARAM:
            new = detach(new)
    become(t, new.expr, new.leaves)
    t.epoch = new.epoch
    t.recipe = Rebound(home)
    if home is None and new.expr.op is PARAM:
        return
    number = id(t)
    PENDING[number] = threading.get_ident(), weakref.ref(t, lambda _: PENDING.pop(number, None))
