"""KFD events: how the kernel wakes a process, and its reports of faults, resets and queue exceptions.

A GPU raises a SIGNAL event in two steps: it stores a value other than all ones to the event's slot in the
event page, then interrupts. The kernel reads the slot and sets it back to all ones.

Not here: other ioctls (`kfd`). Next: `drivers.amd.events`, the user.
"""

# ruff: noqa: N801 - names are the kernel's own

from __future__ import annotations

import enum
from typing import Final

from hcq.layout import Struct, blob, nested, u32, u64

SOURCE = "Linux 6.12 include/uapi/linux/kfd_ioctl.h (KFD 1.17)"
SOURCE_DRIVER = "Linux 6.12 drivers/gpu/drm/amd/amdkfd/kfd_events.c, kfd_events.h"


class EventType(enum.IntEnum):
    """CREATE_EVENT: `event_type`."""

    SIGNAL = 0
    NODECHANGE = 1
    DEVICESTATECHANGE = 2
    HW_EXCEPTION = 3
    SYSTEM = 4
    DEBUG = 5
    PROFILE = 6
    QUEUE = 7
    MEMORY = 8


EVENT_SLOTS: Final = 4096
EVENT_SLOT_BYTES: Final = 8
EVENT_PAGE_BYTES: Final = EVENT_SLOTS * EVENT_SLOT_BYTES
"""Smallest size of an event page's memory."""
UNSIGNALLED: Final = (1 << 64) - 1
"""Value of a slot whose event has not fired."""
FIRST_OTHER_EVENT: Final = 0x4000_0000
"""First id of events of the other types; ids of SIGNAL events are their slots, from 1."""
END_OF_PIPE_CONTEXT_BITS: Final = 32
"""Bits of the event id that the interrupt of a RELEASE_MEM carries."""
TRAP_CONTEXT_BITS: Final = 28
"""Bits of the event id that the interrupt of an SDMA engine carries."""
MESSAGE_CONTEXT_BITS: Final = 24
"""Bits of the event id that the interrupt of a kernel's s_sendmsg carries."""


class kfd_ioctl_create_event_args(Struct, size=32, source=SOURCE):
    """CREATE_EVENT; the first call of a process passes the memory of the event page."""

    event_page_offset: int = u64(0, doc="first call: handle of the page's memory; else 0")
    event_trigger_data: int = u32(8, doc="from the kernel: the interrupt's context id")
    event_type: EventType = u32(12)
    auto_reset: bool = u32(16)
    node_id: int = u32(20)
    event_id: int = u32(24, doc="from the kernel")
    event_slot_index: int = u32(28, doc="from the kernel")


class kfd_ioctl_destroy_event_args(Struct, size=8, source=SOURCE):
    event_id: int = u32(0)


class kfd_ioctl_set_event_args(Struct, size=8, source=SOURCE):
    """SET_EVENT: wakes the threads that wait for a SIGNAL event."""

    event_id: int = u32(0)


class kfd_ioctl_reset_event_args(Struct, size=8, source=SOURCE):
    event_id: int = u32(0)


class WaitResult(enum.IntEnum):
    """WAIT_EVENTS: `wait_result`."""

    COMPLETE = 0
    TIMEOUT = 1
    FAIL = 2


WAIT_FOREVER: Final = 0xFFFF_FFFF


class kfd_ioctl_wait_events_args(Struct, size=24, source=SOURCE):
    """WAIT_EVENTS; a timeout of 0 polls."""

    events_ptr: int = u64(0)
    num_events: int = u32(8)
    wait_for_all: bool = u32(12)
    timeout: int = u32(16, doc="milliseconds")
    wait_result: WaitResult = u32(20)


class kfd_event_data(Struct, size=48, source=SOURCE):
    """One event of a wait; the kernel fills `payload` only if the event fired."""

    payload: bytes = blob(0, 32, doc="a union, by the event's type")
    kfd_event_data_ext: int = u64(32)
    event_id: int = u32(40)


class kfd_memory_exception_failure(Struct, size=16, source=SOURCE):
    """The reason why an access failed."""

    NotPresent: bool = u32(0)
    ReadOnly: bool = u32(4, doc="set for an access that writes")
    NoExecute: bool = u32(8)
    imprecise: bool = u32(12)


class MemoryError_(enum.IntEnum):
    """`kfd_hsa_memory_exception_data.ErrorType`."""

    NO_RAS = 0
    SRAM_ECC = 1
    POISON_CONSUMED = 2
    GPU_HANG = 3


