"""Rings: what lies where at the end of a ring, pointers and doorbells, rings without room."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.aql_ring import AqlRing
from drivers.amd.encode_aql import INLINE, MAX_INLINE
from drivers.amd.layouts import aql, pm4, sdma
from drivers.amd.ring import AmdRing
from drivers.kernel import view_at
from emulator.amd.reports import MemoryFault
from hcq.config import override
from hcq.driver import QueueKind
from hcq.errors import DeviceFault, UsageError
from tests.drivers.amd.opened import emulated, opened, paused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.amd.device import AmdDevice
    from tests.support.hooked import HookedKernel

NOP = pm4.NOP_ONE_DWORD


class Rig:
    """A ring on a device, and the queue behind it."""

    def __init__(self, kernel: HookedKernel, device: AmdDevice, ring: Any) -> None:
        self.kernel, self.device, self.ring = kernel, device, ring
        self.words: memoryview = ring.queue.ring.view.cast("I")
        self.size = len(self.words) // (aql.PACKET_WORDS if isinstance(ring, AqlRing) else 1)

    def stop(self) -> None:
        """Let the queue read nothing until `go`."""
        self.go = paused(self.kernel, self.ring.queue.number)

    def age(self, units: int) -> None:
        """Go on as if so many words, or packets, had been written and read."""
        run = self.kernel.machine.runs[self.kernel.process.queue(self.ring.queue.number, 0)]
        there = run._ring
        there.fetched = there.target = there._published = units * len(self.words) // self.size
        index = units % self.size if there.rules.wraps else units << self.ring.__dict__.get("_shift", 0)
        self.ring._put, self.ring.queue.read_pointer[0] = units, index
        self.ring._limit = 0  # look first

    def send(self, words: array[int]) -> None:
        """Send words, and wait until the queue has read them."""
        self.ring.send(words)
        machine, busy = self.kernel.machine, True
        while busy:
            time.sleep(1e-4)
            with machine.lock:
                busy = bool(machine.pending())
        assert self.ring.read() == self.ring.taken

    def packet(self, index: int) -> Any:
        """Return the vendor packet at an index of the ring."""
        at = index % self.size * aql.PACKET_WORDS
        return aql.Pm4Ib.from_words(self.words[at : at + aql.PACKET_WORDS].tolist())


def _rig(gpu: str, kind: QueueKind) -> Iterator[Rig]:
    kernel = emulated(gpu)
    with override(ring_bytes=1 << 14):
        device = opened(kernel)
        ring = device.ring(kind, 0)
    yield Rig(kernel, device, ring)
    device.close()
    assert kernel.held() == {}


@pytest.fixture
def compute() -> Iterator[Rig]:
    yield from _rig("gfx1100", QueueKind.COMPUTE)


@pytest.fixture
def copy() -> Iterator[Rig]:
    yield from _rig("gfx1201", QueueKind.COPY)


@pytest.fixture
def shared() -> Iterator[Rig]:
    yield from _rig("gfx942", QueueKind.COMPUTE)


def nops(count: int) -> array[int]:
    """Return one PM4 packet of `count` words, which cannot be cut."""
    return array("I", (pm4.header(pm4.Opcode.NOP, count), *range(1, count)))


def test_a_submission_lies_in_one_piece_and_the_rest_of_the_ring_is_nops(compute: Rig):
    size = compute.size
    compute.age(3 * size + size - 10)
    compute.send(nops(12))
    assert list(compute.words[size - 10 :]) == [NOP] * 10
    assert compute.words[:12].tolist() == nops(12).tolist()
    assert compute.ring.taken == 4 * size + 12


@pytest.mark.parametrize("count", [9, 10])
def test_words_that_just_fit_before_the_end_are_not_moved(compute: Rig, count: int):
    size = compute.size
    compute.age(size - 10)
    compute.send(nops(count))
    assert compute.words[size - 10 : size - 10 + count].tolist() == nops(count).tolist()
    compute.send(nops(20))
    assert compute.ring.taken == size + 20


def test_pm4_pointers_count_words_beyond_32_bits(compute: Rig):
    compute.age((1 << 32) - 8)
    compute.send(nops(5))
    compute.send(nops(5))
    assert compute.ring.queue.write_pointer[0] == compute.ring.taken == (1 << 32) + 5


def test_only_the_low_half_of_the_read_index_counts(compute: Rig):
    compute.stop()
    compute.ring.send(nops(7))
    compute.ring.queue.read_pointer[0] = 7 | 0xDEAD << 32
    assert compute.ring.read() == compute.ring.taken


def test_a_full_ring_waits_until_there_is_room(compute: Rig):
    size, asked = compute.size, []
    compute.stop()
    piece = compute.ring.words
    compute.ring.send(nops(9))
    for _ in range(2):
        compute.ring.send(array("I", (NOP,)) * (size // 2 - 10))

    def stalled(until: int) -> None:
        asked.append(until)
        compute.go()

    compute.ring.stalled = stalled
    compute.ring.send(array("I", (NOP,)) * piece)
    assert set(asked) == {piece + 1}, "one word of a full ring stays free"


def test_an_error_of_stalled_ends_a_submission_with_nothing_sent(compute: Rig):
    compute.stop()
    for _ in range(2):
        compute.ring.send(array("I", (NOP,)) * compute.ring.words)
    taken, bell = compute.ring.taken, compute.ring.queue.write_pointer[0]

    def stalled(until: int) -> None:
        raise UsageError(f"no patience for {until}")

    compute.ring.stalled = stalled
    with pytest.raises(UsageError, match="no patience for"):
        compute.ring.send(nops(100))
    assert (compute.ring.taken, compute.ring.queue.write_pointer[0]) == (taken, bell)
    assert "read 0 of" in compute.ring.stuck()
    compute.go()


def test_a_fault_ends_the_wait_for_room(compute: Rig):
    compute.stop()
    for _ in range(2):
        compute.ring.send(array("I", (NOP,)) * compute.ring.words)
    machine = compute.kernel.machine
    machine.memory_fault(machine.gpus[0].queues[0], MemoryFault(0x1234_5000, "made by a test"))
    with pytest.raises(DeviceFault, match="0x12345000"):
        compute.ring.send(nops(100))


def test_more_words_than_the_ring_takes_are_refused(compute: Rig, copy: Rig, shared: Rig):
    for rig in (compute, copy, shared):
        with pytest.raises(UsageError, match="larger than the ring takes"):
            rig.ring.send(array("I", bytes(4 * (rig.ring.words + 16))))
        assert rig.ring.taken in (0, rig.ring.read())


def fences(count: int, va: int = 0) -> array[int]:
    """Return words that fill `count` words, a NOP packet with a fence before it."""
    fence = sdma.Fence.pack(ADDRESS_LO=va & 0xFFFF_FFFF, ADDRESS_HI=va >> 32, DATA=count, MTYPE=3)
    (rest,) = sdma.Nop.pack(COUNT=count - len(fence) - 1)
    return array("I", (*fence, rest, *range(1, count - len(fence))))


def test_sdma_pointers_count_bytes_and_the_end_of_the_ring_is_zeros(copy: Rig):
    slot = copy.device._uploader._stage.va
    size = copy.size
    copy.age((1 << 30) - 8)  # words: the pointers pass 32 bits with the next ones
    assert ((1 << 30) - 8) % size == size - 8
    copy.words[size - 8 :] = array("I", (0xFFFF_FFFF,)) * 8
    copy.send(fences(16, slot))
    assert list(copy.words[size - 8 :]) == [sdma.NOP_WORD] * 8
    assert copy.words[:16].tolist() == fences(16, slot).tolist()
    assert copy.ring.queue.write_pointer[0] == copy.ring.queue.read_pointer[0] == (1 << 32) + 64
    assert view_at(slot, 4).cast("I")[0] == 16
    assert copy.ring.taken == (1 << 30) + 16


def test_an_sdma_ring_is_never_quite_full(copy: Rig):
    slot = copy.device._uploader._stage.va
    copy.stop()
    for _ in range(copy.size // 1024 - 1):
        copy.ring.send(fences(1024, slot))
    copy.ring.send(fences(1016, slot))
    assert copy.ring.taken == copy.size - 8
    asked = []

    def stalled(until: int) -> None:
        asked.append(until)
        copy.go()

    copy.ring.stalled = stalled
    copy.ring.send(fences(8, slot))
    assert set(asked) == {8}


def vendor(words: int) -> array[int]:
    """Return a vendor packet with so many inline NOPs, as units."""
    packet = aql.Pm4Ib.pack(
        IB_HEADER=pm4.header(pm4.Opcode.INDIRECT_BUFFER, 4),
        IB_ADDRESS_LO=0,
        IB_ADDRESS_HI=0,
        IB_SIZE=words,
        IB_VALID=True,
        BARRIER=True,
        ACQUIRE_SCOPE=aql.FenceScope.SYSTEM,
        RELEASE_SCOPE=aql.FenceScope.SYSTEM,
    )
    assert packet[0] == INLINE
    inline = array("I", (NOP,)) * words
    return array("I", packet) + inline + array("I", bytes(-4 * words % 64))


def block_of(packet: Any) -> int:
    """Return the address of a vendor packet's PM4 words."""
    va: int = packet.IB_ADDRESS_LO | packet.IB_ADDRESS_HI << 32
    return va


