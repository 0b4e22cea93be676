"""Convolution layers over one, two and three spatial axes, and their transposed forms.

Not here: other layers (`layers`), pools (`pools`). Next: `frontend.ops.convolutions`, the operations.
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Literal, cast

from frontend.arguments.checks import repeated, sizes
from frontend.arguments.conversion import switch
from frontend.arguments.settings import choice
from frontend.evaluation.modes import lowered
from frontend.nn.checks import check_channels, count, counts, layer_input, placed, redraw
from frontend.nn.module import Layer
from frontend.ops.convolutions import Sizes, same_padding, spatial_padding
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

Mode = Literal["constant", "reflect", "replicate", "circular"]
_MODES: Final = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Layer):
    """Base of all convolutions: settings of `rank` spatial axes, `weight` and `bias`.

    `kernel_size`, `stride`, `dilation`: a whole number, or one for each spatial axis. `groups` divides the
    channels of input and result. `bias` is (out_channels,) or None. Weights and bias start uniform in
    ±1/sqrt(n). n is the number of weights from which an element of the result is computed; for a transposed
    convolution, the number of weights with which an element of the input is multiplied.
    """

    rank: ClassVar[int]
    transposed: ClassVar[bool] = False
    padding: Sizes | str
    stride: Sizes
    dilation: Sizes
    output_padding: Sizes
    padding_mode: str = "zeros"

    def _set(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes | str,
        dilation: Sizes,
        groups: int,
        bias: bool,  # noqa: FBT001 - internal
    ) -> None:
        kind = type(self).__name__
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            count(f"{kind}, {name}", value)
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"{kind}: {in_channels} inputs and {out_channels} outputs do not divide into {groups} groups"
            )
        kernel = counts(f"{kind}, kernel_size", kernel_size, self.rank)
        self.stride = counts(f"{kind}, stride", stride, self.rank)
        self.dilation = counts(f"{kind}, dilation", dilation, self.rank)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.groups, self.output_padding = groups, (0,) * self.rank
        self._check_padding(padding, kernel)
        apart = isinstance(padding, str) or (not isinstance(padding, int) and len(padding) == 2 * self.rank)
        self.padding = cast("Any", padding) if apart else repeated(cast("Sizes", padding), self.rank, kind)
        first, each = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        bound = 1 / math.sqrt(each // groups * math.prod(kernel))
        self.weight = Tensor.uniform(first, each // groups, *kernel, low=-bound, high=bound)
        bias = switch(bias, f"{kind}, bias")
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def reset_parameters(self) -> None:
        """Assign first values."""
        redraw(self, 1 / math.sqrt(math.prod(self.weight.shape[1:])))

    def _check_padding(self, padding: Sizes | str, kernel: tuple[int, ...]) -> None:
        kind = type(self).__name__
        if isinstance(padding, str) and padding == "same" and not self.transposed:
            same_padding(kernel, self.stride, self.dilation)
        elif isinstance(padding, str) and (self.transposed or padding != "valid"):
            wanted = "numbers" if self.transposed else "numbers, 'same' or 'valid'"
            raise UsageTypeError(f"{kind}, padding: wanted {wanted}, saw {padding!r}")
        elif not isinstance(padding, str):
            spatial_padding(padding, self.rank, kind)

    def _batched(self, x: Tensor) -> tuple[Tensor, bool]:
        """Return (batch, channels, *spatial) of an input with or without a batch, and whether it had none."""
        x = layer_input(self, x, self.weight)
        single = x.ndim == self.rank + 1
        x = x.unsqueeze(0) if single else x
        check_channels(self, x, self.in_channels)
        return x, single

    def extra_repr(self) -> str:
        """Return the settings as PyTorch prints them."""

        def each(value: Sizes | str) -> tuple[int, ...] | str:
            if isinstance(value, int):
                return (value,) * self.rank
            return value if isinstance(value, str) else tuple(value)

        found = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        found += f", stride={each(self.stride)}"
        plain = (("padding", 0), ("dilation", 1), ("output_padding", 0))
        for name, usual in plain:
            value = each(getattr(self, name))
            if isinstance(value, str) or set(value) != {usual}:
                found += f", {name}={value}"
        found += f", groups={self.groups}" if self.groups != 1 else ""
        found += ", bias=False" if self.bias is None else ""
        return found + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")


class _Conv(_Convolution):
    """Convolution over (batch, channels, *spatial), or without the batch: see `Tensor.conv2d`.

    `padding` is the number of elements on both sides: one number, one for each spatial axis, or flat (before,
    after) pairs, the last axis first. "same" keeps the size for a stride of 1, "valid" is 0. `padding_mode`
    is "zeros", "reflect", "replicate" or "circular". `weight` is (out_channels, in_channels / groups,
    *kernel_size). Other arguments: `_Convolution`.

    Raises `UsageError` for sizes below 1, negative padding, "same" with another stride, another padding_mode,
    and channels that `groups` does not divide; `UsageTypeError` for padding by another name.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self._set(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        self.padding_mode = choice(f"{type(self).__name__}, padding_mode", padding_mode, _MODES)
        placed(self, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, in_channels, *spatial); return (batch, out_channels, *sizes).

        A size is (n + padding - dilation * (kernel - 1) - 1) // stride + 1, with the padding of both sides.
        Raises `UsageError` for another number of channels, and for a padded input smaller than the kernel.
        """
        return self._conv_forward(x, self.weight, self.bias)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return `forward` with another weight and bias, as layers of programs compute them."""
        x, single = self._batched(x)
        padding = self.padding
        if self.padding_mode != "zeros" and padding != "valid":
            if padding == "same":
                padding = same_padding(self.kernel_size, self.stride, self.dilation)
            pairs = spatial_padding(cast("Sizes", padding), self.rank, type(self).__name__)
            flat = [n for pair in reversed(pairs) for n in pair]
            x, padding = x.pad(flat, mode=cast("Mode", self.padding_mode)), 0
        x, weight, bias = cast("tuple[Tensor, Tensor, Tensor | None]", lowered(x, weight, bias))
        y = x.conv2d(weight, bias, self.stride, padding, self.dilation, self.groups)
        return y.squeeze(0) if single else y


class _ConvTranspose(_Convolution):
    """Transposed convolution, the gradient of a convolution by its input: see `Tensor.conv_transpose2d`.

    `output_padding` adds elements at the end of each spatial axis of the result. `weight` is (in_channels,
    out_channels / groups, *kernel_size). Other arguments: `_Convolution`.

    Raises `UsageError` for sizes below 1, negative padding, and channels that `groups` does not divide,
    `UsageTypeError` for padding by a name.
    """

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self._set(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        self.padding_mode = choice(f"{type(self).__name__}, padding_mode", padding_mode, ("zeros",))
        self.output_padding = repeated(output_padding, self.rank, f"{type(self).__name__}, output_padding")
        placed(self, device, dtype)

    def forward(self, x: Tensor, output_size: Any = None) -> Tensor:
        """Apply the layer to (batch, in_channels, *spatial); return (batch, out_channels, *sizes).

        A size is (n - 1) * stride - padding + dilation * (kernel - 1) + output_padding + 1, with the padding
        of both sides. `output_size`, the sizes or the whole shape of the result, chooses the padding of the
        output. Raises `UsageError` for another number of channels, and for sizes that no such padding gives.
        """
        x, single = self._batched(x)
        extra = self.output_padding if output_size is None else self._extra(x, output_size)
        x, weight, bias = cast("tuple[Tensor, Tensor, Tensor | None]", lowered(x, self.weight, self.bias))
        y = x.conv_transpose2d(
            weight, bias, self.stride, cast("Sizes", self.padding), extra, self.groups, self.dilation
        )
        return y.squeeze(0) if single else y

    def _extra(self, x: Tensor, output_size: Any) -> tuple[int, ...]:
        """Return the padding of the output with which it has the sizes `output_size`."""
        wanted = sizes((tuple(output_size),), f"{type(self).__name__}, output_size")[-self.rank :]
        pairs = spatial_padding(cast("Sizes", self.padding), self.rank, type(self).__name__)
        stride, dilation, kernel = [
            repeated(n, self.rank, type(self).__name__)
            for n in (self.stride, self.dilation, self.kernel_size)
        ]
        every = zip(x.shape[2:], stride, pairs, dilation, kernel, strict=True)
        least = [(n - 1) * step - lo - hi + far * (k - 1) + 1 for n, step, (lo, hi), far, k in every]
        extra = tuple([n - m for n, m in zip(wanted, least, strict=False)])
        if len(wanted) != self.rank or any(not 0 <= e < s for e, s in zip(extra, stride, strict=True)):
            most = [m + step - 1 for m, step in zip(least, stride, strict=True)]
            text = f"wanted sizes from {least} to {most}, saw {tuple(output_size)}"
            raise UsageError(f"{type(self).__name__}, output_size: {text}")
        return extra


class Conv1d(_Conv):
    """Convolution over (batch, channels, length)."""

    rank = 1


class Conv2d(_Conv):
    """Convolution over (batch, channels, height, width)."""

    rank = 2


class Conv3d(_Conv):
    """Convolution over (batch, channels, depth, height, width)."""

    rank = 3


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over (batch, channels, length)."""

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over (batch, channels, height, width)."""

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over (batch, channels, depth, height, width)."""

    rank = 3
