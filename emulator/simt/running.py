"""The memory of a launch in flight: the records that generated code reads, resident workgroups, counters.

Not here: the fields of the records (`emulator.ir.state`), shape and options (`work`). Next: `launch` and `slices`, which
run host threads on this memory.
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
"""Host and device addresses of parameters are equal modulo this number of bytes."""
_NO_LAUNCH, _NO_REPORTS = bytes(LAUNCH.size), bytes(REPORTS_HEAD)
_MAP_NORESERVE = 0x4000  # Linux; Python names it since 3.13


@dataclass(frozen=True, slots=True)
class RawCounts:
    """The counters of a launch as generated code wrote them."""

    slots: tuple[int, ...]
    """The values of the slots that `counting.Counted` describes."""
    touched: tuple[tuple[int, int], ...]
    """Masks of 64 units of global memory each: the units read, and the units written."""
    lost: int
    """Accesses to units that the table of touched memory had no room for."""


class GroupMemory:
    """Memory for the resident workgroups of one host thread, and the records of the thread; reused by later launches."""

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
        """Number of slots that were reset for `_shape`."""

    def prepare(self, shape: tuple[object, ...], slot_bytes: int, slots: int) -> None:
        """Reset the slots that hold no workgroup of this shape yet: all if the shape changes. Sizes are in bytes."""
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
        """Return SITE records of at least `size` bytes, of which the first `size` are zero."""
        if len(self._sites) < size:
            self._sites = ctypes.create_string_buffer(size)
        else:
            self._sites.raw = bytes(size)
        return self._sites

    def places(self, slots: int) -> ctypes.Array[ctypes.c_uint32]:
        """Return memory for the numbers of at least `slots` resident clusters (`THREAD.queue`)."""
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
    """The memory of a launch in flight. It references all memory that generated code has pointers to."""

    launch: ctypes.Array[ctypes.c_char]
    """The `state.LAUNCH` record."""
    reports: ctypes.Array[ctypes.c_char]
    """The report buffer: `state.REPORTS_HEAD` bytes, then `state.REPORT` records."""
    keep: list[object] = field(default_factory=list)
    """Memory that is only kept alive."""
    threads: list[ctypes.Array[ctypes.c_char]] = field(default_factory=list)
    """The `state.THREAD` record of each host thread."""
    sites: list[ctypes.Array[ctypes.c_char]] = field(default_factory=list)
    """The `state.SITE` records of each host thread, one for each instruction."""
    version: int = 0
    """The version of the map of allocations that the records point to."""
    param_entry: bytes = b""
    """The entry of the parameters in the map of allocations; empty if they have no addresses."""
    memories: list[GroupMemory] = field(default_factory=list)
    """The memory of each host thread; empty after `return_memories`."""
    counts: ctypes.Array[ctypes.c_uint64] | None = None
    """The slots of a counted launch; None for others."""
    touched: mmap.mmap | None = None
    """The table of touched memory of a counted launch (`counting`); None for others."""

    def read_counts(self) -> RawCounts | None:
        """Return the counters; None for a launch that does not count. No host thread may be running."""
        if self.counts is None or self.touched is None:
            return None
        used, lost = struct.unpack_from("<QQ", self.touched)
        end = ENTRIES_AT + used * ENTRY_BYTES
        marks = struct.iter_unpack("<8xQQ8x", self.touched[ENTRIES_AT:end])
        return RawCounts(tuple(self.counts), tuple((read, written) for read, written in marks), lost)

    def stop(self) -> None:
        """Set the stop flag; host threads return at their next check of the flag."""
        struct.pack_into("<I", self.launch, LAUNCH.offsets["stop"], 1)

    def use(self, entry: int) -> None:
        """Make every warp's next turn run the code at `entry`, another tier of the same kernel.

        Host threads may be running. So the field is written by one store; `struct.pack_into` would store 0 first.
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
        """Return the memory of workgroups, records and reports to the pool of other launches, if not done yet."""
        if not self.memories:
            return
        self.launch, self.reports = _SPENT
        for memory in self.memories:
            _idle_memories.put(memory)
        self.memories.clear()


_SPENT = ctypes.create_string_buffer(LAUNCH.size), ctypes.create_string_buffer(REPORTS_HEAD)
"""The records of a launch that has returned its memory; nothing reads them."""


def _warp_order(wanted: str | int, parties: int) -> list[int]:
    """Return the warps of a cluster in the order of their turns; `wanted` is `LaunchOptions.warp_order`."""
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
    """Return the next state of a linear congruential generator, whose high bits are random. It is faster than a `Random`.

    Source: Knuth, The Art of Computer Programming 2, 3.3.4: the multiplier of MMIX.
    """
    return (state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)


def prepare(
    program: TranslatedProgram, work: LaunchWork, memory: AddressSpace, options: LaunchOptions, entry: int, count: int
) -> RunningLaunch:
    """Allocate and fill the records of a launch for `count` host threads; warps run the code at address `entry`.

    The caller returns the memory by `return_memories`. Raises `UsageError` if a cluster does not fit (`work.plan_of`).
    """
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
    """Return the fields of `state.THREAD` for the parameters and the map of allocations."""
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
    """Return the fields of `state.THREAD` for checks and counters; allocate the memory that they point to."""
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
    """Return a copy of the parameters in host memory, with the alignment of their device addresses, then 64 bytes."""
    size = len(work.params) + 64
    whole = ctypes.create_string_buffer(size + _PARAM_ALIGN)
    params_at = (work.param_address - ctypes.addressof(whole)) % _PARAM_ALIGN
    params = (ctypes.c_char * size).from_buffer(whole, params_at)
    params.raw = work.params
    return params


def _zeros(running: RunningLaunch, size: int) -> int:
    """Return the address of `size` zero bytes that live as long as the launch; pages are allocated when written."""
    memory = _zero_pages(size)
    running.keep.append(memory)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _zero_pages(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)


def _group_order(groups: int, seed: int) -> tuple[int, int]:
    """Return the step from one started cluster to the next, modulo their number, and the first; (1, 0) for seed 0."""
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
