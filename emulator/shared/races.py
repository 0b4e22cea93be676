"""Races between pieces of engine work: unordered accesses to the same dword, one of them a write.

Three things order work of different queues, and unbarriered work of one queue: semaphores (`waits`), waits
for idle, and a doorbell that the host writes after it may have observed a release. The order is
happens-before, represented by vector clocks. The accesses of a kernel come from the shadow cell that the SIMT
engine keeps for each dword. The accesses of a copy are its ranges. Atomics and strong accesses do not race
with each other.

The vendor creates one `QueueWork` for each piece of engine work, with its `VectorClock` at the start and the
memory that it accesses. The check runs only if the machine's sanitizers include races.

The shadows of global memory record one launch at a time, so launches take turns (`Turns`). A waiting launch
gets the shadows between two slices of the current launch, not at its end: the current launch may itself wait
for a semaphore that the waiting one stores.

Not here: races inside one launch (`emulator.sanitizers`). Next: `waits`, the order of semaphores.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from mmap import PAGESIZE
from typing import TYPE_CHECKING, NamedTuple, Protocol

from emulator.sanitizers.group_order import PARTY
from emulator.sanitizers.shadow_global import RACE_CELL, race_place
from emulator.shared.memory import RACE_BYTES_PER_DWORD
from emulator.shared.waits import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from emulator.shared.memory import AddressSpace, GpuMapping
    from emulator.shared.waits import Stream, VectorClock
    from emulator.simt.slices import SlicedLaunch

_REMEMBERED = 64
"""Finished pieces of work that later work is compared with."""
_MOST_CELLS = 1024
"""Chunks of cells kept for finished work. Reports on work without its cells name no instruction."""
_NONZERO = bytes([0] + [1] * 255)
_TOP = bytes(value >> 7 for value in range(256))
_RESIDENT = bytes(value & 1 for value in range(256))
DWORDS = 4096
"""Dwords in a chunk, the unit in which accesses are recorded."""
CELL_BYTES = RACE_BYTES_PER_DWORD
_SHADOW = DWORDS * CELL_BYTES
_PARTY_OF = {"stored": "storer", "read": "reader", "atomic": "writer", "polled": "reader"}
_PLACE_OF = {"stored": "stored_at", "read": "read_at", "atomic": "atomic_at", "polled": "read_at"}
_NONE, _ALL = bytes(DWORDS), b"\1" * DWORDS


class Touched(NamedTuple):
    """One byte for each dword of a chunk, 1 if the dword was accessed in the way that the field names.

    `read` and `stored` are plain accesses, `atomic` atomics and strong stores, `polled` strong loads.
    """

    read: bytes
    stored: bytes
    atomic: bytes = _NONE
    polled: bytes = _NONE


class Observer(Protocol):
    """A second consumer of a kernel's accesses, such as a model of caches."""

    def add(self, mapping: GpuMapping, chunk: int, seen: Touched, raw: bytes) -> None:
        """Process chunk number `chunk` of an allocation: the dwords accessed, and the raw shadow cells."""


