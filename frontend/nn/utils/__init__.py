"""PyTorch's `nn.utils`: clipping of gradients, parameters as one vector, sequences of several lengths.

Not here: schedules of learning rates (`frontend.optim.schedules`). Next: `rnn`.
"""

from __future__ import annotations

from collections.abc import Iterable

from frontend.arguments.aliases import answer_module
from frontend.nn.utils import rnn
from frontend.optim.schedules import clip_grad_norm_, clip_grad_value_
from frontend.tensor import Tensor
from hcq.errors import UsageError

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "rnn", "vector_to_parameters"]


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


answer_module(globals(), __name__)
