"""The state of one open file of /dev/nvidia-uvm: ranges of addresses, mappings, channels.

The commands for ranges are here, too (nv.md 2.6): first a range of addresses is created, then memory is
mapped into it. They have the contract that `uvm` states.

A refused command raises `RmRefused`, with the status of the resource manager.

Not here: registration (`uvm`), what the GPU finds at an address (`emulator.shared.vaspace`). Next: `uvm`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import UvmGpuCachingType, UvmGpuMappingType, UvmInitFlags
from emulator.nv.profiles import Link
from emulator.nv.reports import RmRefused, wrong
from emulator.nv.rm.objects import RmMemory, find
from emulator.shared.backing import PAGE, Backing

if TYPE_CHECKING:
    from drivers.nv.layouts import uvm as layout
    from drivers.nv.layouts.uvm import NvProcessorUuid
    from emulator.nv.machine.gpu import EmulatedGpu
    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.rm.files import RmFile, RmFiles
    from emulator.nv.rm.objects import Client, RmChannel, VaSpaceObject

Ranges = dict[int, int]
"""Base -> length."""


@dataclass(slots=True)
class RegisteredGpu:
    """One registered GPU of an open file."""

    vaspace: VaSpaceObject | None = None
    """The registered address space."""
    mapped: Ranges = field(default_factory=dict)
    """Mappings in it."""
    owners: dict[int, EmulatedGpu] = field(default_factory=dict)
    """Base of a mapping -> the other GPU whose video memory it shows."""

    def unmap(self, base: int, length: int, why: str) -> None:
        """Remove the mappings that start in [base, base + length); `why` is for reports of later accesses."""
        for va in [va for va in self.mapped if base <= va < base + length]:
            del self.mapped[va]
            self.owners.pop(va, None)
            if self.vaspace is not None and va in self.vaspace.space.backings:  # else it went with its space
                self.vaspace.space.remove(va, why)


@dataclass(slots=True)
class UvmSpace:
    """The state of one open file."""

    flags: int | None = None
    """The flags of UVM_INITIALIZE; None before that call."""
    mm_of: RmFile | None = None
    """The first descriptor, if this is the second one, that of UVM_MM_INITIALIZE."""
    has_mm: bool = False
    """Whether this is a first descriptor that has a second one."""
    lost_mm: bool = False
    """Whether its second one was closed."""
    gpus: dict[EmulatedGpu, RegisteredGpu] = field(default_factory=dict)
    """The registered GPUs."""
    peers: set[frozenset[EmulatedGpu]] = field(default_factory=set)
    """Pairs of registered GPUs that reach each other's video memory."""
    ranges: Ranges = field(default_factory=dict)
    """External ranges and semaphore pools."""
    pools: dict[int, Backing] = field(default_factory=dict)
    """Base of a semaphore pool -> its pages."""
    owned: Ranges = field(default_factory=dict)
    """Mappings of the descriptor itself in this process; their addresses belong to UVM."""
    channels: dict[RmChannel, tuple[int, int] | None] = field(default_factory=dict)
    """Registered channel -> the window (base, length) of its context buffers, if it has one."""

    @property
    def shared(self) -> bool:
        """Whether it was initialized in multi-process sharing mode."""
        return bool((self.flags or 0) & UvmInitFlags.MULTI_PROCESS_SHARING_MODE)

    @property
    def windows(self) -> Ranges:
        """The windows of context buffers."""
        return {window[0]: window[1] for window in self.channels.values() if window is not None}

    def claim(self, base: int, length: int, *tables: Ranges) -> None:
        """Raise `RmRefused` if [base, base + length) overlaps an entry of one of `tables`."""
        for other, size in (entry for table in tables for entry in table.items()):
            if base < other + size and other < base + length:
                raise RmRefused(
                    NvStatus.UVM_ADDRESS_IN_USE,
                    f"[{base:#x}, +{length:#x}) overlaps [{other:#x}, +{size:#x})",
                )

    def range_of(self, base: int, length: int) -> int:
        """Return the base of the range that contains [base, base + length).

        Raises `RmRefused` if there is none.
        """
        for start, size in self.ranges.items():
            if start <= base and base + length <= start + size:
                return start
        raise RmRefused(
            NvStatus.INVALID_ADDRESS,
            f"[{base:#x}, +{length:#x}) lies in no range of UVM_CREATE_EXTERNAL_RANGE",
        )

    def space_of(
        self, machine: NvMachine, uuid: NvProcessorUuid, *, with_space: bool = False
    ) -> tuple[EmulatedGpu, RegisteredGpu]:
        """Return a registered GPU and its state; `with_space`: its address space is registered, too.

        Raises `RmRefused` (INVALID_DEVICE) if it is not.
        """
        gpu = find_gpu(machine, uuid)
        if gpu not in self.gpus:
            raise RmRefused(NvStatus.INVALID_DEVICE, f"{gpu} is not registered: UVM_REGISTER_GPU comes first")
        here = self.gpus[gpu]
        if with_space and here.vaspace is None:
            raise RmRefused(NvStatus.INVALID_DEVICE, f"UVM_REGISTER_GPU_VASPACE of {gpu} comes first")
        return gpu, here

    def part(self, pair: frozenset[EmulatedGpu], why: str) -> None:
        """Make two GPUs peers no longer: unmap the video memory that each shows of the other."""
        self.peers.discard(pair)
        for gpu in pair:
            for va, owner in tuple(self.gpus[gpu].owners.items()):
                if owner in pair:
                    self.gpus[gpu].unmap(va, 1, why)

    def disown(self, va: int, size: int) -> None:
        """Remove [va, va + size) from the mappings of the descriptor."""
        for base, length in tuple(self.owned.items()):
            if base < va + size and va < base + length:
                del self.owned[base]
                if base < va:
                    self.owned[base] = va - base
                if va + size < base + length:
                    self.owned[va + size] = base + length - va - size

    def drop_channel(self, channel: RmChannel) -> None:
        """Unregister a channel; it no longer runs, because it has no context buffers."""
        del self.channels[channel]
        channel.registered = channel.scheduled = False

    def end(self) -> None:
        """Free everything, for a descriptor that is closed."""
        for gpu in self.gpus:
            self.close(gpu)
        while self.pools:
            self.pools.popitem()[1].drop()

    def close(self, gpu: EmulatedGpu) -> None:
        """Unregister a GPU's address space, with its channels and mappings."""
        for channel in [channel for channel in self.channels if channel.gpu is gpu]:
            self.drop_channel(channel)
        here = self.gpus[gpu]
        if here.vaspace is not None:
            here.unmap(0, 1 << 64, "with UVM")
            here.vaspace.registered = False
            here.vaspace = None


