"""Work that does not finish: a passed equality acquire, and ring entries without a doorbell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts.host import SemOperation
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, sem, wait_until, wait_word

if TYPE_CHECKING:
    from collections.abc import Callable

EQUAL = SemOperation.ACQUIRE


def two(up: Client) -> tuple[Ring, Ring, Memory]:
    return up.copy_channel(), up.copy_channel(3), up.memory(4096, system=True)


def one(up: Client) -> tuple[Ring, Memory]:
    return up.copy_channel(), up.memory(4096, system=True)


def test_an_equality_acquire_that_was_passed_is_named(up: Client) -> None:
    first, second, memory = two(up)
    first.push([*sem(memory.va, 1), *sem(memory.va, 2), *sem(memory.va, 3)])
    wait_word(memory, 0, 3, up)
    second.push(sem(memory.va, 2, EQUAL))
    second.wait_error()
    (report,) = up.machine.fatal
    assert report.kind is FindingKind.DEADLOCK
    assert up.machine.channels[1].run.name in report.message
    for what in (f"{memory.va:#x}", "equals 0x2", "seen 0x3", "passed"):
        assert what in report.message


def test_a_wait_for_a_flag_that_the_host_clears_is_not_assumed_met(up: Client) -> None:
    ring, memory = one(up)
    for value in (1, 2):
        ring.push([*sem(memory.va, 1), *sem(memory.va, 0, EQUAL), *sem(memory.va + 16, value)])
        wait_word(memory, 0, 1, up)
        up.machine.scheduler.check_waits()
        memory.view[0:8] = bytes(8)
        wait_word(memory, 16, value, up)
    assert up.reports() == []


def test_a_flag_passed_between_engines_is_not_assumed_reached(up: Client) -> None:
    first, second, memory = two(up)
    for _ in range(3):
        first.push([*sem(memory.va, 1), *sem(memory.va, 0, EQUAL)])
        wait_word(memory, 0, 1, up)
        with up.machine.lock:
            up.machine.scheduler.check_waits()
        second.push([*sem(memory.va, 1, EQUAL), *sem(memory.va, 0)])
        wait_word(memory, 0, 0, up)
    assert up.reports() == []


def test_diagnostics_name_what_a_channel_waits_for(up: Client) -> None:
    ring, memory = one(up)
    ring.push(sem(memory.va, 5, SemOperation.ACQ_STRICT_GEQ))
    run = up.machine.channels[0].run
    wait_until(lambda: run.waiting is not None, up)
    (text,) = up.kernel.diagnostics()
    for what in (run.name, "ACQ_STRICT_GEQ of 0x5", f"{memory.va:#x}", "seen 0x0"):
        assert what in text
    assert up.reports() == []


def test_diagnostics_name_entries_without_a_doorbell(up: Client) -> None:
    ring, memory = one(up)
    ring.push(sem(memory.va, 1), ring=False)
    (text,) = up.kernel.diagnostics()
    assert "ring entry 0 is written, and GPPut is still 0" in text
    ring.client.doorbell = Silent()  # type: ignore[assignment]  # a page that takes stores and rings nothing
    ring.ring()
    (text,) = up.kernel.diagnostics()
    assert f"GPPut is {ring.put}, the last doorbell had 0" in text


def test_diagnostics_name_a_channel_that_is_not_enabled(make: Callable[..., Client]) -> None:
    up = make().up()
    ring, memory = one(up)
    channel = up.machine.channels[0]
    channel.disabled = True
    ring.push(sem(memory.va, 1))
    wait_until(lambda: channel.run.busy, up)
    (text,) = up.kernel.diagnostics()
    assert f"{channel.run.name} has work and was disabled" in text
    channel.disabled = False


class Silent:
    """A doorbell without effect."""

    def write32(self, offset: int, value: int) -> None:
        """Ignore it."""


def test_stale_slot_contents_are_not_taken_for_new(up: Client) -> None:
    ring, memory = one(up)
    for value in range(1, ring.entries + 3):
        ring.segment_at %= 0x4000
        ring.push(sem(memory.va, value))
        wait_word(memory, 0, value, up)
    assert up.kernel.diagnostics() == ()
