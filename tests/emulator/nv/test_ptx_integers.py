"""Integer instructions together: carries between them, guards, refusals. One alone: `tests.facts.ptx_table`."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

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
