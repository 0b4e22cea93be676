"""What the machine reports: faults of kernels, its defects, work that never ends or never runs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from drivers.elf import Elf
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.cubin import Section
from drivers.nv.layouts.dma import DataTransferType, DmaMethod
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import SemOperation
from drivers.nv.layouts.uvm import UvmCommand
from drivers.nv.lines import LineTable
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_until, wait_word
from tests.emulator.nv_machine.copying import copy, launch
from tests.emulator.nv_machine.launching import HEAD, STORE, Code, Launcher, cubin, upload

if TYPE_CHECKING:
    from drivers.nv.layouts.debugger import NV83DE_SM_ERROR_STATE_REGISTERS


PROFILES = ["sm_80", "sm_90", "sm_120"]
BAD = 0x9_0000_0000
BODIES = {
    "a wild load": ("ld.global.u32 %r1, [%d1];", BAD, RcCode.MMU_FAULT),
    "a wild store": ("st.global.u32 [%d1], %r1;", BAD, RcCode.MMU_FAULT),
    "a wild atomic": ("atom.global.add.u32 %r1, [%d1], 1;", BAD, RcCode.MMU_FAULT),
    "a misaligned store": ("st.global.u32 [%d1], %r1;", 2, RcCode.GR_EXCEPTION),
    "a trap": ("trap;", 0, RcCode.GR_EXCEPTION),
    "shared memory out of range": ("st.shared.u32 [%r3], %r1;", 0x100_0000, RcCode.GR_EXCEPTION),
}
"""Kind of fault -> instruction, address or distance, posted error."""
KERNEL = """
.shared .align 4 .b8 tile[64];
.visible .entry faulty(.param .u64 at, .param .u64 good) {{
 .reg .b32 %r<5>; .reg .b64 %d<3>; .reg .pred %p;
 ld.param.u64 %d1, [at];
 ld.param.u64 %d2, [good];
 mov.u32 %r0, %ctaid.x;
 mov.u32 %r1, %tid.x;
 cvt.u32.u64 %r3, %d1;
 mov.u32 %r4, tile;
 add.u32 %r3, %r3, %r4;
 st.volatile.shared.u32 [%r4], %r0;
 setp.ne.u32 %p, %r0, {block};
 @%p bra END;
 {fault}
 st.global.u32 [%d2], %r1;
END: ret;
}}
"""

Make = Callable[..., Client]


def states(client: Client) -> dict[int, NV83DE_SM_ERROR_STATE_REGISTERS]:
    """Return the state of every SM that has one, from two reads of the debugger object."""
    debugger, out, first = client.debugger(), {}, 0
    while first < client.machine.gpus[0].profile.sms:
        count = min(100, client.machine.gpus[0].profile.sms - first)
        number = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
        got = client.control(debugger, number, numSMsToRead=count, startingSM=first)
        out |= {
            first + i: one for i, one in enumerate(got.smErrorStateArray[:count]) if int(one.hwwGlobalEsr)
        }
        first += count
    return out


def faulty(launcher: Launcher, what: str, *, block: int = 0, raw: Any = None) -> tuple[Code, int]:
    """Launch a kernel whose `block` faults; the code and the address it was given."""
    instruction, value, _ = BODIES[what]
    client = launcher.client
    data = client.memory(4096)
    image = raw or cubin(launcher.profile, KERNEL.format(fault=instruction, block=block))
    code = upload(client, image)
    at = value + data.va if what == "a misaligned store" else value
    launcher.fails(
        code,
        "faulty",
        struct.pack("<QQ", at, data.va),
        grid=(block + 1, 1, 1),
        block=(32, 1, 1),
        shared=0x600,
    )
    return code, at


@pytest.mark.sampled(5)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("what", BODIES)
def test_the_pc_is_an_instruction_of_the_line_that_faulted(make: Make, profile: str, what: str):
    launcher = Launcher.make(make(profile).up())
    code, at = faulty(launcher, what)
    assert launcher.ring.error() == BODIES[what][2]
    ((sm, state),) = states(launcher.client).items()
    table = LineTable.of(Elf(code.raw), ".text.faulty")
    assert table is not None
    offset = state.hwwWarpEsrPc64 - code.at(".text.faulty")
    line = table.line_at(offset)
    assert line is not None
    instruction = BODIES[what][0]
    text = HEAD + KERNEL.format(fault=instruction, block=0)
    assert instruction in text.split("\n")[line - 1]
    assert offset == table.offsets_of(line)[-1]
    assert sm == 0
    assert state.hwwWarpEsrPc == state.hwwWarpEsrPc64 & 0xFFFF_FFFF
    if at and "shared" not in what:
        assert state.hwwEsrAddr == at


@pytest.mark.parametrize("what", BODIES)
def test_the_report_names_kernel_line_thread_address_and_allocation(make: Make, what: str):
    launcher = Launcher.make(make().up())
    _, at = faulty(launcher, what)
    text = str(launcher.client.kernel.reports[0])
    instruction = BODIES[what][0]
    line = 1 + (HEAD + KERNEL.format(fault=instruction, block=0)).split("\n").index(" " + instruction)
    for part in ("faulty", f"line {line}", instruction, "thread (0, 0, 0) of block (0, 0, 0)"):
        assert part in text
    if "wild" in what:
        assert f"{at:#x}" in text
        assert "nearest" in text


def test_the_sm_is_the_one_that_the_block_ran_on(make: Make):
    launcher = Launcher.make(make().up())
    faulty(launcher, "a wild store", block=120)
    assert list(states(launcher.client)) == [120]


def test_an_image_without_lines_gives_the_entry_with_a_note(make: Make):
    launcher = Launcher.make(make().up())
    image = cubin("sm_90", KERNEL.format(fault=BODIES["a wild store"][0], block=0))
    name = Section.LINES.encode() + b"\0"
    code, _ = faulty(launcher, "a wild store", raw=image.replace(name, name.replace(b"line", b"lane")))
    assert states(launcher.client)[0].hwwWarpEsrPc64 == code.at(".text.faulty")
    assert "no table of lines" in launcher.client.reports()[0]


def test_other_groups_go_on_and_a_rebuilt_channel_works(make: Make):
    launcher = Launcher.make(make().up())
    client = launcher.client
    other, data = client.copy_channel(), client.memory(4096)
    faulty(launcher, "a wild store")
    first = len(client.machine.channels)
    other.push(sem(data.va + 64, 1))
    while struct.unpack_from("<Q", data.view, 64)[0] != 1:
        assert not other.error()
    group = client.machine.client(client.root, client.ctl).objects[launcher.ring.handle].parent
    assert group is not None
    client.unregister(launcher.ring)
    client.free(group.handle, client.device)
    again = Launcher.make(client)
    client.machine.reports.clear()
    code = upload(client, cubin("sm_90", STORE))
    again.run(code, "store", struct.pack("<QI", data.va, 3))
    assert struct.unpack_from("<I", data.view)[0] == 3
    assert len(client.machine.channels) == first
    wait_word(data, 64, 1, client)


def test_a_finished_launch_holds_no_memory(make: Make):
    """One grid waits forever beside the one that faults; both end with their channel."""
    from tests.emulator.nv_machine.test_machine_order import WAIT, start

    launcher = Launcher.make(make().up())
    client = launcher.client
    flag = start(launcher, WAIT, "wait")
    code = upload(client, cubin("sm_90", STORE))
    text = launcher.fails(code, "store", struct.pack("<QI", BAD, 1))
    assert "store" in text
    assert [r.kind for r in client.kernel.reports] == [FindingKind.MMU_FAULT]
    run = client.machine.channels[0].run
    assert not run.busy
    assert not run.inflight
    used = client.machine.gpus[0].vram_used
    client.uvm_call(UvmCommand.UVM_FREE, base=flag.va, length=flag.size)
    client.free(flag.handle, client.device)
    wait_until(lambda: client.machine.gpus[0].vram_used < used, client)


def test_each_channel_has_its_own_error_state(make: Make):
    client = make().up()
    first = Launcher.make(client)
    healthy = client.engine_object
    second = Launcher.make(client)
    faulty(second, "a wild store")
    assert list(states(client)) == [0]
    broken, client.engine_object = client.engine_object, healthy
    assert not first.ring.error()
    assert states(client) == {}
    number = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
    assert not client.control(client.debugger(), number, numSMsToRead=1).mmuFault.valid
    client.control(client.debugger(), Control.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES)
    client.engine_object = broken
    assert list(states(client)) == [0]
    assert client.control(client.debugger(), number, numSMsToRead=1).mmuFault.valid


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
