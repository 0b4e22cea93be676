"""The cards on the PCI bus and the kernel modules that own them, for the hints of errors on missing devices.

Not here: the devices' nodes and their errors (`drivers.nv.refusals`, `drivers.amd.refusals`). Source: the
files of /sys/bus/pci/devices.
"""

from __future__ import annotations

import contextlib
from typing import Final

from drivers.kernel import Kernel
from hcq.errors import DriverError

_PCI: Final = "/sys/bus/pci/devices"
_DISPLAY_CLASSES: Final = ("0x03", "0x12")
"""PCI base classes of display controllers and of processing accelerators (PCI code and ID assignment)."""


def undriven(kernel: Kernel, vendor: str, module: str, owned: str) -> str:
    """Return a hint that lists the cards of a vendor with their owners and the cure; "" if there is no card.

    `vendor` is the PCI vendor id as in sysfs ("0x10de"), `module` the right kernel module, `owned` the cure
    for a card that `module` owns already.
    """
    with contextlib.suppress(DriverError):
        if "dxg" in kernel.list_dir("/dev"):
            return "this is WSL, whose only GPU node is /dev/dxg: run on Linux itself"
    cures = {
        "": (
            f"modprobe {module}; where that fails, `dmesg | grep -i {module}` says why, such as firmware "
            "that is missing, or a module that Secure Boot refuses or that is of another kernel"
        ),
        module: owned,
    }
    taken = f"give it to {module} (blacklist the other driver and reboot, or take it from vfio-pci)"
    slots: dict[str, list[str]] = {}
    for slot, driver in _cards(kernel, vendor):
        slots.setdefault(driver, []).append(slot)
    return "; ".join(
        f"the card {', '.join(them)}, which {driver or 'no driver'} owns: {cures.get(driver, taken)}"
        for driver, them in slots.items()
    )


def _cards(kernel: Kernel, vendor: str) -> list[tuple[str, str]]:
    """Return (slot, driver) of a vendor's display and compute cards; driver "": no driver owns the card."""
    found = []
    with contextlib.suppress(DriverError):  # no PCI bus: no cards
        for slot in kernel.list_dir(_PCI):
            with contextlib.suppress(DriverError):  # the card went away, or the sandbox hides it
                owner = _owner(kernel, f"{_PCI}/{slot}", vendor)
                if owner is not None:
                    found.append((slot, owner))
    return found


def _owner(kernel: Kernel, path: str, vendor: str) -> str | None:
    """Return the driver that owns a card, "" for none; None if it is no such card of the vendor."""
    if kernel.read_file(f"{path}/vendor").decode().strip() != vendor:
        return None
    if not kernel.read_file(f"{path}/class").decode().startswith(_DISPLAY_CLASSES):
        return None
    lines = kernel.read_file(f"{path}/uevent").decode().splitlines()
    return next((line.removeprefix("DRIVER=") for line in lines if line.startswith("DRIVER=")), "")
