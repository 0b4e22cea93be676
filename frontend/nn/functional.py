"""PyTorch's `torch.nn.functional`: `import frontend.nn.functional as F`, `F.relu(x)`.

Most functions are methods of `Tensor` with the same arguments (`METHODS`). Those whose methods have others
are written here: the weights of `linear` are (outputs, inputs), as PyTorch has them.

Not here: what the methods do (`frontend.ops`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frontend.ops.arguments import sizes
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

METHODS: Final = frozenset({
    *("avg_pool2d", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "conv2d", "elu"),
    *("cross_entropy", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "huber_loss"),
    *("interpolate", "kl_div", "l1_loss", "leaky_relu", "log_softmax", "logsigmoid", "max_pool2d", "mish"),
    *("max_unpool2d", "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "prelu", "relu", "relu6"),
    *("scaled_dot_product_attention", "sigmoid", "silu", "smooth_l1_loss", "softmax", "softmin", "softplus"),
    *("selu", "softshrink", "softsign", "tanh", "tanhshrink", "threshold"),
})  # fmt: skip
"""Names of methods with the meaning of PyTorch's functions."""


conv1d = conv3d = Tensor.conv2d


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias; the weight is (outputs, inputs)."""
    return input.linear(weight.transpose(0, 1) if weight.ndim == 2 else weight, bias)


def embedding(input: Tensor, weight: Tensor) -> Tensor:
    """Return the rows of a table that integers name."""
    return weight[input]


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:  # noqa: FBT001, FBT002 - the field's signature
    """Return elements with probability 1 - p, divided by it, else 0; the input itself unless `training`."""
    return input.dropout(p, training)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return the input with mean 0 and variance 1 over its last axes, scaled and shifted."""
    shape = sizes((tuple(normalized_shape),), "layer_norm, normalized_shape")
    if not shape or input.shape[-len(shape) :] != shape:
        raise UsageError(f"layer_norm: wanted the last axes {shape}, saw the shape {input.shape}")
    found = input.layernorm(tuple(range(-len(shape), 0)), eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def __getattr__(name: str) -> Any:
    if name in METHODS:
        return getattr(Tensor, name)
    raise AttributeError(
        f"module 'frontend.nn.functional' has no attribute {name!r}"
        + (f"; there is Tensor.{name}, whose arguments may differ" if hasattr(Tensor, name) else "")
    )
