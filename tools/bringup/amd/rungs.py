"""Rungs 0 to 11 of the AMD bring-up ladder: from /dev/kfd to memory and events, without a queue.

Each rung is a function that tests one property on a `Bench` and returns the observed facts by name. It raises
`RungError` if a result is wrong; errors of the driver pass: `DriverError`, `BringUpError`. Its docstring
starts with its number. Calls and their order: docs/amd.md.

Not here: kernels (`rungs_compute`), the order of all rungs (`table`). Next: `rungs_queues`, queues.
"""

from __future__ import annotations

import grp
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from drivers.amd import context
from drivers.amd.kfd import Kfd, open_node
from drivers.amd.layouts.events import WaitResult, kfd_event_data
from drivers.amd.layouts.kfd import GPUVM_RESERVED_TOP, LDS_APERTURE, SCRATCH_APERTURE, USER_ADDRESS_BITS
from drivers.amd.layouts.topology import KFD_NODE, RENDER_NODE
from drivers.kernel import PAGE

if TYPE_CHECKING:
    from drivers.amd.memory import AmdMemory
    from tools.bringup.amd.bench import Bench
    from tools.bringup.checks import Facts

_MODULE = Path("/sys/module/amdgpu")
_LARGE = 64 << 20
_PATTERN = bytes(range(256)) * 16


def environment(bench: Bench) -> Facts:
    """0: user, groups, device nodes, module and kernel of this machine."""
    del bench
    nodes = [Path(KFD_NODE), *sorted(Path("/dev/dri").glob("render*"))]
    version = _MODULE / "version"
    return {
        "uid": os.getuid(),
        "groups": [_group(number) for number in os.getgroups()],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nodes": {str(path): _owner(path) for path in nodes},
        "module": "not loaded" if not _MODULE.exists() else version.read_text() if version.exists() else "in",
    }


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _owner(path: Path) -> str:
    if not path.exists():
        return "absent"
    info = path.stat()
    return f"{info.st_mode & 0o777:o} {info.st_uid}:{_group(info.st_gid)}"


def nodes(bench: Bench) -> Facts:
    """1: /dev/kfd opens."""
    start = time.perf_counter()
    fd = open_node(bench.kernel, KFD_NODE)
    bench.stack.callback(bench.kernel.close, fd)
    return {"opened": {KFD_NODE: f"{(time.perf_counter() - start) * 1e3:.1f} ms"}}


def version(bench: Bench) -> Facts:
    """2: the version of KFD's interface, and one of its features."""
    kfd = Kfd(bench.kernel)
    bench.stack.callback(kfd.close)
    major, minor = kfd.version
    return {"version": f"{major}.{minor}", "SDMA_BY_ENG_ID": kfd.has("SDMA_BY_ENG_ID")}


def topology(bench: Bench) -> Facts:
    """3: the topology lists the GPU, and the driver supports its target."""
    gpu, target, geometry = bench.gpu, bench.target, bench.geometry
    return {
        "gpus": [one.name for one in bench.gpus],
        "gpu_id": hex(gpu.gpu_id),
        "target": target.name,
        "geometry": asdict(geometry),
        "queues": bench.compute_packets.name,
        "video memory": {"visible": gpu.visible_bytes, "private": gpu.private_bytes},
        "links": {node: str(link) for node, link in gpu.links.items()},
        "properties": dict(gpu.properties),
    }


def render_node(bench: Bench) -> Facts:
    """4: the render node opens and reports the frequency of the GPU's counter."""
    path = RENDER_NODE.format(minor=bench.gpu.render_minor)
    fd = open_node(bench.kernel, path)
    bench.stack.callback(bench.kernel.close, fd)
    info = bench.render
    return {
        "node": path,
        "counter_khz": info.gpu_counter_freq,
        "apu": bench.apu,
        "apu by its target": bench.target.apu,
    }


def address_space(bench: Bench) -> Facts:
    """5: ACQUIRE_VM succeeds, and the apertures are at the documented addresses."""
    fd = bench.drm_fd
    row = next((row for row in bench.process.kfd.apertures() if row.gpu_id == bench.gpu.gpu_id), None)
    assert row is not None, "check_space found the GPU"
    bench.demand(row.lds_base == LDS_APERTURE, f"LDS aperture at {row.lds_base:#x}, not {LDS_APERTURE:#x}")
    bench.demand(
        row.scratch_base == SCRATCH_APERTURE,
        f"scratch aperture at {row.scratch_base:#x}, not {SCRATCH_APERTURE:#x}",
    )
    wanted = (1 << USER_ADDRESS_BITS) - GPUVM_RESERVED_TOP
    return {
        "render fd": fd,
        "gpuvm": f"{row.gpuvm_base:#x} to {row.gpuvm_limit:#x}, up to {wanted:#x} is used",
    }


