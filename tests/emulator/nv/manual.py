"""Definitions of PTX instructions, typed from the PTX ISA manual (8.8, section 9.7), and a runner for them.

Integers are Python's. Floats are exact fractions that are rounded once by `Format.round`. Nothing is taken
from the emulator, whose translation `test_ptx_manual` compares.
"""

# ruff: noqa: E501 - the text of a kernel reads best one line a step

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.emulator.nv.conftest import Bench

NAN, INF = "nan", "inf"
_HUGE = Fraction(1 << 2000)
"""Above every finite number."""


@dataclass(frozen=True)
class Number:
    """A decoded float: a NaN, an infinity, or a magnitude; zeros have a sign."""

    negative: bool
    size: Fraction | str

    @property
    def nan(self) -> bool:
        return self.size == NAN

    @property
    def inf(self) -> bool:
        return self.size == INF

    @property
    def zero(self) -> bool:
        return self.size == 0

    @property
    def value(self) -> Fraction:
        assert isinstance(self.size, Fraction), self.size
        return -self.size if self.negative else self.size


QUIET = Number(negative=False, size=NAN)


def number(value: Fraction | int, *, negative_zero: bool = False) -> Number:
    value = Fraction(value)
    return Number(value < 0 or (value == 0 and negative_zero), abs(value))


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of IEEE 754's kind."""

    exponent: int
    mantissa: int
    canonical: int
    """The NaN that arithmetic makes."""

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def smallest(self) -> Fraction:
        """The smallest normal number."""
        return Fraction(2) ** (1 - self.bias)

    @property
    def largest(self) -> Fraction:
        return (2 - Fraction(1, 1 << self.mantissa)) * Fraction(2) ** self.bias

    @functools.cache  # noqa: B019 - formats are constants
    def decode(self, bits: int) -> Number:
        negative = bool(bits >> (self.bits - 1) & 1)
        power, low = bits >> self.mantissa & (1 << self.exponent) - 1, bits & (1 << self.mantissa) - 1
        if power == (1 << self.exponent) - 1:
            return Number(negative, NAN if low else INF)
        whole = low + ((1 << self.mantissa) if power else 0)
        return Number(negative, Fraction(whole) * Fraction(2) ** (max(power, 1) - self.bias - self.mantissa))

    def encode(self, one: Number, mode: str = "rn") -> int:
        """Round to the format; a NaN is canonical."""
        top = int(one.negative) << (self.bits - 1)
        infinite = ((1 << self.exponent) - 1) << self.mantissa
        if one.nan:
            return self.canonical
        if one.inf:
            return top | infinite
        assert isinstance(one.size, Fraction)
        if one.size == 0:
            return top
        power = one.size.numerator.bit_length() - one.size.denominator.bit_length()
        power += 0 if Fraction(2) ** power <= one.size else -1
        step = Fraction(2) ** (max(power, 1 - self.bias) - self.mantissa)
        steps, rest = divmod(one.size, step)
        away = {
            "rn": 2 * rest > step or (2 * rest == step and steps % 2 == 1),
            "rna": 2 * rest >= step,
            "rz": False,
            "rm": one.negative and rest > 0,
            "rp": not one.negative and rest > 0,
        }[mode]
        size = (steps + away) * step
        if size > self.largest:
            to_infinity = mode in ("rn", "rna") or (mode != "rz" and (mode == "rm") is one.negative)
            return top | (infinite if to_infinity else infinite - 1)
        if size < self.smallest:
            return top | int(size / step)
        power = size.numerator.bit_length() - size.denominator.bit_length()
        power += 0 if Fraction(2) ** power <= size else -1
        low = int(size / Fraction(2) ** (power - self.mantissa)) - (1 << self.mantissa)
        return top | (power + self.bias) << self.mantissa | low

    def flushed(self, one: Number) -> Number:
        """Replace a subnormal number by the zero of its sign."""
        small = not one.nan and not one.inf and 0 < abs(one.value) < self.smallest
        return Number(one.negative, Fraction(0)) if small else one


F16 = Format(5, 10, 0x7FFF)
BF16 = Format(8, 7, 0x7FFF)
F32 = Format(8, 23, 0x7FFF_FFFF)
F64 = Format(11, 52, 0xFFF8_0000_0000_0000)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def plus(a: Number, b: Number, mode: str) -> Number:
    if a.nan or b.nan or (a.inf and b.inf and a.negative != b.negative):
        return QUIET
    if a.inf or b.inf:
        return a if a.inf else b
    if a.zero and b.zero and a.negative == b.negative:
        return a
    return number(a.value + b.value, negative_zero=mode == "rm")


def minus(a: Number) -> Number:
    return Number(not a.negative, a.size)


def times(a: Number, b: Number) -> Number:
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.inf and b.zero) or (b.inf and a.zero):
        return QUIET
    if a.inf or b.inf:
        return Number(negative, INF)
    return Number(negative, abs(a.value * b.value))


