"""Counters of the compiler's work in this process, for tests and tools.

Not here: counters of launches. Next: `frontend.stats`, which has both.
"""

from __future__ import annotations

lowered = 0
"""Number of kernels lowered from their AST because no cache had them."""
hits = 0
"""Number of kernels found in the disk cache."""
tried = 0
"""Number of plans that searches measured (`BEAM=n`)."""
failed = 0
"""Number of these plans that did not compile, did not end in time, or gave other results."""
unsearched = 0
"""Number of kernels that a search could not measure, and that kept the estimated plan."""
