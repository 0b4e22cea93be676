"""Errors with a cure for what the kernel refuses: missing nodes, ioctls, old kernels, cards without a driver.

Not here: faults of a running device (`faults`), targets that are not driven (`targets`).
"""

from __future__ import annotations

import contextlib
import errno
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.kfd import ENOTSUPP, MAJOR, OLDEST_MINOR, Call
from drivers.amd.layouts.topology import KFD_NODE
from hcq.errors import DriverError, HcqError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivers.kernel import Kernel

_GROUPS: Final = "`render`, on older systems `video`"
_LOG = "`dmesg | grep -E 'amdgpu|kfd'`"
_NODE_CURES: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ENOENT: (
            "no AMD GPU is here, or its node is missing: load the module (modprobe amdgpu) on a kernel built "
            "with CONFIG_HSA_AMD; in a container pass it through (--device /dev/kfd --device /dev/dri)"
        ),
        errno.EACCES: (
            "you may not open {path}: add your user to the group that owns it "
            f"({_GROUPS}: sudo usermod -aG render,video $USER), and log in again"
        ),
        errno.EPERM: (
            "you may not open {path}: the container, its device policy or a 32-bit process forbids it; pass "
            "the GPU through (--device /dev/kfd --device /dev/dri --group-add render)"
        ),
        errno.ENODEV: "the node exists but no driver answers: load the module (modprobe amdgpu)",
        errno.ENXIO: "the node exists but no driver answers: load the module (modprobe amdgpu)",
        errno.EAGAIN: f"the GPU is being reset; try again, and see {_LOG}",
        errno.EMFILE: "this process has too many files open: close devices, or raise the limit (ulimit -n)",
    }
)
_NO_MEMORY: Final = (
    "close buffers, or see /sys/class/drm/card*/device/mem_info_vram_used for who holds memory"
)
_FORKED: Final = "this process was forked from the one that opened the device: open it here, or spawn"
_RESET: Final = f"the GPU is being reset or its scheduler does not answer: see {_LOG}"
_MES: Final = (
    "the GPU's scheduler firmware (MES) does not answer: dmesg says 'MES failed to respond'. Reset the GPU "
    "(cat /sys/kernel/debug/dri/*/amdgpu_gpu_recover as root) or reboot; newer linux-firmware and kernels "
    "have mended such hangs"
)
_HWS: Final = (
    "the GPU's queue scheduler does not answer: dmesg says 'HWS hang'. Reset the GPU "
    "(cat /sys/kernel/debug/dri/*/amdgpu_gpu_recover as root) or reboot"
)
_GEOMETRY: Final = (
    "since Linux 6.12 the kernel compares ring, pointer page, end-of-pipe buffer and context-save area with "
    f"what is mapped: {_LOG} names the one that it refused"
)

_CURES: Final[Mapping[tuple[Call, int], str]] = MappingProxyType(
    {
        (Call.ACQUIRE_VM, errno.EBUSY): (
            "this process uses the GPU through another descriptor of its render node: another KFD library "
            "(ROCm, HIP) is loaded here; use hcq in a process of its own"
        ),
        (Call.ACQUIRE_VM, errno.EINVAL): "the render node is not that of this GPU, or not amdgpu's",
        (Call.CREATE_EVENT, errno.EINVAL): (
            "this process has an event page already: another KFD library (ROCm, HIP) is loaded here; use hcq "
            "in a process of its own"
        ),
        (Call.CREATE_EVENT, errno.ENOSPC): "a process has 4095 events: close devices",
        (Call.ALLOC_MEMORY_OF_GPU, errno.ENOMEM): _NO_MEMORY,
        (Call.ALLOC_MEMORY_OF_GPU, errno.EADDRINUSE): "the addresses are in use as shared virtual memory",
        (Call.MAP_MEMORY_TO_GPU, errno.ENOMEM): (
            f"the GPU's page tables found no room, or the memory is gone: {_NO_MEMORY}"
        ),
        (Call.FREE_MEMORY_OF_GPU, errno.EBUSY): "it is still mapped by a GPU",
        (Call.CREATE_QUEUE, errno.EINVAL): _GEOMETRY,
        (Call.CREATE_QUEUE, errno.ENOSPC): "this process has all the queues that one may have: close devices",
        (Call.CREATE_QUEUE, errno.ENOMEM): "all SDMA queues of the GPU are in use: close devices",
        (Call.CREATE_QUEUE, errno.EPERM): "all queues of the GPU are in use: close other programs",
        (Call.CREATE_QUEUE, ENOTSUPP): "the kernel does not know this type of queue: a newer one does",
        (Call.AVAILABLE_MEMORY, errno.ENOTTY): "the kernel is too old",
    }
)
_SCHEDULED: Final = frozenset({Call.CREATE_QUEUE, Call.DESTROY_QUEUE, Call.UPDATE_QUEUE})
_SILENT: Final = frozenset({errno.ETIME, errno.ETIMEDOUT, errno.EREMOTEIO})
"""What calls return that wait for a scheduler in vain."""


