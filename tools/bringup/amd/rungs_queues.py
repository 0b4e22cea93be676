"""Rungs 12 to 17 of the AMD bring-up ladder: a copy queue and a compute queue, each up to its first signals.

Each rung is a function as in `rungs`. Rung 15 uses the complete driver; the others write packets into the
driver's rings.

Not here: rungs without a queue (`rungs`). Next: `rungs_compute`, kernels.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from drivers.amd import encode_aql, packets
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.layouts import sdma
from drivers.amd.layouts.events import WaitResult, kfd_event_data
from drivers.amd.queues import Packets
from hcq.driver import BufferSpec, Place
from tools.bringup.checks import SIGNAL_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivers.amd.rings import AnyRing
    from hcq.device import Device
    from tools.bringup.amd.bench import Bench
    from tools.bringup.checks import Facts

_HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
_LOW = 0xFFFF_FFFF
_LARGE = (4 << 20) + 4096
"""Bytes of a copy that takes two packets of 4 MiB."""


def _padded(words: Sequence[int]) -> tuple[int, ...]:
    return (*words, *(sdma.NOP_WORD,) * (-len(words) % sdma.ALIGN_WORDS))


def _queue_facts(ring: AnyRing) -> Facts:
    queue = ring.queue
    return {
        "id": queue.number,
        "ring": f"{queue.ring.va:#x}+{queue.ring.size:#x}",
        "pointers": f"{queue.write_va:#x}, {queue.read_va:#x}",
        "end of pipe": hex(queue.eop.va) if queue.eop else "none",
        "context save": f"{queue.area.va:#x}+{queue.area.size:#x}" if queue.area else "none",
    }


def copy_queue(bench: Bench) -> Facts:
    """12: an SDMA queue and its doorbell."""
    return _queue_facts(bench.ring(Packets.SDMA))


def copy_fence(bench: Bench) -> Facts:
    """13: the copy engine stores 32 bits; after a poll it stores only when the host has stored."""
    ring, encoder = bench.ring(Packets.SDMA), SdmaEncoder(bench.context)
    memory, words = bench.slot()
    ring.send(_padded(encoder.fence(memory.va, 0x1234_5678)))
    facts: Facts = {"us": bench.reach(ring, words, 0x1234_5678, "fence"), "read": ring.read()}

    def again(number: int) -> None:
        ring.send(_padded(encoder.fence(memory.va, number)))
        bench.reach(ring, words, number, "fence")

    facts["repeats"] = bench.repeat("fence", again)
    gate, gates = bench.slot()
    ring.send(_padded((*encoder.poll(gate.va, 5), *encoder.fence(memory.va, 0x55))))
    time.sleep(0.01)
    bench.demand(words[0] != 0x55, "a poll for 5 ended at 0")
    gates[0] = 6
    bench.events.poll()
    facts["gate us"] = bench.reach(ring, words, 0x55, "the fence behind a poll for at least 5, with 6 there")
    return facts


def copy_interrupt(bench: Bench) -> Facts:
    """14: the copy engine writes a timestamp and raises an interrupt that ends WAIT_EVENTS."""
    ring, encoder = bench.ring(Packets.SDMA), SdmaEncoder(bench.context)
    memory, words = bench.slot()
    stamp = memory.va + 64
    event = bench.events.signal
    ring.send(
        _padded(
            (
                *sdma.Timestamp.pack(ADDRESS_LO=stamp & _LOW, ADDRESS_HI=stamp >> 32),
                *encoder.fence(memory.va, 1),
                *encoder.fence(bench.events.slot_va, event),
                *sdma.Trap.pack(INT_CONTEXT=event),
            )
        )
    )
    took = bench.reach(ring, words, 1, "the fence behind a timestamp")
    bench.demand(words[8] > 0, "the engine wrote no timestamp")
    return {
        "us": took,
        "ticks": words[8],
        "interrupt_us": _wait_for_interrupt(bench),
        **_compare_clocks(bench, words[8]),
    }


def _wait_for_interrupt(bench: Bench) -> float:
    """Sleep until the device's event is raised; return the microseconds. Raises `RungError` if it is not."""
    start = time.perf_counter()
    data = bytearray(kfd_event_data.pack(event_id=bench.events.signal))
    result = bench.process.kfd.wait_events(data, int(1000 * SIGNAL_S * bench.patience))
    bench.demand(result is WaitResult.COMPLETE, f"no interrupt: the wait ended with {result!r}")
    return (time.perf_counter() - start) * 1e6


def _compare_clocks(bench: Bench, ticks: int) -> Facts:
    """Return the counter that KFD reads, as a fact.

    Raises `RungError` if an engine's timestamp `ticks` is not of the 10 seconds before the counter.
    """
    now = bench.process.kfd.clock_counters(bench.gpu.gpu_id).gpu_clock_counter
    hz = bench.render.gpu_counter_freq * 1000
    bench.check(0 <= now - ticks < 10 * hz, f"the engine's clock is at {ticks}, the kernel's at {now}")
    return {"kernel's counter": now}


