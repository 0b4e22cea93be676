"""Counters of compiler work in this process, read by tests and tools.

Not here: launches (`frontend.stats`, which includes these counts).
"""

from __future__ import annotations

lowered = 0
"""Kernels lowered from their AST: neither the disk cache nor the process had them."""
hits = 0
"""Kernels found in the disk cache."""


def count_lowered(number: int = 1) -> None:
    """Add to `lowered`."""
    global lowered  # noqa: PLW0603  # a counter of the process
    lowered += number


def count_hit() -> None:
    """Add to `hits`."""
    global hits  # noqa: PLW0603  # a counter of the process
    hits += 1
