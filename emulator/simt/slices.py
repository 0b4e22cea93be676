"""Launches that run one slice at a time, so that other queues progress while a long kernel runs.

A slice is a fixed number of turns of clusters on each host thread, so that an order from a seed is
repeatable. A slice that does not end while the caller waits (for example in a long loop without waits)
continues in the background, and the caller polls it later.

Not here: launches that run to the end in one call (`launch`). Next: `emulator.nv.engines.grid`, the user.
"""

from __future__ import annotations

import ctypes
import os
import queue
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from emulator.ir.state import LAUNCH, THREAD
from emulator.simt.deadline import HostTime
from emulator.simt.engine import OPTIMISED, QUICK
from emulator.simt.launch import decode, deep_stacks, first_tier, host_threads, make_result
from emulator.simt.running import prepare
from emulator.simt.work import check, thread_named
from hcq.locks import Condition

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.shared.memory import AddressSpace
    from emulator.simt.counting import Counted
    from emulator.simt.engine import TranslatedProgram
    from emulator.simt.launch import LaunchResult
    from emulator.simt.running import RawCounts, RunningLaunch
    from emulator.simt.work import LaunchOptions, LaunchWork

_COUNTED_S = 1.0
"""Seconds of elapsed time of a launch before its CPU time is read."""
_STOPS_WITHIN_S = 1.0
"""Seconds that `close` waits for a stopped kernel, which checks the stop flag at every backward branch."""


