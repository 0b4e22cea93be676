"""The emulated /dev/nvidia-uvm: registration of GPUs, address spaces and channels, ranges and mappings. Sources: nv.md 1.2, 2.5, 2.6, 7."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivers.nv.emu import objects as o
from drivers.nv.emu.objects import Refusal
from drivers.nv.emu.rm_controls import CONTEXT_BUFFER_BYTES
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import COMMAND_STRUCTS, UvmCommand, UvmGpuMappingType, UvmInitFlags

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.emu.rm import ResourceManager

_PAGE = 4096


class Uvm:
    """One process's view: what the first open of /dev/nvidia-uvm holds."""

    def __init__(
        self, manager: ResourceManager, is_frontend: Callable[[int], bool], is_uvm: Callable[[int], bool]
    ) -> None:
        self._rm = manager
        self._is_frontend = is_frontend
        self._is_uvm = is_uvm
        self._initialised: set[int] = set()
        self._managed: set[int] = set()
        self._gpu_registered = False
        self._vaspace: o.VaSpace | None = None
        self._ranges: dict[int, int] = {}
        self._mapped: dict[int, tuple[int, int, o.Memory]] = {}
        """Base of a mapping -> its length, its range and its memory."""
        self._windows: dict[int, int] = {}
        self._table: dict[int, Callable[[Any], dict[str, Any]]] = {
            UvmCommand.UVM_REGISTER_GPU: self._register_gpu, UvmCommand.UVM_UNREGISTER_GPU: self._unregister_gpu,
            UvmCommand.UVM_REGISTER_GPU_VASPACE: self._register_vaspace, UvmCommand.UVM_UNREGISTER_GPU_VASPACE: self._unregister_vaspace,
            UvmCommand.UVM_REGISTER_CHANNEL: self._register_channel, UvmCommand.UVM_UNREGISTER_CHANNEL: self._unregister_channel,
            UvmCommand.UVM_CREATE_EXTERNAL_RANGE: self._create_range, UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION: self._map,
            UvmCommand.UVM_UNMAP_EXTERNAL: self._unmap, UvmCommand.UVM_FREE: self._free,
            UvmCommand.UVM_VALIDATE_VA_RANGE: self._validate, UvmCommand.UVM_PAGEABLE_MEM_ACCESS: lambda _: {"pageableMemAccess": False},
        }  # fmt: skip

    def layout(self, command: int) -> Any:
        """Return a command's structure at this branch, or None for an unknown one."""
        known = command in self._table or command in (UvmCommand.UVM_INITIALIZE, UvmCommand.UVM_MM_INITIALIZE)
        return self._rm.profile.layout(COMMAND_STRUCTS[command].__name__) if known else None

    def run(self, fd: int, command: int, values: Any) -> dict[str, Any]:
        """Run a command on a descriptor; returns the fields to write back."""
        for violation in values.check():
            raise Refusal(NvStatus.INVALID_ARGUMENT, str(violation))
        if command == UvmCommand.UVM_INITIALIZE:
            if fd in self._initialised:
                raise Refusal(NvStatus.INVALID_STATE, "this descriptor is initialised already")
            if values.flags & ~(UvmInitFlags.DISABLE_HMM | UvmInitFlags.MULTI_PROCESS_SHARING_MODE):
                raise Refusal(NvStatus.INVALID_ARGUMENT, f"flags {int(values.flags):#x}")
            self._initialised.add(fd)
            if self._rm.profile.filtered or values.flags & UvmInitFlags.MULTI_PROCESS_SHARING_MODE:
                self._managed.add(fd)
            return {}
        if command == UvmCommand.UVM_MM_INITIALIZE:
            return self._mm_initialise(fd, values)
        if fd not in self._initialised:
            raise Refusal(NvStatus.INVALID_STATE, "UVM_INITIALIZE comes first")
        return self._table[command](values)

    def forget(self, fd: int) -> None:
        """A descriptor was closed: with the last one everything it held goes."""
        self._managed.discard(fd)
        if fd in self._initialised:
            self._initialised.discard(fd)
            for base in list(self._ranges):
                self._drop_range(base)
            self._gpu_registered = False

    def _mm_initialise(self, fd: int, values: Any) -> dict[str, Any]:
        if fd in self._initialised or values.uvmFd not in self._initialised:
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, "UVM_MM_INITIALIZE goes to a second descriptor and names the first"
            )
        shared = values.uvmFd in self._managed
        self._managed.add(values.uvmFd)
        if shared:
            return {"rmStatus": NvStatus.WARN_NOTHING_TO_DO}
        return {}

    # ---- registration

    def _check_gpu(self, uuid: Any, *, registered: bool = True) -> None:
        if uuid.uuid != self._rm.controls.gid():
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"no GPU has the uuid {uuid.uuid.hex()}")
        if registered and not self._gpu_registered:
            raise Refusal(NvStatus.INVALID_STATE, "the GPU is not registered")

    def _check_fd(self, fd: int, *, may_be_absent: bool = False) -> None:
        if not (may_be_absent and fd < 0) and not self._is_frontend(fd):
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"rmCtrlFd {fd} is no descriptor of /dev/nvidiactl")

    def _register_gpu(self, values: Any) -> dict[str, Any]:
        self._check_gpu(values.gpu_uuid, registered=False)
        self._check_fd(values.rmCtrlFd, may_be_absent=True)
        if self._gpu_registered:
            raise Refusal(NvStatus.INVALID_STATE, "the GPU is registered already")
        if values.hClient or values.hSmcPartRef or values.numaEnabled:
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, "hClient and hSmcPartRef are for MIG, numaEnabled is an answer"
            )
        self._gpu_registered = True
        return {}

    def _unregister_gpu(self, values: Any) -> dict[str, Any]:
        self._check_gpu(values.gpu_uuid)
        self._gpu_registered = False
        return {}

    def _register_vaspace(self, values: Any) -> dict[str, Any]:
        self._check_gpu(values.gpuUuid)
        self._check_fd(values.rmCtrlFd)
        if not self._managed:
            raise Refusal(NvStatus(0x56), "UVM_MM_INITIALIZE was left out")
        vaspace = self._rm.handles.find(values.hClient, values.hVaSpace, o.VaSpace)
        assert isinstance(vaspace, o.VaSpace)
        if not vaspace.external or vaspace.registered or self._vaspace is not None:
            raise Refusal(
                NvStatus.INVALID_STATE,
                "the address space is not externally owned, or one is registered already",
            )
        vaspace.registered = True
        self._vaspace = vaspace
        return {}

    def _unregister_vaspace(self, values: Any) -> dict[str, Any]:
        self._check_gpu(values.gpuUuid)
        self._space().registered = False
        self._vaspace = None
        return {}

    def _space(self) -> o.VaSpace:
        if self._vaspace is None:
            raise Refusal(NvStatus.INVALID_STATE, "no address space is registered")
        return self._vaspace

    def _register_channel(self, values: Any) -> dict[str, Any]:
        self._check_gpu(values.gpuUuid)
        self._check_fd(values.rmCtrlFd)
        item = self._rm.handles.find(values.hClient, values.hChannel, o.ChannelObject)
        assert isinstance(item, o.ChannelObject)
        assert item.channel is not None
        if item.registered:
            raise Refusal(NvStatus.INVALID_STATE, "the channel is registered already")
        if item.channel.engine == EngineType.GR0:
            if self._rm.profile.generation.compute not in item.channel.classes:
                raise Refusal(
                    NvStatus.INVALID_STATE, "a graphics channel is registered after its engine object"
                )
            self._claim_window(values.base, values.length)
        item.registered = True
        return {}

    def _claim_window(self, base: int, length: int) -> None:
        limit = 1 << self._rm.profile.generation.window_bits
        if base == 0 or base % _PAGE or length < CONTEXT_BUFFER_BYTES or base + length > limit:
            raise Refusal(NvStatus.INVALID_ADDRESS, f"context-buffer window [{base:#x}, {base + length:#x})")
        if self._windows.get(base) != length and self._overlaps(base, length):
            raise Refusal(
                NvStatus.UVM_ADDRESS_IN_USE, f"window [{base:#x}, {base + length:#x}) overlaps another range"
            )
        self._windows[base] = length

    def _unregister_channel(self, values: Any) -> dict[str, Any]:
        item = self._rm.handles.find(values.hClient, values.hChannel, o.ChannelObject)
        assert isinstance(item, o.ChannelObject)
        item.registered = False
        return {}

    # ---- memory

    def _overlaps(self, base: int, length: int) -> bool:
        return any(
            b < base + length and base < b + n for b, n in (*self._ranges.items(), *self._windows.items())
        )

    def _create_range(self, values: Any) -> dict[str, Any]:
        base, length = values.base, values.length
        if (
            base == 0
            or base % _PAGE
            or length == 0
            or length % _PAGE
            or (base + length) >> self._rm.profile.address_bits
        ):
            raise Refusal(NvStatus.INVALID_ADDRESS, f"range [{base:#x}, {base + length:#x})")
        if self._overlaps(base, length):
            raise Refusal(
                NvStatus.UVM_ADDRESS_IN_USE, f"range [{base:#x}, {base + length:#x}) overlaps another"
            )
        self._ranges[base] = length
        return {}

    def _range_of(self, base: int, length: int) -> int:
        for start, size in self._ranges.items():
            if start <= base and base + length <= start + size:
                return start
        raise Refusal(NvStatus.INVALID_ADDRESS, f"[{base:#x}, {base + length:#x}) lies in no external range")

    def _map(self, values: Any) -> dict[str, Any]:
        self._check_fd(values.rmCtrlFd)
        start = self._range_of(values.base, values.length)
        memory = self._rm.handles.find(values.hClient, values.hMemory, o.Memory)
        assert isinstance(memory, o.Memory)
        if (
            values.base % _PAGE
            or values.length % _PAGE
            or values.offset % _PAGE
            or values.offset + values.length > memory.size
        ):
            raise Refusal(
                NvStatus.INVALID_ARGUMENT,
                f"{values.length:#x} bytes at {values.offset:#x} of {memory.size:#x}",
            )
        if values.gpuAttributesCount != 1:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"{values.gpuAttributesCount} GPUs")
        attributes = values.perGpuAttributes[0]
        self._check_gpu(attributes.gpuUuid)
        if attributes.gpuFormatType or attributes.gpuElementBits or attributes.gpuCompressionType:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"{attributes!r}")
        if any(
            base < values.base + values.length and values.base < base + n
            for base, (n, _, _) in self._mapped.items()
        ):
            raise Refusal(NvStatus.UVM_ADDRESS_IN_USE, f"{values.base:#x} is mapped already")
        writable = attributes.gpuMappingType != UvmGpuMappingType.READ_ONLY
        space = self._space().space
        space.map(
            values.base,
            values.length,
            memory.host + values.offset,
            label=memory.kind,
            writable=writable,
            tracked=memory.kind == "vidmem" and memory.fd < 0,
        )
        memory.mappings.append((space, values.base))
        self._mapped[values.base] = (values.length, start, memory)
        return {}

    def _drop_mapping(self, base: int) -> None:
        _, _, memory = self._mapped.pop(base)
        space = self._space().space
        if (space, base) in memory.mappings:
            memory.mappings.remove((space, base))
            space.unmap(base, freed_at="by UVM_FREE or UVM_UNMAP_EXTERNAL")

    def _drop_range(self, base: int) -> None:
        for at in [a for a, (_, start, _) in self._mapped.items() if start == base]:
            self._drop_mapping(at)
        del self._ranges[base]

    def _unmap(self, values: Any) -> dict[str, Any]:
        self._check_gpu(values.gpuUuid)
        if values.base not in self._mapped or self._mapped[values.base][0] != values.length:
            raise Refusal(
                NvStatus.INVALID_ADDRESS, f"nothing of {values.length:#x} bytes is mapped at {values.base:#x}"
            )
        self._drop_mapping(values.base)
        return {}

    def _free(self, values: Any) -> dict[str, Any]:
        if values.base not in self._ranges:
            raise Refusal(NvStatus.INVALID_ADDRESS, f"no range starts at {values.base:#x}")
        if "length" in type(values).FIELDS and values.length != self._ranges[values.base]:
            raise Refusal(
                NvStatus.INVALID_ADDRESS,
                f"the range at {values.base:#x} is {self._ranges[values.base]:#x} bytes",
            )
        self._drop_range(values.base)
        return {}

    def _validate(self, values: Any) -> dict[str, Any]:
        self._range_of(values.base, values.length)
        return {}
