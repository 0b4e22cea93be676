"""What one launch costs the host on the NVIDIA driver: Python alone, against the scripted driver."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from typing import TYPE_CHECKING

from drivers.kernel import view_at
from drivers.nv.driver import NvDriver
from hcq.device import Device
from hcq.driver import QueueKind
from tools.nv_golden import sample
from tools.nv_scripted import ScriptedKernel

if TYPE_CHECKING:
    from drivers.nv.device import NvDevice


def _silent(token: int) -> None:
    del token


def launch_cost_us(count: int = 300) -> float:
    """Return the median microseconds to record, encode and ring one launch with its arguments."""
    kernel = ScriptedKernel()
    driver: NvDevice = NvDriver("nv", lambda _: kernel).open(0, None)
    with closing(Device(driver)) as device:
        program = device.load(sample("sm_90a", 90))
        out, x = device.alloc(4096), device.alloc(4096)
        queue, ring = device.compute, driver.ring(QueueKind.COMPUTE, 0)
        bell, kernel.ring = kernel.ring, _silent  # type: ignore[method-assign]  # the doorbell stays silent for a while
        took = []
        for _ in range(count):
            start = time.perf_counter_ns()
            args = program.args(out, x, 5)
            point = queue.submit(queue.record().exec(program, args, groups=(4, 1, 1), threads=(128, 1, 1)))
            took.append(time.perf_counter_ns() - start)
            # What the GPU would have written.
            view_at(point.signal.va, 8).cast("Q")[0] = point.value - point.signal.base
            view_at(ring.memory.va, 8).cast("Q")[0] = ring.sequence
        kernel.ring = bell  # type: ignore[method-assign]  # it works again
    return statistics.median(took) / 1e3
