"""Native code that host threads call: the doorbell, waits and stop; and the list of all compiled functions.

A host thread that waits for a queue's signal helps, because waking another thread takes long: it executes the
queue's packets if no other thread does, and takes workgroups of a shared dispatch. It helps on a stack of the
device, with the floating-point control of the device's threads. Only one host thread of a device helps at a
time, and only with work whose estimated time is known and short.

Not here: the packets (`processor`), workgroups (`workers`), signals (`futex`). The functions are in the
subset of Python that `drivers.cpu.native` translates. Next: `device`, the caller.
"""

from __future__ import annotations

from drivers.cpu.cores import all_but, join_pool, keep_apart, keep_off, move_away
from drivers.cpu.futex import (
    ALL_THREADS,
    counter,
    now,
    set_signal,
    sleep,
    sleep_until,
    wait_signal,
    wake,
    wake_signal,
)
from drivers.cpu.layouts import PACKET, Op, Packet, Pool, Queue, Runner, Slot
from drivers.cpu.primitives import (
    acquire,
    address,
    base,
    call,
    cas,
    fetch_add,
    float_mode,
    on_stack,
    pause,
    release,
    set_float_mode,
    swap,
    u64,
    view,
)
from drivers.cpu.processor import (
    drain,
    fill,
    free_space,
    host_continues,
    indirect,
    patch,
    processor,
    report,
    step,
    wait,
)
from drivers.cpu.workers import (
    copy,
    copy_group,
    dispatch,
    expected,
    run,
    share,
    take,
    wake_some,
    worker,
)

LOOK = 16
"""PAUSE instructions of a host thread before it first checks for work, and between two checks for packets
that no thread executes."""


def queue_of(pool: Pool, signal: u64) -> u64:
    """Return the address of the queue whose last packet sets a signal; 0 if there is none."""
    at = pool.queues
    while at < pool.queues_end:
        queue = view(Queue, at)
        write = acquire(queue.write)
        if write and acquire(queue.runner):
            last = view(Packet, queue.ring + ((write - PACKET) & queue.mask))
            if last.op == Op.SIGNAL and last.first == signal:
                return at
        at += Queue.SIZE
    return 0


def drive(pool: Pool, queue: Queue, signal: u64, value: u64) -> u64:
    """Execute packets as the queue's runner until the signal is reached; return 1 if none is left.

    Otherwise wake the processor, which executes the rest, and return 0.
    """
    drain(pool, queue, signal, value)
    cas(queue.runner, Runner.HOST, Runner.FREE)  # not if the processor has returned
    if queue.read == acquire(queue.write):
        return 1
    fetch_add(queue.bell, 1)
    if acquire(queue.asleep) and swap(queue.asleep, 0):  # one system call, even if the thread wakes late
        wake(pool, address(queue.bell), 1)
    return 0


def assist(pool: Pool, queue: Queue, at: u64, value: u64) -> u64:
    """Work for a queue until a signal is reached or there is nothing to do for a while; then return 0.

    Return 1 if the thread's time to help (`Pool.help_until`) ends before.
    """
    signal = view(Slot, at)
    spins = 0
    helped = 0
    drives = 1
    budget = pool.help_spins
    while acquire(signal.value) < value and not acquire(pool.halt):
        worked = take(pool, queue, 0, pool.help_ns)
        if worked:
            queue.helped = 1
            helped = 1
        elif (
            drives
            and spins % LOOK == 0
            and queue.read != acquire(queue.write)
            and cas(queue.runner, Runner.FREE, Runner.HOST)
        ):
            drives = drive(pool, queue, at, value)
            worked = 1
        if worked:
            spins = 0
            if budget:  # the next dispatch of a sequence may come soon
                budget = pool.long_spins
            if now(pool) > pool.help_until:
                return 1
            continue
        if spins >= budget or (spins >= pool.spins and acquire(pool.shared) and not helped):
            queue.helped = 0  # this thread is about to sleep
            break
        pause()
        spins += 1
    return 0


