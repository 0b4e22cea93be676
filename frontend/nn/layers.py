"""Layers without normalisation: plain classes whose parameters are tensor attributes.

Weights start uniform in ±1/sqrt(inputs) unless a layer documents another range. They are float32 on the
default device. A layer is called with a tensor, an array or lists; the result is a pending tensor on the
device of the weights. Sizes that no layer can have, and inputs whose axes do not fit the weights, raise
`UsageError`; what holds no numbers raises `UsageTypeError`.

Not here: normalisation layers (`normalisation`), the operations (`frontend.ops.nnops`), parameters by name
(`state`), training steps (`optim`).
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from frontend.nn.checks import check_channels, count, counts, layer_input, padding_of
from frontend.nn.module import Module, in_training
from frontend.nn.settings import number_within
from frontend.ops.along import rows
from frontend.ops.arguments import repeated
from frontend.parameters import flag
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.ops.convolutions import Sizes


def _convolution(layer: Conv2d | ConvTranspose2d, inputs: int, outputs: int) -> str:
    """Return the settings of a convolution as PyTorch prints them."""

    def pair(value: Any) -> tuple[int, ...]:
        return repeated(value, 2, "") if isinstance(value, int) else tuple(value)

    text = f"{inputs}, {outputs}, kernel_size={layer.weight.shape[2:]}, stride={pair(layer.stride)}"
    others = [("padding", layer.padding, 0), ("dilation", layer.dilation, 1)]
    text += "".join([f", {n}={pair(v)}" for n, v, plain in others if set(pair(v)) != {plain}])
    text += f", groups={layer.groups}" if layer.groups != 1 else ""
    return text + (", bias=False" if layer.bias is None else "")


class Linear(Module):
    """The affine map x @ weight.T + bias over the last axis.

    `in_features`, `out_features`: sizes of the last axis of input and result, at least 1. `weight` is
    (out_features, in_features), `bias` (out_features,) or None without `bias`; both start uniform in
    ±1/sqrt(in_features).

        Linear(784, 10)(images.flatten(1))      # (batch, 784) -> (batch, 10)

    Raises `UsageError` for sizes below 1.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:  # noqa: FBT001, FBT002 - the field's signature
        count("Linear, out_features", out_features)
        bound = 1 / math.sqrt(count("Linear, in_features", in_features))
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        bias = flag(bias, "Linear, bias")
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def extra_repr(self) -> str:
        """Return the settings."""
        outputs, inputs = self.weight.shape
        return f"in_features={inputs}, out_features={outputs}, bias={self.bias is not None}"

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (..., in_features); return (..., out_features) in the promoted dtype.

        Raises `UsageError` when the last axis has another size.
        """
        x = layer_input(self, x, self.weight)
        inputs = self.weight.shape[1]
        if x.shape[-1:] != (inputs,):
            raise UsageError(f"Linear has {inputs} inputs, the last axis of {x.shape} is another")
        return x.linear(self.weight.transpose(), self.bias)


class Conv2d(Module):
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
            count(f"Conv2d, {name}", value)
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"Conv2d: {in_channels} inputs and {out_channels} outputs do not divide into {groups} groups"
            )
        kernel = counts("Conv2d, kernel_size", kernel_size, 2)
        counts("Conv2d, stride", stride, 2)
        counts("Conv2d, dilation", dilation, 2)
        self.stride, self.padding = stride, padding_of("Conv2d", padding)
        self.dilation, self.groups = dilation, groups
        bound = 1 / math.sqrt(in_channels // groups * math.prod(kernel))
        self.weight = Tensor.uniform(out_channels, in_channels // groups, *kernel, low=-bound, high=bound)
        bias = flag(bias, "Conv2d, bias")
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def extra_repr(self) -> str:
        """Return the settings."""
        return _convolution(self, self.weight.shape[1] * self.groups, self.weight.shape[0])

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, in_channels, h, w); return (batch, out_channels, h', w').

        h' is (h + padding - dilation * (kernel - 1) - 1) // stride + 1, with the padding of both
        sides; w' alike. Raises `UsageError` for another number of channels, and for a padded input
        smaller than the kernel.
        """
        x = layer_input(self, x, self.weight)
        check_channels(self, x, self.weight.shape[1] * self.groups)
        return x.conv2d(self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose2d(Module):
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
            count(f"ConvTranspose2d, {name}", value)
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"ConvTranspose2d: {in_channels} inputs and {out_channels} outputs do not divide into "
                f"{groups} groups"
            )
        kernel = counts("ConvTranspose2d, kernel_size", kernel_size, 2)
        counts("ConvTranspose2d, stride", stride, 2)
        counts("ConvTranspose2d, dilation", dilation, 2)
        repeated(output_padding, 2, "ConvTranspose2d, output_padding")
        self.stride, self.padding, self.output_padding = (
            stride,
            padding_of("ConvTranspose2d", padding),
            output_padding,
        )
        self.dilation, self.groups = dilation, groups
        bound = 1 / math.sqrt(out_channels // groups * math.prod(kernel))
        self.weight = Tensor.uniform(in_channels, out_channels // groups, *kernel, low=-bound, high=bound)
        bias = flag(bias, "ConvTranspose2d, bias")
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def extra_repr(self) -> str:
        """Return the settings."""
        return _convolution(self, self.weight.shape[0], self.weight.shape[1] * self.groups)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, in_channels, h, w); return (batch, out_channels, h', w').

        h' is (h - 1) * stride - padding + dilation * (kernel - 1) + output_padding + 1, with the
        padding of both sides; w' alike. Raises `UsageError` for another number of channels.
        """
        x = layer_input(self, x, self.weight)
        check_channels(self, x, self.weight.shape[0])
        return x.conv_transpose2d(
            self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class Embedding(Module):
    """Rows of a table, selected by integers: a tensor, an array or lists of them.

    `weight` is (vocab_size, embed_size), uniform in ±sqrt(6 / (vocab_size + embed_size)) at first.

        Embedding(1000, 64)([[1, 2, 3]])      # (1, 3) -> (1, 3, 64)

    An integer outside 0..vocab_size-1 raises `IndexError` where its value is known on the host, or under
    `HCQ_VALIDATE=1`; otherwise its row is zeros.
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        rows, columns = (
            count("Embedding, vocab_size", vocab_size),
            count("Embedding, embed_size", embed_size),
        )
        self.weight = Tensor.glorot_uniform(rows, columns)

    def extra_repr(self) -> str:
        """Return the settings."""
        rows, columns = self.weight.shape
        return f"{rows}, {columns}"

    def __call__(self, index: Tensor) -> Tensor:
        """Apply the layer to integers of any shape; return (*shape, embed_size), in the dtype of the weight.

        Raises `UsageTypeError` for floats and bools.
        """
        index = layer_input(self, index, self.weight)
        if not index.dtype.is_int:
            raise UsageTypeError(f"Embedding needs integers, saw {index.dtype.name}; cast the index")
        return rows(self.weight, index)


class Dropout(Module):
    """In training mode: set a share `p` of the elements to 0, scale the rest by 1 / (1 - p).

    Raises `UsageError` for p outside 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = number_within("Dropout, p", p, 0.0, math.nextafter(1.0, 2.0))

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"p={self.p}"

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer to a tensor of any shape; in evaluation mode return `x` itself."""
        return layer_input(self, x).dropout(self.p, in_training(self))
