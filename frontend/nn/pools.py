"""Layers that change the sizes of spatial axes: pools, padding, upsampling, shuffles of pixels.

Sizes below 1, settings for another number of axes, and inputs that are too small or have too few axes raise
`UsageError`, arguments of other classes `UsageTypeError`.

Not here: activations and losses (`functions`), convolutions (`convolutions`).
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from frontend.arguments.checks import repeated, whole
from frontend.arguments.conversion import number, switch
from frontend.arguments.settings import choice
from frontend.nn.checks import count, counts, layer_input
from frontend.nn.module import Layer, Module, wide
from frontend.ops.resizing import MODES, binned
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.ops.convolutions import Sizes


class _Pool(Module):
    """Base of pools over the last `rank` axes; the stride is the kernel's size unless given."""

    rank: ClassVar[int]

    def _set(self, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, ceil_mode: bool) -> None:  # noqa: FBT001 - internal
        kind = type(self).__name__
        counts(f"{kind}, kernel_size", kernel_size, self.rank)
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        counts(f"{kind}, stride", self.stride, self.rank)
        repeated(padding, self.rank, f"{kind}, padding")
        self.padding, self.ceil_mode = padding, switch(ceil_mode, f"{kind}, ceil_mode")

    def _each(self, value: Sizes) -> tuple[int, ...]:
        return repeated(value, self.rank, type(self).__name__)


class _MaxPool(_Pool):
    """The greatest value of each window; see `Tensor.max_pool2d`.

    With `return_indices` also its flat index.
    """

    _template = (
        "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}, "
        "dilation={0.dilation}, ceil_mode={0.ceil_mode}"
    )

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,  # noqa: FBT001, FBT002 - the field's signature
        ceil_mode: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        self._set(kernel_size, stride, padding, ceil_mode)
        counts(f"{type(self).__name__}, dilation", dilation, self.rank)
        self.dilation = dilation
        self.return_indices = switch(return_indices, f"{type(self).__name__}, return_indices")

    def forward(self, x: Tensor) -> Any:
        """Return (..., *sizes) of (..., *spatial), with `return_indices` a pair (values, indices)."""
        given = (self.kernel_size, self.stride, self.padding, self.dilation)
        size, stride, padding, dilation = [self._each(v) for v in given]
        x, more = layer_input(self, x), cast("Any", {"return_indices": self.return_indices})
        return x.max_pool2d(size, stride, padding, dilation, self.ceil_mode, **more)


