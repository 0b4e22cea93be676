"""Copies of tensors: `copy`, `deepcopy`, and pickle.

A copy is a tensor of the same value, dtype, device and requires_grad in memory of its own, cut from what it
was computed from. `deepcopy` takes the gradient along, pickle does not; both keep one tensor that is used
twice one tensor, so models and optimisers can be copied together. A pickle names the device: it is opened
when the tensor is loaded.

Not here: moving to another device (`transfer`), saving a model (`frontend.nn.state`).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

from compiler.dtype import by_name
from frontend.autograd.engine import detach
from frontend.autograd.state import marked
from frontend.device import Device
from frontend.expr import PARAM
from frontend.ops import casts, movement
from frontend.plan import CAPTURE
from frontend.storage import Leaf, stored
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Kind = TypeVar("Kind", bound="Tensor")


def shallow(self: Kind) -> Kind:
    """Return a tensor of the same value; as tensors are values, neither sees the other change."""
    made: Any = casts.cast(detach(self), self.dtype)
    found: Kind = marked(made, self.requires_grad)
    return found


def deep(self: Kind, memo: dict[int, Any]) -> Kind:
    """Return a copy in memory of its own, with a copy of the gradient."""
    if CAPTURE.now is not None:
        raise UsageError(
            "a tensor was copied deeply inside a captured function\nhint: clone() is part of what is captured"
        )
    expr, leaves = self.expr, self.leaves
    made: Any
    if expr.op is PARAM:
        leaves[0].buffer.live()
        made = self.of_part((expr, (Leaf(Device[expr.device].copied(leaves[0].buffer)),)))
    else:
        made = movement.contiguous(detach(self)).realize()
    made = marked(made, self.requires_grad)
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    found: Kind = made
    return found


def reduced(self: Tensor) -> tuple[Any, ...]:
    """Return what pickle keeps: the elements, and what they are."""
    return loaded, (self.__class__, self.data(), self.shape, self.dtype.name, self.device, self.requires_grad)


def loaded(  # noqa: PLR0917 - as pickle calls it
    cls: type[Tensor],
    data: bytes,
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    wanted: bool | None,  # noqa: FBT001 - as above
) -> Tensor:
    """Return a tensor of what pickle kept."""
    return marked(cls.of_part(stored(data, shape, by_name(dtype), device)), wanted)
