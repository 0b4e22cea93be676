"""Forms of arithmetic, logic, comparisons and conversions: those of the table that was typed from the manual.

The table (`tests.facts.ptx_table`) has the text of each form, the kinds of its operands, and its meaning. The
texts are kept in `manual.xz`, so that a recording needs no test; `python -m tests.facts.ptx_tally --write`
writes the file. A line of it is JSON: name, text, kinds of operands, bits of results, first SM number.

Comparisons that combine with a predicate and differ in the operator alone share a form, with results for
each operator: they are two thirds of the table.

Not here: approximations (`approximations`), moves (`moves`). Next: `vendor`, the list of all forms.
"""

from __future__ import annotations

import functools
import json
import lzma
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.record.forms import FLOATS, Form, Result, chosen, floats, grid, integers, joined, near, scattered
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.record.forms import Column, Inputs

    Row = tuple[str, str, list[str], list[int], int]

KEPT: Final = Path(__file__).with_name("manual.xz")
_TYPES: Final = {
    "i16": "u16", "i32": "u32", "i64": "u64", "i2": "u32", "h2": "f16x2", "bf2": "bf16x2", "shift": "u32",
    "wide8": "u32", "sel": "u32", "e4m3": "u16", "e5m2": "u16",
}  # fmt: skip
"""Kind of an operand in the table -> its type here; the others have the same name."""
_TEMPORARIES: Final = (("b32", "tuv"), ("b64", "xy"), ("b16", "hij"), ("pred", "pqs"))
_SHIFTS: Final = (
    0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 0x80000000, 0xFFFFFFFF,
)  # fmt: skip
"""Amounts of shifts below, at and above every width; positions and lengths of bit fields."""
_SMALL: Final = tuple(
    v & 0xFFFFFFFF
    for n in (1, 2, 3, 4, 7, 8, 15, 16)
    for v in (1 << n, (1 << n) - 1, -(1 << n), -(1 << n) - 1, -1, 0)
)
"""Numbers at the limits of 2 to 16 bits."""
_SELECTORS: Final = (*range(16), 0x3210, 0x7654, 0xFEDC, 0xBA98, 0x8040, 0xFFFF, 0xFFFF0123)
_MASKS: Final = (0, 1, 0x80000000, 0xFFFFFFFF, 0x00F0F00F, 0x55555555, 0x80000001)
_OFFSETS: Final = (0, 31, *(v & 0xFFFFFFFF for n in (1, 2, 3, 8, 16, 32, 33) for v in (n, -n)))
_GIVEN: Final[dict[str, tuple[Column, ...]]] = {
    "bfe": ((1, _SHIFTS), (2, _SHIFTS)), "bfi": ((2, _SHIFTS), (3, _SHIFTS)), "szext": ((1, _SHIFTS),),
    "bmsk": ((0, _SHIFTS), (1, _SHIFTS)), "shf": ((2, _SHIFTS),), "prmt": ((2, _SELECTORS),),
    "cvt.pack": ((0, _SMALL), (1, _SMALL)),
    "fns": ((0, _MASKS), (1, (0, 1, 5, 16, 30, 31)), (2, _OFFSETS)),
}  # fmt: skip
"""Beginning of a name -> values of operands that replace the edge values of their type."""
_DOUBTS: Final = {"cvt": 4, "div": 3, "fma": 3, "min": 4, "max": 4, "set": 3, "fns": 5, "add.cc": 7, "mad": 3}
"""Beginning of a name -> how uncertain the emulated GPU is; 2 for the others."""
_OPERATORS: Final = (
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
)  # fmt: skip
"""Comparisons of floats."""
_MOST, _MOST_OF_THREE, _MOST_JOINED = 240, 120, 64
"""Combinations of edge values of a form, of one with three operands, and of one with a predicate."""


def rows() -> list[Row]:
    """Return the kept table."""
    return [tuple(json.loads(line)) for line in lzma.decompress(KEPT.read_bytes()).decode().splitlines()]


def forms() -> Iterator[Form]:
    """Yield all forms of the table, and of pairs that it lacks."""
    groups: dict[object, list[Row]] = {}
    for row in rows():
        name, _, kinds, _, since = row
        words = name.split(".")
        shared = words[0] in ("set", "setp") and "pred" in kinds
        key = (words[0], *words[2:], *kinds, since) if shared else name
        groups.setdefault(key, []).append(row)
    for group in groups.values():
        yield _form(group)
    yield from _pairs()


def _form(group: list[Row]) -> Form:
    name, _, kinds, _, since = group[0]
    if len(group) > 1:
        words = name.split(".")
        name = ".".join((words[0], "*", *words[2:]))
    texts: list[str] = []
    results: list[Result] = []
    for own, code, _, bits, _ in group:
        texts.append(_text(code, len(results)))
        label = f"{own.split('.')[1]} " if len(group) > 1 else ""
        results += [Result(f"{label}{'de'[n]}", f"u{count}") for n, count in enumerate(bits)]
    bare = [kind.partition(":")[0] for kind in kinds]
    types = tuple(_TYPES.get(kind, kind) for kind in bare)
    given = next((columns for word, columns in _GIVEN.items() if name.startswith(word)), ())
    given = (*given, *((n, _SHIFTS) for n, kind in enumerate(bare) if kind == "shift"))
    if bare[0] in ("e4m3", "e5m2", "wide8"):
        given = ((0, tuple(n | (255 - n) << 8 for n in range(256))),)
    doubt = next((value for word, value in _DOUBTS.items() if name.startswith(word)), 2)
    inputs = _inputs(types, given, one=name.startswith("cvt"))
    return lanes(name, "\n".join(texts), types, inputs, tuple(results), doubt=doubt, needs=since)


