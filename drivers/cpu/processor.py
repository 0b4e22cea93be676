"""The command processor of the `cpu` device, in the subset that `drivers.cpu.native` translates.

One `processor` thread a queue executes packets in order, each finished before the next begins. A dispatch
with enough work is published in its queue's record, and `worker` threads (one per usable core, minus one)
take workgroups from all queues.

The claim is one compare-and-swap on `ticket`: (dispatch number, workgroups left). A ticket with workgroups
left proves that the dispatch is not over, so the other fields, read before the swap, were this dispatch's.
Who goes to sleep announces it with a seq_cst operation, looks again, then sleeps with the value it saw; who
publishes stores with a seq_cst operation, then looks for sleepers. A tick of the device's clock is a
nanosecond of CLOCK_MONOTONIC. Nothing here is called from Python but what `device` binds. It is one
program of small functions, hence one file.

Not here: compiling it (`native`, `image`), writing packets (`encode`, `ring`).
"""
# ruff: noqa: ARG001, PLR0917, PLW3301, SIM102 - the functions of a machine, in a small language

from __future__ import annotations

import os

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
    Slot,
    Timespec,
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
    stack,
    store8,
    store32,
    store64,
    swap,
    syscall,
    u64,
    view,
)

SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine, 0)
SYS_SCHED_SETAFFINITY = {"x86_64": 203, "aarch64": 122}.get(os.uname().machine, 0)
FUTEX_WAIT_PRIVATE = 128
FUTEX_WAKE_PRIVATE = 129
CLOCK_MONOTONIC = 1
EVERYONE = 0x7FFF_FFFF
LOW = 0xFFFF_FFFF
SECOND = 1_000_000_000
CHUNK = 1 << 20
"""Bytes of a copy that one workgroup takes; a copy of several chunks is shared like a dispatch."""
SLICE = 1 << 31
"""Workgroups that one ticket can count."""
BLOCK = 1 << 16
"""Bytes that a fill writes at once, behind what it wrote before."""


def now(pool: Pool) -> u64:
    """Nanoseconds of the clock."""
    time = view(Timespec, stack(16))
    call(pool.clock_gettime, CLOCK_MONOTONIC, base(time))
    return time.seconds * SECOND + time.ns


def sleep(pool: Pool, word: u64, seen: u64, timeout: u64) -> None:
    """Sleep while the low half of `word` is `seen`; `timeout` is the address of a timespec or 0."""
    syscall(pool.syscall, SYS_FUTEX, word, FUTEX_WAIT_PRIVATE, seen & LOW, timeout, 0, 0)


def wake(pool: Pool, word: u64, count: u64) -> None:
    """Wake at most `count` threads that sleep on `word`."""
    syscall(pool.syscall, SYS_FUTEX, word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0)


def run(function: u64, args: u64, x: u64, y: u64, first: u64, end: u64) -> None:
    """Run workgroups [first, end), x fastest."""
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


def wake_some(pool: Pool, groups: u64) -> None:
    """Wake at most two workers; each wakes two more while there is work, so no thread wakes all 128."""
    if groups > 1 and acquire(pool.sleepers):
        wake(pool, address(pool.epoch), 2 if groups > 2 else 1)


def take(pool: Pool, queue: Queue, chain: u64) -> u64:
    """Run workgroups of the queue's dispatch until none is left to take; return how many were run."""
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
        if chain:
            wake_some(pool, left)
            chain = 0
        count = left // (2 * pool.workers + 2) + 1
        if cas(queue.ticket, ticket, ticket - count):
            run(function, args, x, y, total - left, total - left + count)
            finished += count
    if finished:
        if fetch_add(queue.done, finished) + finished == total and acquire(queue.waiting):
            wake(pool, address(queue.done), EVERYONE)
    return finished


def worker(pool: Pool) -> u64:
    """Help every queue; sleep when no dispatch was published since the last look."""
    woken = 0
    while not acquire(pool.stop):
        seen = acquire(pool.epoch)
        busy = 0
        at = pool.queues
        while at < pool.queues_end:
            busy += take(pool, view(Queue, at), woken)
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


