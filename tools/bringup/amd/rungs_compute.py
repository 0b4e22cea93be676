"""Rungs 18 to 25 of the AMD bring-up ladder: kernels, through the complete driver.

Each rung is a function as in `rungs`. Rung 23 causes a fault and runs after the others; rung 25 follows it.

Not here: the lower rungs (`rungs`, `rungs_queues`), the kernels (`kernels`), the order of all (`table`).
Next: `rungs_order`, rungs 26 to 28.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from drivers.amd.device import AmdDevice
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.layouts import sdma
from drivers.choices import describe
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import BringUpError, DeviceFault, HcqError, SignalTimeout, UnsupportedError
from tools.bringup.amd.kernels import LDS_SIZES, PICKED, THREADS, TOKEN, image
from tools.bringup.checks import RungError
from tools.bringup.child import child_command, two_at_once
from tools.bringup.rung import LAUNCH

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.program import Program
    from tools.bringup.amd.bench import Bench
    from tools.bringup.checks import Facts

HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
"""Coherent memory of the host, for results."""
_UNMAPPED = 0x5EAD_0000_0000
"""An address at which nothing is mapped: above the heap of the process and below its mappings."""


def load(bench: Bench, device: Device, name: str, *, shared_bytes: int = 0) -> Program:
    """Load the kernel `name` of `kernels.KERNELS`; the device owns the program."""
    return device.load(image(name, device.info.arch, shared_bytes=shared_bytes, folder=bench.kernels))


def _launch(
    bench: Bench, device: Device, program: Program, *values: Any, groups: int = 1, threads: int = 1
) -> float:
    """Launch and wait; return the microseconds until the host observed completion."""
    queue = device.compute
    start = time.perf_counter()
    commands = queue.record().exec(
        program, program.args(*values), groups=(groups, 1, 1), threads=(threads, 1, 1)
    )
    bench.wait(queue.submit(commands))
    return (time.perf_counter() - start) * 1e6


def _check(bench: Bench, buffer: Buffer, want: list[int], what: str) -> None:
    """Raise `RungError` unless the words of a buffer are `want`, in time; in a dry run check nothing.

    The text of the error says whether words were wrong or late.
    """

    def read() -> list[int]:
        return list(struct.unpack(f"<{len(want)}I", bytes(buffer.host()[: 4 * len(want)])))

    late = bench.arrival(read, want)
    if late is None:
        seen = read()
        first = next((i for i, word in enumerate(want) if seen[i] != word), 0)
        bench.check(
            condition=False, text=f"{what}: element {first} is {seen[first]:#x}, not {want[first]:#x}"
        )
    elif late:
        text = f"{what}: arrived {1e6 * late:.0f} us after the release, which must write caches back"
        bench.check(condition=False, text=text)


def store(bench: Bench) -> Facts:
    """18: one thread stores a token, to host and to video memory."""
    device = bench.device()
    out, video, copied = device.alloc(4096, HOST), device.alloc(4096), device.alloc(4096, HOST)
    program, queue = load(bench, device, "store"), device.copies[0]
    took: list[float] = []

    def launch(number: int) -> None:
        out.host()[:4] = bytes(4)
        took.append(_launch(bench, device, program, out))
        _check(bench, out, [TOKEN], f"host memory after launch {number}")

    launch(0)
    _launch(bench, device, program, video)
    bench.wait(queue.submit(queue.record().copy(copied, video)))
    _check(bench, copied, [TOKEN], "video memory")
    return {"first_us": took[0], "repeats": bench.repeat("a token", launch), "best_us": min(took)}


def grid(bench: Bench) -> Facts:
    """19: thread and workgroup ids, arguments, a constant table and branches, in 1000 workgroups."""
    device = bench.device()
    groups, add = 1000, 5
    out = device.alloc(4 * groups * THREADS, HOST)
    _launch(bench, device, load(bench, device, "grid"), out, add, groups=groups, threads=THREADS)
    picked = [PICKED[t % 4](t) + 1000 * (t % 4 + 1) + add for t in range(THREADS)]
    want = [i + picked[i % THREADS] & 0xFFFF_FFFF for i in range(groups * THREADS)]
    _check(bench, out, want, "grid")
    return {"elements": len(want)}


def shared(bench: Bench) -> Facts:
    """20: LDS and a barrier, from 4 KiB to the limit of a workgroup."""
    device = bench.device()
    out = device.alloc(4096, HOST)
    sizes = [size for size in LDS_SIZES if size <= device.info.limits["max_shared_bytes"]]
    for size in sizes:
        out.host()[:1024] = bytes(1024)
        _launch(bench, device, load(bench, device, "shared", shared_bytes=size), out, threads=256)
        _check(bench, out, list(range(255, -1, -1)), f"{size} bytes of LDS")
    return {"sizes": sizes}


def local(bench: Bench) -> Facts:
    """21: scratch memory: an array of 4 KiB per thread, indexed at run time, in 256 workgroups."""
    device = bench.device()
    out = device.alloc(4 * 256 * 256, HOST)
    _launch(bench, device, load(bench, device, "local"), out, 7, groups=256, threads=256)
    # With an odd step each element (i * step) & 1023 is written once, by iteration i.
    _check(bench, out, [2 * i for i in range(256)] * 256, "scratch")
    return {"bytes_per_thread": 4096}


def exchange(bench: Bench) -> Facts:
    """22: 500 launches that wait for copies, and 500 copies that wait for launches."""
    device = bench.device()
    rounds = 20 if bench.dry else 500
    counter, copied = device.alloc(4096), device.alloc(4096)
    out = device.alloc(4096, HOST)
    program = load(bench, device, "count")
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
    _check(bench, out, [rounds], f"{rounds} rounds")
    return {"rounds": rounds, "us_per_round": round(took / rounds, 2)}


def two_processes(bench: Bench) -> Facts:
    """24: bandwidth of a copying kernel in GB/s, and two processes at the same time."""
    facts: Facts = {"gb_per_s": _stream(bench)}
    if not bench.dry:
        facts["two processes"] = two_at_once(bench, store_again(bench))
    return facts


def _stream(bench: Bench) -> float:
    size = 1 << 20 if bench.dry or bench.emulate is not None else 1 << 30
    device = bench.device()
    first, second = device.alloc(size), device.alloc(size)
    program, copies = load(bench, device, "stream"), device.copies[0]
    bench.wait(copies.submit(copies.record().fill(second, 1)))
    groups = size // (256 * 16)
    best = min(_launch(bench, device, program, first, second, groups=groups, threads=256) for _ in range(10))
    return round(2 * size / best / 1e3, 1)


def store_again(bench: Bench) -> list[str]:
    """Return the command of rung 18 for another process, with the options of this bench."""
    return child_command(
        f"amd:{bench.index}",
        LAUNCH,
        choices=describe(bench.choices),
        emulate=bench.emulate,
        kernels=bench.kernels,
    )


def fault(bench: Bench) -> Facts:
    """23: a store to an unmapped address is reported with that address; then `recover` is called.

    After a page fault Linux runs no more queues of the process, so an error of `recover` is not a failure. In
    a dry run the copy engine stores, because kernels do not run.
    """
    device = bench.device()
    driver = device.driver
    assert isinstance(driver, AmdDevice), "the bench makes AMD devices"
    kept = device.alloc(4096, HOST)
    kept.host()[:4] = b"kept"
    start = time.perf_counter()
    try:
        if bench.dry:
            _store_by_copy_engine(bench, device, driver)
        else:
            _launch(bench, device, load(bench, device, "wild"), kept, _UNMAPPED)
    except DeviceFault as error:
        report = error.report
    except SignalTimeout as error:
        raise RungError(f"no fault was reported: {error}") from error
    else:
        raise RungError("a store to an unmapped address succeeded")
    facts: Facts = {"noticed_ms": (time.perf_counter() - start) * 1e3, "report": str(report)}
    bench.demand(report.va == _UNMAPPED, f"the store was to {_UNMAPPED:#x}, the report names {report.va}")
    try:
        driver.recover()
        facts["recovered"] = "new queues, memory kept"
    except (BringUpError, UnsupportedError) as error:
        facts["recovered"] = f"not in this process: {error}"
    bench.demand(bytes(kept.host()[:4]) == b"kept", "memory was lost by the fault")
    return facts


def _store_by_copy_engine(bench: Bench, device: Device, driver: AmdDevice) -> None:
    words = SdmaEncoder(bench.context).fence(_UNMAPPED, 1)
    queue = device.copies[0]
    ring = driver.ring(QueueKind.COPY, 0)
    ring.send((*words, *(sdma.NOP_WORD,) * (-len(words) % sdma.ALIGN_WORDS)))
    bench.wait(queue.submit(queue.record()))


def fresh_after_fault(bench: Bench) -> Facts:
    """25: after the fault a new process works."""
    try:
        return store(bench)
    except HcqError as error:
        raise RungError(f"after the fault a new process does not work: {error}") from error
