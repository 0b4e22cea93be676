"""PM4: the packets of compute queues that are alike on every generation, and the values of their fields.

A packet is a header and COUNT + 1 dwords. Dword 0 of every layout here is the whole header. Addresses and
64-bit numbers are two dwords, named as in the vendor's headers.

Not here: packets that differ between generations, and the packets of a generation (`pm4_generations`), the
fields of registers (`registers`), packets of AQL queues (`aql`) and of copy engines (`sdma`). Next:
`drivers.amd.packets`, the sequences in use.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, bits, const, optional

SOURCE = "Linux 6.12 amdgpu nvd.h, soc15d.h; GPUOpen PAL, MEC PM4 packet headers of gfx9, gfx10/11, gfx12"

TYPE_3: Final = 3
NOP_ONE_DWORD: Final = 0xFFFF_1000
"""A NOP of one dword: its COUNT is `NOP_COUNT_ONE_DWORD`."""
NOP_COUNT_ONE_DWORD: Final = 0x3FFF
"""COUNT of a packet that consists of the header alone."""
TYPE_2_FILLER: Final = 0x8000_0000
"""One dword that is skipped."""


class Opcode(enum.IntEnum):
    """Packets of type 3."""

    NOP = 0x10
    DISPATCH_DIRECT = 0x15
    DISPATCH_INDIRECT = 0x16
    ATOMIC_MEM = 0x1E
    COND_EXEC = 0x22
    PRED_EXEC = 0x23
    WRITE_DATA = 0x37
    WAIT_REG_MEM = 0x3C
    INDIRECT_BUFFER = 0x3F
    COPY_DATA = 0x40
    EVENT_WRITE = 0x46
    RELEASE_MEM = 0x49
    DMA_DATA = 0x50
    ACQUIRE_MEM = 0x58
    SET_CONFIG_REG = 0x68
    SET_SH_REG = 0x76
    SET_UCONFIG_REG = 0x79
    WAIT_REG_MEM64 = 0x93
    HDP_FLUSH = 0x95
    INVALIDATE_TLBS = 0x98
    AQL_PACKET = 0x99
    SET_SH_REG_INDEX = 0x9B


class Header(BitStruct, source=SOURCE):
    """The first dword of a packet of type 3."""

    TYPE: int = bits(31, 30, default=TYPE_3)
    COUNT: int = bits(29, 16, doc="dwords after the header, less one")
    OPCODE: Opcode = bits(15, 8)
    SHADER_TYPE: int = optional(1, doc="ignored since gfx9")
    PREDICATE: bool = optional(0)


def header(opcode: Opcode, words: int) -> int:
    """Return the header of a packet of `words` dwords, the header included."""
    return int(Header(COUNT=words - 2, OPCODE=opcode))


class Event(enum.IntEnum):
    """Events of RELEASE_MEM and EVENT_WRITE."""

    CS_PARTIAL_FLUSH = 0x07
    CACHE_FLUSH_AND_INV_TS = 0x14
    BOTTOM_OF_PIPE_TS = 0x28
    CS_DONE = 0x2F


class EventIndex(enum.IntEnum):
    """The stage of the pipeline at which an event occurs."""

    CS_PARTIAL_FLUSH = 4
    END_OF_PIPE = 5
    SHADER_DONE = 6


class DataSel(enum.IntEnum):
    """The data that RELEASE_MEM stores."""

    NONE = 0
    LOW_32 = 1
    FULL_64 = 2
    GPU_CLOCK = 3
    SYSTEM_CLOCK = 4
    ATOMIC_ADD_32 = 7


class IntSel(enum.IntEnum):
    """Whether and when RELEASE_MEM raises an interrupt."""

    NONE = 0
    INTERRUPT = 1
    INTERRUPT_AFTER_WRITE = 2
    DATA_AFTER_WRITE = 3
    SEND_CTXID = 4


class ReleaseDst(enum.IntEnum):
    """The path by which RELEASE_MEM stores."""

    MEMORY = 0
    L2 = 1


class Function(enum.IntEnum):
    """Unsigned comparisons of a masked value with the reference."""

    ALWAYS = 0
    LT = 1
    LE = 2
    EQ = 3
    NE = 4
    GE = 5
    GT = 6


class MemSpace(enum.IntEnum):
    """The operand of WAIT_REG_MEM: a register or memory."""

    REGISTER = 0
    MEMORY = 1


class WaitOperation(enum.IntEnum):
    """The operation of WAIT_REG_MEM."""

    WAIT = 0
    WRITE_WAIT_WRITE = 1
    WAIT_PREEMPTABLE = 3


class WriteDst(enum.IntEnum):
    """The destination of WRITE_DATA and COPY_DATA; only COPY_DATA has PERF."""

    REGISTER = 0
    L2 = 2
    PERF = 4
    MEMORY = 5


class CopySrc(enum.IntEnum):
    """The source of COPY_DATA."""

    REGISTER = 0
    MEMORY = 1
    L2 = 2
    PERF = 4
    IMMEDIATE = 5
    ATOMIC_RETURN = 6
    GPU_CLOCK = 9
    SYSTEM_CLOCK = 10


class DmaSrc(enum.IntEnum):
    """The source of DMA_DATA."""

    MEMORY = 0
    DATA = 2
    L2 = 3


class DmaDst(enum.IntEnum):
    """The destination of DMA_DATA."""

    MEMORY = 0
    L2 = 3


class AtomicCommand(enum.IntEnum):
    """The command of ATOMIC_MEM."""

    SINGLE_PASS = 0
    LOOP = 1
    WAIT_FOR_CONFIRM = 2
    SEND_AND_CONTINUE = 3


class Sequence(enum.IntEnum):
    """The order in which the operations of a GCR_CNTL act on the cache levels."""

    PARALLEL = 0
    FORWARD = 1
    REVERSE = 2


GLI_INV_ALL: Final = 1
ACQUIRE_POLL_INTERVAL: Final = 10
WAIT_POLL_INTERVAL: Final = 4
TEMPORAL_HINT: Final = 3
"""TEMPORAL of releases on gfx12, as the kernel sets it."""
CACHE_BYPASS: Final = 3
"""CACHE_POLICY of releases, as the kernel sets it on gfx10 and gfx11."""
MAX_IB_WORDS: Final = (1 << 20) - 1
"""The most dwords that one INDIRECT_BUFFER runs."""
IB_ALIGN: Final = 4
"""Alignment of the packets of an INDIRECT_BUFFER, in bytes."""
RELEASE_ALIGN_64: Final = 8
"""Alignment in bytes of the address of a release of 64 bits or of a clock; of others it is 4."""
ALL_BITS: Final = 0xFFFF_FFFF


class SetShReg(BitStruct, words=2, source=SOURCE):
    """SET_SH_REG without its data: the values of consecutive registers follow."""

    TYPE: int = bits(31, 30, default=TYPE_3)
    COUNT: int = bits(29, 16, doc="values")
    OPCODE: Opcode = bits(15, 8, default=Opcode.SET_SH_REG)
    REG_OFFSET: int = bits(15, 0, word=1, doc="dwords from the base of the SH registers")
    VMID_SHIFT: int = optional(27, 23, word=1)
    INDEX: int = optional(31, 28, word=1)


class WaitRegMem(BitStruct, words=7, source=SOURCE):
    """WAIT_REG_MEM: wait for 32 bits, unsigned; for WRITE_WAIT_WRITE the address dwords are two registers."""

    _header = const(31, 0, header(Opcode.WAIT_REG_MEM, 7))
    FUNCTION: Function = bits(2, 0, word=1)
    MEM_SPACE: MemSpace = bits(5, 4, word=1)
    OPERATION: WaitOperation = optional(7, 6, word=1)
    ENGINE: bool = optional(8, word=1, doc="0 on compute queues")
    CACHE_POLICY: int = optional(26, 25, word=1)
    ADDRESS_LO: int = bits(31, 0, word=2)
    ADDRESS_HI: int = bits(31, 0, word=3)
    REFERENCE: int = bits(31, 0, word=4)
    MASK: int = bits(31, 0, word=5)
    POLL_INTERVAL: int = bits(15, 0, word=6)
    OPTIMIZE_ACE_OFFLOAD_MODE: bool = optional(31, word=6, doc="the queue may be preempted while it waits")


class EventWrite(BitStruct, words=2, source=SOURCE):
    """EVENT_WRITE: raise an event in the pipeline."""

    _header = const(31, 0, header(Opcode.EVENT_WRITE, 2))
    EVENT_TYPE: Event = bits(5, 0, word=1)
    EVENT_INDEX: EventIndex = bits(11, 8, word=1)


class PredExec(BitStruct, words=2, source=SOURCE):
    """PRED_EXEC: XCCs that are not selected skip the next dwords; allowed in indirect buffers only."""

    _header = const(31, 0, header(Opcode.PRED_EXEC, 2))
    EXEC_COUNT: int = bits(13, 0, word=1, doc="dwords that follow")
    DEVICE_SELECT: int = bits(31, 24, word=1, doc="one bit for each XCC")


class IndirectBuffer(BitStruct, words=4, source=SOURCE):
    """INDIRECT_BUFFER: run packets at an address, then continue after this packet."""

    _header = const(31, 0, header(Opcode.INDIRECT_BUFFER, 4))
    ADDRESS_LO: int = bits(31, 0, word=1)
    ADDRESS_HI: int = bits(31, 0, word=2)
    IB_SIZE: int = bits(19, 0, word=3, doc="dwords")
    CHAIN: bool = optional(20, word=3)
    OFFLOAD_POLLING: bool = optional(21, word=3)
    VALID: bool = bits(23, word=3)
    VMID: int = optional(27, 24, word=3)
    CACHE_POLICY: int = optional(29, 28, word=3)


class DispatchDirect(BitStruct, words=5, source=SOURCE):
    """DISPATCH_DIRECT: start the kernel that the registers describe."""

    _header = const(31, 0, header(Opcode.DISPATCH_DIRECT, 5))
    DIM_X: int = bits(31, 0, word=1)
    DIM_Y: int = bits(31, 0, word=2)
    DIM_Z: int = bits(31, 0, word=3)
    INITIATOR: int = bits(31, 0, word=4, doc="an `Initiator`")


class WriteData(BitStruct, words=4, source=SOURCE):
    """WRITE_DATA without its data: one or more dwords follow the address."""

    TYPE: int = bits(31, 30, default=TYPE_3)
    COUNT: int = bits(29, 16, doc="dwords of data, plus 2")
    OPCODE: Opcode = bits(15, 8, default=Opcode.WRITE_DATA)
    DST_SEL: WriteDst = bits(11, 8, word=1)
    ADDR_INCR_DISABLE: bool = optional(16, word=1)
    WR_CONFIRM: bool = optional(20, word=1, doc="continue when the data has arrived")
    CACHE_POLICY: int = optional(26, 25, word=1)
    ADDRESS_LO: int = bits(31, 0, word=2)
    ADDRESS_HI: int = bits(31, 0, word=3)


class CopyData(BitStruct, words=6, source=SOURCE):
    """COPY_DATA: move 32 or 64 bits."""

    _header = const(31, 0, header(Opcode.COPY_DATA, 6))
    SRC_SEL: CopySrc = bits(3, 0, word=1)
    DST_SEL: WriteDst = bits(11, 8, word=1)
    COUNT_SEL: bool = optional(16, word=1, doc="1 is 64 bits")
    WR_CONFIRM: bool = optional(20, word=1)
    SRC_LO: int = bits(31, 0, word=2)
    SRC_HI: int = bits(31, 0, word=3)
    DST_LO: int = bits(31, 0, word=4)
    DST_HI: int = bits(31, 0, word=5)


class DmaData(BitStruct, words=7, source=f"{SOURCE}; Mesa radv_cp_dma.c"):
    """DMA_DATA: copy or fill bytes; a copy through L2 sees what kernels of this GPU wrote."""

    _header = const(31, 0, header(Opcode.DMA_DATA, 7))
    SRC_CACHE_POLICY: int = optional(14, 13, word=1)
    DST_SEL: DmaDst = bits(21, 20, word=1)
    DST_CACHE_POLICY: int = optional(26, 25, word=1)
    SRC_SEL: DmaSrc = bits(30, 29, word=1)
    CP_SYNC: bool = optional(31, word=1, doc="continue when all bytes have arrived")
    SRC_LO: int = bits(31, 0, word=2, doc="or the data")
    SRC_HI: int = bits(31, 0, word=3)
    DST_LO: int = bits(31, 0, word=4)
    DST_HI: int = bits(31, 0, word=5)
    BYTE_COUNT: int = bits(25, 0, word=6)
    SAS: bool = optional(26, word=6, doc="the source is a register")
    DAS: bool = optional(27, word=6, doc="the destination is a register")
    SAIC: bool = optional(28, word=6, doc="the source address does not advance")
    DAIC: bool = optional(29, word=6, doc="the destination address does not advance")
    RAW_WAIT: bool = optional(30, word=6, doc="wait for the writes of earlier copies")
    DIS_WC: bool = optional(31, word=6)


MAX_DMA_BYTES: Final[Mapping[int, int]] = MappingProxyType(
    {9: (1 << 26) - 32, 10: (1 << 26) - 32, 11: (1 << 15) - 32, 12: (1 << 15) - 32}
)
"""Generation -> the most bytes of one DMA_DATA, a multiple of 32 (Mesa radv_cp_dma.c)."""


class AtomicMem(BitStruct, words=9, source=SOURCE):
    """ATOMIC_MEM: an atomic operation on 32 or 64 bits of memory."""

    _header = const(31, 0, header(Opcode.ATOMIC_MEM, 9))
    ATOMIC: int = bits(6, 0, word=1)
    COMMAND: AtomicCommand = optional(11, 8, word=1)
    CACHE_POLICY: int = optional(26, 25, word=1)
    ADDRESS_LO: int = bits(31, 0, word=2)
    ADDRESS_HI: int = bits(31, 0, word=3)
    SRC_LO: int = bits(31, 0, word=4)
    SRC_HI: int = bits(31, 0, word=5)
    CMP_LO: int = optional(31, 0, word=6)
    CMP_HI: int = optional(31, 0, word=7)
    LOOP_INTERVAL: int = optional(12, 0, word=8)
