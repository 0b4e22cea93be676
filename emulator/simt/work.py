"""The work of a launch: shape, parameters, memory sizes and options, and the memory layout that follows from the shape.

Launches of one shape share a layout of their workgroups' memory (`LaunchLayout`); a program keeps some.

Not here: the memory that generated code runs in (`running`). Next: `launch`, which runs the work.
"""

# ruff: noqa: E501 - summaries that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from emulator.ir.clusters import MOST_GROUPS
from emulator.ir.state import GROUP_HEAD, THREAD, warp_registers_at
from emulator.sanitizers.group_order import known_bytes
from emulator.sanitizers.sanitize import shadow_bytes
from emulator.simt.deadline import thread_seconds
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emulator.simt.engine import TranslatedProgram

Dim3 = tuple[int, int, int]
SHARED_WINDOW = 0x7294_0000_0000
LOCAL_WINDOW = 0x7293_0000_0000
"""Generic addresses of shared and of local memory, unless the options state others."""
PARAM_WINDOW = 1 << 60
"""Generic address of the first parameter, above all other addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Options of a launch; none of them changes the result of a kernel without races."""

    threads: int = 0
    """The most host threads; 0: one for each core, or one alone for a small launch."""
    tier: Literal["auto", "quick", "optimised"] = "auto"
    warp_order: Literal["forward", "reverse"] | int = "forward"
    """The order in which the warps of a cluster take turns; a number seeds a random order."""
    group_seed: int = 0
    """The seed of a random order in which workgroups start; 0: the order of their numbers."""
    timeout_s: float = 60.0
    """Limit of the CPU time of a host thread in seconds; a kernel that takes more is ended with a HANG report."""
    clock: Callable[[int], float] = thread_seconds
    """Returns the CPU time in seconds of a thread of this process, given its `threading.get_ident`."""
    shared_window: int = SHARED_WINDOW
    """Generic address of shared memory."""
    local_window: int = LOCAL_WINDOW
    """Generic address of local memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchWork:
    """One launch: grid, workgroup, parameters and memory sizes."""

    grid: Dim3
    block: Dim3
    params: bytes
    shared_bytes: int
    """Shared memory of a workgroup in bytes, static and dynamic together."""
    dynamic_shared: int = 0
    """The dynamic part of `shared_bytes`, which the kernel can read as a special register."""
    local_bytes: int = 0
    """Local memory of a thread in bytes."""
    visible_grid: Dim3 | None = None
    """The grid's size that the kernel reads, if it comes from constant bank 0; None: `grid`."""
    visible_block: Dim3 | None = None
    """The workgroup's size that the kernel reads; None: `block`."""
    last: Dim3 | None = None
    """The size of the last workgroup along each axis, which may be smaller; None: `block`."""
    cluster: Dim3 | None = None
    """The workgroups of a cluster along each axis; None: a launch without clusters."""
    registers: int = 0
    """Registers of a thread at the start, a multiple of 8; 0: unknown, and then no instruction waits for registers."""
    addressed_params: int = 0
    """The number of bytes at the start of `params` that kernels can read at addresses from `param_address` on."""
    param_address: int = PARAM_WINDOW
    """Generic address of the first parameter."""

    @property
    def cluster_groups(self) -> int:
        """The number of workgroups of a cluster; 1 without clusters."""
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z

    @property
    def threads(self) -> int:
        """The number of threads of a workgroup."""
        return self.block[0] * self.block[1] * self.block[2]

    def block_of(self, group: int) -> Dim3:
        """Return the size of the workgroup with a flat number."""
        whole, last = self.block, self.last
        if last is None:
            return whole
        at = unflatten(group, self.grid)
        x, y, z = (last[i] if at[i] + 1 == self.grid[i] else whole[i] for i in range(3))
        return x, y, z

    @property
    def groups(self) -> int:
        """The number of workgroups of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def unflatten(flat: int, shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the (x, y, z) index of a workgroup or thread from its flat number; x varies fastest."""
    return flat % shape[0], flat // shape[0] % shape[1], flat // shape[0] // shape[1]


def thread_named(work: LaunchWork, group: int, thread: int) -> str:
    """Return the name of a thread in reports, from the flat numbers of its workgroup and of the thread in it."""
    return f"thread {unflatten(thread, work.block_of(group))} of block {unflatten(group, work.grid)}"


