"""Parameters that are computed from others: PyTorch's `nn.utils.parametrize`.

The class of a module with such a parameter is a new subclass, whose property computes it at each read. What
it is computed from is in `module.parametrizations[name]`: `original`, or `original0`, `original1`, ...

Not here: functions that norms need. Next: `parametrizations`, which has them.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from frontend.evaluation.gradient_state import decided
from frontend.nn.containers import ModuleDict, ModuleList
from frontend.nn.parameter import Parameter
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.nn.module import Module


class ParametrizationList(ModuleList):
    """The functions of one parameter, applied in order, and the tensors that the first is applied to."""

    def __init__(self, first: Module, value: Tensor) -> None:
        super().__init__([first])
        inverse = first.right_inverse(value) if hasattr(first, "right_inverse") else value
        several = isinstance(inverse, (tuple, list))
        self.names = [f"original{i}" for i in range(len(inverse))] if several else ["original"]
        for name, part in zip(self.names, inverse if several else [inverse], strict=True):
            setattr(self, name, Parameter(part.detach(), decided(value) is not False))

    def forward(self) -> Tensor:
        """Return the parameter."""
        found: Tensor = self[0](*[getattr(self, name) for name in self.names])
        for function in self[1:]:
            found = function(found)
        return found


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let a function, a module of one tensor, compute a parameter from then on; return the module.

    Its `right_inverse`, if it has one, gives the first originals. A second function is applied to the result
    of the first. `unsafe` has no effect. Raises `UsageError` where there is no such tensor.
    """
    del unsafe
    if is_parametrized(module, tensor_name):
        cast("Any", module).parametrizations[tensor_name].append(parametrization)
        return module
    value = module.__dict__.pop(tensor_name, None)
    if not isinstance(value, Tensor):
        raise UsageError(f"register_parametrization: {type(module).__name__} has no tensor {tensor_name!r}")
    every = module.__dict__.setdefault("parametrizations", ModuleDict())
    every[tensor_name] = ParametrizationList(parametrization, value)
    kind: Any = type(module)
    if not hasattr(kind, "unparametrized"):
        kind = type(f"Parametrized{kind.__name__}", (kind,), {"unparametrized": kind})
        module.__class__ = kind
    setattr(kind, tensor_name, property(lambda self: self.parametrizations[tensor_name]()))
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether a parameter, None: any, is computed from others."""
    every = module.__dict__.get("parametrizations", {})
    return bool(every) if tensor_name is None else tensor_name in every


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parameter an ordinary one again, of its present value, else of its original; return the module.

    Raises `UsageError` for a parameter that is not computed, and for several originals without their value.
    """
    if not is_parametrized(module, tensor_name):
        raise UsageError(f"remove_parametrizations: {tensor_name!r} is not parametrized")
    own: Any = module
    value = getattr(own, tensor_name)
    made = own.parametrizations.pop(tensor_name)
    if not leave_parametrized:
        if made.names != ["original"]:
            raise UsageError("remove_parametrizations: several originals need leave_parametrized=True")
        value = made.original
    delattr(type(own), tensor_name)
    if not own.parametrizations:
        del own.__dict__["parametrizations"]
        own.__class__ = type(own).unparametrized
    setattr(own, tensor_name, Parameter(value.detach().clone().realize()))
    return module
