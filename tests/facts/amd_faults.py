"""Faults: queue exceptions and what an interrupt for a bad packet carries.

Source: Linux 6.12.107 kfd_ioctl.h and the KFD interrupt handlers.
"""

# fmt: off
QUEUE_EXCEPTIONS = {
    1: "wave abort", 2: "wave trap", 3: "math error", 4: "illegal instruction", 5: "memory violation",
    6: "aperture violation", 16: "dispatch dimension invalid", 17: "group segment size invalid",
    18: "code invalid", 19: "packet reserved", 20: "packet unsupported", 21: "work-group size invalid",
    22: "register invalid",
    23: "vendor packet unsupported", 30: "preemption error", 31: "new queue", 32: "device: queue delete",
    33: "device: memory violation", 34: "device: RAS", 35: "device: fatal halt", 36: "device: new",
    48: "process runtime", 49: "process device removed",
}
"""Code -> meaning; bit code - 1 of the error payload says that it happened."""
BAD_OPCODE_CONTEXT = {"CODE": (10, 25), "DOORBELL": (0, 9)}
"""Bits of the context id of the interrupt for a bad packet."""
SQ_ERRORS = {0: "EDC fatal", 1: "illegal instruction", 2: "memory violation", 3: "EDC"}
FAULT_PAGE_SHIFT = 12
FAULT_STATUS_BITS = {"NOT_PRESENT": 3, "READ_ONLY": 5}
"""Bits of the interrupt's ring-id byte; no_execute is never set, imprecise and error_type are 0."""
PREEMPTION_TIMEOUT_MS = 9000
