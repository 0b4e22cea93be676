"""The command processor of the `cpu` device, in the subset of Python that `drivers.cpu.native` translates.

One `processor` thread for each queue executes packets in order; each is finished before the next begins.
Python calls only the functions that `device` binds.

Not here: launches and worker threads (`workers`), the threads' cores (`cores`), signals (`waiters`),
compiling (`native`, `image`), writing packets (`encode`, `ring`).
"""
# ruff: noqa: PLW3301 - native code, in the subset of Python that `native` translates

from __future__ import annotations

from drivers.cpu.cores import all_but, join_pool, keep_apart, move_away
from drivers.cpu.futex import ALL_THREADS, now, sleep, wake
from drivers.cpu.layouts import (
    PACKET,
    Copy,
    Exec,
    Fault,
    Fill,
    Indirect,
    Op,
    Packet,
    Pair,
    Patch,
    Pool,
    Queue,
    Timestamp,
    Wait,
    Write,
)
from drivers.cpu.primitives import (
    acquire,
    address,
    base,
    call,
    cas,
    fetch_add,
    load64,
    pause,
    release,
    store8,
    store32,
    store64,
    swap,
    u64,
    view,
)
from drivers.cpu.waiters import counter, set_signal, wait_signal, wake_signal
from drivers.cpu.workers import copy, copy_group, dispatch, run, share, take, wake_some, worker

BLOCK = 1 << 16
"""The most bytes that a fill copies at once."""


def fill(pool: Pool, dst: u64, pattern: u64, size: u64) -> None:
    """Execute a FILL: store the pattern, then copy the filled bytes behind themselves, doubling."""
    if size < 4:
        while size:
            store8(dst, pattern)
            pattern = pattern >> 8
            dst += 1
            size -= 1
        return
    store32(dst, pattern)
    ready = 4
    while ready < size:
        count = min(min(ready, BLOCK), size - ready)
        call(pool.memcpy, dst + ready, dst, count)
        ready += count


def wait(pool: Pool, queue: Queue, packet: Wait) -> u64:
    """Execute a WAIT; return 0 only if the device stops or faults in the meantime."""
    swap(queue.stuck, packet.signal)
    timeout = pool.peek if packet.foreign else 0
    while not wait_signal(pool, packet.signal, packet.value, timeout, 0):
        if acquire(pool.halt):
            return 0
    queue.stuck = 0
    return 1


def patch(values: u64, plan: u64, count: u64) -> None:
    """Execute a PATCH: store values[slot] to each destination of a plan."""
    while count:
        pair = view(Pair, plan)
        store64(pair.destination, load64(values + pair.slot * 8))
        plan += Pair.SIZE
        count -= 1


def report(pool: Pool, queue: Queue, packet: Packet, fault: u64) -> u64:
    """Halt the device and record the fault if it is the first one; return 0, as `step` does."""
    if cas(pool.fault, 0, fault):
        pool.fault_queue = base(queue)
        pool.fault_op = packet.op
        release(pool.fault_packet, base(packet))
        swap(pool.halt, 1)
    return 0


def step(pool: Pool, queue: Queue, packet: Packet) -> u64:
    """Execute one packet; an INDIRECT is a fault here. Return 0 if the queue must not continue."""
    op = packet.op
    queue.first = packet.first
    queue.second = packet.second
    queue.op = op
    if op == Op.EXEC:
        dispatch(pool, queue, view(Exec, base(packet)))
    elif op == Op.SIGNAL:
        set_signal(pool, packet.first, packet.second)
    elif op == Op.WAIT:
        return wait(pool, queue, view(Wait, base(packet)))
    elif op == Op.COPY:
        copy(pool, queue, view(Copy, base(packet)))
    elif op == Op.FILL:
        filled = view(Fill, base(packet))
        fill(pool, filled.dst, filled.pattern, filled.size)
    elif op == Op.WRITE:
        written = view(Write, base(packet))
        if written.width == 8:
            store64(written.dst, written.value)
        elif written.width == 4:
            store32(written.dst, written.value)
        else:
            return report(pool, queue, packet, Fault.BAD_WIDTH)
    elif op == Op.TIMESTAMP:
        stamped = view(Timestamp, base(packet))
        store64(stamped.at, now(pool))
    elif op == Op.PATCH:
        patched = view(Patch, base(packet))
        patch(patched.values, patched.plan, patched.count)
    elif op == Op.INDIRECT:
        return report(pool, queue, packet, Fault.NESTED_INDIRECT)
    elif op != Op.NOP and op != Op.BARRIER:  # noqa: PLR1714 - no sets here
        return report(pool, queue, packet, Fault.UNKNOWN_OP)
    return 1


