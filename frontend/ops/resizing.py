"""Padding and resizing: borders of several modes, interpolation, pixels between channels and axes.

Sizes and shapes that do not fit raise `UsageError`, arguments of other classes `UsageTypeError`.

Not here: parts and views (`movement`). Next: `convolutions`, windows.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, Literal

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import Shape, is_pair, whole
from frontend.arguments.conversion import flag, number
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, coordinate, narrowed, spread, suited, widened
from frontend.evaluation.trace import apply, method
from frontend.ops.arithmetic import div, mod
from frontend.ops.elementwise import add, clip, lt, maximum, minimum, mul, neg, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import floor
from frontend.ops.linalg import matmul
from frontend.ops.movement import reshape, transpose
from frontend.ops.reductions import sum as total
from frontend.ops.splitting import stack
from hcq.errors import UsageError


def _padding(padding: Sequence[Any], shape: Shape) -> tuple[tuple[int, int], ...]:
    """Return (before, after) of each axis, given so, or as flat (last before, last after, ...)."""
    rank = len(shape)
    if all(p is None or isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != rank or not all(p is None or is_pair(p) for p in padding):
            raise UsageError(
                f"pad of {shape}: wanted one (before, after) for each axis, saw {tuple(padding)}"
            )
        return tuple([(0, 0) if p is None else (whole(p[0], "pad"), whole(p[1], "pad")) for p in padding])
    if len(padding) % 2 or len(padding) > 2 * rank:
        raise UsageError(
            f"pad of {shape}: wanted pairs for at most {rank} axes, last axis first, saw {tuple(padding)}"
        )
    pairs = [(whole(padding[i], "pad"), whole(padding[i + 1], "pad")) for i in range(0, len(padding), 2)]
    return (*[(0, 0)] * (rank - len(pairs)), *reversed(pairs))


@method
def pad(
    self: T,
    padding: Sequence[Any],
    value: float = 0.0,
    mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
) -> T:
    """Return self padded with `value` in its dtype, or by the mode with elements of self.

    "reflect" mirrors at the border elements, "replicate" repeats them, "circular" continues at the other end.

    `padding` is ((before, after) or None, ...) for every axis, or flat pairs for the last axes, last one
    first. Negative padding cuts elements off. The result is never a view.

    Raises `UsageError` for padding that does not fit the axes or cuts more than there is, for another mode,
    for "reflect" by as many elements as the axis has, and for "circular" by more.

        Tensor.ones(2, 3).pad((1, 0))      # (2, 4): one column of zeros in front
    """
    shape = self.expr.shape
    pairs = _padding(padding, shape)
    if mode not in {"constant", "circular"}:
        return _continued(self, pairs, mode)
    cut = tuple([(max(0, -lo), n - max(0, -hi)) for (lo, hi), n in zip(pairs, shape, strict=True)])
    if any(begin > end for begin, end in cut):
        raise UsageError(f"pad of {shape} by {pairs}: cuts more than there is")
    x = apply(Ops.SHRINK, cut, self)
    grow = tuple([(max(0, lo), max(0, hi)) for lo, hi in pairs])
    if mode == "circular":  # what was cut off does not come back at the other end
        return _continued(x, grow, mode)
    padded = apply(Ops.PAD, grow, x)
    if value == 0:
        return padded
    inside = apply(Ops.PAD, grow, spread(constant(x, True, dtypes.bool, ()), x.expr.shape))
    return where(inside, padded, constant(x, suited(value, x.expr.dtype), x.expr.dtype, ()))


def _continued(x: T, pairs: tuple[tuple[int, int], ...], mode: str) -> T:
    """Return x padded along each axis with its own elements."""
    if mode not in {"reflect", "replicate", "circular"}:
        raise UsageError(f"pad: wanted the mode constant, reflect, replicate or circular, saw {mode!r}")
    for a, (low, high) in enumerate(pairs):
        n = x.expr.shape[a]
        most = {"reflect": n - 1, "circular": n}.get(mode)
        if (low or high) and (not n or (most is not None and max(low, high) > most)):
            raise UsageError(f"pad: {mode} by {(low, high)} of an axis of {n} elements: there are too few")
        if low or high:
            place = sub(coordinate(x, (low + n + high,), 0), low)
            if mode == "replicate":
                place = minimum(maximum(place, 0), n - 1)
            elif mode == "circular":
                place = mod(add(place, n), n)
            else:
                place = _mirrored(place, n)
            x = apply(Ops.GATHER, a, x, place)
    return x


def _mirrored(place: T, n: int) -> T:
    """Return places reflected at 0 and at n - 1."""
    size = where(lt(place, 0), neg(place), place)
    return where(lt(size, n), size, add(neg(size), 2 * (n - 1)))


_LINEAR: Final = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
"""Interpolation modes that compute weighted sums -> the number of spatial axes of each."""
MODES: Final = ("nearest", "nearest-exact", "area", *_LINEAR)


@accepts_aliases
def interpolate(  # noqa: PLR0917 - the field's signature
    self: T,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> T:
    """Return (batch, channels, *spatial) with other spatial sizes: `size`, or the old ones by a factor.

    `mode` is "nearest", "nearest-exact", "area" (means of bins), "linear", "bilinear", "trilinear" (for one,
    two and three spatial axes), or "bicubic" (for two). `align_corners`, for the last four, puts the first
    and last elements of both sizes on each other. With `recompute_scale_factor`, positions are computed from
    the new sizes instead of the factor. With `antialias`, for "bilinear" and "bicubic", a result is a mean of
    all old elements up to its neighbours. Weighted sums of uint8 are rounded after each axis, the last first,
    as in PyTorch; those of other integers are float32.

    Raises `UsageError` for another mode or number of axes, for sizes below 1, unless either `size` or
    `scale_factor` is given, and for options that the mode lacks.
    """
    if flag(antialias, "interpolate, antialias") and mode not in {"bilinear", "bicubic"}:
        raise UsageError(f"interpolate: antialias is of bilinear and bicubic, saw {mode!r}")
    spatial = self.expr.shape[2:]
    if not spatial:
        raise UsageError(f"interpolate: wanted (batch, channels, *spatial), saw the shape {self.expr.shape}")
    if (size is None) == (scale_factor is None):
        raise UsageError("interpolate: wanted either size or scale_factor")
    factors: tuple[float, ...] | None = None
    if size is None:
        given = scale_factor if isinstance(scale_factor, Sequence) else (scale_factor,) * len(spatial)
        factors = tuple([number(f, "interpolate, scale_factor") for f in given])
        sizes = tuple([int(n * f) for n, f in zip(spatial, factors, strict=False)])
    else:
        listed = size if isinstance(size, Sequence) else (size,) * len(spatial)
        sizes = tuple([whole(n, "interpolate, size") for n in listed])
    if len(sizes) != len(spatial) or any(n < 1 for n in sizes):
        raise UsageError(
            f"interpolate of {self.expr.shape}: wanted {len(spatial)} sizes above 0, saw {sizes}"
        )
    if mode in _LINEAR and _LINEAR[mode] != len(spatial):
        raise UsageError(
            f"interpolate: {mode} is of {_LINEAR[mode]} spatial axes, the shape is {self.expr.shape}"
        )
    if mode not in MODES:
        raise UsageError(f"interpolate: wanted one of {', '.join(MODES)}, saw {mode!r}")
    if align_corners is not None and mode not in _LINEAR:
        raise UsageError(f"interpolate: align_corners is of linear modes, saw {mode!r}")
    if mode == "area":
        means: T = binned(self, sizes, "mean")
        return means
    if recompute_scale_factor is not None and flag(recompute_scale_factor, "recompute_scale_factor"):
        if factors is None:
            raise UsageError("interpolate: recompute_scale_factor is of scale_factor, saw size")
        factors = None
    return _resized(self, sizes, factors, mode, bool(align_corners), antialias)


@method
def _resized(  # noqa: PLR0917 - internal
    self: T, sizes: Shape, factors: tuple[float, ...] | None, mode: str, corners: bool, smooth: bool
) -> T:
    x = widened(self) if mode in _LINEAR else self
    bytes_ = mode in _LINEAR and self.expr.dtype is dtypes.uint8
    for i, m in reversed(list(enumerate(sizes))):
        n = x.expr.shape[2 + i]
        if m == n and factors is None:
            continue
        step = n / m if factors is None else 1 / factors[i]
        if corners:
            step = (n - 1) / (m - 1) if m > 1 else 0.0
        if smooth:
            x = _filtered(x, 2 + i, m, step, mode)
            x = clip(floor(add(x, 0.5)), 0, 255) if bytes_ else x
            continue
        exact = x.expr.dtype is dtypes.float64 or max(n, m) > 1 << 24
        place = convert(coordinate(x, (m,), 0), dtypes.float64 if exact else dtypes.float32)
        if mode == "nearest" or corners:
            at = mul(place, step)
        else:
            at = mul(add(place, 0.5), step)
            at = sub(at, 0.5) if mode in _LINEAR else at
            at = maximum(at, 0.0) if mode != "bicubic" else at
        low = floor(at)
        first = convert(low, dtypes.int32)
        shape = (*x.expr.shape[: 2 + i], m, *x.expr.shape[3 + i :])
        share = reshape(
            convert(sub(at, low), x.expr.dtype), (1,) * (2 + i) + (m,) + (1,) * (len(sizes) - i - 1)
        )
        begin, weights = _taps(mode, share)
        parts = [
            apply(Ops.GATHER, 2 + i, x, minimum(maximum(add(first, begin + k), 0), n - 1))
            for k in range(len(weights))
        ]
        if mode in _LINEAR:
            parts = [mul(part, spread(w, shape)) for part, w in zip(parts, weights, strict=True)]
        x = reduce(add, parts)
        x = clip(floor(add(x, 0.5)), 0, 255) if bytes_ else x
    if bytes_:
        return convert(x, dtypes.uint8)
    return narrowed(x, self) if mode in _LINEAR else x


def _taps(mode: str, share: T) -> tuple[int, list[T]]:
    """Return the offset of the first element of a weighted sum from the element below, and all weights."""
    rest = add(mul(share, -1.0), 1.0)
    if mode != "bicubic":
        return 0, [rest, share] if mode in _LINEAR else [rest]

    return -1, [_far(add(share, 1.0)), _near(share), _near(rest), _far(add(rest, 1.0))]


def _near(t: T, a: float = -0.75) -> T:
    """Return Keys' polynomial of distances up to 1."""
    return add(mul(mul(t, t), add(mul(t, a + 2), -a - 3)), 1.0)


