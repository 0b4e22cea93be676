"""Layouts made of bytes: parameter blocks of system calls, notifiers, image headers.

    class Control(Struct, size=32, source="nvos.h"):
        client: int = u32(0x00)
        object: int = u32(0x04)
        params: int = u64(0x10, doc="address of the parameters")
        status: Status = u32(0x1C)

Every field is 0 (empty) when not given, as in C. Little endian. Objects are immutable values; a block that
the kernel writes to is a `bytearray`: `block = bytearray(Control(...).to_bytes())`, then
`Control.from_bytes(block)` reads the reply and `Control.store(block, status=...)` writes single fields.

Not here: bits within words (`bitstruct`), though a field may nest a `BitStruct`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self, dataclass_transform

from hcq.errors import UsageError
from hcq.layout.base import RawLayout, Violation, field_type, named, padded, show, typed, unknown
from hcq.layout.readers import ByteRules, byte_reader


class Nestable(Protocol):
    """A layout that a `Struct` can contain: another `Struct` or a `BitStruct`."""

    SIZE: ClassVar[int]

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, offset: int = 0) -> Self:
        """Decode `SIZE` bytes at `offset`."""

    def to_bytes(self) -> bytes:
        """Return the `SIZE` bytes."""

    def check(self) -> list[Violation]:
        """Return the broken rules."""


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a `Struct`, or `count` of them at a stride."""

    name: str
    offset: int
    """Bytes from the start."""
    size: int
    """Bytes of one element."""
    kind: Literal["int", "text", "blob", "nested"]
    code: str = ""
    """The `struct` code of an integer."""
    type: type[Any] = int
    count: int = 1
    stride: int = 0
    doc: str = ""

    @property
    def end(self) -> int:
        """The offset of the first byte after the last element."""
        return self.offset + self.stride * (self.count - 1) + self.size

    def encode(self, struct_name: str, value: Any) -> bytes:
        """Return the bytes of one element. Raises `UsageError` for a value that does not fit."""
        label = f"{struct_name}.{self.name}"
        if self.kind == "int":
            try:
                return struct.pack(f"<{self.code}", value)
            except struct.error:
                sign = "signed" if self.code.islower() else "unsigned"
                raise UsageError(f"{label} = {value!r} does not fit {8 * self.size} bits, {sign}") from None
        if self.kind == "nested":
            if type(value) is not self.type:
                raise UsageError(f"{label} takes a {self.type.__name__}, not {value!r}")
            return bytes(value.to_bytes())
        data = value.encode() if self.kind == "text" else bytes(value)
        # A text ends with at least one NUL, as C expects.
        if len(data) > self.size - (self.kind == "text") or (self.kind == "text" and b"\0" in data):
            raise UsageError(f"{label} has {self.size} bytes, {value!r} does not fit")
        return data.ljust(self.size, b"\0")

    def decode_one(self, data: bytes | bytearray | memoryview, at: int) -> Any:
        """Return the typed value of the element at byte `at`."""
        if self.kind == "nested":
            return self.type.from_bytes(data, at)
        if self.kind == "int":
            return typed(self.type, struct.unpack_from(f"<{self.code}", data, at)[0])
        part = bytes(data[at : at + self.size])
        return part.split(b"\0", 1)[0].decode(errors="replace") if self.kind == "text" else part

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        """Return the typed value, or the tuple of them."""
        if self.count == 1:
            return self.decode_one(data, self.offset)
        return tuple(self.decode_one(data, self.offset + i * self.stride) for i in range(self.count))

    def pieces(self, value: Any, struct_name: str) -> list[tuple[int, bytes]]:
        """Return (offset, bytes) of the parts of a value. Raises `UsageError` for too many elements."""
        if self.count == 1:
            return [(self.offset, self.encode(struct_name, value))]
        parts = [self.encode(struct_name, one) for one in value]
        parts += padded(struct_name, self.name, parts, self.count, bytes(self.size))[len(parts) :]
        if self.stride == self.size:
            return [(self.offset, b"".join(parts))]
        return [(self.offset + i * self.stride, part) for i, part in enumerate(parts)]


