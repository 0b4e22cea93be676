"""A launch of a translated kernel over a grid: host threads, time limit, tiers of code, result, reports.

Not here: shape and options of a launch (`work`), its memory (`running`), the order of warps and workgroups
(`dispatch`), writing the records of reports (`emulator.ir.findings`). Next: `slices`,
launches that run in slices.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emulator.ir.clusters import RANK_SHIFT
from emulator.ir.report import KernelReport, ReportKind
from emulator.ir.state import MAP_ATOMIC, MAP_WRITE, REPORT, REPORT_LIMIT, REPORTS_HEAD
from emulator.sanitizers.shadow_global import SAME_GROUP, race_place
from emulator.sanitizers.shadow_local import LOCAL_PARTY
from emulator.simt.deadline import Deadline, HostTime
from emulator.simt.engine import OPTIMISED, QUICK, TranslatedProgram
from emulator.simt.running import RawCounts, RunningLaunch, address_of, prepare
from emulator.simt.work import LaunchOptions, LaunchWork, check, unflatten, warps_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from emulator.ir.state import Raw
    from emulator.shared.memory import AddressSpace

_STACK = 128 << 20
"""Bytes of the stack of a thread that runs kernels; a kernel takes about twice the length of its IR."""
_SHORT = 1 << 20
"""Bytes of IR of the longest kernel that runs on the stack of any thread while it is not optimised."""
_starting = threading.Lock()
os.register_at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
)
_PROXIES = (ReportKind.MISSING_PROXY_FENCE, ReportKind.ASYNC_READ)
_PEERS = (ReportKind.UNSTARTED_PEER, ReportKind.UNORDERED_EXIT)


def decode(
    program: TranslatedProgram, work: LaunchWork, memory: AddressSpace, raw: Raw
) -> list[KernelReport]:
    """Return the reports in the buffer `raw`, at most one of each kind for an instruction.

    Reads of uninitialised memory come last, because a missing barrier causes them together with a race.
    """
    (count,) = struct.unpack_from("<I", raw)
    lanes = program.engine.settings.lanes
    found: dict[tuple[int, int], KernelReport] = {}
    for i in range(min(count, REPORT_LIMIT)):
        at = REPORTS_HEAD + i * REPORT.size
        kind, number, lane, group, warp, size, address, other = (
            REPORT.read(raw, name, at) for name in REPORT.types
        )
        flat = warp * lanes + lane
        site = program.translation.sites[number]
        what = ReportKind(kind)
        report = KernelReport(
            kind=what, kernel=program.translation.name, line=site.line, instruction=site.text,
            block=unflatten(group, work.grid), thread=unflatten(flat, work.block_of(group)),
            access=_access(what, other), address=address if size else None, size=size,
            nearest=_nearest(what, work, memory, address, group, other),
            other=_other(what, other, work, group, program),
        )  # fmt: skip
        found.setdefault((kind, number), report)
    return sorted(found.values(), key=lambda report: report.kind is ReportKind.UNINITIALISED)


def _access(kind: ReportKind, other: int) -> str:
    """Return in words how a record's access reads or writes; "" if the record does not say."""
    if kind in (
        ReportKind.SHARED_RACE,
        ReportKind.GLOBAL_RACE,
        ReportKind.UNINITIALISED,
        ReportKind.COPY_IN_FLIGHT,
        *_PROXIES,
        *_PEERS,
    ):
        other >>= 48
    return {1: "read", MAP_WRITE: "write", MAP_ATOMIC: "atomic"}.get(other, "")


def _nearest(  # noqa: PLR0917 - one finding's fields
    kind: ReportKind, work: LaunchWork, memory: AddressSpace, address: int, group: int, other: int
) -> str:
    """Return in words which memory is nearest to a record's address; "" if it has none."""
    if kind in (ReportKind.OUT_OF_BOUNDS, ReportKind.FORBIDDEN, ReportKind.GLOBAL_RACE):
        return memory.nearest(address)
    local = kind is ReportKind.UNINITIALISED and other & 0xFFFF_FFFF == LOCAL_PARTY
    either = (ReportKind.UNINITIALISED, ReportKind.COPY_IN_FLIGHT)
    if kind in either and memory.find(address) is not None:
        return memory.nearest(address)
    shared = (
        ReportKind.SHARED_RACE, ReportKind.UNINITIALISED, ReportKind.COPY_IN_FLIGHT, ReportKind.EXITED_PEER,
        ReportKind.SHARED_OUT_OF_BOUNDS, *_PROXIES, *_PEERS,
    )  # fmt: skip
    if kind in shared and not local:
        return f"shared memory of {work.shared_bytes} bytes{_whose(work, group, address)}"
    if kind is ReportKind.LOCAL_OUT_OF_BOUNDS or local:
        return f"local memory of {work.local_bytes} bytes a thread"
    if kind is ReportKind.PARAM_OUT_OF_BOUNDS:
        return f"{len(work.params)} bytes of parameters"
    return ""


