"""Host time of launches and replays on the NVIDIA driver, on the scripted kernel: Python time alone.

The case "nv" of tools.bench. The GPU's results are written outside the measured time, so each submission
finds the previous one completed and retires it. No hardware is used, whatever `--device` names.

Not here: kernels and their speed (`emu`, `throughput`). Next: `tools.nv.scripted`, the scripted kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from drivers.kernel import view_at
from drivers.nv.driver import NvDriver
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.graph import Graph
from tools.nv.golden import sample
from tools.nv.scripted import ScriptedKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.signal import Point
    from tools.bench.rows import Bench

KERNELS = 256
_SHAPE = {"groups": (4, 1, 1), "threads": (128, 1, 1)}
_IN_FLIGHT = 3
"""Number of input sets that replays with changed inputs use in turn."""


class FinishedGpu:
    """An open device without a GPU: `finish` completes the work of its first compute queue."""

    def __init__(self) -> None:
        self._kernel = ScriptedKernel()
        driver = NvDriver("nv", lambda _: self._kernel).open(0, None)
        self.device = Device(driver)
        self.program = self.device.load(sample("sm_90a", 90))
        self._ring = driver.ring(QueueKind.COMPUTE, 0)
        self._kernel.doorbell.ignored.add(self._ring.channel.token)
        self._last: Point | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        self.device.close()

    def finish(self) -> None:
        """Write the results that a GPU writes after the last submission: signal and ring progress."""
        if self._last is not None:
            view_at(self._last.signal.va, 8).cast("Q")[0] = self._last.value - self._last.signal.base
            view_at(self._ring.memory.va, 8).cast("Q")[0] = self._ring.sequence

    def launcher(self) -> Callable[[], None]:
        """Return a function that submits one launch with new arguments."""
        queue, program = self.device.compute, self.program
        out, x = self.device.alloc(4096), self.device.alloc(4096)

        def submit() -> None:
            args = program.args(out, x, 5)
            self._last = queue.submit(queue.record().exec(program, args, **_SHAPE))

        return submit

    def replayer(self, kernels: int = KERNELS, *, changed: bool) -> Callable[[], None]:
        """Return a function that replays a graph of kernels with one input each, all changed or none."""
        graph, queue, out = Graph(), self.device.compute, self.device.alloc(4096)
        commands = queue.record()
        for i in range(kernels):
            commands.exec(self.program, self.program.args(out, graph.param(f"input{i}"), 5), **_SHAPE)
        graph.add(queue, commands)
        executable = graph.compile()
        sets = [
            [self.device.alloc(4096) for _ in range(kernels)] for _ in range(_IN_FLIGHT if changed else 1)
        ]
        turn = 0

        def submit() -> None:
            nonlocal turn
            turn = (turn + 1) % len(sets)
            self._last = executable.replay(sets[turn])

        return submit


def nv(bench: Bench) -> None:
    """Measure one launch, and replays of 256 kernels with every input changed and with none changed."""
    with FinishedGpu() as gpu:
        info = gpu.device.info
        device = f"{info.driver}:{info.index} {info.name}, scripted"
        cases = {
            "record + args + encode + ring, one kernel": gpu.launcher(),
            f"{KERNELS} kernels replayed, every input changed": gpu.replayer(changed=True),
            f"{KERNELS} kernels replayed, nothing changed": gpu.replayer(changed=False),
        }
        for case, run in cases.items():
            bench.measure(case, run, before=gpu.finish, samples=2000, device=device)


CASES = {"nv": nv}
