"""Faults as the kernel reports them, sleeping and waking, and what becomes of a device afterwards.

Not here: the messages of each kind of fault (`tests.support.surprises.amd`).
"""

from __future__ import annotations

import contextlib
import errno
import time
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.amd.driver import AmdDriver
from drivers.amd.layouts import aql
from drivers.amd.layouts.events import (
    EventType,
    QueueException,
    ResetCause,
    ResetType,
    kfd_hsa_hw_exception_data,
)
from emulator.amd.reports import MemoryFault
from emulator.shared.surprises import After
from hcq.driver import BufferSpec, QueueKind
from hcq.errors import BringUpError, DeviceFault, DriverError, FaultKind, UnsupportedError
from tests.drivers.amd.opened import HOST, driver_of, emulated, image, machine, opened
from tests.limits import HANG_S
from tools.bringup.amd.kernels import image as wild

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.amd.device import AmdDevice
    from tests.support.hooked import HookedKernel


@contextlib.contextmanager
def running() -> Iterator[tuple[HookedKernel, AmdDevice]]:
    """Yield an emulated kernel and a device on it."""
    kernel = emulated()
    with contextlib.closing(opened(kernel)) as device:
        yield kernel, device


def page_fault(kernel: HookedKernel, va: int, *, writes: bool = False, mapped: bool = False) -> None:
    """Report a page fault of GPU 0, and stop its queues."""
    fault = MemoryFault(va, "made by a test", writes=writes, not_present=not mapped)
    kernel.machine.memory_fault(kernel.machine.gpus[0].queues[0], fault)


def test_a_page_fault_names_address_access_and_the_nearest_memory():
    with running() as (kernel, device):
        memory = device.alloc(4096, BufferSpec())
        page_fault(kernel, memory.va + 12, writes=True)
        report = device.fault()
        assert report is not None
        assert (report.kind, report.va, report.access) == (FaultKind.PAGE_FAULT, memory.va, "write")
        assert "is not mapped" in report.message
        assert "4096 bytes of video memory, which holds the address at offset 0x0" in report.nearest
        assert device.fault() is report, "a fault is sticky"


def test_a_read_of_freed_memory_says_so():
    with running() as (kernel, device):
        memory = device.alloc(4 << 20, BufferSpec())
        device.free(memory)
        page_fault(kernel, memory.va + 8192)
        report = device.fault()
        assert report is not None
        assert "which was freed" in report.nearest
        assert report.access == "read"


def test_a_store_to_read_only_memory_says_so():
    with running() as (kernel, device):
        page_fault(kernel, 0x7000_0000_0000, writes=True, mapped=True)
        report = device.fault()
        assert report is not None
        assert "read-only" in report.message


@pytest.mark.parametrize("whole", [True, False])
def test_a_reset_is_reported_and_that_of_the_whole_gpu_is_final(whole: bool):  # noqa: FBT001 - a parameter of the test
    with running() as (kernel, device):
        data = kfd_hsa_hw_exception_data(
            reset_type=ResetType.WHOLE_GPU if whole else ResetType.PER_ENGINE,
            reset_cause=ResetCause.GPU_HANG,
            memory_lost=whole,
            gpu_id=device.gpu.gpu_id,
        )
        kernel.process.events.fire(EventType.HW_EXCEPTION, data.to_bytes())
        report = device.fault()
        assert report is not None
        assert report.kind is (FaultKind.RESET if whole else FaultKind.HANG)
        assert ("video memory held is lost" in report.message) == whole
        if not whole:
            device.recover()
            assert device.fault() is None
            return
        queues = len(kernel.process.queues)
        with pytest.raises(UnsupportedError, match="start a new process"):
            device.recover()
        assert (len(kernel.process.queues), device.fault()) == (queues, report), "nothing was touched"


def test_exceptions_of_a_queue_are_decoded():
    with running() as (_, device):
        ring = device.ring(QueueKind.COMPUTE, 1)
        bit = 1 << QueueException.WAVE_ILLEGAL_INSTRUCTION - 1
        ring.queue.exceptions[0] = bit | 1 << 60
        report = device.fault()
        assert report is not None
        assert report.kind is FaultKind.ENGINE_EXCEPTION
        assert "an illegal instruction" in report.message
        assert f"unknown exceptions {1 << 60:#x}" in report.message
        assert report.queue == "amd:0 compute 1"
        device.recover()
        assert device.fault() is None