def saturated(one: Number) -> Number:
    """.sat: clamp to [0, 1]; NaN becomes +0."""
    if one.nan or one.negative or one.zero:
        return number(0)
    return number(1) if one.inf or one.value > 1 else one


def relu(one: Number) -> Number:
    """.relu: negative results become +0, NaN stays."""
    return one if one.nan or (not one.negative and not one.zero) else number(0)


def arithmetic(format_: Format, words: Sequence[str], op: str) -> Callable[..., int]:
    """Return the definition of add, sub, mul, fma with modifiers."""
    mode = next((one for one in words if one in ("rn", "rz", "rm", "rp")), "rn")

    def define(*bits: int) -> int:
        given = [format_.decode(one) for one in bits]
        if "ftz" in words:
            given = [format_.flushed(one) for one in given]
        a, b, *rest = given
        exact = plus(a, minus(b) if op == "sub" else b, mode) if op in ("add", "sub") else times(a, b)
        if rest:
            exact = plus(exact, rest[0], mode)
        result = format_.decode(format_.encode(exact, mode))
        if "ftz" in words:
            result = format_.flushed(result)
        if "sat" in words:
            result = saturated(result)
        if "relu" in words:
            result = relu(result)
        return format_.encode(result)

    return define


def extreme(format_: Format, words: Sequence[str], op: str) -> Callable[[int, int], int]:
    """Return the definition of min and max; -0 is less than +0."""

    def define(*bits: int) -> int:
        a, b = (format_.decode(one) for one in bits)
        if "ftz" in words:
            a, b = format_.flushed(a), format_.flushed(b)
        sign = a.negative != b.negative
        if "abs" in words:
            a, b = (Number(negative=False, size=one.size) for one in (a, b))
        if (a.nan and b.nan) or ("NaN" in words and (a.nan or b.nan)):
            return format_.canonical
        numbers = [one for one in (a, b) if not one.nan]
        best = (min if op == "min" else max)(numbers, key=rank)
        if "xorsign" in words:
            best = Number(sign, best.size)
        if "relu" in words:
            best = relu(best)
        return format_.encode(best)

    return define


@functools.cache
def rank(one: Number) -> tuple[Fraction, int]:
    """Return a key in the order of numbers, with -0 before +0."""
    size = _HUGE if one.inf else one.size
    assert isinstance(size, Fraction)
    return (-size if one.negative else size), 0 if one.negative else 1


def compare(how: str, a: Number, b: Number) -> bool:
    """Compare as setp does: .ltu and others are true for NaN, .num and .nan test for it."""
    if how in ("num", "nan"):
        return (a.nan or b.nan) == (how == "nan")
    if a.nan or b.nan:
        return how in ("equ", "neu", "ltu", "leu", "gtu", "geu")
    x, y = rank(a)[0], rank(b)[0]
    return bool(getattr(operator, how[:2])(x, y))


def integral(one: Number, how: str) -> Number:
    """Round to an integer: .rni to nearest even, .rzi, .rmi, .rpi."""
    if one.nan or one.inf or one.zero:
        return one
    value = one.value
    low = value.numerator // value.denominator
    rest = value - low
    up = {
        "rni": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1),
        "rzi": value < 0 and rest > 0,
        "rmi": False,
        "rpi": rest > 0,
    }[how]
    return Number(one.negative, Fraction(abs(low + up)))


