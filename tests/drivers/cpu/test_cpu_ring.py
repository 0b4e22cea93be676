"""Rings of the cpu device: wrapping, full rings, and streams that do not fit."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from drivers.cpu import layouts
from drivers.cpu.layouts import Op
from drivers.cpu.ring import RING_PACKETS
from hcq.errors import DeviceFault, UsageError
from tests.drivers.cpu.rig import COMPUTE, Box, finish, rest, send, set_, until, wait_

if TYPE_CHECKING:
    from drivers.cpu.device import CpuDevice


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
