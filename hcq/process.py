"""What the end of the interpreter and a fork mean for devices that are open."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hcq.errors import HcqError
from hcq.hostpool import SIGNALS, STAMPS

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.profile import Span

EXIT_S = 1.0
"""How long work in flight may take at the end of the interpreter."""

OPEN: weakref.WeakSet[Device] = weakref.WeakSet()
"""The open devices of this process."""
_hooked: list[bool] = []
_traces: dict[str, list[Span]] = {}
"""What was traced so far, by file: the devices of a process share one."""


def remember(device: Device) -> None:
    """Close the device when the interpreter ends, and orphan it in forked children."""
    if not _hooked:
        _hooked.append(True)
        atexit.register(_close_all)
        os.register_at_fork(after_in_child=_orphan_all)
    OPEN.add(device)


def open_devices() -> tuple[Device, ...]:
    """Return the open devices of this process."""
    while True:
        try:
            return tuple(OPEN)
        except RuntimeError:  # another thread opened one meanwhile
            continue


def traced(path: str, spans: list[Span]) -> None:
    """Add spans to the Chrome trace of this process at `path`, and write it."""
    from hcq.profile import chrome_trace  # noqa: PLC0415 - only when tracing

    _traces.setdefault(path, []).extend(spans)
    Path(path).write_text(chrome_trace(_traces[path]))


def _close_all() -> None:
    for device in tuple(OPEN):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            with suppress(HcqError):  # the interpreter ends: nobody is left to tell
                device.close(timeout_s=EXIT_S)


def _orphan_all() -> None:
    parent = os.getppid()
    for device in tuple(OPEN):
        device.orphan(parent)
    OPEN.clear()
    SIGNALS.forget()
    STAMPS.forget()
