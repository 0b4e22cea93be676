"""Layouts made of bits in words: packets, methods, registers, launch descriptors, page-table entries.

One declaration gives the builder, the packer, the decoder, the checker, the patch sites and the reference
table:

    class SemExecute(BitStruct, source="clc86f.h"):
        operation: SemOp = bits(2, 0)                   # must be given
        release_wfi: bool = optional(20)                # 0 when not given
        _reserved = reserved(31, 21)

Bits that no field declares must be zero. A value that is out of range, negative or misaligned is refused by
the object and by `pack` alike. Not here: byte-addressed parameter blocks with text and nested structs
(`hcq.layout.bytestruct`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from hcq.errors import UsageError
from hcq.layout.base import MISSING, Site, Violation, field_type, named, padded, show, typed, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Field:
    """One or more runs of bits that hold a number, or `count` such fields at a stride."""

    name: str
    word: int
    runs: tuple[tuple[int, int], ...]
    """(lowest bit, width) counted from bit 0 of the layout, the least significant run first."""
    type: type[Any] = int
    default: Any = MISSING
    fixed: bool = False
    shift: int = 0
    """Low bits that the hardware drops: 8 for an address in units of 256 bytes."""
    signed: bool = False
    count: int = 1
    stride: int = 0
    """Bits from one place to the next, when `count` > 1."""
    doc: str = ""

    @property
    def width(self) -> int:
        """Bits of one place."""
        return sum(width for _, width in self.runs)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value, in the caller's units."""
        if self.signed:
            half = 1 << self.width - 1
            return -half << self.shift, (half - 1) << self.shift
        return 0, ((1 << self.width) - 1) << self.shift

    def mask(self) -> int:
        """All bits that the field covers, as a number."""
        return sum(
            ((1 << width) - 1) << (lo + i * self.stride) for lo, width in self.runs for i in range(self.count)
        )

    def insert(self, value: int, index: int = 0) -> int:
        """Return the layout's bits for a checked `value` at place `index`."""
        raw, left = 0, value >> self.shift
        for lo, width in self.runs:
            raw |= (left & ((1 << width) - 1)) << (lo + index * self.stride)
            left >>= width
        return raw

    def extract(self, raw: int, index: int = 0) -> int:
        """Return the value at place `index` of the layout's bits `raw`."""
        value = at = 0
        for lo, width in self.runs:
            value |= ((raw >> (lo + index * self.stride)) & ((1 << width) - 1)) << at
            at += width
        if self.signed and value >> (at - 1):
            value -= 1 << at
        return value << self.shift

    def decode(self, raw: int) -> Any:
        """Return the typed value, or the tuple of them."""
        if self.count == 1:
            return typed(self.type, self.extract(raw))
        return tuple(typed(self.type, self.extract(raw, i)) for i in range(self.count))

    def places(self) -> str:
        """Return the positions of the bits, for the reference."""
        text = " and ".join(f"{lo + width - 1}:{lo}" if width > 1 else f"{lo}" for lo, width in self.runs)
        return f"{text} (+{self.stride}·i, i < {self.count})" if self.count > 1 else text


def bits(
    hi: int,
    lo: int | None = None,
    *,
    word: int = 0,
    default: Any = MISSING,
    shift: int = 0,
    signed: bool = False,
    count: int = 1,
    stride: int = 0,
    doc: str = "",
) -> Any:
    """Declare bits [hi:lo], both included, counted from bit 0 of word `word`; `hi` may lie in a later word.

    Without `default` the field must be given. `count` and `stride` (bits) make it indexed: annotate it
    `tuple[T, ...]`; fewer values than places may be given, the rest is 0.
    """
    low = hi if lo is None else lo
    return Field(
        "",
        word,
        ((low, hi - low + 1),),
        default=default,
        shift=shift,
        signed=signed,
        count=count,
        stride=stride,
        doc=doc,
    )


def optional(
    hi: int,
    lo: int | None = None,
    *,
    word: int = 0,
    shift: int = 0,
    signed: bool = False,
    count: int = 1,
    stride: int = 0,
    doc: str = "",
) -> Any:
    """Declare bits that are 0 when not given; otherwise like `bits`."""
    zero = () if count > 1 else 0
    return bits(
        hi, lo, word=word, default=zero, shift=shift, signed=signed, count=count, stride=stride, doc=doc
    )


def split(
    *runs: tuple[int, int],
    default: Any = MISSING,
    shift: int = 0,
    signed: bool = False,
    count: int = 1,
    stride: int = 0,
    doc: str = "",
) -> Any:
    """Declare one number that lies in several runs (hi, lo) of bits, the least significant first."""
    return Field(
        "",
        0,
        tuple((lo, hi - lo + 1) for hi, lo in runs),
        default=default,
        shift=shift,
        signed=signed,
        count=count,
        stride=stride,
        doc=doc,
    )


def const(hi: int, lo: int, value: int, *, word: int = 0, doc: str = "") -> Any:
    """Declare bits with one legal value; write it without an annotation."""
    return Field("", word, ((lo, hi - lo + 1),), default=value, fixed=True, doc=doc)


