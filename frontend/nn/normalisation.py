"""Normalisation layers: over the batch, the last axes, or groups of channels.

Weights are float32 on the default device. An input may be a tensor, an array or lists of numbers; anything
else raises `UsageTypeError`. 16-bit inputs are computed in float32, and the result is rounded once. Settings
out of range raise `UsageError`.

Not here: other layers (`layers`). Next: `frontend.ops.normalization`, the operations.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import math
from typing import Any, Final

from compiler.dtype import dtypes
from frontend.arguments.conversion import number, switch
from frontend.arguments.settings import number_within
from frontend.nn.checks import check_channels, check_values, count, counts, fill, layer_input, placed
from frontend.nn.module import Layer, in_training, raised, rounded, wide
from frontend.tensor import Tensor
from hcq.errors import UsageError

_STEP: Final = {"float64": 2.0**-52}
"""Name of a dtype -> the distance from 1 to the next number; other dtypes are computed in float32: 2**-23."""


def affine_of(
    y: Tensor, of: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...] | None = None
) -> Tensor:
    """Return y * weight + bias, in the dtype that `_finished` gives `of`, the layer's input.

    y is the normalised input, float32 if `of` has 16 bits. Weight and bias are reshaped to `shape`, None:
    not.
    """
    for t, scales in ((weight, True), (bias, False)):
        if t is not None:
            own = t if shape is None else t.reshape(shape)
            y = y * own if scales else y + own
    return _finished(y, of, weight, bias)


def _finished(y: Tensor, of: Tensor, *others: Tensor | None) -> Tensor:
    """Return y in the dtype of a 16-bit input, as PyTorch; else in that to which it and `others` promote."""
    return rounded(y, of, *(() if of.dtype.is_float and of.dtype.bits == 16 else others))


class _Norm(Layer):
    """Base of layers with `weight`, 1 at first, and `bias`, 0 at first."""

    weight: Tensor | None
    bias: Tensor | None

    def _begin(self, eps: float | None, affine: bool, bias: bool, *shape: int, name: str = "affine") -> None:
        """Set `eps`, and both tensors of a shape, which are None without `affine`, the argument `name`."""
        kind = type(self).__name__
        self.eps: Any = None if eps is None else number_within(f"{kind}, eps", eps, 0.0)
        setattr(self, name, switch(affine, f"{kind}, {name}"))
        self.weight = Tensor.ones(*shape) if affine else None
        self.bias = Tensor.zeros(*shape) if switch(bias, f"{kind}, bias") and affine else None

    def reset_parameters(self) -> None:
        """Assign first values."""
        fill(self, weight=1, bias=0)


class NormBase(_Norm):
    """Batch normalisation along axis 1, of any rank.

    In training mode it normalises by mean and variance of the batch. It then assigns to the running
    statistics (1 - momentum) times their value plus momentum times that of the batch, with n - 1 as divisor
    of the variance. In evaluation mode it uses the running statistics; without `track_running_stats`, which
    makes them None, always those of the batch. `eps` is added to the variance. `weight` and `bias` are
    (num_features,), 1 and 0 at first, None without `affine`. `running_mean`, `running_var` and
    `num_batches_tracked` are part of the state dictionary and require no gradient. Their new values are
    pending until they are read, realized or an optimiser steps.

    Raises `UsageError` unless eps >= 0 and 0 <= momentum <= 1. With `momentum` None the running
    statistics are means over all batches.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        kind, most = type(self).__name__, math.nextafter(1.0, 2.0)
        self.num_features = n = count(f"{kind}, num_features", num_features)
        self.momentum = None if momentum is None else number_within(f"{kind}, momentum", momentum, 0.0, most)
        self.track_running_stats = switch(track_running_stats, f"{kind}, track_running_stats")
        self._begin(eps, affine, bias, n)
        every: Any = (None, None, None)
        if self.track_running_stats:
            every = Tensor.zeros(n), Tensor.ones(n), Tensor.zeros((), dtype=dtypes.int64)
        self.running_mean, self.running_var, self.num_batches_tracked = every
        for t in every if self.track_running_stats else ():
            t.requires_grad = False
        placed(self, device, dtype)

    def extra_repr(self) -> str:
        """Return the settings."""
        affine = self.weight is not None
        text = (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={affine}, bias={affine}, "
        )
        return f"{text}track_running_stats={self.track_running_stats}"

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, num_features, ...); return the same shape.

        Raises `UsageError` for fewer than two axes, another number of channels, and one value a channel where
        the batch's statistics are used.
        """
        given = raised(layer_input(self, x, self.running_mean))
        check_channels(self, given, self.num_features)
        x = wide(given)
        training = in_training(self)
        if not training and self.track_running_stats:
            mean, var = self.running_mean, wide(self.running_var)
            y = x.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())
            return _finished(y, given, self.weight, self.bias, mean, self.running_var)
        check_values(self, x, x.shape[1])
        axes = tuple([i for i in range(x.ndim) if i != 1])
        mean = x.mean(axes)
        distance = x - mean.reshape(1, -1, *(1,) * (x.ndim - 2))
        var = (distance * distance).mean(axes)
        if training and self.track_running_stats:
            if x.numel():
                self._learn(mean.detach(), var.detach(), x.numel() // x.shape[1])
            self.num_batches_tracked += 1
        y = x.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())
        return _finished(y, given, self.weight, self.bias)

    def _learn(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Assign new running statistics, given mean and variance of a batch of `count` values a channel.

        They are pending. A captured function computes them in its next launch.
        """
        part: Any = self.momentum
        if part is None:
            part = 1 / (self.num_batches_tracked + 1).cast(mean.dtype)
        share = part * count / max(1, count - 1)
        for running, new in ((self.running_mean, mean * part), (self.running_var, var * share)):
            running.assign((running * (1 - part) + new).cast(running.dtype))

    def reset_running_stats(self) -> None:
        """Set the running statistics to their first values: mean 0, variance 1, no batches."""
        fill(self, running_mean=0, running_var=1, num_batches_tracked=0)

    def reset_parameters(self) -> None:
        """Assign first values, also to the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()


class BatchNorm(NormBase):
    """Batch normalisation; see `NormBase`."""


class BatchNorm1d(BatchNorm):
    """`BatchNorm` of (batch, channels) or (batch, channels, length)."""


class BatchNorm2d(BatchNorm):
    """`BatchNorm` of (batch, channels, height, width)."""


class BatchNorm3d(BatchNorm):
    """`BatchNorm` of (batch, channels, depth, height, width)."""


class _LastAxes(_Norm):
    """Base of normalisations over the last axes, of sizes `normalized_shape`; one number is one axis."""

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None,
        elementwise_affine: bool,
        bias: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        rank = len(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else 1
        self.normalized_shape = counts(f"{type(self).__name__}, normalized_shape", normalized_shape, rank)
        self.axes = tuple(range(-rank, 0))
        self._begin(eps, elementwise_affine, bias, *self.normalized_shape, name="elementwise_affine")
        placed(self, device, dtype)

    def _given(self, x: Any) -> Tensor:
        found, wanted = raised(layer_input(self, x, self.weight)), self.normalized_shape
        if not wanted or found.shape[-len(wanted) :] != wanted:
            raise UsageError(f"{type(self).__name__} over {wanted}: {found.shape} has other last axes")
        return found

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class LayerNorm(_LastAxes):
    """Normalisation by mean and variance over the last axes, then times weight plus bias.

    `normalized_shape`: the sizes of the last axes, or one number for one axis. `eps` is added to the
    variance. `weight` and `bias` have the shape `normalized_shape`, 1 and 0 at first; both are None without
    `elementwise_affine`, and bias is None with `bias=False`.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{super().extra_repr()}, bias={self.bias is not None}"

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (..., *normalized_shape); return the same shape.

        Raises `UsageError` when the last axes have other sizes.
        """
        x = self._given(x)
        return affine_of(wide(x).layernorm(self.axes, self.eps), x, self.weight, self.bias)


class RMSNorm(_LastAxes):
    """Division by the root mean square over the last axes, times a weight.

    `normalized_shape`: the sizes of the last axes, or one number for one axis. `eps` is added to the mean
    square; None: 2**-52 for float64, else 2**-23. `weight` has the shape `normalized_shape`, 1 at first; None
    without `elementwise_affine`.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, False, device, dtype)
        del self.bias

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (..., *normalized_shape); return the same shape.

        Raises `UsageError` when the last axes have other sizes.
        """
        x = self._given(x)
        y = wide(x).rmsnorm(self.axes, _STEP.get(x.dtype.name, 2.0**-23) if self.eps is None else self.eps)
        return affine_of(y, x, self.weight, None)


class GroupNorm(_Norm):
    """Normalisation over groups of neighbouring channels, then times weight plus bias of each channel.

    Each sample is normalised by mean and variance of each of `num_groups` groups, over the group's channels
    and all axes after them. `eps` is added to the variance. `weight` and `bias` are (num_channels,), 1 and 0
    at first, None without `affine`.

    Raises `UsageError` for sizes below 1 and for channels that the groups do not divide.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        if count("GroupNorm, num_channels", num_channels) % count("GroupNorm, num_groups", num_groups):
            raise UsageError(f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels = num_groups, num_channels
        self._begin(eps, affine, bias, num_channels)
        placed(self, device, dtype)

    def extra_repr(self) -> str:
        """Return the settings."""
        affine = self.weight is not None
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={affine}, bias={affine}"

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, num_channels, ...); return the same shape.

        Raises `UsageError` for fewer than two axes, another number of channels, and one value a group.
        """
        x = raised(layer_input(self, x, self.weight))
        check_channels(self, x, self.num_channels)
        check_values(self, x, self.num_groups)
        each = math.prod(x.shape[1:]) // self.num_groups
        y = wide(x).reshape(x.shape[0], self.num_groups, each).layernorm(-1, self.eps).reshape(x.shape)
        return affine_of(y, x, self.weight, self.bias, (1, -1, *(1,) * (x.ndim - 2)))


class InstanceNorm(NormBase):
    """Normalisation of each channel of each sample by its own mean and variance.

    With `track_running_stats` evaluation mode uses running statistics, and training mode assigns to them as
    `BatchNorm`, from the means over the batch; `momentum` None leaves them as they are. `weight` and `bias`
    are (num_features,), 1 and 0 at first, None without `affine`. Raises as `BatchNorm`.
    """

    rank: int | None = None
    """The number of axes after the channels; an input with so many needs no batch."""

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias)
        placed(self, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, num_features, ...); return the same shape. Raises as `BatchNorm`."""
        x, training = layer_input(self, x, self.weight), in_training(self)
        if self.rank and x.ndim == self.rank + 1:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        if self.track_running_stats and not training:
            return super().forward(x)
        given = raised(x)
        check_channels(self, given, self.num_features)
        check_values(self, given, given.shape[0] * given.shape[1])
        flat = wide(given).reshape(*given.shape[:2], math.prod(given.shape[2:]))
        if self.track_running_stats and self.momentum is not None:
            mean, var = flat.mean(2), flat.var(2, correction=0)
            self._learn(mean.mean(0).detach(), var.mean(0).detach(), flat.shape[2])
        y = flat.layernorm(-1, self.eps).reshape(given.shape)
        return affine_of(y, given, self.weight, self.bias, (1, -1, *(1,) * (given.ndim - 2)))


