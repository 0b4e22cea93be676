"""Missing cache maintenance and races between queues: each told by name; correct streams are not."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import FindingKind, QueueFault
from emulator.ir.report import ReportKind, parse
from tests.emulator.amd_engines.conftest import BUFFERS, DATA
from tests.emulator.amd_engines.loaded import CODE, KERNARG, NO_INPUTS, SUMS, VALUES, Loaded, load
from tests.emulator.amd_engines.test_aql import buffer, dispatch, opened
from tests.emulator.amd_engines.test_dispatch import FLUSH, launch
from tests.emulator.amd_engines.test_pm4 import release, wait
from tests.emulator.amd_engines.test_sdma import copy, fence
from tests.emulator.amd_isa import ir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_engines.conftest import Bench

SECOND = KERNARG + 64
FAR = DATA + 0x8000
GLK, GLV, GL1, GL2_INV, GL2_WB = 1 << 7, 1 << 8, 1 << 9, 1 << 14, 1 << 15
LOCAL = GLK | GLV | GL1
ALL = LOCAL | GL2_INV | GL2_WB
WRITTEN = 0x514 | 1 << 21
"""Words of a release with GL2_WB."""
SYSTEM_ACQUIRE, SYSTEM_RELEASE, BARRIER = 2 << 9, 2 << 11, 1 << 8


def acquire(caches: int, size: int = 0xFFFF_FFFF) -> tuple[int, ...]:
    return (0xC0065800, 0, size, 0xFF, 0, 0, 10, caches)


def one(b: Bench, name: str = "gfx1100") -> Loaded:
    """Load the kernel twice over: the second arguments sum what the first launch stored."""
    kernel = load(b, name)
    b.space.map.write(SECOND, struct.pack("<QQ", FAR, SUMS))
    return kernel


def first(kernel: Loaded) -> tuple[int, ...]:
    return launch(kernel, groups=(1, 1, 1))


def second(kernel: Loaded) -> tuple[int, ...]:
    return launch(kernel, groups=(1, 1, 1), user=(SECOND, 0))


def refused(b: Bench, kind: FindingKind, *texts: str, rung: bool = False) -> None:
    """Ring the doorbell, unless it was `rung`, and check the fault of the queue."""
    if not rung:
        b.ring()
    with pytest.raises(QueueFault) as caught:
        b.finish()
    assert caught.value.kind is kind
    for text in texts:
        assert text in caught.value.message


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_what_was_stored_since_is_not_loaded_without_an_acquire(
    bench: Callable[..., Bench], name: str
) -> None:
    b = bench(name=name, checked=True)
    kernel = one(b, name)
    b.write(*first(kernel), *FLUSH, *acquire(GLK), *second(kernel))
    refused(
        b, FindingKind.COHERENCE, "the vector caches", "GLV_INV", "global_load", f"{SUMS:#x}", "global_store"
    )


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_an_acquire_between_dependent_kernels_is_enough(bench: Callable[..., Bench], name: str) -> None:
    b = bench(name=name, checked=True)
    kernel = one(b, name)
    caches = LOCAL if name == "gfx1100" else GLK | GLV
    b.do(*first(kernel), *FLUSH, *acquire(caches), *second(kernel), *release(DATA, 1, event=WRITTEN))
    assert b.get(DATA) == [1]


def test_gl1_is_part_of_the_vector_caches_of_gfx11(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    b.write(*first(kernel), *FLUSH, *acquire(GLK | GLV), *second(kernel))
    refused(b, FindingKind.COHERENCE, "the vector caches", "GL1_INV")


def test_an_acquire_before_its_kernel_is_over_counts_for_nothing(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    b.write(*first(kernel), *acquire(LOCAL), *FLUSH, *second(kernel))
    refused(b, FindingKind.COHERENCE, "the vector caches")


def test_kernels_that_depend_on_each_other_without_a_flush_race(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    b.write(*first(kernel), *acquire(LOCAL), *second(kernel))
    refused(b, FindingKind.RACE, "global_load", "global_store", f"{SUMS:#x}")


def test_arguments_that_the_host_changed_are_not_loaded_without_an_acquire(
    bench: Callable[..., Bench],
) -> None:
    b = bench(checked=True)
    kernel = one(b)
    b.do(*first(kernel), *release(DATA, 1, event=WRITTEN))
    b.space.map.write(KERNARG, struct.pack("<QQ", FAR, VALUES))
    b.write(*acquire(GLV | GL1), *first(kernel))
    refused(
        b, FindingKind.COHERENCE, "the scalar cache", "s_load", f"{KERNARG + 1:#x}", "the host", "GLK_INV"
    )


def test_the_scalar_cache_holds_whole_lines(bench: Callable[..., Bench]) -> None:
    """Arguments beside those of an earlier kernel, 64 bytes to a line."""
    for caches, apart, stale in ((GLV | GL1, 32, True), (GLV | GL1, 64, False), (LOCAL, 32, False)):
        b = bench(checked=True)
        kernel = one(b)
        b.do(*first(kernel), *release(DATA, 1, event=WRITTEN))
        b.space.map.write(KERNARG + apart, struct.pack("<QQ", FAR, VALUES + 1024))
        b.write(*acquire(caches), *launch(kernel, groups=(1, 1, 1), user=(KERNARG + apart, 0)))
        if stale:
            refused(b, FindingKind.COHERENCE, "the scalar cache", "s_load", "the host", "GLK_INV")
        else:
            b.do()


def test_the_l2_holds_what_a_copy_engine_overwrote(bench: Callable[..., Bench]) -> None:
    for caches, stale in ((LOCAL, True), (ALL, False)):
        b = bench(checked=True)
        kernel, copies = one(b), b.second(QueueType.SDMA)
        copies.do(*copy(FAR, VALUES, 1024), *fence(DATA, 1))
        b.write(*wait(DATA, 1), *acquire(caches), *first(kernel))
        if stale:
            refused(b, FindingKind.COHERENCE, "the L2", "GL2_INV", "copy on", f"{VALUES:#x}")
        else:
            b.do()


def dma(source: int, target: int, size: int, *, l2: bool) -> tuple[int, ...]:
    """DMA_DATA, waiting for its end: through the L2, or past it."""
    how = 1 << 31 | (3 << 29 | 3 << 20 if l2 else 0)
    return (0xC0055000, how, source & 0xFFFF_FFFF, source >> 32, target & 0xFFFF_FFFF, target >> 32, size)


def test_a_copy_through_the_l2_is_seen_by_kernels_of_the_gpu(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    b.do(*dma(VALUES, SUMS, 256, l2=True), *acquire(LOCAL), *second(kernel), *release(DATA, 1, event=WRITTEN))
    assert b.get(DATA) == [1]


def test_a_copy_through_the_l2_sees_what_kernels_of_the_gpu_stored(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    b.do(*first(kernel), *FLUSH, *dma(SUMS, FAR, 4, l2=True), *release(DATA, 1, event=WRITTEN))
    assert b.get(DATA) == [1]


def test_what_a_kernel_stores_replaces_what_the_l2_held(bench: Callable[..., Bench]) -> None:
    """The sums are loaded, stored by the same GPU, and loaded again."""
    b = bench(checked=True)
    kernel = one(b)
    again = (*FLUSH, *acquire(LOCAL))
    b.do(*second(kernel), *again, *first(kernel), *again, *second(kernel), *release(DATA, 1, event=WRITTEN))
    assert b.get(DATA) == [1]


def bytes_of_dwords(b: Bench) -> Loaded:
    """Load a kernel that loads dwords and stores the highest byte of each; arguments as those of `one`."""
    lines = (
        "%p = getelementptr i32, ptr addrspace(1) %a, i32 %i",
        "%x = load i32, ptr addrspace(1) %p",
        "%h = lshr i32 %x, 24",
        "%b = trunc i32 %h to i8",
        "%q = getelementptr i8, ptr addrspace(1) %o, i32 %i",
        "store i8 %b, ptr addrspace(1) %q",
        "ret void",
    )
    head = f"define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {NO_INPUTS} {{"
    kernel = load(b, text="\n".join((ir.HEAD, head, ir.INDEX, *lines, "}", "")))
    b.space.map.write(SECOND, struct.pack("<QQ", FAR, SUMS))
    return kernel


def test_bytes_that_a_kernel_stores_replace_what_the_l2_held(bench: Callable[..., Bench]) -> None:
    """Dwords are loaded, bytes of them stored by the same GPU, and the dwords loaded again."""
    b = bench(checked=True)
    kernel = bytes_of_dwords(b)
    again = (*FLUSH, *acquire(LOCAL))
    b.do(*second(kernel), *again, *first(kernel), *again, *second(kernel), *release(DATA, 1, event=WRITTEN))
    assert b.get(DATA) == [1]
    assert b.get(SUMS + 64) == [0x42424242]


def test_stores_of_bytes_do_not_hide_that_the_l2_is_older_than_a_copy(bench: Callable[..., Bench]) -> None:
    for beside in (False, True):
        b = bench(checked=True)
        kernel, again = bytes_of_dwords(b), (*FLUSH, *acquire(LOCAL))
        b.do(*second(kernel), *again, *release(DATA, 1, event=WRITTEN))
        past, third = dma(VALUES, SUMS + 512, 256, l2=False), first(kernel)
        b.write(*((*third, *past) if beside else (*past, *third)), *again, *second(kernel))
        refused(b, FindingKind.COHERENCE, "the L2", "GL2_INV", f"{SUMS + 512:#x}")


def test_a_copy_past_the_l2_is_not_seen_without_an_acquire(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = one(b)
    b.write(*dma(VALUES, SUMS, 256, l2=False), *acquire(LOCAL), *second(kernel))
    refused(b, FindingKind.COHERENCE, "the L2", "GL2_INV")


def test_a_copy_engine_does_not_see_what_was_not_written_back(bench: Callable[..., Bench]) -> None:
    for event, stale in ((0x528, True), (WRITTEN, False)):
        b = bench(checked=True)
        kernel, copies = one(b), b.second(QueueType.SDMA)
        visible = release(DATA, 1, event=event) if not stale else release(DATA, 0, event=event, select=3)
        b.do(*first(kernel), *visible)
        copies.write(*(0x8 | 5 << 28 | 1 << 31, DATA, 0, 1, 0xFFFF_FFFF, 4 | 0xFFF << 16))
        copies.write(*copy(SUMS, FAR, 16))
        if stale:
            refused(copies, FindingKind.COHERENCE, "reads or overwrites", f"{SUMS:#x}", "GL2_WB")
        else:
            copies.do()
            assert b.get(FAR) == b.get(SUMS)


def test_a_release_to_the_host_writes_the_l2_back(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    b.write(*first(one(b)), *release(DATA, 1))
    refused(b, FindingKind.COHERENCE, "RELEASE_MEM releases", "GL2_WB")


def test_a_copy_and_a_kernel_that_nothing_orders_race(bench: Callable[..., Bench]) -> None:
    for kernel_first in (True, False):
        b = bench(checked=True)
        kernel, copies = one(b), b.second(QueueType.SDMA)
        b.write(*acquire(ALL), *first(kernel), *release(DATA, 1, event=WRITTEN))
        copies.write(*copy(FAR, VALUES, 1024), *fence(DATA + 64, 1))
        b.ring()
        copies.ring()
        earlier, later = (b, copies) if kernel_first else (copies, b)
        earlier.finish()
        refused(later, FindingKind.RACE, f"{VALUES:#x}", "copy on", "kernel ", rung=True)


def test_a_doorbell_comes_after_what_the_host_saw_done(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel, copies = one(b), b.second(QueueType.SDMA)
    copies.do(*copy(FAR, VALUES, 1024), *fence(DATA + 64, 1))
    b.do(*acquire(ALL), *first(kernel), *release(DATA, 1, event=WRITTEN))
    copies.do(*copy(SUMS, FAR, 16), *fence(DATA + 64, 2))
    assert b.get(DATA + 64) == [2]


def test_an_acquire_of_a_range_is_refused(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.write(*acquire(ALL, 0x100))
    refused(b, FindingKind.UNSUPPORTED, "ACQUIRE_MEM", "range")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first_header", "second_header", "texts"),
    [
        (
            2 | BARRIER | SYSTEM_ACQUIRE | SYSTEM_RELEASE,
            2 | BARRIER | SYSTEM_RELEASE,
            ("was not invalidated",),
        ),
        (2 | BARRIER | SYSTEM_ACQUIRE, 2 | BARRIER | SYSTEM_ACQUIRE, ("was not written back",)),
    ],
)
def test_fence_scopes_of_aql_packets_order_the_l2s_of_xccs(
    bench: Callable[..., Bench], first_header: int, second_header: int, texts: tuple[str, ...]
) -> None:
    b = opened(bench, checked=True)
    video(b)
    kernel = one(b, "gfx942")
    b.write(*dispatch(kernel, grid=256, header=first_header))
    b.write(*dispatch(kernel, grid=256, header=second_header, kernarg=SECOND))
    refused(b, FindingKind.COHERENCE, f"{SUMS:#x}", *texts)


def test_agent_scopes_suffice_between_kernels_of_one_gpu(bench: Callable[..., Bench]) -> None:
    b = opened(bench, checked=True)
    video(b)
    kernel, agent = one(b, "gfx942"), 2 | BARRIER | 1 << 9 | 1 << 11
    b.do(*dispatch(kernel, grid=256, header=agent), *dispatch(kernel, grid=256, header=agent, kernarg=SECOND))
    assert sum(b.launches.values()) == 2


def test_an_acquire_by_one_xcc_does_not_reach_the_others(bench: Callable[..., Bench]) -> None:
    for predicate, stale in ((1, True), (0xFF, False)):
        b = opened(bench, checked=True)
        video(b)
        kernel = one(b, "gfx942")
        caches = 1 << 18 | 1 << 22 | 1 << 23 | 1 << 27
        b.put(BUFFERS, 0xC0002300, predicate << 24 | 7, 0xC0055800, caches, 0xFFFF_FFFF, 0xFF, 0, 0, 10)
        b.write(*dispatch(kernel, grid=256, header=2 | BARRIER | SYSTEM_ACQUIRE | SYSTEM_RELEASE))
        packet = buffer(BUFFERS, 9)
        b.write(packet[0] & ~(3 << 9), *packet[1:])
        b.write(*dispatch(kernel, grid=256, header=2 | BARRIER | SYSTEM_RELEASE, kernarg=SECOND))
        if stale:
            refused(b, FindingKind.COHERENCE, "was not invalidated")
        else:
            b.do()


def video(b: Bench) -> None:
    """Let all memory be the GPU's own, which its L2s hold."""
    for mapped in b.space.buffers.values():
        mapped.kind = type(mapped.kind).VRAM


