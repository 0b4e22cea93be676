"""Queues: order, what is kept in flight, refusals, threads."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest

from hcq.commandbuffer import CommandBuffer
from hcq.driver import QueueKind
from hcq.errors import UsageError
from hcq.params import Param
from hcq.registry import wrap
from tests.hcq.fake import ADD, ONE, STORE, FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.device import Device


def test_submit_returns_before_the_work_is_done(device: Device, fake: FakeDevice):
    fake.hold = True
    point = device.compute.submit(device.compute.record())
    assert not point.done()
    fake.run()
    assert point.done()


def test_points_of_a_queue_grow_by_one(device: Device):
    points = [device.compute.submit(device.compute.record()) for _ in range(3)]
    assert [point.value for point in points] == [1, 2, 3]
    assert len({id(point.signal) for point in points}) == 1


def test_a_reached_point_costs_no_wait(fake: FakeDevice):
    with wrap(fake) as device:
        done = device.compute.submit(device.compute.record())
        done.wait()
        fake.encoded.clear()
        device.copies[0].submit(device.copies[0].record(), after=[done])
        assert "Wait" not in fake.encoded


def test_a_point_of_the_queue_itself_costs_no_wait(device: Device, fake: FakeDevice):
    fake.hold = True
    point = device.compute.submit(device.compute.record())
    fake.encoded.clear()
    device.compute.submit(device.compute.record(), after=[point])
    assert "Wait" not in fake.encoded


def test_the_end_of_a_submission_is_encoded_once(device: Device, fake: FakeDevice):
    device.compute.submit(device.compute.record())
    fake.encoded.clear()
    point = device.compute.submit(device.compute.record().barrier())
    assert fake.encoded == ["Barrier"]
    point.wait()


def test_a_submission_ends_by_the_slot_that_its_timeline_took_last(device: Device):
    compute = device.compute
    compute.submit(compute.record()).wait()
    with compute.lock:
        compute.timeline.renew(lambda: UsageError("lost"))
    point = compute.submit(compute.record())
    assert point.signal is compute.timeline.signal
    point.wait()


def test_values_of_params_are_given_at_submit(device: Device):
    number, scale, target = Param("n", 32), Param("x"), Param("out")
    program, out = device.load(STORE), device.alloc(64)
    args = program.args(target + 16, number, scale, 9)
    commands = device.compute.record().exec(program, args, groups=(Param("g", 32), 1, 1), threads=ONE)
    groups = commands.commands[0].groups[0]
    device.compute.submit(commands, values={number: 3, scale: 0.5, target: out, groups: 1}).wait()
    assert bytes(out.host()[16:32]) == b"\x03\0\0\0\0\0\0?\x09\0\0\0\0\0\0\0"


@pytest.mark.usefixtures("fast")
def test_a_missing_value_is_refused_by_name(fake: FakeDevice):
    with wrap(fake) as device:
        commands = device.compute.record().copy(Param("to"), device.alloc(64), 8)
        with pytest.raises(UsageError, match="no value was given for the parameter to; given: nothing"):
            device.compute.submit(commands)


def test_a_number_too_wide_for_its_place_is_refused(device: Device):
    program, out, number = device.load(STORE), device.alloc(64), Param("count", 32)
    commands = device.compute.record().exec(
        program, program.args(out, 1, 1.0, number), groups=ONE, threads=ONE
    )
    with pytest.raises(UsageError, match=r"count"):
        device.compute.submit(commands, values={number: 1 << 32})


@pytest.mark.parametrize(
    ("value", "why"), [(-1, "wanted 0 to 4294967295, seen -1"), (1.5, "used as an integer")]
)
def test_a_value_out_of_range_is_refused(fake: FakeDevice, value: float, why: str):
    with wrap(fake) as device:
        size, a, b = Param("size", 32), device.alloc(64), device.alloc(64)
        commands = device.compute.record().copy(a, b, size)
        with pytest.raises(UsageError, match=why):
            device.compute.submit(commands, values={size: value})


def test_a_refused_submission_leaves_no_trace(device: Device, fake: FakeDevice):
    program, out = device.load(ADD), device.alloc(64)
    a = device.alloc(64)
    commands = device.compute.record().exec(program, program.args(out, a, a), groups=(64, 1, 1), threads=ONE)
    fake.refuse = "add"
    with pytest.raises(UsageError, match="the fake refuses add"):
        device.compute.submit(commands)
    assert device.compute.ring.submits == 0
    fake.refuse = ""
    point = device.compute.submit(commands)
    assert point.value == 1
    point.wait()


def test_a_submission_larger_than_the_ring_runs_from_memory_of_its_own(device: Device, fake: FakeDevice):
    queue, a, value = device.compute, device.alloc(4096), Param("value", 32)
    fake.ring_words, queue.most_words = 256, 128
    commands = queue.record()
    for i in range(100):
        commands.fill(a.view(4 * i, 4), i)
    commands.fill(a.view(400, 4), value)
    point = queue.submit(commands, values={value: 77})
    assert point.value == 1
    assert (
        len([kept for kept in queue.inflight()[0][1] if "large submission" in getattr(kept, "label", "")])
        == 1
    )
    point.wait(timeout_s=HANG_S)
    assert a.host().cast("I")[:101].tolist() == [*range(100), 77]


def test_an_interrupted_submission_keeps_its_buffers_and_never_reissues_its_value(
    device: Device, fake: FakeDevice
):
    fake.hold = True
    a = device.alloc(64)
    buffer = weakref.ref(a)
    fake.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        device.compute.submit(device.compute.record().fill(a, 1))
    del a
    assert buffer() is not None
    assert device.compute.timeline.last.value == 0
    point = device.compute.submit(device.compute.record())
    assert point.value == 2
    fake.run()
    device.compute.sync()
    assert buffer() is None


def test_a_wait_completes_after_an_interrupted_submission(device: Device, fake: FakeDevice):
    fake.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        device.compute.submit(device.compute.record())
    with device.compute.lock:
        assert not device.compute.retire_oldest()  # nothing that is known to end
    device.sync(timeout_s=HANG_S)
    assert device.compute.inflight() == []
    assert device.compute.timeline.last.value == 2


def test_push_buffer_words_of_an_interrupted_submission_are_not_sent(device: Device, fake: FakeDevice):
    """An encoder that is interrupted leaves words, patches and argument memory behind."""
    program, out = device.load(ADD), device.alloc(64)
    other = device.alloc(64)
    fake.interrupt_encoder = "Fill"
    commands = device.compute.record().exec(program, program.args(out, out, out), groups=ONE, threads=ONE)
    commands.barrier().fill(out, 1)
    with pytest.raises(KeyboardInterrupt):
        device.compute.submit(commands)
    device.compute.submit(device.compute.record().fill(other, 2)).wait(timeout_s=HANG_S)
    assert fake.launched == []
    assert other.host()[0] == 2


def test_commands_for_another_kind_of_queue_are_refused(device: Device):
    with pytest.raises(UsageError, match="for a copy queue> was given to <Queue compute 0"):
        device.compute.submit(CommandBuffer(QueueKind.COPY))


def test_a_kernel_on_a_copy_queue_is_refused(device: Device):
    program, a = device.load(ADD), device.alloc(64)
    with pytest.raises(UsageError, match="recorded for a copy queue"):
        device.copies[0].record().exec(program, program.args(a, a, a), groups=ONE, threads=ONE)


def test_commands_outside_their_buffers_are_refused_when_recorded(device: Device):
    a, b = device.alloc(64, label="a"), device.alloc(32)
    record = device.compute.record()
    with pytest.raises(UsageError, match="copy to <Buffer 'a' of 64 bytes"):
        record.copy(a, b, 65)
    with pytest.raises(UsageError, match="copy from"):
        record.copy(a, b, 33)
    with pytest.raises(UsageError, match="write to"):
        record.write(a.view(60), 1, bits=64)
    with pytest.raises(UsageError, match="no multiple"):
        record.fill(a, 1, 6)
    assert len(record) == 0


def test_a_buffer_closed_after_recording_is_refused_at_submit(device: Device):
    a, b = device.alloc(64), device.alloc(64)
    commands = device.compute.record().copy(a, b)
    b.close()
    with pytest.raises(UsageError, match="used after it was closed"):
        device.compute.submit(commands)


@pytest.mark.usefixtures("fast")
def test_a_buffer_closed_after_recording_is_refused_without_validation(fake: FakeDevice):
    with wrap(fake) as device:
        program, a, b = device.load(ADD), device.alloc(64), device.alloc(64)
        args = program.args(a, b, b)
        b.close()
        for _ in range(2):
            commands = device.compute.record().exec(program, args, groups=ONE, threads=ONE)
            with pytest.raises(UsageError, match="used after it was closed"):
                device.compute.submit(commands)
        device.compute.submit(
            device.compute.record().exec(program, program.args(a, a, a), groups=ONE, threads=ONE)
        )


def test_commands_of_another_device_are_refused(device: Device):
    with wrap(FakeDevice(index=1)) as other:
        a = other.alloc(64)
        with pytest.raises(UsageError, match="fake:0 cannot see"):
            device.compute.submit(other.compute.record().fill(a, 1))
        with pytest.raises(UsageError, match="fake:0 cannot see"):
            device.compute.submit(device.compute.record().fill(a, 1))


def test_after_takes_points_only(device: Device):
    with pytest.raises(UsageError, match="after= takes points, not 3"):
        device.compute.submit(device.compute.record(), after=[3])


def test_no_groups_are_refused(device: Device):
    program, a = device.load(ADD), device.alloc(64)
    with pytest.raises(
        UsageError, match=r"kernel add: \(0, 1, 1\) groups, wanted at least 1 along each axis"
    ):
        device.compute.record().exec(program, program.args(a, a, a), groups=(0, 1, 1), threads=ONE)


def test_blocks_closed_in_flight_are_freed_by_later_submissions(device: Device, fake: FakeDevice):
    fake.hold = True
    a, program = device.alloc(64), device.load(ADD)
    va = a.va
    device.compute.submit(device.compute.record().fill(a, 1))
    a.close()
    program.close()
    fake.run()
    device.compute.submit(device.compute.record())
    assert fake.unloaded == ["add"]
    assert device.alloc(64).va == va


def test_spans_are_read_after_they_ran(device: Device):
    a = device.alloc(64)
    commands = device.compute.record()
    with commands.span("fill"):
        commands.fill(a, 1)
    device.compute.submit(commands)
    assert device.spans() == []
    device.sync()
    (span,) = device.spans()
    assert (span.name, span.queue, span.end_ns - span.start_ns) == ("fill", "compute 0 of fake:0", 20)
    assert span.start_ns > 5000
    assert device.spans() == []
