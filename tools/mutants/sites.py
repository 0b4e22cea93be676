"""What can be changed in what a driver submits: places, found by the layouts, and the changes made there.

Nothing here is chosen by hand: every field of every header, method, ring entry and launch descriptor, and
every member of every ioctl's structures, is a site.

Next: `bells`, `calls` and `contents`, which use these changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from drivers.nv.layouts import compute, dma, host
from drivers.nv.layouts.gpfifo import HOST_METHODS_END, GpfifoEntry, Method, MethodHeader, SecOp, Subchannel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hcq.layout import BitStruct, Struct

Space = Literal[
    "word",
    "entry",
    "packet",
    "bell",
    "store",
    "fence",
    "qmd",
    "memory",
    "ioctl",
    "params",
    "call",
    "outer",
    "map",
]
Runs = tuple[tuple[int, int], ...]
Event = Literal["ioctl", "map", "fence", "bell"]
Place = tuple[Event, int]
"""Where a mutant is made: the number of the ioctl, mapping, fence or doorbell."""
Kind = Literal["ioctl", "stream", "launch", "memory"]
KINDS: Final[tuple[Kind, ...]] = ("ioctl", "stream", "launch", "memory")

_EVENTS: Final[Mapping[Space, Event]] = {
    "ioctl": "ioctl", "params": "ioctl", "call": "ioctl", "outer": "ioctl", "map": "map", "fence": "fence"
}  # fmt: skip
"""Space -> the event, where it is not the doorbell."""
_KINDS: Final[Mapping[Space, Kind]] = {
    "ioctl": "ioctl", "params": "ioctl", "call": "ioctl", "outer": "ioctl", "map": "ioctl",
    "qmd": "launch", "memory": "memory",
}  # fmt: skip
"""Space -> the kind, where it is not the stream."""

OPERATIONS: Final = ("zero", "ones", "plus", "minus")
DELETE: Final = "delete"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change at one place of one submission or ioctl."""

    space: Space
    index: int
    """Number of the doorbell, of the ioctl, of the mapping, of the fence."""
    entry: int
    """Ring entry of that doorbell."""
    at: int
    """Word of the segment, byte of the structure, number of the argument."""
    runs: Runs
    """Bits, counted from there, the lowest first."""
    operation: str
    label: str
    part: int = -1
    """Of memory: a constant bank, or what `contents` numbers behind them."""

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Mutant:
        """Return the mutant whose `asdict` came back from JSON."""
        return cls(**{**told, "runs": tuple((lo, width) for lo, width in told["runs"])})

    @property
    def place(self) -> Place:
        """Where it is made."""
        return _EVENTS.get(self.space, "bell"), self.index

    @property
    def kind(self) -> Kind:
        """What it is a mutant of, for samples and scores."""
        return _KINDS.get(self.space, "stream")

    def __str__(self) -> str:
        where, index = self.place
        return f"{where} {index}: {self.label} {self.operation}"


def extract(raw: int, runs: Runs) -> int:
    """Return the number that lies in these bits."""
    value = at = 0
    for lo, width in runs:
        value |= (raw >> lo & ((1 << width) - 1)) << at
        at += width
    return value


def insert(raw: int, runs: Runs, value: int) -> int:
    """Return `raw` with a number put into these bits."""
    for lo, width in runs:
        mask = (1 << width) - 1
        raw = raw & ~(mask << lo) | (value & mask) << lo
        value >>= width
    return raw


def changed(raw: int, runs: Runs, operation: str) -> int:
    """Return `raw` after an operation on these bits."""
    full = (1 << sum(width for _, width in runs)) - 1
    old = extract(raw, runs)
    new = {"zero": 0, "ones": full, "plus": old + 1 & full, "minus": old - 1 & full}[operation]
    return insert(raw, runs, new)


def variants(  # noqa: PLR0917 - the parts of a Mutant
    space: Space,
    index: int,
    entry: int,
    at: int,
    runs: Runs,
    raw: int,
    label: str,
    *,
    part: int = -1,
    operations: Sequence[str] = OPERATIONS,
) -> Iterator[Mutant]:
    """Yield the mutants of one field, those alone that change something, each value once."""
    seen = {raw}
    for operation in operations:
        new = changed(raw, runs, operation)
        if new not in seen:
            seen.add(new)
            yield Mutant(space, index, entry, at, runs, operation, label, part)


