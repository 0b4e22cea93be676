"""Integer arithmetic of the PTX manual: every form, typed in from its text (PTX ISA, "Integer Arithmetic Instructions"
and "Extended-Precision Integer Arithmetic Instructions")."""

# ruff: noqa: E501, PLR0917 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.facts.ptx_form import Form
from tests.facts.ptx_numbers import clamp, integer, mask, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TYPES = ("u16", "u32", "u64", "s16", "s32", "s64")
ALL_ONES = 0xFFFF_FFFF


def forms() -> Iterator[Form]:
    """Every form of integer arithmetic and of carries."""
    yield from _sums()
    yield from _products()
    yield from _quotients()
    yield from _unary()
    yield from _extremes()
    yield from _bits()
    yield from _fields()
    yield from _dots()
    yield from _carries()


def _kind(type_: str) -> str:
    return f"i{type_[1:]}"


def _plain(name: str, type_: str, count: int, meaning: Callable[..., int | None], arch: int = 80) -> Form:
    """Return a form whose operands and result are all of one type; its meaning takes and returns numbers."""
    bits = int(type_[1:])

    def raw(*values: int) -> int | None:
        found = meaning(*(integer(value, type_) for value in values))
        return None if found is None else found & mask(bits)

    operands = ", ".join(("%a", "%b", "%c")[:count])
    opcode = name.partition(".")[0]
    return Form(name, f"{name} %d, {operands};", (_kind(type_),) * count, (bits,), raw, opcode, arch)


def _pairs(name: str, type_: str, meaning: Callable[[int, int], int]) -> Form:
    """Return a form on two 16-bit integers in one register."""

    def raw(a: int, b: int) -> int:
        low = meaning(integer(a, type_), integer(b, type_)) & 0xFFFF
        return (meaning(integer(a >> 16, type_), integer(b >> 16, type_)) & 0xFFFF) << 16 | low

    return Form(name, f"{name} %d, %a, %b;", ("i2", "i2"), (32,), raw, name.partition(".")[0], 90)


def _sums() -> Iterator[Form]:
    for type_ in TYPES:
        yield _plain(f"add.{type_}", type_, 2, lambda a, b: a + b)
        yield _plain(f"sub.{type_}", type_, 2, lambda a, b: a - b)
        yield _plain(f"sad.{type_}", type_, 3, lambda a, b, c: c + abs(a - b))
    yield _plain("add.sat.s32", "s32", 2, lambda a, b: clamp(a + b, "s32"))
    yield _plain("sub.sat.s32", "s32", 2, lambda a, b: clamp(a - b, "s32"))
    for type_ in ("u16", "s16"):
        yield _pairs(f"add.{type_}x2", type_, lambda a, b: a + b)


def _products() -> Iterator[Form]:
    for type_ in TYPES:
        n = int(type_[1:])
        yield _plain(f"mul.lo.{type_}", type_, 2, lambda a, b: a * b)
        yield _plain(f"mul.hi.{type_}", type_, 2, lambda a, b, n=n: (a * b) >> n)
        yield _plain(f"mad.lo.{type_}", type_, 3, lambda a, b, c: a * b + c)
        yield _plain(f"mad.hi.{type_}", type_, 3, lambda a, b, c, n=n: ((a * b) >> n) + c)
        if n < 64:
            yield _wide(type_, n)
            yield _wide_sum(type_, n)
    yield _plain("mad.hi.sat.s32", "s32", 3, lambda a, b, c: clamp(((a * b) >> 32) + c, "s32"))
    for type_ in ("u32", "s32"):
        # The operands are 24-bit values in 32-bit registers: the low 24 bits count, with their sign for s32.
        def low(value: int, type_: str = type_) -> int:
            return signed(value, 24) if type_ == "s32" else value & mask(24)

        yield _plain(f"mul24.lo.{type_}", type_, 2, lambda a, b, low=low: low(a) * low(b))
        yield _plain(f"mul24.hi.{type_}", type_, 2, lambda a, b, low=low: (low(a) * low(b)) >> 16)
        yield _plain(f"mad24.lo.{type_}", type_, 3, lambda a, b, c, low=low: low(a) * low(b) + c)
        yield _plain(f"mad24.hi.{type_}", type_, 3, lambda a, b, c, low=low: ((low(a) * low(b)) >> 16) + c)
    yield _plain(
        "mad24.hi.sat.s32", "s32", 3,
        lambda a, b, c: clamp(((signed(a, 24) * signed(b, 24)) >> 16) + c, "s32"),
    )  # fmt: skip