class BringUpError(HcqError):
    """The device answered, but not as a working one does."""


def refused(
    call: Call, error: DriverError, arguments: str, *, mes: bool = False, hint: str = ""
) -> DriverError:
    """Return the error of an ioctl, with its cure; `mes` says that the GPU's queues are scheduled by MES."""
    number = error.status
    cure = hint or _CURES.get((call, number), "")
    if not cure and call in _SCHEDULED and number in _SILENT:
        cure = _MES if mes else _HWS
    if not cure and number == errno.EIO:
        cure = _RESET
    if not cure and number == errno.EBADF:
        cure = _FORKED
    name = "ENOTSUPP" if number == ENOTSUPP else error.status_name
    return type(error)(f"KFD {call.name}", number, name, arguments=arguments, hint=cure or error.hint)


def node_error(path: str, error: DriverError) -> DriverError:
    """Return the error for a node that could not be opened, with its cure."""
    cure = _NODE_CURES.get(error.status, error.hint).format(path=path)
    return DriverError(f"open {path}", error.status, error.status_name, hint=cure)


def old_kernel(major: int, minor: int) -> UnsupportedError:
    """Return the error for an interface whose structures are not known."""
    if major > MAJOR:
        cure = f"this driver supports version {MAJOR} alone: use an older kernel or a newer hcq"
    else:
        cure = "use Linux 6.1 or newer, or a newer ROCm kernel module"
    return UnsupportedError(
        f"{KFD_NODE} speaks version {major}.{minor}, at least {MAJOR}.{OLDEST_MINOR} is wanted\nhint: {cure}"
    )


def small_bar(name: str) -> UnsupportedError:
    """Return the error for video memory that the host cannot map."""
    return UnsupportedError(
        f"the host cannot map the video memory of {name}: its PCI window is smaller than the memory\n"
        "hint: turn on 'Above 4G decoding' and 'Resizable BAR' in the firmware's settings, or ask for memory "
        "of Place.HOST and copy"
    )


def no_render_node(name: str, gpu_id: int) -> UnsupportedError:
    """Return the error for a GPU without a render node."""
    return UnsupportedError(
        f"{name} (gpu_id {gpu_id}) has no render node: the topology names none\n"
        "hint: the module amdgpu must own the GPU; in a container pass /dev/dri through"
    )


def narrow_space(name: str, limit: int) -> UnsupportedError:
    """Return the error for a GPU that does not address all that this process may map."""
    return UnsupportedError(
        f"{name} addresses memory up to {limit:#x} only, less than a process of this machine uses\n"
        "hint: remove the module option amdgpu.vm_size"
    )


def absent(name: str, index: int, count: int, kernel: Kernel) -> UsageError:
    """Return the error for a GPU number that does not exist; names cards that no KFD driver owns."""
    known = {0: "no GPU", 1: "one GPU, number 0"}.get(count, f"{count} GPUs, numbers 0 to {count - 1}")
    text = f"{name}:{index} does not exist: the kernel's topology lists {known}"
    stray = strays(kernel) if not count else []
    if stray:
        text += f"; there are {', '.join(stray)}"
    if not count:
        text += (
            "\nhint: give the card to amdgpu (take it from vfio-pci, then modprobe amdgpu); "
            "a container must be given /dev/kfd and /dev/dri"
        )
    return UsageError(text)


_PCI: Final = "/sys/bus/pci/devices"
_VENDOR: Final = "0x1002"
_DISPLAY_CLASSES: Final = ("0x03", "0x12")
"""PCI base classes of display controllers and of processing accelerators (PCI code and ID assignment)."""


def strays(kernel: Kernel) -> list[str]:
    """Return in words the AMD cards on the PCI bus that amdgpu does not own."""
    found = []
    with contextlib.suppress(DriverError):  # no PCI bus: no cards
        for slot in kernel.list_dir(_PCI):
            text = _stray(kernel, slot)
            if text:
                found.append(text)
    return found


def _stray(kernel: Kernel, slot: str) -> str:
    try:
        if kernel.read_file(f"{_PCI}/{slot}/vendor").decode().strip() != _VENDOR:
            return ""
        if not kernel.read_file(f"{_PCI}/{slot}/class").decode().startswith(_DISPLAY_CLASSES):
            return ""
        lines = kernel.read_file(f"{_PCI}/{slot}/uevent").decode().splitlines()
    except DriverError:  # the card went away, or the sandbox hides it
        return ""
    driver = next((line.removeprefix("DRIVER=") for line in lines if line.startswith("DRIVER=")), "")
    if driver == "amdgpu":
        return f"the card {slot}, which amdgpu owns but KFD does not support or could not start"
    return f"the card {slot}, which {driver + ' owns' if driver else 'no driver owns'}"
