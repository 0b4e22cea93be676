"""Forms of PTX instructions against the manual's definitions, over all combinations of edge values."""

# ruff: noqa: E501 - tables read best one form a line

from __future__ import annotations

import functools
import itertools
import operator
from bisect import bisect_left
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from emulator.nv.ptx.statements import PtxError
from tests.emulator.nv.manual import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    QUIET,
    Form,
    Format,
    Number,
    arithmetic,
    as_type,
    check,
    clamp,
    compare,
    crossed,
    extreme,
    float_edges,
    halves,
    integer_edges,
    limits,
    number,
    relu,
    to_float,
    to_integer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.nv.conftest import Bench

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def two(type_: str) -> dict[str, Callable[[int, int], int]]:
    """Integer instructions of two operands of one type."""
    bits = int(type_[1:])
    forms: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul.lo": lambda a, b: a * b,
        "mul.hi": lambda a, b: a * b >> bits,
        "min": min,
        "max": max,
    }
    if type_ == "s32":
        forms |= {
            "add.sat": lambda a, b: clamp(a + b, "s32"),
            "sub.sat": lambda a, b: clamp(a - b, "s32"),
            "min.relu": lambda a, b: max(min(a, b), 0),
            "max.relu": lambda a, b: max(a, b, 0),
        }
    if bits == 32:
        low = f"{type_[0]}24"
        forms |= {
            "mul24.lo": lambda a, b: as_type(a, low) * as_type(b, low),
            "mul24.hi": lambda a, b: as_type(a, low) * as_type(b, low) >> 16,
        }
    return forms


def three(type_: str) -> dict[str, Callable[[int, int, int], int]]:
    """Integer instructions of three operands of one type."""
    bits, low = int(type_[1:]), f"{type_[0]}24"
    forms: dict[str, Callable[[int, int, int], int]] = {
        "mad.lo": lambda a, b, c: a * b + c,
        "mad.hi": lambda a, b, c: (a * b >> bits) + c,
        "sad": lambda a, b, c: c + abs(a - b),
    }
    if bits == 32:
        forms |= {
            "mad24.lo": lambda a, b, c: as_type(a, low) * as_type(b, low) + c,
            "mad24.hi": lambda a, b, c: (as_type(a, low) * as_type(b, low) >> 16) + c,
        }
    if type_ == "s32":
        forms |= {
            "mad.hi.sat": lambda a, b, c: clamp((a * b >> 32) + c, "s32"),
            "mad24.hi.sat": lambda a, b, c: clamp((as_type(a, low) * as_type(b, low) >> 16) + c, "s32"),
        }
    return forms


def typed(define: Callable[..., int], type_: str) -> Callable[..., int]:
    return lambda *words: define(*(as_type(one, type_) for one in words))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integer_arithmetic(bench: Bench, bits: int) -> None:
    types = [one for one in INTEGERS if one[1:] == str(bits)]
    edges = integer_edges(bits)
    forms = [
        Form(f"{name}.{t} {{d}}, {{a}}, {{b}};", bits, (bits, bits), typed(define, t))
        for t in types
        for name, define in two(t).items()
    ]
    forms += [
        Form(f"mul.wide.{t} {{d}}, {{a}}, {{b}};", 2 * bits, (bits, bits), typed(lambda a, b: a * b, t))
        for t in types
        if bits < 64
    ]
    check(bench, forms, *crossed(edges, edges))
    forms = [
        Form(f"{name}.{t} {{d}}, {{a}}, {{b}}, {{c}};", bits, (bits,) * 3, typed(define, t))
        for t in types
        for name, define in three(t).items()
    ]
    check(bench, forms, *crossed(edges, edges, edges))


def leading(value: int, type_: str) -> int:
    """bfind: the position of the highest bit that differs from the sign, or -1."""
    signed = as_type(value, type_)
    return (~signed if signed < 0 else signed).bit_length() - 1


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integers_of_one_operand(bench: Bench, bits: int) -> None:
    full = (1 << bits) - 1
    forms = [
        Form(f"neg.s{bits} {{d}}, {{a}};", bits, (bits,), lambda a: -a),
        Form(f"abs.s{bits} {{d}}, {{a}};", bits, (bits,), typed(abs, f"s{bits}")),
        Form(f"not.b{bits} {{d}}, {{a}};", bits, (bits,), lambda a: a ^ full),
        Form(f"cnot.b{bits} {{d}}, {{a}};", bits, (bits,), lambda a: int(a == 0)),
    ]
    if bits > 16:
        forms += [
            Form(f"clz.b{bits} {{d}}, {{a}};", 32, (bits,), lambda a: bits - a.bit_length()),
            Form(f"popc.b{bits} {{d}}, {{a}};", 32, (bits,), int.bit_count),
            Form(f"brev.b{bits} {{d}}, {{a}};", bits, (bits,), lambda a: int(f"{a:0{bits}b}"[::-1], 2)),
        ]
        for sign in "us":
            found = Form(
                f"bfind.{sign}{bits} {{d}}, {{a}};", 32, (bits,), lambda a, s=sign: leading(a, f"{s}{bits}")
            )
            forms.append(found)

            def amount(a: int, s: str = sign) -> int:
                at = leading(a, f"{s}{bits}")
                return at if at == -1 else bits - 1 - at

            forms.append(Form(f"bfind.shiftamt.{sign}{bits} {{d}}, {{a}};", 32, (bits,), amount))
    check(bench, forms, integer_edges(bits))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp(bench: Bench, bits: int) -> None:
    forms = [
        Form(f"shl.b{bits} {{d}}, {{a}}, {{b}};", bits, (bits, 32), lambda a, n: a << min(n, bits)),
        Form(f"shr.u{bits} {{d}}, {{a}}, {{b}};", bits, (bits, 32), lambda a, n: a >> min(n, bits)),
        Form(
            f"shr.s{bits} {{d}}, {{a}}, {{b}};",
            bits,
            (bits, 32),
            lambda a, n: as_type(a, f"s{bits}") >> min(n, bits),
        ),
    ]
    check(bench, forms, *crossed(integer_edges(bits), integer_edges(32)))


