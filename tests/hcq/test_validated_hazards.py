"""The validation layer on hazards; each kind of them after random programs: `tests.fuzz.queue_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq.errors import UsageError
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.hcq.fake import ADD, ONE, FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.commandbuffer import CommandBuffer
    from hcq.device import Device
    from hcq.memory import Buffer


def adding(device: Device, commands: CommandBuffer, out: Buffer, a: Buffer, b: Buffer) -> CommandBuffer:
    program = device.load(ADD)
    return commands.exec(program, program.args(out, a, b), groups=(8, 1, 1), threads=ONE)


def test_a_read_after_a_write_needs_a_barrier(device: Device, abc: list[Buffer]):
    a, b, c = abc
    commands = adding(device, adding(device, device.compute.record(label="step"), b, a, a), c, b, b)
    with pytest.raises(UsageError) as caught:
        device.compute.submit(commands)
    assert str(caught.value) == (
        f"missing barrier in step: kernel add, argument out, writes {b!r} "
        f"and kernel add, argument a, reads it; nothing orders the two\nhint: record .barrier() between them"
    )


def test_commands_other_than_kernels_need_no_barriers(device: Device, abc: list[Buffer]):
    a, b, c = abc
    commands = device.compute.record().fill(a, 1).copy(b, a).fill(a, 2)
    device.compute.submit(adding(device, commands, c, a, b).copy(a, c).fill(c, 0)).wait()


def test_queues_that_share_memory_need_a_point_between_them(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    device.compute.submit(device.compute.record().fill(a, 1))
    with pytest.raises(UsageError) as caught:
        device.copies[0].submit(device.copies[0].record().copy(b, a))
    assert str(caught.value) == (
        f"hazard: copy reads {a!r} on copy 0 of fake:0, and nothing orders it after fill, which writes it on "
        f"compute 0 of fake:0\nhint: submit with after=[the point of that submission], or wait for it"
    )


@pytest.mark.parametrize("how", ["after", "host wait", "host looks", "sync", "chain", "recorded wait"])
def test_ordering_between_two_queues(device: Device, fake: FakeDevice, abc: list[Buffer], how: str):
    a, b, c = abc
    copies, other = device.copies[0], device.computes[1]
    point = device.compute.submit(device.compute.record().fill(a, 1))
    after, commands = [], copies.record()
    if how == "after":
        after = [point]
    elif how == "host wait":
        point.wait()
    elif how == "host looks":
        fake.run()
        assert point.done()
    elif how == "sync":
        device.sync()
    elif how == "chain":
        after = [other.submit(other.record().fill(c, 1), after=[point])]
    else:
        commands.wait(point)
    copies.submit(commands.copy(b, a), after=after).wait()


def test_refusals_do_not_depend_on_device_progress(device: Device, fake: FakeDevice, abc: list[Buffer]):
    a, b, _ = abc
    early = device.compute.submit(device.compute.record())
    device.compute.submit(device.compute.record().fill(a, 1))
    fake.run()  # both are done by now, but nobody has seen the second
    early.wait(timeout_s=HANG_S)
    with pytest.raises(UsageError, match="hazard"):
        device.copies[0].submit(device.copies[0].record().copy(b, a), after=[early])


def test_a_signal_inside_a_submission_orders_the_commands_before_it(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    middle = device.signal(label="middle").at(1)
    device.compute.submit(device.compute.record().fill(a, 1).signal(middle).fill(b, 1))
    copies = device.copies[0]
    copies.submit(copies.record().wait(middle).fill(a, 2)).wait()
    with pytest.raises(UsageError, match="fill writes <Buffer 'b'"):
        copies.submit(copies.record().wait(middle).fill(b, 2))


def test_a_wait_submitted_before_its_signal_gives_order(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    copies, ready = device.copies[0], device.signal().at(1)
    raising = device.compute.record().fill(a, 1).signal(ready)
    copies.submit(copies.record().wait(ready).copy(b, a))
    device.compute.submit(raising)
    device.sync()


def test_a_refused_submission_leaves_no_record(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    first = device.compute.submit(device.compute.record().fill(a, 1))
    with pytest.raises(UsageError, match="hazard"):
        device.copies[0].submit(device.copies[0].record().copy(b, a))
    device.computes[1].submit(device.computes[1].record().fill(b, 1))
    device.copies[0].submit(device.copies[0].record().copy(device.alloc(64), a), after=[first])
    device.sync()


@pytest.mark.parametrize("slot", [ArgSlot("p", ArgKind.POINTER, 0, 8, access) for access in ("r", "w", "rw")])
def test_hazards_follow_the_declared_access(device: Device, abc: list[Buffer], slot: ArgSlot):
    image = KernelImage(name="k", arch="fake1", code=b"add", args=(slot,), kernarg_size=8)
    program, a = device.load(image), abc[0]
    commands = device.compute.record()
    for _ in range(2):
        commands.exec(program, program.args(a), groups=ONE, threads=ONE)
    if slot.access == "r":
        device.watch.check_submission(device.compute, "", commands.commands, None)
    else:
        with pytest.raises(UsageError, match="missing barrier"):
            device.watch.check_submission(device.compute, "", commands.commands, None)
