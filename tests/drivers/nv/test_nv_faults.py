"""Faults: notifier to report, SM error states, nearest allocation, recovery with memory kept."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.debugger import NV83DE_MMU_FAULT_INFO, NV83DE_SM_ERROR_STATE_REGISTERS
from drivers.nv.memory import NvMemory
from drivers.shared.memorymap import MemoryMap
from hcq.device import Device
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import FaultKind
from tests.limits import HANG_S
from tests.support.nv.golden import sample
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from hcq.errors import FaultReport
    from hcq.program import KernelImage

READ_ERRORS = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES


@contextlib.contextmanager
def device(kernel: RecordedKernel):
    made = driver_of(kernel).open(0, None)
    try:
        yield made
    finally:
        made.close()
    assert kernel.held() == {}


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        (31, FaultKind.PAGE_FAULT, "MMU fault"),
        (13, FaultKind.ENGINE_EXCEPTION, "graphics engine exception"),
        (32, FaultKind.BAD_PACKET, "host error"),
        (109, FaultKind.HANG, "context switch timeout"),
        (79, FaultKind.RESET, "bus"),
        (126, FaultKind.QUEUE_ERROR, "copy engine 10"),
    ],
)
def test_a_posted_error_becomes_a_fault_report(code: int, kind: object, word: str):
    kernel = RecordedKernel()
    with device(kernel) as made:
        assert made.fault() is None
        kernel.post_error(code)
        report = made.fault()
        assert report is not None
        assert report.kind is kind
        assert word in report.message
        assert made.fault() is report


def test_the_report_names_kernel_address_and_nearest_allocation():
    replies: list[dict[str, object]] = []
    kernel = RecordedKernel(replies={READ_ERRORS: lambda: replies.pop(0)})
    with device(kernel) as made:
        program = made.load(sample("sm_90a", 90))
        near = made.alloc(1 << 21, BufferSpec())
        ring = made.ring(QueueKind.COMPUTE, 0)
        state = NV83DE_SM_ERROR_STATE_REGISTERS(
            hwwGlobalEsr=4, hwwWarpEsr=0x10, hwwEsrAddr=near.va + near.size + 256,
            hwwWarpEsrPc64=program.memory.va + program.kernel.code + 16,
        )  # fmt: skip
        replies += [{"smErrorStateArray": (state,)}, {}]
        words = ring.channel.errors
        words[2], words[3] = 13, 0xFFFF_0000
        report = made.fault()
        assert report is not None
        assert report.kernel == "axpy"
        assert report.va == near.va + near.size + 256
        assert f"[{near.va:#x}, {near.va + near.size:#x})" in report.nearest
        assert "256 bytes below" in report.nearest
        assert "invalid address space" in report.message
        assert not replies, "132 SMs take two reads of 100"
        made.unload(program)


def faulting_at(image: KernelImage, offset: int) -> FaultReport:
    """Return the replies of a GPU with an SM that stopped at a byte of an image's code."""
    replies: list[dict[str, object]] = [{}, {}]
    kernel = RecordedKernel(replies={READ_ERRORS: lambda: replies.pop(0)})
    with device(kernel) as made:
        program = made.load(image)
        pc = program.memory.va + program.kernel.code + offset
        state = NV83DE_SM_ERROR_STATE_REGISTERS(hwwGlobalEsr=4, hwwWarpEsr=0x10, hwwWarpEsrPc64=pc)
        replies[0] = {"smErrorStateArray": (state,)}
        words = made.ring(QueueKind.COMPUTE, 0).channel.errors
        words[2], words[3] = 13, 0xFFFF_0000
        report = made.fault()
        assert report is not None
        made.unload(program)
        return report


def test_an_image_without_lines_has_a_report_without_one():
    report = faulting_at(sample("sm_90a", 90), 16)
    assert report.kernel == "axpy"
    assert report.source == ""
    assert "source" not in str(report)


