"""Functions and operators that the pseudo-code names, on values of every lane.

Not here: the evaluation of texts (`pcode`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

from typing import Any

import numpy as np

from tests.emulator.amd_isa import pcode_small_floats
from tests.emulator.amd_isa.pcode_values import (
    FLOATS,
    MANTISSA,
    Array,
    Value,
    converted,
    floats,
    fused,
    mask,
    numbers,
    of_floats,
    value,
)


def toward_zero(v: Value) -> Value:
    """Return f32 as f16 rounded towards zero; infinities and NaNs stay."""
    x = floats(v)
    made = of_floats(x, 16)
    near = floats(made).astype("f8")
    finite = np.isfinite(x)
    beyond = finite & (np.abs(near) > np.abs(x.astype("f8")))
    return Value(
        "f",
        16,
        np.where(np.isnan(x), converted(v, 16).raw, np.where(beyond, made.raw - np.uint64(1), made.raw)),
    )


def exponent(v: Value) -> Array:
    return v.raw >> np.uint64(MANTISSA[v.bits]) & np.uint64(mask(v.bits - 1 - MANTISSA[v.bits]))


def _is_nan(v: Value, *, quiet: bool) -> Value:
    top = v.raw >> np.uint64(MANTISSA[v.bits] - 1) & np.uint64(1)
    return value("u", 1, np.isnan(floats(v)) & (top == int(quiet)))


def _each(compute: Any) -> Any:
    return lambda v: of_floats(compute(floats(v)), v.bits, v.kind)


def _wide(compute: Any) -> Any:
    """A function computed as f64 and rounded once."""
    return lambda v, *more: of_floats(
        compute(floats(v).astype("f8"), *(floats(x).astype("f8") for x in more)), v.bits, v.kind
    )


def _fma(a: Value, b: Value, c: Value) -> Value:
    bits = max(a.bits, b.bits, c.bits)
    x, y, z = (floats(converted(v, bits)) for v in (a, b, c))
    return of_floats(fused(x, y, z, FLOATS["f", bits]), bits)


def _float32(sign: Value, exponent: Value, fraction: Value) -> Value:
    parts = ((sign, 31), (exponent, 23), (fraction, 0))
    return Value("f", 32, sum((v.raw & np.uint64((1 << 23) - 1)) << np.uint64(low) for v, low in parts))  # type: ignore[arg-type]


def _scaled_integer(low: float, scale: float, kind: str) -> Any:
    def compute(v: Value) -> Value:
        x = floats(v).astype("f8")
        kept = np.clip(np.where(np.isnan(x), 0.0, x), low, 1.0)
        return value(kind, 16, np.rint(kept * scale).astype("i8"))

    return compute


def _signext_from_bit(v: Value, count: Value) -> Value:
    bits = np.uint64(v.bits)
    shift = bits - np.minimum(count.raw, bits)
    none = count.raw == 0
    raw = value("i", v.bits, v.raw << np.minimum(shift, np.uint64(63)))
    found = numbers(raw) >> np.minimum(shift, np.uint64(63)).astype("i8")
    return value("i", v.bits, np.where(none, 0, found))


def _first_one(v: Value) -> Value:
    found = np.full(v.raw.shape, -1, "i8")
    for n in reversed(range(v.bits)):
        found = np.where(v.raw >> np.uint64(n) & np.uint64(1) == 1, n, found)
    return value("i", 32, found)


def _mantissa_of(v: Value) -> Value:
    return of_floats(np.frexp(floats(v).astype("f8"))[0], v.bits)


def _chosen(a: Value, b: Value, first: Array, sign: int) -> Value:
    """Return a where it comes first, b elsewhere; of a number and a NaN the number, of two zeros that with the sign."""
    x, y = floats(a), floats(b)
    zeros = (x == 0) & (y == 0) & (a.raw >> np.uint64(a.bits - 1) == np.uint64(sign))
    return Value(a.kind, a.bits, np.where((first | zeros | np.isnan(y)) & ~np.isnan(x), a.raw, b.raw))


FUNCTIONS: dict[str, Any] = {
    "abs": lambda v: Value(v.kind, v.bits, v.raw & np.uint64(mask(v.bits - 1))),
    "sqrt": lambda v: of_floats(np.sqrt(floats(v)), v.bits),
    "floor": _each(np.floor), "trunc": _each(np.trunc), "fract": _each(lambda x: x - np.floor(x)),
    "log2": _wide(np.log2), "pow": _wide(np.power),
    "isEven": lambda v: value("u", 1, np.mod(floats(v), 2) == 0),
    "exponent": lambda v: value("i", 32, exponent(v)),
    "mantissa": _mantissa_of,
    "sign": lambda v: value("u", 1, v.raw >> np.uint64(v.bits - 1)),
    "isNAN": lambda v: value("u", 1, np.isnan(floats(v))),
    "isQuietNAN": lambda v: _is_nan(v, quiet=True), "isSignalNAN": lambda v: _is_nan(v, quiet=False),
    "cvtToQuietNAN": lambda v: Value(v.kind, v.bits, v.raw | np.uint64(1 << MANTISSA[v.bits] - 1)),
    "twoOverPi": pcode_small_floats.bits_of_two_over_pi, "float32": _float32,
    "fma": _fma, "signext": lambda v: value("i", 64, numbers(Value("i", v.bits, v.raw))),
    "signext_from_bit": _signext_from_bit, "ldexp": lambda v, n: of_floats(np.ldexp(floats(v).astype("f8"), numbers(n)), v.bits),
    "flushed": lambda v: Value(v.kind, v.bits, np.where(exponent(v) == 0, v.raw & np.uint64(1 << v.bits - 1), v.raw)),
    "belowOne": lambda v: of_floats(np.where(floats(v) >= 1, np.nextafter(floats(v).dtype.type(1), floats(v).dtype.type(0)), floats(v)), v.bits),
    "smaller": lambda a, b: _chosen(a, b, floats(a) < floats(b), 1),
    "larger": lambda a, b: _chosen(a, b, floats(a) > floats(b), 0),
    "trueExponent": lambda v: value("i", 32, np.frexp(floats(v).astype("f8"))[1].astype("i8")),
    "signedZero": lambda v, of: Value(v.kind, v.bits, np.where(floats(v) == 0, of.raw & np.uint64(1 << v.bits - 1), v.raw)),
    "s_ff1_i32_b32": _first_one, "s_ff1_i32_b64": _first_one,
    "f16_to_snorm": _scaled_integer(-1.0, 32767.0, "i"), "f16_to_unorm": _scaled_integer(0.0, 65535.0, "u"),
    "f32_to_snorm": _scaled_integer(-1.0, 32767.0, "i"), "f32_to_unorm": _scaled_integer(0.0, 65535.0, "u"),
}  # fmt: skip
COMPARE: dict[str, Any] = {"==": np.equal, "!=": np.not_equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal,
                            ">": np.greater, ">=": np.greater_equal}  # fmt: skip
ARITHMETIC: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "&": np.bitwise_and,
                               "|": np.bitwise_or, "^": np.bitwise_xor}  # fmt: skip