def check(work: LaunchWork) -> None:
    """Raise `UsageError` if the shape of a launch is invalid.

    Invalid are: no thread; 2**32 workgroups or more; more than 1024 threads in a workgroup; a grid that is no whole number
    of clusters along each axis; clusters of more than 16 workgroups.
    """
    if work.groups <= 0 or work.threads <= 0:
        raise UsageError(f"a grid of {work.grid} blocks of {work.block} threads has no thread")
    if work.groups >= 1 << 32 or work.threads > 1024:
        raise UsageError(
            f"a grid of {work.grid} blocks of {work.block} threads is too large: 2^32 blocks, 1024 threads a block"
        )
    if work.cluster is None:
        return
    if any(size < 1 or count % size for count, size in zip(work.grid, work.cluster, strict=True)):
        raise UsageError(
            f"a grid of {work.grid} blocks is no whole number of clusters of {work.cluster} blocks; try a multiple along each axis"
        )
    if work.cluster_groups > MOST_GROUPS:
        raise UsageError(
            f"clusters of {work.cluster} are {work.cluster_groups} blocks; wanted {MOST_GROUPS} at most"
        )


ARENA_BYTES = 256 << 20
"""Bytes of memory for the resident workgroups of one host thread."""
_MOST_RESIDENT = 2048
"""The most resident workgroups of one host thread."""
_ENDLESS = 1 << 62
"""A number of turns that no launch reaches."""


@dataclass(frozen=True, slots=True)
class LaunchLayout:
    """The data that all launches of a program with one shape share."""

    record: bytes
    """A `state.THREAD` record, without the addresses and orders of one launch."""
    shape: tuple[object, ...]
    """The values on which the thread ids in a slot depend (`running.GroupMemory.prepare`)."""
    slot_bytes: int
    """Bytes of a workgroup's slot."""
    slots: int
    """The most clusters that are resident at the same time on a host thread, at least 1."""
    size: int
    """Workgroups of a cluster."""
    parties: int
    """Warps of a cluster."""
    states: tuple[int, ...]
    """The byte offset of each party's state in the memory of a cluster."""


def plan_of(program: TranslatedProgram, work: LaunchWork, shared_window: int, local_window: int) -> LaunchLayout:
    """Return the layout of a launch, which depends on all of `work` except parameters, from the program's if it has it.

    Raises `UsageError` if one cluster does not fit `ARENA_BYTES`.
    """
    key = (
        work.grid, work.block, work.shared_bytes, work.dynamic_shared, work.local_bytes, work.visible_grid, work.visible_block,
        work.last, work.cluster, work.registers, shared_window, local_window,
    )  # fmt: skip
    found = program.plans.get(key)
    if not isinstance(found, LaunchLayout):
        found = _new_plan(program, work, shared_window, local_window)
        program.keep_plan(key, found)
    return found


def _new_plan(program: TranslatedProgram, work: LaunchWork, shared_window: int, local_window: int) -> LaunchLayout:
    """Return the memory layout of a launch. Raises `UsageError` if a cluster does not fit."""
    warps, size = warps_of(program, work), work.cluster_groups
    lanes, checks = program.engine.settings.lanes, program.engine.settings.checks
    parties = warps * size
    warp_bytes = _up(warp_registers_at(lanes) + program.translation.state_bytes, 64)
    shared_at = _up(GROUP_HEAD + warps * warp_bytes, 1024)
    local_bytes = _up(work.local_bytes, 16)
    local_at = _up(shared_at + work.shared_bytes, 64)
    shadow_at = _up(local_at + local_bytes * lanes * warps, 64)
    slot_bytes = _up(
        shadow_at + shadow_bytes(checks, warps, work.shared_bytes, local_bytes * lanes * warps, size), 1024
    )
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
    states = tuple(
        GROUP_HEAD + party % warps * warp_bytes + party // warps * slot_bytes for party in range(parties)
    )
    shape = lanes, work.block, warp_bytes, slot_bytes
    return LaunchLayout(bytes(THREAD.pack(**common)), shape, slot_bytes, slots, size, parties, states)


def warps_of(program: TranslatedProgram, work: LaunchWork) -> int:
    """Return the number of warps of a workgroup."""
    return -(-work.threads // program.engine.settings.lanes)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
