"""The engines of the emulated AMD GPUs: what executes each kind of queue, and which queues wait in vain.

Not here: which queue runs when (`drivers.emu.scheduler`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.emu.engines.aql import Aql
from drivers.amd.emu.engines.kernels import PATIENCE_S, Kernels
from drivers.amd.emu.engines.ledgers import Ledgers
from drivers.amd.emu.engines.order import Watch
from drivers.amd.emu.engines.pm4 import Pm4Queue
from drivers.amd.emu.engines.run import Run
from drivers.amd.emu.engines.sdma import Sdma
from drivers.amd.layouts.kfd import QueueType
from drivers.emu.simt.engine import Settings
from drivers.emu.waits import find_deadlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from drivers.amd.emu.engines.bus import Bus
    from drivers.amd.emu.engines.machine import Machine
    from drivers.amd.emu.engines.order import Flights
    from drivers.amd.emu.engines.ring import Ring
    from drivers.amd.emu.engines.run import Engine
    from drivers.amd.emu.kfd.queues import QueueObject
    from drivers.amd.emu.machine.runs import QueueRun

_MAKERS: Final[Mapping[QueueType, Callable[[Bus, Flights, Kernels, Ring], Engine]]] = {
    QueueType.COMPUTE: Pm4Queue,
    QueueType.COMPUTE_AQL: Aql,
    QueueType.SDMA: Sdma,
    QueueType.SDMA_XGMI: Sdma,
    QueueType.SDMA_BY_ENG_ID: Sdma,
}


class AmdEngines:
    """Makes and judges runs (`drivers.amd.emu.machine.runs.Engines`)."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        report: Path | None = None,
        patience_s: float = PATIENCE_S,
        remaps: bool = True,
    ) -> None:
        """`settings` are those of the SIMT engine that runs kernels; `report` gets a line of JSON.

        `remaps`: see `Ring`. `patience_s`: see `Kernels`. The order of steps depends on the time of slices,
        unless it is long.
        """
        settings = settings or Settings()
        self._remaps = remaps
        ledgers = None if report is None else Ledgers(report)
        self.kernels = Kernels(settings, ledgers, patience_s=patience_s)
        self.watch = Watch.of(settings.checks)
        """Records races between queues and caches; None where that is off."""

    def make(self, machine: Machine, queue: QueueObject) -> Run:
        """Return what executes a new queue."""
        return Run(machine, queue, self.kernels, _MAKERS[queue.kind], self.watch, remaps=self._remaps)

    def close(self) -> None:
        """Write the report, where one is wanted, and drop what is known of the queues."""
        if self.watch is not None:
            self.watch.races.close()
        if self.kernels.ledgers is not None:
            self.kernels.ledgers.close()

    def endless_waits(self, stuck: Sequence[QueueRun]) -> Mapping[QueueRun, str]:
        """Return which runs wait for each other or for a value that has passed, and why; changes nothing."""
        runs = [run for run in stuck if isinstance(run, Run)]
        found = find_deadlock(runs, lambda run: run.ahead())
        if found:
            return dict(found.items())
        return {run: text for run in runs if (text := run.passed())}
