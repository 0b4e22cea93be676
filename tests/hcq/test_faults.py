"""Faults and timeouts: what waits raise, what they tell, and whom they leave alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from hcq.errors import DeviceFault, FaultKind, FaultReport, SignalTimeout
from hcq.graph import Graph
from hcq.registry import wrap
from tests.hcq.fake import ADD, ONE, WILD, FakeDevice

if TYPE_CHECKING:
    from hcq.device import Device


def test_a_timeout_says_what_every_queue_is_stuck_on(fake: FakeDevice):
    with wrap(fake) as device:
        fake.hold = True
        gate = device.signal(label="gate")
        point = device.compute.submit(device.compute.record(), after=[gate.at(1)])
        with pytest.raises(SignalTimeout) as caught:
            point.wait(timeout_s=0.02)
        error = caught.value
        start, rest = str(error).split("; ")
        assert start == "compute 0 of fake:0 stuck at 0 of 1 after 0.0 s"
        assert rest == f"compute 0 of fake:0 at 0 of 1: packet 4 with {gate.va:#x}"
        assert (error.point, error.seen) == (point, 0)
        assert error.waited_s >= 0.02
        gate._words[gate._index] = 1
        fake.hold = False


def test_a_fault_is_raised_by_waits_and_then_by_everything(device: Device, fake: FakeDevice):
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
            mine.wait(timeout_s=5)
        with pytest.warns(
            ResourceWarning, match="fake:0 was closed while work was in flight: .*no such page"
        ):
            first.close()


def test_a_fault_of_an_unrelated_device_disturbs_nobody():
    one, two = FakeDevice(), FakeDevice(index=1)
    with wrap(one) as first, wrap(two) as second:
        program, a = second.load(WILD), second.alloc(64)
        second.compute.submit(second.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE))
        two.run()
        one.hold = True
        point = first.compute.submit(first.compute.record())
        timer = threading.Timer(0.05, one.run)
        timer.start()
        point.wait(timeout_s=5)
        timer.join()


def test_what_the_driver_says_is_near_does_not_hide_the_buffer(device: Device, fake: FakeDevice):
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
