"""Graphs and executables: replays give what plain submissions give, and write only what changed."""

from __future__ import annotations

import gc
import struct
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.commands import Barrier
from hcq.errors import SignalTimeout, UsageError
from hcq.graph import Graph, segment
from hcq.params import Param
from hcq.registry import wrap
from hcq.signal import SLOT_VALUES, Timeline
from tests.hcq.fake import ADD, ONE, STORE, FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.queue import Queue
    from hcq.replay.executable import Executable


def full(device: Device, byte: int, size: int = 64) -> Buffer:
    buffer = device.alloc(size)
    buffer.host()[:] = bytes([byte]) * size
    return buffer


def adder(device: Device, out: Buffer, *, copies: int = 2, limit: int = 8) -> Executable:
    """out = x + y, both given at replay."""
    graph, program = Graph(label="adder"), device.load(ADD)
    x, y = graph.param("x", size=64), graph.param("y", size=64)
    commands = device.compute.record().exec(program, program.args(out, x, y), groups=(64, 1, 1), threads=ONE)
    graph.add(device.compute, commands)
    return graph.compile(copies=copies, limit=limit)


@pytest.fixture(params=["validated", "short way"])
def any_device(request: pytest.FixtureRequest, fake: FakeDevice):
    """With validation, which bypasses the fast path of a replay, and without."""
    with wrap(fake, validate=request.param == "validated") as device:
        yield device
        fake.hold = False


def test_replays_in_flight_together_keep_their_own_values(any_device: Device, fake: FakeDevice):
    fake.hold = True
    out, total = full(any_device, 0), full(any_device, 0)
    program = any_device.load(ADD)
    executable = adder(any_device, out, copies=2, limit=8)
    inputs = [full(any_device, 1 << i) for i in range(6)]
    for given in inputs:
        executable.replay([given, given])
        accumulate = any_device.compute.record()
        accumulate.exec(program, program.args(total, total, out), groups=(64, 1, 1), threads=ONE)
        any_device.compute.submit(accumulate)
    fake.run()
    assert total.host()[0] == 2 * sum(1 << i for i in range(6)) & 255


def test_at_the_limit_a_replay_waits_for_the_oldest(any_device: Device, fake: FakeDevice):
    out, a, b = full(any_device, 0), full(any_device, 1), full(any_device, 2)
    executable = adder(any_device, out, copies=1, limit=2)
    fake.hold = True
    points = [executable.replay(given) for given in ([a, a], [b, b])]
    timer = threading.Timer(0.05, fake.run)
    timer.start()
    executable.replay([a, b])
    timer.join()
    assert all(point.done() for point in points)


def test_unchanged_replays_in_flight_share_a_copy_and_do_not_wait(fake: FakeDevice):
    with wrap(fake) as device:
        total, one = full(device, 0), full(device, 1)
        graph, program = Graph(label="counter"), device.load(ADD)
        x = graph.param("x", size=64)
        commands = device.compute.record()
        commands.exec(program, program.args(total, total, x), groups=(64, 1, 1), threads=ONE)
        graph.add(device.compute, commands)
        executable = graph.compile(copies=1, limit=1)
        fake.hold = True
        points = [executable.replay([one]) for _ in range(5)]
        assert not any(point.passed() for point in points)
        fake.run()
        fake.hold = False
        assert all(point.passed() for point in points)
        assert total.host()[0] == 5
        executable.replay([full(device, 3)]).wait()
        executable.replay([one]).wait()
        assert total.host()[0] == 9


@pytest.mark.usefixtures("fast")
def test_an_unchanged_replay_writes_nothing(fake: FakeDevice):
    with wrap(fake) as device:
        out, a = full(device, 0), full(device, 1)
        executable = adder(device, out)
        for _ in range(2):
            executable.replay([a, a]).wait()
        bound: list[object] = []
        for slot in executable._slots:
            slot.bind = lambda *args: bound.append(args)
        for _ in range(4):
            executable.replay([a, a]).wait()
        assert bound == []


def test_submit_takes_values_by_parameter(any_device: Device):
    out = full(any_device, 0)
    executable = adder(any_device, out)
    x, y = executable.params
    executable.submit({y: full(any_device, 3), x: full(any_device, 4)}).wait()
    assert out.host()[0] == 7