def fields(  # noqa: PLR0917 - the same
    layout: type[BitStruct], space: Space, index: int, entry: int, at: int, raw: int, name: str
) -> Iterator[Mutant]:
    """Yield the mutants of every field of a layout, at every place of it."""
    for field in layout.FIELDS.values():
        for place in range(field.count):
            runs = tuple((lo + place * field.stride, width) for lo, width in field.runs)
            label = f"{name}.{field.name}" + (f"[{place}]" if field.count > 1 else "")
            yield from variants(space, index, entry, at, runs, raw, label)


def _methods(subchannel: int, address: int, *, wide: bool) -> Mapping[int, Method]:
    if address < HOST_METHODS_END:
        return host.METHODS if wide else host.METHODS_AMPERE
    if subchannel == Subchannel.COMPUTE:
        return compute.METHODS if wide else compute.METHODS_AMPERE
    return dma.METHODS if wide else dma.METHODS_AMPERE


def packets(words: Sequence[int]) -> Iterator[tuple[int, int, MethodHeader]]:
    """Yield the position, the length in words and the header of every packet."""
    at = 0
    while at < len(words):
        head = MethodHeader.from_int(words[at])
        size = 1 if head.OPCODE == SecOp.IMMEDIATE else 1 + head.COUNT
        yield at, size, head
        at += size


def methods(words: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the position, subchannel, address and value of every method that a segment calls with data."""
    for at, size, head in packets(words):
        for i in range(1, size):
            yield at + i, head.SUBCHANNEL, _address(head, i - 1), words[at + i]


def _address(head: MethodHeader, index: int) -> int:
    step = {SecOp.INCREMENTING: index, SecOp.INCREMENT_ONCE: min(index, 1)}.get(head.OPCODE, 0)
    return head.ADDRESS + 4 * step


def _method(head: MethodHeader, index: int, *, wide: bool) -> Method:
    address = _address(head, index)
    return _methods(head.SUBCHANNEL, address, wide=wide)[address]


def segment(words: Sequence[int], index: int, entry: int, *, wide: bool) -> Iterator[Mutant]:
    """Yield the mutants of a segment: each packet deleted, each field of header and data changed."""
    for at, size, head in packets(words):
        name = _method(head, 0, wide=wide).name
        where = f"{Subchannel(head.SUBCHANNEL).name.lower()} word {at} {name}"
        yield Mutant("packet", index, entry, at, ((0, 32 * size),), DELETE, where)
        yield from fields(MethodHeader, "word", index, entry, at, words[at], f"{where} header")
        for i in range(1, size):
            method, raw = _method(head, i - 1, wide=wide), words[at + i]
            name = f"{Subchannel(head.SUBCHANNEL).name.lower()} word {at + i} {method.name}"
            if method.data is not None:
                yield from fields(method.data, "word", index, entry, at + i, raw, name)
            else:
                yield from variants("word", index, entry, at + i, ((0, 32),), raw, name)


def ring_entry(raw: int, index: int, entry: int) -> Iterator[Mutant]:
    """Yield the mutants of a ring entry."""
    yield Mutant("entry", index, entry, 0, ((0, 64),), DELETE, f"entry {entry}")
    yield from fields(GpfifoEntry, "entry", index, entry, 0, raw, f"entry {entry}")


def members(
    layout: type[Struct], block: bytes, base: int = 0, name: str = ""
) -> Iterator[tuple[str, int, int]]:
    """Yield (name, offset, bytes) of every number among the members; of arrays, the first and all set."""
    name = name or layout.__name__
    for member in layout.FIELDS.values():
        for place in range(member.count):
            at = base + member.offset + place * member.stride
            if place and not any(block[at : at + member.size]):
                continue
            label = f"{name}.{member.name}" + (f"[{place}]" if member.count > 1 else "")
            if member.kind == "nested" and hasattr(member.type, "offset_of"):
                yield from members(member.type, block, at, label)
            elif member.size in {1, 2, 4, 8} and member.kind in {"int", "nested"}:
                yield label, at, member.size


def structure(
    layout: type[Struct], space: Space, block: bytes, index: int, prefix: str = ""
) -> Iterator[Mutant]:
    """Yield the mutants of a structure of an ioctl."""
    for label, at, size in members(layout, block):
        raw = int.from_bytes(block[at : at + size], "little")
        yield from variants(space, index, 0, at, ((0, 8 * size),), raw, prefix + label)
