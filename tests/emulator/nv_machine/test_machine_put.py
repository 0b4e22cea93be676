"""GPPut that is one too high or too low stops the channel at the doorbell that shows it, and is named."""

from __future__ import annotations

import struct

import pytest

from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import GpfifoControl, GpfifoOpcode, UsermodeRegister
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, sem, wait_word

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
