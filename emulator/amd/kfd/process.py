"""The state of one process in the emulated kernel driver: GPUs, memory, events, queues, open files.

All descriptors of /dev/kfd share the state. It ends when the last of them is closed. `Hardware` is the
interface of the emulated GPUs to the kernel driver. `Asked` is an ioctl in progress.

A refused call raises `CallRefused`, with the errno of Linux.

Not here: the calls (`ioctls`), the GPUs' engines (`emulator.amd.machine`). Next: `ioctls`.
"""

from __future__ import annotations

import enum
import errno
import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from emulator.amd.kfd.events import KfdEvents
from emulator.amd.kfd.refusal import refuse
from emulator.shared.emulated_kernel import TEXT, FileDescription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.amd.layouts.kfd import Call, MemFlags
    from drivers.kernel import LinuxKernel
    from emulator.amd.kfd.gpu import GpuSpace, KfdBuffer, KfdGpu
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.profiles import KernelProfile
    from emulator.shared.backing import Backing
    from emulator.shared.emulated_kernel import UserMemory
    from emulator.shared.scheduler import TurnLock
    from emulator.shared.surprises import Rejections
    from hcq.layout import Struct


class AmdNode(enum.Enum):
    """The kind of an open file."""

    KFD = "/dev/kfd"
    RENDER = "render node"
    DMABUF = "dma-buf"
    TEXT = TEXT


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory that a dma-buf exports; the descriptor holds a reference to `backing`."""

    owner: KfdGpu
    backing: Backing
    size: int
    kind: MemFlags
    flags: MemFlags


@dataclass(slots=True, eq=False)
class KfdFile(FileDescription):
    """An open file."""

    gpu: KfdGpu | None = None
    """The GPU of a render node; None for other files."""
    shared: Shared | None = None
    """The memory of a dma-buf; None for other files."""
    pid: int = field(default_factory=os.getpid)
    """The process that opened it."""


class KfdFiles(Protocol):
    """The interface of the emulated kernel to ioctls."""

    @property
    def process(self) -> KfdProcess:
        """The state of the process that has /dev/kfd open."""

    @property
    def files(self) -> dict[int, KfdFile]:
        """The open files by descriptor."""

    @property
    def lock(self) -> TurnLock:
        """The lock of the machine."""

    def add_file(self, file: KfdFile) -> int:
        """Give a file a descriptor, and return it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An ioctl of /dev/kfd in progress."""

    kernel: KfdFiles
    process: KfdProcess
    file: KfdFile
    call: Call
    layout: type[Struct]
    """The call's structure."""
    block: bytearray
    """The bytes of the structure, of the kernel's size; copied back to the caller afterwards."""

    def answer(self, **values: int) -> None:
        """Write fields of the structure, by name."""
        self.layout.store(self.block, **values)


MOST_QUEUES: Final = 1024
"""The most queues of a process on all GPUs (kfd_priv.h, KFD_MAX_NUM_OF_QUEUES_PER_PROCESS)."""


class Hardware(Protocol):
    """The interface of the emulated GPUs to the kernel driver."""

    rejections: Rejections
    """The quirks whose default value the machine refuses (`emulator.shared.surprises`)."""

    def queue_created(self, queue: QueueObject) -> None:
        """Add a new queue; it may be inactive."""

    def queue_changed(self, queue: QueueObject) -> None:
        """Handle an update of a queue: ring, priority or state."""

    def queue_destroyed(self, queue: QueueObject) -> None:
        """Stop and remove a queue, whether its work is complete or not."""

    def memory_gone(self, gpu: KfdGpu, buffer: KfdBuffer) -> None:
        """Handle the unmapping of a buffer from a GPU, before it happens."""

    def clock(self, gpu: KfdGpu) -> int:
        """Return a GPU's counter, in its ticks."""

    def advise(self, message: str) -> None:
        """Report something that works although the documented facts advise otherwise."""

    def lint(self, message: str) -> None:
        """Report, once a message, something that works but is probably a mistake."""

    def report_unverified(self, message: str) -> None:
        """Report, once a message, behaviour that works here and may fail on hardware.

        It is a finding if all checks are on (`KfdProcess.tracks`), else a lint.
        """


@dataclass(frozen=True, slots=True)
class Leak:
    """A resource that the process did not release before it closed /dev/kfd."""

    kind: str
    """"memory", "event" or "queue"."""
    what: str
    """The resource, for reports."""


