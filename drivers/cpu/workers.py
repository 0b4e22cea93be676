"""Native code for launches: workgroups of a dispatch, shared between a queue's processor and worker threads.

A dispatch with enough work is published in its queue's record, and worker threads (one for each usable core,
minus one) take workgroups from all queues. A thread claims workgroups with one compare-and-swap on `ticket`,
which holds the number of the dispatch and the workgroups left. If the swap succeeds, the dispatch was not
over while the thread read the other fields of the record, so they belong to this dispatch.

Not here: the packets (`processor`), the sleep (`futex`), the threads' cores (`cores`). The functions are in
the subset of Python that `drivers.cpu.native` translates. Next: `processor`.
"""
# ruff: noqa: ARG001, PLR0917, SIM102 - native code, in the subset of Python that `native` translates

from __future__ import annotations

from drivers.cpu.cores import join_pool, keep_apart
from drivers.cpu.futex import ALL_THREADS, LOW, sleep, wake
from drivers.cpu.layouts import Copy, Exec, Pool, Queue, Runner
from drivers.cpu.primitives import (
    acquire,
    address,
    base,
    call,
    cas,
    fetch_add,
    pause,
    release,
    swap,
    u64,
    view,
)

CHUNK = 1 << 20
"""Bytes that one workgroup of a shared copy copies."""
CHUNK_NS = 100_000
"""The estimated nanoseconds to copy one chunk."""
SLICE = 1 << 31
"""The most workgroups that one ticket can count."""


def run(function: u64, args: u64, x: u64, y: u64, first: u64, end: u64) -> None:
    """Run workgroups [first, end) of a grid of x * y * ... workgroups on this thread; x varies fastest."""
    gx = 0
    gy = 0
    gz = 0
    if first:
        gx = first % x
        gy = first // x % y
        gz = first // x // y
    while first < end:
        call(function, args, gx, gy, gz)
        first += 1
        gx += 1
        if gx == x:
            gx = 0
            gy += 1
            if gy == y:
                gy = 0
                gz += 1


def wake_some(pool: Pool, groups: u64, reserve: u64) -> None:
    """Wake at most two workers; `reserve` (0 or 1) sleeping workers are not woken.

    Each woken worker wakes two more while work is left, so no thread wakes all workers.
    """
    sleepers = acquire(pool.sleepers)
    if groups > 1 and sleepers > reserve:
        wake(pool, address(pool.epoch), 2 if groups > 2 and sleepers > reserve + 1 else 1)


