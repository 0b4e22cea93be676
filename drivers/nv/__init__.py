"""NVIDIA GPUs, from Ampere to Blackwell, over the kernel driver's own ioctls.

From below: `layouts` (every number) - `rm`, `uvm` (the two kernel interfaces) - `topology` (what the GPU
is) - `vaspace`, `memory` - `channel`, `ring`, `push`, `encode` - `cubin`, `qmd`, `program` - `faults` -
`device`, `driver`. `choices` holds what public sources leave in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.driver import NvDriver

if TYPE_CHECKING:
    from drivers.kernel import Kernel


def _emulated(variant: str | None) -> Kernel:
    """Return an emulated machine; the only place that names both driver and emulator."""
    from drivers.nv.emu.kernel import EmulatedKernel  # noqa: PLC0415 - heavy, and not part of real hardware
    from drivers.nv.emu.profile import profile_of  # noqa: PLC0415 - the same

    return EmulatedKernel(profile_of(variant))


DRIVER = NvDriver()
"""The real hardware of this machine."""
EMULATED = NvDriver("nv-emu", _emulated)
"""A GPU emulated below the ioctl: "nv-emu", "nv-emu:sm_80+570"."""

__all__ = ["DRIVER", "EMULATED", "NvDriver"]
