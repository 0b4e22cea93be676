"""Nine streams that a permissive emulator accepts: each is refused here, and named.

They are what the authors of such an emulator, and users of drivers, met: no order, missing registers, memory
beyond its end, freed or reused too early.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import FindingKind, MemoryFault, QueueFault
from tests.emulator.amd_engines.conftest import DATA
from tests.emulator.amd_engines.loaded import KERNARG, SUMS, load
from tests.emulator.amd_engines.test_coherence import ALL, FAR, WRITTEN, acquire, first, one, refused, second
from tests.emulator.amd_engines.test_dispatch import FLUSH, launch
from tests.emulator.amd_engines.test_pm4 import release
from tests.emulator.amd_engines.test_sdma import copy, fence

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

SCRATCH_EN = 1
FLOAT_MODE = 0xF0 << 12
FREED = 0x90_0000


def submit(b: Bench, *words: int) -> None:
    b.write(*words)
    b.ring()


@pytest.mark.slow
def test_dependent_kernels_without_flush_or_acquire(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    submit(b, *first(kernel), *second(kernel))
    refused(b, FindingKind.RACE, f"{SUMS:#x}")


def test_dependent_kernels_without_an_acquire(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    submit(b, *first(kernel), *FLUSH, *second(kernel))
    refused(b, FindingKind.COHERENCE, "was not invalidated between")


@pytest.mark.slow
def test_registers_that_describe_no_vector_registers(bench: Callable[..., Bench]) -> None:
    b = bench()
    submit(b, *launch(load(b), rsrc1=FLOAT_MODE, rsrc3=0))
    refused(b, FindingKind.LAUNCH, "RSRC1 is")


def test_scratch_without_a_size(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    submit(b, 0xC0017600, 0x210, 0, *launch(kernel, rsrc2=kernel.rsrc2 | 2 << 15 | SCRATCH_EN))
    refused(b, FindingKind.LAUNCH, "SCRATCH")


def test_a_workgroup_of_2048_threads(bench: Callable[..., Bench]) -> None:
    b = bench()
    submit(b, *launch(load(b), threads=(1024, 2, 1)))
    refused(b, FindingKind.LAUNCH, "2048", "1024")


def test_a_copy_beyond_the_end_of_a_buffer(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    submit(b, *copy(DATA + 0xFF00, DATA, 0x200), *fence(DATA, 1))
    with pytest.raises(MemoryFault, match=r"not mapped; nearest: .*past the last byte"):
        b.finish()


def test_a_copy_of_what_a_kernel_is_writing(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel, copies = one(b), b.second(QueueType.SDMA)
    submit(b, *acquire(ALL), *first(kernel), *release(DATA, 1, event=WRITTEN))
    submit(copies, *copy(SUMS, FAR, 16), *fence(DATA + 64, 1))
    b.finish()
    refused(copies, FindingKind.RACE, f"{SUMS:#x}", "copy on", "kernel ")


def test_a_kernel_that_reads_a_freed_buffer(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    b.map(FREED, 4096)
    b.space.detach(b.space.buffers[FREED], "by the test")
    b.space.map.write(KERNARG, struct.pack("<QQ", SUMS, FREED))
    submit(b, *first(kernel))
    with pytest.raises(MemoryFault, match="freed by the test"):
        b.finish()


def test_arguments_that_the_next_launch_overwrites(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    submit(b, *launch(kernel))
    while "DISPATCH_DIRECT" not in b.run.at:
        b.step()
    b.space.map.write(KERNARG, struct.pack("<QQ", FAR, FAR))
    with pytest.raises(QueueFault, match=r"arguments at .* changed while their grid was running") as caught:
        b.finish()
    assert caught.value.kind is FindingKind.LIFETIME


def test_a_packet_that_stores_to_an_unmapped_address(bench: Callable[..., Bench]) -> None:
    b = bench()
    submit(b, *release(0x7000_0000, 1))
    with pytest.raises(MemoryFault, match=r"RELEASE_MEM touches .* not mapped"):
        b.finish()