def take(pool: Pool, queue: Queue, chain: u64, most: u64) -> u64:
    """Claim and run workgroups of the queue's dispatch; return the number of workgroups that were run.

    `chain` is not 0 for a worker that was woken: it wakes others. With `most` 0 the thread continues until no
    workgroup is left. Otherwise it claims once, at most `most` nanoseconds of estimated work, and nothing if
    a workgroup may take longer.
    """
    finished = 0
    total = 0
    while not acquire(pool.stop):
        ticket = acquire(queue.ticket)
        left = ticket & LOW
        if left == 0:
            break
        function = queue.function
        args = queue.args
        x = queue.x
        y = queue.y
        total = queue.total
        ns = queue.group_ns
        if chain:
            wake_some(pool, left, queue.reserve)
            chain = 0
        count = left // (2 * pool.workers + 2) + 1
        if most:
            if ns == 0 or ns > most:
                break
            count = min(count, most // ns)
        if cas(queue.ticket, ticket, ticket - count):
            run(function, args, x, y, total - left, total - left + count)
            finished += count
            if most:
                break
    if finished:
        if fetch_add(queue.done, finished) + finished == total and acquire(queue.waiting):
            wake(pool, address(queue.done), ALL_THREADS)
    return finished


def worker(pool: Pool) -> u64:
    """Run workgroups of all queues; sleep while no dispatch is published. A thread's main function."""
    join_pool(pool)
    woken = 0
    while not acquire(pool.stop):
        seen = acquire(pool.epoch)
        busy = 0
        at = pool.queues
        while at < pool.queues_end:
            busy += take(pool, view(Queue, at), woken, 0)
            at += Queue.SIZE
        woken = 0
        if busy:
            continue
        spins = 0
        while acquire(pool.epoch) == seen and spins < pool.spins:
            pause()
            spins += 1
        if acquire(pool.epoch) == seen:
            fetch_add(pool.sleepers, 1)
            sleep(pool, address(pool.epoch), seen, 0)
            fetch_add(pool.sleepers, -1)
            woken = 1
    fetch_add(pool.left, 1)
    return 0


def expected(pool: Pool, queue: Queue, group_ns: u64) -> u64:
    """Return whether a thread that is no worker is expected to take workgroups of the next dispatch.

    While a host thread executes the packets, this is the processor. Otherwise it is a host thread that waits
    now or that helped with the last dispatch.
    """
    if queue.runner == Runner.HOST:
        return 0 if acquire(queue.asleep) else 1
    if group_ns == 0 or group_ns > pool.help_ns:
        return 0
    return 1 if queue.helped or acquire(pool.helping) == base(queue) else 0


def share(
    pool: Pool, queue: Queue, function: u64, args: u64, x: u64, y: u64, first: u64, end: u64, group_ns: u64
) -> None:
    """Publish workgroups [first, end), run some of them, and return when all are done or the device stops.

    If another thread is expected to help, one worker is not woken, unless no thread has helped after the
    first part. A dispatch with little work wakes no worker.
    """
    groups = end - first
    reserve = expected(pool, queue, group_ns)
    queue.function = function
    queue.args = args
    queue.x = x
    queue.y = y
    queue.total = end
    queue.done = first
    queue.group_ns = group_ns
    queue.reserve = reserve
    fetch_add(pool.shared, 1)
    release(queue.ticket, ((queue.ticket >> 32) + 1) << 32 | groups)
    fetch_add(pool.epoch, 1)
    if reserve < pool.workers and (group_ns == 0 or groups * group_ns >= pool.wake_ns):
        keep_apart(pool)
        wake_some(pool, groups, reserve)
    taken = 0
    if reserve and group_ns:
        taken = take(pool, queue, 0, SLICE * group_ns)
        left = acquire(queue.ticket) & LOW
        if left == groups - taken and left * group_ns >= pool.wake_ns:
            queue.reserve = 0
            keep_apart(pool)
            wake_some(pool, left + 1, 0)
    taken += take(pool, queue, 0, 0)
    if taken == groups:
        queue.helped = 0
    spins = 0
    while True:
        done = acquire(queue.done)
        if done == end or acquire(pool.stop):
            break
        if spins < pool.long_spins:
            spins += 1
            pause()
        else:
            swap(queue.waiting, 1)
            done = acquire(queue.done)
            if done != end and not acquire(pool.stop):
                sleep(pool, address(queue.done), done, 0)
            queue.waiting = 0
    fetch_add(pool.shared, -1)


def dispatch(pool: Pool, queue: Queue, packet: Exec) -> None:
    """Execute an EXEC: on this thread if its estimated work is small, else together with the workers."""
    x = packet.x
    y = packet.y
    total = x * y * packet.z
    if total == 0:
        return
    if total == 1 or pool.workers == 0 or (packet.group_ns and total * packet.group_ns < pool.grain_ns):
        run(packet.function, packet.args, x, y, 0, total)
        return
    first = 0
    while first < total and not acquire(pool.stop):
        end = min(first + SLICE, total)
        share(pool, queue, packet.function, packet.args, x, y, first, end, packet.group_ns)
        first = end


def copy_group(queue: Queue, group: u64, y: u64, z: u64) -> None:
    """Copy chunk `group`: the kernel of a shared copy, whose argument block is the queue's record."""
    at = group * CHUNK
    size = min(queue.copy_size - at, CHUNK)
    call(queue.copy_memcpy, queue.copy_dst + at, queue.copy_src + at, size)


def copy(pool: Pool, queue: Queue, packet: Copy) -> None:
    """Execute a COPY; large ranges are shared with the workers."""
    size = packet.size
    if size < 4 * CHUNK or pool.workers == 0:
        call(pool.memcpy, packet.dst, packet.src, size)
        return
    queue.copy_dst = packet.dst
    queue.copy_src = packet.src
    queue.copy_size = size
    queue.copy_memcpy = pool.memcpy
    groups = (size + CHUNK - 1) // CHUNK
    share(pool, queue, pool.copy_group, base(queue), groups, 1, 0, groups, CHUNK_NS)
