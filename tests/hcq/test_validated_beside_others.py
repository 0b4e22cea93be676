"""Order of validated devices beside one without validation, whose submissions nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from hcq.errors import UsageError
from hcq.graph import Graph
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.signal import Point


class Three(NamedTuple):
    """Two validated devices, one that is not, and memory of the first that both validated ones access."""

    fakes: tuple[FakeDevice, FakeDevice, FakeDevice]
    one: Device
    two: Device
    other: Device
    memory: Buffer
    copied: Buffer

    def run(self) -> None:
        for _ in range(8):
            for fake in self.fakes:
                fake.run()


@pytest.fixture(params=[0, 1], ids=["no validation", "reordering alone"])
def three(request: pytest.FixtureRequest) -> Iterator[Three]:
    fakes = FakeDevice(), FakeDevice(index=1), FakeDevice(index=2)
    with (
        wrap(fakes[0], validate=True) as one,
        wrap(fakes[1], validate=True) as two,
        wrap(fakes[2], seed=request.param) as other,
    ):
        memory, copied = one.alloc(64), two.alloc(64)
        memory.map_to(two)
        yield Three(fakes, one, two, other, memory, copied)


def filled(device: Device, memory: Buffer, after: list[Point]) -> Point:
    return device.compute.submit(device.compute.record(label="fill").fill(memory, 7), after=after)


def test_a_point_of_a_device_without_validation_leaves_the_waiting_work_known(three: Three):
    theirs = three.other.compute.submit(three.other.compute.record())
    done = filled(three.one, three.memory, [theirs])
    reads = three.two.compute.record().copy(three.copied, three.memory)
    with pytest.raises(UsageError, match="nothing orders it"):
        three.two.compute.submit(reads)
    three.run()
    assert done.passed()  # what a validator knows depends on no progress
    with pytest.raises(UsageError, match="nothing orders it"):
        three.two.compute.submit(reads, after=[theirs])
    last = three.two.compute.submit(reads, after=[done])
    three.run()
    assert last.passed()
    assert three.copied.host()[0] == 7


def test_a_graph_waits_across_a_device_without_validation(three: Three):
    """Three replays in flight, of which each copies from memory that the next one fills."""
    graph = Graph()
    begin = graph.add(three.other.compute, three.other.compute.record())
    fill = graph.add(three.one.compute, three.one.compute.record().fill(three.memory, 7), after=[begin])
    copy = three.two.compute.record().copy(three.copied, three.memory)
    graph.add(
        three.one.compute,
        three.one.compute.record(),
        after=[graph.add(three.two.compute, copy, after=[fill])],
    )
    executable = graph.compile()
    points = [executable.replay() for _ in range(3)]
    three.run()
    assert all(point.passed() for point in points)
    last = executable.replay()
    three.run()
    assert last.passed()
    executable.close()


@pytest.mark.parametrize("ordered", [False, True])
def test_work_that_waits_for_a_signal_which_such_a_device_sets_is_checked_later(three: Three, ordered: bool):  # noqa: FBT001
    """The signal belongs to a validated device, so nothing tells that its value comes from another one."""
    ready = three.one.signal()
    done = filled(three.one, three.memory, [ready.at(1)])
    three.other.compute.submit(three.other.compute.record().signal(ready, 1))
    three.run()
    assert done.passed()
    reads = three.two.compute.record().copy(three.copied, three.memory)
    if ordered:
        three.two.compute.submit(reads, after=[done])
        three.run()
        assert three.copied.host()[0] == 7
    else:
        with pytest.raises(UsageError, match="nothing orders it"):
            three.two.compute.submit(reads)


@pytest.mark.parametrize("inside", [False, True])
def test_work_that_waits_for_deferred_work_is_deferred_too(three: Three, inside: bool):  # noqa: FBT001
    """Its point, or a signal that it sets, is reached before the ledger knows what raised it."""
    ready, middle = three.one.signal(), three.one.signal()
    commands = three.one.compute.record().fill(three.memory, 7).signal(middle, 1)
    done = three.one.compute.submit(commands, after=[ready.at(1)])
    reads = three.two.compute.record().copy(three.copied, three.memory)
    three.two.compute.submit(reads, after=[middle.at(1) if inside else done])
    three.other.compute.submit(three.other.compute.record().signal(ready, 1))
    three.run()
    three.two.compute.submit(three.two.compute.record().copy(three.copied, three.memory))
    three.run()
    assert three.copied.host()[0] == 7
    with pytest.raises(UsageError, match="nothing orders it"):
        filled(three.one, three.memory, [])