def _integer(code: str) -> Callable[..., Any]:
    size = struct.calcsize(f"<{code}")

    def declare(offset: int, *, count: int = 1, stride: int = 0, doc: str = "") -> Any:
        return Member("", offset, size, "int", code, count=count, stride=stride or size, doc=doc)

    sign = "signed" if code.islower() else "unsigned"
    declare.__doc__ = f"Declare a {sign} integer of {size} bytes; `count` makes it a tuple."
    return declare


u8, u16, u32, u64 = _integer("B"), _integer("H"), _integer("I"), _integer("Q")
i8, i16, i32, i64 = _integer("b"), _integer("h"), _integer("i"), _integer("q")


def chars(offset: int, size: int, *, count: int = 1, stride: int = 0, doc: str = "") -> Any:
    """Declare a fixed char array, NUL-terminated; annotate it `str`."""
    return Member("", offset, size, "text", count=count, stride=stride or size, doc=doc)


def blob(offset: int, size: int, *, count: int = 1, stride: int = 0, doc: str = "") -> Any:
    """Declare a fixed array of bytes, zero-filled when shorter; annotate it `bytes`."""
    return Member("", offset, size, "blob", count=count, stride=stride or size, doc=doc)


def nested(offset: int, layout: type[Nestable], *, count: int = 1, stride: int = 0, doc: str = "") -> Any:
    """Declare another layout inside this one; annotate it with that layout."""
    return Member(
        "", offset, layout.SIZE, "nested", type=layout, count=count, stride=stride or layout.SIZE, doc=doc
    )


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Struct(RawLayout):
    """Base of every layout with fields at byte offsets.

    Class keywords: `size` (bytes, required unless inherited), `source`. A layout that inherits from another
    declares only the differences: a field replaces the one of the same name. Fields may not overlap: each
    variant of a union is a class of its own. A declaration that breaks a rule raises `TypeError`, and so does
    a call with a name that is no field. Bytes shorter than the layout raise `UsageError`, and so does a value
    that does not fit its field.
    """

    FIELDS: ClassVar[dict[str, Member]] = {}

    _RULES = ByteRules
    __slots__ = ()
    _raw: bytes

    def __init_subclass__(cls, *, size: int | None = None, source: str = "", **kw: Any) -> None:
        super().__init_subclass__(**kw)
        cls.SIZE = cls.SIZE if size is None else size
        cls.SOURCE = source or cls.SOURCE
        fields = dict(cls.FIELDS)
        for name, spec in list(vars(cls).items()):
            if isinstance(spec, Member):
                fields[name] = cls._declare(name, spec)
        cls.FIELDS = dict(sorted(fields.items(), key=lambda item: item[1].offset))
        cls._rules = None
        covered = bytearray(cls.SIZE)
        for name, member in cls.FIELDS.items():
            for i in range(member.count):
                start = member.offset + i * member.stride
                if start + member.size > cls.SIZE or any(covered[start : start + member.size]):
                    raise TypeError(
                        f"{cls.__name__}.{name} at {start:#x} overlaps others or exceeds {cls.SIZE} bytes"
                    )
                covered[start : start + member.size] = b"\1" * member.size
        cls.__match_args__ = tuple(cls.FIELDS)  # type: ignore[misc, attr-defined]  # patterns read it

    @classmethod
    def _declare(cls, name: str, spec: Member) -> Member:
        kind = field_type(Struct, cls, name, many=spec.count > 1)
        if spec.kind == "nested" and kind is not spec.type:
            raise TypeError(
                f"{cls.__name__}.{name}: annotated {kind.__name__}, declared {spec.type.__name__}"
            )
        member = replace(spec, name=name, type=kind)
        setattr(cls, name, property(byte_reader(member), doc=member.doc))
        return member

    def __init__(self, **values: Any) -> None:
        block = bytearray(self.SIZE)
        self.store(block, **values)
        self._raw = bytes(block)

    @classmethod
    def pack(cls, **values: Any) -> bytes:
        """Return the bytes of a struct with these values; the same as `cls(...).to_bytes()`."""
        block = bytearray(cls.SIZE)
        cls.store(block, **values)
        return bytes(block)

    @classmethod
    def store(cls, block: bytearray | memoryview, offset: int = 0, /, **values: Any) -> None:
        """Write the named fields into a block in place.

        Raises `UsageError`, and writes nothing, if one is invalid.
        """
        named(cls, cls.FIELDS, values)
        if len(block) - offset < cls.SIZE:
            raise UsageError(
                f"{cls.__name__} is {cls.SIZE} bytes, {len(block) - offset} are left at offset {offset}"
            )
        parts = [cls.FIELDS[name].pieces(value, cls.__name__) for name, value in values.items()]
        for at, data in itertools.chain.from_iterable(parts):
            block[offset + at : offset + at + len(data)] = data

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, offset: int = 0) -> Self:
        """Decode `SIZE` bytes at `offset`. Fields are not checked; `check` does that."""
        part = bytes(data[offset : offset + cls.SIZE])
        if len(part) != cls.SIZE:
            raise UsageError(f"{cls.__name__} is {cls.SIZE} bytes, {len(part)} are left at offset {offset}")
        self = object.__new__(cls)
        self._raw = part
        return self

    def to_bytes(self) -> bytes:
        """Return the `SIZE` bytes."""
        return self._raw

    def replace(self, **values: Any) -> Self:
        """Return a copy with other values in the named fields."""
        block = bytearray(self._raw)
        self.store(block, **values)
        return type(self).from_bytes(block)

    @classmethod
    def offset_of(cls, name: str, index: int = 0) -> int:
        """Return the byte offset of a field (element `index`).

        Raises `KeyError` and `UsageError` if there is none.
        """
        member = cls.FIELDS[name]
        if not 0 <= index < member.count:
            raise UsageError(f"{cls.__name__}.{name} has {member.count} elements, none has the index {index}")
        return member.offset + index * member.stride

    def _broken(self) -> list[Violation]:
        struct_name, out = type(self).__name__, []
        stray = bytearray(self._raw)
        for name, member in self.FIELDS.items():
            for i in range(member.count):
                at = member.offset + i * member.stride
                stray[at : at + member.size] = bytes(member.size)
                label = name if member.count == 1 else f"{name}[{i}]"
                value = member.decode_one(self._raw, at)
                if member.kind == "nested":
                    out += [
                        Violation(struct_name, f"{label}.{v.field}", v.value, v.rule) for v in value.check()
                    ]
                elif member.kind == "int" and (rule := unknown(member.type, int(value))):
                    out.append(Violation(struct_name, label, int(value), rule))
        out += [
            Violation(struct_name, f"byte {i:#x}", byte, "no field declares it, it must be 0")
            for i, byte in enumerate(stray)
            if byte
        ]
        return out

    @classmethod
    def markdown(cls) -> str:
        """Return the reference table of this layout."""
        rows = []
        for name, member in cls.FIELDS.items():
            many = f"[{member.count}]" if member.count > 1 else ""
            kind = f"{member.type.__name__}{many}"
            rows.append((f"{member.offset:#x}", member.size, f"`{name}`", kind, member.doc))
        return cls._table(f" ({cls.SIZE} bytes)", ("offset", "size", "field", "type", "meaning"), *rows)

    def __repr__(self) -> str:
        shown = []
        for name, member in self.FIELDS.items():
            value = getattr(self, name)
            if any(self._raw[member.offset : member.end]):
                shown.append(f"{name}={show(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"
