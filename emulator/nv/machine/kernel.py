"""The operating system with emulated NVIDIA GPUs instead of real ones.

Device nodes, their ioctls and mappings are emulated; anonymous memory is real memory of this process. By
default it acts as a sandbox, which allows only the calls in nv.md 7.

Not here: the ioctls (`emulator.nv.rm`), the state (`machine`). Next: `emulator.nv.rm.ioctls`.
"""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

from drivers.kernel import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_FIXED_NOREPLACE,
    MAP_SHARED,
    PROT_READ,
    PROT_WRITE,
    Mapping,
    fail,
)
from drivers.nv.layouts.gpfifo import USERMODE_BYTES
from emulator.nv.engines.usermode import DoorbellPage
from emulator.nv.reports import RmRefused
from emulator.nv.rm import files, ioctls, uvm
from emulator.nv.rm.files import NvNode, RmFile
from emulator.nv.rm.objects import Usermode
from emulator.nv.rm.uvm_space import UvmSpace
from emulator.shared.backing import Backing, CpuMapping
from emulator.shared.emulated_kernel import OpenFileTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.kernel import Mmio
    from emulator.nv.machine.machine import NvMachine
    from hcq.counters import Counters

_DROPPING = (4, 8, 9)
"""MADV_DONTNEED, MADV_FREE, MADV_REMOVE: the advice that frees pages."""


