"""The operating system as a driver sees it, with emulated AMD GPUs instead of real ones.

Device nodes, their ioctls and mappings, and sysfs are emulated. Anonymous memory is real memory of this
process. A refused call raises the driver's error of its errno, as `drivers.kernel.Kernel` says.

Not here: the ioctls (`emulator.amd.kfd`), the state (`machine`). Next: `machine`.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from drivers.amd.layouts.events import EVENT_PAGE_BYTES
from drivers.amd.layouts.kfd import (
    DOORBELL_SLICE_BYTES,
    MMIO_REMAP_BYTES,
    Call,
    MemFlags,
    MmapOffset,
    MmapType,
)
from drivers.amd.layouts.topology import KFD_NODE, RENDER_NODE
from drivers.kernel import MAP_FIXED, MAP_SHARED, PROT_READ, PROT_WRITE, Mapping, fail
from emulator.amd.kfd import ioctls, sysfs
from emulator.amd.kfd.process import AmdNode, KfdFile
from emulator.amd.kfd.refusal import CallRefused, NotEmulated, Refusal, refuse
from emulator.amd.kfd.sysfs import Sysfs
from emulator.amd.machine.doorbells import DoorbellSlice, HdpFlush
from emulator.amd.reports import FindingKind
from emulator.shared.backing import page_up
from emulator.shared.emulated_kernel import OpenFileTable
from emulator.shared.surprises import After

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from drivers.kernel import Mmio
    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.amd.machine.machine import AmdMachine
    from emulator.shared.scheduler import TurnLock
    from hcq.counters import Counters


class AmdKernel(OpenFileTable["AmdMachine", KfdFile]):
    """A `drivers.kernel.Kernel` with emulated AMD GPUs."""

    def __init__(self, machine: AmdMachine) -> None:
        """The kernel owns `machine`, and closes it with the last descriptor."""
        super().__init__(machine, tracks=machine.process.tracks)
        self.process = machine.process
        self._reason = ""
        """Why the latest call was refused, until `refusal` returns it; "" after that."""
        self._sysfs = Sysfs(machine.gpus, machine.kernel_profile, machine.host_bytes, machine.rejections)
        self._render = {RENDER_NODE.format(minor=gpu.minor): gpu for gpu in machine.gpus}

    @property
    def lock(self) -> TurnLock:
        """The lock of the machine."""
        return self.machine.lock

    def _refused(self, call: str, name: str, refusal: CallRefused) -> NoReturn:
        """Record a refusal, and raise the driver's error of its errno."""
        emulated = not isinstance(refusal, NotEmulated)
        self.machine.refusals.append(Refusal(name, refusal.number, refusal.reason, emulated=emulated))
        if not emulated:
            self.machine.find(FindingKind.UNSUPPORTED, refusal.reason)
        self._reason = refusal.reason
        fail(call, refusal.number, f"{name}: {refusal.reason}")

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open /dev/kfd, a render node or a text of sysfs; return the descriptor.

        Fails with EPERM for a masked GPU, EACCES for a node that is not opened O_RDWR, ENOENT for other
        paths.
        """
        self.machine.surprises.call(f"open {path}")
        if path == KFD_NODE or path in self._render:
            gpu = self._render.get(path)
            if gpu is not None and gpu.masked:
                fail("open", errno.EPERM, f"{path} is hidden by the device cgroup")
            if flags & os.O_ACCMODE != os.O_RDWR:
                fail("open", errno.EACCES, f"{path} is opened for reading and writing")
            return self.add_file(KfdFile(0, AmdNode.KFD if gpu is None else AmdNode.RENDER, path, gpu=gpu))
        return self.add_file(KfdFile(0, AmdNode.TEXT, path, content=self.read_file(path)))

    def _file(self, call: str, fd: int) -> KfdFile:
        file = super()._file(call, fd)
        if file.node is AmdNode.KFD and file.pid != os.getpid() and call != "close":
            fail(
                call,
                errno.EBADF,
                f"fd {fd} of {file.path} was opened by process {file.pid}, as before a fork",
            )
        return file

    def close(self, fd: int) -> None:
        """Close a descriptor. The last one of /dev/kfd ends the process's state; mappings stay."""
        file = self._file("close", fd)
        with self.machine.lock:
            del self.files[fd]
            if file.shared is not None:
                file.shared.backing.drop()
            if file.node is AmdNode.KFD and not any(one.node is AmdNode.KFD for one in self.files.values()):
                self.machine.end_process()
        if not self.files:
            self.machine.close()

    def _text(self, path: str) -> bytes:
        try:
            return self._sysfs.read(path)
        except CallRefused as refusal:
            fail("read", refusal.number, refusal.reason)

    def list_dir(self, path: str) -> list[str]:
        """Return the sorted names in /dev/dri or a folder of sysfs. Fails with ENOENT for others."""
        nodes = sorted(one.rsplit("/", 1)[1] for one in self._render)
        listed = nodes if path.rstrip("/") == "/dev/dri" else self._sysfs.list(path)
        return self.machine.surprises.folder(path, listed)

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Run an ioctl; return 0.

        `argument` is the structure, or its address; the request encodes its size.
        """
        file = self._file("ioctl", fd)
        if file.node not in (AmdNode.KFD, AmdNode.RENDER):
            fail("ioctl", errno.ENOTTY, f"{file.path} has no ioctls")
        run = ioctls.ioctl if file.node is AmdNode.KFD else sysfs.ioctl
        number = request & 0xFF
        name = Call(number).name if file.node is AmdNode.KFD and number in ioctls.NUMBERS else f"{request:#x}"
        surprise = self.machine.surprises.call(name)
        try:
            if file.node is AmdNode.KFD and number in ioctls.UNLOCKED:
                self._run(run, file, request, argument)
            else:
                with self.machine.lock:
                    self._run(run, file, request, argument)
        except CallRefused as refusal:
            self._refused("ioctl", name, refusal)
        if isinstance(surprise, After):
            fail("ioctl", surprise.number, name)
        return 0

    def _run(
        self,
        run: Callable[[AmdKernel, KfdFile, int, bytearray], None],
        file: KfdFile,
        request: int,
        argument: bytearray | int,
    ) -> None:
        """Run an ioctl; a structure given by its address is copied in, and back."""
        if not isinstance(argument, int):
            run(self, file, request, argument)
            return
        user, lock = self.machine.user, self.machine.lock
        with lock:
            block = bytearray(user.read(argument, request >> 16 & 0x3FFF))
        try:
            run(self, file, request, block)
        finally:
            with lock:
                user.write(argument, block)

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
        flags: int | None = None,
    ) -> Mapping:
        """Map anonymous memory, memory of a GPU through its render node, or the kernel's signal page.

        MAP_FIXED over user pages of the GPU removes them from it. Fails as Linux does; doorbells and
        registers are refused with EINVAL, because `mmio` maps them.
        """
        linux = self.machine.linux
        with self.machine.lock:
            if (flags or 0) & MAP_FIXED:
                self.process.lose_pages(va, size)
            if fd < 0:
                return linux.mmap(size, fd=fd, offset=offset, va=va, prot=prot, flags=flags)
            file = self._file("mmap", fd)
            flags = MAP_SHARED if flags is None else flags
            try:
                if not flags & MAP_SHARED:
                    refuse(errno.EINVAL, f"{file.path} is mapped MAP_SHARED only")
                backing_fd = self._shown(file, size, offset, prot)
            except CallRefused as refusal:
                self._refused("mmap", f"mmap of {file.path}", refusal)
            return linux.mmap(size, fd=backing_fd, va=va, prot=prot, flags=flags)

    def _shown(self, file: KfdFile, size: int, offset: int, prot: int) -> int:
        """Return the real descriptor of the pages that `file` maps at an offset, or refuse."""
        if file.node is AmdNode.KFD:
            return self._kernel_page(size, offset)
        gpu = file.gpu
        if gpu is None:
            refuse(errno.EINVAL, f"{file.path} is not mapped")
        buffer = gpu.offsets.get(offset)
        if buffer is None:
            refuse(errno.EINVAL, f"{file.path} has no memory at offset {offset:#x}")
        if gpu.drm_fd != file.fd:
            refuse(errno.EACCES, f"{buffer} belongs to descriptor {gpu.drm_fd}, which ACQUIRE_VM was given")
        if buffer.kind not in (MemFlags.GTT, MemFlags.VRAM) or buffer.backing is None:
            refuse(errno.EPERM, f"{buffer} is not visible to the CPU: GTT and VRAM are")
        if not 0 < page_up(size) <= page_up(buffer.size):
            refuse(errno.EINVAL, f"{size:#x} bytes of {buffer}")
        if not prot & PROT_READ or not prot & PROT_WRITE:
            self.machine.report_unverified(
                f"{buffer} is mapped with rights {prot}: the CPU could not read and write it"
            )
        if not buffer.cpu_visible:
            self.machine.lint(
                "VRAM that is not PUBLIC is mapped: Linux allows it, and moves the memory if the BAR is small"
            )
        buffer.shown = True
        buffer.backing.mark_written()
        self.machine.shows_vram |= buffer.kind is MemFlags.VRAM
        return buffer.backing.fd

    def _kernel_page(self, size: int, offset: int) -> int:
        token = MmapOffset.from_int(offset)
        events = self.process.events
        if token.TYPE is MmapType.EVENTS:
            if events.page is None or events.page_handle is not None:
                refuse(errno.EINVAL, "the signal page is the process's own memory, or there is none")
            if size != EVENT_PAGE_BYTES:
                refuse(errno.EINVAL, f"{size} bytes of the signal page, wanted {EVENT_PAGE_BYTES}")
            return events.page.fd
        if token.TYPE in (MmapType.DOORBELL, MmapType.MMIO):
            refuse(errno.EINVAL, "doorbells and registers are mapped through mmio(), so that stores are seen")
        return refuse(errno.EINVAL, f"mmap offset {offset:#x} of /dev/kfd: there is no reserved memory")

    def munmap(self, va: int, size: int) -> None:
        """Unmap memory of this process. From now on the GPU faults on user pages that were there."""
        with self.machine.lock:
            self.process.lose_pages(va, size)
        self.machine.linux.munmap(va, size)

    def mprotect(self, va: int, size: int, prot: int) -> None:
        """Change the protection of memory of this process. The GPU loses user pages that become read-only."""
        if not prot & PROT_WRITE:
            with self.machine.lock:
                self.process.lose_pages(va, size)
        self.machine.linux.mprotect(va, size, prot)

    def madvise(self, va: int, size: int, advice: int) -> None:
        """Call the real kernel's madvise."""
        self.machine.linux.madvise(va, size, advice)

    def maps_registers(self, fd: int, offset: int) -> bool:
        """Return whether `mmio`, not `mmap`, maps an offset: that of doorbells or registers."""
        of_kfd = self._file("mmap", fd).node is AmdNode.KFD
        return of_kfd and MmapOffset.from_int(offset).TYPE in (MmapType.DOORBELL, MmapType.MMIO)

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        """Map the doorbells of a GPU, or its page of HDP flush registers; the caller closes the result.

        Fails with EINVAL for another descriptor, offset or size, and before ACQUIRE_VM.
        """
        file = self._file("mmio", fd)
        self.machine.surprises.call("mmap doorbell")
        try:
            with self.machine.lock:
                return self._registers(file, size, offset)
        except CallRefused as refusal:
            self._refused("mmap", f"mmio of {file.path}", refusal)

    def _registers(self, file: KfdFile, size: int, offset: int) -> Mmio:
        """Return the MMIO page at an offset of /dev/kfd; refuse another offset or size."""
        if file.node is not AmdNode.KFD:
            refuse(errno.EINVAL, f"{file.path} has no registers: they are mapped through {KFD_NODE}")
        token = MmapOffset.from_int(offset)
        if token.TYPE not in (MmapType.DOORBELL, MmapType.MMIO):
            refuse(errno.EINVAL, f"mmap offset {offset:#x} is of no doorbell and no register")
        gpu: KfdGpu
        gpu, _ = self.process.bound(token.GPU_ID, errno.EINVAL)
        wanted = DOORBELL_SLICE_BYTES if token.TYPE is MmapType.DOORBELL else MMIO_REMAP_BYTES
        if token.OFFSET or size != wanted:
            refuse(
                errno.EINVAL,
                f"[{token.OFFSET:#x}, +{size:#x}): wanted offset 0 and {wanted} bytes of {token.TYPE.name}",
            )
        kind = DoorbellSlice if token.TYPE is MmapType.DOORBELL else HdpFlush
        return kind(self.machine, gpu)

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """Fail with EINVAL: neither /dev/kfd nor render nodes can be polled."""
        for fd in fds:
            self._file("poll", fd)
        fail("poll", errno.EINVAL, f"descriptors {list(fds)}, {timeout_s} s: WAIT_EVENTS waits for a GPU")

    def fence(self) -> None:
        """Order earlier stores before later ones.

        Doorbells are checked for it if the machine has `fences`.
        """
        self.machine.linux.fence()
        if self.machine.fences:
            self.machine.fenced()

    def refusal(self) -> str:
        """Return the rule that the latest refused call broke; "" if there is none, or on a second call."""
        reason, self._reason = self._reason, ""
        return reason

    def count_kernels(self, into: Counters | None, gpu: int) -> Counters | None:
        """Count the dispatches of the GPU with gpu_id `gpu` into `into`; None ends the count.

        Returns the counters that were set before, or None.
        """
        with self.machine.lock:
            before = self.machine.counters.pop(gpu, None)
            if into is not None:
                self.machine.counters[gpu] = into
            return before
