"""Native code for the clock and for sleeping: `now`, and the futex calls `sleep` and `wake`.

A thread announces that it goes to sleep with a sequentially consistent operation, checks the condition again,
and then sleeps with the value that it read. A thread that publishes something stores with such an operation,
and then checks for sleepers. Source of the numbers: Linux's syscall tables and include/uapi/linux/futex.h.

Not here: what threads wait for (`waiters`, `workers`, `processor`). The functions are in the subset of Python
that `drivers.cpu.native` translates.
"""

from __future__ import annotations

import os

from drivers.cpu.layouts import Pool, Timespec
from drivers.cpu.primitives import base, call, stack, syscall, u64, view

SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine, 0)
FUTEX_WAIT_PRIVATE = 128
FUTEX_WAKE_PRIVATE = 129
CLOCK_MONOTONIC = 1
ALL_THREADS = 0x7FFF_FFFF
LOW = 0xFFFF_FFFF
SECOND = 1_000_000_000


def now(pool: Pool) -> u64:
    """Return the time of CLOCK_MONOTONIC in nanoseconds."""
    time = view(Timespec, stack(16))
    call(pool.clock_gettime, CLOCK_MONOTONIC, base(time))
    return time.seconds * SECOND + time.ns


def sleep(pool: Pool, word: u64, seen: u64, timeout: u64) -> None:
    """Sleep while the low half of the u64 at `word` equals that of `seen`.

    `timeout`: address of a timespec, or 0.
    """
    syscall(pool.syscall, SYS_FUTEX, word, FUTEX_WAIT_PRIVATE, seen & LOW, timeout, 0, 0)


def wake(pool: Pool, word: u64, count: u64) -> None:
    """Wake at most `count` threads that sleep on the u64 at `word`."""
    syscall(pool.syscall, SYS_FUTEX, word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0)
