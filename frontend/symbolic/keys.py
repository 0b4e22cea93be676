"""Slices and indices with symbolic sizes: `x[:n]`, `x[a : a + n]`, `y[-1]`, and writing to such a part.

Of an axis with a symbolic part the elements up to the part's capacity are read. The other axes are indexed as
those of a tensor with fixed sizes. A part that may lie outside of the axis for some value of a variable
raises `UsageError`.

Not here: keys without symbolic sizes, and starts at a bound variable (`frontend.ops.indexing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from frontend.arguments.checks import whole
from frontend.evaluation.constants import coordinate
from frontend.ops.indexing import symbolic_slice, take_from
from frontend.symbolic import sizes as algebra
from frontend.symbolic.sizes import Size, Sizes, capacity, symbolic
from frontend.symbolic.tensor import made
from frontend.variable import Bound, Sum
from hcq.errors import UnsupportedError, UsageError, UsageIndexError


@dataclass(frozen=True, slots=True)
class AxisPart:
    """The part of an axis from `start` on, of a size; one of both is symbolic, or the axis is.

    `drop`: the part is one index, whose axis is removed.
    """

    start: Size
    size: Size
    drop: bool = False


def part_of(x: Any, sizes: Sizes, key: Any) -> Any:
    """Return x[key] for a tensor x of the capacity and its sizes.

    Raises `UsageIndexError` for too many indices and for one that may be outside, `UsageError` for a slice
    that may end beyond its axis, `UnsupportedError` for an index tensor and for a step other than 1.
    """
    key, parts = _parts(sizes, key)
    for axis, part in parts.items():
        if isinstance(part.start, Bound):
            x = take_from(x, part.start.scalar(x), capacity(part.size), axis)
        elif not (part.start == 0 and capacity(part.size) == x.expr.shape[axis]):
            x = x[(slice(None),) * axis + (slice(part.start, part.start + capacity(part.size)),)]
    whole_key: list[Any] = []
    found: list[Size | None] = []
    axis = 0
    for p in key:
        if p is None:
            found.append(1)
            whole_key.append(None)
            continue
        cut = parts.get(axis)
        if cut is not None:
            whole_key.append(0 if cut.drop else slice(None))
            if not cut.drop:
                found.append(cut.size)
        else:
            whole_key.append(p)
            if isinstance(p, slice):
                found.append(None)
        axis += 1
    y = x[tuple(whole_key)]
    return made(y, tuple([n if s is None else s for s, n in zip(found, y.expr.shape, strict=True)]))


def _parts(sizes: Sizes, key: Any) -> tuple[list[Any], dict[int, AxisPart]]:
    """Return the key without ..., and axis -> its part, where the key or the size of the axis is symbolic."""
    given = list(key) if isinstance(key, tuple) else [key]
    if any(hasattr(p, "__array__") or isinstance(p, list) for p in given):
        raise UnsupportedError(
            f"an index tensor beside symbolic sizes, saw the shape {sizes}\n"
            "hint: index the tensor of fixed size first, then slice the result"
        )
    used = sum([1 for p in given if p is not None and p is not Ellipsis])
    if used > len(sizes):
        raise UsageIndexError(f"{used} indices for the shape {sizes}: it has only {len(sizes)} axes")
    at = next((i for i, p in enumerate(given) if p is Ellipsis), len(given))
    given[at : at + 1] = [slice(None)] * (len(sizes) - used)
    parts: dict[int, AxisPart] = {}
    axis = 0
    for p in given:
        if p is None:
            continue
        if isinstance(sizes[axis], Bound) or (isinstance(p, slice) and symbolic_slice(p)):
            parts[axis] = _part(p, sizes[axis], axis)
        axis += 1
    return given, parts


def _part(p: Any, n: Size, axis: int) -> AxisPart:
    if not isinstance(p, slice):
        return AxisPart(_place(p, n, axis), 1, drop=True)
    if p.step not in {None, 1}:
        raise UnsupportedError(f"axis {axis}: a slice with a symbolic size has the step 1, saw {p.step}")
    start = _end(0 if p.start is None else p.start, n, axis)
    if isinstance(p.stop, Sum):
        size: Any = p.stop.beyond(p.start)
        if size is None:
            raise UnsupportedError(f"axis {axis}: wanted a slice a : a + n, saw {p.start} : {p.stop}")
    else:
        stop = n if p.stop is None else _end(p.stop, n, axis)
        size = algebra.add(stop, algebra.negative(start), f"axis {axis}, {p.start} : {p.stop}")
        _check(stop, n, axis, p)
    low = size.low if isinstance(size, Bound) else size
    if low < 0 and not (isinstance(size, Bound) and size.value is not None and size.value >= 0):
        raise UsageError(f"axis {axis}: the size {size} of {p.start} : {p.stop} may be {low}, less than 0")
    if isinstance(start, int) and start + capacity(size) > capacity(n):
        raise UsageError(
            f"axis {axis}: {p.start} : {p.stop} reaches {start + capacity(size)} of {capacity(n)} elements\n"
            "hint: declare the variable with the greatest value that the axis can hold"
        )
    return AxisPart(start, size)


def _end(value: Any, n: Size, axis: int) -> Size:
    """Return a bound of a slice, counted from the front."""
    if isinstance(value, Bound):
        return value
    number = whole(value, f"slice of axis {axis}")
    return algebra.add(n, number, f"slice of axis {axis}") if number < 0 else number


def _check(stop: Size, n: Size, axis: int, p: slice) -> None:
    """Raise `UsageError` for a slice that may end beyond a symbolic size."""
    if not isinstance(n, Bound):
        return
    rest = algebra.add(n, algebra.negative(stop), "slice") if _comparable(n, stop) else None
    least = rest.low if isinstance(rest, Bound) else rest
    known = (
        isinstance(stop, Bound) and stop.value is not None and n.value is not None and stop.value <= n.value
    )
    if (least is None or least < 0) and not known:
        raise UsageError(
            f"axis {axis}: {p.start} : {p.stop} may end behind the size {n}\n"
            "hint: slice the tensor of fixed size instead"
        )


def _comparable(n: Bound, stop: Size) -> bool:
    return not isinstance(stop, Bound) or algebra.agree(n, stop, "slice")


def _place(p: Any, n: Size, axis: int) -> Size:
    """Return an index, counted from the front. Raises `UsageIndexError` if it may be outside."""
    place = _end(p, n, axis)
    rest = (
        algebra.add(n, algebra.negative(place), "index")
        if isinstance(n, Bound) and _comparable(n, place)
        else None
    )
    low = place.low if isinstance(place, Bound) else place
    least = rest.low if isinstance(rest, Bound) else rest
    if low < 0 or least is None or least < 1:
        raise UsageIndexError(
            f"axis {axis}: the index {p} may be outside the size {n}\n"
            "hint: index the tensor of fixed size, or declare a variable with a greater least value"
        )
    return place


def written(x: Any, key: Any, value: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the key of fixed sizes and the value to write there, for `x[key] = value` with symbolic sizes.

    `value` is broadcast. Raises `UnsupportedError` for a part whose start and size are symbolic, `UsageError`
    for a value of another shape, and as `part_of`.
    """
    given, parts = _parts(x.expr.shape, key)
    if any(isinstance(part.start, Bound) for part in parts.values()):
        raise UnsupportedError(
            "writing to a part with a symbolic start and size\n"
            "hint: write a number of rows that is fixed: x[n : n + 1] = row"
        )
    axis = 0
    for i, p in enumerate(given):
        part = parts.get(axis)
        if p is not None:
            if part is not None and isinstance(part.start, int):
                given[i] = slice(part.start, part.start + capacity(part.size))
            axis += 1
    fixed = tuple(given)
    old = x[fixed]
    sizes = part_of(x, x.expr.shape, key).sizes
    new = value
    if hasattr(value, "expr") or hasattr(value, "dispatch"):
        own = value.sizes if hasattr(value, "dispatch") else value.expr.shape
        if any(
            not algebra.same(a, b, "writing")
            for a, b in zip(algebra.broadcast((own, sizes), "writing"), sizes, strict=True)
        ):
            raise UsageError(f"writing a value of the shape {own} to a part of the shape {sizes}")
        new = value.whole if hasattr(value, "dispatch") else value
    for axis, size in symbolic(sizes):
        new = _selected(old, new, size.scalar(x), axis)
    return fixed, new


def _selected(old: Any, new: Any, number: Any, axis: int) -> Any:
    """Return `new` where the index along an axis is below `number`, and `old` elsewhere."""
    shape = tuple([n if i == axis else 1 for i, n in enumerate(old.expr.shape)])
    below = (coordinate(old, (old.expr.shape[axis],), 0) < number).reshape(shape)
    return below.where(new, old).cast(old.expr.dtype)
