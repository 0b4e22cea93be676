"""Run a program and record all that the page of the viewer shows.

Queues, packets, memory and counters come from the files that the settings HCQ_TRACE, HCQ_CAPTURE and
HCQ_COUNTERS name; graphs come from the audit event "frontend.plan", and faults from the devices. The program
itself is not changed. An audit hook stays for the life of the process, so a process records one run.

Not here: the readers of these files (`tools.view.files`). Next: `tools.view.__main__`, the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from sys import addaudithook
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from compiler import show
from compiler.ir.naming import kernel_name
from frontend import Device
from hcq.config import override
from hcq.errors import DeviceFault
from hcq.faults.refusal import collected
from interop.sanitize import FOUND, findings, run_script
from tools.view import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """The name of the device, as `Queue.label` ends with it: "cpu:0"."""
    arch: str
    """The architecture for which the kernels are compiled."""


@dataclass(slots=True)
class Plans:
    """The graphs that a program schedules, in order."""

    found: list[Planned] = field(default_factory=list)

    def listen(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record the plan of an audit event "frontend.plan"; ignore all other events."""
        if event == "frontend.plan":
            outputs, items, device, arch = arguments
            self.found.append(Planned(tuple(outputs), tuple(items), Device[device].hcq.name, arch))


def described(plans: Iterable[Planned]) -> files.Data:
    """Return graphs and kernels as data of the page. Each kernel is lowered again for its forms."""
    found = files.empty("")
    kernels: dict[tuple[str, str], files.Data] = {}
    for plan in plans:
        rows = []
        for item in plan.items:
            name, nbytes = kernel_name(item.ast), show.moved(item)
            stores = ", ".join([show.reference(ref) for ref in item.writes])
            loads = ", ".join([show.reference(b) for at, b in enumerate(item.bufs) if at not in item.stores])
            rows.append([name, nbytes, f"{stores} ← {loads}"])
            if (plan.device, name) not in kernels and len(kernels) < files.MOST["kernels"]:
                forms = show.forms(item.ast, plan.arch)
                kernels[plan.device, name] = {
                    "device": plan.device, "name": name, "nbytes": nbytes, "nest": forms.nest,
                    "label": show.label_parts(forms.name, forms.plan), "lines": forms.lines, "ir": forms.ir,
                    "assembly": forms.assembly,
                }  # fmt: skip
        graph = {"device": plan.device, "arch": plan.arch, "text": show.graph(plan.outputs), "kernels": rows}
        found["graphs"].append(graph)
    return found | {"kernels": list(kernels.values())}


def record(data: files.Data, program: str, arguments: Sequence[str], *, counters: bool, checked: bool) -> int:
    """Run a Python file as `__main__`, add its record to `data`, and return its exit status; 1 with findings.

    All devices that the program left open are closed. With `counters`, emulated GPUs count what kernels
    execute; any other device that opens gives a warning. With `checked` they run kernels with all checks.
    """
    plans = Plans()
    addaudithook(plans.listen)
    with TemporaryDirectory() as folder:
        trace, capture, counts = (Path(folder, name) for name in ("trace", "capture", "counters"))
        more: dict[str, Any] = {"counters": str(counts)} if counters else {}
        more |= {"emu_checked": True, "validate": True} if checked else {}
        with (
            override(profile=True, trace=str(trace), capture=str(capture), **more),
            collected() as reports,
        ):
            status = run_script(program, arguments)
        for path in (trace, capture, counts):
            if path.exists() and path.stat().st_size > len("[]"):
                files.add(data, path)
                data["files"][-1][0] = ""
    found = described(plans.found)
    for report in reports:
        found["findings"] += [row for row in findings(DeviceFault(report)) if row not in found["findings"]]
    if found["findings"]:  # the capture has the same faults, in fewer words
        data["findings"] = [one for one in data["findings"] if one["kind"] != "fault"]
    files.merge(data, found)
    return FOUND if found["findings"] else status
