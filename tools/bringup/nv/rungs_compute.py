"""Rungs 18 to 28 of the NVIDIA bring-up ladder: kernels, through the complete driver.

Each rung is a function as in `rungs`. Rung 23 causes a fault and runs after the others; rung 25 follows it.

Not here: the lower rungs (`rungs`), the kernels (`kernels`). Next: `table`, the order of all rungs.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from drivers.choices import describe
from drivers.nv.device import NvDevice
from drivers.nv.layouts.controls import (
    PERF_BOOST_FOREVER,
    PERF_BOOST_TO_MAX_CUDA,
    Control,
)
from drivers.nv.layouts.fault import NvNotification
from hcq.commands import Scope
from hcq.device import Device
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import DeviceFault, HcqError, SignalTimeout, UnsupportedError
from tools.bringup.checks import RungError
from tools.bringup.child import child_command, two_at_once
from tools.bringup.nv.kernels import PICKED, TOKEN, image
from tools.bringup.rung import LAUNCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.memory import Buffer
    from hcq.program import Program
    from tools.bringup.checks import Facts
    from tools.bringup.nv.bench import Bench

_HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
_RING_BYTES = 1 << 14
_RING_ROUNDS = 600
"""Rounds of `wraps`: they fill a ring several times."""
_FILLING = 1024
"""Threads of a workgroup in `meeting`: one or two such workgroups fill an SM."""
_EMULATED_GROUPS = 16
"""The most workgroups in `meeting` on an emulated GPU: a few threads of the host run all of them."""


def _device(bench: Bench, *, ring_bytes: int = 0) -> Device:
    """Open a device with the complete driver; `ring_bytes` 0 stands for the driver's own size."""
    driver = NvDevice(
        bench.kernel,
        bench.card,
        driver="nv",
        index=bench.index,
        choices=bench.choices,
        ring_bytes=ring_bytes,
        emulated=bench.emulate is not None,
    )
    device = Device(driver)  # closes the driver where it raises: then there is no evidence to read
    bench.devices.append(driver)
    bench.stack.callback(device.close)
    return device


def _load(bench: Bench, device: Device, name: str, *, shared_bytes: int = 0) -> Program:
    return device.load(image(name, device.info.arch, shared_bytes=shared_bytes, folder=bench.kernels))


def _launch(
    bench: Bench,
    device: Device,
    program: Program,
    *values: Any,
    groups: int = 1,
    threads: int = 1,
    cluster: int | None = None,
) -> float:
    """Launch and wait; return the microseconds until the host observed completion."""
    queue = device.compute
    start = time.perf_counter()
    commands = queue.record().exec(
        program,
        program.args(*values),
        groups=(groups, 1, 1),
        threads=(threads, 1, 1),
        cluster=None if cluster is None else (cluster, 1, 1),
    )
    bench.wait(queue.submit(commands))
    return (time.perf_counter() - start) * 1e6


def _words(buffer: Buffer, count: int) -> list[int]:
    return list(struct.unpack(f"<{count}I", bytes(buffer.host()[: 4 * count])))


def check_arrival(bench: Bench, read: Callable[[], list[int]], want: list[int], what: str) -> float:
    """Check that a kernel stored `want`; return the seconds between its release and the arrival of the words.

    Raises `RungError` for wrong or missing words. Late words raise it, too, except with
    `full_descriptor=false`: then the descriptor has no memory barrier, and a store may arrive late. In a dry
    run nothing raises, and 0.0 is returned for wrong words.
    """
    late = bench.arrival(read, want)
    if late is not None and (not late or not bench.choices.full_descriptor):
        return late
    seen = read()
    first = next((i for i, word in enumerate(want) if seen[i] != word), None)
    if first is None:
        text = f"arrived {1e6 * (late or 0):.0f} us after the release: its membar has no effect"
    else:
        text = f"element {first} is {seen[first]:#x}, not {want[first]:#x}"
    bench.check(condition=False, text=f"{what}: {text}")
    return 0.0


