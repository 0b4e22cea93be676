"""What one launch costs the host on the NVIDIA driver: Python alone, against the scripted driver."""

from __future__ import annotations

import json
import statistics
import time
from contextlib import closing
from typing import TYPE_CHECKING

from drivers.kernel import view_at
from drivers.nv.driver import NvDriver
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.graph import Graph
from tools.nv_golden import sample
from tools.nv_scripted import ScriptedKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.device import NvDevice
    from hcq.signal import Point


class _Finished:
    """A scripted GPU that does what it is told in no time: measured submissions are done by `_finish`."""

    def __init__(self) -> None:
        self._kernel = ScriptedKernel()
        self._driver: NvDevice = NvDriver("nv", lambda _: self._kernel).open(0, None)
        self.device = Device(self._driver)
        self._ring = self._driver.ring(QueueKind.COMPUTE, 0)

    def _finish(self, point: Point) -> None:
        """Write what the GPU would have written."""
        view_at(point.signal.va, 8).cast("Q")[0] = point.value - point.signal.base
        view_at(self._ring.memory.va, 8).cast("Q")[0] = self._ring.sequence

    def median_us(self, submit: Callable[[], Point], count: int) -> float:
        """Return the median microseconds of a submission."""
        self._kernel.bell.deaf = True
        took = []
        for _ in range(count):
            start = time.perf_counter_ns()
            point = submit()
            took.append(time.perf_counter_ns() - start)
            self._finish(point)
        self._kernel.bell.deaf = False  # the teardown is answered again
        return statistics.median(took) / 1e3


def launch_cost_us(count: int = 300) -> float:
    """Return the median microseconds to record, encode and ring one launch with its arguments."""
    gpu = _Finished()
    with closing(gpu.device) as device:
        program = device.load(sample("sm_90a", 90))
        out, x = device.alloc(4096), device.alloc(4096)
        queue = device.compute

        def submit() -> Point:
            args = program.args(out, x, 5)
            return queue.submit(queue.record().exec(program, args, groups=(4, 1, 1), threads=(128, 1, 1)))

        return gpu.median_us(submit, count)


def replay_cost_us(kernels: int = 256, *, changed: bool, count: int = 300) -> float:
    """Return the median microseconds to replay a graph, with every input changed or none."""
    gpu = _Finished()
    with closing(gpu.device) as device:
        program = device.load(sample("sm_90a", 90))
        graph, queue, out = Graph(), device.compute, device.alloc(4096)
        commands = queue.record()
        for i in range(kernels):
            args = program.args(out, graph.param(f"input{i}"), 5)
            commands.exec(program, args, groups=(4, 1, 1), threads=(128, 1, 1))
        graph.add(queue, commands)
        executable = graph.compile()
        sets = [[device.alloc(4096) for _ in range(kernels)] for _ in range(3 if changed else 1)]

        def submit() -> Point:
            sets.append(sets.pop(0))
            return executable.replay(sets[0])

        return gpu.median_us(submit, count)


def main() -> None:
    """Print the figures as JSON, in microseconds of Python."""
    figures = {
        "launch_us": launch_cost_us(),
        "replay_256_changed_us": replay_cost_us(changed=True),
        "replay_256_unchanged_us": replay_cost_us(changed=False),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
