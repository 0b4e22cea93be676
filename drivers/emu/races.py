"""Races between queues: two pieces of engine work access the same memory, one writes, nothing orders them.

Work of different queues, and unbarriered work of one, is ordered by semaphores (`releases`), by waits for
idle, and by a doorbell that rang after a release which its ringer may have seen. The order is happens-before,
kept as vector clocks. A kernel's accesses are those of the shadows that the SIMT engine keeps for each dword,
a copy's are its ranges. Atomics and strong accesses do not race with each other.

Needs of its vendor one `Work` for each piece of engine work: its clock when it began (`Known`), and what it
touched. Checked only where the machine's sanitizers include races.

Not here: races inside one launch (`drivers.emu.sanitizers`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from mmap import PAGESIZE
from typing import TYPE_CHECKING, NamedTuple, Protocol

from drivers.emu.memory import RACE_BYTES_PER_DWORD
from drivers.emu.releases import RELEASES
from drivers.emu.sanitizers.group_order import STRONG_PARTY
from drivers.emu.sanitizers.shadow_global import RACE_CELL, race_place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from drivers.emu.memory import AddressSpace, Mapping
    from drivers.emu.releases import Known, Stream

_REMEMBERED = 64
_MOST_CELLS = 1024
"""Chunks of cells kept of finished work; reports of older work name no instruction."""
_NONZERO = bytes([0] + [1] * 255)
_TOP = bytes(value >> 7 for value in range(256))
_RESIDENT = bytes(value & 1 for value in range(256))
DWORDS = 4096
"""Dwords of an allocation that are looked at together: a chunk."""
CELL_BYTES = RACE_BYTES_PER_DWORD
_SHADOW = DWORDS * CELL_BYTES
_PARTY_OF = {"stored": "storer", "read": "reader", "atomic": "writer", "polled": "reader"}
_PLACE_OF = {"stored": "stored_at", "read": "read_at", "atomic": "atomic_at", "polled": "read_at"}
_NONE, _ALL = bytes(DWORDS), b"\1" * DWORDS


class Touched(NamedTuple):
    """The dwords of a chunk that were read, stored to, written by atomics and strong stores, polled."""

    read: bytes
    stored: bytes
    atomic: bytes = _NONE
    polled: bytes = _NONE


class Observer(Protocol):
    """What else takes the shadows of a kernel's accesses, as a model of caches does."""

    def add(self, mapping: Mapping, chunk: int, seen: Touched, raw: bytes) -> None:
        """Take a chunk of an allocation: what was touched, and the raw cells."""
        ...


