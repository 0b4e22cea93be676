"""The neutral commands and the list that records them. Recording touches no hardware.

The same list feeds the validator, the dumper and each encoder. Order inside one submission: Execs between two
Barriers may overlap or finish in any order; everything else happens in the order recorded. A submission as a
whole starts after the effects of the queue's previous one are visible.
"""

from __future__ import annotations

import enum
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from hcq.driver import QueueKind
from hcq.errors import UsageError
from hcq.params import Expr, Param, Word
from hcq.signal import Stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.program import Dim3, KernArgs, Program
    from hcq.signal import Point, Signal

    Pointer = Buffer | Param | Expr


_COMPUTE: Final = QueueKind.COMPUTE
"""A class looks each member up anew, which costs more than a call."""


class Scope(enum.Enum):
    """Who must see what happened before a Barrier."""

    QUEUE = "queue"
    DEVICE = "device"
    SYSTEM = "system"


@dataclass(slots=True)
class Wait:
    """Go on when the slot at `signal.va` is >= `value`."""

    signal: Signal
    value: Word
    """What the slot itself holds: `point.value - signal.base`."""


@dataclass(slots=True)
class SetSignal:
    """Store `value` to the slot at `signal.va` once everything recorded before is done and visible to all."""

    signal: Signal
    value: Word


@dataclass(slots=True)
class Timestamp:
    """Write the device's time to the u64 at `stamp.ticks_va` once everything recorded before is done.

    The record is 32 bytes, 32-byte aligned; an engine whose record has other words beside the time may use
    all of it.
    """

    stamp: Stamp


@dataclass(slots=True)
class Barrier:
    """What follows sees the effects of what came before."""

    scope: Scope


@dataclass(slots=True)
class Exec:
    """Launch a kernel: encoders `place` the argument block `args.words` and apply `args.patches` to it."""

    program: Program
    args: KernArgs
    groups: tuple[Word, Word, Word]
    threads: Dim3


@dataclass(slots=True)
class Copy:
    """Copy `size` bytes; the ranges may not overlap."""

    dst: Pointer
    src: Pointer
    size: Word


@dataclass(slots=True)
class Fill:
    """Repeat a u32 over `size` bytes, a multiple of 4, from a 4-byte aligned address."""

    dst: Pointer
    value: Word
    size: Word


@dataclass(slots=True)
class Write:
    """Store one number, naturally aligned."""

    dst: Pointer
    value: Word
    bits: Literal[32, 64]


@dataclass(slots=True)
class Indirect:
    """Run `words` prebuilt words of this queue's kind at the start of `buffer`; Executables submit it."""

    buffer: Buffer
    words: int


Command = Wait | SetSignal | Timestamp | Barrier | Exec | Copy | Fill | Write | Indirect


def address(pointer: Pointer) -> Word:
    """Return the device address that a command's pointer stands for."""
    return pointer if isinstance(pointer, (Param, Expr)) else pointer.va


def operands(command: Command) -> Iterator[Buffer]:
    """Yield the buffers that a command names, also through kernel arguments."""
    if isinstance(command, Exec):
        yield from command.args.buffers
    elif isinstance(command, Indirect):
        yield command.buffer
    elif isinstance(command, (Copy, Fill, Write)):
        pointers = (command.dst, command.src) if isinstance(command, Copy) else (command.dst,)
        yield from (pointer for pointer in pointers if not isinstance(pointer, (Param, Expr)))


