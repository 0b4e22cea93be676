"""NV_STATUS: the status that the resource manager and UVM return in addition to the ioctl's return value.

Not here: robust-channel codes of a dead channel (`fault`). Next: `drivers.nv.refusals`, the errors.
"""

from __future__ import annotations

import enum

SOURCE = "open-gpu-kernel-modules 580.142, nvstatuscodes.h (nv.md 1.3); gVisor's and Nova's lists agree"


class NvStatus(enum.IntEnum):
    """The status codes that this project names; others remain numbers."""

    OK = 0x00
    ECC_ERROR = 0x0B
    GPU_IS_LOST = 0x0F
    GPU_IN_FULLCHIP_RESET = 0x10
    GPU_NOT_FULL_POWER = 0x11
    GPU_UUID_NOT_FOUND = 0x12
    ILLEGAL_ACTION = 0x16
    IN_USE = 0x17
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
    INVALID_OFFSET = 0x37
    INVALID_PARAM_STRUCT = 0x3A
    INVALID_STATE = 0x40
    NO_MEMORY = 0x51
    NOT_SUPPORTED = 0x56
    OBJECT_NOT_FOUND = 0x57
    OUT_OF_RANGE = 0x5B
    PAGE_TABLE_NOT_AVAIL = 0x5D
    RESET_REQUIRED = 0x62
    STATE_IN_USE = 0x63
    TIMEOUT = 0x65
    UVM_ADDRESS_IN_USE = 0x68
    FABRIC_MANAGER_NOT_PRESENT = 0x7A
    WARN_NOTHING_TO_DO = 0x10006


LOG = "`dmesg | grep NVRM`"
RESET_GPU = "stop all programs on the GPU and run `nvidia-smi --gpu-reset` as root, or reboot"
_BRANCH = "`hcq bringup --to 3` shows the replies; report them with the driver's version"

CAUSES: dict[int, str] = {
    NvStatus.ECC_ERROR: f"the GPU's memory has an uncorrectable error (`nvidia-smi -q -d ECC`): {RESET_GPU}",
    NvStatus.GPU_IS_LOST: (
        "the GPU does not answer on PCI Express any more (Xid 79): power the machine off and on, and check "
        "power cables, slot, riser and temperature"
    ),
    NvStatus.GPU_IN_FULLCHIP_RESET: (
        "the GPU is being reset, by another process or after an error of its own: close the device and open "
        f"it again later; where it never ends, reboot; {LOG} names the reason"
    ),
    NvStatus.GPU_NOT_FULL_POWER: (
        "the GPU sleeps (suspend): try again after the resume; `nvidia-smi -pm 1` as root keeps it awake"
    ),
    NvStatus.INSUFFICIENT_RESOURCES: (
        "out of channels or of address space: close devices, or end processes that use the GPU (nvidia-smi)"
    ),
    NvStatus.INSUFFICIENT_PERMISSIONS: (
        "the call needs root, or the container has no right to this GPU or MIG instance: pass it through "
        "(--gpus)"
    ),
    NvStatus.INVALID_ADDRESS: (
        "outside the address space, or over another range: use memory of `device.alloc`"
    ),
    NvStatus.INVALID_ARGUMENT: (
        f"a field is wrong, often a structure of another branch or the engine type: {_BRANCH}"
    ),
    NvStatus.INVALID_CLASS: "this GPU has no such class, or a sandbox filters it: try outside the sandbox",
    NvStatus.INVALID_DEVICE: "no GPU of this address space, or no peer of this GPU: copy through host memory",
    NvStatus.INVALID_OBJECT_HANDLE: (
        "a parent or handle is wrong, as all are in a forked child: open the device there, or spawn"
    ),
    NvStatus.INVALID_OBJECT_PARENT: f"the class is not allowed under that parent: {_BRANCH}",
    NvStatus.INVALID_PARAM_STRUCT: (
        f"the size of the parameters is not what this driver branch expects: {_BRANCH}"
    ),
    NvStatus.INVALID_STATE: (
        "wrong order, e.g. a channel registered before its engine object; at a GPU that failed before: "
        f"{RESET_GPU}"
    ),
    NvStatus.NO_MEMORY: "no memory of that kind is left: close buffers; nvidia-smi shows who holds it",
    NvStatus.NOT_SUPPORTED: (
        "the control is unknown to the driver, or filtered: try outside the sandbox, or another driver"
    ),
    NvStatus.RESET_REQUIRED: f"an earlier error left the GPU unusable ({LOG}): {RESET_GPU}",
    NvStatus.STATE_IN_USE: (
        "a descriptor has its mapping already, or another process holds the GPU: end it (nvidia-smi)"
    ),
    NvStatus.TIMEOUT: f"the GPU's firmware (GSP) does not answer (Xid 119, {LOG}): {RESET_GPU}",
    NvStatus.UVM_ADDRESS_IN_USE: "the range overlaps another one or a mapping that UVM owns: free that first",
    NvStatus.FABRIC_MANAGER_NOT_PRESENT: (
        "the NVSwitches have no manager: `systemctl start nvidia-fabricmanager`, of the driver's own version"
    ),
}
"""Status -> its usual cause in this driver, and what to do."""

UNUSABLE = frozenset(
    {
        NvStatus.ECC_ERROR,
        NvStatus.GPU_IS_LOST,
        NvStatus.GPU_IN_FULLCHIP_RESET,
        NvStatus.GPU_NOT_FULL_POWER,
        NvStatus.RESET_REQUIRED,
        NvStatus.TIMEOUT,
    }
)
"""Statuses of a GPU that does not work for any call."""


def status_name(code: int) -> str:
    """Return the name of a status, such as "NV_ERR_TIMEOUT"; "NV_STATUS 0x7f" for a number without a name."""
    try:
        return f"NV_ERR_{NvStatus(code).name}" if code else "NV_OK"
    except ValueError:
        return f"NV_STATUS {code:#x}"
