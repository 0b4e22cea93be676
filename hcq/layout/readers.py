"""Readers of fields: for each field a function made for its bits and type.

`Field.decode` and `Member.decode_one` are the readable implementations, and the oracles in tests. The
functions here are fast; they are the properties of layouts. `Rules` and `ByteRules` are the fast half of
`check`.

Not here: the layouts (`bitstruct`, `bytestruct`).
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Any

from hcq.layout.base import typed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.layout.bitfield import Field
    from hcq.layout.bitstruct import BitStruct
    from hcq.layout.bytestruct import Member, Struct


def bit_reader(field: Field) -> Callable[[BitStruct], Any]:
    """Return the function from a layout to the typed value of `field`; a tuple when `count` > 1."""
    if len(field.runs) > 1 or field.signed:
        return lambda layout: field.decode(layout._raw)  # noqa: SLF001 - the property of that class
    lo, mask, shift = field.runs[0][0], (1 << field.width) - 1, field.shift
    convert = _converter(field.type, mask << shift)
    if field.count > 1:
        return _tuple_reader(field, mask, convert)
    if convert is not None:
        to = convert
        return lambda layout: to((layout._raw >> lo & mask) << shift)  # noqa: SLF001 - as above
    if shift:
        return lambda layout: (layout._raw >> lo & mask) << shift  # noqa: SLF001 - as above
    return lambda layout: layout._raw >> lo & mask  # noqa: SLF001 - as above


def _tuple_reader(
    field: Field, mask: int, convert: Callable[[int], Any] | None
) -> Callable[[BitStruct], tuple[Any, ...]]:
    lows = [field.runs[0][0] + i * field.stride for i in range(field.count)]
    shift, to = field.shift, convert

    def numbers(layout: BitStruct) -> tuple[Any, ...]:
        raw = layout._raw  # noqa: SLF001 - the property of that class
        return tuple([(raw >> lo & mask) << shift for lo in lows])

    return numbers if to is None else lambda layout: tuple(map(to, numbers(layout)))


def byte_reader(member: Member) -> Callable[[Struct], Any]:
    """Return the function from a layout to the typed value of `member`; a tuple when `count` > 1."""
    if member.kind != "int":
        return lambda layout: member.decode(layout._raw)  # noqa: SLF001 - the property of that class
    dense = member.stride == member.size
    if member.count > 1 and not dense:
        return lambda layout: member.decode(layout._raw)  # noqa: SLF001 - as above
    unpack, at = struct.Struct(f"<{member.count}{member.code}").unpack_from, member.offset
    convert = _converter(member.type, (1 << 8 * member.size) - 1)
    if member.count > 1:
        if convert is None:
            return lambda layout: unpack(layout._raw, at)  # noqa: SLF001 - as above
        each = convert
        return lambda layout: tuple(map(each, unpack(layout._raw, at)))  # noqa: SLF001 - as above
    if convert is None:
        return lambda layout: unpack(layout._raw, at)[0]  # noqa: SLF001 - as above
    to = convert
    return lambda layout: to(unpack(layout._raw, at)[0])  # noqa: SLF001 - as above


def _converter(kind: type[Any], highest: int) -> Callable[[int], Any] | None:
    """Return the function from a number to `kind`, as `base.typed`; None for plain numbers."""
    if kind is int:
        return None
    if kind is bool and highest == 1:
        return bool
    if not issubclass(kind, enum.Enum):
        return lambda raw: typed(kind, raw)
    known = kind._value2member_map_

    def member(raw: int) -> Any:
        found = known.get(raw)
        return typed(kind, raw) if found is None else found

    return member


class Rules:
    """The rules of one bit layout, prepared for one pass over a value."""

    __slots__ = ("_checked", "_fixed", "_mask")

    def __init__(self, layout: type[BitStruct]) -> None:
        free = sum(field.mask() for field in layout.FIELDS.values())
        self._mask = ((1 << 8 * layout.SIZE) - 1) & ~free
        """Bits with one legal value: those of fixed fields, and those that no field declares."""
        self._fixed = sum(field.insert(field.default) for field in layout.FIXED.values())
        self._checked = [
            (field, i, *found)
            for field in layout.FIELDS.values()
            if (found := _legal(field.type, field.width == 1))
            for i in range(field.count)
        ]
        """(field, element, legal values, legal bits) of each element with illegal values; see `_legal`."""

    def hold(self, raw: int) -> bool:
        """Return whether a value breaks no rule; False also where only `check` can decide."""
        if raw & self._mask != self._fixed:
            return False
        for field, index, known, flags in self._checked:
            value = field.extract(raw, index)
            if value & ~flags if known is None else value not in known:
                return False
        return True


class ByteRules:
    """The rules of one byte layout. A nested layout is checked by its own `check`."""

    __slots__ = ("_checked", "_free", "_nested")

    def __init__(self, layout: type[Struct]) -> None:
        free, self._checked, self._nested = bytearray(layout.SIZE), [], []
        for member in layout.FIELDS.values():
            found = _legal(member.type, one_bit=False) if member.kind == "int" else None
            for i in range(member.count):
                at = member.offset + i * member.stride
                free[at : at + member.size] = b"\xff" * member.size
                if found:
                    self._checked.append((struct.Struct(f"<{member.code}").unpack_from, at, *found))
                elif member.kind == "nested":
                    self._nested.append((member, at))
        self._free = ~int.from_bytes(free, "little")

    def hold(self, raw: bytes) -> bool:
        """Return whether the bytes break no rule; False also where only `check` can decide."""
        if int.from_bytes(raw, "little") & self._free:
            return False
        for unpack, at, known, flags in self._checked:
            (value,) = unpack(raw, at)
            if value & ~flags if known is None else value not in known:
                return False
        return not any(member.type.from_bytes(raw, at).check() for member, at in self._nested)


def _legal(kind: type[Any], one_bit: bool) -> tuple[Any, int] | None:  # noqa: FBT001 - private, two callers
    """Return (legal values, 0) of a type, (None, legal bits) of flags, or None if all values are legal."""
    if kind is bool:
        return None if one_bit else (frozenset((0, 1)), 0)
    if issubclass(kind, enum.Flag):
        flags = sum(member.value for member in kind)
        return None, flags
    if issubclass(kind, enum.Enum):
        return frozenset(member.value for member in kind.__members__.values()), 0
    return None