def funnel(side: str, mode: str) -> Callable[[int, int, int], int]:
    def define(low: int, high: int, amount: int) -> int:
        n = amount & 31 if mode == "wrap" else min(amount, 32)
        return high << n | low >> (32 - n) if side == "l" else (high << 32 | low) >> n

    return define


def szext(mode: str, type_: str) -> Callable[[int, int], int]:
    def define(a: int, b: int) -> int:
        large, n = b >= 32 and mode == "clamp", b & 31
        mask = 0 if large else (-1 << n) & 0xFFFF_FFFF
        negative = type_ == "s32" and n and not large and a >> (n - 1) & 1
        return a & ~mask | (mask if negative else 0)

    return define


def bmsk(mode: str) -> Callable[[int, int], int]:
    def define(a: int, b: int) -> int:
        first, width = a & 31, b & 31
        mask0 = (-1 << first) & 0xFFFF_FFFF
        over = first + width >= 32 or (mode == "clamp" and (a >= 32 or b >= 32))
        if mode == "clamp" and a >= 32:
            mask0 = 0
        mask1 = 0 if over else (-1 << first + width) & 0xFFFF_FFFF
        return mask0 & ~mask1

    return define


def fns(mask: int, base: int, offset: int) -> int:
    offset = as_type(offset, "s32")
    if offset == 0:
        return base if mask >> base & 1 else -1
    at, left, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= at < 32:
        if mask >> at & 1:
            if left == 0:
                return at
            left -= 1
        at += step
    return -1


def field(value: int, bits: int) -> int:
    """A position or length: its low 8 bits, or for 64 bits all of it (beyond 255, what ptxas does: docs/sources.md)."""
    return value & 255 if bits == 32 else min(value, 64)


def bfe(type_: str) -> Callable[[int, int, int], int]:
    last = int(type_[1:]) - 1

    def define(a: int, b: int, c: int) -> int:
        at, length = field(b, last + 1), field(c, last + 1)
        sign = 0 if type_[0] == "u" or length == 0 else a >> min(at + length - 1, last) & 1
        bits = ((a >> at + i & 1) if i < length and at + i <= last else sign for i in range(last + 1))
        return sum(bit << i for i, bit in enumerate(bits))

    return define


def permuted(mode: str) -> Callable[[int, int, int], int]:
    def define(a: int, b: int, c: int) -> int:
        source = [*a.to_bytes(4, "little"), *b.to_bytes(4, "little")]
        n = c & 3
        if not mode:
            picks = [c >> 4 * i & 15 for i in range(4)]
            chosen = [source[p & 7] if p < 8 else 255 * (source[p & 7] >> 7) for p in picks]
            return int.from_bytes(chosen, "little")
        table = {
            "f4e": [n, n + 1, n + 2, n + 3],
            "b4e": [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8],
            "rc8": [n] * 4,
            "ecl": [max(n, i) for i in range(4)],
            "ecr": [min(n, i) for i in range(4)],
            "rc16": [2 * (n & 1), 2 * (n & 1) + 1] * 2,
        }
        return int.from_bytes([source[i] for i in table[mode]], "little")

    return define


