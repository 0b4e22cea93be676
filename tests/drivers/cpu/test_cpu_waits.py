"""Waits of the host: how long they spin before they sleep."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from drivers.cpu.cores import NO_CORE
from tests.drivers.cpu.rig import COMPUTE, Box, exec_, finish, rest, send, set_, until

if TYPE_CHECKING:
    from drivers.cpu.device import CpuDevice

ALWAYS = 1 << 60
"""More spins, and more nanoseconds of sleep, than any test takes."""


def test_a_brief_sleep_makes_the_next_wait_spin_for_longer(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.often_ns = 0, ALWAYS
    assert not device.wait(box.va, 1, 0.0001)
    assert pool.brief == 1


def test_a_long_sleep_and_a_long_spin_in_vain_make_the_next_wait_short(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.often_ns = 0, 0
    assert not device.wait(box.va, 1, 0.0001)
    assert pool.brief == 0
    pool.brief, pool.long_spins, pool.often_ns, pool.device_cpu = 1, 1, ALWAYS, NO_CORE
    assert not device.wait(box.va, 1, 0.0001)
    assert pool.brief == 0


def test_a_long_spin_that_meets_its_signal_does_not_sleep(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.long_spins, pool.often_ns, pool.brief = 0, ALWAYS, 0, 1
    pool.host_cpu = pool.device_cpu = NO_CORE

    def set_it() -> None:
        until(lambda: pool.host_cpu != NO_CORE)  # the wait has begun
        box.words[0] = 1
        device.signal_written(box.va)

    setter = threading.Thread(target=set_it)
    setter.start()
    assert device.wait(box.va, 1, 0.0001)
    setter.join()
    assert pool.brief == 1  # any sleep would have made it 0


def test_no_wait_spins_for_longer_beside_a_shared_dispatch(device: CpuDevice) -> None:
    box, pool = Box(device), device.pool
    pool.spins, pool.long_spins, pool.brief, pool.shared = 0, ALWAYS, 1, 1
    pool.device_cpu = NO_CORE

    def end_it() -> None:
        try:
            until(lambda: pool.brief == 0)  # the wait has slept
        finally:
            box.words[0] = 1
            device.signal_written(box.va)

    ender = threading.Thread(target=end_it)
    ender.start()
    device.wait(box.va, 1, 0.0001)
    ender.join()
    assert pool.brief == 0
    pool.shared = 0


def test_a_shared_dispatch_is_counted_while_it_runs(device: CpuDevice, kernels: dict[str, int]) -> None:
    box, pool = Box(device), device.pool
    pool.workers = max(1, pool.workers)  # without one it would not be shared
    ring = device.ring(COMPUTE, 0)
    send(ring, exec_(kernels["spin"], box.va + 64, 2), set_(box.va, 1))
    until(lambda: pool.shared == 1)
    box.words[8] = 1
    finish(device, box.va, 1)
    rest(ring)
    assert pool.shared == 0
