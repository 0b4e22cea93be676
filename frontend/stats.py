"""Counters of the frontend in this process: submitted kernels and launches, made plans, compiled kernels.

They start at 0 and only grow; a caller subtracts two readings. Copies and uploads are not counted.

Not here: times (docs/profiling.md), counters of the compiler (`compiler.stats`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(slots=True)
class Stats:
    """The counters; the only instance is `stats`."""

    kernels: int = 0
    """Kernels submitted."""
    launches: int = 0
    """Submissions of plans and of captured functions."""
    plans: int = 0
    """Plans made: structures that were scheduled and compiled, which takes milliseconds each."""

    @property
    def lowered(self) -> int:
        """Kernels that were compiled, because neither this process nor the disk cache had them."""
        from compiler import stats  # noqa: PLC0415 - nothing of the compiler before a kernel is wanted

        return stats.lowered

    @property
    def hits(self) -> int:
        """Kernels found in the disk cache."""
        from compiler import stats  # noqa: PLC0415 - as above

        return stats.hits


stats: Final = Stats()
