"""Stores and waits that the next submission carries: order, errors in the middle, closed and lost memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.errors import DeviceFault, UsageError
from hcq.graph import Graph
from hcq.registry import wrap
from tests.hcq.fake import ADD, ONE, WILD, FakeDevice
from tests.limits import HANG_S
from tests.together import together

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.memory import Buffer


def prepend(device: Device, buffer: Buffer, value: int) -> None:
    device.compute.prepend(device.compute.record().write(buffer, value))


def words(buffer: Buffer) -> list[int]:
    return buffer.host().cast("I").tolist()


@pytest.fixture(params=["validated", "bare"])
def either(request: pytest.FixtureRequest, fake: FakeDevice):
    with wrap(fake, validate=request.param == "validated") as device:
        yield device


def submits(device: Device) -> int:
    return device.compute.ring.submits


def test_a_submission_carries_the_stores_before_its_commands(either: Device):
    a, b = either.alloc(4), either.alloc(4)
    before = submits(either)
    prepend(either, a, 7)
    assert submits(either) == before
    either.compute.submit(either.compute.record().copy(b, a)).wait(timeout_s=HANG_S)
    assert words(b) == [7]
    assert submits(either) == before + 1
    either.compute.submit(either.compute.record().write(a, 1)).wait(timeout_s=HANG_S)
    assert words(a) == [1], "they are carried once"


def test_a_replay_carries_the_stores_and_its_own_words_stay(either: Device):
    a, b = either.alloc(4), either.alloc(4)
    graph = Graph()
    graph.add(either.compute, either.compute.record().copy(b, a))
    copy = graph.compile()
    before = submits(either)
    for value in (3, 4):
        prepend(either, a, value)
        copy.replay().wait(timeout_s=HANG_S)
        assert words(b) == [value]
    copy.replay().wait(timeout_s=HANG_S)
    assert submits(either) == before + 3


def test_the_end_of_a_queue_covers_what_is_pending(either: Device):
    a = either.alloc(4)
    prepend(either, a, 9)
    either.compute.end().wait(timeout_s=HANG_S)
    assert words(a) == [9]
    prepend(either, a, 10)
    either.sync(timeout_s=HANG_S)
    assert words(a) == [10]


def test_closing_a_device_sends_what_is_pending(either: Device):
    words, before = bytearray(8), submits(either)
    with hcq.open("cpu") as cpu:
        prepend(cpu, cpu.host_buffer(memoryview(words)), 7)
        either.compute.prepend(either.compute.record(), after=[cpu.compute.end()])
    prepend(either, either.alloc(4), 9)
    either.close()  # warns of nothing
    assert (words[0], submits(either)) == (7, before + 1)


def test_a_wait_is_carried_and_the_newest_of_a_queue_is_enough(either: Device, fake: FakeDevice):
    source, a, b = either.alloc(4), either.alloc(4), either.alloc(4)
    source.host()[:] = b"\5\0\0\0"
    fake.hold = True
    copies, compute = either.copies[0], either.compute
    points = [copies.submit(copies.record().copy(a, source)) for _ in range(40)]
    before = submits(either)
    for point in points:
        compute.prepend(compute.record(), after=[point])
    done = compute.submit(compute.record().copy(b, a))
    assert submits(either) == before + 1
    fake.hold = False
    fake.run()
    done.wait(timeout_s=HANG_S)
    assert words(b) == [5]


def test_many_stores_get_a_submission_of_their_own(either: Device):
    buffers = [either.alloc(4) for _ in range(50)]
    for i, buffer in enumerate(buffers):
        prepend(either, buffer, i)
    either.compute.sync(timeout_s=HANG_S)
    assert [words(buffer)[0] for buffer in buffers] == list(range(50))


def test_a_refused_submission_leaves_them_to_the_next_one(either: Device, fake: FakeDevice):
    a, b, gone = either.alloc(4), either.alloc(4), either.alloc(4)
    prepend(either, a, 7)
    refused = either.compute.record().copy(b, gone)
    gone.close()
    with pytest.raises(UsageError, match="after it was closed"):
        either.compute.submit(refused)
    fake.ring_words, usual = 1, fake.ring_words
    with pytest.raises(UsageError, match="do not fit"):
        either.compute.submit(either.compute.record())
    fake.ring_words = usual
    either.compute.submit(either.compute.record().copy(b, a)).wait(timeout_s=HANG_S)
    assert words(b) == [7]


@pytest.mark.parametrize("replayed", [False, True])
def test_an_interrupted_submission_leaves_them_to_the_next_one(
    either: Device, fake: FakeDevice, *, replayed: bool
):
    a, b = either.alloc(4), either.alloc(4)
    graph = Graph()
    graph.add(either.compute, either.compute.record().copy(b, a))
    copy = graph.compile()
    prepend(either, a, 7)
    fake.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        copy.replay() if replayed else either.compute.submit(either.compute.record())
    copy.replay().wait(timeout_s=HANG_S)
    assert words(b) == [7]
    either.sync(timeout_s=HANG_S)
    assert either.compute.inflight() == []


def test_a_store_to_a_closed_buffer_is_dropped(either: Device):
    a, b = either.alloc(4), either.alloc(8)
    prepend(either, a, 7)
    prepend(either, b.view(4), 8)
    a.close()
    either.sync(timeout_s=HANG_S)
    assert words(b)[1] == 8


def test_a_recovery_keeps_stores_and_drops_waits_for_lost_work(device: Device, fake: FakeDevice):
    a, b, c, gate = device.alloc(4), device.alloc(4), device.alloc(4), device.signal(host_set=True)
    program, wild = device.load(WILD), device.compute.record()
    fake.hold = True
    faulted = device.compute.submit(wild.exec(program, program.args(b), groups=ONE, threads=ONE))
    lost = device.copies[0].submit(device.copies[0].record().fill(c, 1), after=[gate.at(1)])
    device.compute.prepend(device.compute.record().write(a, 7), after=[lost])
    fake.hold = False
    fake.run()
    with pytest.raises(DeviceFault):
        faulted.wait()
    with pytest.raises(DeviceFault):
        device.compute.end()
    device.recover()
    device.sync(timeout_s=HANG_S)
    assert words(a) == [7]


def test_what_could_make_another_submission_fail_is_refused(device: Device):
    compute, a = device.compute, device.alloc(64)
    program, param = device.load(ADD), Graph().param("n")
    kernel = compute.record().exec(program, program.args(a, a, a), groups=ONE, threads=ONE)
    for commands in (kernel, compute.record().copy(a.view(32), a, 4), compute.record().write(a, param)):
        with pytest.raises(UsageError, match="stores of numbers alone"):
            compute.prepend(commands)
    with pytest.raises(UsageError, match="points of submissions alone"):
        compute.prepend(compute.record(), after=[device.signal(host_set=True).at(1)])
    before = submits(device)
    compute.end()
    assert submits(device) == before


def test_threads_lose_no_store(either: Device):
    buffers = [either.alloc(4) for _ in range(120)]

    def work(first: int) -> None:
        for i in range(first, 120, 3):
            prepend(either, buffers[i], i)
            if i % 5 == 0:
                either.compute.submit(either.compute.record())

    together(work, 3)
    either.sync(timeout_s=HANG_S)
    assert [words(buffer)[0] for buffer in buffers] == list(range(120))
