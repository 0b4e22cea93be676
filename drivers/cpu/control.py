"""The control memory of an open `cpu` device: pool, queues and rings, and their initial contents.

In ascending order: the `Pool` with its timespecs and the set of cores, the `Queue` records, the ids of the
worker threads, the rings, and a stack for host threads that help. Only the host uses the offsets here; native
code finds everything by addresses in the pool.

Not here: the records' fields (`layouts`), their owner (`device`), reuse of the memory (`driver`). Next:
`device`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from drivers.cpu.cores import CORES_BYTES, MOST_APART, NO_CORE
from drivers.cpu.layouts import WAITERS, Pool, Queue, Timespec
from drivers.cpu.ring import RING_BYTES
from drivers.cpu.threads import IMPORTS, STACK_BYTES
from drivers.kernel import PAGE
from drivers.kernel import Mapping as Memory

SPINS = 200
"""PAUSE instructions before a thread sleeps, about 5 us. Longer spins cost time when cores are scarce."""
LONG_SPINS = 1200
"""PAUSE instructions, about 30 us, before a processor sleeps whose doorbells are frequent, and before a host
thread sleeps whose last sleep was brief (`OFTEN_NS`)."""
OFTEN_NS = 40_000
"""A doorbell is frequent if it comes within this time after its queue became empty; a shorter sleep is
brief."""
MOVE_NS = 1_000_000
"""Minimum interval between two moves of a processor away from the core of the host thread."""
GRAIN_NS = 4000
"""A dispatch with less estimated work runs on one thread."""
PEEK_NS = 200_000
"""The polling interval of a wait for a signal that a device of another driver may set."""
POLL_NS = 5_000_000
"""The longest sleep of a host thread in native code, before Python checks for faults and Unix signals."""
HELP_NS = 2_000_000
"""A waiting host thread takes no workgroup with a longer estimate, because it must react to Ctrl-C in
time."""
WAKE_NS = 40_000
"""A dispatch with less estimated work wakes no sleeping worker, because waking takes as long as the work."""

_TIMES = 2048
"""Offset of the timespecs: `PEEK_NS`, then `POLL_NS`."""
_CORES = 3072
"""Offset of the set of usable cores."""
_QUEUES = 4096
"""Offset of the queues."""
_THREADS = _QUEUES + 2048
"""Offset of the ids of the worker threads, after the queues."""
_RINGS = _QUEUES + PAGE
"""Offset of the rings."""


class Control:
    """The control memory of a device with `count` queues, whose threads do not run yet.

    The memory may be reused: a host thread of an earlier device may still read constants in it. The caller
    owns `memory`. `code` and `imports` map names of compiled functions and of libc's functions to their
    addresses. `waiters` is the address of the counters of sleeping waiters.
    """

    def __init__(
        self,
        memory: Memory,
        count: int,
        *,
        workers: int,
        code: Mapping[str, int],
        imports: Mapping[str, int],
        waiters: int,
    ) -> None:
        va, self.memory = memory.va, memory
        self.pool = pool = Pool(va)
        self.poll_va = va + _TIMES + Timespec.SIZE
        """Address of the timespec of `POLL_NS`."""
        for name in IMPORTS:
            setattr(pool, name, imports[name])
        pool.waiters = waiters
        pool.workers, pool.spins, pool.grain_ns = workers, SPINS, GRAIN_NS
        pool.long_spins, pool.often_ns = LONG_SPINS, OFTEN_NS
        pool.move_ns = MOVE_NS
        self._set_cores()
        pool.threads = va + _THREADS
        pool.queues = va + _QUEUES
        pool.queues_end = pool.queues + count * Queue.SIZE
        pool.copy_group, pool.assist = code["copy_group"], code["assist"]
        pool.stack_top = va + memory.size
        pool.help_ns, pool.turn_ns, pool.wake_ns = HELP_NS, POLL_NS, WAKE_NS
        pool.peek = va + _TIMES
        for at, ns in ((pool.peek, PEEK_NS), (self.poll_va, POLL_NS)):
            Timespec(at).ns = ns
        self.queues = tuple(Queue(pool.queues + i * Queue.SIZE) for i in range(count))
        """The record of each queue."""
        self.clear()

    def _set_cores(self) -> None:
        """Record the set of cores that this process may use; with one core the set stays empty."""
        cores, pool = os.sched_getaffinity(0), self.pool
        pool.cores, pool.cores_bytes = self.memory.va + _CORES, 0
        if len(cores) > 1 and max(cores) < 8 * CORES_BYTES:
            self.memory.view[_CORES : _CORES + CORES_BYTES] = sum(1 << core for core in cores).to_bytes(
                CORES_BYTES, "little"
            )
            pool.cores_bytes = CORES_BYTES

    def clear(self) -> None:
        """Reset the pool and the queues to the state in which threads start."""
        pool, view = self.pool, self.memory.view
        for name in ("halt", "stop", "left", "fault", "fault_queue", "fault_packet", "fault_op", "sleepers"):
            setattr(pool, name, 0)
        pool.host_cpu = pool.device_cpu = pool.apart = NO_CORE
        pool.joined = pool.shared = pool.brief = 0
        view[_THREADS : _THREADS + 8 * MOST_APART] = bytes(8 * MOST_APART)
        view[_QUEUES : _QUEUES + len(self.queues) * Queue.SIZE] = bytes(len(self.queues) * Queue.SIZE)
        for i, queue in enumerate(self.queues):
            queue.pool, queue.ring, queue.mask = pool.va, self.memory.va + _ring_at(i), RING_BYTES - 1

    def ring(self, i: int) -> memoryview:
        """Return the bytes of the ring of queue `i`."""
        return self.memory.view[_ring_at(i) : _ring_at(i + 1)]


def _ring_at(i: int) -> int:
    return _RINGS + i * RING_BYTES


def stack_at(queues: int) -> int:
    """Return the offset of the guard page before the stack of a host thread that helps, after the rings."""
    return _ring_at(queues)


def control_bytes(queues: int) -> int:
    """Return the size in bytes of the control memory of a device with `queues` queues."""
    return stack_at(queues) + PAGE + STACK_BYTES


assert Pool.SIZE <= _TIMES
assert _TIMES + 2 * Timespec.SIZE <= _CORES
assert _CORES + CORES_BYTES <= _QUEUES
assert 4 * Queue.SIZE <= _THREADS - _QUEUES
assert _THREADS + 8 * MOST_APART <= _RINGS
assert WAITERS * 8 <= PAGE  # the counters of a process fit one page
