"""NV_STATUS: the status that the resource manager and UVM return in addition to the ioctl's return value.

Not here: robust-channel codes of a dead channel (`fault`).
"""

from __future__ import annotations

import enum

SOURCE = "open-gpu-kernel-modules 580.142, nvstatuscodes.h (nv.md 1.3)"


class NvStatus(enum.IntEnum):
    """The status codes that this project names; others remain numbers."""

    OK = 0x00
    INSUFFICIENT_RESOURCES = 0x1A
    INSUFFICIENT_PERMISSIONS = 0x1B
    INVALID_ADDRESS = 0x1E
    INVALID_ARGUMENT = 0x1F
    INVALID_CHANNEL = 0x21
    INVALID_CLASS = 0x22
    INVALID_DEVICE = 0x26
    INVALID_FLAGS = 0x29
    INVALID_OBJECT = 0x31
    INVALID_OBJECT_HANDLE = 0x33
    INVALID_OBJECT_PARENT = 0x36
    INVALID_PARAM_STRUCT = 0x3A
    INVALID_STATE = 0x40
    NO_MEMORY = 0x51
    NOT_SUPPORTED = 0x56
    OBJECT_NOT_FOUND = 0x57
    OUT_OF_RANGE = 0x5B
    STATE_IN_USE = 0x63
    UVM_ADDRESS_IN_USE = 0x68
    WARN_NOTHING_TO_DO = 0x10006


CAUSES: dict[int, str] = {
    NvStatus.INSUFFICIENT_RESOURCES: (
        "out of channels or of address space: close devices, or end processes that use the GPU (nvidia-smi)"
    ),
    NvStatus.INSUFFICIENT_PERMISSIONS: "the call needs root, or asked for a privileged mapping",
    NvStatus.INVALID_ADDRESS: "the range is outside the address space or overlaps another",
    NvStatus.INVALID_ARGUMENT: "a field is wrong; often a structure of another branch, or the engine type",
    NvStatus.INVALID_CLASS: "this GPU has no such class, or a sandbox filters it",
    NvStatus.INVALID_DEVICE: "no GPU of this address space, or no peer of this GPU",
    NvStatus.INVALID_OBJECT_HANDLE: "a parent or handle is wrong",
    NvStatus.INVALID_OBJECT_PARENT: "the class is not allowed under that parent",
    NvStatus.INVALID_PARAM_STRUCT: "the size of the parameters is not what this driver branch expects",
    NvStatus.INVALID_STATE: "wrong order, e.g. a channel registered before its engine object",
    NvStatus.NO_MEMORY: "no memory of that kind is left: close buffers; nvidia-smi shows who holds it",
    NvStatus.NOT_SUPPORTED: "the control is unknown to the driver, or filtered by a sandbox",
    NvStatus.STATE_IN_USE: "the descriptor has a mapping already: each mapping takes a fresh one",
    NvStatus.UVM_ADDRESS_IN_USE: "the range overlaps another one or a mapping that UVM owns",
}
"""Status -> its usual cause in this driver."""


def status_name(code: int) -> str:
    """Return the name of a status, or its number as text."""
    try:
        return f"NV_ERR_{NvStatus(code).name}" if code else "NV_OK"
    except ValueError:
        return f"NV_STATUS {code:#x}"
