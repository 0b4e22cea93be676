"""Padding: more elements at the ends of axes, of one value or of the tensor's own elements.

The result is a copy. Not here: the same values in another shape or order (`movement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.ops.arguments import Shape, is_pair, whole
from frontend.ops.division import mod
from frontend.ops.elementwise import add, lt, maximum, minimum, neg, sub, where
from frontend.ops.sources import constant, coordinate, spread, suited
from frontend.tensor_base import T
from frontend.trace import apply, method
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
    first. Negative padding cuts.

    The result is a copy.

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
