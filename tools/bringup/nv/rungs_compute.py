"""Rungs 19 to 28 of the NVIDIA bring-up ladder: kernels, through the complete driver.

Each rung is a function as in `rungs`, and raises `RungError` for a wrong result. Rung 23 causes a fault and
runs after the others.

Not here: rungs 18, 21 and 25 (`tools.bringup.launches`), the lower rungs (`rungs`), the kernels (`kernels`).
Next: `table`, the order of all rungs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drivers.nv.device import NvDevice
from drivers.nv.layouts.controls import PERF_BOOST_FOREVER, PERF_BOOST_TO_MAX_CUDA, Control
from drivers.nv.layouts.fault import NvNotification
from hcq.commands import Scope
from hcq.driver import QueueKind
from hcq.errors import DeviceFault, SignalTimeout, UnsupportedError
from tools.bringup.checks import RungError
from tools.bringup.child import two_at_once
from tools.bringup.launches import HOST, words
from tools.bringup.nv.kernels import PICKED

if TYPE_CHECKING:
    from tools.bringup.checks import Facts
    from tools.bringup.nv.bench import Bench

_RING_BYTES = 1 << 14
_RING_ROUNDS = 600
"""Rounds of `wraps`: they fill a ring several times."""
_FILLING = 1024
"""Threads of a workgroup in `meeting`: one or two such workgroups fill an SM."""
_EMULATED_GROUPS = 16
"""The most workgroups in `meeting` on an emulated GPU: a few threads of the host run all of them."""


def grid(bench: Bench) -> Facts:
    """19: block and grid sizes, parameters, constant bank 3, a jump table in bank 2; 1000 workgroups."""
    device = bench.device()
    groups, threads, add = 1000, 96, 5
    count = groups * threads
    out = device.alloc(4 * count, HOST)
    bench.launch(device, bench.load(device, "grid"), out, add, groups=groups, threads=threads)
    picked = [PICKED[t % 8](t) + 1000 * (t % 4 + 1) + add for t in range(threads)]
    want = [count + i + picked[i % threads] & 0xFFFF_FFFF for i in range(count)]
    bench.check_words(out, want, "grid")
    return {"elements": count}


def shared(bench: Bench) -> Facts:
    """20: shared memory and a barrier, of 4, 48 and 200 KiB and of the limit."""
    device = bench.device()
    out = device.alloc(4096, HOST)
    done = []
    for size in (4 << 10, 48 << 10, 200 << 10, device.info.limits["max_shared_bytes"]):
        if size > device.info.limits["max_shared_bytes"]:
            continue
        program = bench.load(device, "shared", shared_bytes=size)
        out.host()[:1024] = bytes(1024)
        bench.launch(device, program, out, size - 1024, threads=256)
        bench.check_words(out, list(range(255, -1, -1)), f"{size} bytes of shared memory")
        done.append(size)
    return {"sizes": done}


def exchange(bench: Bench) -> Facts:
    """22: 500 launches that wait for copies, and 500 copies that wait for launches; 100 chained kernels.

    The chained kernels are in one submission, with a barrier after each: so one kernel starts the next
    (`dependent_launch`).
    """
    device = bench.device()
    rounds = 20 if bench.dry else 500 if bench.emulate is None else 60
    us_per_round = bench.count_rounds(device, rounds)
    counter, copied = device.alloc(4096), device.alloc(4096)
    out = device.alloc(4096, HOST)
    program, compute, copy = bench.load(device, "count"), device.compute, device.copies[0]
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
        seen = words(out, 1)[0]
        text = f"submission {number}: {chained} kernels behind barriers counted from 7 to {seen}"
        bench.check(seen == 7 + chained, text)
    return {"rounds": rounds, "us_per_round": round(us_per_round, 2), "behind barriers": chained}


def clusters(bench: Bench) -> Facts:
    """26: clusters of 2, 4 and 8 workgroups: ranks and counts, and shared memory of the next workgroup."""
    device = bench.device()
    most = device.info.limits.get("max_cluster", 0)
    if not most:
        return {"clusters": f"none on {device.info.arch}"}
    out = device.alloc(4096, HOST)
    program, groups = bench.load(device, "cluster"), 16
    sizes = [size for size in (2, 4, 8) if size <= most]
    for size in sizes:
        out.host()[: 4 * groups] = bytes(4 * groups)
        bench.launch(device, program, out, groups=groups, cluster=size)
        want = []
        for group in range(groups):
            first, rank = group - group % size, group % size
            near = first + (rank + 1) % size + 1000
            want.append((near | groups // size << 16 | rank << 24 | size << 28) & 0xFFFF_FFFF)
        bench.check_words(out, want, f"clusters of {size} workgroups")
    return {"clusters": sizes}


def meeting(bench: Bench) -> Facts:
    """27: all workgroups of a cooperative grid wait for each other.

    The grid has as many workgroups as `Program.residency` says fit. It runs without clusters, and in clusters
    of 2, 4 and 8 workgroups.
    """
    device = bench.device()
    queue, threads = device.compute, (_FILLING, 1, 1)
    counter, out = device.alloc(4), device.alloc(4, HOST)
    program = bench.load(device, "meet")
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
        seen = words(out, 1)[0]
        bench.check(seen == groups, f"{what}: {seen} came")
        facts[f"clusters of {size}" if size > 1 else "workgroups"] = groups
    return facts


def wraps(bench: Bench) -> Facts:
    """28: copies and kernels fill small rings several times, so that their entries wrap."""
    rounds = 8 if bench.dry else _RING_ROUNDS
    bench.count_rounds(bench.device(ring_bytes=_RING_BYTES), rounds)
    return {"ring bytes": _RING_BYTES, "rounds": rounds}


def clocks(bench: Bench) -> Facts:
    """24: bandwidth of a copying kernel in GB/s, and two processes at the same time.

    With --boost the bandwidth is measured again after a request for the highest clocks.
    """
    facts: Facts = {"gb_per_s": bench.bandwidth()}
    if bench.boost:
        device = NvDevice(bench.kernel, bench.card, driver="nv", index=bench.index, choices=bench.choices)
        bench.stack.callback(device.close)
        device.rm.query(
            device.handles.subdevice,
            Control.NV2080_CTRL_CMD_PERF_BOOST,
            flags=PERF_BOOST_TO_MAX_CUDA,
            duration=PERF_BOOST_FOREVER,
        )
        facts["boosted_gb_per_s"] = bench.bandwidth()
    if not bench.dry:
        facts["two processes"] = two_at_once(bench, bench.store_again())
    return facts


def fault(bench: Bench) -> Facts:
    """23: a store to an unmapped address is reported, and `recover` makes new channels."""
    device = bench.device()
    driver = device.driver
    assert isinstance(driver, NvDevice), "the bench makes NVIDIA devices"
    kept = device.alloc(4096, HOST)
    kept.host()[:4] = b"kept"
    program = bench.load(device, "wild")
    start = time.perf_counter()
    if bench.dry:
        return {"dry": "no fault was caused"}
    report = ""
    try:
        bench.launch(device, program, kept, 0xDEAD_0000_0000)
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