def reserved(hi: int, lo: int | None = None, *, word: int = 0) -> Any:
    """Declare bits that must be zero; undeclared bits must be, too, but these are documented."""
    return const(hi, hi if lo is None else lo, 0, word=word)


def removed() -> Any:
    """Drop the field that a base layout declares under this name; write it without an annotation."""
    return _REMOVED


_REMOVED = Field("", 0, ((0, 1),), fixed=True)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(bits, split))
class BitStruct:
    """Base of every layout made of words.

    Class keywords: `words` (default 1), `word_bits` (32 or 64), `source` (where the facts come from). A
    layout that inherits from another is the older one's diff: fields of the same name replace, `removed()`
    drops. Objects are immutable values.
    """

    WORDS: ClassVar[int] = 1
    WORD_BITS: ClassVar[int] = 32
    SIZE: ClassVar[int] = 4
    """Bytes."""
    SOURCE: ClassVar[str] = ""
    FIELDS: ClassVar[dict[str, Field]] = {}
    """The fields that a caller may give."""
    FIXED: ClassVar[dict[str, Field]] = {}
    """The fields with one legal value."""
    pack: ClassVar[Callable[..., tuple[int, ...]]]
    """pack(**fields) -> words, generated, without making an object: the way of hot paths. Same checks, same
    words."""

    __slots__ = ("_raw",)
    _raw: int

    def __init_subclass__(
        cls, *, words: int | None = None, word_bits: int | None = None, source: str = "", **kw: Any
    ) -> None:
        super().__init_subclass__(**kw)
        cls.WORDS = cls.WORDS if words is None else words
        cls.WORD_BITS = cls.WORD_BITS if word_bits is None else word_bits
        cls.SIZE = cls.WORDS * cls.WORD_BITS // 8
        cls.SOURCE = source or cls.SOURCE
        fields = cls.FIELDS | cls.FIXED
        for name, spec in list(vars(cls).items()):
            if isinstance(spec, Field):
                fields.pop(name, None)
                if spec is not _REMOVED:
                    fields[name] = cls._declare(name, spec)
        cls._refuse_overlap(fields)
        cls.FIELDS = {name: field for name, field in fields.items() if not field.fixed}
        cls.FIXED = {name: field for name, field in fields.items() if field.fixed}
        cls.__match_args__ = tuple(cls.FIELDS)  # type: ignore[misc, attr-defined]  # patterns read it
        from hcq.layout.bitpack import compile_pack  # noqa: PLC0415 - the generator imports this module

        cls.pack = staticmethod(compile_pack(cls))

    @classmethod
    def _declare(cls, name: str, spec: Field) -> Field:
        if hasattr(BitStruct, name):
            raise TypeError(f"{cls.__name__}.{name}: the name belongs to every layout; choose another")
        base = spec.word * cls.WORD_BITS
        annotation = cls.__annotations__.get(name)
        kind = int if spec.fixed or annotation is None else field_type(cls, annotation, many=spec.count > 1)
        field = replace(
            spec, name=name, type=kind, word=0, runs=tuple((base + lo, width) for lo, width in spec.runs)
        )
        setattr(cls, name, property(lambda self: field.decode(self._raw), doc=field.doc))
        return field

    @classmethod
    def _refuse_overlap(cls, fields: dict[str, Field]) -> None:
        used, size = 0, cls.WORDS * cls.WORD_BITS
        for name, field in fields.items():
            mask = field.mask()
            if min(width for _, width in field.runs) < 1 or mask.bit_count() != field.width * field.count:
                raise TypeError(
                    f"{cls.__name__}.{name}: bits {field.places()} are empty or overlap themselves"
                )
            if used & mask or mask >> size:
                raise TypeError(
                    f"{cls.__name__}.{name}: bits {field.places()} overlap others or exceed {size} bits"
                )
            used |= mask

    def __init__(self, **values: Any) -> None:
        self._raw = self._encode(values)

    @classmethod
    def _encode(cls, values: dict[str, Any]) -> int:
        named(cls, cls.FIELDS, values)
        raw = 0
        for field in cls.FIXED.values():
            raw |= field.insert(field.default)
        for name, field in cls.FIELDS.items():
            value = values.get(name, field.default)
            if value is MISSING:
                raise TypeError(f"{cls.__name__} needs {name}")
            for i, one in enumerate(
                (value,) if field.count == 1 else padded(cls.__name__, name, value, field.count)
            ):
                lowest, highest = field.bounds
                if not lowest <= one <= highest or one & ((1 << field.shift) - 1):
                    refuse(cls, field, one)
                raw |= field.insert(one, i)
        return raw

    @classmethod
    def from_int(cls, raw: int) -> Self:
        """Decode a number; nothing is checked, `check` does."""
        if raw < 0 or raw >> (8 * cls.SIZE):
            raise UsageError(f"{cls.__name__} has {8 * cls.SIZE} bits, {raw:#x} does not fit")
        self = object.__new__(cls)
        self._raw = raw
        return self

    @classmethod
    def from_words(cls, words: Sequence[int]) -> Self:
        """Decode exactly `WORDS` words."""
        if len(words) != cls.WORDS:
            raise UsageError(
                f"{cls.__name__} is {cls.WORDS} words of {cls.WORD_BITS} bits, {len(words)} were given"
            )
        return cls.from_bytes(b"".join(word.to_bytes(cls.WORD_BITS // 8, "little") for word in words))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, offset: int = 0) -> Self:
        """Decode `SIZE` bytes at `offset`, little endian."""
        part = bytes(data[offset : offset + cls.SIZE])
        if len(part) != cls.SIZE:
            raise UsageError(f"{cls.__name__} is {cls.SIZE} bytes, {len(part)} are left at offset {offset}")
        return cls.from_int(int.from_bytes(part, "little"))

    def to_words(self) -> list[int]:
        """Return the words, the lowest first."""
        mask = (1 << self.WORD_BITS) - 1
        return [(self._raw >> (self.WORD_BITS * i)) & mask for i in range(self.WORDS)]

    def to_bytes(self) -> bytes:
        """Return the `SIZE` bytes, little endian."""
        return self._raw.to_bytes(self.SIZE, "little")

    def replace(self, **values: Any) -> Self:
        """Return a copy with other values in the named fields; bits of no field are kept."""
        named(type(self), self.FIELDS, values)
        old = {name: getattr(self, name) for name in self.FIELDS}
        declared = sum(field.mask() for field in (*self.FIELDS.values(), *self.FIXED.values()))
        stray = self._raw & ~declared
        return type(self).from_int(self._encode(old | values) | stray)

    @classmethod
    def sites(cls, name: str, index: int = 0) -> tuple[Site, ...]:
        """Return the sites of a field (place `index`), one a word, so that it can be patched later."""
        field = cls.FIELDS[name]
        if not 0 <= index < field.count:
            raise UsageError(f"{cls.__name__}.{name} has {field.count} places, there is no place {index}")
        return tuple(pieces(cls, field, index))

    def check(self) -> list[Violation]:
        """Return what a hardware manual would object to: fixed and undeclared bits, unknown enum values."""
        struct, out = type(self).__name__, []
        declared = 0
        for name, field in self.FIXED.items():
            declared |= field.mask()
            seen = field.extract(self._raw)
            if seen != field.default:
                out.append(Violation(struct, name, seen, f"must be {field.default:#x}"))
        for name, field in self.FIELDS.items():
            declared |= field.mask()
            for i in range(field.count):
                seen = field.extract(self._raw, i)
                rule = unknown(field.type, seen)
                if rule:
                    out.append(Violation(struct, name if field.count == 1 else f"{name}[{i}]", seen, rule))
        stray = self._raw & ~declared
        while stray:
            low = (stray & -stray).bit_length() - 1
            out.append(
                Violation(
                    struct,
                    f"bit {low % self.WORD_BITS} of word {low // self.WORD_BITS}",
                    1,
                    "no field declares it, it must be 0",
                )
            )
            stray &= stray - 1
        return out

    @classmethod
    def markdown(cls) -> str:
        """Return the reference table of this layout."""
        from inspect import cleandoc  # noqa: PLC0415 - slow to import, and only the reference needs it

        rows = [f"### {cls.__name__}", "", cleandoc(cls.__doc__ or ""), ""]
        if cls.SOURCE:
            rows += [f"Source: {cls.SOURCE}", ""]
        rows += ["| bits | field | type | meaning |", "|--|--|--|--|"]
        for name, field in sorted((cls.FIELDS | cls.FIXED).items(), key=lambda item: item[1].runs[0]):
            kind = f"= {field.default:#x}" if field.fixed else field.type.__name__
            scale = f"in units of {1 << field.shift}; " if field.shift else ""
            rows.append(f"| {field.places()} | `{name}` | {kind} | {scale}{field.doc} |")
        return "\n".join(rows)

    def __int__(self) -> int:
        return self._raw

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, BitStruct) and other._raw == self._raw

    def __hash__(self) -> int:
        return hash((type(self), self._raw))

    def __repr__(self) -> str:
        shown = []
        for name, field in self.FIELDS.items():
            value = getattr(self, name)
            if field.default is MISSING or (any(value) if field.count > 1 else value != field.default):
                shown.append(f"{name}={show(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def pieces(layout: type[BitStruct], field: Field, index: int) -> Iterator[Site]:
    """Cut the runs of one place at word boundaries."""
    at = field.shift
    for lo, width in field.runs:
        bit, left = lo + index * field.stride, width
        while left:
            word, low = divmod(bit, layout.WORD_BITS)
            take = min(left, layout.WORD_BITS - low)
            yield Site(word, low, take, at)
            bit, left, at = bit + take, left - take, at + take


def refuse(layout: type[BitStruct], field: Field, value: int) -> None:
    """Raise the error for a value that does not fit."""
    lowest, highest = field.bounds
    wanted = f"{lowest:#x} to {highest:#x}" + (f" in steps of {1 << field.shift}" if field.shift else "")
    raise UsageError(
        f"{layout.__name__}.{field.name} = {value:#x} does not fit {field.width} bits; wanted: {wanted}"
    )
