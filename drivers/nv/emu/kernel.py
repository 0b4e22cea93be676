"""An emulated Linux with an NVIDIA GPU behind `drivers.kernel.Kernel`: nodes, descriptors, ioctls, mappings, the doorbell page.

Everything that does not concern /dev/nvidia* goes to the real kernel. What the driver did wrong is answered
as the real one answers, and written down in `complaints`, in words.
"""

# ruff: noqa: ARG005, E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drivers.kernel import LinuxKernel, fail
from drivers.nv.emu.gpu import Gpu
from drivers.nv.emu.objects import Memory, Refusal
from drivers.nv.emu.rm import ResourceManager
from drivers.nv.emu.rm_controls import GPU_ID
from drivers.nv.emu.uvm import Uvm
from drivers.nv.layouts import rm as layouts
from drivers.nv.layouts.gpfifo import USERMODE_BYTES, UsermodeRegister
from drivers.nv.layouts.rm import Escape, Request
from drivers.nv.layouts.status import NvStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.kernel import Mapping, Mmio
    from drivers.nv.emu.profile import Profile

_FIRST_FD = 1 << 20
"""Emulated descriptors are numbers that no real one reaches."""
_DEVICE_ID = {
    "sm_80": 0x20B0,
    "sm_86": 0x2236,
    "sm_89": 0x26B5,
    "sm_90": 0x2335,
    "sm_100": 0x2901,
    "sm_120": 0x2B85,
}


@dataclass(slots=True)
class _File:
    node: str
    registered: int = -1
    """The nvidiactl descriptor that a device descriptor was tied to."""
    context: tuple[object, int, int] | None = None
    """What one mmap of it gives: object, offset, length."""