def wait_host(pool: Pool, at: u64, value: u64, timeout: u64, turn_ns: u64) -> u64:
    """Work for the signal's queue for at most `turn_ns`, spin, then sleep at most once.

    Return 1 if the signal has reached `value`, else 0. `timeout` is the address of a timespec. A sleep with a
    wake-up takes longer than a small kernel. So if the last sleep was brief, the thread spins for longer the
    next time; after a long spin without success the next spin is short. The thread does not spin for longer
    while a dispatch is shared with workers, unless it helps, because a worker may need its core.
    """
    signal = view(Slot, at)
    if acquire(signal.value) >= value:
        return 1
    cpu = call(pool.sched_getcpu)
    pool.host_cpu = cpu
    budget = pool.spins
    if cpu == pool.device_cpu:  # spinning would keep the processor's thread from running
        budget = 0
    elif pool.brief:
        budget = pool.long_spins
    spins = 0
    while acquire(signal.value) < value and spins < min(budget, LOOK):  # the processor may be quick
        pause()
        spins += 1
    if acquire(signal.value) >= value:
        return 1
    queue = 0
    if turn_ns:
        queue = queue_of(pool, at)
    if queue and cas(pool.helping, 0, queue):
        pool.help_spins = budget
        pool.help_until = now(pool) + turn_ns
        mode = float_mode()
        set_float_mode(pool.float_mode)
        over = on_stack(pool.stack_top, pool.assist, base(pool), queue, at, value)
        set_float_mode(mode)
        swap(pool.helping, 0)
        if over:
            return 1 if acquire(signal.value) >= value else 0
    else:
        while acquire(signal.value) < value and spins < budget:
            if spins >= pool.spins and acquire(pool.shared):
                break
            pause()
            spins += 1
    if acquire(signal.value) >= value:
        return 1
    began = now(pool)
    reached = sleep_until(pool, at, value, timeout)
    pool.brief = 1 if budget <= pool.spins and now(pool) - began < pool.often_ns else 0
    return reached


def ring(queue: Queue, write_at: u64) -> None:
    """Write the doorbell: publish the bytes before `write_at`, and wake the processor if it sleeps."""
    pool = view(Pool, queue.pool)
    cpu = call(pool.sched_getcpu)
    if cpu != pool.host_cpu:
        pool.host_cpu = cpu
    release(queue.write, write_at)
    fetch_add(queue.bell, 1)
    if acquire(queue.asleep) and swap(queue.asleep, 0):  # one system call, even if the thread wakes late
        keep_off(pool, queue, cpu)
        wake(pool, address(queue.bell), 1)


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
    """Tell every thread to stop, wake the sleeping ones, and return the number of threads that have returned.

    Returns 0 while a host thread helps, because it may still execute a kernel. Threads do not sleep on the
    stop flag, so a wake-up may come between a thread's check of the flag and its sleep. Therefore the host
    repeats the call until all threads have returned.
    """
    swap(pool.stop, 1)
    swap(pool.halt, 1)
    fetch_add(pool.epoch, 1)
    wake(pool, address(pool.epoch), ALL_THREADS)
    at = pool.queues
    while at < pool.queues_end:
        queue = view(Queue, at)
        wake(pool, address(queue.bell), ALL_THREADS)
        wake(pool, address(queue.done), ALL_THREADS)
        if acquire(queue.stuck):
            wake(pool, queue.stuck, ALL_THREADS)
        at += Queue.SIZE
    return 0 if acquire(pool.helping) else acquire(pool.left)


FUNCTIONS = (
    now, sleep, wake, all_but, move_away, keep_off, join_pool, keep_apart, run,
    wake_some, take, worker, expected, share, dispatch, copy_group, copy, fill, counter,
    wake_signal, set_signal, sleep_until, wait_signal, wait, patch, report, step, host_continues, indirect,
    free_space, drain, processor, queue_of, drive, assist, wait_host, ring, wait_space, stop_all,
)  # fmt: skip
"""The functions of the compiled module."""
