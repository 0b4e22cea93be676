"""Open devices of the process: closed at the end of the interpreter, made unusable in a forked child.

Not here: closing one device (`device`). Next: `device`, which registers itself here.
"""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hcq.errors import HcqError, UsageError
from hcq.hostpool import SIGNALS, STAMPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device
    from hcq.profile import Span

EXIT_S = 1.0
"""How long work in flight may take at the end of the interpreter."""

OPEN: weakref.WeakSet[Device] = weakref.WeakSet()
"""The open devices of this process."""
_hooked: set[str] = set()
"""What was arranged: "close" at the end of the interpreter; "orphan" or "keep" devices in children."""
_traces: dict[str, list[Span]] = {}
"""What was traced so far, by file: the devices of a process share one."""
_in_children: set[Callable[[], None]] = set()
"""What else forked children do first."""


def in_children(action: Callable[[], None]) -> None:
    """Have forked children call `action` once their devices are orphaned; giving it again is fine."""
    _in_children.add(action)


def remember(device: Device) -> None:
    """Close the device when the interpreter ends, and orphan it in forked children."""
    if "close" not in _hooked:
        _hooked.add("close")
        atexit.register(_close_all)
    if not _hooked & {"orphan", "keep"}:
        _hooked.add("orphan")
        os.register_at_fork(after_in_child=_orphan_all)
    OPEN.add(device)


def keep_over_forks() -> None:
    """Allow forked children to use the open devices; call it before the first is opened.

    For a device that the fork copies with the memory it lives in, as one emulated in this process. Two
    processes that drive one GPU break each other's work, so a GPU's children are orphaned by default.

    Raises `UsageError` when a device was opened already: what becomes of its children is settled.
    """
    if "orphan" in _hooked:
        raise UsageError("devices were opened already: forked children are cut off from them")
    _hooked.add("keep")


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
            with suppress(HcqError):  # the interpreter ends: no caller could handle it
                device.close(timeout_s=EXIT_S)


def _orphan_all() -> None:
    parent = os.getppid()
    for device in tuple(OPEN):
        device.orphan(parent)
    OPEN.clear()
    SIGNALS.forget()
    STAMPS.forget()
    for action in _in_children:
        action()
