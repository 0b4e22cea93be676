"""A machine with emulated NVIDIA GPUs below the ioctl: `open_machine("sm_90")` returns its kernel.

A driver uses this kernel as it uses Linux. `open_variant` opens what "nv-emu:sm_120+595" names.

It never accepts more than hardware does: unsupported features are errors, and everything that hardware
rejects is a fault. It is written from the facts, independently of the driver.

Not here: the ioctls (`emulator.nv.rm`), execution (`emulator.nv.engines`), the table of GPUs
(`emulator.nv.profiles`). Next: `kernel`, the operating system's interface; `machine`, the state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emulator.nv.reports import FindingKind, MachineReport
from emulator.shared.machines import OpenMachines
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from emulator.ir.library import Sanitizers
    from emulator.nv.machine.kernel import NvKernel
    from emulator.nv.profiles import Link
    from emulator.shared.surprises import Rejections

__all__ = ["FindingKind", "MachineReport", "open_machine"]


def open_machine(
    *profiles: str,
    seed: int = 0,
    driver: str = "580",
    filtered: bool = True,
    bar1_bytes: int | None = None,
    checks: Sanitizers | None = None,
    report: Path | None = None,
    surprises: Mapping[str, object] | None = None,
    rejections: Rejections | None = None,
    link: Link | None = None,
) -> NvKernel:
    """Return the kernel of a machine with an emulated GPU for each architecture; "sm_90" if there is none.

    - `profiles` are architectures ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"), and `driver` a
      branch ("570", "580", "590", "595").
    - `filtered`: it allows only the ioctls that the sandbox of nv.md 7 allows.
    - `bar1_bytes` is the size of BAR1; None: all video memory fits.
    - `seed` determines every order that hardware leaves open.
    - `checks` are the sanitizers of the SIMT engine; a finding stops the channel.
    - `report` is a file to which a line of JSON is appended when the machine closes: how exact the executed
      instructions are.
    - `surprises` says what fails that works on a healthy machine (`emulator.shared.surprises`).
    - `rejections` are values of quirks that the machine rejects (`emulator.shared.surprises`).
    - `link` is how several GPUs reach each other's video memory; None: they do not.

    Raises `UnsupportedError` for an unknown profile or `driver`.

    The kernel's `reports` are the findings of the machine. A fatal one is a fault for the driver: the
    channels of a group, or all channels if none caused it, are stopped, and their error notifiers are
    written. The kernel's `machine.refusals` has the reasons of refused ioctls.
    """
    from emulator.nv.machine.kernel import NvKernel  # noqa: PLC0415 - the same
    from emulator.nv.machine.machine import NvMachine  # noqa: PLC0415 - the same
    from emulator.nv.profiles import find_profile, find_version  # noqa: PLC0415 - the same
    from emulator.simt.engine import Settings  # noqa: PLC0415 - the SIMT engine is loaded when a machine is opened

    branch, version = find_version(driver)
    settings = Settings(cache=config().cache)
    if checks is not None:
        settings = replace(settings, checks=checks)
    machine = NvMachine(
        [find_profile(name) for name in profiles or ("sm_90",)],
        branch,
        version,
        filtered=filtered,
        bar1_bytes=bar1_bytes,
        seed=seed,
        settings=settings,
        report=report,
        rejections=rejections,
        link=link,
    )
    machine.surprises.table = surprises or {}
    return NvKernel(machine)


_PROFILES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
_OPTIONS = ("native", "bar256", "checked", "pcie", "apart")


@dataclass(frozen=True, slots=True)
class NvVariant:
    """What a variant's name selects."""

    profiles: tuple[str, ...] = ("sm_90",)
    """An architecture for each GPU."""
    branch: str = "580"
    options: frozenset[str] = frozenset()
    """Those of `_OPTIONS`: a kernel driver that filters no ioctls, BAR1 of 256 MiB, all sanitizers, peers
    over PCIe, no peers."""


def hint() -> str:
    """Return the text of a hint that lists the valid variants."""
    from drivers.nv.layouts.branches import BRANCHES  # noqa: PLC0415 - heavy, and only for errors

    return (
        f"an emulated machine is named by its GPUs ({', '.join(_PROFILES)}; several are in one machine), "
        f"and at most once each by a driver branch ({', '.join(map(str, BRANCHES))}), "
        f"{', '.join(map(repr, _OPTIONS))}, joined by '+': nv-emu:sm_120, nv-emu:sm_90+595, "
        "nv-emu:sm_86+bar256, nv-emu:sm_90+sm_90+pcie"
    )


def check_variant(variant: str | None) -> NvVariant:
    """Return what a variant names.

    None and "" name the default, "sm_90+580". Raises `UsageError`, whose hint lists the valid names, if a
    part is unknown, or repeated and no architecture.
    """
    from drivers.nv.layouts.branches import BRANCHES  # noqa: PLC0415 - loaded when a machine is opened

    parts = [part for part in (variant or "").split("+") if part]
    profiles = tuple(part for part in parts if part in _PROFILES)
    branches = [part for part in parts if part.isdigit()]
    options = frozenset(parts).intersection(_OPTIONS)
    known = len(profiles) + len(branches) + len(options) == len(parts) and options != {"pcie", "apart"}
    if not known or len(branches) > 1 or not {*map(str, BRANCHES)}.issuperset(branches):
        raise UsageError(f"no emulated GPU is called {variant!r}\nhint: {hint()}")
    return NvVariant(profiles or ("sm_90",), (branches or ["580"])[0], options)


def open_variant(variant: str | None, rejections: Rejections | None = None) -> NvKernel:
    """Return the kernel of an emulated machine.

    The parts of a variant are joined by "+": an architecture for each GPU; a driver branch such as "570";
    "native" for an emulated kernel driver that does not filter ioctls; "bar256" for a GPU without resizable
    BAR; "checked" for running kernels with all sanitizers; "pcie" for GPUs that reach each other over PCIe
    where they would over NVLink, "apart" for GPUs that do not reach each other. Without a variant it is
    "sm_90+580". The seed, the report and further checks come from the configuration. `rejections` are values
    of quirks that the machine rejects. Raises `UsageError` as `check_variant`.
    """
    return _open_machine(check_variant(variant), rejections)


def _open_machine(parts: NvVariant, rejections: Rejections | None) -> NvKernel:
    """Return the kernel of a new machine of a variant."""
    from emulator.ir.library import Sanitizers  # noqa: PLC0415 - loaded when a machine is opened
    from emulator.nv.profiles import SMALL_BAR1, link_of  # noqa: PLC0415 - the same

    checked = "checked" in parts.options or config().emu_checked
    return open_machine(
        *parts.profiles,
        driver=parts.branch,
        filtered="native" not in parts.options,
        bar1_bytes=SMALL_BAR1 if "bar256" in parts.options else None,
        seed=config().seed,
        checks=Sanitizers.all(in_step=False) if checked else None,
        report=config().emu_report,
        rejections=rejections,
        link=None if "apart" in parts.options else link_of(parts.profiles, pcie="pcie" in parts.options),
    )


class NvMachines:
    """Returns a machine for each open of a device, as `OpenMachines` says. Thread-safe."""

    def __init__(self) -> None:
        self._open: OpenMachines[NvVariant, NvKernel] = OpenMachines(_open_machine)

    def __call__(self, text: str | None, rejections: Rejections | None = None) -> NvKernel:
        """Return the kernel of a variant's machine; the parameters and errors are those of `open_variant`."""
        variant = check_variant(text)
        return self._open.kernel(variant, rejections, gpus=len(variant.profiles))
