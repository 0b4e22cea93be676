"""Order of work: barriers, deadlocks, kernels that run long, and doubtful waits."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.dma import DmaMethod
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import HostMethod, SemOperation
from drivers.nv.layouts.uvm import UvmCommand
from emulator.ir.library import Sanitizers
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, method, sem, wait_until, wait_word
from tests.emulator.nv_machine.launching import INCREMENT, SPIN, STORE, Launcher, copy_word, cubin, upload

GEQ = SemOperation.ACQ_STRICT_GEQ

Make = Callable[..., Client]


def last_of_two(make: Make, seed: int, between: list[int]) -> int:
    """Store 1 and 2 to the same place in two grids; return the final value."""
    launcher = Launcher.make(make(seed=seed).up())
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    words = []
    for value in (1, 2):
        params = struct.pack("<QI", data.va, value)
        words += launcher.send(launcher.qmd(launcher.descriptor(code, "store", params))) + between
    launcher.finish(words)
    return int(struct.unpack_from("<I", data.view)[0])


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "between",
    [
        method(1, M.WAIT_FOR_IDLE, 0),
        method(0, HostMethod.WFI, 0),
        method(1, M.INVALIDATE_SHADER_CACHES, 1),
        method(0, HostMethod.MEM_OP_A, 0, 0, 0, 5 << 27),
    ],
)
def test_a_barrier_orders_grids_under_every_seed(make: Make, between: Any):
    assert {last_of_two(make, seed, between) for seed in range(6)} == {2}


def test_channels_that_wait_for_each_other_are_reported_at_once(up: Client):
    first, second = up.copy_channel(2), up.copy_channel(3)
    memory = up.memory(4096)
    a, b = memory.va, memory.va + 8
    with up.machine.lock:
        first.push(sem(a, 1, GEQ) + sem(b, 1))
        second.push(sem(b, 1, GEQ) + sem(a, 1))
    assert first.wait_error() == RcCode.CONTEXT_SWITCH_TIMEOUT
    assert second.wait_error() == RcCode.CONTEXT_SWITCH_TIMEOUT
    report = up.kernel.reports[0]
    assert report.kind is FindingKind.DEADLOCK
    assert f"{a:#x}" in report.message
    assert f"{b:#x}" in report.message


def test_a_wait_for_a_release_in_a_later_entry_is_a_deadlock(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ), ring=False)
    ring.push(sem(memory.va, 1))
    ring.wait_error()
    assert up.kernel.reports[0].kind is FindingKind.DEADLOCK
    assert "itself" in up.kernel.reports[0].message


def stuck(client: Client, channels: int) -> bool:
    """Return whether the first channels can only wait."""
    with client.machine.lock:
        return all(c.run.stuck for c in client.machine.channels[:channels])


def test_a_doorbell_during_deadlock_analysis_is_not_lost(up: Client):
    rings = [up.copy_channel(i) for i in (2, 3, 4)]
    memory = up.memory(4096)
    a, b = memory.va, memory.va + 8
    rings[0].push(sem(a, 1, GEQ))
    rings[1].push(sem(b, 1, GEQ))
    wait_until(lambda: stuck(up, 2), up)
    with up.machine.lock:
        rings[0].push(sem(b, 1))
        rings[1].push(sem(a, 1) + sem(memory.va + 16, 1))
        rings[2].push(sem(a, 1))
        up.machine.scheduler.check_waits()
    wait_word(memory, 16, 1, up)
    assert up.kernel.reports == []


def test_the_last_close_ends_the_thread_and_the_machine_can_be_used_again(make: Make):
    client = make().up()
    scheduler = client.machine.scheduler
    for _ in range(2):
        ring, memory = client.copy_channel(), client.memory(4096)
        ring.push(sem(memory.va, 1))
        wait_word(memory, 0, 1, client)
        thread = scheduler._thread
        assert thread is not None
        assert thread.is_alive()
        for fd in tuple(client.kernel.files):
            client.kernel.close(fd)
        assert not thread.is_alive()
        assert not scheduler.running
        client.next_va += 1 << 24
        client.up()


def test_memory_that_a_channel_uses_outlives_its_object(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096)
    up.free(ring.notifier.handle, up.device)
    up.free(memory.handle, up.device)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, up)
    ring.push(method(0, 0x0C, 0))
    assert ring.wait_error() == RcCode.PBDMA_ERROR


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_pipeline_over_three_channels_holds_under_every_seed(make: Make, seed: int):
    launcher = Launcher.make(make(seed=seed).up())
    client = launcher.client
    code = upload(client, cubin("sm_90", INCREMENT))
    data = client.memory(4096)
    copies = [client.copy_channel(i) for i in (2, 3)]
    va = launcher.qmd(launcher.descriptor(code, "increment", struct.pack("<Q", data.va)))
    signals = data.va + 2048
    for i in range(1, 9):
        for one in (*copies, launcher.ring):
            one.segment_at %= 0x4000
        steps = [copy_word(data.va, data.va + 256), launcher.send(va), copy_word(data.va, data.va + 512)]
        for n, (one, words) in enumerate(zip((copies[0], launcher.ring, copies[1]), steps, strict=True)):
            wait = sem(signals + 16 * ((n - 1) % 3), i - (n == 0), GEQ)
            one.push(wait + words + sem(signals + 16 * n, i, RELEASE_WFI=True))
    wait_word(data, 2048 + 32, 8, client)
    assert struct.unpack_from("<I", data.view)[0] == 8
    assert struct.unpack_from("<I", data.view, 256)[0] == 7
    assert struct.unpack_from("<I", data.view, 512)[0] == 8


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
    client.unregister(launcher.ring)
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