def find_gpu(
    machine: NvMachine, uuid: NvProcessorUuid, missing: NvStatus = NvStatus.INVALID_DEVICE
) -> EmulatedGpu:
    """Return the GPU with a uuid. Raises `RmRefused` with status `missing` if there is none."""
    for gpu in machine.gpus:
        if uuid.uuid == gpu.uuid:
            return gpu
    raise RmRefused(missing, f"no GPU has the uuid {uuid.uuid.hex()}")


def check_pages(machine: NvMachine, base: int, length: int, gpu: EmulatedGpu | None = None) -> None:
    """Raise `RmRefused` if a range is empty, at 0, not made of pages, or above the addresses of a GPU.

    Without `gpu` the addresses are those of the GPU that has most.
    """
    if base == 0 or length == 0 or base % PAGE or length % PAGE:
        raise RmRefused(
            NvStatus.INVALID_ADDRESS, f"[{base:#x}, +{length:#x}) is empty, at 0 or not made of 4 KiB pages"
        )
    bits = max(one.profile.va_bits for one in ((gpu,) if gpu is not None else machine.gpus))
    if base + length > 1 << bits:
        raise RmRefused(NvStatus.INVALID_ADDRESS, f"[{base:#x}, +{length:#x}) ends above {bits} bits")


_BAD_ADDRESS = NvStatus.INVALID_ADDRESS
_TAIL = 2 << 20
"""A large page. A mapping that leaves out less than this at the end of its memory is probably a mistake."""


def create_range(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_CREATE_EXTERNAL_RANGE_PARAMS) -> None:
    """Create a range of addresses for memory of the resource manager."""
    check_pages(kernel.machine, params.base, params.length)
    uvm.claim(params.base, params.length, uvm.ranges, uvm.windows, uvm.owned)
    uvm.ranges[params.base] = params.length


