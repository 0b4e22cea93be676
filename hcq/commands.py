"""The neutral commands of a queue.

Order inside one submission: Execs between two Barriers may overlap and finish in any order; all other
commands run in the order recorded. A submission starts after the effects of the queue's previous one are
visible.

A field of a command is *open* if it holds a Param or an Expr: its value is given at submission or at a
replay.

A command class declares its fields once; `Command` lists the declarations. Recording, lifetimes, graphs,
relocations, hazards and limits read them, so that a new command needs only its class and an encoder in each
driver (`docs/how-to/add-a-command.md`).

Not here: recording (`commandbuffer`), encoding (`hcq.driver.Encoder`), submission (`queue`), order between
queues (`graph`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from hcq.errors import UnsupportedError, UsageError
from hcq.hardware import DeviceInfo, QueueKind
from hcq.memory import Buffer
from hcq.params import Expr, Param, Value, Word, as_expr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hcq.program import Dim3, KernArgs, Program
    from hcq.signal import Signal, Stamp

    Pointer = Buffer | Param | Expr
    Access = Literal["r", "w", "rw", "x"]
    """Read, written, both; or executed as words of the queue, which takes no part in hazards."""


class Scope(enum.Enum):
    """The observers that see the effects of the commands before a Barrier."""

    QUEUE = "queue"
    DEVICE = "device"
    SYSTEM = "system"


class Touch(NamedTuple):
    """Memory that one command accesses."""

    pointer: Pointer
    access: Access
    size: Word | None
    """Number of bytes; None: the command may access any byte up to the end of the buffer."""
    align: int = 1
    """Bytes that address and size are multiples of."""
    part: str = ""
    """"argument NAME" of a kernel; empty for a field."""
    verb: str = ""
    """`Range.verb`."""


@dataclass(frozen=True, slots=True)
class Range:
    """The declaration of a pointer field, and of the bytes from there on that the command accesses."""

    field: str
    access: Access
    size: str = ""
    """The attribute of the command with the number of bytes; empty: up to the end of the buffer."""
    align: int = 1
    """Bytes that address and size are multiples of; 0: of the size, which is a power of two."""
    verb: str = ""
    """The access in error messages: "copy to"."""


class Command:
    """One step of a queue. A subclass declares its properties in the class variables below.

    A field named in `memory` is a Buffer, a Param or an Expr; one named in `numbers` is an int, a Param or an
    Expr. Other fields cannot be open.
    """

    __slots__ = ()

    memory: ClassVar[tuple[Range, ...]] = ()
    """The pointer fields."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """The number fields that may be open until submission."""
    kinds: ClassVar[tuple[QueueKind, ...]] = tuple(QueueKind)
    """The kinds of queue that run it."""
    overlaps: ClassVar[bool] = False
    """Whether adjacent commands with this property may run at the same time and finish in any order."""
    orders: ClassVar[bool] = True
    """Whether later commands see the effects of earlier overlapping commands."""
    disjoint: ClassVar[bool] = False
    """Whether its ranges may not overlap one another."""
    timed: ClassVar[bool] = False
    """Whether a profile gives it a span."""

    def touches(self) -> Iterable[Touch]:
        """Yield the memory that the command accesses, from its declaration."""
        for part in self.memory:
            size = getattr(self, part.size) if part.size else None
            pointer = getattr(self, part.field)
            yield _touch(Touch, (pointer, part.access, size, part.align or size or 1, "", part.verb))

    def open_numbers(self) -> Iterable[Expr]:
        """Yield the numbers that are given at submission, without pointers."""
        for name in self.numbers:
            word = getattr(self, name)
            if isinstance(word, (Param, Expr)):
                yield as_expr(word)

    def check_open(self) -> None:
        """Raise `UsageError` when a field that cannot be open holds a Param."""
        for name in declared(self.__class__).never_open:
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
"""Makes a `Touch` in a third of the time of its constructor."""


class _Declared(NamedTuple):
    """The declaration of a command class in the form that `CommandBuffer.add` reads."""

    ranges: tuple[tuple[str, str, int, str], ...] | None
    """(field, size, align, verb) of each `Range`; None where the class has a `touches` of its own."""
    never_open: tuple[str, ...]
    """The fields that may not hold a Param."""


_DECLARED: Final[dict[type[Command], _Declared]] = {}


def declared(kind: type[Command]) -> _Declared:
    """Return the declaration of a command class, cached."""
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
    """The value of the slot itself: `point.value - signal.base`."""


@dataclass(slots=True)
class WaitMemory(Command):
    """Wait until the u64 at the start of `src`, a buffer of coherent memory, is >= `value`.

    `value` is below 2^31, as is what the memory gets: some engines compare 32 bits circularly. It takes no
    part in hazards, as other work writes the memory meanwhile; validation does not see the order that it
    gives. Encoders treat it as a `Wait` for the signal that it is itself.
    """

    memory = (Range("src", "x", "nbytes", align=8, verb="wait for"),)
    numbers = ("value",)

    src: Pointer
    value: Word

    nbytes: ClassVar[int] = 8
    file: ClassVar[int] = 0
    """As a signal that others may set (`Signal.file`)."""
    device: ClassVar[object] = None

    @property
    def signal(self) -> WaitMemory:
        """Itself."""
        return self

    @property
    def va(self) -> int:
        """The address. Raises `UsageError` for memory that is not coherent, and for an open pointer."""
        src = self.src
        if not isinstance(src, Buffer):
            raise UsageError(f"wait for memory: wanted a Buffer, seen {src!r}: it cannot be left open")
        if not (src.spec.coherent or src.device.info.host_addressable):
            raise UsageError(f"wait for {src!r}: wanted coherent memory, hcq.BufferSpec(coherent=True)")
        ends = [self.value] if isinstance(self.value, int) else as_expr(self.value).range()
        if not 0 <= min(ends) <= max(ends) < 1 << 31:
            text = f"wanted a value of 31 bits, seen {self.value}"
            raise UsageError(f"wait for {src!r}: {text}\nhint: a parameter needs Param(name, bits=31)")
        return int(src.va)


def limit(wait: Wait | WaitMemory, bits: int) -> None:
    """Limit the values of a signal that the host sets to what a queue compares. Raises as `Signal.check`."""
    if wait.__class__ is Wait and wait.signal.host_set:
        wait.signal.limit(bits)


@dataclass(slots=True)
class SetSignal(Command):
    """Store `value` to the slot at `signal.va` once all earlier commands are complete and visible to all."""

    numbers = ("value",)

    signal: Signal
    value: Word


@dataclass(slots=True)
class Timestamp(Command):
    """Write the device time to the u64 at `stamp.ticks_va` once all earlier commands are complete.

    The record has 32 bytes and is 32-byte aligned; an engine may write other words of its record format
    there.
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

    The image declares its accesses: `ArgSlot.access` of each pointer.
    """

    kinds = (QueueKind.COMPUTE,)
    overlaps = True
    orders = False
    timed = True

    program: Program
    args: KernArgs
    groups: tuple[Word, Word, Word]
    threads: Dim3
    cluster: Dim3 | None = None
    """Workgroups of a cluster along x, y and z; None: what the image requires, else no clusters."""

    def check_open(self) -> None:
        """Raise `UsageError` or `UnsupportedError` for a cluster that `check_cluster` refuses."""
        if self.cluster is not None:
            device = self.program.device
            check_cluster(self.title(), device.name, device.info, self.cluster, self.groups)

    def touches(self) -> list[Touch]:
        """Return the memory of each pointer argument."""
        return [
            _touch(Touch, (pointer, slot.access, None, 1, f"argument {slot.name}", ""))
            for slot, pointer in self.args.pointers()
        ]

    def open_numbers(self) -> list[Expr]:
        """Return the open numbers among groups and arguments."""
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
        """Bytes of the number. Raises `UsageError` for another number of bits."""
        if not isinstance(self.bits, int) or self.bits not in {32, 64}:
            raise UsageError(f"write: wanted 32 or 64 bits, seen {self.bits!r}")
        return self.bits // 8

    def check_open(self) -> None:
        """Raise `UsageError` for a number that does not fit the bits, and for bits that are left open."""
        Command.check_open(self)
        if isinstance(self.value, int) and not 0 <= self.value < 1 << self.bits:
            wanted = f"wanted 0 to {(1 << self.bits) - 1:#x}"
            raise UsageError(f"write: {self.value:#x} does not fit {self.bits} bits; {wanted}")


@dataclass(slots=True)
class Indirect(Command):
    """Run `words` prebuilt words at the start of `buffer`; executables and large submissions use it."""

    memory = (Range("buffer", "x"),)
    orders = False

    buffer: Buffer
    words: int


def check_cluster(
    what: str, device: str, info: DeviceInfo, cluster: Dim3, groups: tuple[Word, Word, Word]
) -> None:
    """Check the clusters of a launch against the device and the grid. `what` and `device` are for errors.

    Raises `UnsupportedError` for a device without clusters, `UsageError` for one that is too large or has a
    size below 1, and for a grid that is open along an axis with clusters, or is no multiple of them.
    """
    most = info.limits.get("max_cluster", 0)
    if not most:
        raise UnsupportedError(
            f"{what}: wanted clusters of {cluster} workgroups, {device} ({info.arch}) launches none\n"
            "hint: NVIDIA GPUs have clusters from sm_90 on"
        )
    if min(cluster) < 1 or math.prod(cluster) > most:
        raise UsageError(
            f"{what}: saw clusters of {cluster} workgroups, wanted 1 to {most} in all on {device}"
        )
    for axis, size, count in zip("xyz", cluster, groups, strict=True):
        if size > 1 and not isinstance(count, int):
            raise UsageError(
                f"{what}: {count} workgroups along {axis}, which is open, with clusters of {size}\n"
                "hint: a grid may be open along axes where a cluster has one workgroup"
            )
        if size > 1 and count % size:  # type: ignore[operator]  # a number, as checked above
            raise UsageError(
                f"{what}: {count} workgroups along {axis} are no multiple of the {size} of a cluster"
            )


def address(pointer: Pointer) -> Word:
    """Return the device address of a pointer, or the Param or Expr that gives it."""
    return pointer if isinstance(pointer, (Param, Expr)) else pointer.va


def opened(commands: Iterable[Command]) -> tuple[dict[Param, int], set[Param]]:
    """Return (parameter -> least bytes of its buffer, parameters used as numbers) of commands.

    An access whose size is open, or unknown as that of a kernel, does not count into the least bytes.
    """
    pointers: dict[Param, int] = {}
    numbers: set[Param] = set()
    for command in commands:
        for touch in command.touches():
            if isinstance(touch.pointer, (Param, Expr)):
                base = as_expr(touch.pointer)
                needed = base.add + touch.size if isinstance(touch.size, int) else 0
                pointers[base.param] = max(pointers.get(base.param, 0), needed)
        for expr in command.open_numbers():
            numbers.add(expr.param)
    return pointers, numbers


def check_ranges(command: Command, values: Mapping[Param, Value]) -> None:
    """Raise `UsageError` for bytes outside a buffer, where the address or the size was open while recording.

    An open size must not be 0: a replay cannot leave out a command that is encoded. Parameters without a
    value, or with one of the wrong class, are not checked here: `look_up` and `resolve` refuse them.
    """
    for touch in command.touches():
        pointer, size = touch.pointer, touch.size
        if size is None or (isinstance(size, int) and not isinstance(pointer, (Param, Expr))):
            continue
        base = as_expr(pointer) if isinstance(pointer, (Param, Expr)) else None
        buffer = values.get(base.param) if base is not None else pointer
        count = size if isinstance(size, int) else values.get(as_expr(size).param)
        if not isinstance(count, int):
            continue
        number = count if isinstance(size, int) else as_expr(size).evaluate(count)
        if number == 0 and not isinstance(size, int):
            raise UsageError(f"{command.title()}: wanted at least 1 byte, seen {number}")
        if not isinstance(buffer, Buffer):
            continue
        at = base.add if base is not None else 0
        end = at + number
        if at < 0 or end > buffer.size:
            raise UsageError(f"{command.title()}: bytes {at} to {end} lie outside {buffer!r}")
        align = touch.align
        if align > 1 and isinstance(buffer.va, int) and ((buffer.va + at) % align or (end - at) % align):
            wanted = f"wanted an address and a size that are multiples of {align}"
            raise UsageError(f"{command.title()}: {wanted}, seen {buffer.va + at:#x} and {end - at} bytes")


def operands(command: Command) -> Iterator[Buffer]:
    """Yield the buffers that a command uses, including those in kernel arguments."""
    for touch in command.touches():
        if not isinstance(touch.pointer, (Param, Expr)):
            yield touch.pointer


class CommandTable(dict[type[Any], Callable[[Any, Any], None]]):
    """Class of a command -> the method that appends its words, of an encoder of the queue called `queue`.

    Raises `UnsupportedError` for a class that it does not have.
    """

    queue = ""

    def __missing__(self, kind: type[Any]) -> Callable[[Any, Any], None]:
        runs = ", ".join([one.__name__ for one in self])
        raise UnsupportedError(
            f"{self.queue} does not run the command {kind.__name__}, it runs {runs}\n"
            "hint: docs/writing-a-driver.md: a command needs a method in the encoder of each kind of queue"
        )
