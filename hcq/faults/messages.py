"""Texts of errors: the blocked operation of each queue, the faulting kernel, the nearest allocation.

Not here: the error classes (`hcq.errors`), what is lost (`recovery`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hcq.commands import Exec, SetSignal, Wait
from hcq.errors import FaultKind, FaultReport
from hcq.inflight import commands_of
from hcq.process import OpenDevice, OpenQueue, open_devices
from hcq.signal import Signal

SUSPECTS_SHOWN = 8
"""The most kernels that a report names when it cannot tell which one faulted."""


def with_kernel(report: FaultReport, inflight: Sequence[Sequence[object]]) -> FaultReport:
    """Return the report with the faulting kernel's name, and the arguments of its oldest launch in flight.

    Several kernels: `kernel` lists them, if it was None. No kernel: the report is returned unchanged.
    `inflight`: kept objects, oldest submission first.
    """
    launches = [command for command in commands_of(inflight) if isinstance(command, Exec)]
    if report.kernel is not None:
        launches = [launch for launch in launches if launch.program.name == report.kernel]
    names = list(dict.fromkeys(launch.program.name for launch in launches))
    if len(names) == 1:
        args = launches[0].args
        launched = getattr(args, "launched", "")
        return replace(report, kernel=names[0], arguments=args.describe(), launched=launched)
    if names and report.kernel is None:
        shown = ", ".join(names[:SUSPECTS_SHOWN]) + (", ..." if len(names) > SUSPECTS_SHOWN else "")
        return replace(report, kernel=f"one of those in flight: {shown}")
    return report


def overrun_report(device: str, signal: Signal) -> FaultReport:
    """Return the fault report of a queue's signal that exceeds the last submitted value."""
    return FaultReport(
        device=device,
        kind=FaultKind.QUEUE_ERROR,
        message=(
            f"the signal of {signal.label or hex(signal.va)} holds {signal.value}, but the last value "
            f"submitted is {signal.issued}: the last word of a submission was wrong, or something overwrote "
            f"the slot at {signal.va:#x}; waits may have ended too early"
        ),
        queue=signal.label or None,
    )


def detect_fault(device: OpenDevice) -> FaultReport | None:
    """Return the report of a fault that hcq finds; None: it finds none.

    It is a queue whose signal exceeds the last submitted value, or a submission over its time limit.
    """
    for queue in device.queues:
        signal = queue.timeline.signal
        if signal.value > signal.issued:  # read in this order: work may complete meanwhile
            return overrun_report(device.name, signal)
        if queue.limits is not None and (report := queue.limits.overdue(device.name, queue.label)):
            return report
    return None


def stuck_text(device: OpenDevice) -> str:
    """Return the current operation and wait of each queue of a device as text; empty when all are idle."""
    lines = [(queue.label, stuck_in(queue)) for queue in device.queues]
    return "; ".join(f"{label}: {text}" for label, text in lines if text) + graph_text(device)


_UNREAD = (
    "the ring was not read to its end: work in it does not end, the doorbell did not reach the GPU, or its "
    "scheduler stands still. Run the kernels on an emulated GPU, which names one that does not end; `hcq "
    "bringup` finds the first step of a GPU that fails"
)
_UNENDED = (
    "a kernel does not end, or its signal was lost. Run it on an emulated GPU, which names the loop that "
    "does not end; `hcq bringup` shows whether signals arrive"
)


def timeout_text(device: OpenDevice, signal: Signal, value: int, waited_s: float) -> str:
    """Return the message of a timeout: the awaited value, the value seen, the operation of each queue."""
    text = f"{signal_name(signal)} stuck at {signal.value} of {value} after {waited_s:.1f} s"
    busy, cause = False, ""
    for queue in device.queues:
        doing = stuck_in(queue)
        if doing and not waits_of(queue):
            cause = _UNREAD
        if not doing and any(not point.passed() for point, _ in queue.inflight()):
            doing, cause = "its last work was fetched and is not complete", cause or _UNENDED
        if doing:
            busy, last = True, queue.timeline.last
            text += f"; {queue.label} at {last.signal.value} of {last.value}: {doing}"
    if not busy:
        text += f"; all queues of {device.name} are idle: nothing that was submitted raises it"
    return text + graph_text(device) + (cause and f"\nhint: {cause}")


