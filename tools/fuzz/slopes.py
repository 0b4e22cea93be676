"""Numbers that carry their slopes: what gradients are, by forward differentiation in Python.

Written apart from the product: nothing here imports it. Arrays of such numbers are NumPy's, of objects;
functions that NumPy has no meaning for here take arrays of floats, too.

Next: `tensor_programs`, the user.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]


class Dual:
    """A number, and its slope along each element of the leaves."""

    __slots__ = ("slope", "value")

    def __init__(self, value: float, slope: Array) -> None:
        self.value = value
        self.slope = slope

    def __add__(self, other: Any) -> Dual:
        value, slope = parts(other)
        return Dual(self.value + value, self.slope + slope)

    def __mul__(self, other: Any) -> Dual:
        value, slope = parts(other)
        return Dual(self.value * value, self.slope * value + self.value * slope)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __sub__(self, other: Any) -> Dual:
        value, slope = parts(other)
        return Dual(self.value - value, self.slope - slope)

    def __rsub__(self, other: Any) -> Dual:
        value, slope = parts(other)
        return Dual(value - self.value, slope - self.slope)

    def __truediv__(self, other: float) -> Dual:
        return self * (1.0 / other)

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > parts(other)[0])

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < parts(other)[0])

    __radd__, __rmul__ = __add__, __mul__


def parts(x: Any) -> tuple[float, Any]:
    """Return the value and the slope of a number of any kind."""
    return (x.value, x.slope) if isinstance(x, Dual) else (float(x), 0.0)


def leaf(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return small whole numbers, many of them equal."""
    return rng.integers(-3, 4, shape).astype(dtype)


def duals(leaves: dict[str, Array]) -> dict[str, Array]:
    """Return leaves whose elements have the slope 1 along themselves."""
    count = sum(x.size for x in leaves.values())
    found, at = {}, 0
    for name, x in leaves.items():
        found[name] = np.empty(x.shape, object)
        for place in np.ndindex(x.shape):
            found[name][place] = Dual(float(x[place]), np.eye(1, count, at)[0])
            at += 1
    return found


def values(x: Array) -> Array:
    """Return the values of an array of numbers of any kind."""
    return np.array([parts(one)[0] for one in np.asarray(x).flat], np.float64).reshape(np.shape(x))


def _greater(a: Any, b: Any) -> Any:
    (x, _), (y, _) = parts(a), parts(b)
    return a if x > y else b if y > x else (a + b) * 0.5


def greater(a: Array, b: Array) -> Array:
    """Return the greater of each two numbers; equal ones share the slope."""
    if all(np.asarray(x).dtype != object for x in (a, b)):
        return np.asarray(np.maximum(a, b))
    return np.asarray(np.frompyfunc(_greater, 2, 1)(a, b))


def lesser(a: Array, b: Array) -> Array:
    """Return the smaller of each two numbers; equal ones share the slope."""
    return -greater(-a, -b)


def positive(x: Array) -> Array:
    """Return the greater of each number and 0; the slope at 0 is 0."""
    return np.where(x > 0, x, x * 0)


def held(x: Array) -> Array:
    """Return numbers without their slopes."""
    return values(x).astype(object) if np.asarray(x).dtype == object else x


def retyped(x: Array, dtype: str) -> Array:
    """Return numbers as another dtype that holds them."""
    return x if np.asarray(x).dtype == object else x.astype(dtype)


def greatest(x: Array, axis: int) -> Array:
    """Return the greatest along an axis; equal ones share the slope."""
    if x.dtype != object:
        return np.asarray(x.max(axis))
    rows = np.moveaxis(x, axis, -1)
    out = np.empty(rows.shape[:-1], object)
    for place in np.ndindex(out.shape):
        most = max(parts(one)[0] for one in rows[place])
        tied = [one for one in rows[place] if parts(one)[0] == most]
        out[place] = sum(tied[1:], tied[0]) * (1.0 / len(tied))
    return out


FUNCTIONS: Final = (greater, lesser, positive, held, retyped, greatest)
