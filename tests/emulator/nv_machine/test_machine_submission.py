"""From the store of an entry to the doorbell: fences to write-combined memory, and GPPut."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts import rm_classes
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.dma import DmaMethod
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import GpfifoEntry, UsermodeRegister
from drivers.nv.layouts.host import HostMethod, SemOperation
from drivers.nv.layouts.rm_classes import Coherency, Location, MemAttr, Physicality
from drivers.nv.layouts.uvm import UvmCommand
from emulator.ir.library import Sanitizers
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_word
from tests.emulator.nv_machine.launching import STORE, Launcher, cubin, upload
from tests.emulator.nv_machine.refusals import refused


def write_doorbell(ring: Ring) -> None:
    ring.client.doorbell.write32(UsermodeRegister.NOTIFY_CHANNEL_PENDING, ring.token)


def tell(ring: Ring) -> None:
    struct.pack_into("<I", ring.memory.view, 0x4000 + 0x8C, ring.put)


def late(client: Client) -> str:
    """Return the one report, which is of a missing fence."""
    (report,) = client.machine.fatal
    assert report.kind is FindingKind.COHERENCE
    assert report.queue in report.message
    return report.message


@pytest.fixture
def ready(up: Client) -> tuple[Client, Ring, Memory]:
    """A channel that ran something, and system memory for its releases."""
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, up)
    return up, ring, memory


Ready = tuple[Client, Ring, Memory]


def test_fences_between_entry_put_and_doorbell_are_enough(ready: Ready) -> None:
    up, ring, memory = ready
    for value in range(2, 200):
        ring.segment_at %= 0x4000
        ring.push(sem(memory.va, value))
        wait_word(memory, 0, value, up)
    assert up.reports() == []


def test_a_fence_missing_between_entry_and_put_is_advice_once(ready: Ready) -> None:
    up, ring, memory = ready
    for value in (2, 3, 4):  # as drivers do that work on GPUs, which look at GPPut at doorbells
        ring.push(sem(memory.va, value), ring=False)
        ring.ring(fence_entries=False)
        wait_word(memory, 0, value, up)
    (report,) = up.machine.reports
    assert report.kind is FindingKind.ADVICE
    assert "fenced after the store of GPPut only" in report.message


def test_a_fence_missing_between_entry_and_put_is_named_if_caches_are_checked(
    make: Callable[..., Client],
) -> None:
    up = make(checks=Sanitizers.all()).up()
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, up)
    ring.push(sem(memory.va, 2), ring=False)
    ring.ring(fence_entries=False)
    ring.wait_error()
    text = late(up)
    assert "ring entry 2" in text
    assert "no fence between the store of ring entry" in text
    assert "GPPut 3" in text


def test_a_fence_missing_between_put_and_doorbell_is_named(ready: Ready) -> None:
    up, ring, memory = ready
    ring.push(sem(memory.va, 2), ring=False)
    ring.ring(fence=False)
    ring.wait_error()
    assert "no fence between the store of GPPut 3" in late(up)


def test_the_position_of_fences_counts_and_not_their_number(ready: Ready) -> None:
    up, ring, memory = ready
    for _ in range(3):
        up.kernel.fence()
    ring.push(sem(memory.va, 2), ring=False)
    tell(ring)
    write_doorbell(ring)
    up.kernel.fence()
    ring.wait_error()
    assert "GPPut 3" in late(up)


def test_a_push_buffer_stored_after_the_fence_is_named(ready: Ready) -> None:
    up, ring, memory = ready
    at = ring.segments + ring.segment_at
    words = sem(memory.va, 2)
    ring.entry(int(GpfifoEntry(ADDRESS=ring.memory.va + at, LENGTH=len(words))))
    up.kernel.fence()
    struct.pack_into(f"<{len(words)}I", ring.memory.view, at, *words)
    tell(ring)
    up.kernel.fence()
    write_doorbell(ring)
    ring.wait_error()
    assert "the push buffer of ring entry 2" in late(up)


def test_one_doorbell_for_several_entries_needs_no_more_fences(ready: Ready) -> None:
    up, ring, memory = ready
    for value in (2, 3, 4):
        ring.push(sem(memory.va, value), ring=False)
        up.kernel.fence()
        tell(ring)
        up.kernel.fence()
    write_doorbell(ring)
    wait_word(memory, 0, 4, up)
    assert up.reports() == []


def test_an_entry_rewritten_with_equal_contents_needs_no_fence(ready: Ready) -> None:
    up, ring, memory = ready
    segment = ring.segment_at
    for value in range(2, 2 * ring.entries):
        ring.segment_at = segment
        ring.push(sem(memory.va, value))
        wait_word(memory, 0, value, up)
    assert up.reports() == []


def test_entries_stored_together_may_be_published_one_by_one(ready: Ready) -> None:
    up, ring, memory = ready
    for value in (2, 3, 4):
        ring.push(sem(memory.va, value), ring=False)
    up.kernel.fence()
    last = ring.put
    for put in range(last - 2, last + 1):
        struct.pack_into("<I", ring.memory.view, 0x4000 + 0x8C, put)
        up.kernel.fence()
        write_doorbell(ring)
    wait_word(memory, 0, 4, up)
    assert up.reports() == []


def test_a_doorbell_without_new_entries_needs_no_fence(ready: Ready) -> None:
    up, ring, memory = ready
    write_doorbell(ring)
    ring.push(sem(memory.va, 2))
    write_doorbell(ring)
    wait_word(memory, 0, 2, up)
    assert up.reports() == []


def elsewhere(up: Client, coherency: Coherency) -> Ring:
    """Make a channel whose ring, user area and push buffers lie in system memory."""
    attr = MemAttr(PHYSICALITY=Physicality.ALLOW_NONCONTIGUOUS, LOCATION=Location.PCI, COHERENCY=coherency)
    return up.copy_channel(memory=up.memory(256 << 10, system=True, attr=int(attr)))


def test_cached_system_memory_needs_no_fence(up: Client) -> None:
    ring, memory = elsewhere(up, Coherency.CACHED), up.memory(4096, system=True)
    for value in range(1, 80):
        ring.segment_at %= 0x4000
        ring.push(sem(memory.va, value), ring=False)
        ring.ring(fence=False, fence_entries=False)
        wait_word(memory, 0, value, up)
    assert up.reports() == []


def test_write_combined_system_memory_needs_fences(up: Client) -> None:
    ring, memory = elsewhere(up, Coherency.WRITE_COMBINE), up.memory(4096, system=True)
    ring.push(sem(memory.va, 1), ring=False)
    ring.ring(fence=False)
    ring.wait_error()
    assert "GPPut" in late(up)


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("what", ["arguments", "descriptor"])
def test_arguments_and_descriptors_stored_after_the_fence_are_named(
    make: Callable[..., Client], profile: str, what: str
) -> None:
    client = make(profile).up()
    launcher = Launcher.make(client)
    code, memory = upload(client, cubin(profile, STORE)), client.memory(4096)
    content = launcher.bank0(struct.pack("<QI", memory.va, 5), (1, 1, 1), (1, 1, 1))
    bank = launcher.place(content)
    values: dict[str, Any] = launcher.descriptor(code, "store", struct.pack("<QI", memory.va, 5), bank0=bank)
    va = launcher.qmd(values)
    ring, view = launcher.ring, launcher.arguments.view
    ring.push(launcher.send(va), ring=False)
    size = launcher.arguments.va + launcher.used - va
    at = bank - launcher.arguments.va if what == "arguments" else va - launcher.arguments.va
    length = len(content) if what == "arguments" else size
    stored = bytes(view[at : at + length])
    view[at : at + length] = bytes(length)
    client.kernel.fence()
    view[at : at + length] = stored
    tell(ring)
    client.kernel.fence()
    write_doorbell(ring)
    ring.wait_error()
    assert "a launch descriptor or arguments" in late(client)


def test_a_fence_of_a_channel_that_was_freed_is_harmless(ready: Ready) -> None:
    up, ring, _ = ready
    run = up.machine.channels[0].run
    up.free(up.root, 0)
    up.kernel.fence()
    run.combining.fence()
    assert ring.put


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


def test_yield_and_interrupts_pass(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push(
        method(0, HostMethod.YIELD, 0) + method(0, HostMethod.NON_STALL_INTERRUPT, 0) + sem(memory.va, 1)
    )
    wait_word(memory, 0, 1, up)


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
    up.register_space(up.space(flags=8))
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