class EmulatedKernel:
    """A process's system calls on an emulated machine; each has a GPU of its own."""

    def __init__(self, profile: Profile, *, linux: LinuxKernel | None = None) -> None:
        self.profile = profile
        self.complaints: list[str] = []
        self._linux = linux or LinuxKernel()
        self.gpu = Gpu(profile, self.complaints.append)
        self.rm = ResourceManager(profile, self.gpu)
        self._files: dict[int, _File] = {}
        self._numbers = itertools.count(_FIRST_FD)
        self._lock = threading.RLock()
        self._uvm = Uvm(self.rm, lambda fd: self._node(fd) == "ctl", lambda fd: self._node(fd) == "uvm")
        self._escapes: dict[int, Callable[[int, bytearray], None]] = {
            Escape.NV_ESC_CARD_INFO: self._card_info, Escape.NV_ESC_REGISTER_FD: self._register_fd,
            Escape.NV_ESC_CHECK_VERSION_STR: self._check_version, Escape.NV_ESC_SYS_PARAMS: self._sys_params,
            Escape.NV_ESC_ALLOC_OS_EVENT: self._os_event, Escape.NV_ESC_FREE_OS_EVENT: self._os_event,
            Escape.NV_ESC_WAIT_OPEN_COMPLETE: lambda fd, block: None, Escape.NV_ESC_RM_ALLOC: self._alloc,
            Escape.NV_ESC_RM_ALLOC_MEMORY: self._alloc_memory, Escape.NV_ESC_RM_FREE: self._free,
            Escape.NV_ESC_RM_CONTROL: self._control, Escape.NV_ESC_RM_MAP_MEMORY: self._map_memory,
            Escape.NV_ESC_RM_UNMAP_MEMORY: self._unmap_memory,
        }  # fmt: skip

    def close_all(self) -> None:
        """End the process: every descriptor is closed, the GPU stops."""
        for fd in list(self._files):
            self.close(fd)
        self.gpu.close()

    # ---- files

    def _node(self, fd: int) -> str:
        return self._files[fd].node if fd in self._files else ""

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a node of the emulated GPU, or a real file."""
        node = {"/dev/nvidiactl": "ctl", "/dev/nvidia0": "gpu", "/dev/nvidia-uvm": "uvm"}.get(path)
        if node is None:
            if path.startswith("/dev/nvidia"):
                fail("open", errno.ENOENT, path)
            return self._linux.open(path, flags)
        with self._lock:
            fd = next(self._numbers)
            self._files[fd] = _File(node)
            return fd

    def close(self, fd: int) -> None:
        """Close a descriptor; the last nvidiactl one frees every client."""
        if fd < _FIRST_FD:
            self._linux.close(fd)
            return
        with self._lock:
            if fd not in self._files:
                fail("close", errno.EBADF, str(fd))
            node = self._files.pop(fd).node
            if node == "uvm":
                self._uvm.forget(fd)
            elif node == "ctl" and "ctl" not in {f.node for f in self._files.values()}:
                for client in self.rm.handles.clients():
                    self.rm.free(client, client, client)

    def read(self, fd: int, size: int) -> bytes:
        """Read from a real file; the emulated nodes have nothing to read."""
        if fd >= _FIRST_FD:
            fail("read", errno.EINVAL, str(fd))
        return self._linux.read(fd, size)

    def read_file(self, path: str) -> bytes:
        """Return procfs and sysfs files of the emulated driver; a sandbox shows no version."""
        if path == "/proc/driver/nvidia/version" and not self.profile.filtered:
            return f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.profile.version}  Release Build\n".encode()
        if path == "/proc/driver/nvidia/params":
            return b"DeviceFileUID: 0\n"
        if path.startswith("/proc/driver/nvidia"):
            fail("read", errno.ENOENT, path)
        if path == "/proc/devices":
            return b"Character devices:\n195 nvidia-frontend\n509 nvidia-uvm\n"
        return self._linux.read_file(path)

    def list_dir(self, path: str) -> list[str]:
        """Return names in a directory; /dev shows the emulated nodes."""
        if path.rstrip("/") == "/dev":
            return ["nvidia-uvm", "nvidia0", "nvidiactl"]
        if path.startswith("/proc/driver/nvidia"):
            return ["params"] if self.profile.filtered else ["params", "version"]
        return self._linux.list_dir(path)

    # ---- ioctls

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Run an ioctl of an emulated node."""
        if fd < _FIRST_FD:
            return self._linux.ioctl(fd, request, argument)
        with self._lock:
            if fd not in self._files:
                fail("ioctl", errno.EBADF, str(fd))
            if self._files[fd].node == "uvm":
                return self._uvm_ioctl(fd, request, argument)
            return self._frontend_ioctl(fd, request, argument)

    def _uvm_ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        layout = self._uvm.layout(request)
        if layout is None:
            self._invalid(f"UVM command {request:#x} is unknown or not let through")
        block = self._block(argument, layout.SIZE)
        try:
            answer = {"rmStatus": NvStatus.OK} | self._uvm.run(fd, request, layout.from_bytes(block))
        except Refusal as refusal:
            self._complain(layout.__name__, refusal)
            answer = {"rmStatus": refusal.status}
        layout.store(block, **answer)
        self._give(argument, block)
        return 0

    def _frontend_ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        word = Request.from_int(request)
        for violation in word.check():
            self._invalid(str(violation))
        if word.NR not in self._escapes:
            self._invalid(f"escape {word.NR:#x} is unknown or not let through")
        block = self._block(argument, word.SIZE_)
        self._escapes[word.NR](fd, block)
        self._give(argument, block)
        return 0

    def _block(self, argument: bytearray | int, size: int) -> bytearray:
        if isinstance(argument, int):
            return bytearray(ctypes.string_at(argument, size))
        if len(argument) < size:
            self._invalid(f"a block of {len(argument)} bytes where {size} are wanted")
        return bytearray(argument[:size])

    @staticmethod
    def _give(argument: bytearray | int, block: bytearray) -> None:
        if isinstance(argument, int):
            ctypes.memmove(argument, bytes(block), len(block))
        else:
            argument[: len(block)] = block

    def _invalid(self, reason: str) -> Any:
        self.complaints.append(f"EINVAL: {reason}")
        fail("ioctl", errno.EINVAL, reason)

    def _complain(self, call: str, refusal: Refusal) -> None:
        self.complaints.append(f"{call}: {refusal}")

    def _need(self, fd: int, node: str, what: str) -> None:
        if self._node(fd) != node:
            self._invalid(f"{what} goes to /dev/nvidia{'ctl' if node == 'ctl' else '0'}")

    def _exact(self, block: bytearray, layout: Any) -> Any:
        if len(block) != layout.SIZE:
            self._invalid(f"{layout.__name__} is {layout.SIZE} bytes, the request says {len(block)}")
        return layout.from_bytes(block)

    def _card_info(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_CARD_INFO")
        layout = layouts.nv_ioctl_card_info_t
        if len(block) not in (32 * layout.SIZE, 64 * layout.SIZE):
            self._invalid(f"NV_ESC_CARD_INFO takes 32 or 64 records of {layout.SIZE} bytes")
        pci = layouts.nv_pci_info_t(bus=1, vendor_id=0x10DE, device_id=_DEVICE_ID[self.profile.arch])
        block[:] = bytes(len(block))
        layout.store(
            block, valid=1, pci_info=pci, gpu_id=GPU_ID, minor_number=0, fb_size=self.profile.vram_bytes
        )

    def _register_fd(self, fd: int, block: bytearray) -> None:
        self._need(fd, "gpu", "NV_ESC_REGISTER_FD")
        values = self._exact(block, layouts.nv_ioctl_register_fd_t)
        if self._node(values.ctl_fd) != "ctl" or self._files[fd].registered >= 0:
            self._invalid(f"ctl_fd {values.ctl_fd} is no /dev/nvidiactl, or the descriptor is tied already")
        self._files[fd].registered = values.ctl_fd

    def _check_version(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_CHECK_VERSION_STR")
        values = self._exact(block, layouts.nv_ioctl_rm_api_version_t)
        if values.cmd not in (0, 0x31, layouts.VERSION_QUERY):
            self._invalid(f"version command {values.cmd:#x}")
        asked = values.cmd == layouts.VERSION_QUERY
        good = asked or values.versionString == self.profile.version
        layouts.nv_ioctl_rm_api_version_t.store(
            block, reply=layouts.VERSION_RECOGNISED if good else 0, versionString=self.profile.version
        )

    def _sys_params(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_SYS_PARAMS")
        self._exact(block, layouts.nv_ioctl_sys_params_t)

    def _os_event(self, fd: int, block: bytearray) -> None:
        values = self._exact(block, layouts.nv_ioctl_alloc_os_event_t)
        del fd, values

    def _guarded(self, block: bytearray, layout: Any, action: Callable[[], dict[str, Any]]) -> None:
        """Run an RM call; a refusal becomes its status."""
        try:
            answer = {"status": NvStatus.OK} | action()
        except Refusal as refusal:
            self._complain(layout.__name__, refusal)
            answer = {"status": refusal.status}
        layout.store(block, **answer)

    def _alloc(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_RM_ALLOC")
        short = len(block) == layouts.NVOS21_PARAMETERS.SIZE
        layout = layouts.NVOS21_PARAMETERS if short else layouts.NVOS64_PARAMETERS
        v = self._exact(block, layout)
        if not short and (v.flags or v.pRightsRequested):
            self._invalid("RM_ALLOC flags and rights are not used")
        self._guarded(block, layout, lambda: {
            "hObjectNew": self.rm.alloc(v.hRoot, v.hObjectParent, v.hObjectNew, v.hClass, v.pAllocParms, v.paramsSize)
        } if v.hClass not in (0, 0x41) or v.hRoot else self._new_root(v))  # fmt: skip

    def _new_root(self, v: Any) -> dict[str, Any]:
        handle = self.rm.alloc(v.hRoot, v.hObjectParent, v.hObjectNew, v.hClass, v.pAllocParms, v.paramsSize)
        return {"hRoot": handle, "hObjectParent": handle, "hObjectNew": handle}

    def _alloc_memory(self, fd: int, block: bytearray) -> None:
        self._need(fd, "gpu", "NV_ESC_RM_ALLOC_MEMORY")
        values = self._exact(block, layouts.nv_ioctl_nvos02_parameters_with_fd)
        try:
            answer = values.params.replace(
                hObjectNew=self.rm.alloc_os_descriptor(values.params), status=NvStatus.OK
            )
        except Refusal as refusal:
            self._complain("NV_ESC_RM_ALLOC_MEMORY", refusal)
            answer = values.params.replace(status=refusal.status)
        layouts.nv_ioctl_nvos02_parameters_with_fd.store(block, params=answer)

    def _free(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_RM_FREE")
        v = self._exact(block, layouts.NVOS00_PARAMETERS)

        def act() -> dict[str, Any]:
            self.rm.free(v.hRoot, v.hObjectParent, v.hObjectOld)
            return {}

        self._guarded(block, layouts.NVOS00_PARAMETERS, act)

    def _control(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_RM_CONTROL")
        v = self._exact(block, layouts.NVOS54_PARAMETERS)

        def act() -> dict[str, Any]:
            self.rm.control(v.hClient, v.hObject, v.cmd, v.flags, v.params, v.paramsSize)
            return {}

        self._guarded(block, layouts.NVOS54_PARAMETERS, act)

    def _map_memory(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_RM_MAP_MEMORY")
        values = self._exact(block, layouts.nv_ioctl_nvos33_parameters_with_fd)
        p = values.params
        try:
            item = self.rm.mappable(p.hClient, p.hDevice, p.hMemory, p.offset, p.length)
            wanted = "ctl" if isinstance(item, Memory) and item.kind == "sysmem" else "gpu"
            if self._node(values.fd) != wanted or self._files[values.fd].context is not None:
                raise Refusal(  # noqa: TRY301 - refused and answered in one place
                    NvStatus.INVALID_ARGUMENT, f"descriptor {values.fd} is not a fresh one of the right node"
                )
            if wanted == "gpu" and self._files[values.fd].registered < 0:
                raise Refusal(  # noqa: TRY301 - the same
                    NvStatus.INVALID_ARGUMENT, "NV_ESC_REGISTER_FD comes before mapping through a device fd"
                )
            self._files[values.fd].context = (item, p.offset, p.length)
            answer = p.replace(status=NvStatus.OK, pLinearAddress=p.offset + 0x1000)
        except Refusal as refusal:
            self._complain("NV_ESC_RM_MAP_MEMORY", refusal)
            answer = p.replace(status=refusal.status)
        layouts.nv_ioctl_nvos33_parameters_with_fd.store(block, params=answer)

    def _unmap_memory(self, fd: int, block: bytearray) -> None:
        self._need(fd, "ctl", "NV_ESC_RM_UNMAP_MEMORY")
        v = self._exact(block, layouts.NVOS34_PARAMETERS)

        def act() -> dict[str, Any]:
            self.rm.handles.get(v.hClient, v.hMemory)
            return {}

        self._guarded(block, layouts.NVOS34_PARAMETERS, act)

    # ---- memory

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = 3,
        flags: int | None = None,
    ) -> Mapping:
        """Map anonymous memory, a real file, or memory of the emulated GPU that RM_MAP_MEMORY prepared."""
        if fd < _FIRST_FD:
            return self._linux.mmap(size, fd=fd, offset=offset, va=va, prot=prot, flags=flags)
        item, at, length = self._context(fd, offset)
        if not isinstance(item, Memory) or -(-length // 4096) * 4096 != size:
            fail(
                "mmap",
                errno.EINVAL,
                f"{size:#x} bytes of a context of {length:#x}; registers are mapped with mmio()",
            )
        return self._linux.mmap(size, fd=item.fd, offset=at, va=va, prot=prot, flags=flags)

    def _context(self, fd: int, offset: int) -> tuple[object, int, int]:
        file = self._files.get(fd)
        if file is None or file.context is None or offset:
            fail(
                "mmap",
                errno.EINVAL,
                f"descriptor {fd} was not prepared by RM_MAP_MEMORY, or offset {offset:#x} is not 0",
            )
        return file.context

    def munmap(self, va: int, size: int) -> None:
        """Unmap."""
        self._linux.munmap(va, size)

    def mprotect(self, va: int, size: int, prot: int) -> None:
        """Change the protection of memory."""
        self._linux.mprotect(va, size, prot)

    def madvise(self, va: int, size: int, advice: int) -> None:
        """Give advice about memory."""
        self._linux.madvise(va, size, advice)

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        """Map the doorbell page."""
        if fd < _FIRST_FD:
            return self._linux.mmio(fd, size, offset)
        item, _, length = self._context(fd, offset)
        if isinstance(item, Memory) or size != length or size != USERMODE_BYTES:
            fail("mmap", errno.EINVAL, f"{size:#x} bytes of registers")
        return DoorbellPage(self.gpu)

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """Sleep until a real descriptor is ready; emulated ones never are."""
        return self._linux.poll([fd for fd in fds if fd < _FIRST_FD], timeout_s)

    def fence(self) -> None:
        """Order stores."""
        self._linux.fence()


class DoorbellPage:
    """The usermode registers: the time, and the doorbell."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._open = True

    def read32(self, offset: int) -> int:
        """Read the time registers; nothing else can be read."""
        now = time.monotonic_ns()
        if offset == UsermodeRegister.TIME_0:
            return now & 0xFFFF_FFE0
        if offset == UsermodeRegister.TIME_1:
            return now >> 32 & 0x1FFF_FFFF
        raise ValueError(f"register {offset:#x} of the doorbell page cannot be read")

    def read64(self, offset: int) -> int:
        """Refuse: these registers are 32 bits wide."""
        raise ValueError(f"a 64-bit read at {offset:#x} of the doorbell page")

    def write32(self, offset: int, value: int) -> None:
        """Ring a channel: it runs later, not here."""
        if not self._open or offset != UsermodeRegister.NOTIFY_CHANNEL_PENDING:
            raise ValueError(f"register {offset:#x} of the doorbell page cannot be written")
        self._gpu.ring(value)

    def write64(self, offset: int, value: int) -> None:
        """Refuse: these registers are 32 bits wide."""
        raise ValueError(f"a 64-bit write of {value:#x} at {offset:#x} of the doorbell page")

    def close(self) -> None:
        """Unmap the page."""
        self._open = False
