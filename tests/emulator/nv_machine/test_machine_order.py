from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import HostMethod, SemOperation
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, method, sem, wait_until, wait_word
from tests.emulator.nv_machine.launching import INCREMENT, STORE, Launcher, copy_word, cubin, upload

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


def test_grids_without_a_barrier_finish_in_any_order(make: Make):
    assert {last_of_two(make, seed, []) for seed in range(12)} == {1, 2}


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


def test_one_seed_is_one_order(make: Make):
    assert len({last_of_two(make, 7, []) for _ in range(3)}) == 1


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


def test_a_channel_that_waits_for_itself_is_reported_at_once(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ) + sem(memory.va, 1))
    ring.wait_error()
    assert "itself" in up.kernel.reports[0].message


def test_a_wait_for_a_release_in_a_later_entry_is_a_deadlock(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push(sem(memory.va, 1, GEQ), ring=False)
    ring.push(sem(memory.va, 1))
    ring.wait_error()
    assert up.kernel.reports[0].kind is FindingKind.DEADLOCK


def test_waiting_for_the_host_is_no_deadlock(up: Client):
    first, second = up.copy_channel(2), up.copy_channel(3)
    memory = up.memory(4096)
    first.push(sem(memory.va, 1, GEQ) + sem(memory.va + 8, 1))
    second.push(sem(memory.va + 8, 1, GEQ) + sem(memory.va + 16, 1))
    third = up.copy_channel(4)
    third.push(sem(memory.va + 24, 1))
    wait_word(memory, 24, 1, up)
    assert up.kernel.reports == []
    struct.pack_into("<Q", memory.view, 0, 1)
    wait_word(memory, 16, 1, up)


def test_a_channel_may_release_more_than_it_waits_for(up: Client):
    """One timeline of two channels: the host submits the value between to the other channel, later."""
    first, second = up.copy_channel(2), up.copy_channel(3)
    memory = up.memory(4096)
    first.push(sem(memory.va, 59, GEQ) + sem(memory.va, 60))
    wait_until(lambda: stuck(up, 1), up)
    with up.machine.lock:
        up.machine.scheduler.check_waits()
    assert up.kernel.reports == []
    second.push(sem(memory.va, 59))
    wait_word(memory, 0, 60, up)


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


def test_a_chain_through_three_channels_runs(up: Client):
    rings = [up.copy_channel(i) for i in (2, 3, 4)]
    memory = up.memory(4096)
    for i, ring in reversed(list(enumerate(rings))):
        ring.push(sem(memory.va + 8 * i, 1, GEQ) + sem(memory.va + 8 * (i + 1), 1))
    struct.pack_into("<Q", memory.view, 0, 1)
    wait_word(memory, 24, 1, up)


def test_several_machines_live_side_by_side(make: Make):
    clients = [make(profile).nodes().objects() for profile in ("sm_80", "sm_90", "sm_90", "sm_120")]
    assert len({id(client.machine) for client in clients}) == len(clients)
    assert [len(client.machine.clients) for client in clients] == [1] * len(clients)


def test_a_closed_machine_holds_no_resources(make: Make):
    client = make().up()
    ring, memory = client.copy_channel(), client.memory(4096)
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, client)
    client.kernel.shut()
    assert client.machine.gpus[0].vram_used == 0
    assert client.kernel.files == {}


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