def share(pool: Pool, queue: Queue, function: u64, args: u64, x: u64, y: u64, first: u64, end: u64) -> None:
    """Publish workgroups [first, end), help, and return when all are done (or the device stops)."""
    queue.function = function
    queue.args = args
    queue.x = x
    queue.y = y
    queue.total = end
    queue.done = first
    release(queue.ticket, ((queue.ticket >> 32) + 1) << 32 | (end - first))
    fetch_add(pool.epoch, 1)
    wake_some(pool, end - first)
    take(pool, queue, 0)
    spins = 0
    while True:
        done = acquire(queue.done)
        if done == end or acquire(pool.stop):
            break
        if spins < pool.spins:
            spins += 1
            pause()
        else:
            swap(queue.waiting, 1)
            done = acquire(queue.done)
            if done != end and not acquire(pool.stop):
                sleep(pool, address(queue.done), done, 0)
            queue.waiting = 0


def dispatch(pool: Pool, queue: Queue, packet: Exec) -> None:
    """Run a grid: here if it is small by the estimate in the packet, else with the workers."""
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
        share(pool, queue, packet.function, packet.args, x, y, first, end)
        first = end


def copy_group(queue: Queue, group: u64, y: u64, z: u64) -> None:
    """The workgroup of a shared copy; the queue's record is its argument block."""
    at = group * CHUNK
    size = min(queue.copy_size - at, CHUNK)
    call(queue.copy_memcpy, queue.copy_dst + at, queue.copy_src + at, size)


def copy(pool: Pool, queue: Queue, packet: Copy) -> None:
    """Copy bytes, large ranges with the workers."""
    size = packet.size
    if size < 4 * CHUNK or pool.workers == 0:
        call(pool.memcpy, packet.dst, packet.src, size)
        return
    queue.copy_dst = packet.dst
    queue.copy_src = packet.src
    queue.copy_size = size
    queue.copy_memcpy = pool.memcpy
    groups = (size + CHUNK - 1) // CHUNK
    share(pool, queue, pool.copy_group, base(queue), groups, 1, 0, groups)


def fill(pool: Pool, dst: u64, pattern: u64, size: u64) -> None:
    """Write the pattern, then copy what is there behind itself, doubling up to a block."""
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


def counter(pool: Pool, signal: u64) -> u64:
    """The address of the counter of sleeping waiters that this signal shares with few others."""
    return pool.waiters + (signal >> 6 & 63) * 8


def wake_signal(pool: Pool, signal: u64) -> None:
    """Wake a signal's waiters after the host stored to it."""
    fetch_add(pool.fence, 1)
    waiters = view(Slot, counter(pool, signal))
    if acquire(waiters.value):
        wake(pool, signal, EVERYONE)


def set_signal(pool: Pool, at: u64, value: u64) -> None:
    """Store a value to a signal and wake its waiters."""
    signal = view(Slot, at)
    swap(signal.value, value)
    waiters = view(Slot, counter(pool, at))
    if acquire(waiters.value):
        wake(pool, at, EVERYONE)


def wait_signal(pool: Pool, at: u64, value: u64, timeout: u64, host: u64) -> u64:
    """Spin a little, then sleep once. Return 1 when signal >= value, else 0. The host calls this, too."""
    signal = view(Slot, at)
    spins = 0
    if host:
        cpu = call(pool.sched_getcpu)
        pool.host_cpu = cpu
        if cpu == pool.device_cpu:  # spinning would keep the very thread waited for from running
            spins = pool.spins
    while acquire(signal.value) < value and spins < pool.spins:
        pause()
        spins += 1
    seen = acquire(signal.value)
    if seen < value:
        waiters = view(Slot, counter(pool, at))
        fetch_add(waiters.value, 1)
        seen = acquire(signal.value)
        if seen < value:
            sleep(pool, at, seen, timeout)
        fetch_add(waiters.value, -1)
        if acquire(signal.value) < value:
            return 0
    return 1


def wait(pool: Pool, queue: Queue, packet: Wait) -> u64:
    """Execute a WAIT. Return 0 only when the device stops or faults meanwhile."""
    swap(queue.stuck, packet.signal)
    timeout = pool.peek if packet.foreign else 0
    while not wait_signal(pool, packet.signal, packet.value, timeout, 0):
        if acquire(pool.halt):
            return 0
    queue.stuck = 0
    return 1


def patch(values: u64, plan: u64, count: u64) -> None:
    """Write values[slot] to each destination of a plan."""
    while count:
        pair = view(Pair, plan)
        store64(pair.destination, load64(values + pair.slot * 8))
        plan += Pair.SIZE
        count -= 1


