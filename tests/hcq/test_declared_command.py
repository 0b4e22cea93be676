"""A command is declared once: the one declared here is recorded, checked, ordered, patched and profiled."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.commands import Command, Exec, Range, opened
from hcq.driver import QueueKind
from hcq.errors import UnsupportedError, UsageError
from hcq.graph import Graph, conflicts, segment
from hcq.params import Param
from hcq.registry import wrap
from tests.hcq.fake import ADD, ONE, FakeDevice, OwnCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.commandbuffer import CommandBuffer
    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.params import Word


@dataclass(slots=True)
class Increment(Command):
    """Add `by`, and the u64 at `src`, to the u64 at `dst`."""

    memory = (
        Range("dst", "rw", "nbytes", align=8, verb="increment"),
        Range("src", "r", "nbytes", align=8, verb="increment by"),
    )
    numbers = ("by",)
    kinds = (QueueKind.COMPUTE,)
    timed = True

    dst: Buffer | Param
    src: Buffer | Param
    by: Word
    nbytes: int = 8


def encode(command: Increment) -> Sequence[Word]:
    dst, src = (one if isinstance(one, Param) else one.va for one in (command.dst, command.src))
    return dst, src, command.by


def run(device: FakeDevice, words: Sequence[int]) -> None:
    total = device.read(words[0], "Q") + device.read(words[1], "Q") + words[2]
    device.view(words[0], 8)[:] = struct.pack("<Q", total)


@pytest.fixture
def fake(fake: FakeDevice) -> FakeDevice:
    fake.own[Increment] = OwnCommand(encode, run)
    return fake


def recorded(device: Device, dst: Buffer | Param, src: Buffer | Param, by: Word = 0) -> CommandBuffer:
    return device.compute.record().add(Increment(dst, src, by))


def put(device: Device, *values: int) -> list[Buffer]:
    buffers = [device.alloc(8, label=f"number {value}") for value in values]
    for buffer, value in zip(buffers, values, strict=True):
        buffer.host()[:8] = struct.pack("<Q", value)
    return buffers


def get(buffer: Buffer) -> int:
    return int.from_bytes(buffer.host()[:8], "little")


def test_a_declared_command_is_recorded_and_runs(device: Device):
    one, two = put(device, 1, 2)
    device.compute.submit(recorded(device, one, two, 10)).wait()
    assert (get(one), get(two)) == (13, 2)


def test_recording_checks_kind_bytes_alignment_lifetime_and_open_fields(device: Device):
    (good,) = put(device, 1)
    with pytest.raises(UsageError, match="compute queue"):
        device.copies[0].record().add(Increment(good, good, 1))
    with pytest.raises(UsageError, match="increment <Buffer"):
        recorded(device, device.alloc(4), good)
    with pytest.raises(UsageError, match=r"increment by .* multiple of 8"):
        recorded(device, good, device.alloc(16).view(4, 8))
    with pytest.raises(UsageError, match="nbytes"):
        device.compute.record().add(Increment(good, good, 1, nbytes=Param("nbytes")))  # type: ignore[arg-type]
    gone = device.alloc(8)
    gone.close()
    with pytest.raises(UsageError, match="closed"):
        recorded(device, good, gone)


def test_a_buffer_closed_after_recording_is_refused_at_submit(device: Device):
    one, two = put(device, 1, 2)
    commands = recorded(device, one, two)
    two.close()
    with pytest.raises(UsageError, match="closed"):
        device.compute.submit(commands)


def test_parameters_of_a_declared_command_are_given_at_submit(device: Device):
    one, two = put(device, 1, 2)
    dst, by = Param("dst"), Param("by")
    device.compute.submit(recorded(device, dst, two, by), values={dst: one, by: 40}).wait()
    assert get(one) == 43


def test_limits_hold_for_the_values_of_parameters(device: Device):
    one, two = put(device, 1, 2)
    dst = Param("dst")
    with pytest.raises(UsageError, match="increment: bytes 0 to 8 lie outside"):
        device.compute.submit(recorded(device, dst, two), values={dst: one.view(0, 4)})


def test_writes_of_a_declared_command_are_hazards_between_queues(device: Device):
    one, two = put(device, 1, 2)
    first, second = device.computes
    point = first.submit(recorded(device, one, two))
    with pytest.raises(UsageError, match="hazard: increment"):
        second.submit(recorded(device, two, one))
    second.submit(recorded(device, two, one), after=[point]).wait()
    assert get(two) == 5


def test_a_replay_patches_its_parameters(device: Device):
    graph = Graph(label="step")
    dst, by = graph.param("dst", size=8), graph.param("by")
    one, two = put(device, 1, 2)
    graph.add(device.compute, recorded(device, dst, two, by))
    executable = graph.compile()
    executable.replay([one, 10]).wait()
    executable.replay([two, 5]).wait()
    assert (get(one), get(two)) == (13, 9)
    with pytest.raises(UsageError, match="dst: wanted a Buffer"):
        executable.replay([8, 10])


def test_a_graph_lists_its_open_fields_and_its_conflicts(device: Device):
    graph = Graph()
    dst, by = graph.param("dst"), graph.param("by")
    one, two = put(device, 1, 2)
    first, second = device.computes
    graph.add(first, recorded(device, dst, two, by))
    graph.add(second, recorded(device, one, two))
    segments = segment(graph.nodes)
    assert opened(command for seg in segments for command in seg.commands) == ({dst: 8}, {by})
    assert conflicts(segments) == {(first, second), (second, first)}  # `dst` may be any buffer
    stranger = Graph()
    stranger.add(first, recorded(device, one, two, by))
    with pytest.raises(UsageError, match="not its own: by"):
        stranger.compile()


def test_a_profile_gives_it_a_span(fake: FakeDevice):
    with wrap(fake, profile=True) as device:
        one, two = put(device, 1, 2)
        device.compute.submit(recorded(device, one, two)).wait()
        assert [span.name for span in device.spans()] == ["increment 8 bytes"]


def test_a_device_without_an_encoder_for_a_command_refuses_it_and_continues():
    with hcq.open("cpu") as device:
        one, two = put(device, 1, 2)
        wanted = r"^compute 0 of cpu:0 does not run the command Increment, it runs Wait, (.|\n)*docs/writing"
        with pytest.raises(UnsupportedError, match=wanted):
            device.compute.submit(recorded(device, one, two))
        device.compute.submit(device.compute.record().copy(one, two)).wait()
        assert get(one) == 2


def test_a_launch_declares_the_access_of_its_image(device: Device):
    a, b, c = (device.alloc(64) for _ in range(3))
    program, x = device.load(ADD), Param("x")
    launch = Exec(program, program.args(a, b, c), (x, 1, 1), ONE)
    assert [(touch.pointer, touch.access) for touch in launch.touches()] == [(a, "w"), (b, "r"), (c, "r")]
    assert [expr.param for expr in launch.open_numbers()] == [x]
