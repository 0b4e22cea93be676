"""The exception tree. What raises creates nothing: a call that fails leaves the device as it was.

HcqError
├── UsageError (ValueError)            a documented rule was broken; nothing was sent
│   ├── UsageIndexError (IndexError)   an index or an axis lies outside of what it indexes
│   ├── UsageTypeError (TypeError)     an argument is of a class or dtype that is not taken there
│   └── UsageZeroDivisionError (ZeroDivisionError)  an integer divisor is 0
├── UnsupportedError (NotImplementedError)  device, firmware or kernel driver lacks what was asked for
├── DriverError (OSError)              the kernel refused a call
│   └── OutOfMemoryError (MemoryError) no memory of the kind asked for
├── SignalTimeout (TimeoutError)       a signal did not reach its value in time; the device may still be alive
├── DeviceFault                        the device faulted or hung; sticky until `Device.recover`
└── CompileError                       the compiler could not make a kernel; carries the AST

CacheWarning (UserWarning)             compiled code is not kept: each process compiles again

Not here: fault texts (`hcq.faults.messages`). Next: docs/errors.md, what each class guarantees.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal, Protocol


class HcqError(Exception):
    """Base of every error this project raises on purpose."""


class CacheWarning(UserWarning):
    """Compiled code is not kept, for the reason that the text gives: each process compiles again."""


class UsageError(HcqError, ValueError):
    """The caller broke a documented rule; raised before the hardware is touched."""


class UsageIndexError(UsageError, IndexError):
    """An index or an axis lies outside of what it indexes."""


class UsageTypeError(UsageError, TypeError):
    """An argument is of a class or dtype that is not taken there."""


class UsageZeroDivisionError(UsageError, ZeroDivisionError):
    """An integer divisor is 0."""


class UnsupportedError(HcqError, NotImplementedError):
    """The device, firmware or kernel driver lacks a feature that was requested."""


class DriverError(HcqError, OSError):
    """The kernel refused a call; carries the call, its decoded arguments and the status."""

    def __init__(
        self, call: str, status: int, status_name: str, *, arguments: str = "", hint: str = ""
    ) -> None:
        text = f"{call} failed with {status_name} ({status:#x})"
        if arguments:
            text += f"; arguments: {arguments}"
        if hint:
            text += f"\nhint: {hint}"
        super().__init__(text)
        self.call = call
        self.status = status
        self.status_name = status_name
        self.arguments = arguments
        self.hint = hint


class OutOfMemoryError(DriverError, MemoryError):
    """No memory of the requested kind is left; nothing was allocated."""


class Awaited(Protocol):
    """What a wait is for: a `Point`."""

    def passed(self) -> bool:
        """Return whether it is reached."""
        ...


class SignalTimeout(HcqError, TimeoutError):  # noqa: N818 - what it is called everywhere
    """A signal did not reach its value in time."""

    def __init__(self, message: str, *, point: Awaited, seen: int, waited_s: float) -> None:
        super().__init__(message)
        self.point = point
        self.seen = seen
        self.waited_s = waited_s


def size_text(size: int) -> str:
    """Return a number of bytes as text: "96 bytes", "1.5 MiB", "1,024 TiB"."""
    unit = min(max(size.bit_length() - 1, 0) // 10, 4)
    if not unit:
        return f"{size} bytes"
    number = f"{size / (1 << 10 * unit):,.1f}".removesuffix(".0")
    return f"{number} {('KiB', 'MiB', 'GiB', 'TiB')[unit - 1]}"


class FaultKind(enum.Enum):
    """What sort of fault a device reported."""

    PAGE_FAULT = enum.auto()
    ENGINE_EXCEPTION = enum.auto()
    """The engine that runs kernels stopped: an instruction, an access, a launch or a method was refused."""
    BAD_PACKET = enum.auto()
    QUEUE_ERROR = enum.auto()
    HANG = enum.auto()
    RESET = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """The hardware's report of a fault, decoded, and the position of each queue.

    As text it leads with the first of `reports`, where there are any: that names what happened.
    """

    device: str
    kind: FaultKind
    message: str
    va: int | None = None
    access: Literal["read", "write", "execute", "atomic"] | None = None
    kernel: str | None = None
    source: str = ""
    """The place in the kernel's text, as text: "line 41 of grid.ptx: st.global.u32 [%rd3], %r1;"."""
    arguments: tuple[str, ...] = ()
    nearest: str = ""
    """The allocation nearest to `va`, as text: its range, label and, when freed, where it was freed."""
    queue: str | None = None
    stuck_at: str = ""
    reports: tuple[str, ...] = ()
    """Findings of an emulated GPU, the oldest first: a race, a read of
    uninitialized memory, an endless wait. Empty on real hardware, whose driver writes to its log."""
    raw: tuple[object, ...] = ()
    """Decoded words, as layouts, that the hardware stopped at."""

    def __str__(self) -> str:
        kind = f"{self.kind.name.lower().replace('_', ' ')}: {self.message}"
        indented = [report.replace("\n", "\n    ") for report in self.reports]
        lines = [f"{self.device}: {head}" for head in (indented or [kind])[:1]]
        lines += [f"  report: {report}" for report in indented[1:]]
        lines += [f"  {kind}"] * bool(indented)
        if self.va is not None:
            lines.append(f"  address: {self.va:#x}" + (f" ({self.access})" if self.access else ""))
        for label, value in (
            ("kernel", self.kernel),
            ("source", self.source),
            ("queue", self.queue),
            ("nearest allocation", self.nearest),
            ("stuck at", self.stuck_at),
        ):
            if value:
                lines.append(f"  {label}: {value}")
        lines += [f"  argument: {argument}" for argument in self.arguments]
        lines += [f"  raw: {word!r}" for word in self.raw]
        return "\n".join(lines)


class DeviceFault(HcqError):  # noqa: N818 - what it is called everywhere
    """The device faulted or hung; every later call raises this same report, until `Device.recover`."""

    def __init__(self, report: FaultReport) -> None:
        super().__init__(str(report))
        self.report = report

    @property
    def reports(self) -> tuple[str, ...]:
        """What the kernel's side reported of its own; see `FaultReport.reports`."""
        return self.report.reports


class CompileError(HcqError):
    """The compiler could not make a kernel; `ast` is the kernel's text."""

    def __init__(self, message: str, *, ast: str = "") -> None:
        super().__init__(message + (f"\nkernel:\n{ast}" if ast else ""))
        self.ast = ast
