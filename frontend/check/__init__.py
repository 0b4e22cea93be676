"""`HCQ_CHECK=1`: the first launch of every plan is compared with an evaluation of its tensor graph in NumPy.

`frontend.evaluation.plan` makes a `Check` for each plan that is built under the setting. `report` says which
kernels were compared completely, by a sample of their results, or not at all.

Not here: single operations and their bounds (`interpreter`), graphs (`evaluation`). Next: `launches`.
"""

from __future__ import annotations

from frontend.check.launches import TALLY, Check

__all__ = ["TALLY", "Check", "report"]


def report() -> str:
    """Return as text what was checked in this process: one line, and one for each kernel not compared."""
    return str(TALLY)
