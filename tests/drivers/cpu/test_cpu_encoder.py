"""The encoder: every stream is decoded, checked and compared with the intended packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.cpu import layouts
from drivers.cpu.encode import CpuEncoder
from drivers.cpu.layouts import LAYOUTS, Op, decode
from hcq.commands import Indirect
from hcq.pushbuffer import PushBuffer
from tests.conformance.kernels import image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.layout import BitStruct
    from hcq.params import Patch

ONE = (1, 1, 1)
COMPUTE, COPY = hcq.QueueKind.COMPUTE, hcq.QueueKind.COPY


class Shelf:
    """Argument memory at a made-up address."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(1 << 16)).cast("Q")

    def room(self, pushbuffer: PushBuffer, _size: int) -> None:
        pushbuffer.view, pushbuffer.base, pushbuffer.at, pushbuffer.limit = self.memory, 0x10000, 0, 1 << 16


@pytest.fixture(scope="module")
def device() -> Iterator[hcq.Device]:
    with hcq.open("cpu", validate=False) as device:
        yield device


def _of_this_device(_owner: object) -> bool:
    """Return False: no signal is another device's, whichever devices other tests have open."""
    return False


def encoded(
    commands: hcq.CommandBuffer, kind: hcq.QueueKind = COMPUTE
) -> tuple[list[BitStruct], list[Patch], PushBuffer]:
    pushbuffer = PushBuffer(64, Shelf())
    CpuEncoder(kind, _of_this_device).encode(list(commands), pushbuffer)
    packets = decode(pushbuffer.words)
    assert [packet.check() for packet in packets] == [[]] * len(packets)
    assert pushbuffer.calls == []
    return packets, pushbuffer.patches, pushbuffer


def test_each_command_is_the_packet_it_means(device: hcq.Device) -> None:
    a, b = device.alloc(4096), device.alloc(4096)
    signal, stamp = device.signal(), device.stamp()
    commands = device.compute.record().wait(signal, 3).copy(a, b, 100).fill(b, 7, 64).write(a, 9)
    commands.write(b, 1 << 40, bits=64).timestamp(stamp).barrier().signal(signal, 4)
    commands.commands.append(Indirect(a, 24))
    packets, patches, _ = encoded(commands)
    assert packets == [
        layouts.Wait(signal=signal.va, value=3),
        layouts.Copy(dst=a.va, src=b.va, size=100),
        layouts.Fill(dst=b.va, pattern=7, size=64),
        layouts.Write(dst=a.va, value=9, width=4),
        layouts.Write(dst=b.va, value=1 << 40, width=8),
        layouts.Timestamp(at=stamp.ticks_va),
        layouts.Barrier(),
        layouts.SetSignal(signal=signal.va, value=4),
        layouts.Indirect(packets=a.va, count=3),
    ]
    assert patches == []


def test_launch_names_code_arguments_grid_and_cost(device: hcq.Device) -> None:
    program = device.load(image("index", device.info))
    out = device.alloc(4096)
    commands = device.compute.record().exec(
        program, program.args(out, 5, 6, 7), groups=(2, 3, 4), threads=ONE
    )
    (packet,), _, pushbuffer = encoded(commands)
    entry = program.loaded.entry  # type: ignore[attr-defined]  # a CpuProgram
    assert packet == layouts.Exec(function=entry, args=0x10000, x=2, y=3, z=4, group_ns=2)
    assert pushbuffer.view[:3].tolist() == [out.va, 5 | 6 << 32, 7]


def test_open_numbers_leave_their_bits_zero_and_a_patch(device: hcq.Device) -> None:
    program = device.load(image("index", device.info))
    out, width, size = hcq.Param("out"), hcq.Param("width", 32), hcq.Param("size")
    source = device.alloc(4096)
    args = program.args(out + 16, 5, width, 7)
    commands = device.compute.record().exec(program, args, groups=(width, 3, width), threads=ONE)
    commands.copy(out, source, size)
    packets, patches, pushbuffer = encoded(commands)
    assert [getattr(packets[0], name) for name in ("x", "y", "z")] == [0, 3, 0]
    assert (packets[1].dst, packets[1].src, packets[1].size) == (0, source.va, 0)  # type: ignore[attr-defined]
    assert pushbuffer.view[:2].tolist() == [0, 5]
    shown = {(p.target, p.offset, p.lo, p.width, p.expr.param.name, p.expr.add) for p in patches}
    assert shown == {
        ("words", 24, 0, 31, "width", 0),
        ("words", 40, 0, 16, "width", 0),
        ("memory", 0x10000, 0, 64, "out", 16),
        ("memory", 0x1000C, 0, 32, "width", 0),
        ("words", 72, 0, 64, "out", 0),
        ("words", 88, 0, 64, "size", 0),
    }


@pytest.mark.parametrize("grid", [(1 << 31, 1, 1), (1, 1 << 16, 1), (1, 1, 1 << 16)])
def test_grid_beyond_its_bits_is_refused_and_nothing_appended(
    device: hcq.Device, grid: tuple[int, int, int]
) -> None:
    program = device.load(image("count", device.info))
    pushbuffer = PushBuffer(64, Shelf())
    commands = device.compute.record().exec(program, program.args(device.alloc(4)), groups=grid, threads=ONE)
    with pytest.raises(hcq.UsageError, match="does not fit"):
        CpuEncoder(COMPUTE, _of_this_device).encode(list(commands), pushbuffer)
    assert (list(pushbuffer.words), pushbuffer.patches) == ([], [])


def test_workgroups_of_several_threads_are_refused(device: hcq.Device) -> None:
    program = device.load(image("count", device.info))
    args = program.args(device.alloc(4))
    commands = device.compute.record().exec(program, args, groups=ONE, threads=(32, 1, 1))
    with pytest.raises(hcq.UsageError, match="one thread"):
        encoded(commands)


def test_copy_queue_s_encoder_refuses_kernels(device: hcq.Device) -> None:
    program = device.load(image("count", device.info))
    commands = device.compute.record().exec(program, program.args(device.alloc(4)), groups=ONE, threads=ONE)
    with pytest.raises(hcq.UsageError, match="runs no kernels"):
        encoded(commands, COPY)


def test_every_op_has_a_layout_that_carries_it() -> None:
    assert set(LAYOUTS) == set(Op)
    for op, layout in LAYOUTS.items():
        fields = dict.fromkeys(layout.FIELDS, 1)
        assert layout.pack(**fields)[0] == op
        assert list(layout.pack(**fields)) == layout(**fields).to_words()


def test_unknown_packet_is_decoded_as_a_bare_packet() -> None:
    (packet,) = decode([0x99, 1, 2, 3, 0, 0, 0, 0])
    assert repr(packet) == "Packet(op=153, first=1, second=2, third=3)"
