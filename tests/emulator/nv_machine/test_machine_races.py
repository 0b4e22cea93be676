"""Optional checks: races between queues, and reads of uninitialized video memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.dma import DmaMethod, RemapComponents, RemapSource
from drivers.nv.layouts.host import SemOperation
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import UvmCommand
from emulator.ir.library import Sanitizers
from emulator.nv.machine import FindingKind
from emulator.shared.vaspace import AccessKind
from emulator.shared.waits import Releases, VectorClock
from tests.emulator.nv_machine.client import MIB, Client, Memory, Ring, method, sem, wait_word
from tests.emulator.nv_machine.copying import launch
from tests.emulator.nv_machine.launching import HEAD, INCREMENT, STORE, Launcher, copy_word, cubin, upload
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


def inline(two: Rig, at: int) -> list[int]:
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


IDLE = method(1, M.WAIT_FOR_IDLE, 0)
Words = Callable[[Rig], list[int]]
PAIRS: dict[str, tuple[Words, Words, tuple[str, ...]]] = {
    "a kernel and a copy write": (lambda two: store(two, 0), lambda two: two.copy(256, 0), ("kernel store",
        "transfer")),
    "a copy reads": (lambda two: store(two, 0), lambda two: two.copy(0, 128), ("kernel store", "transfer")),
    "a copy of another dword": (lambda two: store(two, 0), lambda two: two.copy(4, 128), ()),
    "grids": (lambda two: store(two, 0) * 2, lambda _: [], ("kernel store",)),
    "grids and a barrier": (lambda two: store(two, 0) + IDLE + store(two, 0), lambda _: [], ()),
    "a grid that stored and one that reads": (lambda two: two.launch("increment", 0) + two.launch("read", 0),
        lambda _: [], ("kernel increment", "kernel read", "st.global.u32 [%d0], %r0",
        "ld.global.u32 %r0, [%d0]")),
    "atomics": (lambda two: two.launch("count", 0) * 3, lambda _: [], ()),
    "an atomic and a sum": (lambda two: two.launch("count", 0) + two.launch("increment", 0), lambda _: [],
        ("atomically", "atom.global.add")),
    "an atomic and a store": (lambda two: two.launch("count", 0) + store(two, 0), lambda _: [], ("atomically",
        "atom.global.add")),
    "a grid that waits for an atomic": (lambda two: two.launch("await_one", 0) + two.launch("count", 0),
        lambda _: [], ()),
    "a flag that is polled and set": (lambda two: two.launch("poll", 0) + two.launch("tell", 0), lambda _: [],
        ()),
    "a flag and a plain store": (lambda two: two.launch("tell", 0) + two.launch("poll", 0) + store(two, 0),
        lambda _: [], ("st.global.u32",)),
    "a flag that is stored and polled": (lambda two: store(two, 0) + two.launch("poll", 0), lambda _: [],
        ("poll", "ld.acquire.sys.global.u32")),
    "a grid and an upload": (lambda two: store(two, 0) + inline(two, 0), lambda _: [], ("inline upload",)),
    "a grid, a barrier and an upload": (lambda two: store(two, 0) + IDLE + inline(two, 0), lambda _: [], ()),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_a_race_is_reported_and_ordered_work_is_not(two: Rig, what: str):
    kernels, copies, told = PAIRS[what]
    push(two, kernels(two) + two.done(0), copies(two) + two.done(1))
    if told:
        (text,) = races(two)[:1]
        assert all(part in text for part in (f"{two.data.va:#x}", *told)), text
    else:
        wait_word(two.signals, 0, 1, two.client)
        wait_word(two.signals, 16, 1, two.client)
        assert two.client.kernel.reports == []


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


def test_a_doorbell_after_the_observed_end_orders_the_submissions(two: Rig):
    two.launcher.ring.push(store(two, 0) + two.done(0))
    wait_word(two.signals, 0, 1, two.client)
    two.copies.push(two.copy(0, 128) + two.done(1))
    wait_word(two.signals, 16, 1, two.client)
    assert two.client.kernel.reports == []


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


def test_a_grid_behind_an_inline_upload_is_ordered(two: Rig):
    two.launcher.ring.push(inline(two, 0) + two.launch("increment", 0) + two.done(0))
    wait_word(two.signals, 0, 1, two.client)
    assert two.client.kernel.reports == []


def test_an_inline_upload_and_a_copy_of_another_channel_are_reported(two: Rig):
    push(two, inline(two, 0) + two.done(0), two.copy(0, 128) + two.done(1))
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


_SIZE = MIB


class Lab:
    """A compute and a copy channel, memory that the CPU never maps, and memory that it does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.launcher = Launcher.make(client)
        self.copies: Ring = client.copy_channel()
        self.code = upload(client, cubin("sm_90", STORE, INCREMENT))
        self.shown: Memory = client.memory(4096)
        self.handle, self.va = self.hidden(0x30_0000_0000)
        self.done = 0

    def hidden(self, va: int) -> tuple[int, int]:
        client = self.client
        handle = client.alloc(client.device, RmClass.NV01_MEMORY_LOCAL_USER, client.memory_params(_SIZE))
        client.map_gpu(handle, va, _SIZE)
        return handle, va

    def copy(self, words: list[int]) -> None:
        self.done += 1
        self.copies.push(words + sem(self.shown.va + 1024, self.done, RELEASE_WFI=True))
        wait_word(self.shown, 1024, self.done, self.client)

    def send(self, kernel: str, at: int) -> list[int]:
        params = struct.pack("<QI", at, 7)
        return self.launcher.send(self.launcher.qmd(self.launcher.descriptor(self.code, kernel, params)))

    def reads(self, at: int) -> None:
        """Read a dword in a kernel; fail at any report."""
        self.launcher.finish(self.send("increment", at))
        assert self.client.kernel.reports == []

    def told(self, at: int) -> str:
        """Read a dword in a kernel; return the report."""
        self.launcher.ring.push(self.send("increment", at))
        self.launcher.ring.wait_error()
        (report,) = self.client.kernel.reports
        assert report.kind is FindingKind.KERNEL
        assert "read of uninitialized memory" in report.message
        return report.message


