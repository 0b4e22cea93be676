"""Words for what went wrong: what queues are stuck on, which kernel faulted, what lies near an address."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.commands import Exec
from hcq.errors import FaultKind, FaultReport
from hcq.inflight import commands_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.device import Device
    from hcq.signal import Signal

SUSPECTS_SHOWN = 8


def with_kernel(report: FaultReport, inflight: Sequence[Sequence[object]]) -> FaultReport:
    """Return the report with the kernel's arguments as buffers, and its name when only one can be meant.

    `inflight` is what each submission in flight keeps, the oldest first.
    """
    launches = [command for command in commands_of(inflight) if isinstance(command, Exec)]
    if report.kernel is not None:
        launches = [launch for launch in launches if launch.program.name == report.kernel]
    names = list(dict.fromkeys(launch.program.name for launch in launches))
    if len(names) == 1:
        return replace(report, kernel=names[0], arguments=launches[0].args.describe())
    if names and report.kernel is None:
        shown = ", ".join(names[:SUSPECTS_SHOWN]) + (", ..." if len(names) > SUSPECTS_SHOWN else "")
        return replace(report, kernel=f"one of those in flight: {shown}")
    return report


def impossible(device: str, signal: Signal) -> FaultReport:
    """Return the report of a queue's signal that holds a value above the last one submitted."""
    return FaultReport(
        device=device,
        kind=FaultKind.QUEUE_ERROR,
        message=(
            f"the signal of {signal.label or hex(signal.va)} holds {signal.value}, but the last value "
            f"submitted is {signal.issued}: the word that ends a submission was sent wrong, or something "
            f"wrote over the slot at {signal.va:#x}; waits may have passed too early"
        ),
        queue=signal.label or None,
    )


def overshot(device: Device) -> FaultReport | None:
    """Return the report of a queue whose signal holds a value above the last one submitted, if any does."""
    for queue in device.queues:
        signal = queue.timeline.signal
        if signal.value > signal.issued:  # in this order: work may end meanwhile
            return impossible(device.name, signal)
    return None


def stuck_text(device: Device) -> str:
    """Say what each queue of a device is doing; empty when all are idle."""
    lines = [(queue.label, queue.ring.stuck()) for queue in device.queues]
    return "; ".join(f"{label}: {text}" for label, text in lines if text)


def timeout_text(device: Device, signal: Signal, value: int, waited_s: float) -> str:
    """Say what a wait was for, what was seen, and what each queue is stuck on."""
    name = signal.label or f"signal at {signal.va:#x}"
    text = f"{name} stuck at {signal.value} of {value} after {waited_s:.1f} s"
    busy = False
    for queue in device.queues:
        doing = queue.ring.stuck()
        if doing:
            busy, last = True, queue.timeline.last
            text += f"; {queue.label} at {last.signal.value} of {last.value}: {doing}"
    if not busy:
        text += f"; all queues of {device.name} are idle: nothing that was submitted raises it"
    if device.watch is not None:
        text += "".join(f"\n  {line}" for line in device.watch.wait_graph())
    return text


def nearest_pages(device: Device, va: int) -> str:
    """Say which of the driver's pages lie nearest to an address."""
    best: tuple[int, str] | None = None
    for start, size in device.heap.pages():
        away = max(start - va, va - (start + size) + 1, 0)
        where = f"{away} bytes from" if away else "inside"
        if best is None or away < best[0]:
            best = (away, f"{where} pages {start:#x} to {start + size:#x} (HCQ_VALIDATE=1 names the buffer)")
    return best[1] if best else ""
