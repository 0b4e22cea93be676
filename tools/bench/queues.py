"""Submit, replay, signal and copy: what the queue layer costs, without a compiler or a tensor.

Not here: tensors (`tensors`). Next: `rows`, how a figure is taken.
"""

from __future__ import annotations

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
COPY_SIZES = (4096, 1 << 20, 16 << 20, 64 << 20)


def submit(bench: Bench) -> None:
    """Record, encode and ring one launch; device time of empty kernels in one submission."""
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
    if bench.scripted:
        return
    spans = [
        _device_ns(queue, lambda c: c.exec(program, args, groups=ONE, threads=ONE)) / KERNELS
        for _ in range(_count(bench, 100))
    ]
    bench.add("device time of an empty kernel", spans, unit="ns")


def _device_ns(
    queue: hcq.Queue, command: Callable[[hcq.CommandBuffer], object], repeats: int = KERNELS
) -> float:
    """Nanoseconds by the device's clock for repeats of a command."""
    start, end = queue.device.stamp(), queue.device.stamp()
    commands = queue.record().timestamp(start)
    for _ in range(repeats):
        command(commands)
    queue.submit(commands.timestamp(end)).wait()
    clock = queue.device.clock()
    return clock.to_ns(end.ticks) - clock.to_ns(start.ticks)


def replay(bench: Bench) -> None:
    """Submit a compiled graph again: nothing changed, one kernel, every input changed."""
    device, queue = bench.device, bench.device.compute
    program = device.load(empty(device.info))
    for kernels in (1, 32) if bench.scripted else (1, 32, KERNELS):
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
    """Device time of small kernels that each wait for the one before, in a replayed graph."""
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
    """Doorbell in Python to signal seen in Python: awake, and from sleep."""
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
    other = bench.device.computes[-1]

    def hop() -> None:
        point = queue.submit(queue.record())
        for _ in range(50):
            point = other.submit(other.record(), after=[point])
            point = queue.submit(queue.record(), after=[point])
        point.wait()

    bench.measure("hop between two queues", hop, per=100, samples=100)


def copy(bench: Bench) -> None:
    """Copies on the copy queue, beside memcpy in the same run where the memory is the host's."""
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
            if bench.scripted:
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


def _memcpy(dst: hcq.Buffer, src: hcq.Buffer, repeats: int) -> None:
    import ctypes  # noqa: PLC0415 - only the comparison needs it

    for _ in range(repeats):
        ctypes.memmove(dst.va, src.va, dst.size)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _count(bench: Bench, samples: int) -> int:
    return 2 if bench.quick else samples


def size_label(size: int) -> str:
    """Return a size in words."""
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


CASES = {"submit": submit, "replay": replay, "gap": gap, "signal": signal, "copy": copy}
