"""The channel ring: GPFIFO entries, method headers, the user area of a channel and the doorbell page.

A ring entry points to a push-buffer segment, which is a list of method headers, each followed by its data.

Not here: the methods themselves (`host`, `compute`, `dma`). Next: `drivers.nv.ring`, which writes entries.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from hcq.layout import BitStruct, Struct, bits, const, optional, u32

SOURCE = "NVIDIA open-gpu-doc, clc56f.h to clca6f.h (nv.md 3.1, 3.2)"


class GpfifoEntry(BitStruct, words=1, word_bits=64, source=SOURCE):
    """One ring entry: a segment of `LENGTH` words at `ADDRESS`."""

    FETCH: int = optional(0, doc="0 fetches unconditionally")
    ADDRESS: int = bits(39, 2, shift=2, doc="of the segment; below 2^40")
    LEVEL: int = optional(41, doc="0 main, 1 subroutine")
    LENGTH: int = bits(62, 42, doc="words; 0 makes a control entry")
    SYNC: bool = optional(63, doc="wait until the previous entry was consumed")


class GpfifoOpcode(enum.IntEnum):
    """The operation of a control entry."""

    NOP = 0
    ILLEGAL = 1
    GP_CRC = 2
    PB_CRC = 3
    SET_PB_SEGMENT_EXTENDED_BASE = 4


class GpfifoControl(BitStruct, words=1, word_bits=64, source=SOURCE):
    """A ring entry without a segment.

    OPERAND of SET_PB_SEGMENT_EXTENDED_BASE has address bits 56:40 (since Hopper).
    """

    OPERAND: int = optional(24, 8)
    OPCODE: GpfifoOpcode = bits(39, 32)
    _LENGTH = const(62, 42, 0)


class SecOp(enum.IntEnum):
    """How a method header assigns its data words to methods."""

    INCREMENTING = 1
    NON_INCREMENTING = 3
    IMMEDIATE = 4
    INCREMENT_ONCE = 5
    END_PB_SEGMENT = 7


class Subchannel(enum.IntEnum):
    """Subchannels by the vendor's convention."""

    THREE_D = 0
    COMPUTE = 1
    INLINE_TO_MEMORY = 2
    TWO_D = 3
    COPY = 4


class MethodHeader(BitStruct, source=SOURCE):
    """The word before the data of a method."""

    ADDRESS: int = bits(11, 0, shift=2, doc="of the first method, in bytes")
    SUBCHANNEL: Subchannel = optional(15, 13)
    COUNT: int = bits(28, 16, doc="data words that follow, or the immediate data")
    OPCODE: SecOp = bits(31, 29)


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a class: its name, and the layout of its data word, or None if the word is one number."""

    name: str
    data: type[BitStruct] | None = None


MAX_SEGMENT_WORDS: Final = (1 << 21) - 1
"""The most words of one ring entry's segment."""
MAX_METHOD_WORDS: Final = (1 << 13) - 1
"""The most data words of one method header."""
HOST_METHODS_END: Final = 0x100
"""Methods below this address belong to the host engine and are valid on any subchannel."""


class HopperAControlGPFifo(Struct, size=512, source="open-gpu-kernel-modules 580.142, clc86f.h (nv.md 1.6)"):
    """The user area (USERD) of a channel up to Hopper."""

    Put: int = u32(0x40)
    Get: int = u32(0x44)
    Reference: int = u32(0x48)
    PutHi: int = u32(0x4C)
    TopLevelGet: int = u32(0x58)
    TopLevelGetHi: int = u32(0x5C)
    GetHi: int = u32(0x60)
    GPGet: int = u32(0x88)
    GPPut: int = u32(0x8C)


class BlackwellAControlGPFifo(
    Struct, size=512, source="open-gpu-kernel-modules 580.142, clc96f.h (nv.md 1.6)"
):
    """The user area (USERD) of a Blackwell channel, which has no get index: semaphores report completion."""

    GPPut: int = u32(0x8C)


class UsermodeRegister(enum.IntEnum):
    """Offsets in the doorbell page (nv.md 2.3)."""

    TIME_0 = 0x80
    """Nanoseconds, low word; bits 31:5 are valid."""
    TIME_1 = 0x84
    """Nanoseconds, high word; bits 28:0."""
    NOTIFY_CHANNEL_PENDING = 0x90
    """The doorbell: a store of a channel's token notifies its channel."""


USERMODE_BYTES: Final = 0x10000
"""Size of the doorbell page."""


class WorkSubmitToken(
    BitStruct,
    source="nv.md 2.2 step 23; open-gpu-kernel-modules 595.45.04, gb202/dev_vm.h, kernel_fifo_gb202.c",
):
    """The token of a channel, which the kernel driver returns and the driver stores to the doorbell.

    Bits that are not listed are opaque.
    """

    CHANNEL: int = bits(11, 0)
    RUNLIST: int = bits(22, 16)
    RUNLIST_DOORBELL: bool = optional(30, doc="must be 1 on GB20x, whose tokens contain it; absent before")
