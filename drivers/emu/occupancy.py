"""Occupancy: how many workgroups and warps of a kernel a multiprocessor holds at once.

The limits are published ones; docs/counters.md names the source of each. On AMD GPUs of RDNA the unit is a
workgroup processor (two compute units), on CDNA a compute unit.

Not here: the rates of GPUs (`chips`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hcq.counters import Occupancy

if TYPE_CHECKING:
    from drivers.emu.counts import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one multiprocessor has."""

    warps: int
    groups: int
    parts: int
    """Schedulers (SIMDs) that the warps are divided among, each with its share of the registers."""
    registers: int
    """Registers of a lane that a part has for all of its warps."""
    granule: int
    """Registers of a lane are allocated in multiples of it."""
    shared: int
    """Bytes of shared memory."""
    shared_granule: int
    reserved: int = 0
    """Bytes of shared memory that the system takes in each workgroup."""


def _nvidia(warps: int, groups: int, shared_kib: int) -> Limits:
    return Limits(
        warps=warps, groups=groups, parts=4, registers=65536 // 4 // 32, granule=8, shared=shared_kib << 10,
        shared_granule=128, reserved=1024,
    )  # fmt: skip


_RDNA: Final = Limits(
    warps=64, groups=32, parts=4, registers=1536, granule=24, shared=128 << 10, shared_granule=1024
)
LIMITS: Final = {
    "sm_80": _nvidia(64, 32, 164),
    "sm_86": _nvidia(48, 16, 100),
    "sm_89": _nvidia(48, 24, 100),
    "sm_90": _nvidia(64, 32, 228),
    "sm_120": _nvidia(48, 24, 100),
    "gfx942": Limits(
        warps=32, groups=32, parts=4, registers=512, granule=8, shared=64 << 10, shared_granule=512
    ),
    "gfx1100": _RDNA,
    "gfx1201": _RDNA,
}
"""Architecture -> the limits of its multiprocessor."""


def occupancy(what: Resources, threads: int) -> Occupancy | None:
    """Return the occupancy of a kernel with workgroups of `threads`; None if nothing is known of its GPU."""
    limits = LIMITS.get(what.arch)
    if limits is None:
        return None
    warps = -(-threads // what.lanes)
    wide = what.lanes // 32 if what.arch.startswith("gfx1") else 1
    granule = limits.granule // wide
    allocated = max(-(-what.registers // granule), 1) * granule * wide
    held = limits.registers // allocated * limits.parts
    shared = -(-(what.shared_bytes + limits.reserved) // limits.shared_granule) * limits.shared_granule
    most = {
        "workgroups": limits.groups,
        "warps": limits.warps // warps,
        "registers": held // warps,
        "shared memory": limits.shared // shared if shared else limits.groups,
    }
    groups = min(most.values())
    limited = tuple(name for name, count in most.items() if count == groups)
    return Occupancy(groups=groups, warps=groups * warps, most_warps=limits.warps, limits=limited)
