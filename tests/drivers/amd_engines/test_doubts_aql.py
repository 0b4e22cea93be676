"""What works by luck on eight XCCs: refused where all is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.emu.machine.reports import Kind
from tests.drivers.amd_engines.conftest import BUFFERS, DATA, RING
from tests.drivers.amd_engines.loaded import load
from tests.drivers.amd_engines.test_aql import buffer, dispatch, opened
from tests.drivers.amd_engines.test_coherence import refused
from tests.drivers.amd_engines.test_pm4 import release
from tests.drivers.amd_engines.test_rings import write_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.drivers.amd_engines.conftest import Bench

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
    b.ring()
    refused(b, Kind.METHOD, packet, text)


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
    b.ring()
    refused(b, Kind.METHOD, "KernelDispatch", "without a barrier bit behind", "Pm4Ib")


def test_pm4_without_a_barrier_bit_behind_a_kernel_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    words = predicated(TOLD)
    b.put(BUFFERS, *words)
    packet = buffer(BUFFERS, len(words))
    b.write(*dispatch(load(b, "gfx942")), packet[0] & ~BARRIER, *packet[1:])
    b.ring()
    refused(b, Kind.METHOD, "Pm4Ib", "without a barrier bit behind", "KernelDispatch")


def test_a_grid_that_ends_within_no_time_limit_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    b.write(*dispatch(load(b, "gfx942"), threads=1, grid=0xFFFF_FFFF))
    b.ring()
    refused(b, Kind.METHOD, "4294967295", "time limit")


def test_a_queue_at_an_invalid_header_is_halted_until_there_is_another(bench: Callable[..., Bench]) -> None:
    b = opened(bench)
    b.put(BUFFERS, *STORE)
    packet = buffer(BUFFERS, len(STORE))
    b.do(1, *packet[1:])
    assert (b.run.halted, b.run.stuck) == (True, False)
    b.put(RING, packet[0])
    b.finish()
    assert (b.run.halted, b.get(DATA)) == (False, [3])


def test_a_grid_that_is_smaller_than_a_workgroup_is_a_doubt(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    b.write(*dispatch(load(b, "gfx942"), threads=256, grid=255))
    b.ring()
    refused(b, Kind.METHOD, "not smaller than a workgroup", "(256, 1, 1)", "(255, 1, 1)")