def limits(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


def clamp(value: int, type_: str) -> int:
    low, high = limits(type_)
    return max(low, min(high, value))


def as_type(bits: int, type_: str) -> int:
    """Return the value of the low bits of a register."""
    size = int(type_[1:])
    value = bits & (1 << size) - 1
    return value - (1 << size) if type_[0] == "s" and value >> (size - 1) else value


def to_integer(source: str, target: str, how: str, *, ftz: bool = False) -> Callable[[int], int]:
    """Return the definition of a conversion to an integer, which clamps."""
    format_, (low, high) = FORMATS[source], limits(target)

    def define(bits: int) -> int:
        one = format_.decode(bits)
        if ftz:
            one = format_.flushed(one)
        if one.nan:
            wide = source == "f64" or target[1:] == "64"
            return (low or 1 << (int(target[1:]) - 1)) if wide else 0
        if one.inf:
            return low if one.negative else high
        return clamp(int(integral(one, how).value), target)

    return define


def to_float(
    source: str, target: str, mode: str, *, how: str = "", words: Sequence[str] = ()
) -> Callable[[int], int]:
    """Return the definition of a conversion between floats, or to the integral float of the same type."""
    have, want = FORMATS[source], FORMATS[target]

    def define(bits: int) -> int:
        one = have.decode(bits)
        if "ftz" in words and source == "f32":
            one = F32.flushed(one)
        if how:
            one = integral(one, how)
        if "sat" in words:
            one = saturated(one)
        if "relu" in words:
            one = relu(one)
        out = want.decode(want.encode(one, mode or "rn"))
        if "ftz" in words and target == "f32":
            out = F32.flushed(out)
        return want.encode(out)

    return define


def halves(define: Callable[..., int]) -> Callable[..., int]:
    """Return the definition for packed pairs: each half by itself."""

    def packed(*words: int) -> int:
        low, high = (define(*(one >> at & 0xFFFF for one in words)) for at in (0, 16))
        return (low & 0xFFFF) | (high & 0xFFFF) << 16

    return packed


@dataclass(frozen=True)
class Form:
    """One form of an instruction: its text with {d}, {a}, {b}, {c}, widths, and its definition."""

    text: str
    out: int
    ins: tuple[int, ...]
    define: Callable[..., int]


def check(bench: Bench, forms: Sequence[Form], *inputs: Sequence[int], arch: str = "sm_90") -> None:
    """Run forms of the same input widths on all inputs in one kernel; compare with their definitions."""
    widths, count = forms[0].ins, len(inputs[0])
    names = "abc"[: len(widths)]
    body = [f".reg .b{w} %{n};" for w, n in zip(widths, names, strict=True)]
    body += [".reg .b32 %i, %x<3>; .reg .b64 %at, %base, %out; .reg .pred %in, %q<4>;"]
    body += [
        "mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ntid.x; mov.u32 %x2, %tid.x; mad.lo.s32 %i, %x0, %x1, %x2;"
    ]
    body += [f"setp.ge.u32 %in, %i, {count}; @%in bra END;"]
    for k, (width, name) in enumerate(zip(widths, names, strict=True)):
        body += [f"ld.param.u64 %base, [p{k}]; mad.wide.u32 %at, %i, {width // 8}, %base;"]
        body += [f"ld.global.b{width} %{name}, [%at];"]
    body += [f"ld.param.u64 %base, [p{len(widths)}]; mad.wide.u32 %out, %i, {8 * len(forms)}, %base;"]
    for k, form in enumerate(forms):
        assert form.ins == widths, form
        text = form.text.format(d="%d", a="%a", b="%b", c="%c")
        body += [f"{{ .reg .b{form.out} %d; {text} st.global.b{form.out} [%out+{8 * k}], %d; }}"]
    params = ", ".join(f".param .u64 p{k}" for k in range(len(widths) + 1))
    head = f".version 8.6\n.target {arch}\n.address_size 64\n.visible .entry k({params}) {{\n"
    arrays: list[Any] = [
        bench.new(np.array(one, np.uint64), f"u{width // 8}")
        for one, width in zip(inputs, widths, strict=True)
    ]
    result = bench.new(np.zeros(count * len(forms), np.uint64), "u8")
    text = head + "\n".join(body) + "\nEND: ret;\n}\n"
    done = bench.run(text, "k", -(-count // 128), 128, *arrays, result, arch=arch)
    assert done.fault is None, done.fault
    table = result.reshape(count, len(forms))
    wrong: list[str] = []
    for k, form in enumerate(forms):
        for row, given in enumerate(zip(*inputs, strict=True)):
            wanted, seen = form.define(*given) & (1 << form.out) - 1, int(table[row, k])
            if wanted != seen and len(wrong) < 20:
                words = ", ".join(f"{one:#x}" for one in given)
                wrong.append(f"{form.text} of {words}: {seen:#x}, the manual has {wanted:#x}")
                break
    assert not wrong, "\n".join(wrong)


def crossed(*edges: Sequence[int]) -> list[list[int]]:
    """Return the columns of all combinations."""
    grids = np.meshgrid(*(np.array(one, np.uint64) for one in edges), indexing="ij")
    return [grid.ravel().tolist() for grid in grids]


def integer_edges(bits: int) -> list[int]:
    top = 1 << bits
    return sorted({v % top for v in (0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, -1, -2, -32)}
                  | {top // 2, top // 2 - 1, top // 2 + 1, 0x5A5A_F0F0_1234_8001 % top})  # fmt: skip


def float_edges(format_: Format) -> list[int]:
    """Return patterns: zeros, ends of all ranges, ties, values around integers' limits, both signs, NaNs."""
    one, high = format_.bias << format_.mantissa, ((1 << format_.exponent) - 1) << format_.mantissa
    least = 1 << format_.mantissa
    sizes = {0, 1, 2, 3, least - 1, least, least + 1, one - 1, one, one + 1, high - 1, high}
    values = (Fraction(1, 2), Fraction(3, 2), Fraction(5, 2), 3, 127, Fraction(255, 2), 128, 255, 256, 32767,
              32768, 65504, 65519, 65520, 2**31, 2**31 - 128, 2**32, 2**63, 2**64, Fraction(2) ** -14,
              Fraction(2) ** -15 * 3 / 2, Fraction(2) ** -24, Fraction(2) ** -25 * 3, Fraction(2) ** -126)  # fmt: skip
    sizes |= {format_.encode(number(Fraction(one)), "rz") for one in values}
    signed = {size | sign << (format_.bits - 1) for size in sizes for sign in (0, 1)}
    nans = {high | 1, high | least >> 1, 1 << (format_.bits - 1) | high | 5, format_.canonical}
    return sorted(signed | nans)
