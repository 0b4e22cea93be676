"""The command processor of the `cpu` device, in the subset of Python that `drivers.cpu.native` translates.

One thread at a time executes the packets of a queue in order, and finishes each before the next. It is the
queue's `processor` thread, or a host thread that waits for the queue (`host`).

Not here: what host threads call (`host`), launches and worker threads (`workers`), the threads' cores
(`cores`), signals (`futex`), compiling (`native`, `image`), writing packets (`encode`, `ring`). Next:
`workers`.
"""
# ruff: noqa: PLW3301 - native code, in the subset of Python that `native` translates

from __future__ import annotations

from drivers.cpu.cores import SYS_GETTID, move_away
from drivers.cpu.futex import ALL_THREADS, now, set_signal, sleep, wait_signal, wake
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
    Runner,
    Slot,
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
    float_mode,
    load64,
    pause,
    release,
    store8,
    store32,
    store64,
    swap,
    syscall,
    u64,
    view,
)
from drivers.cpu.workers import CHUNK, copy, dispatch, take

BLOCK = 1 << 16
"""The most bytes that a fill copies at once."""


def fill(pool: Pool, dst: u64, pattern: u64, size: u64) -> None:
    """Execute a FILL: store the pattern, then copy the filled bytes to the bytes after them, doubling."""
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
    """Execute a WAIT and return 1; 0 if the device stops or faults in the meantime."""
    swap(queue.stuck, packet.signal)
    timeout = pool.peek if packet.foreign else 0
    while not wait_signal(pool, packet.signal, packet.value, timeout):
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
    """Halt the device and record the fault if it is the first one; return 0, the result of `step`."""
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


def host_continues(pool: Pool, packet: Packet, signal: u64, value: u64) -> u64:
    """Return whether a host thread that waits for `signal` to reach `value` may execute a packet itself.

    It may not if the signal has the value, or if the packet may take long: the host thread must also check
    for faults and Unix signals.
    """
    awaited = view(Slot, signal)
    if acquire(awaited.value) >= value:
        return 0
    op = packet.op
    if op == Op.EXEC:
        launch = view(Exec, base(packet))
        ns = launch.group_ns
        groups = launch.x * launch.y * launch.z
        if ns == 0 or ns > pool.help_ns or groups > pool.turn_ns // ns:
            return 0
        if groups * ns >= pool.grain_ns and now(pool) > pool.help_until:
            return 0
    elif op == Op.COPY or op == Op.FILL:  # noqa: PLR1714 - no sets here
        return 1 if packet.third <= CHUNK else 0
    elif op == Op.WAIT:
        waited = view(Slot, packet.first)
        return 1 if acquire(waited.value) >= packet.second else 0
    return 1


def indirect(pool: Pool, queue: Queue, packet: Indirect, signal: u64, value: u64) -> u64:
    """Execute the packets of an INDIRECT in place. Return 0 if the queue, or this thread, must not continue.

    The same or another thread may continue it later. `signal` and `value` as in `drain`.
    """
    at = queue.resume
    if at == 0:
        at = packet.packets
    end = packet.packets + packet.count * PACKET
    while at < end:
        inner = view(Packet, at)
        if signal and not host_continues(pool, inner, signal, value):
            queue.resume = at
            return 0
        if acquire(pool.halt) or not step(pool, queue, inner):
            return 0
        at += PACKET
    queue.resume = 0
    return 1


def free_space(pool: Pool, queue: Queue) -> None:
    """Wake the host thread that waits for space in the ring, if there is enough space."""
    wanted = acquire(queue.wanted)
    if wanted and queue.read >= wanted:
        swap(queue.wanted, 0)
        fetch_add(queue.freed, 1)
        wake(pool, address(queue.freed), ALL_THREADS)


def drain(pool: Pool, queue: Queue, signal: u64, value: u64) -> None:
    """Execute packets, as the queue's runner, until the ring is empty, or the device stops or faults.

    `signal` and `value` are 0 for the processor. A host thread passes the signal and the value for which it
    waits; it also stops when they are reached, and before a packet that may take long.
    """
    read = queue.read
    while read != acquire(queue.write) and not acquire(pool.halt):
        packet = view(Packet, queue.ring + (read & queue.mask))
        if signal and not host_continues(pool, packet, signal, value):
            break
        if packet.op == Op.INDIRECT:
            if not indirect(pool, queue, view(Indirect, base(packet)), signal, value):
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
    """Execute the queue's packets until the device stops; sleep while there are none. A thread's entry.

    To wake a thread takes the host longer than the rest of a launch. So if a doorbell comes soon after the
    queue became empty, the processor spins for longer the next time; after a long spin without a packet the
    next spin is short. While a host thread executes the packets, the processor takes workgroups.
    """
    pool = view(Pool, queue.pool)
    pool.float_mode = float_mode()
    queue.thread = syscall(pool.syscall, SYS_GETTID, 0, 0, 0, 0, 0, 0)
    swap(queue.runner, Runner.FREE)
    spins = 0
    budget = pool.spins
    empty = 0
    cpu = ALL_THREADS
    while not acquire(pool.stop):
        seen = acquire(queue.bell)
        if queue.read != acquire(queue.write) and not acquire(pool.halt):
            if cas(queue.runner, Runner.FREE, Runner.PROCESSOR):
                cpu = call(pool.sched_getcpu)
                if cpu != pool.device_cpu:
                    pool.device_cpu = cpu
                drain(pool, queue, 0, 0)
                cas(queue.runner, Runner.PROCESSOR, Runner.FREE)
                empty = now(pool)
                spins = 0
                if pool.host_cpu == cpu and budget != pool.spins:
                    cpu = move_away(pool, queue, cpu, empty)
            elif take(pool, queue, 0, 0):
                empty = now(pool)
                spins = 0
                budget = pool.long_spins  # the next dispatch of a sequence may come soon
        if acquire(queue.bell) == seen:
            if spins < budget and pool.host_cpu != cpu:
                spins += 1
                pause()
            else:
                swap(queue.asleep, 1)
                if acquire(queue.bell) == seen and not acquire(pool.stop):
                    sleep(pool, address(queue.bell), seen, 0)
                queue.asleep = 0
                budget = pool.long_spins if now(pool) - empty < pool.often_ns else pool.spins
                empty = now(pool)
                spins = 0
                cpu = call(pool.sched_getcpu)
                if pool.host_cpu == cpu and budget != pool.spins:
                    cpu = move_away(pool, queue, cpu, empty)
    swap(queue.runner, Runner.CLOSED)
    fetch_add(pool.left, 1)
    return 0
