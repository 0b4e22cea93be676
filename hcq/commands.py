"""The neutral commands and the list that records them. Recording touches no hardware.

The same list feeds the validator, the dumper and each encoder. Order inside one submission: Execs between two
Barriers may overlap or finish in any order; everything else happens in the order recorded. A submission as a
whole starts after the effects of the queue's previous one are visible.

A command class declares once what its fields mean: `Command` lists the declarations. Recording, lifetimes,
graphs, relocations, hazards and limits read them, so that a new command needs its class and an encoder in
each driver (`docs/how-to/add-a-command.md`).

Not here: encoding (`hcq.driver.Encoder`), submission (`queue`), order between queues (`graph`).
"""

from __future__ import annotations

import enum
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self

from hcq.errors import UnsupportedError, UsageError
from hcq.hardware import QueueKind
from hcq.params import Expr, Param, Word, as_expr
from hcq.signal import Stamp

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from hcq.memory import Buffer, Owner
    from hcq.program import Dim3, KernArgs, Program
    from hcq.signal import Point, Signal

    Pointer = Buffer | Param | Expr
    Access = Literal["r", "w", "rw", "x"]
    """Read, written, both; or run as words of the queue, which no hazard concerns."""


class Scope(enum.Enum):
    """Observers of the effects before a Barrier."""

    QUEUE = "queue"
    DEVICE = "device"
    SYSTEM = "system"


class Touch(NamedTuple):
    """Memory that one command touches."""

    pointer: Pointer
    access: Access
    size: Word | None
    """Bytes from there; None: to the end of the buffer, and the command may touch any of them."""
    align: int = 1
    """Address and size are multiples of it."""
    part: str = ""
    """"argument NAME" of a kernel; empty for a field."""
    verb: str = ""
    """`Range.verb`."""


@dataclass(frozen=True, slots=True)
class Range:
    """Declares a field of a command that is a pointer, and the bytes from there that the command touches."""

    field: str
    access: Access
    size: str = ""
    """The attribute of the command that holds how many bytes; empty: to the end of the buffer."""
    align: int = 1
    """Address and size are multiples of it; 0: of the size, a power of two."""
    verb: str = ""
    """What the command does there, for errors: "copy to"."""


