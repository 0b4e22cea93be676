"""Stores to write-combined memory: each missing fence is named, and no other fence is required."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from drivers.nv.layouts.gpfifo import GpfifoEntry, UsermodeRegister
from drivers.nv.layouts.rm_classes import Coherency, Location, MemAttr, Physicality
from emulator.ir.library import Sanitizers
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, sem, wait_word
from tests.emulator.nv_machine.launching import STORE, Launcher, cubin, upload

if TYPE_CHECKING:
    from collections.abc import Callable


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