class _AvgPool(_Pool):
    """The mean of each window; see `Tensor.avg_pool2d`."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,  # noqa: FBT001, FBT002 - the field's signature
        count_include_pad: bool = True,  # noqa: FBT001, FBT002 - as above
        divisor_override: int | None = None,
    ) -> None:
        self._set(kernel_size, stride, padding, ceil_mode)
        if self.rank == 1:  # as in PyTorch, which keeps the others as given
            self.kernel_size, self.stride, self.padding = map(self._each, (kernel_size, self.stride, padding))
        self.divisor_override = divisor_override
        self.count_include_pad = switch(count_include_pad, f"{type(self).__name__}, count_include_pad")

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., *sizes) of (..., *spatial)."""
        size, stride, padding = [self._each(v) for v in (self.kernel_size, self.stride, self.padding)]
        x = layer_input(self, x)
        more = (self.ceil_mode, self.count_include_pad, self.divisor_override)
        return x.avg_pool2d(size, stride, padding, *more)

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        """Return the settings as PyTorch prints them."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _Adaptive(Module):
    """A pool over the last `rank` axes to given sizes; None keeps the size of an axis.

    Bin k of m bins of an axis of n elements has elements k * n // m up to ceil((k + 1) * n / m).
    """

    _template = "output_size={0.output_size}"
    rank: ClassVar[int]
    method: ClassVar[str]

    def __init__(self, output_size: Any) -> None:
        given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * self.rank
        if len(given) != self.rank:
            raise UsageError(f"{type(self).__name__}: wanted {self.rank} sizes, saw {output_size}")
        self.sizes = [None if n is None else count(f"{type(self).__name__}, output_size", n) for n in given]
        self.output_size = output_size

    def forward(self, x: Tensor) -> Any:
        """Return (..., *sizes) of (..., *spatial)."""
        given = layer_input(self, x)
        x = wide(given)
        if x.ndim < self.rank:
            raise UsageError(f"{type(self).__name__}: wanted at least {self.rank} axes, saw {x.shape}")
        found: Tensor = binned(x, self.sizes, self.method)
        return found.cast(given.dtype) if given.dtype.is_float else found


class _AdaptiveMax(_Adaptive):
    """An adaptive pool of greatest values; with `return_indices` also their flat indices in the image."""

    method = "max"

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:  # noqa: FBT001, FBT002 - the field's signature
        super().__init__(output_size)
        self.return_indices = switch(return_indices, f"{type(self).__name__}, return_indices")

    def forward(self, x: Tensor) -> Any:
        """Return (..., *sizes) of (..., *spatial), with `return_indices` a pair (values, indices)."""
        value = super().forward(x)
        return (value, self._places(layer_input(self, x))) if self.return_indices else value

    def _places(self, x: Tensor) -> Tensor:
        lead, spatial = x.shape[: x.ndim - self.rank], x.shape[x.ndim - self.rank :]
        sizes = [n if m is None else m for m, n in zip(self.sizes, spatial, strict=True)]
        numbers = Tensor.arange(prod(spatial), device=x.device).reshape(spatial)
        found = []
        for cell in product(*[range(m) for m in sizes]):
            part, places = x, numbers
            for i, (k, m, n) in enumerate(zip(cell, sizes, spatial, strict=True)):
                begin, end = k * n // m, -(-(k + 1) * n // m)
                part = part.narrow(len(lead) + i, begin, end - begin)
                places = places.narrow(i, begin, end - begin)
            found.append(places.reshape(-1).take(part.flatten(len(lead)).argmax(-1)))
        return Tensor.stack(found, axis=-1).reshape(*lead, *sizes)


def _of_ranks(base: type[Any], name: str, text: str, **fields: Any) -> list[type[Any]]:
    """Return the classes NAME1d, NAME2d and NAME3d, subclasses of `base` with the docstring `text`."""
    return [
        type(f"{name}{rank}d", (base,), {"rank": rank, "__doc__": text, "__module__": __name__, **fields})
        for rank in (1, 2, 3)
    ]


MaxPool1d, MaxPool2d, MaxPool3d = _of_ranks(_MaxPool, "MaxPool", "The greatest value of each window.")
AvgPool1d, AvgPool2d, AvgPool3d = _of_ranks(_AvgPool, "AvgPool", "The mean of each window.")
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = _of_ranks(
    _Adaptive, "AdaptiveAvgPool", "The mean of each bin, for a given number of bins.", method="mean"
)
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = _of_ranks(
    _AdaptiveMax, "AdaptiveMaxPool", "The greatest value of each bin, for a given number of bins."
)


class _Pad(Layer):
    """Padding of the last `rank` axes: one number, or flat (before, after) pairs, the last axis first."""

    _template = "{0.padding}"
    rank: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        self.padding = repeated(padding, 2 * self.rank, f"{type(self).__name__}, padding")

    def forward(self, x: Tensor) -> Tensor:
        """Return the padded input. Raises as `Tensor.pad`; modes other than constant pad the image alone."""
        x, axes = layer_input(self, x), (self.rank + 1, self.rank + 2)
        if self.mode != "constant" and x.ndim not in axes:
            raise UsageError(f"{type(self).__name__}: wanted one of {axes} axes, saw the shape {x.shape}")
        mode = cast('Literal["constant", "reflect", "replicate", "circular"]', self.mode)
        return x.pad(self.padding, value=self.value, mode=mode)


class _ConstantPad(_Pad):
    """Padding with a number."""

    _template = "padding={0.padding}, value={0.value}"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = number(value, f"{type(self).__name__}, value")


ZeroPad1d, ZeroPad2d, ZeroPad3d = _of_ranks(_Pad, "ZeroPad", "Padding with zeros.")
ConstantPad1d, ConstantPad2d, ConstantPad3d = _of_ranks(_ConstantPad, "ConstantPad", "Padding with a number.")
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _of_ranks(
    _Pad, "ReflectionPad", "Padding that mirrors at the border elements.", mode="reflect"
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _of_ranks(
    _Pad, "ReplicationPad", "Padding that repeats the border elements.", mode="replicate"
)
CircularPad1d, CircularPad2d, CircularPad3d = _of_ranks(
    _Pad, "CircularPad", "Padding that continues at the other end.", mode="circular"
)


class Upsample(Layer):
    """Resizing of spatial axes, to `size` or by `scale_factor`, one of both; see `Tensor.interpolate`."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,  # noqa: FBT001 - the field's signature
        recompute_scale_factor: bool | None = None,  # noqa: FBT001 - as above
    ) -> None:
        given = size if isinstance(size, (tuple, list)) else () if size is None else (size,)
        for n in given:
            count("Upsample, size", n)
        self.size, self.mode = size, choice("Upsample, mode", mode, MODES)
        aligned = "Upsample, align_corners"
        self.align_corners = None if align_corners is None else switch(align_corners, aligned)
        self.recompute_scale_factor = recompute_scale_factor
        several = isinstance(scale_factor, (tuple, list))
        factors = scale_factor if several else () if scale_factor is None else (scale_factor,)
        found = tuple([float(number(n, "Upsample, scale_factor")) for n in factors])
        self.scale_factor: Any = found if several else next(iter(found), None)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, channels, *sizes) of (batch, channels, *spatial)."""
        given = (self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
        return layer_input(self, x).interpolate(*given)

    def extra_repr(self) -> str:
        """Return the settings."""
        name = "size" if self.scale_factor is None else "scale_factor"
        return f"{name}={getattr(self, name)}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images of other sizes, each pixel the nearest one of the input."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Images of other sizes, interpolated along both axes; the corners stay."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class ChannelShuffle(Layer):
    """Channels (batch, groups * c, ...) in another order: the first one of each group, then the second."""

    _template = "groups={0.groups}"

    def __init__(self, groups: int) -> None:
        self.groups = count("ChannelShuffle, groups", groups)

    def forward(self, x: Tensor) -> Tensor:
        """Return the same shape. Raises `UsageError` for channels that are no multiple of the groups."""
        x = layer_input(self, x)
        if x.ndim < 3 or x.shape[1] % self.groups:
            raise UsageError(f"ChannelShuffle: wanted a multiple of {self.groups} channels, saw {x.shape}")
        parts = x.reshape(x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:])
        return parts.transpose(1, 2).reshape(x.shape)


class PixelShuffle(Layer):
    """Channels rearranged as pixels: (..., c * r * r, h, w) to (..., c, h * r, w * r)."""

    _template = "upscale_factor={0.upscale_factor}"

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = whole(upscale_factor, "PixelShuffle, upscale_factor")

    def forward(self, x: Tensor) -> Tensor:
        """Return the image. Raises `UsageError` for r below 1, and channels that r * r does not divide."""
        x, r = layer_input(self, x), count("PixelShuffle, upscale_factor", self.upscale_factor)
        if x.ndim < 3 or x.shape[-3] % (r * r):
            raise UsageError(f"PixelShuffle({r}): wanted (..., channels of {r * r}, h, w), saw {x.shape}")
        *outer, c, h, w = x.shape
        y = x.reshape(prod(outer), c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)
        return y.reshape(*outer, c // (r * r), h * r, w * r)


class PixelUnshuffle(Layer):
    """Pixels rearranged as channels: (..., c, h * r, w * r) to (..., c * r * r, h, w)."""

    _template = "downscale_factor={0.downscale_factor}"

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = whole(downscale_factor, "PixelUnshuffle, downscale_factor")

    def forward(self, x: Tensor) -> Tensor:
        """Return the channels. Raises `UsageError` for r below 1, and sizes that r does not divide."""
        x, r = layer_input(self, x), count("PixelUnshuffle, downscale_factor", self.downscale_factor)
        if x.ndim < 3 or x.shape[-1] % r or x.shape[-2] % r:
            raise UsageError(f"PixelUnshuffle({r}): wanted (..., c, h of {r}, w of {r}), saw {x.shape}")
        *outer, c, h, w = x.shape
        y = x.reshape(prod(outer), c, h // r, r, w // r, r).permute(0, 1, 3, 5, 2, 4)
        return y.reshape(*outer, c * r * r, h // r, w // r)


Pair = int | tuple[int, int]


def _pair(value: Pair, what: str, least: int) -> tuple[int, int]:
    found = (value, value) if not isinstance(value, (tuple, list)) else tuple(value)
    if len(found) != 2 or any(whole(n, what) < least for n in found):
        raise UsageError(f"{what}: wanted one or two numbers from {least} on, saw {value!r}")
    return found[0], found[1]


class _Windows(Layer):
    """Base of `Unfold` and `Fold`: their settings, and the positions of windows in an image."""

    _template = "kernel_size={0.kernel_size}, dilation={0.dilation}, padding={0.padding}, stride={0.stride}"

    def __init__(self, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> None:
        name = type(self).__name__
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride
        self._kernel = _pair(kernel_size, f"{name}, kernel_size", 1)
        self._dilation = _pair(dilation, f"{name}, dilation", 1)
        self._padding = _pair(padding, f"{name}, padding", 0)
        self._stride = _pair(stride, f"{name}, stride", 1)

    def _counts(self, sizes: tuple[int, int]) -> tuple[int, int]:
        """Return how many windows fit along each axis of an image. Raises `UsageError` if none fits."""
        each = zip(sizes, self._kernel, self._dilation, self._padding, self._stride, strict=True)
        rows, columns = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in each]
        if rows < 1 or columns < 1:
            raise UsageError(f"{type(self).__name__}: no window of {self._kernel} fits the image {sizes}")
        return rows, columns

    def _places(self, counts: tuple[int, int]) -> list[tuple[slice, slice]]:
        """Return, for each position inside a window, the slices of the padded image with its elements."""
        (dy, dx), (sy, sx), (rows, columns) = self._dilation, self._stride, counts
        down, across = sy * (rows - 1) + 1, sx * (columns - 1) + 1
        return [
            (slice(a * dy, a * dy + down, sy), slice(b * dx, b * dx + across, sx))
            for a, b in product(range(self._kernel[0]), range(self._kernel[1]))
        ]


class Unfold(_Windows):
    """Windows of images as columns: (batch, channels, rows, columns) to (batch, channels * window, windows).

    `window` is the number of elements of a window. Raises `UsageError` for other than 3 or 4 axes, and if no
    window fits.
    """

    def __init__(self, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1) -> None:
        super().__init__(kernel_size, dilation, padding, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, channels, rows, columns), or without the batch."""
        x = layer_input(self, x)
        if x.ndim == 3:
            return self(x.unsqueeze(0)).squeeze(0)
        if x.ndim != 4:
            raise UsageError(f"Unfold: wanted (batch, channels, rows, columns), saw the shape {x.shape}")
        (py, px), (batch, channels, *image) = self._padding, x.shape
        counts = self._counts((image[0], image[1]))
        padded = x.pad(((0, 0), (0, 0), (py, py), (px, px)))
        parts = [padded[:, :, rows, columns] for rows, columns in self._places(counts)]
        return parts[0].stack(*parts[1:], axis=2).reshape(batch, channels * len(parts), counts[0] * counts[1])


