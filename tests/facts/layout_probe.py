"""How the tests here look at a layout: by names, places and encoded bytes, never by its source text."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.layout import BitStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.layout.bitstruct import Field


class Leaf(NamedTuple):
    """A field of a byte layout; one inside a nested struct is named `outer.inner`."""

    offset: int
    size: int
    """Bytes of all its elements."""
    elements: int


class CStruct(NamedTuple):
    """A structure of a C header."""

    size: int
    fields: tuple[tuple[int, int, str], ...]
    """(offset, bytes, name) of each."""
    call: str
    """The ioctl that takes it, or ""."""
    since: int
    """The minor that brought it."""


def c_structs(table: dict[str, tuple[int, str, str, int]]) -> dict[str, CStruct]:
    """Return the structures of a table of facts, whose fields are written name@offset/bytes."""
    found = {}
    for name, (size, text, call, since) in table.items():
        fields = [re.fullmatch(r"(.+)@(\d+)/(\d+)", word) for word in text.split()]
        places = tuple((int(one[2]), int(one[3]), one[1]) for one in fields if one is not None)
        assert len(places) == len(fields), name
        found[name] = CStruct(size, places, call, since)
    return found


def leaves(layout: type[Struct], base: int = 0, prefix: str = "") -> dict[str, Leaf]:
    """Return every field of `layout` by its dotted name; arrays of structs count as one field."""
    found: dict[str, Leaf] = {}
    for name, member in layout.FIELDS.items():
        if member.kind == "nested" and member.count == 1 and issubclass(member.type, Struct):
            found |= leaves(member.type, base + member.offset, f"{prefix}{name}.")
            continue
        elements = member.count * (member.size if member.kind in ("text", "blob") else 1)
        size = (member.count - 1) * member.stride + member.size
        found[prefix + name] = Leaf(base + member.offset, size, elements)
    return found


def expected(fields: tuple[tuple[int, int, str], ...]) -> dict[str, Leaf]:
    """Return a table of facts in the same form: `name[4][2]` has eight elements."""
    found: dict[str, Leaf] = {}
    for offset, size, text in fields:
        name, *counts = text.replace("]", "").split("[")
        found[name] = Leaf(offset, size, prod(int(count) for count in counts))
    return found


def encoded(layout: type[Struct], path: str, value: Any) -> bytes:
    """Return the bytes of `layout` with one field set; `path` is a dotted name."""
    name, _, rest = path.partition(".")
    if not rest:
        return layout(**{name: value}).to_bytes()
    inner = layout.FIELDS[name].type
    return layout(**{name: inner.from_bytes(encoded(inner, rest, value))}).to_bytes()


def integers(layout: type[Struct], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield (dotted name, largest value) of every single integer."""
    for name, member in layout.FIELDS.items():
        if member.count > 1:
            continue
        if member.kind == "nested" and issubclass(member.type, Struct):
            yield from integers(member.type, f"{prefix}{name}.")
        elif member.kind == "int":
            signed = member.code in "bhilq"
            yield prefix + name, (1 << 8 * member.size - signed) - 1


def bit_range(field: Field) -> tuple[int, int]:
    """Return (lowest bit, highest bit) of a field made of one run."""
    ((lo, width),) = field.runs
    return lo, lo + width - 1


def bit_ranges(layout: type[BitStruct]) -> dict[str, tuple[int, int]]:
    """Return the bits of every field a caller may set."""
    return {name: bit_range(field) for name, field in layout.FIELDS.items()}
