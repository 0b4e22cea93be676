"""A launch of a translated kernel over a grid: host threads, time limit, tiers of code, result.

Not here: shape and options of a launch (`work`), its memory (`running`), the order of warps and workgroups
(`dispatch`). Next: `slices`, launches that run in slices.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir.report import ReportKind
from emulator.simt.deadline import Deadline, HostTime
from emulator.simt.engine import OPTIMISED, QUICK, TranslatedProgram
from emulator.simt.report_records import decode, hang
from emulator.simt.running import RawCounts, RunningLaunch, address_of, prepare
from emulator.simt.work import LaunchOptions, LaunchWork, check, warps_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from emulator.ir.report import KernelReport
    from emulator.shared.memory import AddressSpace

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
        if count == 1:
            run(0)
            return deadline.passed
        promotes = tier == QUICK and options.tier == "auto"
        # The caller runs one part itself unless it may have to compile: a thread less to wake and wait for.
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
