"""AQL: the 64-byte packets of queues that several XCCs share, signals, and the queue structure in memory.

Not here: the PM4 words that vendor packets run (`pm4`). Next: `drivers.amd.encode_aql`, which writes packets.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, Struct, bits, const, i64, optional, u32, u64

SOURCE = (
    "HSA Platform System Architecture 1.2; ROCr hsa.h, amd_hsa_queue.h, amd_hsa_signal.h, core/inc/queue.h"
)

PACKET_BYTES: Final = 64
PACKET_WORDS: Final = 16
KERNARG_ALIGN: Final = 16
PM4_IB_FORMAT: Final = 1
BARRIER_VALUE_FORMAT: Final = 2
"""Formats of vendor packets, in the upper half of dword 0."""
PM4_IB_DW_CNT_REMAIN: Final = 10
RING_PACKETS_MIN: Final = 64
RING_PACKETS_MAX: Final = 131072
"""Limits of the number of packets of a ring."""


class Type(enum.IntEnum):
    """Packet types."""

    VENDOR_SPECIFIC = 0
    INVALID = 1
    """The packet processor stops at it until the type changes."""
    KERNEL_DISPATCH = 2
    BARRIER_AND = 3
    AGENT_DISPATCH = 4
    BARRIER_OR = 5


class FenceScope(enum.IntEnum):
    """Agents that an acquire or a release includes."""

    NONE = 0
    AGENT = 1
    SYSTEM = 2


class Header(BitStruct, source=SOURCE):
    """The first 16 bits of a packet; the other bits of the dword depend on the type."""

    TYPE: Type = bits(7, 0)
    BARRIER: bool = optional(8, doc="start when all earlier packets are done")
    ACQUIRE_SCOPE: FenceScope = optional(10, 9)
    RELEASE_SCOPE: FenceScope = optional(12, 11)


class KernelDispatch(Header, words=PACKET_WORDS, source=SOURCE):
    """Launch a kernel; grid sizes are work-items."""

    TYPE: Type = bits(7, 0, default=Type.KERNEL_DISPATCH)
    DIMENSIONS: int = bits(17, 16)
    WORKGROUP_SIZE_X: int = bits(15, 0, word=1)
    WORKGROUP_SIZE_Y: int = bits(31, 16, word=1)
    WORKGROUP_SIZE_Z: int = bits(15, 0, word=2)
    GRID_SIZE_X: int = bits(31, 0, word=3)
    GRID_SIZE_Y: int = bits(31, 0, word=4)
    GRID_SIZE_Z: int = bits(31, 0, word=5)
    PRIVATE_SEGMENT_SIZE: int = optional(31, 0, word=6, doc="bytes of scratch of a work-item")
    GROUP_SEGMENT_SIZE: int = optional(31, 0, word=7, doc="bytes of LDS of a workgroup")
    KERNEL_OBJECT: int = bits(63, 0, word=8, doc="address of the kernel descriptor")
    KERNARG_ADDRESS: int = bits(63, 0, word=10)
    COMPLETION_SIGNAL: int = optional(63, 0, word=14)


class Pm4Ib(Header, words=PACKET_WORDS, source=SOURCE):
    """Vendor packet: run an indirect buffer of PM4 words on every XCC."""

    TYPE: Type = bits(7, 0, default=Type.VENDOR_SPECIFIC)
    _format = const(31, 16, PM4_IB_FORMAT)
    IB_HEADER: int = bits(31, 0, word=1, doc="header of INDIRECT_BUFFER")
    IB_ADDRESS_LO: int = bits(31, 0, word=2)
    IB_ADDRESS_HI: int = bits(31, 0, word=3)
    IB_SIZE: int = bits(19, 0, word=4, doc="dwords")
    IB_VALID: bool = bits(23, word=4)
    _remain = const(31, 0, PM4_IB_DW_CNT_REMAIN, word=5)
    COMPLETION_SIGNAL: int = optional(63, 0, word=14)


class BarrierAnd(Header, words=PACKET_WORDS, source=SOURCE):
    """Wait until the values of all signals of the packet are 0."""

    TYPE: Type = bits(7, 0, default=Type.BARRIER_AND)
    DEP_SIGNAL: tuple[int, ...] = optional(63, 0, word=2, count=5, stride=64)
    COMPLETION_SIGNAL: int = optional(63, 0, word=14)


class BarrierOr(BarrierAnd, source=SOURCE):
    """Wait until the value of one of the signals is 0."""

    TYPE: Type = bits(7, 0, default=Type.BARRIER_OR)


class BarrierValueCondition(enum.IntEnum):
    """The comparison of BARRIER_VALUE: masked value of the signal with the packet's value."""

    EQ = 0
    NE = 1
    LT = 2
    GTE = 3


class BarrierValue(Header, words=PACKET_WORDS, source=SOURCE):
    """Vendor packet: wait for the masked value of one signal."""

    TYPE: Type = bits(7, 0, default=Type.VENDOR_SPECIFIC)
    _format = const(31, 16, BARRIER_VALUE_FORMAT)
    SIGNAL: int = bits(63, 0, word=2)
    VALUE: int = bits(63, 0, word=4)
    MASK: int = bits(63, 0, word=6)
    CONDITION: BarrierValueCondition = bits(31, 0, word=8)
    COMPLETION_SIGNAL: int = optional(63, 0, word=14)


class SignalKind(enum.IntEnum):
    """Kinds of a signal."""

    DOORBELL = -1
    USER = 1


