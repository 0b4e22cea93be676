"""The command processor of an emulated machine: queues take turns on one thread, in a seeded order.

No command runs inside the store to a doorbell. A queue that waits for a semaphore is retried after any
progress, and at intervals, because the host may write the semaphore. Deadlock detection reads whole rings, so
it runs only when no queue progresses.

A step of a queue ends with a `StepOutcome`, and may leave engine work in flight (`EngineOperation`). The
state of the machine is guarded by a fair, reentrant lock (`TurnLock`), which the thread takes for each turn.

Not here: the work of a step, which the vendor defines (`emulator.nv.engines.channel`); the wait graph
(`waits`). Next: `waits`.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from hcq.locks import Condition, owned

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from emulator.shared.races import QueueWork
    from emulator.simt.slices import SlicedLaunch


class TurnLock:
    """A reentrant lock that a waiting thread gets before the previous holder can take it again.

    The scheduler's thread takes it continuously; calls of the driver on other threads get it between two
    steps. An interrupt in `with lock:` never leaves it held (`hcq.locks`).
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        """Held by the thread that waits for `_held`."""
        self._held = threading.RLock()

    @property
    def __enter__(self) -> Callable[[], object]:
        """What takes the lock, chosen while nothing is taken yet."""
        return self._held.__enter__ if owned(self._held) else self._take

    __exit__: Any = property(attrgetter("_held.__exit__"))

    def _take(self) -> None:
        try:
            with self._next:
                self._held.acquire()
        except BaseException:
            if owned(self._held):
                self._held.release()
            raise


@dataclass(slots=True, eq=False)
class EngineOperation:
    """Engine work in flight. The vendor supplies `run`, the engine's name and the descriptions."""

    run: Callable[[], Iterator[SlicedLaunch] | None]
    """Does the work at once and returns None, or returns an iterator that does one step for each item."""
    engine: str
    ordered: bool
    """Whether it waits for all earlier work of its engine."""
    what: str
    """A description of the work, for reports."""
    at: str
    """The command that started it, for reports."""
    work: QueueWork
    """Its vector clock and the memory that it accesses, for the race check."""
    steps: Iterator[SlicedLaunch] | None = None
    """The remaining steps; None before the first, and for work that `run` did at once."""
    slice: SlicedLaunch | None = None
    """The launch that the last step advanced; None if none did, or the work is complete."""
    number: int = 0
    """Its number in the order in which its queue started work; the queue sets it."""
    over: bool = False
    """Whether its queue has done everything for it; the queue sets it."""

    @property
    def in_background(self) -> bool:
        """Whether it runs on other threads now; then `advance` cannot speed it up."""
        return self.slice is not None and self.slice.in_background

    def advance(self) -> bool:
        """Do the next step; return whether the work is complete."""
        if self.steps is None:
            self.steps = self.run()
        self.slice = None if self.steps is None else next(self.steps, None)
        return self.slice is None

    def abandon(self) -> None:
        """Stop unfinished work and release what it holds."""
        if isinstance(self.steps, Generator):
            self.steps.close()


class StepOutcome(enum.Enum):
    """The result of one step of a queue."""

    PROGRESS = enum.auto()
    SLICE = enum.auto()
    """A kernel ran for a slice and is not complete."""
    BLOCKED = enum.auto()
    """The queue waits; the step did nothing."""
    IDLE = enum.auto()
    """There is no work."""


_ASK_AGAIN_S = 0.0005
"""The first interval between retries of blocked queues; it doubles up to `_SLOWEST_S`."""
_SLOWEST_S = 0.01
_STILL_S = 0.015
"""Seconds without progress, except of kernels in flight, after which waits are checked for deadlock."""
_MOST_STEPS = 6
"""The most steps of one queue in a turn; the number is drawn at random."""


class ScheduledQueue(Protocol):
    """A queue as the scheduler uses it."""

    @property
    def yielded(self) -> bool:
        """Whether the last step requested that another queue run next."""

    @property
    def stuck(self) -> bool:
        """Whether the queue can only wait for a semaphore."""

    @property
    def computing(self) -> bool:
        """Whether the queue can only continue kernels that are in flight."""

    def step(self) -> StepOutcome:
        """Advance an operation in flight, or execute a command. An exception stops the queue (`failed`)."""


Q = TypeVar("Q", bound=ScheduledQueue)


class ScheduledMachine(Protocol[Q]):
    """A machine as the scheduler uses it. Methods are called with the lock held, except `pending`."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards the machine's state."""

    def pending(self) -> Sequence[Q]:
        """Return the queues that have work left, also those that may not run now."""

    def runnable(self) -> list[Q]:
        """Return the pending queues that may run, in a deterministic order."""

    def failed(self, queue: Q, error: Exception) -> None:
        """Stop a queue whose step raised `error`."""

    def endless_waits(self, stuck: Sequence[Q]) -> Mapping[Q, str]:
        """Return those of `stuck` whose wait can never end, each with the reason. Changes nothing."""

    def hung(self, queue: Q, why: str) -> None:
        """Stop a queue whose wait never ends, for the reason `why`."""