class Command:
    """One step of a queue. Each class declares the properties that the parts which handle commands read.

    The fields named in `memory` may be a Buffer, a Param or an Expr; those in `numbers` an int, a Param or an
    Expr; no other may be open.
    """

    __slots__ = ()

    memory: ClassVar[tuple[Range, ...]] = ()
    """The pointer fields."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """The fields that are numbers and may be open until submit."""
    kinds: ClassVar[tuple[QueueKind, ...]] = tuple(QueueKind)
    """The queues that run it."""
    overlaps: ClassVar[bool] = False
    """Whether neighbours of this kind may run at the same time and finish in any order."""
    orders: ClassVar[bool] = True
    """Whether what follows sees the effects of the commands before that overlap."""
    disjoint: ClassVar[bool] = False
    """Whether its ranges may not overlap one another."""
    timed: ClassVar[bool] = False
    """Whether a profile gives it a span."""

    def touches(self) -> Iterable[Touch]:
        """Yield the memory that the command touches, from its declaration."""
        for part in self.memory:
            size = getattr(self, part.size) if part.size else None
            pointer = getattr(self, part.field)
            yield _touch(Touch, (pointer, part.access, size, part.align or size or 1, "", part.verb))

    def open_numbers(self) -> Iterable[Expr]:
        """Yield the numbers that are given at submit; pointers are none."""
        for name in self.numbers:
            word = getattr(self, name)
            if isinstance(word, (Param, Expr)):
                yield as_expr(word)

    def check_open(self) -> None:
        """Raise `UsageError` when a field that cannot be open holds a Param."""
        for name in _declared(self.__class__).never_open:
            word = getattr(self, name)
            if isinstance(word, (Param, Expr)):
                raise UsageError(f"{self.title()}: {name} cannot be left open, seen {word}")

    def title(self) -> str:
        """Return its name in errors."""
        return type(self).__name__.lower()

    def span_name(self) -> str:
        """Return its name in a profile; empty for a command without a span."""
        if not self.timed:
            return ""
        sizes = [f" {touch.size} bytes" for touch in self.touches() if isinstance(touch.size, int)]
        return self.title() + (sizes[0] if sizes else "")


_touch = tuple.__new__
"""Makes a `Touch` in a third of the time."""


class _Declared(NamedTuple):
    """The declaration of one class of commands as `CommandBuffer.add` reads it, once for each class."""

    ranges: tuple[tuple[str, str, int, str], ...] | None
    """(field, size, align, verb) of each `Range`; None where the class has a `touches` of its own."""
    never_open: tuple[str, ...]
    """The fields that may not hold a Param."""


_DECLARED: Final[dict[type[Command], _Declared]] = {}


def _declared(kind: type[Command]) -> _Declared:
    """Return what a class declares."""
    found = _DECLARED.get(kind)
    if found is None:
        pointers = {part.field for part in kind.memory}
        names: tuple[str, ...] = kind.__slots__
        ranges = tuple([(part.field, part.size, part.align, part.verb) for part in kind.memory])
        found = _DECLARED[kind] = _Declared(
            ranges if kind.touches is Command.touches else None,
            tuple([name for name in names if name not in pointers and name not in kind.numbers]),
        )
    return found


@dataclass(slots=True)
class Wait(Command):
    """Wait until the slot at `signal.va` is >= `value`."""

    numbers = ("value",)

    signal: Signal
    value: Word
    """What the slot itself holds: `point.value - signal.base`."""


@dataclass(slots=True)
class SetSignal(Command):
    """Store `value` to the slot at `signal.va` once everything recorded before is done and visible to all."""

    numbers = ("value",)

    signal: Signal
    value: Word


@dataclass(slots=True)
class Timestamp(Command):
    """Write the device's time to the u64 at `stamp.ticks_va` once everything recorded before is done.

    The record is 32 bytes, 32-byte aligned; an engine whose record has other words beside the time may use
    all of it.
    """

    orders = False

    stamp: Stamp


@dataclass(slots=True)
class Barrier(Command):
    """Later commands observe the effects of all earlier ones."""

    scope: Scope


@dataclass(slots=True)
class Exec(Command):
    """Launch a kernel: encoders `place` the argument block `args.words` and apply `args.patches` to it.

    The image declares what it touches: `ArgSlot.access` of each pointer.
    """

    kinds = (QueueKind.COMPUTE,)
    overlaps = True
    orders = False
    timed = True

    program: Program
    args: KernArgs
    groups: tuple[Word, Word, Word]
    threads: Dim3

    def touches(self) -> list[Touch]:
        """Return the memory behind each pointer of the kernel."""
        return [
            _touch(Touch, (pointer, slot.access, None, 1, f"argument {slot.name}", ""))
            for slot, pointer in self.args.pointers()
        ]

    def open_numbers(self) -> list[Expr]:
        """Return the open numbers of groups and those among the arguments."""
        found = [as_expr(word) for word in self.groups if isinstance(word, (Param, Expr))]
        if self.args.patches:
            pointers = {slot.offset for slot, _ in self.args.pointers()}
            found += [expr for offset, _, expr in self.args.patches if offset not in pointers]
        return found

    def title(self) -> str:
        """Return "kernel NAME"."""
        return f"kernel {self.program.name}"

    def span_name(self) -> str:
        """Return the kernel's name."""
        return self.program.name


@dataclass(slots=True)
class Copy(Command):
    """Copy `size` bytes; the ranges may not overlap."""

    memory = (Range("dst", "w", "size", verb="copy to"), Range("src", "r", "size", verb="copy from"))
    numbers = ("size",)
    disjoint = True
    timed = True

    dst: Pointer
    src: Pointer
    size: Word


@dataclass(slots=True)
class Fill(Command):
    """Repeat a u32 over `size` bytes, a multiple of 4, from a 4-byte aligned address."""

    memory = (Range("dst", "w", "size", align=4, verb="fill"),)
    numbers = ("value", "size")
    timed = True

    dst: Pointer
    value: Word
    size: Word


