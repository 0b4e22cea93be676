"""Rungs 0 to 17 of the NVIDIA bring-up ladder: device nodes, memory, channels, semaphores and copies.

Each rung is a function that tests one property on a `Bench` and returns the observed facts by name. It raises
`RungError` if a result is wrong; errors of the driver pass: `DriverError`, `BringUpError`. Its docstring
starts with its number. From rung 12 on the GPU executes push buffers. Facts: docs/facts/nv.md, section 8.

Not here: the driver's parts (`bench`), the order of all rungs (`table`). Next: `rungs_compute`, kernels.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivers.nv import push, topology
from drivers.nv.channel import Channel, ChannelKind
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.gpfifo import Subchannel
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.rm import driver_version, open_node
from drivers.nv.uvm import NODE as UVM_NODE
from hcq.errors import HcqError
from tools.bringup.checks import SIGNAL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.nv.memory import NvMemory
    from tools.bringup.checks import Facts
    from tools.bringup.nv.bench import Bench


def gpu_node(index: int) -> str:
    """Return the path of the GPU node number `index` in /dev; /dev/nvidia`index` if there are fewer nodes."""
    minors = sorted(int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*"))
    return f"/dev/nvidia{minors[index] if index < len(minors) else index}"


def environment(bench: Bench) -> Facts:
    """0: user, kernel, device nodes and sandbox of this process."""
    del bench
    proc = Path("/proc/driver/nvidia")
    facts: Facts = {
        "uid": os.getuid(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nodes": sorted(path.name for path in Path("/dev").glob("nvidia*")),
        "proc": sorted(path.name for path in proc.glob("*")) if proc.exists() else [],
        "sandbox": "gVisor"
        if "gvisor" in platform.version().lower() or not (proc / "version").exists()
        else "",
    }
    with contextlib.suppress(OSError):
        majors = [line for line in Path("/proc/devices").read_text().splitlines() if "nvidia" in line]
        facts["majors"] = majors
    return facts


def nodes(bench: Bench) -> Facts:
    """1: the device nodes can be opened; the node of UVM is opened twice, as the driver does."""
    opened = {}
    for path in ("/dev/nvidiactl", gpu_node(bench.index), UVM_NODE, UVM_NODE):
        start = time.perf_counter()
        fd = open_node(bench.kernel, path)
        bench.stack.callback(bench.kernel.close, fd)
        opened[path] = f"{(time.perf_counter() - start) * 1e3:.1f} ms"
    return {"opened": opened}


def version(bench: Bench) -> Facts:
    """2: the kernel driver's version and its branch."""
    fd = open_node(bench.kernel, "/dev/nvidiactl")
    bench.stack.callback(bench.kernel.close, fd)
    text = driver_version(bench.kernel, fd)
    rm = bench.rm
    return {"version": text, "branch": rm.branch}


def client(bench: Bench) -> Facts:
    """3: a root client, and the GPU's identity."""
    card = bench.card
    info: Any = bench.rm.query(bench.rm.root, Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, gpuId=card.gpu_id)
    return {"root": hex(bench.rm.root), "card": str(card), "id_info": repr(info)}


def objects(bench: Bench) -> Facts:
    """4: device and subdevice objects."""
    return {"handles": str(bench.handles)}


def classes(bench: Bench) -> Facts:
    """5: classes, architecture, copy engines."""
    listed = topology.class_list(bench.rm, bench.handles.device)
    arch = bench.rm.query(bench.handles.subdevice, Control.NV2080_CTRL_CMD_MC_GET_ARCH_INFO)
    separate, shared = topology.copy_engines(bench.rm, bench.handles.subdevice)
    return {
        "classes": " ".join(f"{c:x}" for c in listed),
        "arch": repr(arch),
        "gpu": str(bench.gpu),
        "compute class": f"{bench.gpu.compute_class:x}",
        "copy engines": f"own run list {separate}, graphics run list {shared}",
    }