def _check(bench: Bench, buffer: Buffer, want: list[int], what: str) -> float:
    """Check the first words of a buffer; see `check_arrival`."""
    return check_arrival(bench, lambda: _words(buffer, len(want)), want, what)


def store(bench: Bench) -> Facts:
    """18: one thread stores a token, to host and to video memory."""
    device = _device(bench)
    out, video, copied = device.alloc(4096, _HOST), device.alloc(4096), device.alloc(4096, _HOST)
    program, queue = _load(bench, device, "store"), device.copies[0]
    took: list[float] = []
    late: list[float] = []

    def launch(number: int) -> None:
        out.host()[:4] = bytes(4)
        took.append(_launch(bench, device, program, out))
        late.append(_check(bench, out, [TOKEN], f"host memory after launch {number}"))

    launch(0)
    _launch(bench, device, program, video)

    def fetch() -> list[int]:
        bench.wait(queue.submit(queue.record().copy(copied, video)))
        return _words(copied, 1)

    late.append(check_arrival(bench, fetch, [TOKEN], "video memory"))
    repeats = bench.repeat("a token", launch)
    facts: Facts = {"first_us": took[0], "best_us": min(took), "repeats": repeats}
    return facts | ({"late_us": round(1e6 * max(late), 1)} if max(late) else {})


def grid(bench: Bench) -> Facts:
    """19: block and grid sizes, parameters, constant bank 3, a jump table in bank 2; 1000 workgroups."""
    device = _device(bench)
    groups, threads, add = 1000, 96, 5
    count = groups * threads
    out = device.alloc(4 * count, _HOST)
    _launch(bench, device, _load(bench, device, "grid"), out, add, groups=groups, threads=threads)
    picked = [PICKED[t % 8](t) + 1000 * (t % 4 + 1) + add for t in range(threads)]
    want = [count + i + picked[i % threads] & 0xFFFF_FFFF for i in range(count)]
    _check(bench, out, want, "grid")
    return {"elements": count}


def shared(bench: Bench) -> Facts:
    """20: shared memory and a barrier, of 4, 48 and 200 KiB and of the limit."""
    device = _device(bench)
    out = device.alloc(4096, _HOST)
    done = []
    for size in (4 << 10, 48 << 10, 200 << 10, device.info.limits["max_shared_bytes"]):
        if size > device.info.limits["max_shared_bytes"]:
            continue
        program = _load(bench, device, "shared", shared_bytes=size)
        out.host()[:1024] = bytes(1024)
        _launch(bench, device, program, out, size - 1024, threads=256)
        _check(bench, out, list(range(255, -1, -1)), f"{size} bytes of shared memory")
        done.append(size)
    return {"sizes": done}


def local(bench: Bench) -> Facts:
    """21: local memory: an array of 4 KiB per thread, indexed at run time, in 256 workgroups."""
    device = _device(bench)
    out = device.alloc(4 * 256 * 256, _HOST)
    step = 7
    _launch(bench, device, _load(bench, device, "local"), out, step, groups=256, threads=256)
    # With an odd step each element (i * step) & 1023 is written once, by iteration i.
    want = [2 * i for i in range(256)] * 256
    _check(bench, out, want, "local memory")
    return {"bytes_per_thread": 4096}


