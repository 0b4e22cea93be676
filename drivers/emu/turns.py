"""Which launch has the shadows of global memory: races and loads are recorded of one launch at a time.

A launch that waits for its turn takes over between slices, because the one that has it may wait for that one.
Not here: the shadows (`drivers.emu.sanitizers.shadow_global`), slices (`drivers.emu.simt.slices`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.emu.races import note_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivers.emu.memory import AddressSpace
    from drivers.emu.races import Observer, Work
    from drivers.emu.simt.slices import SlicedLaunch

_SLICES = 8
"""Slices of a launch before another that waits takes over the shadows."""


@dataclass(slots=True, eq=False)
class Turn:
    """The time in which one launch has the shadows; another that waits takes them over between slices."""

    launch: SlicedLaunch
    work: Work
    memory: AddressSpace
    observer: Observer | None
    """What else takes the shadows."""
    slices: int = 0

    def begin(self) -> None:
        """Take the shadows."""
        self.slices = 0
        self.memory.forget_parties()

    def over(self) -> bool:
        """Give the shadows away if it is time, and note what the launch did so far.

        Races between workgroups before and after are then not seen.
        """
        if self.slices < _SLICES or self.launch.away:
            return False
        self.note()
        return True

    def note(self) -> None:
        """Note what the launch did so far."""
        note_kernel(self.work, self.memory, self.observer)


class Turns:
    """Runs the launches of one machine; those with a `Turn` have the shadows one at a time."""

    def __init__(self, turns: int, patience_s: float) -> None:
        """`turns` of workgroups and `patience_s` are those of a slice (`SlicedLaunch.advance`)."""
        self._slice = turns, patience_s
        self._turn: Turn | None = None

    def run(
        self, launch: SlicedLaunch, turn: Turn | None, hold: Callable[[], None]
    ) -> Iterator[SlicedLaunch]:
        """Run a launch to its end, a slice a step; `hold` keeps its memory while a slice is away."""
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
                    turn.slices += not launch.away
                if launch.away:
                    hold()
                yield launch
            if turn is not None:
                turn.note()
        finally:
            if self._turn is turn:
                self._turn = None
