"""Forms of integers, logic, shifts and bit fields. Source of the lists: PTX ISA 9.7.1, 9.7.2, 9.7.7, 9.7.8.

Not here: comparisons (`comparisons`), conversions (`conversions`), floating point (`floats`). Next: `vendor`,
the list of all forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import Form, Result, grid
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.record.forms import Column

SHIFTS: Final = (
    0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 0x80000000, 0xFFFFFFFF,
)  # fmt: skip
"""Amounts of shifts below, at and above every width."""
_FIELDS: Final = (0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 255, 256, 0xFFFFFFFF)
"""Positions and lengths of bit fields."""
INTEGERS: Final = ("u16", "s16", "u32", "s32", "u64", "s64")
_LUTS: Final = (0x00, 0x01, 0x1E, 0x40, 0x6A, 0x80, 0x96, 0xCA, 0xE8, 0xF8, 0xFE, 0xFF)
_SINCE_PAIRS: Final = 90


def instruction(
    name: str, result: str, *operands: str, doubt: int = 0, tail: str = "", since: int = 0, more: int = 24,
    given: tuple[Column, ...] = (), most: int = 400, few: bool | None = None, label: str = "",
) -> Form:  # fmt: skip
    """Return the form of an instruction with one result and operands in registers; `tail` follows them.

    `more`, `given`, `most` and `few` are those of `forms.grid`, `since` is the first SM number, `label`
    replaces the form's name.
    """
    sources = ", ".join(f"$a{n}" for n in range(len(operands)))
    few = len(operands) > 2 if few is None else few
    inputs = grid(operands, few=few, more=more, most=most, given=given)
    text = f"{name} $d0, {sources}{tail};"
    return lanes(label or name, text, operands, inputs, (Result("d", result),), doubt=doubt, needs=since)


def _wide(type_: str) -> str:
    return f"{type_[0]}{2 * int(type_[1:])}"


def _arithmetic() -> Iterator[Form]:
    """Yield the arithmetic of integers and of pairs of 16-bit integers."""
    for t in INTEGERS:
        for name in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield instruction(f"{name}.{t}", t, t, t, doubt=2 if name in ("div", "rem") else 0)
        for name in ("mad.lo", "mad.hi", "sad"):
            yield instruction(f"{name}.{t}", t, t, t, t)
        if t[1:] != "64":
            yield instruction(f"mul.wide.{t}", _wide(t), t, t)
            yield instruction(f"mad.wide.{t}", _wide(t), t, t, _wide(t))
        if t[0] == "s":
            yield instruction(f"abs.{t}", t, t)
            yield instruction(f"neg.{t}", t, t)
    for name in ("add", "sub"):
        yield instruction(f"{name}.sat.s32", "s32", "s32", "s32", doubt=1)
    yield instruction("mad.hi.sat.s32", "s32", "s32", "s32", "s32", doubt=2)
    for t in ("u32", "s32"):
        for part in ("lo", "hi"):
            yield instruction(f"mul24.{part}.{t}", t, t, t, doubt=3)
            yield instruction(f"mad24.{part}.{t}", t, t, t, t, doubt=3)
    yield instruction("mad24.hi.sat.s32", "s32", "s32", "s32", "s32", doubt=3)
    for t in ("u16x2", "s16x2"):
        bits = "u32"
        for name in ("add", "min", "max"):
            yield instruction(f"{name}.{t}", bits, bits, bits, doubt=2, since=_SINCE_PAIRS, more=100)
    for name in ("min", "max"):
        yield instruction(f"{name}.relu.s32", "s32", "s32", "s32", doubt=2, since=_SINCE_PAIRS)
        yield instruction(f"{name}.relu.s16x2", "u32", "u32", "u32", doubt=2, since=_SINCE_PAIRS, more=100)


_SETS: Final = (
    "add.cc", "sub.cc", "mad.lo.cc", "mad.hi.cc", "addc.cc", "subc.cc", "madc.lo.cc", "madc.hi.cc",
)  # fmt: skip
_READS: Final = ("addc", "subc", "madc.lo", "madc.hi", "addc.cc", "subc.cc", "madc.lo.cc", "madc.hi.cc")


_SIGNED: Final = {
    ("add.cc", "addc"), ("add.cc", "addc.cc"), ("sub.cc", "subc"), ("sub.cc", "subc.cc"),
    ("mad.lo.cc", "madc.hi"), ("mad.hi.cc", "madc.lo"),
    ("mad.lo.cc", "madc.hi.cc"), ("mad.hi.cc", "madc.lo.cc"),
}  # fmt: skip
"""The pairs that are recorded for signed types; for unsigned types all pairs are."""


def _carries() -> Iterator[Form]:
    """Yield a form for each pair of an instruction that sets the carry and one that reads it.

    Operand 5 is the carry before the pair, set by `add.cc.u32` of it and all ones. The carry after the pair
    is a result, read by `addc.u32`.
    """
    for t in ("u32", "s32", "u64", "s64"):
        for sets in _SETS:
            for reads in _READS:
                if t[0] == "s" and (sets, reads) not in _SIGNED:
                    continue
                first = "$a0, $a1" + (", $a2" if "mad" in sets else "")
                second = "$a3, $a4" + (", $a2" if "mad" in reads else "")
                text = (
                    "{ .reg .b32 c; add.cc.u32 c, $a5, -1; "
                    f"{sets}.{t} $d0, {first}; {reads}.{t} $d1, {second}; addc.u32 $d2, 0, 0; }}"
                )
                operands = (t, t, t, t, t, "u32")
                inputs = grid(operands, few=True, more=24, most=160, given=((5, (0, 1)),))
                results = (Result("first", t), Result("second", t), Result("carry", "u32"))
                name = f"{sets}.{t}, {reads}.{t}"
                yield lanes(name, text, operands, inputs, results, doubt=7)


def _bits() -> Iterator[Form]:
    """Yield instructions on bits and bit fields, and dot products of packed integers."""
    for width in ("32", "64"):
        b, u = f"b{width}", f"u{width}"
        for name in ("popc", "clz"):
            yield instruction(f"{name}.{b}", "u32", u)
        yield instruction(f"brev.{b}", u, u)
        for t in (u, f"s{width}"):
            yield instruction(f"bfind.{t}", "u32", t, doubt=1)
            yield instruction(f"bfind.shiftamt.{t}", "u32", t, doubt=1)
            yield instruction(
                f"bfe.{t}", t, t, "u32", "u32", doubt=3, given=((1, _FIELDS), (2, _FIELDS)), most=600
            )
        given: tuple[Column, ...] = ((2, _FIELDS), (3, _FIELDS))
        yield instruction(f"bfi.{b}", u, u, u, "u32", "u32", doubt=3, given=given, most=600)
    masks: Column = (0, (0, 1, 0x80000000, 0xFFFFFFFF, 0x00F0F00F, 0x55555555, 0x80000001))
    offsets = tuple(v & 0xFFFFFFFF for v in (0, 1, -1, 2, -2, 3, -3, 8, -8, 16, -16, 31, 32, 33, -32, -33))
    yield instruction(
        "fns.b32", "u32", "u32", "u32", "u32", doubt=5, most=900,
        given=(masks, (1, (0, 1, 5, 16, 30, 31)), (2, offsets)),
    )  # fmt: skip
    for mode in ("wrap", "clamp"):
        for t in ("u32", "s32"):
            yield instruction(f"szext.{mode}.{t}", t, t, "u32", doubt=3, given=((1, SHIFTS),))
        yield instruction(f"bmsk.{mode}.b32", "u32", "u32", "u32", doubt=3, given=((0, SHIFTS), (1, SHIFTS)))
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            yield instruction(f"dp4a.{a}.{b}", "s32", a, b, "s32", doubt=1, more=60)
            for half in ("lo", "hi"):
                yield instruction(f"dp2a.{half}.{a}.{b}", "s32", a, b, "s32", doubt=1, more=60)


def _logic() -> Iterator[Form]:
    """Yield bitwise operations, shifts and permutations of bytes."""
    for width in (16, 32, 64):
        b, u = f"b{width}", f"u{width}"
        for name in ("and", "or", "xor"):
            yield instruction(f"{name}.{b}", u, u, u)
        for name in ("not", "cnot"):
            yield instruction(f"{name}.{b}", u, u)
        yield instruction(f"shl.{b}", u, u, "u32", doubt=1, given=((1, SHIFTS),))
        for t in (b, u, f"s{width}"):
            yield instruction(f"shr.{t}", u, u, "u32", doubt=1, given=((1, SHIFTS),))
    for name in ("and", "or", "xor"):
        yield instruction(f"{name}.pred", "pred", "pred", "pred", more=0)
    yield instruction("not.pred", "pred", "pred", more=0)
    for way in ("l", "r"):
        for mode in ("wrap", "clamp"):
            yield instruction(
                f"shf.{way}.{mode}.b32", "u32", "u32", "u32", "u32", doubt=2, given=((2, SHIFTS),), most=500
            )
    for table in _LUTS:
        word = f"{table:#x}"
        yield instruction(
            "lop3.b32", "u32", "u32", "u32", "u32", tail=f", {word}", label=f"lop3.b32 {word}", most=64
        )
    for how in ("or", "and"):
        operands = ("u32", "u32", "u32", "pred")
        yield lanes(
            f"lop3.{how}.b32", f"lop3.{how}.b32 $d0|$d1, $a0, $a1, $a2, 0x1e, $a3;", operands,
            grid(operands, few=True, more=24), (Result("d", "u32"), Result("p", "pred")), doubt=2,
        )  # fmt: skip
    selectors: Column = (2, (*range(16), 0x3210, 0x7654, 0xFEDC, 0xBA98, 0x8040, 0xFFFF, 0xFFFF0123))
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield instruction(f"prmt.b32{mode}", "u32", "u32", "u32", "u32", doubt=2, given=(selectors,), more=60)


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _arithmetic()
    yield from _carries()
    yield from _bits()
    yield from _logic()
