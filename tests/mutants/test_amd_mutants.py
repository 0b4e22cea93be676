"""Mutants of AMD's streams and ioctls: each bit that the driver sends is in a field with mutants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.decode import pm4_packets, sdma_packets
from drivers.amd.encode_aql import call_of, inline_words, units
from drivers.amd.layouts import aql, events, kfd, pm4
from hcq.driver import QueueKind
from tests.drivers.amd.golden import GOLDEN
from tests.drivers.amd.opened import emulated
from tests.drivers.amd.opened import opened as opened_driver
from tests.drivers.amd.rig import bodies, opened
from tests.mutants.amd import structures
from tests.mutants.amd.packets import Aql, Pm4, Sdma, change
from tests.mutants.amd.planted.wire import WIRES
from tests.mutants.interpose import Interposer
from tests.mutants.sites import DELETE, OPERATIONS, Mutant
from tests.support.hooked import HookedKernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.drivers.amd.rig import Rig
    from tests.mutants.amd.packets import Stream
    from tests.mutants.emulated import Call

APERTURES = "GET_PROCESS_APERTURES_NEW"
WAIT = [pm4.header(pm4.Opcode.WAIT_REG_MEM, 7), 0x13, 0x1000, 0x2, 5, 0xFFFF_FFFF, 4]


def streams_of(
    rig: Rig, kind: QueueKind, words: list[int], calls: list[tuple[int, int]]
) -> Iterator[tuple[Stream, list[int]]]:
    """Yield the words of a submission, and of what it calls, with their language."""
    generation = int(rig.target.generation)
    if kind is QueueKind.COPY or not rig.aql:
        language = Sdma(rig.target.sdma) if kind is QueueKind.COPY else Pm4(generation)
        yield language, words
        for body in bodies(rig, kind, words):
            yield language, rig.read(*body)
        return
    parts = [words, *(rig.read(va, aql.PACKET_WORDS * count) for va, count in (call_of(e) for _, e in calls))]
    for part in parts:
        at = 0
        while at < len(part):
            inline = inline_words(part, at)
            yield Aql(), part[at : at + aql.PACKET_WORDS]
            at += aql.PACKET_WORDS
            if inline:
                yield Pm4(generation), part[at : at + inline]
                at += units(inline)


def packets(stream: Stream, words: list[int]) -> list[tuple[int, int]]:
    """Return (first word, words) of every packet but NOPs."""
    if isinstance(stream, Aql):
        return [(at, aql.PACKET_WORDS) for at in range(0, len(words), aql.PACKET_WORDS)]
    if isinstance(stream, Sdma):
        found = sdma_packets(words, stream.version)
    else:
        assert isinstance(stream, Pm4)
        found = pm4_packets(words, stream.generation)
    return [(one.at, one.end - one.at) for one in found if one.name != "NOP"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_set_bit_and_every_packet_of_a_golden_stream_is_mutated(name: str) -> None:
    arch, run = GOLDEN[name]
    with opened(arch) as (rig, device):
        run(rig, device)
        found = [one for submission in rig.log for one in streams_of(rig, *submission)]
    assert found
    for stream, words in found:
        mutants = list(stream.mutants(words, 0))
        deleted = [(one.at, one.runs[0][1] // 32) for one in mutants if one.operation == DELETE]
        assert deleted == packets(stream, words)
        covered = 0
        for one in mutants:
            if one.operation != DELETE:
                covered |= sum((1 << width) - 1 << lo + 32 * one.at for lo, width in one.runs)
        for at, count in deleted:
            for word in range(at, at + count):
                assert not words[word] & ~(covered >> 32 * word), f"word {word}: {words[word]:#x}"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_change_of_a_wait_changes_its_field_alone(operation: str) -> None:
    stream = Pm4(11)
    wanted = {"zero": 0, "ones": 0xFFFF_FFFF, "plus": 6, "minus": 4}[operation]
    (mutant,) = [
        one
        for one in stream.mutants(WAIT, 0)
        if (one.label, one.operation) == ("word 0 WAIT_REG_MEM.REFERENCE", operation)
    ]
    assert change(stream, WAIT, mutant) == [*WAIT[:4], wanted, *WAIT[5:]]


@pytest.mark.parametrize("stream", [Pm4(11), Sdma((6, 0, 0)), Aql()])
def test_an_omitted_packet_becomes_as_many_words_without_effect(stream: Stream) -> None:
    nops = stream.nops(16)
    assert len(nops) == 16
    if isinstance(stream, Aql):
        assert nops == [int(aql.Type.BARRIER_AND), *[0] * 15]
    else:
        assert packets(stream, nops) == []


def test_an_omitted_wait_of_a_stream_does_not_move_the_rest() -> None:
    stream = Pm4(11)
    second = [one for one in stream.mutants(WAIT * 3, 0) if one.operation == DELETE][1]
    changed = change(stream, WAIT * 3, second)
    assert (changed[:7], changed[14:]) == (WAIT, WAIT)
    assert packets(stream, changed) == [(0, 7), (14, 7)]


class Listening(HookedKernel):
    """Describes every ioctl before it replies."""

    def __init__(self, linux: str = "6.12") -> None:
        super().__init__(emulated(linux=linux).inner)
        self.described: list[tuple[Call, bytes, list[bytes]]] = []

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Describe, and pass on."""
        assert isinstance(argument, bytearray)
        call = structures.call(request, argument)
        self.described.append((call, bytes(argument), [bytes(block.view) for block in call.blocks]))
        return super().ioctl(fd, request, argument)


