"""Engine work in flight, and the outcomes of one step of a queue.

Not here: the order of the steps (`scheduler`), what the work does, which is the vendor's
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
    """Engine work in flight. Its vendor supplies `run`, the engine's name and the texts."""

    run: Callable[[], Iterator[SlicedLaunch] | None]
    """Does the work; a grid is done in steps, each ended by what it yields."""
    engine: str
    ordered: bool
    """It waits for everything of its engine that was put in flight before it."""
    what: str
    at: str
    work: Work
    """What it is ordered behind, and what it touches."""
    steps: Iterator[SlicedLaunch] | None = None
    """What is left of it, once begun."""
    slice: SlicedLaunch | None = None
    """The launch that it last stood at."""

    @property
    def away(self) -> bool:
        """Whether it runs without the queue, which cannot do anything for it now."""
        return self.slice is not None and self.slice.away

    def advance(self) -> bool:
        """Do the next step; returns whether that was the last."""
        if self.steps is None:
            self.steps = self.run()
        self.slice = None if self.steps is None else next(self.steps, None)
        return self.slice is None

    def abandon(self) -> None:
        """Stop in the middle and release what it holds."""
        if isinstance(self.steps, Generator):
            self.steps.close()


class Outcome(enum.Enum):
    """What a step of a queue came to."""

    PROGRESS = enum.auto()
    SLICE = enum.auto()
    """A kernel ran on and is not over."""
    BLOCKED = enum.auto()
    IDLE = enum.auto()