def test_inline_words_go_to_blocks_one_after_the_other(shared: Rig):
    assert isinstance(shared.ring, AqlRing)
    shared.age(3 * shared.size - 1)
    shared.send(vendor(3) + vendor(60))
    first, second = shared.packet(-1), shared.packet(0)
    assert block_of(second) == block_of(first) + 4 * MAX_INLINE
    assert (first.IB_SIZE, second.IB_SIZE) == (3, 60)
    assert view_at(block_of(second), 240).cast("I")[59] == NOP
    assert shared.ring.taken == 3 * shared.size + 1


def test_a_block_outlives_its_packet_in_the_ring(shared: Rig):
    """The read index may pass a packet before its PM4 words have run."""
    shared.send(vendor(3))
    first = block_of(shared.packet(0))
    later: set[int] = set()
    for _ in range(shared.size // 8):
        at = shared.ring.taken
        shared.send(vendor(1) * 8)
        later |= {block_of(shared.packet(at + i)) for i in range(8)}
    assert len(later) == shared.size
    assert first not in later
    assert view_at(first, 12).cast("I").tolist() == [NOP] * 3


def test_the_doorbell_of_an_aql_queue_is_the_last_packet(shared: Rig):
    rung: list[int] = []
    shared.ring.queue.ring_doorbell = rung.append
    shared.ring.send(vendor(1) + vendor(1) + vendor(1))
    assert (shared.ring.queue.write_pointer[0], rung) == (3, [2])


def test_packets_are_published_after_their_bodies(shared: Rig):
    """A queue stops at an INVALID packet: so the first header is, until all stand in the ring and a fence."""
    seen: list[list[int]] = []
    ring = shared.ring

    def fence() -> None:
        seen.append([shared.words[16 * i] & 0xFF for i in range(2)])

    shared.stop()
    ring._fence = fence
    ring.send(vendor(1) + vendor(1))
    invalid, vendor_type = int(aql.Type.INVALID), int(aql.Type.VENDOR_SPECIFIC)
    assert seen[0] == [invalid, vendor_type]
    assert shared.words[4] == 1 | 1 << 23, "the body stands before the header"
    assert seen[1] == [vendor_type, vendor_type]


def test_a_full_aql_ring_waits_until_there_is_room(shared: Rig):
    shared.stop()
    for _ in range(4):
        shared.ring.send(vendor(1) * (shared.size // 4))
    asked = []

    def stalled(until: int) -> None:
        asked.append(until)
        shared.go()

    shared.ring.stalled = stalled
    assert "read 0 of" in shared.ring.stuck()
    shared.ring.send(vendor(1))
    assert set(asked) == {1}


def test_prebuilt_packets_are_copied_between_units(shared: Rig):
    memory = shared.device.memories.system(4096, label="prebuilt")
    assert memory.view is not None
    packet = aql.BarrierAnd.pack(BARRIER=True)
    memory.view.cast("I")[:32] = array("I", (*packet, *packet))
    shared.stop()
    shared.ring.send(vendor(1) + vendor(1), ((32, 2 << 48 | memory.va),))
    kinds = [shared.words[aql.PACKET_WORDS * i] & 0xFF for i in range(shared.ring.taken)]
    vendor_type, barrier = int(aql.Type.VENDOR_SPECIFIC), int(aql.Type.BARRIER_AND)
    assert kinds == [vendor_type, barrier, barrier, vendor_type]
    shared.device.memories.free(memory)


def test_rings_of_the_kinds_are_what_the_target_has(compute: Rig, copy: Rig, shared: Rig):
    assert isinstance(compute.ring, AmdRing)
    assert isinstance(copy.ring, AmdRing)
    assert isinstance(shared.ring, AqlRing)
