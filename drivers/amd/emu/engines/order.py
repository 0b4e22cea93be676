"""What the packets of one queue come after: happens-before, for races between queues and for caches.

Kept only where the machine's sanitizers include either. Work in flight is numbered by sort; packets that the
command processor executes itself are work of their own. A release takes the clock of what it waits for, a
wait takes over that of the release that ended it, a doorbell what the host may have seen.

Not here: vector clocks (`drivers.emu.releases`), which accesses race (`drivers.emu.races`), caches
(`coherence`).
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivers.amd.emu.engines.coherence import Coherence
from drivers.amd.emu.engines.flights import Sort
from drivers.amd.emu.machine.reports import Kind, QueueFault
from drivers.amd.layouts.events import QueueException
from drivers.emu.races import Races, Work
from drivers.emu.releases import RELEASES, join
from drivers.emu.waits import SemaphoreHistory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from drivers.amd.emu.engines.flights import Flight
    from drivers.amd.emu.engines.waits import Wait
    from drivers.amd.emu.kfd.queues import QueueObject
    from drivers.emu.releases import SemaphoreStore, VectorClock
    from drivers.emu.simt.library import Sanitizers

_CORE: Final = "packets"
"""The stream of what the command processor does itself."""
_numbers = itertools.count(1)


@dataclass(slots=True)
class Watch:
    """What all queues of one machine share."""

    coherence: Coherence | None
    judges: bool = True
    """Whether races are errors."""
    races: Races = field(default_factory=Races)
    history: SemaphoreHistory = field(default_factory=SemaphoreHistory)

    @classmethod
    def of(cls, checks: Sanitizers) -> Watch | None:
        """Return what the sanitizers ask for; None where no accesses are recorded."""
        if not checks.last_accesses:
            return None
        return cls(Coherence() if checks.caches else None, checks.global_races)


class Order:
    """One queue's place in the order of all work."""

    def __init__(self, watch: Watch, queue: QueueObject) -> None:
        self.watch, self._queue = watch, queue
        self.number = next(_numbers)
        self.known: VectorClock = {}
        """What was done before the packet at hand."""
        self.acting: Work | None = None
        """The work in flight at hand; None: a packet."""
        self._counts: Counter[str] = Counter()
        self._rung: deque[tuple[int, VectorClock]] = deque()
        """Position in the ring from which on, and what the host may have seen done before it submitted."""

    def begin(self, sort: Sort, at: str, behind: Collection[Sort], after: Iterable[Flight]) -> Work:
        """Return new work of the queue, behind all earlier work of some sorts and behind some flights."""
        stream = sort.name.lower()
        known = dict(self.known)
        join(known, self._all(behind))
        for one in after:
            if one.work is not None:
                join(known, one.work.end_clock())
        self._counts[stream] += 1
        name = f"{stream} on {self._queue.name} ({at})"
        return Work((self.number, stream), self._counts[stream], name, known)

    def drained(self, sorts: Collection[Sort] = tuple(Sort)) -> None:
        """Take note that the packet at hand has waited for all earlier work of some sorts."""
        join(self.known, self._all(sorts))

    def _all(self, sorts: Collection[Sort]) -> VectorClock:
        names = (sort.name.lower() for sort in sorts)
        return {(self.number, name): self._counts[name] for name in names if self._counts[name]}

    def over(self, flight: Flight) -> None:
        """Check and keep work in flight that is over."""
        if flight.work is not None and flight.work.touched:
            self._judge(flight.work, kernel=flight.sort is Sort.KERNEL, through_l2=flight.through_l2)

    def _judge(self, work: Work, *, kernel: bool, through_l2: bool = False) -> None:
        coherence = self.watch.coherence
        race = self.watch.races.check(work) if self.watch.judges else ""
        if race:
            exception = QueueException.WAVE_ABORT if kernel else QueueException.PACKET_UNSUPPORTED
            raise QueueFault(Kind.RACE, race, exception)
        if coherence is not None:
            if not kernel:
                reader = self._queue.gpu if through_l2 else None
                coherence.read(work, "a copy or a packet", reader)
            coherence.done(self._queue.gpu, work, through_l2=kernel or through_l2)

    def touches(self, va: int, size: int, *, write: bool, what: str) -> None:
        """Take note of an access of data, by the work or the packet at hand."""
        work = self.acting
        if work is None:
            self._counts[_CORE] += 1
            name = f"{what} on {self._queue.name}"
            work = Work((self.number, _CORE), self._counts[_CORE], name, dict(self.known))
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
        """What was done before the work or the packet at hand."""
        return self.known if self.acting is None else self.acting.end_clock()

    def stores(self, written: SemaphoreStore) -> None:
        """Take note, just before, of a store that others may wait for."""
        self.watch.history.record(written)
        RELEASES.record(self.number, written, self.clock)

    def acquired(self, wait: Wait, at: int, value: int) -> None:
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
        """Take note of a doorbell, or of a new write pointer: dwords from `position` on are valid."""
        self._rung.append((position, RELEASES.host()))

    def fetched(self, position: int) -> None:
        """Take over what the host had seen when it submitted the dword at a position."""
        while self._rung and self._rung[0][0] <= position:
            join(self.known, self._rung.popleft()[1])

    def gone(self) -> None:
        """Drop the queue, which is destroyed."""
        self.watch.races.drop_queue(self.number)
