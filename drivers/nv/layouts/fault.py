"""Fault reporting: the error notifier, robust-channel codes, MMU fault and access types.

Not here: the debugger object's replies (`debugger`).
"""

# ruff: noqa: N815 - the vendor's names are kept

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hcq.layout import Struct, nested, u16, u32

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = "open-gpu-kernel-modules 580.142, nvgputypes.h and nverror.h (nv.md 1.6, 6)"


class NvTimeStamp(Struct, size=8, source=SOURCE):
    """Nanoseconds, low word first."""

    nanoseconds: tuple[int, ...] = u32(0x0, count=2)


class NvNotification(Struct, size=16, source=SOURCE):
    """An entry of an error notifier; `info32` is the code (RcCode), `status` 0xffff once one was posted."""

    timeStamp: NvTimeStamp = nested(0x0, NvTimeStamp)
    info32: int = u32(0x8)
    info16: int = u16(0xC)
    status: int = u16(0xE)


STRUCTS: Final = {layout.__name__: layout for layout in (NvTimeStamp, NvNotification)}

NOTIFIER_ERROR: Final = 0
"""Index of the error entry in a channel's notifier buffer; 1 is the work-submit token, 2 is key rotation."""
NOTIFIER_ENTRIES: Final = 3
NOTIFIER_POSTED: Final = 0xFFFF


class RcCode(enum.IntEnum):
    """Robust-channel codes: what the kernel log calls an Xid."""

    GR_EXCEPTION = 13
    MMU_FAULT = 31
    PBDMA_ERROR = 32
    CE0_ERROR = 39
    CE1_ERROR = 40
    CE2_ERROR = 41
    RESET_CHANNEL = 43
    PREEMPTIVE_REMOVAL = 45
    ECC_DOUBLE_BIT = 48
    GR_CLASS_ERROR = 69
    CE3_ERROR = 70
    CE4_ERROR = 71
    CE5_ERROR = 72
    CE6_ERROR = 75
    CE7_ERROR = 76
    CE8_ERROR = 77
    OFF_THE_BUS = 79
    CE9_ERROR = 85
    ECC_CONTAINED = 94
    ECC_UNCONTAINED = 95
    CONTEXT_SWITCH_TIMEOUT = 109
    CE10_ERROR = 126
    CE19_ERROR = 135


_COPY_CODES: Final = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
RC_MEANING: Final[Mapping[int, str]] = MappingProxyType(
    {
        13: "graphics engine exception: an SM exception, a bad method or an invalid address space",
        31: "MMU fault: a page that is not mapped, or not for this access",
        32: "host error: an unbound subchannel, a malformed header or a bad ring entry",
        43: "the channel was stopped after another error",
        45: "the channel was removed: its process was killed or a sibling faulted",
        48: "uncorrectable memory error",
        69: "a bad method of the graphics class",
        79: "the GPU has fallen off the bus",
        94: "contained memory error",
        95: "uncontained memory error",
        109: "context switch timeout: a kernel that does not end, or a queue whose wait never ends",
        **{
            code: f"copy engine {i} error: a bad LAUNCH_DMA or a page that is not mapped"
            for i, code in enumerate(_COPY_CODES)
        },
    }
)
"""Robust-channel code -> its meaning and usual cause."""


class MmuFaultType(enum.IntEnum):
    """The reason of an MMU fault."""

    PDE = 0x0
    PDE_SIZE = 0x1
    PTE = 0x2
    VA_LIMIT = 0x3
    UNBOUND_INST = 0x4
    PRIV = 0x5
    RO = 0x6
    WO = 0x7
    PITCH = 0x8
    WORK_CREATION = 0x9
    APERTURE = 0xA
    COMPR = 0xB
    KIND = 0xC
    REGION = 0xD
    POISONED = 0xE
    ATOMIC = 0xF


class MmuAccess(enum.IntEnum):
    """The kind of the faulting access."""

    READ = 0
    WRITE = 1
    ATOMIC_STRONG = 2
    PREFETCH = 3
    ATOMIC_WEAK = 4


MMU_ACCESS_PHYSICAL: Final = 8
"""Added to an access type if the access was physical."""
WARP_ESR_INVALID_ADDRESS_SPACE: Final = 0x10
"""The only warp error code that is known on Hopper."""
