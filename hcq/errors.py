"""The exception tree. A call that raises creates nothing and leaves the device as it was.

HcqError
├── UsageError (ValueError)            a documented rule was broken; nothing was sent
│   ├── UsageIndexError (IndexError)   an index or an axis is out of range
│   ├── UsageNameError (KeyError, AttributeError)  a name is missing, used already, or no name
│   ├── UsageTypeError (TypeError)     an argument has a class or dtype that is not accepted
│   └── UsageZeroDivisionError (ZeroDivisionError)  an integer divisor is 0
├── UnsupportedError (NotImplementedError)  device, firmware or kernel driver lacks what was asked for
├── BringUpError                       the device answered, but not as a working one does
├── DriverError (OSError)              the kernel refused a call
│   └── OutOfMemoryError (MemoryError) no memory of the kind asked for
├── SignalTimeout (TimeoutError)       a signal did not reach its value in time; the device may still be alive
├── DeviceFault                        the device faulted or hung; sticky until `Device.recover`
├── CompileError                       the compiler could not make a kernel; carries the AST
└── CheckError                         a kernel stored wrong values, seen by HCQ_CHECK=1; carries the first

CacheWarning (UserWarning)             compiled code is not kept: each process compiles again
FaultWarning (UserWarning)             the interpreter closed a device with a fault or overrun not yet raised

Not here: fault texts (`hcq.faults.messages`), `drivers.elf.ElfError`. Next: docs/errors.md, the guarantees.
"""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, Protocol


class HcqError(Exception):
    """Base of every error that this project raises on purpose."""


class CacheWarning(UserWarning):
    """Compiled code cannot be kept, so each process compiles again; the text says why."""


class FaultWarning(UserWarning):
    """The interpreter closed a device after a fault, or with an overrun buffer, that no call had raised.

    The text is that of the error.
    """


class UsageError(HcqError, ValueError, RuntimeError):
    """The caller broke a documented rule; raised before the hardware is touched.

    It is a `RuntimeError`, too, as programs for PyTorch expect of shapes that do not fit.
    """


class UsageIndexError(UsageError, IndexError):
    """An index or an axis is out of range."""


class UsageNameError(UsageError, KeyError, AttributeError):
    """A name is missing, used already, or no name; for PyTorch a missing key or attribute."""

    __str__ = Exception.__str__


class UsageTypeError(UsageError, TypeError):
    """An argument has a class or dtype that is not accepted."""


class UsageZeroDivisionError(UsageError, ZeroDivisionError):
    """An integer divisor is 0."""


class UnsupportedError(HcqError, NotImplementedError):
    """The device, firmware or kernel driver lacks a feature that was requested."""


class BringUpError(HcqError):
    """The device answered, but with a result that a working device does not return."""


class DriverError(HcqError, OSError):
    """The operating system refused a call.

    `call`, `arguments` (decoded, as text), `status` and `status_name` describe it; `reason` is why, where
    the kernel says it (an emulated one does); `hint` names a cure.
    """

    def __init__(
        self,
        call: str,
        status: int,
        status_name: str,
        *,
        arguments: str = "",
        hint: str = "",
        reason: str = "",
    ) -> None:
        text = f"{call} failed with {status_name} ({status:#x}){reason and ': '}{reason}"
        text += f"; arguments: {arguments}" if arguments else ""
        super().__init__(f"{text}\nhint: {hint}" if hint else text)
        self.call, self.status, self.status_name = call, status, status_name
        self.arguments, self.hint, self.reason = arguments, hint, reason


class OutOfMemoryError(DriverError, MemoryError):
    """No memory of the requested kind is left; nothing was allocated."""


class Awaited(Protocol):
    """The condition of a wait; implemented by `hcq.signal.Point`."""

    def passed(self) -> bool:
        """Return whether it is reached."""


class SignalTimeout(HcqError, TimeoutError):  # noqa: N818 - what it is called everywhere
    """A signal did not reach its value in time: `point` awaited, value `seen`, after `waited_s` seconds."""

    def __init__(self, message: str, *, point: Awaited, seen: int, waited_s: float) -> None:
        super().__init__(message)
        self.point, self.seen, self.waited_s = point, seen, waited_s


