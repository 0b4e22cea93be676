"""The part that rings of all kinds of packets share: their start, the wait for room, and their end.

Not here: how packets lie in a ring (`ring`, `aql_ring`), how queues are made (`queues`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from hcq.errors import DeviceFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.amd.queues import HwQueue
    from hcq.errors import FaultReport
    from hcq.pushbuffer import PushBuffer

_NAP_S: Final = 20e-6
"""Between two looks at the read pointer of a full ring."""


def nothing(_until: int) -> None:
    """Do nothing."""


def nothing_known(_queue: int) -> str:
    """Return no reports."""
    return ""


class HardwareRing:
    """The shared part of `hcq.driver.Ring`. Not thread-safe: the queue above holds its lock.

    A kind of ring sets `words` and `submissions`, calls `attach`, and has `send`, `read` and `attach` of its
    own.
    """

    words: int
    submissions: int
    unit = "words"
    """What `taken` and `read` count."""

    def __init__(
        self,
        queue: HwQueue,
        *,
        refresh: Callable[[], Sequence[int]],
        fault: Callable[[], FaultReport | None],
        fence: Callable[[], None],
        known: Callable[[int], str] = nothing_known,
    ) -> None:
        self.queue = queue
        self._refresh = refresh
        self._fault = fault
        self._fence = fence
        self._known = known
        """Returns the reports of the kernel's side when a queue, given its id, does not finish."""
        self.stalled: Callable[[int], None] = nothing
        """See `hcq.driver.Ring`; `words` and `submissions`, too."""
        view = queue.ring.view
        assert view is not None, "the ring is always mapped"
        self._words = view.cast("I")
        self._put = 0
        """Units ever written."""
        self.stale = True
        """Set by the device: the next words must be preceded by those for new code."""
        self.closed = False

    def attach(self) -> None:
        """Start on the queue, which was made anew and is empty."""
        self._put = 0
        self.stale = True

    @property
    def taken(self) -> int:
        """Units ever written; see `hcq.driver.Ring`."""
        return self._put

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Make the words of `pushbuffer` visible and ring the doorbell; see `hcq.driver.Ring`."""
        if self.stale:
            before = self._refresh()
            if before:
                self.send(before)
            self.stale = False
        self.send(pushbuffer.words, pushbuffer.calls)

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send words as they are; `calls` as in `PushBuffer`."""
        raise NotImplementedError

    def read(self) -> int:
        """Return how many units the queue has read, of all that were ever written."""
        raise NotImplementedError

    def unread(self, ending_words: int) -> int:
        """Return the units of a submission that are unread while the queue waits inside it, at least."""
        raise NotImplementedError

    def _refuse_longer(self, count: int) -> None:
        """Raise `UsageError` for more words in one submission than the ring takes."""
        if count > self.words:
            raise UsageError(
                f"{count} words at once are larger than the ring takes, {self.words}; submit it in parts"
            )

    def _wait_for_room(self, until: int, *, begun: bool = False) -> None:
        """Wait briefly for the queue to read `until` units; raise `DeviceFault`, or what `stalled` raises.

        `begun`: a part of the submission was sent, so that only a fault may end it.
        """
        report = self._fault()
        if report is not None:
            raise DeviceFault(report)
        if not begun:
            self.stalled(until)
        time.sleep(_NAP_S)

    def stuck(self) -> str:
        """Return how far the ring was read, and what the kernel's side reports; empty when all was read."""
        text = self.position()
        if not text or self._fault() is not None:  # the report of a fault has those of the kernel's side
            return text
        return text + self._known(self.queue.number)

    def position(self) -> str:
        """Return how far the ring was read; empty when all was."""
        read = self.read()
        if self.closed or not self.queue.created or read == self._put:
            return ""
        return f"{self.queue.label}: read {read} of {self._put} {self.unit}"

    def close(self) -> None:
        """Destroy the queue, also while a kernel hangs, and free its memory; idempotent."""
        if not self.closed:
            self.closed = True
            self.queue.close()
