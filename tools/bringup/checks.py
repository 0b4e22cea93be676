"""What rungs of every vendor judge by: results, repeats, what arrives late, and how long all that may take.

Not here: the parts of a driver that a rung runs on (`bench` of a vendor).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hcq.errors import HcqError

if TYPE_CHECKING:
    from collections.abc import Callable

Facts = dict[str, object]
SIGNAL_S: Final = 1.0
"""How long a semaphore may take."""
WORK_S: Final = 5.0
"""How long a submission may take."""
REPEATS: Final = 20
"""How often what a rung shows must work: a raw client on Hopper saw a quarter to a third of its copies fail
where addresses of CPU and GPU differed (`docs/sources.md`), so that one that works is no evidence."""
_GIVE_UP: Final = 3
"""Failures after which the repeats end."""
LATE_S: Final = 1.0
"""How long a store may take to become visible after its release, where nothing orders the two."""
EMULATED_PATIENCE: Final = 20.0
"""What limits are multiplied by where the GPU is emulated: it is as slow as what else its host does."""


class RungError(HcqError):
    """A rung saw something else than it should have."""


@dataclass(kw_only=True)
class Checks:
    """The judgement of a rung. `check` does not compare in a dry run, where nothing is computed.

    The bench of each vendor is one, so that a rung has a single argument.
    """

    dry: bool = False
    emulate: str | None = None
    """The emulated GPU that this is, if it is one: children must run on the same, and sizes are small."""
    signal_s: float = SIGNAL_S
    """How long a semaphore may take; see `patience`."""
    clock: Callable[[], float] = field(default=time.perf_counter)
    """Seconds, for what is waited for here."""

    @property
    def patience(self) -> float:
        """What all time limits are multiplied by."""
        return 1.0 if self.emulate is None else EMULATED_PATIENCE

    @property
    def work_s(self) -> float:
        """How long a submission may take, in seconds."""
        return WORK_S * self.patience

    def check(self, fine: bool, text: str) -> None:  # noqa: FBT001 - an assertion's condition
        """Raise unless `fine`; in a dry run nothing was computed, and nothing is checked."""
        if not fine and not self.dry:
            raise RungError(text)

    @property
    def repeats(self) -> int:
        """How often what a rung shows is to be repeated; a dry run computes nothing."""
        return 2 if self.dry else REPEATS

    def repeat(self, what: str, once: Callable[[int], None]) -> int:
        """Run `once` with 1, 2, ...; raise when one of the runs fails; return how many there were."""
        failed: list[str] = []
        number = 0
        while number < self.repeats and len(failed) < _GIVE_UP:
            number += 1
            try:
                once(number)
            except RungError as error:
                failed.append(f"repeat {number}: {error}")
        if failed:
            texts = "\n".join(failed)
            raise RungError(f"{what}: {len(failed)} of {number} repeats failed\n{texts}")
        return number

    def arrival(self, read: Callable[[], object], want: object) -> float | None:
        """Return after how many seconds `read` gives `want`, 0 for at once; None for not at all in time."""
        start, limit_s = self.clock(), LATE_S * self.patience
        waited = 0.0
        while read() != want:
            waited = self.clock() - start
            if self.dry or waited > limit_s:
                return None
        return waited
