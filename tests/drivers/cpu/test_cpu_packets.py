"""Packets of the cpu device, one by one, and its rings: wrapping, full rings, streams that do not fit."""

from __future__ import annotations

import random
import threading
import time
from array import array
from typing import TYPE_CHECKING

import pytest

from drivers.cpu import layouts
from drivers.cpu.layouts import WAITERS, Op, Slot
from drivers.cpu.ring import RING_PACKETS
from hcq.config import override
from hcq.errors import DeviceFault, FaultKind, UsageError
from tests.drivers.cpu.rig import (
    COMPUTE,
    COPY,
    MIB,
    Box,
    Words,
    exec_,
    finish,
    rest,
    send,
    set_,
    until,
    wait_,
)

if TYPE_CHECKING:
    from drivers.cpu.device import CpuDevice
    from drivers.cpu.driver import CpuDriver


def test_copy_fill_write_and_timestamp_have_their_documented_effect(device: CpuDevice) -> None:
    box, ring = Box(device), device.ring(COPY, 0)
    source = box.va + 1024
    before = time.monotonic_ns()
    send(
        ring,
        layouts.Fill.pack(dst=source, pattern=0xDEADBEEF, size=30),
        layouts.Copy.pack(dst=source + 64, src=source, size=40),
        layouts.Write.pack(dst=source + 128, value=0x1122334455667788, width=8),
        layouts.Write.pack(dst=source + 136, value=0x1122334455667788, width=4),
        layouts.Timestamp.pack(at=box.va + 8),
        layouts.Nop.pack(),
        layouts.Barrier.pack(),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    wanted = (b"\xef\xbe\xad\xde" * 8)[:30]
    assert bytes(box.bytes[1024:1064]) == wanted + bytes(10)
    assert bytes(box.bytes[1088:1128]) == wanted + bytes(10)
    assert bytes(box.bytes[1152:1168]) == bytes.fromhex("887766554433221188776655") + bytes(4)
    assert before <= box.words[1] <= time.monotonic_ns()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 63, 65536, 65537, 200_001])