class Fold(_Windows):
    """Sums of overlapping windows: (batch, channels * window, windows) to (batch, channels, *output_size).

    It is the gradient of `Unfold`. Raises `UsageError` for other than 2 or 3 axes, and for another number of
    windows than an image of `output_size` has.
    """

    _template = (
        "output_size={0.output_size}, kernel_size={0.kernel_size}, dilation={0.dilation}, "
        "padding={0.padding}, stride={0.stride}"
    )

    def __init__(
        self, output_size: Pair, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size
        self._image = _pair(output_size, "Fold, output_size", 1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (batch, channels * window, windows), or without the batch."""
        x = layer_input(self, x)
        if x.ndim == 2:
            return self(x.unsqueeze(0)).squeeze(0)
        window, counts = self._kernel[0] * self._kernel[1], self._counts(self._image)
        if x.ndim != 3 or x.shape[1] % window or x.shape[2] != counts[0] * counts[1]:
            raise UsageError(
                f"Fold: wanted (batch, channels * {window}, {counts[0] * counts[1]}), saw the shape {x.shape}"
            )
        (py, px), (height, width) = self._padding, self._image
        channels = x.shape[1] // window
        columns = x.reshape(x.shape[0], channels, window, *counts)
        total = x.zeros(x.shape[0], channels, height + 2 * py, width + 2 * px, dtype=x.dtype, device=x.device)
        for i, (rows, across) in enumerate(self._places(counts)):
            placed = total.zeros_like()
            placed[:, :, rows, across] = columns[:, :, i]
            total = total + placed
        return total[:, :, py : py + height, px : px + width]
