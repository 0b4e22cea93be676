"""Open devices of the process: closed at the end of the interpreter, made unusable in a forked child.

Not here: closing one device (`device`), what it writes then (`profile`, `counters`). Next: `device`, which
registers itself here.
"""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from hcq.errors import FaultWarning, HcqError
from hcq.hostpool import SIGNALS, STAMPS
from hcq.memory import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.commands import Command
    from hcq.driver import Ring
    from hcq.faults.breadcrumbs import Breadcrumbs
    from hcq.faults.limits import TimeLimits
    from hcq.hardware import DeviceInfo, QueueKind
    from hcq.heap import Heap
    from hcq.pushbuffer import PushBuffer
    from hcq.signal import Point, Timeline


class OpenQueue(Protocol):
    """A queue of an open device, for the modules that it uses; `hcq.queue.Queue` implements it."""

    number: int
    """Unique among all queues that this process ever had."""
    label: str
    kind: QueueKind
    ring: Ring
    refusal: Callable[[], HcqError] | None
    """Error factory for every submission; None: it takes them."""
    timeline: Timeline
    limits: TimeLimits | None
    """The time limits of its submissions; None: it has none."""
    crumbs: Breadcrumbs | None
    """The commands that finished and began last; None: they are not recorded."""

    @property
    def device(self) -> OpenDevice:
        """The device that owns the queue."""

    @property
    def watch(self) -> object | None:
        """The validation layer of its device; None without."""

    @property
    def ending_words(self) -> int:
        """Number of words that end a direct submission."""

    def encode(self, commands: Sequence[Command], pushbuffer: PushBuffer) -> None:
        """Append the words of commands to `pushbuffer`. The caller holds the queue's lock."""

    def inflight(self) -> Sequence[tuple[Point, Sequence[object]]]:
        """Return (point, objects kept alive) of every submission not known to be complete."""

    def sweep(self) -> None:
        """Retire completed submissions."""

    def oldest(self) -> Point | None:
        """Return the point of the oldest submission in flight; None when none is known to be."""

    def end(self) -> Point:
        """Return the point at which all submissions so far are complete."""

    def forget(self) -> None:
        """Drop the records of work in flight."""


class WaitGraphs(Protocol):
    """The part of the validation layer that other devices use (`hcq.validate.validator.Validator`)."""

    check: bool
    """Whether it checks submissions; otherwise it only reorders kernels."""

    def wait_graph(self) -> list[str]:
        """Return one line of text for each queue that cannot continue, with the reason."""


class OpenDevice(Owner, Protocol):
    """An open device, for the modules that it uses; `hcq.device.Device` implements it."""

    info: DeviceInfo
    heap: Heap

    @property
    def watch(self) -> WaitGraphs | None:
        """The validation layer, or None."""

    @property
    def queues(self) -> Sequence[OpenQueue]:
        """All its queues."""

    def close(self, *, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds for the work of each queue, then release all resources."""

    def orphan(self, parent: int) -> None:
        """Refuse all calls: this is a forked child of process `parent`, which owns the device."""


EXIT_S = 1.0
"""Seconds that work in flight gets when the interpreter ends."""

OPEN: weakref.WeakSet[OpenDevice] = weakref.WeakSet()
"""The open devices of this process."""
_hooked: list[bool] = []
"""Empty until the interpreter was told to call this module at its end and in forked children."""
_in_children: set[Callable[[], None]] = set()
"""Further functions that a forked child calls, once its devices are orphaned."""


def in_children(action: Callable[[], None]) -> None:
    """Make forked children call `action` after their devices were orphaned, if a device was ever opened."""
    _in_children.add(action)


def remember(device: OpenDevice) -> None:
    """Close the device when the interpreter ends, and orphan it in forked children."""
    if not _hooked:
        _hooked.append(True)
        atexit.register(_close_all)
        os.register_at_fork(after_in_child=_orphan_all)
    OPEN.add(device)


def open_devices() -> tuple[OpenDevice, ...]:
    """Return the open devices of this process."""
    while True:
        try:
            return tuple(OPEN)
        except RuntimeError:  # another thread opened one during the iteration
            continue


def _close_all() -> None:
    with ExitStack() as stack:  # a warning that is an error does not keep the other devices from being closed
        for device in tuple(OPEN):
            stack.callback(_close_last, device)


def _close_last(device: OpenDevice) -> None:
    """Close a device when the interpreter ends: nobody can handle an error, so it becomes a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            device.close(timeout_s=EXIT_S)
    except HcqError as error:
        warnings.warn(str(error), FaultWarning, stacklevel=1)


def _orphan_all() -> None:
    parent = os.getppid()
    for device in tuple(OPEN):
        device.orphan(parent)
    OPEN.clear()
    SIGNALS.forget()
    STAMPS.forget()
    for action in _in_children:
        action()
