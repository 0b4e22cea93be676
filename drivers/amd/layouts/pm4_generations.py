"""PM4 packets whose layout differs between generations: cache operations, and stores at the end of the pipe.

`packets` returns all packets of a generation.

Not here: packets that are alike on every generation (`pm4`). Next: `drivers.amd.packets`, which sends them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivers.amd.layouts import pm4
from hcq.layout import BitStruct, bits, const, optional, removed


class AcquireMemGfx9(BitStruct, words=7, source=pm4.SOURCE):
    """ACQUIRE_MEM of gfx9: dword 1 is COHER_CNTL."""

    _header = const(31, 0, pm4.header(pm4.Opcode.ACQUIRE_MEM, 7))
    TC_NC: bool = optional(3, word=1)
    TC_WC: bool = optional(4, word=1)
    TC_INV_METADATA: bool = optional(5, word=1)
    TCL1_VOL: bool = optional(15, word=1)
    TC_WB: bool = optional(18, word=1, doc="write the L2 back")
    TCL1: bool = optional(22, word=1, doc="invalidate the vector L1")
    TC: bool = optional(23, word=1, doc="invalidate the L2")
    CB: bool = optional(25, word=1)
    DB: bool = optional(26, word=1)
    SH_KCACHE: bool = optional(27, word=1, doc="invalidate the scalar cache")
    KCACHE_VOL: bool = optional(28, word=1)
    SH_ICACHE: bool = optional(29, word=1, doc="invalidate the instruction cache")
    KCACHE_WB: bool = optional(30, word=1)
    ENGINE: bool = optional(31, word=1)
    SIZE_LO: int = bits(31, 0, word=2)
    SIZE_HI: int = bits(7, 0, word=3)
    BASE_LO: int = optional(31, 0, word=4)
    BASE_HI: int = optional(23, 0, word=5)
    POLL_INTERVAL: int = bits(15, 0, word=6)


class GcrCntl(BitStruct, source=pm4.SOURCE):
    """Cache operations since gfx10: the last dword of ACQUIRE_MEM, and of SDMA's GCR_REQ."""

    GLI_INV: int = optional(1, 0, doc="instruction cache: 1 all")
    GL1_RANGE: int = optional(3, 2)
    GLM_WB: bool = optional(4, doc="metadata")
    GLM_INV: bool = optional(5)
    GLK_WB: bool = optional(6, doc="scalar cache")
    GLK_INV: bool = optional(7)
    GLV_INV: bool = optional(8, doc="vector L0")
    GL1_INV: bool = optional(9)
    GL2_US: bool = optional(10)
    GL2_RANGE: int = optional(12, 11)
    GL2_DISCARD: bool = optional(13)
    GL2_INV: bool = optional(14)
    GL2_WB: bool = optional(15)
    SEQ: pm4.Sequence = optional(17, 16)
    RANGE_IS_PA: bool = optional(18)


class AcquireMem(BitStruct, words=8, source=pm4.SOURCE):
    """ACQUIRE_MEM since gfx10; gfx12 ignores GL1 and GLM bits."""

    _header = const(31, 0, pm4.header(pm4.Opcode.ACQUIRE_MEM, 8))
    SIZE_LO: int = bits(31, 0, word=2)
    SIZE_HI: int = bits(7, 0, word=3)
    BASE_LO: int = optional(31, 0, word=4)
    BASE_HI: int = optional(23, 0, word=5)
    POLL_INTERVAL: int = bits(15, 0, word=6)
    GCR_CNTL: int = bits(18, 0, word=7, doc="a `GcrCntl`")


class ReleaseMem(BitStruct, words=8, source=pm4.SOURCE):
    """RELEASE_MEM without the cache bits of a generation: wait for earlier work, then store and interrupt.

    The queue must have an end-of-pipe buffer.
    """

    _header = const(31, 0, pm4.header(pm4.Opcode.RELEASE_MEM, 8))
    EVENT_TYPE: pm4.Event = bits(5, 0, word=1)
    EVENT_INDEX: pm4.EventIndex = bits(11, 8, word=1)
    DST_SEL: pm4.ReleaseDst = optional(17, 16, word=2)
    INT_SEL: pm4.IntSel = bits(26, 24, word=2)
    DATA_SEL: pm4.DataSel = bits(31, 29, word=2)
    ADDRESS_LO: int = bits(31, 0, word=3)
    ADDRESS_HI: int = bits(31, 0, word=4)
    DATA_LO: int = bits(31, 0, word=5)
    DATA_HI: int = bits(31, 0, word=6)
    INT_CTXID: int = bits(31, 0, word=7)


