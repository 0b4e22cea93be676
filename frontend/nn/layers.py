"""Layers: plain classes whose parameters are tensor attributes.

Weights start uniform in ±1/sqrt(inputs) unless a layer documents another range. They are float32 on the
default device. A layer is called with a tensor, an array or lists; the result is a pending tensor on the
device of the weights. Sizes that no layer can have, and inputs whose axes do not fit the weights, raise
`UsageError`; what holds no numbers raises `UsageTypeError`.

Not here: the operations (`frontend.ops.nnops`), parameters by name (`state`), training steps (`optim`).
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.nn.settings import number_within
from frontend.ops.along import rows
from frontend.ops.arguments import repeated, representable, whole
from frontend.ops.convolutions import spatial_padding
from frontend.parameters import flag, shown
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.ops.convolutions import Sizes


# -- what layers are given ------------------------------------------------------------------------------
def _count(what: str, value: int) -> int:
    """Return a whole number of at least 1."""
    if representable(whole(value, what)) < 1:
        raise UsageError(f"{what}: wanted at least 1, saw {value}")
    return value


def _counts(what: str, value: Sizes, count: int) -> tuple[int, ...]:
    return tuple([_count(what, n) for n in repeated(value, count, what)])


def _padding(what: str, value: Sizes) -> Sizes:
    """Return padding that the convolution will take."""
    spatial_padding(value, 2, what)
    return value


def _input(layer: object, x: Any, like: Tensor | None = None) -> Tensor:
    """Return what a layer is applied to; arrays and lists become a tensor on the device of its weights."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, (list, tuple)) or hasattr(x, "__array__"):
        return Tensor(x, device=None if like is None else like.device)
    raise UsageTypeError(
        f"{type(layer).__name__} needs a tensor, an array or lists of numbers, saw {shown(x)}"
    )


def _axes_at_least(layer: object, x: Tensor, count: int) -> None:
    if x.ndim < count:
        raise UsageError(f"{type(layer).__name__} needs at least {count} axes, saw the shape {x.shape}")


def _wants_channels(layer: object, x: Tensor, channels: int) -> None:
    """Refuse an input whose axis 1 is not the channels of a layer."""
    _axes_at_least(layer, x, 2)
    if x.shape[1] != channels:
        raise UsageError(
            f"{type(layer).__name__} has {channels} channels, axis 1 of the input {x.shape} has {x.shape[1]}"
        )


# -- layers ---------------------------------------------------------------------------------------------


class Linear:
    """The affine map x @ weight.T + bias over the last axis.

    `in_features`, `out_features`: sizes of the last axis of input and result, at least 1. `weight` is
    (out_features, in_features), `bias` (out_features,) or None without `bias`; both start uniform in
    ±1/sqrt(in_features).

        Linear(784, 10)(images.flatten(1))      # (batch, 784) -> (batch, 10)

    Raises `UsageError` for sizes below 1.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:  # noqa: FBT001, FBT002 - the field's signature
        _count("Linear, out_features", out_features)
        bound = 1 / math.sqrt(_count("Linear, in_features", in_features))
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        bias = flag(bias, "Linear, bias")
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (..., in_features); return (..., out_features) in the promoted dtype.

        Raises `UsageError` when the last axis has another size.
        """
        x = _input(self, x, self.weight)
        inputs = self.weight.shape[1]
        if x.shape[-1:] != (inputs,):
            raise UsageError(f"Linear has {inputs} inputs, the last axis of {x.shape} is another")
        return x.linear(self.weight.transpose(), self.bias)


class Conv2d:
    """Convolution over (batch, channels, height, width): see `Tensor.conv2d`.

    `kernel_size`, `stride`, `dilation`: a whole number, or one for each of (height, width). `padding`: zeros
    on both sides, a number, one for each axis, or flat (before, after) pairs, last axis first. `weight` is
    (out_channels, in_channels / groups, *kernel_size), `bias` (out_channels,) or None; both start uniform in
    ±1/sqrt(in_channels / groups * kernel elements).

    Raises `UsageError` for sizes below 1 and for channels that `groups` does not divide, `UsageTypeError` for
    padding by name ("same").
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            _count(f"Conv2d, {name}", value)
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"Conv2d: {in_channels} inputs and {out_channels} outputs do not divide into {groups} groups"
            )
        kernel = _counts("Conv2d, kernel_size", kernel_size, 2)
        _counts("Conv2d, stride", stride, 2)
        _counts("Conv2d, dilation", dilation, 2)
        self.stride, self.padding = stride, _padding("Conv2d", padding)
        self.dilation, self.groups = dilation, groups
        bound = 1 / math.sqrt(in_channels // groups * math.prod(kernel))
        self.weight = Tensor.uniform(out_channels, in_channels // groups, *kernel, low=-bound, high=bound)
        bias = flag(bias, "Conv2d, bias")
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, in_channels, h, w); return (batch, out_channels, h', w').

        h' is (h + padding - dilation * (kernel - 1) - 1) // stride + 1, with the padding of both
        sides; w' alike. Raises `UsageError` for another number of channels, and for a padded input
        smaller than the kernel.
        """
        x = _input(self, x, self.weight)
        _wants_channels(self, x, self.weight.shape[1] * self.groups)
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding)