def doorbell(bench: Bench) -> Facts:
    """6: the clock of the doorbell page counts nanoseconds, within 10 % of the host's clock."""
    before = time.monotonic_ns()
    first = bench.doorbell.time_ns()
    inside = time.monotonic_ns()
    time.sleep(0.01)
    inside = time.monotonic_ns() - inside
    second = bench.doorbell.time_ns()
    outside = time.monotonic_ns() - before
    bench.check(second > first, f"the clock does not advance: {first:#x}, {second:#x}")
    text = f"the clock moved {second - first} ns in {inside} to {outside} ns, from {first:#x} to {second:#x}"
    bench.check(0.9 * inside <= second - first <= 1.1 * outside, text)
    bench.check(first >> 32 != 0xFFFF_FFFF, "the page reads all ones, so it is not mapped")
    return {"first": first, "moved_ns": second - first, "class": hex(bench.gpu.usermode_class)}


def _pattern(bench: Bench, memory: NvMemory, what: str) -> None:
    """Write a pattern and read it back through the CPU mapping."""
    assert memory.view is not None, "it was requested as visible"
    data = bytes(range(256)) * 16
    memory.view[: len(data)] = data
    memory.view[-4:] = b"\xde\xad\xbe\xef"
    seen = bytes(memory.view[: len(data)])
    bench.check(seen == data, f"{what}: {sum(a != b for a, b in zip(seen, data, strict=True))} bytes differ")


def video_memory(bench: Bench) -> Facts:
    """7: 2 MiB of video memory, mapped for the CPU."""
    memory = bench.unmapped.vram(2 << 20, label="ladder", host_visible=True)
    _pattern(bench, memory, "video memory")
    return {"va": hex(memory.va)}


def system_memory(bench: Bench) -> Facts:
    """8: system memory that RM allocates, and pages of this process registered as an OS descriptor."""
    memories = bench.unmapped
    memory = memories.notifier(64 << 10)
    bench.stack.callback(memories.free, memory)
    _pattern(bench, memory, "RM system memory")
    host = memories.host(64 << 10, label="ladder")
    _pattern(bench, host, "OS descriptor")
    return {"rm": hex(memory.va), "os_descriptor": hex(host.va)}


def unified_memory(bench: Bench) -> Facts:
    """9: the address space is registered with UVM."""
    return {"vaspace": hex(bench.context.vaspace), "uuid": bench.gpu.uuid.hex()}


def mapping(bench: Bench) -> Facts:
    """10: video memory, large and small, and pages of this process mapped at their host address."""
    memories = bench.context.memories
    facts: Facts = {"vram": hex(memories.vram(64 << 20, label="ladder").va)}
    facts["small vram"] = hex(memories.vram(8192, label="ladder").va)
    host = bench.kernel.mmap(65536, flags=0x21)
    bench.stack.callback(bench.kernel.munmap, host.va, 65536)
    shown = memories.map_host(host.va, 65536, label="signal pool")
    bench.stack.callback(memories.free, shown)
    facts["shown"] = hex(shown.va)
    return facts


def copy_channel(bench: Bench) -> Facts:
    """11: a copy channel in its own channel group."""
    context = bench.context
    channel = Channel(context, ChannelKind.COPY, context.gpu.copy_engines[0], label="ladder copy")
    bench.stack.callback(channel.close)
    return {"token": hex(channel.token), "engine": channel.engine, "get": channel.fetched()}


