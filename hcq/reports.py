"""Files that all devices of a process write together, each when it closes: the trace and the counted kernels.

Not here: spans (`profile`), counting (`counters`), when a device writes (`device`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hcq.counters import Counters
from hcq.profile import Span

_traces: dict[str, list[Span]] = {}
"""The spans traced so far, by file, of all devices of the process."""
_counts: dict[str, list[dict[str, object]]] = {}
"""The kernels counted so far, by file, of all devices of the process."""


def write_trace(path: str, spans: list[Span]) -> None:
    """Add spans to the Chrome trace of this process at `path`, and write it. Raises `OSError`."""
    from hcq.profile import chrome_trace  # noqa: PLC0415 - only when tracing

    _traces.setdefault(path, []).extend(spans)
    Path(path).write_text(chrome_trace(_traces[path]))


def write_counts(counters: Counters, target: str) -> None:
    """Report counted kernels: as tables on the standard error for "1", else in the JSON file `target`.

    Raises `OSError`.
    """
    if target == "1":
        if len(counters):
            print(counters.table(), file=sys.stderr)  # noqa: T201 - asked for by HCQ_COUNTERS
        return
    _counts.setdefault(target, []).extend(one.data() for one in counters)
    Path(target).write_text(json.dumps(_counts[target]))
