"""Fields of bit layouts, and the functions that declare them: `bits`, `optional`, `split`, `const`, ...

Not here: the layouts that fields belong to (`bitstruct`); fields at byte offsets (`bytestruct`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from hcq.errors import UsageError
from hcq.layout.base import MISSING, Site, typed


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
    """Bits from one element to the next, when `count` > 1."""
    doc: str = ""

    width: int = field(init=False)
    """Number of bits of one element."""
    bounds: tuple[int, int] = field(init=False)
    """The least and the greatest value, in units of the caller."""

    def __post_init__(self) -> None:
        """Compute what follows from the runs, once."""
        width = sum([width for _, width in self.runs])
        half = 1 << width - 1 if self.signed else 0
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "bounds", (-half << self.shift, ((1 << width) - half - 1) << self.shift))

    def mask(self) -> int:
        """Return the mask of all bits of the field."""
        return sum(
            ((1 << width) - 1) << (lo + i * self.stride) for lo, width in self.runs for i in range(self.count)
        )

    def insert(self, value: int, index: int = 0) -> int:
        """Return the bits of the layout for a checked `value` of element `index`."""
        raw, left = 0, value >> self.shift
        for lo, width in self.runs:
            raw |= (left & ((1 << width) - 1)) << (lo + index * self.stride)
            left >>= width
        return raw

    def extract(self, raw: int, index: int = 0) -> int:
        """Return the value of element `index` in the bits `raw` of the layout."""
        if len(self.runs) == 1 and not self.signed:
            lo, width = self.runs[0]
            return (raw >> lo + index * self.stride & (1 << width) - 1) << self.shift
        value = at = 0
        for lo, width in self.runs:
            value |= ((raw >> (lo + index * self.stride)) & ((1 << width) - 1)) << at
            at += width
        if self.signed and value >> (at - 1):
            value -= 1 << at
        return value << self.shift

    def decode(self, raw: int) -> Any:
        """Return the typed value; a tuple when `count` > 1."""
        if self.count == 1:
            return typed(self.type, self.extract(raw))
        return tuple(typed(self.type, self.extract(raw, i)) for i in range(self.count))

    def positions(self) -> str:
        """Return the bit positions as text, for the reference."""
        text = " and ".join(f"{lo + width - 1}:{lo}" if width > 1 else f"{lo}" for lo, width in self.runs)
        return f"{text} (+{self.stride}·i, i < {self.count})" if self.count > 1 else text


class Options(TypedDict, total=False):
    """The arguments that a field may have besides its bits; see `Field`."""

    default: Any
    shift: int
    signed: bool
    count: int
    stride: int
    doc: str


def bits(hi: int, lo: int | None = None, *, word: int = 0, **options: Unpack[Options]) -> Any:
    """Declare bits [hi:lo], both included, counted from bit 0 of word `word`; `hi` may lie in a later word.

    Without `default` the field must be given. `count` and `stride` (bits) make it indexed: annotate it
    `tuple[T, ...]`; fewer than `count` values may be given, the rest is 0.
    """
    low = hi if lo is None else lo
    return Field("", word, ((low, hi - low + 1),), **options)


def optional(hi: int, lo: int | None = None, *, word: int = 0, **options: Unpack[Options]) -> Any:
    """Declare bits that are 0 when not given; otherwise like `bits`. One bit without `lo`."""
    assert "default" not in options, "optional bits are 0"
    options["default"] = () if options.get("count", 1) > 1 else 0
    return bits(hi, lo, word=word, **options)


def split(*runs: tuple[int, int], **options: Unpack[Options]) -> Any:
    """Declare one number that lies in several runs (hi, lo) of bits, the least significant first."""
    return Field("", 0, tuple((lo, hi - lo + 1) for hi, lo in runs), **options)


def const(hi: int, lo: int, value: int, *, word: int = 0, doc: str = "") -> Any:
    """Declare bits with one legal value. The field has no annotation."""
    return Field("", word, ((lo, hi - lo + 1),), default=value, fixed=True, doc=doc)


def reserved(hi: int, lo: int | None = None, *, word: int = 0) -> Any:
    """Declare bits that must be zero, one without `lo`. Undeclared ones must be zero, but have no text."""
    return const(hi, hi if lo is None else lo, 0, word=word)


def removed() -> Any:
    """Remove the field of a base layout with this name. The field has no annotation."""
    return REMOVED


REMOVED = Field("", 0, ((0, 1),), fixed=True)
"""The mark of a removed field; it is compared by identity."""


def pieces(field: Field, index: int, word_bits: int) -> Iterator[Site]:
    """Yield the sites of one element: its runs, split at word boundaries."""
    at = field.shift
    for lo, width in field.runs:
        bit, left = lo + index * field.stride, width
        while left:
            word, low = divmod(bit, word_bits)
            take = min(left, word_bits - low)
            yield Site(word, low, take, at)
            bit, left, at = bit + take, left - take, at + take


def refuse(layout: str, field: Field, value: int) -> None:
    """Raise `UsageError` for a value that does not fit a field."""
    lowest, highest = field.bounds
    wanted = f"{lowest:#x} to {highest:#x}" + (f" in steps of {1 << field.shift}" if field.shift else "")
    raise UsageError(f"{layout}.{field.name} = {value:#x} does not fit {field.width} bits; wanted: {wanted}")
