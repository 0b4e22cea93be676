"""What the engines need of the machine, as a Protocol.

Not here: the machine (`emulator.amd.machine`), what the machine needs of the engines
(`emulator.amd.machine.runs`). Next: `bus`, which calls most of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.shared.surprises import Rejections
    from hcq.counters import Counters


class EngineMachine(Protocol):
    """The machine of the emulated GPUs; engines call it with its lock held."""

    rng: random.Random
    """Chooses every order that hardware leaves undefined."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock of the machine's state."""

    launches: Counter[str]
    """Name of a kernel -> completed dispatches."""

    @property
    def counters(self) -> Mapping[int, Counters]:
        """gpu_id -> the counters of the GPU's dispatches; a GPU that does not count has no entry."""

    rejections: Rejections
    """The quirks whose default value its GPUs refuse (`emulator.shared.surprises`)."""

    hdp_flushes: int
    """Flushes of the host data path so far; engines count them here."""

    def lint(self, message: str) -> None:
        """Report, once a message, something that works but is probably a mistake."""

    def event_of(self, gpu: KfdGpu, va: int) -> int | None:
        """Return the number of the event whose slot is at `va`; None outside the signal page."""

    def interrupt(self, gpu: KfdGpu, context: int, bits: int, *, written: bool = False) -> None:
        """Raise an interrupt that carries the low `bits` of an event's number.

        `written` says that the queue stored to the event's slot before.
        """

    def clock(self, gpu: KfdGpu) -> int:
        """Return a GPU's counter, in its ticks."""
