"""Replays on several devices: one submission to each queue, with the values of separate submissions."""

from __future__ import annotations

import random
from contextlib import ExitStack
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
        # The first replay waits for none before it: it is sent as one submission for each segment.
        sent = [2, 1] if byte == 1 else [1, 1]
        assert [after - then for after, then in zip(pair.submits(), before, strict=True)] == sent
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


class Gather(NamedTuple):
    """Devices that each fill memory and copy that of all; the first one clears its own after that."""

    fakes: list[FakeDevice]
    devices: list[Device]
    executable: Executable

    def run(self, rng: random.Random) -> None:
        """Move one ring at a time, in a random order, until none can move."""
        rings = [ring for fake in self.fakes for ring in fake.rings]
        while sum([ring.step() for ring in rng.sample(rings, len(rings))]):
            for _ in range(rng.randrange(40)):
                rng.choice(rings).step()


def gather(stack: ExitStack, count: int, *, validate: bool) -> Gather:
    """Open devices and compile their graph, whose parameters are a number and a result for each device."""
    fakes = [FakeDevice(index=i) for i in range(count)]
    devices = [stack.enter_context(wrap(fake, validate=validate)) for fake in fakes]
    own = [device.alloc(64) for device in devices]
    for buffer in own:
        for device in devices:
            if device is not buffer.device:
                buffer.map_to(device)
    graph = Graph()
    values = [graph.param(f"value {i}") for i in range(count)]
    results = [graph.param(f"result {i}", size=64 * count) for i in range(count)]
    computes = [device.compute for device in devices]
    filled = [
        graph.add(queue, queue.record().fill(a, value))
        for queue, a, value in zip(computes, own, values, strict=True)
    ]
    copied = []
    for i, queue in enumerate(computes):
        commands = queue.record()
        for k, a in enumerate(own):
            commands.copy(results[i] + 64 * k, a, 64)
        copied.append(graph.add(queue, commands, after=[filled[k] for k in range(count) if k != i]))
    graph.add(computes[0], computes[0].record().fill(own[0], 0), after=copied[1:])
    executable = graph.compile()
    stack.callback(executable.close)
    return Gather(fakes, devices, executable)


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_each_order_of_queues_gives_the_bytes_of_each_replay(count: int, validate: bool):  # noqa: FBT001
    """Several replays are in flight, and the memory of earlier ones was dropped and is allocated again."""
    with ExitStack() as stack:
        each = gather(stack, count, validate=validate)
        for fake in each.fakes:
            fake.hold = True
        for seed in range(20):
            rng, points, seen = random.Random(seed), [], []
            for turn in range(5):
                given = [7 * turn + i + 1 for i in range(count)]
                memory = [device.alloc(64 * count) for device in each.devices]
                points.append(each.executable.replay([*given, *memory]))
                if turn % 2:
                    seen.append((given, memory))
                del memory  # what nothing else keeps is written to while in flight
                for _ in range(rng.randrange(30)):
                    rng.choice([ring for fake in each.fakes for ring in fake.rings]).step()
            each.run(rng)
            assert all(point.passed() for point in points)
            for given, memory in seen:
                for buffer in memory:
                    assert [buffer.host()[64 * k] for k in range(count)] == given
