"""SDMA: the packets of copy engines, versions 4.4, 5.2, 6 and 7.

The first dword holds the operation. Compares and fences have 32 bits.

Not here: rings (`drivers.amd.ring`). Next: `drivers.amd.encode_sdma`, which writes packets.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, bits, const, optional, removed

SOURCE = "Linux 6.12 amdgpu vega10_sdma_pkt_open.h, navi10_sdma_pkt_open.h, sdma_v6_0_0_pkt_open.h; ROCr"


class Op(enum.IntEnum):
    """Operations."""

    NOP = 0
    COPY = 1
    WRITE = 2
    INDIRECT = 4
    FENCE = 5
    TRAP = 6
    SEM = 7
    POLL_REGMEM = 8
    COND_EXE = 9
    ATOMIC = 10
    CONST_FILL = 11
    PTEPDE = 12
    TIMESTAMP = 13
    SRBM_WRITE = 14
    PRE_EXE = 15
    GPUVM_INV = 16
    GCR_REQ = 17
    DUMMY_TRAP = 32


class SubOp(enum.IntEnum):
    """Sub-operations of COPY, WRITE, TIMESTAMP and GCR_REQ."""

    COPY_LINEAR = 0
    TIMESTAMP_GET_LOCAL = 1
    TIMESTAMP_GET_GLOBAL = 2


class Function(enum.IntEnum):
    """Unsigned comparisons of POLL_REGMEM."""

    ALWAYS = 0
    LT = 1
    LE = 2
    EQ = 3
    NE = 4
    GE = 5
    GT = 6


NOP_WORD: Final = 0
"""A NOP of one dword."""
POLL_FOREVER: Final = 0xFFF
"""RETRY of a poll without a limit."""
POLL_INTERVAL: Final = 4
FENCE_MTYPE_UC: Final = 3
FILL_SIZE_DWORD: Final = 2
ALIGN_WORDS: Final = 8
"""An INDIRECT packet, and the words that it runs, must end at a multiple of this number of dwords."""
INDIRECT_ALIGN: Final = 32
TIMESTAMP_ALIGN: Final = 32
"""Alignment of the addresses of INDIRECT and TIMESTAMP, in bytes."""
MAX_INDIRECT_WORDS: Final = (1 << 20) - ALIGN_WORDS
"""The most dwords that one INDIRECT runs."""


class Head(BitStruct, source=SOURCE):
    """The bits of the first dword that all packets share."""

    OP: Op = bits(7, 0)
    SUB_OP: int = optional(15, 8)


class Nop(BitStruct, source=SOURCE):
    """NOP: skip the next COUNT dwords."""

    _op = const(15, 0, Op.NOP)
    COUNT: int = optional(29, 16)


class CopyLinear(BitStruct, words=7, source=SOURCE):
    """COPY, linear, since v5; addresses need no alignment. DCC of v7 would add a dword, so it must be 0."""

    _op = const(15, 0, Op.COPY)
    TMZ: bool = optional(18)
    DCC: bool = optional(19, doc="v7; compressed copies up to v6")
    BACKWARDS: bool = optional(25)
    BROADCAST: bool = optional(27)
    COUNT_MINUS_ONE: int = bits(29, 0, word=1, doc="bytes, less one")
    PARAMETER: int = optional(31, 0, word=2, doc="swap and cache policy")
    SRC_LO: int = bits(31, 0, word=3)
    SRC_HI: int = bits(31, 0, word=4)
    DST_LO: int = bits(31, 0, word=5)
    DST_HI: int = bits(31, 0, word=6)


class CopyLinearV4(CopyLinear, source=SOURCE):
    """COPY, linear, of v4.4: fewer bits of the count, and ascending addresses only."""

    DCC = removed()
    BACKWARDS = removed()
    COUNT_MINUS_ONE: int = bits(21, 0, word=1)


class ConstFill(BitStruct, words=5, source=SOURCE):
    """CONST_FILL with dwords, v6 and v7."""

    _op = const(15, 0, Op.CONST_FILL)
    FILL_SIZE: int = bits(31, 30, doc="2: dwords")
    DST_LO: int = bits(31, 0, word=1)
    DST_HI: int = bits(31, 0, word=2)
    DATA: int = bits(31, 0, word=3)
    COUNT: int = bits(29, 0, word=4, doc="4 * (dwords - 1)")


class ConstFillV4(ConstFill, source=SOURCE):
    """CONST_FILL up to v5.2."""

    COUNT: int = bits(21, 0, word=4)


class WriteUntiled(BitStruct, words=4, source=SOURCE):
    """WRITE, linear, without its data, which follows. It is not ordered with earlier copies."""

    _op = const(15, 0, Op.WRITE)
    DST_LO: int = bits(31, 0, word=1)
    DST_HI: int = bits(31, 0, word=2)
    COUNT_MINUS_ONE: int = bits(19, 0, word=3, doc="dwords of data, less one")


class Fence(BitStruct, words=4, source=SOURCE):
    """FENCE: store 32 bits when all earlier packets are done."""

    _op = const(15, 0, Op.FENCE)
    MTYPE: int = optional(18, 16, doc="3: uncached; since v5")
    SYS: bool = optional(20)
    SNOOP: bool = optional(22)
    ADDRESS_LO: int = bits(31, 0, word=1)
    ADDRESS_HI: int = bits(31, 0, word=2)
    DATA: int = bits(31, 0, word=3)


class FenceV4(Fence, source=SOURCE):
    """FENCE of v4.4."""

    MTYPE = removed()
    SYS = removed()
    SNOOP = removed()


class Trap(BitStruct, words=2, source=SOURCE):
    """TRAP: interrupt the host."""

    _op = const(15, 0, Op.TRAP)
    INT_CONTEXT: int = bits(27, 0, word=1)


class PollRegmem(BitStruct, words=6, source=SOURCE):
    """POLL_REGMEM: wait for 32 bits of memory or of a register."""

    _op = const(15, 0, Op.POLL_REGMEM)
    HDP_FLUSH: bool = optional(26)
    FUNCTION: Function = bits(30, 28)
    MEM_POLL: bool = bits(31)
    ADDRESS_LO: int = bits(31, 0, word=1)
    ADDRESS_HI: int = bits(31, 0, word=2)
    REFERENCE: int = bits(31, 0, word=3)
    MASK: int = bits(31, 0, word=4)
    INTERVAL: int = bits(15, 0, word=5)
    RETRY: int = bits(27, 16, word=5, doc="0xfff: no limit")


class Atomic(BitStruct, words=8, source=SOURCE):
    """ATOMIC: an atomic operation on memory."""

    _op = const(15, 0, Op.ATOMIC)
    LOOP: bool = optional(16)
    OPERATION: int = bits(31, 25)
    ADDRESS_LO: int = bits(31, 0, word=1)
    ADDRESS_HI: int = bits(31, 0, word=2)
    SRC_LO: int = bits(31, 0, word=3)
    SRC_HI: int = bits(31, 0, word=4)
    CMP_LO: int = optional(31, 0, word=5)
    CMP_HI: int = optional(31, 0, word=6)
    LOOP_INTERVAL: int = optional(12, 0, word=7)


class Timestamp(BitStruct, words=3, source=SOURCE):
    """TIMESTAMP: store the 64-bit global clock."""

    _op = const(15, 0, Op.TIMESTAMP | SubOp.TIMESTAMP_GET_GLOBAL << 8)
    ADDRESS_LO: int = bits(31, 0, word=1)
    ADDRESS_HI: int = bits(31, 0, word=2)


class GcrReq(BitStruct, words=5, source=SOURCE):
    """GCR_REQ: cache operations on a range of addresses; v5 and later."""

    _op = const(7, 0, Op.GCR_REQ)
    SUB_OP: int = optional(15, 8, doc="1: user mode")
    BASE_LO: int = optional(31, 7, word=1)
    BASE_HI: int = optional(15, 0, word=2)
    GCR_CONTROL_LO: int = optional(31, 16, word=2, doc="bits [15:0] of a `GcrCntl`")
    GCR_CONTROL_HI: int = optional(2, 0, word=3)
    LIMIT_LO: int = optional(31, 7, word=3)
    LIMIT_HI: int = optional(15, 0, word=4)


class Indirect(BitStruct, words=6, source=SOURCE):
    """INDIRECT: run packets at an address, then continue after this packet."""

    _op = const(15, 0, Op.INDIRECT)
    VMID: int = optional(19, 16)
    BASE_LO: int = bits(31, 0, word=1)
    BASE_HI: int = bits(31, 0, word=2)
    IB_SIZE: int = bits(19, 0, word=3, doc="dwords")
    CSA_LO: int = optional(31, 0, word=4)
    CSA_HI: int = optional(31, 0, word=5)


_PACKETS: Final[Mapping[int, type[BitStruct]]] = MappingProxyType(
    {
        Op.NOP: Nop,
        Op.COPY: CopyLinear,
        Op.WRITE: WriteUntiled,
        Op.INDIRECT: Indirect,
        Op.FENCE: Fence,
        Op.TRAP: Trap,
        Op.POLL_REGMEM: PollRegmem,
        Op.ATOMIC: Atomic,
        Op.CONST_FILL: ConstFill,
        Op.TIMESTAMP: Timestamp,
        Op.GCR_REQ: GcrReq,
    }
)
_V4: Final[Mapping[int, type[BitStruct]]] = {
    Op.COPY: CopyLinearV4,
    Op.FENCE: FenceV4,
    Op.CONST_FILL: ConstFillV4,
}


def packets(version: tuple[int, ...]) -> Mapping[int, type[BitStruct]]:
    """Return operation -> layout for engines of a version such as (4, 4, 2)."""
    if version[0] >= 6:
        return _PACKETS
    if version[0] == 5:
        return {**_PACKETS, Op.CONST_FILL: ConstFillV4}
    return {op: layout for op, layout in {**_PACKETS, **_V4}.items() if op != Op.GCR_REQ}


def packet_words(words: Sequence[int], at: int) -> int:
    """Return the dwords of the packet at `at`, its data included. Raises `ValueError` if it is unknown."""
    op = words[at] & 0xFF
    if op == Op.NOP:
        return 1 + Nop.FIELDS["COUNT"].extract(words[at])
    layout = _PACKETS.get(op)
    if layout is None:
        raise ValueError(f"word {at} ({words[at]:#x}) is no SDMA packet that is known")
    data = WriteUntiled.FIELDS["COUNT_MINUS_ONE"].extract(words[at + 3] << 96) + 1 if op == Op.WRITE else 0
    return layout.WORDS + data


SMALL_PIECE: Final = (4 << 20) - 256
"""The most bytes of one copy or fill that every version accepts."""
LARGE_PIECE: Final = (1 << 30) - 4096
"""The most bytes of one copy since v5.2, and of one fill since v6."""