def test_a_report_on_another_queue_is_kept_for_its_fault():
    with running() as (kernel, device):
        kernel.told = ("mmu fault on compute queue 12 of gfx1100:0: a write",)
        assert device.fault() is None
        device.ring(QueueKind.COMPUTE, 0).queue.exceptions[0] = 1
        report = device.fault()
        assert report is not None
        assert report.reports == ("mmu fault on compute queue 12 of gfx1100:0: a write",)


def test_an_aql_queue_that_firmware_stopped_is_reported():
    kernel = emulated("gfx942")
    with contextlib.closing(opened(kernel)) as device:
        ring = device.ring(QueueKind.COMPUTE, 0)
        shared = aql.Queue.from_bytes(ring.queue.pointers.view or b"")
        assert shared.queue_inactive_signal == ring.queue.pointers.va + 1024
        ring.queue.inactive[0] = int(aql.Inactive.WORKGROUP)
        report = device.fault()
        assert report is not None
        assert (report.kind, "work-group too large" in report.message) == (FaultKind.BAD_PACKET, True)


def test_scratch_is_given_to_new_aql_queues_again():
    kernel = emulated("gfx942")
    with contextlib.closing(opened(kernel)) as device:
        device.load(image("gfx942", scratch=True))
        ring = device.ring(QueueKind.COMPUTE, 0)
        before = aql.Queue.from_bytes(ring.queue.pointers.view or b"")
        assert before.compute_tmpring_size
        assert before.scratch_backing_memory_location % 256 == 0
        assert before.scratch_backing_memory_byte_size == before.scratch_resource_descriptor[2]
        ring.queue.inactive[0] = 1
        assert device.fault() is not None
        device.recover()
        after = aql.Queue.from_bytes(ring.queue.pointers.view or b"")
        assert after == before
        assert kernel.machine.process.queue(ring.queue.number, errno.EINVAL).active


def test_the_host_wakes_threads_that_sleep():
    with running() as (kernel, device):
        device.signal_written(0)
        assert "SET_EVENT" not in kernel.calls, "nobody sleeps"
        device._events._sleepers = 1
        device.signal_written(0)
        assert "SET_EVENT" in kernel.calls
        device._events._sleepers = 0


def test_a_wait_during_which_the_device_is_closed_ends():
    kernel = emulated()
    driver = AmdDriver("amd", lambda _: kernel)
    device = driver.open(0, None)
    inner = kernel.ioctl

    def closing(fd: int, request: int, argument: bytearray | int) -> int:
        kernel.ioctl = inner  # type: ignore[method-assign]  # the kernel is the test's own
        device.close()
        return inner(fd, request, argument)

    kernel.ioctl = closing  # type: ignore[method-assign]  # the same
    device._events.sleep(0)
    driver.close()
    assert kernel.held() == {}


def test_an_event_destroyed_while_others_sleep_is_no_error():
    with running() as (kernel, device):
        process = device.process
        process.events.add(77)
        with pytest.raises(DriverError, match="WAIT_EVENTS"):
            device._events.sleep(0)
        inner = kernel.ioctl

        def closing(fd: int, request: int, argument: bytearray | int) -> int:
            process.events.discard(77)
            return inner(fd, request, argument)

        process.events.add(77)
        kernel.ioctl = closing  # type: ignore[method-assign]  # the kernel is the test's own
        device._events.sleep(0)


@pytest.mark.parametrize("kind", [None, QueueKind.COPY])
def test_a_copy_queue_that_the_gpu_stops_is_a_fault_with_its_report(kind: QueueKind | None):
    """None: the driver's own copy queue, which uploads code."""
    with running() as (kernel, device):
        ring = device._uploader.ring if kind is None else device.ring(kind, 0)
        kernel.told = ("SDMA queue 7 of gfx1100:0 is at its start: nothing", "race on host: of others")
        ring.send((0xFF,) * 8)
        if kind is None:
            told = r"exception PACKET_UNSUPPORTED(?s:.*)the copy queue stopped"
            with pytest.raises(DeviceFault, match=told):
                device.load(image("gfx1100"))
        end = time.monotonic() + HANG_S
        while (report := device.fault()) is None and time.monotonic() < end:
            time.sleep(1e-3)
        assert report is not None
        assert (report.kind, report.queue) == (FaultKind.QUEUE_ERROR, ring.queue.label)
        assert report.reports[0] == "race on host: of others"
        assert f"SDMA queue {ring.queue.number} of gfx1100:0" in report.reports[1]
        device.recover()
        assert device.fault() is None
        device.load(image("gfx1100"))


