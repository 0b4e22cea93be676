"""What can be changed in what a driver submits: places, found by the layouts, and the changes made there.

Every field of a layout (`fields`) and every member of a structure (`structure`) is a site; none is chosen by
hand.

Not here: the layouts of streams, descriptors and ioctls (a vendor's folder, `tests.mutants.nv`).
Next: `calls`, ioctls and mappings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hcq.layout import BitStruct, Struct

Space = Literal[
    "word",
    "entry",
    "packet",
    "doorbell",
    "store",
    "fence",
    "descriptor",
    "memory",
    "ioctl",
    "params",
    "call",
    "outer",
    "map",
]
Runs = tuple[tuple[int, int], ...]
Event = Literal["ioctl", "map", "fence", "doorbell"]
Place = tuple[Event, int]
"""The place of a mutant: an event and its number."""
Kind = Literal["ioctl", "stream", "launch", "memory"]
KINDS: Final[tuple[Kind, ...]] = ("ioctl", "stream", "launch", "memory")

_EVENTS: Final[Mapping[Space, Event]] = {
    "ioctl": "ioctl", "params": "ioctl", "call": "ioctl", "outer": "ioctl", "map": "map", "fence": "fence"
}  # fmt: skip
"""Space -> its event; a doorbell for others."""
_KINDS: Final[Mapping[Space, Kind]] = {
    "ioctl": "ioctl", "params": "ioctl", "call": "ioctl", "outer": "ioctl", "map": "ioctl",
    "descriptor": "launch", "memory": "memory",
}  # fmt: skip
"""Space -> its kind; a stream for others."""

OPERATIONS: Final = ("zero", "ones", "plus", "minus")
DELETE: Final = "delete"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change at one place of one submission or ioctl."""

    space: Space
    index: int
    """Number of the doorbell, ioctl, mapping or fence."""
    entry: int
    """Index of the ring entry of that doorbell, or of the packet in its ring."""
    at: int
    """Index of the word in the segment, of the byte in the structure, or of the argument."""
    runs: Runs
    """The bits, as (lowest bit, width) from there, the low part first."""
    operation: str
    label: str
    part: int = -1
    """For memory, the vendor's number of the region; for params, the block of the ioctl."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mutant:
        """Return the mutant of an `asdict` that was decoded from JSON."""
        return cls(**{**data, "runs": tuple((lo, width) for lo, width in data["runs"])})

    @property
    def place(self) -> Place:
        """The event at which it is made, and its number."""
        return _EVENTS.get(self.space, "doorbell"), self.index

    @property
    def kind(self) -> Kind:
        """Its kind, for samples and scores."""
        return _KINDS.get(self.space, "stream")

    def __str__(self) -> str:
        where, index = self.place
        return f"{where} {index}: {self.label} {self.operation}"


def begins(name: str, pattern: str) -> bool:
    """Return whether a regular expression matches whole words at the start of the name of a call."""
    return re.match(rf"(?:{pattern})(?!\w)", name) is not None


def extract(raw: int, runs: Runs) -> int:
    """Return the number in these bits of `raw`."""
    value = at = 0
    for lo, width in runs:
        value |= (raw >> lo & ((1 << width) - 1)) << at
        at += width
    return value


def insert(raw: int, runs: Runs, value: int) -> int:
    """Return `raw` with these bits replaced by a number."""
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
    """Yield the mutants of one field that change its value, each new value once."""
    seen = {raw}
    for operation in operations:
        new = changed(raw, runs, operation)
        if new not in seen:
            seen.add(new)
            yield Mutant(space, index, entry, at, runs, operation, label, part)


def fields(  # noqa: PLR0917 - the same
    layout: type[BitStruct], space: Space, index: int, entry: int, at: int, raw: int, name: str
) -> Iterator[Mutant]:
    """Yield the mutants of every field of a layout, and of every element of its arrays."""
    for field in layout.FIELDS.values():
        for place in range(field.count):
            runs = tuple((lo + place * field.stride, width) for lo, width in field.runs)
            label = f"{name}.{field.name}" + (f"[{place}]" if field.count > 1 else "")
            yield from variants(space, index, entry, at, runs, raw, label)


def members(
    layout: type[Struct], block: bytes, base: int = 0, name: str = ""
) -> Iterator[tuple[str, int, int]]:
    """Yield (name, offset, bytes) of every number in a structure.

    Of arrays, the first and all non-zero elements.
    """
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
    layout: type[Struct], space: Space, block: bytes, index: int, prefix: str = "", *, part: int = -1
) -> Iterator[Mutant]:
    """Yield the mutants of the members of a structure."""
    for label, at, size in members(layout, block):
        raw = int.from_bytes(block[at : at + size], "little")
        yield from variants(space, index, 0, at, ((0, 8 * size),), raw, prefix + label, part=part)
