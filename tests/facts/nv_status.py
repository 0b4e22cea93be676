"""NV_STATUS words worth a name.

Source: nvstatuscodes.h of NVIDIA open-gpu-kernel-modules 580.142 (names without their NV_ or NV_ERR_ prefix).
"""

# fmt: off
STATUS: dict[int, str] = {
    0x00: "OK",
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
    0x63: "STATE_IN_USE",
    0x68: "UVM_ADDRESS_IN_USE",
    0x10006: "WARN_NOTHING_TO_DO",
}
