"""The address space of one GPU, into which either UVM or the resource manager maps memory.

CUDA uses UVM, and sandboxes allow it. The one public raw launch on Hopper uses the resource manager without
UVM (`NvQuirks.vaspace`); sandboxes refuse that ioctl.

Not here: free addresses (`vaspace`), the map of allocations (`memory`). Next: `uvm`.
"""

from __future__ import annotations

import contextlib
from typing import Final

from drivers.nv.layouts.rm_classes import (
    NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS,
    NV_VASPACE_ALLOCATION_PARAMETERS,
    RmClass,
    VaspaceFlags,
)
from drivers.nv.memory import MappedSpace
from drivers.nv.quirks import NvQuirks
from drivers.nv.rm import Rm
from drivers.nv.topology import Handles, NvGpu
from drivers.nv.uvm import Uvm
from hcq.errors import BringUpError, UnsupportedError

ADDRESS_LIMIT: Final = (1 << 49) - 1
"""The highest address that every generation can map."""


class RmSpace:
    """An address space that the resource manager owns; it is mapped by NV_ESC_RM_MAP_MEMORY_DMA, without UVM.

    The resource manager places context buffers itself.
    """

    def __init__(self, rm: Rm, handles: Handles, vaspace: int) -> None:
        self._rm, self._device = rm, handles.device
        self._virtual = rm.alloc(
            handles.device,
            RmClass.NV01_MEMORY_VIRTUAL,
            NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS(limit=ADDRESS_LIMIT, hVASpace=vaspace),
        )
        self._mapped: dict[int, int] = {}

    def map(self, memory: int, va: int, size: int) -> None:
        """Map an RM object at `va`. Raises `BringUpError` if the resource manager maps it elsewhere."""
        got = self._rm.map_dma(self._device, self._virtual, memory, va, size)
        if got != va:
            self._rm.unmap_dma(self._device, self._virtual, memory, got, size)
            raise BringUpError(
                f"the resource manager mapped {size:#x} bytes at {got:#x} instead of {va:#x}: "
                "it aligns to a page size that the address does not have"
            )
        self._mapped[va] = memory

    def map_peer(self, memory: int, va: int, size: int, *, owner: Rm, uuid: bytes) -> None:
        """Raise `UnsupportedError`: only UVM maps memory of other GPUs."""
        del memory, owner, uuid
        raise UnsupportedError(
            f"{size} bytes of another GPU at {va:#x}: address spaces of the resource manager map no peers\n"
            "hint: open the device without vaspace=rm, or copy through host memory"
        )

    def unmap(self, va: int, size: int) -> None:
        """Undo `map` of the whole range."""
        self._rm.unmap_dma(self._device, self._virtual, self._mapped.pop(va), va, size)

    def register_channel(self, channel: int, base: int, length: int) -> None:
        """Do nothing: the resource manager maps the context buffers."""

    def unregister_channel(self, channel: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Free the object that represents the address space."""
        self._rm.free(self._virtual)


def open_space(
    rm: Rm, gpu: NvGpu, handles: Handles, choices: NvQuirks, stack: contextlib.ExitStack
) -> tuple[int, MappedSpace]:
    """Return the handle of a new address space and its mapper; closing `stack` frees both.

    Raises `DriverError` if the kernel driver refuses it.
    """
    by_rm = choices.vaspace == "rm"
    flags = VaspaceFlags.NONE if by_rm else VaspaceFlags.IS_EXTERNALLY_OWNED
    if choices.vaspace_faulting:
        flags |= VaspaceFlags.ENABLE_PAGE_FAULTING
    layout = rm.struct(NV_VASPACE_ALLOCATION_PARAMETERS)
    vaspace = rm.alloc(handles.device, RmClass.FERMI_VASPACE_A, layout(flags=flags))
    stack.callback(rm.free, vaspace)
    if by_rm:
        owned = RmSpace(rm, handles, vaspace)
        stack.callback(owned.close)
        return vaspace, owned
    uvm = Uvm(rm, gpu.uuid)
    stack.callback(uvm.close)
    uvm.register_vaspace(vaspace)
    return vaspace, uvm
