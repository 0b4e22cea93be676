"""Channels and doorbells: refusals, accepted calls, future releases, a wrong GPPut."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts import rm_classes
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.dma import DmaMethod, DmaReduction, LaunchDma
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import USERMODE_BYTES, GpfifoControl, GpfifoOpcode, UsermodeRegister
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import UvmCommand
from emulator.nv.machine import FindingKind
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_word
from tests.emulator.nv_machine.refusals import refused

Make = Callable[..., Client]
GEQ = SemOperation.ACQ_STRICT_GEQ


def test_a_ring_that_was_unmapped_faults_at_the_doorbell(up: Client) -> None:
    ring = up.copy_channel()
    up.uvm_call(UvmCommand.UVM_FREE, base=ring.memory.va, length=ring.memory.size)
    ring.push(sem(0x2_0000_0000, 1))
    assert ring.wait_error() == RcCode.MMU_FAULT


def test_a_channel_freed_with_work_left_is_advised_against(up: Client) -> None:
    group = up.group(rm_classes.copy_engine(2))
    ring = up.ring(group)
    up.schedule(ring, group)
    memory = up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ))
    other = up.copy_channel(3)
    other.push(sem(memory.va + 8, 1))
    wait_word(memory, 8, 1, up)
    up.free(ring.handle, group)
    assert "work left" in up.reports()[0]


def test_a_doorbell_page_that_was_unmapped_is_refused(up: Client) -> None:
    up.doorbell.close()
    with pytest.raises(UsageError, match="unmapped"):
        up.doorbell.write32(0x90, 1)
    assert USERMODE_BYTES == 1 << 16


@pytest.mark.parametrize(
    "words",
    [
        method(0, HostMethod.SEM_PAYLOAD_LO, 1) + method(0, HostMethod.SEM_EXECUTE, 1),
        method(0, HostMethod.SEM_ADDR_LO, 0, 0, 1)
        + method(0, HostMethod.SEM_EXECUTE, int(SemExecute(OPERATION=1, PAYLOAD_SIZE=True))),
        [0x2002_0000 | 0xFFF, 0, 0],
    ],
)
def test_the_host_refuses_invalid_methods(up: Client, words: list[int]) -> None:
    ring = up.copy_channel()
    ring.push(words)
    assert ring.wait_error() == RcCode.PBDMA_ERROR


def test_yield_and_interrupts_pass(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push(
        method(0, HostMethod.YIELD, 0) + method(0, HostMethod.NON_STALL_INTERRUPT, 0) + sem(memory.va, 1)
    )
    wait_word(memory, 0, 1, up)


def test_a_float_reduction_of_64_bits_is_refused(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    words = method(4, DmaMethod.SET_SEMAPHORE_A, memory.va >> 32, memory.va & 0xFFFF_FFFF, 1, 0)
    launch = LaunchDma(
        DATA_TRANSFER_TYPE=0,
        FLUSH_ENABLE=True,
        SEMAPHORE_TYPE=1,
        SEMAPHORE_PAYLOAD_SIZE=True,
        SEMAPHORE_REDUCTION=DmaReduction.FADD,
        SEMAPHORE_REDUCTION_ENABLE=True,
    )
    ring.push(words + method(4, DmaMethod.LAUNCH_DMA, int(launch)))
    assert ring.wait_error() == RcCode.CE2_ERROR


def promise(kind: str, va: int) -> list[int]:
    """Return methods of an engine that would write 1."""
    high, low = va >> 32, va & 0xFFFF_FFFF
    if kind == "copy":
        return method(4, DmaMethod.SET_SEMAPHORE_A, high, low, 1, 0) + method(4, DmaMethod.LAUNCH_DMA, 0xC)
    if kind == "report":
        return method(1, M.SET_REPORT_SEMAPHORE_A, high, low, 1, 1 << 28)
    return method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 1, 0, low, high, 1 << 12)


@pytest.mark.parametrize("kind", ["copy", "report", "execute"])
def test_future_releases_of_engines_count_for_deadlocks(up: Client, kind: str) -> None:
    ring = up.copy_channel() if kind == "copy" else up.compute_channel()
    memory = up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ) + promise(kind, memory.va))
    ring.wait_error()
    assert up.kernel.reports[0].kind is FindingKind.DEADLOCK


def test_a_channel_of_an_address_space_unknown_to_uvm_is_not_registered(up: Client) -> None:
    ring = up.ring(up.group())
    up.compute_object(ring)
    up.uvm_call(UvmCommand.UVM_UNREGISTER_GPU_VASPACE, gpuUuid=up.uuid)
    refused(0x26, up.register_channel, ring)
    kind: Any = up.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    space = up.alloc(up.device, RmClass.FERMI_VASPACE_A, kind(flags=8))
    fields = {"gpuUuid": up.uuid, "rmCtrlFd": up.ctl, "hClient": up.root, "hVaSpace": space}
    up.uvm_call(UvmCommand.UVM_REGISTER_GPU_VASPACE, **fields)
    refused(0x21, up.register_channel, ring)


def test_a_reducing_report_of_the_newer_kind_is_refused_and_awakening_passes(up: Client) -> None:
    ring, memory = up.compute_channel(), up.memory(4096)
    high, low = memory.va >> 32, memory.va & 0xFFFF_FFFF
    ring.push(method(1, M.SET_REPORT_SEMAPHORE_A, high, low, 3, 1 << 20))
    words = method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 1, 0, low + 64, high)
    ring.push(words + method(1, M.REPORT_SEMAPHORE_EXECUTE, 4))
    wait_word(memory, 64, 1, up)
    assert memory.view[0] == 3
    ring.push(method(1, M.REPORT_SEMAPHORE_EXECUTE, 1 << 6))
    assert ring.wait_error() == RcCode.GR_CLASS_ERROR


GP_PUT = 0x4000 + 0x8C


@pytest.fixture
def ring(up: Client) -> Ring:
    """A channel whose first doorbell has rung."""
    ring = up.copy_channel()
    ring.ring()
    return ring


def submit(ring: Ring, put: int) -> None:
    """Store GPPut and ring, with all fences."""
    ring.client.kernel.fence()
    struct.pack_into("<I", ring.memory.view, GP_PUT, put)
    ring.client.kernel.fence()
    ring.client.doorbell.write32(UsermodeRegister.NOTIFY_CHANNEL_PENDING, ring.token)


def stops(ring: Ring, text: str) -> None:
    assert ring.error() == RcCode.PBDMA_ERROR, "stopped by the doorbell itself, without a wait"
    report = ring.client.machine.fatal[-1]
    assert report.kind is FindingKind.HOST
    assert text in report.message, report.message


def test_a_put_that_covers_a_slot_never_written_is_too_high(up: Client):
    ring, signal = up.copy_channel(), up.memory(4096)
    ring.push(sem(signal.va, 1), ring=False)
    submit(ring, ring.put + 1)
    stops(ring, "GPPut 3 covers ring entry 2, which was never written: GPPut is too high")


def fill(ring: Ring, signal: Memory) -> None:
    """Use every slot of the ring once, and the first ones twice."""
    for value in range(1, ring.entries + 3):
        ring.segment_at %= 0x4000
        ring.push(sem(signal.va, value))
        wait_word(signal, 0, value, ring.client)


def test_an_entry_that_an_earlier_put_had_covered_is_named_in_a_ring_that_wrapped(ring: Ring, up: Client):
    signal = up.memory(4096)
    fill(ring, signal)
    at = ring.put
    ring.push(sem(signal.va, 100), ring=False)
    submit(ring, at + 2)  # submits the old contents of the slot behind, too, which is not seen yet
    assert not up.machine.fatal
    ring.push(sem(signal.va, 101), ring=False)
    submit(ring, at + 3)
    stops(ring, f"ring entry {at + 1} was written after GPPut {at + 2} had covered it")


def test_a_doorbell_that_submits_nothing_beside_a_written_entry_names_gp_put(ring: Ring, up: Client):
    signal = up.memory(4096)
    at = ring.put
    ring.push(sem(signal.va, 1), ring=False)
    submit(ring, at)
    stops(ring, f"the doorbell submits nothing, and ring entry {at} is written: GPPut {at} is too low")


def test_a_doorbell_that_rings_twice_and_a_full_ring_are_right(ring: Ring, up: Client):
    signal = up.memory(4096)
    fill(ring, signal)
    ring.ring()
    ring.ring()
    for value in range(200, 200 + ring.entries - 1):
        ring.segment_at %= 0x4000
        ring.push(sem(signal.va, value), ring=False)
    ring.ring()
    wait_word(signal, 0, 198 + ring.entries, up)
    assert not up.machine.fatal


def test_a_control_entry_of_zeros_before_others_is_right(ring: Ring, up: Client):
    signal = up.memory(4096)
    ring.entry(int(GpfifoControl(OPCODE=GpfifoOpcode.NOP)))
    ring.push(sem(signal.va, 1))
    wait_word(signal, 0, 1, up)
