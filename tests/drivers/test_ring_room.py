"""Full rings and their sizes: waits for space, deadlocks, the setting HCQ_RING_BYTES."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from hcq.config import override, read
from hcq.driver import QueueKind
from hcq.hardware import BufferSpec, Place
from hcq.registry import wrap
from tests.drivers.amd.opened import emulated, opened, paused
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hcq.queue import Queue


HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
RINGS = ("gfx1100 compute", "gfx942 compute", "gfx1201 copy", "nv copy")
LONG_S = 1000


@contextmanager
def stopped(name: str) -> Iterator[tuple[Queue, Callable[[], None]]]:
    """Return a validated queue with a small ring, whose GPU reads nothing until the function is called."""
    target, kind = name.split()
    go: Callable[[], None]
    kernel: Any
    with override(ring_bytes=1 << 14):
        if target == "nv":
            kernel = RecordedKernel()
            device = wrap(driver_of(kernel).open(0, None), validate=True)
        else:
            kernel = emulated(target)
            device = wrap(opened(kernel), validate=True, emulated=True)
        queue = device.compute if QueueKind(kind) is QueueKind.COMPUTE else device.copies[0]
    if target == "nv":
        kernel.settle()
        kernel.doorbells.stalled, go = True, kernel.doorbells.resume
    else:
        go = paused(kernel, device.driver.ring(queue.kind, 0).queue.number)  # type: ignore[attr-defined]

    with device:
        yield queue, go


def fill(queue: Queue, count: int) -> None:
    """Submit `count` times some stores."""
    out = queue.device.alloc(256, HOST)
    commands = queue.record()
    for i in range(8):
        commands.write(out.view(8 * i, 8), i)
    for _ in range(count):
        queue.submit(commands)


@pytest.mark.parametrize("name", RINGS)
def test_space_that_the_queue_makes_before_its_wait_is_no_deadlock(name: str):
    with stopped(name) as (queue, go):
        device = queue.device
        gate = device.signal(host_set=True, label="gate")
        asked: list[int] = []
        real = device.poll_room

        def poll_room(full: Queue, until: int, *, timed: bool) -> None:
            real(full, until, timed=timed)
            asked.append(until)
            go()

        device.poll_room = poll_room  # type: ignore[method-assign]  # the device is the test's own
        fill(queue, 10)
        queue.submit(queue.record(label="gated").wait(gate, 1))
        before = queue.ring.taken
        while not asked:
            fill(queue, 1)
        assert asked[0] <= before, "what was submitted before the wait makes room"
        gate.value = 1
        go()
        device.sync(timeout_s=LONG_S)


@pytest.mark.parametrize("name", [*RINGS, "cpu"])
def test_space_behind_the_wait_of_a_blocked_queue_is_a_deadlock(name: str):
    with stopped(name) if name != "cpu" else processor() as (queue, go):
        device = queue.device
        fill(queue, 2)
        gate = device.signal(host_set=True, label="gate")
        queue.submit(queue.record(label="gated").wait(gate, 1))
        most = queue.ring.taken - queue.ring.unread(queue.ending_words)
        fill(queue, 2)
        device.poll_room(queue, most, timed=False)
        with pytest.raises(hcq.UsageError, match=r"none can come(?s:.*)gated waits for gate >= 1"):
            device.poll_room(queue, most + 1, timed=False)
        gate.value = 1
        go()
        device.sync(timeout_s=LONG_S)


@contextmanager
def processor() -> Iterator[tuple[Queue, Callable[[], None]]]:
    """Return a validated queue of the cpu device, which reads by itself."""
    with hcq.open("cpu", validate=True) as device:
        yield device.compute, lambda: None


SMALL = 1 << 14


@pytest.mark.parametrize("name", ["nv-emu", "amd-emu", "amd-emu:gfx942"])
def test_rings_are_as_large_as_the_setting_says(name: str) -> None:
    with override(ring_bytes=SMALL), hcq.open(name) as small:
        seen = [(queue.ring.words, queue.ring.submissions) for queue in (small.compute, small.copies[0])]
    with hcq.open(name) as device:
        usual = [(queue.ring.words, queue.ring.submissions) for queue in (device.compute, device.copies[0])]
    for (words, submissions), (most, more) in zip(seen, usual, strict=True):
        assert words <= SMALL // 4 < most
        assert submissions < more


def test_ring_bytes_are_a_power_of_two_in_bounds() -> None:
    assert read({}).ring_bytes == read({"HCQ_RING_BYTES": "0"}).ring_bytes == 0
    assert read({"HCQ_RING_BYTES": "0x4000"}).ring_bytes == SMALL
    for refused in ("8192", "16385", "0x8000000"):
        with pytest.raises(hcq.UsageError, match="HCQ_RING_BYTES"):
            read({"HCQ_RING_BYTES": refused})
