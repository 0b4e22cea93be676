"""The emulated AMD GPUs of one machine: queues that run, doorbells, faults, interrupts and reports.

Not here: the ioctls (`emulator.amd.kfd`), the descriptors (`kernel`), the execution of a queue
(`emulator.amd.engines`). Next: `runs`, what the machine needs of the engines. Source of interrupts, faults
and resets: docs/sources-amd.md, KFD ioctls.
"""

# ruff: noqa: D102 - contracts of methods without a docstring are in the Protocols

from __future__ import annotations

import random
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.cwsr import kfd_context_save_area_header
from drivers.amd.layouts.events import (
    END_OF_PIPE_CONTEXT_BITS,
    EVENT_SLOT_BYTES,
    EventType,
    MemoryError_,
    QueueException,
    ResetCause,
    ResetType,
    kfd_hsa_hw_exception_data,
    kfd_hsa_memory_exception_data,
    kfd_memory_exception_failure,
)
from drivers.kernel import LinuxKernel
from emulator.amd.kfd.gpu import KfdGpu
from emulator.amd.kfd.process import KfdProcess
from emulator.amd.reports import FindingKind, MachineReport, MemoryFault, QueueFault, defect, host_path_fault
from emulator.shared.backing import PAGE
from emulator.shared.emulated_kernel import UserMemory
from emulator.shared.machine_report import ReportLog
from emulator.shared.scheduler import Scheduler, TurnLock
from emulator.shared.surprises import Rejections, Surprises
from hcq.errors import DriverError, HcqError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emulator.amd.kfd.gpu import KfdBuffer
    from emulator.amd.kfd.process import Leak
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.kfd.refusal import Refusal
    from emulator.amd.machine.runs import Engines, QueueRun
    from emulator.amd.profiles import GpuProfile, KernelProfile
    from emulator.shared.memory import AddressSpace
    from hcq.counters import Counters

_KEPT: Final = 256
"""Refusals that are kept."""
_HOST_BYTES: Final = 64 << 30
"""System memory of the machine."""
_FIRST_MINOR: Final = 128


