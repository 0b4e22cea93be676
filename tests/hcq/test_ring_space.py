"""Submissions for which a ring has no room: how they wait, and how that ends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from hcq.errors import DeviceFault, FaultKind, FaultReport, SignalTimeout, UsageError
from hcq.faults.messages import waits_of
from hcq.graph import Graph
from hcq.registry import wrap
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.signal import Point
    from tests.hcq.fake import FakeDevice


def stuck(device: Device, fake: FakeDevice) -> Point:
    """Return the point of a submission that waits for a gate; the rings are full."""
    gate = device.signal(host_set=True, label="gate")
    point = device.compute.submit(device.compute.record(label="late"), after=[gate.at(1)])
    fake.full = True
    return point


def opened(device: Device) -> None:
    """Let the blocked submission continue."""
    (gate,) = {wait.signal for wait in waits_of(device.compute)}
    gate.value = 1


def test_a_submission_without_ring_space_times_out_and_names_the_blocking_wait(fake: FakeDevice):
    with wrap(fake) as device:
        point = stuck(device, fake)
        with pytest.raises(SignalTimeout) as caught:
            device.compute.submit(device.compute.record(), timeout_s=0.02)
        error = caught.value
        assert (error.point, error.seen) == (point, 0)
        assert error.waited_s >= 0.02
        assert "compute 0 of fake:0 had no room for a submission" in str(error)
        assert "1 submission is in flight" in str(error)
        assert "compute 0 of fake:0 waits for gate >= 1, now 0; nothing submitted raises it" in str(error)
        fake.full = False
        opened(device)
        assert device.compute.submit(device.compute.record()).value == 2  # nothing was sent
        device.sync(timeout_s=HANG_S)


def test_a_replay_without_ring_space_times_out(fake: FakeDevice):
    with wrap(fake) as device:
        graph, out = Graph(), device.alloc(64)
        graph.add(device.compute, device.compute.record().fill(out, 3))
        executable = graph.compile()
        stuck(device, fake)
        with pytest.raises(SignalTimeout, match="waits for gate >= 1"):
            executable.replay(timeout_s=0.02)
        fake.full = False
        opened(device)
        executable.replay(timeout_s=HANG_S).wait(timeout_s=HANG_S)
        assert out.host()[0] == 3


def test_a_replay_with_all_slots_in_flight_times_out(fake: FakeDevice):
    with wrap(fake) as device:
        graph, out = Graph(), device.alloc(64)
        graph.add(device.compute, device.compute.record().fill(out, 3))
        executable = graph.compile(copies=1, limit=2)
        gate = device.signal(host_set=True, label="gate")
        device.compute.submit(device.compute.record(), after=[gate.at(1)])
        executable.replay()
        executable.replay()
        with pytest.raises(SignalTimeout, match="gate >= 1"):
            executable.replay(timeout_s=0.02)
        gate.value = 1
        executable.replay().wait(timeout_s=HANG_S)


def test_a_submission_that_can_never_get_ring_space_fails_at_once(device: Device, fake: FakeDevice):
    gate = device.signal(host_set=True, label="gate")
    device.compute.submit(device.compute.record(label="late"), after=[gate.at(1)])
    for _ in range(8):
        device.compute.submit(device.compute.record())
    fake.ring_words = 10 * device.compute.ending_words
    fake.full = True
    with pytest.raises(UsageError) as caught:
        device.compute.submit(device.compute.record())
    assert "has no room for a submission, and none can come" in str(caught.value)
    assert "late waits for gate >= 1, now 0; nothing submitted raises it, the host may" in str(caught.value)
    fake.full = False
    gate.value = 1
    device.sync(timeout_s=HANG_S)


def test_closing_ends_a_submission_that_waits_for_ring_space(fake: FakeDevice):
    device = wrap(fake)
    stuck(device, fake)
    told: list[str] = []

    def submit() -> None:
        try:
            device.compute.submit(device.compute.record())
        except UsageError as error:
            told.append(str(error))

    thread = threading.Thread(target=submit)
    thread.start()
    with pytest.warns(ResourceWarning, match="gate"):
        device.close(timeout_s=0.02)
    thread.join(timeout=HANG_S)
    assert told == ["fake:0 is closed"]


def test_a_fault_ends_a_submission_that_waits_for_ring_space(fake: FakeDevice):
    device = wrap(fake)
    stuck(device, fake)
    fake.report = FaultReport(device="fake:0", kind=FaultKind.HANG, message="it hangs")
    with pytest.raises(DeviceFault, match=r"it hangs(?s:.*)compute 0 of fake:0 waits for gate >= 1"):
        device.compute.submit(device.compute.record())
    device.close()


def test_a_submission_without_ring_space_continues_when_space_is_freed(fake: FakeDevice):
    with wrap(fake) as device:
        stuck(device, fake)
        polled = threading.Event()
        real = device.poll_room

        def poll_room(*args: object, timed: bool) -> None:
            real(*args, timed=timed)
            polled.set()

        device.poll_room = poll_room

        def make_room() -> None:
            polled.wait()
            opened(device)
            fake.full = False

        thread = threading.Thread(target=make_room)
        thread.start()
        device.compute.submit(device.compute.record(), timeout_s=HANG_S).wait(timeout_s=HANG_S)
        thread.join()
