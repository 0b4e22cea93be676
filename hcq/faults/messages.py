"""Texts of errors: what blocks each queue, which kernel faulted, which allocation lies near an address.

Not here: the error classes (`hcq.errors`), what is lost (`recovery`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.commands import Exec, SetSignal, Wait
from hcq.errors import FaultKind, FaultReport
from hcq.faults.inflight import commands_of
from hcq.process import open_devices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.device import Device
    from hcq.queue import Queue
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
    """Return what each queue of a device does, and waits for, as text; empty when all are idle."""
    lines = [(queue.label, stuck_in(queue)) for queue in device.queues]
    return "; ".join(f"{label}: {text}" for label, text in lines if text) + graph_text(device)


def timeout_text(device: Device, signal: Signal, value: int, waited_s: float) -> str:
    """Return the text of a timeout: the awaited value, the value seen, and what blocks each queue."""
    text = f"{called(signal)} stuck at {signal.value} of {value} after {waited_s:.1f} s"
    busy = False
    for queue in device.queues:
        doing = stuck_in(queue)
        if doing:
            busy, last = True, queue.timeline.last
            text += f"; {queue.label} at {last.signal.value} of {last.value}: {doing}"
    if not busy:
        text += f"; all queues of {device.name} are idle: nothing that was submitted raises it"
    return text + graph_text(device)


def room_text(queue: Queue) -> str:
    """Return what blocks a queue whose ring is full, as text."""
    doing, count = stuck_in(queue), len(queue.inflight()) - 1  # not the one that waits for room
    many = "1 submission is" if count == 1 else f"{count} submissions are"
    text = f"; {many} in flight" + (f": {doing}" if doing else "")
    return text + graph_text(queue.device) + "\nhint: raise what it waits for, or submit after that"


def stuck_in(queue: Queue) -> str:
    """Return what a queue does as text, with labels of signals; empty when it is idle."""
    text = queue.ring.stuck()
    for wait in waits_of(queue):
        text = text.replace(f"the signal at {wait.signal.va:#x}", called(wait.signal))
    return text


def graph_text(device: Device) -> str:
    """Return a line for each queue that stands before a wait that is not met.

    Of this device, and of those whose signals it waits for; with validation, of all.
    """
    if device.watch is not None and device.watch.check:
        lines = device.watch.wait_graph()
    else:
        known = [queue for one in open_devices() for queue in one.queues]
        owners = {wait.signal.device for queue in device.queues for wait in waits_of(queue)}
        shown = [queue for queue in known if queue.device is device or queue.device in owners]
        lines = [line for queue in shown if (line := _wait_line(queue, known))]
    return "".join(f"\n  {line}" for line in lines)


def waits_of(queue: Queue) -> list[Wait]:
    """Return the waits in flight in a queue that are not met, in order."""
    commands = commands_of(kept for point, kept in queue.inflight() if not point.passed())
    waits = [one for one in commands if isinstance(one, Wait) and isinstance(one.value, int)]
    return [one for one in waits if one.signal.value - one.signal.base < _slot_value(one)]


def _slot_value(command: Wait | SetSignal) -> int:
    return command.value if isinstance(command.value, int) else 1 << 64


def _wait_line(queue: Queue, queues: Sequence[Queue]) -> str:
    """Return the wait that blocks a queue, and what would satisfy it, as text."""
    waits = waits_of(queue)
    if not waits:
        return ""
    signal, value = waits[0].signal, _slot_value(waits[0])
    text = f"{queue.label} waits for {called(signal)} >= {value + signal.base}, now {signal.value}; "
    for other in queues:
        raised = [point.value - point.signal.base for point, _ in other.inflight() if point.signal is signal]
        commands = commands_of(kept for _, kept in other.inflight())
        sets = [one for one in commands if isinstance(one, SetSignal) and one.signal is signal]
        raised += [_slot_value(one) for one in sets]
        if any(one >= value for one in raised):
            return text + f"raised by {other.label}" + (", which waits itself" if waits_of(other) else "")
    return text + "nothing submitted raises it" + (", the host may" if signal.host_set else "")


def called(signal: Signal) -> str:
    """Return what to call a signal."""
    return signal.label or f"the signal at {signal.va:#x}"


def nearest_pages(device: Device, va: int) -> str:
    """Return which of the driver's pages are nearest to an address, as text."""
    best: tuple[int, str] | None = None
    for start, size in device.heap.pages():
        away = max(start - va, va - (start + size) + 1, 0)
        where = f"{away} bytes from" if away else "inside"
        if best is None or away < best[0]:
            best = (away, f"{where} pages {start:#x} to {start + size:#x} (HCQ_VALIDATE=1 names the buffer)")
    return best[1] if best else ""
