"""Values of tensor programs in NumPy: saturating casts, narrow floats, sums with bounds, comparison by bits.

It is independent of the product and does not import it. Next: `tensor_programs`, which uses it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests import float8

Array = np.ndarray[Any, Any]
INTS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS: Final = ("float16", "float32", "float64")
DTYPES: Final = ("bool", *INTS, *FLOATS)
SPECIAL: Final = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-8, -6e-8, 65504.0, -70000.0, 1e30, 1e308,
                  float("inf"), float("-inf"), float("nan"))  # fmt: skip


def leaf(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return random data, a quarter of it limits and special values of the dtype."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTS:
        info = np.iinfo(dtype)
        small = rng.integers(0 if dtype[0] == "u" else -9, 10, shape).astype(dtype)
        edge = rng.choice(np.array([info.min, info.min + 1, info.max - 1, info.max], dtype), shape)
        return np.where(rng.random(shape) < 0.25, edge, small)
    plain = (rng.integers(-64, 65, shape) / 8.0).astype(dtype)
    with np.errstate(all="ignore"):
        special = rng.choice(np.array(SPECIAL).astype(dtype), shape)
    return np.where(rng.random(shape) < 0.25, special, plain)


def cast(x: Array, dtype: str) -> Array:
    """Return x in another dtype. Floats saturate to integers, NaN to 0; integers wrap; bool is x != 0."""
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return np.asarray(x != 0)
        if x.dtype.kind != "f" or dtype not in INTS:
            exact = x.astype(np.float64) if dtype == "float16" and x.dtype.kind in "iu" else x
            return np.asarray(exact.astype(dtype))
        info = np.iinfo(dtype)
        whole = np.trunc(np.where(np.isnan(x), 0, x).astype(np.float64))
        inside = (whole > float(info.min)) & (whole < float(info.max))
        limits = np.where(whole > 0, info.max, np.array(info.min).astype(dtype)).astype(dtype)
        zero = whole == 0
        return np.asarray(np.where(inside | zero, np.where(inside, whole, 0).astype(dtype), limits))


def brief(x: Array) -> Array:
    """Return x rounded to the nearest bfloat16, ties to even, as float32; x must be exact in float32."""
    with np.errstate(all="ignore"):
        wide = np.asarray(x).astype(np.float32)
    bits = wide.view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.asarray(np.where(np.isnan(wide), wide, kept))


def byte(x: Array, name: str) -> Array:
    """Return x rounded to an 8-bit float, as float32; x must be exact in float32."""
    with np.errstate(all="ignore"):
        return float8.table(name)[float8.encoded(np.asarray(x).astype(np.float32), name)]


def total(x: Array, axis: int | tuple[int, ...] | None) -> tuple[Array, Array]:
    """Return the float64 sum of x, and the error bound of a sum in x's dtype in any order."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        count = x.size // max(1, np.sum(wide, axis).size)
        unit = float(np.finfo(np.float32 if x.dtype == np.float16 else x.dtype).eps)
        size = np.abs(wide).sum(axis)
        own = np.abs(np.sum(wide, axis)) * float(np.finfo(x.dtype).eps)
        bound = size * unit * max(1, count) + own + float(np.finfo(x.dtype).tiny)
        return np.asarray(np.sum(wide, axis)), np.asarray(bound)


def same_bits(found: Array, wanted: Array) -> bool:
    """Return whether dtype, shape and every bit agree; all NaN are equal."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, wanted))
    nan = np.isnan(found) & np.isnan(wanted)
    return bool(np.all(nan | ((found == wanted) & (np.signbit(found) == np.signbit(wanted)))))


def near(found: Array, wanted: Array, bound: Array) -> bool:
    """Return whether a float sum is within its bound; any value passes where the sum may overflow."""
    if found.shape != wanted.shape:
        return False
    with np.errstate(all="ignore"):
        most = float(np.finfo(found.dtype).max)
        wide = found.astype(np.float64)
        loose = ~np.isfinite(wanted) | ~np.isfinite(bound) | (np.abs(wanted) + bound >= most)
        return bool(np.all(loose | (np.abs(wide - wanted) <= bound)))
