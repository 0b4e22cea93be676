"""A queue: its ring, and the thread that executes the packets in order.

Not here: the layout of packets (`packets`), memory and waits of the host (`device`).
"""

from __future__ import annotations

import ctypes
import threading
import time
from array import array
from collections import deque
from typing import TYPE_CHECKING

from hcq import UsageError
from hcq_dma.packets import PACKET_WORDS, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.pushbuffer import PushBuffer

SUBMISSIONS = 256
"""The most submissions in the ring at one time."""
WORDS = 1 << 16
"""The most words of one submission."""
POLL_S = 0.001
"""Seconds between two reads of an awaited slot: another device may set it without a call of this driver."""


def read64(va: int) -> int:
    """Return the u64 at an address."""
    return ctypes.c_uint64.from_address(va).value


class Stopped(Exception):  # noqa: N818 - not an error
    """Ends the thread of an engine, between two packets or in a wait."""


class Engine:
    """The ring of one queue and its thread; see `hcq.driver.Ring`.

    `changed` is notified at every signal, submission and end of a submission.
    """

    def __init__(self, name: str, changed: threading.Condition) -> None:
        self.words = WORDS
        self.submissions = SUBMISSIONS
        self.stalled: Callable[[int], None] = lambda _until: None
        self.taken = 0
        self._name = name
        self._changed = changed
        self._run = _Run(changed)
        self._start()

    def _start(self) -> None:
        threading.Thread(target=self._run.loop, name=f"hcq {self._name}", daemon=True).start()

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Append a copy of the words; sleep while the ring is full.

        Raises `UsageError` for a word of more than 64 bits or more than `WORDS` words, and what `stalled`
        raises. Nothing is appended then.
        """
        try:
            words = array("Q", pushbuffer.words)
        except (OverflowError, TypeError) as error:
            raise UsageError(f"a word of the stream does not fit 64 bits: {error}") from None
        if len(words) > WORDS:
            raise UsageError(f"{len(words)} words do not fit the ring of {WORDS}")
        with self._changed:
            while len(self._run.pending) >= SUBMISSIONS:
                self._changed.wait(POLL_S)
                self.stalled(self.taken + 1 - SUBMISSIONS)
            self._run.pending.append(words)
            self.taken += 1
            self._changed.notify_all()

    def unread(self, ending_words: int) -> int:
        """Return 1: a submission stays in the ring until it is complete."""
        del ending_words
        return 1

    def stuck(self) -> str:
        """Return the current operation as text; empty when the engine is idle."""
        waiting = self._run.waiting
        if waiting is None:
            return "executes packets" if self._run.pending else ""
        va, value = waiting
        return f"waits for the signal at {va:#x} to reach {value}, it is {read64(va)}"

    def close(self) -> None:
        """Stop the thread and drop all submissions. No memory is accessed after this returns."""
        self._run.stop()

    def restart(self) -> None:
        """Stop as `close`, and continue with an empty ring."""
        self._run.stop()
        self._run = _Run(self._changed)
        self._start()


class _Run:
    """The submissions of one thread of an engine, from its start to its end."""

    def __init__(self, changed: threading.Condition) -> None:
        self.pending: deque[array[int]] = deque()
        """Submissions; the first one is being executed."""
        self.waiting: tuple[int, int] | None = None
        self._changed = changed
        self._stop = False
        self._ended = threading.Event()

    def stop(self) -> None:
        """End the thread; return when it has ended."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        self._ended.wait()

    def loop(self) -> None:
        """Execute submissions until stopped."""
        try:
            while True:
                with self._changed:
                    while not self.pending:
                        self._check()
                        self._changed.wait()
                self._execute(self.pending[0])
                with self._changed:
                    self.pending.popleft()
                    self._changed.notify_all()
        except Stopped:
            pass
        finally:
            self._ended.set()

    def _check(self) -> None:
        if self._stop:
            raise Stopped

    def _execute(self, words: Sequence[int]) -> None:
        for at in range(0, len(words), PACKET_WORDS):
            self._check()
            op, a, b, c = words[at : at + PACKET_WORDS]
            if op == Op.COPY:
                ctypes.memmove(a, b, c)
            elif op == Op.FILL:
                ctypes.memmove(a, b.to_bytes(4, "little") * (c // 4), c)
            elif op == Op.WRITE32:
                ctypes.c_uint32.from_address(a).value = b
            elif op == Op.WRITE64:
                ctypes.c_uint64.from_address(a).value = b
            elif op == Op.WAIT:
                self._wait(a, b)
            elif op == Op.SIGNAL:
                with self._changed:
                    ctypes.c_uint64.from_address(a).value = b
                    self._changed.notify_all()
            elif op == Op.TIMESTAMP:
                ctypes.c_uint64.from_address(a).value = time.monotonic_ns()
            elif op == Op.INDIRECT:
                self._execute(list((ctypes.c_uint64 * b).from_address(a)))
            else:
                raise AssertionError(f"no packet begins with {op:#x}")  # only the encoder makes packets

    def _wait(self, va: int, value: int) -> None:
        self.waiting = va, value
        with self._changed:
            while read64(va) < value:
                self._check()
                self._changed.wait(POLL_S)
        self.waiting = None
