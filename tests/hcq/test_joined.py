"""Replays on several devices: one submission to each queue, with the values of separate submissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from hcq.errors import UsageError
from hcq.graph import Graph
from hcq.registry import wrap
from hcq.signal import SLOT_VALUES, Timeline
from tests.hcq.fake import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.params import Param
    from hcq.replay.executable import Executable


class Pair(NamedTuple):
    """Two devices, and a graph in which each waits for the other: fill on one, copies to two and back."""

    fakes: tuple[FakeDevice, FakeDevice]
    devices: tuple[Device, Device]
    executable: Executable
    value: Param
    back: Buffer

    def run(self) -> None:
        for _ in range(8):
            for fake in self.fakes:
                fake.run()

    def submits(self) -> list[int]:
        return [sum([ring.submits for ring in fake.rings]) for fake in self.fakes]


@pytest.fixture(params=[32, 64])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    fakes = FakeDevice(word_bits=request.param), FakeDevice(index=1, word_bits=request.param)
    with wrap(fakes[0]) as one, wrap(fakes[1]) as two:
        a, b, back = one.alloc(64), two.alloc(64), one.alloc(64)
        a.map_to(two)
        b.map_to(one)
        graph = Graph(label="there and back")
        value = graph.param("value")
        first = graph.add(one.compute, one.compute.record().fill(a, value))
        there = graph.add(two.compute, two.compute.record().copy(b, a), after=[first])
        graph.add(one.compute, one.compute.record().copy(back, b), after=[there])
        executable = graph.compile()
        yield Pair(fakes, (one, two), executable, value, back)
        executable.close()


def test_each_queue_gets_one_submission(pair: Pair):
    for byte in range(1, 6):
        before = pair.submits()
        point = pair.executable.replay([byte])
        assert [after - then for after, then in zip(pair.submits(), before, strict=True)] == [1, 1]
        pair.run()
        assert point.passed()
        assert pair.back.host()[0] == byte


def test_replays_in_flight_together_run_in_order(pair: Pair):
    points = [pair.executable.replay([byte]) for byte in range(1, 7)]
    pair.run()
    assert all(point.passed() for point in points)
    assert pair.back.host()[0] == 6


@pytest.mark.parametrize("device", [0, 1])
def test_replays_continue_where_a_timeline_takes_a_fresh_slot(pair: Pair, device: int):
    queue = pair.devices[device].compute
    queue.timeline = Timeline(pair.devices[device], label=queue.label, start=SLOT_VALUES - 5)
    signal = queue.timeline.signal
    for byte in range(1, 10):
        point = pair.executable.replay([byte])
        pair.run()
        assert point.passed()
        assert pair.back.host()[0] == byte
    assert queue.timeline.signal is not signal


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("cause", ["interrupted", "refused"])
def test_no_queue_waits_for_a_submission_that_was_not_sent(pair: Pair, device: int, cause: str):
    pair.executable.replay([1])
    pair.run()
    fake = pair.fakes[device]
    if cause == "interrupted":
        fake.interrupt = True
        with pytest.raises(KeyboardInterrupt):
            pair.executable.replay([2])
    else:
        fake.full = True
        with pytest.raises(UsageError, match="no room"):
            refuse_room(pair, device)
        fake.full = False
    pair.run()
    assert not [ring.packets for each in pair.fakes for ring in each.rings if ring.packets]
    point = pair.executable.replay([3])
    pair.run()
    assert point.passed()
    assert pair.back.host()[0] == 3


def refuse_room(pair: Pair, device: int) -> None:
    """Replay while the ring of a device refuses to wait for room."""

    def stalled(_until: int) -> None:
        pair.fakes[device].full = False
        raise UsageError("no room")

    ring = pair.devices[device].compute.ring
    before, ring.stalled = ring.stalled, stalled
    try:
        pair.executable.replay([2])
    finally:
        ring.stalled = before
