"""KFD state that a process has once, for all devices: descriptors, event page, host memory that GPUs map.

A process is one client of KFD. Until the process ends, a GPU stays bound to one descriptor of its render
node, and the event page can be neither replaced nor freed. Both are therefore kept when the last device is
closed, and the next device uses them. Host memory is mapped into GPUs by user pointers, one for each range.

Not here: one device (`device`), the ioctls (`kfd`). Next: `events`, a device's events.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from drivers.amd.kfd import Kfd, open_node
from drivers.amd.layouts.chips import by_version
from drivers.amd.layouts.events import EVENT_PAGE_BYTES, EVENT_SLOT_BYTES, EventType
from drivers.amd.layouts.kfd import GPUVM_RESERVED_TOP, USER_ADDRESS_BITS, MemFlags, MemKind
from drivers.amd.layouts.topology import RENDER_NODE
from drivers.amd.memory import AddressSpan, AmdMemories, AmdMemory
from drivers.amd.refusals import narrow_space, no_render_node
from drivers.amd.topology import AmdGpu
from drivers.kernel import Kernel
from hcq.errors import BringUpError, HcqError, UsageError


@dataclass(slots=True)
class _HostRange:
    """Host memory that is mapped into GPUs."""

    size: int
    handle: int
    """The handle of KFD."""
    users: dict[int, int] = field(default_factory=dict[int, int])
    """gpu_id -> number of open devices of this GPU that map the memory."""


class AmdProcess:
    """This process as a client of KFD. Thread-safe.

    On real hardware it is kept until the process ends. Raises as `Kfd` does.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.kfd = Kfd(kernel)
        self.space = AddressSpan(kernel)
        self.no_exceptions: str | None = None
        """Reason why queues report no exceptions; "": they do. None: before `enable_runtime`."""
        self.events: set[int] = set()
        """SIGNAL events of open devices; a thread that sleeps waits for all of them."""
        self._lock = threading.RLock()
        self._render: dict[int, int] = {}
        """gpu_id -> descriptor of its render node."""
        self._page: AmdMemory | None = None
        self._page_owner: AmdMemories | None = None
        self._page_given = False
        """Whether the kernel has the event page."""
        self._host: dict[int, _HostRange] = {}
        self._reports: list[str] = []
        """The kernel driver's reports of faults that `take_reports` has not returned yet."""

    def reports_on(self, queue: int) -> bool:
        """Return whether the kernel driver has reported a fault of the queue with this id.

        A copy queue has no context-save area, to which exceptions of other queues are reported, so this is
        the only sign that it stopped. Linux never reports one; emulated kernels do (`Kernel.diagnostics`).
        """
        with self._lock:
            self._ask()
            return any(f"queue {queue} of " in text.partition(": ")[0] for text in self._reports)

    def _ask(self) -> list[str]:
        """Store new reports of faults; return the other new lines, which state positions of queues.

        The caller holds the lock.
        """
        new = self.kernel.diagnostics()
        # A report begins with its kind and a colon.
        reports = [text for text in new if ": " in text.partition(" is at ")[0]]
        self._reports += reports
        return [text for text in new if text not in reports]

    def unfinished(self, queue: int) -> str:
        """Return the reports of faults and of this queue's position, for the error of a queue that hangs.

        Each begins with "; "; "" if there are none.
        """
        with self._lock:
            positions = [text for text in self._ask() if f"queue {queue} of " in text]
            return "".join(f"; {text}" for text in (*self._reports, *positions))

    def take_reports(self) -> tuple[str, ...]:
        """Return the kernel driver's reports since the last call, the oldest first."""
        with self._lock:
            taken, self._reports = (*self._reports, *self.kernel.diagnostics()), []
            return taken

    def acquire(self, gpu: AmdGpu) -> int:
        """Bind the process to a GPU and return the descriptor of its render node; idempotent.

        This object owns the descriptor. Raises `UnsupportedError` for a GPU without a render node,
        `DriverError` if the kernel refuses it.
        """
        with self._lock:
            fd = self._render.get(gpu.gpu_id)
            if fd is not None:
                return fd
            if not gpu.render_minor:
                raise no_render_node(gpu.name, gpu.gpu_id)
            fd = open_node(self.kernel, RENDER_NODE.format(minor=gpu.render_minor))
            try:
                self.kfd.acquire_vm(gpu.gpu_id, fd)
                # The GPU is bound now. KFD would refuse another descriptor, so this one is kept.
                self._render[gpu.gpu_id] = fd
            except BaseException:
                self.kernel.close(fd)
                raise
            return fd

    def check_space(self, gpu: AmdGpu) -> None:
        """Raise `UnsupportedError` if a GPU cannot address all memory of this process.

        Raises `BringUpError` if the kernel states no address range of the GPU.
        """
        rows = {row.gpu_id: row for row in self.kfd.apertures()}
        row = rows.get(gpu.gpu_id)
        if row is None:
            raise BringUpError(
                f"GET_PROCESS_APERTURES_NEW names no addresses of {gpu.name} (gpu_id {gpu.gpu_id:#x}), "
                f"only of {[hex(one) for one in rows]}"
            )
        if row.gpuvm_limit + 1 - GPUVM_RESERVED_TOP < (1 << USER_ADDRESS_BITS) - GPUVM_RESERVED_TOP:
            raise narrow_space(gpu.name, row.gpuvm_limit)

    def enable_runtime(self, gpus: Sequence[AmdGpu], *, reports: bool = True) -> None:
        """Enable the KFD runtime, once and before the first queue; `reports`: with reports of exceptions.

        The call covers the GPUs to which the process is bound, and cannot be repeated for another GPU.
        Therefore all supported GPUs of `gpus` are bound first, as ROCr does. Later calls do nothing.
        """
        with self._lock:
            if self.no_exceptions is not None:
                return
            for gpu in gpus:
                with contextlib.suppress(HcqError):  # opening that GPU raises the error
                    by_version(gpu.version).open_or_refuse()
                    self.acquire(gpu)
            self.no_exceptions = self.kfd.enable_runtime(reports=reports)

    def create_event(self, kind: EventType, memories: AmdMemories) -> int:
        """Create an event and return its id; the first call allocates the event page from `memories`' GPU."""
        with self._lock:
            page = self._map_page(memories)
            try:
                event = self.kfd.create_event(kind, page=0 if self._page_given else page.handle)
            except BaseException:
                self._drop_page()
                raise
            self._page_given = True
            if kind is EventType.SIGNAL:
                self.events.add(event)
            return event

    def destroy_event(self, event: int) -> None:
        """Destroy an event; threads that wait for it return."""
        with self._lock:
            self.events.discard(event)
            self.kfd.destroy_event(event)

    def slot(self, event: int) -> int:
        """Return the device address of a SIGNAL event's slot."""
        assert self._page is not None, "an event was created"
        return self._page.va + event * EVENT_SLOT_BYTES

    def _map_page(self, memories: AmdMemories) -> AmdMemory:
        """Allocate the event page, or map it into one more GPU."""
        if self._page is None or self._page_owner is None:
            # From an allocator of its own: the page outlives the device.
            self._page_owner = memories.sibling()
            self._page = self._page_owner.system(EVENT_PAGE_BYTES, label="event page", zeroed=False)
        elif memories.gpu_id not in self._page.gpus:
            self._page_owner.share(self._page, memories.gpu_id)
        return self._page

    def _drop_page(self) -> None:
        """Free the page if the kernel has not got it."""
        if not self._page_given and self._page is not None and self._page_owner is not None:
            page, self._page = self._page, None
            self._page_owner.free(page)

    def map_host(self, va: int, size: int, gpu_id: int) -> None:
        """Map whole pages of host memory into a GPU at the same address; each call needs an `unmap_host`.

        Raises `UsageError` if the memory is mapped with another size, `DriverError` or `OutOfMemoryError` if
        the kernel refuses it.
        """
        with self._lock:
            found = self._host.get(va)
            if found is None:
                flags = MemFlags(MemKind.USER_POINTER)
                handle, _ = self.kfd.alloc(gpu_id, va, size, flags, host=va)
                found = _HostRange(size, handle)
                try:
                    self.kfd.map(handle, (gpu_id,))
                except BaseException:
                    self.kfd.free(handle)
                    raise
                self._host[va] = found
            elif found.size != size:
                raise UsageError(f"host memory at {va:#x} is mapped with {found.size} bytes, not {size}")
            elif gpu_id not in found.users:
                self.kfd.map(found.handle, (gpu_id,))
            found.users[gpu_id] = found.users.get(gpu_id, 0) + 1

    def unmap_host(self, va: int, gpu_id: int) -> None:
        """Undo one `map_host`."""
        with self._lock:
            found = self._host[va]
            found.users[gpu_id] -= 1
            if found.users[gpu_id]:
                return
            del found.users[gpu_id]
            with contextlib.ExitStack() as stack:
                if not found.users:
                    del self._host[va]
                    stack.callback(self.kfd.free, found.handle)
                self.kfd.unmap(found.handle, (gpu_id,))

    def abandon(self) -> None:
        """Close a forked child's copies of the descriptors; the parent owns everything else."""
        for fd in (self.kfd.fd, *self._render.values()):
            self.kernel.close(fd)

    def close(self) -> None:
        """Close the descriptors and release the event page's addresses.

        The kernel keeps its own state of the process, such as the event page, until the process ends.
        """
        with self._lock, contextlib.ExitStack() as stack:
            stack.callback(self.space.close)
            stack.callback(self.kfd.close)
            for fd in self._render.values():
                stack.callback(self.kernel.close, fd)
            self._render.clear()
            if self._page is not None:
                stack.callback(self.space.release, self._page.va, self._page.size)
                self._page = None
