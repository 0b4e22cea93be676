"""Element types that NumPy lacks: bfloat16 and the two 8-bit floats, stored as unsigned integers.

Source: OCP 8-bit floating point specification 1.0. Not here: arrays (`interop.arrays`).
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from hcq.errors import UsageError

NARROW: Final[dict[str, np.dtype[Any]]] = {
    "bfloat16": np.dtype(np.uint16),
    "float8_e4m3fn": np.dtype(np.uint8),
    "float8_e5m2": np.dtype(np.uint8),
}
"""Name -> the NumPy type that holds its bits."""
_SHORT: Final = {"bf16": "bfloat16", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
"""The names that Triton gives them."""

_NUMBERS: Final = "biufc"
"""NumPy's kinds of numbers."""

Array = np.ndarray[Any, Any]


def resolve(dtype: object) -> np.dtype[Any] | str:
    """Return the NumPy type, or the name of a narrow one, that `dtype` means. Raises `UsageError`."""
    text = str(dtype).rpartition(".")[2]
    text = _SHORT.get(text, text)
    if text in NARROW:
        return text
    for one in (dtype, text):
        try:
            found: np.dtype[Any] = np.dtype(cast("Any", one))
        except TypeError:
            continue
        if found.kind not in _NUMBERS:
            raise UsageError(f"wanted numbers, saw elements of type {found}")
        return found
    raise UsageError(f"wanted a NumPy type or {', '.join(NARROW)}, saw {dtype!r}")


def storage(dtype: np.dtype[Any] | str) -> np.dtype[Any]:
    """Return the NumPy type that holds the bits of `dtype`."""
    return NARROW[dtype] if isinstance(dtype, str) else dtype


def name(dtype: np.dtype[Any] | str) -> str:
    """Return the name of a type."""
    return dtype if isinstance(dtype, str) else dtype.name


def encode(values: Array, dtype: np.dtype[Any] | str) -> Array:
    """Return `values` as a C-contiguous array of the bits of `dtype`, rounded to nearest, ties to even.

    Values that are beyond the range of an 8-bit type become NaN ("float8_e4m3fn") or infinite.
    """
    if not isinstance(dtype, str):
        return np.ascontiguousarray(values, dtype)
    single = np.ascontiguousarray(values, np.float32)
    if dtype == "bfloat16":
        bits = single.view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(single), np.uint16(0x7FC0), rounded)
    table = _table(dtype)
    finite = table[:128][np.isfinite(table[:128])]
    size = np.abs(single)
    place = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    low, high = finite[place - 1].astype(np.float64), finite[place].astype(np.float64)
    middle = (low + high) / 2
    up = (size > middle) | ((size == middle) & (place % 2 == 0))
    code = np.where(up, place, place - 1).astype(np.uint8)
    step = float(finite[-1]) - float(finite[-2])
    beyond = size.astype(np.float64) >= float(finite[-1]) + step / 2 + (0 if dtype == "float8_e5m2" else 1e-9)
    code = np.where(beyond, np.uint8(0x7C if dtype == "float8_e5m2" else 0x7F), code)
    code = np.where(np.isnan(single), np.uint8(0x7F), code)
    return (code | (np.signbit(single).astype(np.uint8) << 7)).astype(np.uint8)


def decode(bits: Array, dtype: np.dtype[Any] | str) -> Array:
    """Return the values of `bits`; narrow types become float32."""
    if not isinstance(dtype, str):
        return np.array(bits)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return _table(dtype)[bits]


def _table(dtype: str) -> Array:
    """Return the value of each of the 256 codes of an 8-bit type."""
    codes = np.arange(256, dtype=np.uint16)
    if dtype == "float8_e5m2":
        return (codes << 8).astype(np.uint16).view(np.float16).astype(np.float32)
    exponent, fraction = codes >> 3 & 15, codes & 7
    size = np.where(
        exponent == 0, fraction / 8.0 * 2.0**-6, (1 + fraction / 8.0) * 2.0 ** (exponent.astype(np.int64) - 7)
    )
    size = np.where((codes & 0x7F) == 0x7F, np.nan, size)
    return np.where(codes >= 128, -size, size).astype(np.float32)
