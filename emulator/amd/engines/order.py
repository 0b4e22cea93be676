"""Happens-before order of one queue: its vector clock, and its work in flight.

Kernels, releases and copies in flight are each behind some of the others. Happens-before serves the search
for races between queues, and caches.

Kept only where the machine's sanitizers include either. Work in flight is numbered by sort; packets that the
command processor executes itself are work of their own. A release takes the clock of what it waits for, a
wait takes over that of the release that ended it, a doorbell what the host may have seen.

Not here: which work is advanced next (`run`), vector clocks (`emulator.shared.releases`), which accesses
race (`emulator.shared.races`), caches (`coherence`).
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.events import QueueException
from emulator.amd.engines.coherence import Coherence
from emulator.amd.reports import FindingKind, QueueFault
from emulator.shared.races import QueueWork, Races
from emulator.shared.releases import RELEASES, join
from emulator.shared.waits import SemaphoreHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from emulator.amd.engines.packets import PacketWait
    from emulator.amd.kfd.queues import QueueObject
    from emulator.ir.library import Sanitizers
    from emulator.shared.releases import SemaphoreStore, VectorClock
    from emulator.simt.slices import SlicedLaunch


class Sort(enum.Enum):
    """The kind of work in flight."""

    KERNEL = enum.auto()
    RELEASE = enum.auto()
    """A store, and maybe an interrupt, at the end of the pipe."""
    COPY = enum.auto()


@dataclass(slots=True, eq=False)
class Flight:
    """One piece of work."""

    sort: Sort
    at: str
    steps: Iterator[SlicedLaunch]
    """The rest of it; each step of a kernel is ended by a slice."""
    after: tuple[Flight, ...]
    """Work that must complete before this begins."""
    work: QueueWork | None = None
    """Its clock and its accesses, if they are recorded."""
    through_l2: bool = False
    """Whether a copy reads and stores through the L2, as kernels do."""
    over: bool = False
    slice: SlicedLaunch | None = None

    @property
    def ready(self) -> bool:
        """Whether it may run on."""
        return all(one.over for one in self.after)

    @property
    def in_background(self) -> bool:
        """Whether it runs without the queue, which cannot do anything for it now."""
        return self.slice is not None and self.slice.in_background


def once(act: Callable[[], None]) -> Iterator[SlicedLaunch]:
    """Return the steps of work that is done at once."""
    act()
    yield from ()


@dataclass(slots=True)
class Flights:
    """Work in flight of one queue, the oldest first."""

    order: QueueOrder | None = None
    """Records the order of work, where that is asked for."""
    all: list[Flight] = field(default_factory=list)

    def begin(
        self,
        sort: Sort,
        at: str,
        steps: Iterator[SlicedLaunch],
        *,
        after: Iterable[Flight] = (),
        behind: Collection[Sort] = (),
        through_l2: bool = False,
    ) -> Flight:
        """Put work in flight, behind some others and behind all earlier work of some sorts."""
        first = (*after, *(one for one in self.all if one.sort in behind))
        work = None if self.order is None else self.order.begin(sort, at, behind, first)
        flight = Flight(sort, at, steps, tuple(one for one in first if not one.over), work, through_l2)
        self.all.append(flight)
        return flight

    def of(self, *sorts: Sort) -> list[Flight]:
        """Return the flights of some kinds, of all without any."""
        return [one for one in self.all if not sorts or one.sort in sorts]

    def any(self, sorts: Collection[Sort]) -> bool:
        """Return whether a flight of some kinds is not over."""
        return any(one.sort in sorts for one in self.all)

    def ready(self) -> list[Flight]:
        """Return those that may be advanced."""
        return [one for one in self.all if one.ready]

    def advance(self, flight: Flight) -> bool:
        """Do the next step of one; returns whether it is over."""
        flight.slice = next(flight.steps, None)
        if flight.slice is None:
            flight.over, flight.after = True, ()  # not held: each would hold all before it
            self.all.remove(flight)
        return flight.over

    def abandon(self) -> None:
        """Stop all in the middle, and release what they hold."""
        for flight in self.all:
            if isinstance(flight.steps, Generator):
                flight.steps.close()
        self.all.clear()


_CORE: Final = "packets"
"""The stream of what the command processor does itself."""
_numbers = itertools.count(1)


@dataclass(slots=True)
class OrderWatch:
    """State shared by all queues of one machine."""

    coherence: Coherence | None
    judges: bool = True
    """Whether races are errors."""
    races: Races = field(default_factory=Races)
    history: SemaphoreHistory = field(default_factory=SemaphoreHistory)

    @classmethod
    def of(cls, checks: Sanitizers) -> OrderWatch | None:
        """Return what the sanitizers ask for; None where no accesses are recorded."""
        if not checks.last_accesses:
            return None
        return cls(Coherence() if checks.caches else None, checks.global_races)


class QueueOrder:
    """One queue's place in the order of all work."""

    def __init__(self, watch: OrderWatch, queue: QueueObject) -> None:
        self.watch, self._queue = watch, queue
        self.number = next(_numbers)
        self.known: VectorClock = {}
        """The vector clock of the current packet."""
        self.acting: QueueWork | None = None
        """The work in flight at hand; None: a packet."""
        self._counts: Counter[str] = Counter()
        self._rung: deque[tuple[int, VectorClock]] = deque()
        """Position in the ring from which on, and what the host may have seen done before it submitted."""

    def begin(self, sort: Sort, at: str, behind: Collection[Sort], after: Iterable[Flight]) -> QueueWork:
        """Return new work of the queue, behind all earlier work of some sorts and behind some flights."""
        stream = sort.name.lower()
        known = dict(self.known)
        join(known, self._all(behind))
        for one in after:
            if one.work is not None:
                join(known, one.work.end_clock())
        self._counts[stream] += 1
        name = f"{stream} on {self._queue.name} ({at})"
        return QueueWork((self.number, stream), self._counts[stream], name, known)

    def drained(self, sorts: Collection[Sort] = tuple(Sort)) -> None:
        """Record that the current packet has waited for all earlier work of some kinds."""
        join(self.known, self._all(sorts))

    def _all(self, sorts: Collection[Sort]) -> VectorClock:
        names = (sort.name.lower() for sort in sorts)
        return {(self.number, name): self._counts[name] for name in names if self._counts[name]}

    def over(self, flight: Flight) -> None:
        """Check and keep work in flight that is over."""
        if flight.work is not None and flight.work.touched:
            self._judge(flight.work, kernel=flight.sort is Sort.KERNEL, through_l2=flight.through_l2)

    def _judge(self, work: QueueWork, *, kernel: bool, through_l2: bool = False) -> None:
        coherence = self.watch.coherence
        race = self.watch.races.check(work) if self.watch.judges else ""
        if race:
            exception = QueueException.WAVE_ABORT if kernel else QueueException.PACKET_UNSUPPORTED
            raise QueueFault(FindingKind.RACE, race, exception)
        if coherence is not None:
            if not kernel:
                reader = self._queue.gpu if through_l2 else None
                coherence.read(work, "a copy or a packet", reader)
            coherence.done(self._queue.gpu, work, through_l2=kernel or through_l2)

    def touches(self, va: int, size: int, *, write: bool, what: str) -> None:
        """Record a data access by the current work or packet."""
        work = self.acting
        if work is None:
            self._counts[_CORE] += 1
            name = f"{what} on {self._queue.name}"
            work = QueueWork((self.number, _CORE), self._counts[_CORE], name, dict(self.known))
        space = self._queue.gpu.space
        assert space is not None
        for at, length in space.pieces(va, size):
            mapping = space.map.find(at)
            if mapping is not None:
                work.touch(mapping, at, length, write=write)
        if self.acting is None:
            self._judge(work, kernel=False)
            join(self.known, work.end_clock())

    @property
    def clock(self) -> VectorClock:
        """Return the vector clock of the current work or packet."""
        return self.known if self.acting is None else self.acting.end_clock()

    def stores(self, written: SemaphoreStore) -> None:
        """Record a store that others may wait for; call it just before the store."""
        self.watch.history.record(written)
        RELEASES.record(self.number, written, self.clock)

    def acquired(self, wait: PacketWait, at: int, value: int) -> None:
        """Take over what the release that ended a wait came after; the word is at host address `at`.

        A word that no queue released and that is not 0, as it was at first, was stored to by the host, which
        may have observed every release so far.
        """
        mask = (1 << wait.bits) - 1
        if RELEASES.released(at):
            join(self.known, RELEASES.clock_after_wait(at, value & mask, wait.bits, wait.satisfied))
        elif value & mask:
            join(self.known, RELEASES.host())

    def covered(self, position: int) -> None:
        """Record a doorbell or a new write pointer: dwords from `position` on are valid."""
        self._rung.append((position, RELEASES.host()))

    def fetched(self, position: int) -> None:
        """Take over what the host had seen when it submitted the dword at a position."""
        while self._rung and self._rung[0][0] <= position:
            join(self.known, self._rung.popleft()[1])

    def gone(self) -> None:
        """Drop the queue, which is destroyed."""
        self.watch.races.drop_queue(self.number)
