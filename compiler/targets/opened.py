"""Targets of opened devices, which may have less than the tables say.

The tables of the targets have the figures of the largest device of an architecture. Another device may have
fewer compute units, shared memory or threads in a workgroup. Then its name for the compiler has options after
the architecture, as in "gfx942:units=38". They are part of every cache key. They change plans, not the
instructions that may be used.

Not here: the tables (`compiler.targets.nvptx.target`, `compiler.targets.amdgcn.rows`), options that change
the instructions (`compiler.targets.amdgcn.rows`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.targets.shared.target import Target
    from hcq.hardware import DeviceInfo


def _units(target: Target, value: int) -> Target:
    return replace(target, cores=value)


def _shared(target: Target, value: int) -> Target:
    dynamic = min(target.dynamic_shared_bytes, value)
    return replace(target, shared_bytes=min(target.shared_bytes, value), dynamic_shared_bytes=dynamic)


def _threads(target: Target, value: int) -> Target:
    return replace(target, threads=min(target.threads, 1 << value.bit_length() >> 1))


OPTIONS: dict[str, Callable[[Target, int], Target]] = {
    "units": _units, "shared": _shared, "threads": _threads,
}  # fmt: skip
"""Name of an option -> function that returns the target with the option's value.

The values are the number of compute units, and the most bytes of shared memory and threads of a workgroup."""


def name_of(info: DeviceInfo, target: Target) -> str:
    """Return the name by which `target_of` finds the target of a device, given that of its architecture.

    It is the architecture alone if the table is right for the device.
    """
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


def joined(target: Target, options: tuple[str, ...]) -> Target:
    """Return a target with the options of a name. Raises `UnsupportedError` for an unknown option."""
    for option in options:
        key, _, text = option.partition("=")
        if key not in OPTIONS or not text.isdecimal() or not int(text):
            raise UnsupportedError(
                f"{target.arch} has no option {option!r}; try one of {', '.join(OPTIONS)} with =NUMBER"
            )
        target = OPTIONS[key](target, int(text))
    return replace(target, settings=" ".join([target.settings, *options]))
