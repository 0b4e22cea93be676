"""Faults and timeouts: what waits raise, what they tell, and whom they leave alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from hcq.errors import DeviceFault, FaultKind, FaultReport, SignalTimeout
from hcq.graph import Graph
from hcq.inflight import Kept, awaited
from hcq.registry import wrap
from hcq.signal import SLOT_VALUES, Signal, Timeline
from tests.hcq.fake import ADD, ONE, WILD, FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device
    from hcq.queue import Queue


def overshoot(signal: Signal, by: int = 1 << 32) -> None:
    """Set the signal of a queue above the last submitted value, as a release with a wrong payload does."""
    signal._words[signal._index] = signal.issued - signal.base + by


IMPOSSIBLE = r"the signal of compute 0 of fake:0 holds 4294967297, but the last value submitted is 1\b"


def test_a_timeout_names_the_wait_of_every_queue(fake: FakeDevice):
    with wrap(fake) as device:
        fake.hold = True
        gate = device.signal(label="gate")
        point = device.compute.submit(device.compute.record(), after=[gate.at(1)])
        with pytest.raises(SignalTimeout) as caught:
            point.wait(timeout_s=0.02)
        error = caught.value
        assert str(error) == (
            f"compute 0 of fake:0 stuck at 0 of 1 after {error.waited_s:.1f} s; compute 0 of fake:0 at 0 of "
            f"1: packet 4 with {gate.va:#x}\n"
            f"  compute 0 of fake:0 waits for gate >= 1, now 0; nothing submitted raises it"
        )
        assert (error.point, error.seen) == (point, 0)
        assert error.waited_s >= 0.02
        gate._words[gate._index] = 1
        fake.hold = False


def test_a_fault_is_raised_by_waits_and_all_later_calls(device: Device, fake: FakeDevice):
    program, a = device.load(WILD), device.alloc(64, label="victim")
    point = device.compute.submit(
        device.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE)
    )
    with pytest.raises(DeviceFault) as caught:
        point.wait()
    report = caught.value.report
    assert report.va == a.va + (1 << 40)
    assert "bytes after the end of" in report.nearest
    for call in (
        lambda: device.alloc(64), lambda: device.compute.submit(device.compute.record()), device.sync,
        lambda: device.load(WILD), device.signal, device.clock,
    ):  # fmt: skip
        with pytest.raises(DeviceFault) as again:
            call()
        assert again.value.report is report


def test_a_fault_names_the_kernel_and_its_arguments(device: Device, fake: FakeDevice):
    fake.hold = True
    program, a = device.load(WILD), device.alloc(64, label="victim")
    commands = device.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE)
    point = device.compute.submit(commands)
    fake.run()
    with pytest.raises(DeviceFault) as caught:
        point.wait()
    report = caught.value.report
    assert (report.kernel, report.arguments) == ("wild", (f"p = {a!r}",))
    assert str(caught.value).startswith("fake:0: page fault: no such page\n  address: ")


def test_a_fault_in_a_replay_names_the_kernel_too(device: Device):
    graph, program, a = Graph(), device.load(WILD), device.alloc(64)
    graph.add(device.compute, device.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE))
    with pytest.raises(DeviceFault) as caught:
        graph.compile().replay().wait()
    assert caught.value.report.kernel == "wild"


def test_a_fault_with_several_kernels_in_flight_names_them_all(device: Device, fake: FakeDevice):
    fake.hold = True
    a, b = device.alloc(64), device.alloc(64)
    commands = device.compute.record()
    for image, given in ((ADD, (b, a, a)), (WILD, (a,))):
        program = device.load(image)
        commands.exec(program, program.args(*given), groups=ONE, threads=ONE)
    point = device.compute.submit(commands)
    fake.run()
    with pytest.raises(DeviceFault, match=r"kernel: one of those in flight: (add, wild|wild, add)"):
        point.wait()


def test_a_fault_of_a_device_that_is_waited_for_ends_the_wait():
    one, two = FakeDevice(), FakeDevice(index=1)
    with wrap(one) as first, wrap(two) as second:
        two.hold = one.hold = True
        program, a = second.load(WILD), second.alloc(64)
        bad = second.compute.submit(
            second.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE)
        )
        mine = first.compute.submit(first.compute.record(), after=[bad])
        two.run()
        with pytest.raises(DeviceFault, match="no such page"):
            mine.wait(timeout_s=HANG_S)
        with pytest.warns(
            ResourceWarning, match="fake:0 was closed while work was in flight: .*no such page"
        ):
            first.close()


def test_a_replay_whose_commands_wait_for_a_faulted_device_raises():
    one, two = FakeDevice(), FakeDevice(index=1)
    with wrap(one) as first, wrap(two) as second:
        two.hold = one.hold = True
        program, a, b = second.load(WILD), second.alloc(64), first.alloc(64)
        bad = second.compute.submit(
            second.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE)
        )
        graph = Graph()
        graph.add(first.compute, first.compute.record().fill(b, 1).wait(bad).fill(b, 2))
        mine = graph.compile().replay([])
        two.run()
        with pytest.raises(DeviceFault, match="no such page"):
            mine.wait(timeout_s=HANG_S)
        with pytest.warns(
            ResourceWarning, match="fake:0 was closed while work was in flight: .*no such page"
        ):
            first.close()


def test_a_poll_reads_only_the_waits_of_a_replay(device: Device, fake: FakeDevice):
    graph, a, gate = Graph(), device.alloc(64), device.signal(host_set=True)
    commands = device.compute.record()
    for byte in range(9):
        commands.fill(a, byte).barrier()
    graph.add(device.compute, commands.wait(gate.at(1)))
    executable = graph.compile()
    fake.hold = True
    executable.replay([])
    ((_, kept),) = device.compute.inflight()
    assert isinstance(kept, Kept)
    assert list(awaited([device.compute])) == [device]
    assert [wait.signal for wait in kept.recorded] == [gate]
    gate.value = 1
    assert not list(awaited([device.compute]))


def test_a_fault_of_an_unrelated_device_has_no_effect():
    one, two = FakeDevice(), FakeDevice(index=1)
    second = wrap(two)
    with wrap(one) as first:
        program, a = second.load(WILD), second.alloc(64)
        second.compute.submit(second.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE))
        two.run()
        one.hold = True
        point = first.compute.submit(first.compute.record())
        timer = threading.Timer(0.05, one.run)
        timer.start()
        point.wait(timeout_s=HANG_S)
        timer.join()
    with pytest.raises(DeviceFault, match="fake:1"):
        second.close()


def test_the_driver_hint_does_not_hide_the_nearest_buffer(device: Device, fake: FakeDevice):
    buffer = device.alloc(64, label="close by")
    fake.report = FaultReport(
        device="fake:0",
        kind=FaultKind.PAGE_FAULT,
        message="x",
        va=buffer.va + 70,
        nearest="pages of the driver",
    )
    with pytest.raises(DeviceFault) as caught:
        device.poll_faults()
    near = caught.value.report.nearest
    assert near.startswith("7 bytes after the end of ")
    assert "'close by'" in near
    assert near.endswith("; pages of the driver")


@pytest.mark.parametrize(
    "look",
    [
        lambda device: device.compute.timeline.last.wait(timeout_s=HANG_S),
        lambda device: device.compute.timeline.last.done(),
        lambda device: device.compute.sync(timeout_s=HANG_S),
        lambda device: device.sync(timeout_s=HANG_S),
        lambda device: device.poll_faults(),
        lambda device: device.copies[0].submit(
            device.copies[0].record(), after=[device.compute.timeline.last]
        ),
    ],
    ids=["wait", "done", "queue sync", "device sync", "poll", "after"],
)
def test_a_value_above_the_last_submitted_is_a_fault(
    device: Device, fake: FakeDevice, look: Callable[[Device], object]
):
    fake.hold = True
    a = device.alloc(64)
    point = device.compute.submit(device.compute.record().fill(a, 1))
    overshoot(point.signal)
    with pytest.raises(DeviceFault, match=IMPOSSIBLE) as caught:
        look(device)
    report = caught.value.report
    assert (report.kind, report.queue) == (FaultKind.QUEUE_ERROR, "compute 0 of fake:0")
    with pytest.raises(DeviceFault) as again:
        device.alloc(64)
    assert again.value.report is report


@pytest.mark.parametrize("by", [1, 1 << 31, 1 << 63])
def test_a_value_slightly_above_the_last_submitted_is_a_fault(device: Device, fake: FakeDevice, by: int):
    fake.hold = True
    point = device.compute.submit(device.compute.record())
    overshoot(point.signal, by)
    assert not point.passed()
    with pytest.raises(DeviceFault, match="last value submitted is 1"):
        point.wait()


def test_a_sleeping_wait_detects_an_invalid_value_of_its_queue(device: Device, fake: FakeDevice):
    fake.hold = True
    first = device.copies[0].submit(device.copies[0].record())
    point = device.compute.submit(device.compute.record(), after=[first])
    timer = threading.Timer(0.02, overshoot, [first.signal])
    timer.start()
    with pytest.raises(DeviceFault, match="signal of copy 0 of fake:0 holds"):
        point.wait(timeout_s=HANG_S)
    timer.join()


def test_an_invalid_signal_value_reclaims_no_memory(device: Device, fake: FakeDevice):
    queue = device.compute
    fake.hold = True
    a = device.alloc(1 << 20)
    where = a.va
    point = queue.submit(queue.record().fill(a, 1))
    overshoot(point.signal)
    a.close()
    queue.sweep()
    device.retired.free()
    later = queue.submit(queue.record())
    assert [one for one, _ in queue.inflight()] == [point, later]
    assert where in fake.memory
    assert device.retired.pending
    assert device.alloc(1 << 20).va != where
    with pytest.raises(DeviceFault, match="the last value submitted is 2"):
        device.close()


def test_a_replay_overwrites_no_copy_after_an_invalid_signal_value(device: Device, fake: FakeDevice):
    queue, a = device.compute, device.alloc(64)
    graph = Graph()
    value = graph.param("value")
    graph.add(queue, queue.record().fill(a, value))
    executable = graph.compile(copies=1, limit=1)
    fake.hold = True
    point = executable.submit({value: 1})
    overshoot(point.signal)
    with pytest.raises(DeviceFault, match=IMPOSSIBLE):
        executable.submit({value: 2})


def test_a_wait_for_work_before_an_invalid_value_fails_after_recovery(device: Device, fake: FakeDevice):
    fake.hold = True
    point = device.compute.submit(device.compute.record())
    overshoot(point.signal)
    with pytest.raises(DeviceFault) as caught:
        point.wait()
    device.recover()
    fake.hold = False
    for look in (point.wait, point.done):
        with pytest.raises(DeviceFault) as again:
            look()
        assert again.value.report is caught.value.report
    device.compute.submit(device.compute.record()).wait(timeout_s=HANG_S)
    device.sync(timeout_s=HANG_S)


def test_signals_of_users_may_have_any_value(device: Device):
    signal = device.signal(host_set=True)
    signal.value = (1 << 64) - 1
    signal.wait(7, timeout_s=0)
    assert signal.at(7).done()
    raised = device.signal()
    device.compute.submit(device.compute.record().signal(raised, 1 << 40)).wait(timeout_s=HANG_S)
    raised.wait(3, timeout_s=0)
    device.sync(timeout_s=HANG_S)


def test_slot_changes_and_withdrawn_points_are_no_invalid_values(device: Device):
    queue: Queue = device.compute
    queue.timeline = Timeline(device, label=queue.label, start=SLOT_VALUES - 1)
    a = device.alloc(64)
    points = [queue.submit(queue.record().fill(a, i)) for i in range(3)]
    queue.timeline.undo(queue.timeline.next())
    device.sync(timeout_s=HANG_S)
    assert all(point.done() for point in points)
    queue.submit(queue.record()).wait(timeout_s=HANG_S)
