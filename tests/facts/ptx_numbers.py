"""Numbers of the PTX manual: integers of a width, floating-point formats, and rounding, computed exactly.

Values are raw bits (unsigned Python integers); what they mean is a Fraction, an infinity or NaN. Nothing here uses the
host's floating point. Source: PTX ISA, "Fundamental Types", "Rounding Modifiers", IEEE 754, and for e4m3, e5m2 the OCP
8-bit floating-point specification.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt

NAN, INF, NEG_INF = "nan", "inf", "-inf"
Value = Fraction | str
"""What bits mean: an exact number, or one of NAN, INF, NEG_INF. A zero's sign is asked of the bits."""


def mask(bits: int) -> int:
    return (1 << bits) - 1


def signed(value: int, bits: int) -> int:
    """Return the two's complement meaning of the low `bits` of a value."""
    value &= mask(bits)
    return value - (1 << bits) if value >> (bits - 1) else value


def bounds(kind: str) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type such as `s16`."""
    bits = int(kind[1:])
    return (-(1 << (bits - 1)), mask(bits - 1)) if kind[0] == "s" else (0, mask(bits))


def integer(value: int, kind: str) -> int:
    """Return what the low bits of a register mean as an integer type."""
    bits = int(kind[1:])
    return signed(value, bits) if kind[0] == "s" else value & mask(bits)


def clamp(value: int, kind: str) -> int:
    low, high = bounds(kind)
    return min(max(value, low), high)


def rounded(value: Fraction, mode: str) -> int:
    """Round to an integer: n nearest even, z to zero, m down, p up, a nearest with ties away from zero."""
    down = value.numerator // value.denominator
    rest = value - down
    if mode == "m" or rest == 0:
        return down
    if mode == "p":
        return down + 1
    if mode == "z":
        return down if value > 0 else down + 1
    half = Fraction(1, 2)
    if rest != half:
        return down + (rest > half)
    if mode == "a":
        return down + (value > 0)
    return down + (down & 1)


@dataclass(frozen=True)
class Format:
    """A floating-point format: its width, stored fraction bits and exponent bits."""

    name: str
    bits: int
    fraction: int
    exponent: int
    infinities: bool = True
    low: int = 0
    """Bits below the fraction that are zero (tf32 in a 32-bit register)."""

    @property
    def bias(self) -> int:
        return mask(self.exponent - 1)

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def nan(self) -> int:
        """The canonical NaN: PTX gives 0x7fffffff for f32, 0x7fff for f16 and bf16."""
        return self.sign - 1 if self.bits != 64 else 0x7FF8_0000_0000_0000

    @property
    def infinity(self) -> int:
        return mask(self.exponent) << (self.fraction + self.low)

    @property
    def largest(self) -> int:
        """The greatest finite magnitude."""
        if not self.infinities:
            return self.sign - 2
        return self.infinity - (1 << self.low)

    def value(self, raw: int) -> Value:
        return _value(self, raw)

    def subnormal(self, raw: int) -> bool:
        return 0 < raw & (self.sign - 1) < 1 << (self.fraction + self.low)

    def flushed(self, raw: int) -> int:
        """Return a subnormal as the zero of its sign, all else as it is."""
        return raw & self.sign if self.subnormal(raw) else raw

    def encode(self, value: Value, mode: str = "n", *, negative: bool = False, finite: bool = False) -> int:
        """Return the bits of a value, rounded; `negative` is the sign of a zero, `finite` saturates to finite values."""
        if value == NAN:
            return self.nan
        if isinstance(value, str):
            raw = self.largest if finite or not self.infinities else self.infinity
            return raw | (self.sign if value == NEG_INF else 0)
        if value == 0:
            return self.sign if negative else 0
        sign, size = (self.sign, -value) if value < 0 else (0, value)
        if sign:
            mode = {"m": "p", "p": "m"}.get(mode, mode)
        power = max(_log2(size), 1 - self.bias)
        units = rounded(size / _power(power - self.fraction), mode)
        raw = ((power + self.bias - 1) << self.fraction) + units << self.low
        if power == 1 - self.bias and units < 1 << self.fraction:
            raw = units << self.low
        if raw > self.largest:
            raw = self.largest if finite or not self.infinities or mode in "zm" else self.infinity
        return sign | raw


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def _log2(value: Fraction) -> int:
    """Return floor(log2(value)) of a positive value."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if _power(guess) <= value else guess - 1


@cache
def _value(form: Format, raw: int) -> Value:
    size = (raw & (form.sign - 1)) >> form.low
    exponent, fraction = size >> form.fraction, size & mask(form.fraction)
    negative = bool(raw & form.sign)
    if form.infinities and exponent == mask(form.exponent):
        return NAN if fraction else (NEG_INF if negative else INF)
    if not form.infinities and size == form.sign - 1:
        return NAN
    if exponent == 0:
        found = fraction * _power(1 - form.bias - form.fraction)
    else:
        found = ((1 << form.fraction) + fraction) * _power(exponent - form.bias - form.fraction)
    return -found if negative else found


