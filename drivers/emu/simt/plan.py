"""The part of a launch that depends on its shape alone: sizes and places of what its workgroups occupy.

Launches of one shape share it; a program keeps some. Not here: memory, addresses, orders (`running`).
"""

# ruff: noqa: E501 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.emu.sanitizers.group_order import known_bytes
from drivers.emu.sanitizers.sanitize import shadow_bytes
from drivers.emu.simt.state import GROUP_HEAD, THREAD, warp_registers_at
from hcq.errors import UsageError

if TYPE_CHECKING:
    from drivers.emu.simt.engine import Program
    from drivers.emu.simt.work import Work

ARENA_BYTES = 256 << 20
"""Memory for the resident workgroups of one host thread."""
_MOST_RESIDENT = 2048
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Plan:
    """What all launches of a program with one shape share."""

    record: bytes
    """The record of a host thread, without the addresses and orders of one launch."""
    shape: tuple[object, ...]
    slot_bytes: int
    slots: int
    """Clusters that are resident at the same time."""
    size: int
    """Workgroups of a cluster."""
    parties: int
    states: tuple[int, ...]
    """The offset of each party's state in the memory of a cluster."""


def plan_of(program: Program, work: Work, shared_window: int, local_window: int) -> Plan:
    """Return the plan of a launch, which depends on all of `work` but its parameters."""
    key = (
        work.grid, work.block, work.shared_bytes, work.dynamic_shared, work.local_bytes, work.visible_grid, work.visible_block,
        work.last, work.cluster, work.registers, shared_window, local_window,
    )  # fmt: skip
    found = program.plans.get(key)
    if not isinstance(found, Plan):
        found = _new_plan(program, work, shared_window, local_window)
        program.keep_plan(key, found)
    return found


def _new_plan(program: Program, work: Work, shared_window: int, local_window: int) -> Plan:
    warps, size = warps_of(program, work), work.cluster_groups
    lanes, checks = program.engine.settings.lanes, program.engine.settings.checks
    parties = warps * size
    warp_bytes = _up(warp_registers_at(lanes) + program.translation.state_bytes, 64)
    shared_at = _up(GROUP_HEAD + warps * warp_bytes, 1024)
    local_bytes = _up(work.local_bytes, 16)
    local_at = _up(shared_at + work.shared_bytes, 64)
    shadow_at = _up(local_at + local_bytes * lanes * warps, 64)
    slot_bytes = _up(shadow_at + shadow_bytes(checks, warps, work.shared_bytes, local_bytes * lanes * warps, size), 1024)
    slots = min(work.groups, ARENA_BYTES // slot_bytes, _MOST_RESIDENT) // size
    if not slots:
        raise UsageError(
            f"{size} workgroups of {slot_bytes} bytes of state do not fit the emulator's {ARENA_BYTES} bytes"
        )
    known_step = known_bytes(work.groups)[1]
    common = {
        "shared_window": shared_window, "local_window": local_window,
        "grid_x": work.grid[0], "grid_y": work.grid[1], "grid_z": work.grid[2], "block_x": work.block[0], "block_y": work.block[1],
        "block_z": work.block[2], "threads": work.threads, "warps": warps, "groups": work.groups,
        "shared_bytes": work.shared_bytes, "local_bytes": local_bytes, "slot_bytes": slot_bytes,
        "slot_limit": slots, "warp_bytes": warp_bytes, "warps_at": GROUP_HEAD, "shared_at": shared_at, "local_at": local_at,
        "shadow_at": shadow_at, "dynamic_shared": work.dynamic_shared, "fuel": _ENDLESS,
        "known_step": known_step, "cluster": size, "explicit_cluster": work.cluster is not None,
        "parties": parties, "unit_bytes": slot_bytes * size, "registers": work.registers,
    }  # fmt: skip
    for shape_of, visible in (
        ("grid", work.visible_grid or work.grid),
        ("block", work.visible_block or work.block),
    ):
        common |= {f"visible_{shape_of}_{axis}": visible[i] for i, axis in enumerate("xyz")}
    common |= {f"last_{axis}": (work.last or work.block)[i] for i, axis in enumerate("xyz")}
    common |= {f"cluster_{axis}": (work.cluster or (1, 1, 1))[i] for i, axis in enumerate("xyz")}
    states = tuple(GROUP_HEAD + party % warps * warp_bytes + party // warps * slot_bytes for party in range(parties))
    shape = lanes, work.block, warp_bytes, slot_bytes
    return Plan(bytes(THREAD.pack(**common)), shape, slot_bytes, slots, size, parties, states)


def warps_of(program: Program, work: Work) -> int:
    """Return the number of warps of a workgroup."""
    return -(-work.threads // program.engine.settings.lanes)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
