"""Element types that NumPy lacks: bfloat16 and 8-bit floats, stored as unsigned integers.

Not here: arrays (`interop.arrays`). Next: `compiler.narrow_floats`, the values of 8-bit floats.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from compiler import narrow_floats
from compiler.dtype import FLOAT8, by_name
from hcq.errors import UsageError

NARROW: Final[dict[str, np.dtype[Any]]] = {
    "bfloat16": np.dtype(np.uint16),
    **{t.name: np.dtype(np.uint8) for t in FLOAT8},
}
"""Name -> the NumPy type that holds its bits."""
_SHORT: Final = {
    "bf16": "bfloat16", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz",
}  # fmt: skip
"""Triton's name of a narrow type -> the name here."""

_NUMBERS: Final = "biufc"
"""NumPy's kinds of numbers."""

Array = np.ndarray[Any, Any]


def resolve(dtype: object) -> np.dtype[Any] | str:
    """Return the NumPy type, or the name of a narrow type, that `dtype` names.

    `dtype` is a type of NumPy, PyTorch, Triton or this project, or a name. Raises `UsageError` for an unknown
    name and for a type of no numbers.
    """
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

    Values beyond the range of an 8-bit type are converted as `compiler.narrow_floats.encode` states. Raises
    `UsageError` for an unknown name.
    """
    if not isinstance(dtype, str):
        return np.ascontiguousarray(values, dtype)
    return narrow_floats.encode(values, by_name(dtype))


def decode(bits: Array, dtype: np.dtype[Any] | str) -> Array:
    """Return the values of `bits` as a new array; narrow types become float32. Raises as `encode`."""
    if not isinstance(dtype, str):
        return np.array(bits)
    return narrow_floats.loaded(np.ascontiguousarray(bits), by_name(dtype)).reshape(bits.shape)