@pytest.fixture
def lab(make: Make) -> Lab:
    return Lab(make(checks=Sanitizers.all()).up())


def test_the_report_names_kernel_instruction_thread_address_and_allocation(lab: Lab):
    text = lab.told(lab.va + 64)
    for part in (
        "increment",
        "ld.global.u32 %r0, [%d0]",
        "thread (0, 0, 0) of block (0, 0, 0)",
        f"{lab.va + 64:#x}",
        f"inside video memory {lab.handle:#x}",
    ):
        assert part in text


def test_optional_reports_are_off_by_default(make: Make):
    lab = Lab(make().up())
    lab.reads(lab.va)


def test_copied_bytes_are_initialized_and_their_neighbours_are_not(lab: Lab):
    lab.copy(copy_word(lab.shown.va, lab.va))
    lab.reads(lab.va)
    lab.told(lab.va + 4)


def test_a_copy_of_uninitialized_memory_stays_uninitialized(lab: Lab):
    lab.copy(copy_word(lab.va, lab.va + 256))
    lab.told(lab.va + 256)


def test_a_copy_to_cpu_visible_memory_counts_as_initialization(lab: Lab):
    lab.copy(copy_word(lab.va, lab.shown.va) + copy_word(lab.shown.va, lab.va))
    lab.reads(lab.va)


def _remap(lab: Lab, source: int, *parts: RemapSource) -> list[int]:
    """Return methods that make 4 dwords at the start of the hidden memory, 2 an element."""
    remap = RemapComponents(
        DST_X=parts[0], DST_Y=parts[1], DST_Z=RemapSource.NO_WRITE, DST_W=RemapSource.NO_WRITE,
        COMPONENT_SIZE=3, NUM_SRC_COMPONENTS=0, NUM_DST_COMPONENTS=1,
    )  # fmt: skip
    words = (source >> 32, source & 0xFFFF_FFFF, lab.va >> 32, lab.va & 0xFFFF_FFFF)
    return (
        method(4, DmaMethod.OFFSET_IN_UPPER, *words)
        + method(4, DmaMethod.LINE_LENGTH_IN, 2)
        + method(4, DmaMethod.SET_REMAP_CONST_A, 5)
        + method(4, DmaMethod.SET_REMAP_COMPONENTS, int(remap))
        + launch(DATA_TRANSFER_TYPE=2, SRC_MEMORY_LAYOUT=True, DST_MEMORY_LAYOUT=True, REMAP_ENABLE=True)
    )


@pytest.mark.parametrize("part", [RemapSource.SRC_X, RemapSource.NO_WRITE], ids=["unwritten", "untouched"])
def test_a_fill_writes_its_own_components_only(lab: Lab, part: RemapSource):
    lab.copy(_remap(lab, lab.va + 4096, RemapSource.CONST_A, part))
    lab.reads(lab.va)
    lab.reads(lab.va + 8)
    lab.told(lab.va + 4)


def test_memory_written_by_uploads_semaphores_and_kernels_is_initialized(lab: Lab):
    words = method(1, M.LINE_LENGTH_IN, 4, 1, lab.va >> 32, lab.va & 0xFFFF_FFFF)
    words += method(1, M.LAUNCH_DMA, 0x41) + method(1, M.LOAD_INLINE_DATA, 5)
    words += sem(lab.va + 64, 9) + lab.send("store", lab.va + 128)
    lab.launcher.finish(words)
    for at in (0, 64, 128):
        lab.reads(lab.va + at)
    lab.told(lab.va + 192)


def test_memory_that_the_cpu_mapped_counts_as_written(lab: Lab):
    lab.reads(lab.shown.va + 512)
    lab.client.map_fd(lab.client.device, lab.handle, _SIZE, "/dev/nvidia0")
    lab.reads(lab.va + 512)


def test_two_mappings_of_one_memory_share_shadow_state(lab: Lab):
    other = 0x31_0000_0000
    lab.client.map_gpu(lab.handle, other, _SIZE)
    lab.copy(copy_word(lab.shown.va, lab.va + 16))
    lab.reads(other + 16)
    lab.told(other + 32)


def test_reallocated_memory_counts_as_uninitialized(lab: Lab):
    lab.copy(copy_word(lab.shown.va, lab.va))
    lab.client.uvm_call(UvmCommand.UVM_FREE, base=lab.va, length=_SIZE)
    lab.client.free(lab.handle, lab.client.device)
    _, va = lab.hidden(lab.va)
    lab.told(va)