def size_text(size: int) -> str:
    """Return a number of bytes as text: "96 bytes", "1.5 MiB", "1,024 TiB"."""
    unit = min(max(size.bit_length() - 1, 0) // 10, 4)
    if not unit:
        return f"{size} bytes"
    number = f"{size / (1 << 10 * unit):,.1f}".removesuffix(".0")
    return f"{number} {('KiB', 'MiB', 'GiB', 'TiB')[unit - 1]}"


class FaultKind(enum.Enum):
    """Kinds of faults."""

    PAGE_FAULT = enum.auto()
    ENGINE_EXCEPTION = enum.auto()
    """The engine that runs kernels stopped at an instruction, an access, a launch or a method."""
    BAD_PACKET = enum.auto()
    QUEUE_ERROR = enum.auto()
    HANG = enum.auto()
    RESET = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """The decoded report of a fault, and the position of each queue.

    Its text starts with the first of `reports`, if there are any, as that names the cause.
    """

    device: str
    kind: FaultKind
    message: str
    va: int | None = None
    """The faulting address; None here and below: not known, or the fault has none."""
    access: Literal["read", "write", "execute", "atomic"] | None = None
    kernel: str | None = None
    """The kernel's name, or a text that names several candidates."""
    source: str = ""
    """The instruction, "line 41 of grid.ptx: st.global.u32 [%rd3], %r1;", or its line, "blur.py:9"."""
    arguments: tuple[str, ...] = ()
    launched: str = ""
    """The line of the program that launched the kernel, "train.py:41"; empty without validation."""
    nearest: str = ""
    """The allocation nearest to `va`: its range, its label and, if freed, the line that freed it."""
    queue: str | None = None
    """The label of the queue."""
    stuck_at: str = ""
    """The current operation of each queue; empty when all are idle."""
    reports: tuple[str, ...] = ()
    """The device assertions that kernels failed; then findings of an emulated GPU, the oldest first: a race,
    a read of uninitialized memory, an endless wait.

    The kernel driver of real hardware writes its findings to its log.
    """
    raw: tuple[object, ...] = ()
    """The words that the hardware stopped at, decoded as layouts."""
    cure: str = ""
    """What the user can do about it; empty: no advice."""

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
            ("launched at", self.launched),
            ("queue", self.queue),
            ("nearest allocation", self.nearest),
            ("stuck at", self.stuck_at),
        ):
            lines += [f"  {label}: {value}"] * bool(value)
        lines += [f"  argument: {argument}" for argument in self.arguments]
        lines += [f"  raw: {word!r}" for word in self.raw]
        lines += [f"hint: {self.cure}"] * bool(self.cure)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from hcq.tables import html_text  # noqa: PLC0415 - in notebooks only

        return html_text(str(self))


class DeviceFault(HcqError):  # noqa: N818 - the established name
    """The device faulted or hung. Every later call raises this report again, until `Device.recover`.

    If none does, `Device.close` raises it once all is released.
    """

    def __init__(self, report: FaultReport) -> None:
        super().__init__(str(report))
        self.report = report

    @property
    def reports(self) -> tuple[str, ...]:
        """Failed device assertions, and findings of an emulated GPU; see `FaultReport.reports`."""
        return self.report.reports


class CompileError(HcqError):
    """The compiler could not make a kernel; `ast` is the text of its syntax tree."""

    def __init__(self, message: str, *, ast: str = "") -> None:
        super().__init__(message + (f"\nkernel:\n{ast}" if ast else ""))
        self.ast = ast


class CheckError(HcqError):
    """A kernel's values differ from those of its operations, computed one by one, by more than their bound.

    Raised under `HCQ_CHECK=1` only. `kernel` and `device` are names, `index` is that of the first wrong
    element, `found` and `wanted` its values, `bound` what they may differ by; `bad` of `elements` are wrong.
    `plan`, `graph` and `ast` are texts: the kernel's loops, the operations that it stands for, the kernel;
    `where` says which elements differ, axis by axis, and by how much.
    """

    def __init__(
        self, what: str, *, kernel: str, device: str, index: tuple[int, ...], found: float, wanted: float,
        bound: float, bad: int, elements: int, plan: str, graph: str, ast: str, where: str,
    ) -> None:  # fmt: skip
        super().__init__(
            f"{what}: found {found!r}, wanted {wanted!r} within {bound:.3g}; {bad} of {elements} differ\n"
            f"where: {where}\noperations:\n{graph}\nkernel:\n{ast}\nplan:\n{plan}\n"
            f"hint: HCQ_CHECK=1 HCQ_DEVICE={device} repeats it with the same program; DEBUG=6 prints the code"
        )
        self.kernel, self.device, self.index = kernel, device, index
        self.found, self.wanted, self.bound = found, wanted, bound
        self.bad, self.elements = bad, elements
        self.plan, self.graph, self.ast, self.where = plan, graph, ast, where


_OURS: Final = ("hcq.", "frontend.", "interop.", "triton.")


def user_line() -> str:
    """Return "file:line" of the innermost caller whose module is not of this project, or of Triton."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def refuse_copy(self: object) -> NoReturn:
    """Raise `UsageTypeError`: the object cannot be copied or pickled.

    A default copy would share the device's memory without holding a reference to it, and free it twice. A
    class that owns memory, a queue or code of a device sets `__reduce__ = refuse_copy`.
    """
    raise UsageTypeError(
        f"{type(self).__name__} {self!r} belongs to an open device and cannot be copied or pickled\n"
        "hint: copy its contents, for example by a Copy command, or make another object"
    )