def test_fill_of_any_size_stays_inside(device: CpuDevice, size: int) -> None:
    box, data = Box(device), Box(device, 1 << 18)
    send(
        device.ring(COMPUTE, 0),
        layouts.Fill.pack(dst=data.va + 4, pattern=0x04030201, size=size),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    assert bytes(data.bytes[: size + 12]) == bytes(4) + (b"\1\2\3\4" * (size // 4 + 1))[:size] + bytes(8)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_large_copy_shared_with_workers_is_whole(driver: CpuDriver, workers: int) -> None:
    with override(workers=workers):
        device = driver.open(0, None)
    size = 9 * MIB + 12345
    box, source, target = Box(device), Box(device, size), Box(device, size + 8)
    source.bytes[:size] = random.Random(1).randbytes(size)
    send(
        device.ring(COPY, 0),
        layouts.Copy.pack(dst=target.va, src=source.va, size=size),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    assert target.bytes[:size] == source.bytes[:size]
    assert bytes(target.bytes[size : size + 8]) == bytes(8)
    device.close()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_workgroup_runs_once(driver: CpuDriver, kernels: dict[str, int], workers: int) -> None:
    """Random grids on two queues at once, small and shared ones mixed."""
    with override(workers=workers):
        device = driver.open(0, None)
    box, chance = Box(device), random.Random(workers)
    wanted = [0, 0]
    for k in range(1, 400):
        for q in range(2):
            x, y, z = (chance.randrange(1, 9) for _ in range(3))
            wanted[q] += sum(
                gx * 1000003 + gy * 1009 + gz for gx in range(x) for gy in range(y) for gz in range(z)
            )
            ns = chance.choice((0, 1, 100))
            send(
                device.ring(COMPUTE, q),
                exec_(kernels["weigh"], box.va + 64 + 64 * q, x, y, z, ns=ns),
                set_(box.va + 512 + 64 * q, k),
            )
    for q in range(2):
        finish(device, box.va + 512 + 64 * q, 399)
    assert [box.words[8], box.words[16]] == wanted
    device.close()


def test_empty_grid_runs_nothing(device: CpuDevice, kernels: dict[str, int]) -> None:
    box = Box(device)
    grids = [(0, 1, 1), (5, 0, 1), (5, 5, 0)]
    send(device.ring(COMPUTE, 0), *(exec_(kernels["count"], box.va + 64, *g) for g in grids), set_(box.va, 1))
    finish(device, box.va, 1)
    assert box.words[8] == 0


def test_waiting_queue_blocks_only_itself_and_the_host_can_free_it(device: CpuDevice) -> None:
    box = Box(device)
    gate, first, second = box.va + 64, box.va + 128, box.va + 192
    send(device.ring(COMPUTE, 0), wait_(gate, 7), set_(first, 1))
    send(device.ring(COMPUTE, 1), set_(second, 1))
    finish(device, second, 1)
    blocked = device.ring(COMPUTE, 0)
    until(lambda: f"{gate:#x} to reach 7, it is 0" in blocked.stuck(), blocked.stuck)
    assert box.words[16] == 0
    box.words[8] = 7
    device.signal_written(gate)
    finish(device, first, 1)
    rest(blocked)


def test_foreign_signal_without_a_wake_up_is_seen(device: CpuDevice) -> None:
    """A device of another kind stores without a system call."""
    box = Box(device)
    send(device.ring(COMPUTE, 0), wait_(box.va, 5, foreign=1), set_(box.va + 64, 1))
    sleepers = Slot(device.pool.waiters + (box.va >> 6 & WAITERS - 1) * 8)
    until(lambda: sleepers.value)
    box.words[0] = 5
    finish(device, box.va + 64, 1)


def test_indirect_runs_prebuilt_packets_in_place(device: CpuDevice, kernels: dict[str, int]) -> None:
    box, body = Box(device), Box(device)
    packets = [exec_(kernels["count"], box.va + 64) for _ in range(50)]
    body.words[: 8 * 50] = array("Q", [word for packet in packets for word in packet])
    for k in range(1, 4):
        send(
            device.ring(COMPUTE, 0),
            layouts.Indirect.pack(packets=body.va, count=50),
            set_(box.va, k),
        )
        finish(device, box.va, k)
        assert box.words[8] == 50 * k


def test_patch_writes_values_to_the_places_of_its_plan(device: CpuDevice) -> None:
    box = Box(device)
    values, plan, targets = box.va + 512, box.va + 1024, box.va + 2048
    box.words[64:68] = array("Q", [11, 22, 33, 44])
    pairs = [(targets, 3), (targets + 8, 0), (targets + 100, 2)]
    box.words[128:134] = array("Q", [word for pair in pairs for word in pair])
    send(
        device.ring(COMPUTE, 0),
        layouts.Patch.pack(values=values, plan=plan, count=3),
        set_(box.va, 1),
    )
    finish(device, box.va, 1)
    assert box.words[256:258].tolist() == [44, 11]
    assert bytes(box.bytes[2148:2156]) == (33).to_bytes(8, "little")


BAD: dict[str, tuple[Words, str]] = {
    "unknown op": ((77, 1, 2, 3, 4, 5, 6, 7), "unknown op 0x4d"),
    "stray bits beside an op": ((1 << 32 | Op.NOP, 0, 0, 0, 0, 0, 0, 0), "unknown op 0x100000000"),
    "width": (layouts.Write.pack(dst=0, value=0, width=3), "neither 4 nor 8"),
}


@pytest.mark.parametrize("name", BAD)
def test_packet_that_makes_no_sense_stops_the_device_and_is_reported(device: CpuDevice, name: str) -> None:
    packet, text = BAD[name]
    box = Box(device)
    send(device.ring(COMPUTE, 1), set_(box.va, 1), packet, set_(box.va, 2))
    finish(device, box.va, 1)
    until(device.fault)
    report = device.fault()
    assert report is not None
    assert report.kind is FaultKind.BAD_PACKET
    assert text in report.message
    assert report.queue == "compute queue 1"
    send(device.ring(COMPUTE, 0), set_(box.va + 64, 1))
    time.sleep(0.02)  # what must not happen has so long to happen
    assert (box.words[0], box.words[8]) == (1, 0), "nothing may run after a fault"
    assert device.fault() is report


def test_nested_indirect_is_refused(device: CpuDevice) -> None:
    body = Box(device)
    body.words[:8] = array("Q", layouts.Indirect.pack(packets=body.va, count=1))
    send(device.ring(COMPUTE, 0), layouts.Indirect.pack(packets=body.va, count=1))
    until(device.fault)
    report = device.fault()
    assert report is not None
    assert "INDIRECT" in report.message


def test_full_ring_sleeps_until_there_is_room(device: CpuDevice) -> None:
    box, ring = Box(device), device.ring(COMPUTE, 0)
    gate, done = box.va + 64, box.va + 128
    opened: list[int] = []

    def open_gate() -> None:
        until(lambda: ring.queue.wanted)
        time.sleep(0.3)
        opened.append(time.monotonic_ns())
        box.words[8] = 1
        device.signal_written(gate)

    send(ring, wait_(gate, 1))
    for k in range(1, RING_PACKETS):
        send(ring, set_(done, k))
    opener = threading.Thread(target=open_gate)
    opener.start()
    waited, cpu = time.monotonic(), time.thread_time()
    send(ring, set_(done, RING_PACKETS))
    waited, cpu = time.monotonic() - waited, time.thread_time() - cpu
    assert opened, "the ring held more than it can"
    for k in range(RING_PACKETS + 1, 3 * RING_PACKETS + 1):
        send(ring, set_(done, k))
    finish(device, done, 3 * RING_PACKETS)
    opener.join()
    assert cpu < 0.9 * waited, "a full ring must sleep"


def test_a_ring_polled_between_two_packets_reads_no_signal(device: CpuDevice) -> None:
    """The operands of a packet are recorded before its op, so for a moment they accompany the previous op."""
    ring, box = device.ring(COMPUTE, 0), Box(device)
    queue, nowhere = ring.queue, 8
    for begun, operand, told in (
        (0, 0, ""),
        (0, nowhere, ""),
        (box.va, nowhere, ""),
        (box.va, box.va, "to reach 3"),
    ):
        queue.stuck, queue.first, queue.second, queue.op = begun, operand, 3, Op.WAIT
        assert (told in ring.stuck()) if told else not ring.stuck()
    queue.stuck = queue.op = 0


@pytest.mark.parametrize(
    ("behind", "told"),
    [(0, "it is 0"), (1, "it is 0, 1 packet after it"), (2, "it is 0, 2 packets after it")],
)
def test_a_stuck_ring_counts_the_packets_behind(device: CpuDevice, behind: int, told: str) -> None:
    ring, box = device.ring(COMPUTE, 0), Box(device)
    send(ring, wait_(box.va, 7), *[set_(box.va + 64, k + 1) for k in range(behind)])
    until(ring.stuck)
    assert ring.stuck().endswith(told)
    box.words[0] = 7
    device.signal_written(box.va)
    rest(ring)


def test_stream_larger_than_the_ring_is_refused(device: CpuDevice) -> None:
    with pytest.raises(UsageError, match="do not fit the ring"):
        send(device.ring(COMPUTE, 0), *[layouts.Nop.pack()] * (RING_PACKETS + 1))


def test_full_ring_of_a_faulted_device_raises_its_fault(device: CpuDevice) -> None:
    ring = device.ring(COMPUTE, 0)
    send(ring, (77, *[0] * 7))
    send(ring, *[layouts.Nop.pack()] * (RING_PACKETS - 1))
    with pytest.raises(DeviceFault, match="unknown op"):
        send(ring, layouts.Nop.pack())


def test_word_that_does_not_fit_is_refused(device: CpuDevice) -> None:
    with pytest.raises(UsageError, match="64 bits"):
        send(device.ring(COMPUTE, 0), (Op.NOP, 1 << 64, 0, 0, 0, 0, 0, 0))
