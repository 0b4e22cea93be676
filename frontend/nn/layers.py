"""Layers: plain classes whose parameters are tensor attributes.

Weights start uniform in ±1/sqrt(inputs) unless said otherwise.
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from frontend.ops.arguments import repeated
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.ops.nnops import Sizes


class Linear:
    """x @ weight.T + bias, with a weight of (outputs, inputs)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:  # noqa: FBT001, FBT002 - the field's signature
        bound = 1 / math.sqrt(in_features)
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.linear(self.weight.transpose(), self.bias)


class Conv2d:
    """Convolution over (batch, channels, height, width): see `Tensor.conv2d`."""

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
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"Conv2d: {in_channels} inputs and {out_channels} outputs do not divide into {groups} groups"
            )
        kernel = repeated(kernel_size, 2, "Conv2d, kernel_size")
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        bound = 1 / math.sqrt(in_channels // groups * math.prod(kernel))
        self.weight = Tensor.uniform(out_channels, in_channels // groups, *kernel, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding)


class ConvTranspose2d:
    """Transposed convolution with a weight of (inputs, outputs / groups, *kernel).

    See `Tensor.conv_transpose2d`.
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
        kernel = repeated(kernel_size, 2, "ConvTranspose2d, kernel_size")
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups = dilation, groups
        bound = 1 / math.sqrt(out_channels // groups * math.prod(kernel))
        self.weight = Tensor.uniform(in_channels, out_channels // groups, *kernel, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.conv_transpose2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding, self.output_padding
        )


class BatchNorm:
    """Batch normalisation along axis 1, of any rank.

    While training it uses the batch's statistics and learns the running ones.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        track_running_stats: bool = True,  # noqa: FBT001, FBT002 - as above
        momentum: float = 0.1,
    ) -> None:
        self.eps, self.momentum, self.track_running_stats = eps, momentum, track_running_stats
        self.weight = Tensor.ones(num_features) if affine else None
        self.bias = Tensor.zeros(num_features) if affine else None
        self.num_batches_tracked = Tensor.zeros(1, dtype=dtypes.int32)
        self.running_mean = Tensor.zeros(num_features)
        self.running_var = Tensor.ones(num_features)
        for t in (self.num_batches_tracked, self.running_mean, self.running_var):
            t.requires_grad = False

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
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
    """Normalisation over the last axes, then weight and bias."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        self.normalized_shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.axes = tuple(range(-len(self.normalized_shape), 0))
        self.eps = eps
        self.weight = Tensor.ones(*self.normalized_shape) if elementwise_affine else None
        self.bias = Tensor.zeros(*self.normalized_shape) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise UsageError(f"LayerNorm over {self.normalized_shape}: the last axes of {x.shape} are others")
        y = x.layernorm(self.axes, self.eps)
        if self.weight is None or self.bias is None:
            return y
        return y * self.weight + self.bias


class RMSNorm:
    """Division by the root mean square over the last axis, times a weight."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        self.eps = eps
        self.weight = Tensor.ones(dim)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.rmsnorm(-1, self.eps) * self.weight


class GroupNorm:
    """Normalisation over groups of channels, then weight and bias a channel."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        if num_channels % num_groups:
            raise UsageError(f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.eps = num_groups, eps
        self.weight = Tensor.ones(num_channels) if affine else None
        self.bias = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        y = x.reshape(x.shape[0], self.num_groups, -1).layernorm(-1, self.eps).reshape(x.shape)
        if self.weight is None or self.bias is None:
            return y
        shape = (1, -1, *(1,) * (x.ndim - 2))
        return y * self.weight.reshape(shape) + self.bias.reshape(shape)


class Embedding:
    """Rows of a table, chosen by integers."""

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, index: Tensor) -> Tensor:
        """Apply the layer."""
        if not index.dtype.is_int:
            raise UsageError(f"Embedding wants integers, saw {index.dtype.name}; cast the index")
        return self.weight.take(index)


class Dropout:
    """See `Tensor.dropout`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.dropout(self.p)