def indirect(pool: Pool, queue: Queue, packet: Indirect) -> u64:
    """Execute the packets of an INDIRECT in place. Return 0 if the queue must not continue."""
    at = packet.packets
    end = at + packet.count * PACKET
    while at < end:
        if acquire(pool.halt) or not step(pool, queue, view(Packet, at)):
            return 0
        at += PACKET
    return 1


def free_space(pool: Pool, queue: Queue) -> None:
    """Wake the host thread that waits for space in the ring, if there is enough."""
    wanted = acquire(queue.wanted)
    if wanted and queue.read >= wanted:
        swap(queue.wanted, 0)
        fetch_add(queue.freed, 1)
        wake(pool, address(queue.freed), ALL_THREADS)


def drain(pool: Pool, queue: Queue) -> None:
    """Execute packets until the ring is empty, or the device stops or faults."""
    read = queue.read
    while read != acquire(queue.write) and not acquire(pool.halt):
        packet = view(Packet, queue.ring + (read & queue.mask))
        if packet.op == Op.INDIRECT:
            if not indirect(pool, queue, view(Indirect, base(packet))):
                break
        elif not step(pool, queue, packet):
            break
        read += PACKET
        release(queue.read, read)
        free_space(pool, queue)
    if not acquire(pool.halt):
        swap(queue.op, 0)  # orders `read` before the last load of `wanted`
    free_space(pool, queue)


def processor(queue: Queue) -> u64:
    """Execute the queue's packets until the device stops; sleep while there is none. A thread's entry.

    Waking a thread costs the host more than the rest of a launch. So if a doorbell comes soon after the queue
    became empty, the processor spins for longer the next time; a long spin that finds no packet makes the
    next spin short.
    """
    pool = view(Pool, queue.pool)
    spins = 0
    budget = pool.spins
    empty = 0
    cpu = ALL_THREADS
    while not acquire(pool.stop):
        seen = acquire(queue.write)
        if queue.read != seen and not acquire(pool.halt):
            cpu = call(pool.sched_getcpu)
            if cpu != pool.device_cpu:
                pool.device_cpu = cpu
            drain(pool, queue)
            empty = now(pool)
            spins = 0
            if pool.host_cpu == cpu and budget != pool.spins:
                cpu = move_away(pool, queue, cpu, empty)
        if acquire(queue.write) == seen:
            if spins < budget and pool.host_cpu != cpu:
                spins += 1
                pause()
            else:
                swap(queue.asleep, 1)
                if acquire(queue.write) == seen and not acquire(pool.stop):
                    sleep(pool, address(queue.write), seen, 0)
                queue.asleep = 0
                budget = pool.long_spins if now(pool) - empty < pool.often_ns else pool.spins
                spins = 0
    fetch_add(pool.left, 1)
    return 0


def ring(queue: Queue, write_at: u64) -> None:
    """Write the doorbell: publish the bytes before `write_at`, and wake the processor if it sleeps."""
    pool = view(Pool, queue.pool)
    cpu = call(pool.sched_getcpu)
    if cpu != pool.host_cpu:
        pool.host_cpu = cpu
    swap(queue.write, write_at)
    if acquire(queue.asleep):
        wake(pool, address(queue.write), 1)


def wait_space(queue: Queue, read: u64, timeout: u64) -> u64:
    """Sleep at most once until the queue has consumed `read` bytes; return whether it has.

    Only one host thread may call it at a time for a queue.
    """
    pool = view(Pool, queue.pool)
    seen = acquire(queue.freed)
    swap(queue.wanted, read)
    if acquire(queue.read) < read:
        sleep(pool, address(queue.freed), seen, timeout)
    queue.wanted = 0
    return 1 if acquire(queue.read) >= read else 0


def stop_all(pool: Pool) -> u64:
    """Stop every thread, wake those that sleep, and return the number of threads that have returned.

    The stop flag is not the word on which threads sleep, so a wake-up may come between a thread's check of
    the flag and its sleep. Therefore the host repeats the call until all threads have returned.
    """
    swap(pool.stop, 1)
    swap(pool.halt, 1)
    fetch_add(pool.epoch, 1)
    wake(pool, address(pool.epoch), ALL_THREADS)
    at = pool.queues
    while at < pool.queues_end:
        queue = view(Queue, at)
        wake(pool, address(queue.write), ALL_THREADS)
        wake(pool, address(queue.done), ALL_THREADS)
        if acquire(queue.stuck):
            wake(pool, queue.stuck, ALL_THREADS)
        at += Queue.SIZE
    return acquire(pool.left)


FUNCTIONS = (
    now, sleep, wake, all_but, move_away, join_pool, keep_apart, run,
    wake_some, take, worker, share, dispatch, copy_group, copy, fill, counter,
    wake_signal, set_signal, wait_signal, wait, patch, report, step, indirect, free_space,
    drain, processor, ring, wait_space, stop_all,
)  # fmt: skip
"""The functions of the compiled module."""