@dataclass(slots=True)
class Write(Command):
    """Store one number, naturally aligned."""

    memory = (Range("dst", "w", "nbytes", align=0, verb="write to"),)
    numbers = ("value",)

    dst: Pointer
    value: Word
    bits: Literal[32, 64]

    @property
    def nbytes(self) -> int:
        """Bytes of the number."""
        return self.bits // 8


@dataclass(slots=True)
class Indirect(Command):
    """Run `words` prebuilt words of this queue's kind at the start of `buffer`; Executables submit it."""

    memory = (Range("buffer", "x"),)
    orders = False

    buffer: Buffer
    words: int


_EXEC_KINDS: Final = Exec.kinds
"""A class looks each attribute up anew, which costs more than a call."""


def address(pointer: Pointer) -> Word:
    """Return the device address that a command's pointer stands for."""
    return pointer if isinstance(pointer, (Param, Expr)) else pointer.va


def operands(command: Command) -> Iterator[Buffer]:
    """Yield the buffers that a command names, also through kernel arguments."""
    for touch in command.touches():
        if not isinstance(touch.pointer, (Param, Expr)):
            yield touch.pointer


def refuse_unknown(commands: Iterable[Command], encoders: Container[type[Any]]) -> None:
    """Raise `UnsupportedError` when an encoder has no method for one of the commands."""
    for command in commands:
        if type(command) not in encoders:
            raise UnsupportedError(
                f"this device cannot run the command {type(command).__name__}: its encoder has no method"
            )


