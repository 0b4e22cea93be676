"""Native code for signals: setting one, waiting for one, and waking its waiters.

Not here: the sleep itself (`futex`), the WAIT and SIGNAL packets (`processor`), waits of the host (`host`).
The functions are in the subset of Python that `drivers.cpu.native` translates.
"""

from __future__ import annotations

from drivers.cpu.futex import ALL_THREADS, sleep, wake
from drivers.cpu.layouts import Pool, Slot
from drivers.cpu.primitives import acquire, fetch_add, pause, swap, u64, view


def counter(pool: Pool, signal: u64) -> u64:
    """Return the address of the counter of sleeping waiters of a signal; few signals share one."""
    return pool.waiters + (signal >> 6 & 63) * 8


def wake_signal(pool: Pool, signal: u64) -> None:
    """Wake the waiters of a signal after the host stored to it. Called by the host."""
    fetch_add(pool.fence, 1)
    waiters = view(Slot, counter(pool, signal))
    if acquire(waiters.value):
        wake(pool, signal, ALL_THREADS)


def set_signal(pool: Pool, at: u64, value: u64) -> None:
    """Store a value to a signal and wake its waiters."""
    signal = view(Slot, at)
    swap(signal.value, value)
    waiters = view(Slot, counter(pool, at))
    if acquire(waiters.value):
        wake(pool, at, ALL_THREADS)


def sleep_until(pool: Pool, at: u64, value: u64, timeout: u64) -> u64:
    """Sleep at most once until a signal has reached `value`; return whether it has.

    `timeout` is the address of a timespec or 0.
    """
    signal = view(Slot, at)
    waiters = view(Slot, counter(pool, at))
    fetch_add(waiters.value, 1)
    seen = acquire(signal.value)
    if seen < value:
        sleep(pool, at, seen, timeout)
    fetch_add(waiters.value, -1)
    return 1 if acquire(signal.value) >= value else 0


def wait_signal(pool: Pool, at: u64, value: u64, timeout: u64) -> u64:
    """Spin, then sleep at most once; return 1 if the signal has reached `value`, else 0.

    `timeout` is the address of a timespec or 0.
    """
    signal = view(Slot, at)
    spins = 0
    while acquire(signal.value) < value and spins < pool.spins:
        pause()
        spins += 1
    if acquire(signal.value) >= value:
        return 1
    return sleep_until(pool, at, value, timeout)
