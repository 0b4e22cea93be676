"""The faults of a stretch of a program, also of work that nothing waits for.

Not here: how one device keeps its fault (`hcq.device.Device.faulted`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.errors import FaultReport

_OPEN: dict[int, list[FaultReport]] = {}
"""The lists of the `with` blocks that are open now, of all threads."""


@contextmanager
def collected() -> Iterator[list[FaultReport]]:
    """Collect the report of each fault of any device of this process inside the block, in order.

    A fault is noticed when something waits for the device, polls it or closes it. Closing a device does not
    raise a fault that is in the list.

        with collected() as reports:
            run_program()
    """
    reports: list[FaultReport] = []
    _OPEN[id(reports)] = reports
    try:
        yield reports
    finally:
        del _OPEN[id(reports)]


def note(report: FaultReport) -> bool:
    """Add a report to the list of each open block; return whether there is one."""
    lists = tuple(_OPEN.values())
    for reports in lists:
        reports.append(report)
    return bool(lists)
