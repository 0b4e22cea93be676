"""Windows of images as columns, and the sum of such columns: `Unfold` and `Fold`.

Not here: windows of one axis (`Tensor.unfold`), pooling (`pools`).
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from frontend.nn.checks import layer_input
from frontend.nn.module import Module
from frontend.ops.arguments import whole
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Pair = int | tuple[int, int]


def _pair(value: Pair, what: str, least: int) -> tuple[int, int]:
    found = (value, value) if not isinstance(value, (tuple, list)) else tuple(value)
    if len(found) != 2 or any(whole(n, what) < least for n in found):
        raise UsageError(f"{what}: wanted one or two numbers from {least} on, saw {value!r}")
    return found[0], found[1]


class _Windows(Module):
    """The settings of both layers, and where windows lie."""

    def __init__(self, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> None:
        name = type(self).__name__
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride
        self._kernel = _pair(kernel_size, f"{name}, kernel_size", 1)
        self._dilation = _pair(dilation, f"{name}, dilation", 1)
        self._padding = _pair(padding, f"{name}, padding", 0)
        self._stride = _pair(stride, f"{name}, stride", 1)

    def extra_repr(self) -> str:
        """Return the settings."""
        names = ("kernel_size", "dilation", "padding", "stride")
        return ", ".join([f"{n}={getattr(self, n)}" for n in names])

    def _counts(self, sizes: tuple[int, int]) -> tuple[int, int]:
        """Return how many windows fit each axis of an image."""
        each = zip(sizes, self._kernel, self._dilation, self._padding, self._stride, strict=True)
        rows, columns = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in each]
        if rows < 1 or columns < 1:
            raise UsageError(f"{type(self).__name__}: no window of {self._kernel} fits the image {sizes}")
        return rows, columns

    def _places(self, counts: tuple[int, int]) -> list[tuple[slice, slice]]:
        """Return, for each place in a window, where it lies in the padded image in all windows."""
        (dy, dx), (sy, sx), (rows, columns) = self._dilation, self._stride, counts
        down, across = sy * (rows - 1) + 1, sx * (columns - 1) + 1
        return [
            (slice(a * dy, a * dy + down, sy), slice(b * dx, b * dx + across, sx))
            for a, b in product(range(self._kernel[0]), range(self._kernel[1]))
        ]


class Unfold(_Windows):
    """The windows of images as columns: (batch, channels, *image) to (batch, channels * window, windows).

    Raises `UsageError` for other ranks than 3 and 4, and where no window fits.
    """

    def __init__(
        self, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)

    def __call__(self, x: Tensor) -> Tensor:
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
    """The sum of windows at their places: (batch, channels * window, windows) to (batch, channels, *image).

    The image has the size `output_size`. Raises `UsageError` for other ranks than 2 and 3, and where the
    windows are not those of such an image.
    """

    def __init__(
        self,
        output_size: Pair,
        kernel_size: Pair,
        dilation: Pair = 1,
        padding: Pair = 0,
        stride: Pair = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size
        self._image = _pair(output_size, "Fold, output_size", 1)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"output_size={self.output_size}, {super().extra_repr()}"

    def __call__(self, x: Tensor) -> Tensor:
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
