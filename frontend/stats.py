"""Counters of the frontend in this process, which examples, tests and tools read.

`kernels` and `launches` grow with everything that is submitted; `lowered` counts the kernels that had to be
compiled because neither this process nor the disk cache had them.

Not here: times (docs/profiling.md), counts of the compiler (`compiler.stats`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(slots=True)
class Stats:
    """Running totals."""

    kernels: int = 0
    """Kernels submitted."""
    launches: int = 0
    """Submissions: realizes and replays."""
    plans: int = 0
    """Structures scheduled: each costs milliseconds, once."""

    @property
    def lowered(self) -> int:
        """Kernels that the compiler lowered."""
        from compiler import stats  # noqa: PLC0415 - nothing of the compiler before a kernel is wanted

        return stats.lowered

    @property
    def hits(self) -> int:
        """Kernels found in the disk cache."""
        from compiler import stats  # noqa: PLC0415 - as above

        return stats.hits


stats: Final = Stats()
