"""Fault reporting: the error notifier, robust-channel codes, MMU fault and access types.

Not here: the debugger object's replies (`debugger`). Next: `drivers.nv.faults`, which writes reports.
"""

# ruff: noqa: N815 - the vendor's names are kept

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivers.nv.layouts.status import RESET_GPU
from hcq.layout import Struct, nested, u16, u32

SOURCE = "open-gpu-kernel-modules 580.142, nvgputypes.h and nverror.h (nv.md 1.6, 6)"


class NvTimeStamp(Struct, size=8, source=SOURCE):
    """Nanoseconds, low word first."""

    nanoseconds: tuple[int, ...] = u32(0x0, count=2)


class NvNotification(Struct, size=16, source=SOURCE):
    """An entry of an error notifier: `info32` is the code (RcCode), `status` is 0xffff after an error."""

    timeStamp: NvTimeStamp = nested(0x0, NvTimeStamp)
    info32: int = u32(0x8)
    info16: int = u16(0xC)
    status: int = u16(0xE)


NOTIFIER_ERROR: Final = 0
"""Index of the error entry in a channel's notifier buffer; 1 is the work-submit token, 2 is key rotation."""
NOTIFIER_ENTRIES: Final = 3
NOTIFIER_POSTED: Final = 0xFFFF
"""`status` of an entry that holds an error."""


class RcCode(enum.IntEnum):
    """Robust-channel codes, which the kernel log calls Xid."""

    GR_EXCEPTION = 13
    MMU_FAULT = 31
    PBDMA_ERROR = 32
    CE0_ERROR = 39
    CE1_ERROR = 40
    CE2_ERROR = 41
    RESET_CHANNEL = 43
    PREEMPTIVE_REMOVAL = 45
    ECC_DOUBLE_BIT = 48
    PMU_HALT = 62
    ROW_REMAPPED = 63
    ROW_REMAP_FAILED = 64
    GR_CLASS_ERROR = 69
    CE3_ERROR = 70
    CE4_ERROR = 71
    CE5_ERROR = 72
    NVLINK_ERROR = 74
    CE6_ERROR = 75
    CE7_ERROR = 76
    CE8_ERROR = 77
    OFF_THE_BUS = 79
    CE9_ERROR = 85
    ECC_CONTAINED = 94
    ECC_UNCONTAINED = 95
    CONTEXT_SWITCH_TIMEOUT = 109
    GSP_RPC_TIMEOUT = 119
    GSP_ERROR = 120
    CE10_ERROR = 126
    CE19_ERROR = 135
    ECC_UNRECOVERED = 140
    RECOVERY_ACTION_CHANGED = 154


_COPY_CODES: Final = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
RC_MEANING: Final[Mapping[int, str]] = MappingProxyType(
    {
        13: "graphics engine exception: an SM exception, a bad method or an invalid address space",
        31: "MMU fault: a page that is not mapped, or not for this access",
        32: "host error: an unbound subchannel, a malformed header or a bad ring entry",
        43: "the channel was stopped after another error",
        45: "the channel was removed: its process was killed or a sibling faulted",
        48: "uncorrectable memory error",
        62: "a controller in the GPU halted",
        63: "memory with errors was remapped to spare rows",
        64: "memory with errors could not be remapped to spare rows",
        69: "a bad method of the graphics class",
        74: "a link to another GPU or to a switch (NVLink) failed",
        79: "the GPU has fallen off the bus",
        94: "contained memory error: only programs that used the memory are stopped",
        95: "uncontained memory error: all programs on the GPU are concerned",
        109: "context switch timeout: a kernel that does not end, or a queue whose wait never ends",
        119: "the GPU's firmware (GSP) does not answer",
        120: "the GPU's firmware (GSP) failed",
        140: "memory errors that could not be remapped",
        154: "an error after which the GPU must be reset, or the machine rebooted",
        **{
            code: f"copy engine {i} error: a bad LAUNCH_DMA or a page that is not mapped"
            for i, code in enumerate(_COPY_CODES)
        },
    }
)
"""Robust-channel code -> its meaning and usual cause."""

_LOG: Final = "`dmesg | grep Xid`"
_OWN: Final = (
    "a kernel or a copy of this program did it: run it on nv-emu with HCQ_EMU_CHECKED=1; Device.recover() "
    "goes on"
)
_FIRST: Final = (
    f"another error came first, in this process or in one that reset the GPU: {_LOG} names it; "
    "Device.recover() goes on, or open the device again"
)
_COUNTS: Final = (
    "`nvidia-smi -q -d ECC,ROW_REMAPPER` shows the counts; a card that does it again needs replacing"
)
RC_CURE: Final[Mapping[int, str]] = MappingProxyType(
    {
        **dict.fromkeys((13, 31, 32, 69, *_COPY_CODES), _OWN),
        **dict.fromkeys((43, 45), _FIRST),
        **dict.fromkeys((48, 64, 95, 140), f"{RESET_GPU}; {_COUNTS}"),
        **dict.fromkeys((62, 119, 120), f"{RESET_GPU}; if it comes back, install another driver version"),
        63: f"run on: after the next reset of the GPU the spare rows are in use; {_COUNTS}",
        74: f"`nvidia-smi nvlink -e` shows which link; {RESET_GPU}",
        79: (
            "power the machine off and on, as a warm reboot may not help; check power cables, slot, riser "
            "and temperature: `dmesg | grep -E 'Xid|AER'`"
        ),
        94: f"start this program again, and reset the GPU when convenient; {_COUNTS}",
        109: (
            "run the kernel on nv-emu, which names the loop that does not end; Device.recover() goes on, "
            f"else {RESET_GPU}"
        ),
        154: f"`dmesg | grep 'recovery action'` names which: {RESET_GPU}",
    }
)
"""Robust-channel code -> what the user can do. Source: NVIDIA's catalog of Xid errors, columns of
resolutions.
"""
RC_UNKNOWN: Final = f"{_LOG}, and docs.nvidia.com/deploy/xid-errors, which lists all codes with what to do"
"""What the user can do after a code without a row in `RC_CURE`."""


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
