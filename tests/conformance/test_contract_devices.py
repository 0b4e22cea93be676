"""Two devices: memory that one maps of the other, points and signals across them, the order of closing.

The second device is the next index of the driver, or the same device opened again where there is one only.
A pair that shares no memory is skipped with the device's own reason.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.registry import parse
from tests.conformance.conftest import SHARED, Lab, opened, read
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = 20
PLACES = {"host": SHARED, "device": hcq.BufferSpec()}
_PROBE = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True)
"""Memory that is mapped to find out whether memory can be: no other memory lies in its allocation."""


def second_name(name: str) -> str:
    """Return the name of the next device of a driver."""
    entry, index, variant = parse(name)
    return ":".join(filter(None, (entry.name, variant, str(index + 1))))


def second(name: str) -> hcq.Device:
    """Open the next device, or the same one again where there is no next."""
    try:
        return hcq.open(second_name(name), validate=True, seed=0)
    except hcq.UsageError:
        return opened(name)


@pytest.fixture
def pair(name: str) -> Iterator[tuple[Lab, Lab]]:
    """Two devices with the validation layer on, which share memory of the host."""
    with contextlib.ExitStack() as stack:
        labs = []
        for open_ in (opened, second):
            labs.append(Lab(open_(name)))
            stack.callback(labs[-1].close)
        try:
            labs[0].device.alloc(4096, _PROBE).map_to(labs[1].device)
        except hcq.UnsupportedError as error:
            pytest.skip(f"two of {name} share no memory: {error}")
        yield labs[0], labs[1]


def mapped(owner: Lab, peer: Lab, place: str, values: list[int]) -> hcq.Buffer:
    """Return memory of one device that the other maps, with these u32 in it."""
    made = owner.device.alloc(4 * len(values), PLACES[place])
    try:
        made.map_to(peer.device)
    except hcq.UnsupportedError as error:
        pytest.skip(f"no link between the devices: {error}")
    source = owner.words(values)
    owner.queue.submit(owner.queue.record().copy(made, source)).wait(timeout_s=HANG_S)
    return made


def content(lab: Lab, buffer: hcq.Buffer, after: list[hcq.Point]) -> list[int]:
    """Return a buffer's u32 as a device reads them."""
    out = lab.words(buffer.size // 4)
    lab.queue.submit(lab.queue.record().copy(out, buffer), after=after).wait(timeout_s=HANG_S)
    return read(out)


@pytest.mark.parametrize("place", PLACES)
def test_kernels_of_two_devices_take_turns_on_one_buffer(pair: tuple[Lab, Lab], place: str) -> None:
    out = mapped(*pair, place, [1])
    point: list[hcq.Point] = []
    wanted = 1
    for turn in range(TURNS):
        for lab, factor in zip(pair, (3, 5), strict=True):
            point = [lab.queue.submit(lab.run(lab.queue.record(), "affine", out, factor, turn), after=point)]
            wanted = (wanted * factor + turn) & 0xFFFF_FFFF
    assert [content(lab, out, point) for lab in pair] == [[wanted]] * 2


@pytest.mark.parametrize("place", PLACES)
def test_copies_and_kernels_of_two_devices_see_each_other(pair: tuple[Lab, Lab], place: str) -> None:
    """A copy of one reads what a kernel of the other wrote, and the next kernel what the copy wrote."""
    a, b = pair
    first, back = mapped(a, b, place, [1]), mapped(b, a, place, [0])
    point: list[hcq.Point] = []
    for _ in range(TURNS):
        point = [a.queue.submit(a.run(a.queue.record(), "affine", first, 3, 1), after=point)]
        point = [b.copies.submit(b.copies.record().copy(back, first), after=point)]
        point = [a.queue.submit(a.run(a.queue.record(), "copy", first, back), after=point)]
    wanted = 1
    for _ in range(TURNS):
        wanted = (wanted * 3 + 1) & 0xFFFF_FFFF
    assert content(b, first, point) == [wanted]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("by", ["owner", "peer"])
def test_either_device_copies_between_its_memory_and_the_other_s(
    pair: tuple[Lab, Lab], place: str, by: str
) -> None:
    a, b = pair
    size, lab = 1 << 16, a if by == "owner" else b
    there, here = mapped(a, b, place, [0] * (size // 4)), mapped(b, a, place, list(range(size // 4)))
    push = lab.copies.submit(lab.copies.record().copy(there, here))
    assert content(a, there, [push]) == list(range(size // 4))


def test_a_queue_waits_for_a_signal_of_the_other_device(pair: tuple[Lab, Lab]) -> None:
    a, b = pair
    gate = a.device.signal(host_set=True)
    done = b.device.signal()
    out = mapped(a, b, "host", [0])
    held = b.queue.submit(b.run(b.queue.record().wait(gate, 3), "count", out).signal(done, 9))
    last = a.queue.submit(a.run(a.queue.record().wait(done, 9), "affine", out, 10, 0))
    assert not held.done()
    gate.value = 3
    last.wait(timeout_s=HANG_S)
    assert (read(out), done.value) == ([10], 9)


def test_what_the_host_writes_between_is_seen_by_both(pair: tuple[Lab, Lab]) -> None:
    out = mapped(*pair, "host", [0])
    for turn, lab in enumerate(pair * 3):
        out.host().cast("I")[0] = turn
        lab.queue.submit(lab.run(lab.queue.record(), "affine", out, 7, 1)).wait(timeout_s=HANG_S)
        assert read(out) == [7 * turn + 1]


def test_memory_that_was_not_mapped_is_refused_with_the_cure(pair: tuple[Lab, Lab]) -> None:
    a, b = pair
    owned, own = a.words([5]), b.words(1)
    with pytest.raises(hcq.UsageError, match="map_to"):
        b.copies.submit(b.copies.record().copy(own, owned))
    owned.map_to(b.device)
    b.copies.submit(b.copies.record().copy(own, owned)).wait(timeout_s=HANG_S)
    assert read(own) == [5]


def test_devices_that_share_memory_without_a_point_are_refused(pair: tuple[Lab, Lab]) -> None:
    a, b = pair
    gate = a.device.signal(host_set=True)
    shared, out = mapped(a, b, "host", [0]), b.words(1)
    a.queue.submit(a.run(a.queue.record().wait(gate, 1), "count", shared))
    with pytest.raises(hcq.UsageError, match="hazard"):
        b.copies.submit(b.copies.record().copy(out, shared))
    gate.value = 1


def test_memory_closed_in_flight_on_the_peer_is_freed_after_its_use(pair: tuple[Lab, Lab]) -> None:
    a, b = pair
    gate = b.device.signal(host_set=True)
    source, out = mapped(a, b, "host", [5] * 16), b.words(16)
    point = b.queue.submit(b.queue.record().wait(gate, 1).copy(out, source))
    va = source.va
    source.close()
    others = [a.words([9] * 16) for _ in range(20)]
    assert va not in [other.va for other in others]
    gate.value = 1
    point.wait(timeout_s=HANG_S)
    assert read(out) == [5] * 16


@pytest.mark.parametrize("replayed", [False, True], ids=["submitted", "replayed"])
def test_closing_waits_for_what_the_other_device_does_in_its_memory(
    pair: tuple[Lab, Lab],
    replayed: bool,  # noqa: FBT001 - a case
) -> None:
    a, b = pair
    gate = b.device.signal(host_set=True)
    source, out = mapped(a, b, "host", [5] * 16), b.words(16)
    if replayed:
        graph = hcq.Graph()
        given = graph.param("given", size=source.size)
        graph.add(b.queue, b.queue.record().wait(gate, 1).copy(out, given, source.size))
        executable = graph.compile()
        executable.replay([source])
    else:
        b.queue.submit(b.queue.record().wait(gate, 1).copy(out, source))
    with pytest.warns(ResourceWarning, match="was closed while work was in flight"):
        a.device.close(timeout_s=0.01)
    with pytest.warns(ResourceWarning, match="was closed while work was in flight"):
        b.device.close(timeout_s=0.01)


@pytest.mark.parametrize("first", [0, 1], ids=["owner", "peer"])
def test_a_device_works_on_after_the_other_closed(pair: tuple[Lab, Lab], first: int) -> None:
    mapped(*pair, "host", [1])
    pair[first].close()
    left = pair[1 - first]
    own = left.words([4])
    left.queue.submit(left.run(left.queue.record(), "affine", own, 2, 1)).wait(timeout_s=HANG_S)
    assert read(own) == [9]


def test_a_graph_spans_two_devices_and_replays(pair: tuple[Lab, Lab]) -> None:
    a, b = pair
    out = mapped(a, b, "host", [1])
    graph = hcq.Graph()
    one = graph.add(a.queue, a.run(a.queue.record(), "affine", out, 3, 0))
    two = graph.add(b.queue, b.run(b.queue.record(), "affine", out, 1, 2), after=[one])
    graph.add(a.queue, a.run(a.queue.record(), "affine", out, 5, 0), after=[two])
    wanted = 1
    executable = graph.compile()
    for _ in range(5):
        point = executable.replay([])
        wanted = (wanted * 3 + 2) * 5 & 0xFFFF_FFFF
    point.wait(timeout_s=HANG_S)
    assert read(out) == [wanted]
    executable.close()
