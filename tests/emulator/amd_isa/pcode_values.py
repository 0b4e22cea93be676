"""Values of the pseudo-code: integers of exact width and floats, one for each lane, and IEEE rounding.

Not here: the texts (`pcode_syntax`) and their evaluation (`pcode`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FLOATS: dict[tuple[str, int], str] = {("f", 16): "f2", ("f", 32): "f4", ("f", 64): "f8"}
MANTISSA = {16: 10, 32: 23, 64: 52}
ONE = np.zeros(1, "u8")


class PcodeError(Exception):
    """Pseudo-code that this evaluator does not know."""


@dataclass(frozen=True, slots=True)
class Value:
    """Bits of one type in every lane: `u`, `i`, `b` integers, `f`, `bf`, `fp`, `xf` floats (`xf` is bf8)."""

    kind: str
    bits: int
    raw: Array
    """Unsigned; Python's integers above 64 bits."""
    constant: bool = False
    """A literal in hexadecimal: made a float it keeps its bits."""


def mask(bits: int) -> int:
    return (1 << bits) - 1


def value(kind: str, bits: int, content: Array | int) -> Value:
    """Return a value whose content is cut to its bits; negative numbers are two's complements."""
    if isinstance(content, int):
        content = np.array([content & mask(bits)], "u8" if bits <= 64 else object)
    if bits > 64:
        return Value(kind, bits, content.astype(object) & mask(bits))
    if content.dtype == object:
        return Value(kind, bits, (content & mask(bits)).astype("u8"))
    content = content.astype("u8") if content.dtype != np.dtype("u8") else content
    return Value(kind, bits, content & np.uint64(mask(bits)) if bits < 64 else content)


def numbers(v: Value) -> Array:
    """Return integers with their sign: i8 or u8 arrays, Python's integers above 64 bits."""
    if v.bits > 64:
        return v.raw if v.kind != "i" else np.where(v.raw >> v.bits - 1 & 1, v.raw - (1 << v.bits), v.raw)
    if v.kind != "i":
        return v.raw
    shift = np.uint64(64 - v.bits)
    found: Array = (v.raw << shift).view("i8") >> shift.astype("i8")
    return found


def floats(v: Value) -> Array:
    """Return the numbers of a float type."""
    if v.kind == "f":
        return v.raw.astype(f"u{v.bits // 8}").view(FLOATS["f", v.bits])
    if v.kind == "bf":
        return (v.raw.astype("u4") << np.uint32(16)).view("f4")
    if v.kind in ("fp", "xf"):
        return _small(v)
    return numbers(v).astype("f8")


def _small(v: Value) -> Array:
    """Return OCP's 8-bit floats as f32."""
    exponent_bits, mantissa_bits, bias = (4, 3, 7) if v.kind == "fp" else (5, 2, 15)
    raw = v.raw.astype("i8")
    exponent, mantissa = raw >> mantissa_bits & mask(exponent_bits), raw & mask(mantissa_bits)
    size = np.where(
        exponent == 0,
        np.ldexp(mantissa.astype("f8"), 1 - bias - mantissa_bits),
        np.ldexp(1 + mantissa / 2.0**mantissa_bits, exponent - bias),
    )
    if v.kind == "fp":
        size = np.where(raw & 0x7F == 0x7F, np.nan, size)
    else:
        size = np.where(exponent == 31, np.where(mantissa == 0, np.inf, np.nan), size)
    return np.where(raw >> 7 == 1, -size, size).astype("f4")


def of_floats(content: Array, bits: int, kind: str = "f") -> Value:
    """Return floats of a type, rounded once."""
    if kind == "bf":
        word = content.astype("f4").view("u4").astype("u8")
        even = word + np.uint64(0x7FFF) + (word >> np.uint64(16) & np.uint64(1))
        return value("bf", 16, np.where(np.isnan(content), np.uint64(0x7FC00000), even) >> np.uint64(16))
    made = content.astype(FLOATS[kind, bits])
    return Value(kind, bits, made.view(f"u{bits // 8}").astype("u8"))


def converted(v: Value, bits: int, kind: str = "f") -> Value:
    """Return a float as another type; NaNs stay what they are, signalling or quiet."""
    if (v.kind, v.bits) == (kind, bits):
        return v
    made = of_floats(floats(v), bits, kind)
    if v.kind != "f" or kind != "f":
        return made
    was, now = MANTISSA[v.bits], MANTISSA[bits]
    sign = v.raw >> np.uint64(v.bits - 1)
    payload = v.raw & np.uint64(mask(was))
    payload = payload << np.uint64(now - was) if now > was else payload >> np.uint64(was - now)
    nan = sign << np.uint64(bits - 1) | np.uint64(mask(bits - 1) ^ mask(now)) | payload
    return Value("f", bits, np.where(np.isnan(floats(v)), nan, made.raw))


def fused(a: Array, b: Array, c: Array, dtype: str) -> Array:
    """Return a * b + c rounded once: by way of f64 rounded to odd, or of exact fractions for f64."""
    if dtype == "f8":
        return _fused_doubles(*np.broadcast_arrays(a, b, c))
    return odd_sum(a, b, c).astype(dtype)


def odd_sum(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of f32 as f64 rounded to odd, which another rounding does not spoil."""
    x = a.astype("f8") * b.astype("f8")
    y = np.broadcast_to(c.astype("f8"), np.broadcast_shapes(x.shape, c.shape))
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)
    bits = total.view("i8") if total.flags.c_contiguous else np.ascontiguousarray(total).view("i8")
    away = np.where((lost > 0) == (total > 0), 1, -1)
    odd = np.where(
        (lost != 0) & np.isfinite(lost) & (bits & 1 == 0) & (total != 0),
        bits + np.where(away > 0, 1, -1),
        bits,
    )
    return odd.view("f8")


def _fused_doubles(a: Array, b: Array, c: Array) -> Array:
    found = np.where(np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c), c, a * b + c)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    out = found.copy()
    for n in np.flatnonzero(finite):
        x, y, z = float(a[n]), float(b[n]), float(c[n])
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            out[n] = x * y + z if x * y == 0 or -z == x * y else 0.0
            continue
        try:
            out[n] = exact.numerator / exact.denominator
        except OverflowError:
            out[n] = np.inf if exact > 0 else -np.inf
    return out
