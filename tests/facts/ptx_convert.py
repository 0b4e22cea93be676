"""Conversions of the PTX manual: every pair of types with every modifier, typed in from its text (PTX ISA, "Data
Movement and Conversion Instructions: cvt, cvt.pack")."""

# ruff: noqa: E501, PLR0917 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tests.facts.ptx_form import ANY_NAN, Form
from tests.facts.ptx_numbers import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    FORMATS,
    INF,
    NAN,
    NEG_INF,
    Format,
    bounds,
    clamp,
    integer,
    mask,
    rounded,
    signed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
FLOATS = ("f16", "bf16", "f32", "f64")
MODES = "nzmp"


def forms() -> Iterator[Form]:
    """Every form of conversion."""
    yield from _integers()
    yield from _to_integers()
    yield from _from_integers()
    yield from _between_floats()
    yield from _saturating()
    yield from _pairs()
    yield from _bytes()
    yield from _packs()


def register(type_: str) -> int:
    """Return the width of the register that holds a type: at least 16 bits."""
    return max(16, 32 if type_ == "tf32" else int("".join(c for c in type_ if c.isdigit())))


def _kind(type_: str) -> str:
    if type_ in FORMATS:
        return type_
    return "wide8" if type_[1:] == "8" else f"i{type_[1:]}"


def _arch(*types: str) -> int:
    return 90 if "bf16" in types else 80


def _extended(value: int, target: str, bits: int) -> int:
    """Return an integer in a register of `bits`: a narrower result is extended by its type."""
    return integer(value, target) & mask(bits)


def _integers() -> Iterator[Form]:
    for target in INTEGERS:
        for source in INTEGERS:
            for sat in ("", ".sat"):
                bits = 32 if target[1:] == "8" else register(target)

                def raw(
                    a: int, target: str = target, source: str = source, sat: str = sat, bits: int = bits
                ) -> int:
                    value = integer(a, source)
                    return _extended(clamp(value, target) if sat else value, target, bits)

                if sat and bounds(target)[0] <= bounds(source)[0] and bounds(source)[1] <= bounds(target)[1]:
                    continue  # saturation cannot happen: `.sat` is illegal there
                name = f"cvt{sat}.{target}.{source}"
                yield Form(name, f"{name} %d, %a;", (_kind(source),), (bits,), raw, "cvt")
    # A destination wider than its type: the result is extended to the register.
    for target, bits in (
        ("s8", 16),
        ("u8", 16),
        ("s8", 64),
        ("u8", 64),
        ("s16", 32),
        ("u16", 32),
        ("s32", 64),
        ("u32", 64),
    ):
        for source in ("s32", "u64"):
            name = f"cvt.{target}.{source}"
            yield Form(
                f"{name} to .b{bits}", f"{name} %d, %a;", (_kind(source),), (bits,),
                lambda a, target=target, source=source, bits=bits: _extended(integer(a, source), target, bits), "cvt",
            )  # fmt: skip


def _to_integers() -> Iterator[Form]:
    for source in FLOATS:
        for target in INTEGERS:
            for mode in MODES:
                for flush in ("", ".ftz") if source == "f32" else ("",):
                    for sat in ("", ".sat") if source != "bf16" else ("",):
                        if source == "bf16" and target[1:] == "8":
                            continue
                        yield _to_integer(source, target, mode, flush, sat)


def _to_integer(source: str, target: str, mode: str, flush: str, sat: str) -> Form:
    """The result is clamped, with or without `.sat`. NaN gives 0, or 1 << (bits - 1) where a type has 64 bits."""
    form, bits = FORMATS[source], 32 if target[1:] == "8" else register(target)
    low, high = bounds(target)

    def raw(a: int) -> int:
        value = form.value(form.flushed(a) if flush else a)
        if value == NAN:
            wide = source == "f64" or target[1:] == "64"
            found = 1 << (int(target[1:]) - 1) if wide else 0
        elif isinstance(value, str):
            found = high if value == INF else low
        else:
            found = clamp(rounded(value, mode), target)
        return _extended(found, target, bits)

    name = f"cvt.r{mode}i{flush}{sat}.{target}.{source}"
    return Form(name, f"{name} %d, %a;", (source,), (bits,), raw, "cvt", _arch(source))


