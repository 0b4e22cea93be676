"""One surprise: where the emulated kernel deviates, what the program does then, and what the error must say.

`run` makes it and returns what came of it. Not here: the tables (`nv`, `amd`).
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from hcq.device import Device
from hcq.driver import BufferSpec, Place
from hcq.errors import DriverError, HcqError, SignalTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hcq.driver import Driver

HOST: Final = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
SHORT_S: Final = 0.1
"""The limit of waits that a surprise makes endless."""
LONG_S: Final = 60.0
"""The limit of waits that a fault ends."""

Again = Literal["open", "recover", "retry", "new", "never"]
"""What works after the cure: a device opens on the same machine; the device recovers; it goes on with its
next submission; another process opens it anew; nothing before a cure of the machine, such as a reboot."""


_AFTER: Final = {
    "open": "a device opens",
    "recover": "`Device.recover()`",
    "retry": "the next submission",
    "new": "another process opens it",
    "never": "not on this machine",
}


class Machine(Protocol):
    """An emulated kernel and its driver."""

    def driver(self) -> Driver:
        """Return a driver on the machine."""

    def set(self, table: Mapping[str, object]) -> None:
        """Replace the surprises of the machine."""

    def leaks(self) -> list[str]:
        """Return what is left of the devices that were opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A mistake or a surprise."""

    name: str
    what: str
    """What happens, in words, for the page."""
    at_open: Mapping[str, object] = field(default_factory=dict[str, object])
    """Surprises from the start (`emulator.shared.surprises`)."""
    later: Mapping[str, object] = field(default_factory=dict[str, object])
    """Surprises once a device is open with its queues."""
    does: Literal["open", "copy", "compute", "alloc", "visible", "close"] = "copy"
    """What the program does; it fails in this or before."""
    error: type[HcqError] | None = DriverError
    """None: the program goes on."""
    cause: str = ""
    """What the message must have (`re.search`): the cause in words."""
    evidence: str = ""
    """The call, status, value or text that shows it."""
    cure: str = ""
    again: Again = "open"
    others: bool = True
    """Whether another process, or another GPU of this one, is unaffected."""
    machine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of `open_machine`."""

    def line(self, vendor: str) -> str:
        """Return the row of the page: the test's case, what happens, the error, what works after the cure."""
        error = "none" if self.error is None else f"`{self.error.__name__}`"
        return f"| `{vendor}-{self.name}` | {self.what} | {error} | {_AFTER[self.again]} |"

    def wrong(self, outcome: Outcome) -> list[str]:
        """Return what is not as it must be; empty: all is."""
        text = outcome.text
        parts = {"cause": self.cause, "evidence": self.evidence, "cure": self.cure}
        lines = [
            f"no {name} ({wanted}) in: {text}"
            for name, wanted in parts.items()
            if not re.search(wanted, text)
        ]
        wanted = type(None) if self.error is None else self.error
        if not isinstance(outcome.error, wanted):
            lines.append(f"wanted {wanted.__name__}, seen {text or 'no error'}")
        lines += [f"left: {leak}" for leak in outcome.leaks]
        lines += [f"another device failed: {outcome.other}"] * bool(outcome.other)
        return lines + [f"after the cure: {outcome.again}"] * bool(outcome.again)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a row."""

    error: HcqError | None
    leaks: tuple[str, ...]
    other: str
    """Why a device of another process failed; empty: it did not."""
    again: str
    """Why the cure did not help; empty: it did."""

    @property
    def text(self) -> str:
        """The message."""
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}"


def copied(device: Device, timeout_s: float) -> None:
    """Fill and copy a few words. Raises what comes of it, and `AssertionError` for other words."""
    here, there = device.alloc(256, HOST), device.alloc(256)
    queue = device.copies[0]
    queue.submit(queue.record().fill(there, 7).copy(here, there, 256)).wait(timeout_s=timeout_s)
    assert bytes(here.host()[:4]) == b"\7\0\0\0"


def run(row: Row, make: Callable[[Row], Machine]) -> Outcome:
    """Make the surprise; return the error and what is left."""
    machine = make(row)
    other = machine.driver().open(row.machine.get("other", 0), None) if row.later else None
    beside = Device(other) if other is not None else None
    error: HcqError | None = None
    again = "no error" if row.again in ("recover", "retry") else ""
    device: Device | None = None
    try:
        device = Device(machine.driver().open(0, None))
        if row.later:
            copied(device, LONG_S)
            machine.set(row.later)
        _do(row, device)
    except HcqError as raised:
        error = raised
    machine.set({})
    told = ""
    if beside is not None:
        told = _fails(lambda: copied(beside, LONG_S)) if row.others else ""
    if device is not None and error is not None and again:
        again = _fails(lambda: _goes_on(device, recover=row.again == "recover"))
    for one in (device, beside):
        if one is not None:
            with contextlib.suppress(HcqError):  # the fault that was raised already, or a queue that hangs
                one.close()
    leaks = tuple(machine.leaks())
    if row.again in ("open", "new"):
        again = _fails(lambda: _opened(machine))
        leaks += tuple(machine.leaks())
    return Outcome(error, leaks, told, again)


def _do(row: Row, device: Device) -> None:
    match row.does:
        case "copy":
            copied(device, SHORT_S if row.error is SignalTimeout else LONG_S)
        case "alloc":
            device.alloc(64 << 20)
        case "compute":
            queue = device.compute
            queue.submit(queue.record(label="nothing")).wait(timeout_s=LONG_S)
        case "visible":
            device.alloc(64 << 20, BufferSpec(host_visible=True))
        case "close" | "open":
            device.close()


def _goes_on(device: Device, *, recover: bool) -> None:
    if recover:
        device.recover()
    copied(device, LONG_S)


def _opened(machine: Machine) -> None:
    with Device(machine.driver().open(0, None)) as device:
        copied(device, LONG_S)


def _fails(work: Callable[[], None]) -> str:
    """Return the error of some work as text; empty: it succeeds."""
    try:
        work()
    except HcqError as error:
        return f"{type(error).__name__}: {error}"
    return ""
