"""Signals, points, timelines and the pool of their slots."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from hcq.errors import SignalTimeout, UsageError
from hcq.hostpool import HostPool
from hcq.registry import wrap
from hcq.signal import SLOT_VALUES, Point, Signal, Timeline
from tests.hcq.fake import FakeDevice, FakeRing
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.driver import QueueKind


def test_a_point_is_done_when_the_value_is_reached(device: Device):
    signal = device.signal(host_set=True)
    point = signal.at(3)
    for value, done in ((2, False), (3, True), (4, True)):
        signal.value = value
        assert point.done() is done


def test_a_wait_for_a_reached_point_returns_at_once(device: Device):
    device.signal(5).at(5).wait(timeout_s=0)


def test_a_wait_ends_when_the_host_sets_the_signal(device: Device):
    signal = device.signal(host_set=True)

    def set_it() -> None:
        signal.value = 1

    timer = threading.Timer(0.02, set_it)
    timer.start()
    signal.wait(1, timeout_s=HANG_S)
    timer.join()


def test_a_timeout_carries_the_value_seen(device: Device):
    signal = device.signal(2, host_set=True, label="ready")
    with pytest.raises(
        SignalTimeout, match=r"ready stuck at 2 of 7 after \d+\.\d s; all queues of fake:0 are idle"
    ):
        signal.wait(7, timeout_s=0.01)


@dataclass
class FetchedRing(FakeRing):
    """A ring whose words are all fetched, so that it has nothing to tell; asked, it may do its work."""

    completes: bool = False

    def stuck(self) -> str:
        if self.completes:
            self.device.run()
        return ""


class FetchingDevice(FakeDevice):
    completes = False

    def ring(self, kind: QueueKind, index: int) -> FakeRing:
        self.rings.append(FetchedRing(self, kind, index, completes=self.completes))
        return self.rings[-1]


def test_a_queue_with_work_in_flight_is_not_called_idle():
    driver = FetchingDevice()
    driver.hold = True
    with wrap(driver) as device:
        point = device.compute.submit(device.compute.record())
        fetched = r"at 0 of 1: its last work was fetched and is not complete\nhint: a kernel does not end"
        with pytest.raises(SignalTimeout, match=fetched):
            point.wait(timeout_s=0.01)
        driver.hold = False


def test_a_wait_whose_value_comes_while_its_error_is_made_ends():
    driver = FetchingDevice()
    driver.hold = driver.completes = True
    with wrap(driver) as device:
        device.compute.submit(device.compute.record()).wait(timeout_s=0.01)
        driver.hold = False


def test_the_host_sets_only_signals_made_for_it(device: Device):
    with pytest.raises(UsageError, match="made without host_set=True"):
        device.signal().value = 1


def test_new_slots_are_64_bytes_apart_and_zero():
    pool = HostPool(64)
    slots = [pool.take() for _ in range(3000)]
    vas = sorted(slot[2] for slot in slots)
    assert all(va % 64 == 0 for va in vas)
    assert len(set(vas)) == 3000
    slots[0][0][slots[0][1] + 3] = 9
    slots[0][3].append(slots[0])
    again = pool.take()
    assert again[2] == slots[0][2]
    assert again[0][again[1] + 3] == 0


@pytest.mark.sampled(2)
def test_a_slot_is_reused_only_after_its_signal_is_freed(device: Device):
    signal = device.signal()
    va, point = signal.va, signal.at(1)
    del signal
    gc.collect()
    assert va not in {other.va for other in [device.signal() for _ in range(2000)]}
    del point
    gc.collect()
    taken = [device.signal() for _ in range(3000)]
    assert va in {other.va for other in taken}


def test_the_pool_is_mapped_to_devices_opened_before_and_after_it_grows():
    one = FakeDevice()
    with wrap(one) as first:
        signals = [first.signal() for _ in range(3000)]
        two = FakeDevice(index=1)
        with wrap(two):
            assert one.hosts == two.hosts
            assert all(any(va <= s.va < va + size for va, size in two.hosts.items()) for s in signals)
        assert two.hosts == {}


def test_a_pool_that_one_device_cannot_map_is_mapped_to_none():
    class Unwilling(FakeDevice):
        def map_host(self, _va: int, _size: int) -> None:
            raise UsageError("no")

    pool, willing = HostPool(64), FakeDevice()
    pool.attach(willing)
    pool._attached.append(Unwilling())
    with pytest.raises(UsageError):
        pool.take()
    assert willing.hosts == {}


def test_a_timeline_issues_each_value_once(device: Device):
    timeline = Timeline(device)
    assert timeline.last.done()
    assert [timeline.next().value for _ in range(3)] == [1, 2, 3]
    assert timeline.value == 3
    assert timeline.last.value == 0  # none of them was sent


def test_a_timeline_changes_slots_before_32_bits_wrap(device: Device):
    timeline = Timeline(device, start=SLOT_VALUES - 2)
    points = [timeline.next() for _ in range(4)]
    assert [point.value for point in points] == [
        SLOT_VALUES - 1,
        SLOT_VALUES,
        SLOT_VALUES + 1,
        SLOT_VALUES + 2,
    ]
    assert points[0].signal is points[1].signal
    assert points[1].signal is not points[2].signal
    assert [point.value - point.signal.base for point in points] == [SLOT_VALUES - 1, SLOT_VALUES, 1, 2]
    assert not any(point.done() for point in points)


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_a_timeline_may_start_anywhere(device: Device, epochs: int):
    timeline = Timeline(device, start=epochs * SLOT_VALUES)
    point = timeline.next()
    assert point.value == epochs * SLOT_VALUES + 1
    assert point.value - point.signal.base == 1


def test_queues_run_across_the_change_of_slots(device: Device):
    queue, copies = device.compute, device.copies[0]
    queue.timeline = Timeline(device, label=queue.label, start=SLOT_VALUES - 2)
    a = device.alloc(64)
    point = None
    for i in range(5):
        point = queue.submit(queue.record().fill(a, i), after=[point] if point else ())
        point = copies.submit(copies.record().fill(a.view(32), i), after=[point])
    point.wait()
    assert a.host()[0] == 4
    assert queue.timeline.last.value == SLOT_VALUES + 3


def test_a_withdrawn_point_is_issued_again(device: Device):
    timeline = Timeline(device, start=SLOT_VALUES)
    point = timeline.next()
    timeline.undo(point)
    assert timeline.value == timeline.last.value
    assert timeline.next() == point


def test_a_value_neither_sent_nor_withdrawn_is_not_reissued(device: Device):
    timeline = Timeline(device)
    skipped = timeline.next()
    timeline.undo(timeline.next())
    assert timeline.next().value == skipped.value + 1


def test_points_compare_by_signal_and_value(device: Device):
    signal = device.signal()
    assert signal.at(1) == Point(signal, 1)
    assert len({signal.at(1), signal.at(1), signal.at(2), Signal(device).at(1)}) == 3


def test_stamps_are_32_byte_records_with_the_time_at_offset_8(device: Device):
    stamp = device.stamp()
    assert stamp.va % 32 == 0
    assert stamp.ticks_va == stamp.va + 8
    assert stamp.ticks == 0
    device.compute.submit(device.compute.record().timestamp(stamp)).wait()
    assert stamp.ticks > 0
