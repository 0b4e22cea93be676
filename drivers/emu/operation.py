"""Engine work in flight, and the outcomes of one step of a queue.

Not here: the order of the steps (`scheduler`); the work itself, which the vendor supplies
(`drivers.nv.emu.engines.channel`).
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivers.emu.races import Work
    from drivers.emu.simt.slices import SlicedLaunch


@dataclass(slots=True, eq=False)
class Operation:
    """Engine work in flight. The vendor supplies `run`, the engine's name and the descriptions."""

    run: Callable[[], Iterator[SlicedLaunch] | None]
    """Does the work at once and returns None, or returns an iterator that does one step for each item."""
    engine: str
    ordered: bool
    """Whether it waits for all earlier work of its engine."""
    what: str
    at: str
    work: Work
    """Its vector clock and the memory that it accesses, for the race check."""
    steps: Iterator[SlicedLaunch] | None = None
    """The remaining steps, once it has begun."""
    slice: SlicedLaunch | None = None
    """The launch that the last step advanced."""
    number: int = 0
    """Its place in the order of the starts of its queue, which sets it."""
    over: bool = False
    """Whether its queue has nothing more to do for it."""

    @property
    def in_background(self) -> bool:
        """Whether it runs on other threads now, so that a step of the queue cannot advance it."""
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


class Outcome(enum.Enum):
    """The result of one step of a queue."""

    PROGRESS = enum.auto()
    SLICE = enum.auto()
    """A kernel ran for a slice and is not complete."""
    BLOCKED = enum.auto()
    IDLE = enum.auto()