F16 = Format("f16", 16, 10, 5)
BF16 = Format("bf16", 16, 7, 8)
F32 = Format("f32", 32, 23, 8)
F64 = Format("f64", 64, 52, 11)
TF32 = Format("tf32", 32, 10, 8, low=13)
E4M3 = Format("e4m3", 8, 3, 4, infinities=False)
E5M2 = Format("e5m2", 8, 2, 5)
FORMATS = {form.name: form for form in (F16, BF16, F32, F64, TF32, E4M3, E5M2)}


def root(value: Fraction, form: Format, mode: str) -> int:
    """Return the bits of the square root of a positive value, correctly rounded."""
    power = _log2(value) // 2
    scale = form.fraction + 4 - power
    square = value * _power(2 * scale)
    whole = isqrt(square.numerator // square.denominator)
    exact = whole * whole == square
    # One more bit below says whether something was cut: the guard bits make every rounding see it.
    return form.encode((Fraction(2 * whole + (not exact), 2)) * _power(-scale), mode)


def _near(values: list[int], bits: int) -> list[int]:
    return sorted({v & mask(bits) for v in values})


def integer_edges(bits: int) -> list[int]:
    """Return 0, ±1, least, greatest, neighbours, powers of two ±1, and patterns of bits."""
    top = 1 << (bits - 1)
    found = [0, 1, 2, 3, 5, 7, -1, -2, -3, -7, top, top + 1, top - 1, top - 2, top + 2]
    steps = [p for p in (4, 7, 8, 12, 15, 16, 23, 24, 31, 32, 48, 63) if p < bits]
    for power in steps:
        found += [(1 << power) - 1, 1 << power, (1 << power) + 1, -(1 << power), -(1 << power) - 1]
    found += [int(digits * (bits // 8), 16) for digits in ("55", "aa", "0f")]
    found += [0x8F1B_3C5D_7E92_A460 >> (64 - bits), 0x3141_5926_5358_9793 >> (64 - bits)]
    return _near(found, bits)


def amounts(bits: int) -> list[int]:
    """Return shift amounts, positions and lengths: all about the widths, and some far beyond."""
    about = [n + d for n in (0, 8, 16, 31, bits, 64, 128, 256) for d in (-1, 0, 1)]
    return _near([*about, 4, 5, 24, 0x104, 0x120, 0x8000_0000, 0xFFFF_FFE0, 0x7FFF_FFFF], 32)


def float_edges(form: Format, *, special: bool = False) -> list[int]:
    """Return zeros, ones, limits, subnormals, infinities, kinds of NaN, ties of roundings to narrower types and integers."""
    one, step = form.encode(Fraction(1)), 1 << form.low
    least, inf, big = 1 << (form.fraction + form.low), form.infinity, form.largest
    sizes = [
        0,
        step,
        2 * step,
        least - step,
        least,
        least + step,
        big,
        big - step,
        one,
        one + step,
        one - step,
    ]
    sizes += [least + least // 2, 3 * step] if form.bits > 8 else []
    odd = [inf, form.nan, inf + step, inf + ((form.sign - inf) >> 1)] if form.infinities else [form.nan]
    if special:
        return _near([*sizes, *odd, *(raw | form.sign for raw in (*sizes, *odd))], form.bits)
    numbers: list[Fraction] = []
    for whole in (1, 2, 3, 5, 127, 128, 255, 256, 65535):
        numbers += [Fraction(2 * whole - 1, 2), Fraction(2 * whole + 1, 2), Fraction(whole)]
    numbers += [Fraction(n, 7) for n in (1, 2, 3, 10, 22)] + [Fraction(1, 4), Fraction(3, 4), Fraction(9, 16)]
    numbers += [_power(p) for p in (-149, -150, -126, -133, -24, -25, -14, -9, -10, -16, -17, 15, 16, 8, 9)]
    numbers += [_power(p) + s for p in (31, 32, 63, 64) for s in (-1, 0, 1)]
    numbers += [Fraction(n) for n in (448, 464, 465, 57344, 61440, 65520, 65504, 65519)]
    numbers += [F32.value(F32.largest), F32.value(F32.largest) + _power(103)]
    if form.bits >= 32:
        for narrow in (F16, BF16, TF32, E4M3, E5M2, F32):
            if narrow.fraction < form.fraction:
                unit = _power(-narrow.fraction)
                numbers += [1 + unit * k / 4 for k in (1, 2, 3, 6, 7)]
                small = _power(1 - narrow.bias - narrow.fraction)
                numbers += [small * k / 4 for k in (1, 2, 3, 6, 7, 10)]
                largest = _as(narrow, narrow.largest)
                numbers += [largest + _power(_log2(largest) - narrow.fraction - 1)]
    sizes += [form.encode(n, "n") for n in numbers]
    found = [*sizes, *odd]
    return _near(found + [raw | form.sign for raw in found], form.bits)


def _as(form: Format, raw: int) -> Fraction:
    value = form.value(raw)
    assert isinstance(value, Fraction)
    return value


def few(edges: list[int], count: int) -> list[int]:
    """Return about `count` of some edges, spread evenly, the first and the last among them."""
    if len(edges) <= count:
        return edges
    return sorted({edges[i * (len(edges) - 1) // (count - 1)] for i in range(count)})