def test_funnels_fields_and_permutations(bench: Bench) -> None:
    three_words, edges = (32, 32, 32), [v for v in integer_edges(32) if v not in (2, 63, 256)]
    forms = [
        Form(f"shf.{s}.{m}.b32 {{d}}, {{a}}, {{b}}, {{c}};", 32, three_words, funnel(s, m))
        for s, m in itertools.product("lr", ("wrap", "clamp"))
    ]
    forms += [
        Form(f"prmt.b32{'.' * bool(m)}{m} {{d}}, {{a}}, {{b}}, {{c}};", 32, three_words, permuted(m))
        for m in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    ]
    forms += [Form(f"bfe.{t} {{d}}, {{a}}, {{b}}, {{c}};", 32, three_words, bfe(t)) for t in ("u32", "s32")]
    check(bench, forms, *crossed(edges, edges, [*edges, 0x7654, 0xFEDC_BA98, 0x8421]))
    forms = [Form(f"bfe.{t} {{d}}, {{a}}, {{b}}, {{c}};", 64, (64, 32, 32), bfe(t)) for t in ("u64", "s64")]
    check(bench, forms, *crossed(integer_edges(64), edges, edges))
    forms = [Form(f"bmsk.{m}.b32 {{d}}, {{a}}, {{b}};", 32, (32, 32), bmsk(m)) for m in ("clamp", "wrap")]
    forms += [
        Form(f"szext.{m}.{t} {{d}}, {{a}}, {{b}};", 32, (32, 32), szext(m, t))
        for m, t in itertools.product(("clamp", "wrap"), ("u32", "s32"))
    ]
    check(bench, forms, *crossed(edges, edges))
    check(
        bench,
        [Form("fns.b32 {d}, {a}, {b}, {c};", 32, three_words, fns)],
        *crossed(
            edges,
            [0, 1, 15, 30, 31],
            [v & 0xFFFF_FFFF for v in (0, 1, 2, 5, 32, 33, -1, -2, -9, -33, 1 << 31)],
        ),
    )


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bench: Bench, bits: int) -> None:
    def insert(at: int, length: int) -> Callable[[int, int], int]:
        def define(a: int, b: int) -> int:
            for i in range(field(length, bits)):
                if field(at, bits) + i < bits:
                    place = 1 << field(at, bits) + i
                    b = b & ~place | (place if a >> i & 1 else 0)
            return b

        return define

    places = [
        (p, n) for p in (0, 1, 31, 32, 63, 64, 255, 256, 0x105) for n in (0, 1, 31, 32, 33, 64, 255, 0x101)
    ]
    forms = [
        Form(f"bfi.b{bits} {{d}}, {{a}}, {{b}}, {p}, {n};", bits, (bits, bits), insert(p, n))
        for p, n in places
    ]
    edges = integer_edges(bits)
    check(bench, forms, *crossed(edges, edges))


def test_dot_products(bench: Bench) -> None:
    def parts(word: int, bits: int, sign: str) -> list[int]:
        return [as_type(word >> at, f"{sign}{bits}") for at in range(0, 32, bits)]

    def dot(a_sign: str, b_sign: str, half: str) -> Callable[[int, int, int], int]:
        def define(a: int, b: int, c: int) -> int:
            left, right = parts(a, 16 if half else 8, a_sign), parts(b, 8, b_sign)
            right = right[2:] if half == "hi" else right
            return c + sum(x * y for x, y in zip(left, right, strict=False))

        return define

    forms = [
        Form(f"{op}.{x}32.{y}32 {{d}}, {{a}}, {{b}}, {{c}};", 32, (32,) * 3, dot(x, y, half))
        for x, y in itertools.product("us", "us")
        for op, half in (("dp4a", ""), ("dp2a.lo", "lo"), ("dp2a.hi", "hi"))
    ]
    edges = [0, 1, 0x7F80_FF01, 0x8080_8080, 0xFFFF_FFFF, 0x7FFF_8000, 0x0102_0304, 0xFF00_FF00, 0x8000_0001]
    check(bench, forms, *crossed(edges, edges, integer_edges(32)))


def test_packed_integers(bench: Bench) -> None:
    def packed(define: Callable[[int, int], int], type_: str) -> Callable[..., int]:
        return halves(typed(define, type_))

    forms = [
        Form(f"{name}.{t}x2 {{d}}, {{a}}, {{b}};", 32, (32, 32), packed(define, t))
        for t in ("u16", "s16")
        for name, define in {"add": int.__add__, "min": min, "max": max}.items()
    ]
    forms += [
        Form("min.relu.s16x2 {d}, {a}, {b};", 32, (32, 32), packed(lambda a, b: max(min(a, b), 0), "s16")),
        Form("max.relu.s16x2 {d}, {a}, {b};", 32, (32, 32), packed(lambda a, b: max(a, b, 0), "s16")),
    ]
    edges = [
        high << 16 | low for high, low in itertools.product((0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x8001), repeat=2)
    ]
    check(bench, forms, *crossed(edges, edges))