def room_text(queue: OpenQueue) -> str:
    """Return a text with the operation that blocks a queue whose ring is full."""
    doing, count = stuck_in(queue), len(queue.inflight()) - 1  # without the one that waits
    many = "1 submission is" if count == 1 else f"{count} submissions are"
    text = f"; {many} in flight" + (f": {doing}" if doing else "")
    return text + graph_text(queue.device) + "\nhint: raise the signal that it waits for, or submit later"


def stuck_in(queue: OpenQueue) -> str:
    """Return the current operation of a queue as text, with signals by label; empty when it is idle."""
    text = queue.ring.stuck()
    for wait in waits_of(queue):
        text = text.replace(f"the signal at {wait.signal.va:#x}", signal_name(wait.signal))
    return text


def graph_text(device: OpenDevice) -> str:
    """Return one line of text for each queue that is blocked at a wait, and for each with breadcrumbs.

    With validation for the queues of all devices; else for this device and those whose signals it waits for.
    """
    if device.watch is not None and device.watch.check:
        lines = device.watch.wait_graph()
    else:
        known = [queue for one in open_devices() for queue in one.queues]
        owners: set[object] = {wait.signal.device for queue in device.queues for wait in waits_of(queue)}
        shown = [queue for queue in known if queue.device is device or queue.device in owners]
        lines = [line for queue in shown if (line := _wait_line(queue, known))]
    crumbs = [(queue.label, str(queue.crumbs)) for queue in device.queues if queue.crumbs is not None]
    lines += [f"{label}: {text}" for label, text in crumbs if text]
    return "".join(f"\n  {line}" for line in lines)


def waits_of(queue: OpenQueue) -> list[Wait]:
    """Return the unsatisfied waits in flight in a queue, in order, but those with a value of a parameter."""
    commands = commands_of(kept for point, kept in queue.inflight() if not point.passed())
    waits = [one for one in commands if isinstance(one, Wait) and isinstance(one.value, int)]
    return [one for one in waits if one.signal.value - one.signal.base < _slot_value(one)]


def _slot_value(command: Wait | SetSignal) -> int:
    """Return the slot value of a command; above every value for one that is given at submission."""
    return command.value if isinstance(command.value, int) else 1 << 64


def _wait_line(queue: OpenQueue, queues: Sequence[OpenQueue]) -> str:
    """Return a text with the wait that blocks a queue and the work that would satisfy it; empty: no wait."""
    waits = waits_of(queue)
    if not waits:
        return ""
    signal, value = waits[0].signal, _slot_value(waits[0])
    text = f"{queue.label} waits for {signal_name(signal)} >= {value + signal.base}, now {signal.value}; "
    for other in queues:
        raised = [point.value - point.signal.base for point, _ in other.inflight() if point.signal is signal]
        commands = commands_of(kept for _, kept in other.inflight())
        sets = [one for one in commands if isinstance(one, SetSignal) and one.signal is signal]
        raised += [_slot_value(one) for one in sets]
        if any(one >= value for one in raised):
            return text + f"raised by {other.label}" + (", which is waiting too" if waits_of(other) else "")
    return text + "nothing submitted raises it" + (", the host may" if signal.host_set else "")


def signal_name(signal: Signal) -> str:
    """Return the label of a signal, or its address as text."""
    return signal.label or f"the signal at {signal.va:#x}"


def nearest_pages(device: OpenDevice, va: int) -> str:
    """Return a text that names the driver pages nearest to `va`; empty when there are none."""
    best: tuple[int, str] | None = None
    for start, size in device.heap.pages():
        distance = max(start - va, va - (start + size) + 1, 0)
        if best is None or distance < best[0]:
            where = f"{distance} bytes from" if distance else "inside"
            where += f" pages {start:#x} to {start + size:#x}"
            best = (distance, f"{where} (HCQ_VALIDATE=1 names the buffer)")
    return best[1] if best else ""
