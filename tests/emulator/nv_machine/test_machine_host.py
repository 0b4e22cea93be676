from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import GpfifoControl, GpfifoEntry, GpfifoOpcode, SecOp, UsermodeRegister
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation, SemReduction
from emulator.nv.machine import FindingKind
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_word

if TYPE_CHECKING:
    from collections.abc import Callable

Ready = tuple[Client, Ring, Memory]

RELEASE = int(SemExecute(OPERATION=SemOperation.RELEASE, PAYLOAD_SIZE=True))


@pytest.fixture
def ready(up: Client):
    return up, up.copy_channel(), up.memory(4096, system=True)


def put(memory: Memory, offset: int, value: int) -> None:
    struct.pack_into("<Q", memory.view, offset, value)


def word(memory: Memory, offset: int) -> int:
    return struct.unpack_from("<Q", memory.view, offset)[0]


def test_a_release_writes_payload_and_time(ready: Ready):
    client, ring, memory = ready
    ring.push(sem(memory.va + 64, 42, RELEASE_TIMESTAMP=True, RELEASE_WFI=True))
    wait_word(memory, 64, 42, client)
    assert word(memory, 72) > 0
    assert ring.error() == 0


def test_nothing_runs_inside_the_doorbell(ready: Ready):
    client, ring, memory = ready
    with client.machine.lock:
        ring.push(sem(memory.va, 7))
        assert word(memory, 0) == 0
    wait_word(memory, 0, 7, client)


@pytest.mark.parametrize("profile", ["sm_80", "sm_90", "sm_120"])
def test_the_user_area_of_some_channels_has_the_get_index(
    make: Callable[..., Client], profile: str
):
    told = set()
    for seed in range(8):
        client = make(profile, seed=seed).up()
        ring, memory = client.copy_channel(), client.memory(4096)
        ring.push(sem(memory.va, 7))
        wait_word(memory, 0, 7, client)
        (got,) = struct.unpack_from("<I", ring.memory.view, 0x4000 + 0x88)
        assert got in (0, ring.put)
        told.add(bool(got))
        client.close()
    assert told == ({False} if profile == "sm_120" else {True, False})


def test_the_ring_wraps(ready: Ready):
    client, ring, memory = ready
    for i in range(1, 200):
        ring.segment_at = ring.segment_at % 0x4000
        ring.push(sem(memory.va, i))
        wait_word(memory, 0, i, client)


@pytest.mark.parametrize(
    ("operation", "seen", "payload"),
    [
        (SemOperation.ACQUIRE, 5, 5),
        (SemOperation.ACQ_STRICT_GEQ, 9, 5),
        (SemOperation.ACQ_CIRC_GEQ, 2, 2**64 - 3),
        (SemOperation.ACQ_AND, 6, 2),
        (SemOperation.ACQ_NOR, 6, 1),
    ],
)
def test_an_acquire_continues_when_it_is_met(ready: Ready, operation: Any, seen: Any, payload: Any):
    client, ring, memory = ready
    put(memory, 0, seen)
    ring.push(sem(memory.va, payload, operation, ACQUIRE_SWITCH_TSG=True) + sem(memory.va + 8, 1))
    wait_word(memory, 8, 1, client)


@pytest.mark.parametrize(
    ("operation", "seen", "payload", "met"),
    [
        (SemOperation.ACQUIRE, 6, 5, 5),
        (SemOperation.ACQ_STRICT_GEQ, 2, 2**64 - 3, 2**64 - 3),
        (SemOperation.ACQ_CIRC_GEQ, 4, 5, 5),
        (SemOperation.ACQ_AND, 4, 2, 2),
        (SemOperation.ACQ_NOR, 2**64 - 1, 0, 0),
    ],
)
def test_an_acquire_holds_the_channel_until_the_host_writes(
    ready: Ready, operation: Any, seen: Any, payload: Any, met: Any
):
    client, ring, memory = ready
    put(memory, 0, seen)
    ring.push(sem(memory.va, payload, operation) + sem(memory.va + 8, 1))
    other = client.copy_channel(3)
    other.push(sem(memory.va + 16, 1))
    wait_word(memory, 16, 1, client)
    assert word(memory, 8) == 0
    put(memory, 0, met)
    wait_word(memory, 8, 1, client)


