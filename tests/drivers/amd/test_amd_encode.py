"""Commands become the words that the facts ask for; what they do is compared by `tests.conformance`."""

from __future__ import annotations

import re
from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd import decode, encode, encode_aql, encode_sdma, quirks
from drivers.amd.layouts import aql, pm4, sdma
from drivers.shared.choices import describe
from hcq.commands import Barrier, Command, Copy, Exec, Scope, SetSignal, Timestamp
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import UnsupportedError, UsageError
from hcq.graph import Graph
from hcq.params import Param
from hcq.signal import SLOT_VALUES, Timeline
from tests.drivers.amd.golden import FOLDER, GOLDEN, text
from tests.drivers.amd.rig import encoded, image, opened, packets
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.device import Device
    from tests.drivers.amd.rig import Rig

ARCHS = ("gfx1100", "gfx1201", "gfx942")
HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_decoded_stream_is_the_golden_one(name: str):
    """`python -m tests.drivers.amd.golden` writes them anew: read the difference before you commit it."""
    assert text(name) == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("arch", "case"), [*((arch, "hidden") for arch in ARCHS), ("gfx1100", "packet"), ("gfx1201", "packet")]
)
def test_kernels_are_told_of_their_grid(arch: str, case: str):
    """In hidden arguments the workgroups, in a dispatch packet the work-items."""
    with opened(arch) as (rig, device):
        program, out = device.load(image(arch, case)), device.alloc(4096, HOST)
        told, shape = out.host()[:128].cast("I"), {"threads": (8, 4, 2)}
        commands = device.compute.record()
        commands.exec(program, program.args(out, out, 7), groups=(5, 6, 7), **shape)
        device.compute.submit(commands).wait(timeout_s=HANG_S)
        if case == "packet":
            packet = aql.KernelDispatch.from_bytes(out.host()[:64])
            assert (packet.GRID_SIZE_X, packet.GRID_SIZE_Y, packet.GRID_SIZE_Z) == (40, 24, 14)
            assert rig.read(packet.KERNARG_ADDRESS, 5) == [*divmod(out.va, 1 << 32)[::-1] * 2, 7]
            assert packet.check() == []
            return
        assert list(told[:17]) == [5, 6, 7, 8 | 4 << 16, 2, *(0,) * 11, 3]
        graph = Graph()
        groups, target = graph.param("groups", bits=31), graph.param("target")
        commands = device.compute.record()
        commands.exec(program, program.args(target, out, 7), groups=(groups, 2, 1), **shape)
        graph.add(device.compute, commands)
        executable = graph.compile()
        for count in (5, 9):
            executable.submit({groups: count, target: out}).wait(timeout_s=HANG_S)
            assert told[0] == count


def test_open_groups_over_a_count_of_threads_that_is_no_power_of_two():
    """A dispatch packet counts threads, and a replay multiplies by shifts."""
    with opened("gfx942") as (_, device):
        program, out, groups = device.load(image("gfx942")), device.alloc(4096), Param("groups", 31)
        commands = device.compute.record()
        commands.exec(program, program.args(out, out, 1), groups=(groups, 1, 1), threads=(48, 1, 1))
        with pytest.raises(UnsupportedError, match="power of two"):
            device.compute.submit(commands, values={groups: 3})


def test_threads_and_grids_beyond_their_fields_are_refused():
    with opened("gfx942") as (_, device):
        program = device.load(image("gfx942")).loaded
        for threads in ((1025, 1, 1), (64, 32, 1), (0, 1, 1)):
            with pytest.raises(UsageError, match="threads a workgroup"):
                program.shape((1, 1, 1), threads)
        with pytest.raises(UsageError, match="threads along one axis"):
            program.shape((1 << 26, 1, 1), (64, 1, 1))
    with opened("gfx1100") as (_, device):
        program = device.load(image("gfx1100")).loaded
        with pytest.raises(UsageError, match="workgroups along one axis"):
            program.shape((1 << 32, 1, 1), (64, 1, 1))


