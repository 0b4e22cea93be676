"""The memory of a launch in flight: the records that generated code reads, resident workgroups, counters.

Not here: who runs it (`launch`, `slices`), the fields of the records (`state`).
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

import ctypes
import mmap
import queue
import random
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.emu.sanitizers.group_order import known_bytes
from drivers.emu.sanitizers.sanitize import shadow_bytes
from drivers.emu.simt.counting import ENTRIES_AT, ENTRY_BYTES, TOUCHED_BYTES
from drivers.emu.simt.state import (
    GROUP_HEAD,
    LAUNCH,
    MAP_ENTRY,
    MAP_READ,
    RELEASE_BYTES,
    REPORT,
    REPORT_LIMIT,
    REPORTS_HEAD,
    SITE,
    THREAD,
    warp_registers_at,
)
from drivers.emu.simt.work import PARAM_WINDOW
from hcq.errors import UsageError

if TYPE_CHECKING:
    from drivers.emu.memory import AddressSpace
    from drivers.emu.simt.engine import Program
    from drivers.emu.simt.work import Options, Work

_ARENA_BYTES = 256 << 20
_MOST_RESIDENT = 2048
_PARAM_ALIGN = 128
_MAP_NORESERVE = 0x4000  # Linux; Python names it since 3.13
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class RawCounts:
    """The counters of a launch as generated code left them."""

    slots: tuple[int, ...]
    touched: tuple[tuple[int, int], ...]
    """Units of global memory that were read and that were written: a bit each, 64 of each in an item."""
    lost: int
    """Units that the table had no room for."""


class GroupMemory:
    """Memory for the resident workgroups of one host thread; it is reused between launches."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(
            -1, _ARENA_BYTES + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        )
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._shape: tuple[object, ...] = ()
        self._slots = 0
        """Number of slots that were reset for that shape."""

    def prepare(self, shape: tuple[object, ...], slot_bytes: int, slots: int) -> None:
        """Reset all slots if their shape changes, else those that were not reset for this shape yet."""
        if shape != self._shape:
            self._shape, self._slots = shape, 0
        for i in range(self._slots, slots):
            struct.pack_into("<Q", self.memory, i * slot_bytes, 0)
        self._slots = max(self._slots, slots)


_idle_memories: queue.SimpleQueue[GroupMemory] = queue.SimpleQueue()


def _take_memory() -> GroupMemory:
    try:
        return _idle_memories.get_nowait()
    except queue.Empty:
        return GroupMemory()


