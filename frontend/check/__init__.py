"""`HCQ_CHECK=1`: the first launch of every plan, repeated one plain operation at a time and compared.

`check_of` is called by `frontend.evaluation.plan` for each plan that is made under the setting; `report` says
what was compared, what only in part, and what not.

Not here: operations and bounds (`interpreter`), graphs (`evaluation`), the comparison (`launches`).
"""

from __future__ import annotations

from frontend.check.launches import TALLY, Check

__all__ = ["TALLY", "Check", "report"]


def report() -> str:
    """Return what was checked in this process, as text: a line, and one for each kernel that was not."""
    return str(TALLY)
