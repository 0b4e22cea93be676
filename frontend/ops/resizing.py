"""Other sizes of images: `interpolate` by the nearest element or linearly, along any spatial axes.

Not here: pools and convolutions (`convolutions`), padding (`padding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arg_aliases import accepts_aliases
from frontend.ops.arguments import whole
from frontend.ops.elementwise import add, maximum, minimum, mul, sub
from frontend.ops.functions import floor
from frontend.ops.movement import reshape
from frontend.ops.sources import convert, coordinate, narrowed, spread, widened
from frontend.parameters import number
from frontend.trace import apply, method
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.ops.arguments import Shape
    from frontend.tensor_base import T

_LINEAR: Final = {"linear": 1, "bilinear": 2, "trilinear": 3}


@accepts_aliases
def interpolate(
    self: T,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,  # noqa: FBT001 - as above
) -> T:
    """Return (batch, channels, *spatial) with other spatial sizes: `size`, or the old ones by a factor.

    `mode`: "nearest", "nearest-exact", or "linear", "bilinear", "trilinear" of one, two and three axes.
    `align_corners` puts the first and last elements on each other, for linear modes. Raises `UsageError` for
    another mode or rank.
    """
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
    if mode not in {"nearest", "nearest-exact", *_LINEAR}:
        raise UsageError(f"interpolate: wanted nearest, nearest-exact or linear modes, saw {mode!r}")
    if align_corners is not None and mode not in _LINEAR:
        raise UsageError(f"interpolate: align_corners is of linear modes, saw {mode!r}")
    return _resized(self, sizes, factors, mode, bool(align_corners))


@method
def _resized(self: T, sizes: Shape, factors: tuple[float, ...] | None, mode: str, corners: bool) -> T:  # noqa: FBT001 - internal
    x = widened(self) if mode in _LINEAR else self
    for i, m in enumerate(sizes):
        n = x.expr.shape[2 + i]
        if m == n and factors is None:
            continue
        step = n / m if factors is None else 1 / factors[i]
        if corners:
            step = (n - 1) / (m - 1) if m > 1 else 0.0
        exact = x.expr.dtype is dtypes.float64 or max(n, m) > 1 << 24
        place = convert(coordinate(x, (m,), 0), dtypes.float64 if exact else dtypes.float32)
        if mode == "nearest" or corners:
            at = mul(place, step)
        else:
            at = mul(add(place, 0.5), step)
            at = maximum(sub(at, 0.5), 0.0) if mode in _LINEAR else at
        low = floor(at)
        first = minimum(convert(low, dtypes.int32), n - 1)
        picked = apply(Ops.GATHER, 2 + i, x, first)
        if mode in _LINEAR:
            second = apply(Ops.GATHER, 2 + i, x, minimum(add(first, 1), n - 1))
            shape = (1,) * (2 + i) + (m,) + (1,) * (len(sizes) - i - 1)
            share = spread(reshape(convert(sub(at, low), x.expr.dtype), shape), picked.expr.shape)
            picked = add(mul(picked, add(mul(share, -1.0), 1.0)), mul(second, share))
        x = picked
    return narrowed(x, self) if mode in _LINEAR else x
