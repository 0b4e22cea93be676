"""The engine work that a channel has in flight, in the order of its start, and the choice of what to advance.

Adding, choosing and removing an operation takes a time that hardly grows with the number in flight.

Not here: an operation (`emulator.shared.scheduler`). Next: `channel`, which advances operations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from emulator.shared.scheduler import EngineOperation

_number = attrgetter("number")


class InFlight:
    """The operations in flight of one channel.

    An ordered operation may run when all earlier operations of its engine are over, an unordered one at any
    time.
    """

    def __init__(self) -> None:
        self._started = 0
        self._engines: dict[str, deque[EngineOperation]] = {}
        """Name of an engine -> its operations, oldest first; one that is over stays until it is the
        oldest."""
        self._unordered: list[EngineOperation] = []
        """The unordered operations of all engines that are not over, oldest first."""
        self._begun: list[EngineOperation] = []
        """The operations that ran for a slice and are not over."""

    def add(self, operation: EngineOperation) -> None:
        """Put an operation in flight, as the latest."""
        self._started += 1
        operation.number = self._started
        self._engines.setdefault(operation.engine, deque()).append(operation)
        if not operation.ordered:
            self._unordered.append(operation)

    def any(self, engine: str | None = None) -> bool:
        """Return whether an engine (None: any engine) has work in flight."""
        return bool(self._engines) if engine is None else engine in self._engines

    def first(self) -> EngineOperation:
        """Return the operation that started first; there must be one."""
        return min((own[0] for own in self._engines.values()), key=_number)

    @property
    def computing(self) -> bool:
        """Whether there is work, and all work that may run now has begun: kernels between two slices."""
        count = len(self._unordered) + len(self._first())
        return count == len(self._begun) > 0

    def ready(self) -> ReadyOperations:
        """Return the operations that may run next, without those that run on other threads now."""
        running = [one for one in self._begun if one.in_background]
        return ReadyOperations(self._unordered, self._first(), running)

    def _first(self) -> list[EngineOperation]:
        """Return the ordered operations that are the oldest of their engines."""
        return [own[0] for own in self._engines.values() if own[0].ordered]

    def ran(self, operation: EngineOperation, *, over: bool) -> None:
        """Record that an operation was advanced, and is over or not. Does nothing if it was abandoned."""
        if operation.over:
            return
        begun = operation in self._begun
        if not over:
            if not begun:
                self._begun.append(operation)
            return
        operation.over = True
        if begun:
            self._begun.remove(operation)
        if not operation.ordered:
            del self._unordered[bisect_left(self._unordered, operation.number, key=_number)]
        own = self._engines[operation.engine]
        while own and own[0].over:
            own.popleft()
        if not own:
            del self._engines[operation.engine]

    def abandon(self) -> None:
        """Stop all operations, and release what they hold."""
        for one in self:
            one.over = True
            one.abandon()
        self._engines.clear()
        self._unordered.clear()
        self._begun.clear()

    def __bool__(self) -> bool:
        return bool(self._engines)

    def __iter__(self) -> Iterator[EngineOperation]:
        """Yield all operations that are not over, engine by engine. Other threads may call it, too."""
        return iter([one for own in tuple(self._engines.values()) for one in tuple(own) if not one.over])


class ReadyOperations:
    """Operations that may run next, in the order of their start; false if there are none."""

    def __init__(
        self, unordered: list[EngineOperation], first: list[EngineOperation], running: list[EngineOperation]
    ) -> None:
        """Take the operations of `unordered` and `first`, without those of `running`."""
        self._unordered = unordered
        self._first = sorted(first, key=_number)
        self._skipped = sorted(self._place(one) for one in running)
        self._count = len(unordered) + len(first) - len(running)

    def _place(self, one: EngineOperation) -> int:
        """Return the position of an operation among all of `unordered` and `first`."""
        before = sum(other.number < one.number for other in self._first)
        return bisect_left(self._unordered, one.number, key=_number) + before

    def __bool__(self) -> bool:
        return self._count > 0

    def choose(self, rng: random.Random) -> EngineOperation:
        """Return one of the operations at random; there must be one."""
        at = rng.randrange(self._count)
        for place in self._skipped:
            at += place <= at
        for one in self._first:
            place = self._place(one)
            if place == at:
                return one
            if place > at:
                break
        return self._unordered[at - sum(self._place(one) < at for one in self._first)]
