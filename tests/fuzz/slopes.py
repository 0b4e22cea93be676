"""Dual numbers, an oracle of gradients by forward differentiation in Python.

It is independent of the product and does not import it. Arrays of dual numbers are NumPy arrays of dtype
object. The functions take arrays of floats, too.

Next: `tensor_programs`, which uses them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]


class Dual:
    """A number and its derivatives with respect to each element of the leaves."""

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
    """Return value and slope of a dual number, or of a plain number with slope 0."""
    return (x.value, x.slope) if isinstance(x, Dual) else (float(x), 0.0)


def leaf(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return random integers from -3 to 3, so that many are equal."""
    return rng.integers(-3, 4, shape).astype(dtype)


def duals(leaves: dict[str, Array]) -> dict[str, Array]:
    """Return the leaves as dual numbers, each element with slope 1 in its own direction."""
    count = sum(x.size for x in leaves.values())
    found, at = {}, 0
    for name, x in leaves.items():
        found[name] = np.empty(x.shape, object)
        for place in np.ndindex(x.shape):
            found[name][place] = Dual(float(x[place]), np.eye(1, count, at)[0])
            at += 1
    return found


def values(x: Array) -> Array:
    """Return the values of an array of dual or plain numbers as float64."""
    return np.array([parts(one)[0] for one in np.asarray(x).flat], np.float64).reshape(np.shape(x))


def _greater(a: Any, b: Any) -> Any:
    (x, _), (y, _) = parts(a), parts(b)
    return a if x > y else b if y > x else (a + b) * 0.5


def greater(a: Array, b: Array) -> Array:
    """Return the elementwise maximum; equal numbers contribute half their slopes each."""
    if all(np.asarray(x).dtype != object for x in (a, b)):
        return np.asarray(np.maximum(a, b))
    return np.asarray(np.frompyfunc(_greater, 2, 1)(a, b))


def lesser(a: Array, b: Array) -> Array:
    """Return the elementwise minimum; equal numbers contribute half their slopes each."""
    return -greater(-a, -b)


def positive(x: Array) -> Array:
    """Return the maximum of each number and 0; the slope at 0 is 0."""
    return np.where(x > 0, x, x * 0)


def held(x: Array) -> Array:
    """Return the numbers with slope 0."""
    return values(x).astype(object) if np.asarray(x).dtype == object else x


def retyped(x: Array, dtype: str) -> Array:
    """Return plain numbers in another dtype that represents them; dual numbers stay unchanged."""
    return x if np.asarray(x).dtype == object else x.astype(dtype)


def greatest(x: Array, axis: int) -> Array:
    """Return the maximum along an axis; equal numbers share the slope evenly."""
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
