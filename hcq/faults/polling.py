"""Fault polling: the checks of a wait that takes long, and the report of a fault with all that hcq knows.

Every few milliseconds a wait calls `poll`, and a submission whose ring is full calls `poll_room`. Both raise
when the wait can no longer end.

Not here: how hardware reports a fault (`hcq.driver.DriverDevice.fault`), when a device refuses calls
(`hcq.device`), lost work (`recovery`). Next: `messages`, the texts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.errors import FaultReport, UsageError
from hcq.faults.messages import graph_text, nearest_pages, stuck_text, with_kernel
from hcq.inflight import awaited
from hcq.signal import LOST, Signal

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.queue import Queue


def poll(device: Device, signal: Signal | None, value: int, *, timed: bool) -> None:
    """Raise if a wait on `device` for the slot of `signal` to reach `value` can never end.

    Raises as `Device.poll_faults`. `signal` None: only the device and those that its queues wait for.
    """
    _poll_awaited(device)
    if signal is not None:
        poll_lost(signal, value)
        if device.watch is not None and (device.closing or not timed):
            try:
                device.watch.check_wait(signal, value)
            except UsageError:
                poll_lost(signal, value)  # a concurrent recovery may be the reason: raise that
                raise


def poll_room(queue: Queue, until: int, *, timed: bool) -> None:
    """Raise if `queue` will never have read `until` units of its full ring; see `Device.poll_room`.

    The error is `DeviceFault`, or `UsageError` for a device that closes and for a deadlock.
    """
    device = queue.device
    if device.closing:
        raise UsageError(f"{device.name} is closed")
    _poll_awaited(device)
    if LOST:
        from hcq.faults.recovery import waits_on_lost  # noqa: PLC0415 - only after a fault

        if (reason := waits_on_lost(queue)) is not None:
            raise reason()
    if device.watch is not None and not timed:
        device.watch.check_room(queue, until)


def _poll_awaited(first: Device) -> None:
    """Raise if `first`, or a device that its queues wait for, is faulted or closed."""
    from hcq.device import Device  # noqa: PLC0415 - which imports this module

    seen: set[Device] = set()
    todo = [first]
    while todo:
        device = todo.pop()
        if device in seen:
            continue
        seen.add(device)
        device.poll_driver()
        if device.refusal is not None:
            raise device.refusal()
        todo += {owner for owner in awaited(device.queues) if isinstance(owner, Device)} - seen


def poll_lost(signal: Signal, value: int) -> None:
    """Raise if only lost work, or work that waits for it, would raise the slot of `signal` to `value`."""
    if LOST:
        from hcq.faults.recovery import check  # noqa: PLC0415 - only after a fault

        check(signal, value)


def _nearest(device: Device, va: int, pages: str) -> str:
    """Return a text that names the allocation nearest to `va`; `pages` is the driver's own text."""
    known = device.watch.nearest(va) if device.watch is not None else ""
    return "; ".join(filter(None, (known, pages))) or nearest_pages(device, va)


def completed(device: Device, report: FaultReport) -> FaultReport:
    """Return the driver's report with what hcq knows at the time of the fault.

    It adds the findings that kernels printed, the nearest allocation, the operation of each queue, and the
    kernel with its arguments if the driver's report lacks them.
    """
    if device.outputs:
        report = replace(report, reports=(*device.outputs.findings(), *report.reports))
    if report.va is not None:
        report = replace(report, nearest=_nearest(device, report.va, report.nearest))
    stuck = stuck_text(device) if not report.stuck_at else report.stuck_at + graph_text(device)
    report = replace(report, stuck_at=stuck)
    if not report.arguments:
        running = [one for queue in device.queues for one in queue.inflight()]
        crumbs = [queue.crumbs.first() for queue in device.queues if queue.crumbs is not None]
        known = [[crumb.command] for crumb in crumbs if crumb is not None]
        report = with_kernel(report, known or [kept for point, kept in running if not point.passed()])
    return report
