"""Counters of compiler work in this process, read by tests and tools.

Not here: launches (`frontend.stats`, which includes these counts).
"""

from __future__ import annotations

lowered = 0
"""Kernels lowered from their AST: neither the disk cache nor the process had them."""
hits = 0
"""Kernels found in the disk cache."""