@dataclass(slots=True, eq=False)
class QueueWork:
    """A piece of engine work: its vector clock at the start, and the dwords that it accessed."""

    stream: Stream
    number: int
    """Its number among the pieces of its stream, from 1."""
    name: str
    """Its description in reports."""
    known: VectorClock
    """The vector clock at its start."""
    touched: dict[tuple[int, int], tuple[GpuMapping, Touched]] = field(default_factory=dict)
    """(id of the allocation, number of the chunk) -> the allocation and the dwords accessed."""
    cells: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """The same keys -> raw shadow cells. Kernels only; `forget_cells` drops those of old work."""
    locate: Callable[[int, int, int], str] | None = None
    """Describes an access of a kernel, given the numbers of its instruction, workgroup and thread; None for
    work that is no kernel."""

    def happens_after(self, other: QueueWork) -> bool:
        """Return whether `other` happens before this work."""
        return other.number <= self.known.get(other.stream, 0)

    def end_clock(self) -> VectorClock:
        """Return the vector clock at the end of this work."""
        return self.known | {self.stream: self.number}

    def touch(self, mapping: GpuMapping, va: int, size: int, *, write: bool) -> None:
        """Record an access to the whole dwords of [va, va + size).

        Partly covered dwords are not recorded, because two pieces of work may access different bytes of one.
        """
        first, last = -(-(va - mapping.va) // 4), (va + size - mapping.va) // 4
        for chunk in range(first // DWORDS, -(-last // DWORDS)):
            low, high = max(first - chunk * DWORDS, 0), min(last - chunk * DWORDS, DWORDS)
            if low >= high:
                continue
            mask = _ALL if high - low == DWORDS else bytes(low) + _ALL[: high - low] + bytes(DWORDS - high)
            self.add(mapping, chunk, Touched(_NONE, mask) if write else Touched(mask, _NONE))

    def add(self, mapping: GpuMapping, chunk: int, more: Touched) -> None:
        """Add accesses to those recorded for a chunk of an allocation."""
        key = (id(mapping), chunk)
        _, old = self.touched.get(key, (mapping, None))
        merged = more if old is None else Touched(*map(_or, old, more))
        self.touched[key] = (mapping, merged)

    def writer_of(self, mapping: GpuMapping, va: int) -> str:
        """Describe this work's write to the dword at an address, as `where` does; "" if there is none."""
        key, dword = _cell(mapping, va)
        known, seen = self.touched.get(key, (None, None))
        if known is not mapping or seen is None:
            return ""
        for how, mask in (("stored", seen.stored), ("atomic", seen.atomic)):
            if mask[dword]:
                return self.where(key, dword, how)
        return ""

    def reader_of(self, mapping: GpuMapping, va: int) -> str:
        """Describe this work's read of the dword at an address, as `where` does."""
        return self.where(*_cell(mapping, va), "read")

    def where(self, key: tuple[int, int], dword: int, how: str) -> str:
        """Return the name of this work, with the instruction and thread of the last access of kind `how`.

        `how` is a field of `Touched`. Without shadow cells the name stands alone.
        """
        raw = self.cells.get(key, b"")
        place = _word(raw, dword, RACE_CELL[_PLACE_OF[how]])
        if not place or self.locate is None:
            return self.name
        party = _word(raw, dword, RACE_CELL[_PARTY_OF[how]]) & PARTY
        instruction, thread = race_place(place)
        return f"{self.name}, {self.locate(instruction, party - 1, thread)},"


class Races:
    """The race detector of one machine: it compares finished work with the last 64 pieces before it."""

    def __init__(self) -> None:
        self._done: deque[QueueWork] = deque(maxlen=_REMEMBERED)
        self.releases = RELEASES
        self._freed: set[int] = set()

    def check(self, work: QueueWork) -> str:
        """Compare finished work with earlier work; return a description of a race, "" if there is none.

        Work without a race is recorded for later comparisons.
        """
        for other in self._done:
            if not work.happens_after(other):
                for text in _conflicts(work, other):
                    return text
        self._done.append(work)
        forget_cells(self._done)
        return ""

    def drop_queue(self, queue: int) -> None:
        """Drop the work of a queue that is freed."""
        self._done = deque((one for one in self._done if one.stream[0] != queue), _REMEMBERED)
        self._freed.add(queue)
        self.releases.drop_queue(queue)

    def close(self) -> None:
        """Drop the semaphore words that only freed queues of this machine released."""
        self.releases.forget(self._freed)
        self._freed.clear()


def forget_cells(works: Collection[QueueWork]) -> None:
    """Drop cells of `works`, from the first one on, until at most `_MOST_CELLS` chunks are left."""
    kept = sum(len(one.cells) for one in works)
    for old in works:
        if kept <= _MOST_CELLS:
            break
        kept -= len(old.cells)
        old.cells.clear()


def record_kernel(work: QueueWork, memory: AddressSpace, observer: Observer | None = None) -> None:
    """Add the current launch's accesses so far, which the engine's shadows have, to `work` and `observer`."""
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
    """Return the accesses that the cells of a chunk record."""
    read, stored, atomic = (_some(raw, RACE_CELL[name]) for name in ("read_at", "stored_at", "atomic_at"))
    strongly = raw[RACE_CELL["reader"] + 3 :: CELL_BYTES].translate(_TOP)
    return Touched(_minus(read, strongly), stored, atomic, _and(read, strongly))


def _cell(mapping: GpuMapping, va: int) -> tuple[tuple[int, int], int]:
    """Return the key of the chunk that holds an address, and the number of the dword in it."""
    chunk, dword = divmod((va - mapping.va) // 4, DWORDS)
    return (id(mapping), chunk), dword


def _word(raw: bytes, dword: int, at: int) -> int:
    at += dword * CELL_BYTES
    return int.from_bytes(raw[at : at + 4], "little")


def _some(raw: bytes, at: int) -> bytes:
    """Return one byte for each dword: 1 if the word at offset `at` of its cell is not 0."""
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
"""Pairs of accesses that need an order: first that of the later work, then that of the earlier."""
_VERBS = {
    "stored": ("writes", "wrote"),
    "read": ("reads", "read"),
    "atomic": ("atomically updates", "atomically updated"),
    "polled": ("polls", "polled"),
}


def _conflicts(work: QueueWork, other: QueueWork) -> Iterator[str]:
    """Yield a text for each kind of access by which two works conflict."""
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
                    f"{_VERBS[then][1]}, and nothing orders them: first at {va:#x}, in {mapping}"
                )


_SLICES = 8
"""Slices of a launch after which a waiting launch gets the shadows."""


@dataclass(slots=True, eq=False)
class Turn:
    """The turn of one launch, during which the shadows record its accesses."""

    launch: SlicedLaunch
    work: QueueWork
    memory: AddressSpace
    observer: Observer | None
    """A second consumer of the accesses, or None."""
    slices: int = 0
    """Slices that the launch ran in this turn."""

    def begin(self) -> None:
        """Start the turn: clear the shadows."""
        self.slices = 0
        self.memory.clear_accesses()

    def over(self) -> bool:
        """End the turn after 8 slices, unless a slice runs in the background; return whether it ended.

        The end records the accesses. A race between accesses before and after it is not detected.
        """
        if self.slices < _SLICES or self.launch.in_background:
            return False
        self.note()
        return True

    def note(self) -> None:
        """Record the accesses of the launch so far."""
        record_kernel(self.work, self.memory, self.observer)


class Turns:
    """The launches of one machine. A launch with a `Turn` runs only while it has the shadows."""

    def __init__(self, turns: int, patience_s: float) -> None:
        """`turns` and `patience_s` are the arguments of `SlicedLaunch.advance` for each slice."""
        self._slice = turns, patience_s
        self._turn: Turn | None = None

    def run(
        self, launch: SlicedLaunch, turn: Turn | None, hold: Callable[[], None]
    ) -> Iterator[SlicedLaunch]:
        """Run a launch to its end, one slice for each item that the iterator yields.

        An item is the launch that runs now: `launch`, or the one that has the shadows. With `turn` None the
        launch needs no shadows. `hold` is called after each slice that still runs in the background.
        """
        turns, patience_s = self._slice
        try:
            while True:
                while turn is not None and self._turn is not turn:
                    if self._turn is None or self._turn.over():
                        self._turn = turn
                        turn.begin()
                    else:
                        yield self._turn.launch
                if launch.advance(turns=turns, patience_s=patience_s):
                    break
                if turn is not None:
                    turn.slices += not launch.in_background
                if launch.in_background:
                    hold()
                yield launch
            if turn is not None:
                turn.note()
        finally:
            if self._turn is turn:
                self._turn = None
