"""Work in flight of one queue (`Flights`), and the queue's vector clock (`QueueClock`).

Work in flight is a kernel, a release or a copy. Each piece may have to wait for other pieces of its queue.

The vector clock represents happens-before. The race check between queues and the cache check use it, so it is
kept only if the machine's sanitizers include one of them. Each kind of work is a stream of its own, numbered
in the order of its begin. Accesses of the command processor itself are a fourth stream. A release publishes
the clock of the work before it. A wait joins the clock of the release that ended it. A doorbell joins the
clock of everything that the host may have observed.

An order that no source settles raises `QueueFault`.

Not here: which work is advanced next (`engines`), vector clocks (`emulator.shared.waits`), which accesses
race (`emulator.shared.races`), caches (`coherence`). Next: `engines`, which owns both classes.
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
from emulator.shared.waits import RELEASES, SemaphoreHistory, join

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from emulator.amd.engines.packets import PacketWait
    from emulator.amd.kfd.queues import QueueObject
    from emulator.ir.library import Sanitizers
    from emulator.shared.waits import SemaphoreStore, VectorClock
    from emulator.simt.slices import SlicedLaunch


class Sort(enum.Enum):
    """The kind of work in flight."""

    KERNEL = enum.auto()
    RELEASE = enum.auto()
    """Cache maintenance, a store or an interrupt at the end of the pipe, or several of these."""
    COPY = enum.auto()


@dataclass(slots=True, eq=False)
class Flight:
    """One piece of work in flight."""

    sort: Sort
    at: str
    """The packet that began the work, for reports."""
    steps: Iterator[SlicedLaunch]
    """The steps that are left. A kernel yields at the end of each slice; other work yields nothing."""
    after: tuple[Flight, ...]
    """The work that must complete before this work begins."""
    work: QueueWork | None = None
    """Its clock and its accesses; None if accesses are not recorded."""
    through_l2: bool = False
    """Whether a copy reads and stores through the L2, as kernels do."""
    over: bool = False
    """Whether the work is complete."""
    slice: SlicedLaunch | None = None
    """The kernel as its last slice left it; None before the first slice, and for other work."""

    @property
    def ready(self) -> bool:
        """Whether all work in `after` is complete."""
        return all(one.over for one in self.after)

    @property
    def in_background(self) -> bool:
        """Whether its current slice runs on in another thread (`emulator.shared.races`)."""
        return self.slice is not None and self.slice.in_background


def once(act: Callable[[], None]) -> Iterator[SlicedLaunch]:
    """Return the steps of work that `act` does at the first `next`, without a slice."""
    act()
    yield from ()


@dataclass(slots=True)
class Flights:
    """The work in flight of one queue."""

    order: QueueClock | None = None
    """Records the order of work; None if accesses are not recorded."""
    all: list[Flight] = field(default_factory=list)
    """The work that is not complete, the oldest first."""

    def begin(
        self,
        sort: Sort,
        at: str,
        steps: Iterator[SlicedLaunch],
        *,
        after: Iterable[Flight] = (),
        after_all: Collection[Sort] = (),
        through_l2: bool = False,
    ) -> Flight:
        """Put work in flight, and return it.

        It runs once `after`, and all earlier work of the kinds `after_all`, is complete. `at` names the
        packet for reports. `through_l2`: see `Flight`.
        """
        first = (*after, *(one for one in self.all if one.sort in after_all))
        work = None if self.order is None else self.order.begin(sort, at, after_all, first)
        flight = Flight(sort, at, steps, tuple(one for one in first if not one.over), work, through_l2)
        self.all.append(flight)
        return flight

    def of(self, *sorts: Sort) -> list[Flight]:
        """Return the flights of these kinds, or all flights if no kind is given."""
        return [one for one in self.all if not sorts or one.sort in sorts]

    def any(self, sorts: Collection[Sort]) -> bool:
        """Return whether a flight of these kinds is not complete."""
        return any(one.sort in sorts for one in self.all)

    def ready(self) -> list[Flight]:
        """Return the flights that may be advanced."""
        return [one for one in self.all if one.ready]

    def advance(self, flight: Flight) -> bool:
        """Do the next step of a flight; return whether it is complete. Raises what the step raises."""
        flight.slice = next(flight.steps, None)
        if flight.slice is None:
            flight.over, flight.after = True, ()  # else each flight would keep all earlier ones alive
            self.all.remove(flight)
        return flight.over

    def abandon(self) -> None:
        """Stop all work between two steps, and release what it holds."""
        for flight in self.all:
            if isinstance(flight.steps, Generator):
                flight.steps.close()
        self.all.clear()


_CORE: Final = "packets"
"""The stream of the command processor's own accesses."""
_numbers = itertools.count(1)


