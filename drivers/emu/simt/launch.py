"""A launch of a translated kernel over a grid: host threads, memory for resident workgroups, tiers of code.

Not here: the order of warps and workgroups (`dispatch`), launches that run in slices (`slices`).
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import random
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from drivers.emu.report_records import decode, hang, unflatten
from drivers.emu.sanitizers.group_order import known_bytes
from drivers.emu.sanitizers.sanitize import shadow_bytes
from drivers.emu.simt.clusters import MOST_GROUPS
from drivers.emu.simt.counting import ENTRIES_AT, ENTRY_BYTES, TOUCHED_BYTES
from drivers.emu.simt.deadline import Deadline
from drivers.emu.simt.engine import OPTIMISED, QUICK, Program
from drivers.emu.simt.host_time import HostTime, thread_seconds
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
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from drivers.emu.memory import AddressSpace
    from drivers.emu.report import Report

Dim3 = tuple[int, int, int]
SHARED_WINDOW = 0x7294_0000_0000
LOCAL_WINDOW = 0x7293_0000_0000
PARAM_WINDOW = 1 << 60
"""Generic address of the first parameter, above all memory."""

_ARENA_BYTES = 256 << 20
_MOST_RESIDENT = 2048
_PARAM_ALIGN = 128
_MAP_NORESERVE = 0x4000  # Linux; Python names it since 3.13
_WORTH_THREADS = 4096
"""A launch with fewer lanes, in warps of any width, runs on the caller's thread only."""
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a launch; none of them changes the result of a kernel without races."""

    threads: int = 0
    """Number of host threads; 0 is one for each core."""
    tier: Literal["auto", "quick", "optimised"] = "auto"
    warp_order: Literal["forward", "reverse"] | int = "forward"
    """The order in which the warps of a workgroup take turns; a number seeds a random one."""
    group_seed: int = 0
    """The seed of a random order in which workgroups start; 0 is the order of their numbers."""
    timeout_s: float = 60.0
    """Limit of the CPU time of a host thread in seconds; a kernel that takes more is ended with a HANG report."""
    clock: Callable[[int], float] = thread_seconds
    """The CPU time in seconds of a thread of this process, by its `threading.get_ident`."""
    shared_window: int = SHARED_WINDOW
    local_window: int = LOCAL_WINDOW


@dataclass(frozen=True, slots=True)
class RawCounts:
    """The counters of a launch as generated code left them."""

    slots: tuple[int, ...]
    touched: tuple[tuple[int, int], ...]
    """Units of global memory that were read and that were written: a bit each, 64 of each in an item."""
    lost: int
    """Units that the table had no room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """The result of a launch."""

    fault: Report | None
    """The fault that ended it early, or None. Stores made before the fault remain in memory."""
    findings: tuple[Report, ...]
    """The findings of the sanitizers."""
    seconds: float
    tier: str
    counts: RawCounts | None = None
    """The counters, if the translation counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
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
    """The grid's size as the kernel reads it, if it comes from elsewhere (constant bank 0); None is `grid`."""
    visible_block: Dim3 | None = None
    """The workgroup's size as the kernel reads it; None is `block`."""
    last: Dim3 | None = None
    """The size of the last workgroup along each axis, if partial ones are among them; None is `block`."""
    cluster: Dim3 | None = None
    """The workgroups of a cluster along each axis; None is a launch without clusters."""
    registers: int = 0
    """Registers of a thread at the start, a multiple of 8; 0 is unknown, and then no instruction waits for any."""
    addressed_params: int = 0
    """The first bytes of `params` that have addresses, from PARAM_WINDOW on; they can be read only."""

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


_pool: list[ThreadPoolExecutor] = []
_pool_lock = threading.Lock()


