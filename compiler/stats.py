"""Counters of the compiler's work in this process, for tests and tools.

Not here: launches (`frontend.stats`, which includes these counts).
"""

from __future__ import annotations

lowered = 0
"""Number of kernels lowered from their AST because no cache had them."""
hits = 0
"""Number of kernels found in the disk cache."""
