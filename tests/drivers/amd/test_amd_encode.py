"""Commands become the words that the facts ask for, and do what they say: kernels, order, copies."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd import decode, encode, encode_aql, encode_sdma, quirks
from drivers.amd.encode import Pm4Encoder
from drivers.amd.layouts import aql, code, pm4, sdma
from drivers.kernel import view_at
from drivers.shared.choices import describe
from hcq.commands import Barrier, Command, Copy, Exec, Scope, SetSignal, Timestamp
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import UnsupportedError, UsageError
from hcq.graph import Graph
from hcq.params import Param
from hcq.pushbuffer import PushBuffer
from hcq.signal import SLOT_VALUES, Timeline
from tests.drivers.amd.golden import FOLDER, GOLDEN, text
from tests.drivers.amd.rig import EVENT, GEOMETRY, TIME, Rig, image, opened, read
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.device import Device

ARCHS = ("gfx1100", "gfx1201", "gfx942")
HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_decoded_stream_is_the_golden_one(name: str):
    """`python -m tests.drivers.amd.golden` writes them anew: read the difference before you commit it."""
    assert text(name) == (FOLDER / f"{name}.txt").read_text()


def launch(device: Device, case: str = "plain", **shape: Any) -> Any:
    """Run one kernel; return what the ring saw of it, and its program."""
    rig: Any = device.driver
    program = device.load(image(rig.target.name, case))
    out, x = device.alloc(4096), device.alloc(4096)
    shape = {"groups": (4, 2, 1), "threads": (64, 1, 1)} | shape
    commands = device.compute.record().exec(program, program.args(out, x, 7), **shape)
    device.compute.submit(commands).wait(timeout_s=HANG_S)
    seen = rig.compute.launches[-1]
    if case == "packet":
        seen = seen._replace(kernarg=seen.values["USER_DATA_2"] | seen.values["USER_DATA_3"] << 32)
    assert read(seen.kernarg, 5) == [out.va & 0xFFFF_FFFF, out.va >> 32, x.va & 0xFFFF_FFFF, x.va >> 32, 7]
    return seen, program.loaded


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_pm4_launch_sets_the_registers_of_the_descriptor(arch: str):
    with opened(arch) as (rig, device):
        seen, program = launch(device)
        fields, values = program.kernel.fields, seen.values
        assert seen.grid == (4, 2, 1)
        assert [values[f"NUM_THREAD_{axis}"] for axis in "XYZ"] == [64, 1, 1]
        assert values["PGM_LO"] << 8 | values["PGM_HI"] << 40 == program.va + program.kernel.entry
        assert values["PGM_RSRC3"] == fields.compute_pgm_rsrc3
        lds = -(-1200 // 512) << 15
        assert values["PGM_RSRC2"] == fields.compute_pgm_rsrc2 | lds
        priv = 1 << 20 if arch == "gfx1100" else 0
        assert values["PGM_RSRC1"] == fields.compute_pgm_rsrc1 | priv
        zeros = (
            "TMPRING_SIZE", "DISPATCH_SCRATCH_BASE_LO", "RESOURCE_LIMITS", "START_X", "RESTART_X",
            "PERFCOUNT_ENABLE",
        )  # fmt: skip
        assert not any(values[name] for name in zeros)
        assert rig.launched == ["k"]


def test_aql_launch_names_descriptor_arguments_and_segments():
    with opened("gfx942") as (_, device):
        seen, program = launch(device, "scratch")
        values = seen.values
        assert seen.grid == (256, 2, 1)
        assert values["KERNEL_OBJECT"] == program.va + program.kernel.descriptor
        assert values["GROUP_SEGMENT_SIZE"] == 1200
        assert values["PRIVATE_SEGMENT_SIZE"] == program.scratch_bytes == 272
        assert (values["DIMENSIONS"], values["BARRIER"]) == (3, 1)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_pm4_launch_with_scratch_names_the_backing_of_its_queue(arch: str):
    with opened(arch) as (rig, device):
        seen, program = launch(device, "scratch")
        values = seen.values
        assert (
            values["DISPATCH_SCRATCH_BASE_LO"] << 8 | values["DISPATCH_SCRATCH_BASE_HI"] << 40
            == rig.scratch.va
        )
        assert values["TMPRING_SIZE"] == rig.scratch.tmpring > 0
        assert rig.scratch.lane_bytes >= program.scratch_bytes >= 260
        assert values["PGM_RSRC2"] & 1


@pytest.mark.parametrize("arch", ARCHS)
def test_hidden_arguments_hold_the_launch_shape(arch: str):
    with opened(arch) as (_, device):
        seen, program = launch(device, "hidden", groups=(5, 6, 7), threads=(8, 4, 2))
        assert program.hidden["block_count_x"] == 24
        hidden = code.HiddenArguments.from_bytes(view_at(seen.kernarg + 24, 256))
        assert (hidden.block_count_x, hidden.block_count_y, hidden.block_count_z) == (5, 6, 7)
        assert (hidden.group_size_x, hidden.group_size_y, hidden.group_size_z) == (8, 4, 2)
        assert (hidden.remainder_x, hidden.global_offset_x, hidden.grid_dims) == (0, 0, 3)
        assert program.block_bytes == 320


def test_kernel_that_reads_its_dispatch_packet_gets_one_in_pm4():
    with opened("gfx1100") as (_, device):
        seen, program = launch(device, "packet", groups=(5, 6, 7), threads=(8, 4, 2))
        at = seen.values["USER_DATA_0"] | seen.values["USER_DATA_1"] << 32
        assert seen.kernarg == at - program.packet_at
        packet = aql.KernelDispatch.from_bytes(view_at(at, 64))
        assert (packet.GRID_SIZE_X, packet.GRID_SIZE_Y, packet.GRID_SIZE_Z) == (40, 24, 14)
        assert at - program.packet_at == packet.KERNARG_ADDRESS
        assert packet.check() == []


@pytest.mark.parametrize("case", ["plain", "hidden"])
@pytest.mark.parametrize("arch", ARCHS)
def test_replays_place_open_values(arch: str, case: str):
    with opened(arch) as (rig, device):
        program = device.load(image(arch, case))
        x = device.alloc(4096)
        graph = Graph()
        groups, number, target = (
            graph.param("groups", bits=31),
            graph.param("number", bits=32),
            graph.param("out"),
        )
        commands = device.compute.record()
        for i in (1, 2):
            commands.exec(program, program.args(target, x, number), groups=(groups, i, 1), threads=(32, 1, 1))
            commands.barrier()
        graph.add(device.compute, commands)
        executable = graph.compile()
        for count, value in ((5, 7), (9, 8), (9, 7), (5, 7)):
            out = device.alloc(4096)
            executable.submit({groups: count, number: value, target: out}).wait(timeout_s=HANG_S)
            step = 32 if rig.aql else 1
            for i, seen in enumerate(rig.compute.launches[-2:], 1):
                assert seen.grid == (count * step, i, 1)
                block = read(seen.kernarg, 9)
                assert block[0] | block[1] << 32 == out.va
                assert block[2] | block[3] << 32 == x.va
                assert block[4] == value
                assert case == "plain" or block[6:9] == [count, i, 1]


def test_open_groups_over_a_count_of_threads_that_is_no_power_of_two():
    """A dispatch packet counts threads, PM4 counts groups."""
    for arch in ("gfx942", "gfx1100"):
        with opened(arch) as (rig, device):
            program = device.load(image(arch))
            groups = Param("groups", 31)
            out = device.alloc(4096)
            commands = device.compute.record()
            commands.exec(program, program.args(out, out, 1), groups=(groups, 1, 1), threads=(48, 1, 1))
            if rig.aql:
                with pytest.raises(UnsupportedError, match="power of two"):
                    device.compute.submit(commands, values={groups: 3})
            else:
                device.compute.submit(commands, values={groups: 3}).wait(timeout_s=HANG_S)
                assert rig.compute.launches[-1].grid == (3, 1, 1)


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


@pytest.mark.parametrize("arch", ARCHS)
def test_copies_fills_and_numbers_on_every_queue(arch: str):
    with opened(arch) as (_, device):
        for queue in both(device):
            out, x = device.alloc(4096, HOST), device.alloc(4096, HOST)
            x.host()[:64] = bytes(range(64))
            commands = queue.record().copy(out, x, 61).fill(x, 0xAB, 12).write(out.view(64), -2, bits=64)
            queue.submit(commands.write(x.view(12), 5)).wait(timeout_s=HANG_S)
            assert bytes(out.host()[:61]) == bytes(range(61))
            assert list(x.host()[:16].cast("I")) == [0xAB] * 3 + [5]
            assert out.host()[64:72].cast("q")[0] == -2


@pytest.mark.parametrize("arch", ARCHS)
def test_open_addresses_sizes_and_values(arch: str):
    with opened(arch) as (_, device):
        for queue in both(device):
            graph = Graph()
            src, dst = graph.param("src"), graph.param("dst")
            size, value, wide = (
                graph.param("size", bits=16),
                graph.param("value", bits=32),
                graph.param("wide"),
            )
            commands = queue.record().copy(dst + 4, src + 8, size).fill(dst + 512, value, size)
            graph.add(queue, commands.write(dst + 1024, wide, bits=64).write(dst + 2048, value))
            executable = graph.compile()
            for i in (1, 2, 3):
                a, b = device.alloc(4096, HOST), device.alloc(4096, HOST)
                b.host()[:] = bytes(4096)
                a.host()[:128] = bytes((i + k) & 255 for k in range(128))
                executable.submit({src: a, dst: b, size: 8 * i, value: 99 + i, wide: i << 40}).wait(
                    timeout_s=HANG_S
                )
                assert bytes(b.host()[4 : 4 + 8 * i]) == bytes(a.host()[8 : 8 + 8 * i])
                assert list(b.host()[512 : 512 + 8 * i + 4].cast("I")) == [99 + i] * 2 * i + [0]
                assert b.host()[1024:1032].cast("Q")[0] == i << 40
                assert b.host()[2048:2052].cast("I")[0] == 99 + i


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


def encoded(encoder: Any, *commands: Command) -> PushBuffer:
    out = PushBuffer(32, NoMemory())
    encoder.encode(commands, out)
    return out


class NoMemory:
    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        raise AssertionError(f"{size} bytes wanted for {pushbuffer}")


@pytest.mark.parametrize(
    ("arch", "piece"),
    [("gfx942", sdma.SMALL_PIECE), ("gfx1100", sdma.LARGE_PIECE), ("gfx1201", sdma.LARGE_PIECE)],
)
def test_large_copies_and_fills_are_cut_into_what_the_engine_takes(arch: str, piece: int):
    dst, src = Param("dst"), Param("src")
    out = encoded(encode_sdma.SdmaEncoder(Rig(arch).context()), Copy(dst, src, 2 * piece + 5))
    packets: list[Any] = [
        p for p in decode.sdma_packets(out.words, Rig(arch).target.sdma) if p.name == "COPY"
    ]
    assert [p.value.COUNT_MINUS_ONE + 1 for p in packets] == [piece, piece, 5]
    low = [patch for patch in out.patches if not patch.expr.shift]
    assert [patch.expr.add for patch in low] == [0, 0, piece, piece, 2 * piece, 2 * piece]
    assert len(out.words) % 8 == 0


def test_large_copies_of_compute_queues_are_cut_too():
    piece = pm4.MAX_DMA_BYTES[11]
    out = encoded(Pm4Encoder(Rig("gfx1100").context()), Copy(Param("dst"), Param("src"), 2 * piece + 5))
    packets: list[Any] = [p for p in decode.pm4_packets(out.words, 11) if p.name == "DMA_DATA"]
    assert [(p.value.BYTE_COUNT, p.value.CP_SYNC) for p in packets] == [(piece, 0), (piece, 0), (5, 1)]
    largest = pm4.MAX_DMA_BYTES[9]
    out = encoded(
        encode_aql.AqlEncoder(Rig("gfx942").context()), Copy(Param("dst"), Param("src"), 40 * largest)
    )
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
    encoder = Pm4Encoder(Rig(arch).context())
    written: list[int] = []
    for scope in Scope:
        names = [p.name for p in decode.pm4_packets(encoded(encoder, Barrier(scope)).words, 11)]
        assert names[0] == "EVENT_WRITE"
        written.append(names.count("ACQUIRE_MEM"))
    assert dict(zip(Scope, written, strict=True)) == {Scope.QUEUE: 0, Scope.DEVICE: 0, Scope.SYSTEM: 1}


@pytest.mark.parametrize("arch", ARCHS)
def test_timestamps_and_interrupts(arch: str):
    with opened(arch, event=True) as (rig, device):
        for queue, ring in ((device.compute, rig.compute), (device.copies[0], rig.copies)):
            stamp = device.stamp()
            queue.submit(queue.record().timestamp(stamp)).wait(timeout_s=HANG_S)
            assert stamp.ticks == TIME
            assert ring.interrupts == [EVENT]
        assert read(rig.mailbox + 8 * EVENT, 2) == [EVENT, 0]


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
        waited = [value for _, value in rig.compute.waits]
        assert waited == [SLOT_VALUES - 1, SLOT_VALUES, 1, 2]
        assert max(waited) < 1 << 31
        assert all(point.done() for point in points)


def test_signals_of_shared_queues_begin_a_packet_of_their_own():
    """An XCC that is through with a wait could signal before the others are through."""
    with opened("gfx942") as (rig, device):
        gate = device.signal(host_set=True)
        device.compute.submit(device.compute.record().wait(gate, 0).wait(gate, 0).signal(device.signal(), 1))
        words, _ = rig.compute.streams[-1]
        assert inline_sizes(words) == [28, 10, 10]
        assert all(aql_header(words, at).BARRIER for at in (0, 48, 80))


def aql_header(words: Sequence[int], at: int) -> aql.Header:
    return aql.Header.from_int(words[at] & 0xFFFF)


def test_many_waits_of_a_shared_queue_take_several_packets():
    with opened("gfx942") as (rig, device):
        gate, commands = device.signal(host_set=True), device.compute.record()
        for _ in range(100):
            commands.wait(gate, 0)
        device.compute.submit(commands).wait(timeout_s=HANG_S)
        sizes = inline_sizes(rig.compute.streams[-1][0])
        assert sum(sizes) == 100 * 14 + 10
        assert max(sizes) <= encode_aql.MAX_INLINE
        assert len(rig.compute.waits) == 100


def test_pm4_in_prebuilt_words_of_a_shared_queue_runs_where_it_lies():
    with opened("gfx942") as (rig, device):
        program = device.load(image("gfx942"))
        out, stamp, gate = device.alloc(4096), device.stamp(), device.signal(host_set=True)
        graph, value = Graph(), None
        value = graph.param("value", bits=32)
        commands = device.compute.record()
        shape: Any = {"groups": (1, 1, 1), "threads": (64, 1, 1)}
        commands.exec(program, program.args(out, out, value), **shape).timestamp(stamp).wait(gate, value)
        commands.exec(program, program.args(out, out, value), **shape).exec(
            program, program.args(out, out, 3), **shape
        )
        graph.add(device.compute, commands)
        executable = graph.compile()
        for number in (4, 6):
            executable.submit({value: number}).wait(timeout_s=HANG_S)
            _, calls = rig.compute.streams[-1]
            assert [encode_aql.call_of(entry)[1] for _, entry in calls] == [2, 2]
            assert stamp.ticks == TIME
            assert rig.compute.waits[-1] == (gate.va, number)
            assert [read(seen.kernarg, 5)[4] for seen in rig.compute.launches[-3:]] == [number, number, 3]


def test_prebuilt_words_may_be_resolved_again():
    """A graph encodes the call of its words anew when a timeline moves to another slot."""
    with opened("gfx942") as (_, device):
        commands = [Timestamp(device.stamp()), SetSignal(device.signal(), 1), Timestamp(device.stamp())]
        out = encoded(encode_aql.AqlEncoder(Rig("gfx942").context()), *commands)
        memory = memoryview(array("I", out.words))
        first = list(encode_aql.resolve(memory, 0x7000_0000_0000, len(memory)))
        words = memory.tolist()
        assert list(encode_aql.resolve(memory, 0x7000_0000_0000, len(memory))) == first
        assert memory.tolist() == words


def test_kernels_of_a_shared_queue_overlap_when_they_may():
    for overlap, bits in ((False, [1, 1, 1, 1]), (True, [1, 0, 1, 0])):
        with opened("gfx942", choices=quirks.AmdQuirks(aql_overlap=overlap)) as (rig, device):
            program = device.load(image("gfx942"))
            out, commands = device.alloc(4096), device.compute.record()
            for i in range(4):
                commands.exec(program, program.args(out, out, i), groups=(1, 1, 1), threads=(64, 1, 1))
                if i == 1:
                    commands.barrier()
            device.compute.submit(commands).wait(timeout_s=HANG_S)
            assert [seen.values["BARRIER"] for seen in rig.compute.launches] == bits


def pieces_of(rig: Rig, size: int) -> int:
    """Return how many packets a copy of that size takes."""
    out = PushBuffer(32, rig)
    rig.encoder(QueueKind.COPY).encode([Copy(Param("dst"), Param("src"), size)], out)
    return sum(packet.name == "COPY" for packet in decode.sdma_packets(out.words, rig.target.sdma))


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
            if arch == "gfx1151":
                GEOMETRY.setdefault(arch, GEOMETRY["gfx1201"])
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
                texts += rig.compute.text()
                copies = device.copies[0]
                commands = copies.record().copy(out.view(128), x, 64).barrier().timestamp(stamp)
                copies.submit(commands).wait(timeout_s=HANG_S)
                texts += rig.copies.text()
                large = pieces_of(rig, 5 << 20)
                texts.append(f"{large} pieces")
                assert list(out.host()[:32].cast("I")) == [9] * 8
                assert list(out.host()[128:192].cast("I")) == [9] * 16
                assert stamp.ticks == TIME
                assert [read(one.kernarg, 5)[4] for one in rig.compute.launches] == [1, 2, 3]
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
    out = encoded(
        Pm4Encoder(Rig("gfx1100").context()), Copy(Param("d"), Param("s"), 9), Copy(Param("d"), Param("s"), 7)
    )
    return list(out.words)


def test_long_prebuilt_words_of_copy_queues_are_cut_at_multiples_of_eight():
    rig = Rig("gfx1100")
    encoder = encode_sdma.SdmaEncoder(rig.context())
    copies = [Copy(Param("d"), Param("s"), 9)] * 20
    words = encoded(encoder, *copies).words
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
                program.loaded = Rig()
                with pytest.raises(UsageError, match="another driver"):
                    encoded(encoder, command)
