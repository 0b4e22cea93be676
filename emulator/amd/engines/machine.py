"""The interface of the machine to its engines.

Not here: the machine (`emulator.amd.machine`), what it needs of engines
(`emulator.amd.machine.runs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.shared.otherwise import Otherwise
    from hcq.counters import Counters


class EngineMachine(Protocol):
    """Emulated GPUs in one machine; engines call it with its lock held."""

    @property
    def rng(self) -> random.Random:
        """Decides every order that hardware leaves open."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards the state."""

    @property
    def launches(self) -> Counter[str]:
        """Kernel -> dispatches run."""

    @property
    def counters(self) -> Mapping[int, Counters]:
        """gpu_id -> what dispatches of the GPU are counted into."""

    other: Otherwise
    """The doubtful values that its GPUs take the other way."""

    hdp_flushes: int
    """Flushes of the host data path so far."""

    def lint(self, message: str) -> None:
        """Report once what works, and is a sign of a mistake all the same."""

    def event_of(self, gpu: KfdGpu, va: int) -> int | None:
        """Return the event whose slot is at an address of a GPU; None outside of the signal page."""

    def interrupt(self, gpu: KfdGpu, context: int, bits: int, *, written: bool = False) -> None:
        """Raise an interrupt that carries the low `bits` of an event's number.

        `written`: the queue stored to a slot before.
        """

    def clock(self, gpu: KfdGpu) -> int:
        """Return a GPU's counter, in its ticks."""
