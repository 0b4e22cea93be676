"""What works by luck on eight XCCs: refused where all is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emulator.amd.reports import FindingKind, MemoryFault, QueueFault
from tests.emulator.amd_engines.conftest import BUFFERS, DATA, POINTERS, RING
from tests.emulator.amd_engines.loaded import GROUPS, VALUES, load
from tests.emulator.amd_engines.test_aql import buffer, dispatch, opened
from tests.emulator.amd_engines.test_coherence import refused
from tests.emulator.amd_engines.test_pm4 import release
from tests.emulator.amd_engines.test_rings import write_data
from tests.emulator.amd_isa import ir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

BARRIER = 1 << 8
ACQUIRE = (0xC0055800, 1 << 22 | 1 << 23 | 1 << 27, 0xFFFF_FFFF, 0xFF, 0, 0, 10)
STORE = write_data(DATA, 3)
TOLD = release(DATA, 1)


def predicated(words: tuple[int, ...], *, xccs: int = 1, count: int | None = None) -> tuple[int, ...]:
    """PM4 behind a PRED_EXEC."""
    return (0xC0002300, xccs << 24 | (len(words) if count is None else count), *words)


@pytest.mark.parametrize(
    ("words", "packet", "text"),
    [
        (predicated((TOLD[0], TOLD[1] | 1 << 28, *TOLD[2:])), "RELEASE_MEM", "EXECUTE"),
        (TOLD, "RELEASE_MEM", "each of 8 XCCs"),
        (predicated(TOLD, xccs=0xFF), "RELEASE_MEM", "each of 8 XCCs"),
        (predicated(TOLD, xccs=3), "RELEASE_MEM", "each of 8 XCCs"),
        ((*predicated(ACQUIRE), *STORE), "WRITE_DATA", "each of 8 XCCs"),
        (predicated(TOLD, count=0), "PRED_EXEC", "of 0 dwords"),
        (predicated(TOLD, xccs=0), "PRED_EXEC", "none of 8 XCCs"),
        (predicated((*TOLD, *ACQUIRE), count=len(TOLD) + 1), "PRED_EXEC", "ends inside a packet"),
        ((*ACQUIRE[:1], ACQUIRE[1] | 1 << 31, *ACQUIRE[2:]), "ACQUIRE_MEM", "names an engine"),
        (predicated((*TOLD[:2], TOLD[2] | 7 << 29, *TOLD[3:])), "RELEASE_MEM", "adds to memory"),
    ],
)
def test_doubtful_packets_of_several_xccs(
    bench: Callable[..., Bench], words: tuple[int, ...], packet: str, text: str
) -> None:
    b = opened(bench, checked=True)
    b.put(BUFFERS, *words)
    b.write(*buffer(BUFFERS, len(words)))
    refused(b, FindingKind.METHOD, packet, text)


def test_a_write_pointer_outside_of_the_queue_s_structure_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    b.put(BUFFERS, *ACQUIRE)
    b.queue.wptr_va += 8
    b.write(*buffer(BUFFERS, len(ACQUIRE)))
    with pytest.raises(QueueFault, match="is not write_dispatch_id of the amd_queue_t"):
        b.ring()


def test_what_one_xcc_stores_is_no_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    words = (*ACQUIRE, *predicated(STORE))
    b.put(BUFFERS, *words)
    b.do(*buffer(BUFFERS, len(words)))
    assert b.get(DATA) == [3]


def test_a_kernel_without_a_barrier_bit_behind_pm4_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    b.put(BUFFERS, *ACQUIRE)
    packet = dispatch(load(b, "gfx942"))
    b.write(*buffer(BUFFERS, len(ACQUIRE)), packet[0] & ~BARRIER, *packet[1:])
    refused(b, FindingKind.METHOD, "KernelDispatch", "without a barrier bit after", "Pm4Ib")


def test_pm4_without_a_barrier_bit_behind_a_kernel_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    words = predicated(TOLD)
    b.put(BUFFERS, *words)
    packet = buffer(BUFFERS, len(words))
    b.write(*dispatch(load(b, "gfx942")), packet[0] & ~BARRIER, *packet[1:])
    refused(b, FindingKind.METHOD, "Pm4Ib", "without a barrier bit after", "KernelDispatch")


def test_a_grid_that_ends_within_no_time_limit_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    b.write(*dispatch(load(b, "gfx942"), threads=1, grid=0xFFFF_FFFF))
    refused(b, FindingKind.METHOD, "4294967295", "time limit")


def test_a_queue_at_an_invalid_header_is_busy_and_not_stuck(bench: Callable[..., Bench]) -> None:
    b = opened(bench)
    b.put(BUFFERS, *STORE)
    packet = buffer(BUFFERS, len(STORE))
    b.do(1, *packet[1:])
    assert (b.run.busy, b.run.stuck) == (True, False)
    b.put(RING, packet[0])
    b.finish()
    assert (b.run.busy, b.get(DATA)) == (False, [3])


def test_a_grid_that_is_smaller_than_a_workgroup_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    b.write(*dispatch(load(b, "gfx942"), threads=256, grid=255))
    refused(b, FindingKind.METHOD, "not smaller than a workgroup", "(256, 1, 1)", "(255, 1, 1)")


SCRATCH, XCCS, WAVES, LANE_BYTES = 0xA0_0000, 8, 4, 256
WAVE_BYTES = 64 * LANE_BYTES
XCC_BYTES = WAVES * WAVE_BYTES


def with_scratch(bench: Callable[..., Bench], mapped: int, *, said: int = XCC_BYTES, rest: int = 0) -> Bench:
    """Return a queue told of scratch of `said` bytes an XCC, with a kernel that wants it submitted.

    `mapped` bytes of it are one allocation, `rest` bytes behind it another.
    """
    b = opened(bench, checked=True)
    b.map(SCRATCH, mapped)
    if rest:
        b.map(SCRATCH + mapped, rest)
    b.put(POINTERS + 140, WAVES | WAVE_BYTES // 1024 << 12, SCRATCH, 1 << 31, said, 0x00EA_4FAC)
    b.put64(POINTERS + 160, SCRATCH)
    b.put(POINTERS + 176, LANE_BYTES)
    packet = dispatch(load(b, "gfx942", ir.SCRATCH))
    b.space.map.write(VALUES, bytes(4 * 256 * GROUPS))
    b.write(*packet[:6], LANE_BYTES, *packet[7:])
    return b


def test_scratch_is_there_for_every_xcc(bench: Callable[..., Bench]) -> None:
    b = with_scratch(bench, XCCS * XCC_BYTES)
    b.do()
    assert list(b.launches.values()) == [1]


def test_scratch_of_one_xcc_for_eight_is_not_enough(bench: Callable[..., Bench]) -> None:
    """That of XCC n begins n times its size behind the begin."""
    with pytest.raises(MemoryFault, match="scratch of 8 XCCs, 65536 bytes each"):
        with_scratch(bench, XCC_BYTES).do()
    with pytest.raises(MemoryFault, match="scratch of 8 XCCs, 65536 bytes each"):
        with_scratch(bench, XCCS * XCC_BYTES - 4096).do()
    b = with_scratch(bench, XCC_BYTES, rest=(XCCS - 1) * XCC_BYTES)
    refused(b, FindingKind.METHOD, "scratch of 8 XCCs", "goes beyond GTT")


def test_scratch_of_an_xcc_has_room_for_its_waves(bench: Callable[..., Bench]) -> None:
    b = with_scratch(bench, XCCS * XCC_BYTES, said=XCC_BYTES // 2)
    refused(b, FindingKind.LAUNCH, f"{WAVES} waves of {WAVE_BYTES} bytes", f"has {XCC_BYTES // 2} bytes")


@pytest.mark.parametrize("offset", [0, 56, 136])
def test_firmware_finds_the_queue_behind_its_read_index(bench: Callable[..., Bench], offset: int) -> None:
    b = opened(bench)
    b.put(POINTERS + 136, offset)
    b.put(BUFFERS, *STORE)
    b.write(*buffer(BUFFERS, len(STORE)))
    refused(b, FindingKind.HOST, "read_dispatch_id_field_base_byte_offset", f"is {offset}, wanted 128")


@pytest.mark.parametrize("late", [0, 1])
def test_headers_are_stored_before_the_doorbell(bench: Callable[..., Bench], late: int) -> None:
    """The first packet of two, or the second, is still INVALID when the doorbell rings."""
    for checked in (False, True):
        b = opened(bench, checked=checked)
        b.put(BUFFERS, *predicated(STORE))
        packet = buffer(BUFFERS, 2 + len(STORE))
        b.write(*packet, *packet)
        b.put(RING + 64 * late, packet[0] & ~0xFF | 1)
        if checked:
            with pytest.raises(QueueFault, match=f"the header of packet {late:#x} is INVALID"):
                b.ring()
            continue
        b.ring()
        b.put(RING + 64 * late, packet[0])
        b.finish()
        assert b.get(DATA) == [3]
        assert ["is INVALID" in one for one in b.lints] == [True]
