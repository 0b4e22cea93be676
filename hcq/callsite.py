"""The place in the user's code that called hcq, as text for errors and fault reports.

Not here: which errors name it (`hcq.memory`, `hcq.validate.validator`).
"""

from __future__ import annotations

import sys


def user_line() -> str:
    """Return "file:line" of the innermost caller whose module is not part of hcq."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hcq."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