@pytest.mark.parametrize(
    ("operation", "old", "payload", "signed", "new"),
    [
        (SemReduction.IMIN, 5, 2**64 - 1, False, 5),
        (SemReduction.IMIN, 5, 2**64 - 1, True, 2**64 - 1),
        (SemReduction.IMAX, 5, 2**64 - 1, True, 5),
        (SemReduction.IXOR, 6, 3, False, 5),
        (SemReduction.IAND, 6, 3, False, 2),
        (SemReduction.IOR, 6, 3, False, 7),
        (SemReduction.IADD, 2**64 - 1, 3, False, 2),
        (SemReduction.INC, 4, 9, False, 5),
        (SemReduction.INC, 9, 9, False, 0),
        (SemReduction.DEC, 0, 9, False, 9),
    ],
)
def test_a_reduction_combines_the_payload(  # noqa: PLR0917 - the columns of its table
    ready: Ready, operation: Any, old: Any, payload: Any, signed: Any, new: Any
):
    client, ring, memory = ready
    put(memory, 0, old)
    words = sem(memory.va, payload, SemOperation.REDUCTION, REDUCTION=operation, REDUCTION_FORMAT=signed)
    ring.push(words + sem(memory.va + 8, 1))
    wait_word(memory, 8, 1, client)
    assert word(memory, 0) == new


def test_all_header_kinds_spread_their_data(ready: Ready):
    client, ring, memory = ready
    target = memory.va
    ring.push(
        method(0, HostMethod.SEM_ADDR_LO, target & 0xFFFF_FFFF, target >> 32)
        + method(0, HostMethod.SEM_PAYLOAD_LO, 1, 2, 3, opcode=SecOp.NON_INCREMENTING)
        + method(0, HostMethod.SEM_PAYLOAD_HI, 0)
        + method(0, HostMethod.SEM_PAYLOAD_HI, 0, RELEASE, opcode=SecOp.INCREMENT_ONCE)
        + [0x8000_0000 | 0 << 16 | HostMethod.WFI >> 2]
    )
    wait_word(memory, 0, 3, client)


def test_control_entries_are_understood(ready: Ready):
    client, ring, memory = ready
    ring.entry(int(GpfifoControl(OPCODE=GpfifoOpcode.NOP)))
    ring.entry(int(GpfifoControl(OPCODE=GpfifoOpcode.SET_PB_SEGMENT_EXTENDED_BASE, OPERAND=0)))
    ring.push(sem(memory.va, 3))
    wait_word(memory, 0, 3, client)


def test_a_host_membar_is_accepted(ready: Ready):
    client, ring, memory = ready
    ring.push(method(0, HostMethod.MEM_OP_A, 0, 0, 0, 5 << 27) + sem(memory.va, 3))
    wait_word(memory, 0, 3, client)


BAD = {
    "an unknown host method": method(0, 0x0C, 0),
    "an unbound subchannel": method(1, 0x100, 0),
    "a header of no kind": [0x0001_0000],
    "a subchannel that does not exist": [0x2001_E000 | 0x1B, 0],
    "data that is not there": [0x2005_0000 | 0x1B, 0],
    "a header without data": [0x2000_0000 | 0x1B],
    "words behind the end of a segment": [0xE000_0000, 0],
    "a class the channel does not have": method(4, 0, 0xCBC0),
    "an engine in SET_OBJECT": method(4, 0, 0x1_C8B5),
    "an undeclared bit of SEM_EXECUTE": method(0, HostMethod.SEM_EXECUTE, 1 << 5 | 1),
    "a semaphore operation that does not exist": method(0, HostMethod.SEM_EXECUTE, 7),
    "an execute before its address": method(0, HostMethod.SEM_EXECUTE, RELEASE),
    "a TLB operation": method(0, HostMethod.MEM_OP_D, 9 << 27),
    "a membar with operands": method(0, HostMethod.MEM_OP_C, 1, 5 << 27),
    "a WFI with an unknown bit": method(0, HostMethod.WFI, 4),
}


@pytest.mark.parametrize("what", BAD)
def test_the_host_refuses(ready: Ready, what: Any):
    client, ring, _ = ready
    ring.push(BAD[what])
    assert ring.wait_error() == RcCode.PBDMA_ERROR, client.reports()
    assert client.kernel.reports[0].kind is FindingKind.HOST


@pytest.mark.parametrize(
    "fields",
    [
        {"RELEASE_TIMESTAMP": True, "OPERATION": SemOperation.ACQUIRE},
        {"ACQUIRE_SWITCH_TSG": True},
        {"REDUCTION": SemReduction.IXOR},
        {"OPERATION": SemOperation.REDUCTION, "RELEASE_TIMESTAMP": True},
    ],
)
def test_bits_of_another_operation_are_refused(ready: Ready, fields: Any):
    _, ring, memory = ready
    fields = dict(fields)
    ring.push(sem(memory.va, 1, fields.pop("OPERATION", SemOperation.RELEASE), **fields))
    assert ring.wait_error() == RcCode.PBDMA_ERROR


@pytest.mark.parametrize(("offset", "time"), [(4, False), (8, True)])
def test_semaphores_must_be_aligned(ready: Ready, offset: Any, time: Any):
    _, ring, memory = ready
    ring.push(sem(memory.va + offset, 1, RELEASE_TIMESTAMP=time))
    assert ring.wait_error() == RcCode.PBDMA_ERROR