class AmdMachine(ReportLog):
    """Emulated GPUs and the state of their kernel driver. `lock` guards all of it."""

    def __init__(
        self,
        profiles: Sequence[GpuProfile],
        kernel: KernelProfile,
        *,
        engines: Engines | None = None,
        seed: int = 0,
        first_minor: int = _FIRST_MINOR,
        masked: Sequence[int] = (),
        peers: bool = True,
        tracks: bool = False,
        fences: bool = False,
        rejections: Rejections | None = None,
    ) -> None:
        """Create the machine; the arguments are those of `open_machine`. `close` ends its thread."""
        super().__init__()
        self.surprises = Surprises()
        self.lock = TurnLock()
        self.rejections = rejections or Rejections()
        self.rng = random.Random(seed)  # noqa: S311 - an order, not a secret
        self.linux = LinuxKernel()
        self.user = UserMemory()
        self.kernel_profile = kernel
        self.gpus = [
            KfdGpu(profile, at, minor=first_minor + at, masked=at in masked, peers=peers)
            for at, profile in enumerate(profiles)
        ]
        self.process = KfdProcess(self.gpus, kernel, self, self.linux, self.user, _HOST_BYTES, tracks)
        self.host_bytes = _HOST_BYTES
        self.refusals: deque[Refusal] = deque(maxlen=_KEPT)
        """Why calls were refused, the latest last."""
        self.leaks: list[Leak] = []
        """Resources that processes did not free."""
        self.counters: dict[int, Counters] = {}
        """gpu_id -> the counters of the GPU's dispatches."""
        self.launches: Counter[str] = Counter()
        """Name of a kernel -> completed dispatches."""
        self.hdp_flushes = 0
        """Flushes of the host data path so far."""
        self._flushes_seen = 0
        """The value of `hdp_flushes` at the last doorbell."""
        self.shows_vram = False
        """Whether the CPU has mapped video memory."""
        self.fences = fences
        self._fenced: dict[QueueObject, int] = {}
        """Queue -> its write pointer at the last fence."""
        self.runs: dict[QueueObject, QueueRun] = {}
        self.stopped: dict[QueueObject, QueueFault] = {}
        """The queues that an exception stopped."""
        self._engines = engines
        order = random.Random(self.rng.getrandbits(64))  # noqa: S311 - an order, not a secret
        self.scheduler: Scheduler[QueueRun] = Scheduler(self, order, thread_name="hcq amd-emu")

    # The interface to the kernel driver (`emulator.amd.kfd.process.Hardware`).

    def queue_created(self, queue: QueueObject) -> None:
        if self._engines is not None:
            self.runs[queue] = self._engines.make(self, queue)

    def queue_changed(self, queue: QueueObject) -> None:
        run = self.runs.get(queue)
        if run is not None:
            try:
                run.changed()
            except (QueueFault, MemoryFault) as fault:
                self.failed(run, fault)
            self.scheduler.doorbell_rung()

    def queue_destroyed(self, queue: QueueObject) -> None:
        run = self.runs.pop(queue, None)
        self.stopped.pop(queue, None)
        if run is None:
            return
        if run.unfinished and queue.active:
            self.advise(f"{queue.name} was destroyed with work left: {run.at}")
        run.close()

    def memory_gone(self, gpu: KfdGpu, buffer: KfdBuffer) -> None:
        for run in tuple(self.runs.values()):
            if run.queue.gpu is gpu:
                try:
                    run.memory_gone(buffer)
                except QueueFault as fault:
                    self.stop(run.queue, fault)

    def maps(self) -> list[AddressSpace]:
        """Return the memory maps of all GPUs. The caller holds the lock."""
        return [gpu.space.map for gpu in self.gpus if gpu.space is not None]

    def clock(self, gpu: KfdGpu) -> int:
        return time.monotonic_ns() * gpu.profile.counter_khz // 1_000_000

    def report_unverified(self, message: str) -> None:
        if not self.process.tracks:
            self.lint(message)
        elif self.is_new(message):
            self.find(FindingKind.HOST, message)

    def event_of(self, gpu: KfdGpu, va: int) -> int | None:
        slots = self.process.slots(gpu)
        return (va - slots.start) // EVENT_SLOT_BYTES if va in slots else None

    def fenced(self) -> None:
        """Handle a fence of the host: the write pointers as they are now precede its later stores."""
        with self.lock:
            self._fenced = {queue: self._pointer(queue) for queue in self.runs}

    @staticmethod
    def _pointer(queue: QueueObject) -> int:
        """Return the write pointer in memory; -1 if it is not mapped, which the doorbell then reports."""
        assert queue.gpu.space is not None
        try:
            return int.from_bytes(queue.gpu.space.read(queue.wptr_va, 8, "the write pointer"), "little")
        except MemoryFault:
            return -1

    def queue_of(self, gpu: KfdGpu, doorbell: int) -> QueueObject | None:
        """Return the queue of doorbell number `doorbell` of a GPU; None if there is none."""
        return next((queue for queue in gpu.queues if queue.doorbell == doorbell), None)

    def rung(self, queue: QueueObject, value: int) -> None:
        """Handle a store to a queue's doorbell.

        It makes packets valid, and executes none; faults stop the queue.
        """
        run = self.runs.get(queue)
        if run is None:
            self.find(
                FindingKind.UNSUPPORTED,
                f"the doorbell of {queue.name} rang, and no engine is emulated",
                queue,
            )
            return
        if queue in self.stopped or not self.surprises.doorbell(self, queue):
            return
        if not queue.active and not queue.gpu.evicted:
            self.report_unverified(
                f"the doorbell of {queue.name} rang, which UPDATE_QUEUE or a percentage of 0 made inactive"
            )
        try:
            if self.fences and self._fenced.get(queue) != self._pointer(queue):
                self.report_unverified(
                    f"the doorbell of {queue.name} rang without a fence after its write pointer: the GPU "
                    "may see the doorbell before the packets"
                )
            flushed, self._flushes_seen = self.hdp_flushes > self._flushes_seen, self.hdp_flushes
            if self.shows_vram and not flushed and self.rejections.refuses("doorbell"):
                raise host_path_fault()
            run.rung(value)
        except (QueueFault, MemoryFault) as fault:
            self.failed(run, fault)
        self.scheduler.doorbell_rung()

    def interrupt(self, gpu: KfdGpu, context: int, bits: int, *, written: bool = False) -> None:
        """Raise an interrupt that carries the low `bits` of an event's number.

        The event's slot must be written before. `written` says that the queue itself wrote it; the interrupt
        of another queue may have reset it since, which is no mistake. `bits` is 32 for the end of a pipe, 28
        for an SDMA trap, 24 for a kernel's message.
        """
        if self.surprises.at("interrupt") is not None:
            return
        if context == 0 and bits == END_OF_PIPE_CONTEXT_BITS and gpu.profile.ignores_context_zero:
            return
        if not self.process.events.names(context & (1 << bits) - 1, bits):
            self.report_unverified(
                f"an interrupt of {gpu.name} with context {context:#x}, which names no event"
            )
        if not self.process.events.interrupt(context & (1 << bits) - 1, bits) and not written:
            self.lint(
                f"an interrupt of {gpu.name} with event {context:#x} found every slot of the signal page "
                "unsignalled: the slot is written first"
            )

    def stop(self, queue: QueueObject, fault: QueueFault) -> None:
        """Stop one queue, and deliver the exception to the process if it enabled the runtime.

        Does nothing if the queue is stopped already, or its GPU evicted.
        """
        with self.lock:
            if queue in self.stopped or queue.gpu.evicted:
                return
            run = self.runs.get(queue)
            self.stopped[queue] = fault
            self.reports.append(
                MachineReport(
                    kind=fault.kind,
                    message=fault.message,
                    queue=queue.name,
                    code=int(fault.exception),
                    code_name=f"exception {fault.exception.name}",
                    at="" if run is None else run.at,
                )
            )
            if run is not None:
                run.stopped(fault)
            if self.process.runtime:
                self._deliver(queue, fault.exception)

    def _deliver(self, queue: QueueObject, exception: QueueException) -> None:
        """Set the exception's bit in the queue's payload word, and its event.

        The save area's header names both.
        """
        if not queue.save_va:
            return
        try:
            raw = self.user.read(queue.save_va, kfd_context_save_area_header.SIZE)
            header = kfd_context_save_area_header.from_bytes(raw)
            if not header.err_payload_addr:
                return
            word = int.from_bytes(self.user.read(header.err_payload_addr, 8), "little")
            word |= 1 << int(exception) - 1
            self.user.write(header.err_payload_addr, word.to_bytes(8, "little"))
        except DriverError as error:
            self.advise(f"the exception of {queue.name} could not be delivered: {error}")
            return
        event = self.process.events.table.get(header.err_event_id)
        if event is None:
            self.advise(
                f"the exception of {queue.name} names event {header.err_event_id}, which does not exist"
            )
            return
        self.process.events.set(event)

    def memory_fault(self, queue: QueueObject, fault: MemoryFault) -> None:
        """Evict every queue of the process on the queue's GPU, and fire MEMORY events.

        Does nothing if the GPU is evicted already.
        """
        with self.lock:
            gpu = queue.gpu
            if gpu.evicted:
                return
            run = self.runs.get(queue)
            self.reports.append(
                MachineReport(
                    kind=fault.kind,
                    message=fault.message,
                    queue=queue.name,
                    va=fault.address,
                    at="" if run is None else run.at,
                )
            )
            self._evict(gpu, fault, fault.message)
            page = fault.address // PAGE * PAGE
            payload = kfd_hsa_memory_exception_data.pack(
                failure=kfd_memory_exception_failure(NotPresent=fault.not_present, ReadOnly=fault.writes),
                va=page & (1 << 64) - 1,
                gpu_id=gpu.gpu_id,
                ErrorType=MemoryError_.NO_RAS,
            )
            self.process.events.fire(EventType.MEMORY, payload)

    def reset(
        self, gpu: KfdGpu, kind: FindingKind, message: str, *, memory_lost: bool = False, at: str = ""
    ) -> None:
        """Reset a GPU that hangs: evict its queues, and fire HW_EXCEPTION events.

        Does nothing if the GPU is evicted already.
        """
        with self.lock:
            if gpu.evicted:
                return
            self.reports.append(MachineReport(kind=kind, message=message, queue=gpu.name, at=at))
            self._evict(gpu, QueueFault(kind, message, QueueException.PREEMPTION_ERROR), message)
            payload = kfd_hsa_hw_exception_data.pack(
                reset_type=ResetType.WHOLE_GPU,
                reset_cause=ResetCause.GPU_HANG,
                memory_lost=memory_lost,
                gpu_id=gpu.gpu_id,
            )
            self.process.events.fire(EventType.HW_EXCEPTION, payload)

    def _evict(self, gpu: KfdGpu, error: QueueFault | MemoryFault, why: str) -> None:
        gpu.evicted = why
        for run in self.runs.values():
            if run.queue.gpu is gpu:
                run.stopped(error)

    def find(self, kind: FindingKind, message: str, queue: QueueObject | None = None) -> None:
        """Add a finding that stops no queue; `queue` is named if it is about one."""
        with self.lock:
            self.reports.append(
                MachineReport(kind=kind, message=message, queue="" if queue is None else queue.name)
            )

    def new_texts(self) -> tuple[str, ...]:
        """Return the texts of the faults since the last call, the oldest first.

        If there are none, return the current packet or wait of each queue with work left, one of which the
        caller waits for.
        """
        with self.lock:
            texts = self.fresh_texts()
            waits = (
                f"{run.queue.name} {'' if run.queue.active else '(inactive) '}is at {run.standing()}"
                for run in self.pending()
                if run.unfinished
            )
            return texts or tuple(waits)

    # The interface to the scheduler (`emulator.shared.scheduler.ScheduledMachine`).

    def pending(self) -> Sequence[QueueRun]:
        """Return the runs that have work left and are not stopped."""
        return [run for queue, run in tuple(self.runs.items()) if run.busy and queue not in self.stopped]

    def runnable(self) -> list[QueueRun]:
        """Return the pending runs whose queue is active."""
        return [run for run in self.pending() if run.queue.active]

    def failed(self, queue: QueueRun, error: Exception) -> None:
        """Stop a queue whose step raised `error`; an unexpected error becomes a DEFECT finding."""
        if isinstance(error, MemoryFault):
            self.memory_fault(queue.queue, error)
        elif isinstance(error, QueueFault):
            self.stop(queue.queue, error)
        elif isinstance(error, HcqError):
            self.stop(queue.queue, QueueFault(FindingKind.UNSUPPORTED, f"{type(error).__name__}: {error}"))
        else:
            self.stop(queue.queue, defect(error))

    def endless_waits(self, stuck: Sequence[QueueRun]) -> Mapping[QueueRun, str]:
        """Return the queues that wait without end, with the reason of each."""
        return {} if self._engines is None else self._engines.endless_waits(stuck)

    def hung(self, queue: QueueRun, why: str) -> None:
        """Reset the GPU of a queue whose wait never ends."""
        self.reset(queue.queue.gpu, FindingKind.DEADLOCK, f"{queue.queue.name}: {why}", at=queue.at)

    def end_process(self) -> None:
        """Release the resources of the process, and report those that it did not release as leaks."""
        with self.lock:
            left = self.process.end()
            for gpu in self.gpus:
                gpu.evicted = ""  # an eviction ends with its process (kfd_dqm_evict_pasid)
            self.leaks += left
            for one in left:
                self.report_unverified(f"{one.kind} was not released: {one.what}")

    def close(self) -> None:
        """End the machine's thread and close its engines. The machine may be used again."""
        self.scheduler.close()
        if self._engines is not None:
            self._engines.close()
        self.user.close()
