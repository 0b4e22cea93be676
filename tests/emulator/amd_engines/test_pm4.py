"""PM4 packets: what each does, and which are refused (facts: P1 to P8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import MemoryFault, QueueFault
from emulator.shared.scheduler import StepOutcome
from tests.emulator.amd_engines.conftest import BUFFERS, DATA, READ_ONLY
from tests.emulator.amd_engines.test_rings import write_data
from tests.emulator.amd_engines.test_sdma import fence

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

UNMAPPED = 0x7000_0000


def release(
    va: int, value: int, *, event: int = 0x514, select: int = 1, interrupt: int = 0, context: int = 0
) -> tuple[int, ...]:
    return (0xC0064900, event, interrupt << 24 | select << 29, va, 0, value, 0, context)


def wait(va: int, value: int, function: int = 5) -> tuple[int, ...]:
    return (0xC0053C00, function | 1 << 4, va, 0, value, 0xFFFF_FFFF, 4 | 1 << 31)


def flush_host_path(
    value: int = 0xFFFF_FFFF, *, function: int = 5, request: int = 0xD20 + 0x106, done: int = 0xD20 + 0x107
) -> tuple[int, ...]:
    """Return a WAIT_REG_MEM that writes GPU_HDP_FLUSH_REQ and waits for GPU_HDP_FLUSH_DONE."""
    return (0xC0053C00, function | 1 << 6, request, done, value, value, 4)


def indirect(va: int, words: int, flags: int = 1 << 23) -> tuple[int, ...]:
    return (0xC0023F00, va, 0, words | flags)


def test_a_release_stores_and_interrupts(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.do(*release(DATA, 41), *release(DATA + 64, 9, interrupt=2, context=9))
    assert (b.get(DATA), b.get(DATA + 64)) == ([41], [9])
    assert b.interrupts == [(9, 32)]
    assert b.lints == []


def test_a_release_stores_64_bits_and_clocks(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.do(0xC0064900, 0x514, 2 << 29, DATA, 0, 1, 2, 0, *release(DATA + 8, 0, select=3))
    assert b.get64(DATA) == 1 | 2 << 32
    assert b.get64(DATA + 8) == b.ticks


def test_a_wait_blocks_until_the_value_is_there(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.do(*wait(DATA, 5), *write_data(DATA + 4, 1))
    assert b.run.stuck
    assert b.get(DATA + 4) == [0]
    assert "WAIT_REG_MEM" in b.run.at
    assert b.run.standing().endswith(f"waits: WAIT_REG_MEM for 32 bits at {DATA:#x} GE 0x5, seen 0x0")
    b.put(DATA, 6)
    b.finish()
    assert b.get(DATA + 4) == [1]
    assert not b.run.busy


def test_indirect_buffers_run_and_return(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.put(BUFFERS, *write_data(DATA, 1), *indirect(BUFFERS + 256, 5))
    b.put(BUFFERS + 256, *write_data(DATA + 4, 2))
    b.do(*indirect(BUFFERS, 9), *write_data(DATA + 8, 3))
    assert b.get(DATA, 3) == [1, 2, 3]


def test_a_buffer_that_changes_while_it_runs_is_found(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.put(BUFFERS, *wait(DATA, 1), *write_data(DATA + 4, 1))
    b.do(*indirect(BUFFERS, 12))
    b.put(BUFFERS + 44, 99)
    b.put(DATA, 1)
    with pytest.raises(QueueFault, match="changed while"):
        b.finish()


def test_copies_fills_and_atomics_of_the_command_processor(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.put(DATA, 10, 20)
    fill = (0xC0055000, 1 << 31 | 2 << 29, 0x5A5A5A5A, 0, DATA + 64, 0, 16)
    copy = (0xC0055000, 1 << 31, DATA, 0, DATA + 128, 0, 8)
    b.do(
        0xC0044000, 1 | 5 << 8 | 1 << 16, DATA, 0, DATA + 8, 0,  # COPY_DATA, 64 bits
        0xC0071E00, 15, DATA, 0, 7, 0, 0, 0, 0,  # ATOMIC_MEM, add 32
        *fill, *copy,
    )  # fmt: skip
    assert b.get(DATA, 4) == [17, 20, 10, 20]
    assert b.get(DATA + 64, 4) == [0x5A5A5A5A] * 4
    assert b.get(DATA + 128, 2) == [17, 20]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((0xC000FF00, 0), "0xff"),
        ((0x00000000,), "of type 0"),
        ((0xC0064900, 0x514), "8 dwords, 2 are left"),
        ((0xC0055800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10), "ACQUIRE_MEM has 7 dwords, gfx11 has 8"),
        ((0xC0003C00, 0), "WAIT_REG_MEM has 2"),
        (indirect(BUFFERS, 4, 0), "VALID 0"),
        (indirect(BUFFERS, 0), "is empty"),
        (indirect(BUFFERS + 2, 4), "aligned to 4"),
        ((0xC0002300, 1 << 24 | 2, 0xFFFF1000, 0xFFFF1000), "PRED_EXEC in the ring"),
        (release(DATA + 2, 1), "aligned to 4"),
        (release(DATA + 4, 1, select=2), "aligned to 8"),
        (release(DATA, 1, event=0x507), "RELEASE_MEM with event"),
        (release(DATA, 1, event=0x614), "RELEASE_MEM with event"),
        (release(DATA, 1, event=0x1514), "GLM_WB without GLM_INV"),
        (release(DATA, 1, event=0x80000514), "bit 31 of word 1"),
        (release(DATA, 1, select=5), "DATA_SEL"),
        ((0xC0053C00, 5, 0xE26, 0xE27, 1, 1, 4), "with WAIT of REGISTER"),
        ((0xC0053C00, 5 | 1 << 4 | 1 << 6, DATA, 0, 1, 1, 4), "with WRITE_WAIT_WRITE of MEMORY"),
        (flush_host_path(request=0x106, done=0x107), "registers 0x106"),
        (flush_host_path(request=0xE27, done=0xE26), "registers 0xe27"),
        (flush_host_path(function=6), "never ends"),
        (wait(DATA + 1, 1), "aligned to 4"),
        ((0xC0017600, 0x400, 0), "SH registers end"),
        ((0xC0017600, 0x214, 0), "COMPUTE_VMID"),
        ((0xC0017900, 0x10, 0), "GRBM_GFX_INDEX only"),
        ((0xC0004600, 0x416), "EVENT_WRITE"),
        ((0xC0031500, 1, 1, 1, 0x8005), "before COMPUTE_NUM_THREAD_X"),
        ((0xC0031500, 1, 1, 1, 0x8004), "COMPUTE_SHADER_EN"),
        ((0xC0033700, 0, DATA, 0, 1), "WRITE_DATA to"),
        ((0xC0071E00, 99, DATA, 0, 7, 0, 0, 0, 0), "no atomic operation 99"),
    ],
)  # fmt: skip
def test_a_bad_packet_stops_the_queue_by_name(
    bench: Callable[..., Bench], words: tuple[int, ...], text: str
) -> None:
    b = bench()
    with pytest.raises(QueueFault, match=text):
        b.do(*words)


def test_a_release_needs_an_end_of_pipe_buffer(bench: Callable[..., Bench]) -> None:
    b = bench(eop=0)
    with pytest.raises(QueueFault, match="end-of-pipe"):
        b.do(*release(DATA, 1))


@pytest.mark.parametrize(("va", "writes", "not_present"), [(UNMAPPED, True, True), (READ_ONLY, True, False)])
def test_a_store_that_the_page_tables_refuse_is_a_memory_fault(
    bench: Callable[..., Bench], va: int, *, writes: bool, not_present: bool
) -> None:
    b = bench()
    with pytest.raises(MemoryFault) as caught:
        b.do(*release(va, 1))
    assert (caught.value.address, caught.value.writes, caught.value.not_present) == (va, writes, not_present)
    assert "RELEASE_MEM" in b.run.at


def test_packets_of_gfx9_have_their_own_lengths(bench: Callable[..., Bench]) -> None:
    b = bench(name="gfx942")
    b.do(0xC0055800, 1 << 29 | 1 << 23, 0xFFFFFFFF, 0xFF, 0, 0, 10)
    with pytest.raises(QueueFault, match="has 8 dwords, gfx9 has 7"):
        b.do(0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10, 0)


def test_queues_that_wait_for_each_other_are_named(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.do(*wait(DATA, 3), *release(DATA, 3))
    assert b.step() is StepOutcome.BLOCKED
    found = b.engines.endless_waits([b.run])
    assert list(found) == [b.run]
    assert "itself" in found[b.run]


def test_a_queue_may_signal_more_than_it_waits_for(bench: Callable[..., Bench]) -> None:
    """One timeline of two queues: the host submits the value between to a copy queue, later."""
    b = bench()
    copies = b.second(QueueType.SDMA)
    b.do(*wait(DATA, 59), *release(DATA, 60))
    assert b.step() is StepOutcome.BLOCKED
    assert b.engines.endless_waits([b.run]) == {}
    copies.do(*fence(DATA, 59))
    b.finish()
    assert b.get(DATA) == [60]


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201", "gfx942"])
def test_the_host_data_path_is_flushed_by_its_registers(bench: Callable[..., Bench], name: str) -> None:
    b = bench(name=name)
    b.do(*flush_host_path(), *flush_host_path(1, function=3), *write_data(DATA, 1))
    assert (b.hdp_flushes, b.get(DATA), b.lints) == (2, [1], [])


@pytest.mark.parametrize(("size", "notes"), [(0xFF, 0), (0x01FF_FFFF, 1), (0xFFFF_FFFF, 1)])
def test_more_than_8_bits_of_the_size_of_an_acquire_are_advice(
    bench: Callable[..., Bench], size: int, notes: int
) -> None:
    for name, words in (("gfx1100", (0xC0065800, 0, 0xFFFFFFFF, size, 0, 0, 10, 1)),
                        ("gfx942", (0xC0055800, 1 << 23, 0xFFFFFFFF, size, 0, 0, 10))):  # fmt: skip
        b = bench(name=name)
        b.do(*words, *write_data(DATA, 1))
        assert b.get(DATA) == [1]
        assert len(b.lints) == notes
    with pytest.raises(QueueFault, match="of a range"):
        bench().do(0xC0065800, 0, 0xFFFFFFFF, 0x7F, 0, 0, 10, 1)


@pytest.mark.parametrize("bits", [1 << 12, 1 << 13, 1 << 15, 0xB000])
def test_cache_bits_that_gfx12_ignores_are_advice(bench: Callable[..., Bench], bits: int) -> None:
    b = bench(name="gfx1201")
    b.do(*release(DATA, 1, event=0x514 | bits))
    assert b.get(DATA) == [1]
    assert ["gfx12 ignores" in one for one in b.lints] == [True]
