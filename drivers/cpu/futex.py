"""Native code for the clock, for sleeping (the futex calls `sleep` and `wake`), and for waiting for signals.

No wake-up is lost: before a thread sleeps, it announces the sleep with a sequentially consistent operation,
checks the condition again, and passes the value that it read to the kernel, which compares it. A thread that
makes the condition true stores with a sequentially consistent operation, and then checks for sleepers.

Not here: the WAIT and SIGNAL packets (`processor`), waits of `workers` and of the host (`host`). The
functions are in the subset of Python that `drivers.cpu.native` translates. Source of the numbers: Linux's
syscall tables and include/uapi/linux/futex.h.
"""

from __future__ import annotations

import os

from drivers.cpu.layouts import Pool, Slot, Timespec
from drivers.cpu.primitives import acquire, base, call, fetch_add, pause, stack, swap, syscall, u64, view

SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine, 0)
FUTEX_WAIT_PRIVATE = 128
FUTEX_WAKE_PRIVATE = 129
CLOCK_MONOTONIC = 1
ALL_THREADS = 0x7FFF_FFFF
"""The `count` of `wake` for all threads."""
LOW = 0xFFFF_FFFF
SECOND = 1_000_000_000


def now(pool: Pool) -> u64:
    """Return the time of CLOCK_MONOTONIC in nanoseconds."""
    time = view(Timespec, stack(16))
    call(pool.clock_gettime, CLOCK_MONOTONIC, base(time))
    return time.seconds * SECOND + time.ns


def sleep(pool: Pool, word: u64, seen: u64, timeout: u64) -> None:
    """Sleep while the low half of the u64 at `word` equals that of `seen`.

    May also return early. `timeout` is the address of a timespec; 0: no limit.
    """
    syscall(pool.syscall, SYS_FUTEX, word, FUTEX_WAIT_PRIVATE, seen & LOW, timeout, 0, 0)


def wake(pool: Pool, word: u64, count: u64) -> None:
    """Wake at most `count` threads that sleep on the u64 at `word`."""
    syscall(pool.syscall, SYS_FUTEX, word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0)


def counter(pool: Pool, signal: u64) -> u64:
    """Return the address of the counter of a signal's sleeping waiters; several signals may share one."""
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

    `timeout` is the address of a timespec; 0: no limit.
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

    `timeout` is the address of a timespec; 0: no limit.
    """
    signal = view(Slot, at)
    spins = 0
    while acquire(signal.value) < value and spins < pool.spins:
        pause()
        spins += 1
    if acquire(signal.value) >= value:
        return 1
    return sleep_until(pool, at, value, timeout)