def test_missing_and_foreign_parameters_are_refused(any_device: Device):
    executable = adder(any_device, full(any_device, 0))
    with pytest.raises(UsageError, match="adder takes x, y; missing: x, y; not its own: z"):
        executable.submit({Param("z"): 1})


def test_the_wrong_number_of_values_is_refused(any_device: Device):
    executable = adder(any_device, full(any_device, 0))
    with pytest.raises(UsageError, match=r"wanted 2 values \(x, y\), 1 were given"):
        executable.replay([full(any_device, 0)])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda d: d.alloc(63), "x: wanted at least 64 bytes, seen <Buffer of 63 bytes"),
        (lambda _: 4096, "x: wanted a Buffer, seen 4096"),
        (lambda _: None, "x: wanted a Buffer, seen None"),
    ],
    ids=["small", "number", "none"],
)
def test_a_replay_after_a_refused_value_is_correct(
    any_device: Device, wrong: Callable[[Device], object], why: str
):
    out, a, b = full(any_device, 0), full(any_device, 1), full(any_device, 2)
    executable = adder(any_device, out, copies=1)
    executable.replay([a, a]).wait()
    with pytest.raises(UsageError, match=why):
        executable.replay([wrong(any_device), b])
    executable.replay([a, a]).wait()
    assert out.host()[0] == 2


def test_a_closed_value_is_refused_even_when_it_is_unchanged(any_device: Device):
    a = full(any_device, 1)
    executable = adder(any_device, full(any_device, 0), copies=1)
    executable.replay([a, a]).wait()
    a.close()
    with pytest.raises(UsageError, match="used after it was closed"):
        executable.replay([a, a])


def test_a_closed_value_is_refused_by_a_copy_that_was_in_flight_when_it_was_closed(
    any_device: Device, fake: FakeDevice
):
    a, b = full(any_device, 1), full(any_device, 2)
    executable = adder(any_device, full(any_device, 0), copies=2)
    fake.hold = True
    executable.replay([a, a])
    a.close()
    executable.replay([b, b])
    fake.hold = False
    any_device.sync()
    for _ in range(2):
        with pytest.raises(UsageError, match="used after it was closed"):
            executable.replay([a, a])


def test_a_closed_constant_is_refused(any_device: Device):
    a, out = full(any_device, 1), full(any_device, 0)
    executable = adder(any_device, out)
    out.close()
    with pytest.raises(UsageError, match="used after it was closed"):
        executable.replay([a, a])


def test_a_value_of_another_device_is_refused_until_mapped(any_device: Device, fake: FakeDevice):
    with wrap(FakeDevice(index=1)) as other:
        a, far, out = full(any_device, 1), full(other, 5), full(any_device, 0)
        executable = adder(any_device, out)
        with pytest.raises(UsageError, match=r"x: seen .*(fake:0 cannot see|another opened fake:0)"):
            executable.replay([far, a])
        far.map_to(any_device)
        executable.replay([far, a]).wait()
        assert out.host()[0] == 6
        executable.close()


def test_numbers_are_patched_and_checked(any_device: Device):
    graph, program, out = Graph(), any_device.load(STORE), full(any_device, 0)
    n, x, k, groups = (
        graph.param("n", bits=32, signed=True),
        graph.param("x"),
        graph.param("k"),
        graph.param("g"),
    )
    commands = any_device.compute.record()
    commands.exec(program, program.args(out, n + 1, x, k), groups=(groups, 1, 1), threads=ONE)
    graph.add(any_device.compute, commands)
    executable = graph.compile()
    for number, scale in ((5, 0.5), (-7, 2), (-7, 0.5), (-7, 0.0), (-7, -0.0), (-7, 0.0), (-7, -0.0)):
        executable.replay([number, scale, 1 << 63, 1]).wait()
        words = out.host()
        assert int.from_bytes(words[0:4], "little", signed=True) == number + 1
        assert words[4:8] == struct.pack("<f", scale)  # also the sign of a zero
        assert words[8:16].cast("Q")[0] == 1 << 63
    for wrong, why in (
        ([1 << 31, 0.5, 0, 1], "n: wanted -2147483648 to 2147483647"),
        ([(1 << 31) - 1, 0.5, 0, 1], "n: 2147483648 does not fit"),
        ([0, 0.5, 0, -1], "g: wanted 0 to"),
        ([0.5, 0.5, 0, 1], "n is used as an integer|n: wanted"),
        ([0, 1e300, 0, 1], "x = 1e\\+300 is no float32"),
        ([out, 0.5, 0, 1], "n: wanted a number"),
    ):
        with pytest.raises(UsageError, match=why):
            executable.replay(wrong)