class CommandBuffer:
    """An ordered list of commands for one kind of queue; every method returns the list itself.

    One list may be submitted often, and to any queue of its kind.
    """

    __slots__ = ("__weakref__", "commands", "epoch", "kind", "label", "spans")

    def __init__(self, kind: QueueKind, device: Device | None = None, label: str = "") -> None:
        self.kind = kind
        self.label = label
        self.commands: list[Command] = []
        self.spans: tuple[tuple[str, Stamp, Stamp], ...] = ()
        """What `span` recorded: name, begin, end."""
        self.epoch = -1 if device is None else device.close_epoch
        """`Device.close_epoch` when all that is recorded was known to be open."""

    def wait(self, point: Point | Signal, value: Word | None = None) -> Self:
        """Go on when a point is reached, or a signal is >= `value`."""
        if value is None:
            self.commands.append(Wait(*_of_point(point)))
        else:
            self.commands.append(Wait(*_of_signal(point, value)))
        return self

    def signal(self, point: Point | Signal, value: Word | None = None) -> Self:
        """Raise a point, or store `value` to a signal, when everything before is done."""
        if value is None:
            self.commands.append(SetSignal(*_of_point(point)))
        else:
            self.commands.append(SetSignal(*_of_signal(point, value)))
        return self

    def timestamp(self, stamp: Stamp) -> Self:
        """Note the device's time when everything before is done."""
        self.commands.append(Timestamp(stamp))
        return self

    def barrier(self, scope: Scope = Scope.SYSTEM) -> Self:
        """Let what follows see the effects of what came before."""
        self.commands.append(Barrier(scope))
        return self

    def exec(
        self, program: Program, args: KernArgs, *, groups: tuple[Word, Word, Word], threads: Dim3
    ) -> Self:
        """Launch a kernel over `groups` workgroups of `threads` threads."""
        if args.program is not program:
            raise UsageError(f"the arguments were made for {args.program.name}, not for {program.name}")
        if self.kind is not _COMPUTE:
            raise UsageError(
                f"kernel {program.name} recorded for a {self.kind.value} queue; record it for a compute queue"
            )
        try:
            gx, gy, gz = groups
            tx, ty, tz = threads
        except (TypeError, ValueError):
            raise _not_three(program, groups, threads) from None
        shape = gx, gy, gz
        if 0 in shape:
            raise UsageError(f"kernel {program.name}: {shape} groups, wanted at least 1 along each axis")
        if args.epoch != self.epoch:
            self.epoch = -1
        self.commands.append(Exec(program, args, shape, (tx, ty, tz)))
        return self

    def copy(self, dst: Pointer, src: Pointer, size: Word | None = None) -> Self:
        """Copy bytes; all of the smaller buffer when `size` is not given."""
        if size is None:
            size = min(_whole(dst), _whole(src))
        self._inside(dst, size, "copy to")
        self._inside(src, size, "copy from")
        self.commands.append(Copy(dst, src, size))
        return self

    def fill(self, dst: Pointer, value: Word = 0, size: Word | None = None) -> Self:
        """Repeat the u32 `value`; over all of the buffer when `size` is not given."""
        if size is None:
            size = _whole(dst)
        if isinstance(size, int) and size % 4:
            raise UsageError(f"a fill repeats 4 bytes, {size} is no multiple of them")
        self._inside(dst, size, "fill")
        _aligned(dst, 4, "fill")
        self.commands.append(Fill(dst, value, size))
        return self

    def write(self, dst: Pointer, value: Word, *, bits: Literal[32, 64] = 32) -> Self:
        """Store one number at the start of a buffer."""
        self._inside(dst, bits // 8, "write to")
        _aligned(dst, bits // 8, "write to")
        self.commands.append(Write(dst, value, bits))
        return self

    @contextmanager
    def span(self, name: str) -> Iterator[Self]:
        """Time what is recorded inside; `Device.spans` returns it once it ran."""
        begin, end = Stamp(), Stamp()
        self.commands.append(Timestamp(begin))
        yield self
        self.commands.append(Timestamp(end))
        self.spans += ((name, begin, end),)

    def _inside(self, pointer: Pointer, size: Word, what: str) -> None:
        if isinstance(pointer, (Param, Expr)):
            return
        pointer.live()
        if pointer.device.close_epoch != self.epoch:
            self.epoch = -1
        if isinstance(size, int) and not 0 <= size <= pointer.size:
            raise UsageError(f"{what} {pointer!r}: it has {pointer.size} bytes, {size} were asked for")

    def verify(self, device: Device) -> None:
        """Raise `UsageError` when something recorded was closed since, or is not `device`'s to use."""
        epoch = device.close_epoch
        for command in self.commands:
            for buffer in operands(command):
                buffer.live()
                if not buffer.visible_to(device):
                    raise UsageError(f"{type(command).__name__} uses {buffer!r}, {buffer.unseen_by(device)}")
            if isinstance(command, Exec) and (command.program.closed or command.program.device is not device):
                why = (
                    "it was closed"
                    if command.program.closed
                    else f"it lives on {command.program.device.name}"
                )
                raise UsageError(
                    f"{command.program!r} cannot be launched on {device.name}: {why}\n"
                    f"hint: load its image on {device.name}"
                )
        self.epoch = epoch

    def __iter__(self) -> Iterator[Command]:
        return iter(self.commands)

    def __len__(self) -> int:
        return len(self.commands)

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"<CommandBuffer{label}: {len(self.commands)} commands for a {self.kind.value} queue>"


def _of_point(point: Point | Signal) -> tuple[Signal, Word]:
    value = getattr(point, "value", None)
    signal = getattr(point, "signal", None)
    if signal is None or value is None:
        raise UsageError(f"{point!r} is a signal: say which value")
    return signal, value - signal.base


def _of_signal(signal: Point | Signal, value: Word) -> tuple[Signal, Word]:
    base = getattr(signal, "base", None)
    if base is None:
        raise UsageError(f"{signal!r} is a point: it has a value of its own")
    if base and isinstance(value, (Param, Expr)):
        raise UsageError(f"{signal!r} belongs to a timeline: its values cannot be parameters")
    number = value - base if isinstance(value, int) else value
    return signal, number  # type: ignore[return-value]  # it has a base: a Signal


def _not_three(program: Program, groups: Any, threads: Any) -> UsageError:
    """Return the error of a launch whose groups or threads are not three numbers."""
    what, value = "groups", groups
    with suppress(TypeError):
        if len(tuple(groups)) == 3:
            what, value = "threads", threads
    return UsageError(
        f"kernel {program.name}: {what}={value!r}, wanted three, along x, y and z\n"
        f"hint: {what}=({value if isinstance(value, int) else 4}, 1, 1)"
    )


def _aligned(pointer: Pointer, align: int, what: str) -> None:
    if not isinstance(pointer, (Param, Expr)) and pointer.va % align:
        raise UsageError(
            f"{what} {pointer!r}: wanted an address that is a multiple of {align}, {pointer.va:#x} is none"
        )


def _whole(pointer: Pointer) -> int:
    if isinstance(pointer, (Param, Expr)):
        raise UsageError(f"{pointer} has no size of its own: say how many bytes")
    return pointer.size
