"""A kernel's fault in the debugger object, the notifier and the reports, and work after it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from drivers.elf import Elf
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.cubin import Section
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.rm_classes import NV83DE_ALLOC_PARAMETERS, RmClass
from drivers.nv.layouts.uvm import UvmCommand
from drivers.nv.lines import LineTable
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, sem, wait_until, wait_word
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


def debug(client: Client) -> int:
    params = NV83DE_ALLOC_PARAMETERS(hAppClient=client.root, hClass3dObject=client.engine_object)
    return client.alloc(client.device, RmClass.GT200_DEBUGGER, params)


def states(client: Client) -> dict[int, NV83DE_SM_ERROR_STATE_REGISTERS]:
    """Return the state of every SM that has one, from two reads of the debugger object."""
    debugger, out, first = debug(client), {}, 0
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
    client.uvm_call(
        UvmCommand.UVM_UNREGISTER_CHANNEL,
        gpuUuid=client.uuid,
        hClient=client.root,
        hChannel=launcher.ring.handle,
    )
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
    from tests.emulator.nv_machine.test_machine_long import WAIT, start

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
    assert not client.control(debug(client), number, numSMsToRead=1).mmuFault.valid
    client.control(debug(client), Control.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES)
    client.engine_object = broken
    assert list(states(client)) == [0]
    assert client.control(debug(client), number, numSMsToRead=1).mmuFault.valid