def free(_kernel: RmFiles, uvm: UvmSpace, params: Any) -> None:
    """Free a range with its mappings."""
    length = uvm.ranges.get(params.base)
    if length is None:
        raise RmRefused(_BAD_ADDRESS, f"no range starts at {params.base:#x}")
    given = getattr(params, "length", length)
    if given != length:
        raise RmRefused(
            _BAD_ADDRESS,
            f"UVM_CREATE_EXTERNAL_RANGE made the range at {params.base:#x} with {length:#x} bytes, and "
            f"UVM_FREE names {given:#x}",
        )
    for space in uvm.gpus.values():
        space.unmap(params.base, length, "by UVM_FREE")
    del uvm.ranges[params.base]
    if params.base in uvm.pools:
        uvm.pools.pop(params.base).drop()


def _attributes(kernel: RmFiles, uvm: UvmSpace, params: Any) -> dict[EmulatedGpu, bool]:
    """Return whether a mapping is writable, for each GPU that it is for.

    Raises `RmRefused` for what is not known, and for a GPU without a registered address space.
    """
    count, found, many = params.gpuAttributesCount, {}, params.FIELDS["perGpuAttributes"]
    if not 0 < count <= len(kernel.machine.gpus):
        raise wrong(f"gpuAttributesCount is {count}, there are {len(kernel.machine.gpus)} GPUs")
    for one in (many.decode_one(params.to_bytes(), many.offset + i * many.stride) for i in range(count)):
        if one.gpuMappingType not in tuple(UvmGpuMappingType) or one.gpuCachingType not in tuple(
            UvmGpuCachingType
        ):
            raise wrong(f"mapping or caching type of {one} is not known")
        if one.gpuFormatType or one.gpuElementBits or one.gpuCompressionType:
            raise wrong(f"format, element bits and compression must be 0: {one}")
        gpu, _ = uvm.space_of(kernel.machine, one.gpuUuid, with_space=True)
        check_pages(kernel.machine, params.base, params.length, gpu)
        found[gpu] = one.gpuMappingType != UvmGpuMappingType.READ_ONLY
    return found


def map_external(
    kernel: RmFiles,
    uvm: UvmSpace,
    params: layout.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS,
    client: Client,
) -> None:
    """Map memory of the resource manager, which belongs to `client`, into a range: on all GPUs, or none."""
    writable = _attributes(kernel, uvm, params)
    memory = find(client, params.hMemory, RmMemory, "hMemory")
    if uvm.range_of(params.base, params.length) in uvm.pools:
        raise RmRefused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) is a semaphore pool")
    for gpu in writable:
        uvm.claim(params.base, params.length, uvm.gpus[gpu].mapped)
        _check_peer(uvm, gpu, memory)
    if params.offset % PAGE:
        raise RmRefused(_BAD_ADDRESS, f"offset {params.offset:#x} is not made of 4 KiB pages")
    if params.offset + params.length > memory.size:
        text = f"[{params.offset:#x}, +{params.length:#x}) is not inside {memory} of {memory.size:#x}"
        raise RmRefused(NvStatus.INVALID_OFFSET, text)
    note, rest = "", memory.size - params.offset - params.length
    if params.offset == 0 and 0 < rest < min(_TAIL, params.length):
        note = f" (mapped without its last {rest:#x} bytes)"
        kernel.machine.advise(
            f"UVM_MAP_EXTERNAL_ALLOCATION at {params.base:#x} maps {params.length:#x} bytes of {memory} of "
            f"{memory.size:#x}: the GPU has no address for the last {rest:#x}"
        )
    for gpu, writes in writable.items():
        here = uvm.gpus[gpu]
        assert here.vaspace is not None
        space = here.vaspace.space
        space.add(params.base, params.length, memory.backing, params.offset, writable=writes, note=note)
        here.mapped[params.base] = params.length
        if memory.gpu is not gpu and memory.cls == RmClass.NV01_MEMORY_LOCAL_USER:
            here.owners[params.base] = memory.gpu
    _compare_addresses(kernel.machine, memory, params.base, params.offset)


