"""Operators on images: resizing, sampling, regions, boxes, and columns of windows.

Next: `table`. Raises `UsageError` for settings that do not fit.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from frontend.onnx.elementwise import to_type
from frontend.onnx.values import as_tensor, axes_in, dtype_of, integers
from frontend.tensor import Tensor
from frontend.torch import grids
from hcq.errors import UsageError

Array = np.ndarray[Any, Any]


def _positions(mode: str, n: int, m: int, scale: float, roi: tuple[float, float]) -> Array:
    """Return the place in an axis of n elements of each of m elements."""
    y, wide = np.arange(m, dtype=np.float64), scale * n
    if mode == "align_corners":
        return y * 0 if wide == 1 else y * (n - 1) / (wide - 1)
    if mode == "asymmetric":
        return y / scale
    if mode == "tf_crop_and_resize":
        a, b = roi[0] * (n - 1), roi[1] * (n - 1)
        return y * 0 + (a + b) / 2 if m == 1 else a + y * (b - a) / (m - 1)
    if mode == "pytorch_half_pixel" and m == 1:
        return y - 0.5
    if mode in {"half_pixel", "pytorch_half_pixel"}:
        return (y + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - m / wide) + (y + 0.5) / scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (y + 0.5) / scale
    raise UsageError(f"no coordinate_transformation_mode {mode!r}")


_NEAREST: Final[dict[str, Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _keys(t: Array, a: float) -> Array:
    """Return Keys' cubic kernel at distances."""
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    return np.where(t <= 1, near, np.where(t < 2, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a, 0))


def _taps(  # noqa: PLR0917 - the settings of one axis
    x: Array, scale: float, mode: str, nearest: str, a: float, smooth: int
) -> tuple[Array, Array]:
    """Return the elements that each place takes, and their weights."""
    if mode == "nearest":
        if nearest not in _NEAREST:
            raise UsageError(f"wanted the nearest_mode {', '.join(_NEAREST)}, saw {nearest!r}")
        return _NEAREST[nearest](x)[:, None].astype(np.int64), np.ones((len(x), 1))
    if mode not in {"linear", "cubic"}:
        raise UsageError(f"wanted the mode nearest, linear or cubic, saw {mode!r}")
    shrink, reach = min(scale, 1.0) if smooth else 1.0, 1 if mode == "linear" else 2
    first = math.floor(-reach / shrink) + 1
    base = np.ceil(x)[:, None] - 1
    index = base + np.arange(first, 2 - first)
    apart = (index - x[:, None]) * shrink
    weights = np.clip(1 - np.abs(apart), 0, 1) if mode == "linear" else _keys(apart, a)
    return index.astype(np.int64), weights / weights.sum(1, keepdims=True)