def test_copies_and_fills_take_parameters(any_device: Device):
    graph = Graph()
    source, target, size, value = (graph.param(name) for name in ("source", "target", "size", "value"))
    commands = any_device.copies[0].record()
    commands.copy(target + 8, source, size).fill(target, value, 4)
    graph.add(any_device.copies[0], commands)
    executable = graph.compile()
    a, b = full(any_device, 9), full(any_device, 0)
    executable.replay([a, b, 4, 0x01020304]).wait()
    assert bytes(b.host()[:16]) == b"\x04\x03\x02\x01\0\0\0\0\x09\x09\x09\x09\0\0\0\0"


def test_a_parameter_that_is_both_buffer_and_number_is_refused(device: Device):
    graph = Graph()
    x = graph.param("x")
    graph.add(device.compute, device.compute.record().fill(x, x, 4))
    with pytest.raises(UsageError, match="x: used as a buffer and as a number"):
        graph.compile()


def test_parameters_of_another_graph_are_refused(device: Device):
    graph = Graph(label="mine")
    graph.add(device.compute, device.compute.record().fill(Param("foreign"), 1, 4))
    with pytest.raises(UsageError, match="'mine' uses parameters that are not its own: foreign"):
        graph.compile()


def test_an_empty_graph_is_refused():
    with pytest.raises(UsageError, match="has no nodes"):
        Graph().compile()


def test_nodes_of_another_graph_are_refused(device: Device):
    one, other = Graph(), Graph()
    node = one.add(device.compute, device.compute.record())
    with pytest.raises(UsageError, match="belongs to another graph"):
        other.add(device.compute, device.compute.record(), after=[node])


def test_nodes_of_one_queue_become_one_segment_with_barriers_between(device: Device):
    graph, a = Graph(), full(device, 0)
    for i in range(3):
        graph.add(device.compute, device.compute.record().fill(a, i))
    (only,) = segment(graph.nodes)
    assert [type(command).__name__ for command in only.commands] == [
        "Fill",
        "Barrier",
        "Fill",
        "Barrier",
        "Fill",
    ]
    assert isinstance(only.commands[1], Barrier)


def test_queues_are_ordered_by_after_and_joined_at_the_end(any_device: Device, fake: FakeDevice):
    compute, copies = any_device.compute, any_device.copies[0]
    a, b, c, d = (full(any_device, 0) for _ in range(4))
    graph = Graph()
    value = graph.param("value")
    first = graph.add(compute, compute.record().fill(a, value))
    second = graph.add(copies, copies.record().copy(b, a), after=[first])
    graph.add(compute, compute.record().copy(c, b), after=[second])
    graph.add(copies, copies.record().copy(d, b))
    executable = graph.compile()
    for byte in (1, 2, 3):
        executable.replay([byte]).wait()
        assert (c.host()[0], d.host()[0]) == (byte, byte)
    fake.hold = True
    points = [executable.replay([byte]) for byte in (4, 5, 6)]
    fake.rings.reverse()
    fake.run()
    assert all(point.done() for point in points)
    assert (c.host()[0], d.host()[0]) == (6, 6)


def test_replays_wait_for_each_other_across_queues_that_share_memory(any_device: Device, fake: FakeDevice):
    compute, copies = any_device.compute, any_device.copies[0]
    a, out = full(any_device, 0), full(any_device, 0)
    graph = Graph()
    value = graph.param("value")
    first = graph.add(compute, compute.record().fill(a, value))
    graph.add(copies, copies.record().copy(out, a), after=[first])
    executable = graph.compile()
    fake.hold = True
    executable.replay([1])
    executable.replay([2])
    while fake.rings[0].step():  # the compute queue runs ahead as far as it may
        pass
    assert a.host()[0] == 1


def test_a_replay_may_wait_for_points(any_device: Device):
    gate = any_device.signal(host_set=True)
    out, a = full(any_device, 0), full(any_device, 1)
    point = adder(any_device, out).replay([a, a], after=[gate.at(1)])
    with pytest.raises(SignalTimeout):
        point.wait(timeout_s=0.02)
    gate.value = 1
    point.wait()
    assert out.host()[0] == 2


