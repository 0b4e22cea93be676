"""After a fault: what is lost, what is kept, and that the device goes on."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from hcq.device import Device
from hcq.errors import DeviceFault, DriverError, FaultKind, FaultReport, UnsupportedError, UsageError
from hcq.graph import Graph
from hcq.registry import wrap
from hcq.validate.validator import Validator
from tests.hcq.fake import ADD, ONE, WILD, FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.memory import Buffer
    from hcq.signal import Point, Signal


@pytest.fixture(params=["validated", "plain"])
def device(request: pytest.FixtureRequest, fake: FakeDevice) -> Iterator[Device]:
    with wrap(fake, validate=request.param == "validated") as made:
        yield made
        fake.hold = False


@pytest.fixture
def other(device: Device) -> Iterator[Device]:
    with wrap(FakeDevice(index=1), validate=device.watch is not None) as made:
        yield made


def let_go(fake: FakeDevice, device: Device) -> tuple[Buffer, ...]:
    """Recover a device on which a kernel hangs; return the buffers that lost work would have written."""
    fake.hold = False
    fake.report = FaultReport(device="fake:0", kind=FaultKind.HANG, message="a kernel hangs")
    return device.recover()


def full(device: Device, byte: int, size: int = 64) -> Buffer:
    buffer = device.alloc(size)
    buffer.host()[:] = bytes([byte]) * size
    return buffer


def fault(device: Device) -> FaultReport:
    """Run a kernel that faults, and wait for the fault."""
    program, near = device.load(WILD), device.alloc(64, label="near")
    commands = device.compute.record().exec(program, program.args(near), groups=ONE, threads=ONE)
    point = device.compute.submit(commands)
    with pytest.raises(DeviceFault) as caught:
        point.wait()
    return caught.value.report


def add(device: Device, out: Buffer, x: Buffer, y: Buffer) -> Point:
    program = device.load(ADD)
    commands = device.compute.record().exec(program, program.args(out, x, y), groups=(64, 1, 1), threads=ONE)
    return device.compute.submit(commands)


def test_a_device_without_a_fault_refuses_to_recover(device: Device):
    with pytest.raises(UsageError, match="has no fault"):
        device.recover()
    device.close()
    with pytest.raises(UsageError, match="is closed"):
        device.recover()


def test_memory_programs_and_queues_work_after_recovery(device: Device):
    x, y, out = full(device, 3), full(device, 4), full(device, 0)
    program, where = device.load(ADD), x.va
    add(device, out, x, y).wait()
    fault(device)
    device.recover()
    assert (x.va, bytes(x.host())) == (where, bytes([3]) * 64)
    assert bytes(out.host()) == bytes([7]) * 64
    commands = device.compute.record().exec(
        program, program.args(out, out, y), groups=(64, 1, 1), threads=ONE
    )
    point = device.compute.submit(commands)
    copied = device.alloc(64)
    device.copies[0].submit(device.copies[0].record().copy(copied, out, 64), after=[point]).wait(
        timeout_s=HANG_S
    )
    assert bytes(copied.host()) == bytes([11]) * 64
    device.sync()


def test_a_completed_kernel_is_not_named_in_a_fault(device: Device, fake: FakeDevice):
    add(device, full(device, 0), full(device, 1), full(device, 2)).wait()
    fake.report = FaultReport(device="fake:0", kind=FaultKind.HANG, message="hangs")
    with pytest.raises(DeviceFault) as caught:
        device.poll_faults()
    assert (caught.value.report.kernel, caught.value.report.arguments) == (None, ())


def test_a_device_recovers_from_repeated_faults(device: Device):
    x = full(device, 1)
    for _ in range(3):
        fault(device)
        device.recover()
        add(device, x, full(device, 2), full(device, 3)).wait(timeout_s=HANG_S)
        assert bytes(x.host()) == bytes([5]) * 64


def test_lost_points_raise_their_fault_and_are_never_reached(device: Device, fake: FakeDevice):
    done = device.copies[0].submit(device.copies[0].record().copy(full(device, 1), full(device, 2), 64))
    done.wait()
    fake.hold = True
    behind = device.copies[0].submit(device.copies[0].record().copy(full(device, 1), full(device, 2), 64))
    let_go(fake, device)
    report = None
    for _ in range(5):
        device.copies[0].submit(device.copies[0].record()).wait(timeout_s=HANG_S)
        with pytest.raises(DeviceFault, match="a kernel hangs") as caught:
            behind.wait(timeout_s=HANG_S)
        report = report or caught.value.report
        assert caught.value.report is report
    assert not behind.done()
    assert done.done()
    for queue in device.queues:
        with pytest.raises(DeviceFault, match="a kernel hangs"):
            queue.submit(queue.record(), after=[behind])
        queue.submit(queue.record(), after=[done]).wait(timeout_s=HANG_S)


def test_timeline_values_grow_after_recovery(device: Device):
    device.compute.submit(device.compute.record())
    before = device.compute.timeline.last
    device.sync()
    fault(device)
    device.recover()
    after = device.compute.submit(device.compute.record())
    assert after.value > before.value
    after.wait()


@pytest.mark.sampled(5)
def test_memory_of_lost_work_is_released(device: Device, fake: FakeDevice):
    fake.hold = True
    kept = device.alloc(1 << 20)
    closed = full(device, 1, 1 << 12)
    va, gone = closed.va, weakref.ref(kept)
    point = device.copies[0].submit(device.copies[0].record().copy(kept, closed, 64))
    closed.close(after=point)
    program = device.load(ADD)
    program.close()
    del kept
    gc.collect()
    assert gone() is not None
    assert device.retired.pending
    let_go(fake, device)
    gc.collect()
    assert gone() is None
    assert not device.retired.pending
    assert fake.unloaded == ["add"]
    assert device.alloc(1 << 12).va == va, "its block is taken again"
    assert all(not queue.inflight() for queue in device.queues)


def test_recover_returns_the_buffers_that_lost_work_would_have_written(device: Device, fake: FakeDevice):
    graph, program = Graph(), device.load(ADD)
    x, out = graph.param("x", size=64), full(device, 0)
    commands = device.computes[1].record()
    commands.exec(program, program.args(out.view(0), x, x), groups=(64, 1, 1), threads=ONE).fill(x, 0, 4)
    graph.add(device.computes[1], commands)
    executable = graph.compile()
    given, source, target = full(device, 1), full(device, 2), full(device, 3)
    fake.hold = True
    executable.replay([given])
    queue = device.copies[0]
    queue.submit(queue.record().copy(target, source, 64))
    assert set(let_go(fake, device)) == {out, given, target}


@pytest.mark.parametrize("copies", [1, 2])
def test_a_graph_replays_after_the_fault(device: Device, fake: FakeDevice, copies: int):
    graph, program = Graph(label="sum"), device.load(ADD)
    x = graph.param("x", size=64)
    one, middle, out = full(device, 1), full(device, 0), full(device, 0)
    first = device.compute.record().exec(
        program, program.args(middle, x, one), groups=(64, 1, 1), threads=ONE
    )
    node = graph.add(device.compute, first)
    graph.add(device.copies[0], device.copies[0].record().copy(out, middle, 64), after=[node])
    executable = graph.compile(copies=copies, limit=2)
    executable.replay([full(device, 5)]).wait()
    fake.hold = True
    lost = [executable.replay([full(device, 6)]) for _ in range(2)]
    let_go(fake, device)
    for byte in (7, 8, 8, 9):
        executable.replay([full(device, byte)]).wait(timeout_s=HANG_S)
        assert bytes(out.host()) == bytes([byte + 1]) * 64
    for point in lost:
        with pytest.raises(DeviceFault, match="hangs"):
            point.wait(timeout_s=HANG_S)


def test_another_device_that_waits_for_lost_work_gets_the_fault_and_recovers_too(
    device: Device, fake: FakeDevice, other: Device
):
    fake.hold = True
    lost = device.compute.submit(device.compute.record())
    behind = other.compute.submit(other.compute.record(), after=[lost])
    last = other.copies[0].submit(other.copies[0].record(), after=[behind])
    beside = other.computes[1].submit(other.computes[1].record())
    let_go(fake, device)
    for point in (behind, last):
        with pytest.raises(DeviceFault, match="a kernel hangs"):
            point.wait(timeout_s=HANG_S)
    beside.wait(timeout_s=HANG_S)
    other.recover()
    for point in (behind, last):
        with pytest.raises(DeviceFault, match="a kernel hangs"):
            point.wait(timeout_s=HANG_S)
    again = device.compute.submit(device.compute.record())
    joined = other.compute.submit(other.compute.record(), after=[again])
    fake.run()
    joined.wait(timeout_s=HANG_S)
    with pytest.raises(UsageError, match="has no fault"):
        other.recover()


def test_a_signal_of_lost_work_is_usable_after_resubmission(device: Device, fake: FakeDevice):
    signal = device.signal(label="step")
    commands = device.compute.record().signal(signal, 3)
    fake.hold = True
    device.compute.submit(commands)
    let_go(fake, device)
    with pytest.raises(DeviceFault, match="a kernel hangs"):
        signal.wait(3, timeout_s=HANG_S)
    fake.hold = True
    device.compute.submit(commands)
    waiting = device.copies[0].submit(device.copies[0].record().wait(signal.at(3)))
    fake.hold = False
    signal.wait(3, timeout_s=HANG_S)
    waiting.wait(timeout_s=HANG_S)


def test_memory_of_lost_work_may_be_used_from_any_queue(device: Device, fake: FakeDevice):
    target, source = full(device, 0), full(device, 9)
    fake.hold = True
    device.copies[0].submit(device.copies[0].record().copy(target, source, 64))
    let_go(fake, device)
    add(device, target, source, source).wait(timeout_s=HANG_S)
    assert bytes(target.host()) == bytes([18]) * 64


def test_a_thread_waiting_during_recovery_gets_the_fault(device: Device, fake: FakeDevice):
    fake.hold = True
    point = device.compute.submit(device.compute.record())
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            point.wait(timeout_s=HANG_S)
        except BaseException as error:  # noqa: BLE001 - told below
            seen.append(error)

    waiters = [threading.Thread(target=wait) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    fake.report = FaultReport(device="fake:0", kind=FaultKind.HANG, message="hangs")
    device.recover()
    for waiter in waiters:
        waiter.join()
    assert [type(error) for error in seen] == [DeviceFault] * 4
    fake.hold = False


def test_a_wait_checked_during_recovery_gets_the_fault():
    """The wait has found no fault; then work is lost, and the validation layer drops it."""
    fake = FakeDevice()

    class Slow(Validator):
        def check_wait(self, signal: Signal, value: int) -> None:
            if fake.report is None:
                fake.report = FaultReport(device="fake:0", kind=FaultKind.HANG, message="hangs")
                device.recover()
                fake.report = FaultReport(device="fake:0", kind=FaultKind.HANG, message="the next")
            super().check_wait(signal, value)

    device = Device(fake, watch=Slow(check=True, seed=0))
    fake.hold = True
    point = device.compute.submit(device.compute.record())
    with pytest.raises(DeviceFault, match="hangs"):
        point.wait()
    fake.report, fake.hold = None, False
    device.close()


def test_a_failed_recovery_leaves_the_device_unchanged(device: Device, fake: FakeDevice, other: Device):
    fault(device)
    for error in (UnsupportedError("not here"), DriverError("recover", 5, "EIO")):
        fake.recovery = error
        with pytest.raises(type(error)):
            device.recover()
        for call in (
            device.sync,
            lambda: device.alloc(64),
            lambda: device.compute.submit(device.compute.record()),
        ):
            with pytest.raises(DeviceFault):
                call()
    fake.recovery = None
    device.recover()
    device.sync()


def test_an_old_fault_report_does_not_fault_a_recovered_device(device: Device, fake: FakeDevice):
    fake.report = late = FaultReport(device="fake:0", kind=FaultKind.HANG, message="hangs")
    with pytest.raises(DeviceFault):
        device.poll_faults()
    device.recover()
    device.faulted(late)
    device.compute.submit(device.compute.record()).wait(timeout_s=HANG_S)


def test_spans_of_lost_work_are_dropped(device: Device, fake: FakeDevice):
    commands = device.compute.record()
    with commands.span("lost"):
        commands.barrier()
    fake.hold = True
    device.compute.submit(commands)
    let_go(fake, device)
    assert device.spans() == []
    device.compute.submit(commands).wait(timeout_s=HANG_S)
    assert [span.name for span in device.spans()] == ["lost"]


def test_a_buffer_closed_with_a_reason_raises_it(device: Device, fake: FakeDevice):
    buffer = device.alloc(64)
    part, commands = buffer.view(8), device.compute.record().fill(buffer, 0)
    buffer.close(reason=lambda: UnsupportedError("gone for a reason"))
    for use in (buffer.host, part.host, lambda: buffer.view(0), lambda: device.compute.submit(commands)):
        with pytest.raises(UnsupportedError, match="gone for a reason"):
            use()
