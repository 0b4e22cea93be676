"""The memory of a launch in flight: the records that generated code reads, resident workgroups, counters.

Not here: who runs it (`launch`, `slices`), the fields of the records (`emulator.ir.state`).
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

import ctypes
import math
import mmap
import queue
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.ir.state import (
    LAUNCH,
    MAP_ENTRY,
    MAP_READ,
    RELEASE_BYTES,
    REPORT,
    REPORT_LIMIT,
    REPORTS_HEAD,
    SITE,
    THREAD,
)
from emulator.sanitizers.group_order import known_bytes
from emulator.simt.counting import ENTRIES_AT, ENTRY_BYTES, TOUCHED_BYTES
from emulator.simt.work import ARENA_BYTES, plan_of

if TYPE_CHECKING:
    from emulator.shared.memory import AddressSpace
    from emulator.simt.engine import TranslatedProgram
    from emulator.simt.work import LaunchLayout, LaunchOptions, LaunchWork

_PARAM_ALIGN = 128
_NO_LAUNCH, _NO_REPORTS = bytes(LAUNCH.size), bytes(REPORTS_HEAD)
_MAP_NORESERVE = 0x4000  # Linux; Python names it since 3.13


@dataclass(frozen=True, slots=True)
class RawCounts:
    """The counters of a launch as generated code left them."""

    slots: tuple[int, ...]
    touched: tuple[tuple[int, int], ...]
    """Units of global memory that were read and that were written: a bit each, 64 of each in an item."""
    lost: int
    """Units that the table had no room for."""


class GroupMemory:
    """Memory for the resident workgroups of one host thread, and its records; reused between launches."""

    def __init__(self) -> None:
        self.launch = ctypes.create_string_buffer(LAUNCH.size)
        self.reports = ctypes.create_string_buffer(REPORTS_HEAD + REPORT_LIMIT * REPORT.size)
        self.record = ctypes.create_string_buffer(THREAD.size)
        self.sink = ctypes.create_string_buffer(64)
        self._sites = ctypes.create_string_buffer(SITE.size)
        self._places = (ctypes.c_uint32 * 1)()
        self.memory = mmap.mmap(
            -1, ARENA_BYTES + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
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

    def begin(self) -> None:
        """Clear the records that the host threads of a launch share."""
        self.launch.raw = _NO_LAUNCH
        self.reports.raw = _NO_REPORTS

    def sites(self, size: int) -> ctypes.Array[ctypes.c_char]:
        """Return zeroed records of `size` bytes for instructions, and maybe more behind them."""
        if len(self._sites) < size:
            self._sites = ctypes.create_string_buffer(size)
        else:
            self._sites.raw = bytes(size)
        return self._sites

    def places(self, slots: int) -> ctypes.Array[ctypes.c_uint32]:
        """Return a queue for at least `slots` workgroups."""
        if len(self._places) < slots:
            self._places = (ctypes.c_uint32 * slots)()
        return self._places


_idle_memories: queue.SimpleQueue[GroupMemory] = queue.SimpleQueue()


def _take_memory() -> GroupMemory:
    try:
        return _idle_memories.get_nowait()
    except queue.Empty:
        return GroupMemory()


@dataclass(slots=True)
class RunningLaunch:
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
        """Make every warp's next turn run the code at `entry`, another tier of the same kernel.

        Host threads may be running: the field is written by one store (`struct.pack_into` would store 0 first).
        """
        for record in self.threads:
            ctypes.c_uint64.from_buffer(record, THREAD.offsets["entry"]).value = entry

    def refresh_map(self, memory: AddressSpace, *, shadows: bool) -> None:
        """Update the records if the map of allocations has changed. No host thread may be running."""
        if self.version == memory.version:
            return
        self.version = memory.version
        seen = memory.snapshot(shadows=shadows)
        entries = seen.entries + self.param_entry
        table = ctypes.create_string_buffer(entries) if self.param_entry else seen.table
        self.keep += [table, seen]
        for record in self.threads:
            struct.pack_into("<Q", record, THREAD.offsets["map"], address_of(table))
            struct.pack_into("<I", record, THREAD.offsets["map_count"], len(entries) // MAP_ENTRY.size)
        for sites in self.sites:
            for at in range(0, len(sites), SITE.size):
                struct.pack_into("<QQ", sites, at + SITE.offsets["start"], 0, 0)

    def return_memories(self) -> None:
        """Return the memory of workgroups, records and reports to the pool, for other launches."""
        if not self.memories:
            return
        self.launch, self.reports = _SPENT
        for memory in self.memories:
            _idle_memories.put(memory)
        self.memories.clear()


_SPENT = ctypes.create_string_buffer(LAUNCH.size), ctypes.create_string_buffer(REPORTS_HEAD)
"""The records of a launch that has returned its memory; nothing reads them."""


def _warp_order(wanted: str | int, parties: int) -> list[int]:
    """Return the warps of a cluster in the order of their turns."""
    order = list(range(parties))
    if wanted == "reverse":
        order.reverse()
    elif isinstance(wanted, int) and parties > 1:
        state = wanted
        for last in range(parties - 1, 0, -1):
            state = _next(state)
            at = (state >> 32) % (last + 1)
            order[at], order[last] = order[last], order[at]
    return order


def _next(state: int) -> int:
    """Return the next state of a random generator, whose high bits are random; making a `Random` takes longer.

    Source: Knuth, The Art of Computer Programming 2, 3.3.4: the multiplier of MMIX.
    """
    return (state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)


def prepare(
    program: TranslatedProgram, work: LaunchWork, memory: AddressSpace, options: LaunchOptions, entry: int, count: int
) -> RunningLaunch:
    """Allocate and fill the records of a launch for `count` host threads, which start at address `entry`."""
    plan = plan_of(program, work, options.shared_window, options.local_window)
    order = _warp_order(options.warp_order, plan.parties)
    orders = (ctypes.c_uint32 * plan.parties)(*[plan.states[party] for party in order])
    step, first = _group_order(work.groups // plan.size, options.group_seed)
    memories = [_take_memory() for _ in range(count)]
    memories[0].begin()
    running = RunningLaunch(memories[0].launch, memories[0].reports, memories=memories)
    running.keep.append(orders)
    fields = {
        "launch": address_of(running.launch), "entry": entry, "reports": address_of(running.reports),
        "warp_order": address_of(orders), "group_step": step, "group_first": first,
    }  # fmt: skip
    fields |= _map_fields(running, program, work, memory) | _check_fields(running, program, work)
    for resident in memories:
        resident.prepare(plan.shape, plan.slot_bytes, plan.slots * plan.size)
        _add_thread(running, program, fields, resident, plan)
    return running


def _map_fields(running: RunningLaunch, program: TranslatedProgram, work: LaunchWork, memory: AddressSpace) -> dict[str, int]:
    """Return the fields of a host thread's record about parameters and the map of allocations."""
    running.version = memory.version
    seen = memory.snapshot(shadows=program.engine.settings.checks.shadows)
    params = _placed_params(work)
    table, count = seen.table, len(seen.entries) // MAP_ENTRY.size
    if work.addressed_params:
        delta = ctypes.addressof(params) - work.param_address & (1 << 64) - 1
        packed = MAP_ENTRY.pack(start=work.param_address, size=work.addressed_params, delta=delta, flags=MAP_READ)
        running.param_entry = bytes(packed)  # the highest address of all, so the table stays sorted
        table, count = ctypes.create_string_buffer(seen.entries + running.param_entry), count + 1
    running.keep += [table, seen, params]
    return {
        "params": address_of(params), "map": address_of(table), "param_bytes": len(work.params),
        "map_count": count,
    }  # fmt: skip