class NvKernel(OpenFileTable["NvMachine", RmFile]):
    """A `drivers.kernel.Kernel` with emulated GPUs.

    A call that fails raises `DriverError` with its errno.
    """

    def __init__(self, machine: NvMachine) -> None:
        super().__init__(machine, tracks=machine.tracks)
        self._gpus = {gpu.node: gpu for gpu in machine.gpus}
        self._nodes = {node.value: node for node in (NvNode.CTL, NvNode.UVM)} | dict.fromkeys(
            self._gpus, NvNode.GPU
        )
        self._texts = self._make_texts()
        self._folders = {
            "/dev": sorted(path.rsplit("/", 1)[1] for path in self._nodes),
            "/proc/driver/nvidia": sorted(
                p.rsplit("/", 1)[1] for p in self._texts if p.startswith("/proc/driver/nvidia/")
            ),
        }

    def _make_texts(self) -> dict[str, bytes]:
        """Return path -> content of the text files; a sandbox has no version of the module."""
        texts = {
            "/proc/driver/nvidia/params": b"EnableMSI: 1\nDeviceFileMode: 438\n",
            "/proc/devices": b"Character devices:\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n",
        }
        if not self.machine.filtered:
            module = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64"
            line = f"{module}  {self.machine.version}  Release Build\n"
            texts["/proc/driver/nvidia/version"] = line.encode()
        return texts

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a device node or a text file of procfs; return its descriptor.

        Raises `DriverError`: ENOENT for another path, EACCES for a node that is not opened O_RDWR.
        """
        self.machine.surprises.call(f"open {path}")
        if path in self._nodes:
            if flags & os.O_ACCMODE != os.O_RDWR:
                fail("open", errno.EACCES, f"{path} is opened for reading and writing")
            space = UvmSpace() if path == NvNode.UVM.value else None
            return self.add_file(RmFile(0, self._nodes[path], path, uvm=space, gpu=self._gpus.get(path)))
        if path in self._texts:
            return self.add_file(RmFile(0, NvNode.TEXT, path, content=self._texts[path]))
        return fail("open", errno.ENOENT, path)

    def close(self, fd: int) -> None:
        """Close a descriptor; with the last one the machine ends, too.

        A client is freed with the descriptor that created it. Mappings of memory remain.
        """
        file = self._file("close", fd)
        with self.machine.lock:
            del self.files[fd]
            if file.uvm is not None:
                file.uvm.end()
                if file.uvm.mm_of is not None and file.uvm.mm_of.uvm is not None:
                    uvm.lose_mm(self.machine, file.uvm.mm_of.uvm)
            self.machine.os_events = {one for one in self.machine.os_events if one[1] != fd}
            for client in [c for c in self.machine.clients.values() if c.ctl_fd == fd]:
                self.machine.free(client, client)
        if not self.files:
            self.machine.close()

    def _text(self, path: str) -> bytes:
        if path not in self._texts:
            fail("read", errno.ENOENT, path)
        return self._texts[path]

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return self.machine.surprises.folder(path, self._folders.get(path.rstrip("/")))

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Run an ioctl and return 0.

        `argument` is the structure, which is changed in place, or its address in this process. A refusal by
        the resource manager or UVM is in the structure's status word; a malformed call raises `DriverError`.
        """
        file = self._file("ioctl", fd)
        if file.node is NvNode.TEXT:
            fail("ioctl", errno.ENOTTY, file.path)
        run = uvm.ioctl if file.node is NvNode.UVM else ioctls.ioctl
        with self.machine.lock:
            self.machine.reason = ""
            if isinstance(argument, int):
                block = bytearray(self.machine.user.read(argument, self._size(file, request)))
                run(self, file, request, block)
                self.machine.user.write(argument, block)
            else:
                run(self, file, request, argument)
        return 0

    def _size(self, file: RmFile, request: int) -> int:
        """Return the size of an ioctl's structure, which the request encodes or a UVM command implies."""
        if file.node is not NvNode.UVM:
            return request >> 16 & 0x3FFF
        return uvm.size_of(self.machine, request)

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
        """Map anonymous memory (`fd` is -1), what MAP_MEMORY prepared for a descriptor, or addresses for UVM.

        The doorbell page is mapped by `mmio` instead. Raises `DriverError` as mmap does, and EBUSY where a
        mapping with MAP_FIXED would replace pages that the GPU has pinned.
        """
        linux = self.machine.linux
        if (flags or 0) & MAP_FIXED:
            self._refuse_pinned("mmap", va, size)
        if fd < 0:
            got = linux.mmap(size, fd=fd, offset=offset, va=va, prot=prot, flags=flags)
            self._disown(got.va, size)
            return got
        file = self._file("mmap", fd)
        flags = MAP_SHARED if flags is None else flags
        if file.uvm is not None:
            return self._mmap_uvm(file.uvm, va, size, offset=offset, prot=prot, flags=flags)
        if not flags & MAP_SHARED:
            fail("mmap", errno.EINVAL, f"{file.path} is mapped MAP_SHARED only")
        with self.machine.lock:
            if file.context is not None and isinstance(file.context.target, Usermode):
                fail(
                    "mmap",
                    errno.EINVAL,
                    "the doorbell page is mapped through mmio(), so that its writes are seen",
                )
            context = files.use_context(file, size, offset)
            assert context.backing is not None
            got = linux.mmap(
                size, fd=context.backing.fd, offset=context.offset, va=va, prot=prot, flags=flags
            )
            self.machine.cpu_mappings.append(CpuMapping(context.backing, context.offset, got))
            return got

    def _mmap_uvm(self, one: UvmSpace, va: int, size: int, *, offset: int, prot: int, flags: int) -> Mapping:
        """Map a descriptor of UVM: reserve addresses for it, or map a semaphore pool at its address."""
        if one.flags is None:
            fail("mmap", errno.EBADFD, "UVM_INITIALIZE comes first")
        if va != offset:
            fail("mmap", errno.EINVAL, f"UVM maps address {va:#x} at that offset only, not at {offset:#x}")
        if not flags & MAP_SHARED or prot & (PROT_READ | PROT_WRITE) != PROT_READ | PROT_WRITE:
            fail("mmap", errno.EINVAL, "UVM is mapped MAP_SHARED, to read and to write")
        with self.machine.lock:
            pool = one.pools.get(va)
            kept = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) | MAP_SHARED
            if pool is not None and pool.size == size:
                return self.machine.linux.mmap(size, fd=pool.fd, va=va, prot=prot, flags=kept)
            try:
                one.claim(va, size, one.ranges, one.windows)
            except RmRefused as refusal:
                fail("mmap", errno.EADDRINUSE, refusal.reason)
            got = self.machine.linux.mmap(size, va=va, prot=prot, flags=kept | MAP_ANONYMOUS)
            one.disown(got.va, size)
            one.owned[got.va] = size
            return got

    def _disown(self, va: int, size: int) -> None:
        """Record that UVM no longer owns the addresses [va, va + size), which are replaced or unmapped."""
        for file in self.files.values():
            if file.uvm is not None:
                file.uvm.disown(va, size)

    def _refuse_pinned(self, call: str, va: int, size: int) -> None:
        """Raise `DriverError` (EBUSY) if a call would free pages that the GPU has pinned.

        The emulator accesses those pages directly.
        """
        backing = self._pinned(va, size)
        if backing is not None:
            fail(call, errno.EBUSY, f"[{va:#x}, +{size:#x}) holds {backing.label}, which the GPU has pinned")

    def munmap(self, va: int, size: int) -> None:
        """Unmap memory.

        If the GPU has pinned any of it, all of it stays mapped, and the machine advises against that.
        """
        with self.machine.lock:
            if self._pinned(va, size) is not None:
                self.machine.advise(
                    f"[{va:#x}, +{size:#x}) was unmapped while its pages are pinned for the GPU"
                )
                return
            self.machine.cpu_mappings = [
                m for m in self.machine.cpu_mappings if not va <= m.mapping.va < va + size
            ]
            self._disown(va, size)
        self.machine.linux.munmap(va, size)

    def _pinned(self, va: int, size: int) -> Backing | None:
        """Return pinned pages that overlap [va, va + size), or None."""
        return next((b for b in self.machine.pinned if b.host < va + size and va < b.host + b.size), None)

    def mprotect(self, va: int, size: int, prot: int) -> None:
        """Change the protection of memory of this process.

        Raises `DriverError`: EBUSY for pinned pages made read-only.
        """
        if not prot & PROT_WRITE:
            self._refuse_pinned("mprotect", va, size)
        self.machine.linux.mprotect(va, size, prot)

    def madvise(self, va: int, size: int, advice: int) -> None:
        """Call the real kernel's madvise. Raises `DriverError`: EBUSY for advice that frees pinned pages."""
        if advice in _DROPPING:
            self._refuse_pinned("madvise", va, size)
        self.machine.linux.madvise(va, size, advice)

    def maps_registers(self, fd: int, offset: int) -> bool:
        """Return whether MAP_MEMORY prepared a descriptor for the doorbell page, which `mmio` maps."""
        del offset
        context = self._file("mmap", fd).context
        return context is not None and isinstance(context.target, Usermode)

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        """Map the doorbell page that MAP_MEMORY prepared for a descriptor.

        Raises `DriverError`: EINVAL if it did not.
        """
        file = self._file("mmio", fd)
        with self.machine.lock:
            context = files.use_context(file, size, offset)
            if not isinstance(context.target, Usermode) or context.offset or context.length != USERMODE_BYTES:
                fail("mmap", errno.EINVAL, f"{context.target} is not the whole doorbell page")
            return DoorbellPage(self.machine, context.target)

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """Sleep until an event wakes one of the descriptors, or for `timeout_s` seconds.

        Return those that are awake.

        Each event wakes a descriptor for one call.
        """
        for fd in fds:
            self._file("poll", fd)
        deadline = time.monotonic() + max(0.0, timeout_s)
        machine = self.machine
        with machine.event_wake:
            while True:
                ready = [fd for fd in fds if fd in machine.events]
                left = deadline - time.monotonic()
                if ready or left <= 0:
                    machine.events.difference_update(ready)
                    return ready
                machine.event_wake.wait(left)

    def fence(self) -> None:
        """Execute a real fence, and record that the earlier stores to each channel's ring are visible."""
        self.machine.linux.fence()
        for channel in tuple(self.machine.channels):
            channel.run.combining.fence()

    def refusal(self) -> str:
        """Return why the latest call was refused, once; "" if it was not."""
        reason, self.machine.reason = self.machine.reason, ""
        return reason

    def count_kernels(self, into: Counters | None, gpu: int) -> Counters | None:
        """Count what grids execute from now on into `into`; None ends that. Return the previous one.

        `gpu` is the GPU's index.
        """
        one = self.machine.gpus[gpu]
        with self.machine.lock:
            before, one.counters = one.counters, into
            return before
