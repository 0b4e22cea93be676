"""Native code for the placement of threads on cores, which keeps threads of one device on different cores.

Workers are kept off the core of a queue's processor, and a processor off the core of the host thread. With
few cores no core is idle when a thread is woken, because the waking thread and the host's thread still run.
Linux then often queues the woken thread on the core of the waking thread, where it waits for milliseconds
although another core becomes idle.

Not here: the threads' work (`processor`, `workers`). The functions are in the subset of Python that
`drivers.cpu.native` translates. Next: `processor`. Source of the numbers: Linux's syscall tables.
"""

from __future__ import annotations

import os

from drivers.cpu.layouts import Pool, Queue, Slot
from drivers.cpu.primitives import call, fetch_add, load64, stack, swap, syscall, u64, view

SYS_SCHED_SETAFFINITY = {"x86_64": 203, "aarch64": 122}.get(os.uname().machine, 0)
SYS_GETTID = {"x86_64": 186, "aarch64": 178}.get(os.uname().machine, 0)
NO_CORE = 0xFFFF_FFFF
"""Means "no core yet" in fields that hold the number of a core."""
CORES_BYTES = 128
"""Size of a set of 1,024 cores, as Linux's cpu_set_t."""
MOST_APART = 128
"""The most workers whose thread ids are recorded, so that they can be kept off a processor's core."""


def all_but(pool: Pool, core: u64, at: u64) -> None:
    """Write the set of usable cores without `core` to address `at`, where `CORES_BYTES` bytes are free."""
    call(pool.memcpy, at, pool.cores, pool.cores_bytes)
    word = view(Slot, at + core // 64 * 8)
    word.value = word.value & ~(1 << core % 64)


def move_away(pool: Pool, queue: Queue, core: u64, time: u64) -> u64:
    """Move this thread from the host's core to any other usable core; return its core afterwards.

    If both are on one core, each doorbell costs two context switches. The full set of cores is restored at
    once, so the thread is not pinned. It stays, and `core` is returned, if it was moved less than `move_ns`
    ago, and where the set of cores is not known.
    """
    if pool.cores_bytes == 0 or time - queue.moved < pool.move_ns:
        return core
    queue.moved = time
    queue.avoided = 0
    others = stack(128)
    all_but(pool, core, others)
    syscall(pool.syscall, SYS_SCHED_SETAFFINITY, 0, pool.cores_bytes, others, 0, 0, 0)
    syscall(pool.syscall, SYS_SCHED_SETAFFINITY, 0, pool.cores_bytes, pool.cores, 0, 0, 0)
    return call(pool.sched_getcpu)


def keep_off(pool: Pool, queue: Queue, core: u64) -> None:
    """Keep a sleeping processor off `core`, the core of the host thread that is about to wake it.

    The host thread executes packets itself until it sleeps or its time slice ends. A processor that Linux
    queues on the same core would wait until then, although another core is idle. Does nothing where the set
    of cores is not known.
    """
    if pool.cores_bytes == 0 or queue.avoided == core + 1 or queue.thread == 0:
        return
    queue.avoided = core + 1
    others = stack(128)
    all_but(pool, core, others)
    syscall(pool.syscall, SYS_SCHED_SETAFFINITY, queue.thread, pool.cores_bytes, others, 0, 0, 0)


def join_pool(pool: Pool) -> None:
    """Record the id of this worker thread, so that processors can keep it off their cores."""
    number = fetch_add(pool.joined, 1)
    if number < MOST_APART:
        thread = view(Slot, pool.threads + number * 8)
        swap(thread.value, syscall(pool.syscall, SYS_GETTID, 0, 0, 0, 0, 0, 0))
        swap(pool.apart, NO_CORE)  # so the next dispatch also moves this thread


def keep_apart(pool: Pool) -> None:
    """Keep all workers off this thread's core, until a thread on another core shares a dispatch.

    Does nothing if that is the case already.
    """
    core = call(pool.sched_getcpu)
    if pool.cores_bytes == 0 or core == pool.apart:
        return
    swap(pool.apart, core)
    others = stack(128)
    all_but(pool, core, others)
    at = pool.threads
    end = at + min(pool.joined, MOST_APART) * 8
    while at < end:
        thread = load64(at)
        if thread:  # 0: the worker has not stored its id yet; it resets `apart` afterwards
            syscall(pool.syscall, SYS_SCHED_SETAFFINITY, thread, pool.cores_bytes, others, 0, 0, 0)
        at += 8
