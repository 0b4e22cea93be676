"""SDMA packets: what each does, and which are refused (facts: S1 to S9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import MemoryFault, QueueFault
from tests.emulator.amd_engines.conftest import BUFFERS, DATA, READ_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

FAR = DATA + 0x8000


def copy(source: int, target: int, size: int) -> tuple[int, ...]:
    return (1, size - 1, 0, source, 0, target, 0)


def fence(va: int, value: int) -> tuple[int, ...]:
    return (5 | 3 << 16, va, 0, value)


def fill(va: int, value: int, count: int, size: int = 2) -> tuple[int, ...]:
    return (11 | size << 30, va, 0, value, count)


def padded(*words: int) -> tuple[int, ...]:
    return words + (0,) * (-len(words) % 8)


def test_copies_and_fills_are_done_when_the_fence_is_written(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    b.put(DATA, *range(100))
    b.do(*copy(DATA, FAR, 399), *fill(FAR + 512, 7, 12), *fence(DATA + 1024, 3))
    assert b.get(FAR, 99) == list(range(99))
    assert b.get(FAR + 512, 5) == [7, 7, 7, 7, 0]
    assert b.get(DATA + 1024) == [3]


def test_a_fence_never_comes_before_a_copy(bench: Callable[..., Bench]) -> None:
    for seed in range(20):
        b = bench(QueueType.SDMA, seed=seed)
        b.put(DATA, 5)
        b.write(*copy(DATA, FAR, 4), *fence(DATA + 64, 1))
        b.ring()
        while b.get(DATA + 64) == [0]:
            b.step()
        assert b.get(FAR) == [5]


def test_a_write_may_come_before_a_copy(bench: Callable[..., Bench]) -> None:
    orders = set()
    for seed in range(40):
        b = bench(QueueType.SDMA, seed=seed)
        b.put(DATA, 5)
        b.write(*copy(DATA, FAR, 4), 2, DATA + 64, 0, 0, 1)
        b.ring()
        while b.get(DATA + 64) == [0]:
            b.step()
        orders.add(b.get(FAR)[0])
        b.finish()
    assert orders == {0, 5}


def test_polls_timestamps_atomics_and_traps(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    poll = (8 | 5 << 28 | 1 << 31, DATA, 0, 2, 0xFFFF_FFFF, 4 | 0xFFF << 16)
    b.do(
        *poll, 13 | 2 << 8, DATA + 32, 0,
        10 | 47 << 25, DATA + 64, 0, 3, 0, 0, 0, 0, 6, 11,
    )  # fmt: skip
    assert b.run.stuck
    b.put(DATA, 2)
    b.finish()
    assert b.get64(DATA + 32) == b.ticks
    assert b.get64(DATA + 64) == 3
    assert b.interrupts == [(11, 28)]


def test_a_queue_with_nothing_but_nops_left_is_busy_and_finished(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    b.write(*fence(DATA, 1), 2 << 16, 0, 0, 0)
    b.ring()
    while b.get(DATA) == [0]:
        assert b.run.unfinished
        b.step()
    assert (b.run.busy, b.run.unfinished) == (True, False)
    b.write(*fence(DATA, 2))
    b.ring()
    assert b.run.unfinished
    b.finish()
    assert (b.run.busy, b.run.unfinished) == (False, False)


def test_indirect_packets_run(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    b.put(BUFFERS, *padded(*fence(DATA, 4)))
    b.do(0, 0, 4, BUFFERS, 0, 8, 0, 0)
    assert b.get(DATA) == [4]


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("gfx1100", (33,), "operation 0x21"),
        ("gfx1100", (12, 0, 0), "no packet of SDMA 6"),
        ("gfx942", (17, 0, 0, 0, 0), "no packet of SDMA 4"),
        ("gfx942", copy(DATA, FAR, 1 + (1 << 22)), "bit 22 of word 1"),
        ("gfx942", fence(DATA, 1), "bit 16 of word 0"),
        ("gfx1201", (1 | 1 << 19, 3, 0, DATA, 0, FAR, 0), "DCC"),
        ("gfx1100", fill(DATA, 1, 3), "dwords are filled"),
        ("gfx1100", fill(DATA, 1, 4, 0), "dwords are filled"),
        ("gfx1100", fence(DATA + 2, 1), "aligned to 4"),
        ("gfx1100", (13 | 2 << 8, DATA + 4, 0), "aligned to 8"),
        ("gfx1100", (6, 1 << 28), "bit 28 of word 1"),
        ("gfx1100", (0, 0, 4, BUFFERS + 4, 0, 8, 0, 0), "not aligned to 32"),
        ("gfx1100", (0, 0, 4, BUFFERS, 0, 7, 0, 0), "no multiple of 8"),
        ("gfx1100", (4, BUFFERS, 0, 8, 0, 0, 0, 0), "ends at 6"),
        ("gfx1100", (8 | 5 << 28, 4, 0, 2, 1, 4 | 0xFFF << 16), "polls? memory"),
        ("gfx1100", (8 | 5 << 28 | 1 << 31, DATA, 0, 2, 0xFFFFFFFF, 4 | 3 << 16), "gave up"),
        ("gfx1100", (10 | 3 << 25, DATA, 0, 1, 0, 0, 0, 0), "no atomic operation 3"),
        ("gfx1100", (1, 3, 0), "7 dwords, 3 are left"),
    ],
)
def test_a_bad_packet_stops_the_queue_by_name(
    bench: Callable[..., Bench], name: str, words: tuple[int, ...], text: str
) -> None:
    b = bench(QueueType.SDMA, name)
    b.write(*words)
    b.ring()
    with pytest.raises(QueueFault, match=text):
        b.repeat(50)


@pytest.mark.parametrize(
    "words",
    [copy(0x7000_0000, DATA, 4), copy(DATA, READ_ONLY, 4), fill(DATA + 0xFFFC, 1, 4), fence(READ_ONLY, 1)],
)
def test_accesses_that_the_page_tables_refuse_are_memory_faults(
    bench: Callable[..., Bench], words: tuple[int, ...]
) -> None:
    b = bench(QueueType.SDMA)
    with pytest.raises(MemoryFault):
        b.do(*words)


def test_overlapping_ranges_of_a_copy_are_advised_against(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    b.do(*copy(DATA, DATA + 4, 64))
    assert any("overlap" in text for text in b.lints)


@pytest.mark.parametrize(
    ("name", "mtype", "legal"), [("gfx1100", 3, True), ("gfx1100", 0, False), ("gfx942", 0, True)]
)
def test_a_fence_is_uncached_where_its_packet_says_so(
    bench: Callable[..., Bench], name: str, mtype: int, *, legal: bool
) -> None:
    b = bench(QueueType.SDMA, name, checked=True)
    b.write(5 | mtype << 16, DATA, 0, 7)
    b.ring()
    if legal:
        b.finish()
        assert b.get(DATA) == [7]
    else:
        with pytest.raises(QueueFault, match="MTYPE 0"):
            b.finish()


def test_the_host_data_path_is_flushed_by_registers_and_by_a_constant(bench: Callable[..., Bench]) -> None:
    """What Linux sends: DONE and REQ in bytes; what ROCr sends names no register."""
    done, request = 4 * (0xD20 + 0x107), 4 * (0xD20 + 0x106)
    b = bench(QueueType.SDMA)
    b.do(8 | 1 << 26 | 3 << 28, done, request, 4, 4, 0xFFF << 16 | 10, *fence(DATA, 1))
    assert (b.hdp_flushes, b.get(DATA)) == (1, [1])
    b.do(8, 0, 0x8000_0000, 0, 0, 0, *fence(DATA, 2))
    assert b.get(DATA) == [2]
    with pytest.raises(QueueFault, match="GPU_HDP_FLUSH_DONE"):
        b.do(8 | 1 << 26 | 3 << 28, request, done, 4, 4, 0xFFF << 16 | 10)
