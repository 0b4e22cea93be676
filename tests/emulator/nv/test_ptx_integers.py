"""Integer instructions against Python's integers, on edge and random values."""

# ruff: noqa: ARG005, E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

COUNT = 512


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def as_type(value: int, type_: str) -> int:
    bits = int(type_[1:])
    return signed(value, bits) if type_[0] == "s" else value & ((1 << bits) - 1)


def quotient(a: int, b: int, type_: str) -> int:
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def remainder(a: int, b: int, type_: str) -> int:
    return a if b == 0 else a - b * quotient(a, b, type_)


BINARY = {
    "add": lambda a, b, t: a + b,
    "sub": lambda a, b, t: a - b,
    "mul.lo": lambda a, b, t: a * b,
    "mul.hi": lambda a, b, t: (a * b) >> int(t[1:]),
    "min": lambda a, b, t: min(a, b),
    "max": lambda a, b, t: max(a, b),
    "div": quotient,
    "rem": remainder,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("op", BINARY)
def test_binary_arithmetic_wraps_like_the_width(bench: Any, ints: Any, op: Any, type_: Any):
    bits = int(type_[1:])
    a, b = ints(bits, COUNT, 1), ints(bits, COUNT, 2)
    got = bench.apply(f"{op}.{type_} %d, %a, %b;", f"u{bits // 8}", a, b)
    want = [
        BINARY[op](as_type(int(x), type_), as_type(int(y), type_), type_) & ((1 << bits) - 1)
        for x, y in zip(a, b, strict=True)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32"])
def test_wide_multiplication_keeps_every_bit(bench: Any, ints: Any, type_: Any):
    bits = int(type_[1:])
    a, b, c = ints(bits, COUNT, 1), ints(bits, COUNT, 2), ints(2 * bits, COUNT, 3)
    got = bench.apply(f"mad.wide.{type_} %d, %a, %b, %c;", f"u{bits // 4}", a, b, c)
    want = [
        (as_type(int(x), type_) * as_type(int(y), type_) + int(z)) % (1 << 2 * bits)
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize(
    ("op", "reference"),
    [("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)],
)
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bench: Any, ints: Any, op: Any, reference: Any, bits: Any):
    a, b = ints(bits, COUNT, 1), ints(bits, COUNT, 2)
    assert (
        bench.apply(f"{op}.b{bits} %d, %a, %b;", f"u{bits // 8}", a, b).tolist() == reference(a, b).tolist()
    )


@pytest.mark.parametrize("type_", ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"])
def test_shifts_clamp_their_amount(bench: Any, ints: Any, type_: Any):
    bits = int(type_[1:])
    a, b = ints(bits, COUNT, 1), ints(32, COUNT, 2)
    op = "shl" if type_[0] == "b" else "shr"
    got = bench.apply(f"{op}.{type_} %d, %a, %b;", f"u{bits // 8}", a, b)
    if op == "shl":
        want = [(int(x) << min(int(y), bits)) & ((1 << bits) - 1) for x, y in zip(a, b, strict=True)]
    else:
        want = [
            (as_type(int(x), type_) >> min(int(y), bits)) & ((1 << bits) - 1)
            for x, y in zip(a, b, strict=True)
        ]
    assert got.tolist() == want


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
@pytest.mark.parametrize("side", ["l", "r"])
def test_funnel_shift(bench: Any, ints: Any, side: Any, mode: Any):
    a, b, c = ints(32, COUNT, 1), ints(32, COUNT, 2), ints(32, COUNT, 3)
    got = bench.apply(f"shf.{side}.{mode}.b32 %d, %a, %b, %c;", "u4", a, b, c)
    want = []
    for low, high, n in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        count = n & 31 if mode == "wrap" else min(n, 32)
        whole = high << 32 | low
        want.append((whole << count >> 32 if side == "l" else whole >> count) & 0xFFFF_FFFF)
    assert got.tolist() == want


def bfe(a: int, pos: int, length: int, type_: str) -> int:
    bits = int(type_[1:])
    pos, length, top = pos & 255, length & 255, bits - 1
    sign = 0 if type_[0] == "u" or length == 0 else a >> min(pos + length - 1, top) & 1
    result = 0
    for i in range(bits):
        bit = a >> (pos + i) & 1 if i < length and pos + i <= top else sign
        result |= bit << i
    return result


@pytest.mark.parametrize("type_", ["u32", "s32"])
def test_bit_field_extract(bench: Any, ints: Any, type_: Any):
    a, b, c = ints(32, 2 * COUNT, 1), ints(32, 2 * COUNT, 2), ints(32, 2 * COUNT, 3)
    b[::2] %= 40
    c[::2] %= 40
    got = bench.apply(f"bfe.{type_} %d, %a, %b, %c;", "u4", a, b, c)
    assert got.tolist() == [
        bfe(x, y, z, type_) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]


def test_bit_field_extract_of_64_bits(bench: Any, ints: Any):
    a, b = ints(64, COUNT, 1), ints(32, COUNT, 2)
    b %= 80
    got = bench.apply("bfe.s64 %d, %a, %b, 13;", "u8", a, b)
    assert got.tolist() == [bfe(x, y, 13, "s64") for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_bit_field_insert(bench: Any, ints: Any):
    a, b, c = ints(32, COUNT, 1), ints(32, COUNT, 2), ints(32, COUNT, 3)
    c %= 40
    got = bench.apply("bfi.b32 %d, %a, %b, %c, 7;", "u4", a, b, c)
    want = []
    for x, y, pos in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        where = (127 << pos) & 0xFFFF_FFFF
        want.append((y & ~where) | ((x << pos) & where))
    assert got.tolist() == want


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_bits(bench: Any, ints: Any, bits: Any):
    a = ints(bits, COUNT, 1)
    values = a.tolist()
    assert bench.apply(f"popc.b{bits} %d, %a;", "u4", a).tolist() == [v.bit_count() for v in values]
    assert bench.apply(f"clz.b{bits} %d, %a;", "u4", a).tolist() == [bits - v.bit_length() for v in values]
    assert bench.apply(f"bfind.u{bits} %d, %a;", "u4", a).tolist() == [
        (v.bit_length() - 1) & 0xFFFF_FFFF for v in values
    ]
    flipped = [v ^ ((1 << bits) - 1) if v >> (bits - 1) else v for v in values]
    assert bench.apply(f"bfind.s{bits} %d, %a;", "u4", a).tolist() == [
        (v.bit_length() - 1) & 0xFFFF_FFFF for v in flipped
    ]
    want = [int(f"{v:0{bits}b}"[::-1], 2) for v in values]
    assert bench.apply(f"brev.b{bits} %d, %a;", f"u{bits // 8}", a).tolist() == want


def test_permute_picks_bytes_and_copies_signs(bench: Any, ints: Any):
    a, b, c = ints(32, COUNT, 1), ints(32, COUNT, 2), ints(32, COUNT, 3)
    got = bench.apply("prmt.b32 %d, %a, %b, %c;", "u4", a, b, c)
    want = []
    for x, y, s in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        data = (y << 32 | x).to_bytes(8, "little")
        out = 0
        for i in range(4):
            nibble = s >> 4 * i & 15
            byte = data[nibble & 7]
            out |= ((255 if byte & 128 else 0) if nibble & 8 else byte) << 8 * i
        want.append(out)
    assert got.tolist() == want


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("f4e", ["3210", "4321", "5432", "6543"]),
        ("b4e", ["5670", "6701", "7012", "0123"]),
        ("rc8", ["0000", "1111", "2222", "3333"]),
        ("ecl", ["3210", "3211", "3222", "3333"]),
        ("ecr", ["0000", "1110", "2210", "3210"]),
        ("rc16", ["1010", "3232", "1010", "3232"]),
    ],
)
def test_permute_modes_follow_the_table(bench: Any, ints: Any, mode: Any, rows: Any):
    a, b, c = ints(32, COUNT, 1), ints(32, COUNT, 2), ints(32, COUNT, 3)
    got = bench.apply(f"prmt.b32.{mode} %d, %a, %b, %c;", "u4", a, b, c)
    want = []
    for x, y, s in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        data = (y << 32 | x).to_bytes(8, "little")
        want.append(int.from_bytes(bytes(data[int(digit)] for digit in reversed(rows[s & 3])), "little"))
    assert got.tolist() == want


@pytest.mark.parametrize("types", ["u32.u32", "s32.s32", "u32.s32", "s32.u32"])
def test_dot_products_of_bytes(bench: Any, ints: Any, types: Any):
    a, b, c = ints(32, COUNT, 1), ints(32, COUNT, 2), ints(32, COUNT, 3)
    kind = types.split(".")

    def byte(value: int, i: int, type_: str) -> int:
        return as_type(value >> 8 * i, type_[0] + "8")

    got = bench.apply(f"dp4a.{types} %d, %a, %b, %c;", "u4", a, b, c)
    want = [
        (z + sum(byte(x, i, kind[0]) * byte(y, i, kind[1]) for i in range(4))) & 0xFFFF_FFFF
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert got.tolist() == want
    got = bench.apply(f"dp2a.hi.{types} %d, %a, %b, %c;", "u4", a, b, c)
    want = [
        (z + sum(as_type(x >> 16 * i, kind[0][0] + "16") * byte(y, 2 + i, kind[1]) for i in range(2)))
        & 0xFFFF_FFFF
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert got.tolist() == want


def test_carry_chains_add_128_bits(bench: Any, ints: Any):
    a, b = ints(64, COUNT, 1), ints(64, COUNT, 2)
    lines = "add.cc.u64 %rd1, %a, %b; addc.u64 %rd2, 0, 0; mad.lo.cc.u64 %rd3, %a, %b, %rd1; madc.hi.u64 %d, %a, %b, %rd2;"
    got = bench.apply(lines, "u8", a, b)
    want = [((x * y + (x + y)) >> 64) % 2**64 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert got.tolist() == want


def test_borrow_chains_subtract_128_bits(bench: Any, ints: Any):
    a, b = ints(64, COUNT, 1), ints(64, COUNT, 2)
    got = bench.apply("sub.cc.u64 %rd1, %a, %b; subc.u64 %d, %b, %a;", "u8", a, b)
    want = [(y - x - (1 if x < y else 0)) % 2**64 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert got.tolist() == want


def test_saturating_addition(bench: Any, ints: Any):
    a, b = ints(32, COUNT, 1), ints(32, COUNT, 2)
    got = bench.apply("add.sat.s32 %d, %a, %b;", "i4", a, b)
    want = [
        max(-(2**31), min(2**31 - 1, signed(x, 32) + signed(y, 32)))
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert got.tolist() == want


def test_sum_of_absolute_differences(bench: Any, ints: Any):
    a, b, c = ints(32, COUNT, 1), ints(32, COUNT, 2), ints(32, COUNT, 3)
    got = bench.apply("sad.s32 %d, %a, %b, %c;", "u4", a, b, c)
    want = [
        (abs(signed(x, 32) - signed(y, 32)) + z) & 0xFFFF_FFFF
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert got.tolist() == want


@pytest.mark.sampled(5)
@pytest.mark.parametrize("how", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_comparison(bench: Any, ints: Any, how: Any, type_: Any):
    bits = int(type_[1:])
    a, b = ints(bits, COUNT, 1), ints(bits, COUNT, 1)[::-1].copy()
    got = bench.apply(f"setp.{how}.{type_} %p1, %a, %b; selp.b32 %d, 1, 0, %p1;", "u4", a, b)
    test = {
        "eq": int.__eq__,
        "ne": int.__ne__,
        "lt": int.__lt__,
        "le": int.__le__,
        "gt": int.__gt__,
        "ge": int.__ge__,
    }[how]
    assert got.tolist() == [
        int(test(as_type(x, type_), as_type(y, type_))) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]


def test_comparison_writes_both_predicates_combined(bench: Any, ints: Any):
    a, b = ints(32, COUNT, 1), ints(32, COUNT, 2)
    lines = """setp.lt.u32 %p3, %a, 100;
        setp.gt.or.s32 %p1|%p2, %a, %b, !%p3;
        selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 2, 0, %p2; or.b32 %d, %r5, %r6;"""
    got = bench.apply(lines, "u4", a, b)
    want = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        greater, other = signed(x, 32) > signed(y, 32), x >= 100
        want.append((1 if greater or other else 0) | (2 if not greater or other else 0))
    assert got.tolist() == want


@pytest.mark.parametrize("table", [0x80, 0xFE, 0x96, 0xE8, 0x1B])
def test_lop3_is_its_truth_table(bench: Any, ints: Any, table: Any):
    a, b, c = ints(32, COUNT, 1), ints(32, COUNT, 2), ints(32, COUNT, 3)
    got = bench.apply(f"lop3.b32 %d, %a, %b, %c, {table};", "u4", a, b, c)
    want = [
        sum((table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (z >> i & 1)) & 1) << i for i in range(32))
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert got.tolist() == want


def test_guarded_instructions_change_only_their_lanes(bench: Any, ints: Any):
    a, b = ints(32, COUNT, 1), ints(32, COUNT, 2)
    got = bench.apply(
        "setp.lt.u32 %p1, %a, %b; mov.b32 %d, 7; @%p1 add.u32 %d, %a, %b; @!%p1 sub.u32 %d, %d, 1;",
        "u4",
        a,
        b,
    )
    assert got.tolist() == [
        (x + y) & 0xFFFF_FFFF if x < y else 6 for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("add.bogus.u32 %d, %a, %b;", "bogus"),
        ("frob.b32 %d, %a;", "frob"),
        ("add.u32 %d, %a;", "operands"),
        ("add.u64 %d, %a, %b;", "64"),
        ("mov.u32 %d, %nothing;", "nothing"),
        ("ld.global.u32 %d, [undefined];", "undefined"),
    ],
)
def test_unknown_instructions_are_named_with_their_line(bench: Any, ints: Any, lines: Any, word: Any):
    with pytest.raises(ValueError, match=rf"PTX line \d+: .*{word}"):
        bench.apply(lines, "u4", ints(32, 4, 1), ints(32, 4, 2))


def test_packed_halves_add_without_carry_between_them(bench: Any, ints: Any):
    a, b = ints(32, COUNT, 1), ints(32, COUNT, 2)
    got = bench.apply("add.u16x2 %d, %a, %b;", "u4", a, b)
    assert got.view(np.uint16).tolist() == (a.view(np.uint16) + b.view(np.uint16)).tolist()


def adder(op: str, a: int, b: int, type_: str, carry: int) -> tuple[int, int]:
    """Return result and carry of one instruction by the machine's adder, which adds three numbers and carries out.

    A difference is a + ~b + 1. `mad` adds b, the third operand of these tests, to half of a * b.
    """
    bits = int(type_[1:])
    mask = (1 << bits) - 1
    name = op.removesuffix(".cc").replace("c", "")
    if name.startswith("mad"):
        product = as_type(a, type_) * as_type(b, type_)
        a = product if name == "mad.lo" else product >> bits
    whole = (a & mask) + ((~b if name == "sub" else b) & mask) + carry
    return whole & mask, whole >> bits


@pytest.mark.sampled(7)
@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("second", ["addc", "subc", "madc.lo", "madc.hi"])
@pytest.mark.parametrize("first", ["add", "sub", "mad.lo", "mad.hi"])
def test_a_carry_passes_between_all_instructions_as_in_one_adder(
    bench: Any, first: str, second: str, type_: str
):
    bits = int(type_[1:])
    top = 1 << (bits - 1)
    edges = [0, 1, 2, 7, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1]
    pairs = [(x, y) for x in edges for y in edges]
    a, b = (np.array(column, f"u{bits // 8}") for column in zip(*pairs, strict=True))
    three = ", %b" if first.startswith("mad") else ""
    also = ", %a" if second.startswith("mad") else ""
    begin = f"{first}.cc.{type_} %d, %a, %b{three}; {second}.cc.{type_} %d, %b, %a{also};"
    found = bench.apply(begin, a.dtype.str[1:], a, b)
    carries = bench.apply(f"{begin} addc.{type_} %d, 0, 0;", a.dtype.str[1:], a, b)
    wanted = []
    for x, y in pairs:
        _, carry = adder(first, x, y, type_, int(first == "sub"))
        wanted.append(adder(second, y, x, type_, carry))
    assert list(zip(found.tolist(), carries.tolist(), strict=True)) == wanted
