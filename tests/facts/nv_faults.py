"""Errors as the device and the resource manager report them: notifier, robust-channel codes, MMU faults.

Source: nverror.h, the notification and debugger headers of NVIDIA open-gpu-kernel-modules 580.142.
"""

# fmt: off
NOTIFIER_POSTED = 0xffff
NOTIFIER_INDICES = {0: "error", 1: "work submit token", 2: "key rotation"}

RC_CODES: dict[tuple[int, ...], str] = {
    (13,): "graphics engine exception",
    (31,): "MMU fault",
    (32,): "PBDMA error",
    (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)): "copy engine error",
    (43,): "reset-channel verification",
    (45,): "preemptive removal",
    (48, 94, 95): "ECC",
    (69,): "graphics class error",
    (79,): "GPU off the bus",
    (109,): "context switch timeout",
    (62,): "internal micro-controller halt",
    (63,): "GPU memory remapping event",
    (64,): "GPU memory remapping failure",
    (74,): "NVLink error",
    (119,): "GSP RPC timeout",
    (120,): "GSP error",
    (140,): "ECC unrecovered error",
    (154,): "GPU recovery action changed",
}
"""Robust-channel codes (Xid) -> what they mean. 109 and those after it are from NVIDIA's catalog of Xid
errors
(docs.nvidia.com/deploy/xid-errors, analyzing-xid-catalog), not from the header."""

COPY_ENGINE_CODES: dict[int, int] = {
    0: 39, 1: 40, 2: 41, 3: 70, 4: 71, 5: 72, 6: 75, 7: 76, 8: 77, 9: 85,
    **{10 + i: 126 + i for i in range(10)},
}
"""Copy engine -> its code."""

MMU_FAULT_TYPES = (
    "PDE", "PDE_SIZE", "PTE", "VA_LIMIT", "UNBOUND_INST", "PRIV", "RO", "WO", "PITCH", "WORK_CREATION",
    "APERTURE", "COMPR", "KIND", "REGION", "POISONED", "ATOMIC",
)
"""Fault types 0x0 to 0xf."""

MMU_ACCESS_TYPES = {0: "read", 1: "write", 2: "atomic strong", 3: "prefetch", 4: "atomic weak"}
MMU_ACCESS_PHYSICAL = 8
"""Added to an access type when the address was physical."""

WARP_ESR_INVALID_ADDRESS_SPACE = 0x10
