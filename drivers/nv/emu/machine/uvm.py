"""/dev/nvidia-uvm: who maps what where on the GPU (nv.md 1.2, 2.5, 2.6, 7.1).

Each open is a VA manager of its own. Ranges are made first, memory is mapped into them then.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from drivers.kernel import fail
from drivers.nv.emu.machine.backing import PAGE, Backing
from drivers.nv.emu.machine.files import Node, OpenFile
from drivers.nv.emu.machine.objects import Channel, Client, EngineObject, Memory, VaSpaceObject, find
from drivers.nv.emu.machine.profiles import SANDBOX_REFUSES_UVM
from drivers.nv.emu.machine.reports import Refused
from drivers.nv.layouts import uvm as layout
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import UvmCommand, UvmGpuCachingType, UvmGpuMappingType, UvmInitFlags

if TYPE_CHECKING:
    from drivers.nv.emu.machine.kernel import EmulatedKernel
    from drivers.nv.emu.machine.machine import Machine

_MM_MISSING = 0x5D
"""What REGISTER_GPU_VASPACE says when MM_INITIALIZE was left out (nv.md 1.2, one source)."""
_BAD_ADDRESS, _STATE = NvStatus.INVALID_ADDRESS, NvStatus.INVALID_STATE


@dataclass(slots=True)
class Uvm:
    """One VA manager."""

    initialized: bool = False
    mm_of: OpenFile | None = None
    """The first descriptor, when this is the second one."""
    has_mm: bool = False
    gpu: bool = False
    vaspace: VaSpaceObject | None = None
    ranges: dict[int, int] = field(default_factory=dict)
    """External ranges: base -> length."""
    windows: dict[int, int] = field(default_factory=dict)
    """Context-buffer windows: base -> length."""
    mapped: dict[int, int] = field(default_factory=dict)
    """Mappings in the address space: base -> length."""
    channels: list[Channel] = field(default_factory=list)

    def overlap(self, base: int, length: int, table: dict[int, int]) -> bool:
        """Say whether [base, base + length) shares an address with an entry of a table."""
        return any(base < other + size and other < base + length for other, size in table.items())

    def unmap(self, base: int, length: int, why: str) -> None:
        """Remove the mappings inside a range."""
        for va in [va for va in self.mapped if base <= va < base + length]:
            del self.mapped[va]
            if (
                self.vaspace is not None and va in self.vaspace.space.backings
            ):  # else it went with its address space
                self.vaspace.space.remove(va, why)

    def close(self) -> None:
        """Tear everything down."""
        for channel in self.channels:
            channel.registered = False
        if self.vaspace is not None:
            self.unmap(0, 1 << 64, "with UVM")
            self.vaspace.registered = False
            self.vaspace = None


def ioctl(kernel: EmulatedKernel, file: OpenFile, request: int, block: bytearray) -> None:
    """Run one UVM command on `block`, which is changed in place."""
    machine = kernel.machine
    if request not in _HANDLERS or (machine.filtered and request in SANDBOX_REFUSES_UVM):
        machine.note(f"UVM command {request:#x} is unknown, filtered or not emulated")
        fail("ioctl", errno.EINVAL if machine.filtered else errno.ENOTTY, f"UVM command {request:#x}")
    handler, name = _HANDLERS[request]
    kind: Any = machine.structs[name]
    if len(block) != kind.SIZE:
        machine.note(f"{name}: {len(block)} bytes, this branch has {kind.SIZE}")
        fail("ioctl", errno.EINVAL, f"{name}: {len(block)} bytes, this branch has {kind.SIZE}")
    uvm = file.uvm
    assert uvm is not None
    try:
        _in_order(uvm, request)
        status = handler(kernel, uvm, kind.from_bytes(block), block) or NvStatus.OK
    except Refused as refusal:
        machine.note(f"{UvmCommand(request).name}: {refusal}")
        status = refusal.status
    kind.store(block, rmStatus=int(status))


def _in_order(uvm: Uvm, request: int) -> None:
    if not uvm.initialized and request not in (UvmCommand.UVM_INITIALIZE, UvmCommand.UVM_MM_INITIALIZE):
        raise Refused(_STATE, "UVM_INITIALIZE comes first")


def _initialize(
    _kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_INITIALIZE_PARAMS, _block: bytearray
) -> int:
    if int(params.flags) & ~sum(UvmInitFlags):
        raise Refused(NvStatus.INVALID_ARGUMENT, f"flags {int(params.flags):#x} are not known")
    if uvm.initialized or uvm.mm_of is not None:
        raise Refused(_STATE, "the descriptor was initialized already")
    uvm.initialized = True
    return 0


def _mm_initialize(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_MM_INITIALIZE_PARAMS, _block: bytearray
) -> int:
    first = kernel.files.get(params.uvmFd)
    if first is None or first.uvm is None or first.uvm is uvm or not first.uvm.initialized:
        raise Refused(
            NvStatus.INVALID_ARGUMENT, f"uvmFd {params.uvmFd} is no other, initialized descriptor of UVM"
        )
    if uvm.initialized or uvm.mm_of is not None:
        raise Refused(_STATE, "the descriptor is in use already: MM_INITIALIZE takes a fresh one")
    uvm.mm_of = first
    first.uvm.has_mm = True
    return NvStatus.WARN_NOTHING_TO_DO if kernel.machine.filtered else NvStatus.OK


def _gpu(kernel: EmulatedKernel, uuid: layout.NvProcessorUuid) -> None:
    if uuid.uuid != kernel.machine.uuid:
        raise Refused(NvStatus.OBJECT_NOT_FOUND, f"no GPU has the uuid {uuid.uuid.hex()}")


def _client(kernel: EmulatedKernel, fd: int, handle: int) -> Client:
    """Return the client behind a descriptor that was handed to UVM."""
    file = kernel.files.get(fd)
    if file is None or file.node is not Node.CTL:
        if kernel.machine.filtered and fd >= 0:
            fail("ioctl", errno.EINVAL, f"rmCtrlFd {fd} is no frontend descriptor")
        raise Refused(NvStatus.INVALID_ARGUMENT, f"rmCtrlFd {fd} is no /dev/nvidiactl")
    return kernel.machine.client(handle, fd)


def _register_gpu(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_REGISTER_GPU_PARAMS, block: bytearray
) -> int:
    _gpu(kernel, params.gpu_uuid)
    if params.rmCtrlFd >= 0:
        file = kernel.files.get(params.rmCtrlFd)
        if file is None or file.node not in (Node.CTL, Node.GPU):
            fail("ioctl", errno.EINVAL, f"rmCtrlFd {params.rmCtrlFd} is no frontend descriptor")
    if params.hSmcPartRef or params.hClient:
        raise Refused(NvStatus.INVALID_ARGUMENT, "hClient and hSmcPartRef are for MIG")
    if uvm.gpu:
        raise Refused(_STATE, "the GPU is registered already")
    if not any(file.node is Node.GPU for file in kernel.files.values()):
        raise Refused(_STATE, "no /dev/nvidia0 is open: the GPU is not up")
    uvm.gpu = True
    layout.UVM_REGISTER_GPU_PARAMS.store(block, numaEnabled=False, numaNodeId=0xFFFF_FFFF)
    return 0


def _unregister_gpu(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_UNREGISTER_GPU_PARAMS, _block: bytearray
) -> int:
    _gpu(kernel, params.gpu_uuid)
    if not uvm.gpu or uvm.vaspace is not None:
        raise Refused(_STATE, "the GPU is not registered, or its address space still is")
    uvm.gpu = False
    return 0


def _register_vaspace(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_REGISTER_GPU_VASPACE_PARAMS, _block: bytearray
) -> int:
    _gpu(kernel, params.gpuUuid)
    client = _client(kernel, params.rmCtrlFd, params.hClient)
    if not uvm.gpu:
        raise Refused(_STATE, "UVM_REGISTER_GPU comes first")
    if not uvm.has_mm and not kernel.machine.filtered:
        raise Refused(_MM_MISSING, "UVM_MM_INITIALIZE was left out")
    space = find(client, params.hVaSpace, VaSpaceObject, "hVaSpace")
    if not space.externally_owned:
        raise Refused(NvStatus.INVALID_FLAGS, f"{space} was not made externally owned")
    if space.registered or uvm.vaspace is not None:
        raise Refused(_STATE, "an address space is registered already")
    uvm.vaspace = space
    space.registered = True
    return 0


def _unregister_vaspace(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_UNREGISTER_GPU_VASPACE_PARAMS, _block: bytearray
) -> int:
    _gpu(kernel, params.gpuUuid)
    if uvm.vaspace is None:
        raise Refused(_STATE, "no address space is registered")
    uvm.close()
    return 0


def _page_range(kernel: EmulatedKernel, base: int, length: int) -> None:
    if base == 0 or length == 0 or base % PAGE or length % PAGE:
        raise Refused(_BAD_ADDRESS, f"[{base:#x}, +{length:#x}) is empty, at 0 or not made of 4 KiB pages")
    if base + length > 1 << kernel.machine.profile.va_bits:
        raise Refused(
            _BAD_ADDRESS, f"[{base:#x}, +{length:#x}) ends above {kernel.machine.profile.va_bits} bits"
        )


def _create_range(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_CREATE_EXTERNAL_RANGE_PARAMS, _block: bytearray
) -> int:
    _page_range(kernel, params.base, params.length)
    for table, what in ((uvm.ranges, "range"), (uvm.windows, "window of context buffers")):
        if uvm.overlap(params.base, params.length, table):
            raise Refused(
                NvStatus.UVM_ADDRESS_IN_USE,
                f"[{params.base:#x}, +{params.length:#x}) overlaps another {what}",
            )
    uvm.ranges[params.base] = params.length
    return 0


def _free(kernel: EmulatedKernel, uvm: Uvm, params: Any, _block: bytearray) -> int:
    length = uvm.ranges.get(params.base)
    if length is None:
        raise Refused(_BAD_ADDRESS, f"no range starts at {params.base:#x}")
    told = getattr(params, "length", length)
    if told != length:
        raise Refused(_BAD_ADDRESS, f"the range at {params.base:#x} has {length:#x} bytes, not {told:#x}")
    with kernel.machine.lock:
        uvm.unmap(params.base, length, "by UVM_FREE")
    del uvm.ranges[params.base]
    return 0


def _attributes(kernel: EmulatedKernel, params: Any) -> layout.UvmGpuMappingAttributes:
    if params.gpuAttributesCount != 1:
        raise Refused(
            NvStatus.INVALID_ARGUMENT, f"{params.gpuAttributesCount} attribute records, there is one GPU"
        )
    one: layout.UvmGpuMappingAttributes = params.perGpuAttributes[0]
    _gpu(kernel, one.gpuUuid)
    if one.gpuMappingType not in tuple(UvmGpuMappingType) or one.gpuCachingType not in tuple(
        UvmGpuCachingType
    ):
        raise Refused(NvStatus.INVALID_ARGUMENT, f"mapping or caching type of {one} is not known")
    if one.gpuFormatType or one.gpuElementBits or one.gpuCompressionType:
        raise Refused(NvStatus.INVALID_ARGUMENT, f"format, element bits and compression must be 0: {one}")
    return one


def _map_external(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, _block: bytearray
) -> int:
    one = _attributes(kernel, params)
    client = _client(kernel, params.rmCtrlFd, params.hClient)
    _page_range(kernel, params.base, params.length)
    if uvm.vaspace is None:
        raise Refused(_STATE, "UVM_REGISTER_GPU_VASPACE comes first")
    memory = find(client, params.hMemory, Memory, "hMemory")
    if not any(
        b <= params.base and params.base + params.length <= b + size for b, size in uvm.ranges.items()
    ):
        raise Refused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) lies in no external range")
    if uvm.overlap(params.base, params.length, uvm.mapped):
        raise Refused(
            NvStatus.UVM_ADDRESS_IN_USE, f"[{params.base:#x}, +{params.length:#x}) is mapped already"
        )
    if params.offset % PAGE or params.offset + params.length > memory.size:
        raise Refused(
            NvStatus.INVALID_ARGUMENT,
            f"[{params.offset:#x}, +{params.length:#x}) is not inside {memory} of {memory.size:#x}",
        )
    with kernel.machine.lock:
        uvm.vaspace.space.add(
            params.base,
            params.length,
            memory.backing,
            params.offset,
            writable=one.gpuMappingType != UvmGpuMappingType.READ_ONLY,
        )
    uvm.mapped[params.base] = params.length
    kernel.compare_addresses(memory, params.base, params.offset)
    return 0


def _unmap_external(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_UNMAP_EXTERNAL_PARAMS, _block: bytearray
) -> int:
    _gpu(kernel, params.gpuUuid)
    if uvm.mapped.get(params.base) != params.length:
        raise Refused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) is no mapping")
    with kernel.machine.lock:
        uvm.unmap(params.base, params.length, "by UVM_UNMAP_EXTERNAL")
    return 0


def _validate(
    _kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_VALIDATE_VA_RANGE_PARAMS, _block: bytearray
) -> int:
    if not any(
        b <= params.base and params.base + params.length <= b + size for b, size in uvm.ranges.items()
    ):
        raise Refused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) lies in no range")
    return 0


def _register_channel(
    kernel: EmulatedKernel, uvm: Uvm, params: layout.UVM_REGISTER_CHANNEL_PARAMS, _block: bytearray
) -> int:
    _gpu(kernel, params.gpuUuid)
    client = _client(kernel, params.rmCtrlFd, params.hClient)
    channel = find(client, params.hChannel, Channel, "hChannel")
    if uvm.vaspace is None or channel.run.space is not uvm.vaspace.space:
        raise Refused(_STATE, "the channel's address space is not registered here")
    if channel.registered:
        raise Refused(_STATE, f"{channel} is registered already")
    profile = kernel.machine.profile
    compute = any(
        isinstance(c, EngineObject) and c.cls == profile.generation.compute for c in channel.children
    )
    if channel.group.engine == EngineType.GR0 and not any(
        isinstance(c, EngineObject) for c in channel.children
    ):
        raise Refused(_STATE, f"{channel} is not bound to an engine: allocate its engine object first")
    if compute or params.length:
        _page_range(kernel, params.base, params.length)
        if params.base + params.length > 1 << profile.generation.window_bits:
            raise Refused(_BAD_ADDRESS, f"the window ends above {profile.generation.window_bits} bits")
        if compute and params.length < profile.context_bytes:
            raise Refused(
                NvStatus.INSUFFICIENT_RESOURCES,
                f"a window of {params.length:#x} bytes, needed are {profile.context_bytes:#x}",
            )
        if uvm.overlap(params.base, params.length, uvm.ranges):
            raise Refused(NvStatus.UVM_ADDRESS_IN_USE, "the window overlaps an external range")
        if uvm.windows.get(params.base) != params.length and uvm.overlap(
            params.base, params.length, uvm.windows
        ):
            raise Refused(NvStatus.UVM_ADDRESS_IN_USE, "the window overlaps another one")
        uvm.windows[params.base] = params.length
    channel.registered = True
    uvm.channels.append(channel)
    return 0


def _unregister_channel(kernel: EmulatedKernel, uvm: Uvm, params: Any, _block: bytearray) -> int:
    client = kernel.machine.clients.get(params.hClient)
    channel = next((c for c in uvm.channels if c.handle == params.hChannel), None)
    if client is None or channel is None:
        raise Refused(
            NvStatus.INVALID_OBJECT_HANDLE,
            f"channel {params.hChannel:#x} of client {params.hClient:#x} is not registered",
        )
    uvm.channels.remove(channel)
    channel.registered = False
    return 0


def _pageable(_kernel: EmulatedKernel, _uvm: Uvm, _params: object, block: bytearray) -> int:
    layout.UVM_PAGEABLE_MEM_ACCESS_PARAMS.store(block, pageableMemAccess=False)
    return 0


def _semaphore_pool(kernel: EmulatedKernel, uvm: Uvm, params: Any, _block: bytearray) -> int:
    one = _attributes(kernel, params)
    _page_range(kernel, params.base, params.length)
    if uvm.vaspace is None:
        raise Refused(_STATE, "UVM_REGISTER_GPU_VASPACE comes first")
    if uvm.overlap(params.base, params.length, uvm.ranges | uvm.windows):
        raise Refused(NvStatus.UVM_ADDRESS_IN_USE, "the pool overlaps a range")
    backing = Backing.new(kernel.machine.linux, params.length, "semaphore pool")
    uvm.vaspace.space.add(
        params.base, params.length, backing, 0, writable=one.gpuMappingType != UvmGpuMappingType.READ_ONLY
    )
    backing.drop()
    uvm.ranges[params.base] = uvm.mapped[params.base] = params.length
    return 0


def _peer(
    kernel: EmulatedKernel, _uvm: Uvm, params: layout.UVM_ENABLE_PEER_ACCESS_PARAMS, _block: bytearray
) -> int:
    _gpu(kernel, params.gpuUuidA)
    _gpu(kernel, params.gpuUuidB)
    raise Refused(NvStatus.INVALID_ARGUMENT, "a GPU is not its own peer")


_C = UvmCommand
_FUNCTIONS: Final[dict[int, Any]] = {
    _C.UVM_INITIALIZE: _initialize,
    _C.UVM_MM_INITIALIZE: _mm_initialize,
    _C.UVM_REGISTER_GPU: _register_gpu,
    _C.UVM_UNREGISTER_GPU: _unregister_gpu,
    _C.UVM_REGISTER_GPU_VASPACE: _register_vaspace,
    _C.UVM_UNREGISTER_GPU_VASPACE: _unregister_vaspace,
    _C.UVM_REGISTER_CHANNEL: _register_channel,
    _C.UVM_UNREGISTER_CHANNEL: _unregister_channel,
    _C.UVM_CREATE_EXTERNAL_RANGE: _create_range,
    _C.UVM_MAP_EXTERNAL_ALLOCATION: _map_external,
    _C.UVM_UNMAP_EXTERNAL: _unmap_external,
    _C.UVM_FREE: _free,
    _C.UVM_VALIDATE_VA_RANGE: _validate,
    _C.UVM_PAGEABLE_MEM_ACCESS: _pageable,
    _C.UVM_ALLOC_SEMAPHORE_POOL: _semaphore_pool,
    _C.UVM_ENABLE_PEER_ACCESS: _peer,
    _C.UVM_DISABLE_PEER_ACCESS: _peer,
}
_HANDLERS: Final[dict[int, tuple[Any, str]]] = {
    command: (function, layout.COMMAND_STRUCTS[command].__name__) for command, function in _FUNCTIONS.items()
}


def size_of(machine: Machine, request: int) -> int:
    """Return the bytes of a command's parameters; 0 for one that is not known."""
    known = _HANDLERS.get(request)
    return machine.structs[known[1]].SIZE if known else 0