def _wide(type_: str, n: int) -> Form:
    def raw(a: int, b: int) -> int:
        return integer(a, type_) * integer(b, type_) & mask(2 * n)

    return Form(
        f"mul.wide.{type_}", f"mul.wide.{type_} %d, %a, %b;", (_kind(type_),) * 2, (2 * n,), raw, "mul"
    )


def _wide_sum(type_: str, n: int) -> Form:
    def raw(a: int, b: int, c: int) -> int:
        return (integer(a, type_) * integer(b, type_) + c) & mask(2 * n)

    kinds = (_kind(type_), _kind(type_), f"i{2 * n}")
    return Form(f"mad.wide.{type_}", f"mad.wide.{type_} %d, %a, %b, %c;", kinds, (2 * n,), raw, "mad")


def _quotient(a: int, b: int) -> int | None:
    """Return a / b cut towards zero; division by zero gives an unspecified value."""
    if b == 0:
        return None
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int | None:
    quotient = _quotient(a, b)
    return None if quotient is None else a - quotient * b


def _quotients() -> Iterator[Form]:
    for type_ in TYPES:
        yield _plain(f"div.{type_}", type_, 2, _quotient)
        yield _plain(f"rem.{type_}", type_, 2, _remainder)


def _unary() -> Iterator[Form]:
    for type_ in ("s16", "s32", "s64"):
        yield _plain(f"abs.{type_}", type_, 1, abs)
        yield _plain(f"neg.{type_}", type_, 1, lambda a: -a)


def _extremes() -> Iterator[Form]:
    for name, pick in (("min", min), ("max", max)):
        for type_ in TYPES:
            yield _plain(f"{name}.{type_}", type_, 2, pick)
        yield _plain(f"{name}.relu.s32", "s32", 2, lambda a, b, pick=pick: max(pick(a, b), 0), 90)
        for type_ in ("u16", "s16"):
            yield _pairs(f"{name}.{type_}x2", type_, pick)
        yield _pairs(f"{name}.relu.s16x2", "s16", lambda a, b, pick=pick: max(pick(a, b), 0))


def _bits() -> Iterator[Form]:
    for n in (32, 64):
        one = (f"i{n}",)
        yield Form(f"popc.b{n}", f"popc.b{n} %d, %a;", one, (32,), lambda a: a.bit_count(), "popc")
        yield Form(f"clz.b{n}", f"clz.b{n} %d, %a;", one, (32,), lambda a, n=n: n - a.bit_length(), "clz")
        yield Form(
            f"brev.b{n}", f"brev.b{n} %d, %a;", one, (n,), lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2), "brev"
        )
        for sign in "us":
            for shift in ("", ".shiftamt"):
                name = f"bfind{shift}.{sign}{n}"
                yield Form(name, f"{name} %d, %a;", one, (32,), _bfind(n, sign, shift), "bfind")
    yield Form("fns.b32", "fns.b32 %d, %a, %b, %c;", ("i32", "shift:32", "shift:8"), (32,), _fns, "fns")


def _bfind(n: int, sign: str, shift: str) -> Callable[[int], int]:
    def raw(a: int) -> int:
        if sign == "s" and a >> (n - 1):
            a ^= mask(n)
        at = a.bit_length() - 1
        if at < 0:
            return ALL_ONES
        return n - 1 - at if shift else at

    return raw


def _fns(bits: int, base: int, offset: int) -> int | None:
    """The |offset|-th set bit from base on, upwards or downwards; a base above 31 is undefined, and |-2^31| too."""
    if base > 31 or offset == 1 << 31:
        return None
    wanted = signed(offset, 32)
    if wanted == 0:
        return base if bits >> base & 1 else ALL_ONES
    way = range(base, 32) if wanted > 0 else range(base, -1, -1)
    found = [at for at in way if bits >> at & 1]
    return found[abs(wanted) - 1] if abs(wanted) <= len(found) else ALL_ONES