def host_release(bench: Bench) -> Facts:
    """12: the host engine of the channel releases a semaphore, without copy and compute engine."""
    ring = bench.ring(ChannelKind.COPY)
    memory, words = bench.slot()
    ring.send(push.semaphore(Subchannel.COPY, memory.va, 0x1234_5678, push.RELEASE))
    us = bench.reach(ring, words, 0x1234_5678, "host release")
    facts: Facts = {"us": us, "get": ring.channel.fetched()}

    def again(number: int) -> None:
        ring.send(push.semaphore(Subchannel.COPY, memory.va, number, push.RELEASE))
        bench.reach(ring, words, number, "host release")

    facts["repeats"] = bench.repeat("host release", again)
    if not bench.gpu.wide_host:
        return facts
    # The signal pool: pages of this process at their host address, above 2^40.
    pool = bench.kernel.mmap(65536, flags=0x21)
    bench.stack.callback(bench.kernel.munmap, pool.va, 65536)
    shown = bench.context.memories.map_host(pool.va, 65536, label="signal pool")
    bench.stack.callback(bench.context.memories.free, shown)
    ring.send(push.semaphore(Subchannel.COPY, pool.va, 0x4321, push.RELEASE))
    facts["signal pool us"] = bench.reach(
        ring, pool.view.cast("Q"), 0x4321, "host release to the signal pool"
    )
    return facts


def host_release_time(bench: Bench) -> Facts:
    """13: the host engine releases 64-bit semaphores: as a ring does, as a signal does, with a timestamp."""
    ring = bench.ring(ChannelKind.COPY)
    memory, words = bench.slot()
    for upper, (execute, what) in enumerate(((push.RELEASE, "a ring"), (push.RELEASE_WFI, "a signal")), 2):
        ring.send(push.semaphore(Subchannel.COPY, memory.va, upper << 32 | 1, execute))
        bench.reach(ring, words, upper << 32 | 1, f"64-bit release of {what}")
    value = 0x1_0000_0002
    ring.send(push.semaphore(Subchannel.COPY, memory.va, value, push.RELEASE_WFI_TIME))
    took = bench.reach(ring, words, value, "64-bit release with a timestamp")
    bench.check(words[1] > 0, "the release wrote no timestamp")
    return {"us": took, "time_ns": words[1], "clock_ns": bench.doorbell.time_ns()}


def engine_release(bench: Bench) -> Facts:
    """14: the copy engine releases a one-word semaphore and a four-word semaphore."""
    ring = bench.ring(ChannelKind.COPY, push.copy_setup(bench.gpu))
    memory, words = bench.slot()
    ring.send(push.copy_signal(memory.va, 0x77))
    one = bench.reach(ring, words, 0x77, "one-word release")
    bench.check(words[0] == 0x77, f"a one-word release wrote {words[0]:#x}")
    ring.send(push.copy_signal(memory.va, 0x78, push.LAUNCH_TIME))
    four = bench.reach(ring, words, 0x78, "four-word release", mask=0xFFFF_FFFF)
    facts: Facts = {"one_word_us": one, "four_words_us": four}
    facts |= {"upper": hex(words[0] >> 32), "time_ns": words[1]}

    def again(number: int) -> None:
        ring.send(push.copy_signal(memory.va, number))
        bench.reach(ring, words, number, "one-word release", mask=0xFFFF_FFFF)

    facts["repeats"] = bench.repeat("copy engine release", again)
    return facts


