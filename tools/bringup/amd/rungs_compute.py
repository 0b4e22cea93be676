"""Rungs 19 to 24 of the AMD bring-up ladder: kernels, through the complete driver.

Each rung is a function as in `rungs`, and raises `RungError` for a wrong result. Rung 23 causes a fault and
runs after the others.

Not here: rungs 18, 21 and 25 (`tools.bringup.launches`), the lower rungs (`rungs`, `rungs_queues`), the
kernels (`kernels`), the order of all (`table`). Next: `rungs_order`, rungs 26 to 28.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drivers.amd.device import AmdDevice
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.layouts import sdma
from hcq.driver import QueueKind
from hcq.errors import BringUpError, DeviceFault, SignalTimeout, UnsupportedError
from tools.bringup.amd.kernels import LDS_SIZES, PICKED, THREADS
from tools.bringup.checks import RungError
from tools.bringup.child import two_at_once
from tools.bringup.launches import HOST

if TYPE_CHECKING:
    from hcq.device import Device
    from tools.bringup.amd.bench import Bench
    from tools.bringup.checks import Facts

_UNMAPPED = 0x5EAD_0000_0000
"""An address at which nothing is mapped: above the heap of the process and below its mappings."""


def grid(bench: Bench) -> Facts:
    """19: thread and workgroup ids, arguments, a constant table and branches, in 1000 workgroups."""
    device = bench.device()
    groups, add = 1000, 5
    out = device.alloc(4 * groups * THREADS, HOST)
    bench.launch(device, bench.load(device, "grid"), out, add, groups=groups, threads=THREADS)
    picked = [PICKED[t % 4](t) + 1000 * (t % 4 + 1) + add for t in range(THREADS)]
    want = [i + picked[i % THREADS] & 0xFFFF_FFFF for i in range(groups * THREADS)]
    bench.check_words(out, want, "grid")
    return {"elements": len(want)}


def shared(bench: Bench) -> Facts:
    """20: LDS and a barrier, from 4 KiB to the limit of a workgroup."""
    device = bench.device()
    out = device.alloc(4096, HOST)
    sizes = [size for size in LDS_SIZES if size <= device.info.limits["max_shared_bytes"]]
    for size in sizes:
        out.host()[:1024] = bytes(1024)
        bench.launch(device, bench.load(device, "shared", shared_bytes=size), out, threads=256)
        bench.check_words(out, list(range(255, -1, -1)), f"{size} bytes of LDS")
    return {"sizes": sizes}


def exchange(bench: Bench) -> Facts:
    """22: 500 launches that wait for copies, and 500 copies that wait for launches."""
    rounds = 20 if bench.dry else 500 if bench.emulate is None else 60
    us_per_round = bench.count_rounds(bench.device(), rounds)
    return {"rounds": rounds, "us_per_round": round(us_per_round, 2)}


def two_processes(bench: Bench) -> Facts:
    """24: bandwidth of a copying kernel in GB/s, and two processes at the same time."""
    facts: Facts = {"gb_per_s": bench.bandwidth()}
    if not bench.dry:
        facts["two processes"] = two_at_once(bench, bench.store_again())
    return facts


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
            bench.launch(device, bench.load(device, "wild"), kept, _UNMAPPED)
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