class ReleaseMemGfx9(ReleaseMem, source=pm4.SOURCE):
    """RELEASE_MEM of gfx9."""

    TCL1_VOL_ACTION: bool = optional(12, word=1)
    TC_VOL_ACTION: bool = optional(13, word=1)
    TC_WB_ACTION: bool = optional(15, word=1, doc="write the L2 back")
    TCL1_ACTION: bool = optional(16, word=1)
    TC_ACTION: bool = optional(17, word=1, doc="invalidate the L2")
    TC_NC_ACTION: bool = optional(19, word=1)
    TC_WC_ACTION: bool = optional(20, word=1)
    TC_MD_ACTION: bool = optional(21, word=1)
    CACHE_POLICY: int = optional(26, 25, word=1)
    EXECUTE: bool = optional(28, word=1)


class ReleaseMemGfx10(ReleaseMem, source=pm4.SOURCE):
    """RELEASE_MEM of gfx10."""

    GLM_WB: bool = optional(12, word=1)
    GLM_INV: bool = optional(13, word=1, doc="set together with GLM_WB")
    GLV_INV: bool = optional(14, word=1)
    GL1_INV: bool = optional(15, word=1)
    GL2_US: bool = optional(16, word=1)
    GL2_RANGE: int = optional(18, 17, word=1)
    GL2_DISCARD: bool = optional(19, word=1)
    GL2_INV: bool = optional(20, word=1)
    GL2_WB: bool = optional(21, word=1)
    SEQ: pm4.Sequence = optional(23, 22, word=1)
    CACHE_POLICY: int = optional(26, 25, word=1)
    PQ_EXE_STATUS: bool = optional(28, word=1)


class ReleaseMemGfx11(ReleaseMemGfx10, source=pm4.SOURCE):
    """RELEASE_MEM of gfx11."""

    GLK_WB: bool = optional(24, word=1)
    GLK_INV: bool = optional(30, word=1)


class ReleaseMemGfx12(ReleaseMemGfx10, source=pm4.SOURCE):
    """RELEASE_MEM of gfx12, which has no GLM and GL1 bits, and a temporal hint instead of the policy."""

    GLM_WB = removed()
    GLM_INV = removed()
    GL1_INV = removed()
    CACHE_POLICY = removed()
    GLK_WB: bool = optional(24, word=1)
    TEMPORAL: int = optional(26, 25, word=1)


ACQUIRE: Final[Mapping[int, type[BitStruct]]] = MappingProxyType(
    {9: AcquireMemGfx9, 10: AcquireMem, 11: AcquireMem, 12: AcquireMem}
)
"""Generation -> layout of ACQUIRE_MEM."""
RELEASE: Final[Mapping[int, type[ReleaseMem]]] = MappingProxyType(
    {9: ReleaseMemGfx9, 10: ReleaseMemGfx10, 11: ReleaseMemGfx11, 12: ReleaseMemGfx12}
)
"""Generation -> layout of RELEASE_MEM."""
_SAME: Final[Mapping[int, type[BitStruct]]] = MappingProxyType(
    {
        pm4.Opcode.WAIT_REG_MEM: pm4.WaitRegMem,
        pm4.Opcode.EVENT_WRITE: pm4.EventWrite,
        pm4.Opcode.PRED_EXEC: pm4.PredExec,
        pm4.Opcode.INDIRECT_BUFFER: pm4.IndirectBuffer,
        pm4.Opcode.DISPATCH_DIRECT: pm4.DispatchDirect,
        pm4.Opcode.WRITE_DATA: pm4.WriteData,
        pm4.Opcode.COPY_DATA: pm4.CopyData,
        pm4.Opcode.DMA_DATA: pm4.DmaData,
        pm4.Opcode.ATOMIC_MEM: pm4.AtomicMem,
        pm4.Opcode.SET_SH_REG: pm4.SetShReg,
    }
)


@functools.cache
def packets(generation: int) -> Mapping[int, type[BitStruct]]:
    """Return opcode -> layout of the packets of a generation; packets of `WITH_DATA` have data after it."""
    return {**_SAME, pm4.Opcode.ACQUIRE_MEM: ACQUIRE[generation], pm4.Opcode.RELEASE_MEM: RELEASE[generation]}


WITH_DATA: Final = frozenset({pm4.Opcode.SET_SH_REG, pm4.Opcode.WRITE_DATA})
"""Packets whose layout is followed by data."""
