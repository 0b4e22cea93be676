"""Layouts made of bits in words: packets, methods, registers, launch descriptors, page-table entries.

One declaration gives the builder, the packer, the decoder, the checker, the patch sites and the reference
table:

    class SemExecute(BitStruct, source="clc86f.h"):
        operation: SemOp = bits(2, 0)                   # must be given
        release_wfi: bool = optional(20)                # 0 when not given
        _reserved = reserved(31, 21)

Undeclared bits must be zero. Both the constructor and `pack` raise `UsageError` for a value that is out of
range, negative or misaligned, and `TypeError` for a name that is no field and for a field that is missing. A
class whose fields overlap, or have other types than a field can have, raises `TypeError`.

`pack` is generated: straight-line code for each word, without large integers or an object. The constructor is
the readable implementation, and the oracle in tests.

Not here: the fields (`bitfield`); byte-addressed blocks with text and nested structs (`bytestruct`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, dataclass_transform

from hcq.errors import UsageError
from hcq.layout.base import MISSING, RawLayout, Site, Violation, field_type, named, padded, show, unknown
from hcq.layout.bitfield import REMOVED, Field, bits, pieces, refuse, split
from hcq.layout.readers import Rules, bit_reader


def compile_pack(layout: type[BitStruct]) -> Callable[..., tuple[int, ...]]:
    """Generate `pack(**fields) -> words` for a layout."""
    source, scope = pack_source(layout)
    exec(source, scope)  # noqa: S102 - the text contains only names and integers of the layout
    pack: Callable[..., tuple[int, ...]] = scope["pack"]
    pack.__qualname__ = f"{layout.__name__}.pack"
    pack.__module__ = layout.__module__
    return pack


def pack_source(layout: type[BitStruct]) -> tuple[str, dict[str, Any]]:
    """Return the source of `pack` and the names that it uses."""
    scope: dict[str, Any] = {"_layout": layout.__name__, "_refuse": refuse, "_padded": padded}
    parameters: list[str] = []
    checks: list[str] = []
    words: list[list[str]] = [[] for _ in range(layout.WORDS)]
    base = [0] * layout.WORDS
    for field in layout.FIXED.values():
        for site in pieces(field, 0, layout.WORD_BITS):
            base[site.word] |= ((field.default >> site.shift) & ((1 << site.width) - 1)) << site.lo
    for name, field in layout.FIELDS.items():
        scope[f"_f_{name}"], scope[f"_d_{name}"] = field, field.default
        parameters.append(name if field.default is MISSING else f"{name}=_d_{name}")
        variables = [name] if field.count == 1 else [f"{name}_{i}_" for i in range(field.count)]
        if field.count > 1:
            checks.append(
                f" {', '.join(variables)}, = _padded({layout.__name__!r}, {name!r}, {name}, {field.count})"
            )
        for i, variable in enumerate(variables):
            checks += _checks(field, variable)
            for site in pieces(field, i, layout.WORD_BITS):
                words[site.word].append(_term(field, variable, site.shift, site.width, site.lo))
    body = ", ".join(
        " | ".join([*terms, str(constant)] if constant or len(terms) < 2 else terms)
        for terms, constant in zip(words, base, strict=True)
    )
    head = f"def pack(*, {', '.join(parameters)}):" if parameters else "def pack():"
    return "\n".join([head, *checks, f" return ({body},)"]), scope


def _checks(field: Field, variable: str) -> list[str]:
    lowest, highest = field.bounds
    bad = f"not {lowest} <= {variable} <= {highest}"
    if field.shift:
        bad += f" or {variable} & {(1 << field.shift) - 1}"
    lines = [f" if {bad}: _refuse(_layout, _f_{field.name}, {variable})"]
    if field.signed:
        lines.append(f" {variable} &= {((1 << field.width) - 1) << field.shift}")
    return lines


def _term(field: Field, variable: str, shift: int, width: int, lo: int) -> str:
    text = f"{variable} >> {shift}" if shift else variable
    if shift + width < field.shift + field.width:
        text = f"({text}) & {(1 << width) - 1}"
    return f"({text}) << {lo}" if lo else f"({text})"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(bits, split))
class BitStruct(RawLayout):
    """Base of every layout made of words.

    Class keywords: `words` (default 1), `word_bits` (32 or 64), `source` (where the facts come from). A
    layout that inherits from another declares only the differences: a field replaces the one of the same
    name, `removed()` drops it. Objects are immutable values.
    """

    WORDS: ClassVar[int] = 1
    WORD_BITS: ClassVar[int] = 32
    SIZE: ClassVar[int] = 4
    FIELDS: ClassVar[dict[str, Field]] = {}
    """The fields that a caller gives."""
    FIXED: ClassVar[dict[str, Field]] = {}
    """The fields with one legal value."""
    pack: ClassVar[Callable[..., tuple[int, ...]]]
    """pack(**fields) -> words: generated code for hot paths, with the checks of the constructor."""

    _RULES = Rules
    __slots__ = ()
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
            if spec is REMOVED:
                fields.pop(name, None)
            elif isinstance(spec, Field):
                fields[name] = cls._declare(name, spec)
        cls._refuse_overlap(fields)
        cls.FIELDS = {name: field for name, field in fields.items() if not field.fixed}
        cls.FIXED = {name: field for name, field in fields.items() if field.fixed}
        cls._rules = None
        cls.__match_args__ = tuple(cls.FIELDS)  # type: ignore[misc, attr-defined]  # patterns read it
        from hcq.layout.bitstruct import compile_pack  # noqa: PLC0415 - the generator imports this module

        cls.pack = staticmethod(compile_pack(cls))

    @classmethod
    def _declare(cls, name: str, spec: Field) -> Field:
        base = spec.word * cls.WORD_BITS
        kind = field_type(BitStruct, cls, name, many=spec.count > 1)
        field = replace(
            spec, name=name, type=kind, word=0, runs=tuple((base + lo, width) for lo, width in spec.runs)
        )
        setattr(cls, name, property(bit_reader(field), doc=field.doc))
        return field

    @classmethod
    def _refuse_overlap(cls, fields: dict[str, Field]) -> None:
        used, size = 0, cls.WORDS * cls.WORD_BITS
        for name, field in fields.items():
            mask = field.mask()
            if min(width for _, width in field.runs) < 1 or mask.bit_count() != field.width * field.count:
                raise TypeError(
                    f"{cls.__name__}.{name}: bits {field.positions()} are empty or overlap themselves"
                )
            if used & mask or mask >> size:
                raise TypeError(
                    f"{cls.__name__}.{name}: bits {field.positions()} overlap others or exceed {size} bits"
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
                    refuse(cls.__name__, field, one)
                raw |= field.insert(one, i)
        return raw

    @classmethod
    def from_int(cls, raw: int) -> Self:
        """Decode a number.

        Its fields are not checked; `check` does that. Raises `UsageError` if it is too large.
        """
        if raw < 0 or raw >> (8 * cls.SIZE):
            raise UsageError(f"{cls.__name__} has {8 * cls.SIZE} bits, {raw:#x} does not fit")
        self = object.__new__(cls)
        self._raw = raw
        return self

    @classmethod
    def from_words(cls, words: Sequence[int]) -> Self:
        """Decode exactly `WORDS` words. Raises `UsageError` for another number of words."""
        if len(words) != cls.WORDS:
            raise UsageError(
                f"{cls.__name__} is {cls.WORDS} words of {cls.WORD_BITS} bits, {len(words)} were given"
            )
        return cls.from_bytes(b"".join(word.to_bytes(cls.WORD_BITS // 8, "little") for word in words))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, offset: int = 0) -> Self:
        """Decode `SIZE` bytes at `offset`, little endian. Raises `UsageError` for fewer bytes."""
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
        """Return a copy with other values in the named fields; undeclared bits are kept."""
        named(type(self), self.FIELDS, values)
        old = {name: getattr(self, name) for name in self.FIELDS}
        declared = sum(field.mask() for field in (*self.FIELDS.values(), *self.FIXED.values()))
        stray = self._raw & ~declared
        return type(self).from_int(self._encode(old | values) | stray)

    @classmethod
    def sites(cls, name: str, index: int = 0) -> tuple[Site, ...]:
        """Return the sites of a field (element `index`), one for each word and run of bits, for patches.

        Raises `KeyError` for a name that is no field, `UsageError` for an index out of range.
        """
        field = cls.FIELDS[name]
        if not 0 <= index < field.count:
            raise UsageError(f"{cls.__name__}.{name} has {field.count} elements, none has the index {index}")
        return tuple(pieces(field, index, cls.WORD_BITS))

    def _broken(self) -> list[Violation]:
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
        """Return the reference table of this layout as Markdown."""
        rows = []
        for name, field in sorted((cls.FIELDS | cls.FIXED).items(), key=lambda item: item[1].runs[0]):
            kind = f"= {field.default:#x}" if field.fixed else field.type.__name__
            scale = f"in units of {1 << field.shift}; " if field.shift else ""
            rows.append((field.positions(), f"`{name}`", kind, f"{scale}{field.doc}"))
        return cls._table("", ("bits", "field", "type", "meaning"), *rows)

    def __int__(self) -> int:
        return self._raw

    def __repr__(self) -> str:
        shown = []
        for name, field in self.FIELDS.items():
            value = getattr(self, name)
            if field.default is MISSING or (any(value) if field.count > 1 else value != field.default):
                shown.append(f"{name}={show(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"
