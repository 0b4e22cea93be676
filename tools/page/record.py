"""Record a program's run: the plan of each launch, and the times of its kernels.

Plans come from the audit event "frontend.plan", times from the spans of a profile. The program itself is not
changed. An audit hook stays for the life of the process, so a process records one run.

Not here: the page (`tools.page.html`). Next: `tools.page.__main__`, the caller.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler import show
from compiler.ir.naming import kernel_name
from frontend import Device
from hcq.config import override
from hcq.counters import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import UOp
    from compiler.schedule.item import ScheduleItem


@dataclass(frozen=True, slots=True)
class Planned:
    """One graph that was scheduled."""

    outputs: tuple[UOp, ...]
    """The roots of the graph."""
    items: tuple[ScheduleItem, ...]
    """Its kernels in launch order."""
    device: str
    """The frontend's name of the device, for example "cpu:0"."""
    arch: str
    """The architecture for which the kernels are compiled."""


@dataclass(slots=True)
class Run:
    """A recorded run."""

    program: str
    plans: list[Planned] = field(default_factory=list)
    times: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    """(device, kernel name) -> nanoseconds of each execution. Copies and fills are named by their sizes."""
    counts: dict[tuple[str, str], str] = field(default_factory=dict)
    """(device, kernel name) -> what the emulated GPU counted, as text; empty if nothing was counted."""
    status: int = 0
    """The exit status of a program that called `sys.exit`; else 0."""

    def listen(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record the plan of an audit event "frontend.plan"; ignore all other events."""
        if event == "frontend.plan":
            outputs, items, device, arch = arguments
            self.plans.append(Planned(tuple(outputs), tuple(items), device, arch))

    def record_times(self) -> None:
        """Wait for the devices that were used, and record the times and counts of their kernels."""
        for name in dict.fromkeys([plan.device for plan in self.plans]):
            Device[name].synchronize()
            for span in Device[name].hcq.spans():
                self.times[name, span.name].append(span.end_ns - span.start_ns)
            counted = Device[name].hcq.counters
            if counted is not None:
                self.counts |= {(name, one.kernel): table(one) for one in counted[0]}


@dataclass(frozen=True, slots=True)
class KernelPage:
    """The facts of one kernel."""

    forms: show.Forms
    """Its loop nest, lines, LLVM IR and assembly, as text."""
    parts: tuple[tuple[str, show.WordKind], ...]
    """The words of its label, with the kind of each."""
    nbytes: int
    """Bytes that it moves, each buffer counted once."""
    nanoseconds: tuple[int, ...]
    """The time of each execution; empty if no execution was recorded."""
    counts: str = ""
    """What an emulated GPU counted, as text; "" if nothing was counted."""

    @property
    def total_ns(self) -> int:
        """The time of all executions."""
        return sum(self.nanoseconds)


def kernels(run: Run) -> dict[tuple[str, str], KernelPage]:
    """Return the kernels of a run by (device, kernel name). Each is lowered again for its forms."""
    found: dict[tuple[str, str], KernelPage] = {}
    for plan in run.plans:
        for item in plan.items:
            key = plan.device, kernel_name(item.ast)
            if key not in found:
                forms = show.forms(item.ast, plan.arch)
                parts = tuple(show.label_parts(forms.name, forms.plan))
                times = tuple(run.times.get(key, ()))
                found[key] = KernelPage(forms, parts, show.moved(item), times, run.counts.get(key, ""))
    return found


def _status(ended: SystemExit) -> int:
    """Return the exit status. A text is printed, and the status is 1, as at the end of a Python program."""
    if isinstance(ended.code, int) or ended.code is None:
        return ended.code or 0
    sys.stderr.write(f"{ended.code}\n")
    return 1


def record(program: str, arguments: Sequence[str], *, counters: bool = False) -> Run:
    """Run a Python file as `__main__` with a profile; return its record.

    Exceptions of the program pass, except `SystemExit`, whose status is recorded.

    With `counters`, emulated GPUs count what kernels execute; any other device that opens gives a warning.
    """
    run = Run(program)
    sys.addaudithook(run.listen)
    before = sys.argv
    sys.argv = [program, *arguments]
    counting = {"counters": os.devnull} if counters else {}
    try:
        with override(profile=True, **counting):
            try:
                runpy.run_path(program, run_name="__main__")
            except SystemExit as ended:
                run.status = _status(ended)
            run.record_times()
    finally:
        sys.argv = before
    return run