def test_logic_of_three_and_selection(bench: Bench) -> None:
    def table(rows: int) -> Callable[[int, int, int], int]:
        def define(a: int, b: int, c: int) -> int:
            return sum(
                (rows >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
            )

        return define

    words = (32, 32, 32)
    forms = [
        Form(f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {rows:#x};", 32, words, table(rows))
        for rows in range(0, 256, 15)
    ]
    for op in ("or", "and"):
        for q in (0, 1):

            def flag(a: int, b: int, c: int, op: str = op, q: int = q) -> int:
                some = table(0x96)(a, b, c) != 0
                return int(some or bool(q)) if op == "or" else int(some and bool(q))

            text = (
                f"setp.eq.u32 %q0, {q}, 1; lop3.{op}.b32 %x0|%q1, {{a}}, {{b}}, {{c}}, 0x96, %q0;"
                " selp.b32 {d}, 1, 0, %q1;"
            )
            forms.append(Form(text, 32, words, flag))
    some = [0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x5A5A_F0F0, 0xCC33_AA55]
    check(bench, forms, *crossed(some, some, some))
    forms = [Form("slct.b32.s32 {d}, {a}, {b}, {c};", 32, words, lambda a, b, c: a if c < 1 << 31 else b)]

    def by_float(ftz: bool) -> Callable[[int, int, int], int]:  # noqa: FBT001 - a table's entry
        def define(a: int, b: int, c: int) -> int:
            one = F32.decode(c)
            one = F32.flushed(one) if ftz else one
            return a if not one.nan and (one.zero or not one.negative) else b

        return define

    forms.append(Form("slct.b32.f32 {d}, {a}, {b}, {c};", 32, words, by_float(ftz=False)))
    forms.append(Form("slct.ftz.b32.f32 {d}, {a}, {b}, {c};", 32, words, by_float(ftz=True)))
    check(bench, forms, *crossed([7], [9], float_edges(F32)))


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def integers_compare(how: str, type_: str) -> Callable[[int, int], bool]:
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(how, how)
    kind = f"u{type_[1:]}" if name != how else type_
    return lambda a, b: getattr(operator, name)(as_type(a, kind), as_type(b, kind))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integer_comparison(bench: Bench, bits: int) -> None:
    forms = []
    for sign in "us":
        for how in (*COMPARISONS, *(("lo", "ls", "hi", "hs") if sign == "u" else ())):
            yes = integers_compare(how, f"{sign}{bits}")
            for op in ("", "and", "or", "xor"):
                third = ", %q3" if op else ""
                text = (
                    f"setp.ne.b32 %q3, %x1, %x1; not.pred %q3, %q3; setp.{how}{'.' * bool(op)}{op}.{sign}{bits}"
                    f" %q0|%q1, {{a}}, {{b}}{third}; selp.b32 {{d}}, 1, 0, %q0; @%q1 add.u32 {{d}}, {{d}}, 2;"
                )

                def both(a: int, b: int, yes=yes, op: str = op) -> int:  # noqa: ANN001 - bound
                    one, other = yes(a, b), not yes(a, b)
                    if op:  # with true
                        one, other = ((one, other), (True, True), (not one, not other))[
                            ("and", "or", "xor").index(op)
                        ]
                    return one + 2 * other

                forms.append(Form(text, 32, (bits, bits), both))
            forms.append(
                Form(
                    f"set.{how}.u32.{sign}{bits} {{d}}, {{a}}, {{b}};",
                    32,
                    (bits, bits),
                    lambda a, b, yes=yes: -yes(a, b),
                )
            )
            forms.append(
                Form(
                    f"set.{how}.f32.{sign}{bits} {{d}}, {{a}}, {{b}};",
                    32,
                    (bits, bits),
                    lambda a, b, yes=yes: 0x3F80_0000 * yes(a, b),
                )
            )
    edges = integer_edges(bits)
    check(bench, forms, *crossed(edges, edges))


FLOAT_COMPARISONS = (*COMPARISONS, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


@pytest.mark.parametrize("type_", ["f16", "bf16", "f32", "f64"])
def test_float_comparison(bench: Bench, type_: str) -> None:
    format_ = FORMATS[type_]
    bits, edges, forms = format_.bits, float_edges(format_), []
    for how in FLOAT_COMPARISONS:
        for ftz in (False, True) if type_ in ("f16", "f32") else (False,):

            def yes(a: int, b: int, how: str = how, ftz: bool = ftz) -> bool:  # noqa: FBT001 - bound
                x, y = format_.decode(a), format_.decode(b)
                return compare(how, *((format_.flushed(x), format_.flushed(y)) if ftz else (x, y)))

            words = f"{how}{'.ftz' * ftz}"
            both, other = (
                ("", "!%q0") if bits == 16 else ("|%q1", "%q1")
            )  # of halves one predicate is written
            text = f"setp.{words}.{type_} %q0{both}, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %q0; @{other} add.u32 {{d}}, {{d}}, 2;"
            forms.append(Form(text, 32, (bits, bits), lambda a, b, yes=yes: 1 if yes(a, b) else 2))
            forms.append(
                Form(
                    f"set.{words}.u32.{type_} {{d}}, {{a}}, {{b}};",
                    32,
                    (bits, bits),
                    lambda a, b, yes=yes: -yes(a, b),
                )
            )
    check(bench, forms, *crossed(edges[::2], edges[::4]))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_comparison_of_pairs(bench: Bench, type_: str) -> None:
    format_ = FORMATS[type_]
    one = format_.encode(number(1))
    edges = float_edges(format_)
    pairs = [a << 16 | b for a, b in zip(edges, edges[7:] + edges[:7], strict=True)]
    forms = []
    for how in FLOAT_COMPARISONS:

        def yes(a: int, b: int, how: str = how) -> bool:
            return compare(how, format_.decode(a), format_.decode(b))

        forms.append(
            Form(
                f"set.{how}.{type_}x2.{type_}x2 {{d}}, {{a}}, {{b}};",
                32,
                (32, 32),
                halves(lambda a, b, yes=yes: one * yes(a, b)),
            )
        )
        text = f"setp.{how}.{type_}x2 %q0|%q1, {{a}}, {{b}}; selp.b32 {{d}}, 1, 0, %q0; @%q1 add.u32 {{d}}, {{d}}, 2;"
        forms.append(
            Form(
                text,
                32,
                (32, 32),
                lambda a, b, yes=yes: yes(a & 0xFFFF, b & 0xFFFF) + 2 * yes(a >> 16, b >> 16),
            )
        )
    check(bench, forms, *crossed(pairs[::2], pairs[::3]))


ARITHMETIC = {
    "f32": ["", "rn", "rz", "rm", "rp", "ftz", "rz.ftz", "sat", "rp.sat", "rm.ftz.sat"],
    "f64": ["rn", "rz", "rm", "rp"],
    "f16": ["", "rn", "ftz", "sat", "ftz.sat"],
    "bf16": ["", "rn"],
}


def spelled(words: str) -> str:
    return f".{words}" if words else ""


@pytest.mark.parametrize("type_", list(ARITHMETIC))
def test_float_arithmetic(bench: Bench, type_: str) -> None:
    format_, edges = FORMATS[type_], float_edges(FORMATS[type_])
    bits, few = format_.bits, edges[::6]
    forms = [
        Form(
            f"{op}{spelled(words)}.{type_} {{d}}, {{a}}, {{b}};",
            bits,
            (bits,) * 2,
            arithmetic(format_, words.split("."), op),
        )
        for op in ("add", "sub", "mul")
        for words in ARITHMETIC[type_]
    ]
    check(bench, forms, *crossed(edges[::2], few))
    fused = [words for words in ARITHMETIC[type_] if words.startswith("r")]
    fused += {"f16": ["rn.ftz", "rn.sat", "rn.relu", "rn.ftz.relu"], "bf16": ["rn.relu"]}.get(type_, [])
    forms = [
        Form(
            f"fma{spelled(words)}.{type_} {{d}}, {{a}}, {{b}}, {{c}};",
            bits,
            (bits,) * 3,
            arithmetic(format_, words.split("."), "fma"),
        )
        for words in fused
    ]
    check(bench, forms, *crossed(edges[::7], edges[2::7], edges[1::7]))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_arithmetic_of_pairs_and_sides(bench: Bench, type_: str) -> None:
    format_, edges = FORMATS[type_], float_edges(FORMATS[type_])
    pairs = [a << 16 | b for a, b in zip(edges, edges[11:] + edges[:11], strict=True)][::2]
    forms = [
        Form(
            f"{op}{spelled(words)}.{type_}x2 {{d}}, {{a}}, {{b}};",
            32,
            (32, 32),
            halves(arithmetic(format_, words.split("."), op)),
        )
        for op in ("add", "sub", "mul")
        for words in ARITHMETIC[type_]
    ]
    forms += [
        Form(
            f"{op}{spelled(words)}.{type_}x2 {{d}}, {{a}}, {{b}};",
            32,
            (32, 32),
            halves(extreme(format_, words.split("."), op)),
        )
        for op in ("min", "max")
        for words in ("", "NaN", "xorsign.abs", "NaN.xorsign.abs")
    ]
    check(bench, forms, *crossed(pairs, pairs[::3]))


@pytest.mark.parametrize("type_", ["f16", "bf16", "f32", "f64"])
def test_extremes(bench: Bench, type_: str) -> None:
    format_, edges = FORMATS[type_], float_edges(FORMATS[type_])
    words = ["", "NaN", "xorsign.abs", "NaN.xorsign.abs"]
    words += ["ftz", "ftz.NaN", "ftz.xorsign.abs", "ftz.NaN.xorsign.abs"] if type_ in ("f16", "f32") else []
    bits = format_.bits
    forms = [
        Form(
            f"{op}{spelled(one)}.{type_} {{d}}, {{a}}, {{b}};",
            bits,
            (bits,) * 2,
            extreme(format_, one.split("."), op),
        )
        for op in ("min", "max")
        for one in (words if type_ != "f64" else [""])
    ]
    check(bench, forms, *crossed(edges[::2], edges[::4]))


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_signs_and_properties(bench: Bench, type_: str) -> None:
    format_ = FORMATS[type_]
    bits, edges = format_.bits, float_edges(format_)
    top = 1 << (bits - 1)

    def property_of(how: str) -> Callable[[int], int]:
        def define(word: int) -> int:
            one = format_.decode(word)
            small = not one.nan and not one.inf and abs(one.value) < format_.smallest
            return {
                "finite": not one.nan and not one.inf,
                "infinite": one.inf,
                "number": not one.nan,
                "notanumber": one.nan,
                "normal": not one.nan and not one.inf and (not small or one.zero),
                "subnormal": small and not one.zero,
            }[how]

        return define

    forms = [
        Form(f"testp.{how}.{type_} %q0, {{a}}; selp.b32 {{d}}, 1, 0, %q0;", 32, (bits,), property_of(how))
        for how in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    ]
    numbers = [one for one in edges if not format_.decode(one).nan]
    check(bench, forms, edges)
    forms = [
        Form(f"neg.{type_} {{d}}, {{a}};", bits, (bits,), lambda a: a ^ top),
        Form(f"abs.{type_} {{d}}, {{a}};", bits, (bits,), lambda a: a & ~top),
    ]
    if type_ == "f32":

        def flushed(word: int) -> int:
            return format_.encode(format_.flushed(format_.decode(word)))

        forms += [
            Form("neg.ftz.f32 {d}, {a};", 32, (32,), lambda a: flushed(a) ^ top),
            Form("abs.ftz.f32 {d}, {a};", 32, (32,), lambda a: flushed(a) & ~top),
        ]
    check(bench, forms, numbers)
    text = f"copysign.{type_} {{d}}, {{a}}, {{b}};"
    check(bench, [Form(text, bits, (bits,) * 2, lambda a, b: b & ~top | a & top)], *crossed(edges, edges))


INTEGRAL = ("rni", "rzi", "rmi", "rpi")
NARROW = ("u8", "s8", *INTEGERS)


def register(type_: str) -> int:
    return max(16, int("".join(filter(str.isdigit, type_))))


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_to_integers(bench: Bench, source: str) -> None:
    bits = FORMATS[source].bits
    forms = []
    for target, how in itertools.product(NARROW if source != "bf16" else INTEGERS, INTEGRAL):
        for ftz in (False, True) if source == "f32" else (False,):
            define = to_integer(source, target, how, ftz=ftz)
            wide = register(target)
            text = f"cvt.{how}{'.ftz' * ftz}.{target}.{source} {{d}}, {{a}};"
            forms.append(Form(text, wide, (bits,), define))
    check(bench, forms, float_edges(FORMATS[source]))


def test_integers_to_floats(bench: Bench) -> None:
    for source in NARROW:
        bits, forms = register(source), []
        for target, mode in itertools.product(("f16", "f32", "f64"), ("rn", "rz", "rm", "rp")):
            format_ = FORMATS[target]

            def define(word: int, f=format_, m: str = mode, s: str = source) -> int:  # noqa: ANN001 - bound
                return f.encode(number(as_type(word, s)), m)

            forms.append(Form(f"cvt.{mode}.{target}.{source} {{d}}, {{a}};", format_.bits, (bits,), define))
        check(bench, forms, integer_edges(bits))


def test_integers_to_integers(bench: Bench) -> None:
    for source in NARROW:
        bits, forms = register(source), []
        for target in NARROW:
            (low, high), (least, most) = limits(target), limits(source)
            for sat in (False, True) if least < low or high < most else (False,):

                def define(word: int, s: str = source, t: str = target, sat: bool = sat) -> int:  # noqa: FBT001 - bound
                    value = as_type(word, s)
                    return clamp(value, t) if sat else as_type(value, t)

                text = f"cvt{'.sat' * sat}.{target}.{source} {{d}}, {{a}};"
                forms.append(Form(text, register(target), (bits,), define))
        check(bench, forms, integer_edges(bits))


def test_packed_conversion_of_integers(bench: Bench) -> None:
    forms = []
    for target in ("u8", "s8", "u16", "s16"):
        size = int(target[1:])

        def define(a: int, b: int, c: int, t: str = target, size: int = size) -> int:
            ones = (1 << size) - 1
            high, low = (clamp(as_type(one, "s32"), t) & ones for one in (a, b))
            return (c << 2 * size if size == 8 else 0) | high << size | low

        third = ".b32 {d}, {a}, {b}, {c}" if size == 8 else " {d}, {a}, {b}"
        forms.append(Form(f"cvt.pack.sat.{target}.s32{third};", 32, (32,) * 3, define))
    edges = [*integer_edges(32), *(value & 0xFFFF_FFFF for t in ("s8", "s16") for value in limits(t))]
    check(bench, forms, *crossed(edges, edges, [0, 0xFFFF_FFFF, 0x1234_5678]))


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_to_floats(bench: Bench, source: str) -> None:
    bits = FORMATS[source].bits
    forms = []

    def add(target: str, words: str, how: str = "") -> None:
        mode = next((one for one in words.split(".") if one in ("rn", "rz", "rm", "rp")), "")
        define = to_float(source, target, mode, how=how, words=words.split("."))
        text = f"cvt{spelled(how)}{spelled(words)}.{target}.{source} {{d}}, {{a}};"
        forms.append(Form(text, FORMATS[target].bits, (bits,), define))

    wider = {"f16": ("f32", "f64"), "bf16": ("f32",), "f32": ("f64",), "f64": ()}[source]
    for target in wider:
        add(target, "")
    narrower = {"f64": ("f32", "f16"), "f32": ("f16",), "f16": (), "bf16": ()}[source]
    for target, mode in itertools.product(narrower, ("rn", "rz", "rm", "rp")):
        add(target, mode)
    for how in INTEGRAL if source != "bf16" else ():
        add(source, "", how)
    if source == "f32":
        for words in ("rn", "rz", "rn.relu", "rz.relu"):
            add("bf16", words)
        for words in ("rn.relu", "rz.relu", "rn.sat", "rn.ftz", "rz.ftz.sat"):
            add("f16", words)
        for words in ("sat", "ftz", "ftz.sat"):
            add("f32", words)
        for how in INTEGRAL:
            add("f32", "ftz", how)
            add("f32", "sat", how)
    if source == "f64":
        for words in ("rn.ftz", "rz.ftz", "rn.sat", "rp.ftz.sat"):
            add("f32", words)
    check(bench, forms, float_edges(FORMATS[source]))


def test_pairs_from_floats(bench: Bench) -> None:
    forms = []
    for target, mode, word in itertools.product(("f16", "bf16"), ("rn", "rz"), ("", "relu")):
        one = to_float("f32", target, mode, words=[word])
        text = f"cvt.{mode}{spelled(word)}.{target}x2.f32 {{d}}, {{a}}, {{b}};"
        forms.append(Form(text, 32, (32, 32), lambda a, b, one=one: one(a) << 16 | one(b)))
    edges = float_edges(F32)
    check(bench, forms, *crossed(edges, edges[::16]))


def test_formats_know_their_edges() -> None:
    """The rounding itself, at values that are known."""
    assert F32.encode(number(1)) == 0x3F80_0000
    assert F16.encode(number(65520)) == 0x7C00
    assert F16.encode(number(65519)) == 0x7BFF
    assert F16.encode(number(70000), "rz") == 0x7BFF
    assert F16.encode(number(-70000), "rm") == 0xFC00
    assert F16.encode(number(-70000), "rp") == 0xFBFF
    assert BF16.encode(F32.decode(0x3F80_8000)) == 0x3F80
    assert F64.encode(F32.decode(1)) == 0x36A0_0000_0000_0000
    assert F32.decode(0x8000_0001).value == -(F32.smallest / (1 << 23))


ONE, INFINITE, MINUS, NONE = 0x3F80_0000, 0x7F80_0000, 0x8000_0000, 0x7FFF_FFFF
SUBNORMAL, LARGEST_SUBNORMAL = 1, 0x007F_FFFF
SMALLEST, POWER_126, POWER_127 = 0x0080_0000, 0x7E80_0000, 0x7F00_0000
HALF_SMALLEST = 0x0040_0000
"""2 to the power of -127, which is subnormal."""
SPECIAL = {
    "ex2.approx": {
        0: ONE, MINUS: ONE, MINUS | INFINITE: 0, INFINITE: INFINITE, NONE: NONE, SUBNORMAL: ONE,
        0xC2FE_0000: HALF_SMALLEST, 0xC2FC_0000: SMALLEST, 0x4300_0000: INFINITE, 0x42FE_0000: POWER_127,
    },
    "ex2.approx.ftz": {
        SUBNORMAL: ONE, MINUS | LARGEST_SUBNORMAL: ONE, 0xC2FE_0000: 0, 0xC2FC_0000: SMALLEST,
        0x4300_0000: INFINITE, MINUS | INFINITE: 0, NONE: NONE,
    },
    "rcp.approx": {
        0: INFINITE, MINUS: MINUS | INFINITE, INFINITE: 0, MINUS | INFINITE: MINUS, NONE: NONE,
        POWER_127: HALF_SMALLEST, HALF_SMALLEST: POWER_127, SUBNORMAL: INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE,
    },
    "rcp.approx.ftz": {
        LARGEST_SUBNORMAL: INFINITE, MINUS | LARGEST_SUBNORMAL: MINUS | INFINITE, POWER_127: 0,
        MINUS | POWER_127: MINUS, POWER_126: SMALLEST, SMALLEST: POWER_126, INFINITE: 0, NONE: NONE,
    },
    "rcp.rn.ftz": {
        LARGEST_SUBNORMAL: INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE, MINUS | POWER_127: MINUS,
        POWER_126: SMALLEST, 0: INFINITE, INFINITE: 0, NONE: NONE,
    },
    "sqrt.approx.ftz": {
        LARGEST_SUBNORMAL: 0, MINUS | LARGEST_SUBNORMAL: MINUS, MINUS: MINUS, MINUS | ONE: NONE,
        INFINITE: INFINITE, 0x4080_0000: 0x4000_0000,
    },
    "sqrt.rn.ftz": {
        LARGEST_SUBNORMAL: 0, MINUS | LARGEST_SUBNORMAL: MINUS, MINUS: MINUS, MINUS | SMALLEST: NONE,
        MINUS | INFINITE: NONE, 0x4080_0000: 0x4000_0000,
    },
    "rsqrt.approx.ftz": {
        LARGEST_SUBNORMAL: INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE, 0: INFINITE, MINUS: MINUS | INFINITE,
        MINUS | ONE: NONE, INFINITE: 0, MINUS | INFINITE: NONE, 0x4080_0000: 0x3F00_0000,
    },
    "lg2.approx.ftz": {
        LARGEST_SUBNORMAL: MINUS | INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE, MINUS: MINUS | INFINITE,
        MINUS | ONE: NONE, INFINITE: INFINITE, MINUS | INFINITE: NONE, 0x4080_0000: 0x4000_0000, ONE: 0,
    },
    "sin.approx.ftz": {LARGEST_SUBNORMAL: 0, MINUS | LARGEST_SUBNORMAL: MINUS, MINUS: MINUS, INFINITE: NONE},
    "cos.approx.ftz": {LARGEST_SUBNORMAL: ONE, MINUS | SUBNORMAL: ONE, 0: ONE, MINUS | INFINITE: NONE},
    "tanh.approx": {0: 0, MINUS: MINUS, INFINITE: ONE, MINUS | INFINITE: MINUS | ONE, NONE: NONE},
}  # fmt: skip
"""Instruction of f32 -> input and result where the manual's table, or exactness, has one."""


@pytest.mark.parametrize("name", list(SPECIAL))
def test_special_values_of_approximations(bench: Bench, name: str) -> None:
    table = SPECIAL[name]
    check(bench, [Form(f"{name}.f32 {{d}}, {{a}};", 32, (32,), table.__getitem__)], list(table))


@pytest.mark.parametrize("line", ["vadd.u32.u32.u32 %r0, %r1, %r2;", "vset4.u32.u32.eq %r0, %r1, %r2, %r3;"])
def test_video_instructions_are_refused_by_name(bench: Bench, line: str) -> None:
    name = line.split(".", maxsplit=1)[0]
    text = f".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k() {{ .reg .b32 %r<4>; {line} ret; }}"
    with pytest.raises(PtxError, match=f"instruction {name} is not supported"):
        bench.run(text, "k", 1, 1)


def shuffled(mode: str, b: int, c: int) -> Callable[[int], tuple[int, bool]]:
    """Return the definition of shfl.sync for a lane: the lane that it reads from, and the predicate."""
    segment, clamped, by = c >> 8 & 31, c & 31, b & 31

    def define(lane: int) -> tuple[int, bool]:
        most, least = lane & segment | clamped & ~segment, lane & segment
        at = {
            "up": lane - by,
            "down": lane + by,
            "bfly": lane ^ by,
            "idx": least | by & ~segment,
        }[mode]
        inside = at >= most if mode == "up" else at <= most
        return (at if inside else lane), inside

    return define


def test_shuffles(bench: Bench) -> None:
    segments = (0x1F, 0x0, 0x101F, 0x1800, 0x181F, 0x1C1F, 0x1C00, 0x1C03, 0x1E1F, 0x1F1F, 0x0F, 0x10F)
    forms = []
    for mode, b, c in itertools.product(("up", "down", "bfly", "idx"), (0, 1, 2, 5, 16, 31, 33), segments):

        def define(a: int, mode: str = mode, b: int = b, c: int = c) -> int:
            at, inside = shuffled(mode, b, c)(a >> 8)
            return (at << 8 | 0x5A) + (inside << 31)

        text = f"shfl.sync.{mode}.b32 {{d}}|%q0, {{a}}, {b}, {c:#x}, 0xffffffff; @%q0 or.b32 {{d}}, {{d}}, 0x80000000;"
        forms.append(Form(text, 32, (32,), define))
    check(bench, forms, [lane << 8 | 0x5A for lane in range(32)])


EIGHT = {"e4m3": (4, 3, 0x7E), "e5m2": (5, 2, 0x7B)}
"""8-bit format -> bits of exponent and mantissa, and the code of its largest number."""


@functools.cache
def of_eight(code: int, type_: str) -> Number:
    """Return the number of an 8-bit float: e4m3 has one NaN a sign and no infinities."""
    exponent, mantissa, largest = EIGHT[type_]
    if type_ == "e5m2" or code & 0x7F > largest:
        one = Format(exponent, mantissa, 0x7F).decode(code)
        return one if type_ == "e5m2" else QUIET
    power, low = code >> mantissa & 15, code & 7
    size = Fraction(low + (8 if power else 0)) * Fraction(2) ** (max(power, 1) - 7 - mantissa)
    return Number(bool(code >> 7), size)


@functools.cache
def to_eight(one: Number, type_: str) -> int:
    """Return the nearest code, ties to the even one; what is too large becomes the largest."""
    largest = EIGHT[type_][2]
    if one.nan:
        return 0x7F
    top = one.negative << 7
    if one.inf:
        return top | largest
    size = abs(one.value)
    after = bisect_left(range(largest + 1), size, key=lambda code: of_eight(code, type_).value)
    near = [code for code in (after - 1, after) if 0 <= code <= largest]
    return top | min(near, key=lambda code: (abs(of_eight(code, type_).value - size), code & 1))


@pytest.mark.parametrize("type_", list(EIGHT))
def test_eight_bit_floats(bench: Bench, type_: str) -> None:
    def widened(code: int) -> int:
        return F16.encode(of_eight(code, type_))

    forms = [
        Form(
            f"cvt.rn{r}.f16x2.{type_}x2 {{d}}, {{a}};",
            32,
            (16,),
            lambda a, r=r: sum(
                F16.encode(
                    relu(F16.decode(widened(a >> at & 255))) if r else F16.decode(widened(a >> at & 255))
                )
                << 2 * at
                for at in (0, 8)
            ),
        )
        for r in ("", ".relu")
    ]
    check(bench, forms, [code << 8 | code * 7 % 256 for code in range(256)])
    forms = []
    for r in ("", ".relu"):

        def narrow(one: Number, r: str = r) -> int:
            return to_eight(relu(one) if r else one, type_)

        forms.append(
            Form(
                f"cvt.rn.satfinite{r}.{type_}x2.f16x2 {{d}}, {{a}};",
                16,
                (32,),
                lambda a, narrow=narrow: narrow(F16.decode(a >> 16)) << 8 | narrow(F16.decode(a & 0xFFFF)),
            )
        )
    edges = sorted(
        {
            *float_edges(F16),
            *(widened(code) + by & 0xFFFF for code in range(0, 256, 3) for by in (0, 1, 64, 192)),
        }
    )
    check(bench, forms, [a << 16 | b for a, b in zip(edges, edges[5:] + edges[:5], strict=True)])
    forms = []
    for r in ("", ".relu"):

        def pair(a: int, b: int, r: str = r) -> int:
            given = [F32.decode(one) for one in (a, b)]
            high, low = (to_eight(relu(one) if r else one, type_) for one in given)
            return high << 8 | low

        forms.append(Form(f"cvt.rn.satfinite{r}.{type_}x2.f32 {{d}}, {{a}}, {{b}};", 16, (32, 32), pair))
    wide = [F32.encode(F16.decode(one)) for one in edges] + float_edges(F32)
    check(bench, forms, wide, wide[9:] + wide[:9])