def _executor() -> ThreadPoolExecutor:
    with _pool_lock:
        if not _pool:
            _pool.append(
                ThreadPoolExecutor(max_workers=max(os.cpu_count() or 1, 8), thread_name_prefix="hcq emu")
            )
        return _pool[0]


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
            struct.pack_into("<Q", record, THREAD.offsets["map"], _at(table))
            struct.pack_into("<I", record, THREAD.offsets["map_count"], len(entries) // MAP_ENTRY.size)
        for sites in self.sites:
            for at in range(0, len(sites), SITE.size):
                struct.pack_into("<QQ", sites, at + SITE.offsets["start"], 0, 0)

    def return_memories(self) -> None:
        """Return the memory of the workgroups to the pool, for other launches."""
        for memory in self.memories:
            _idle_memories.put(memory)
        self.memories.clear()


def launch(
    program: Program, work: Work, memory: AddressSpace, options: Options | None = None
) -> LaunchResult:
    """Run a kernel over its grid; return when every workgroup is done or one of them has faulted.

    Raises `UsageError` if the shape of the launch is invalid (`check`).
    """
    options = options or Options()
    check(work)
    began = time.perf_counter()
    tier = first_tier(program, options)
    count = host_threads(program, work, options)
    if program.engine.settings.checks.last_accesses:
        memory.clear_accesses()
    running = prepare(program, work, memory, options, program.entry(tier), count)
    started = time.perf_counter()
    hung = _run(program, running, options, tier, count)
    program.seconds += (time.perf_counter() - started) * count
    running.return_memories()
    reports = decode(program, work, memory, running.reports.raw)
    return make_result(
        program, options, reports,
        hung=hung, seconds=time.perf_counter() - began, tier=tier, counts=running.read_counts(),
    )  # fmt: skip


def host_threads(program: Program, work: Work, options: Options) -> int:
    """Return the number of host threads that a launch should use."""
    if program.engine.settings.checks.last_accesses or program.translation.counted is not None:
        return 1  # the shadows of global memory and the counters support one writer only
    lanes = work.groups * warps_of(program, work) * program.engine.settings.lanes
    worth, units = lanes >= _WORTH_THREADS, work.groups // work.cluster_groups
    return min(options.threads or os.cpu_count() or 1, units) if worth or options.threads else 1


def warps_of(program: Program, work: Work) -> int:
    """Return the number of warps of a workgroup."""
    return -(-work.threads // program.engine.settings.lanes)


def thread_named(work: Work, group: int, thread: int) -> str:
    """Return the name of a thread in reports, from the flat numbers of its workgroup and of the thread in it."""
    return f"thread {unflatten(thread, work.block_of(group))} of block {unflatten(group, work.grid)}"


def make_result(
    program: Program, options: Options, reports: list[Report], *, hung: bool, seconds: float, tier: str,
    counts: RawCounts | None = None,
) -> LaunchResult:  # fmt: skip
    """Return the result of a launch: the fault that ended it, if any, and the findings of sanitizers."""
    fatal = [r for r in reports if r.kind.fatal]
    if hung and not fatal:
        fatal = [hang(program, options.timeout_s)]
    findings = tuple(r for r in reports if not r.kind.fatal)
    fault = fatal[0] if fatal else None
    return LaunchResult(fault=fault, findings=findings, seconds=seconds, tier=tier, counts=counts)


def check(work: Work) -> None:
    """Raise `UsageError` if the grid is empty or too large, a workgroup has more than 1024 threads, or clusters do not fill the grid."""
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


def first_tier(program: Program, options: Options) -> str:
    """Return the tier of code to start with."""
    if options.tier != "auto":
        return options.tier
    if program.has(OPTIMISED) or program.seconds > program.promote_after_s:
        return OPTIMISED
    return QUICK if program.has(QUICK) or not program.on_disk(OPTIMISED) else OPTIMISED


def prepare(
    program: Program, work: Work, memory: AddressSpace, options: Options, entry: int, count: int
) -> Running:
    """Allocate and fill the records of a launch for `count` host threads, which start at address `entry`."""
    engine = program.engine
    warps = warps_of(program, work)
    lanes, checks = engine.settings.lanes, engine.settings.checks
    version = memory.version
    entries, mapped = memory.snapshot(shadows=checks.shadows)
    params = _placed_params(work)
    param_entry = b""
    if work.addressed_params:
        delta = ctypes.addressof(params) - PARAM_WINDOW & (1 << 64) - 1
        packed = MAP_ENTRY.pack(start=PARAM_WINDOW, size=work.addressed_params, delta=delta, flags=MAP_READ)
        param_entry = bytes(packed)  # the highest address of all, so the table stays sorted
    entries += param_entry
    table = ctypes.create_string_buffer(entries or bytes(MAP_ENTRY.size))
    size = work.cluster_groups
    parties = warps * size
    order = list(range(parties))
    if options.warp_order == "reverse":
        order.reverse()
    elif options.warp_order != "forward":
        random.Random(options.warp_order).shuffle(order)  # noqa: S311 - an order, not a secret
    step, first = _group_order(work.groups // size, options.group_seed)
    warp_bytes = _up(warp_registers_at(lanes) + program.translation.state_bytes, 64)
    shared_at = _up(GROUP_HEAD + warps * warp_bytes, 1024)
    local_bytes = _up(work.local_bytes, 16)
    local_at = _up(shared_at + work.shared_bytes, 64)
    shadow_at = _up(local_at + local_bytes * lanes * warps, 64)
    slot_bytes = _up(shadow_at + shadow_bytes(checks, warps, work.shared_bytes, local_bytes * lanes * warps, size), 1024)
    slots = min(work.groups, _ARENA_BYTES // slot_bytes, _MOST_RESIDENT) // size
    if not slots:
        raise UsageError(
            f"{size} workgroups of {slot_bytes} bytes of state do not fit the emulator's {_ARENA_BYTES} bytes"
        )
    states = (GROUP_HEAD + party % warps * warp_bytes + party // warps * slot_bytes for party in order)
    orders = (ctypes.c_uint32 * parties)(*states)
    running = Running(
        ctypes.create_string_buffer(LAUNCH.size),
        ctypes.create_string_buffer(REPORTS_HEAD + REPORT_LIMIT * REPORT.size),
    )
    running.keep += [table, mapped, params, orders]
    releases, known, (bytes_known, known_step) = 0, 0, known_bytes(work.groups)
    if checks.global_races:
        releases, known = (_zeros(running, size) for size in (RELEASE_BYTES * work.groups, bytes_known))
    running.version, running.param_entry = version, param_entry
    shape = (lanes, work.block, warp_bytes, slot_bytes)
    common = {
        "launch": _at(running.launch), "entry": entry, "params": _at(params), "map": _at(table), "reports": _at(running.reports),
        "warp_order": _at(orders), "shared_window": options.shared_window, "local_window": options.local_window,
        "param_bytes": len(work.params), "map_count": len(entries) // MAP_ENTRY.size,
        "grid_x": work.grid[0], "grid_y": work.grid[1], "grid_z": work.grid[2], "block_x": work.block[0], "block_y": work.block[1],
        "block_z": work.block[2], "threads": work.threads, "warps": warps, "groups": work.groups, "group_step": step,
        "group_first": first, "shared_bytes": work.shared_bytes, "local_bytes": local_bytes, "slot_bytes": slot_bytes,
        "slot_limit": slots, "warp_bytes": warp_bytes, "warps_at": GROUP_HEAD, "shared_at": shared_at, "local_at": local_at,
        "shadow_at": shadow_at, "dynamic_shared": work.dynamic_shared, "fuel": _ENDLESS, "releases": releases,
        "known": known, "known_step": known_step, "cluster": size, "explicit_cluster": work.cluster is not None,
        "parties": parties, "unit_bytes": slot_bytes * size, "registers": work.registers,
    }  # fmt: skip
    for shape_of, visible in (
        ("grid", work.visible_grid or work.grid),
        ("block", work.visible_block or work.block),
    ):
        common |= {f"visible_{shape_of}_{axis}": visible[i] for i, axis in enumerate("xyz")}
    common |= {f"last_{axis}": (work.last or work.block)[i] for i, axis in enumerate("xyz")}
    counted = program.translation.counted
    if counted is not None:
        running.counts = (ctypes.c_uint64 * max(counted.slots, 1))()
        running.touched = _zero_pages(TOUCHED_BYTES)
        touched = ctypes.addressof(ctypes.c_char.from_buffer(running.touched))
        common |= {"counts": ctypes.addressof(running.counts), "touched": touched}
    common |= {f"cluster_{axis}": (work.cluster or (1, 1, 1))[i] for i, axis in enumerate("xyz")}
    for _ in range(count):
        resident = _take_memory()
        resident.prepare(shape, slot_bytes, slots * size)
        running.memories.append(resident)
        sites = ctypes.create_string_buffer(max(len(program.translation.sites), 1) * SITE.size)
        sink, places = ctypes.create_string_buffer(64), (ctypes.c_uint32 * slots)()
        running.sites.append(sites)
        running.keep += [sink, places]
        own = {"sites": _at(sites), "slots": resident.address, "sink": _at(sink), "queue": _at(places)}
        running.threads.append(ctypes.create_string_buffer(bytes(THREAD.pack(**common, **own)), THREAD.size))
    return running


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


def _run(program: Program, running: Running, options: Options, tier: str, count: int) -> bool:
    """Run all host threads to the end; return whether the time limit ended them."""
    host_time = HostTime(options.clock)

    def run(number: int) -> None:
        host_time.start(number)
        try:
            program.engine.run(_at(running.threads[number]))
        finally:
            host_time.stop(number)

    with Deadline(running.stop, options.timeout_s, lambda: host_time.most) as deadline:
        if count == 1:
            run(0)
            return deadline.passed
        promotes = tier == QUICK and options.tier == "auto"
        # The caller runs one part itself unless it may have to compile: a thread less to wake and to wait for.
        mine, others = (None, range(count)) if promotes else (0, range(1, count))
        futures: list[Future[None]] = []
        try:
            futures.extend(_executor().submit(run, number) for number in others)
        except RuntimeError:  # the interpreter is shutting down: pools refuse new work
            running.stop()
            wait(futures)
            return True
        if mine is not None:
            run(mine)
        elif wait(futures, timeout=program.promote_after_s).not_done:
            running.use(program.entry(OPTIMISED))
        wait(futures)
        for future in futures:
            future.result()
        return deadline.passed


def _at(buffer: ctypes.Array[ctypes.c_char] | ctypes.Array[ctypes.c_uint32]) -> int:
    return ctypes.addressof(buffer)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
