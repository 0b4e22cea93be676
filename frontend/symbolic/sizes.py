"""Arithmetic of sizes, which are whole numbers or bound variables, and of shapes made of them.

A symbolic size is a `Bound`. Its capacity, the size of the axis in memory, is its greatest value. `what` is
the method's name, with which the message of an error starts.

Not here: bound variables (`frontend.variable`). Next: `tensor`, tensors with such sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

from frontend.variable import Bound
from hcq.errors import UnsupportedError, UsageError

Size = int | Bound
Sizes = tuple[Size, ...]


def capacity(size: Size) -> int:
    """Return the greatest value of a size."""
    return size.high if isinstance(size, Bound) else size


def capacities(sizes: Iterable[Size]) -> tuple[int, ...]:
    """Return the greatest value of each size."""
    return tuple([capacity(s) for s in sizes])


def symbolic(sizes: Sequence[Size]) -> list[tuple[int, Bound]]:
    """Return (axis, size) for each symbolic size of a shape."""
    return [(axis, s) for axis, s in enumerate(sizes) if isinstance(s, Bound)]


def same(a: Size, b: Size, what: str) -> bool:
    """Return whether two sizes are equal for all values. Raises `UsageError` as `agree`."""
    if not isinstance(a, Bound) or not isinstance(b, Bound):
        return a.__class__ is b.__class__ and a == b
    return agree(a, b, what) and (a.factor, a.offset) == (b.factor, b.offset)


def agree(a: Bound, b: Bound, what: str) -> bool:
    """Return whether two sizes have the same variable. Raises `UsageError` if it was bound to two values."""
    if a.variable != b.variable:
        return False
    if a.part != b.part and (a.bound is None or a.bound != b.bound):
        raise UsageError(
            f"{what}: {a.variable.name} is bound twice, as {_shown(a)} and as {_shown(b)}\n"
            "hint: bind it once, and use the result in every size"
        )
    return True


def _shown(size: Bound) -> str:
    return "a value that is known at launch" if size.bound is None else str(size.bound)


def add(a: Size, b: Size, what: str) -> Size:
    """Return a + b. Raises `UnsupportedError` for sizes of two variables, `UsageError` as `agree`."""
    if not isinstance(a, Bound):
        return b + a if isinstance(b, Bound) else a + b
    if not isinstance(b, Bound):
        return a + b
    if not agree(a, b, what):
        raise UnsupportedError(
            f"{what}: {a} + {b} is a size of two variables\nhint: declare a third variable for their sum"
        )
    factor = a.factor + b.factor
    return replace(a, factor=factor, offset=a.offset + b.offset) if factor else a.offset + b.offset


def negative(a: Size) -> Size:
    """Return -a."""
    return a * -1 if isinstance(a, Bound) else -a


def broadcast(shapes: Sequence[Sequence[Size]], what: str) -> Sizes:
    """Return the common shape, aligned at the last axis; a size 1 takes the other size.

    Raises `UsageError` for sizes that differ for some value, and as `agree`.
    """
    rank = max(map(len, shapes))
    found: list[Size] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if isinstance(size, Bound) or size != 1:
                if not isinstance(found[i], Bound) and found[i] == 1:
                    found[i] = size
                elif not same(found[i], size, what):
                    raise UsageError(
                        f"{what}: the shapes {', '.join([str(tuple(s)) for s in shapes])} do not broadcast: "
                        f"{found[i]} and {size} are not equal for all values\n"
                        f"hint: slice the other tensor to the same bound variable"
                    )
    return tuple(found)


def reshaped(old: Sequence[Size], new: Sequence[Size | Any], what: str) -> Sizes:
    """Return the new shape, -1 filled in, of elements in row-major order.

    A symbolic axis may be merged with fixed axes after it, or split into a symbolic axis and fixed axes after
    it. Raises `UsageError` for another number of elements, for two sizes of -1, for a -1 that is no size for
    all values, and where elements of the capacity would have to move in memory.
    """
    wanted: list[Size] = list(new)
    unknown = [i for i, s in enumerate(wanted) if not isinstance(s, Bound) and s == -1]
    if len(unknown) > 1:
        raise UsageError(f"{what} of {tuple(old)} to {tuple(new)}: at most one size may be -1")
    if unknown:
        known = [s for i, s in enumerate(wanted) if i not in unknown]
        wanted[unknown[0]] = _quotient(old, known, f"{what} of {tuple(old)} to {tuple(new)}")
    result: list[Size] = []
    left, right = list(old), list(wanted)
    while left or right:
        a, b = _group(left, right, f"{what} of {tuple(old)} to {tuple(new)}")
        first = [next((s for s in group if isinstance(s, Bound) or s != 1), 1) for group in (a, b)]
        unchanged = len(a) == len(b) and all(same(x, y, what) for x, y in zip(a, b, strict=True))
        if not unchanged and symbolic(a) and not all(isinstance(s, Bound) for s in first):
            raise UsageError(
                f"{what} of {tuple(old)} to {tuple(new)}: elements behind a symbolic axis would move\n"
                "hint: the symbolic axis must be the first of those that are merged; permute() first"
            )
        result += b
    return tuple(result)


def _group(left: list[Size], right: list[Size], what: str) -> tuple[list[Size], list[Size]]:
    """Remove the shortest groups of equal products from the front of two shapes, and return them."""
    a: list[Size] = [left.pop(0)] if left else []
    b: list[Size] = [right.pop(0)] if right else []
    while True:
        x, y = product(a), product(b)
        if x is not None and y is not None and same(x, y, what):
            return a, b
        smaller = x is not None and (y is None or capacity(x) < capacity(y))
        if smaller and left:
            a.append(left.pop(0))
        elif right and not smaller:
            b.append(right.pop(0))
        else:
            raise UsageError(f"{what}: the numbers of elements are not equal for all values")


def _factors(sizes: Sequence[Size]) -> tuple[int, list[Bound]]:
    """Return the product of the numbers in sizes, and the symbolic sizes without common factors."""
    number, bounds = 1, []
    for s in sizes:
        if isinstance(s, Bound):
            common = gcd(s.factor, s.offset)
            number *= common
            bounds.append(replace(s, factor=s.factor // common, offset=s.offset // common))
        else:
            number *= s
    return number, bounds


def _quotient(old: Sequence[Size], known: Sequence[Size], what: str) -> Size:
    """Return the size in place of -1: the product of `old` divided by that of `known`."""
    (total, bounds), (by, others) = _factors(old), _factors(known)
    for other in others:
        found = next((b for b in bounds if same(b, other, what)), None)
        if found is None:
            raise UsageError(f"{what}: the numbers of elements are not equal for all values")
        bounds.remove(found)
    if len(bounds) > 1 or not by or total % by:
        raise UsageError(f"{what}: -1 has no size for all values")
    return bounds[0] * (total // by) if bounds else total // by


def _times(a: Size, b: Size) -> Size:
    """Return a * b, of which at most one is symbolic."""
    if isinstance(a, int):
        return b * a
    assert isinstance(b, int)
    return a * b


def product(sizes: Sequence[Size]) -> Size | None:
    """Return the product of sizes; None if more than one is symbolic."""
    total: Size = 1
    for s in sizes:
        if isinstance(s, Bound) and isinstance(total, Bound):
            return None
        total = _times(total, s)
    return total
