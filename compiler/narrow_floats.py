"""Floats that NumPy lacks, bfloat16 and 8-bit floats: the value of each code, and the code of each number.

A code of 8 bits is a sign, an exponent and a fraction; an exponent of 0 makes subnormal values. Rounding is
to nearest, ties to even. A number out of range becomes what PyTorch 2.13 makes of it: of float8_e4m3fn, which
has no infinity, the greatest value; of float8_e5m2 infinity; of the others NaN. The "fnuz" types have neither
an infinity nor a negative zero, whose code is their one NaN.

Sources: OCP 8-bit Floating Point Specification 1.0 (float8_e4m3fn, float8_e5m2); Noune et al., "8-bit
Numerical Formats for Deep Neural Networks", arXiv 2206.02915 (the "fnuz" types).

Not here: the same conversions in kernels (`compiler.emit.conversions`). Next: `compiler.dtype`, the types.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from compiler.dtype import dtypes

if TYPE_CHECKING:
    import numpy as np

    from compiler.dtype import DType


class Float8(NamedTuple):
    """One type of 8-bit floats. Its codes here have no sign bit, except a NaN of 0x80."""

    fraction: int
    """Bits of the fraction; the exponent has the others of 7."""
    bias: int
    top: int
    """The code of the greatest finite value."""
    beyond: int
    """The code of numbers out of range and of infinities."""
    nan: int
    """The code of NaN; 0x80 in a type without negative zero."""

    @property
    def signed_zero(self) -> bool:
        """Whether there is a negative zero."""
        return self.nan != 0x80

    @property
    def most(self) -> float:
        """The greatest finite value."""
        return self.value(self.top)

    @property
    def least_normal(self) -> float:
        """The least positive value that is not subnormal."""
        return 2.0 ** (1 - self.bias)

    def value(self, code: int) -> float:
        """Return the value of a code without a sign bit that is neither infinite nor NaN."""
        exponent, fraction = divmod(code, 1 << self.fraction)
        whole = fraction + (bool(exponent) << self.fraction)
        return math.ldexp(whole, max(exponent, 1) - self.bias - self.fraction)


FORMATS: Final = {
    dtypes.float8_e4m3fn: Float8(3, 7, 0x7E, 0x7E, 0x7F),
    dtypes.float8_e5m2: Float8(2, 15, 0x7B, 0x7C, 0x7F),
    dtypes.float8_e4m3fnuz: Float8(3, 8, 0x7F, 0x80, 0x80),
    dtypes.float8_e5m2fnuz: Float8(2, 16, 0x7F, 0x80, 0x80),
}
"""Type -> its row. A name has the bits of exponent and fraction; "fn" is finite, "uz" is unsigned zero."""


@cache
def values(dtype: DType) -> tuple[float, ...]:
    """Return the value of each of the 256 codes of an 8-bit float."""
    row = FORMATS[dtype]
    rest = [math.inf if code == row.beyond else math.nan for code in range(row.top + 1, 0x80)]
    sizes = [row.value(code) for code in range(row.top + 1)] + rest
    return (*sizes, -0.0 if row.signed_zero else math.nan, *[-size for size in sizes[1:]])


@cache
def _middles(dtype: DType) -> tuple[float, ...]:
    """Return the middle between each finite magnitude and the next, as if one more followed the last."""
    sizes = values(dtype)[: FORMATS[dtype].top + 1]
    following = (*sizes[1:], 2 * sizes[-1] - sizes[-2])
    return tuple([(a + b) / 2 for a, b in zip(sizes, following, strict=True)])


def encoded(value: float, dtype: DType) -> int:
    """Return the code of a number in an 8-bit float."""
    row, middles, size = FORMATS[dtype], _middles(dtype), abs(value)
    if math.isnan(value):
        code = row.nan
    else:
        code = bisect_right(middles, size)
        if code and middles[code - 1] == size and code & 1:  # a tie, and the even neighbour is below
            code -= 1
        code = code if code <= row.top else row.beyond
    return code | 0x80 if math.copysign(1.0, value) < 0 and (code or row.signed_zero) else code


def encode(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Return the codes of an array of numbers, C-contiguous: uint8 of an 8-bit float, uint16 of bfloat16.

    For bfloat16 the numbers are rounded to float32 first.
    """
    import numpy as np  # noqa: PLC0415 - a caller with an array has loaded it

    if dtype is dtypes.bfloat16:
        single = np.ascontiguousarray(x, np.float32)
        bits = single.view(np.uint32).astype(np.uint64)
        near = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(single), np.uint16(0x7FC0), near)
    row, middles = FORMATS[dtype], np.array(_middles(dtype))
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        size = np.abs(np.asarray(x, np.float64))
    code = np.searchsorted(middles, size, side="right")
    tie = (code > 0) & (middles[np.maximum(code, 1) - 1] == size)
    code = code - (tie & (code & 1 == 1))
    code = np.where(np.isnan(size), row.nan, np.where(code <= row.top, code, row.beyond))
    minus = np.signbit(x) & ((code > 0) | row.signed_zero)
    return np.ascontiguousarray(code | minus * 0x80, np.uint8)


def loaded(data: bytes | memoryview | np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Return the values of codes in memory, as a new array of float32."""
    import numpy as np  # noqa: PLC0415 - a caller with an array has loaded it

    codes = np.frombuffer(data, f"uint{dtype.bits}")
    if dtype is dtypes.bfloat16:
        return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    found: np.ndarray[Any, Any] = np.array(values(dtype), np.float32)[codes]
    return found
