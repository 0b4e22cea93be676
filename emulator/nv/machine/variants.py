"""Emulated machines by variant: what "nv-emu:sm_120+595" names.

Not here: the machine (`emulator.nv.machine`), the driver on top of it (`emulator.devices`). Next:
`emulator.devices`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    from emulator.nv.machine.kernel import NvKernel
    from emulator.shared.surprises import Rejections

_PROFILES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")


def hint() -> str:
    """Return the text of a hint that lists the valid variants."""
    from drivers.nv.layouts.branches import BRANCHES  # noqa: PLC0415 - heavy, and only for errors

    return (
        f"an emulated GPU is named by an architecture ({', '.join(_PROFILES)}), a driver branch "
        f"({', '.join(map(str, BRANCHES))}), 'native' and 'checked', each at most once, joined by '+': "
        "nv-emu:sm_120, nv-emu:sm_90+595, nv-emu:sm_90+580+native"
    )


def check_variant(variant: str | None) -> tuple[str, str, bool, bool]:
    """Return the profile and driver branch that a variant names, and whether it has "native" and "checked".

    None and "" name the default, "sm_90+580". Raises `UsageError`, whose hint lists the valid names, if a
    part is unknown or repeated.
    """
    from drivers.nv.layouts.branches import BRANCHES  # noqa: PLC0415 - loaded when a machine is opened

    parts = [part for part in (variant or "").split("+") if part]
    profiles = [part for part in parts if part.startswith("sm_")]
    branches = [part for part in parts if part.isdigit()]
    rest = [part for part in parts if part not in {*profiles, *branches, "native", "checked"}]
    known = {*_PROFILES, *map(str, BRANCHES)}
    if rest or len(profiles) > 1 or len(branches) > 1 or not known.issuperset(profiles + branches):
        raise UsageError(f"no emulated GPU is called {variant!r}\nhint: {hint()}")
    profile, branch = (profiles or ["sm_90"])[0], (branches or ["580"])[0]
    return profile, branch, "native" in parts, "checked" in parts


def open_variant(variant: str | None, rejections: Rejections | None = None) -> NvKernel:
    """Return the kernel of an emulated machine.

    The parts of a variant are joined by "+": an architecture (`_PROFILES`); a driver branch such as "570";
    "native" for an emulated kernel driver that does not filter ioctls; "checked" for running kernels with all
    sanitizers. Without a variant it is "sm_90+580". The seed, the report and further checks come from the
    configuration. `rejections` are values of quirks that the machine rejects. Raises `UsageError` as
    `check_variant`.
    """
    from emulator.ir.library import Sanitizers  # noqa: PLC0415 - loaded when a machine is opened
    from emulator.nv.machine import open_machine  # noqa: PLC0415 - the same

    profile, branch, native, checked = check_variant(variant)
    return open_machine(
        profile,
        driver=branch,
        filtered=not native,
        seed=config().seed,
        checks=Sanitizers.all(in_step=False) if checked or config().emu_checked else None,
        report=config().emu_report,
        rejections=rejections,
    )
