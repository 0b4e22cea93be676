"""Errors for refusals of the kernel, with a hint: missing nodes, ioctls, old kernels, cards without a driver.

Not here: faults of a running device (`faults`), targets that are not supported (`layouts.chips`). Next:
`kfd`, which raises these errors.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivers.amd.layouts.kfd import ENOTSUPP, MAJOR, OLDEST_MINOR, Call
from drivers.amd.layouts.topology import KFD_NODE
from drivers.kernel import Kernel
from drivers.shared.pci import undriven
from hcq.errors import DriverError, UnsupportedError

_GROUPS: Final = "`render`, on older systems `video`"
_LOG = "`dmesg | grep -E 'amdgpu|kfd'`"
_NODE_CURES: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ENOENT: (
            "no AMD GPU is here, or its node is missing: load the module (modprobe amdgpu) on a kernel "
            "built with CONFIG_HSA_AMD; in a container pass it through (--device /dev/kfd --device "
            "/dev/dri)"
        ),
        errno.EACCES: (
            f"you may not open {{path}}: add your user to the group that owns it ({_GROUPS}: sudo usermod "
            "-aG render,video $USER), and log in again"
        ),
        errno.EPERM: (
            "you may not open {path}: the container, its device policy or a 32-bit process forbids it; pass "
            "the GPU through (--device /dev/kfd --device /dev/dri --group-add render)"
        ),
        errno.ENODEV: "the node exists but no driver answers: load the module (modprobe amdgpu)",
        errno.ENXIO: "the node exists but no driver answers: load the module (modprobe amdgpu)",
        errno.EAGAIN: f"the GPU is being reset, or the machine suspends; try again, and see {_LOG}",
        errno.EINVAL: f"KFD has no GPU left, or is closed for a reset; try again, and see {_LOG}",
        errno.EMFILE: "this process has too many files open: close devices, or raise the limit (ulimit -n)",
    }
)
_NO_MEMORY: Final = (
    "close buffers, or see /sys/class/drm/card*/device/mem_info_vram_used for who holds memory"
)
_RESET: Final = f"the GPU is being reset or its scheduler does not answer: see {_LOG}"
_MES: Final = (
    "the GPU's scheduler firmware (MES) does not answer: dmesg says 'MES failed to respond'. Reset the GPU "
    "(cat /sys/kernel/debug/dri/*/amdgpu_gpu_recover as root) or reboot; newer linux-firmware and kernels "
    "have mended such hangs"
)
_HWS: Final = (
    "the GPU's queue scheduler does not answer: dmesg says 'HWS hang'. Reset the GPU (cat "
    "/sys/kernel/debug/dri/*/amdgpu_gpu_recover as root) or reboot"
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
        (Call.ACQUIRE_VM, errno.EINVAL): (
            "the render node is not that of this GPU, or not amdgpu's, or the GPU has gone (its partition "
            "mode was changed): open it again; in a container pass the whole of /dev/dri through"
        ),
        (Call.ACQUIRE_VM, errno.ENOMEM): _NO_MEMORY,
        (Call.CREATE_EVENT, errno.EINVAL): (
            "this process has an event page already: another KFD library (ROCm, HIP) is loaded here; use "
            "hcq in a process of its own"
        ),
        (Call.CREATE_EVENT, errno.ENOSPC): "a process has 4095 events: close devices",
        (Call.ALLOC_MEMORY_OF_GPU, errno.ENOMEM): _NO_MEMORY,
        (Call.ALLOC_MEMORY_OF_GPU, errno.EADDRINUSE): (
            "the addresses are in use as shared virtual memory, by another library (ROCm, HIP): use a "
            "process of its own"
        ),
        (Call.MAP_MEMORY_TO_GPU, errno.ENOMEM): (
            f"the GPU's page tables found no room, or the memory is gone: {_NO_MEMORY}"
        ),
        (Call.FREE_MEMORY_OF_GPU, errno.EBUSY): "it is still mapped by a GPU: unmap it there first",
        (Call.CREATE_QUEUE, errno.EINVAL): _GEOMETRY,
        (Call.CREATE_QUEUE, errno.ENOSPC): "this process has all the queues that one may have: close devices",
        (Call.CREATE_QUEUE, errno.ENOMEM): "all SDMA queues of the GPU are in use: close devices",
        (Call.CREATE_QUEUE, errno.EPERM): "all queues of the GPU are in use: close other programs",
        (Call.CREATE_QUEUE, ENOTSUPP): "the kernel does not know this type of queue: a newer one does",
        (Call.AVAILABLE_MEMORY, errno.ENOTTY): "the kernel is too old",
    }
)
_OF_ERRNO: Final[Mapping[int, str]] = MappingProxyType(
    {
        **dict.fromkeys((errno.EIO, errno.EAGAIN, errno.ETIME), _RESET),
        errno.ENOTTY: "the kernel does not know the call: use a newer kernel, or a newer ROCm kernel module",
        errno.EINVAL: (
            "a field is not what this kernel takes, or the GPU has gone (its partition mode was changed): "
            f"{_LOG}; `hcq bringup --device amd --verbose` shows the call"
        ),
    }
)
"""Errno -> hint, for calls without a row in `_CURES`."""
_SCHEDULED: Final = frozenset({Call.CREATE_QUEUE, Call.DESTROY_QUEUE, Call.UPDATE_QUEUE})
_SILENT: Final = frozenset({errno.ETIME, errno.ETIMEDOUT, errno.EREMOTEIO})
"""Errnos of these calls if the scheduler does not respond."""


def refused(
    call: Call, error: DriverError, arguments: str, *, reason: str = "", mes: bool = False, hint: str = ""
) -> DriverError:
    """Return the error of a refused ioctl with a hint; it has `error`'s class.

    `hint` replaces the usual hint. `reason` is the kernel's own (`Kernel.refusal`). `mes`: the firmware MES
    schedules the GPU's queues.
    """
    number = error.status
    cure = hint or _CURES.get((call, number), "")
    if not cure and call in _SCHEDULED and number in _SILENT:
        cure = _MES if mes else _HWS
    cure = cure or _OF_ERRNO.get(number, "")
    name = "ENOTSUPP" if number == ENOTSUPP else error.status_name
    return type(error)(
        f"KFD {call.name}", number, name, arguments=arguments, hint=cure or error.hint, reason=reason
    )


def node_error(path: str, error: DriverError, kernel: Kernel) -> DriverError:
    """Return the error for a device node that could not be opened, with a hint by errno."""
    cure = _NODE_CURES.get(error.status, error.hint).format(path=path)
    if error.status == errno.ENOENT and path == KFD_NODE:
        cure = _undriven(kernel) or cure
    return DriverError(f"open {path}", error.status, error.status_name, hint=cure)


def info_refused(error: DriverError) -> DriverError:
    """Return the error for a refused DEV_INFO query of a render node, with a hint by errno."""
    cure = _OF_ERRNO.get(error.status, error.hint)
    return type(error)(
        "AMDGPU_INFO DEV_INFO", error.status, error.status_name, arguments=error.arguments, hint=cure
    )


def old_kernel(major: int, minor: int) -> UnsupportedError:
    """Return the error for a version of the KFD interface whose structures are not known."""
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
        f"the host cannot map the video memory of {name}: its PCI window is smaller than the memory "
        "(the topology lists none that is visible)\n"
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
    """Return the error for a GPU that cannot address all memory of this process, only up to `limit`."""
    return UnsupportedError(
        f"{name} addresses memory up to {limit:#x} only, less than a process of this machine uses\n"
        "hint: remove the module option amdgpu.vm_size"
    )


def missing(kernel: Kernel) -> str:
    """Return the hint of an error on a machine without a GPU."""
    return _undriven(kernel) or _TAKE


_TAKE: Final = (
    "give the card to amdgpu (take it from vfio-pci, then modprobe amdgpu); a container must be given "
    "/dev/kfd and /dev/dri"
)
_SKIPPED: Final = (
    "KFD does not support it or could not start: `dmesg | grep kfd` says why. 'skipped device ..., PCI "
    "rejects atomics' needs another slot or newer linux-firmware (MEC); a kernel without CONFIG_HSA_AMD has "
    "no KFD; a container must be given /dev/kfd and /dev/dri"
)


def _undriven(kernel: Kernel) -> str:
    return undriven(kernel, "0x1002", "amdgpu", _SKIPPED)