class Scheduler(Generic[Q]):
    """The command processor of one machine. Its thread starts at the first doorbell and ends at `close`.

    Thread-safe. An exception in a step stops its queue, never the thread.
    """

    def __init__(self, machine: ScheduledMachine[Q], rng: random.Random, *, thread_name: str) -> None:
        self._machine = machine
        self._wake = Condition()
        self._rang = False
        """Whether a doorbell rang since the last turn began."""
        self._woken = False
        """Whether `wake` was called since the last turn began."""
        self._rng = rng
        self._thread_name = thread_name
        self._thread: threading.Thread | None = None
        """The thread that runs turns; another one ends with its turn."""
        self._checked = False
        """Whether waits were checked since the last progress or doorbell. Stores of the host do not reset
        it."""

    @property
    def running(self) -> bool:
        """Whether the thread has been started and not ended."""
        return self._thread is not None

    def doorbell_rung(self) -> None:
        """Wake the thread after a doorbell whose queue has read its new entries; return at once."""
        with self._wake:
            self._rang = True
            self._start()
            self._wake.notify()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._thread_name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Retry blocked queues now, because state outside the scheduler changed."""
        with self._wake:
            self._woken = True
            self._wake.notify()

    def close(self) -> None:
        """End the thread after its current turn, and wait for it. `resume` or a doorbell starts a new one.

        On the thread itself it returns at once, and the thread ends with its turn.
        """
        with self._wake:
            thread, self._thread = self._thread, None
            self._wake.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def resume(self) -> None:
        """Start the thread if there is pending work, after `close` or in a forked child."""
        with self._wake:
            if self._machine.pending():
                self._start()

    def _loop(self) -> None:
        """Run turns until the scheduler is closed; sleep while nothing happens, and detect endless waits."""
        pause = _ASK_AGAIN_S
        still_since = time.monotonic()
        while True:
            with self._wake:
                rang, self._rang, self._woken = self._rang, False, False
                if self._thread is not threading.current_thread():
                    return
            with self._machine.lock:
                outcome = self._turn()
                if outcome is StepOutcome.PROGRESS or rang:
                    pause, still_since = _ASK_AGAIN_S, time.monotonic()
                    self._checked = False
                    continue
                if not self._checked and time.monotonic() - still_since >= _STILL_S:
                    self.check_waits()
            if outcome is StepOutcome.SLICE:
                continue
            with self._wake:
                if not self._rang and not self._woken and self._thread is threading.current_thread():
                    self._wake.wait(None if outcome is StepOutcome.IDLE else pause)
            pause = min(pause * 2, _SLOWEST_S)

    def _turn(self) -> StepOutcome:
        """Run a few steps of one queue, chosen at random among the queues that are not blocked."""
        busy = self._machine.runnable()
        if len(busy) > 1:
            self._rng.shuffle(busy)
        for queue in busy:
            outcome = self._advance(queue)
            if outcome is not StepOutcome.BLOCKED:
                return outcome
        return StepOutcome.BLOCKED if busy else StepOutcome.IDLE

    def _advance(self, queue: Q) -> StepOutcome:
        """Run a few steps of a queue. Return PROGRESS if any made progress, else SLICE or BLOCKED."""
        moved = StepOutcome.BLOCKED
        for _ in range(self._rng.randint(1, _MOST_STEPS)):
            try:
                outcome = queue.step()
            except Exception as error:  # noqa: BLE001 - otherwise the thread ends and no waiter gets an error
                self._machine.failed(queue, error)
                return StepOutcome.PROGRESS
            if outcome is StepOutcome.SLICE:
                return outcome if moved is StepOutcome.BLOCKED else moved
            if outcome is not StepOutcome.PROGRESS:
                break
            moved = outcome
            if queue.yielded:
                break
        return moved

    def check_waits(self) -> None:
        """Stop the queues whose waits never end, if no queue of the machine can progress.

        The caller holds the machine's lock. Nothing is stopped while a queue can progress, or if a doorbell
        was just written: these queues may still release the semaphores that others wait for.
        """
        busy = self._machine.runnable()
        if not all(queue.stuck or queue.computing for queue in busy):
            return
        found = self._machine.endless_waits([queue for queue in busy if queue.stuck])
        with self._wake:
            if self._rang:
                return
        self._checked = True
        for queue, why in found.items():
            self._machine.hung(queue, why)