@dataclass(slots=True)
class OrderWatch:
    """What the clocks of all queues of one machine share: recorded races, caches and semaphore values."""

    coherence: Coherence | None
    """The model of the caches; None if they are not checked."""
    judges: bool = True
    """Whether races are errors."""
    races: Races = field(default_factory=Races)
    history: SemaphoreHistory = field(default_factory=SemaphoreHistory)

    @classmethod
    def of(cls, checks: Sanitizers) -> OrderWatch | None:
        """Return the state that the sanitizers need; None if they record no accesses."""
        if not checks.last_accesses:
            return None
        return cls(Coherence() if checks.caches else None, checks.global_races)


class QueueClock:
    """The vector clock of one queue."""

    def __init__(self, watch: OrderWatch, queue: QueueObject) -> None:
        """`watch` is shared by all queues of the machine."""
        self.watch, self._queue = watch, queue
        self.number = next(_numbers)
        self.known: VectorClock = {}
        """The vector clock of the current packet."""
        self.acting: QueueWork | None = None
        """The work in flight whose step runs now; None while a packet is executed."""
        self._counts: Counter[str] = Counter()
        """Stream -> pieces of work begun."""
        self._rung: deque[tuple[int, VectorClock]] = deque()
        """For each doorbell: the first ring position that it made valid, and the host's clock at that
        time."""

    def begin(self, sort: Sort, at: str, after_all: Collection[Sort], after: Iterable[Flight]) -> QueueWork:
        """Return new work that happens after all earlier work of the kinds `after_all` and after `after`."""
        stream = sort.name.lower()
        known = dict(self.known)
        join(known, self._all(after_all))
        for one in after:
            if one.work is not None:
                join(known, one.work.end_clock())
        self._counts[stream] += 1
        name = f"{stream} on {self._queue.name} ({at})"
        return QueueWork((self.number, stream), self._counts[stream], name, known)

    def wait_all(self, sorts: Collection[Sort]) -> None:
        """Record that the current packet has waited for all earlier work of these kinds."""
        join(self.known, self._all(sorts))

    def _all(self, sorts: Collection[Sort]) -> VectorClock:
        names = (sort.name.lower() for sort in sorts)
        return {(self.number, name): self._counts[name] for name in names if self._counts[name]}

    def on_complete(self, flight: Flight) -> None:
        """Check the accesses of completed work, and keep them for later checks.

        Raises `QueueFault` for a race or for missing cache maintenance.
        """
        if flight.work is not None and flight.work.touched:
            self._check(flight.work, kernel=flight.sort is Sort.KERNEL, through_l2=flight.through_l2)

    def _check(self, work: QueueWork, *, kernel: bool, through_l2: bool = False) -> None:
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

    def on_access(self, va: int, size: int, *, write: bool, what: str) -> None:
        """Record a data access by the current work or packet.

        `size` is in bytes; `what` names it for reports. An access by a packet is checked at once, as
        `on_complete` does for work in flight.
        """
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
            self._check(work, kernel=False)
            join(self.known, work.end_clock())

    @property
    def clock(self) -> VectorClock:
        """The vector clock at the end of the current work, or of the current packet."""
        return self.known if self.acting is None else self.acting.end_clock()

    def on_store(self, written: SemaphoreStore) -> None:
        """Record a store to a word that others may wait for. Call it just before the store."""
        self.watch.history.record(written)
        RELEASES.record(self.number, written, self.clock)

    def on_wait_end(self, wait: PacketWait, at: int, value: int) -> None:
        """Join the clock of the release that ended a wait.

        `at` is the word's host address, `value` its value. If no queue released the word and its value is not
        0, the host wrote it. The host may have observed every release so far, so the clock of the host is
        joined.
        """
        mask = (1 << wait.bits) - 1
        if RELEASES.released(at):
            join(self.known, RELEASES.clock_after_wait(at, value & mask, wait.bits, wait.satisfied))
        elif value & mask:
            join(self.known, RELEASES.host())

    def on_doorbell(self, position: int) -> None:
        """Record a doorbell or a new write pointer: dwords from ring position `position` on became valid."""
        self._rung.append((position, RELEASES.host()))

    def on_fetch(self, position: int) -> None:
        """Join the host's clock from the doorbell that made the dword at a ring position valid."""
        while self._rung and self._rung[0][0] <= position:
            join(self.known, self._rung.popleft()[1])

    def on_destroy(self) -> None:
        """Drop the recorded accesses of the queue, which is destroyed."""
        self.watch.races.drop_queue(self.number)