def _far(t: T, a: float = -0.75) -> T:
    """Return Keys' polynomial of distances from 1 to 2."""
    return add(mul(add(mul(add(mul(t, a), -5 * a), t), 8 * a), t), -4 * a)


def _filtered(x: T, axis: int, m: int, step: float, mode: str) -> T:
    """Return m weighted means of an axis, `step` apart, over windows of at least that width."""
    shape = (m, x.expr.shape[axis])
    at, place = (add(convert(coordinate(x, shape, k), x.expr.dtype), 0.5) for k in (0, 1))
    t = absolute(mul(sub(place, mul(at, step)), 1 / max(step, 1.0)))
    weights = maximum(sub(constant(x, 1.0, x.expr.dtype, shape), t), 0.0)
    if mode == "bicubic":
        weights = where(lt(t, 1.0), _near(t, -0.5), where(lt(t, 2.0), _far(t, -0.5), 0.0))
    weights = div(weights, total(weights, 1, keepdim=True))
    return transpose(matmul(transpose(x, axis, -1), transpose(weights)), axis, -1)


def binned(x: Any, sizes: Sequence[int | None], method: str) -> Any:
    """Return the last axes divided into bins, as many as `sizes` says, and reduced by "mean" or "max".

    The gradient of a greatest element is that of its first place in the order of memory.
    A size of None keeps its axis. Bin i of m over n elements starts at i * n // m and ends before
    -(-(i + 1) * n // m), so bins may overlap.
    """
    greatest = method == "max"
    axes = [*enumerate(sizes, len(x.shape) - len(sizes))]
    for axis, m in reversed(axes) if greatest else axes:  # the last axis first: it holds the first place
        n = x.shape[axis]
        if m is None or m == n:
            continue
        if n % m == 0:
            x = getattr(x.unflatten(axis, (m, n // m)), method)(axis + 1)
            x = x.values if greatest else x
        else:
            bins = [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
            parts = [getattr(x.narrow(axis, a, b - a), method)(axis) for a, b in bins]
            x = stack([part.values for part in parts] if greatest else parts, axis=axis)
    return x
