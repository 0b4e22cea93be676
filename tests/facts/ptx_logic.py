"""Logic, shifts and permutations of the PTX manual, typed in from its text (PTX ISA, "Logic and Shift Instructions",
"Data Movement and Conversion Instructions: prmt")."""

# ruff: noqa: E501, PLR0917 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.facts.ptx_form import Form
from tests.facts.ptx_numbers import integer, mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TWO = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}


def forms() -> Iterator[Form]:
    """Every form of logic, shifts and permutations."""
    yield from _plain()
    yield from _lop3()
    yield from _shifts()
    yield from _funnels()
    yield from _permutes()


def _plain() -> Iterator[Form]:
    for n in (16, 32, 64):
        for name, rule in _TWO.items():
            yield Form(f"{name}.b{n}", f"{name}.b{n} %d, %a, %b;", (f"i{n}",) * 2, (n,), rule, name)
        yield Form(f"not.b{n}", f"not.b{n} %d, %a;", (f"i{n}",), (n,), lambda a, n=n: a ^ mask(n), "not")
        yield Form(f"cnot.b{n}", f"cnot.b{n} %d, %a;", (f"i{n}",), (n,), lambda a: int(a == 0), "cnot")
    for name, rule in _TWO.items():
        code = f"{name}.pred %p, %a, %b; selp.b32 %d, 1, 0, %p;"
        yield Form(f"{name}.pred", code, ("pred", "pred"), (32,), rule, name)
    yield Form(
        "not.pred", "not.pred %p, %a; selp.b32 %d, 1, 0, %p;", ("pred",), (32,), lambda a: 1 - a, "not"
    )


def _table(a: int, b: int, c: int, table: int) -> int:
    """Bit i is the table's bit at 4a + 2b + c of the operands' bits i."""
    found = 0
    for at in range(8):
        if table >> at & 1:
            found |= (a if at & 4 else ~a) & (b if at & 2 else ~b) & (c if at & 1 else ~c)
    return found & mask(32)


def _lop3() -> Iterator[Form]:
    few = ("i32:7", "i32:7", "i32:7")
    for table in range(256):
        code = f"lop3.b32 %d, %a, %b, %c, {table:#x};"
        yield Form(
            f"lop3.b32 {table:#04x}", code, few, (32,), lambda a, b, c, t=table: _table(a, b, c, t), "lop3"
        )
    for operation, rule in (("and", min), ("or", max)):
        for table in (0, 0x96, 0xE8, 0xCA, 0x80, 0xFF):
            name = f"lop3.{operation}.b32"
            code = f"{name} %d|%p, %a, %b, %c, {table:#x}, %f; selp.b32 %e, 1, 0, %p;"

            def raw(a: int, b: int, c: int, q: int, rule: Callable = rule, t: int = table) -> tuple[int, int]:
                found = _table(a, b, c, t)
                return found, rule(int(found != 0), q)

            yield Form(f"{name} {table:#04x}", code, (*few, "pred"), (32, 32), raw, "lop3")


def _shifts() -> Iterator[Form]:
    """Amounts above the width count as the width."""
    for n in (16, 32, 64):
        kinds = (f"i{n}", f"shift:{n}")
        code = f"shl.b{n} %d, %a, %b;"
        yield Form(f"shl.b{n}", code, kinds, (n,), lambda a, b, n=n: a << min(b, n) & mask(n), "shl")
        for sign in "bus":

            def raw(a: int, b: int, n: int = n, sign: str = sign) -> int:
                return integer(a, f"{'s' if sign == 's' else 'u'}{n}") >> min(b, n) & mask(n)

            yield Form(f"shr.{sign}{n}", f"shr.{sign}{n} %d, %a, %b;", kinds, (n,), raw, "shr")


def _funnels() -> Iterator[Form]:
    kinds = ("i32", "i32", "shift:32")
    for way in "lr":
        for mode in ("clamp", "wrap"):

            def raw(a: int, b: int, c: int, way: str = way, mode: str = mode) -> int:
                n = min(c, 32) if mode == "clamp" else c & 31
                pair = b << 32 | a
                return (pair << n >> 32 if way == "l" else pair >> n) & mask(32)

            name = f"shf.{way}.{mode}.b32"
            yield Form(name, f"{name} %d, %a, %b, %c;", kinds, (32,), raw, "shf")


_MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}
"""Bytes of the result, highest first, for the selector's two low bits."""


def _permutes() -> Iterator[Form]:
    kinds = ("i32:14", "i32:14", "sel")

    def byte(a: int, b: int, at: int) -> int:
        return (b << 32 | a) >> (8 * at) & 255

    def default(a: int, b: int, c: int) -> int:
        found = 0
        for at in range(4):
            pick = c >> (4 * at) & 15
            got = byte(a, b, pick & 7)
            if pick & 8:
                got = 255 if got & 128 else 0
            found |= got << (8 * at)
        return found

    yield Form("prmt.b32", "prmt.b32 %d, %a, %b, %c;", kinds, (32,), default, "prmt")
    for mode, rows in _MODES.items():

        def raw(a: int, b: int, c: int, rows: tuple[str, ...] = rows) -> int:
            found = 0
            for digit in rows[c & 3]:
                found = found << 8 | byte(a, b, int(digit))
            return found

        name = f"prmt.b32.{mode}"
        yield Form(name, f"{name} %d, %a, %b, %c;", kinds, (32,), raw, "prmt")