def copies(bench: Bench) -> Facts:
    """15: copies in each direction, a fill and the bandwidth in GB/s, through the complete driver."""
    device = bench.device()
    queue = device.copies[0]
    video = [device.alloc(2 << 20) for _ in range(2)]
    source, target = (device.alloc(64 << 10, _HOST) for _ in range(2))

    def again(_number: int) -> None:
        data = os.urandom(4096)
        source.host()[:4096] = data
        commands = queue.record().copy(video[0], source, 4096).barrier()
        commands.copy(video[1], video[0], 4096).barrier().copy(target, video[1], 4096)
        bench.wait(queue.submit(commands))
        wrong = sum(a != b for a, b in zip(data, bytes(target.host()[:4096]), strict=True))
        bench.demand(not wrong, f"host - video - video - host changed {wrong} of 4096 bytes")

    repeats = bench.repeat("copies", again)
    commands = queue.record().fill(video[0], 0xA5A5_0102, 8192).barrier().copy(target, video[0], 8192)
    bench.wait(queue.submit(commands))
    filled = set(target.host()[:8192].cast("I"))
    bench.demand(filled == {0xA5A5_0102}, f"a fill left {[hex(v) for v in sorted(filled)[:4]]}")
    facts = {"repeats": repeats, "gb_per_s": dict(_bandwidth(bench, device))}
    return facts | _large_and_stamped(bench, device)


def _large_and_stamped(bench: Bench, device: Device) -> Facts:
    """Copy more bytes than one packet may, between two timestamps; return the size and the ticks."""
    queue = device.copies[0]
    first, second = device.alloc(_LARGE), device.alloc(_LARGE)
    ends = [device.alloc(4096, _HOST) for _ in range(2)]
    before, after = device.stamp(), device.stamp()
    commands = queue.record().timestamp(before).fill(first, 0x0BAD_CAFE, _LARGE).barrier()
    commands.fill(second, 0, _LARGE).barrier().copy(second, first, _LARGE).barrier()
    commands.copy(ends[0], second, 4096).copy(ends[1], second.view(_LARGE - 4096, 4096), 4096)
    bench.wait(queue.submit(commands.timestamp(after)))
    for end, what in zip(ends, ("first", "last"), strict=True):
        seen = set(end.host()[:4096].cast("I"))
        bench.demand(
            seen == {0x0BAD_CAFE}, f"the {what} 4096 of {_LARGE} bytes: {[hex(v) for v in seen][:4]}"
        )
    times = before.ticks, after.ticks
    bench.demand(0 < times[0] <= times[1], f"the times before and after copies are {times}")
    return {"copied at once": _LARGE, "ticks": times[1] - times[0]}


def _bandwidth(bench: Bench, device: Device) -> Iterator[tuple[str, float]]:
    size = 4 << 20 if bench.dry or bench.emulate is not None else 256 << 20
    queue = device.copies[0]
    first, second = device.alloc(size), device.alloc(size)
    host = device.alloc(size >> 2, _HOST)
    for name, dst, src, count in (
        ("video to video", second, first, size),
        ("host to video", first, host, size >> 2),
        ("video to host", host, first, size >> 2),
    ):
        best = 0.0
        for _ in range(5):
            start = time.perf_counter()
            bench.wait(queue.submit(queue.record().copy(dst, src, count)), times=10)
            best = max(best, count / (time.perf_counter() - start) / 1e9)
        yield name, round(best, 1)


def compute_queue(bench: Bench) -> Facts:
    """16: a compute queue: PM4, or AQL on GPUs with several XCCs."""
    return {"packets": bench.compute_packets.name, **_queue_facts(bench.ring(bench.compute_packets))}


def _for_ring(bench: Bench, words: Sequence[int]) -> Sequence[int]:
    """Return PM4 words for the ring: unchanged for PM4; for AQL in a packet that the first XCC executes."""
    if bench.compute_packets is Packets.PM4:
        return words
    several = bench.geometry.xccs > 1
    return encode_aql.in_buffer([*(packets.on_first_xcc(len(words)) if several else ()), *words])


def compute_signal(bench: Bench) -> Facts:
    """17: the compute queue stores 64 bits and a timestamp, waits for memory, and raises an interrupt."""
    ring, make = bench.ring(bench.compute_packets), packets.Pm4Words(bench.target, bench.choices)
    memory, words = bench.slot()

    def send(*groups: Sequence[int]) -> None:
        ring.send(_for_ring(bench, [word for group in groups for word in group]))

    send(make.signal(memory.va, 0x99))
    facts: Facts = {"us": bench.reach(ring, words, 0x99, "release")}

    def again(number: int) -> None:
        send(make.signal(memory.va, number))
        bench.reach(ring, words, number, "release")

    facts["repeats"] = bench.repeat("release", again)
    send(
        make.timestamp(memory.va + 64),
        make.signal(memory.va, 0x100),
        make.interrupt(bench.events.slot_va, bench.events.signal),
    )
    facts["stamp us"] = bench.reach(ring, words, 0x100, "the release behind a timestamp")
    bench.demand(words[8] > 0, "the queue wrote no timestamp")
    facts |= {
        "ticks": words[8],
        "interrupt_us": _wait_for_interrupt(bench),
        **_compare_clocks(bench, words[8]),
    }
    gate, gates = bench.slot()
    send(make.wait(gate.va, 5), make.signal(memory.va, 0x101))
    time.sleep(0.01)
    bench.demand(words[0] != 0x101, "a wait for 5 ended at 0")
    gates[0] = 6
    bench.events.poll()
    facts["gate us"] = bench.reach(
        ring, words, 0x101, "the release behind a wait for at least 5, with 6 there"
    )
    return facts