def exchange(bench: Bench) -> Facts:
    """22: 500 launches that wait for copies, and 500 copies that wait for launches; 100 chained kernels.

    The chained kernels are in one submission, with a barrier after each: so one kernel starts the next
    (`dependent_launch`).
    """
    device = _device(bench)
    rounds = 20 if bench.dry else 500
    counter, copied = device.alloc(4096), device.alloc(4096)
    out = device.alloc(4096, _HOST)
    program = _load(bench, device, "count")
    compute, copy = device.compute, device.copies[0]
    point = copy.submit(copy.record().fill(copied, 0))
    start = time.perf_counter()
    for _ in range(rounds):
        commands = compute.record().exec(
            program, program.args(counter, copied), groups=(1, 1, 1), threads=(1, 1, 1)
        )
        point = compute.submit(commands, after=[point])
        point = copy.submit(copy.record().copy(copied, counter), after=[point])
    bench.wait(point)
    took = (time.perf_counter() - start) * 1e6
    bench.wait(copy.submit(copy.record().copy(out, copied)))
    bench.check(_words(out, 1) == [rounds], f"{rounds} rounds counted {_words(out, 1)[0]}")
    chained = 10 if bench.dry else 100
    for number in range(bench.repeats):
        commands = compute.record()
        for i in range(chained):
            source, target = (counter, copied) if i % 2 else (copied, counter)
            commands.exec(program, program.args(target, source), groups=(1, 1, 1), threads=(1, 1, 1))
            commands.barrier(Scope.DEVICE)
        point = copy.submit(copy.record().fill(copied, 7))
        point = compute.submit(commands, after=[point])
        bench.wait(copy.submit(copy.record().copy(out, copied), after=[point]))
        seen = _words(out, 1)[0]
        text = f"submission {number}: {chained} kernels behind barriers counted from 7 to {seen}"
        bench.check(seen == 7 + chained, text)
    return {"rounds": rounds, "us_per_round": round(took / rounds, 2), "behind barriers": chained}


