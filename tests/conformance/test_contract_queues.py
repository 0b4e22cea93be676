"""Queues: idle or not, priorities, and waits for values in memory."""

from __future__ import annotations

import pytest

import hcq
from tests.conformance.conftest import SHARED, Lab, opened, read
from tests.limits import HANG_S


def test_a_queue_is_idle_when_its_work_is_done(lab: Lab) -> None:
    assert [lab.queue.idle, lab.other.idle] == [True, True]
    gate = lab.device.signal(host_set=True)
    point = lab.queue.submit(lab.queue.record().wait(gate, 1))
    assert [lab.queue.idle, lab.other.idle] == [False, True]
    gate.value = 1
    point.wait(timeout_s=HANG_S)
    assert [lab.queue.idle, lab.other.idle] == [True, True]


@pytest.mark.parametrize("copies", [False, True], ids=["compute", "copy"])
def test_a_queue_waits_for_a_value_in_memory(lab: Lab, copies: bool) -> None:  # noqa: FBT001 - a parameter
    queue = lab.copies if copies else lab.queue
    other = lab.queue if copies else lab.copies
    flag = lab.device.alloc(16, SHARED, label="flag")
    flag.host()[:] = bytes(16)
    out = lab.words([1])
    later = queue.submit(queue.record().wait_memory(flag.view(8), 3).copy(out, lab.words([7]), 4))
    for value in (1, 2):
        other.submit(other.record().write(flag.view(8), value, bits=64)).wait(timeout_s=HANG_S)
        assert not later.passed()
    other.submit(other.record().write(flag.view(8), 5, bits=64)).wait(timeout_s=HANG_S)
    later.wait(timeout_s=HANG_S)
    assert read(out) == [7]
    flag.host().cast("Q")[0] = 9  # the host may write it too
    queue.submit(queue.record().wait_memory(flag, 9)).wait(timeout_s=HANG_S)


def test_waits_for_memory_that_cannot_work_are_refused(lab: Lab) -> None:
    commands = lab.queue.record()
    words = lab.words(4)
    for src, value, text in (
        (words.view(4), 1, "multiple of 8"),
        (words.view(8, 4), 1, "has 4 bytes, 8 were"),
        (words, 1 << 31, "31 bits"),
        (hcq.Param("p"), 1, "cannot be left open"),
        (words, hcq.Param("n"), r"31 bits, .*\nhint: a parameter needs Param\(name, bits=31\)"),
        (words, hcq.Param("n", bits=31) + 1, "31 bits"),
    ):
        with pytest.raises(hcq.UsageError, match=text):
            commands.wait_memory(src, value)
    if not lab.device.info.host_addressable:
        with pytest.raises(hcq.UsageError, match="coherent"):
            commands.wait_memory(lab.device.alloc(8), 1)


@pytest.mark.parametrize("kind", ["compute", "copy"])
def test_queues_compare_all_values_that_a_signal_may_have(name: str, kind: str) -> None:
    with opened(name) as device:
        queue = device.compute if kind == "compute" else device.copies[0]
        most = (1 << device.info.limits.get("signal_bits", 64)) - 1
        gate = device.signal(5, host_set=True, label="gate")
        for value in (most // 2 + 7, most):  # more than half of all values from 5
            point = queue.submit(queue.record().wait(gate, value))
            with pytest.raises(hcq.SignalTimeout):
                point.wait(timeout_s=0.05)
            gate.value = value
            for one in (1, value - 1, value):
                queue.submit(queue.record().wait(gate, one)).wait(timeout_s=HANG_S)
            gate = device.signal(5, host_set=True, label="gate")
        x = hcq.Param("x")
        for value in {most + 1, 1 << 63} if most + 1 < 1 << 64 else ():
            with pytest.raises(hcq.UsageError, match=r"queues compare\nhint: "):
                gate.value = value
            with pytest.raises(hcq.UsageError, match="queues compare"):
                device.signal(value)
            for commands in (queue.record().wait(gate, value), queue.record().signal(device.signal(), value)):
                with pytest.raises(hcq.UsageError, match="does not fit"):
                    queue.submit(commands)
            for commands in (queue.record().wait(gate, x), queue.record().signal(device.signal(), x)):
                with pytest.raises(hcq.UsageError, match="does not fit"):
                    queue.submit(commands, values={x: value})
        assert gate.value == 5
        with hcq.open("cpu") as host:  # whose own queues compare all bits
            gate = host.signal(5, host_set=True, label="gate of another device")
            point = queue.submit(queue.record().wait(gate, 6))
            if most + 1 < 1 << 64:
                with pytest.raises(hcq.UsageError, match="queues compare"):
                    gate.value = most + 1
            gate.value = most
            point.wait(timeout_s=HANG_S)
            host.signal(1 << 63)


def test_a_priority_is_set_or_refused(lab: Lab) -> None:
    with pytest.raises(hcq.UsageError, match="wanted -3 to 3, seen 4"):
        lab.queue.priority = 4
    with pytest.raises(hcq.UnsupportedError, match="priorities"):
        lab.copies.priority = 1
    out = lab.words([0])
    try:
        for level in (3, -3, 0, 1):
            lab.queue.priority = level
            lab.queue.submit(lab.run(lab.queue.record(), "count", out)).wait(timeout_s=HANG_S)
            assert lab.queue.priority == level
        assert read(out) == [4]
    except hcq.UnsupportedError as error:
        assert "hint:" in str(error)  # noqa: PT017 - the queue stays as it was
        assert lab.queue.priority == 0
        assert "amd" not in lab.device.name


def test_work_is_cancelled_until_it_is_submitted(lab: Lab) -> None:
    gate, out = lab.device.signal(host_set=True), lab.words([0])

    def adds(number: int) -> hcq.CommandBuffer:
        return lab.run(lab.queue.record(), "affine", out, 10, number)

    first = lab.queue.submit_later(adds(1), after=[gate.at(1)])
    second = lab.queue.submit_later(adds(2), after=[gate.at(1), first])
    dropped = lab.queue.submit_later(adds(3), after=[second])
    after = lab.queue.submit_later(adds(4), after=[dropped])
    lab.queue.submit(adds(5)).wait(timeout_s=HANG_S)  # it passes those that are held
    assert dropped.cancel()
    assert (after.cancelled(), first.running(), lab.queue.idle) == (True, False, True)
    gate.value = 1
    assert second.result(timeout=HANG_S).passed()
    assert read(out) == [512]
    assert [future.cancel() for future in (first, second, dropped)] == [False, False, True]


def test_work_that_has_begun_is_not_cancelled(lab: Lab) -> None:
    gate, out = lab.device.signal(host_set=True), lab.words([1])
    begun = lab.queue.submit_later(lab.run(lab.queue.record().wait(gate, 1), "affine", out, 2, 5))
    assert (begun.running(), begun.cancel()) == (True, False)
    gate.value = 1
    begun.result(timeout=HANG_S)
    assert read(out) == [7]