def test_a_recovered_device_runs_and_its_memory_stays():
    with machine() as (_, device):
        a, b = device.alloc(4096, HOST), device.alloc(4096, HOST)
        a.host()[:] = b"x" * 4096
        program = device.load(image("gfx1100"))
        driver = device.driver
        driver.ring(QueueKind.COMPUTE, 0).queue.exceptions[0] = 1  # type: ignore[attr-defined]  # of this driver
        device.poll_driver()
        with pytest.raises(DeviceFault, match="wave aborted"):
            device.sync()
        device.recover()
        queue = device.copies[0]
        queue.submit(queue.record().copy(b, a)).wait(timeout_s=HANG_S)
        assert bytes(b.host()) == b"x" * 4096
        compute = device.compute
        commands = compute.record().exec(program, program.args(a, 1), groups=(1, 1, 1), threads=(1, 1, 1))
        compute.submit(commands).wait(timeout_s=HANG_S)
        assert a.host().cast("I")[0] == 1


@pytest.mark.slow
def test_an_emulated_gpu_refuses_to_recover_once_its_threads_stand_still():
    # The limit is of processor time: a loaded machine does not change it.
    with hcq.open("amd-emu") as device:
        program, buffer = device.load(wild("wild", device.info.arch)), device.alloc(4096)
        commands = device.compute.record().exec(
            program, program.args(buffer, 0x5EAD_0000_0000), groups=(1, 1, 1), threads=(1, 1, 1)
        )
        with pytest.raises(DeviceFault, match="0x5ead00000"):
            device.compute.submit(commands).wait(timeout_s=HANG_S)
        report, spent = device.driver.fault(), time.thread_time()
        for _ in range(2):
            with pytest.raises(BringUpError, match=r"(?s)do not run.*hint: .*until it ends"):
                device.recover()
            assert device.driver.fault() is report
        assert time.thread_time() - spent < 50


def test_recovery_succeeds_where_the_kernel_lets_new_queues_run():
    with running() as (kernel, device):
        page_fault(kernel, 0x1000_0000)
        assert device.fault() is not None
        kernel.machine.gpus[0].evicted = ""  # Linux keeps a process off the GPU
        device.recover()
        assert device.fault() is None


@pytest.mark.parametrize("refusal", [After(errno.ETIME), errno.EIO])
def test_a_queue_that_cannot_be_destroyed_leaves_the_device_faulted(refusal: object):
    with running() as (kernel, device):
        device.ring(QueueKind.COMPUTE, 0).queue.exceptions[0] = 1
        report = device.fault()
        kernel.machine.surprises.table = {"DESTROY_QUEUE": refusal}
        with pytest.raises(DriverError, match="DESTROY_QUEUE"):
            device.recover()
        assert device.fault() is report
        kernel.machine.surprises.table = {}
        device.recover()
        assert device.fault() is None


def test_a_sleeping_thread_waits_for_the_events_of_all_devices():
    kernel = emulated("gfx1100", "gfx1201")
    driver = driver_of(kernel)
    with (
        contextlib.closing(driver.open(0, None)) as first,
        contextlib.closing(driver.open(1, None)) as second,
    ):
        events = kernel.process.events
        events.set(events.table[second._events.signal])
        first._events.sleep(0)
        assert not events.table[second._events.signal].signalled


def test_recovery_keeps_the_priority_of_a_queue():
    with running() as (kernel, device):
        queue = device.ring(QueueKind.COMPUTE, 0).queue
        device.set_priority(QueueKind.COMPUTE, 0, 2)
        queue.exceptions[0] = 1
        assert device.fault() is not None
        device.recover()
        assert queue.level == 2
    assert kernel.held() == {}
