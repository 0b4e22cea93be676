"""The engines of the emulated AMD GPUs: the engine of each kind of queue, and the search for endless waits.

`EngineRun` executes one queue, step by step: a step either executes one packet or advances one piece of work
in flight. A seeded generator chooses.

Not here: what packets do (`pm4`, `aql`, `sdma`), which queue runs when (`emulator.shared.scheduler`). Next:
`ring`, then the engine of each kind of queue.
"""

# ruff: noqa: D102 - contracts of methods without a docstring are in the Protocols

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, Protocol

from drivers.amd.layouts.kfd import QueueType
from emulator.amd.engines.aql import Aql
from emulator.amd.engines.bus import Bus
from emulator.amd.engines.kernels import PATIENCE_S, Kernels
from emulator.amd.engines.ledgers import Ledgers
from emulator.amd.engines.order import Flight, Flights, OrderWatch, QueueClock, Sort
from emulator.amd.engines.pm4 import Pm4Queue
from emulator.amd.engines.ring import PacketRing
from emulator.amd.engines.sdma import Sdma
from emulator.amd.reports import MemoryFault
from emulator.shared.scheduler import StepOutcome
from emulator.shared.vaspace import AccessKind
from emulator.shared.waits import find_deadlock
from emulator.simt.engine import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from emulator.amd.engines.bus import EngineMachine
    from emulator.amd.engines.packets import PacketWait, StorePromise
    from emulator.amd.kfd.gpu import KfdBuffer
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.machine.runs import QueueRun
    from emulator.amd.reports import QueueFault

_FINISH_CHANCE: Final = 0.125
"""Chance that a step advances work in flight although packets are left: small, so that work overlaps."""
_MOST_FLIGHTS: Final = 32
"""Pieces of work in flight at which no further packet is executed; hardware has a limit, too."""


class PacketEngine(Protocol):
    """The interface of an engine that executes the packets of one kind of queue."""

    @property
    def at(self) -> str:
        """Which packet is being executed."""

    @property
    def active(self) -> bool:
        """Whether packets are left, or one is not complete."""

    @property
    def unfinished(self) -> bool:
        """Whether packets with an effect are left: `active` without NOPs that end the ring."""

    def waits(self) -> list[PacketWait]:
        """Return the waits of the current packet; empty if it waits for no memory."""

    def can_advance(self) -> bool:
        """Return whether `advance` can do something. Raises `QueueFault` for a poll that gives up."""

    def advance(self) -> None:
        """Do one thing: end a wait, or execute a packet. Raises `QueueFault` or `MemoryFault`."""

    def ahead(self) -> Iterator[StorePromise]:
        """Yield the stores of the packets that are not executed yet."""