def _unit(raw: int, form: Format) -> int:
    """Clamp to [0, 1]; NaN gives +0."""
    value = form.value(raw)
    if value in (NAN, NEG_INF) or raw & form.sign:
        return 0
    one = form.encode(Fraction(1))
    return min(raw, one)


def _from_integers() -> Iterator[Form]:
    for target in FLOATS:
        form = FORMATS[target]
        for source in INTEGERS:
            if target == "bf16" and source[1:] == "8":
                continue
            for mode in MODES:
                for sat in ("", ".sat") if target != "bf16" else ("",):

                    def raw(
                        a: int, form: Format = form, source: str = source, mode: str = mode, sat: str = sat
                    ) -> int:
                        found = form.encode(Fraction(integer(a, source)), mode)
                        return _unit(found, form) if sat else found

                    name = f"cvt.r{mode}{sat}.{target}.{source}"
                    yield Form(
                        name, f"{name} %d, %a;", (_kind(source),), (form.bits,), raw, "cvt", _arch(target)
                    )


def _between_floats() -> Iterator[Form]:
    for source in FLOATS:
        for target in FLOATS:
            narrower = FORMATS[target].bits < FORMATS[source].bits or (source, target) == ("f16", "bf16")
            narrower = narrower or (source, target) == ("bf16", "f16")
            if narrower:
                roundings = [f".r{mode}" for mode in MODES]
            elif source == target:
                roundings = ["", *(f".r{mode}i" for mode in MODES)]
            else:
                roundings = [""]
            for rounding in roundings:
                for flush in ("", ".ftz") if "f32" in (source, target) else ("",):
                    for sat in ("", ".sat") if "bf16" not in (source, target) else ("",):
                        yield _between(source, target, rounding, flush, sat)


def _between(source: str, target: str, rounding: str, flush: str, sat: str) -> Form:
    """`.ftz` flushes subnormal f32 inputs and results; a NaN is canonical, but for f64 the payload is open."""
    from_, to = FORMATS[source], FORMATS[target]

    def raw(a: int) -> int:
        if flush and source == "f32":
            a = from_.flushed(a)
        value = from_.value(a)
        negative = bool(a & from_.sign)
        if value == NAN:
            if sat:
                return 0
            return ANY_NAN if target == "f64" or (source == target and not rounding) else to.nan
        if rounding.endswith("i") and not isinstance(value, str):
            value = Fraction(rounded(value, rounding[2]))
        found = to.encode(value, rounding[2:3] or "n", negative=negative)
        if flush and target == "f32":
            found = to.flushed(found)
        return _unit(found, to) if sat else found

    name = f"cvt{rounding}{flush}{sat}.{target}.{source}"
    early = "f32" in (source, target) and (target, flush) != ("f32", ".ftz")
    arch = 90 if "bf16" in (source, target) and not early else 80
    return Form(name, f"{name} %d, %a;", (source,), (to.bits,), raw, "cvt", arch, target)


def narrow(
    raw: int, source: Format, target: Format, mode: str, *, relu: bool = False, finite: bool = False
) -> int:
    """Convert one number as the packed forms do: relu makes negative numbers and -0 zero, finite keeps them finite."""
    value = source.value(raw)
    if value == NAN:
        return target.nan
    if relu and raw & source.sign:
        return 0
    return target.encode(value, mode, negative=bool(raw & source.sign), finite=finite)


def _saturating() -> Iterator[Form]:
    """f32 to f16, bf16 and tf32 with `.relu` and `.satfinite`."""
    for target in ("f16", "bf16"):
        for mode in "nz":
            for relu in ("", ".relu"):
                for finite in ("", ".satfinite"):
                    if not relu and not finite:
                        continue
                    yield _narrowing(
                        f"cvt.r{mode}{relu}{finite}.{target}.f32", target, mode, relu, finite, 80
                    )
    for finite in ("", ".satfinite"):
        yield _narrowing(f"cvt.rna{finite}.tf32.f32", "tf32", "a", "", finite, 80)
    for mode in "nz":
        for relu in ("", ".relu"):
            for finite, arch in (("", 90), (".satfinite", 100)):
                yield _narrowing(f"cvt.r{mode}{finite}{relu}.tf32.f32", "tf32", mode, relu, finite, arch)


