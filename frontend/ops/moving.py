"""Parts of an axis that start at a bound variable: one structure for all values.

Not here: variables (`frontend.variable`), slices with known bounds (`indexing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.ir.ops import Ops
from frontend.ops.elementwise import add, lt, mul, sub, where
from frontend.ops.sources import coordinate, number_like
from frontend.tensor_base import T
from frontend.trace import apply, composite
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.ops.arguments import Shape


@dataclass(frozen=True, slots=True)
class Moving:
    """A part of an axis that starts at a bound variable; `drop` removes the axis."""

    axis: int
    start: Any
    size: int
    drop: bool


def symbolic_slice(p: slice) -> bool:
    """Return whether the size of a slice depends on a bound variable."""
    if hasattr(p.start, "scalar"):
        return not hasattr(p.stop, "scalar") or p.stop.beyond(p.start) is None
    return hasattr(p.stop, "beyond")


def has_symbolic_size(key: Any) -> bool:
    """Return whether a key has a slice whose size depends on a bound variable."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(p, slice) and symbolic_slice(p) for p in parts)


def moving_parts(key: Any, shape: Shape) -> tuple[list[Moving], tuple[Any, ...]]:
    """Return the moving parts of a key, and the key with the whole axis in place of each."""
    parts = list(key) if isinstance(key, tuple) else [key]
    axis = 0
    found: list[Moving] = []
    for i, p in enumerate(parts):
        if p is None:
            continue
        if p is Ellipsis:
            axis += len(shape) - sum([1 for q in parts if q is not None and q is not Ellipsis])
            continue
        is_slice = isinstance(p, slice)
        if hasattr(p, "scalar") or (is_slice and (hasattr(p.start, "scalar") or hasattr(p.stop, "scalar"))):
            found.append(_moving_part(p, axis, shape))
            parts[i] = slice(None) if is_slice else 0
        axis += 1
    return found, tuple(parts)


def _moving_part(p: Any, axis: int, shape: Shape) -> Moving:
    if axis >= len(shape):
        raise UsageError(f"an index for axis {axis}: the shape {shape} has only {len(shape)} axes")
    start, size = p, 1
    if isinstance(p, slice):
        start = p.start
        both = hasattr(start, "scalar") and hasattr(p.stop, "scalar")
        wide = p.stop.beyond(start) if both else None
        if wide is None or wide < 0 or p.step not in {None, 1}:
            raise UsageError(f"axis {axis}: {p} must run from a bound variable to the same plus a number")
        size = wide
    n = shape[axis]
    if start.low < 0 or start.high + size > n:
        raise UsageError(
            f"axis {axis}: {start} to {start} + {size} reaches {start.low}..{start.high + size} of {n}"
        )
    return Moving(axis, start, size, drop=not isinstance(p, slice))


def take_moving(x: T, key: Any) -> tuple[T, Any]:
    """Apply the slices at bound variables; return the result and the rest of the key."""
    found, rest = moving_parts(key, x.expr.shape)
    if not found:
        return x, key
    for m in found:
        x = take_from(x, m.start.scalar(x), m.size, m.axis)
    return x, rest


@composite
def take_from(x: T, start: T, size: int, axis: int) -> T:
    """Return `size` elements of an axis from `start` on; those outside the axis are 0."""
    return apply(Ops.GATHER, axis, x, add(coordinate(x, (size,), 0), start))


@composite
def place_at(x: T, value: T, start: T, axis: int) -> T:
    """Return value, whose axis is shorter, placed at `start` in an axis as long as that of x."""
    return apply(Ops.GATHER, axis, value, sub(coordinate(x, (x.expr.shape[axis],), 0), start))


@composite
def only_at(x: T, new: T, start: T, size: int, axis: int) -> T:
    """Return new inside start <= i < start + size of an axis, x outside."""
    n = x.expr.shape[axis]
    place = sub(coordinate(x, (n,), 0), start)
    inside = mul(lt(place, size), lt(number_like(place, -1), place))
    shape = tuple([n if i == axis else 1 for i in range(len(x.expr.shape))])
    return where(apply(Ops.RESHAPE, shape, inside), new, x)
