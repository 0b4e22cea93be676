"""What a vendor gives to the recorder, and which vendor a device belongs to.

Not here: the forms themselves (`tools.record.nv`, `tools.record.amd`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tools.record.forms import Form, Kernel

_MODULES: Final = {"nv": "tools.record.nv.vendor", "amd": "tools.record.amd.vendor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One vendor's forms and kernels."""

    name: str
    arches: tuple[str, ...]
    """Architectures (`DeviceInfo.arch`) whose kernels `--prepare` builds."""
    emulated: Callable[[str], str]
    """Architecture -> the name of its emulated GPU."""
    forms: Callable[[str], Sequence[Form]]
    """Architecture -> every form that it can run, in any order."""
    kernels: Callable[[Sequence[Form], str, Path | None], list[Kernel]]
    """Forms, architecture, and the folder of prepared kernels or None -> the kernels that run them.

    Raises `HcqError` where a form cannot be built."""
    prepare: Callable[[Sequence[Form], str, Path], int]
    """Forms of one shard, architecture, folder -> builds their kernels there; returns how many."""
    uncovered: Callable[[str], list[str]]
    """Architecture -> names of what the emulated GPU knows and no form has."""
    version: Callable[[], str]
    """The kernel driver's version, "" where there is none."""


def vendor_of(device: str) -> Vendor:
    """Return the vendor of a device's name or architecture. Raises `UnsupportedError` without a recorder."""
    name = device.partition(":")[0].partition("-")[0]
    name = {"sm_": "nv", "gfx": "amd"}.get(name[:3], name)
    module = _MODULES.get(name)
    if module is None:
        raise UnsupportedError(f"{device} has no recorder; there are {', '.join(_MODULES)}")
    try:
        vendor = import_module(module).VENDOR
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise UnsupportedError(f"{device} has no recorder yet: {module} does not exist") from None
    assert isinstance(vendor, Vendor)
    return vendor
