"""The host engine: semaphores, headers, ring entries, subchannels, and what stops a channel."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.dma import DmaReduction
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import GpfifoControl, GpfifoEntry, GpfifoOpcode, SecOp
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation, SemReduction
from emulator.nv.machine import FindingKind
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_word
from tests.emulator.nv_machine.copying import ONE, copy, semaphore
from tests.emulator.nv_machine.launching import STORE, Launcher, cubin, upload

Ready = tuple[Client, Ring, Memory]


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
def test_the_user_area_of_some_channels_has_the_get_index(make: Callable[..., Client], profile: str):
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
        + method(
            0,
            HostMethod.SEM_PAYLOAD_HI,
            0,
            int(SemExecute(OPERATION=SemOperation.RELEASE, PAYLOAD_SIZE=True)),
            opcode=SecOp.INCREMENT_ONCE,
        )
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


@pytest.mark.parametrize("call", ["read32", "read64", "write32", "write64"])
def test_other_registers_of_the_doorbell_page_are_refused(up: Client, call: Any):
    with pytest.raises(UsageError, match="doorbell page"):
        getattr(up.doorbell, call)(0x94, *([1] if "write" in call else []))
    assert up.machine.fatal


def test_a_stopped_channel_runs_nothing_more(ready: Ready):
    client, ring, memory = ready
    ring.push(method(0, 0x0C, 0))
    ring.wait_error()
    ring.push(sem(memory.va, 1))
    other = client.copy_channel(3)
    other.push(sem(memory.va + 8, 1))
    while word(memory, 8) == 0:
        pass
    assert word(memory, 0) == 0


Make = Callable[..., Client]
ACQUIRE = SemOperation.ACQ_STRICT_GEQ
METHOD, HOST, UNSUPPORTED = FindingKind.METHOD, FindingKind.HOST, FindingKind.UNSUPPORTED


def fails(  # noqa: PLR0917 - the parts of a report
    client: Client, ring: Ring, words: list[int], text: str, kind: FindingKind, code: RcCode
) -> None:
    """Push words that are refused; compare report, kind and code."""
    ring.push(words)
    ring.wait_error()
    report = client.kernel.reports[0]
    assert text in str(report)
    assert (report.kind, RcCode(report.code)) == (kind, code)


def test_an_extended_base_reaches_above_2_to_40(up: Client) -> None:
    high = 3 << 40
    ring, memory = up.copy_channel(), up.memory(4096)
    words = sem(memory.va, 7)
    segment = up.memory(4096)
    up.map_gpu(segment.handle, high + 0x10000, 4096)
    struct.pack_into(f"<{len(words)}I", segment.view, 0, *words)
    ring.entry(int(GpfifoControl(OPCODE=GpfifoOpcode.SET_PB_SEGMENT_EXTENDED_BASE, OPERAND=3)))
    ring.entry(int(GpfifoEntry(ADDRESS=0x10000, LENGTH=len(words))))
    ring.ring()
    wait_word(memory, 0, 7, up)


@pytest.mark.parametrize("subchannel", range(8))
def test_host_methods_are_taken_on_any_subchannel(up: Client, subchannel: int) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push([word | subchannel << 13 if i == 0 else word for i, word in enumerate(sem(memory.va, 9))])
    wait_word(memory, 0, 9, up)


def test_a_segment_may_end_itself(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push([*sem(memory.va, 3), 0xE000_0000])
    wait_word(memory, 0, 3, up)


def test_a_class_bound_again_keeps_its_state(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(1 << 16)
    words = copy(memory.va, memory.va + 4096, 64)
    bind = method(4, 0, up.generation.copy[0])
    memory.view[:4] = b"abcd"
    ring.push(words[:-2] + bind + words[-2:] + bind + semaphore(memory.va + 0x8000, 1))
    wait_word(memory, 0x8000, 1, up)
    assert bytes(memory.view[4096:4100]) == b"abcd"


def test_work_left_on_a_subchannel_that_another_class_takes_is_reported(up: Client) -> None:
    ring, memory = up.compute_channel(), up.memory(4096)
    up.alloc(ring.handle, up.generation.copy[0])
    ring.push(method(1, M.SEND_PCAS_A, memory.va >> 8) + method(1, 0, up.generation.copy[0]))
    ring.wait_error()
    assert "was sent and not scheduled" in up.reports()[0]


@pytest.mark.parametrize(("profile", "version"), [("sm_80", 0x802), ("sm_90", 0x900), ("sm_120", 0xC00)])
def test_versions_that_may_be_set_are_taken(make: Make, profile: str, version: int) -> None:
    client = make(profile).up()
    ring, memory = client.compute_channel(), client.memory(4096)
    words = method(1, M.SET_SPA_VERSION, version) + method(1, M.SET_QMD_VERSION, 0x0001_0040)
    ring.push(words + sem(memory.va, 1))
    wait_word(memory, 0, 1, client)


def test_a_sum_of_floats_overflows_to_infinity(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    struct.pack_into("<f", memory.view, 64, 3e38)
    (most,) = struct.unpack("<I", struct.pack("<f", 3e38))
    fields = {"SEMAPHORE_REDUCTION": DmaReduction.FADD, "SEMAPHORE_REDUCTION_ENABLE": True}
    ring.push(semaphore(memory.va + 64, most, ONE, **fields) + sem(memory.va, 1, RELEASE_WFI=True))
    wait_word(memory, 0, 1, up)
    assert struct.unpack_from("<f", memory.view, 64)[0] == float("inf")


def test_the_engine_of_a_graphics_channel_posts_the_first_copy_error(up: Client) -> None:
    ring = up.compute_channel()
    up.alloc(ring.handle, up.generation.copy[0])
    words = method(4, 0, up.generation.copy[0]) + method(4, 0x104, 0)
    fails(up, ring, words, "has no method 0x104", METHOD, RcCode.CE0_ERROR)


@pytest.fixture
def launcher(up: Client) -> Launcher:
    return Launcher.make(up)


def test_a_longer_binding_of_the_same_bank_is_no_change(launcher: Launcher) -> None:
    client = launcher.client
    code, data = upload(client, cubin("sm_90", STORE)), client.memory(4096)
    params = struct.pack("<QI", data.va, 5)
    quiet = {"INVALIDATE_SHADER_CONSTANT_CACHE": False}
    bank = launcher.place(launcher.bank0(params, (1, 1, 1), (1, 1, 1)) + bytes(64))
    for size in (0x22, 0x24, 0x22):
        more = {"CONSTANT_BUFFER_SIZE_SHIFTED4": (size,)}
        launcher.run(code, "store", params, bank0=bank, **quiet, **more)
