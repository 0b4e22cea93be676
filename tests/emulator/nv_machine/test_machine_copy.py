from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.dma import DataTransferType, DmaMethod, DmaReduction, RemapSource
from drivers.nv.layouts.fault import RcCode
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_word
from tests.emulator.nv_machine.copying import FOUR, ONE, copy, remap, semaphore
from tests.limits import HANG_S

Ready = tuple[Client, Ring, Memory]

Make = Callable[..., Client]


@pytest.fixture
def ready(up: Client) -> Ready:
    return up, up.copy_channel(), up.memory(1 << 20)


def fill(memory: Memory, at: int, data: bytes) -> None:
    memory.view[at : at + len(data)] = data


def test_the_semaphore_comes_after_the_copy(ready: Ready):
    client, ring, memory = ready
    for i in range(1, 30):
        fill(memory, 0, bytes([i]) * 4096)
        words = copy(memory.va, memory.va + 0x2000, 4096, DATA_TRANSFER_TYPE=DataTransferType.PIPELINED)
        ring.segment_at %= 0x4000
        ring.push(words + semaphore(memory.va + 0x8000, i))
        wait_word(memory, 0x8000, i, client)
        assert bytes(memory.view[0x2000:0x3000]) == bytes([i]) * 4096
    assert struct.unpack_from("<Q", memory.view, 0x8008)[0] > 0


def test_a_host_release_without_wait_overtakes_the_copy_under_some_seed(make: Make):
    overtaken = False
    for seed in range(12):
        client = make(seed=seed).up()
        ring, memory = client.copy_channel(), client.memory(1 << 16)
        with client.machine.lock:
            fill(memory, 0, b"x" * 64)
            one = copy(memory.va, memory.va + 0x100, 64) + sem(memory.va + 0x200, 1)
            ring.push(
                one + sem(memory.va + 0x208, 5, 6, REDUCTION=5) + sem(memory.va + 0x210, 1, RELEASE_WFI=True)
            )
            channel = client.machine.channels[0].run
            while struct.unpack_from("<Q", memory.view, 0x200)[0] == 0:
                channel.step()
            overtaken |= memory.view[0x100] != ord("x")
        wait_word(memory, 0x210, 1, client)
        assert memory.view[0x100] == ord("x")
    assert overtaken


def test_lines_are_copied_with_their_pitches(ready: Ready):
    client, ring, memory = ready
    fill(memory, 0, bytes(range(64)))
    pitches = method(4, DmaMethod.PITCH_IN, 16, 8) + method(4, DmaMethod.LINE_COUNT, 4)
    ring.push(
        pitches
        + copy(memory.va, memory.va + 0x1000, 8, MULTI_LINE_ENABLE=True)
        + semaphore(memory.va + 0x8000, 1)
    )
    wait_word(memory, 0x8000, 1, client)
    assert bytes(memory.view[0x1000:0x1020]) == b"".join(bytes(range(i, i + 8)) for i in (0, 16, 32, 48))


def test_a_fill_repeats_its_constant(ready: Ready):
    client, ring, memory = ready
    words = remap(DST_X=RemapSource.CONST_A, COMPONENT_SIZE=3)
    ring.push(words + copy(0, memory.va + 0x1000, 100, REMAP_ENABLE=True) + semaphore(memory.va + 0x8000, 1))
    wait_word(memory, 0x8000, 1, client)
    assert bytes(memory.view[0x1000:0x1194]) == bytes.fromhex("44332211") * 100 + bytes(4)


