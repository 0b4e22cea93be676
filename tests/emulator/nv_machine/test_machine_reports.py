"""What the machine reports: its defects, unsupported instructions, work that never ends or never runs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.dma import DataTransferType, DmaMethod
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import SemOperation
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_until, wait_word
from tests.emulator.nv_machine.launching import STORE, Launcher, cubin, upload
from tests.emulator.nv_machine.test_machine_copy import copy, launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.nv_machine.client import Client


class Defective:
    """A host engine that fails at every method."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was thought impossible")


def test_an_error_inside_the_emulator_stops_the_channel_and_shows_where_it_was(up: Client) -> None:
    ring = up.copy_channel()
    memory = up.memory(4096, system=True)
    broken: Any = Defective()
    up.kernel.machine.channels[-1].run.host = broken
    ring.push(sem(memory.va, 1))
    assert ring.wait_error()
    assert ring.error() == RcCode.GR_EXCEPTION
    assert memory.view[0] == 0
    report = up.reports()[0]
    assert report.startswith("defect of the emulator")
    assert "was thought impossible" in report
    assert "channel.py" in report


def test_other_channels_go_on_after_a_defect(up: Client) -> None:
    first, second = up.copy_channel(), up.copy_channel()
    memory = up.memory(4096, system=True)
    broken: Any = Defective()
    up.kernel.machine.channels[0].run.host = broken
    first.push(sem(memory.va, 1))
    assert first.wait_error()
    second.push(sem(memory.va, 2))
    while memory.view[0] != 2:
        assert second.error() == 0


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


VIDEO = """
.visible .entry video(.param .u64 at) {
 .reg .b32 %r<3>; .reg .b64 %d<1>;
 ld.param.u64 %d0, [at]; mov.u32 %r0, 1; mov.u32 %r1, 2;
 vabsdiff.u32.u32.u32.add %r2, %r0, %r1, %r0;
 st.global.u32 [%d0], %r2; ret;
}
"""


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
def test_an_instruction_that_is_not_emulated_is_named_with_its_line(
    make: Callable[..., Client], profile: str
) -> None:
    client = make(profile).up()
    launcher, code = Launcher.make(client), upload(client, raw := cubin(profile, VIDEO))
    launcher.fails(code, "video", struct.pack("<Q", client.memory(4096).va))
    assert client.machine.fatal[0].kind is FindingKind.UNSUPPORTED
    text = raw[: raw.index(b"vabsdiff")]
    line = text[text.rindex(b".version") :].count(b"\n") + 1
    (told,) = client.kernel.diagnostics()
    assert "vabsdiff.u32.u32.u32.add" in told
    assert f"line {line}" in told
    assert "video" in told


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


_LAUNCH = 2
"""Words of a LAUNCH_DMA."""


def transfer(client: Client) -> tuple[list[int], int]:
    """Return the words of a copy, and an address for a semaphore."""
    memory = client.memory(1 << 16)
    return copy(memory.va, memory.va + 4096, 256), memory.va + 8192


@pytest.mark.parametrize("what", ["missing", "none"])
def test_a_copy_without_its_launch_is_reported_at_the_semaphore(up: Client, what: str) -> None:
    ring = up.copy_channel()
    words, va = transfer(up)
    instead = [] if what == "missing" else launch(DATA_TRANSFER_TYPE=DataTransferType.NONE, FLUSH_ENABLE=True)
    ring.push(words[:-_LAUNCH] + instead + sem(va, 1))
    assert ring.wait_error()
    assert "a LAUNCH_DMA is missing" in up.reports()[0]


def test_a_copy_that_another_replaces_is_reported(up: Client) -> None:
    ring = up.copy_channel()
    words, va = transfer(up)
    ring.push(words[:-_LAUNCH] + words + sem(va, 1))
    assert ring.wait_error()
    assert "OFFSET_IN_UPPER is set again" in up.reports()[0]


def test_sizes_are_kept_from_one_copy_to_the_next(up: Client) -> None:
    ring = up.copy_channel()
    words, va = transfer(up)
    again = method(4, DmaMethod.OFFSET_OUT_LOWER, (va + 4096) & 0xFFFF_FFFF)
    ring.push(words + again + words[-_LAUNCH:])
    ring.push(sem(va, 1))
    memory = up.memory(4096, system=True)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, up)
    assert ring.error() == 0


def grid(client: Client) -> tuple[Launcher, list[int]]:
    launcher = Launcher.make(client)
    code = upload(client, cubin("sm_90", STORE))
    params = struct.pack("<QI", client.memory(4096).va, 1)
    return launcher, launcher.send(launcher.qmd(launcher.descriptor(code, "store", params)))


def test_a_descriptor_that_is_not_scheduled_is_reported(up: Client) -> None:
    launcher, words = grid(up)
    launcher.ring.push(words[:2] + sem(up.memory(4096).va, 1))
    assert launcher.ring.wait_error()
    assert "was sent and not scheduled" in up.reports()[0]


def test_a_launch_does_not_take_the_descriptor_of_the_one_before(up: Client) -> None:
    launcher, words = grid(up)
    again = method(1, M.SEND_SIGNALING_PCAS2_B, PcasAction.SCHEDULE)
    launcher.ring.push(words + again)
    assert launcher.ring.wait_error()
    assert "without a SEND_PCAS_A of its own" in up.reports()[0]