def _narrowing(name: str, target: str, mode: str, relu: str, finite: str, arch: int) -> Form:
    form = FORMATS[target]

    def raw(a: int) -> int:
        return narrow(a, F32, form, mode, relu=bool(relu), finite=bool(finite))

    return Form(name, f"{name} %d, %a;", ("f32",), (form.bits,), raw, "cvt", arch, target)


def _pairs() -> Iterator[Form]:
    """Two f32 to two halves: a goes to the upper half."""
    for target in (F16, BF16):
        for mode in "nz":
            for relu in ("", ".relu"):
                for finite in ("", ".satfinite"):

                    def raw(
                        a: int,
                        b: int,
                        target: Format = target,
                        mode: str = mode,
                        relu: str = relu,
                        finite: str = finite,
                    ) -> int:
                        up, low = (
                            narrow(x, F32, target, mode, relu=bool(relu), finite=bool(finite)) for x in (a, b)
                        )
                        return up << 16 | low

                    name = f"cvt.r{mode}{relu}{finite}.{target.name}x2.f32"
                    yield Form(name, f"{name} %d, %a, %b;", ("f32:special", "f32"), (32,), raw, "cvt")


def _bytes() -> Iterator[Form]:
    """Pairs of 8-bit floats, of two f32, of two f16, and back: sm_89 and later."""
    for target in (E4M3, E5M2):
        for relu in ("", ".relu"):

            def two(a: int, b: int, target: Format = target, relu: str = relu) -> int:
                up, low = (narrow(x, F32, target, "n", relu=bool(relu), finite=True) for x in (a, b))
                return up << 8 | low

            def halves(a: int, target: Format = target, relu: str = relu) -> int:
                up, low = (
                    narrow(x, F16, target, "n", relu=bool(relu), finite=True) for x in (a >> 16, a & 0xFFFF)
                )
                return up << 8 | low

            def back(a: int, source: Format = target, relu: str = relu) -> int:
                up, low = (narrow(x, source, F16, "n", relu=bool(relu)) for x in (a >> 8, a & 255))
                return up << 16 | low

            pair = f"{target.name}x2"
            name = f"cvt.rn.satfinite{relu}.{pair}.f32"
            yield Form(name, f"{name} %d, %a, %b;", ("f32:special", "f32"), (16,), two, "cvt", 89)
            name = f"cvt.rn.satfinite{relu}.{pair}.f16x2"
            yield Form(name, f"{name} %d, %a;", ("h2",), (16,), halves, "cvt", 89)
            name = f"cvt.rn{relu}.f16x2.{pair}"
            yield Form(name, f"{name} %d, %a;", (target.name,), (32,), back, "cvt", 89)


def _packs() -> Iterator[Form]:
    """Saturate a and b; 16-bit results fill the register, a above b; narrower ones push c up."""
    for type_ in ("u16", "s16"):

        def pair(a: int, b: int, type_: str = type_) -> int:
            up, low = (clamp(signed(x, 32), type_) & 0xFFFF for x in (a, b))
            return up << 16 | low

        name = f"cvt.pack.sat.{type_}.s32"
        yield Form(name, f"{name} %d, %a, %b;", ("i32", "i32"), (32,), pair, "cvt.pack")
    for bits in (2, 4, 8):
        for sign in "us":
            yield _pack(f"{sign}{bits}", bits)


def _pack(type_: str, bits: int) -> Form:
    def raw(a: int, b: int, c: int) -> int:
        up, low = (clamp(signed(x, 32), type_) & mask(bits) for x in (a, b))
        return (c << (2 * bits) | up << bits | low) & mask(32)

    name = f"cvt.pack.sat.{type_}.s32.b32"
    return Form(name, f"{name} %d, %a, %b, %c;", ("i32", "i32", "i32:6"), (32,), raw, "cvt.pack")
