"""Races between queues: each is reported, and none if the work is ordered."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.dma import DmaMethod
from drivers.nv.layouts.host import SemOperation
from emulator.ir.library import Sanitizers
from emulator.nv.machine import FindingKind
from emulator.shared.vaspace import AccessKind
from emulator.shared.waits import Releases, VectorClock
from tests.emulator.nv_machine.client import Client, method, sem, wait_word
from tests.emulator.nv_machine.launching import (
    HEAD,
    STORE,
)
from tests.emulator.nv_machine.rig import GEQ, Rig

if TYPE_CHECKING:
    from emulator.shared.waits import SemaphoreStore

MORE = """
.visible .entry read(.param .u64 at) {
 .reg .b32 %r<2>; .reg .b64 %d<2>;
 ld.param.u64 %d0, [at]; ld.global.u32 %r0, [%d0];
 st.global.u32 [%d0+1024], %r0; ret;
}
.visible .entry count(.param .u64 at) {
 .reg .b32 %r<2>; .reg .b64 %d<2>;
 ld.param.u64 %d0, [at];
 atom.global.add.u32 %r0, [%d0], 1; ret;
}
.visible .entry await_one(.param .u64 at) {
 .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p;
 ld.param.u64 %d0, [at];
L: atom.global.add.u32 %r0, [%d0], 0; setp.eq.u32 %p, %r0, 0; @%p bra L; ret;
}
.visible .entry poll(.param .u64 at) {
 .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p;
 ld.param.u64 %d0, [at];
L: ld.acquire.sys.global.u32 %r0, [%d0]; setp.eq.u32 %p, %r0, 0; @%p bra L; ret;
}
.visible .entry tell(.param .u64 at) {
 .reg .b64 %d<2>;
 ld.param.u64 %d0, [at]; st.release.sys.global.u32 [%d0], 1; ret;
}
"""

Make = Callable[..., Client]


def store(two: Rig, at: int) -> list[int]:
    return two.launch("store", at, value=7)


def upload(two: Rig, at: int) -> list[int]:
    return two.upload(at, 5, flags=0x41)


def push(two: Rig, kernels: list[int], copies: list[int]) -> None:
    """Write both doorbells before either channel runs."""
    with two.client.machine.lock:
        two.launcher.ring.push(kernels)
        two.copies.push(copies)


def races(two: Rig) -> Sequence[str]:
    """Return the reported races, once both channels are done or one was stopped."""
    rings = (two.launcher.ring, two.copies)
    while not any(r.error() for r in rings):
        if struct.unpack_from("<QQQ", two.signals.view)[::2] == (1, 1):
            break
    return two.told(FindingKind.RACE)


@pytest.fixture
def two(make: Make) -> Rig:
    return Rig(make(checks=Sanitizers.all()).up(), MORE)


@pytest.mark.parametrize("pair", [(128, 0), (0, 128)], ids=["written twice", "read and written"])
def test_a_kernel_and_a_copy_that_nothing_orders_are_reported(two: Rig, pair: tuple[int, int]):
    source, target = (256, 0) if pair[0] == 128 else (0, 128)
    push(two, store(two, 0) + two.done(0), two.copy(source, target) + two.done(1))
    (text,) = races(two)[:1]
    assert f"{two.data.va:#x}" in text
    assert "kernel store" in text
    assert "transfer" in text


def test_a_semaphore_between_them_orders_them(two: Rig):
    push(two, store(two, 0) + two.done(0), two.wait(0) + two.copy(0, 128) + two.done(1))
    wait_word(two.signals, 16, 1, two.client)
    assert two.client.kernel.reports == []
    assert struct.unpack_from("<I", two.data.view, 128)[0] == 7


def test_a_release_that_does_not_wait_for_the_engine_orders_nothing(two: Rig):
    early = sem(two.signals.va, 1)
    push(two, store(two, 0) + early + two.done(2), two.wait(0) + two.copy(0, 128) + two.done(1))
    while not two.client.kernel.reports:
        pass
    assert two.client.kernel.reports[0].kind is FindingKind.RACE


def test_another_address_of_the_same_semaphore_orders_too(two: Rig):
    elsewhere = 0x7_0000_0000
    two.client.map_gpu(two.signals.handle, elsewhere, len(two.signals.view))
    wait = sem(elsewhere, 1, GEQ)
    push(two, store(two, 0) + two.done(0), wait + two.copy(0, 128) + two.done(1))
    wait_word(two.signals, 16, 1, two.client)
    assert two.client.machine.fatal == []


def test_the_end_of_a_wait_that_no_release_made_true_orders_nothing(two: Rig):
    """The host stored the value of a release that has not executed yet."""
    two.signals.view[32:36] = struct.pack("<I", 1)
    push(two, two.wait(2) + store(two, 0) + two.done(0), two.copy(256, 0) + two.done(2) + two.done(1))
    (text,) = races(two)[:1]
    assert "kernel store" in text
    assert "transfer" in text


def test_a_gate_that_the_host_opens_orders_nothing(two: Rig):
    """The kernel is done then, but it is unknown whether the host observed it."""
    push(two, store(two, 0) + two.done(0), two.wait(2) + two.copy(0, 128) + two.done(1))
    wait_word(two.signals, 0, 1, two.client)
    two.signals.view[32:36] = struct.pack("<I", 1)
    (text,) = races(two)[:1]
    assert "kernel store" in text
    assert "transfer" in text


def test_a_wait_is_not_ordered_after_later_releases_of_its_semaphore(two: Rig):
    """The copy is over when the kernel begins to wait, but the kernel does not wait for it."""
    early, late = sem(two.signals.va + 64, 1), sem(two.signals.va + 64, 2, RELEASE_WFI=True)
    kernels = two.wait(3) + sem(two.signals.va + 64, 1, GEQ) + store(two, 128) + two.done(0)
    push(two, kernels, early + two.copy(0, 128) + late + two.done(1))
    wait_word(two.signals, 16, 1, two.client)
    two.signals.view[48:52] = struct.pack("<I", 1)
    (text,) = races(two)[:1]
    assert "kernel store" in text
    assert "transfer" in text


def test_a_count_of_two_channels_orders_both(two: Rig):
    one_more = sem(two.signals.va + 64, 1 << 16, SemOperation.REDUCTION, REDUCTION=5, RELEASE_WFI=True)
    other = two.client.copy_channel(3)
    with two.client.machine.lock:
        two.launcher.ring.push(store(two, 0) + one_more + two.done(0))
        two.copies.push(two.copy(256, 128) + one_more + two.done(1))
        both = sem(two.signals.va + 64, 2 << 16, GEQ)
        other.push(both + two.copy(0, 512) + two.copy(128, 516) + two.done(2))
    wait_word(two.signals, 32, 1, two.client)
    assert two.client.kernel.reports == []


def test_accesses_of_different_dwords_do_not_conflict(two: Rig):
    push(two, store(two, 0) + two.done(0), two.copy(4, 128) + two.done(1))
    wait_word(two.signals, 0, 1, two.client)
    wait_word(two.signals, 16, 1, two.client)
    assert two.client.kernel.reports == []


def test_a_doorbell_after_the_observed_end_orders_the_submissions(two: Rig):
    two.launcher.ring.push(store(two, 0) + two.done(0))
    wait_word(two.signals, 0, 1, two.client)
    two.copies.push(two.copy(0, 128) + two.done(1))
    wait_word(two.signals, 16, 1, two.client)
    assert two.client.kernel.reports == []


@pytest.mark.parametrize("barrier", [False, True])
def test_grids_of_one_channel_without_a_barrier_are_reported(two: Rig, barrier: bool):  # noqa: FBT001 - a case
    between = method(1, M.WAIT_FOR_IDLE, 0) if barrier else []
    two.launcher.ring.push(store(two, 0) + between + store(two, 0) + two.done(0))
    if barrier:
        wait_word(two.signals, 0, 1, two.client)
        assert two.client.kernel.reports == []
    else:
        two.launcher.ring.wait_error()
        assert two.client.kernel.reports[0].kind is FindingKind.RACE


def test_copies_of_two_channels_are_reported(two: Rig):
    other = two.client.copy_channel(3)
    with two.client.machine.lock:
        two.copies.push(two.copy(0, 128) + two.done(0))
        other.push(two.copy(128, 256) + two.done(2))
    while not two.client.kernel.reports:
        pass
    assert two.client.kernel.reports[0].kind is FindingKind.RACE


def test_optional_checks_are_off_by_default(make: Make):
    two = Rig(make().up(), MORE)
    push(two, store(two, 0) + two.done(0), two.copy(256, 0) + two.done(1))
    wait_word(two.signals, 0, 1, two.client)
    wait_word(two.signals, 16, 1, two.client)
    assert two.client.kernel.reports == []


def test_a_race_names_instruction_thread_address_and_allocation_of_both(two: Rig):
    push(two, store(two, 0) + two.done(0), two.copy(256, 0) + two.done(1))
    (text,) = races(two)[:1]
    line = 1 + (HEAD + STORE).split("\n").index(next(x for x in STORE.split("\n") if "st.global" in x))
    assert f"line {line}: st.global.u32 [%d0], %r0" in text
    assert "by thread (0, 0, 0) of block (0, 0, 0)" in text
    assert f"{two.data.va:#x}, in video memory" in text
    assert "transfer on" in text


def test_the_instruction_that_stored_is_named_though_another_read_later(two: Rig):
    with two.client.machine.lock:
        two.launcher.ring.push(two.launch("increment", 0) + two.launch("read", 0) + two.done(0))
    two.launcher.ring.wait_error()
    text = two.client.kernel.reports[0].message
    assert "kernel increment" in text
    assert "kernel read" in text
    assert "st.global.u32 [%d0], %r0" in text
    assert "ld.global.u32 %r0, [%d0]" in text


def test_atomics_of_two_grids_do_not_race(two: Rig):
    two.launcher.ring.push(two.launch("count", 0) * 3 + two.done(0))
    wait_word(two.signals, 0, 1, two.client)
    assert two.client.kernel.reports == []
    assert struct.unpack_from("<I", two.data.view)[0] == 3


@pytest.mark.parametrize("other", ["increment", "store"])
def test_an_atomic_and_a_plain_store_do(two: Rig, other: str):
    two.launcher.ring.push(two.launch("count", 0) + two.launch(other, 0) + two.done(0))
    two.launcher.ring.wait_error()
    (first, *_) = two.client.kernel.reports
    assert first.kind is FindingKind.RACE
    assert "atomically" in first.message
    assert "atom.global.add" in first.message


def test_a_grid_that_waits_for_another_does_not_keep_it_away(two: Rig):
    two.launcher.ring.push(two.launch("await_one", 0) + two.launch("count", 0) + two.done(0))
    wait_word(two.signals, 0, 1, two.client)
    assert two.client.kernel.reports == []


def test_a_flag_that_one_grid_polls_and_another_sets_is_no_race(two: Rig):
    two.launcher.ring.push(two.launch("poll", 0) + two.launch("tell", 0) + two.done(0))
    wait_word(two.signals, 0, 1, two.client)
    assert two.client.kernel.reports == []


def test_a_flag_that_is_set_by_a_plain_store_is_one(two: Rig):
    two.launcher.ring.push(two.launch("tell", 0) + two.launch("poll", 0) + store(two, 0) + two.done(0))
    two.launcher.ring.wait_error()
    (first, *_) = two.client.kernel.reports
    assert first.kind is FindingKind.RACE
    assert "st.global.u32" in first.message


def test_a_flag_that_is_polled_by_one_grid_and_stored_by_another_is_one(two: Rig):
    two.launcher.ring.push(store(two, 0) + two.launch("poll", 0) + two.done(0))
    two.launcher.ring.wait_error()
    (first, *_) = two.client.kernel.reports
    assert first.kind is FindingKind.RACE
    assert "poll" in first.message
    assert "ld.acquire.sys.global.u32" in first.message


@pytest.mark.parametrize("barrier", [False, True])
def test_an_inline_upload_waits_for_no_grid(two: Rig, barrier: bool):  # noqa: FBT001 - a case
    between = method(1, M.WAIT_FOR_IDLE, 0) if barrier else []
    two.launcher.ring.push(store(two, 0) + between + upload(two, 0) + two.done(0))
    if barrier:
        wait_word(two.signals, 0, 1, two.client)
        assert two.client.kernel.reports == []
    else:
        two.launcher.ring.wait_error()
        (text,) = (r.message for r in two.client.kernel.reports if r.kind is FindingKind.RACE)
        assert "inline upload" in text
        assert "st.global.u32" in text


def test_a_grid_behind_an_inline_upload_is_ordered(two: Rig):
    two.launcher.ring.push(upload(two, 0) + two.launch("increment", 0) + two.done(0))
    wait_word(two.signals, 0, 1, two.client)
    assert two.client.kernel.reports == []


def test_an_inline_upload_and_a_copy_of_another_channel_are_reported(two: Rig):
    push(two, upload(two, 0) + two.done(0), two.copy(0, 128) + two.done(1))
    assert "inline upload" in races(two)[0]


def test_a_release_is_recorded_before_its_value_is_visible(two: Rig):
    """Otherwise a host that reads it and writes a doorbell at once would get a false race."""
    machine, seen = two.client.machine, []
    assert machine.races is not None
    words, base = two.signals.view, machine.channels[0].run.space.host(two.signals.va, 4, AccessKind.READ, "")

    class Spy(Releases):
        def record(self, channel: int, one: SemaphoreStore, known: VectorClock) -> None:
            seen.append(struct.unpack_from("<I", words, one.at - base)[0])
            super().record(channel, one, known)

    machine.races.releases = Spy()
    at = two.signals.va + 256
    report = method(1, M.SET_REPORT_SEMAPHORE_A, at >> 32, at & 0xFFFF_FFFF, 3, 1 << 28)
    copied = (at >> 32, at + 64 & 0xFFFF_FFFF, 5)
    signal = method(4, DmaMethod.SET_SEMAPHORE_A, *copied) + method(4, DmaMethod.LAUNCH_DMA, 0xC)
    reduced = sem(two.signals.va + 512, 2, SemOperation.REDUCTION, REDUCTION=5)
    push(two, report + reduced + two.done(0), signal + two.done(1))
    wait_word(two.signals, 0, 1, two.client)
    wait_word(two.signals, 16, 1, two.client)
    assert seen == [0] * 5