class ConvTranspose2d:
    """Transposed convolution, the gradient of `Conv2d` by its input: see `Tensor.conv_transpose2d`.

    Arguments are those of `Conv2d`; `output_padding` adds rows and columns at the end of the result. `weight`
    is (in_channels, out_channels / groups, *kernel_size), `bias` (out_channels,) or None.

    Raises `UsageError` for sizes below 1 and for channels that `groups` does not divide.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            _count(f"ConvTranspose2d, {name}", value)
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"ConvTranspose2d: {in_channels} inputs and {out_channels} outputs do not divide into "
                f"{groups} groups"
            )
        kernel = _counts("ConvTranspose2d, kernel_size", kernel_size, 2)
        _counts("ConvTranspose2d, stride", stride, 2)
        _counts("ConvTranspose2d, dilation", dilation, 2)
        repeated(output_padding, 2, "ConvTranspose2d, output_padding")
        self.stride, self.padding, self.output_padding = (
            stride,
            _padding("ConvTranspose2d", padding),
            output_padding,
        )
        self.dilation, self.groups = dilation, groups
        bound = 1 / math.sqrt(out_channels // groups * math.prod(kernel))
        self.weight = Tensor.uniform(in_channels, out_channels // groups, *kernel, low=-bound, high=bound)
        bias = flag(bias, "ConvTranspose2d, bias")
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, in_channels, h, w); return (batch, out_channels, h', w').

        h' is (h - 1) * stride - padding + dilation * (kernel - 1) + output_padding + 1, with the
        padding of both sides; w' alike. Raises `UsageError` for another number of channels.
        """
        x = _input(self, x, self.weight)
        _wants_channels(self, x, self.weight.shape[0])
        return x.conv_transpose2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding, self.output_padding
        )


