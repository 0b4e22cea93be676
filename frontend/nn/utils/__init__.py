"""PyTorch's `nn.utils`: clipping of gradients, parameters as one vector, sequences of several lengths.

Not here: schedules of learning rates (`frontend.optim.schedules`). Next: `rnn`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from frontend.arguments.aliases import answer_module
from frontend.later import later
from frontend.nn.parameter import Parameter
from frontend.nn.state.models import HOOKS, TRANSIENT
from frontend.nn.utils import parametrizations, parametrize, rnn
from frontend.optim.clipping import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)  # fmt: skip
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.nn.module import Module

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init",
    "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip

_norms = later("frontend.torch.parametrizations")


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return the elements of all parameters, at least one, one after the other, in a vector."""
    return Tensor.cat(*[p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Assign the elements of a vector to parameters, cast to their dtypes, and compute them.

    Raises `UsageError` for another number of elements.
    """
    every = list(parameters)
    total, at = sum(p.numel() for p in every), 0
    if vec.shape != (total,):
        raise UsageError(f"vector_to_parameters: wanted {total} elements, saw the shape {vec.shape}")
    for p in every:
        p.assign(vec[at : at + p.numel()].reshape(p.shape).cast(p.dtype))
        at += p.numel()
    Tensor.realize(*every)


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Return a module; its first values are those of its class, and not to be used. Raises as the class."""
    return module_cls(*args, **kwargs)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace a weight by `NAME_g`, its norms, and `NAME_v`; arguments: `parametrizations.weight_norm`."""
    made = _norms.WeightNorm(dim)
    g, v = made.right_inverse(getattr(module, name))
    return _by_hook(module, name, {"g": g, "v": v}, made)


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Replace a weight by `NAME_orig`, which is divided by its greatest singular value before each call.

    `dim` is that of `parametrizations.spectral_norm`.
    """
    weight = getattr(module, name)
    axis = int("ConvTranspose" in type(module).__name__) if dim is None else dim
    made = _norms.SpectralNorm(weight, n_power_iterations, axis, eps)
    for part in "uv":
        module.register_buffer(f"{name}_{part}", vars(made).get(f"_{part}"))
    return _by_hook(module, name, {"orig": weight}, made)


def _renew(name: str, parts: list[str], made: Module, module: Module, _args: Any) -> None:
    made.train(module.training)
    setattr(module, name, made(*[getattr(module, part) for part in parts]))


def _by_hook(module: Module, name: str, parts: dict[str, Tensor], made: Module) -> Module:
    """Replace a parameter by others, `NAME_KEY` for each key, and compute it from them before each call.

    The hook has no closure: a copy of the module has a copy of `made`, with its buffers.
    """
    hook = partial(_renew, name, [f"{name}_{key}" for key in parts], made)
    del vars(module)[name]
    for key, value in parts.items():
        setattr(module, f"{name}_{key}", Parameter(value.detach().clone().realize()))
    vars(module).setdefault(TRANSIENT, set()).add(name)
    module.register_forward_pre_hook(hook)
    hook(module, ())
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo `weight_norm` or `spectral_norm`; the weight keeps its value. Raises `UsageError` without one."""
    hooks = vars(module)[HOOKS].before if HOOKS in vars(module) else {}
    found = [n for n, (hook, _) in hooks.items() if getattr(hook, "func", 0) is _renew and name in hook.args]
    if not found:
        raise UsageError(f"{type(module).__name__}: no norm computes the parameter {name!r}")
    mode, module.training = module.training, False
    hook = hooks.pop(found[-1])[0]
    hook(module, ())
    module.training = mode
    value = Parameter(getattr(module, name).detach().clone().realize())
    for part in {*hook.args[1], f"{name}_u", f"{name}_v"}:
        vars(module).pop(part, None)
    vars(module)[TRANSIENT].discard(name)
    setattr(module, name, value)
    return module


remove_spectral_norm = remove_weight_norm


answer_module(globals(), __name__)