def runtime(bench: Bench) -> Facts:
    """6: reports of queue exceptions are enabled, before the first queue."""
    return {"exceptions": bench.no_exceptions or "reported"}


def clock(bench: Bench) -> Facts:
    """7: the GPU's counter advances at the reported frequency, within 10 %."""
    gpu_id, kfd = bench.gpu.gpu_id, bench.process.kfd
    assert bench.drm_fd, "the GPU's address space is acquired first"
    reported = bench.render.gpu_counter_freq * 1000
    first = kfd.clock_counters(gpu_id)
    for wait_s in (0.01, 0.1, 1.0):  # the two clocks are not read at one instant
        time.sleep(wait_s)
        second = kfd.clock_counters(gpu_id)
        ticks = second.gpu_clock_counter - first.gpu_clock_counter
        nanoseconds = second.cpu_clock_counter - first.cpu_clock_counter
        bench.demand(ticks > 0, f"the counter does not advance: {first.gpu_clock_counter:#x}")
        measured = round(ticks * 1e9 / nanoseconds) if nanoseconds else 0
        if right := 0.9 * reported < measured < 1.1 * reported:
            break
    bench.check(right, f"{measured} Hz measured, {reported} Hz reported")
    return {"ticks": ticks, "nanoseconds": nanoseconds, "hz": reported, "measured_hz": measured}


def _pattern(bench: Bench, memory: AmdMemory, what: str) -> None:
    assert memory.view is not None, "it was requested as visible"
    memory.view[: len(_PATTERN)] = _PATTERN
    memory.view[-4:] = b"\xde\xad\xbe\xef"
    seen = bytes(memory.view[: len(_PATTERN)])
    wrong = sum(a != b for a, b in zip(seen, _PATTERN, strict=True))
    bench.demand(not wrong, f"{what}: {wrong} bytes differ")


def video_memory(bench: Bench) -> Facts:
    """8: video memory, small and large, and 2 MiB mapped by the host if the PCI window is large enough."""
    memories = bench.memories
    facts: Facts = {
        "small": hex(memories.vram(PAGE, label="ladder").va),
        "large": hex(memories.vram(_LARGE, label="ladder").va),
        "available": bench.process.kfd.available(bench.gpu.gpu_id),
    }
    if bench.gpu.visible_bytes or bench.apu:
        seen = memories.vram(2 << 20, label="ladder", host_visible=True)
        _pattern(bench, seen, "video memory")
        facts["visible"] = hex(seen.va)
    else:
        facts["visible"] = "none: the PCI window is smaller than the memory"
    return facts


def system_memory(bench: Bench) -> Facts:
    """9: coherent system memory of the kernel, mapped by host and GPU."""
    memory = bench.memories.system(64 << 10, label="ladder")
    _pattern(bench, memory, "system memory")
    return {"va": hex(memory.va)}


def user_pointer(bench: Bench) -> Facts:
    """10: memory of this process, mapped to the GPU at its host address."""
    assert bench.drm_fd, "the GPU's address space is acquired first"
    host = bench.kernel.mmap(16 * PAGE, flags=0x21)
    bench.stack.callback(bench.kernel.munmap, host.va, 16 * PAGE)
    bench.process.map_host(host.va, 16 * PAGE, bench.gpu.gpu_id)
    bench.process.unmap_host(host.va, bench.gpu.gpu_id)
    return {"va": hex(host.va)}


def events(bench: Bench) -> Facts:
    """11: a wait for an event ends if the event is set, and not before; sizes of the context save area."""
    kfd, signal = bench.process.kfd, bench.events.signal
    data = bytearray(kfd_event_data.pack(event_id=signal))
    before = kfd.wait_events(data, 0)
    bench.demand(before is WaitResult.TIMEOUT, f"the wait for an event that is not set: {before!r}")
    kfd.set_event(signal)
    start = time.perf_counter()
    after = kfd.wait_events(data, 1000)
    bench.demand(after is WaitResult.COMPLETE, f"the wait for an event that is set: {after!r}")
    areas = context.of(bench.gpu, bench.target, bench.geometry, kfd, bench.choices)
    return {
        "signal": signal,
        "us": (time.perf_counter() - start) * 1e6,
        "slot": hex(bench.events.slot_va),
        "context save": {"bytes": areas.context, "control stack": areas.control_stack, "total": areas.total},
    }
