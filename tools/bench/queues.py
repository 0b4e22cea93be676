"""Benchmarks of the queue layer, without compiler and tensors: submit, replay, gap, signal, copy and share.

A device without a kernel for it raises `UnsupportedError`.

Not here: tensors (`tensors`), the empty kernel (`kernels`). Next: `rows`, how a figure is measured.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import TYPE_CHECKING

import hcq
from tools.bench.kernels import empty
from tools.bench.rows import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.bench.rows import Bench

ONE = (1, 1, 1)
KERNELS = 256
"""Kernels of a long command buffer."""
AWAITS = 10_000
"""Tasks that wait for one signal at the same time."""
COPY_SIZES = (4096, 1 << 20, 16 << 20, 64 << 20)


def submit(bench: Bench) -> None:
    """Measure the host time of one launch, and the device time of empty kernels in one submission.

    The device time is left out on an emulated device.
    """
    device, queue = bench.device, bench.device.compute
    program = device.load(empty(device.info))
    buffer = device.alloc(4096)

    def launch() -> hcq.Point:
        return queue.submit(queue.record().exec(program, program.args(buffer), groups=ONE, threads=ONE))

    bench.burst("record + args + encode + ring, one kernel", launch, before=queue.sync)
    bench.measure("the same, then wait", lambda: launch().wait(), samples=2000)
    args = program.args(buffer)

    def many() -> hcq.Point:
        commands = queue.record()
        for _ in range(KERNELS):
            commands.exec(program, args, groups=ONE, threads=ONE)
        return queue.submit(commands)

    bench.measure(f"record + encode + ring, {KERNELS} kernels", many, before=queue.sync, samples=300)
    if bench.emulated:
        return
    spans = [
        _device_ns(queue, lambda c: c.exec(program, args, groups=ONE, threads=ONE)) / KERNELS
        for _ in range(_count(bench, 100))
    ]
    bench.add("device time of an empty kernel", spans, unit="ns")


def _device_ns(
    queue: hcq.Queue, command: Callable[[hcq.CommandBuffer], object], repeats: int = KERNELS
) -> float:
    """Return the nanoseconds, by the device's clock, of `repeats` commands in one submission."""
    start, end = queue.device.stamp(), queue.device.stamp()
    commands = queue.record().timestamp(start)
    for _ in range(repeats):
        command(commands)
    queue.submit(commands.timestamp(end)).wait()
    clock = queue.device.clock()
    return clock.to_ns(end.ticks) - clock.to_ns(start.ticks)


def replay(bench: Bench) -> None:
    """Measure the host time of replaying a graph, with nothing changed and with every input changed."""
    device, queue = bench.device, bench.device.compute
    program = device.load(empty(device.info))
    for kernels in (1, 32) if bench.emulated else (1, 32, KERNELS):
        graph = hcq.Graph()
        params = [graph.param(f"input{i}") for i in range(kernels)]
        commands = queue.record()
        for param in params:
            commands.exec(program, program.args(param), groups=ONE, threads=ONE)
        graph.add(queue, commands)
        executable = graph.compile()
        sets = [[device.alloc(256) for _ in range(kernels)] for _ in range(3)]

        def same(first: Sequence[hcq.Buffer] = sets[0], executable: hcq.Executable = executable) -> None:
            executable.replay(first)

        def changed(sets: list[list[hcq.Buffer]] = sets, executable: hcq.Executable = executable) -> None:
            sets.append(sets.pop(0))
            executable.replay(sets[0])

        bench.burst(f"{counted(kernels, 'kernel')}, nothing changed", same, before=queue.sync)
        bench.burst(f"{counted(kernels, 'kernel')}, every input changed", changed, before=queue.sync)
        executable.close()


def gap(bench: Bench) -> None:
    """Measure the device time of empty kernels in a replayed graph, each waiting for the previous one."""
    device, queue = bench.device, bench.device.compute
    program = device.load(empty(device.info))
    args = program.args(device.alloc(4096))
    start, end = device.stamp(), device.stamp()
    commands = queue.record().timestamp(start)
    for _ in range(KERNELS):
        commands.exec(program, args, groups=ONE, threads=ONE).barrier(hcq.Scope.DEVICE)
    graph = hcq.Graph()
    graph.add(queue, commands.timestamp(end))
    executable = graph.compile()
    spans = []
    for _ in range(_count(bench, 100)):
        executable.replay().wait()
        clock = device.clock()
        spans.append((clock.to_ns(end.ticks) - clock.to_ns(start.ticks)) / KERNELS)
    bench.add("a dependent small kernel, replayed", spans, unit="ns")
    executable.close()