class InstanceNorm1d(InstanceNorm):
    """`InstanceNorm` of (batch, channels, length), or of one sample."""

    rank = 1


class InstanceNorm2d(InstanceNorm):
    """`InstanceNorm` of (batch, channels, height, width), or of one sample."""

    rank = 2


class InstanceNorm3d(InstanceNorm):
    """`InstanceNorm` of (batch, channels, depth, height, width), or of one sample."""

    rank = 3


class LocalResponseNorm(Layer):
    """Division by (k + alpha * m) ** beta, with m the mean square of `size` neighbouring channels."""

    _template = "{0.size}, alpha={0.alpha}, beta={0.beta}, k={0.k}"

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size = count("LocalResponseNorm, size", size)
        given = {"alpha": alpha, "beta": beta, "k": k}
        self.alpha, self.beta, self.k = [number(v, f"LocalResponseNorm, {n}") for n, v in given.items()]

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised (batch, channels, ...). Raises `UsageError` below three axes."""
        x = layer_input(self, x)
        if x.ndim < 3:
            raise UsageError(f"LocalResponseNorm needs at least 3 axes, saw the shape {x.shape}")
        around = ((0, 0), (self.size // 2, (self.size - 1) // 2), *((0, 0),) * (x.ndim - 2))
        windows = x.square().pad(around).unfold(1, self.size, 1)
        mean = windows.mean(-1) if x.dtype.is_float else windows.sum(-1).div(self.size, rounding_mode="trunc")
        return x / (mean * self.alpha + self.k) ** self.beta


class LayerNorm2d(LayerNorm):
    """`LayerNorm` over the channels of (batch, channels, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, channels, height, width); return the same shape.

        Raises `UsageError` for another number of channels.
        """
        x = raised(layer_input(self, x, self.weight))
        check_channels(self, x, self.normalized_shape[0])
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)
