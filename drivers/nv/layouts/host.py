"""Host methods of a channel, valid on any subchannel: semaphores, waits for idle, memory barriers.

Not here: the engines' own methods (`compute`, `dma`). Next: `drivers.nv.push`, the sequences in use.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivers.nv.layouts.gpfifo import Method
from hcq.layout import BitStruct, bits, optional

SOURCE = "NVIDIA open-gpu-doc, clc36f.h to clc86f.h (nv.md 3.3)"


class HostMethod(enum.IntEnum):
    """Byte addresses of the methods."""

    SET_OBJECT = 0x00
    NOP = 0x08
    NON_STALL_INTERRUPT = 0x20
    MEM_OP_A = 0x28
    MEM_OP_B = 0x2C
    MEM_OP_C = 0x30
    MEM_OP_D = 0x34
    SET_REFERENCE = 0x50
    SEM_ADDR_LO = 0x5C
    SEM_ADDR_HI = 0x60
    SEM_PAYLOAD_LO = 0x64
    SEM_PAYLOAD_HI = 0x68
    SEM_EXECUTE = 0x6C
    WFI = 0x78
    YIELD = 0x80


class SemOperation(enum.IntEnum):
    """The operation of SEM_EXECUTE."""

    ACQUIRE = 0
    """Wait until the word equals the payload."""
    RELEASE = 1
    ACQ_STRICT_GEQ = 2
    ACQ_CIRC_GEQ = 3
    """Wait until the word minus the payload, as a signed number of the payload's width, is not negative."""
    ACQ_AND = 4
    ACQ_NOR = 5
    REDUCTION = 6


class SemReduction(enum.IntEnum):
    """The operation of a reducing semaphore."""

    IMIN = 0
    IMAX = 1
    IXOR = 2
    IAND = 3
    IOR = 4
    IADD = 5
    INC = 6
    DEC = 7


class MemOperation(enum.IntEnum):
    """The operation of MEM_OP_D; TLB operations need a privileged channel."""

    MEMBAR = 0x05
    MMU_TLB_INVALIDATE = 0x09
    MMU_TLB_INVALIDATE_TARGETED = 0x0A
    L2_PEERMEM_INVALIDATE = 0x0D
    L2_SYSMEM_INVALIDATE = 0x0E
    L2_CLEAN_COMPTAGS = 0x0F
    L2_FLUSH_DIRTY = 0x10
    L2_SYSMEM_NCOH_INVALIDATE = 0x11
    L2_WAIT_FOR_SYS_PENDING_READS = 0x15
    ACCESS_COUNTER_CLR = 0x16


class SetObject(BitStruct, source=SOURCE):
    """SET_OBJECT: the first method on each subchannel."""

    CLASS: int = bits(15, 0)
    ENGINE: int = optional(20, 16)


class SemAddrLo(BitStruct, source=SOURCE):
    """SEM_ADDR_LO: address bits 31:2."""

    OFFSET: int = bits(31, 2, shift=2)


class SemAddrHi(BitStruct, source=SOURCE):
    """SEM_ADDR_HI of Hopper and later: address bits 56:32."""

    OFFSET: int = bits(24, 0)


class SemAddrHiAmpere(BitStruct, source=SOURCE):
    """SEM_ADDR_HI up to Ada: address bits 39:32."""

    OFFSET: int = bits(7, 0)


class SemExecute(BitStruct, source=SOURCE):
    """SEM_EXECUTE; a release with a timestamp writes the payload at +0 and nanoseconds at +8."""

    OPERATION: SemOperation = bits(2, 0)
    ACQUIRE_SWITCH_TSG: bool = optional(12, doc="yield to other channels while waiting")
    RELEASE_WFI: bool = optional(20, doc="wait for the engine before the release")
    PAYLOAD_SIZE: bool = optional(24, doc="1 is 64 bits")
    RELEASE_TIMESTAMP: bool = optional(25)
    REDUCTION: SemReduction = optional(30, 27)
    REDUCTION_FORMAT: bool = optional(31, doc="1 is unsigned")


class Wfi(BitStruct, source=SOURCE):
    """WFI: waits until the engine is idle."""

    SCOPE: int = optional(0, doc="0 the current subcontext, 1 all")


class MemOpD(BitStruct, source=SOURCE):
    """MEM_OP_D: starts the operation, with the operands in MEM_OP_A to MEM_OP_C."""

    OPERATION: MemOperation = bits(31, 27)


_DATA: Final[Mapping[int, type[BitStruct]]] = {
    HostMethod.SET_OBJECT: SetObject,
    HostMethod.SEM_ADDR_LO: SemAddrLo,
    HostMethod.SEM_ADDR_HI: SemAddrHi,
    HostMethod.SEM_EXECUTE: SemExecute,
    HostMethod.WFI: Wfi,
    HostMethod.MEM_OP_D: MemOpD,
}
METHODS: Final[Mapping[int, Method]] = MappingProxyType(
    {int(m): Method(m.name, _DATA.get(m)) for m in HostMethod}
)
"""Address -> method, Hopper and Blackwell."""
METHODS_AMPERE: Final[Mapping[int, Method]] = MappingProxyType(
    {**METHODS, int(HostMethod.SEM_ADDR_HI): Method("SEM_ADDR_HI", SemAddrHiAmpere)}
)
"""Address -> method, Ampere and Ada."""

SEM_ADDRESS_BITS: Final = 40
"""Up to Ada, host semaphores must lie below 2 to this power; engines have wider addresses."""
SIGNAL_BITS: Final = 63
"""Bits of a signal: ACQ_CIRC_GEQ compares 64 bits circularly, right for values less than 2^63 apart."""
SEMAPHORE_RECORD_BYTES: Final = 16
"""Size of a release with a timestamp."""
SEMAPHORE_TIME_OFFSET: Final = 8
"""Offset of the nanoseconds in a release with a timestamp, in bytes."""
