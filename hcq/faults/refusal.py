"""The error of every call on a faulted device, and whether a caller has met it.

Not here: when a device is faulted (`hcq.device.Device.faulted`), the report's text (`messages`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.errors import DeviceFault

if TYPE_CHECKING:
    from hcq.errors import FaultReport


class FaultRefusal:
    """An error factory that records whether it was called. Usable from any thread."""

    __slots__ = ("collected", "raised", "report")

    def __init__(self, report: FaultReport) -> None:
        self.report = report
        self.raised = False
        """Whether a caller got the error."""
        self.collected = False
        """Whether the report is in a list of `hcq.faults.collect.collected`."""

    def __call__(self) -> DeviceFault:
        """Return a new error; the caller raises it."""
        self.raised = True
        return DeviceFault(self.report)
