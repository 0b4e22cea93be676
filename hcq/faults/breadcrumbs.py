"""Breadcrumbs: which launch of a queue finished last, and which was begun after it (`HCQ_BREADCRUMBS=1`).

After every kernel, copy and fill the queue stores a number to a signal of its own. After a hang or a fault
the number says how far the queue came. Each costs a store that waits for the command: commands that could
overlap run one after another, and a replay is encoded again.

Not here: the texts that name them (`messages`), time limits (`limits`). Next: `hcq.queue.Queue`, the owner.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from hcq.commands import Command, SetSignal
from hcq.signal import Point, Timeline, Waiter

if TYPE_CHECKING:
    from collections.abc import Sequence


class Crumb(NamedTuple):
    """One command, and the point that is reached when it is done."""

    point: Point
    command: Command
    where: str
    """"command 2 of submission 7"."""

    def __str__(self) -> str:
        return f"{self.command.title()}, {self.where}"


class Breadcrumbs:
    """The breadcrumbs of one queue. The queue's lock is held, except in `last` and `first`."""

    def __init__(self, device: Waiter, label: str) -> None:
        self._device, self._label = device, label
        self.restart()

    def restart(self) -> None:
        """Forget all commands: they are lost to a fault."""
        self._timeline = Timeline(self._device, label=f"breadcrumbs of {self._label}")
        self._crumbs = deque[Crumb]()
        self._newest = 0  # breadcrumbs before those of the submission marked last
        self._last: Crumb | None = None

    def marked(self, todo: Sequence[Command], submission: int) -> list[Command]:
        """Return the commands with stores among them; forget those passed, except the last."""
        while self._crumbs and self._crumbs[0].point.passed():
            self._last = self._crumbs.popleft()
        out, self._newest = list[Command](), len(self._crumbs)
        for number, command in enumerate(todo):
            out.append(command)
            if command.timed:
                point = self._timeline.next()
                out.append(SetSignal(point.signal, point.value - point.signal.base))
                self._crumbs.append(Crumb(point, command, f"command {number} of submission {submission}"))
        return out

    def undo(self) -> None:
        """Drop the breadcrumbs of the submission marked last, which was not sent."""
        while len(self._crumbs) > self._newest:
            self._crumbs.pop()

    def last(self) -> Crumb | None:
        """Return the command that finished last; None: none has."""
        passed = [crumb for crumb in tuple(self._crumbs) if crumb.point.passed()]
        return passed[-1] if passed else self._last

    def first(self) -> Crumb | None:
        """Return the first command that is not finished; None: all are."""
        return next((crumb for crumb in tuple(self._crumbs) if not crumb.point.passed()), None)

    def __str__(self) -> str:
        first = self.first()
        return "" if first is None else f"finished last: {self.last() or 'nothing'}; not finished: {first}"