class SlicedLaunch:
    """One launch in flight: create it, `advance` it until it is over, read its `result`, `close` it.

    Only one thread at a time may use it. If races between workgroups are checked, the caller of `advance`
    first gives the shadows of global memory to this launch (`emulator.shared.races`).
    """

    def __init__(
        self,
        program: TranslatedProgram,
        work: LaunchWork,
        memory: AddressSpace,
        options: LaunchOptions,
        *,
        on_end: Callable[[], None],
    ) -> None:
        """Prepare the launch; nothing runs yet.

        `on_end` is called once after `close`, when no host thread accesses device memory any more, perhaps on
        another thread. Raises `UsageError` if the shape of the launch is invalid or too large, as
        `launch.launch`.
        """
        check(work)
        self._program, self._work, self._memory, self._options = program, work, memory, options
        self._tier = first_tier(program, options)
        count = host_threads(program, work, options)
        self._running: RunningLaunch = prepare(
            program, work, memory, options, program.entry(self._tier), count
        )
        self._shadows = program.engine.settings.checks.shadows
        self._back = Condition()
        self._out = 0
        self._began = 0.0
        self._begun = False
        """Whether a slice has run."""
        self._seconds = 0.0
        self._time = HostTime(options.clock)
        self._hung = False
        self._closed = False
        self._on_end: Callable[[], None] | None = on_end

    @property
    def in_background(self) -> bool:
        """Whether a slice is still running after the caller's `advance` returned.

        If the launch has exceeded its time limit, this sets its stop flag.
        """
        with self._back:
            if self._out and self._time.most > self._options.timeout_s:
                self._stop_hung()
            return self._out > 0

    def advance(self, *, turns: int, patience_s: float) -> bool:
        """Run a slice of `turns` turns on each host thread; return whether the launch is over.

        It waits at most `patience_s` seconds for the slice, or without limit if the kernel has no loop in
        which a warp never yields. While a slice is in the background, it starts no other and returns False.
        """
        if self.in_background:
            return False
        if self._began:
            self._settle()
        if self._begun and self._over:
            return True
        self._begun = True
        self._running.refresh_map(self._memory, shadows=self._shadows)
        self._began = time.perf_counter()
        self._out = len(self._running.threads)
        for record in self._running.threads:
            struct.pack_into("<Q", record, THREAD.offsets["fuel"], turns)
        for number in range(1, self._out):
            _threads.submit(partial(self._run, number))
        if self._program.translation.loops:
            _threads.submit(partial(self._run, 0))
        else:
            self._run(0)  # it returns soon, and one thread fewer competes for the interpreter lock
        with self._back:
            self._back.wait_for(lambda: not self._out, patience_s)
            if self._out:
                return False
        self._settle()
        return self._over

    def result(self) -> LaunchResult:
        """Return the result of a launch that is over and not closed; its `counts` is None, see `counts`."""
        reports = decode(self._program, self._work, self._memory, self._running.reports)
        return make_result(
            self._program, self._options, reports, hung=self._hung, seconds=self._seconds, tier=self._tier
        )

    @property
    def work(self) -> LaunchWork:
        """The launch's shape and memory."""
        return self._work

    @property
    def counted(self) -> Counted | None:
        """The slots of its counters; None if it does not count."""
        return self._program.translation.counted

    @property
    def counts(self) -> RawCounts | None:
        """The counters of a launch that is over; None if it does not count."""
        return self._running.read_counts()

    @property
    def instructions(self) -> list[str]:
        """The texts of the kernel's instructions, indexed by their numbers in shadow cells."""
        return [site.text for site in self._program.translation.sites]

    def describe(self, instruction: int, group: int, thread: int) -> str:
        """Describe an instruction and the thread that executed it, given their numbers (`race_place`)."""
        site = self._program.translation.sites[instruction]
        return f"line {site.line}: {site.text} by {thread_named(self._work, group, thread)}"

    def close(self) -> None:
        """Stop the launch if it still runs, and release its memory.

        It waits 1 s for the kernel to stop. After that, the last host thread to return releases the memory.
        """
        with self._back:
            self._running.stop()
            self._back.wait_for(lambda: not self._out, _STOPS_WITHIN_S)
            self._closed = True
            if self._out:
                return  # the last host thread that returns calls _end
        self._end()

    @property
    def _over(self) -> bool:
        running, work = self._running, self._work
        if LAUNCH.read(running.launch, "stop"):
            return True
        if LAUNCH.read(running.launch, "next") < work.groups // work.cluster_groups:
            return False
        return not any(THREAD.read(record, "active") for record in running.threads)

    def _settle(self) -> None:
        """Add the time of the slice that has ended, apply the time limit, choose the next slice's tier."""
        count = len(self._running.threads)
        spent, self._began = time.perf_counter() - self._began, 0.0
        self._seconds += spent
        self._program.seconds += spent * count
        limit_s = self._options.timeout_s  # CPU time is at most the elapsed time, which is read at no cost
        if self._seconds > min(_COUNTED_S, limit_s) and self._time.most > limit_s and not self._over:
            self._stop_hung()
            for record in self._running.threads:  # they report in which loops their warps are
                self._program.engine.run(ctypes.addressof(record))
        if self._tier == QUICK and self._options.tier == "auto" and not self._over:
            self._tier = first_tier(self._program, self._options)
            if self._tier == OPTIMISED:
                self._running.use(self._program.entry(OPTIMISED))

    def _stop_hung(self) -> None:
        self._hung = True
        self._running.stop()

    def _run(self, number: int) -> None:
        """Run thread `number` of the launch for one slice.

        The last one to return ends an abandoned launch.
        """
        self._time.start(number)
        try:
            self._program.engine.run(ctypes.addressof(self._running.threads[number]))
        finally:
            self._time.stop(number)
        with self._back:
            self._out -= 1
            abandoned = self._closed and not self._out
            self._back.notify_all()
        if abandoned:
            self._end()

    def _end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            self._running.return_memories()
            on_end()


class _WorkerThreads:
    """Daemon threads that run slices. A new one starts if all are busy."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job on an idle thread, or on a new one."""
        if self._process != os.getpid():  # a forked child does not have the parent's threads
            self._begin()
        with self._lock:
            fresh = self._idle == 0
            self._idle -= not fresh
        if fresh:
            with deep_stacks():
                threading.Thread(target=self._work, args=(job,), name="hcq emu-slices", daemon=True).start()
        else:
            self._jobs.put(job)

    def _work(self, job: Callable[[], None]) -> None:
        while True:
            job()
            del job  # it references a launch
            with self._lock:
                self._idle += 1
            job = self._jobs.get()


_threads = _WorkerThreads()
