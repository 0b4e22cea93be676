"""The command processor of an emulated machine: queues take turns on one thread, in a seeded order.

Nothing runs inside the doorbell's write. A queue that waits for a semaphore is tried again when anything
moved, and at intervals, because the host may write the semaphore. Deadlocks are looked for at a standstill
only: that reads whole rings.

Not here: what a step of a queue does, which is the vendor's; who waits for whom (`waits`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from drivers.emu.operation import Outcome

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

_ASK_AGAIN_S = 0.0005
_SLOWEST_S = 0.01
_STILL_S = 0.015
"""How long nothing but kernels has moved when waits are looked at."""
_MOST_STEPS = 6


class Queue(Protocol):
    """What the scheduler needs of a queue."""

    @property
    def yielded(self) -> bool:
        """Whether the last step requested a turn of another queue."""
        ...

    @property
    def stuck(self) -> bool:
        """Whether it can do nothing but wait for a semaphore."""
        ...

    @property
    def computing(self) -> bool:
        """Whether nothing is left to do but to run kernels on."""
        ...

    def step(self) -> Outcome:
        """Execute one operation in flight, or one command; may raise what `Machine.failed` takes."""
        ...


Q = TypeVar("Q", bound=Queue)


class Machine(Protocol[Q]):
    """What the scheduler needs of a machine. Methods are called with the lock held, `pending` without."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards the machine's state."""
        ...

    def pending(self) -> Sequence[Q]:
        """Return the queues that have work left, enabled or not."""
        ...

    def runnable(self) -> list[Q]:
        """Return those of them that may run, in an order that does not depend on time."""
        ...

    def failed(self, queue: Q, error: Exception) -> None:
        """Stop a queue whose step raised."""
        ...

    def hopeless(self, stuck: Sequence[Q]) -> Mapping[Q, str]:
        """Return which queues wait for what can never come, and why; changes nothing."""
        ...

    def hung(self, queue: Q, why: str) -> None:
        """Stop a queue whose wait never ends."""
        ...


class Scheduler(Generic[Q]):
    """The command processor of one machine. Its thread starts at the first doorbell and ends at `close`.

    Thread-safe. An exception of a step stops its queue, never the thread.
    """

    def __init__(self, machine: Machine[Q], rng: random.Random, *, thread_name: str) -> None:
        self._machine = machine
        self._wake = threading.Condition()
        self._rang = False
        """Whether a doorbell rang since the last turn began."""
        self._rng = rng
        self._thread_name = thread_name
        self._thread: threading.Thread | None = None
        self._closed = False
        self._judged = False
        """Whether waits were looked at since anything moved or rang; what the host stores changes none."""

    @property
    def running(self) -> bool:
        """Whether its thread was started and not ended."""
        return self._thread is not None

    def rung(self) -> None:
        """Take note of a doorbell, whose queue has taken its new entries; returns at once."""
        with self._wake:
            self._rang = True
            self._start()
            self._wake.notify()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._thread_name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look again: something outside changed."""
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """End the thread after the step at hand; `resume` or the next doorbell starts another."""
        with self._wake:
            thread, self._thread = self._thread, None
            self._closed = True
            self._wake.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._closed = False

    def resume(self) -> None:
        """Run the remaining work after `close`; in a forked child too, which has no other threads."""
        with self._wake:
            if self._machine.pending():
                self._start()

    def _loop(self) -> None:
        pause = _ASK_AGAIN_S
        still_since = time.monotonic()
        while True:
            with self._wake:
                rang, self._rang = self._rang, False
                if self._closed:
                    return
            with self._machine.lock:
                outcome = self._turn()
                if outcome is Outcome.PROGRESS or rang:
                    pause, still_since = _ASK_AGAIN_S, time.monotonic()
                    self._judged = False
                    continue
                if not self._judged and time.monotonic() - still_since >= _STILL_S:
                    self.judge()
            if outcome is Outcome.SLICE:
                continue
            with self._wake:
                if not self._rang and not self._closed:
                    self._wake.wait(None if outcome is Outcome.IDLE else pause)
            pause = min(pause * 2, _SLOWEST_S)

    def _turn(self) -> Outcome:
        """Let one queue run a little."""
        busy = self._machine.runnable()
        self._rng.shuffle(busy)
        for queue in busy:
            outcome = self._advance(queue)
            if outcome is not Outcome.BLOCKED:
                return outcome
        return Outcome.BLOCKED if busy else Outcome.IDLE

    def _advance(self, queue: Q) -> Outcome:
        """Run a few steps of a queue; returns the most that they came to."""
        moved = Outcome.BLOCKED
        for _ in range(self._rng.randint(1, _MOST_STEPS)):
            try:
                outcome = queue.step()
            except Exception as error:  # noqa: BLE001 - else the thread ends, and no waiter gets an error
                self._machine.failed(queue, error)
                return Outcome.PROGRESS
            if outcome is Outcome.SLICE:
                return outcome if moved is Outcome.BLOCKED else moved
            if outcome is not Outcome.PROGRESS:
                break
            moved = outcome
            if queue.yielded:
                break
        return moved

    def judge(self) -> None:
        """Stop the queues whose waits never end, if the machine stands still.

        Called with the machine's lock. A queue that can move, or whose doorbell was just written, may still
        release what others wait for: then it is too early.
        """
        busy = self._machine.runnable()
        if not all(queue.stuck or queue.computing for queue in busy):
            return
        found = self._machine.hopeless([queue for queue in busy if queue.stuck])
        with self._wake:
            if self._rang:
                return
        self._judged = True
        for queue, why in found.items():
            self._machine.hung(queue, why)