class EngineRun:
    """The execution of one queue (`emulator.amd.machine.runs.QueueRun`)."""

    def __init__(
        self,
        machine: EngineMachine,
        queue: QueueObject,
        kernels: Kernels,
        make: Callable[[Bus, Flights, Kernels, PacketRing], PacketEngine],
        watch: OrderWatch | None = None,
        *,
        remaps: bool = True,
    ) -> None:
        """`make` creates the engine. `watch` records races and caches; None records neither.

        `remaps`: see `PacketRing`.
        """
        self.queue = queue
        self.yielded = False
        self._order = None if watch is None else QueueClock(watch, queue)
        self._bus = Bus(machine, queue, self._order)
        self._make, self._kernels = make, kernels
        self._flights = Flights(self._order)
        self._ring = PacketRing(self._bus, remaps=remaps)
        self._engine = make(self._bus, self._flights, kernels, self._ring)
        self._acting: Flight | None = None
        self._dead = False
        self._rng = random.Random(machine.rng.getrandbits(64))  # noqa: S311 - an order, not a secret
        self._late = random.Random(machine.rng.getrandbits(64))  # noqa: S311 - the same
        """Chooses when releases complete. The host may ring again before the last release is complete, so the
        number of draws depends on time. The order of kernels must not depend on time: it is drawn from
        `_rng`."""

    @property
    def name(self) -> str:
        """The queue's name in reports."""
        return self.queue.name

    @property
    def at(self) -> str:
        """The packet or the work in flight that is being executed, for reports; "" if there is none."""
        if self._acting is not None:
            return self._acting.at
        return self._engine.at if self.busy or self._dead else ""

    @property
    def busy(self) -> bool:
        return not self._dead and bool(self._engine.active or self._flights.all)

    @property
    def unfinished(self) -> bool:
        return not self._dead and bool(self._engine.unfinished or self._flights.all)

    @property
    def stuck(self) -> bool:
        return not self._flights.all and bool(self._engine.waits()) and not self._engine.can_advance()

    @property
    def computing(self) -> bool:
        ready = self._flights.ready()
        return bool(ready) and all(one.slice is not None for one in ready) and not self._engine.can_advance()

    @property
    def in_background(self) -> bool:
        return any(one.in_background for one in self._flights.all)

    @property
    def waiting(self) -> PacketWait | None:
        """The first wait of the current packet; None if it does not wait for memory."""
        return next(iter(self._engine.waits()), None)

    def standing(self) -> str:
        wait = self.waiting
        if wait is None:
            return self.at or "its start"
        try:
            seen = f"{self._bus.load(wait.va, wait.bits // 8, wait.name):#x}"
        except MemoryFault as fault:
            seen = str(fault)
        return f"{self.at}, waits: {wait}, seen {seen}"

    def ahead(self) -> Iterator[StorePromise]:
        yield from self._engine.ahead()

    def passed(self) -> str:
        """Return why the queue's wait never ends: the word only rises, and is past the value.

        Returns "" if it may end, and always if accesses are not recorded.
        """
        wait = self.waiting
        if wait is None or self._order is None:
            return ""
        size = wait.bits // 8
        at = self._bus.space.host(wait.va, size, AccessKind.READ, wait.name)
        seen = self._bus.load(wait.va, size, wait.name)
        if not self._order.watch.history.passed(at, wait, seen):
            return ""
        return f"{wait}, which is {seen:#x}: the value has passed, and only rises"

    def step(self) -> StepOutcome:
        """Advance one piece of work, or execute a packet. Raises `QueueFault` or `MemoryFault`."""
        if self._dead:
            return StepOutcome.IDLE
        self.yielded = False
        can = self._engine.can_advance()
        if self._flights.all and (outcome := self._continue(can=can)) is not None:
            return outcome
        if not can:
            self._ring.tell(lazily=False)
            if not self.busy:
                self._bus.settled()
            return StepOutcome.BLOCKED if self.busy else StepOutcome.IDLE
        self._engine.advance()
        self._ring.tell(lazily=self._engine.active)
        if not self._engine.waits():
            self._ring.maybe_remap()
        return StepOutcome.PROGRESS

    def _continue(self, *, can: bool) -> StepOutcome | None:
        """Advance one piece of work in flight; return None if the queue's packets are to go on instead.

        `can` says whether the engine can advance. If it can, a release may advance as well, and None is
        returned.
        """
        ready = [one for one in self._flights.ready() if not one.in_background]
        full = len(self._flights.all) >= _MOST_FLIGHTS
        work = [one for one in ready if one.sort is not Sort.RELEASE]
        if work and (not can or full or self._rng.random() < _FINISH_CHANCE):
            return self._advance(self._rng.choice(work))
        releases = [one for one in ready if one.sort is Sort.RELEASE]
        if releases and (not can or full or self._late.random() < _FINISH_CHANCE):
            outcome = self._advance(self._late.choice(releases))
            if not can:
                return outcome
        return None

    def _advance(self, flight: Flight) -> StepOutcome:
        self._acting = flight
        over = self._flights.advance(flight) if self._order is None else self._recorded(self._order, flight)
        self._acting = None  # not after a step that raised: the report names its work
        return StepOutcome.PROGRESS if over else StepOutcome.SLICE

    def _recorded(self, order: QueueClock, flight: Flight) -> bool:
        """Advance a flight as the current work of the queue's clock; return whether it is complete."""
        order.acting = flight.work
        try:
            over = self._flights.advance(flight)
            if over:
                order.on_complete(flight)
        finally:
            order.acting = None
        return over

    def rung(self, value: int) -> None:
        if not self._dead:
            self._ring.rung(value)

    def changed(self) -> None:
        """Handle UPDATE_QUEUE: start with an empty ring if its size changed, and read the write pointer.

        Does nothing while the queue is inactive. Raises as `PacketRing.remap`.
        """
        if self._dead or not self.queue.active:
            return
        if self._ring.words != self.queue.ring_bytes // 4:
            self._ring = PacketRing(self._bus, remaps=self._ring.remaps)
            self._engine = self._make(self._bus, self._flights, self._kernels, self._ring)
        self._ring.remap()

    def memory_gone(self, buffer: KfdBuffer) -> None:
        """Forget the semaphores in a buffer that is about to be unmapped; work in flight holds its pages."""
        if self._order is not None and buffer.backing is not None:
            first = buffer.backing.host
            self._order.watch.history.forget(first, first + buffer.size)

    def stopped(self, error: QueueFault | MemoryFault) -> None:
        del error
        self._dead = True
        self._flights.abandon()

    def close(self) -> None:
        """Stop all work, and drop the queue's clock and accesses."""
        self._dead = True
        self._flights.abandon()
        if self._order is not None:
            self._order.on_destroy()