def _check_peer(uvm: UvmSpace, gpu: EmulatedGpu, memory: RmMemory) -> None:
    """Raise `RmRefused` (INVALID_DEVICE) if `gpu` may not map memory of another GPU (uvm_map_external.c).

    The other one is registered, for memory of the system, too; it is a peer if the memory is its own.
    """
    owner = memory.gpu
    if owner not in uvm.gpus:
        text = f"{memory} belongs to {owner}, which is not registered here: UVM_REGISTER_GPU comes first"
        raise RmRefused(NvStatus.INVALID_DEVICE, text)
    local = memory.cls == RmClass.NV01_MEMORY_LOCAL_USER
    if owner is not gpu and local and frozenset((gpu, owner)) not in uvm.peers:
        text = f"{memory} is video memory of {owner}, no peer of {gpu}: UVM_ENABLE_PEER_ACCESS comes first"
        raise RmRefused(NvStatus.INVALID_DEVICE, text)


def unmap_external(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_UNMAP_EXTERNAL_PARAMS) -> None:
    """Remove the mappings in a part of a range: at least one, and no part of one."""
    _, here = uvm.space_of(kernel.machine, params.gpuUuid)
    check_pages(kernel.machine, params.base, params.length)
    if uvm.range_of(params.base, params.length) in uvm.pools:
        raise RmRefused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) is a semaphore pool")
    end = params.base + params.length
    touched = {va: size for va, size in here.mapped.items() if va < end and params.base < va + size}
    if not touched:
        raise RmRefused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) holds no mapping")
    if min(touched) < params.base or max(va + size for va, size in touched.items()) > end:
        raise RmRefused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) cuts a mapping: not emulated")
    here.unmap(params.base, params.length, "by UVM_UNMAP_EXTERNAL")


def validate(_kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_VALIDATE_VA_RANGE_PARAMS) -> None:
    """Refuse addresses that are no whole range."""
    if uvm.ranges.get(params.base) != params.length:
        raise RmRefused(_BAD_ADDRESS, f"[{params.base:#x}, +{params.length:#x}) is no range of a call")


def semaphore_pool(kernel: RmFiles, uvm: UvmSpace, params: Any) -> None:
    """Allocate memory of UVM and map it for GPUs; an mmap at its address maps it for the CPU."""
    writable = _attributes(kernel, uvm, params)
    uvm.claim(params.base, params.length, uvm.ranges, uvm.windows, uvm.owned)
    backing = Backing.new(kernel.machine.linux, params.length, "semaphore pool")
    for gpu, here in uvm.gpus.items():
        if here.vaspace is not None:  # attributes are for GPUs that differ from the default
            space = here.vaspace.space
            space.add(params.base, params.length, backing, 0, writable=writable.get(gpu, True))
            here.mapped[params.base] = params.length
    uvm.pools[params.base] = backing
    uvm.ranges[params.base] = params.length


def enable_peer(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_ENABLE_PEER_ACCESS_PARAMS) -> None:
    """Make two registered GPUs peers over PCIe. GPUs with NVLink are, once both are registered."""
    pair = _pair(kernel, uvm, params)
    link = kernel.machine.link
    if link is None:
        raise RmRefused(NvStatus.NOT_SUPPORTED, "the GPUs have no path to each other")
    if link is not Link.PCIE or pair in uvm.peers:
        raise RmRefused(NvStatus.INVALID_DEVICE, f"the GPUs, joined by {link.value}, are peers already")
    uvm.peers.add(pair)


def disable_peer(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_ENABLE_PEER_ACCESS_PARAMS) -> None:
    """Make two GPUs peers no longer, if UVM_ENABLE_PEER_ACCESS made them."""
    pair = _pair(kernel, uvm, params)
    if kernel.machine.link is not Link.PCIE or pair not in uvm.peers:
        raise RmRefused(NvStatus.INVALID_DEVICE, "UVM_ENABLE_PEER_ACCESS did not make them peers")
    uvm.part(pair, "by UVM_DISABLE_PEER_ACCESS")


def _pair(kernel: RmFiles, uvm: UvmSpace, params: Any) -> frozenset[EmulatedGpu]:
    """Return the two GPUs of a call. Raises `RmRefused` (INVALID_DEVICE) unless both are registered."""
    pair = frozenset(uvm.space_of(kernel.machine, one)[0] for one in (params.gpuUuidA, params.gpuUuidB))
    if len(pair) != 2:
        raise RmRefused(NvStatus.INVALID_DEVICE, "a GPU is not its own peer")
    return pair


def _compare_addresses(machine: NvMachine, memory: RmMemory, va: int, offset: int) -> None:
    """Advise if memory, mapped from `offset` on at `va`, has another address for the CPU (nv.md 2.6)."""
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
