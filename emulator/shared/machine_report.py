"""Findings of an emulated GPU about its driver: kind, queue, and the error that stops the queue.

Not here: findings about a kernel (`emulator.ir.report`), the vendors' error codes
(`emulator.nv.engines.faults`). Next: `scheduler`, whose machine stops a queue on a `QueueError`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FindingKind(enum.Enum):
    """The kind of a finding."""

    MMU_FAULT = "mmu fault"
    HOST = "host"
    """A bad ring entry, packet header, host command or engine number."""
    METHOD = "method"
    """A bad command or data of an engine."""
    LAUNCH = "launch"
    """A launch descriptor, constant bank or image that does not fit its kernel."""
    KERNEL = "kernel"
    """A fault that a kernel caused."""
    RACE = "race"
    """Work of two queues, or unbarriered work of one, accessed the same memory without order."""
    LIFETIME = "lifetime"
    """Memory or an object was changed or freed while in use."""
    COHERENCE = "coherence"
    """A cache invalidate, flush or fence is missing."""
    DEADLOCK = "deadlock"
    UNSUPPORTED = "unsupported"
    """Not emulated; hardware may support it."""
    DEFECT = "defect of the emulator"
    """The emulator failed; the driver may be correct."""
    ADVICE = "advice"
    """Works, but the documented facts advise otherwise; it stops nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """One finding of the emulated GPU."""

    kind: FindingKind
    message: str
    queue: str = ""
    """The queue's name; "" if the finding is about no queue."""
    code: int = 0
    """The vendor's error code that the driver reads; 0 if no queue was stopped."""
    code_name: str = "code"
    """The vendor's name for such codes."""
    va: int | None = None
    """The device address concerned, or None."""
    at: str = ""
    """The ring entry and command that the queue was executing; "" if there was none."""

    @property
    def fatal(self) -> bool:
        """Whether the driver must observe the finding as a fault."""
        return self.kind is not FindingKind.ADVICE

    def __str__(self) -> str:
        where = f" on {self.queue}" if self.queue else ""
        code = f" ({self.code_name} {self.code})" if self.code else ""
        return f"{self.kind.value}{where}{code}: {self.message}" + (f"; at {self.at}" if self.at else "")


class ReportLog:
    """The findings of a machine, the oldest first."""

    def __init__(self) -> None:
        self.reports: list[MachineReport] = []
        self._told = 0
        """Number of reports that `fresh_texts` has returned."""
        self._linted: set[str] = set()

    def advise(self, message: str) -> None:
        """Report, each time, a use that works although the documented facts advise otherwise."""
        self.reports.append(MachineReport(kind=FindingKind.ADVICE, message=message))

    def is_new(self, message: str) -> bool:
        """Return whether this is the first call with this message."""
        new = message not in self._linted
        self._linted.add(message)
        return new

    def lint(self, message: str) -> None:
        """Report, once for each message, a use that works but is probably a mistake."""
        if self.is_new(message):
            self.advise(message)

    @property
    def fatal(self) -> list[MachineReport]:
        """The reports that the driver must have observed as faults."""
        return [report for report in self.reports if report.fatal]

    def fresh_texts(self) -> tuple[str, ...]:
        """Return the texts of the fatal reports since the last call, the oldest first."""
        new, self._told = self.reports[self._told :], len(self.reports)
        return tuple(str(report) for report in new if report.fatal)


class QueueError(Exception):
    """An error that stops a queue. A vendor's errors derive from it and add their codes.

    `va` is the device address concerned, or None.
    """

    def __init__(self, kind: FindingKind, message: str, *, va: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.va = va