# Kind of a queue -> the class of its engine.
_MAKERS: Final[Mapping[QueueType, Callable[[Bus, Flights, Kernels, PacketRing], PacketEngine]]] = {
    QueueType.COMPUTE: Pm4Queue,
    QueueType.COMPUTE_AQL: Aql,
    QueueType.SDMA: Sdma,
    QueueType.SDMA_XGMI: Sdma,
    QueueType.SDMA_BY_ENG_ID: Sdma,
}


class AmdEngines:
    """Creates the runs of queues, and finds endless waits (`emulator.amd.machine.runs.Engines`)."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        report: Path | None = None,
        patience_s: float = PATIENCE_S,
        remaps: bool = True,
    ) -> None:
        """Create engines without runs.

        `settings` are those of the SIMT engine that runs kernels. `report` is a file to which `close` appends
        a line of JSON for each target (`ledgers`); None writes none. `remaps`: see `PacketRing`.
        `patience_s`: see `Kernels`. The order of steps depends on the machine's speed, unless `patience_s` is
        long.
        """
        settings = settings or Settings()
        self._remaps = remaps
        ledgers = None if report is None else Ledgers(report)
        self.kernels = Kernels(settings, ledgers, patience_s=patience_s)
        self.watch = OrderWatch.of(settings.checks)
        """Records races between queues, and caches; None if both checks are off."""

    def make(self, machine: EngineMachine, queue: QueueObject) -> EngineRun:
        """Return the run that executes a new queue; `EngineRun.close` ends it."""
        return EngineRun(machine, queue, self.kernels, _MAKERS[queue.kind], self.watch, remaps=self._remaps)

    def close(self) -> None:
        """Write the report, if one is wanted, and drop all recorded accesses."""
        if self.watch is not None:
            self.watch.races.close()
        if self.kernels.ledgers is not None:
            self.kernels.ledgers.close()

    def endless_waits(self, stuck: Sequence[QueueRun]) -> Mapping[QueueRun, str]:
        """Return the runs that wait without end, with the reason of each; empty if there is none.

        They wait for each other. If none do, the runs are returned whose word has passed the awaited value.
        Changes nothing.
        """
        runs = [run for run in stuck if isinstance(run, EngineRun)]
        found = find_deadlock(runs, lambda run: run.ahead())
        if found:
            return dict(found.items())
        return {run: text for run in runs if (text := run.passed())}