def test_waits_that_machine_code_lacks_are_findings_of_the_launch(bench: Callable[..., Bench]) -> None:
    b = bench()
    kernel = load(b)
    code = bytearray(b.space.map.read(CODE, 512))
    at = next(i for i in range(0, 512, 4) if code[i + 2 : i + 4] == b"\x89\xbf")  # s_waitcnt
    code[at : at + 4] = b"\0\0\x80\xbf"  # s_nop
    b.space.map.write(CODE, code)
    b.write(*first(kernel))
    b.ring()
    with pytest.raises(QueueFault) as caught:
        b.finish()
    assert caught.value.kind is FindingKind.KERNEL
    found = [report for report, _ in parse(caught.value.message)]
    assert {one.kind for one in found} == {ReportKind.MISSING_WAIT}
    assert all(f"pc {CODE + one.line:#x}" in caught.value.message for one in found)
    assert "lgkmcnt" in found[0].other


def test_a_barrier_that_machine_code_lacks_is_a_race(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    kernel = load(b)
    code = b.space.map.read(CODE, 1024).replace(b"\0\0\xbd\xbf", b"\0\0\x80\xbf")
    b.space.map.write(CODE, code)
    b.write(*acquire(ALL), *first(kernel))
    refused(b, FindingKind.KERNEL, "shared")


def test_a_wait_for_a_value_that_has_passed_never_ends(bench: Callable[..., Bench]) -> None:
    b = bench(checked=True)
    b.do(*release(DATA, 1), *release(DATA, 2))
    b.do(*wait(DATA, 1, function=3))
    assert "has passed" in b.engines.endless_waits([b.run])[b.run]
