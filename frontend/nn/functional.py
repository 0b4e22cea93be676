"""PyTorch's `torch.nn.functional`: `import frontend.nn.functional as F`, `F.relu(x)`.

Most functions are methods of `Tensor` with the same arguments (`METHODS`), or layers of `nn` that are made
for the call (`LAYERS`). Functions whose arguments differ from those of the method are written here: the
weight of `linear`, for example, is (outputs, inputs). Errors are those of the methods and layers:
`UsageError` for values and shapes that do not fit, `UsageTypeError` for arguments of other classes,
`UsageIndexError` for an axis that does not exist. Another name raises `AttributeError`.

Not here: the methods (`frontend.ops`), the layers (`frontend.nn`). Next: `losses`.
"""

# ruff: noqa: I001, FBT001, FBT002 - lists of names stand in rows; the field's signatures

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from frontend.arguments.aliases import accepts_aliases, answer_module, named_at
from frontend.nn import pools
from frontend.nn.checks import layer_input
from frontend.nn.functions import cosine_similarity, log_softmax, pairwise_distance, softmax, softmin
from frontend.nn.layers import dropout1d, dropout2d, dropout3d, looked_up
from frontend.nn.losses import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss, cross_entropy,
    gaussian_nll_loss, hinge_embedding_loss, huber_loss, kl_div, l1_loss, margin_ranking_loss, mse_loss,
    multi_margin_loss, multilabel_soft_margin_loss, nll_loss, poisson_nll_loss, smooth_l1_loss,
    soft_margin_loss, triplet_margin_loss, triplet_margin_with_distance_loss,
)  # fmt: skip
from frontend.nn.module import wide
from frontend.nn.normalisation import BatchNorm, GroupNorm, LocalResponseNorm, RMSNorm, affine_of
from frontend.arguments.checks import axis_of, repeated, sizes, whole
from frontend.arguments.conversion import flag, number
from frontend.tensor import Tensor
from hcq.errors import UsageError
from hcq.names import AbsentNameError
from collections.abc import Callable, Iterable, Sequence

if TYPE_CHECKING:
    from frontend.ops.convolutions import Sizes

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy", "dropout1d", "dropout2d", "dropout3d", "gaussian_nll_loss", "hinge_embedding_loss",
    "huber_loss", "kl_div", "l1_loss", "log_softmax", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "pairwise_distance", "poisson_nll_loss", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip

