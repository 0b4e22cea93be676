"""Turns of launches with the shadows of global memory, which record the accesses of one launch at a time.

A waiting launch gets the shadows between two slices of the current launch, not at its end: the current launch
may itself wait for a semaphore that the waiting one stores.

Not here: the shadows (`emulator.sanitizers.shadow_global`). Next: `emulator.simt.slices`, slices of a launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.shared.races import record_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emulator.shared.memory import AddressSpace
    from emulator.shared.races import Observer, QueueWork
    from emulator.simt.slices import SlicedLaunch

_SLICES = 8
"""Slices of a launch after which a waiting launch gets the shadows."""


@dataclass(slots=True, eq=False)
class Turn:
    """The turn of one launch, during which the shadows record its accesses."""

    launch: SlicedLaunch
    work: QueueWork
    memory: AddressSpace
    observer: Observer | None
    """A second consumer of the accesses, or None."""
    slices: int = 0
    """Slices that the launch ran in this turn."""

    def begin(self) -> None:
        """Start the turn: clear the shadows."""
        self.slices = 0
        self.memory.clear_accesses()

    def over(self) -> bool:
        """End the turn after 8 slices, unless a slice runs in the background; return whether it ended.

        The end records the accesses. A race between accesses before and after it is not detected.
        """
        if self.slices < _SLICES or self.launch.in_background:
            return False
        self.note()
        return True

    def note(self) -> None:
        """Record the accesses of the launch so far."""
        record_kernel(self.work, self.memory, self.observer)


class Turns:
    """The launches of one machine. A launch with a `Turn` runs only while it has the shadows."""

    def __init__(self, turns: int, patience_s: float) -> None:
        """`turns` and `patience_s` are the arguments of `SlicedLaunch.advance` for each slice."""
        self._slice = turns, patience_s
        self._turn: Turn | None = None

    def run(
        self, launch: SlicedLaunch, turn: Turn | None, hold: Callable[[], None]
    ) -> Iterator[SlicedLaunch]:
        """Run a launch to its end, one slice for each item that the iterator yields.

        An item is the launch that runs now: `launch`, or the one that has the shadows. With `turn` None the
        launch needs no shadows. `hold` is called after each slice that still runs in the background.
        """
        turns, patience_s = self._slice
        try:
            while True:
                while turn is not None and self._turn is not turn:
                    if self._turn is None or self._turn.over():
                        self._turn = turn
                        turn.begin()
                    else:
                        yield self._turn.launch
                if launch.advance(turns=turns, patience_s=patience_s):
                    break
                if turn is not None:
                    turn.slices += not launch.in_background
                if launch.in_background:
                    hold()
                yield launch
            if turn is not None:
                turn.note()
        finally:
            if self._turn is turn:
                self._turn = None
