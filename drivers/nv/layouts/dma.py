"""Methods of the copy classes c6b5 to cab5.

A copy consists of the addresses, the line length and LAUNCH_DMA. A fill is a copy whose remapped components
are constants. A signal is a LAUNCH_DMA that transfers nothing.

Not here: host methods (`host`). Next: `drivers.nv.push`, the sequences in use.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivers.nv.layouts.compute import Upper17, Upper25
from drivers.nv.layouts.gpfifo import Method
from drivers.nv.layouts.host import SetObject
from hcq.layout import BitStruct, bits, optional

SOURCE = "NVIDIA open-gpu-doc, clc6b5.h to clcab5.h (nv.md 3.5)"


class DmaMethod(enum.IntEnum):
    """Byte addresses of the methods."""

    SET_OBJECT = 0x000
    NOP = 0x100
    SET_SEMAPHORE_A = 0x240
    SET_SEMAPHORE_B = 0x244
    SET_SEMAPHORE_PAYLOAD = 0x248
    SET_SEMAPHORE_PAYLOAD_UPPER = 0x24C
    LAUNCH_DMA = 0x300
    OFFSET_IN_UPPER = 0x400
    OFFSET_IN_LOWER = 0x404
    OFFSET_OUT_UPPER = 0x408
    OFFSET_OUT_LOWER = 0x40C
    PITCH_IN = 0x410
    PITCH_OUT = 0x414
    LINE_LENGTH_IN = 0x418
    LINE_COUNT = 0x41C
    SET_REMAP_CONST_A = 0x700
    SET_REMAP_CONST_B = 0x704
    SET_REMAP_COMPONENTS = 0x708


class DataTransferType(enum.IntEnum):
    """The kind of transfer of LAUNCH_DMA."""

    NONE = 0
    PIPELINED = 1
    NON_PIPELINED = 2
    PREFETCH = 3
    """Class cab5 only."""


class DmaSemaphoreType(enum.IntEnum):
    """The semaphore operation of LAUNCH_DMA."""

    NONE = 0
    RELEASE_ONE_WORD = 1
    RELEASE_FOUR_WORD = 2
    CONDITIONAL_INTERRUPT = 3


class DmaReduction(enum.IntEnum):
    """The operation of a reducing semaphore."""

    IMIN = 0
    IMAX = 1
    IXOR = 2
    IAND = 3
    IOR = 4
    IADD = 5
    INC = 6
    DEC = 7
    FADD = 0xA
    FMIN = 0xB
    FMAX = 0xC


class RemapSource(enum.IntEnum):
    """The source of a destination component."""

    SRC_X = 0
    SRC_Y = 1
    SRC_Z = 2
    SRC_W = 3
    CONST_A = 4
    CONST_B = 5
    NO_WRITE = 6


class LaunchDma(BitStruct, source=SOURCE):
    """LAUNCH_DMA: starts a transfer, a signal, or both."""

    DATA_TRANSFER_TYPE: DataTransferType = bits(1, 0)
    FLUSH_ENABLE: bool = optional(2)
    SEMAPHORE_TYPE: DmaSemaphoreType = optional(4, 3)
    INTERRUPT_TYPE: int = optional(6, 5, doc="0 none, 1 blocking, 2 non-blocking")
    SRC_MEMORY_LAYOUT: bool = optional(7, doc="1 is pitch-linear")
    DST_MEMORY_LAYOUT: bool = optional(8, doc="1 is pitch-linear")
    MULTI_LINE_ENABLE: bool = optional(9)
    REMAP_ENABLE: bool = optional(10)
    FORCE_RMWDISABLE: bool = optional(11)
    SRC_TYPE: bool = optional(12, doc="1 is physical")
    DST_TYPE: bool = optional(13, doc="1 is physical")
    SEMAPHORE_REDUCTION: DmaReduction = optional(17, 14)
    SEMAPHORE_REDUCTION_SIGN: bool = optional(18)
    SEMAPHORE_REDUCTION_ENABLE: bool = optional(19)
    COPY_TYPE: int = optional(21, 20)
    VPRMODE: bool = optional(22)
    MEMORY_SCRUB_ENABLE: bool = optional(23)
    FLUSH_TYPE: bool = optional(25, doc="0 system, 1 local")
    DISABLE_PLC: bool = optional(26)
    SEMAPHORE_PAYLOAD_SIZE: bool = optional(27, doc="1 is two words")


class RemapComponents(BitStruct, source=SOURCE):
    """SET_REMAP_COMPONENTS: the source of each destination component."""

    DST_X: RemapSource = optional(2, 0)
    DST_Y: RemapSource = optional(6, 4)
    DST_Z: RemapSource = optional(10, 8)
    DST_W: RemapSource = optional(14, 12)
    COMPONENT_SIZE: int = optional(17, 16, doc="bytes minus one")
    NUM_SRC_COMPONENTS: int = optional(21, 20, doc="minus one")
    NUM_DST_COMPONENTS: int = optional(25, 24, doc="minus one")


_M = DmaMethod
_DATA: Final[Mapping[int, type[BitStruct]]] = {
    _M.SET_OBJECT: SetObject,
    _M.SET_SEMAPHORE_A: Upper25,
    _M.LAUNCH_DMA: LaunchDma,
    _M.OFFSET_IN_UPPER: Upper25,
    _M.OFFSET_OUT_UPPER: Upper25,
    _M.SET_REMAP_COMPONENTS: RemapComponents,
}
METHODS: Final[Mapping[int, Method]] = MappingProxyType({int(m): Method(m.name, _DATA.get(m)) for m in _M})
"""Address -> method, Hopper and Blackwell."""
METHODS_AMPERE: Final[Mapping[int, Method]] = MappingProxyType(
    {
        **METHODS,
        **{
            int(m): Method(m.name, Upper17)
            for m in (_M.SET_SEMAPHORE_A, _M.OFFSET_IN_UPPER, _M.OFFSET_OUT_UPPER)
        },
    }
)
"""Address -> method, Ampere and Ada."""

MAX_COPY_BYTES: Final = 1 << 31
"""The most bytes of one LAUNCH_DMA; longer copies are split."""
PAYLOAD_UPPER_SINCE: Final = 0xC7B5
"""The first copy class with SET_SEMAPHORE_PAYLOAD_UPPER."""