METHODS: Final = frozenset({
    *("avg_pool2d", "celu", "conv2d", "conv_transpose2d", "elu", "gelu", "glu", "hardshrink", "hardsigmoid"),
    *("hardswish", "hardtanh", "interpolate", "leaky_relu"),
    *("logsigmoid", "max_pool2d", "max_unpool2d", "mish", "normalize", "one_hot", "prelu"),
    *("relu", "relu6", "scaled_dot_product_attention", "selu", "sigmoid", "silu"),
    *("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "selu_", "threshold_"),
    *("softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold"),
})  # fmt: skip
"""Names of methods that have the arguments and the meaning of PyTorch's functions."""
LAYERS: Final[dict[str, type[Any]]] = {
    **{f"adaptive_avg_pool{n}d": getattr(pools, f"AdaptiveAvgPool{n}d") for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": getattr(pools, f"AdaptiveMaxPool{n}d") for n in (1, 2, 3)},
    "fold": pools.Fold,
    "unfold": pools.Unfold,
    "pixel_shuffle": pools.PixelShuffle,
    "pixel_unshuffle": pools.PixelUnshuffle,
    "local_response_norm": LocalResponseNorm,
    "channel_shuffle": pools.ChannelShuffle,
}
"""Name of a function of one tensor -> the layer that computes it; its other arguments are the settings."""


def _of_method(name: str, method: str | None = None) -> Callable[..., Any]:
    """Return a method as a function, whose first argument may also be an array or lists.

    It has an argument `inplace` where the method has a form that changes its tensor.
    """
    call: Any = getattr(Tensor, method or name)
    changing: Any = getattr(Tensor, f"{name}_", None)

    @wraps(call)
    def function(input: Tensor, *args: Any, **names: Any) -> Any:
        if changing is not None and flag(names.pop("inplace", False), f"{name}, inplace"):
            return changing(input, *args, **names)
        return call(layer_input(name, input), *args, **names)

    return function


conv1d, conv3d = _of_method("conv1d", "conv2d"), _of_method("conv3d", "conv2d")
conv_transpose1d = _of_method("conv_transpose1d", "conv_transpose2d")
conv_transpose3d = _of_method("conv_transpose3d", "conv_transpose2d")


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias: (..., inputs) to (..., outputs); the weight is (outputs, inputs)."""
    return input.linear(weight.transpose(0, 1) if weight.ndim == 2 else weight, bias)


def embedding(  # noqa: PLR0917 - the field's signature
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return rows of the table `weight`, (rows, columns), at integers, with the settings of `nn.Embedding`.

    Raises as `nn.Embedding`, and `UsageError` for a table that does not have two axes.
    """
    input, weight = layer_input("embedding", input), layer_input("embedding", weight)
    flag(sparse, "embedding, sparse")
    if weight.ndim != 2:
        raise UsageError(f"embedding: wanted a table of two axes, saw the shape {weight.shape}")
    row = None if padding_idx is None else whole(padding_idx, "embedding, padding_idx")
    if row is not None and not -weight.shape[0] <= row < weight.shape[0]:
        raise UsageError(f"embedding, padding_idx: wanted one of {weight.shape[0]} rows, saw {row}")
    row = None if row is None else row % weight.shape[0]
    shares = flag(scale_grad_by_freq, "embedding, scale_grad_by_freq")
    return looked_up(weight, input, row, max_norm, number(norm_type, "embedding, norm_type"), shares)


def pad(
    input: Tensor,
    pad: Sequence[int],
    mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
    value: float | None = None,
) -> Tensor:
    """Return the input padded by flat (before, after) pairs, the last axis first; see `Tensor.pad`.

    `value` None: 0.
    """
    return layer_input("pad", input).pad(pad, 0.0 if value is None else value, mode)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return each element divided by 1 - p with the probability 1 - p, else 0; see `Tensor.dropout`.

    Without `training` the result is the input itself. `inplace`: the input is changed, and returned.
    """
    found = input.dropout(p, training)
    return input.copy_(found) if flag(inplace, "dropout, inplace") else found


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return the input normalised over its last axes, times weight, plus bias; see `nn.LayerNorm`."""
    found = wide(input).layernorm(_last_axes(input, normalized_shape, "layer_norm"), eps)
    return affine_of(found, input, weight, bias)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return the input divided by its root mean square over its last axes, times weight.

    The settings are those of `nn.RMSNorm`.
    """
    _last_axes(input, normalized_shape, "rms_norm")
    layer = RMSNorm(tuple(normalized_shape), eps, elementwise_affine=False)
    layer.weight = weight
    return layer.forward(input)


def _last_axes(input: Tensor, normalized_shape: Sequence[int], what: str) -> tuple[int, ...]:
    shape = sizes((tuple(normalized_shape),), f"{what}, normalized_shape")
    if not shape or input.shape[-len(shape) :] != shape:
        raise UsageError(f"{what}: wanted the last axes {shape}, saw the shape {input.shape}")
    return tuple(range(-len(shape), 0))


def batch_norm(  # noqa: PLR0917 - the field's signature
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (batch, channels, ...) normalised by channel; see `nn.BatchNorm`.

    With `training` the batch's statistics are used, and assigned to the running ones in part, if these are
    given. Otherwise the running statistics are used. Raises `UsageError` if they are missing then, and for
    fewer than two axes.
    """
    if input.ndim < 2 or (not training and (running_mean is None or running_var is None)):
        raise UsageError(
            f"batch_norm: wanted (batch, channels, ...) and, unless training, running statistics, "
            f"saw the shape {input.shape}"
        )
    layer = BatchNorm(
        input.shape[1], eps, momentum, affine=False, track_running_stats=running_mean is not None
    )
    layer.weight, layer.bias, layer.training = weight, bias, flag(training, "batch_norm, training")
    if running_mean is not None and running_var is not None:
        layer.running_mean, layer.running_var = running_mean, running_var
    with Tensor.train(layer.training):
        found: Tensor = layer.forward(input)
    return found


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return (batch, channels, ...) normalised in groups of channels, times weight, plus bias.

    See `nn.GroupNorm`. Raises `UsageError` below two axes.
    """
    if input.ndim < 2:
        raise UsageError(f"group_norm: wanted (batch, channels, ...), saw the shape {input.shape}")
    layer = GroupNorm(num_groups, input.shape[1], eps, affine=False)
    layer.weight, layer.bias = weight, bias
    return layer.forward(input)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, *, dim: int = -1) -> Tensor:
    """Return a draw of the Gumbel-softmax distribution along an axis, at the temperature `tau`, not 0.

    With `hard` it is one-hot, and its gradient is that of the soft draw.
    """
    noise = logits.full_like(0.0).clone().exponential_().log()
    soft: Tensor = ((logits - noise) / tau).softmax(dim)
    if not flag(hard, "gumbel_softmax, hard"):
        return soft
    axis = axis_of(dim, logits.shape, "gumbel_softmax")
    places = Tensor.arange(logits.shape[axis], device=logits.device)
    places = places.reshape(-1, *(1,) * (logits.ndim - axis - 1))
    return (places == soft.argmax(axis, keepdim=True)).cast(soft.dtype) - soft.detach() + soft


def _pool(method: str, rank: int) -> Callable[..., Any]:
    """Return a pool over the last `rank` axes as a function; the kernel may be one number."""

    def pool(input: Tensor, kernel_size: Sizes, *args: Any, **names: Any) -> Any:
        return getattr(input, method)(repeated(kernel_size, rank, pool.__name__), *args, **names)

    pool.__name__ = f"{method[:-2]}{rank}d"
    pool.__doc__ = f"Return `Tensor.{method}` over the last axes, {rank} of them."
    return pool


avg_pool1d, avg_pool3d = _pool("avg_pool2d", 1), _pool("avg_pool2d", 3)
max_pool1d, max_pool3d = _pool("max_pool2d", 1), _pool("max_pool2d", 3)


def _of_layer(name: str) -> Callable[..., Any]:
    """Return the function of a layer that is made for each call."""

    def function(input: Tensor, *args: Any, **names: Any) -> Any:
        return LAYERS[name](*args, **names)(input)

    function.__name__ = name
    function.__doc__ = f"Return `nn.{LAYERS[name].__name__}` of the input, set by the other arguments."
    return function


answer_module(globals(), "frontend.nn.")


def __getattr__(name: str) -> Any:
    """Return a function that is made when first used. Raises `AbsentNameError`."""
    if name in METHODS or name in LAYERS:
        function = _of_method(name) if name in METHODS else _of_layer(name)
        globals()[name] = named_at(__name__, name, accepts_aliases(function))
        return globals()[name]
    others = import_module("frontend.torch.functions")
    if name in others.FUNCTIONS or name in others.LATER:
        home = others.LATER.get(name)
        found = getattr(import_module(home), name) if home else others.FUNCTIONS[name]
        globals()[name] = named_at(__name__, name, accepts_aliases(found))
        return globals()[name]
    raise AbsentNameError("module 'frontend.nn.functional'", name, lambda: _places(name, others))


def _places(name: str, others: Any) -> list[tuple[str, Iterable[str]]]:
    """Return the functions of this module and the methods, those first that have the very name."""
    own = {*__all__, *METHODS, *LAYERS, *others.FUNCTIONS, *others.LATER}
    own |= {n for n, made in globals().items() if callable(made) and n[0].islower()}
    found: list[tuple[str, Iterable[str]]] = [("", own), ("Tensor.", dir(Tensor))]
    return found[::-1] if hasattr(Tensor, name) else found
