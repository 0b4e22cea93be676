"""Targets: one module each, with its dialect of LLVM IR and its limits; `target_of` finds one by arch.

The tables of the targets have the figures of the largest device of an architecture. Another device may have
fewer compute units, shared memory or threads in a workgroup. Then its name for the compiler has options after
the architecture, as in "gfx942:units=38". They are part of every cache key. They change plans, not the
instructions that may be used.

Not here: the choice of the architecture, which the driver makes (`DeviceInfo.arch`), options that change the
instructions (`amdgcn.rows`). Next: `shared.target`, the type of a target; `host.target`, the simplest one.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.targets.shared.target import Target
    from hcq.config import Config
    from hcq.hardware import DeviceInfo

OPTIONS: dict[str, Callable[[Target, int], Target]] = {
    "units": lambda target, value: replace(target, cores=value),
    "shared": lambda target, value: replace(
        target,
        shared_bytes=min(target.shared_bytes, value),
        dynamic_shared_bytes=min(target.dynamic_shared_bytes, value),
    ),
    "threads": lambda target, value: replace(
        target, threads=min(target.threads, 1 << value.bit_length() >> 1)
    ),
}
"""Name of an option -> function that returns the target with the option's value.

The values are the number of compute units, and the most bytes of shared memory and threads of a workgroup."""


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
    """Return the target of an architecture with the options of a device; see `target_of`."""
    target = target_of(arch)
    for option in options:
        key, _, text = option.partition("=")
        if key not in OPTIONS or not text.isdecimal() or not int(text):
            raise UnsupportedError(
                f"{target.arch} has no option {option!r}; try one of {', '.join(OPTIONS)} with =NUMBER"
            )
        target = OPTIONS[key](target, int(text))
    return replace(target, settings=" ".join([target.settings, *options]))


def arch_for(info: DeviceInfo) -> str:
    """Return the name by which `target_of` finds the target of an opened device.

    It is `DeviceInfo.arch` alone if the table is right for the device; else it has options.
    """
    target = target_of(info.arch)
    shared = info.limits.get("max_shared_bytes", 1 << 62)
    threads = info.limits.get("max_threads", 1 << 62)
    options: list[str] = []
    if info.compute_units not in (0, target.cores):
        options.append(f"units={info.compute_units}")
    if shared < max(target.shared_bytes, target.dynamic_shared_bytes):
        options.append(f"shared={shared}")
    if 0 < threads < target.threads:
        options.append(f"threads={threads}")
    return ":".join([info.arch, *options])