def clusters(bench: Bench) -> Facts:
    """26: clusters of 2, 4 and 8 workgroups: ranks and counts, and shared memory of the next workgroup."""
    device = _device(bench)
    most = device.info.limits.get("max_cluster", 0)
    if not most:
        return {"clusters": f"none on {device.info.arch}"}
    out = device.alloc(4096, _HOST)
    program, groups = _load(bench, device, "cluster"), 16
    sizes = [size for size in (2, 4, 8) if size <= most]
    for size in sizes:
        out.host()[: 4 * groups] = bytes(4 * groups)
        _launch(bench, device, program, out, groups=groups, cluster=size)
        want = []
        for group in range(groups):
            first, rank = group - group % size, group % size
            near = first + (rank + 1) % size + 1000
            want.append((near | groups // size << 16 | rank << 24 | size << 28) & 0xFFFF_FFFF)
        _check(bench, out, want, f"clusters of {size} workgroups")
    return {"clusters": sizes}


def meeting(bench: Bench) -> Facts:
    """27: all workgroups of a cooperative grid wait for each other.

    The grid has as many workgroups as `Program.residency` says fit. It runs without clusters, and in clusters
    of 2, 4 and 8 workgroups.
    """
    device = _device(bench)
    queue, threads = device.compute, (_FILLING, 1, 1)
    counter, out = device.alloc(4), device.alloc(4, _HOST)
    program = _load(bench, device, "meet")
    facts: Facts = {}
    for size in (1, 2, 4, 8):
        if size > max(1, device.info.limits.get("max_cluster", 0)):
            continue
        cluster = None if size == 1 else (size, 1, 1)
        try:
            fit = program.residency(threads, cluster)
        except UnsupportedError as error:
            facts[f"clusters of {size}"] = str(error).partition("\n")[0]
            continue
        groups = fit.groups if bench.emulate is None else min(fit.groups, _EMULATED_GROUPS)
        commands = queue.record().fill(counter, 0).barrier()
        commands.exec(
            program, program.args(counter, groups), groups=(groups, 1, 1), threads=threads, cluster=cluster,
            cooperative=True,
        )  # fmt: skip
        what = f"{groups} workgroups of {_FILLING} threads, in clusters of {size}, {fit.reasons}"
        try:
            bench.wait(queue.submit(commands.barrier().copy(out, counter)))
        except SignalTimeout as error:
            raise RungError(f"{what}: they do not all run at the same time: {error}") from error
        seen = _words(out, 1)[0]
        bench.check(seen == groups, f"{what}: {seen} came")
        facts[f"clusters of {size}" if size > 1 else "workgroups"] = groups
    return facts


def wraps(bench: Bench) -> Facts:
    """28: copies and kernels fill small rings several times, so that their entries wrap."""
    device = _device(bench, ring_bytes=_RING_BYTES)
    counter, seen, out = device.alloc(4096), device.alloc(4096), device.alloc(4096, _HOST)
    program, compute, copy = _load(bench, device, "count"), device.compute, device.copies[0]
    point = copy.submit(copy.record().fill(seen, 0).fill(counter, 0))
    rounds = 8 if bench.dry else _RING_ROUNDS
    for _ in range(rounds):
        commands = compute.record().exec(
            program, program.args(counter, seen), groups=(1, 1, 1), threads=(1, 1, 1)
        )
        point = compute.submit(commands, after=[point])
        point = copy.submit(copy.record().copy(seen, counter, 4), after=[point])
    bench.wait(copy.submit(copy.record().copy(out, seen, 4), after=[point]))
    bench.check(_words(out, 1) == [rounds], f"{rounds} rounds past the ends of rings: {_words(out, 1)[0]}")
    return {"ring bytes": _RING_BYTES, "rounds": rounds}


def clocks(bench: Bench) -> Facts:
    """24: bandwidth of a copying kernel in GB/s, and two processes at the same time.

    With --boost the bandwidth is measured again after a request for the highest clocks.
    """
    facts: Facts = {"gb_per_s": _stream(bench)}
    if bench.boost:
        device = NvDevice(bench.kernel, bench.card, driver="nv", index=bench.index, choices=bench.choices)
        bench.stack.callback(device.close)
        device.rm.query(
            device.handles.subdevice,
            Control.NV2080_CTRL_CMD_PERF_BOOST,
            flags=PERF_BOOST_TO_MAX_CUDA,
            duration=PERF_BOOST_FOREVER,
        )
        facts["boosted_gb_per_s"] = _stream(bench)
    if not bench.dry:
        facts["two processes"] = two_at_once(bench, store_again(bench))
    return facts


def store_again(bench: Bench) -> list[str]:
    """Return the command of rung 18 for another process, with the options of this bench."""
    return child_command(
        f"nv:{bench.index}",
        LAUNCH,
        choices=describe(bench.choices),
        emulate=bench.emulate,
        kernels=bench.kernels,
    )


def _stream(bench: Bench) -> float:
    size = 1 << 20 if bench.dry or bench.emulate is not None else 1 << 30
    device = _device(bench)
    first, second = device.alloc(size), device.alloc(size)
    program, copies = _load(bench, device, "stream"), device.copies[0]
    bench.wait(copies.submit(copies.record().fill(second, 1)))
    groups = size // (256 * 16)
    best = min(_launch(bench, device, program, first, second, groups=groups, threads=256) for _ in range(10))
    return round(2 * size / best / 1e3, 1)


def fault(bench: Bench) -> Facts:
    """23: a store to an unmapped address is reported, and `recover` makes new channels."""
    device = _device(bench)
    driver = device.driver
    assert isinstance(driver, NvDevice), "the bench makes NVIDIA devices"
    kept = device.alloc(4096, _HOST)
    kept.host()[:4] = b"kept"
    program = _load(bench, device, "wild")
    start = time.perf_counter()
    if bench.dry:
        return {"dry": "no fault was caused"}
    report = ""
    try:
        _launch(bench, device, program, kept, 0xDEAD_0000_0000)
    except DeviceFault as error:
        report = str(error)
    except SignalTimeout as error:
        channel = driver.ring(QueueKind.COMPUTE, 0).channel
        words = channel.errors[: NvNotification.SIZE // 4].hex(" ", 4)
        known = f"the error notifier of {channel.label} holds {words}, and it was not taken for an error; "
        raise RungError(f"{known if any(channel.errors) else ''}no fault was reported: {error}") from error
    else:
        raise RungError("a store to an unmapped address succeeded")
    facts: Facts = {"noticed_ms": (time.perf_counter() - start) * 1e3, "report": report}
    driver.recover()
    bench.check(bytes(kept.host()[:4]) == b"kept", "memory was lost by the fault")
    facts["recovered"] = "new channels, memory kept"
    return facts


def fresh_after_fault(bench: Bench) -> Facts:
    """25: after the fault a new process works."""
    try:
        return store(bench)
    except HcqError as error:
        raise RungError(f"after the fault a new process does not work: {error}") from error