def test_the_report_has_the_mmu_word_and_the_last_encoded_kernels():
    mmu = NV83DE_MMU_FAULT_INFO(valid=True, faultInfo=0x2A)
    kernel = RecordedKernel(replies={READ_ERRORS: lambda: {"mmuFault": mmu}})
    with contextlib.closing(Device(driver_of(kernel).open(0, None))) as made:
        program = made.load(sample("sm_90a", 90))
        out, x = made.alloc(64), made.alloc(64)
        queue = made.compute
        commands = queue.record().exec(program, program.args(out, x, 1), groups=(1, 1, 1), threads=(1, 1, 1))
        queue.submit(commands).wait(timeout_s=HANG_S)
        words = made.driver.ring(QueueKind.COMPUTE, 0).channel.errors
        words[2], words[3] = 31, 0xFFFF_0000
        report = made.driver.fault()
        assert report is not None
        assert "raw word 0x2a" in report.message
        assert "encoded last: axpy" in report.message


def test_recovery_gives_new_channels_and_keeps_memory():
    kernel = RecordedKernel()
    with device(kernel) as made:
        host = made.alloc(4096, BufferSpec(place=Place.HOST))
        host.host[:4] = b"kept"
        ring = made.ring(QueueKind.COMPUTE, 0)
        before = ring.channel
        kernel.post_error(31)
        assert made.fault() is not None
        made.recover()
        assert made.fault() is None
        assert ring.channel is not before
        assert bytes(host.host[:4]) == b"kept"
        ring.send(())
        kernel.settle()
        assert ring.reclaim() == ring.sequence
        zeroed = made.alloc(1 << 21, BufferSpec())
        made.free(zeroed)


@pytest.mark.parametrize("by", [1, 0xFFFF_FFFF << 32])
def test_a_ring_that_reports_more_than_was_sent_faults_and_frees_no_space(by: int):
    kernel = RecordedKernel()
    with device(kernel) as made:
        ring = made.ring(QueueKind.COMPUTE, 0)
        kernel.settle()
        kernel.doorbells.stalled = True
        ring.send(())
        held = ring.memory.view[:8].cast("Q")
        held[0] = ring.sequence + by
        free = ring._tail
        ring.reclaim()
        assert ring._tail == free
        assert "fetched" in ring.stuck()
        report = made.fault()
        assert report is not None
        assert report.kind is FaultKind.QUEUE_ERROR
        assert report.queue == "nv:0 compute 0"
        assert f"holds {ring.sequence + by:#x}, but {ring.sequence} submissions were sent" in report.message
        kernel.doorbells.stalled = False
        made.recover()
        assert made.fault() is None
        ring.send(())
        kernel.settle()
        assert ring.reclaim() == ring.sequence


def test_the_nearest_allocation_may_be_one_that_was_freed():
    where: MemoryMap[NvMemory] = MemoryMap()
    first = NvMemory(va=0x1000, size=0x1000, view=None, handle=1, label="first")
    second = NvMemory(va=0x4000, size=0x1000, view=None, handle=2, label="second")
    where.add(first)
    where.add(second)
    assert where.nearest(0x4010) == "[0x4000, 0x5000) second, which holds the address at offset 0x10"
    assert where.nearest(0x2010) == "[0x1000, 0x2000) first, 16 bytes below the address"
    assert where.nearest(0x3FF0) == "[0x4000, 0x5000) second, 16 bytes above the address"
    where.remove(second)
    assert where.nearest(0x4010) == "[0x4000, 0x5000) second, which was freed"


def test_a_ring_that_is_stuck_is_taken_off_the_run_list_before_it_is_freed():
    kernel = RecordedKernel()
    with device(kernel) as made:
        ring = made.ring(QueueKind.COMPUTE, 0)
        kernel.settle()
        kernel.doorbells.stalled = True
        ring.send(())
        before = len(kernel.lines)
        ring.close()
        assert any("PREEMPT" in call for call in kernel.lines[before:])
        kernel.doorbells.stalled = False