def _text(code: str, first: int) -> str:
    """Return a text of the table with the recorder's names; `first` is the number of its first result."""
    used = set(re.findall(r"%([a-z])\b", code))
    places = {"a": "$a0", "b": "$a1", "c": "$a2", "f": "$a3", "d": f"$d{first}", "e": f"$d{first + 1}"}
    declared = [
        f".reg .{type_} " + ", ".join(f"%{one}" for one in names if one in used) + ";"
        for type_, names in _TEMPORARIES
        if used & set(names)
    ]
    text = re.sub(r"%([a-f])\b", lambda match: places[match[1]], code)
    return " ".join(("{", *declared, text, "}")) if declared else text


@functools.cache
def _inputs(types: tuple[str, ...], given: tuple[Column, ...], *, one: bool) -> Inputs:
    """Return edge values of a form, and numbers near 1.0; `one`: of a conversion, with limits and ties."""
    if "pred" in types and len(types) > 2:
        return grid(types, few=True, most=_MOST_JOINED)
    most = _MOST_OF_THREE if len(types) > 2 and not given else _MOST
    found = [grid(types, few=len(types) > 2, more=24, most=most, given=given)]
    if set(types) & FLOATS.keys():
        found.append(near(types, 40))
        found += [near(types, 40, spread=14)] * one
    if one and len(types) == 1 and not given:
        found.append(_around(types[0]) if types[0] in FLOATS else _ties(int(types[0][1:])))
    return joined(*found)


@functools.cache
def _around(type_: str) -> Inputs:
    """Return floats at the limits of integers with their neighbours and halves, of both signs."""
    exponent, mantissa = FLOATS[type_]
    bias = (1 << (exponent - 1)) - 1
    found = list(floats(type_))
    for power in {7, 8, 15, 16, 31, 32, 63, 64, mantissa, mantissa - 1, 0, 1, -1, 2}:
        if -bias < power <= bias:
            whole = (bias + power) << mantissa
            halves = (1 << (mantissa - 1), 1 << max(0, mantissa - 2))
            for bits in (whole - 1, whole, whole + 1, *(whole + half for half in halves)):
                found += [bits, bits | 1 << (exponent + mantissa)]
    return chosen(tuple(dict.fromkeys(found)))


@functools.cache
def _ties(bits: int) -> Inputs:
    """Return integers that lie between two floats, and edge values."""
    found = (
        (1 << n) + (k << n >> m) & ((1 << bits) - 1)
        for n in range(8, bits)
        for m, k in ((9, 1), (12, 3), (25, 1), (25, 3))
    )
    every = chosen(tuple(dict.fromkeys((*integers(bits), *found))))
    return joined(every, scattered((f"u{bits}",), 24))


def _pairs() -> Iterator[Form]:
    """Yield the arithmetic of pairs of f32, of f32 with 16-bit floats, and comparisons of joined pairs."""
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for rounding in (".rn", ".rz", ".rm", ".rp") if count > 2 else ("", ".rn", ".rz", ".rm", ".rp"):
            for words in ("", ".ftz"):
                yield _float(f"{name}{rounding}{words}.f32x2", "f32x2", ("f32x2",) * count)
            for type_ in ("f16", "bf16") if name != "mul" else ():
                for words in ("", ".sat"):
                    operands = (*(type_,) * (count - 1), "f32")
                    yield _float(f"{name}{rounding}{words}.f32.{type_}", "f32", operands)
    for type_, flushes in (("f16x2", ("", ".ftz")), ("bf16x2", ("",))):
        for join in ("and", "or", "xor"):
            for word in flushes:
                name = f"setp.*.{join}{word}.{type_}"
                text = "\n".join(
                    f"{name.replace('*', operator)} $d{2 * n}|$d{2 * n + 1}, $a0, $a1, $a2;"
                    for n, operator in enumerate(_OPERATORS)
                )
                results = tuple(Result(f"{operator} {n}", "pred") for operator in _OPERATORS for n in (1, 2))
                operands = (type_, type_, "pred")
                inputs = grid(operands, most=_MOST_JOINED)
                since = 90 if type_ == "bf16x2" else 0
                yield lanes(name, text, operands, inputs, results, doubt=3, needs=since)


def _float(name: str, result: str, operands: tuple[str, ...]) -> Form:
    """Return the form of an instruction of Blackwell on floats."""
    sources = ", ".join(f"$a{n}" for n in range(len(operands)))
    inputs = joined(grid(operands, few=len(operands) > 2, most=200), near(operands, 60))
    results = (Result("d", result),)
    return lanes(name, f"{name} $d0, {sources};", operands, inputs, results, doubt=5, needs=100)
