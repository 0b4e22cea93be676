"""Crash reports (`HCQ_CRASH=FILE`), and what a device does now, as plain values.

A crash report is one line of JSON a fault: the fault, each queue with the commands in flight, memory with its
largest owners, the settings and the machine. `hcq trace show FILE` prints it.

Not here: captures of all submissions (`hcq.capture`), the live view
(`hcq.published`).
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hcq.config import config, variables
from hcq.errors import FaultWarning
from hcq.faults.messages import stuck_in, waits_of
from hcq.inflight import commands_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hcq.commands import Command
    from hcq.device import Device
    from hcq.errors import FaultReport
    from hcq.queue import Queue

VERSION = 1
"""The format; a reader refuses another one."""
COMMANDS_SHOWN = 64
"""The most commands of one queue in a report."""


def queue_state(queue: Queue) -> dict[str, object]:
    """Return what a queue does: points issued and reached, its current operation, waits and breadcrumbs."""
    last = queue.timeline.last
    return {
        "label": queue.label,
        "issued": last.value,
        "reached": min(last.signal.value, last.value),
        "at": stuck_in(queue),
        "waits": [f"{wait.signal!r} for {wait.value}" for wait in waits_of(queue)[:4]],
        "crumbs": str(queue.crumbs or ""),
    }


def state(device: Device) -> dict[str, object]:
    """Return the queues and the memory of a device, without owners, as values that JSON has."""
    return {"device": device.name, "arch": device.info.arch, "name": device.info.name,
            "queues": [queue_state(queue) for queue in device.queues],
            "memory": asdict(device.heap.use())}  # fmt: skip


def _shown(commands: Iterable[Command]) -> list[str]:
    shown = []
    for command in islice(commands, COMMANDS_SHOWN):
        touched = [f"{touch.access} {touch.pointer!r}" for touch in command.touches()]
        shown.append(" ".join([command.title(), *touched]))
    return shown


def write_report(path: str, device: Device, report: FaultReport) -> None:
    """Append a report of a fault to the file at `path`; warn where it cannot be written.

    The fault itself stays the error that calls raise.
    """
    in_flight = {
        queue.label: _shown(commands_of(kept for point, kept in queue.inflight() if not point.passed()))
        for queue in device.queues
    }
    settings = {
        one.name: str(value) for one in variables() if (value := getattr(config(), one.field)) != one.default
    }
    record = {
        "crash": VERSION,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "fault": report.kind.name,
        "text": str(report),
        **state(device),
        "memory": asdict(device.memory()),
        "in flight": in_flight,
        "settings": settings,
        "machine": {"python": sys.version.split()[0], "kernel": platform.release(),
                    "machine": platform.machine(), "cores": os.cpu_count()},
    }  # fmt: skip
    try:
        with Path(path).open("a", encoding="utf-8") as out:
            out.write(json.dumps(record, default=str) + "\n")
    except OSError as error:
        text = f"{device.name}: no crash report could be written: {error}"
        warnings.warn(text, FaultWarning, stacklevel=2)
