"""Long-running kernels: other work does not wait for them, and they end as on hardware."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest

from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import SemOperation
from drivers.nv.layouts.uvm import UvmCommand
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, sem, wait_until, wait_word
from tests.emulator.nv_machine.launching import SPIN, STORE, Launcher, copy_word, cubin, upload

GEQ = SemOperation.ACQ_STRICT_GEQ
WAIT = """
.visible .entry wait(.param .u64 flag) {
 .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p;
 ld.param.u64 %d0, [flag];
L: ld.volatile.global.u32 %r0, [%d0]; setp.eq.u32 %p, %r0, 0; @%p bra L;
 st.global.u32 [%d0+4], %r0; ret;
}
"""
"""A kernel that waits for a flag and then stores a result."""
LOOP = """
.visible .entry loop(.param .u64 flag) {
 .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p;
 ld.param.u64 %d0, [flag];
L: ld.global.u32 %r0, [%d0]; setp.eq.u32 %p, %r0, 0; @%p bra L;
 st.global.u32 [%d0+4], %r0; ret;
}
"""
"""The same with weak loads, which need not observe other stores; here they do, and the warp never yields."""

Make = Callable[..., Client]


def send(launcher: Launcher, text: str, name: str) -> Memory:
    """Launch a kernel that waits for a flag; the flag's memory."""
    data = launcher.client.memory(4096)
    code = upload(launcher.client, cubin(launcher.profile, text))
    params = struct.pack("<Q", data.va)
    launcher.ring.push(launcher.send(launcher.qmd(launcher.descriptor(code, name, params))))
    return data


def start(launcher: Launcher, text: str, name: str) -> Memory:
    """Launch a kernel that waits for a flag, and wait until it runs; the flag's memory."""
    data, client = send(launcher, text, name), launcher.client
    wait_until(lambda: any(o.slice for c in client.machine.channels for o in tuple(c.run.inflight)), client)
    return data


@pytest.mark.parametrize(("text", "name"), [(WAIT, "wait"), (LOOP, "loop")])
def test_the_host_and_other_channels_go_on_while_a_kernel_runs(launcher: Launcher, text: str, name: str):
    client = launcher.client
    other = client.copy_channel()
    data = start(launcher, text, name)
    for i in range(1, 21):
        client.control(client.subdevice, Control.NV2080_CTRL_CMD_MC_GET_ARCH_INFO)
        other.push(sem(data.va + 64, i))
        wait_word(data, 64, i, client)
    assert launcher.ring.error() == 0, "ended by its time limit: somebody waited for it"
    assert struct.unpack_from("<I", data.view, 4)[0] == 0
    struct.pack_into("<I", data.view, 0, 7)
    launcher.finish([])
    assert struct.unpack_from("<I", data.view, 4)[0] == 7


@pytest.mark.parametrize(("text", "name"), [(WAIT, "wait"), (LOOP, "loop")])
def test_a_copy_engine_sets_what_a_kernel_waits_for(launcher: Launcher, text: str, name: str):
    client = launcher.client
    other = client.copy_channel()
    data = start(launcher, text, name)
    struct.pack_into("<I", data.view, 128, 9)
    other.push(copy_word(data.va + 128, data.va))
    launcher.finish([])
    assert struct.unpack_from("<I", data.view, 4)[0] == 9


def test_a_kernel_that_waits_for_an_unordered_one_gets_it(launcher: Launcher):
    client = launcher.client
    data = client.memory(4096)
    code = upload(client, cubin("sm_90", WAIT, STORE))
    words = launcher.send(launcher.qmd(launcher.descriptor(code, "wait", struct.pack("<Q", data.va))))
    params = struct.pack("<QI", data.va, 5)
    words += launcher.send(launcher.qmd(launcher.descriptor(code, "store", params)))
    launcher.finish(words)
    assert struct.unpack_from("<II", data.view) == (5, 5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("text", "name"), [(WAIT, "wait"), (LOOP, "loop"), (SPIN, "spin")])
def test_a_kernel_without_end_is_a_context_switch_timeout_of_its_group_alone(
    launcher: Launcher, text: str, name: str
):
    client = launcher.client
    client.machine.grids.timeout_s = 0.3
    other = client.copy_channel()
    data = send(launcher, text, name)
    assert launcher.ring.wait_error() == RcCode.CONTEXT_SWITCH_TIMEOUT
    assert client.kernel.reports[0].kind is FindingKind.KERNEL
    assert name in client.kernel.reports[0].message
    other.push(sem(data.va + 64, 1))
    wait_until(lambda: struct.unpack_from("<Q", data.view, 64)[0] == 1, client)
    assert other.error() == 0


@pytest.mark.parametrize(("text", "name"), [(WAIT, "wait"), (SPIN, "spin")])
def test_a_hung_group_is_preempted_freed_and_rebuilt(launcher: Launcher, text: str, name: str):
    client = launcher.client
    start(launcher, text, name)
    group = client.machine.client(client.root, client.ctl).objects[launcher.ring.handle].parent
    assert group is not None
    client.control(group.handle, Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, bEnable=False)
    client.control(group.handle, Control.NVA06C_CTRL_CMD_PREEMPT, bWait=True)
    client.uvm_call(
        UvmCommand.UVM_UNREGISTER_CHANNEL,
        gpuUuid=client.uuid,
        hClient=client.root,
        hChannel=launcher.ring.handle,
    )
    client.free(group.handle, client.device)
    again = Launcher.make(client)
    data = client.memory(4096)
    code = upload(client, cubin("sm_90", STORE))
    again.run(code, "store", struct.pack("<QI", data.va, 3))
    assert struct.unpack_from("<I", data.view)[0] == 3
    assert [r.kind for r in client.kernel.reports] == [FindingKind.ADVICE]


def test_memory_unmapped_under_a_running_kernel_is_its_fault(launcher: Launcher):
    client = launcher.client
    data = start(launcher, WAIT, "wait")
    client.uvm_call(UvmCommand.UVM_FREE, base=data.va, length=data.size)
    assert launcher.ring.wait_error() == RcCode.MMU_FAULT
    message = client.kernel.reports[0].message
    assert f"{data.va:#x}" in message
    assert "freed" in message


def test_channels_in_a_wait_cycle_are_reported_while_a_kernel_runs(launcher: Launcher):
    client = launcher.client
    first, second = client.copy_channel(2), client.copy_channel(3)
    data = start(launcher, WAIT, "wait")
    a, b = data.va + 64, data.va + 128
    with client.machine.lock:
        first.push(sem(a, 1, GEQ) + sem(b, 1))
        second.push(sem(b, 1, GEQ) + sem(a, 1))
    assert first.wait_error() == RcCode.CONTEXT_SWITCH_TIMEOUT
    assert second.wait_error() == RcCode.CONTEXT_SWITCH_TIMEOUT
    assert launcher.ring.error() == 0
    struct.pack_into("<I", data.view, 0, 1)
    wait_until(lambda: struct.unpack_from("<I", data.view, 4)[0] == 1, client)


def test_closing_the_machine_ends_what_runs(launcher: Launcher):
    """Without a time limit: nothing else would end it."""
    client = launcher.client
    client.machine.grids.timeout_s = math.inf
    start(launcher, SPIN, "spin")
    client.kernel.shut()
    wait_until(lambda: client.machine.gpus[0].vram_used == 0, client)