class Copier:
    """A copy channel with a semaphore, for rungs that move data."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.ring = bench.ring(ChannelKind.COPY, push.copy_setup(bench.gpu))
        self._slot, self._words = bench.slot()
        self._value = 0

    def run(self, words: push.Words, what: str) -> float:
        """Submit a push buffer and wait for its completion; return the microseconds until its release."""
        self._value += 1
        self.ring.send((*words, *push.copy_signal(self._slot.va, self._value)))
        return self._bench.reach(self.ring, self._words, self._value, what)


def copies(bench: Bench) -> Facts:
    """15: copies in each direction, a fill, and the bandwidth in GB/s (256 MiB; host copies 64 MiB)."""
    memories, copier = bench.context.memories, Copier(bench)
    video = [memories.vram(2 << 20, label=f"video {i}") for i in range(2)]
    source, target = (memories.host(64 << 10, label=label) for label in ("source", "target"))
    assert source.view is not None, "host memory has a view"
    assert target.view is not None, "host memory has a view"
    sent, received = source.view, target.view

    def again(_number: int) -> None:
        data = os.urandom(4096)
        sent[:4096] = data
        copier.run(push.copy(video[0].va, source.va, 4096), "host to video")
        copier.run(push.copy(video[1].va, video[0].va, 4096), "video to video")
        copier.run(push.copy(target.va, video[1].va, 4096), "video to host")
        wrong = sum(a != b for a, b in zip(data, bytes(received[:4096]), strict=True))
        bench.check(not wrong, f"host - video - video - host changed {wrong} of 4096 bytes")

    repeats = bench.repeat("copies", again)
    copier.run(push.fill(video[0].va, 0xA5A5_0102, 8192), "fill")
    copier.run(push.copy(target.va, video[0].va, 8192), "video to host")
    filled = set(target.view[:8192].cast("I"))
    bench.check(filled == {0xA5A5_0102}, f"a fill left {[hex(v) for v in sorted(filled)[:4]]}")
    return {
        "repeats": repeats,
        "gb_per_s": dict(_bandwidth(bench, copier)),
        "clocks": "not boosted: two thirds of the peak bandwidth is normal (`docs/sources.md`)",
    }


def _bandwidth(bench: Bench, copier: Copier) -> Iterator[tuple[str, float]]:
    """Yield each direction and its GB/s, the best of five copies; on an emulated GPU the size is 4 MiB."""
    size = 4 << 20 if bench.dry or bench.emulate is not None else 256 << 20
    bench.signal_s = 10 * SIGNAL_S
    memories = bench.context.memories
    first, second = (memories.vram(size, label="bandwidth") for _ in range(2))
    host = memories.host(size >> 2, label="bandwidth")
    for name, dst, src, count in (
        ("video to video", second.va, first.va, size),
        ("host to video", first.va, host.va, size >> 2),
        ("video to host", host.va, first.va, size >> 2),
    ):
        copier.run(push.copy(dst, src, count), name)
        took = min(copier.run(push.copy(dst, src, count), name) for _ in range(5))
        yield name, round(count / took / 1e3, 1)


def compute_channel(bench: Bench) -> Facts:
    """16: a compute channel, in a channel group on the graphics engine."""
    context = bench.context
    channel = Channel(context, ChannelKind.COMPUTE, EngineType.GR0, label="ladder compute")
    bench.stack.callback(channel.close)
    facts: Facts = {"token": hex(channel.token), "graphics copy": channel.copy_refusal or "allocated"}
    try:
        size: Any = context.rm.query(
            context.handles.subdevice,
            Control.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE,
            hChannel=channel.handle,
        )
        facts["context buffers"] = size.totalBufferSize
    except HcqError as error:
        facts["context buffers"] = f"unknown: {error}"
    return facts


def report_semaphore(bench: Bench) -> Facts:
    """17: the compute class releases a semaphore with a timestamp; a copy runs on the same channel."""
    gpu = bench.gpu
    ring = bench.ring(ChannelKind.COMPUTE, push.compute_setup(gpu, bench.choices, copies=False))
    memory, words = bench.slot()
    ring.send(push.report_semaphore(memory.va, 0x99))
    took = bench.reach(ring, words, 0x99, "report semaphore", mask=0xFFFF_FFFF)
    facts: Facts = {"us": took, "time_ns": words[1]}
    if ring.channel.copy_refusal:
        return facts | {"copy beside compute": ring.channel.copy_refusal}
    source, target = (bench.context.memories.host(4096, label=label) for label in ("source", "target"))
    assert source.view is not None, "host memory has a view"
    assert target.view is not None, "host memory has a view"
    source.view[:8] = b"graphics"
    ring.send(
        (
            *push.copy_setup(gpu),
            *push.copy(target.va, source.va, 4096),
            *push.graphics_copy_end(memory.va + 64),
            *push.semaphore(Subchannel.COMPUTE, memory.va, 0x100, push.RELEASE_WFI),
        )
    )
    facts["copy beside compute"] = bench.reach(ring, words, 0x100, "copy on the compute channel")
    bench.check(bytes(target.view[:8]) == b"graphics", "a copy on the compute channel did not arrive")
    return facts
