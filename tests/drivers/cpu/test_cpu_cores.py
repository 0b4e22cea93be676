"""The cores of the cpu device's threads.

Workers are kept off the core of the processor that needs them, a processor off that of the host.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from drivers.cpu.cores import MOST_APART
from drivers.cpu.layouts import Slot
from hcq.config import override
from tests.drivers.cpu.rig import COMPUTE, Box, exec_, finish, send, set_, until, wait_

if TYPE_CHECKING:
    from drivers.cpu.device import CpuDevice
    from drivers.cpu.driver import CpuDriver

NEVER_NS = 1 << 62


def _joined(device: CpuDevice, workers: int) -> list[int]:
    """Wait until the workers have started, and return their thread numbers."""

    def numbers() -> list[int]:
        return [Slot(device.pool.threads + 8 * k).value for k in range(min(workers, MOST_APART))]

    until(lambda: device.pool.joined == workers and all(numbers()))
    return numbers()


def _processor(before: set[int]) -> int:
    """Return the thread of the first compute queue among those started since."""
    tasks = {int(entry.name) for entry in Path("/proc/self/task").iterdir()} - before
    (found,) = [t for t in tasks if Path(f"/proc/self/task/{t}/comm").read_text().strip() == "hcq compute 0"]
    return found


def test_workers_stay_off_the_core_of_the_processor_that_shares_a_dispatch(
    driver: CpuDriver, kernels: dict[str, int]
) -> None:
    cores = os.sched_getaffinity(0)
    before = {int(entry.name) for entry in Path("/proc/self/task").iterdir()}
    with override(workers=3):
        device = driver.open(0, None)
    device.pool.move_ns = NEVER_NS  # the processor stays where this test puts it
    box, workers = Box(device), _joined(device, 3)
    processor = _processor(before)
    queue = device.ring(COMPUTE, 0).queue
    until(lambda: queue.thread == processor)
    queue.thread = 0  # as before it has started: doorbells do not move it either
    for k, core in enumerate(sorted(cores), 1):
        os.sched_setaffinity(processor, {core})
        send(device.ring(COMPUTE, 0), exec_(kernels["count"], box.va + 64, 8, 1, 1, ns=0), set_(box.va, k))
        finish(device, box.va, k)
        wanted = cores - {core} if len(cores) > 1 else cores
        assert [os.sched_getaffinity(worker) for worker in workers] == [wanted] * 3
    assert box.words[8] == 8 * len(cores)
    device.close()


def test_a_doorbell_keeps_a_processor_that_sleeps_off_the_core_of_its_thread(device: CpuDevice) -> None:
    cores = os.sched_getaffinity(0)
    device.pool.move_ns = NEVER_NS
    box, ring = Box(device), device.ring(COMPUTE, 0)
    try:
        for k, core in enumerate(sorted(cores), 1):
            until(lambda: ring.queue.thread and ring.queue.asleep)
            os.sched_setaffinity(0, {core})
            send(ring, set_(box.va, k))
            wanted = cores - {core} if len(cores) > 1 else cores
            assert os.sched_getaffinity(ring.queue.thread) == wanted
            finish(device, box.va, k)
    finally:
        os.sched_setaffinity(0, cores)


def test_a_doorbell_leaves_a_processor_that_is_awake_on_its_cores(device: CpuDevice) -> None:
    cores = os.sched_getaffinity(0)
    device.pool.move_ns = NEVER_NS
    box, ring = Box(device), device.ring(COMPUTE, 0)
    until(lambda: ring.queue.thread and ring.queue.asleep)
    send(ring, wait_(box.va + 8, 1))
    until(lambda: ring.queue.stuck)
    before = os.sched_getaffinity(ring.queue.thread)
    try:
        for core in sorted(cores):
            os.sched_setaffinity(0, {core})
            send(ring, set_(box.va, core + 1))
            assert os.sched_getaffinity(ring.queue.thread) == before
    finally:
        os.sched_setaffinity(0, cores)
        box.words[1] = 1
        device.signal_written(box.va + 8)
        finish(device, box.va, max(cores) + 1)


def test_more_workers_than_are_kept_apart_run_every_workgroup(
    driver: CpuDriver, kernels: dict[str, int]
) -> None:
    with override(workers=MOST_APART + 2):
        device = driver.open(0, None)
    box = Box(device)
    _joined(device, MOST_APART + 2)
    send(device.ring(COMPUTE, 0), exec_(kernels["count"], box.va + 64, 999, 1, 1, ns=0), set_(box.va, 1))
    finish(device, box.va, 1)
    assert box.words[8] == 999
    device.close()


def test_recovered_device_keeps_its_new_workers_apart(device: CpuDevice, kernels: dict[str, int]) -> None:
    workers = device.pool.workers
    _joined(device, workers)
    device.recover()
    new = _joined(device, workers)
    box = Box(device)
    send(device.ring(COMPUTE, 0), exec_(kernels["count"], box.va + 64, 8, 1, 1, ns=0), set_(box.va, 1))
    finish(device, box.va, 1)
    cores = len(os.sched_getaffinity(0))
    assert {len(os.sched_getaffinity(worker)) for worker in new} <= {max(1, cores - 1)}