def signal(bench: Bench) -> None:
    """Measure the time from a submission until the host sees its signal, and of a hop between two queues.

    The device is awake, or has slept for 2 or 50 ms.
    """
    queue = bench.device.compute

    def ping() -> None:
        queue.submit(queue.record()).wait()

    bench.measure("doorbell to signal seen, awake", ping, samples=2000)
    bench.measure(
        "doorbell to signal seen, asleep for 2 ms", ping, before=lambda: time.sleep(0.002), samples=300
    )
    bench.measure(
        "doorbell to signal seen, asleep for 50 ms", ping, before=lambda: time.sleep(0.05), samples=40
    )

    def call() -> None:
        queue.submit(queue.record()).future().result()

    async def many() -> None:
        signal = bench.device.signal(host_set=True)

        async def wait(value: int) -> None:
            await signal.at(value)

        tasks = [asyncio.ensure_future(wait(value)) for value in range(1, AWAITS + 1)]
        await asyncio.sleep(0)
        signal.value = AWAITS
        await asyncio.gather(*tasks)

    bench.measure("doorbell to a future's result, awake", call, samples=1000)
    bench.measure(f"an await among {AWAITS:,} pending", lambda: asyncio.run(many()), per=AWAITS, samples=5)
    other = bench.device.computes[-1]

    def hop() -> None:
        point = queue.submit(queue.record())
        for _ in range(50):
            point = other.submit(other.record(), after=[point])
            point = queue.submit(queue.record(), after=[point])
        point.wait()

    bench.measure("hop between two queues", hop, per=100, samples=100)


def copy(bench: Bench) -> None:
    """Measure copies on the copy queue in GB/s, bytes read and bytes written counted.

    They are compared with memcpy if the host can address the memory.
    """
    device = bench.device
    queue = device.copies[0]
    for size in COPY_SIZES:
        src, dst = device.alloc(size), device.alloc(size)
        label = size_label(size)
        count = _count(bench, 100 if size <= 1 << 20 else 30)
        repeats = max(1, (4 << 20) // size)
        queue.submit(queue.record().fill(src, 1)).wait()

        def awaited(dst: hcq.Buffer = dst, src: hcq.Buffer = src) -> None:
            queue.submit(queue.record().copy(dst, src)).wait()

        def one(commands: hcq.CommandBuffer, dst: hcq.Buffer = dst, src: hcq.Buffer = src) -> object:
            return commands.copy(dst, src)

        rates: dict[str, list[float]] = {
            "submitted and awaited": [],
            "by the device's clock": [],
            "memcpy": [],
        }
        for _ in range(count):
            rates["submitted and awaited"].append(2 * size / _seconds(awaited) / 1e9)
            if bench.emulated:
                continue
            rates["by the device's clock"].append(2 * size / (_device_ns(queue, one, repeats) / repeats))
            if device.info.host_addressable:
                seconds = _seconds(partial(_memcpy, dst, src, repeats))
                rates["memcpy"].append(2 * size * repeats / seconds / 1e9)
        for what, taken in rates.items():
            if taken:
                bench.add(f"copy {label}, {what}", taken, unit="GB/s", note="read + write")
        if rates["memcpy"]:
            pairs = zip(rates["by the device's clock"], rates["memcpy"], strict=True)
            bench.add(f"copy {label}, device / memcpy", [a / b for a, b in pairs], unit="x")
        for buffer in (src, dst):
            buffer.close()


def share(bench: Bench) -> None:
    """Measure the import of memory and of a signal that another process would export.

    Raises `UnsupportedError` on a device that shares no memory.
    """
    device = bench.device
    for size in COPY_SIZES[:2]:
        buffer = device.alloc(size, hcq.BufferSpec(shared=True))
        fd = buffer.export()

        def imported(fd: int = fd) -> None:
            device.import_buffer(fd).close()

        bench.measure(f"import and close a buffer, {size_label(size)}", imported)
        os.close(fd)
        buffer.close()
    signal = device.signal(shared=True)
    fd = signal.export()
    bench.measure("import a signal", lambda: device.import_signal(fd))
    os.close(fd)


def _memcpy(dst: hcq.Buffer, src: hcq.Buffer, repeats: int) -> None:
    import ctypes  # noqa: PLC0415 - used only for the comparison

    for _ in range(repeats):
        ctypes.memmove(dst.va, src.va, dst.size)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _count(bench: Bench, samples: int) -> int:
    return 2 if bench.quick else samples


def size_label(size: int) -> str:
    """Return a size in KiB or MiB, as text."""
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


CASES = {"submit": submit, "replay": replay, "gap": gap, "signal": signal, "copy": copy, "share": share}