@dataclass(slots=True)
class Running:
    """The memory of a launch in flight. It references everything that generated code has pointers to."""

    launch: ctypes.Array[ctypes.c_char]
    reports: ctypes.Array[ctypes.c_char]
    keep: list[object] = field(default_factory=list)
    threads: list[ctypes.Array[ctypes.c_char]] = field(default_factory=list)
    """The `state.THREAD` record of each host thread."""
    sites: list[ctypes.Array[ctypes.c_char]] = field(default_factory=list)
    """The `state.SITE` records of each host thread, one for each instruction."""
    version: int = 0
    """The version of the map of allocations that the records point to."""
    param_entry: bytes = b""
    """The entry of the parameters in the map of allocations, if they have addresses."""
    memories: list[GroupMemory] = field(default_factory=list)
    counts: ctypes.Array[ctypes.c_uint64] | None = None
    """The slots of a counted launch."""
    touched: mmap.mmap | None = None
    """Its table of touched memory (`counting`)."""

    def read_counts(self) -> RawCounts | None:
        """Return the counters; None for a launch that does not count. No host thread may be running."""
        if self.counts is None or self.touched is None:
            return None
        used, lost = struct.unpack_from("<QQ", self.touched)
        end = ENTRIES_AT + used * ENTRY_BYTES
        marks = struct.iter_unpack("<8xQQ8x", self.touched[ENTRIES_AT:end])
        return RawCounts(tuple(self.counts), tuple((read, written) for read, written in marks), lost)

    def stop(self) -> None:
        """Set the stop flag; host threads return at their next check of it."""
        struct.pack_into("<I", self.launch, LAUNCH.offsets["stop"], 1)

    def use(self, entry: int) -> None:
        """Make every warp's next turn run the code at `entry`, another tier of the same kernel."""
        for record in self.threads:
            struct.pack_into("<Q", record, THREAD.offsets["entry"], entry)

    def refresh_map(self, memory: AddressSpace, *, shadows: bool) -> None:
        """Update the records if the map of allocations has changed. No host thread may be running."""
        if self.version == memory.version:
            return
        self.version = memory.version
        entries, mapped = memory.snapshot(shadows=shadows)
        entries += self.param_entry
        table = ctypes.create_string_buffer(entries or bytes(MAP_ENTRY.size))
        self.keep += [table, mapped]
        for record in self.threads:
            struct.pack_into("<Q", record, THREAD.offsets["map"], address_of(table))
            struct.pack_into("<I", record, THREAD.offsets["map_count"], len(entries) // MAP_ENTRY.size)
        for sites in self.sites:
            for at in range(0, len(sites), SITE.size):
                struct.pack_into("<QQ", sites, at + SITE.offsets["start"], 0, 0)

    def return_memories(self) -> None:
        """Return the memory of the workgroups to the pool, for other launches."""
        for memory in self.memories:
            _idle_memories.put(memory)
        self.memories.clear()


def warps_of(program: Program, work: Work) -> int:
    """Return the number of warps of a workgroup."""
    return -(-work.threads // program.engine.settings.lanes)


@dataclass(frozen=True, slots=True)
class _Slot:
    """The layout of the memory of one resident workgroup: its parts by their offsets, in bytes."""

    warp_bytes: int
    shared_at: int
    local_at: int
    local_bytes: int
    """Local memory of a thread, rounded up."""
    shadow_at: int
    size: int


def _slot(program: Program, work: Work) -> _Slot:
    lanes, checks = program.engine.settings.lanes, program.engine.settings.checks
    warps = warps_of(program, work)
    warp_bytes = _up(warp_registers_at(lanes) + program.translation.state_bytes, 64)
    shared_at = _up(GROUP_HEAD + warps * warp_bytes, 1024)
    local_bytes = _up(work.local_bytes, 16)
    local_at = _up(shared_at + work.shared_bytes, 64)
    all_local = local_bytes * lanes * warps
    shadow_at = _up(local_at + all_local, 64)
    shadows = shadow_bytes(checks, warps, work.shared_bytes, all_local, work.cluster_groups)
    return _Slot(warp_bytes, shared_at, local_at, local_bytes, shadow_at, _up(shadow_at + shadows, 1024))


def _slots(work: Work, slot: _Slot) -> int:
    """Return how many clusters are resident at most; a workgroup without clusters is one."""
    groups = work.cluster_groups
    slots = min(work.groups, _ARENA_BYTES // slot.size, _MOST_RESIDENT) // groups
    if not slots:
        raise UsageError(
            f"{groups} workgroups of {slot.size} bytes of state do not fit the emulator's {_ARENA_BYTES} bytes"
        )
    return slots


def _warp_order(work: Work, options: Options, warps: int, slot: _Slot) -> ctypes.Array[ctypes.c_uint32]:
    """Return the order in which the warps of a cluster take turns, as offsets from its first slot."""
    order = list(range(warps * work.cluster_groups))
    if options.warp_order == "reverse":
        order.reverse()
    elif options.warp_order != "forward":
        random.Random(options.warp_order).shuffle(order)  # noqa: S311 - an order, not a secret
    states = (
        GROUP_HEAD + party % warps * slot.warp_bytes + party // warps * slot.size for party in order
    )
    return (ctypes.c_uint32 * len(order))(*states)


def prepare(
    program: Program, work: Work, memory: AddressSpace, options: Options, entry: int, count: int
) -> Running:
    """Allocate and fill the records of a launch for `count` host threads, which start at address `entry`."""
    warps, slot = warps_of(program, work), _slot(program, work)
    slots, size = _slots(work, slot), work.cluster_groups
    orders = _warp_order(work, options, warps, slot)
    step, first = _group_order(work.groups // size, options.group_seed)
    running = Running(
        ctypes.create_string_buffer(LAUNCH.size),
        ctypes.create_string_buffer(REPORTS_HEAD + REPORT_LIMIT * REPORT.size),
    )
    running.keep.append(orders)
    common = {
        "launch": address_of(running.launch), "entry": entry, "reports": address_of(running.reports),
        "warp_order": address_of(orders), "shared_window": options.shared_window, "local_window": options.local_window,
        "grid_x": work.grid[0], "grid_y": work.grid[1], "grid_z": work.grid[2], "block_x": work.block[0], "block_y": work.block[1],
        "block_z": work.block[2], "threads": work.threads, "warps": warps, "groups": work.groups, "group_step": step,
        "group_first": first, "shared_bytes": work.shared_bytes, "local_bytes": slot.local_bytes, "slot_bytes": slot.size,
        "slot_limit": slots, "warp_bytes": slot.warp_bytes, "warps_at": GROUP_HEAD, "shared_at": slot.shared_at,
        "local_at": slot.local_at, "shadow_at": slot.shadow_at, "dynamic_shared": work.dynamic_shared, "fuel": _ENDLESS,
        "cluster": size, "explicit_cluster": work.cluster is not None, "parties": warps * size,
        "unit_bytes": slot.size * size, "registers": work.registers,
    }  # fmt: skip
    common |= _map_fields(running, program, work, memory) | _shape_fields(work) | _check_fields(running, program, work)
    shape = (program.engine.settings.lanes, work.block, slot.warp_bytes, slot.size)
    for _ in range(count):
        resident = _take_memory()
        resident.prepare(shape, slot.size, slots * size)
        running.memories.append(resident)
        _add_thread(running, program, common, resident, slots)
    return running


def _map_fields(running: Running, program: Program, work: Work, memory: AddressSpace) -> dict[str, int]:
    """Return the fields of a host thread's record about parameters and the map of allocations."""
    running.version = memory.version
    entries, mapped = memory.snapshot(shadows=program.engine.settings.checks.shadows)
    params = _placed_params(work)
    if work.addressed_params:
        delta = ctypes.addressof(params) - PARAM_WINDOW & (1 << 64) - 1
        packed = MAP_ENTRY.pack(start=PARAM_WINDOW, size=work.addressed_params, delta=delta, flags=MAP_READ)
        running.param_entry = bytes(packed)  # the highest address of all, so the table stays sorted
    entries += running.param_entry
    table = ctypes.create_string_buffer(entries or bytes(MAP_ENTRY.size))
    running.keep += [table, mapped, params]
    return {
        "params": address_of(params), "map": address_of(table), "param_bytes": len(work.params),
        "map_count": len(entries) // MAP_ENTRY.size,
    }  # fmt: skip


def _shape_fields(work: Work) -> dict[str, int]:
    """Return the fields of a host thread's record that have three axes and a default."""
    shapes = {
        "visible_grid": work.visible_grid or work.grid, "visible_block": work.visible_block or work.block,
        "last": work.last or work.block, "cluster": work.cluster or (1, 1, 1),
    }  # fmt: skip
    return {f"{name}_{axis}": size[i] for name, size in shapes.items() for i, axis in enumerate("xyz")}


def _check_fields(running: Running, program: Program, work: Work) -> dict[str, int]:
    """Return the fields of a host thread's record for checks and counters, with the memory that they need."""
    bytes_known, step = known_bytes(work.groups)
    fields = {"releases": 0, "known": 0, "known_step": step}
    if program.engine.settings.checks.global_races:
        fields["releases"] = _zeros(running, RELEASE_BYTES * work.groups)
        fields["known"] = _zeros(running, bytes_known)
    counted = program.translation.counted
    if counted is not None:
        running.counts = (ctypes.c_uint64 * max(counted.slots, 1))()
        running.touched = _zero_pages(TOUCHED_BYTES)
        fields["counts"] = ctypes.addressof(running.counts)
        fields["touched"] = ctypes.addressof(ctypes.c_char.from_buffer(running.touched))
    return fields


def _add_thread(
    running: Running, program: Program, common: dict[str, int], resident: GroupMemory, slots: int
) -> None:
    """Add the records of one host thread."""
    sites = ctypes.create_string_buffer(max(len(program.translation.sites), 1) * SITE.size)
    sink, places = ctypes.create_string_buffer(64), (ctypes.c_uint32 * slots)()
    running.sites.append(sites)
    running.keep += [sink, places]
    own = {
        "sites": address_of(sites), "slots": resident.address, "sink": address_of(sink), "queue": address_of(places),
    }  # fmt: skip
    running.threads.append(ctypes.create_string_buffer(bytes(THREAD.pack(**common, **own)), THREAD.size))


def _placed_params(work: Work) -> ctypes.Array[ctypes.c_char]:
    """Return the parameters in memory of the host, aligned as their addresses are."""
    size = len(work.params) + 64
    whole = ctypes.create_string_buffer(size + _PARAM_ALIGN)
    params = (ctypes.c_char * size).from_buffer(whole, -ctypes.addressof(whole) % _PARAM_ALIGN)
    ctypes.memmove(params, work.params, len(work.params))
    return params


def _zeros(running: Running, size: int) -> int:
    """Return the address of `size` zero bytes that live as long as a launch; pages are allocated when written."""
    memory = _zero_pages(size)
    running.keep.append(memory)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _zero_pages(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)


def _group_order(groups: int, seed: int) -> tuple[int, int]:
    if not seed:
        return 1, 0
    chosen = random.Random(seed)  # noqa: S311 - an order, not a secret
    step = chosen.randrange(1, groups + 1)
    while _gcd(step, groups) != 1:
        step += 1
    return step, chosen.randrange(groups)


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def address_of(buffer: ctypes.Array[ctypes.c_char] | ctypes.Array[ctypes.c_uint32]) -> int:
    """Return the address of a record or a table."""
    return ctypes.addressof(buffer)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