def test_replays_run_across_the_change_of_slots(any_device: Device):
    queue = any_device.compute
    queue.timeline = Timeline(any_device, label=queue.label, start=SLOT_VALUES - 2)
    out, one = full(any_device, 0), full(any_device, 1)
    executable = adder(any_device, out)
    for i in range(6):
        executable.replay([full(any_device, i), one]).wait()
        assert out.host()[0] == i + 1
    pair, slots = [full(any_device, 10), full(any_device, 20)], executable._slots
    for i in range(8):
        executable.replay([pair[i % 2], one]).wait()
        assert out.host()[0] == (11, 21)[i % 2]
    assert [slot.kept.given[0] in pair for slot in slots].count(True) == min(len(slots), 2)


@pytest.mark.sampled(5)
def test_a_replay_in_flight_keeps_its_buffers_and_memory(any_device: Device, fake: FakeDevice):
    fake.hold = True
    out, a = full(any_device, 0), full(any_device, 3)
    executable = adder(any_device, out)
    point = executable.replay([a, a])
    ref = weakref.ref(a)
    executable.close()
    del a, executable
    gc.collect()
    assert ref() is not None
    fake.run()
    assert point.done()
    any_device.sync()
    gc.collect()
    assert ref() is None
    assert out.host()[0] == 6


@pytest.mark.sampled(5)
def test_idle_replay_slots_release_buffers_when_memory_is_short(any_device: Device, fake: FakeDevice):
    executable = adder(any_device, full(any_device, 0))
    big = any_device.alloc(8 << 20)
    executable.replay([big, big]).wait()
    any_device.sync()
    del big
    fake.room = sum(size for size, _ in fake.memory.values())
    assert any_device.alloc(8 << 20).size == 8 << 20


def test_a_closed_executable_is_refused(any_device: Device):
    executable = adder(any_device, full(any_device, 0))
    executable.close()
    with pytest.raises(UsageError, match="adder is closed"):
        executable.replay([full(any_device, 0)] * 2)


def test_a_replay_on_a_closed_device_is_refused(fake: FakeDevice):
    device = wrap(fake)
    a = full(device, 1)
    executable = adder(device, full(device, 0))
    device.close()
    with pytest.raises(UsageError, match="fake:0 is closed"):
        executable.replay([a, a])


class Late:
    """The lock of a queue, whose acquisition waits while another action happens."""

    def __init__(self, queue: Queue, meanwhile: Callable[[], object]) -> None:
        self._queue, self._lock, self._meanwhile = queue, queue.lock, meanwhile
        queue.lock = self

    def __enter__(self) -> None:
        self._queue.lock = self._lock
        self._meanwhile()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("what", ["device", "executable"])
def test_a_replay_that_races_with_close_is_refused(any_device: Device, fake: FakeDevice, what: str):
    """It checks before it waits for the lock; an executable closed meanwhile accepts no replay."""
    device = wrap(FakeDevice(), validate=any_device.watch is not None)
    a, ring = full(device, 1), device.compute.ring
    executable = adder(device, full(device, 0))
    executable.replay([a, a]).wait()
    closed = device if what == "device" else executable
    Late(device.compute, closed.close)
    before = ring.submits
    with pytest.raises(UsageError, match="is closed"):
        executable.replay([a, a])
    assert ring.submits == before
    device.close()


@pytest.mark.parametrize("kind", ["copy to", "copy from", "fill"])
def test_a_replay_with_too_many_bytes_is_refused_without_validation(kind: str):
    with hcq.open("cpu", validate=False) as device:
        queue = device.compute if kind == "fill" else device.copies[0]
        graph, small, large = Graph(), full(device, 1, 64), full(device, 2, 256)
        size, where = graph.param("size"), graph.param("where")
        commands = queue.record()
        if kind == "fill":
            commands.fill(where, 7, size)
        elif kind == "copy to":
            commands.copy(where, large, size)
        else:
            commands.copy(large, where, size)
        graph.add(queue, commands)
        executable = graph.compile()
        executable.replay([64, small]).wait()
        before = bytes(large.host())
        for wrong in ([68, small], [260, large]):
            with pytest.raises(UsageError, match=f"bytes 0 to {wrong[0]} lie outside"):
                executable.replay(wrong)
            assert bytes(large.host()) == before
        executable.replay([64, small]).wait()
