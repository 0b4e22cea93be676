"""What the emulated kernel reports about faults through `Kernel.diagnostics`: named, in order, once."""

from __future__ import annotations

from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, sem


def test_diagnostics_are_empty_while_nothing_is_wrong(up: Client) -> None:
    assert up.kernel.diagnostics() == ()


def test_diagnostics_return_each_fault_once_then_that_its_channel_is_stopped(up: Client) -> None:
    ring = up.copy_channel()
    ring.push(sem(0x9_0000_0000, 1))
    ring.wait_error()
    (text,) = up.kernel.diagnostics()
    assert up.machine.channels[0].run.name in text
    assert "0x900000000" in text
    assert "ring entry 1" in text
    (state,) = up.kernel.diagnostics()
    assert state.startswith(f"{up.machine.channels[0].run.name} was stopped")


def test_diagnostics_are_ordered_from_the_oldest_and_leave_advice_out(up: Client) -> None:
    machine = up.machine
    machine.find(FindingKind.HOST, "first")
    machine.advise("works")
    machine.find(FindingKind.RACE, "second")
    assert up.kernel.diagnostics() == ("host: first", "race: second")