@dataclass(slots=True, eq=False)
class KfdProcess:
    """The state of one process."""

    gpus: Sequence[KfdGpu]
    kernel: KernelProfile
    """The version of the emulated kernel driver."""
    hardware: Hardware
    linux: LinuxKernel
    """The real kernel, which gives the pages."""
    user: UserMemory
    """Access to the memory of the calling process."""
    host_bytes: int
    """Bytes of system memory that may be allocated."""
    tracks: bool = False
    """Whether all checks are on: reads of video memory that was never written are found."""
    pid: int = field(default_factory=os.getpid)
    events: KfdEvents = field(default_factory=KfdEvents)
    host_used: int = 0
    """Bytes of system memory that are allocated."""
    runtime: bool = False
    """Whether RUNTIME_ENABLE was called with ENABLE: queue exceptions are delivered."""
    runtime_asked: bool = False
    """Whether RUNTIME_ENABLE was called, with any mode."""
    xnack: int = 0

    def gpu(self, gpu_id: int) -> KfdGpu:
        """Return a GPU that the process may use. Refuses an unknown or masked one with EINVAL."""
        found = next((gpu for gpu in self.gpus if gpu.gpu_id == gpu_id and not gpu.masked), None)
        if found is None:
            ids = ", ".join(f"{gpu.gpu_id:#x}" for gpu in self.gpus if not gpu.masked)
            refuse(errno.EINVAL, f"no GPU has gpu_id {gpu_id:#x}; there are {ids}")
        return found

    def bound(self, gpu_id: int, number: int = errno.ENODEV) -> tuple[KfdGpu, GpuSpace]:
        """Return a GPU and its address space. Refuses with errno `number` before ACQUIRE_VM."""
        gpu = self.gpu(gpu_id)
        if gpu.space is None:
            refuse(number, f"{gpu.name} has no address space: ACQUIRE_VM comes first")
        return gpu, gpu.space

    def buffer(self, handle: int, number: int) -> KfdBuffer:
        """Return a buffer by handle.

        Refuses an unknown handle with errno `number`, an unknown GPU with EINVAL.
        """
        gpu = self.gpu(handle >> 32)
        found = gpu.handles.get(handle & 0xFFFF_FFFF)
        if found is None:
            refuse(number, f"{gpu.name} has no memory with handle {handle:#x}")
        return found

    def slots(self, gpu: KfdGpu) -> range:
        """Return a GPU's addresses of the signal page that the process gave; empty if it is not mapped."""
        handle = self.events.page_handle
        page = None if handle is None else self.buffer(handle, errno.EINVAL)
        mapped = page is not None and gpu in page.mapped
        return range(page.va, page.va + page.size) if page is not None and mapped else range(0)

    @property
    def queues(self) -> list[QueueObject]:
        """All queues of the process."""
        return [queue for gpu in self.gpus for queue in gpu.queues]

    def queue(self, number: int, refusal: int) -> QueueObject:
        """Return a queue by number. Refuses an unknown number with errno `refusal`."""
        found = next((one for one in self.queues if one.number == number), None)
        if found is None:
            refuse(refusal, f"there is no queue {number}")
        return found

    def new_queue_number(self) -> int:
        """Return the lowest free number of a queue. Refuses with ENOMEM at `MOST_QUEUES`."""
        taken = {one.number for one in self.queues}
        if len(taken) >= MOST_QUEUES:
            refuse(errno.ENOMEM, f"the process has {MOST_QUEUES} queues")
        return next(one for one in itertools.count() if one not in taken)

    def drop(self, buffer: KfdBuffer) -> None:
        """Free a buffer that is mapped to no GPU."""
        owner = buffer.owner
        del owner.handles[buffer.handle & 0xFFFF_FFFF]
        owner.offsets.pop(buffer.mmap_offset, None)
        if buffer.backing is not None:
            buffer.backing.drop()

    def unmap(self, gpu: KfdGpu, buffer: KfdBuffer, why: str) -> None:
        """Unmap a buffer from a GPU; `why` is quoted by faults on its address afterwards."""
        self.hardware.memory_gone(gpu, buffer)
        if gpu.space is not None:
            gpu.space.detach(buffer, why)
        buffer.mapped.discard(gpu)

    def lose_pages(self, va: int, size: int) -> None:
        """Remove from the GPUs the pinned buffers in host range [va, va + size): the process unmapped it."""
        for gpu in self.gpus:
            for buffer in gpu.handles.values():
                backing = buffer.backing
                pinned = backing is not None and backing.fd < 0
                if (
                    backing is None
                    or not pinned
                    or not (backing.host < va + size and va < backing.host + backing.size)
                ):
                    continue
                buffer.lost = True
                for mapped in buffer.mapped:
                    if mapped.space is not None:
                        mapped.space.lose(buffer, "with munmap of its user pages")

    def leaks(self) -> list[Leak]:
        """Return the resources that are not released, without the signal page, which cannot be released."""
        found = [Leak("queue", queue.name) for queue in self.queues]
        found += [
            Leak("memory", str(buffer))
            for gpu in self.gpus
            for buffer in gpu.handles.values()
            if buffer.handle != self.events.page_handle
        ]
        found += [
            Leak("event", f"{event.kind.name} event {event.number:#x}")
            for event in self.events.table.values()
        ]
        return found

    def end(self) -> list[Leak]:
        """Release everything, and reset the state; return what the process itself did not release."""
        found = self.leaks()
        for queue in self.queues:
            self.hardware.queue_destroyed(queue)
            queue.gpu.queues.remove(queue)
        for number in tuple(self.events.table):
            self.events.destroy(number)
        if self.events.page is not None and self.events.page_handle is None:
            self.events.page.drop()
        for gpu in self.gpus:
            for buffer in tuple(gpu.handles.values()):
                for mapped in tuple(buffer.mapped):
                    self.unmap(mapped, buffer, "with its process")
                self.drop(buffer)
            gpu.begin()
        self.events = KfdEvents()
        self.runtime = self.runtime_asked = False
        return found
