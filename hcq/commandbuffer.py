"""Command buffers: ordered lists of commands, which are checked while recording. No device is accessed.

Not here: what the commands mean (`commands`), submission (`queue`), order between queues (`graph`).
"""

from __future__ import annotations

import operator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from hcq.commands import (
    Barrier,
    Copy,
    Exec,
    Fill,
    Scope,
    SetSignal,
    Timestamp,
    Wait,
    WaitMemory,
    Write,
    declared,
    operands,
)
from hcq.errors import UsageError, UsageTypeError
from hcq.memory import Buffer, Owner
from hcq.params import Expr, Param, Word
from hcq.signal import Point, Signal, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.commands import Command, Pointer
    from hcq.hardware import QueueKind
    from hcq.program import Dim3, KernArgs, Program

_new = object.__new__
_U32: Final = (1 << 32) - 1
_EXEC_KINDS: Final = Exec.kinds
"""A constant, as a lookup in the class costs more than a call."""


class CommandBuffer:
    """An ordered list of commands for one kind of queue.

    Made by `Queue.record`; methods return the list itself.

    It may be submitted any number of times, to any queue of its kind and device. It keeps the buffers,
    programs and signals of its commands alive. A method that gets a closed buffer raises the error of
    `Buffer.live`. Not thread-safe while recording.

        commands = queue.record(label="clear").fill(target, 0).barrier().copy(backup, target)
    """

    __slots__ = ("__weakref__", "commands", "epoch", "kind", "label", "spans")

    def __init__(self, kind: QueueKind, device: Owner | None = None, label: str = "") -> None:
        self.kind = kind
        self.label = label
        self.commands: list[Command] = []
        self.spans: tuple[tuple[str, Stamp, Stamp], ...] = ()
        """(name, begin, end) of each `span`."""
        self.epoch = -1 if device is None else device.close_epoch
        """`Device.close_epoch` at the last check that all recorded objects are open; -1: check again."""

    def wait(self, point: Point | Signal, value: Word | None = None) -> Self:
        """Wait until a point is reached, or a signal is >= `value`, before all later commands.

        Raises `UsageError` for a signal without `value`, a point with `value`, a value that its 64-bit slot
        cannot hold, and a Param as the value of a timeline; `UsageTypeError` for other classes.
        """
        if value is None:
            self.commands.append(Wait(*_of_point(point)))
        else:
            self.commands.append(Wait(*_of_signal(point, value)))
        return self

    def wait_memory(self, src: Pointer, value: Word) -> Self:
        """Wait until the u64 at the start of a buffer is >= `value`; see `WaitMemory`.

        Raises `UsageError` for an address that is no multiple of 8, fewer than 8 bytes, memory that is not
        coherent and a value beyond 31 bits; `UsageTypeError` for other classes.
        """
        command = WaitMemory(src, value)
        self.add(command)
        command.va  # noqa: B018 - it checks the memory
        return self

    def signal(self, point: Point | Signal, value: Word | None = None) -> Self:
        """Set the signal of a point, or store `value` to a signal, when all earlier commands are complete.

        Every waiter sees their effects. Raises as `wait`.
        """
        if value is None:
            self.commands.append(SetSignal(*_of_point(point)))
        else:
            self.commands.append(SetSignal(*_of_signal(point, value)))
        return self

    def timestamp(self, stamp: Stamp) -> Self:
        """Write the device time to a record when all earlier commands are complete.

        Raises `UsageTypeError` for anything but a `Stamp`.
        """
        if not isinstance(stamp, Stamp):
            raise UsageTypeError(f"timestamp: wanted a Stamp, seen {stamp!r}\nhint: Device.stamp makes one")
        self.commands.append(Timestamp(stamp))
        return self

    def barrier(self, scope: Scope = Scope.SYSTEM) -> Self:
        """Make the effects of all earlier commands visible to all later ones.

        Kernels without a barrier between them may overlap and finish in any order. `scope` says who sees the
        effects: `Scope.DEVICE` suffices for commands of this device, and leaves its caches as they are.
        `Scope.SYSTEM` is for a host or another device that reads memory without a wait; a wait for a point or
        a `signal` makes all effects visible in any case. Raises `UsageTypeError` for another class.
        """
        if scope.__class__ is not Scope:
            raise UsageTypeError(f"barrier: wanted one of {', '.join(map(str, Scope))}, seen {scope!r}")
        self.commands.append(Barrier(scope))
        return self

    def exec(
        self,
        program: Program,
        args: KernArgs,
        *,
        groups: tuple[Word, Word, Word],
        threads: Dim3,
        cluster: Dim3 | None = None,
        cooperative: bool = False,
    ) -> Self:
        """Launch a kernel over `groups` workgroups of `threads` threads, both (x, y, z).

        `cluster` workgroups along x, y and z form a cluster: they run at the same time and reach each other's
        shared memory. None: the clusters that the image requires, checked at submission, else (1, 1, 1).

        `cooperative` says that workgroups wait for each other, so all must run at the same time: the grid is
        checked (`Program.check_cooperative`), and the caller keeps other work off the device.

        `args` comes from `program.args`. Raises `UsageError` for arguments of another program, a count below
        1, `groups`, `threads` or `cluster` that are not three numbers, a grid that is no multiple of
        `cluster`, a cooperative grid that does not fit, and a queue without kernels; `UsageTypeError` for
        another class of program or arguments, and for a count that is no integer; `UnsupportedError` for
        clusters on a device without. Other limits of the device are checked only by validation. Example:
        docs/kernel-by-hand.md.
        """
        try:
            if args.program is not program:
                raise UsageError(f"the arguments were made for {args.program.name}, not for {program.name}")
        except AttributeError:
            raise UsageTypeError(
                f"exec: wanted a Program and its arguments, seen {program!r} and {args!r}\n"
                "hint: queue.record().exec(program, program.args(...), groups=..., threads=...)"
            ) from None
        if self.kind not in _EXEC_KINDS:
            raise _wrong_kind(f"kernel {program.name}", self.kind, _EXEC_KINDS)
        grid = program.grid
        if groups is not grid[0] or threads is not grid[1]:
            program.grid = grid = _grid(program, groups, threads)
        if args.epoch != self.epoch:
            self.epoch = -1
        command: Exec = _new(Exec)  # hot: `Exec(...)` takes twice as long
        command.program, command.args, command.cluster = program, args, None
        command.groups, command.threads = grid
        if cluster is not None:
            self._clustered(command, cluster)
        if cooperative:
            program.check_cooperative(command.groups, command.threads, command.cluster)
        self.commands.append(command)
        return self

    @staticmethod
    def _clustered(command: Exec, cluster: Dim3) -> None:
        """Set the cluster of a launch."""
        program = command.program
        try:
            x, y, z = cluster
        except (TypeError, ValueError):
            raise _not_three(program, command.groups, command.threads, cluster) from None
        x, y, z = _counts(program, "cluster", (x, y, z), open_=False)
        if (x, y, z) != (1, 1, 1) or "max_cluster" in program.device.info.limits:
            command.cluster = x, y, z  # else nothing: a device without clusters has no other launches
        command.check_open()

    def copy(self, dst: Pointer, src: Pointer, size: Word | None = None) -> Self:
        """Copy `size` bytes from the start of `src` to the start of `dst`; None: the size of the smaller one.

        A size that is open while recording must not be 0 when it is given.

        Raises `UsageError` for bytes outside a buffer, and for a Param without `size`; `UsageTypeError` for
        other classes. Validation also refuses ranges that overlap.
        """
        if size is None:
            size = min(_whole("copy to", dst), _whole("copy from", src))
        return self.add(Copy(dst, src, size))

    def fill(self, dst: Pointer, value: Word = 0, size: Word | None = None) -> Self:
        """Fill `size` bytes with the u32 `value`; None: the whole buffer. An open size as for `copy`.

        Raises `UsageError` for an address or size that is no multiple of 4, for bytes outside the buffer, and
        for a value beyond 32 bits; `UsageTypeError` for other classes.
        """
        if isinstance(value, int) and not 0 <= value <= _U32:
            raise UsageError(f"fill: wanted 0 to {_U32:#x}, seen {value:#x}")
        return self.add(Fill(dst, value, _whole("fill", dst) if size is None else size))

    def write(self, dst: Pointer, value: Word, *, bits: Literal[32, 64] = 32) -> Self:
        """Store one number of 32 or 64 bits at the start of a buffer, a negative one in two's complement.

        Raises `UsageError` for an address that is not naturally aligned, a buffer that is too small, another
        number of bits, and a number that does not fit them; `UsageTypeError` for other classes.
        """
        command = Write(dst, value, bits)
        if isinstance(value, int) and -(1 << 8 * command.nbytes - 1) <= value < 0:
            command.value = value + (1 << bits)
        return self.add(command)

    def add(self, command: Command) -> Self:
        """Append any command, checked against its declaration.

        Raises `UsageError` for a command of another kind of queue, a closed buffer, bytes outside a buffer, a
        misaligned address or size, and a Param in a field that cannot be open; `UsageTypeError` for an object
        that is no command, no memory or no integer; `UnsupportedError` for an Exec with a cluster on a device
        without.
        """
        try:
            kinds = command.kinds
        except AttributeError:
            raise UsageTypeError(f"wanted a command, such as hcq.Copy, seen {command!r}") from None
        if self.kind not in kinds:
            raise _wrong_kind(command.title(), self.kind, kinds)
        ranges, never_open = declared(command.__class__)
        for name in command.numbers:
            number = getattr(command, name)
            if number.__class__ is not int and not isinstance(number, (int, Param, Expr)):
                raise _no_integer(f"{command.title()}, {name}", number)
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
        """Measure the commands recorded inside the `with` block; `Device.spans` returns the span."""
        begin, end = Stamp(), Stamp()
        self.commands.append(Timestamp(begin))
        yield self
        self.commands.append(Timestamp(end))
        self.spans += ((name, begin, end),)

    def _check(self, pointer: Pointer, size: Word | None, align: int, verb: str) -> None:
        """Raise `UsageError` for memory that a command cannot access."""
        if align != 1 and isinstance(size, int) and size % align:
            raise UsageError(f"{verb} {pointer!r}: {size} bytes are no multiple of {align}")
        if isinstance(pointer, (Param, Expr)):
            if isinstance(pointer, Expr) and (pointer.shift or pointer.float_bits):
                raise UsageError(f"{verb}: wanted a Param or param + number, seen {pointer!r}")
            return
        if not isinstance(pointer, Buffer):
            raise _no_memory(verb, pointer)
        pointer.live()
        if pointer.device.close_epoch != self.epoch:
            self.epoch = -1
        if isinstance(size, int) and not 0 <= size <= pointer.size:
            raise UsageError(f"{verb} {pointer!r}: it has {pointer.size} bytes, {size} were asked for")
        if align != 1 and pointer.va % align:
            wanted = f"wanted an address that is a multiple of {align}"
            raise UsageError(f"{verb} {pointer!r}: {wanted}, {pointer.va:#x} is none")

    def verify(self, device: Owner) -> None:
        """Raise `UsageError` when a recorded object is closed, or cannot be used by `device`."""
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
    if isinstance(point, Signal):
        raise UsageError(f"{point!r} is a Signal, which has no value of its own; give `value=`")
    if not isinstance(point, Point):
        raise UsageTypeError(f"wanted a Point, or a Signal and a value, seen {point!r}")
    return point.signal, _slot_value(point.signal, point.value)


