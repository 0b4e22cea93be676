"""Guard zones behind the buffers of a validated device: what overruns its buffer is named, once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from hcq.driver import QueueKind
from hcq.errors import UnsupportedError, UsageError
from hcq.registry import wrap
from hcq.validate import validator
from hcq.validate.guards import GUARD_BYTES, Guards
from tests.hcq.fake import ADD, ONE, FakeDevice, FakeRing

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.signal import Point

OVER = 4
"""Bytes that `overrun` writes past the end."""
NAMED = "out.*256 bytes.*past the end: byte 0 .*first of 4(.|\n)*hint: .*add"


def overrun(device: Device, out: Buffer, *, over: int = OVER) -> Point:
    zeros = device.alloc(out.size + over)
    zeros.host()[:] = bytes(zeros.size)
    program = device.load(ADD)
    arguments = program.args(out, zeros, zeros)
    groups = (out.size + over, 1, 1)
    return device.compute.submit(device.compute.record().exec(program, arguments, groups=groups, threads=ONE))


def by_wait(_device: Device, point: Point, _out: Buffer) -> None:
    point.wait()


def by_done(_device: Device, point: Point, _out: Buffer) -> None:
    point.done()


def by_sync(device: Device, _point: Point, _out: Buffer) -> None:
    device.sync()


def by_submit(device: Device, _point: Point, _out: Buffer) -> None:
    device.compute.submit(device.compute.record())


def by_closing_the_buffer(_device: Device, _point: Point, out: Buffer) -> None:
    out.close()


def by_closing_the_device(device: Device, _point: Point, _out: Buffer) -> None:
    device.close()


WAYS = (by_wait, by_done, by_sync, by_submit, by_closing_the_buffer, by_closing_the_device)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_overrun_is_reported_once(
    device: Device, fake: FakeDevice, way: Callable[[Device, Point, Buffer], None]
):
    out = device.alloc(256, label="out")
    point = overrun(device, out)
    fake.run()
    with pytest.raises(UsageError, match=NAMED):
        way(device, point, out)
    assert device.closed == (way is by_closing_the_device)
    assert out.closed == (way is by_closing_the_buffer)
    if not device.closed:
        device.sync()


def test_an_overrun_of_work_in_flight_is_reported_when_it_completes(device: Device, fake: FakeDevice):
    fake.hold = True
    out = device.alloc(256, label="out")
    point = overrun(device, out)
    out.close()
    device.compute.submit(device.compute.record())
    fake.run()
    with pytest.raises(UsageError, match=NAMED):
        point.wait()
    device.sync()


@pytest.mark.sampled(2)
def test_an_overrun_of_a_dropped_buffer_raises_at_the_next_call(device: Device):
    out = device.alloc(256, label="dropped")
    start = out.va - out.chunk.allocation.va
    out.chunk.allocation.host[start + 256 + 3] ^= 1
    del out
    gc.collect()
    with pytest.raises(UsageError, match=r"'dropped'.*byte 3 .*first of 1(.|\n)*no kernel"):
        device.sync()
    device.sync()


def test_an_overrun_through_a_view_is_reported(device: Device):
    out = device.alloc(512, label="whole")
    point = overrun(device, out.view(256))
    with pytest.raises(UsageError, match=r"'whole' of 512 bytes.*byte 0 "):
        point.wait()


def test_a_kernel_inside_its_buffers_reports_nothing(device: Device):
    out = device.alloc(256)
    for _ in range(3):
        overrun(device, out, over=0).wait()
    del out
    device.sync()


def test_a_reused_block_gets_a_new_guard_zone(device: Device):
    first = device.alloc(300)
    va = first.va
    first.close()
    second = device.alloc(200, label="second")
    third = device.alloc(340, label="third")
    assert va in {second.va, third.va}, "the same block, with another end"
    third.host()[:] = second.host()[:1].tobytes() * 340
    overrun(device, second, over=0).wait()
    device.sync()
    with pytest.raises(UsageError, match=r"'second' of 200 bytes.*first of"):
        overrun(device, second).wait()


@pytest.mark.sampled(2)
def test_validation_does_not_reduce_memory_capacity(device: Device, fake: FakeDevice):
    fake.room = sum(size for size, _ in fake.memory.values()) + (4 << 20)
    out = device.alloc(4 << 20)
    assert out.size == 4 << 20
    device.sync()


def test_without_validation_there_are_no_guard_zones(fake: FakeDevice):
    with wrap(fake, seed=1) as device:
        out = device.alloc(256)
        assert out._block.size == 256
        overrun(device, out).wait()
        device.sync()


def test_a_write_beyond_the_guard_zone_is_not_detected(device: Device):
    out = device.alloc(256)
    start = out.va - out.chunk.allocation.va
    out.chunk.allocation.host[start + 256 + GUARD_BYTES] ^= 1
    device.sync()


def test_a_device_that_does_not_open_checks_no_memory_that_was_returned(monkeypatch: pytest.MonkeyPatch):
    made: list[Guards] = []

    class Kept(Guards):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    class Short(FakeDevice):
        def ring(self, kind: QueueKind, index: int) -> FakeRing:
            if kind is QueueKind.COPY:
                assert made[0].zones, "the first queue has buffers"
                raise UnsupportedError("no queue is left")
            return super().ring(kind, index)

    monkeypatch.setattr(validator, "Guards", Kept)
    with pytest.raises(UnsupportedError, match="no queue is left"):
        wrap(Short(), validate=True)
    assert (made[0].closed, made[0].zones) == (True, {})
