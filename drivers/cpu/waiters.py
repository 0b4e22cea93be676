"""Native code for signals: setting one, waiting for one, and waking its waiters.

Not here: the sleep itself (`futex`), the WAIT and SIGNAL packets (`processor`). The functions are in the
subset of Python that `drivers.cpu.native` translates.
"""

from __future__ import annotations

from drivers.cpu.futex import ALL_THREADS, now, sleep, wake
from drivers.cpu.layouts import Pool, Slot
from drivers.cpu.primitives import acquire, call, fetch_add, pause, swap, u64, view


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


def wait_signal(pool: Pool, at: u64, value: u64, timeout: u64, host: u64) -> u64:
    """Spin, then sleep at most once; return 1 if the signal has reached `value`, else 0.

    `timeout` is the address of a timespec or 0; `host` is 1 in a call of the host. To sleep and to be woken
    takes longer than a small kernel. So if the host last slept only briefly, it spins for longer the next
    time; a long spin in vain makes the next one short. It does not spin for longer beside a dispatch that is
    shared: a worker may need its core.
    """
    signal = view(Slot, at)
    spins = 0
    budget = pool.spins
    if host:
        cpu = call(pool.sched_getcpu)
        pool.host_cpu = cpu
        if cpu == pool.device_cpu:  # spinning would keep the processor's thread from running
            budget = 0
        elif pool.brief:
            budget = pool.long_spins
    while acquire(signal.value) < value and spins < budget:
        if spins >= pool.spins and acquire(pool.shared):
            break
        pause()
        spins += 1
    seen = acquire(signal.value)
    if seen < value:
        waiters = view(Slot, counter(pool, at))
        began = now(pool)
        fetch_add(waiters.value, 1)
        seen = acquire(signal.value)
        if seen < value:
            sleep(pool, at, seen, timeout)
        fetch_add(waiters.value, -1)
        if host:
            pool.brief = 1 if budget <= pool.spins and now(pool) - began < pool.often_ns else 0
        if acquire(signal.value) < value:
            return 0
    return 1