def _fields() -> Iterator[Form]:
    for n in (32, 64):
        kinds = (f"i{n}", f"shift:{n}", f"shift:{n}")
        for sign in "us":
            name = f"bfe.{sign}{n}"
            yield Form(name, f"{name} %d, %a, %b, %c;", kinds, (n,), _bfe(n, sign), "bfe")
        name = f"bfi.b{n}"
        yield Form(
            name, f"{name} %d, %a, %b, %c, %f;",
            (f"i{n}", f"i{n}", f"shift:{n}", f"shift:{n}"), (n,), _bfi(n), "bfi",
        )  # fmt: skip
    for mode in ("clamp", "wrap"):
        for sign in "us":
            name = f"szext.{mode}.{sign}32"
            yield Form(
                name,
                f"{name} %d, %a, %b;",
                ("i32", "shift:32"),
                (32,),
                _szext(sign, wrap=mode == "wrap"),
                "szext",
            )
        name = f"bmsk.{mode}.b32"
        yield Form(
            name, f"{name} %d, %a, %b;", ("shift:32", "shift:32"), (32,), _bmsk(wrap=mode == "wrap"), "bmsk"
        )


def _bfe(n: int, sign: str) -> Callable[[int, int, int], int]:
    """Positions and lengths are "restricted to 0..255". Beyond, the manual's code takes their low 8 bits; ptxas does so
    for 32 bits, and for 64 bits uses them whole (answers of ptxas 13.5, constants and code alike): so it is here."""

    def raw(a: int, at: int, length: int) -> int:
        if n == 32:
            at, length = at & 255, length & 255
        fill = sign == "s" and length > 0 and bool(a >> min(at + length - 1, n - 1) & 1)
        at, length = min(at, n), min(length, n)
        field = (a >> at) & mask(length)
        got = min(length, n - at)
        return (field | (mask(n) & ~mask(got) if fill else 0)) & mask(n)

    return raw


def _bfi(n: int) -> Callable[[int, int, int, int], int]:
    def raw(a: int, b: int, at: int, length: int) -> int:
        if n == 32:
            at, length = at & 255, length & 255
        at, length = min(at, n), min(length, n)
        field = mask(length) << at & mask(n)
        return b & ~field | a << at & field

    return raw


def _szext(sign: str, *, wrap: bool) -> Callable[[int, int], int]:
    def raw(a: int, b: int) -> int:
        if b >= 32 and not wrap:
            return a
        n = b & 31
        if n == 0:
            return 0
        return signed(a, n) & mask(32) if sign == "s" else a & mask(n)

    return raw


def _bmsk(*, wrap: bool) -> Callable[[int, int], int]:
    def raw(at: int, length: int) -> int:
        if wrap:
            at, length = at & 31, length & 31
        if at >= 32:
            return 0
        return mask(min(length, 32)) << at & mask(32)

    return raw


def _dots() -> Iterator[Form]:
    short = ("i32:14", "i32:14", "i32:6")
    for a in "us":
        for b in "us":
            name = f"dp4a.{a}32.{b}32"
            yield Form(name, f"{name} %d, %a, %b, %c;", short, (32,), _dot(a, b, (8, 8, 8, 8), 0), "dp4a")
            for mode in ("lo", "hi"):
                name = f"dp2a.{mode}.{a}32.{b}32"
                at = 0 if mode == "lo" else 16
                yield Form(name, f"{name} %d, %a, %b, %c;", short, (32,), _dot(a, b, (16, 16), at), "dp2a")


def _dot(a_sign: str, b_sign: str, parts: tuple[int, ...], at: int) -> Callable[[int, int, int], int]:
    def raw(a: int, b: int, c: int) -> int:
        total = c
        for i, n in enumerate(parts):
            total += integer(a >> (n * i), f"{a_sign}{n}") * integer(b >> (at + 8 * i), f"{b_sign}8")
        return total & mask(32)

    return raw


def _carries() -> Iterator[Form]:
    """The carry goes out and in. After a subtraction the flag that `addc` reads is the adder's carry: see docs/sources.md."""
    for type_ in ("u32", "s32", "u64", "s64"):
        yield from _chains(type_)
        yield from _product_chains(type_)


