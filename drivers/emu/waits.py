"""Waits that never end: deadlock detection over semaphores, and values that have passed.

The host may write a semaphore too, so a wait is hopeless only where its release is already promised by a
queue that waits, or where the word only rises and is past the one value that would end it.

Not here: how a vendor's queue finds the releases ahead of it, what an error is called.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from drivers.emu.releases import Written

_REMEMBERED = 64


class Wait(Protocol):
    """What is needed of a queue's wait for a semaphore; its text names the condition."""

    @property
    def va(self) -> int:
        """Device address of the word."""
        ...

    @property
    def bits(self) -> int:
        """Bits of the word that are compared."""
        ...

    @property
    def payload(self) -> int:
        """What the word is compared with."""
        ...

    @property
    def equality(self) -> bool:
        """Whether the payload alone ends it."""
        ...

    def satisfied(self, value: int) -> bool:
        """Return whether a value of the word ends it."""
        ...


class Promise(Protocol):
    """What is needed of a release that a queue has not reached yet."""

    @property
    def va(self) -> int:
        """Device address of the word."""
        ...

    @property
    def payload(self) -> int:
        """What it will write."""
        ...


class Waiter(Protocol):
    """What is needed of a queue."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def at(self) -> str:
        """Where in its stream it waits."""
        ...

    @property
    def waiting(self) -> Wait | None:
        """The wait that it stands at."""
        ...


W = TypeVar("W", bound=Waiter)


def find_deadlock(blocked: Sequence[W], promised: Callable[[W], Iterable[Promise]]) -> dict[W, str] | None:
    """Return the queues that wait in a cycle, each with the wait graph in words, or None.

    `blocked` are queues that can do nothing but wait; `promised` yields the releases ahead of one in its
    stream.
    """
    edges: dict[int, list[tuple[W, Promise]]] = {}
    promises = {id(queue): list(promised(queue)) for queue in blocked}
    for queue in blocked:
        wait = queue.waiting
        if wait is None:
            continue
        edges[id(queue)] = [
            (other, one)
            for other in blocked
            for one in promises[id(other)]
            if one.va == wait.va and wait.satisfied(one.payload & ((1 << wait.bits) - 1))
        ]
    for queue in blocked:
        cycle = _cycle(queue, edges)
        if cycle:
            words = "; ".join(_describe(one, edges) for one in cycle)
            return dict.fromkeys(cycle, f"queues wait for each other: {words}")
    return None


def _cycle(start: W, edges: Mapping[int, Sequence[tuple[W, Promise]]]) -> list[W]:
    """Return a path of waits from a queue back to itself."""
    path: list[W] = []
    queue = start
    while all(queue is not one for one in path):
        path.append(queue)
        following = edges.get(id(queue), [])
        if not following:
            return []
        queue = following[0][0]
    first = next(i for i, one in enumerate(path) if one is queue)
    return path[first:]


def _describe(queue: W, edges: Mapping[int, Sequence[tuple[W, Promise]]]) -> str:
    other, one = edges[id(queue)][0]
    who = "itself" if other is queue else other.name
    later = f"which {who} would release with {one.payload:#x} later"
    return f"{queue.name} does {queue.waiting} ({queue.at}), {later}"


@dataclass(slots=True)
class _Word:
    """What engines wrote to a word."""

    values: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    rising: bool = True
    """Each value is above the one before, and nothing else wrote between."""
    bits: int = 64
    """Of the last store."""


class SemaphoreHistory:
    """The values that engines of a machine wrote to semaphores, by host address.

    Needs of its vendor that every store to a semaphore is noted just before it becomes visible.
    """

    def __init__(self) -> None:
        self._words: dict[int, _Word] = {}

    def width(self, at: int) -> int:
        """Return with how many bits engines last wrote a word; 0 if none did."""
        word = self._words.get(at)
        return 0 if word is None else word.bits

    def forget(self, start: int, end: int) -> None:
        """Drop [start, end), which is freed: what is allocated there next is another's."""
        for at in [at for at in self._words if start <= at < end]:
            del self._words[at]

    def note(self, one: Written) -> None:
        """Take note of a store."""
        word = self._words.get(one.at)
        if word is None or (word.values and one.old != word.values[-1] and one.old == 0):
            word = self._words[one.at] = _Word()  # new, or reset by its owner
        if (word.values and one.old != word.values[-1]) or one.new <= one.old:
            word.rising = False
        word.values.append(one.new)
        word.bits = one.bits

    def passed(self, at: int, wait: Wait, seen: int) -> bool:
        """Return whether a wait for one value never ends: the word had it, rose above it and never fell."""
        word = self._words.get(at)
        return (
            word is not None
            and wait.equality
            and word.rising
            and seen > wait.payload
            and word.values[-1] == seen
            and wait.payload in word.values
        )
