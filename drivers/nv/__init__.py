"""NVIDIA GPUs, from Ampere to Blackwell, over the kernel driver's own ioctls.

In order of dependence: `layouts` (every number) - `rm`, `uvm` (the two kernel interfaces) - `topology`
(queries of the GPU) - `vaspace`, `memory` - `channel`, `ring`, `push`, `encode` - `cubin`, `qmd`, `program` -
`faults` - `device`, `driver`. `quirks` holds the values that public sources leave in doubt.

Not here: the emulated GPU (`drivers.nv.emu`), kernels (`compiler.targets.nvptx`). Next: docs/nv.md; `device`,
where the parts meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.driver import NvDriver
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    from drivers.kernel import Kernel


_PROFILES = ("sm_80", "sm_90", "sm_120")


def _variants() -> str:
    from drivers.nv.layouts.branches import BRANCHES  # noqa: PLC0415 - heavy, and only for errors

    return (
        f"an emulated GPU is named by an architecture ({', '.join(_PROFILES)}), a driver branch "
        f"({', '.join(map(str, BRANCHES))}), 'native' and 'checked', each at most once, joined by '+': "
        "nv-emu:sm_120, nv-emu:sm_90+595, nv-emu:sm_90+580+native"
    )


def check_variant(variant: str | None) -> tuple[str, str, bool, bool]:
    """Return the profile, driver branch, and whether "native" and "checked", that a variant names.

    Raises `UsageError` that names what there is.
    """
    from drivers.nv.layouts.branches import BRANCHES  # noqa: PLC0415 - heavy, and not part of real hardware

    parts = [part for part in (variant or "").split("+") if part]
    profiles = [part for part in parts if part.startswith("sm_")]
    branches = [part for part in parts if part.isdigit()]
    rest = [part for part in parts if part not in {*profiles, *branches, "native", "checked"}]
    known = {*_PROFILES, *map(str, BRANCHES)}
    if rest or len(profiles) > 1 or len(branches) > 1 or not known.issuperset(profiles + branches):
        raise UsageError(f"no emulated GPU is called {variant!r}\nhint: {_variants()}")
    profile, branch = (profiles or ["sm_90"])[0], (branches or ["580"])[0]
    return profile, branch, "native" in parts, "checked" in parts


def _emulated(variant: str | None) -> Kernel:
    """Return an emulated machine; the one place that names both driver and emulator.

    A variant is made of "sm_80", "sm_90" or "sm_120", a driver branch such as "570", "native" for a
    kernel whose ioctls are not filtered, and "checked" for one that runs kernels with all sanitizers, joined
    by "+". Default: "sm_90+580".
    """
    from drivers.emu.simt.library import Sanitizers  # noqa: PLC0415 - heavy, and not part of real hardware
    from drivers.nv.emu.machine import open_machine  # noqa: PLC0415 - the same

    profile, branch, native, checked = check_variant(variant)
    return open_machine(
        profile,
        driver=branch,
        filtered=not native,
        seed=config().seed,
        checks=Sanitizers.all() if checked else None,
    )


DRIVER = NvDriver()
"""The real hardware of this machine."""
EMULATED = NvDriver("nv-emu", _emulated, hint=lambda: f"a number alone is the GPU's; {_variants()}")
"""A GPU emulated below the ioctl: "nv-emu", "nv-emu:sm_80+570"."""

__all__ = ["DRIVER", "EMULATED", "NvDriver", "check_variant"]
