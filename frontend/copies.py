"""Copies of tensors: `copy`, `deepcopy`, and pickle.

A copy has the same value, dtype, device and requires_grad, and no history. A shallow copy shares memory: a
write to one of the two is one to the other. `deepcopy` copies the gradient too, but not of parameters; pickle
copies none. Both preserve identity: a tensor that is referenced twice stays one tensor, so that a model and
its optimiser can be copied together. A pickle names the device, which is opened when the tensor is loaded.

Not here: moving to another device (`transfer`). Next: `frontend.nn.state`, saving a model.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

from compiler.dtype import by_name
from frontend.device import Device
from frontend.evaluation.constants import stopped
from frontend.evaluation.expr import PARAM
from frontend.evaluation.gradient_state import decided, give_gradients, listed, marked
from frontend.evaluation.plan import refuse
from frontend.evaluation.storage import Leaf, stored
from frontend.evaluation.views import detach
from frontend.ops import movement

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Kind = TypeVar("Kind", bound="Tensor")


def shallow(self: Kind) -> Kind:
    """Return a leaf in the same memory, with requires_grad as self; its gradient is its own."""
    flows = decided(self) is None and not self.is_leaf
    return _as_parameter(marked(detach(self), True if flows else decided(self)), self)


def deep(self: Kind, memo: dict[int, Any]) -> Kind:
    """Return a copy in memory of its own, with a copy of the gradient.

    Raises `UsageError` inside a captured function, and as `Tensor.realize`.
    """
    refuse("a tensor was copied deeply inside a captured function\nhint: clone() is part of what is captured")
    expr, leaves = self.expr, self.leaves
    made: Any
    if expr.op is PARAM:
        leaves[0].buffer.live()
        made = self.of_part((expr, (Leaf(Device[expr.device].copied(leaves[0].buffer)),)))
    else:
        made = movement.contiguous(stopped(self)).realize()
    found: Kind = _as_parameter(marked(made, decided(self)), self)
    if self.grad is not None and not (hasattr(self, "state") and self.state.parameter):
        give_gradients(found, self, lambda g: copy.deepcopy(g, memo))
    return found


def _as_parameter(made: Kind, like: Tensor) -> Kind:
    return listed(made) if hasattr(like, "state") and like.state.parameter else made


def reduced(self: Tensor) -> tuple[Any, ...]:
    """Return the state for pickle: elements, shape, dtype, device, requires_grad, whether it is a parameter.

    Computes the tensor and reads it; raises as `Tensor.tobytes`.
    """
    parameter = hasattr(self, "state") and self.state.parameter
    about = (self.shape, self.dtype.name, self.device, decided(self), parameter)
    return loaded, (self.__class__, self.tobytes(), *about)


def loaded(  # noqa: PLR0917 - as pickle calls it
    cls: type[Tensor],
    data: bytes,
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    wanted: bool | None,  # noqa: FBT001 - as above
    parameter: bool = False,  # noqa: FBT001, FBT002 - as above
) -> Tensor:
    """Return the tensor of a pickled state, on the named device. Raises `UsageError` for an unknown one."""
    made = marked(cls.of_part(stored(data, shape, by_name(dtype), device)), wanted)
    return listed(made) if parameter else made
