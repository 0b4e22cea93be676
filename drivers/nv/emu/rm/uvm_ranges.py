"""UVM's ranges: reserved addresses, and the mappings in them (nv.md 2.6).

A range is made first, memory is mapped into it then. Not here: registration (`uvm`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivers.emu.backing import PAGE, Backing
from drivers.nv.emu.machine.reports import Refused
from drivers.nv.emu.rm.objects import Memory, find
from drivers.nv.emu.rm.uvm_space import check_gpu, check_pages
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import UvmGpuCachingType, UvmGpuMappingAttributes, UvmGpuMappingType

if TYPE_CHECKING:
    from drivers.nv.emu.machine.machine import Machine
    from drivers.nv.emu.rm.files import OpenFiles
    from drivers.nv.emu.rm.objects import Client
    from drivers.nv.emu.rm.uvm_space import Uvm
    from drivers.nv.layouts import uvm as layout

_BAD_ADDRESS = NvStatus.INVALID_ADDRESS
_TAIL = 2 << 20
"""A mapping that leaves out less than this at the end of its memory is taken for too short: a large page."""


def create_range(
    kernel: OpenFiles, uvm: Uvm, params: layout.UVM_CREATE_EXTERNAL_RANGE_PARAMS, _block: bytearray
) -> None:
    """Create a range for memory of the resource manager."""
    check_pages(kernel.machine, params.base, params.length)
    uvm.claim(params.base, params.length, uvm.ranges, uvm.windows, uvm.owned)
    uvm.ranges[params.base] = params.length


def free(_kernel: OpenFiles, uvm: Uvm, params: Any, _block: bytearray) -> None:
    """Free a range with its mappings."""
    length = uvm.ranges.get(params.base)
    if length is None:
        raise Refused(_BAD_ADDRESS, f"no range starts at {params.base:#x}")
    given = getattr(params, "length", length)
    if given != length:
        raise Refused(
            _BAD_ADDRESS,
            f"UVM_CREATE_EXTERNAL_RANGE made the range at {params.base:#x} with {length:#x} bytes, and "
            f"UVM_FREE names {given:#x}",
        )
    uvm.unmap(params.base, length, "by UVM_FREE")
    del uvm.ranges[params.base]
    if params.base in uvm.pools:
        uvm.pools.pop(params.base).drop()


def _attributes(kernel: OpenFiles, params: Any) -> UvmGpuMappingAttributes:
    if params.gpuAttributesCount != 1:
        raise Refused(
            NvStatus.INVALID_ARGUMENT, f"{params.gpuAttributesCount} attribute records, there is one GPU"
        )
    one: UvmGpuMappingAttributes = params.perGpuAttributes[0]
    check_gpu(kernel.machine, one.gpuUuid)
    if one.gpuMappingType not in tuple(UvmGpuMappingType) or one.gpuCachingType not in tuple(
        UvmGpuCachingType
    ):
        raise Refused(NvStatus.INVALID_ARGUMENT, f"mapping or caching type of {one} is not known")
    if one.gpuFormatType or one.gpuElementBits or one.gpuCompressionType:
        raise Refused(NvStatus.INVALID_ARGUMENT, f"format, element bits and compression must be 0: {one}")
    return one


def map_external(
    kernel: OpenFiles,
    uvm: Uvm,
    params: layout.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS,
    client: Client,
) -> None:
    """Map memory of the resource manager into a range."""
    one = _attributes(kernel, params)
    check_pages(kernel.machine, params.base, params.length)
    if uvm.vaspace is None:
        raise Refused(NvStatus.INVALID_STATE, "UVM_REGISTER_GPU_VASPACE comes first")
    memory = find(client, params.hMemory, Memory, "hMemory")
    if uvm.range_of(params.base, params.length) in uvm.pools:
        raise Refused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) is a semaphore pool")
    uvm.claim(params.base, params.length, uvm.mapped)
    if params.offset % PAGE or params.offset + params.length > memory.size:
        raise Refused(
            NvStatus.INVALID_ARGUMENT,
            f"[{params.offset:#x}, +{params.length:#x}) is not inside {memory} of {memory.size:#x}",
        )
    writable = one.gpuMappingType != UvmGpuMappingType.READ_ONLY
    note, rest = "", memory.size - params.offset - params.length
    if params.offset == 0 and 0 < rest < min(_TAIL, params.length):
        note = f" (mapped without its last {rest:#x} bytes)"
        kernel.machine.advise(
            f"UVM_MAP_EXTERNAL_ALLOCATION at {params.base:#x} maps {params.length:#x} bytes of {memory} of "
            f"{memory.size:#x}: the GPU has no address for the last {rest:#x}"
        )
    space = uvm.vaspace.space
    space.add(params.base, params.length, memory.backing, params.offset, writable=writable, note=note)
    uvm.mapped[params.base] = params.length
    _compare_addresses(kernel.machine, memory, params.base, params.offset)


def unmap_external(
    kernel: OpenFiles, uvm: Uvm, params: layout.UVM_UNMAP_EXTERNAL_PARAMS, _block: bytearray
) -> None:
    """Unmap the whole mappings in a part of a range; refuse if there are none."""
    check_gpu(kernel.machine, params.gpuUuid)
    check_pages(kernel.machine, params.base, params.length)
    if uvm.range_of(params.base, params.length) in uvm.pools:
        raise Refused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) is a semaphore pool")
    end = params.base + params.length
    touched = {va: size for va, size in uvm.mapped.items() if va < end and params.base < va + size}
    if not touched:
        raise Refused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) holds no mapping")
    if min(touched) < params.base or max(va + size for va, size in touched.items()) > end:
        raise Refused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) cuts a mapping: not emulated")
    uvm.unmap(params.base, params.length, "by UVM_UNMAP_EXTERNAL")


def validate(
    _kernel: OpenFiles, uvm: Uvm, params: layout.UVM_VALIDATE_VA_RANGE_PARAMS, _block: bytearray
) -> None:
    """Check that addresses lie in a range."""
    uvm.range_of(params.base, params.length)


def semaphore_pool(kernel: OpenFiles, uvm: Uvm, params: Any, _block: bytearray) -> None:
    """Allocate memory of UVM and map it for the GPU; an mmap at its address maps it for the CPU."""
    one = _attributes(kernel, params)
    check_pages(kernel.machine, params.base, params.length)
    if uvm.vaspace is None:
        raise Refused(NvStatus.INVALID_STATE, "UVM_REGISTER_GPU_VASPACE comes first")
    uvm.claim(params.base, params.length, uvm.ranges, uvm.windows, uvm.owned)
    backing = Backing.new(kernel.machine.linux, params.length, "semaphore pool")
    writable = one.gpuMappingType != UvmGpuMappingType.READ_ONLY
    uvm.vaspace.space.add(params.base, params.length, backing, 0, writable=writable)
    uvm.pools[params.base] = backing
    uvm.ranges[params.base] = uvm.mapped[params.base] = params.length


def peer(
    kernel: OpenFiles, _uvm: Uvm, params: layout.UVM_ENABLE_PEER_ACCESS_PARAMS, _block: bytearray
) -> None:
    """Refuse: there is one GPU."""
    check_gpu(kernel.machine, params.gpuUuidA)
    check_gpu(kernel.machine, params.gpuUuidB)
    raise Refused(NvStatus.INVALID_ARGUMENT, "a GPU is not its own peer")


def _compare_addresses(machine: Machine, memory: Memory, va: int, offset: int) -> None:
    """Advise if memory has different addresses for the CPU and the GPU (nv.md 2.6)."""
    for one in machine.cpu_mappings:
        if one.backing is memory.backing and one.mapping.va - one.offset != va - offset:
            machine.advise(
                f"{memory} lies at {one.mapping.va:#x} for the CPU and at {va:#x} for the GPU: "
                "make them equal"
            )
    pinned = memory.cls == RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
    if pinned and memory.backing.host + offset != va:
        machine.advise(
            f"user pages at {memory.backing.host:#x} are mapped at {va:#x} for the GPU: make them equal"
        )
