"""Work that a queue started and does not wait for: kernels, releases, copies, each behind some of the others.

Not here: which of them is advanced next (`run`).
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from drivers.amd.emu.engines.order import Order
    from drivers.emu.races import Work
    from drivers.emu.simt.slices import SlicedLaunch


class Sort(enum.Enum):
    """What kind of work it is."""

    KERNEL = enum.auto()
    RELEASE = enum.auto()
    """A store, and maybe an interrupt, at the end of the pipe."""
    COPY = enum.auto()


@dataclass(slots=True, eq=False)
class Flight:
    """One piece of work."""

    sort: Sort
    at: str
    steps: Iterator[SlicedLaunch]
    """The rest of it; each step of a kernel is ended by a slice."""
    after: tuple[Flight, ...]
    """What must be over before it begins."""
    work: Work | None = None
    """What it is ordered behind and what it touches, where that is recorded."""
    through_l2: bool = False
    """Whether a copy reads and stores through the L2, as kernels do."""
    over: bool = False
    slice: SlicedLaunch | None = None

    @property
    def ready(self) -> bool:
        """Whether it may run on."""
        return all(one.over for one in self.after)

    @property
    def in_background(self) -> bool:
        """Whether it runs without the queue, which cannot do anything for it now."""
        return self.slice is not None and self.slice.in_background


def once(act: Callable[[], None]) -> Iterator[SlicedLaunch]:
    """Return the steps of work that is done at once."""
    act()
    yield from ()


@dataclass(slots=True)
class Flights:
    """What one queue has in flight, the oldest first."""

    order: Order | None = None
    """Records the order of work, where that is asked for."""
    all: list[Flight] = field(default_factory=list)

    def begin(
        self,
        sort: Sort,
        at: str,
        steps: Iterator[SlicedLaunch],
        *,
        after: Iterable[Flight] = (),
        behind: Collection[Sort] = (),
        through_l2: bool = False,
    ) -> Flight:
        """Put work in flight, behind some others and behind all earlier work of some sorts."""
        first = (*after, *(one for one in self.all if one.sort in behind))
        work = None if self.order is None else self.order.begin(sort, at, behind, first)
        flight = Flight(sort, at, steps, tuple(one for one in first if not one.over), work, through_l2)
        self.all.append(flight)
        return flight

    def of(self, *sorts: Sort) -> list[Flight]:
        """Return the flights of some kinds, of all without any."""
        return [one for one in self.all if not sorts or one.sort in sorts]

    def any(self, sorts: Collection[Sort]) -> bool:
        """Return whether a flight of some kinds is not over."""
        return any(one.sort in sorts for one in self.all)

    def ready(self) -> list[Flight]:
        """Return those that may be advanced."""
        return [one for one in self.all if one.ready]

    def advance(self, flight: Flight) -> bool:
        """Do the next step of one; returns whether it is over."""
        flight.slice = next(flight.steps, None)
        if flight.slice is None:
            flight.over, flight.after = True, ()  # not held: each would hold all before it
            self.all.remove(flight)
        return flight.over

    def abandon(self) -> None:
        """Stop all in the middle, and release what they hold."""
        for flight in self.all:
            if isinstance(flight.steps, Generator):
                flight.steps.close()
        self.all.clear()