def both(device: Device) -> list[Any]:
    return [device.compute, device.copies[0]]


def test_numbers_that_do_not_fit_are_refused():
    with opened() as (_, device):
        out = device.alloc(4096)
        for queue in both(device):
            with pytest.raises(UsageError, match="does not fit"):
                queue.submit(queue.record().write(out, 1 << 32))
            with pytest.raises(UsageError, match="32 bits of a signal"):
                queue.submit(queue.record().wait(device.signal(host_set=True), 1 << 32))
            with pytest.raises(UsageError, match="32 bits"):
                queue.submit(queue.record().signal(device.signal(), 1 << 32))


@pytest.mark.parametrize(
    ("arch", "piece"),
    [("gfx942", sdma.SMALL_PIECE), ("gfx1100", sdma.LARGE_PIECE), ("gfx1201", sdma.LARGE_PIECE)],
)
def test_large_copies_and_fills_are_cut_into_what_the_engine_takes(arch: str, piece: int):
    with opened(arch) as (rig, _):
        out = encoded(rig.encoder(QueueKind.COPY), Copy(Param("dst"), Param("src"), 2 * piece + 5))
        copies = [p.value for p in packets(rig, QueueKind.COPY, out.words) if p.name == "COPY"]
    assert [one.COUNT_MINUS_ONE + 1 for one in copies] == [piece, piece, 5]
    low = [patch for patch in out.patches if not patch.expr.shift]
    assert [patch.expr.add for patch in low] == [0, 0, piece, piece, 2 * piece, 2 * piece]
    assert len(out.words) % 8 == 0


def test_large_copies_of_compute_queues_are_cut_too():
    piece = pm4.MAX_DMA_BYTES[11]
    for last in (5, piece):
        with opened("gfx1100") as (rig, _):
            out = encoded(rig.encoder(), Copy(Param("dst"), Param("src"), 2 * piece + last))
            copies = [p.value for p in packets(rig, QueueKind.COMPUTE, out.words) if p.name == "DMA_DATA"]
        assert [(one.BYTE_COUNT, one.CP_SYNC) for one in copies] == [(piece, 0), (piece, 0), (last, 1)]
    with opened("gfx942") as (rig, _):
        out = encoded(rig.encoder(), Copy(Param("dst"), Param("src"), 40 * pm4.MAX_DMA_BYTES[9]))
    sizes = inline_sizes(out.words)
    assert len(sizes) > 1
    assert max(sizes) <= encode_aql.MAX_INLINE


def inline_sizes(words: Sequence[int]) -> list[int]:
    """Return how many PM4 words follow each vendor packet of a stream."""
    sizes, at = [], 0
    while at < len(words):
        count = encode_aql.inline_words(words, at)
        sizes.append(count)
        at += aql.PACKET_WORDS + encode_aql.units(count)
    return sizes


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_barriers_write_caches_back_for_others_alone(arch: str):
    """Commands of the same device see its L2; signals write it back in any case."""
    written: list[int] = []
    with opened(arch) as (rig, _):
        for scope in Scope:
            out = encoded(rig.encoder(), Barrier(scope))
            names = [p.name for p in packets(rig, QueueKind.COMPUTE, out.words)]
            assert names[0] == "EVENT_WRITE"
            written.append(names.count("ACQUIRE_MEM"))
    assert dict(zip(Scope, written, strict=True)) == {Scope.QUEUE: 0, Scope.DEVICE: 0, Scope.SYSTEM: 1}