@pytest.mark.parametrize(
    "raw",
    [
        1 | 4 << 42,
        1 << 1 | 1 << 42,
        1 << 40 | 1 << 42,
        int(GpfifoControl(OPCODE=GpfifoOpcode.ILLEGAL)),
        0xFF << 32,
    ],
)
def test_bad_ring_entries_are_refused(ready: Ready, raw: Any):
    _, ring, _ = ready
    ring.entry(raw)
    ring.ring()
    assert ring.wait_error() == RcCode.PBDMA_ERROR


def test_a_segment_that_is_not_mapped_faults(ready: Ready):
    client, ring, _ = ready
    ring.entry(int(GpfifoEntry(ADDRESS=0x1000, LENGTH=4)))
    ring.ring()
    assert ring.wait_error() == RcCode.MMU_FAULT
    assert client.kernel.reports[0].va == 0x1000


def test_a_semaphore_that_is_not_mapped_faults_and_names_the_nearest_memory(ready: Ready):
    client, ring, memory = ready
    ring.push(sem(memory.va + 8192, 1))
    assert ring.wait_error() == RcCode.MMU_FAULT
    assert "past the last byte of system memory" in client.reports()[0]


def test_a_read_only_mapping_cannot_be_released_into(ready: Ready):
    client, ring, _ = ready
    memory = client.memory(4096, kind=3)
    ring.push(sem(memory.va, 1))
    assert ring.wait_error() == RcCode.MMU_FAULT


def test_a_put_outside_the_ring_is_refused(ready: Ready):
    _, ring, _ = ready
    ring.put = 64
    ring.ring()
    assert ring.wait_error() == RcCode.PBDMA_ERROR


def test_an_entry_overwritten_before_it_was_fetched_is_a_lifetime_error(ready: Ready):
    client, ring, memory = ready
    with client.machine.lock:
        ring.push(sem(memory.va, 1))
        struct.pack_into("<Q", ring.memory.view, 8, 0)
    ring.wait_error()
    assert client.kernel.reports[0].kind is FindingKind.LIFETIME


def test_a_segment_changed_before_it_was_fetched_is_a_lifetime_error(ready: Ready):
    client, ring, memory = ready
    with client.machine.lock:
        ring.push(sem(memory.va, 1))
        struct.pack_into("<I", ring.memory.view, ring.segments + 64 + 12, 99)
    ring.wait_error()
    assert client.kernel.reports[0].kind is FindingKind.LIFETIME


def test_a_doorbell_without_a_fence_is_found(ready: Ready):
    client, ring, memory = ready
    ring.push(sem(memory.va, 1))
    wait_word(memory, 0, 1, client)
    ring.push(sem(memory.va, 2), ring=False)
    ring.ring(fence=False)
    ring.wait_error()
    assert client.machine.fatal[0].kind is FindingKind.COHERENCE


def test_an_unknown_token_is_found(ready: Ready):
    client, ring, _ = ready
    client.doorbell.write32(UsermodeRegister.NOTIFY_CHANNEL_PENDING, 0x7F_0001)
    assert ring.wait_error() == RcCode.RESET_CHANNEL
    assert "no channel's token" in client.reports()[0]


@pytest.mark.parametrize("call", ["read32", "read64", "write32", "write64"])
def test_other_registers_of_the_doorbell_page_are_refused(up: Client, call: Any):
    with pytest.raises(UsageError, match="doorbell page"):
        getattr(up.doorbell, call)(0x94, *([1] if "write" in call else []))
    assert up.machine.fatal


def test_a_doorbell_before_scheduling_is_found(up: Client):
    group = up.group(rm_copy(2))
    ring = up.ring(group)
    memory = up.memory(4096)
    ring.token = next(iter(up.machine.gpus[0].tokens))
    ring.push(sem(memory.va, 1))
    assert ring.wait_error() == RcCode.PBDMA_ERROR
    assert "not scheduled" in up.reports()[0]


def rm_copy(index: int) -> int:
    from drivers.nv.layouts.rm_classes import copy_engine

    return copy_engine(index)


def test_a_fault_stops_the_siblings_of_the_group(up: Client):
    group = up.group(rm_copy(2))
    first, second = up.ring(group), up.ring(group)
    for one in (first, second):
        up.schedule(one, group)
    first.push(BAD["an unknown host method"])
    assert first.wait_error() == RcCode.PBDMA_ERROR
    assert second.wait_error() == RcCode.PREEMPTIVE_REMOVAL


def test_a_stopped_channel_runs_nothing_more(ready: Ready):
    client, ring, memory = ready
    ring.push(BAD["an unknown host method"])
    ring.wait_error()
    ring.push(sem(memory.va, 1))
    other = client.copy_channel(3)
    other.push(sem(memory.va + 8, 1))
    while word(memory, 8) == 0:
        pass
    assert word(memory, 0) == 0
