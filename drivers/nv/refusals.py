"""Errors for refusals of the kernel driver, with a hint: RM and UVM statuses, missing nodes, other branches.

Not here: faults of a running device (`faults`). Next: `rm` and `uvm`, which raise these errors.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import NoReturn

from drivers.kernel import Kernel
from drivers.nv.layouts.branches import BRANCHES
from drivers.nv.layouts.chips import CLASS_NAMES, COMPUTE_LOW_BYTE, GENERATIONS, UNSUPPORTED_COMPUTE
from drivers.nv.layouts.status import CAUSES, UNUSABLE, NvStatus, status_name
from drivers.shared.pci import undriven
from hcq.errors import DriverError, OutOfMemoryError, UnsupportedError

_OUT_OF_MEMORY = frozenset({NvStatus.NO_MEMORY, NvStatus.INSUFFICIENT_RESOURCES})
_NO_DRIVER = "the node exists but has no driver: load the modules (modprobe nvidia nvidia-uvm)"
_NODE_CURES = {
    errno.ENOENT: (
        "no NVIDIA GPU is here, or its node is missing: load the modules (modprobe nvidia nvidia-uvm), or "
        "create it with mknod from the majors in /proc/devices; in a container pass it through (--gpus all, "
        "or --device {path})"
    ),
    errno.EACCES: "you may not open {path}: add your user to the group that owns it, or run as root",
    errno.EPERM: (
        "you may not open {path}: the container or device policy forbids it; pass the GPU through (--gpus "
        "all). Outside a container the GPU is excluded (module option NVreg_ExcludedGpus)"
    ),
    errno.ENODEV: _NO_DRIVER,
    errno.ENXIO: _NO_DRIVER,
    errno.EIO: (
        "the kernel driver could not bring the GPU up: `dmesg | grep NVRM` says why. 'RmInitAdapter failed' "
        "with 'GSP' needs the firmware of the driver's own version (/lib/firmware/nvidia/VERSION): install "
        "the driver again; without it check power cables and slot"
    ),
    errno.EMFILE: "this process has too many files open: close devices, or raise the limit (ulimit -n)",
    errno.EBUSY: (
        "the GPU is taken out of use or held by another process, such as a reset in progress: see "
        "`nvidia-smi`, `fuser {path}` and `dmesg | grep NVRM`, and try again"
    ),
}

_ENGINE_CLASSES = range(0x9000, 0x10000)
"""Classes of engines; lower numbers are classes of the resource manager itself."""


def refuse(call: str, status: int, kernel: Kernel, *, arguments: str = "", hint: str = "") -> NoReturn:
    """Raise `OutOfMemoryError` or `DriverError` for the NV_STATUS `status` that `call` returned.

    `hint` replaces the usual hint of the status, unless the GPU itself does not work (`UNUSABLE`). The
    kernel's own reason is added if it has one (`Kernel.refusal`).
    """
    kind = OutOfMemoryError if status in _OUT_OF_MEMORY else DriverError
    if not hint or status in UNUSABLE:
        hint = CAUSES.get(status, "an unknown status: `dmesg | grep NVRM` may say more")
    reason = kernel.refusal()
    raise kind(call, status, status_name(status), arguments=arguments, hint=hint, reason=reason)


_NODE_GONE = (
    "only the node is missing: run `nvidia-modprobe -c 0 -u`; in a container pass it through (--gpus all)"
)


def node_error(path: str, error: DriverError, kernel: Kernel) -> DriverError:
    """Return the error for a device node that could not be opened, with a hint by errno."""
    cure = _NODE_CURES.get(error.status, error.hint).format(path=path)
    if error.status == errno.ENOENT:
        cure = undriven(kernel, "0x10de", "nvidia", _NODE_GONE) or cure
    return DriverError(f"open {path}", error.status, error.status_name, hint=cure)


_ESCAPE_CURES = {
    errno.EINVAL: (
        "another driver branch has another size, a sandbox filters the call, or the GPU is lost (Xid 79): "
        "`dmesg | grep NVRM`, and `hcq bringup --to 3` shows the replies"
    ),
    errno.ENOTTY: (
        "the node is not NVIDIA's, its major number changed: remove it and run `nvidia-modprobe -c 0 -u`"
    ),
    errno.EIO: "the GPU was not brought up, or is being removed: `dmesg | grep NVRM` says why; open it again",
}


def escape_error(call: str, size: int, error: DriverError, reason: str) -> DriverError:
    """Return the error, of the class of `error`, for a refused frontend ioctl with `size` bytes."""
    cure = f"the kernel driver refused {call.partition(' ')[0]} with {size} bytes: " + _ESCAPE_CURES.get(
        error.status, error.hint
    )
    return type(error)(call, error.status, error.status_name, hint=cure, reason=reason)


def unknown_branch(version: str) -> UnsupportedError:
    """Return the error for a branch of the kernel driver whose structures are unknown."""
    known = ", ".join(str(branch) for branch in BRANCHES)
    return UnsupportedError(
        f"NVIDIA driver {version or '(no version)'} is not supported: its structures are not known here\n"
        f"hint: install a driver of branch {known}; `hcq bringup --to 3` shows its replies"
    )


def unsupported_gpu(name: str, classes: Iterable[int]) -> UnsupportedError:
    """Return the error for a GPU without a supported compute class."""
    seen = [code for code in classes if code & 0xFF == COMPUTE_LOW_BYTE and code in _ENGINE_CLASSES]
    known = ", ".join(f"{CLASS_NAMES[code]} ({code:#x})" for code in GENERATIONS)
    older = [UNSUPPORTED_COMPUTE[code] for code in seen if code in UNSUPPORTED_COMPUTE]
    what = f"{older[0]} GPU" if older else "GPU"
    shown = ", ".join(f"{CLASS_NAMES.get(code, 'unknown')} ({code:#x})" for code in seen) or "none"
    return UnsupportedError(
        f"{name or 'this GPU'} is a {what} that this driver does not support: compute classes seen: {shown}\n"
        f"hint: supported are {known}"
    )


def mig_mode(name: str, refused: str = "") -> UnsupportedError:
    """Return the error for a GPU in MIG mode; `refused` is the kernel driver's error, if any."""
    seen = f"; it refused a query that works only outside MIG mode: {refused}" if refused else ""
    return UnsupportedError(
        f"{name or 'this GPU'} seems to be in MIG mode, which this driver does not support{seen}\n"
        "hint: ask the administrator for `nvidia-smi -mig 0` (`nvidia-smi -L` lists instances), or for "
        "another GPU"
    )