@pytest.mark.parametrize("arch", ARCHS)
def test_timelines_stay_below_what_engines_compare(arch: str):
    """Just below the change of the slot, waits and signals have 31 bits, and points go on counting."""
    with opened(arch) as (rig, device):
        compute, copies = device.compute, device.copies[0]
        start = 5 * SLOT_VALUES - 2
        for queue in (compute, copies):
            queue.timeline = Timeline(device, label=queue.label, start=start)
        gate = device.signal(host_set=True)
        points = []
        for _ in range(4):
            first = copies.submit(copies.record().wait(gate, 0))
            points.append(compute.submit(compute.record().wait(first)))
            points[-1].wait(timeout_s=HANG_S)
        assert [point.value for point in points] == [start + 1 + i for i in range(4)]
        assert len({point.signal for point in points}) == 2
        waits = [line for at in range(len(rig.log)) for line in rig.text(at) if "WAIT_REG_MEM" in line]
        waited = [int(re.findall(r" REFERENCE=(\w+)", line)[0], 0) for line in waits]
        assert waited == [SLOT_VALUES - 1, SLOT_VALUES, 1, 2]
        assert max(waited) < 1 << 31
        assert all(point.done() for point in points)


def test_signals_of_shared_queues_begin_a_packet_of_their_own():
    """An XCC that is through with a wait could signal before the others are through."""
    with opened("gfx942") as (rig, device):
        gate = device.signal(host_set=True)
        device.compute.submit(device.compute.record().wait(gate, 0).wait(gate, 0).signal(device.signal(), 1))
        words = rig.streams()[-1]
        assert inline_sizes(words) == [28, 18, 18]
        assert all(aql_header(words, at).BARRIER for at in (0, 48, 96))


def aql_header(words: Sequence[int], at: int) -> aql.Header:
    return aql.Header.from_int(words[at] & 0xFFFF)


def test_many_waits_of_a_shared_queue_take_several_packets():
    with opened("gfx942") as (rig, device):
        gate, commands = device.signal(host_set=True), device.compute.record()
        for _ in range(100):
            commands.wait(gate, 0)
        device.compute.submit(commands).wait(timeout_s=HANG_S)
        sizes = inline_sizes(rig.streams()[-1])
        assert sum(sizes) == 100 * 14 + 18
        assert max(sizes) <= encode_aql.MAX_INLINE


def test_prebuilt_words_may_be_resolved_again():
    """A graph encodes the call of its words anew when a timeline moves to another slot."""
    with opened("gfx942") as (rig, device):
        commands = [Timestamp(device.stamp()), SetSignal(device.signal(), 1), Timestamp(device.stamp())]
        out = encoded(rig.encoder(), *commands)
        memory = memoryview(array("I", out.words))
        first = list(encode_aql.resolve(memory, 0x7000_0000_0000, len(memory)))
        words = memory.tolist()
        assert list(encode_aql.resolve(memory, 0x7000_0000_0000, len(memory))) == first
        assert memory.tolist() == words


def test_kernels_of_a_shared_queue_overlap_when_they_may():
    for overlap, bits in ((False, [True] * 4), (True, [True, False, True, False])):
        with opened("gfx942", choices=quirks.AmdQuirks(aql_overlap=overlap)) as (rig, device):
            program = device.load(image("gfx942"))
            out, commands = device.alloc(4096), device.compute.record()
            for i in range(4):
                commands.exec(program, program.args(out, out, i), groups=(1, 1, 1), threads=(64, 1, 1))
                if i == 1:
                    commands.barrier()
            device.compute.submit(commands).wait(timeout_s=HANG_S)
            found = [" BARRIER=1" in line for line in rig.text() if line.startswith("KernelDispatch")]
            assert found == bits


def pieces_of(rig: Rig, size: int) -> int:
    """Return how many packets a copy of that size takes."""
    out = encoded(rig.encoder(QueueKind.COPY), Copy(Param("dst"), Param("src"), size))
    return sum(packet.name == "COPY" for packet in packets(rig, QueueKind.COPY, out.words))


OF_CALLS = ("aql_scratch", "ring_bytes", "cwsr_sizes", "system_uncached", "runtime", "hdp")
"""Choices of kernel calls and structures, which change no words: the ladder has them."""
CHOICES = [
    {name: value}
    for name, values in quirks.ALTERNATIVES.items()
    for value in values[1:]
    if name not in {"single_xcc", "aql_eop", *OF_CALLS}
]