def resize(
    x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None,
    *, antialias: int = 0, axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    """Resize: axis by axis, each element a weighted sum of elements."""
    along = tuple(range(len(x.shape))) if axes is None else axes_in(axes, len(x.shape))
    old = [x.shape[i] for i in along]
    if sizes is not None and sizes.size:
        new = integers(sizes, "sizes")
        factors = [m / n for m, n in zip(new, old, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            one = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors, new = [one] * len(old), [math.floor(one * n + 0.5) for n in old]
    elif scales is not None and scales.size == len(along):
        factors = [float(s) for s in scales]
        new = [math.floor(s * n) for s, n in zip(factors, old, strict=True)]
    else:
        raise UsageError(f"wanted scales or sizes of {len(along)} axes")
    if min([*new, *old]) < 1 or min(factors) <= 0:
        raise UsageError(f"no sizes {new} of {x.shape}")
    parts = [(0.0, 1.0)] * len(along) if roi is None or roi.size < 2 * len(along) else [
        (float(roi[i]), float(roi[i + len(along)])) for i in range(len(along))
    ]  # fmt: skip
    y = x if mode == "nearest" or x.dtype.bits == 64 else x.cast("float32")
    for a, n, m, s, part in zip(along, old, new, factors, parts, strict=True):
        if m == n and s == 1 and part == (0.0, 1.0):
            continue
        at = _positions(coordinate_transformation_mode, n, m, s, part)
        index, weights = _taps(at, s, mode, nearest_mode, cubic_coeff_a, antialias)
        if exclude_outside:
            weights = np.where((index < 0) | (index >= n), 0, weights)
            weights /= weights.sum(1, keepdims=True)
        index = np.clip(index, 0, n - 1)
        taps = [
            y.index_select(a, as_tensor(np.ascontiguousarray(index[:, k]))) for k in range(index.shape[1])
        ]
        if mode != "nearest":
            shape = [m if i == a else 1 for i in range(len(x.shape))]
            taps = [
                t * as_tensor(w.astype(y.dtype.numpy)).reshape(*shape)
                for t, w in zip(taps, weights.T.copy(), strict=True)
            ]
        y = sum(taps[1:], taps[0])
        if coordinate_transformation_mode == "tf_crop_and_resize":
            inside = as_tensor((at >= 0) & (at <= n - 1)).reshape(
                *[m if i == a else 1 for i in range(len(x.shape))]
            )
            y = inside.where(y, extrapolation_value)
    if x.dtype.is_int and not y.dtype.is_int:
        y = y.clamp(x.dtype.min, x.dtype.max)
    return y.cast(x.dtype)


def resize_early(x: Tensor, scales: Any, *, mode: str = "nearest") -> Tensor:
    """Resize of opset 10, and Upsample of opset 9."""
    kind = "linear" if mode in {"linear", "bilinear"} else mode
    return resize(
        x, None, scales, mode=kind, nearest_mode="floor", coordinate_transformation_mode="asymmetric"
    )


def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """GridSample."""
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return grids.grid_sample(x, grid, kind, padding_mode, align_corners=bool(align_corners)).cast(x.dtype)


def affine_grid(theta: Tensor, size: Any, *, align_corners: int = 0) -> Tensor:
    """AffineGrid."""
    return grids.affine_grid(theta, integers(size, "size"), align_corners=bool(align_corners))


def roi_align(
    x: Tensor, rois: Any, batches: Any,
    *, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """RoiAlign: reads the regions."""
    shift = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    found = []
    for box, b in zip(np.asarray(rois, np.float64) * spatial_scale - shift, batches, strict=True):
        taps = []
        for low, high, count, n in (
            (box[1], box[3], output_height, x.shape[2]),
            (box[0], box[2], output_width, x.shape[3]),
        ):
            wide = high - low if shift else max(high - low, 1.0)
            each = sampling_ratio or max(1, math.ceil(wide / count))
            at = low + (np.arange(count * each) + 0.5) * wide / (count * each)
            index, weights = _taps(np.clip(at, 0, n - 1), 1.0, "linear", "", 0, 0)
            weights = np.where(((at < -1) | (at > n))[:, None], 0, weights)
            taps.append((np.clip(index, 0, n - 1), weights, each))
        (rows, row_weights, tall), (columns, column_weights, wide_) = taps
        image = x[int(b)]
        parts = []
        for i in range(2):
            for k in range(2):
                weight = (row_weights[:, i, None] * column_weights[None, :, k]).astype(x.dtype.numpy)
                picked = image.index_select(1, as_tensor(rows[:, i].copy())).index_select(
                    2, as_tensor(columns[:, k].copy())
                )
                parts.append(picked * as_tensor(weight))
        cells = [p.reshape(x.shape[1], output_height, tall, output_width, wide_) for p in parts]
        if mode == "max":
            found.append(cells[0].maximum(cells[1]).maximum(cells[2].maximum(cells[3])).amax((2, 4)))
        else:
            found.append((cells[0] + cells[1] + cells[2] + cells[3]).mean((2, 4)))
    if not found:
        return Tensor.zeros(0, x.shape[1], output_height, output_width, dtype=x.dtype, device=x.device)
    return Tensor.stack(found, axis=0).cast(x.dtype)


def non_max_suppression(
    boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None,
    *, center_point_box: int = 0,
) -> Any:  # fmt: skip
    """NonMaxSuppression: on the host."""
    count = int(most.reshape(-1)[0]) if most is not None else 0
    limit = float(overlap.reshape(-1)[0]) if overlap is not None else 0.0
    found = []
    for b in range(scores.shape[0]):
        given = boxes[b].astype(np.float64)
        if center_point_box:
            given = np.concatenate([given[:, :2] - given[:, 2:] / 2, given[:, :2] + given[:, 2:] / 2], 1)
        low, high = np.minimum(given[:, :2], given[:, 2:]), np.maximum(given[:, :2], given[:, 2:])
        area = (high - low).prod(1)
        for c in range(scores.shape[1]):
            order = np.argsort(-scores[b, c], kind="stable")
            order = order if least is None else order[scores[b, c][order] > least.reshape(-1)[0]]
            taken = 0
            while len(order) and taken < count:
                best, order, taken = order[0], order[1:], taken + 1
                found.append((b, c, best))
                shared = (
                    (np.minimum(high[best], high[order]) - np.maximum(low[best], low[order])).clip(0).prod(1)
                )
                whole = area[best] + area[order] - shared
                order = order[shared <= limit * whole]
    return np.array(found, np.int64).reshape(-1, 3)


def col2im(
    x: Tensor, image: Any, block: Any,
    *, dilations: list[int] | None = None, pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """Col2Im: adds columns of windows where they are in an image."""
    sizes, kernel = integers(image, "image_shape"), integers(block, "block_shape")
    rank = len(sizes)
    step, apart, around = strides or [1] * rank, dilations or [1] * rank, pads or [0] * 2 * rank
    if (
        not len(kernel) == len(step) == len(apart) == rank
        or len(around) != 2 * rank
        or min([*step, *apart]) < 1
    ):
        raise UsageError(f"wanted settings of {rank} axes")
    padded = [n + around[i] + around[i + rank] for i, n in enumerate(sizes)]
    flat: Any = np.zeros((1, 1), np.int64)
    for i in range(rank):
        begins = np.arange(0, padded[i] - apart[i] * (kernel[i] - 1), step[i])
        at = np.arange(kernel[i])[:, None] * apart[i] + begins
        flat = (flat[:, None, :, None] * padded[i] + at[None, :, None, :]).reshape(
            flat.shape[0] * kernel[i], -1
        )
    count = math.prod(kernel)
    values = x.reshape(x.shape[0], x.shape[1] // count, flat.size)
    index = as_tensor(flat.reshape(1, 1, -1)).broadcast_to(*values.shape)
    whole = Tensor.zeros(*values.shape[:2], math.prod(padded), dtype=x.dtype, device=x.device)
    found = whole.scatter_add(2, index, values).reshape(*values.shape[:2], *padded)
    return found[(slice(None), slice(None), *[slice(around[i], around[i] + n) for i, n in enumerate(sizes)])]


def window(a: float, b: float, c: float = 0.0) -> Any:
    """Return an operator that makes a window of cosines."""

    def values(size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        n = int(size)
        turns = 2 * np.pi * np.arange(n) / max(1, n if periodic else n - 1)
        return to_type(
            as_tensor((a - b * np.cos(turns) + c * np.cos(2 * turns)).astype(np.float32)), output_datatype
        )

    return values


def mel_weights(bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1) -> Any:
    """MelWeightMatrix: triangles over the bins of a spectrum."""
    count, edges = int(bins), [2595 * np.log10(1 + float(f) / 700) for f in (low, high)]
    mels = edges[0] + np.arange(count + 2) * (edges[1] - edges[0]) / (count + 2)
    at = ((int(length) + 1) * 700 * (10 ** (mels / 2595) - 1) // int(rate)).astype(np.int64)
    found = np.zeros((int(length) // 2 + 1, count), np.float32)
    for i, (a, b, c) in enumerate(zip(at, at[1:], at[2:], strict=False)):
        for k in range(a, c):
            found[k, i] = (k - a) / (b - a) if k < b else (c - k) / (c - b)
        found[b, i] = 1
    return to_type(as_tensor(found), output_datatype)


def random(kind: str, *, like: bool) -> Any:
    """Return an operator that draws numbers."""

    def draw(shape: Any, number: int, first: float, second: float) -> Any:
        device = as_tensor(np.zeros((), np.int32)).device
        values = (
            Tensor.rand(*shape, device=device) if kind == "uniform" else Tensor.randn(*shape, device=device)
        )
        span = second - first if kind == "uniform" else second
        return to_type(values * span + first, number)

    def by_shape(
        *, shape: list[int], dtype: int = 1, seed: float = 0.0, low: float = 0.0, high: float = 1.0,  # noqa: ARG001 - draws are the frontend's
        mean: float = 0.0, scale: float = 1.0,
    ) -> Any:  # fmt: skip
        return draw(shape, dtype, *((low, high) if kind == "uniform" else (mean, scale)))

    def as_input(
        x: Any, *, dtype: int = 0, seed: float = 0.0, low: float = 0.0, high: float = 1.0,  # noqa: ARG001 - draws are the frontend's
        mean: float = 0.0, scale: float = 1.0,
    ) -> Any:  # fmt: skip
        found = draw(x.shape, dtype or 1, *((low, high) if kind == "uniform" else (mean, scale)))
        return found if dtype else found.cast(dtype_of(x))

    return as_input if like else by_shape


def bernoulli(x: Tensor, *, dtype: int = 0, seed: float = 0.0) -> Any:  # noqa: ARG001 - as above
    """Bernoulli."""
    found = Tensor.rand(*x.shape, device=x.device) < x.cast("float32")
    return to_type(found, dtype) if dtype else found.cast(x.dtype)
