"""Targets: one module each, with its dialect of LLVM IR and its limits; `target_of` finds one by arch.

Not here: the choice of the architecture, which the driver makes (`DeviceInfo.arch`). Next: `shared.target`,
the type of a target; `host.target`, the simplest one; `opened`, targets of devices that differ from their
architecture.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from compiler.targets.opened import joined, name_of
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from compiler.targets.shared.target import Target
    from hcq.config import Config
    from hcq.hardware import DeviceInfo


def target_of(arch: str, settings: Config | None = None) -> Target:
    """Return the target of an architecture: `x86_64-...`, `aarch64-...`, `sm_...` (NVIDIA), `gfx...` (AMD).

    It may have options of an opened device, as `arch_for` writes them. `settings` are those of the process,
    if the caller has them. Raises `UnsupportedError` for an unknown architecture or option.
    """
    name, *options = arch.split(":")
    own = tuple([option for option in options if "=" in option])
    if own:
        return _joined(":".join([name, *[o for o in options if "=" not in o]]), own)
    if "-" in name:  # machine-processor
        from compiler.targets.host import target as host  # noqa: PLC0415  # only the one that is needed

        return host.target(arch, settings)
    if arch.startswith("sm_"):
        from compiler.targets.nvptx import target  # noqa: PLC0415

        return target.target(arch)
    if arch.startswith("gfx"):
        from compiler.targets.amdgcn import target as amdgcn  # noqa: PLC0415

        return amdgcn.target(arch)
    raise UnsupportedError(f"no compiler target for arch {arch!r}; there are x86_64-*, aarch64-*, sm_*, gfx*")


@functools.cache
def _joined(arch: str, options: tuple[str, ...]) -> Target:
    """Return the target of an architecture with the options of a device."""
    return joined(target_of(arch), options)


def arch_for(info: DeviceInfo) -> str:
    """Return the name of the target of an opened device: `DeviceInfo.arch`, with options if it has any."""
    return name_of(info, target_of(info.arch))
