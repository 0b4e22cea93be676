"""The interface between the recorder and a vendor, and the vendor of a device.

Not here: the forms themselves. Next: `tools.record.nv.vendor`, `tools.record.amd.vendor`.
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
    """(forms, architecture, the folder of prepared kernels or None) -> the kernels that run the forms.

    Raises `HcqError` if a form cannot be built."""
    prepare: Callable[[Sequence[Form], str, Path], int]
    """(forms of one shard, architecture, folder): builds their kernels there, and returns their number."""
    version: Callable[[], str]
    """Returns the kernel driver's version; "" if none is loaded."""


def vendor_of(device: str) -> Vendor:
    """Return the vendor of a device ("nv:0", "amd-emu") or an architecture ("sm_90a", "gfx942").

    Raises `UnsupportedError` if the vendor has no recorder.
    """
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
