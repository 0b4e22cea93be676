"""What the validation layer knows of devices and buffers, and forgets when they are gone."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from hcq.memory import Buffer
from hcq.registry import wrap
from hcq.validate.hazards import _DEAD_KEPT
from hcq.validate.validator import _SHARED
from tests.hcq.fake import FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.device import Device


def work(device: Device) -> None:
    """Make two queues wait for each other, and the host for both."""
    a, b = device.alloc(64), device.alloc(64)
    point = device.compute.submit(device.compute.record().fill(a, 1))
    device.copies[0].submit(device.copies[0].record().copy(b, a), after=[point]).wait(timeout_s=HANG_S)


def test_a_closed_device_is_released():
    fake = FakeDevice()
    device = wrap(fake, validate=True)
    gone = weakref.ref(device)
    work(device)
    device.close()
    del device
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_queue_state_does_not_grow_with_closed_queues():
    for number in range(150):
        with wrap(FakeDevice(), validate=True) as device:
            work(device)
        del device
        if number % 30 == 29:
            gc.collect()
    with wrap(FakeDevice(), validate=True) as device:
        work(device)
        clocks = _SHARED.ledger.clocks
        assert len(clocks[device.copies[0]]) <= len(clocks) + _DEAD_KEPT + len(device.queues)


def test_the_nearest_buffer_is_named_even_if_it_was_freed(device: Device):
    kept = device.alloc(64, label="kept")
    assert device.watch.nearest(kept.va + 3) == f"inside {kept.va:#x} to {kept.va + 64:#x}, 64 bytes, 'kept'"
    assert device.watch.nearest(kept.va + 70).startswith("7 bytes after the end of ")
    va = device.alloc(4096, label="gone").va
    assert "'gone', dropped at " in device.watch.nearest(va)
    assert __file__ in device.watch.nearest(va)
    kept.close()
    assert f"'kept', closed at {__file__}" in device.watch.nearest(kept_va(kept, device))


def kept_va(buffer: Buffer, device: Device) -> int:
    return next(va for ref, (va, _, label) in device.watch._live.items() if ref() is buffer)


def test_buffers_that_shared_an_address_are_dropped_separately(device: Device):
    """A dropped buffer's address is reused and dropped again before its entry is removed."""
    first = device.alloc(64, label="first")
    second, third = (Buffer(device, first._block, [], 64, first.spec, label) for label in ("second", "third"))
    for buffer in (second, third):
        device.watch.allocated(buffer)
    forget = {ref(): ref for ref in device.watch._live}
    for gone in (second, first):
        forget[gone].__callback__(forget[gone])
    assert device.watch.nearest(third.va).endswith("'third'")
    assert [ref() for ref in device.watch._live if ref() in {first, second, third}] == [third]


def test_the_new_buffer_at_an_address_is_named_before_the_closed_one(device: Device):
    closed = device.alloc(64, label="closed")
    va = closed.va
    closed.close()
    new = device.alloc(64, label="new")
    assert new.va == va
    assert device.watch.nearest(va).endswith("'new'")
