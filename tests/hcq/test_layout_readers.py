"""Readers and fast checks of layouts give what `Field.decode`, `Member.decode` and the full check give.

Not here: what fields mean (`test_bitstruct`, `test_bytestruct`).
"""

import enum
import importlib
import pkgutil
import random
from collections.abc import Iterator
from typing import Any

import drivers.amd.layouts
import drivers.cpu
import drivers.nv.layouts
from hcq.layout import BitStruct, Struct, bits, const, nested, optional, split, u8, u16, u32


class Colour(enum.IntEnum):
    RED = 0
    BLUE = 2


class Option(enum.IntFlag):
    A = 1
    B = 4


class Mixed(BitStruct, words=3):
    colour: Colour = bits(2, 0)
    option: Option = optional(6, 3)
    flag: bool = optional(7)
    wide_flag: bool = optional(9, 8)
    address: int = optional(40, 12, shift=8)
    signed: int = optional(45, 41, signed=True)
    parts: int = split((47, 46), (50, 50))
    kinds: tuple[Colour, ...] = optional(52, 51, count=3, stride=3)
    numbers: tuple[int, ...] = optional(63, 60, count=4, stride=4, shift=2)
    _one = const(95, 94, 1)


class Inner(BitStruct):
    kind: Colour = optional(3, 0)


class Block(Struct, size=32):
    a: int = u8(0)
    colour: Colour = u16(2)
    option: Option = u32(4)
    numbers: tuple[int, ...] = u16(8, count=3)
    sparse: tuple[int, ...] = u8(16, count=2, stride=3)
    kinds: tuple[Colour, ...] = u8(20, count=2)
    inner: Inner = nested(24, Inner)


def layouts(base: type) -> list[Any]:
    """Return the layouts of the product and of this file; those of other tests may be refused ones."""
    for package in (drivers.nv.layouts, drivers.amd.layouts, drivers.cpu):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if package is not drivers.cpu or "layout" in found.name:
                importlib.import_module(found.name)
    found: set[Any] = set()
    todo = [base]
    while todo:
        one = todo.pop()
        found.add(one)
        todo += one.__subclasses__()
    return [
        one
        for one in found
        if one.SIZE and one.FIELDS and (one.__module__ == __name__ or not one.__module__.startswith("tests."))
    ]


def raws(layout: Any, count: int) -> Iterator[bytes]:
    chosen = random.Random(layout.__name__)
    size = layout.SIZE
    yield bytes(size)
    for _ in range(count):
        yield chosen.randbytes(size)
        at, few = chosen.randrange(size), bytearray(size)
        few[at] = 1 << chosen.randrange(8)
        yield bytes(few)


def same(value: object, wanted: object):
    assert value == wanted
    assert type(value) is type(wanted)


def test_bit_fields_of_all_layouts_read_as_they_decode():
    assert len(layouts(BitStruct)) > 100
    for layout in layouts(BitStruct):
        for raw in raws(layout, 4):
            one = layout.from_bytes(raw)
            for name, field in layout.FIELDS.items():
                same(getattr(one, name), field.decode(int(one)))


def test_members_of_all_layouts_read_as_they_decode():
    for layout in layouts(Struct):
        for raw in raws(layout, 2):
            one = layout.from_bytes(raw)
            for name, member in layout.FIELDS.items():
                same(getattr(one, name), member.decode(raw))


def test_checks_of_all_layouts_find_what_the_full_check_finds():
    for layout in (*layouts(BitStruct), *layouts(Struct)):
        for raw in raws(layout, 4):
            one = layout.from_bytes(raw)
            assert one.check() == one._broken()


def test_mixed_types_read_and_check_as_declared():
    one = Mixed(
        colour=Colour.BLUE, option=Option.A | Option.B, flag=True, address=0x1200, signed=-3, parts=5,
        kinds=(Colour.BLUE, Colour.RED), numbers=(4, 8),
    )  # fmt: skip
    assert (one.colour, one.option, one.flag, one.address) == (Colour.BLUE, Option.A | Option.B, True, 0x1200)
    assert (one.signed, one.parts, one.kinds, one.numbers) == (
        -3, 5, (Colour.BLUE, Colour.RED, Colour.RED), (4, 8, 0, 0),
    )  # fmt: skip
    assert one.check() == []
    wrong = Mixed.from_int(int(one) | 1 | 2 << 3 | 3 << 8 | 1 << 90)
    assert [v.field for v in wrong.check()] == ["colour", "option", "wide_flag", "bit 26 of word 2"]


def test_blocks_read_and_check_as_declared():
    one = Block(a=7, colour=Colour.BLUE, numbers=(1, 2, 3), sparse=(8, 9), kinds=(Colour.BLUE,))
    assert (one.numbers, one.sparse, one.kinds) == ((1, 2, 3), (8, 9), (Colour.BLUE, Colour.RED))
    assert one.check() == []
    raw = bytearray(one.to_bytes())
    raw[2], raw[21], raw[24], raw[31] = 1, 3, 1, 1
    found = [v.field for v in Block.from_bytes(raw).check()]
    assert found == ["colour", "kinds[1]", "inner.kind", "byte 0x1f"]