def test_components_are_swapped_kept_and_filled(ready: Ready):
    client, ring, memory = ready
    fill(memory, 0, bytes([1, 2, 3, 4]))
    fill(memory, 0x1000, bytes([9] * 8))
    parts = remap(
        DST_X=RemapSource.SRC_Y,
        DST_Y=RemapSource.SRC_X,
        DST_Z=RemapSource.NO_WRITE,
        DST_W=RemapSource.CONST_B,
        NUM_SRC_COMPONENTS=1,
        NUM_DST_COMPONENTS=3,
    )
    ring.push(
        parts + copy(memory.va, memory.va + 0x1000, 2, REMAP_ENABLE=True) + semaphore(memory.va + 0x8000, 1)
    )
    wait_word(memory, 0x8000, 1, client)
    assert bytes(memory.view[0x1000:0x1008]) == bytes([2, 1, 9, 0x88, 4, 3, 9, 0x88])


@pytest.mark.parametrize(
    ("operation", "old", "payload", "new"),
    [
        (DmaReduction.IADD, 3, 4, 7),
        (DmaReduction.IMAX, 3, 4, 4),
        (DmaReduction.FADD, 0x3F800000, 0x3F800000, 0x40000000),
    ],
)
def test_a_semaphore_can_reduce(ready: Ready, operation: Any, old: Any, payload: Any, new: Any):
    client, ring, memory = ready
    struct.pack_into("<I", memory.view, 0x100, old)
    fields = {"SEMAPHORE_REDUCTION": operation, "SEMAPHORE_REDUCTION_ENABLE": True}
    ring.push(semaphore(memory.va + 0x100, payload, ONE, **fields) + sem(memory.va, 1, RELEASE_WFI=True))
    wait_word(memory, 0, 1, client)
    assert struct.unpack_from("<I", memory.view, 0x100)[0] == new


def test_a_payload_of_two_words(ready: Ready):
    client, ring, memory = ready
    ring.push(semaphore(memory.va, 5 << 32 | 6, FOUR, SEMAPHORE_PAYLOAD_SIZE=True))
    wait_word(memory, 0, 5 << 32 | 6, client)


def test_a_semaphore_without_flush_behind_a_copy_is_found(ready: Ready):
    client, ring, memory = ready
    ring.push(copy(memory.va, memory.va + 4096, 4) + semaphore(memory.va + 0x8000, 1, FLUSH_ENABLE=False))
    ring.wait_error()
    assert client.kernel.reports[0].kind is FindingKind.COHERENCE


@pytest.mark.parametrize("where", [0, 1])
def test_a_copy_outside_its_memory_faults_and_writes_nothing(ready: Ready, where: Any):
    client, ring, memory = ready
    small = client.memory(4096)
    source, target = (small, memory) if where == 0 else (memory, small)
    fill(memory, 0, b"y" * 8192)
    ring.push(copy(source.va, target.va, 8192))
    assert ring.wait_error() == RcCode.MMU_FAULT
    assert bytes(small.view[:4]) == bytes(4)


def test_a_finished_copy_can_wake_a_poller(ready: Ready):
    from drivers.nv.layouts import rm, rm_classes
    from drivers.nv.layouts.controls import EVENT_FIFO_MTHD, Control
    from drivers.nv.layouts.rm import Escape

    client, ring, memory = ready
    fd = client.kernel.open("/dev/nvidia0")
    where = {"hClient": client.root, "hDevice": client.device, "fd": fd}
    kind = rm.nv_ioctl_alloc_os_event_t
    assert client.call(client.gpu, Escape.NV_ESC_ALLOC_OS_EVENT, kind, **where).Status == 0
    params = rm_classes.NV0005_ALLOC_PARAMETERS(
        hParentClient=client.root,
        hSrcResource=client.subdevice,
        hClass=0x79,
        notifyIndex=EVENT_FIFO_MTHD,
        data=fd,
    )
    client.alloc(client.subdevice, 0x79, params)
    number = Control.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION
    client.control(client.subdevice, number, event=EVENT_FIFO_MTHD, action=2)
    assert client.kernel.poll([fd], 0.01) == []
    ring.push(semaphore(memory.va, 1, ONE, INTERRUPT_TYPE=2))
    assert client.kernel.poll([fd], HANG_S) == [fd]
    assert client.kernel.poll([fd], 0) == []
