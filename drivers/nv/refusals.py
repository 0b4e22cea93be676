"""Errors for refusals of the kernel driver, with a hint: RM and UVM statuses, missing nodes, other branches.

Not here: faults of a running device (`faults`).

Next: `rm` and `uvm`, which raise these errors.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NoReturn

from drivers.nv.layouts.branches import BRANCHES
from drivers.nv.layouts.families import CLASS_NAMES, COMPUTE_LOW_BYTE, GENERATIONS, UNSUPPORTED_COMPUTE
from drivers.nv.layouts.status import CAUSES, NvStatus, status_name
from hcq.errors import DriverError, HcqError, OutOfMemoryError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_OUT_OF_MEMORY = frozenset({NvStatus.NO_MEMORY, NvStatus.INSUFFICIENT_RESOURCES})
_NO_DRIVER = "the node exists but has no driver: load the modules (modprobe nvidia nvidia-uvm)"
_NODE_CURES = {
    errno.ENOENT: (
        "no NVIDIA GPU is here, or its node is missing: load the modules (modprobe nvidia nvidia-uvm), or "
        "create it with mknod from the majors in /proc/devices; in a container pass it through (--gpus all, "
        "or --device {path})"
    ),
    errno.EACCES: "you may not open {path}: add your user to the group that owns it, or run as root",
    errno.EPERM: "you may not open {path}: the container or device policy forbids it; pass the GPU through",
    errno.ENODEV: _NO_DRIVER,
    errno.ENXIO: _NO_DRIVER,
    errno.EIO: "the kernel driver could not bring the GPU up; see dmesg for NVRM messages",
    errno.EMFILE: "this process has too many files open: close devices, or raise the limit (ulimit -n)",
    errno.EBUSY: "the device is held exclusively by another process; see nvidia-smi or fuser {path}",
}


_ENGINE_CLASSES = range(0x9000, 0x10000)


def refuse(call: str, status: int, *, arguments: str = "", hint: str = "") -> NoReturn:
    """Raise the error of an NV_STATUS: `OutOfMemoryError` or `DriverError`."""
    kind = OutOfMemoryError if status in _OUT_OF_MEMORY else DriverError
    raise kind(call, status, status_name(status), arguments=arguments, hint=hint or CAUSES.get(status, ""))


def node_error(path: str, error: DriverError) -> DriverError:
    """Return the error for a node that could not be opened, with a hint."""
    cure = _NODE_CURES.get(error.status, error.hint).format(path=path)
    return DriverError(f"open {path}", error.status, error.status_name, hint=cure)


def unknown_branch(version: str) -> UnsupportedError:
    """Return the error for a branch of the kernel driver whose structures are unknown."""
    known = ", ".join(str(branch) for branch in BRANCHES)
    return UnsupportedError(
        f"NVIDIA driver {version or '(no version)'} is not supported: its structures are not known here\n"
        f"hint: install a driver of branch {known}; `python -m tools.bringup --to 3` shows its replies"
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
        "hint: ask the administrator for `nvidia-smi -mig 0`, or for another GPU"
    )


class BringUpError(HcqError):
    """The device responded, but with a result that a working device does not return."""
