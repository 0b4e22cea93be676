"""Targets: one module each, with its dialect of LLVM IR and its limits; `target_of` finds one by arch.

Not here: the choice of the architecture, which the driver makes (`DeviceInfo.arch`). Next: `base`, the type
of a target; `host`, the simplest one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from compiler.targets.base import Target


def target_of(arch: str) -> Target:
    """Return the target of an architecture: `x86_64-...`, `aarch64-...`, `sm_...` (NVIDIA), `gfx...` (AMD).

    Raises UnsupportedError for any other.
    """
    if arch.startswith(("x86_64-", "aarch64-")):
        from compiler.targets import host  # noqa: PLC0415  # only the one that is needed

        return host.target(arch)
    if arch.startswith("sm_"):
        from compiler.targets.nvptx import target  # noqa: PLC0415

        return target.target(arch)
    if arch.startswith("gfx"):
        from compiler.targets.amdgcn import target as amdgcn  # noqa: PLC0415

        return amdgcn.target(arch)
    raise UnsupportedError(f"no compiler target for arch {arch!r}; there are x86_64-*, aarch64-*, sm_*, gfx*")
