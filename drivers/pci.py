"""The cards on the PCI bus, as sysfs lists them, and who owns each.

For errors about a device that is missing. Not here: what is wrong with a card (`drivers.amd.refusals`,
`drivers.nv.refusals`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from hcq.errors import DriverError

if TYPE_CHECKING:
    from drivers.kernel import Kernel

_PCI: Final = "/sys/bus/pci/devices"
_DISPLAY_CLASSES: Final = ("0x03", "0x12")
"""PCI base classes of display controllers and of processing accelerators (PCI code and ID assignment)."""


def cards(kernel: Kernel, vendor: str) -> list[tuple[str, str]]:
    """Return (slot, driver) of a vendor's display and compute cards; the driver is "" where none owns it."""
    found = []
    with contextlib.suppress(DriverError):  # no PCI bus: no cards
        for slot in kernel.list_dir(_PCI):
            with contextlib.suppress(DriverError):  # the card went away, or the sandbox hides it
                owner = _owner(kernel, f"{_PCI}/{slot}", vendor)
                if owner is not None:
                    found.append((slot, owner))
    return found


def _owner(kernel: Kernel, path: str, vendor: str) -> str | None:
    if kernel.read_file(f"{path}/vendor").decode().strip() != vendor:
        return None
    if not kernel.read_file(f"{path}/class").decode().startswith(_DISPLAY_CLASSES):
        return None
    lines = kernel.read_file(f"{path}/uevent").decode().splitlines()
    return next((line.removeprefix("DRIVER=") for line in lines if line.startswith("DRIVER=")), "")


def in_wsl(kernel: Kernel) -> bool:
    """Return whether this is the Windows Subsystem for Linux, whose only GPU node is /dev/dxg."""
    with contextlib.suppress(DriverError):
        return "dxg" in kernel.list_dir("/dev")
    return False
