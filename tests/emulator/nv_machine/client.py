"""A small client of the emulated kernel, for tests.

Raw ioctl bytes and push buffers, built from the layouts alone.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivers.kernel import MAP_FIXED, MAP_SHARED, PROT_NONE, address_of
from drivers.nv.layouts import controls as ctl
from drivers.nv.layouts import rm, rm_classes, uvm
from drivers.nv.layouts.controls import CONTROL_STRUCTS, Control
from drivers.nv.layouts.gpfifo import USERMODE_BYTES, GpfifoEntry, MethodHeader, SecOp, UsermodeRegister
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import UvmCommand
from emulator.nv.machine import open_machine
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.kernel import Mmio

MIB = 1 << 20
WINDOW = 0x2_0000_0000
WINDOW_BYTES = 1024 * MIB


class Status(Exception):  # noqa: N818 - what the interface calls it
    """The resource manager or UVM refused."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"status {code:#x}: {why}")
        self.code = code


@dataclass
class Memory:
    handle: int
    va: int
    size: int
    view: Any


@dataclass
class Ring:
    """A channel with its ring, user area and notifier."""

    client: Client
    handle: int
    memory: Memory
    notifier: Memory
    entries: int
    token: int = 0
    put: int = 0
    segment_at: int = 0
    segments: int = 0x8000
    sequence: int = 0

    def push(self, words: list[int], *, ring: bool = True, **fields: Any) -> None:
        """Write a segment and its ring entry, then the doorbell."""
        at = self.segments + self.segment_at
        self.segment_at += -(-len(words) // 16) * 64
        struct.pack_into(f"<{len(words)}I", self.memory.view, at, *words)
        self.entry(int(GpfifoEntry(ADDRESS=self.memory.va + at, LENGTH=len(words), **fields)))
        if ring:
            self.ring()

    def entry(self, raw: int) -> None:
        struct.pack_into("<Q", self.memory.view, self.put * 8, raw)
        self.put = (self.put + 1) % self.entries

    def ring(self, *, fence: bool = True, fence_entries: bool = True) -> None:
        if fence_entries:
            self.client.kernel.fence()
        struct.pack_into("<I", self.memory.view, 0x4000 + 0x8C, self.put)
        if fence:
            self.client.kernel.fence()
        self.client.doorbell.write32(UsermodeRegister.NOTIFY_CHANNEL_PENDING, self.token)

    def error(self) -> int:
        """Return the code in the notifier, 0 without an error."""
        code, _, status = struct.unpack_from("<IHH", self.notifier.view, 8)
        return int(code) if status == 0xFFFF else 0

    def wait_error(self) -> int:
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            if code := self.error():
                return code
            time.sleep(0.0005)
        raise AssertionError(f"no error was posted: {self.client.reports()}")


def method(subchannel: int, address: int, *values: int, opcode: SecOp = SecOp.INCREMENTING) -> list[int]:
    """Return a header and its data."""
    return [
        int(MethodHeader(ADDRESS=address, SUBCHANNEL=subchannel, COUNT=len(values), OPCODE=opcode)),
        *values,
    ]


def sem(va: int, payload: int, operation: SemOperation = SemOperation.RELEASE, **fields: Any) -> list[int]:
    """Return host methods that release or acquire a semaphore of 64 bits."""
    fields.setdefault("PAYLOAD_SIZE", True)
    if operation not in (SemOperation.RELEASE, SemOperation.REDUCTION):
        fields.setdefault("ACQUIRE_SWITCH_TSG", True)
    words = (va & 0xFFFF_FFFF, va >> 32, payload & 0xFFFF_FFFF, payload >> 32)
    return method(0, HostMethod.SEM_ADDR_LO, *words, int(SemExecute(OPERATION=operation, **fields)))


@dataclass
class Client:
    """Everything up to an address space; channels and memory on demand."""

    profile: str = "sm_90"
    driver: str = "580"
    filtered: bool = True
    seed: int = 0
    checks: Any = None
    bar1_bytes: int | None = None
    shared: Any = field(default=None, repr=False)
    """The kernel of a machine with several GPUs; None: open a machine with one."""
    index: int = 0
    """The GPU of the machine that it uses."""

    def __post_init__(self) -> None:
        self.kernel = self.shared or open_machine(
            self.profile,
            seed=self.seed,
            driver=self.driver,
            filtered=self.filtered,
            checks=self.checks,
            bar1_bytes=self.bar1_bytes,
        )
        self.machine = self.kernel.machine
        self.card = self.machine.gpus[self.index]
        self.structs = self.machine.structs
        self.next_va = WINDOW + self.index * WINDOW_BYTES
        self.next_window = 0x10_0000_0000
        self.generation = self.card.profile.generation
        self.reserved = self.kernel.mmap(
            WINDOW_BYTES, va=self.next_va, prot=PROT_NONE, flags=0x22 | MAP_FIXED | 0x4000
        )

    def escape(self, fd: int, escape: int, block: bytearray) -> None:
        self.kernel.ioctl(fd, rm.request(escape, len(block)), block)

    def _checked(self, code: int) -> None:
        if code:
            raise Status(code, self.machine.refusals[-1] if self.machine.refusals else "")

    def alloc(
        self, parent: int, cls: int, params: Any = None, *, handle: int = 0, size: int | None = None
    ) -> int:
        raw = bytearray(
            b"" if params is None else params if isinstance(params, (bytes, bytearray)) else params.to_bytes()
        )
        root = 0 if cls in (0, 0x41) else self.root
        block = bytearray(
            rm.NVOS64_PARAMETERS(
                hRoot=root,
                hObjectParent=parent,
                hObjectNew=handle,
                hClass=cls,
                pAllocParms=address_of(raw) if raw else 0,
                paramsSize=len(raw) if size is None else size,
            ).to_bytes()
        )
        self.escape(self.ctl, Escape.NV_ESC_RM_ALLOC, block)
        out = rm.NVOS64_PARAMETERS.from_bytes(block)
        self._checked(int(out.status))
        self.last = bytes(raw)
        return out.hObjectNew

    def free(self, handle: int, parent: int) -> None:
        block = bytearray(
            rm.NVOS00_PARAMETERS(hRoot=self.root, hObjectParent=parent, hObjectOld=handle).to_bytes()
        )
        self.escape(self.ctl, Escape.NV_ESC_RM_FREE, block)
        self._checked(int(rm.NVOS00_PARAMETERS.from_bytes(block).status))

    def control(self, target: int, number: int, *, size: int | None = None, **fields: Any) -> Any:
        kind = (
            self.structs[CONTROL_STRUCTS[number]]
            if number in CONTROL_STRUCTS
            else ctl.NVA06F_CTRL_BIND_PARAMS
        )
        raw = bytearray(kind(**fields).to_bytes())
        block = bytearray(
            rm.NVOS54_PARAMETERS(
                hClient=self.root,
                hObject=target,
                cmd=number,
                params=address_of(raw),
                paramsSize=len(raw) if size is None else size,
            ).to_bytes()
        )
        self.escape(self.ctl, Escape.NV_ESC_RM_CONTROL, block)
        self._checked(int(rm.NVOS54_PARAMETERS.from_bytes(block).status))
        return kind.from_bytes(raw)

    def call(self, fd: int, escape: int, kind: Any, /, **fields: Any) -> Any:
        """Issue an escape with a structure; return the structure afterwards."""
        block = bytearray(kind(**fields).to_bytes())
        self.escape(fd, escape, block)
        return kind.from_bytes(block)

    def unmap(self, handle: int, cookie: int, **fields: Any) -> None:
        """Take back the CPU mapping of memory that a cookie names."""
        values = {"hClient": self.root, "hDevice": self.device, "hMemory": handle, "pLinearAddress": cookie}
        done = self.call(self.ctl, Escape.NV_ESC_RM_UNMAP_MEMORY, rm.NVOS34_PARAMETERS, **(values | fields))
        self._checked(int(done.status))

    def space(self, **fields: Any) -> int:
        """Allocate an address space."""
        kind: Any = self.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
        return self.alloc(self.device, RmClass.FERMI_VASPACE_A, kind(**fields))

    def debugger(self) -> int:
        """Allocate the debugger of the compute object that was made last."""
        params = rm_classes.NV83DE_ALLOC_PARAMETERS(hAppClient=self.root, hClass3dObject=self.engine_object)
        return self.alloc(self.device, RmClass.GT200_DEBUGGER, params)

    def uvm_call(self, command: int, *, fd: int | None = None, **fields: Any) -> Any:
        kind: Any = self.structs[uvm.COMMAND_STRUCTS[command].__name__]
        block = bytearray(kind(**{k: v for k, v in fields.items() if k in kind.FIELDS}).to_bytes())
        self.kernel.ioctl(self.uvm_fd if fd is None else fd, command, block)
        out = kind.from_bytes(block)
        if int(out.rmStatus) != NvStatus.WARN_NOTHING_TO_DO:
            self._checked(int(out.rmStatus))
        return out

    def nodes(self) -> Client:
        self.ctl = self.kernel.open("/dev/nvidiactl")
        self.gpu = self.kernel.open(self.card.node)
        self.uvm_fd = self.kernel.open("/dev/nvidia-uvm")
        self.uvm_fd2 = self.kernel.open("/dev/nvidia-uvm")
        self.register_fd(self.gpu)
        return self

    def register_fd(self, fd: int) -> None:
        self.escape(
            fd, Escape.NV_ESC_REGISTER_FD, bytearray(rm.nv_ioctl_register_fd_t(ctl_fd=self.ctl).to_bytes())
        )

    def objects(self) -> Client:
        self.root = 0
        self.root = self.alloc(0, RmClass.NV01_ROOT_CLIENT)
        params = rm_classes.NV0080_ALLOC_PARAMETERS(deviceId=self.index, hClientShare=self.root)
        self.device = self.alloc(self.root, RmClass.NV01_DEVICE_0, params)
        self.subdevice = self.alloc(
            self.device, RmClass.NV20_SUBDEVICE_0, rm_classes.NV2080_ALLOC_PARAMETERS()
        )
        return self

    def address_space(self) -> Client:
        self.vaspace = self.space(flags=8)
        gid = self.control(self.subdevice, Control.NV2080_CTRL_CMD_GPU_GET_GID_INFO, flags=2)
        self.uuid = uvm.NvProcessorUuid(uuid=gid.data[: gid.length])
        self.uvm_call(UvmCommand.UVM_INITIALIZE)
        self.uvm_call(UvmCommand.UVM_MM_INITIALIZE, fd=self.uvm_fd2, uvmFd=self.uvm_fd)
        self.uvm_call(UvmCommand.UVM_REGISTER_GPU, gpu_uuid=self.uuid, rmCtrlFd=-1)
        self.register_space(self.vaspace)
        return self

    def page(self, *, bar1: bool, cls: int = 0) -> Mmio:
        """Make and map a doorbell page; classes before Hopper's have one form, through BAR0."""
        cls = cls or self.generation.usermode[0]
        params = rm_classes.NV_HOPPER_USERMODE_A_PARAMS(bBar1Mapping=bar1) if cls >= 0xC661 else None
        page = self.alloc(self.subdevice, cls, params)
        fd = self.map_fd(self.subdevice, page, USERMODE_BYTES, self.card.node)
        try:
            return self.kernel.mmio(fd, USERMODE_BYTES, 0)
        finally:
            self.kernel.close(fd)

    def usermode(self) -> Client:
        self.doorbell = self.page(bar1=True)
        return self

    def up(self) -> Client:
        return self.nodes().objects().address_space().usermode()

    def close(self) -> None:
        self.kernel.shut()

    def reports(self) -> list[str]:
        return [str(one) for one in self.kernel.reports]

    def map_fd(
        self,
        above: int,
        memory: int,
        length: int,
        path: str,
        *,
        fd: int | None = None,
        offset: int = 0,
        flags: int = 0,
    ) -> int:
        if fd is None:
            fd = self.kernel.open(path)
            if path != "/dev/nvidiactl":
                self.register_fd(fd)
        kind = rm.nv_ioctl_nvos33_parameters_with_fd
        params = rm.NVOS33_PARAMETERS(
            hClient=self.root, hDevice=above, hMemory=memory, offset=offset, length=length, flags=flags
        )
        block = bytearray(kind(params=params, fd=fd).to_bytes())
        self.escape(self.ctl, Escape.NV_ESC_RM_MAP_MEMORY, block)
        out = kind.from_bytes(block)
        self._checked(int(out.params.status))
        self.cookie = out.params.pLinearAddress
        return fd

    def memory_params(
        self, size: int, *, system: bool = False, **fields: Any
    ) -> rm_classes.NV_MEMORY_ALLOCATION_PARAMS:
        attr = rm_classes.MemAttr(
            PHYSICALITY=rm_classes.Physicality.ALLOW_NONCONTIGUOUS,
            LOCATION=rm_classes.Location.PCI if system else rm_classes.Location.VIDMEM,
            COHERENCY=rm_classes.Coherency.CACHED if system else rm_classes.Coherency.UNCACHED,
        )
        values: dict[str, Any] = {
            "owner": self.root,
            "type": 13 if system else 0,
            "flags": 0xC101,
            "attr": int(attr),
            "attr2": 0x8 if system else 0x5,
            "format": 6,
            "size": size,
            "alignment": 4096,
            "limit": size - 1,
        }
        return rm_classes.NV_MEMORY_ALLOCATION_PARAMS(**(values | fields))

    def map_gpu(
        self, handle: int, va: int, size: int, *, offset: int = 0, kind: int = 1, create: bool = True
    ) -> None:
        if create:
            self.uvm_call(UvmCommand.UVM_CREATE_EXTERNAL_RANGE, base=va, length=size)
        one = uvm.UvmGpuMappingAttributes(gpuUuid=self.uuid, gpuMappingType=kind)
        self.uvm_call(
            UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION,
            base=va,
            length=size,
            offset=offset,
            perGpuAttributes=(one,),
            gpuAttributesCount=1,
            rmCtrlFd=self.ctl,
            hClient=self.root,
            hMemory=handle,
        )

    def memory(
        self, size: int, *, system: bool = False, gpu: bool = True, kind: int = 1, **fields: Any
    ) -> Memory:
        """Allocate memory, mapped at one address for CPU and GPU."""
        cls = RmClass.NV01_MEMORY_SYSTEM if system else RmClass.NV01_MEMORY_LOCAL_USER
        handle = self.alloc(self.device, cls, self.memory_params(size, system=system, **fields))
        va = self.next_va
        self.next_va += -(-size // (64 << 10)) * (64 << 10) + (64 << 10)
        fd = self.map_fd(self.device, handle, size, "/dev/nvidiactl" if system else self.card.node)
        got = self.kernel.mmap(size, fd=fd, va=va, flags=MAP_SHARED | MAP_FIXED)
        self.kernel.close(fd)
        if gpu:
            self.map_gpu(handle, va, size, kind=kind)
        return Memory(handle, va, size, got.view)

    def group(self, engine: int = 1, **fields: Any) -> int:
        params = rm_classes.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS(
            **({"engineType": engine, "hVASpace": self.vaspace} | fields)
        )
        return self.alloc(self.device, RmClass.KEPLER_CHANNEL_GROUP_A, params)

    def ring(self, group: int, *, entries: int = 64, memory: Memory | None = None, **fields: Any) -> Ring:
        """Make a channel: ring at 0, user area at 0x4000, segments from 0x8000."""
        memory = memory or self.memory(256 << 10)
        notifier = self.memory(4096, system=True, gpu=False)
        values: dict[str, Any] = {
            "hObjectError": notifier.handle,
            "gpFifoOffset": memory.va,
            "gpFifoEntries": entries,
            "hUserdMemory": (memory.handle,),
            "userdOffset": (0x4000,),
        }
        params = rm_classes.NV_CHANNEL_ALLOC_PARAMS(**(values | fields))
        handle = self.alloc(group, self.generation.gpfifo[0], params)
        return Ring(self, handle, memory, notifier, entries)

    def schedule(self, ring: Ring, group: int) -> Ring:
        self.control(group, Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, bEnable=True)
        token = self.control(ring.handle, Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN)
        ring.token = token.workSubmitToken
        return ring

    def copy_channel(self, index: int = 2, memory: Memory | None = None) -> Ring:
        """Return a ready channel of a copy engine, its class bound to subchannel 4."""
        engine = rm_classes.copy_engine(index)
        group = self.group(engine)
        ring = self.ring(group, memory=memory)
        params = rm_classes.NVB0B5_ALLOCATION_PARAMETERS(version=1, engineType=engine)
        self.alloc(ring.handle, self.generation.copy[0], params)
        self.schedule(ring, group)
        ring.push(method(4, 0, self.generation.copy[0]), ring=False)
        return ring

    def register_channel(self, ring: Ring, base: int = 0x10_0000_0000, length: int = 64 * MIB) -> None:
        self.uvm_call(
            UvmCommand.UVM_REGISTER_CHANNEL,
            gpuUuid=self.uuid,
            rmCtrlFd=self.ctl,
            hClient=self.root,
            hChannel=ring.handle,
            base=base,
            length=length,
        )

    def register_space(self, space: int, **fields: Any) -> None:
        """Register an address space with UVM."""
        values = {"gpuUuid": self.uuid, "rmCtrlFd": self.ctl, "hClient": self.root, "hVaSpace": space}
        self.uvm_call(UvmCommand.UVM_REGISTER_GPU_VASPACE, **(values | fields))

    def unregister(self, ring: Ring, **fields: Any) -> None:
        """Take a channel from UVM."""
        values = {"gpuUuid": self.uuid, "hClient": self.root, "hChannel": ring.handle}
        self.uvm_call(UvmCommand.UVM_UNREGISTER_CHANNEL, **(values | fields))

    def compute_object(self, ring: Ring) -> int:
        params = rm_classes.NV_GR_ALLOCATION_PARAMETERS(version=2, size=16)
        return self.alloc(ring.handle, self.generation.compute, params)

    def compute_channel(self) -> Ring:
        """Return a ready channel of the graphics engine, compute bound to subchannel 1."""
        group = self.group()
        ring = self.ring(group)
        self.engine_object = self.compute_object(ring)
        self.register_channel(ring, self.next_window)
        self.next_window += 64 * MIB
        self.schedule(ring, group)
        ring.push(method(1, 0, self.generation.compute), ring=False)
        return ring


def wait_until(true: Callable[[], bool], client: Client) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + HANG_S
    while not true():
        assert time.monotonic() < end, client.reports()
        time.sleep(0.0005)


def wait_word(memory: Memory, offset: int, value: int, client: Client) -> None:
    """Wait until a 64-bit word has a value."""
    end = time.monotonic() + HANG_S
    while time.monotonic() < end:
        (seen,) = struct.unpack_from("<Q", memory.view, offset)
        if seen == value:
            return
        if client.machine.fatal:
            raise AssertionError(client.reports())
        time.sleep(0.0002)
    raise AssertionError(f"saw {seen:#x}, wanted {value:#x}: {client.reports()}")