def _check_fields(running: RunningLaunch, program: TranslatedProgram, work: LaunchWork) -> dict[str, int]:
    """Return the fields of a host thread's record for checks and counters, with the memory that they need."""
    fields: dict[str, int] = {}
    if program.engine.settings.checks.global_races:
        fields["releases"] = _zeros(running, RELEASE_BYTES * work.groups)
        fields["known"] = _zeros(running, known_bytes(work.groups)[0])
    counted = program.translation.counted
    if counted is not None:
        running.counts = (ctypes.c_uint64 * max(counted.slots, 1))()
        running.touched = _zero_pages(TOUCHED_BYTES)
        fields["counts"] = ctypes.addressof(running.counts)
        fields["touched"] = ctypes.addressof(ctypes.c_char.from_buffer(running.touched))
    return fields


def _add_thread(
    running: RunningLaunch, program: TranslatedProgram, fields: dict[str, int], resident: GroupMemory, plan: LaunchLayout
) -> None:
    """Add the records of one host thread."""
    sites = resident.sites(max(len(program.translation.sites), 1) * SITE.size)
    running.sites.append(sites)
    own = {
        "sites": address_of(sites), "slots": resident.address, "sink": address_of(resident.sink),
        "queue": address_of(resident.places(plan.slots)),
    }  # fmt: skip
    record = resident.record
    record.raw = plan.record
    THREAD.update(record, fields | own)
    running.threads.append(record)


def _placed_params(work: LaunchWork) -> ctypes.Array[ctypes.c_char]:
    """Return the parameters in memory of the host, aligned as their addresses are."""
    size = len(work.params) + 64
    whole = ctypes.create_string_buffer(size + _PARAM_ALIGN)
    params_at = (work.param_address - ctypes.addressof(whole)) % _PARAM_ALIGN
    params = (ctypes.c_char * size).from_buffer(whole, params_at)
    params.raw = work.params
    return params


def _zeros(running: RunningLaunch, size: int) -> int:
    """Return the address of `size` zero bytes that live as long as a launch; pages are allocated when written."""
    memory = _zero_pages(size)
    running.keep.append(memory)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _zero_pages(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)


def _group_order(groups: int, seed: int) -> tuple[int, int]:
    """Return the step from a workgroup to the one started next, and the first one."""
    if not seed or groups == 1:
        return 1, 0
    state = _next(_next(seed))
    step = 1 + (state >> 32) % groups
    while math.gcd(step, groups) != 1:
        step += 1
    return step, (_next(state) >> 32) % groups


def address_of(buffer: ctypes.Array[ctypes.c_char] | ctypes.Array[ctypes.c_uint32]) -> int:
    """Return the address of a record or a table."""
    return ctypes.addressof(buffer)