def report(pool: Pool, queue: Queue, packet: Packet, fault: u64) -> u64:
    """Halt the device; the first fault is the one reported. Return 0, as `step` does."""
    if cas(pool.fault, 0, fault):
        pool.fault_queue = base(queue)
        pool.fault_op = packet.op
        release(pool.fault_packet, base(packet))
        swap(pool.halt, 1)
    return 0


def step(pool: Pool, queue: Queue, packet: Packet) -> u64:
    """Execute one packet that is no INDIRECT. Return 0 when the queue must go no further."""
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
    """Execute packets where they lie. Return 0 when the queue must go no further."""
    at = packet.packets
    end = at + packet.count * PACKET
    while at < end:
        if acquire(pool.halt) or not step(pool, queue, view(Packet, at)):
            return 0
        at += PACKET
    return 1


def free_space(pool: Pool, queue: Queue) -> None:
    """Wake a host thread that waits for space in the ring, if there is enough."""
    wanted = acquire(queue.wanted)
    if wanted and queue.read >= wanted:
        swap(queue.wanted, 0)
        fetch_add(queue.freed, 1)
        wake(pool, address(queue.freed), EVERYONE)


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


def move_away(pool: Pool, queue: Queue, core: u64, time: u64) -> u64:
    """Leave the host's core for any other that this process may use; return the core it is on then.

    On machines with few cores the scheduler keeps waker and woken on one core beside an idle one, and each
    ring costs two context switches. The set of cores is the whole one again at once: nothing stays pinned.
    """
    if pool.cores_bytes == 0 or time - queue.moved < pool.move_ns:
        return core
    queue.moved = time
    call(pool.memcpy, queue.other_cores, pool.cores, pool.cores_bytes)
    word = view(Slot, queue.other_cores + core // 64 * 8)
    word.value = word.value & ~(1 << core % 64)
    syscall(pool.syscall, SYS_SCHED_SETAFFINITY, 0, pool.cores_bytes, queue.other_cores, 0, 0, 0)
    syscall(pool.syscall, SYS_SCHED_SETAFFINITY, 0, pool.cores_bytes, pool.cores, 0, 0, 0)
    return call(pool.sched_getcpu)


def processor(queue: Queue) -> u64:
    """Execute the queue's packets for ever; sleep when there is none. Return when the device stops.

    Waking a sleeper costs the host more than all else it does to launch, so a queue that was rung soon after
    it ran empty spins longer the next time; a long spin that found no packet makes the next one short again.
    """
    pool = view(Pool, queue.pool)
    spins = 0
    budget = pool.spins
    empty = 0
    cpu = EVERYONE
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
    """The doorbell: publish the bytes before `write_at` and wake the processor if it sleeps."""
    pool = view(Pool, queue.pool)
    cpu = call(pool.sched_getcpu)
    if cpu != pool.host_cpu:
        pool.host_cpu = cpu
    swap(queue.write, write_at)
    if acquire(queue.asleep):
        wake(pool, address(queue.write), 1)


def wait_space(queue: Queue, read: u64, timeout: u64) -> u64:
    """Sleep once until the queue has consumed `read` bytes; return whether it has. For one host thread."""
    pool = view(Pool, queue.pool)
    seen = acquire(queue.freed)
    swap(queue.wanted, read)
    if acquire(queue.read) < read:
        sleep(pool, address(queue.freed), seen, timeout)
    queue.wanted = 0
    return 1 if acquire(queue.read) >= read else 0


def stop_all(pool: Pool) -> u64:
    """Stop every thread, wake those that sleep, and return how many have returned.

    A flag is not the word that they sleep on, so a wake-up can fall between look and sleep: the host repeats
    this until all are counted.
    """
    swap(pool.stop, 1)
    swap(pool.halt, 1)
    fetch_add(pool.epoch, 1)
    wake(pool, address(pool.epoch), EVERYONE)
    at = pool.queues
    while at < pool.queues_end:
        queue = view(Queue, at)
        wake(pool, address(queue.write), EVERYONE)
        wake(pool, address(queue.done), EVERYONE)
        if acquire(queue.stuck):
            wake(pool, queue.stuck, EVERYONE)
        at += Queue.SIZE
    return acquire(pool.left)


FUNCTIONS = (
    now, sleep, wake, run, wake_some, take, worker, share, dispatch, copy_group, copy, fill, counter,
    wake_signal, set_signal, wait_signal, wait, patch, report, step, indirect, free_space,
    drain, move_away, processor, ring, wait_space, stop_all,
)  # fmt: skip
"""What the translator is given."""