class BatchNorm:
    """Batch normalisation along axis 1, of any rank.

    Inside `Tensor.train()` it normalises by the batch's mean and variance and moves the running ones towards
    them by `momentum`; outside it uses the running ones, or the batch's without `track_running_stats`. `eps`
    is added to the variance. `weight` and `bias` are (num_features,), 1 and 0 at first, None without
    `affine`. `running_mean`, `running_var` and `num_batches_tracked` are part of the state dictionary and
    require no gradient; new values are computed with the optimiser's step, or at the next realize.

    Raises `UsageError` for settings out of range.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        track_running_stats: bool = True,  # noqa: FBT001, FBT002 - as above
        momentum: float = 0.1,
    ) -> None:
        self.num_features = _count("BatchNorm, num_features", num_features)
        self.eps = number_within("BatchNorm, eps", eps, 0.0)
        self.momentum = number_within("BatchNorm, momentum", momentum, 0.0, math.nextafter(1.0, 2.0))
        self.track_running_stats = flag(track_running_stats, "BatchNorm, track_running_stats")
        affine = flag(affine, "BatchNorm, affine")
        self.weight = Tensor.ones(num_features) if affine else None
        self.bias = Tensor.zeros(num_features) if affine else None
        self.num_batches_tracked = Tensor.zeros(1, dtype=dtypes.int32)
        self.running_mean = Tensor.zeros(num_features)
        self.running_var = Tensor.ones(num_features)
        for t in (self.num_batches_tracked, self.running_mean, self.running_var):
            t.requires_grad = False

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, num_features, ...); return the same shape.

        Raises `UsageError` for fewer than two axes or another number of channels.
        """
        x = _input(self, x, self.running_mean)
        _wants_channels(self, x, self.num_features)
        if not Tensor.training and self.track_running_stats:
            return x.batchnorm(
                self.weight, self.bias, self.running_mean, (self.running_var + self.eps).rsqrt()
            )
        axes = tuple([i for i in range(x.ndim) if i != 1])
        mean = x.mean(axes)
        distance = x - mean.reshape(1, -1, *(1,) * (x.ndim - 2))
        var = (distance * distance).mean(axes)
        if Tensor.training and self.track_running_stats:
            self._learn(mean.detach(), var.detach(), x.numel() // max(1, x.shape[1]))
        return x.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())

    def _learn(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Move the running statistics towards the batch's.

        Computed at the next realize of anything assigned.
        """
        keep = 1 - self.momentum
        self.running_mean.assign(self.running_mean * keep + mean * self.momentum)
        self.running_var.assign(self.running_var * keep + var * (self.momentum * count / max(1, count - 1)))
        self.num_batches_tracked += 1


class LayerNorm:
    """Normalisation over the last axes, then weight and bias.

    `normalized_shape`: the sizes of those axes, a number for one. `eps` is added to the variance. `weight`
    and `bias` have that shape, 1 and 0 at first, None without `elementwise_affine`.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        rank = len(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else 1
        self.normalized_shape = _counts("LayerNorm, normalized_shape", normalized_shape, rank)
        self.axes = tuple(range(-len(self.normalized_shape), 0))
        self.eps = number_within("LayerNorm, eps", eps, 0.0)
        elementwise_affine = flag(elementwise_affine, "LayerNorm, elementwise_affine")
        self.weight = Tensor.ones(*self.normalized_shape) if elementwise_affine else None
        self.bias = Tensor.zeros(*self.normalized_shape) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (..., *normalized_shape); return the same shape.

        Raises `UsageError` when the last axes have other sizes.
        """
        x = _input(self, x, self.weight)
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise UsageError(f"LayerNorm over {self.normalized_shape}: the last axes of {x.shape} are others")
        y = x.layernorm(self.axes, self.eps)
        if self.weight is None or self.bias is None:
            return y
        return y * self.weight + self.bias


class RMSNorm:
    """Division by the root mean square over the last axis, times a weight.

    `dim`: the size of that axis. `eps` is added to the mean square. `weight` is (dim,), 1 at first.
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        self.eps = number_within("RMSNorm, eps", eps, 0.0)
        self.weight = Tensor.ones(_count("RMSNorm, dim", dim))

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (..., dim); return the same shape.

        Raises `UsageError` when the last axis has another size.
        """
        x = _input(self, x, self.weight)
        if x.shape[-1:] != self.weight.shape:
            raise UsageError(f"RMSNorm over {self.weight.shape}: the last axis of {x.shape} is another")
        return x.rmsnorm(-1, self.eps) * self.weight


class GroupNorm:
    """Normalisation over groups of channels, then weight and bias for each channel.

    Mean and variance are of each of `num_groups` groups of neighbouring channels, with all later axes. `eps`
    is added to the variance. `weight` and `bias` are (num_channels,), 1 and 0 at first, None without
    `affine`.

    Raises `UsageError` for sizes below 1 and for channels that the groups do not divide.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        if _count("GroupNorm, num_channels", num_channels) % _count("GroupNorm, num_groups", num_groups):
            raise UsageError(f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps = number_within("GroupNorm, eps", eps, 0.0)
        affine = flag(affine, "GroupNorm, affine")
        self.weight = Tensor.ones(num_channels) if affine else None
        self.bias = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, num_channels, ...); return the same shape.

        Raises `UsageError` for fewer than two axes or another number of channels.
        """
        x = _input(self, x, self.weight)
        _wants_channels(self, x, self.num_channels)
        y = x.reshape(x.shape[0], self.num_groups, -1).layernorm(-1, self.eps).reshape(x.shape)
        if self.weight is None or self.bias is None:
            return y
        shape = (1, -1, *(1,) * (x.ndim - 2))
        return y * self.weight.reshape(shape) + self.bias.reshape(shape)


class Embedding:
    """Rows of a table, selected by integers: a tensor, an array or lists of them.

    `weight` is (vocab_size, embed_size), uniform in ±sqrt(6 / (vocab_size + embed_size)) at first.

        Embedding(1000, 64)([[1, 2, 3]])      # (1, 3) -> (1, 3, 64)

    An integer outside 0..vocab_size-1 raises `IndexError` where its value is known on the host, or under
    `HCQ_VALIDATE=1`; otherwise its row is zeros.
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        rows, columns = (
            _count("Embedding, vocab_size", vocab_size),
            _count("Embedding, embed_size", embed_size),
        )
        self.weight = Tensor.glorot_uniform(rows, columns)

    def __call__(self, index: Tensor) -> Tensor:
        """Apply the layer to integers of any shape; return (*shape, embed_size), in the dtype of the weight.

        Raises `UsageTypeError` for floats and bools.
        """
        index = _input(self, index, self.weight)
        if not index.dtype.is_int:
            raise UsageTypeError(f"Embedding needs integers, saw {index.dtype.name}; cast the index")
        return rows(self.weight, index)


class Dropout:
    """Inside `Tensor.train()`: set a share `p` of the elements to 0, scale the rest by 1 / (1 - p).

    Raises `UsageError` for p outside 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = number_within("Dropout, p", p, 0.0, math.nextafter(1.0, 2.0))

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to a tensor of any shape; outside `Tensor.train()` return `x` itself."""
        return _input(self, x).dropout(self.p)
