"""NV_STATUS words worth a name.

Source: nvstatuscodes.h of NVIDIA open-gpu-kernel-modules 580.142 (names without their NV_ or NV_ERR_ prefix);
0x0b to 0x11, 0x62, 0x65 and 0x7a from two lists made from it: statusNames of a gVisor fork, and the bindings
of the
kernel's Nova driver for 570.
"""

# fmt: off
STATUS: dict[int, str] = {
    0x00: "OK",
    0x0b: "ECC_ERROR",
    0x0f: "GPU_IS_LOST",
    0x10: "GPU_IN_FULLCHIP_RESET",
    0x11: "GPU_NOT_FULL_POWER",
    0x1a: "INSUFFICIENT_RESOURCES",
    0x1b: "INSUFFICIENT_PERMISSIONS",
    0x1e: "INVALID_ADDRESS",
    0x1f: "INVALID_ARGUMENT",
    0x21: "INVALID_CHANNEL",
    0x22: "INVALID_CLASS",
    0x26: "INVALID_DEVICE",
    0x29: "INVALID_FLAGS",
    0x31: "INVALID_OBJECT",
    0x33: "INVALID_OBJECT_HANDLE",
    0x36: "INVALID_OBJECT_PARENT",
    0x3a: "INVALID_PARAM_STRUCT",
    0x40: "INVALID_STATE",
    0x51: "NO_MEMORY",
    0x56: "NOT_SUPPORTED",
    0x57: "OBJECT_NOT_FOUND",
    0x5b: "OUT_OF_RANGE",
    0x62: "RESET_REQUIRED",
    0x63: "STATE_IN_USE",
    0x65: "TIMEOUT",
    0x68: "UVM_ADDRESS_IN_USE",
    0x7a: "FABRIC_MANAGER_NOT_PRESENT",
    0x10006: "WARN_NOTHING_TO_DO",
}