def _of_signal(signal: Point | Signal, value: Word) -> tuple[Signal, Word]:
    if isinstance(signal, Point):
        raise UsageError(f"{signal!r} is a Point, which already carries its value; drop `value=`")
    if not isinstance(signal, Signal):
        raise UsageTypeError(f"wanted a Signal and a value, or a Point, seen {signal!r}")
    if isinstance(value, int):
        return signal, _slot_value(signal, value)
    if not isinstance(value, (Param, Expr)):
        raise _no_integer(f"the value of {signal!r}", value)
    if signal.base:
        raise UsageError(f"{signal!r} belongs to a timeline: its values cannot be parameters")
    return signal, value


def _slot_value(signal: Signal, value: int) -> int:
    """Return what the slot of a signal has at `value`. Raises `UsageError` beyond its 64 bits."""
    number = value - signal.base
    if not 0 <= number < 1 << 64:
        raise UsageError(f"{signal!r}: wanted a value of 64 bits from {signal.base} on, seen {value}")
    return number


def _grid(program: Program, groups: Any, threads: Any) -> tuple[tuple[Word, Word, Word], Dim3]:
    """Return (groups, threads) of a launch as tuples of counts: the objects given, if they are that."""
    try:
        gx, gy, gz = groups
        tx, ty, tz = threads
    except (TypeError, ValueError):
        raise _not_three(program, groups, threads) from None
    if not (gx.__class__ is gy.__class__ is gz.__class__ is int and gx > 0 and gy > 0 and gz > 0):
        groups = _counts(program, "groups", (gx, gy, gz))
    if not (tx.__class__ is ty.__class__ is tz.__class__ is int and tx > 0 and ty > 0 and tz > 0):
        threads = _counts(program, "threads", (tx, ty, tz), open_=False)
    groups = groups if groups.__class__ is tuple else (gx, gy, gz)
    return groups, threads if threads.__class__ is tuple else (tx, ty, tz)


