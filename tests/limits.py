"""Limits of time that end what hangs; no test passes or fails by how fast it is.

Not here: the limit of a whole test (`timeout` in pyproject.toml), and waits that a test expects to time out.
"""

from __future__ import annotations

HANG_S = 600
"""Seconds until a wait counts as hung. It includes compiling, on a machine that is slow and loaded."""
CHILD_S = 1500
"""Seconds until another interpreter counts as hung."""
