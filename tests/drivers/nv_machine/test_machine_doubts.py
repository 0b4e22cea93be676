"""What works by luck: a remark, and an error where all sanitizers are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.emu.library import Sanitizers
from drivers.nv.emu.machine import Kind
from drivers.nv.layouts.dma import DmaMethod
from drivers.nv.layouts.host import SemOperation
from tests.drivers.nv_machine.client import Client, method, sem, wait_until, wait_word

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKED = Sanitizers.all()


def remark(client: Client) -> str:
    """Return the one report, which is advice."""
    (report,) = client.kernel.reports
    assert report.kind is Kind.ADVICE
    return report.message


def error(client: Client) -> str:
    """Return the one report, which stopped a channel."""
    wait_until(lambda: bool(client.machine.fatal), client)
    return client.machine.fatal[0].message


def test_a_release_of_32_bits_with_a_high_word_is_remarked_on(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    for value in (1, 2):
        ring.push(sem(memory.va, value, PAYLOAD_SIZE=False))
        wait_word(memory, 0, value, up)
    assert "SEM_EXECUTE of 32 bits" in remark(up)
    assert f"{memory.va:#x}" in remark(up)


@pytest.mark.parametrize("operation", [SemOperation.RELEASE, SemOperation.ACQ_STRICT_GEQ])
def test_a_payload_of_32_bits_with_a_high_word_is_an_error_where_all_is_checked(
    make: Callable[..., Client], operation: SemOperation
) -> None:
    client = make(checks=CHECKED).up()
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    ring.push(sem(memory.va, 1, operation, PAYLOAD_SIZE=False))
    assert "SEM_EXECUTE of 32 bits" in error(client)


def test_a_copy_s_semaphore_of_32_bits_with_a_high_word_is_an_error_where_all_is_checked(
    make: Callable[..., Client],
) -> None:
    client = make(checks=CHECKED).up()
    ring, memory = client.copy_channel(), client.memory(4096, system=True)
    where = method(4, DmaMethod.SET_SEMAPHORE_A, memory.va >> 32, memory.va & 0xFFFF_FFFF, 1)
    high = method(4, DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER, 0)
    ring.push([*where, *high, *method(4, DmaMethod.LAUNCH_DMA, 0xC)])
    assert "SET_SEMAPHORE_PAYLOAD_UPPER" in error(client)


def test_a_wait_that_keeps_its_engine_is_remarked_on(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    wait = sem(memory.va, 1, SemOperation.ACQ_STRICT_GEQ, ACQUIRE_SWITCH_TSG=False)
    ring.push([*sem(memory.va, 1), *wait, *sem(memory.va + 16, 1)])
    wait_word(memory, 16, 1, up)
    assert "ACQUIRE_SWITCH_TSG" in remark(up)