def _other(kind: ReportKind, other: int, work: LaunchWork, group: int, program: TranslatedProgram) -> str:
    """Return in words with what a record is in conflict; "" if there is nothing."""
    party = other & 0xFFFF_FFFF
    same = kind is ReportKind.GLOBAL_RACE and other & SAME_GROUP
    if kind in (ReportKind.SHARED_RACE, *_PROXIES) or same:
        number, thread = race_place(party)
        site = program.translation.sites[number]
        block = group if same else peer_of(work, group, other >> 32 & 0xFFFF)
        where = f" of block {unflatten(block, work.grid)}" if block != group else ""
        return f"line {site.line}: {site.text}; thread {unflatten(thread, work.block_of(block))}{where}"
    if kind is ReportKind.GLOBAL_RACE:
        return f"block {unflatten(party, work.grid)}"
    if kind is ReportKind.CLUSTER_DEADLOCK and party:
        rank, warp = divmod(party - 1, -(-work.threads // program.engine.settings.lanes))
        there = unflatten(peer_of(work, group, rank), work.grid)
        return f"warp {warp} of block {there}, which has not arrived"
    if kind is ReportKind.REGISTER_DEADLOCK:
        return f"{party} more registers a thread, of which the pool has {other >> 32}"
    if kind is ReportKind.BAD_REGISTER_COUNT:
        return f"{party} registers a thread"
    if kind is ReportKind.BARRIER_DEADLOCK and other >> 63:
        size = (party ^ 1 << 31) - (1 << 31)
        return f"mbarrier that waits for {other >> 32 & 0x7FFF_FFFF} arrivals and {size} bytes"
    if kind in (ReportKind.BARRIER_DEADLOCK, ReportKind.DIVERGENT_BARRIERS, ReportKind.BAD_BARRIER):
        return f"barrier {other}"
    return ""


def _whose(work: LaunchWork, group: int, address: int) -> str:
    """Return a description of the workgroup whose rank a cluster address has; "" if it has no valid rank."""
    rank = (address >> RANK_SHIFT) - 1
    if rank < 0 or rank >= work.cluster_groups:
        return ""
    return f" of block {unflatten(peer_of(work, group, rank), work.grid)}"


def peer_of(work: LaunchWork, group: int, rank: int) -> int:
    """Return the flat number of the workgroup of rank `rank` in the cluster of workgroup `group`."""
    shape = work.cluster or (1, 1, 1)
    first = tuple(at - at % size for at, size in zip(unflatten(group, work.grid), shape, strict=True))
    x, y, z = (a + b for a, b in zip(first, unflatten(rank, shape), strict=True))
    return x + work.grid[0] * (y + work.grid[1] * z)


def hang(program: TranslatedProgram, timeout_s: float, loops: Sequence[KernelReport] = ()) -> KernelReport:
    """Return the report of a kernel that was ended after `timeout_s` seconds of CPU time.

    `loops` are reports of the loops in which warps were. The result is the first of them, or names no
    instruction.
    """
    ended = f"ended after {timeout_s} s of CPU time"
    if loops:
        return replace(loops[0], instruction=f"{loops[0].instruction} ({ended})")
    return KernelReport(
        kind=ReportKind.HANG,
        kernel=program.translation.name,
        line=0,
        instruction=ended,
        block=(0, 0, 0),
        thread=(0, 0, 0),
        access="",
        address=None,
        size=0,
        nearest="",
    )


_WORTH_THREADS = 4096
"""By default a launch with fewer lanes, those of partial warps included, runs on the caller's thread only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """The result of a launch."""

    fault: KernelReport | None
    """The fault that ended it early, or None. Stores made before the fault remain in memory."""
    findings: tuple[KernelReport, ...]
    """The findings of the sanitizers."""
    seconds: float
    """Elapsed time of the launch."""
    tier: str
    """The tier of code with which it began."""
    counts: RawCounts | None = None
    """The counters; None if the translation does not count, and from `SlicedLaunch.result`."""


_pool: list[ThreadPoolExecutor] = []
_pool_lock = threading.Lock()


@contextmanager
def deep_stacks() -> Iterator[None]:
    """Give threads that start meanwhile a stack for code that is not optimised: it keeps all values there."""
    with _starting:  # the size is one of the process
        before = threading.stack_size(_STACK)
        try:
            yield
        finally:
            threading.stack_size(before)


def _executor() -> ThreadPoolExecutor:
    with _pool_lock:
        if not _pool:
            _pool.append(
                ThreadPoolExecutor(max_workers=max(os.cpu_count() or 1, 8), thread_name_prefix="hcq emu")
            )
        return _pool[0]


def launch(
    program: TranslatedProgram, work: LaunchWork, memory: AddressSpace, options: LaunchOptions | None = None
) -> LaunchResult:
    """Run a kernel over its grid; return when every workgroup has ended, one has faulted, or time is up.

    Raises `UsageError` if the shape of the launch is invalid (`work.check`) or a cluster does not fit the
    memory of a host thread (`work.plan_of`).
    """
    options = options or LaunchOptions()
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
    reports = decode(program, work, memory, running.reports)
    running.return_memories()
    return make_result(
        program, options, reports,
        hung=hung, seconds=time.perf_counter() - began, tier=tier, counts=running.read_counts(),
    )  # fmt: skip


def host_threads(program: TranslatedProgram, work: LaunchWork, options: LaunchOptions) -> int:
    """Return the number of host threads for a launch: 1 if it is counted or checked for races.

    A small launch gets 1 too, unless `options.threads` is set.
    """
    if program.engine.settings.checks.last_accesses or program.translation.counted is not None:
        return 1  # the shadows of global memory and the counters support one writer only
    lanes = work.groups * warps_of(program, work) * program.engine.settings.lanes
    worth, units = lanes >= _WORTH_THREADS, work.groups // work.cluster_groups
    return min(options.threads or os.cpu_count() or 1, units) if worth or options.threads else 1


def make_result(
    program: TranslatedProgram, options: LaunchOptions, reports: list[KernelReport], *,
    hung: bool, seconds: float, tier: str, counts: RawCounts | None = None,
) -> LaunchResult:  # fmt: skip
    """Return the result of a launch from its reports. `hung`: it was stopped at its time limit.

    HANG reports of loops count only if it hung without another fault.
    """
    fatal = [r for r in reports if r.kind.fatal and r.kind is not ReportKind.HANG]
    if hung and not fatal:
        fatal = [hang(program, options.timeout_s, [r for r in reports if r.kind is ReportKind.HANG])]
    findings = tuple(r for r in reports if not r.kind.fatal)
    fault = fatal[0] if fatal else None
    return LaunchResult(fault=fault, findings=findings, seconds=seconds, tier=tier, counts=counts)


def first_tier(program: TranslatedProgram, options: LaunchOptions) -> str:
    """Return the tier of code to start with: the one of `options`, or the best that costs little to get."""
    if options.tier != "auto":
        return options.tier
    if program.has(OPTIMISED) or program.seconds > program.promote_after_s:
        return OPTIMISED
    return QUICK if program.has(QUICK) or not program.on_disk(OPTIMISED) else OPTIMISED


def _run(
    program: TranslatedProgram, running: RunningLaunch, options: LaunchOptions, tier: str, count: int
) -> bool:
    """Run all host threads; return whether the time limit or the end of the interpreter stopped them."""
    host_time = HostTime(options.clock)

    def run(number: int) -> None:
        host_time.start(number)
        try:
            program.engine.run(address_of(running.threads[number]))
        finally:
            host_time.stop(number)

    with Deadline(running.stop, options.timeout_s, lambda: host_time.most) as deadline:
        deep = tier == QUICK and len(program.translation.text) > _SHORT
        if count == 1 and not deep:
            run(0)
            return deadline.passed
        promotes = tier == QUICK and options.tier == "auto"
        # The caller runs one part itself unless it may have to compile: a thread less to wake and wait for.
        mine, others = (None, range(count)) if promotes or deep else (0, range(1, count))
        futures: list[Future[None]] = []
        try:
            with deep_stacks():
                futures.extend(_executor().submit(run, number) for number in others)
        except RuntimeError:  # the interpreter is shutting down: pools refuse new work
            running.stop()
            wait(futures)
            return True
        if mine is not None:
            run(mine)
        elif promotes and wait(futures, timeout=program.promote_after_s).not_done:
            running.use(program.entry(OPTIMISED))
        wait(futures)
        for future in futures:
            future.result()
        return deadline.passed