def _reads(n: int) -> dict[str, str]:
    """Return instructions that put what a chain left into %e: as a carry (`addc`) or as a borrow (`subc`)."""
    return {
        "addc": f"addc.u{n} %e, 0, 0;",
        "subc": f"subc.u{n} %e, 0, 0;",
        "madc": f"madc.lo.u{n} %e, 0, 0, 0;",
    }


def _read(way: str, carry: int, n: int) -> int:
    """Return what such an instruction reads: `subc` takes the borrow, which is no carry of the adder."""
    return -(1 - carry) & mask(n) if way == "subc" else carry


def _chains(type_: str) -> Iterator[Form]:
    n = int(type_[1:])
    two, three = (f"i{n}",) * 2, (f"i{n}", f"i{n}", "pred")
    # The flag is set by an addition that overflows, or does not, on a predicate.
    set_ = "selp.b32 %t, -1, 0, %c; add.cc.u32 %t, %t, 1;"

    def total(a: int, b: int, carry: int) -> tuple[int, int]:
        return (a + b + carry) & mask(n), (a + b + carry) >> n

    for way, text in _reads(n).items():

        def first(a: int, b: int, way: str = way, invert: int = 0) -> tuple[int, int]:
            low, carry = total(a, b ^ invert, 1 if invert else 0)
            return low, _read(way, carry, n)

        def later(a: int, b: int, c: int, way: str = way, invert: int = 0) -> tuple[int, int]:
            low, carry = total(a, b ^ invert, c)
            return low, _read(way, carry, n)

        for name, invert in (("add", 0), ("sub", mask(n))):
            yield Form(
                f"{name}.cc.{type_} {way}", f"{name}.cc.{type_} %d, %a, %b; {text}", two, (n, n),
                lambda a, b, f=first, invert=invert: f(a, b, invert=invert), f"{name}.cc",
            )  # fmt: skip
            yield Form(
                f"{name}c.cc.{type_} {way}", f"{set_} {name}c.cc.{type_} %d, %a, %b; {text}", three, (n, n),
                lambda a, b, c, f=later, invert=invert: f(a, b, c, invert=invert), f"{name}c",
            )  # fmt: skip
    for name, invert in (("add", 0), ("sub", mask(n))):
        yield Form(
            f"{name}c.{type_}", f"{set_} {name}c.{type_} %d, %a, %b;", three, (n,),
            lambda a, b, c, invert=invert: total(a, b ^ invert, c)[0], f"{name}c",
        )  # fmt: skip


def _product_chains(type_: str) -> Iterator[Form]:
    n = int(type_[1:])
    kinds = (f"i{n}",) * 3
    for half in ("lo", "hi"):

        def part(a: int, b: int, half: str = half) -> int:
            product = integer(a, type_) * integer(b, type_)
            return (product >> n if half == "hi" else product) & mask(n)

        for way, text in _reads(n).items():

            def out(
                a: int, b: int, c: int, carry: int, part: Callable[[int, int], int] = part, way: str = way
            ) -> tuple[int, int]:
                total = part(a, b) + c + carry
                return total & mask(n), _read(way, total >> n, n)

            yield Form(
                f"mad.{half}.cc.{type_} {way}", f"mad.{half}.cc.{type_} %d, %a, %b, %c; {text}", kinds, (n, n),
                lambda a, b, c, out=out: out(a, b, c, 0), "mad.cc",
            )  # fmt: skip
            for carry in (0, 1):
                set_ = f"mov.b32 %t, {-carry}; add.cc.u32 %t, %t, 1;"
                yield Form(
                    f"madc.{half}.cc.{type_} {way} carry {carry}",
                    f"{set_} madc.{half}.cc.{type_} %d, %a, %b, %c; {text}", kinds, (n, n),
                    lambda a, b, c, out=out, carry=carry: out(a, b, c, carry), "madc",
                )  # fmt: skip
        for carry in (0, 1):
            set_ = f"mov.b32 %t, {-carry}; add.cc.u32 %t, %t, 1;"
            yield Form(
                f"madc.{half}.{type_} carry {carry}", f"{set_} madc.{half}.{type_} %d, %a, %b, %c;", kinds, (n,),
                lambda a, b, c, part=part, carry=carry: (part(a, b) + c + carry) & mask(n), "madc",
            )  # fmt: skip
