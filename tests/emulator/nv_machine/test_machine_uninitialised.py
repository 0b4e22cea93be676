"""Reads of uninitialized video memory by kernels are reported, and reads of written memory are not."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.dma import DmaMethod, RemapComponents, RemapSource
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import UvmCommand
from emulator.ir.library import Sanitizers
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import MIB, Client, Memory, Ring, method, sem, wait_word
from tests.emulator.nv_machine.launching import INCREMENT, STORE, Launcher, copy_word, cubin, upload
from tests.emulator.nv_machine.test_machine_copy import launch

Make = Callable[..., Client]
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
