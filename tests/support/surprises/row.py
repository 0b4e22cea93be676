"""One case: where the emulated kernel deviates, what the program does then, and what its error must say.

`run` injects the deviation and returns the outcome.

Not here: the tables (`nv`, `amd`). Next: `emulator.shared.surprises`, how an emulated kernel deviates.
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
"""The limit, in seconds, of a wait that never ends because of the surprise."""
LONG_S: Final = 60.0
"""The limit, in seconds, of a wait that ends with a result or a fault."""

Again = Literal["open", "recover", "retry", "new", "never"]
"""What works after the cause is gone. "open": a device opens. "recover": `Device.recover`. "retry": the next
submission of the same device. "new": another process opens the device. "never": nothing on this machine."""


_PCI: Final = "/sys/bus/pci/devices"
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
        """Return the resources that closed devices have not freed, as text."""


def card(address: str, driver: str, *, vendor: int, kind: int, event: str) -> dict[str, object]:
    """Return surprises by which sysfs shows one PCI card; `driver` is the owner, "" for none.

    `kind` is the class of the card, `event` a line of its uevent.
    """
    owner = f"DRIVER={driver}\n" if driver else ""
    return {
        f"list {_PCI}": [address],
        f"read {_PCI}/{address}/vendor": f"{vendor:#06x}\n".encode(),
        f"read {_PCI}/{address}/class": f"{kind:#08x}\n".encode(),
        f"read {_PCI}/{address}/uevent": f"{owner}{event}\n".encode(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A mistake or a surprise, and what its error must say."""

    name: str
    what: str
    """What happens, in words, for the page."""
    at_open: Mapping[str, object] = field(default_factory=dict[str, object])
    """Surprises from the start (`emulator.shared.surprises`)."""
    later: Mapping[str, object] = field(default_factory=dict[str, object])
    """Surprises once a device is open with its queues."""
    does: Literal["open", "copy", "compute", "alloc", "visible", "close"] = "copy"
    """What the program does with the device. It fails in this step or before."""
    error: type[HcqError] | None = DriverError
    """The class of the error; None if the program succeeds."""
    cause: str = ""
    """A pattern that the message must match (`re.search`): the cause in words."""
    evidence: str = ""
    """A pattern for the call, status, value or text that shows the cause."""
    cure: str = ""
    """A pattern for what to try."""
    again: Again = "open"
    """What works after the cause is gone."""
    others: bool = True
    """Whether another process, or another GPU of this process, must be unaffected."""
    machine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the emulated machine (`open_machine`). "other": the index of a second GPU."""

    def line(self, vendor: str) -> str:
        """Return the row of the page: case, what happens, the error, what works after the cause is gone."""
        error = "none" if self.error is None else f"`{self.error.__name__}`"
        return f"| `{vendor}-{self.name}` | {self.what} | {error} | {_AFTER[self.again]} |"

    def wrong(self, outcome: Outcome) -> list[str]:
        """Return a line for each difference between an outcome and this row."""
        text = outcome.text
        parts = {"cause": self.cause, "evidence": self.evidence, "cure": self.cure}
        lines = [
            f"no {name} ({wanted}) in: {text}"
            for name, wanted in parts.items()
            if not re.search(wanted, text)
        ]
        wanted = type(None) if self.error is None else self.error
        if not isinstance(outcome.error, wanted):
            lines.append(f"wanted {wanted.__name__}, saw {text or 'no error'}")
        lines += [f"left: {leak}" for leak in outcome.leaks]
        lines += [f"another device failed: {outcome.other}"] * bool(outcome.other)
        return lines + [f"after the cure: {outcome.again}"] * bool(outcome.again)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a row."""

    error: HcqError | None
    leaks: tuple[str, ...]
    """Resources that closed devices have not freed, as text."""
    other: str
    """Why another device failed; "" if it did not, or was not tried."""
    again: str
    """Why the device did not work after the cause was gone; "" if it did, or was not tried."""

    @property
    def text(self) -> str:
        """The class and message of the error; "" without one."""
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}"


def copied(device: Device, timeout_s: float) -> None:
    """Fill and copy 256 bytes. Errors of the device pass; raises `AssertionError` for a wrong result."""
    here, there = device.alloc(256, HOST), device.alloc(256)
    queue = device.copies[0]
    queue.submit(queue.record().fill(there, 7).copy(here, there, 256)).wait(timeout_s=timeout_s)
    assert bytes(here.host()[:4]) == b"\7\0\0\0"


def run(row: Row, make: Callable[[Row], Machine]) -> Outcome:
    """Run a row on a machine that `make` returns; return its outcome. All devices are closed.

    The outcome has the `HcqError` of the row; other errors pass, such as those of `make` and `copied`.
    """
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
    """Call `work`; return its error as text, "" if it succeeds."""
    try:
        work()
    except HcqError as error:
        return f"{type(error).__name__}: {error}"
    return ""