@dataclass(slots=True, eq=False)
class Work:
    """A piece of engine work: its vector clock when it began, and the dwords that it touched."""

    stream: Stream
    number: int
    name: str
    known: Known
    touched: dict[tuple[int, int], tuple[Mapping, Touched]] = field(default_factory=dict)
    """By identity of the allocation and number of the chunk."""
    cells: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """The same of what the engine's shadows hold, for a kernel."""
    locate: Callable[[int, int, int], str] | None = None
    """Return in words where a kernel did something, given instruction, workgroup and thread."""

    def after(self, other: Work) -> bool:
        """Return whether the other happens before this."""
        return other.number <= self.known.get(other.stream, 0)

    def done(self) -> Known:
        """Return the vector clock once it is done."""
        return self.known | {self.stream: self.number}

    def touch(self, mapping: Mapping, va: int, size: int, *, write: bool) -> None:
        """Note an access to [va, va + size), whole dwords only: neighbours may rightly share one."""
        first, last = -(-(va - mapping.va) // 4), (va + size - mapping.va) // 4
        for chunk in range(first // DWORDS, -(-last // DWORDS)):
            low, high = max(first - chunk * DWORDS, 0), min(last - chunk * DWORDS, DWORDS)
            if low >= high:
                continue
            mask = _ALL if high - low == DWORDS else bytes(low) + _ALL[: high - low] + bytes(DWORDS - high)
            self.add(mapping, chunk, Touched(_NONE, mask) if write else Touched(mask, _NONE))

    def add(self, mapping: Mapping, chunk: int, more: Touched) -> None:
        """Note more of an allocation."""
        key = (id(mapping), chunk)
        _, old = self.touched.get(key, (mapping, None))
        merged = more if old is None else Touched(*map(_or, old, more))
        self.touched[key] = (mapping, merged)

    def wrote(self, mapping: Mapping, va: int) -> str:
        """Return who wrote the dword at an address, as `where` does; nothing if this work did not."""
        key, dword = _cell(mapping, va)
        known, seen = self.touched.get(key, (None, None))
        if known is not mapping or seen is None:
            return ""
        for how, mask in (("stored", seen.stored), ("atomic", seen.atomic)):
            if mask[dword]:
                return self.where(key, dword, how)
        return ""

    def reads(self, mapping: Mapping, va: int) -> str:
        """Return its name, and for a kernel the instruction and thread that read the dword at an address."""
        return self.where(*_cell(mapping, va), "read")

    def where(self, key: tuple[int, int], dword: int, how: str) -> str:
        """Return its name, and for a kernel the instruction and thread that touched a dword last."""
        raw = self.cells.get(key, b"")
        place = _word(raw, dword, RACE_CELL[_PLACE_OF[how]])
        if not place or self.locate is None:
            return self.name
        party = _word(raw, dword, RACE_CELL[_PARTY_OF[how]]) & (STRONG_PARTY - 1)
        instruction, thread = race_place(place)
        return f"{self.name}, {self.locate(instruction, party - 1, thread)},"


class Races:
    """The race detector of one machine: compares finished work with the last pieces of work before it."""

    def __init__(self) -> None:
        self._done: deque[Work] = deque(maxlen=_REMEMBERED)
        self.releases = RELEASES
        self._gone: set[int] = set()

    def judge(self, work: Work) -> str:
        """Take note of work that is done; returns the race it was in, or nothing."""
        for other in self._done:
            if not work.after(other):
                for text in _conflicts(work, other):
                    return text
        self._done.append(work)
        forget_cells(self._done)
        return ""

    def gone(self, queue: int) -> None:
        """Drop the work of a freed queue."""
        self._done = deque((one for one in self._done if one.stream[0] != queue), _REMEMBERED)
        self._gone.add(queue)
        self.releases.gone(queue)

    def close(self) -> None:
        """Drop the releases of freed queues."""
        self.releases.forget(self._gone)
        self._gone.clear()


def forget_cells(works: Collection[Work]) -> None:
    """Drop the cells of the oldest work above a total number."""
    kept = sum(len(one.cells) for one in works)
    for old in works:
        if kept <= _MOST_CELLS:
            break
        kept -= len(old.cells)
        old.cells.clear()


def note_kernel(work: Work, memory: AddressSpace, observer: Observer | None = None) -> None:
    """Note what the launch at hand has touched so far, from the engine's shadows; `observer` takes it too."""
    for mapping in memory.mappings():
        pages = memory.touched_pages(mapping).translate(_RESIDENT)
        page = pages.find(1)
        while page >= 0 and mapping.touched is not None:
            chunk = page * PAGESIZE // _SHADOW
            raw = mapping.touched[chunk * _SHADOW : (chunk + 1) * _SHADOW].ljust(_SHADOW, b"\0")
            seen = _seen(raw)
            if any(part != _NONE for part in seen):
                work.add(mapping, chunk, seen)
                work.cells[id(mapping), chunk] = raw
                if observer is not None:
                    observer.add(mapping, chunk, seen, raw)
            page = pages.find(1, (chunk + 1) * _SHADOW // PAGESIZE)


def _seen(raw: bytes) -> Touched:
    """Return the dwords touched according to a chunk's cells."""
    read, stored, atomic = (_some(raw, RACE_CELL[name]) for name in ("read_at", "stored_at", "atomic_at"))
    strongly = raw[RACE_CELL["reader"] + 3 :: CELL_BYTES].translate(_TOP)
    return Touched(_minus(read, strongly), stored, atomic, _and(read, strongly))


def _cell(mapping: Mapping, va: int) -> tuple[tuple[int, int], int]:
    """Return the key of a chunk and the number of a dword in it."""
    chunk, dword = divmod((va - mapping.va) // 4, DWORDS)
    return (id(mapping), chunk), dword


def _word(raw: bytes, dword: int, at: int) -> int:
    at += dword * CELL_BYTES
    return int.from_bytes(raw[at : at + 4], "little")


def _some(raw: bytes, at: int) -> bytes:
    """Return 1 for each dword whose word at `at` of its cell is not 0."""
    columns = [raw[at + byte :: CELL_BYTES] for byte in range(4)]
    whole = columns[0]
    for column in columns[1:]:
        whole = _or(whole, column)
    return whole.translate(_NONZERO)


def _and(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") & int.from_bytes(b, "little")).to_bytes(len(a), "little")


def _minus(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") & ~int.from_bytes(b, "little")).to_bytes(len(a), "little")


def _or(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") | int.from_bytes(b, "little")).to_bytes(len(a), "little")


_PAIRS = (
    ("stored", "stored"),
    ("stored", "read"),
    ("stored", "atomic"),
    ("read", "stored"),
    ("atomic", "stored"),
    ("read", "atomic"),
    ("atomic", "read"),
    ("stored", "polled"),
    ("polled", "stored"),
)
"""What one does and the other did that cannot go unordered."""
_VERBS = {
    "stored": ("writes", "wrote"),
    "read": ("reads", "read"),
    "atomic": ("works atomically on", "worked atomically on"),
    "polled": ("polls", "polled"),
}


def _conflicts(work: Work, other: Work) -> Iterator[str]:
    for key, (mapping, mine) in work.touched.items():
        if key not in other.touched or other.touched[key][0] is not mapping:
            continue
        theirs = other.touched[key][1]
        for now, then in _PAIRS:
            ours, before = getattr(mine, now), getattr(theirs, then)
            both = int.from_bytes(ours, "little") & int.from_bytes(before, "little")
            if both:
                dword = ((both & -both).bit_length() - 1) // 8
                va = mapping.va + 4 * (key[1] * DWORDS + dword)
                yield (
                    f"{work.where(key, dword, now)} {_VERBS[now][0]} what {other.where(key, dword, then)} "
                    f"{_VERBS[then][1]}, and nothing is between them: first at {va:#x}, in {mapping}"
                )
