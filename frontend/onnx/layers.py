"""Operators of networks: products, convolutions, pools, dropout.

Next: `table`. Raises `UsageError` for sizes that do not fit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from frontend.onnx.values import as_array
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints = list[int] | None


def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None,
    *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,  # noqa: N803 - attributes
) -> Tensor:  # fmt: skip
    """Gemm."""
    y = (a.transpose(0, 1) if transA else a) @ (b.transpose(0, 1) if transB else b)
    y = y if alpha == 1 else y * alpha
    if c is not None:
        y = y + (c if beta == 1 else c * beta)
    return y.cast(a.dtype)


class _Windows(NamedTuple):
    """Windows along spatial axes: their settings, and the padding of each axis."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[tuple[int, int]]
    """Padding as the model has it."""
    reach: list[tuple[int, int]]
    """Padding with which the windows end at the last element; negative where elements are left over."""


def _windows(  # noqa: PLR0917 - attributes
    x: Tensor, kernel: Sequence[int], strides: Ints, pads: Ints, dilations: Ints, auto_pad: str, ceil: int = 0
) -> _Windows:
    rank = len(x.shape) - 2
    step, apart = strides or [1] * rank, dilations or [1] * rank
    given = pads or [0] * 2 * rank
    if rank < 1 or not len(kernel) == len(step) == len(apart) == rank or len(given) != 2 * rank:
        raise UsageError(
            f"wanted settings of {rank} spatial axes, saw {list(kernel)}, {strides}, {pads}, {dilations}"
        )
    if min([*kernel, *step, *apart]) < 1:
        raise UsageError("wanted sizes, strides and dilations of at least 1")
    around, reach = [], []
    for i, (n, k, s, d) in enumerate(zip(x.shape[2:], kernel, step, apart, strict=True)):
        width = d * (k - 1) + 1
        begin, end = given[i], given[i + rank]
        if auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
            total = max(0, (-(-n // s) - 1) * s + width - n)
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            end = total - begin
        elif auto_pad == "VALID":
            begin = end = 0
        rest = n + begin + end - width
        count = (-(-rest // s) if ceil else rest // s) + 1
        if ceil and (count - 1) * s >= n + begin:
            count -= 1
        if count < 1:
            raise UsageError(
                f"a window of {width} does not fit an axis of {n} elements and {begin + end} of padding"
            )
        around.append((begin, end))
        reach.append((begin, (count - 1) * s + width - n - begin))
    return _Windows(list(kernel), step, apart, around, reach)


def _flat(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return pairs as the methods of `Tensor` take them: the last axis first."""
    return tuple([n for pair in reversed(pairs) for n in pair])


def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None,
    pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """Conv."""
    at = _windows(x, kernel_shape or w.shape[2:], strides, pads, dilations, auto_pad)
    return x.conv2d(w, b, at.strides, _flat(at.pads), at.dilations, group)


def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None,
    output_padding: Ints = None, output_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """ConvTranspose."""
    rank = len(x.shape) - 2
    kernel, step, apart = kernel_shape or w.shape[2:], strides or [1] * rank, dilations or [1] * rank
    extra, given = list(output_padding or [0] * rank), pads or [0] * 2 * rank
    pairs = []
    for i in range(rank):
        n, width = x.shape[2 + i], apart[i] * (kernel[i] - 1) + 1
        begin, end = given[i], given[i + rank]
        same = auto_pad in {"SAME_UPPER", "SAME_LOWER"}
        if output_shape or same:
            wanted = output_shape[i - rank] if output_shape else n * step[i]
            total = step[i] * (n - 1) + extra[i] + width - wanted
            if total < 0:
                extra[i], total = extra[i] - total, 0
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            end = total - begin
        pairs.append((begin, end))
    return x.conv_transpose2d(w, b, step, _flat(pairs), extra, group, apart)


def max_pool(
    x: Tensor,
    *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
    pads: Ints = None, storage_order: int = 0, strides: Ints = None, _outputs: int = 1,
) -> Any:  # fmt: skip
    """MaxPool, with the places of the greatest elements in the flat input."""
    at = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    low = -math.inf if x.dtype.is_float else x.dtype.min
    every = (at.kernel, at.strides, 0, at.dilations)
    padded = x.pad(((0, 0), (0, 0), *at.reach), value=low)
    y = padded.max_pool2d(*every)
    if _outputs < 2:
        return y
    spatial = x.shape[2:]
    places = padded.max_pool2d(*every, return_indices=True)[1].cast("int64")
    sizes = padded.shape[2:]
    found: Any = 0
    for i, n in enumerate(sizes):  # places in the padded image as places in the whole input
        part = places // math.prod(sizes[i + 1 :]) % n - at.reach[i][0]
        found = found + part * (math.prod(spatial[:i]) if storage_order else math.prod(spatial[i + 1 :]))
    first = Tensor.arange(x.shape[0] * x.shape[1], device=x.device) * math.prod(spatial)
    return y, found + first.reshape(x.shape[0], x.shape[1], *(1,) * len(spatial))


def average_pool(
    x: Tensor,
    *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """AveragePool."""
    at = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    whole, none = [(0, 0), (0, 0)], (0, 0)

    def means(t: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
        return t.pad((*whole, *pairs)).avg_pool2d(at.kernel, at.strides, 0, dilation=at.dilations)

    y = means(x, at.reach)
    pairs = list(zip(at.pads, at.reach, strict=True))
    if all((p == none or count_include_pad) and r[1] <= p[1] for p, r in pairs):
        return y
    counted = at.pads if count_include_pad else [none] * len(at.pads)
    ones = Tensor.ones(
        1, 1, *[n + sum(p) for n, p in zip(x.shape[2:], counted, strict=True)], dtype=x.dtype, device=x.device
    )
    rest = [(r[0] - c[0], r[1] - c[1]) for r, c in zip(at.reach, counted, strict=True)]
    return y / means(ones, rest)


def lp_pool(
    x: Tensor,
    *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
    p: int = 2, pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """LpPool."""
    at = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    powers = x.abs().pow(p).pad(((0, 0), (0, 0), *at.reach))
    found = powers.avg_pool2d(at.kernel, at.strides, 0, dilation=at.dilations) * math.prod(at.kernel)
    return found.pow(1 / p)


def max_unpool(
    x: Tensor, index: Tensor, shape: Any = None,
    *, kernel_shape: list[int], pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """MaxUnpool: the places count in the flat output that the settings give."""
    rank = len(x.shape) - 2
    step, given = strides or [1] * rank, pads or [0] * 2 * rank
    sizes = [
        (n - 1) * s + k - given[i] - given[i + rank]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], step, kernel_shape, strict=True))
    ]
    own = [*x.shape[:2], *sizes]
    flat = Tensor.zeros(math.prod(own), dtype=x.dtype, device=x.device)
    found = flat.scatter(0, index.reshape(-1), x.reshape(-1)).reshape(*own)
    if shape is None:
        return found
    return found.pad(tuple([(0, int(m) - n) for n, m in zip(own, as_array(shape), strict=True)]))


def dropout(x: Tensor, ratio: Any = None, training: Any = None, *, seed: int | None = None) -> Any:  # noqa: ARG001 - draws are the frontend's
    """Dropout: keeps all elements unless it trains."""
    share = 0.5 if ratio is None else float(as_array(ratio).reshape(-1)[0])
    if training is None or not as_array(training).reshape(-1)[0] or share == 0:
        return x, Tensor.full(x.shape, fill_value=True, dtype="bool", device=x.device)
    kept = Tensor.rand(*x.shape, device=x.device) >= share
    return kept.where(x * (1 / (1 - share)), 0).cast(x.dtype), kept
