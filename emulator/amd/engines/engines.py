"""The engines of the emulated AMD GPUs: the engine of each kind of queue, and the search for endless waits.

Not here: which queue runs when (`emulator.shared.scheduler`). Next: `run`, one queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.kfd import QueueType
from emulator.amd.engines.aql import Aql
from emulator.amd.engines.kernels import PATIENCE_S, Kernels
from emulator.amd.engines.ledgers import Ledgers
from emulator.amd.engines.order import OrderWatch
from emulator.amd.engines.pm4 import Pm4Queue
from emulator.amd.engines.run import EngineRun
from emulator.amd.engines.sdma import Sdma
from emulator.shared.waits import find_deadlock
from emulator.simt.engine import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from emulator.amd.engines.bus import Bus
    from emulator.amd.engines.machine import EngineMachine
    from emulator.amd.engines.order import Flights
    from emulator.amd.engines.ring import PacketRing
    from emulator.amd.engines.run import PacketEngine
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.machine.runs import QueueRun

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
