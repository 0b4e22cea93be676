"""8-bit floats by their definition: each value from its fields, each number by its distance to all values.

Written from the OCP 8-bit Floating Point Specification 1.0, tables 1 and 2, and for the "fnuz" types from
arXiv 2206.02915, section 2. What is out of range is as PyTorch 2.13 has it, which
`tests/compiler/data/float8.json` records.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

FIELDS: Final = {
    "float8_e4m3fn": (4, 3, 7), "float8_e5m2": (5, 2, 15),
    "float8_e4m3fnuz": (4, 3, 8), "float8_e5m2fnuz": (5, 2, 16),
}  # fmt: skip
"""Bits of the exponent, bits of the fraction, bias."""
SMALLER: Final = {"float6_e3m2fn": (3, 2, 3), "float6_e2m3fn": (2, 3, 1), "float4_e2m1fn": (2, 1, 1)}
"""Elements of microscaling, without NaN and infinity (OCP Microscaling Formats Specification 1.0, 5.3)."""
BEYOND: Final = {
    "float8_e4m3fn": 0x7E, "float8_e5m2": 0x7C, "float8_e4m3fnuz": 0x80, "float8_e5m2fnuz": 0x80,
}  # fmt: skip
"""The code of large numbers and infinity."""


@cache
def table(name: str) -> Array:
    """Return the value of every code, as float32."""
    exponents, fractions, bias = (FIELDS | SMALLER)[name]
    found = []
    for code in range(2 << exponents + fractions):
        sign = -1.0 if code >> exponents + fractions else 1.0
        exponent, fraction = code >> fractions & (1 << exponents) - 1, code & (1 << fractions) - 1
        value = (fraction / 2**fractions + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
        if name.endswith("fnuz"):
            value = np.nan if code == 0x80 else value
        elif name == "float8_e4m3fn":
            value = np.nan if code & 0x7F == 0x7F else value
        elif exponent == 31:
            value = np.nan if fraction else np.inf
        found.append(sign * value)
    return np.array(found, np.float32)


def encoded(x: Array, name: str) -> Array:
    """Return the code of the nearest value of each number, of two the even one, as uint8."""
    half = len(table(name)) // 2
    sizes = table(name)[:half].astype(np.float64)
    sizes = sizes[np.isfinite(sizes)]
    steps = np.append(sizes, 2 * sizes[-1] - sizes[-2])  # as if there were one more
    size = np.abs(np.asarray(x, np.float64)).ravel()
    far = np.abs(np.where(size < 1e6, size, 1e6)[:, None] - steps)
    code = np.argmin(far, axis=1)  # of two the lower
    following = np.minimum(code + 1, len(steps) - 1)
    tie = (following > code) & (far[np.arange(len(size)), following] == far[np.arange(len(size)), code])
    code = np.where(tie & (code % 2 == 1), following, code)
    code = np.where(code == len(sizes), BEYOND.get(name, len(sizes) - 1), code)
    nothing = 0x80 if name.endswith("fnuz") else 0x7F
    code = np.where(np.isnan(size), nothing, code)
    minus = np.signbit(np.asarray(x)).ravel() & ((code > 0) | (nothing == 0x7F))
    codes: Array = (code | minus * half).astype(np.uint8)
    return codes.reshape(np.shape(x))


def boundaries(name: str) -> Array:
    """Return every finite value, every middle, the limit of the range, special numbers, and their neighbours.

    They are float32, of both signs.
    """
    sizes = table(name)[:128]
    sizes = sizes[np.isfinite(sizes)]
    following = np.append(sizes[1:], 2 * sizes[-1] - sizes[-2])
    special = np.array([0, 1e-45, 1e-38, 1e5, 3.4e38, np.inf], np.float32)
    found = np.concatenate([sizes, (sizes + following) / 2, following[-1:], special])
    near = [np.nextafter(found, np.float32(end)) for end in (np.inf, -np.inf)]
    found = np.concatenate([found, *near, np.array([np.nan], np.float32)])
    return np.unique(np.concatenate([found, -found]).view(np.uint32)).view(np.float32)
