"""8-bit floats and the bits of 2 / pi, as the pseudo-code's functions have them.

8-bit floats are OCP's on gfx12; of gfx942 they have no infinities and no -0, and their bias is one more
(docs/sources-amd.md). Codes are found by searching the 256 values: none of the emulated GPU's ways of
rounding is repeated here.

Not here: which instruction calls what (`pcode`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tests.emulator.amd_isa.pcode_values import PcodeError, Value, floats, numbers, of_floats, value

Array = np.ndarray[Any, Any]
SELECTS = {"BYTE0": 0, "BYTE1": 1, "BYTE2": 2, "BYTE3": 3, "WORD0": 4, "WORD1": 5}
"""Numbers of SDWA's selects, which the texts name."""
_MANTISSA = {"fp8": 3, "bf8": 2}


@cache
def values(type_: str, *, fnuz: bool) -> Array:
    """Return the number of each of the 256 codes."""
    bits = _MANTISSA[type_]
    bias = {"fp8": 7, "bf8": 15}[type_] + fnuz
    codes = np.arange(256)
    exponent, part = (codes & 127) >> bits, codes & (1 << bits) - 1
    size = np.where(
        exponent == 0, part * 2.0 ** (1 - bias - bits), (1 + part / 2.0**bits) * 2.0 ** (exponent - bias)
    )
    found = np.where(codes & 128, -size, size)
    if fnuz:
        found[128] = np.nan
    elif type_ == "fp8":
        found[[127, 255]] = np.nan
    else:
        found[[124, 252]] = np.inf, -np.inf
        found[[*range(125, 128), *range(253, 256)]] = np.nan
    return found


def decoded(v: Value, type_: str, *, fnuz: bool) -> Value:
    return of_floats(values(type_, fnuz=fnuz)[(v.raw & np.uint64(255)).astype("i8")], 32)


def encoded(v: Value, type_: str, *, fnuz: bool) -> Value:
    """Return f32 as the code of the nearest value, of two the even one; FP16_OVFL is 0."""
    x = floats(v).astype("f8")
    grid = values(type_, fnuz=fnuz)[:128]
    grid = grid[np.isfinite(grid)]
    size = np.abs(np.where(np.isnan(x), 0, x))
    step = grid[-1] - grid[-2]
    above = np.searchsorted(grid, np.minimum(size, grid[-1]))
    below = np.maximum(above - 1, 0)
    far, near = grid[above] - np.minimum(size, grid[-1]), np.minimum(size, grid[-1]) - grid[below]
    code = np.where((near < far) | ((near == far) & (below % 2 == 0)), below, above)
    last = len(grid) - 1
    over = (size > grid[-1] + step / 2) | ((size == grid[-1] + step / 2) & (last % 2 == 1))
    beyond = {("fp8", False): 127, ("bf8", False): 124}.get((type_, fnuz), 128)
    code = np.where(over, beyond, code)
    negative = np.signbit(floats(v)) & ~(fnuz & ((code == 0) | over))
    code = np.where(negative, code | 128, code)
    return value("b", 8, np.where(np.isnan(x), 128 if fnuz else 127, code).astype("u8"))


def called(name: str, v: Value, *, fnuz: bool) -> Value:
    """Return `fp8_to_f32` and its like."""
    source, _, to = name.partition("_to_")
    if to == "f32":
        return decoded(v, source, fnuz=fnuz)
    if source == "f32":
        return encoded(v, to, fnuz=fnuz)
    raise PcodeError(f"function {name}")


@cache
def two_over_pi() -> int:
    """Return the first 1,201 bits of 2 / pi behind the point, by Machin's formula."""
    bits = 1300

    def arctan(inverse: int) -> int:
        total, term, n = 0, (1 << bits) // inverse, 0
        while term:
            total += (-1) ** n * (term // (2 * n + 1))
            term //= inverse * inverse
            n += 1
        return total

    pi = 4 * (4 * arctan(5) - arctan(239))
    return ((2 << 2 * bits) // pi) >> bits - 1201


def bits_of_two_over_pi(shift: Value) -> Value:
    """Return 53 bits of 2 / pi as f64: the highest of 1,201 behind a shift to the left."""
    amounts = numbers(shift).tolist()
    wide = two_over_pi()
    found = [float((wide << n) >> 1148 & 0x1F_FFFF_FFFF_FFFF) for n in amounts]
    return of_floats(np.array(found), 64)