class Signal(Struct, size=64, source=SOURCE):
    """amd_signal_t, 64-byte aligned."""

    kind: SignalKind = i64(0)
    value: int = i64(8, doc="the packet processor subtracts 1 at completion")
    event_mailbox_ptr: int = u64(16)
    event_id: int = u32(24)
    start_ts: int = u64(32)
    end_ts: int = u64(40)
    queue_ptr: int = u64(48)


class QueueProperties(BitStruct, source=SOURCE):
    """queue_properties of the queue structure."""

    ENABLE_TRAP_HANDLER: bool = optional(0)
    IS_PTR64: bool = optional(1)
    ENABLE_PROFILING: bool = optional(3)
    USE_SCRATCH_ONCE: bool = optional(4)


class Queue(Struct, size=256, source=SOURCE):
    """amd_queue_t, shared by firmware and driver; firmware finds it by the address of read_dispatch_id."""

    type: int = u32(0)
    features: int = u32(4)
    base: int = u64(8)
    doorbell_signal: int = u64(16)
    size: int = u32(24, doc="packets")
    id: int = u64(32)
    caps: int = u32(40)
    write_dispatch_id: int = u64(56)
    group_segment_aperture_base_hi: int = u32(64)
    private_segment_aperture_base_hi: int = u32(68)
    max_cu_id: int = u32(72)
    max_wave_id: int = u32(76)
    read_dispatch_id: int = u64(128)
    read_dispatch_id_field_base_byte_offset: int = u32(136)
    compute_tmpring_size: int = u32(140)
    scratch_resource_descriptor: tuple[int, ...] = u32(144, count=4)
    scratch_backing_memory_location: int = u64(160)
    scratch_backing_memory_byte_size: int = u64(168)
    scratch_wave64_lane_byte_size: int = u32(176)
    queue_properties: int = u32(180, doc="a `QueueProperties`")
    queue_inactive_signal: int = u64(192)


READ_DISPATCH_ID_FIELD_BASE: Final = 128
"""Offset of `Queue.read_dispatch_id`, in bytes."""
LDS_APERTURE_HI: Final = 0x10000
SCRATCH_APERTURE_HI: Final = 0x20000
"""Upper halves of the first address of the shared (LDS) and of the private (scratch) aperture."""


class ScratchDescriptor(BitStruct, words=4, source="ROCr amd_aql_queue.cpp FillBufRsrcWord0 to 3"):
    """scratch_resource_descriptor: a buffer descriptor; SWIZZLE and FORMAT are constants of a generation."""

    BASE: int = bits(47, 0)
    SWIZZLE: int = bits(63, 62, doc="`SWIZZLE`")
    BYTES: int = bits(95, 64, doc="bytes of one XCC")
    FORMAT: int = bits(127, 96, doc="`FORMAT`")


SWIZZLE: Final[Mapping[int, int]] = MappingProxyType({9: 2, 10: 2, 11: 1, 12: 1})
"""Generation -> SWIZZLE that enables swizzling: bit 63 up to gfx10, value 1 of the field after."""
FORMAT: Final[Mapping[int, int]] = MappingProxyType(
    {9: 0x00EA_4FAC, 10: 0x2181_4FAC, 11: 0x2081_4FAC, 12: 0x2081_4FAC}
)
"""Generation -> the last word: all components, 32-bit unsigned, the lane's id added, raw-buffer bounds
checks."""


class Inactive(enum.IntFlag):
    """Bits of queue_inactive_signal, set when the packet processor stops the queue."""

    SCRATCH_WAVE64 = 0x1
    DIMENSIONS = 0x2
    GROUP_SEGMENT = 0x4
    CODE = 0x8
    FORMAT = 0x20
    WORKGROUP = 0x40
    VGPRS = 0x80
    VENDOR_PACKET = 0x100
    SCRATCH_RECLAIM = 0x200
    SCRATCH_WAVE32 = 0x400
    MEMORY_VIOLATION = 0x2000_0000
    ILLEGAL_INSTRUCTION = 0x4000_0000
    TRAP = 0x8000_0000


INACTIVE_TEXT: Final[Mapping[int, str]] = MappingProxyType(
    {
        Inactive.SCRATCH_WAVE64: "insufficient scratch (wave64)",
        Inactive.DIMENSIONS: "bad dimensions",
        Inactive.GROUP_SEGMENT: "group segment",
        Inactive.CODE: "bad code",
        Inactive.FORMAT: "format",
        Inactive.WORKGROUP: "work-group too large",
        Inactive.VGPRS: "VGPRs",
        Inactive.VENDOR_PACKET: "vendor packet",
        Inactive.SCRATCH_RECLAIM: "scratch reclaim",
        Inactive.SCRATCH_WAVE32: "insufficient scratch (wave32)",
        Inactive.MEMORY_VIOLATION: "memory violation",
        Inactive.ILLEGAL_INSTRUCTION: "illegal instruction",
        Inactive.TRAP: "trap",
    }
)
"""Bit of `Inactive` -> its meaning."""

PACKETS: Final[Mapping[int, type[BitStruct]]] = MappingProxyType(
    {Type.KERNEL_DISPATCH: KernelDispatch, Type.BARRIER_AND: BarrierAnd, Type.BARRIER_OR: BarrierOr}
)
"""Type -> layout of the standard packets."""
VENDOR_PACKETS: Final[Mapping[int, type[BitStruct]]] = MappingProxyType(
    {PM4_IB_FORMAT: Pm4Ib, BARRIER_VALUE_FORMAT: BarrierValue}
)
"""Format (the upper half of dword 0) -> layout."""
