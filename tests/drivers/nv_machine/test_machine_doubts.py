"""Sequences that work here but may fail on hardware: an advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.simt.library import Sanitizers
from drivers.nv.emu.machine import Kind
from drivers.nv.layouts.dma import DmaMethod
from drivers.nv.layouts.host import SemOperation
from tests.drivers.nv_machine.client import Client, method, sem, wait_word

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKED = Sanitizers.all()


def remark(client: Client) -> str:
    """Return the one report, which is advice."""
    (report,) = client.kernel.reports
    assert report.kind is Kind.ADVICE
    return report.message


ACQUIRE = SemOperation.ACQ_STRICT_GEQ


def test_a_32_bit_release_for_a_64_bit_wait_gets_advice(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    ring.push([*sem(memory.va, 1, PAYLOAD_SIZE=False), *sem(memory.va, 1, ACQUIRE), *sem(memory.va + 16, 1)])
    wait_word(memory, 16, 1, up)
    assert f"{memory.va:#x} is waited for with 64 bits and was released with 32" in remark(up)


def test_a_32_bit_release_by_a_copy_is_advice_when_all_is_checked(
    make: Callable[..., Client],
) -> None:
    """No error: a timeline of 32 bits takes another semaphore before its value passes them."""
    client = make(checks=CHECKED).up()
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    where = method(4, DmaMethod.SET_SEMAPHORE_A, memory.va >> 32, memory.va & 0xFFFF_FFFF, 2)
    ring.push(
        [*where, *method(4, DmaMethod.LAUNCH_DMA, 0xC), *sem(memory.va, 2, ACQUIRE), *sem(memory.va + 16, 1)]
    )
    wait_word(memory, 16, 1, client)
    assert f"{memory.va:#x} is waited for with 64 bits" in remark(client)


def test_a_semaphore_of_32_bits_throughout_is_right(make: Callable[..., Client]) -> None:
    client = make(checks=CHECKED).up()
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    wait = sem(memory.va, 1, SemOperation.ACQ_CIRC_GEQ, PAYLOAD_SIZE=False)
    ring.push([*sem(memory.va, 1, PAYLOAD_SIZE=False), *wait, *sem(memory.va + 16, 1)])
    wait_word(memory, 16, 1, client)
    assert client.reports() == []


def test_a_wait_that_keeps_its_engine_is_remarked_on(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    wait = sem(memory.va, 1, ACQUIRE, ACQUIRE_SWITCH_TSG=False)
    ring.push([*sem(memory.va, 1), *wait, *sem(memory.va + 16, 1)])
    wait_word(memory, 16, 1, up)
    assert "ACQUIRE_SWITCH_TSG" in remark(up)
