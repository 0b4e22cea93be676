"""The client of UVM for one device: registration, ranges and mappings of its address space.

It owns two descriptors of /dev/nvidia-uvm; the second one keeps the process's memory alive (nv.md 1.2).

Not here: the choice of addresses (`vaspace`), memory objects (`rm`). Next: `space`, which selects UVM or the
resource manager's own mappings.
"""

from __future__ import annotations

import contextlib
from typing import Any

from drivers.nv.layouts import uvm as layouts
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand, UvmGpuMappingAttributes, UvmGpuMappingType
from drivers.nv.refusals import refuse
from drivers.nv.rm import Rm, open_node
from hcq.errors import DriverError
from hcq.layout import Struct

NODE = "/dev/nvidia-uvm"


class Uvm:
    """One address space of one GPU.

    Methods raise `DriverError` or `OutOfMemoryError` if the ioctl fails or returns an error status.
    """

    def __init__(self, rm: Rm, uuid: bytes) -> None:
        self._rm = rm
        self._kernel = rm.kernel
        self._uuid = NvProcessorUuid(uuid=uuid)
        self._registered = {uuid}
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.fd = open_node(self._kernel, NODE)
            stack.callback(self._kernel.close, self.fd)
            memory_fd = open_node(self._kernel, NODE)
            stack.callback(self._kernel.close, memory_fd)
            self._call(UvmCommand.UVM_INITIALIZE, layouts.UVM_INITIALIZE_PARAMS())
            # In multi-process sharing mode, which sandboxes always use, the status is WARN_NOTHING_TO_DO.
            self._call(
                UvmCommand.UVM_MM_INITIALIZE,
                layouts.UVM_MM_INITIALIZE_PARAMS(uvmFd=self.fd),
                fd=memory_fd,
                fine=(NvStatus.WARN_NOTHING_TO_DO,),
            )
            self._call(
                UvmCommand.UVM_REGISTER_GPU,
                layouts.UVM_REGISTER_GPU_PARAMS(gpu_uuid=self._uuid, rmCtrlFd=-1),
            )
            stack.callback(
                self._call,
                UvmCommand.UVM_UNREGISTER_GPU,
                layouts.UVM_UNREGISTER_GPU_PARAMS(gpu_uuid=self._uuid),
            )
            self._undo = stack.pop_all()

    def close(self) -> None:
        """Unregister the GPU and close the descriptors; idempotent."""
        self._undo.close()

    def register_vaspace(self, vaspace: int) -> None:
        """Register an address space with UVM; afterwards only this object maps into it."""
        self._call(
            UvmCommand.UVM_REGISTER_GPU_VASPACE,
            layouts.UVM_REGISTER_GPU_VASPACE_PARAMS(
                gpuUuid=self._uuid, rmCtrlFd=self._rm.ctl, hClient=self._rm.root, hVaSpace=vaspace
            ),
            hint="UVM_MM_INITIALIZE may have been skipped",
        )
        self._undo.callback(
            self._call,
            UvmCommand.UVM_UNREGISTER_GPU_VASPACE,
            layouts.UVM_UNREGISTER_GPU_VASPACE_PARAMS(gpuUuid=self._uuid),
        )

    def register_channel(self, channel: int, base: int, length: int) -> None:
        """Map a channel's context buffers into [base, base + length)."""
        self._call(
            UvmCommand.UVM_REGISTER_CHANNEL,
            layouts.UVM_REGISTER_CHANNEL_PARAMS(
                gpuUuid=self._uuid,
                rmCtrlFd=self._rm.ctl,
                hClient=self._rm.root,
                hChannel=channel,
                base=base,
                length=length,
            ),
            hint="allocate the engine object first; the window must be large enough for the context buffers",
        )

    def unregister_channel(self, channel: int) -> None:
        """Undo `register_channel`."""
        layout = self._rm.structs[layouts.UVM_UNREGISTER_CHANNEL_PARAMS.__name__]
        fields: dict[str, Any] = {"hClient": self._rm.root, "hChannel": channel}
        if "gpuUuid" in layout.FIELDS:  # dropped by branch 590
            fields["gpuUuid"] = self._uuid
        self._call(UvmCommand.UVM_UNREGISTER_CHANNEL, layout(**fields))

    def map_peer(self, memory: int, va: int, size: int, *, owner: Rm, uuid: bytes) -> None:
        """Map a memory object of the client `owner` on the GPU `uuid` at `va`.

        Raises `DriverError` if there is no link between the GPUs. The first call for another GPU registers it
        here; a device that opened the same GPU again needs neither. GPUs with a link by NVLink or BAR1 become
        peers when both are registered, and then UVM_ENABLE_PEER_ACCESS returns INVALID_DEVICE; other links
        need this call. Source: uvm_va_space.c, register_gpu_peers, and uvm_gpu.c,
        uvm_gpu_retain_pcie_peer_access, of open-gpu-kernel-modules 595.45.04.
        """
        if uuid not in self._registered:
            peer = NvProcessorUuid(uuid=uuid)
            unregister = layouts.UVM_UNREGISTER_GPU_PARAMS(gpu_uuid=peer)
            with contextlib.ExitStack() as stack:
                self._call(
                    UvmCommand.UVM_REGISTER_GPU, layouts.UVM_REGISTER_GPU_PARAMS(gpu_uuid=peer, rmCtrlFd=-1)
                )
                stack.callback(self._call, UvmCommand.UVM_UNREGISTER_GPU, unregister)
                self._call(
                    UvmCommand.UVM_ENABLE_PEER_ACCESS,
                    layouts.UVM_ENABLE_PEER_ACCESS_PARAMS(gpuUuidA=self._uuid, gpuUuidB=peer),
                    fine=(NvStatus.INVALID_DEVICE,),
                )
                stack.pop_all()
            self._undo.callback(self._call, UvmCommand.UVM_UNREGISTER_GPU, unregister)
            self._registered.add(uuid)
        self.map(memory, va, size, owner=owner)

    def map(self, memory: int, va: int, size: int, *, owner: Rm | None = None) -> None:
        """Create a range and map an RM memory object at `va`; on failure the range is freed.

        `owner` is the client that owns the object; None: this device's client.
        """
        client = owner or self._rm
        self._call(
            UvmCommand.UVM_CREATE_EXTERNAL_RANGE,
            layouts.UVM_CREATE_EXTERNAL_RANGE_PARAMS(base=va, length=size),
        )
        kind = UvmGpuMappingType.READ_WRITE_ATOMIC
        attributes = UvmGpuMappingAttributes(gpuUuid=self._uuid, gpuMappingType=kind)
        try:
            self._call(
                UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION,
                layouts.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS(
                    base=va,
                    length=size,
                    perGpuAttributes=(attributes,),
                    gpuAttributesCount=1,
                    rmCtrlFd=client.ctl,
                    hClient=client.root,
                    hMemory=memory,
                ),
            )
        except BaseException:
            self.unmap(va, size)
            raise

    def unmap(self, va: int, size: int) -> None:
        """Unmap and free a range."""
        layout = self._rm.structs[layouts.UVM_FREE_PARAMS.__name__]
        fields: dict[str, Any] = {"base": va}
        if "length" in layout.FIELDS:  # dropped by branch 590
            fields["length"] = size
        self._call(UvmCommand.UVM_FREE, layout(**fields))

    def _call(
        self,
        command: UvmCommand,
        params: Struct,
        *,
        fd: int | None = None,
        fine: tuple[int, ...] = (),
        hint: str = "",
    ) -> None:
        block = bytearray(params.to_bytes())
        try:
            self._kernel.ioctl(self.fd if fd is None else fd, command, block)
        except DriverError as error:
            kind, reason = type(error), self._kernel.refusal()
            raise kind(
                command.name, error.status, error.status_name, arguments=repr(params), hint=error.hint,
                reason=reason,
            ) from None  # fmt: skip
        layout = type(params)
        status = int.from_bytes(block[layout.offset_of("rmStatus") :][:4], "little")
        if status and status not in fine:
            refuse(command.name, status, self._kernel, arguments=repr(params), hint=hint)
