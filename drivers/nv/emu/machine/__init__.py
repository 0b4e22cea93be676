"""An emulated NVIDIA GPU below the ioctl: `open_machine("sm_90")` returns its kernel.

The kernel behaves to a driver as Linux does.

It supports less than hardware and never more: whatever it does not support is an error, and it faults on
anything real hardware would reject. It is written from the facts, not from the driver.

Next: `kernel`, the operating system's interface; `machine`, the state; `profiles`, the GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from drivers.nv.emu.machine.reports import Kind, Report

if TYPE_CHECKING:
    from drivers.emu.simt.library import Sanitizers
    from drivers.nv.emu.machine.kernel import EmulatedKernel

__all__ = ["Kind", "Report", "open_machine"]


def open_machine(
    profile: str = "sm_90",
    *,
    seed: int = 0,
    driver: str = "580",
    filtered: bool = True,
    checks: Sanitizers | None = None,
) -> EmulatedKernel:
    """Return the kernel of a machine with one emulated GPU.

    `profile` is an architecture ("sm_80", "sm_90", "sm_120"), `driver` a branch ("570", "580", "590", "595").
    `filtered` is the sandbox of nv.md 7; without it the machine shows what a bare one does. `seed` decides
    every order that hardware leaves open. `checks` are the SIMT engine's sanitizers; what they find stops the
    channel. Unknown names are `UnsupportedError`.

    The kernel's `reports` are what the machine objected to. A driver sees each fatal one as a fault: the
    channel, its group or, where no channel did it, every channel is stopped, and the error notifier is
    posted. `machine.refusals` has the reasons of refused ioctls.
    """
    from drivers.emu.simt.engine import Settings  # noqa: PLC0415 - the SIMT engine is loaded when a machine is opened
    from drivers.nv.emu.machine.kernel import EmulatedKernel  # noqa: PLC0415 - the same
    from drivers.nv.emu.machine.machine import Machine  # noqa: PLC0415 - the same
    from drivers.nv.emu.machine.profiles import find_profile, find_version  # noqa: PLC0415 - the same
    from hcq.config import config  # noqa: PLC0415 - the same

    branch, version = find_version(driver)
    settings = Settings(cache=config().cache)
    if checks is not None:
        settings = replace(settings, checks=checks)
    machine = Machine(find_profile(profile), branch, version, filtered=filtered, seed=seed, settings=settings)
    return EmulatedKernel(machine)