@pytest.mark.sampled(17)
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: describe(quirks.AmdQuirks(**choice)))
def test_every_choice_changes_words_and_not_their_effect(choice: dict[str, Any]):
    seen = []
    for choices in (quirks.DEFAULT, quirks.AmdQuirks(**choice)):
        texts = []
        for arch in ("gfx1100", "gfx1151", "gfx1201", "gfx942"):
            with opened(arch, choices=choices) as (rig, device):
                program = device.load(image(arch))
                out, x = device.alloc(4096, HOST), device.alloc(4096, HOST)
                gate, stamp = device.signal(host_set=True), device.stamp()
                commands = device.compute.record().wait(gate, 0)
                shape: Any = {"groups": (2, 1, 1), "threads": (64, 1, 1)}
                for i in (1, 2):
                    commands.exec(program, program.args(out, x, i), **shape)
                commands.barrier().exec(program, program.args(out, x, 3), **shape).fill(x, 9, 64).copy(
                    out, x, 32
                )
                device.compute.submit(commands).wait(timeout_s=HANG_S)
                texts += rig.text()
                copies = device.copies[0]
                commands = copies.record().copy(out.view(128), x, 64).barrier().timestamp(stamp)
                copies.submit(commands).wait(timeout_s=HANG_S)
                texts += rig.text()
                large = pieces_of(rig, 5 << 20)
                texts.append(f"{large} pieces")
                assert list(out.host()[:32].cast("I")) == [9] * 8
                assert list(out.host()[128:192].cast("I")) == [9] * 16
                assert stamp.ticks > 0
        seen.append(texts)
    assert seen[0] != seen[1]


def test_long_prebuilt_words_are_cut_between_packets():
    body = [*rig_launch_words(), pm4.NOP_ONE_DWORD] * 3
    cuts = list(
        encode.cut(
            memoryview(bytearray(b"".join(w.to_bytes(4, "little") for w in body))).cast("I"), len(body), 60
        )
    )
    assert cuts[0][0] == 0
    assert cuts[-1][1] == len(body)
    for (_, end), (start, _) in pairwise(cuts):
        assert end == start
    for start, end in cuts:
        assert end - start <= 60
        list(decode.pm4_packets(body[start:end], 11))


def rig_launch_words() -> list[int]:
    """Return one packet of each length that a launch has."""
    with opened() as (rig, _):
        copies = [Copy(Param("d"), Param("s"), size) for size in (9, 7)]
        return list(encoded(rig.encoder(), *copies).words)


def test_long_prebuilt_words_of_copy_queues_are_cut_at_multiples_of_eight():
    with opened() as (rig, _):
        words = encoded(rig.encoder(QueueKind.COPY), *[Copy(Param("d"), Param("s"), 9)] * 20).words
    data = memoryview(bytearray(b"".join(w.to_bytes(4, "little") for w in words))).cast("I")
    cuts = list(encode_sdma.cut(data, len(words), 64))
    assert [start for start, _ in cuts] == [0, 56, 112]
    assert cuts[-1][1] == len(words)
    with pytest.raises(UsageError, match="ends at a multiple of 8 words"):
        list(encode_sdma.cut(data, len(words), 48))


@pytest.mark.parametrize("kind", [QueueKind.COMPUTE, QueueKind.COPY])
def test_unknown_commands_and_programs_are_refused(kind: QueueKind):
    class Strange(Command):
        __slots__ = ()

    for arch in ("gfx1100", "gfx942"):
        with opened(arch) as (rig, device):
            encoder = rig.encoder(kind)
            with pytest.raises(UnsupportedError, match="Strange"):
                encoded(encoder, Strange())
            program = device.load(image(arch))
            args = program.args(device.alloc(64), device.alloc(64), 1)
            command = Exec(program, args, (1, 1, 1), (1, 1, 1))
            if kind is QueueKind.COPY:
                with pytest.raises(UnsupportedError, match="no kernels"):
                    encoded(encoder, command)
            else:
                program.loaded = object()
                with pytest.raises(UsageError, match="another driver"):
                    encoded(encoder, command)
