"""The error of every call on a faulted device, and the collection of all faults inside a `with` block.

The collection includes faults of work that nothing waits for.

Not here: when a device is faulted, and how it keeps its fault (`hcq.device.Device.faulted`), the report's
text (`messages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hcq.errors import DeviceFault, FaultReport


class FaultRefusal:
    """An error factory that records whether it was called. Usable from any thread."""

    __slots__ = ("collected", "raised", "report")

    def __init__(self, report: FaultReport) -> None:
        self.report = report
        self.raised = False
        """Whether a caller got the error."""
        self.collected = False
        """Whether the report is in a list of `hcq.faults.refusal.collected`."""

    def __call__(self) -> DeviceFault:
        """Return a new error; the caller raises it."""
        self.raised = True
        return DeviceFault(self.report)


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