class kfd_hsa_memory_exception_data(Struct, size=32, source=SOURCE):
    """The payload of a MEMORY event."""

    failure: kfd_memory_exception_failure = nested(0, kfd_memory_exception_failure)
    va: int = u64(16, doc="the page's address: its low 12 bits are 0")
    gpu_id: int = u32(24)
    ErrorType: MemoryError_ = u32(28)


class ResetType(enum.IntEnum):
    """`kfd_hsa_hw_exception_data.reset_type`."""

    WHOLE_GPU = 0
    PER_ENGINE = 1


class ResetCause(enum.IntEnum):
    """`kfd_hsa_hw_exception_data.reset_cause`."""

    GPU_HANG = 0
    ECC = 1


class kfd_hsa_hw_exception_data(Struct, size=16, source=SOURCE):
    """The payload of an HW_EXCEPTION event."""

    reset_type: ResetType = u32(0)
    reset_cause: ResetCause = u32(4)
    memory_lost: bool = u32(8, doc="the contents of video memory are lost")
    gpu_id: int = u32(12)


class kfd_hsa_signal_event_data(Struct, size=8, source=SOURCE):
    """The payload of a SIGNAL event, since KFD 1.14."""

    last_event_age: int = u64(0, doc="to the kernel: the last age; 0: no ages")


class QueueException(enum.IntEnum):
    """Codes of a queue's exceptions: bit `code - 1` of the word at `err_payload_addr` (`cwsr`).

    The kernel reports them to processes that called RUNTIME_ENABLE with ENABLE.
    """

    WAVE_ABORT = 1
    WAVE_TRAP = 2
    WAVE_MATH_ERROR = 3
    WAVE_ILLEGAL_INSTRUCTION = 4
    WAVE_MEMORY_VIOLATION = 5
    WAVE_APERTURE_VIOLATION = 6
    PACKET_DISPATCH_DIM_INVALID = 16
    PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID = 17
    PACKET_DISPATCH_CODE_INVALID = 18
    PACKET_RESERVED = 19
    PACKET_UNSUPPORTED = 20
    PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID = 21
    PACKET_DISPATCH_REGISTER_INVALID = 22
    PACKET_VENDOR_UNSUPPORTED = 23
    PREEMPTION_ERROR = 30
    NEW = 31
    DEVICE_QUEUE_DELETE = 32
    DEVICE_MEMORY_VIOLATION = 33
    DEVICE_RAS_ERROR = 34
    DEVICE_FATAL_HALT = 35
    DEVICE_NEW = 36
    PROCESS_RUNTIME = 48
    PROCESS_DEVICE_REMOVE = 49


EXCEPTION_TEXT: Final[dict[int, str]] = {
    QueueException.WAVE_ABORT: "a wave aborted",
    QueueException.WAVE_TRAP: "a wave trapped",
    QueueException.WAVE_MATH_ERROR: "a floating-point exception",
    QueueException.WAVE_ILLEGAL_INSTRUCTION: "an illegal instruction",
    QueueException.WAVE_MEMORY_VIOLATION: "a memory violation",
    QueueException.WAVE_APERTURE_VIOLATION: "an aperture violation",
    QueueException.PACKET_DISPATCH_DIM_INVALID: "a dispatch with invalid dimensions",
    QueueException.PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID: "a dispatch with too much LDS",
    QueueException.PACKET_DISPATCH_CODE_INVALID: "a dispatch of invalid code",
    QueueException.PACKET_RESERVED: "a packet of a reserved type",
    QueueException.PACKET_UNSUPPORTED: "a packet that the queue does not support",
    QueueException.PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID: "a dispatch whose workgroup is too large",
    QueueException.PACKET_DISPATCH_REGISTER_INVALID: "a dispatch with too many registers",
    QueueException.PACKET_VENDOR_UNSUPPORTED: "a vendor packet that the firmware does not know",
    QueueException.PREEMPTION_ERROR: "the queue could not be preempted",
    QueueException.DEVICE_QUEUE_DELETE: "the queue was deleted",
    QueueException.DEVICE_MEMORY_VIOLATION: "a memory violation on the device",
    QueueException.DEVICE_RAS_ERROR: "an uncorrectable memory error",
    QueueException.DEVICE_FATAL_HALT: "the device halted",
    QueueException.PROCESS_DEVICE_REMOVE: "the device was removed",
}
"""Exception -> its description."""


def exceptions(mask: int) -> list[QueueException]:
    """Return the exceptions in a mask, the lowest code first; unknown bits are left out."""
    return [code for code in QueueException if mask >> (code - 1) & 1]
