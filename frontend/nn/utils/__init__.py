"""PyTorch's `nn.utils`: clipping of gradients, parameters as one vector, sequences of several lengths.

Not here: schedules of learning rates (`frontend.optim.schedules`). Next: `rnn`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from frontend.arguments.aliases import answer_module
from frontend.later import later
from frontend.nn.utils import parametrizations, parametrize, rnn
from frontend.optim.schedules import clip_grad_norm_, clip_grad_value_
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.nn.module import Module

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "parametrizations", "parametrize",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm", "vector_to_parameters",
    "weight_norm",
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


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace a weight by `NAME_g`, its norms, and `NAME_v`, its direction; see `parametrizations`."""
    made = _norms.WeightNorm(dim)
    g, v = made.right_inverse(getattr(module, name))
    found: Module = _norms.by_hook(module, name, {"g": g, "v": v}, made)
    return found


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Replace a weight by `NAME_orig`, which is divided by its greatest singular value before each call."""
    weight = getattr(module, name)
    axis = int("ConvTranspose" in type(module).__name__) if dim is None else dim
    made = _norms.SpectralNorm(weight, n_power_iterations, axis, eps)

    module.register_buffer(f"{name}_u", made.__dict__.get("_u"))
    module.register_buffer(f"{name}_v", made.__dict__.get("_v"))

    def compute(original: Tensor) -> Tensor:
        made.training = module.training
        found: Tensor = made(original)
        return found

    found: Module = _norms.by_hook(module, name, {"orig": weight}, compute)
    return found


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo `weight_norm` or `spectral_norm`; the weight keeps its value. Raises `UsageError` without one."""
    found: Module = _norms.unhook(module, name)
    return found


remove_spectral_norm = remove_weight_norm
answer_module(globals(), __name__)