@pytest.mark.parametrize("linux", ["6.1", "6.12"])
def test_every_ioctl_of_the_driver_has_a_structure_of_its_size(linux: str) -> None:
    kernel = Listening(linux)
    device = opened_driver(kernel)
    device.ring(QueueKind.COMPUTE, 0)
    device.close()
    for call, argument, _ in kernel.described:
        assert call.layout is not None, call.name
        assert len(argument) == call.layout.SIZE, call.name
    names = {call.name for call, _, _ in kernel.described}
    assert names >= {
        "GET_VERSION",
        "ACQUIRE_VM",
        "CREATE_QUEUE of COMPUTE",
        "MAP_MEMORY_TO_GPU",
        "AMDGPU_INFO DEV_INFO",
    }


def test_gpus_that_memory_is_mapped_to_are_fields() -> None:
    kernel = Listening()
    opened_driver(kernel).close()
    maps = [blocks for call, _, blocks in kernel.described if call.name == "MAP_MEMORY_TO_GPU"]
    assert maps
    gpu = kernel.machine.gpus[0].gpu_id.to_bytes(4, "little")
    assert all(blocks == [gpu] for blocks in maps)


def test_the_call_that_asks_how_many_gpus_there_are_has_a_name_of_its_own() -> None:
    kernel = Listening()
    opened_driver(kernel).close()
    names = [call.name for call, _, _ in kernel.described if call.name.startswith(APERTURES)]
    assert names == [f"{APERTURES} of a count", APERTURES]


def test_a_mapping_that_is_a_byte_short_has_the_same_pages() -> None:
    """The size of mmap(2) is rounded up: the driver sees all bytes that it asked for."""

    def run(made: Mutant | None) -> list[Mutant]:
        machine = WIRES.open("gfx1100", "6.12")
        interposer = Interposer(machine, made)
        device = machine.driver(interposer).open(0, None)
        device.ring(QueueKind.COMPUTE, 0).close()
        device.close()
        machine.close()
        assert list(machine.kernel.machine.refusals) == []
        return interposer.found

    short = [one for one in run(None) if one.label == "mmap size" and one.operation == "minus"]
    assert len(short) > 4
    for one in short:
        run(one)


def test_waits_whose_number_depends_on_time_are_not_mutated() -> None:
    waited = bytearray(events.kfd_ioctl_wait_events_args.SIZE)
    number = int(kfd.Request(NR=kfd.Call.WAIT_EVENTS, BYTES=len(waited), DIRECTION=3))
    assert structures.call(number, waited).timed


def acquire(caches: int) -> list[int]:
    return [pm4.header(pm4.Opcode.ACQUIRE_MEM, 8), 0, 0xFFFF_FFFF, 0xFF, 0, 0, 10, caches]


def test_labels_tell_what_an_acquire_does_alone_and_what_stores_to_an_event() -> None:
    release = [pm4.header(pm4.Opcode.RELEASE_MEM, 8), 0x514, 1 << 29, 0x2000, 0, 1, 0, 0]
    words = [*acquire(0x8080), *acquire(0x8000), *WAIT, *acquire(0x8000), *release]
    found = list(Pm4(11, range(0x2000, 0x2008)).mutants(words, 0))
    assert [one.label for one in found if one.operation == DELETE] == [
        "word 0 ACQUIRE_MEM of GLK_INV",
        "word 8 ACQUIRE_MEM of what another does",
        "word 16 WAIT_REG_MEM",
        "word 23 ACQUIRE_MEM of GL2_WB",
        "word 31 RELEASE_MEM of an event",
    ]
    zero = {one.label for one in found if one.operation == "zero"}
    assert {"word 0 ACQUIRE_MEM GcrCntl.GLK_INV", "word 0 ACQUIRE_MEM GcrCntl.GL2_WB again"} <= zero
    assert {"word 8 ACQUIRE_MEM GcrCntl.GL2_WB again", "word 23 ACQUIRE_MEM GcrCntl.GL2_WB"} <= zero
