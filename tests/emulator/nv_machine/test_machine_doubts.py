"""Sequences that work here but may fail on hardware: an advice."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from drivers.nv.layouts.dma import DmaMethod
from drivers.nv.layouts.host import SemOperation
from emulator.ir.library import Sanitizers
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, method, sem, wait_until, wait_word
from tests.emulator.nv_machine.launching import Launcher
from tests.emulator.nv_machine.test_machine_long import WAIT, start

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKED = Sanitizers.all()


def remark(client: Client) -> str:
    """Return the one report, which is advice."""
    (report,) = client.kernel.reports
    assert report.kind is FindingKind.ADVICE
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


def test_the_advice_about_a_release_of_32_bits_names_the_engine(up: Client) -> None:
    """A copy engine of 32 bits makes such releases rightly, the host need not."""
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    words = []
    for at, release in ((0, None), (32, sem(memory.va + 32, 1, PAYLOAD_SIZE=False))):
        va = memory.va + at
        copied = [
            *method(4, DmaMethod.SET_SEMAPHORE_A, va >> 32, va & 0xFFFF_FFFF, 1),
            *method(4, DmaMethod.LAUNCH_DMA, 0xC),
        ]
        words += [*(release or copied), *sem(va, 1, ACQUIRE)]
    ring.push([*words, *sem(memory.va + 16, 1)])
    wait_word(memory, 16, 1, up)
    copy, host = (one.message for one in up.kernel.reports)
    assert "released with 32 by the copy engine's semaphore" in copy
    assert "released with 32 by SEM_EXECUTE" in host


def stamped(client: Client, **fields: bool) -> Launcher:
    """Send a timestamp behind a kernel that waits for the host, and let the kernel end."""
    launcher = Launcher.make(client)
    flag = start(launcher, WAIT, "wait")
    launcher.ring.push(sem(flag.va + 64, 1, RELEASE_TIMESTAMP=True, **fields))
    if not fields:
        wait_until(lambda: bool(client.kernel.reports), client)
    struct.pack_into("<I", flag.view, 0, 7)
    return launcher


def test_a_timestamp_before_the_end_of_the_work_before_it_gets_advice(up: Client) -> None:
    launcher = stamped(up)
    assert "without RELEASE_WFI after work in flight of compute: its time is before" in remark(up)
    launcher.finish([])


def test_a_timestamp_before_the_end_of_work_is_an_error_when_all_is_checked(
    make: Callable[..., Client],
) -> None:
    launcher = stamped(make(checks=CHECKED).up())
    launcher.ring.wait_error()
    assert "RELEASE_TIMESTAMP" in launcher.client.machine.fatal[-1].message


def test_a_timestamp_that_waits_for_the_work_before_it_is_right(make: Callable[..., Client]) -> None:
    launcher = stamped(make(checks=CHECKED).up(), RELEASE_WFI=True)
    launcher.finish([])
    assert launcher.client.reports() == []


def test_the_reason_of_a_stopped_channel_is_told_again_to_who_does_not_read_its_notifier(up: Client) -> None:
    ring = up.copy_channel()
    ring.push(sem(0x5000, 1))
    ring.wait_error()
    (first,) = up.machine.new_texts()
    (again,) = up.machine.new_texts()
    assert "[0x5000, 0x5008), which is not mapped" in first
    assert "was stopped, and its error notifier has the code 31" in again
    assert "[0x5000, 0x5008), which is not mapped" in again