class CommandBuffer:
    """An ordered list of commands for one kind of queue; every method returns the list itself.

    One list may be submitted often, and to any queue of its kind.
    """

    __slots__ = ("__weakref__", "commands", "epoch", "kind", "label", "spans")

    def __init__(self, kind: QueueKind, device: Owner | None = None, label: str = "") -> None:
        self.kind = kind
        self.label = label
        self.commands: list[Command] = []
        self.spans: tuple[tuple[str, Stamp, Stamp], ...] = ()
        """What `span` recorded: name, begin, end."""
        self.epoch = -1 if device is None else device.close_epoch
        """`Device.close_epoch` when all that is recorded was known to be open."""

    def wait(self, point: Point | Signal, value: Word | None = None) -> Self:
        """Wait until a point is reached, or a signal is >= `value`, before all later commands.

        Raises `UsageError` for a signal without a value, and for a value beside a point.
        """
        if value is None:
            self.commands.append(Wait(*_of_point(point)))
        else:
            self.commands.append(Wait(*_of_signal(point, value)))
        return self

    def signal(self, point: Point | Signal, value: Word | None = None) -> Self:
        """Set a point's signal, or store `value` to a signal, when all earlier commands are done.

        Their effects are visible to whoever waits for it. Raises `UsageError` as `wait` does.
        """
        if value is None:
            self.commands.append(SetSignal(*_of_point(point)))
        else:
            self.commands.append(SetSignal(*_of_signal(point, value)))
        return self

    def timestamp(self, stamp: Stamp) -> Self:
        """Write the device's time to a record when all earlier commands are done."""
        self.commands.append(Timestamp(stamp))
        return self

    def barrier(self, scope: Scope = Scope.SYSTEM) -> Self:
        """Make the effects of all earlier commands visible to all later ones.

        Kernels without a barrier between them may overlap and finish in any order. `scope` is who must see
        the effects.
        """
        self.commands.append(Barrier(scope))
        return self

    def exec(
        self, program: Program, args: KernArgs, *, groups: tuple[Word, Word, Word], threads: Dim3
    ) -> Self:
        """Launch a kernel over `groups` workgroups of `threads` threads, each (x, y, z).

        `args` are those of the same program. Raises `UsageError` for arguments of another program, a group
        count of 0, a size that is not (x, y, z), and a queue that runs no kernels. Limits of the device are
        checked with validation. Example: `docs/kernel-by-hand.md`.
        """
        if args.program is not program:
            raise UsageError(f"the arguments were made for {args.program.name}, not for {program.name}")
        if self.kind not in _EXEC_KINDS:
            raise _wrong_kind(f"kernel {program.name}", self.kind, _EXEC_KINDS)
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
        """Copy `size` bytes from the start of `src` to the start of `dst`; by default all of the smaller one.

        Raises `UsageError` for bytes outside of a buffer; validation also refuses ranges that overlap.
        """
        if size is None:
            size = min(_whole(dst), _whole(src))
        return self.add(Copy(dst, src, size))

    def fill(self, dst: Pointer, value: Word = 0, size: Word | None = None) -> Self:
        """Fill `size` bytes with the u32 `value`; by default all of the buffer.

        Address and size are multiples of 4; otherwise `UsageError`.
        """
        return self.add(Fill(dst, value, _whole(dst) if size is None else size))

    def write(self, dst: Pointer, value: Word, *, bits: Literal[32, 64] = 32) -> Self:
        """Store one number of 32 or 64 bits at the start of a buffer, naturally aligned."""
        return self.add(Write(dst, value, bits))

    def add(self, command: Command) -> Self:
        """Append any command that fits its declaration.

        Raises `UsageError` for another kind of queue, a closed buffer, bytes outside a buffer, an address or
        a size of the wrong alignment, and a Param in a field that cannot be open.
        """
        if self.kind not in command.kinds:
            raise _wrong_kind(command.title(), self.kind, command.kinds)
        ranges, never_open = _declared(command.__class__)
        if ranges is None:
            for touch in command.touches():
                self._check(touch.pointer, touch.size, touch.align, touch.verb)
        else:
            for field, of_size, align, verb in ranges:
                size = getattr(command, of_size) if of_size else None
                self._check(getattr(command, field), size, align or size or 1, verb)
        if never_open:
            command.check_open()
        self.commands.append(command)
        return self

    @contextmanager
    def span(self, name: str) -> Iterator[Self]:
        """Time the commands recorded inside the `with` block; `Device.spans` returns the span once it ran."""
        begin, end = Stamp(), Stamp()
        self.commands.append(Timestamp(begin))
        yield self
        self.commands.append(Timestamp(end))
        self.spans += ((name, begin, end),)

    def _check(self, pointer: Pointer, size: Word | None, align: int, verb: str) -> None:
        """Refuse memory that a command cannot touch."""
        if align != 1 and isinstance(size, int) and size % align:
            raise UsageError(f"{verb} {pointer!r}: {size} bytes are no multiple of {align}")
        if isinstance(pointer, (Param, Expr)):
            return
        pointer.live()
        if pointer.device.close_epoch != self.epoch:
            self.epoch = -1
        if isinstance(size, int) and not 0 <= size <= pointer.size:
            raise UsageError(f"{verb} {pointer!r}: it has {pointer.size} bytes, {size} were asked for")
        if align != 1 and pointer.va % align:
            wanted = f"wanted an address that is a multiple of {align}"
            raise UsageError(f"{verb} {pointer!r}: {wanted}, {pointer.va:#x} is none")

    def verify(self, device: Owner) -> None:
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
        raise UsageError(f"{point!r} is a Signal, which has no value of its own; give `value=`")
    return signal, value - signal.base


def _of_signal(signal: Point | Signal, value: Word) -> tuple[Signal, Word]:
    base = getattr(signal, "base", None)
    if base is None:
        raise UsageError(f"{signal!r} is a Point, which already carries its value; drop `value=`")
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


def _wrong_kind(what: str, kind: QueueKind, kinds: tuple[QueueKind, ...]) -> UsageError:
    wanted = " or ".join(one.value for one in kinds)
    return UsageError(f"{what} recorded for a {kind.value} queue; record it for a {wanted} queue")


def _whole(pointer: Pointer) -> int:
    if isinstance(pointer, (Param, Expr)):
        raise UsageError(f"{pointer} has no size of its own; give `size=` in bytes")
    return pointer.size
