"""Which kernel a fault is about: what was in flight, when the hardware did not say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.commands import Exec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hcq.errors import FaultReport

SUSPECTS_SHOWN = 8


def with_kernel(report: FaultReport, inflight: Sequence[Sequence[object]]) -> FaultReport:
    """Return the report with the kernel's arguments as buffers, and its name when only one can be meant.

    `inflight` is what each submission in flight keeps, the oldest first.
    """
    launches = [command for kept in inflight for command in _launches(kept)]
    if report.kernel is not None:
        launches = [launch for launch in launches if launch.program.name == report.kernel]
    names = list(dict.fromkeys(launch.program.name for launch in launches))
    if len(names) == 1:
        return replace(report, kernel=names[0], arguments=launches[0].args.describe())
    if names and report.kernel is None:
        shown = ", ".join(names[:SUSPECTS_SHOWN]) + (", ..." if len(names) > SUSPECTS_SHOWN else "")
        return replace(report, kernel=f"one of those in flight: {shown}")
    return report


def _launches(kept: Sequence[object]) -> Iterator[Exec]:
    """Yield the launches among what a submission keeps: commands, or the segments of an executable."""
    for one in kept:
        if isinstance(one, Exec):
            yield one
        elif isinstance(one, list):
            yield from (
                command
                for part in one
                for command in getattr(part, "commands", ())
                if isinstance(command, Exec)
            )