def _counts(program: Program, what: str, counts: tuple[Any, Any, Any], *, open_: bool = True) -> Any:
    """Return three counts as ints, or as the Param or Expr that gives them.

    Raises `UsageError` for a count below 1, `UsageTypeError` for one of another class.
    """
    out: list[Word] = []
    for one in counts:
        if open_ and isinstance(one, (Param, Expr)):
            out.append(one)
            continue
        try:
            number = operator.index(one)
        except TypeError:
            raise _no_integer(f"kernel {program.name}, {what}={counts!r}", one, open_=open_) from None
        if number < 1:
            raise UsageError(f"kernel {program.name}: {counts} {what}, wanted at least 1 along each axis")
        out.append(number)
    return tuple(out)


def _no_integer(what: str, seen: object, *, open_: bool = True) -> UsageTypeError:
    return UsageTypeError(f"{what}: wanted an int{', a Param or an Expr' * open_}, seen {seen!r}")


def _no_memory(verb: str, seen: object) -> UsageTypeError:
    hint = "\nhint: Device.alloc makes a buffer" if isinstance(seen, int) else ""
    return UsageTypeError(f"{verb}: wanted a Buffer, a Param or an Expr, seen {seen!r}{hint}")


def _not_three(program: Program, groups: Any, threads: Any, cluster: Any = None) -> UsageError:
    """Return the error for groups, threads or a cluster that are not three numbers."""
    what, value = "groups", groups
    with suppress(TypeError):
        if len(tuple(groups)) == 3:
            what, value = ("threads", threads) if cluster is None else ("cluster", cluster)
    return UsageError(
        f"kernel {program.name}: {what}={value!r}, wanted three, along x, y and z\n"
        f"hint: {what}=({value if isinstance(value, int) else 4}, 1, 1)"
    )


def _wrong_kind(what: str, kind: QueueKind, kinds: tuple[QueueKind, ...]) -> UsageError:
    wanted = " or ".join(one.value for one in kinds)
    return UsageError(f"{what} recorded for a {kind.value} queue; record it for a {wanted} queue")


def _whole(verb: str, pointer: Pointer) -> int:
    if isinstance(pointer, Buffer):
        return pointer.size
    if isinstance(pointer, (Param, Expr)):
        raise UsageError(f"{pointer} has no size of its own; give `size=` in bytes")
    raise _no_memory(verb, pointer)
