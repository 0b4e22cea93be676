"""The recorder: a validation layer that also writes every submission of its device to a capture.

It sees what the validation layer sees: submissions before and after they are sent, buffers, faults. Memory
that the host can access is written to the capture when a submission may read it and the host may have changed
it: after `Buffer.host` or `Buffer.borrow`. What the host reads after work of the device is recorded as a
digest, so that a replay can compare it.

Host writes to memory that work in flight reads are recorded only where the work waits for a signal that the
host sets afterwards.

Not here: checks (`hcq.validate`), the format (`log`).
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from hcq.capture.log import CaptureLog, digest, encode, pack
from hcq.commands import Barrier, Command, Exec, Scope
from hcq.errors import FaultReport
from hcq.hardware import BufferSpec
from hcq.memory import CLOSED, Buffer, Owner
from hcq.params import Expr, Param, Value, as_expr
from hcq.process import OpenQueue
from hcq.program import ArgKind, KernArgs, Program
from hcq.signal import ANY_VALUE, Point, Signal, Stamp
from hcq.validate.validator import Validator


class _Memory:
    """What the capture knows of the memory of one buffer that is no view."""

    __slots__ = ("buffer", "changed", "digest", "id", "writer")

    def __init__(self, number: int, buffer: Buffer) -> None:
        self.id = number
        self.buffer = weakref.ref(buffer)
        self.changed = False
        """Whether the host had access since the contents were recorded."""
        self.digest = ""
        """Of the contents recorded last; empty: none."""
        self.writer: Point | None = None
        """The newest submission that may write it."""


_BARRIERS = {scope: encode({"c": "Barrier", "scope": scope.value}) for scope in Scope}
_Access = tuple[_Memory, Buffer, str]
"""Memory that a command accesses, the buffer or view of it, and "r", "w", "rw" or "x"."""


class Recorder(Validator):
    """The recorder of one device; checks and order are those of `Validator`."""

    def __init__(self, log: CaptureLog, name: str, *, check: bool, seed: int) -> None:
        super().__init__(check=check, seed=seed)
        self._log = log
        self.name = name
        """The name that opens the device."""
        self._pending: dict[OpenQueue, tuple[int, list[_Memory]]] = {}
        """The submission checked last on each queue: its number, and the memory that it may write."""
        self._awaited: list[_Memory] = []
        """Memory that queues wait for (`WaitMemory`), which the host may write meanwhile."""

    def check_submission(
        self, queue: OpenQueue, label: str, todo: list[Command], values: Mapping[Param, Value] | None
    ) -> list[Command]:
        """As `Validator.check_submission`; the submission is in the capture when this returns."""
        todo = super().check_submission(queue, label, todo, values)
        with self._log.lock:
            self._submit(queue, label, todo, values or {})
        return todo

    def _submit(
        self, queue: OpenQueue, label: str, todo: Sequence[Command], values: Mapping[Param, Value]
    ) -> None:
        """Write a submission, and before it the memory that the host has changed."""
        accesses: list[_Access] = []
        commands = [self._command(command, values, accesses) for command in todo]
        writes: list[_Memory] = []
        for memory, buffer, access in accesses:
            if access == "x" and memory not in self._awaited:
                self._awaited.append(memory)
            if memory.changed and access != "w":
                self._record_changes(buffer.root or buffer, memory, held=False)
            if "w" in access:
                writes.append(memory)
        self._log.submissions += 1
        number = self._log.submissions
        self._log.write(
            "submit",
            n=number,
            device=self._device_of(queue.device),
            queue=queue.label,
            label=label,
            commands=commands,
        )
        self._pending[queue] = (number, writes)

    def sent(self, queue: OpenQueue, point: Point, words: Sequence[int] = (), bits: int = 32) -> None:
        """As `Validator.sent`; a submission that was not checked has no commands."""
        super().sent(queue, point, words, bits)
        with self._log.lock:
            if queue not in self._pending:
                self._submit(queue, "", (), {})
            number, writes = self._pending.pop(queue)
            for memory in writes:
                memory.writer = point
            data = array("I" if bits == 32 else "Q", words).tobytes()
            slot = point.value - point.signal.base
            self._log.write(
                "sent", n=number, signal=self._signal(point.signal), value=slot, words=pack(data), bits=bits
            )

    def not_sent(self, queue: OpenQueue) -> None:
        """As `Validator.not_sent`."""
        super().not_sent(queue)
        with self._log.lock:
            if queue in self._pending:
                self._log.write("dropped", n=self._pending.pop(queue)[0])

    def allocated(self, buffer: Buffer) -> None:
        """As `Validator.allocated`."""
        super().allocated(buffer)
        with self._log.lock:
            self._memory_of(buffer)

    def viewed(self, buffer: Buffer) -> None:
        """Record what the host can read if work of the device may have written it, and note its access."""
        root = buffer.root or buffer
        with self._log.lock:
            memory = self._memory_of(root)
            if memory.writer is not None and memory.writer.passed():
                memory.writer = None
                memory.digest = digest(_contents(root))
                self._record_awaited()
                self._log.write("seen", buffer=memory.id, digest=memory.digest, done=self._done())
            memory.changed = True

    def host_observed(self, signal: Signal, value: int) -> None:
        """As `Validator.host_observed`; the host may have written what the work waited for."""
        super().host_observed(signal, value)
        if self._awaited:
            with self._log.lock:
                self._record_awaited()

    def _record_awaited(self) -> None:
        for memory in self._awaited:
            buffer = memory.buffer()
            if buffer is not None and buffer.va is not CLOSED:
                self._record_changes(buffer, memory, held=True)

    def _done(self) -> list[tuple[int, int]]:
        """Return (number, value of its slot) of each signal of a queue."""
        signals = [(one, n) for one, n in self._log.ids.items() if isinstance(one, Signal)]
        return [(n, one.value - one.base) for one, n in signals if one.issued != ANY_VALUE]

    def host_sets(self, signal: Signal, value: int) -> None:
        """Record the memory that the host may have changed, then the value that it stores next."""
        with self._log.lock:
            for memory in list(self._log.memories.values()):
                buffer = memory.buffer()
                if memory.changed and buffer is not None and buffer.va is not CLOSED:
                    self._record_changes(buffer, memory, held=True)
            self._log.write("set", signal=self._signal(signal), value=value - signal.base)

    def faulted(self, device: Owner, report: FaultReport) -> None:
        """Record a fault of the device."""
        with self._log.lock:
            self._log.write("fault", device=self._device_of(device), text=str(report))

    def drop_in_flight(self, queues: Sequence[OpenQueue]) -> None:
        """As `Validator.drop_in_flight`."""
        super().drop_in_flight(queues)
        with self._log.lock:
            for queue in queues:
                if queue in self._pending:
                    self._log.write("dropped", n=self._pending.pop(queue)[0])
            for device in {queue.device for queue in queues}:
                self._log.write("end", device=self._device_of(device))

    def _device_of(self, device: Owner) -> int:
        """Return the number of a device; one that is new to the capture is written to it."""
        number = self._log.ids.get(device)
        if number is None:
            assert isinstance(device.watch, Recorder), "all devices of the process are captured"
            number = self._log.ids[device] = self._log.number()
            self._log.write("device", id=number, name=device.watch.name, arch=device.info.arch)
        return number

    def _memory_of(self, buffer: Buffer) -> _Memory:
        """Return what is known of a buffer's memory; one that is new to the capture is written to it."""
        root = buffer.root or buffer
        memory = self._log.memories.get(id(root))
        if memory is None:
            memory = self._log.memories[id(root)] = _Memory(self._log.number(), root)
            self._log.write(
                "buffer", id=memory.id, device=self._device_of(root.device), va=root.address, size=root.size,
                spec=_spec(root.spec), label=root.label,
            )  # fmt: skip
            weakref.finalize(root, self._drop, id(root)).atexit = False
        return memory

    def _drop(self, key: int) -> None:
        with self._log.lock:
            self._log.write("closed", buffer=self._log.memories.pop(key).id)

    def _record_changes(self, buffer: Buffer, memory: _Memory, *, held: bool) -> None:
        """Write a buffer's contents if the host may have changed them and no work in flight writes them."""
        if not memory.changed or (memory.writer is not None and not memory.writer.passed()):
            return
        contents = _contents(buffer)
        seen = digest(contents)
        if seen != memory.digest:
            memory.digest = seen
            self._log.write("memory", buffer=memory.id, bytes=pack(contents), held=held, done=self._done())
        memory.changed = buffer.in_view

    def _signal(self, signal: Signal) -> int:
        number = self._log.ids.get(signal)
        if number is None:
            number = self._log.ids[signal] = self._log.number()
            self._log.write(
                "signal", id=number, value=signal.value, base=signal.base, host_set=signal.host_set,
                label=signal.label,
            )  # fmt: skip
        return number

    def _program(self, program: Program) -> int:
        number = self._log.ids.get(program)
        if number is None:
            number = self._log.ids[program] = self._log.number()
            image = asdict(program.image)
            image |= {"code": pack(program.image.code)}
            image["args"] = [part | {"kind": part["kind"].name} for part in image["args"]]
            self._log.write("program", id=number, device=self._device_of(program.device), image=image)
        return number

    def _command(self, command: Command, values: Mapping[Param, Value], accesses: list[_Access]) -> str:
        """Return a command as text of the file, and append what it accesses."""
        if command.__class__ is Exec:
            return self._launch(command, values, accesses)
        if command.__class__ is Barrier:
            return _BARRIERS[command.scope]  # hot: half of a replay's commands
        found: dict[str, Any] = {"c": type(command).__name__}
        names: tuple[str, ...] = type(command).__slots__
        for name in names:
            value = getattr(command, name)
            if isinstance(value, Signal):
                value = self._signal(value)
            elif isinstance(value, Scope):
                value = value.value
            elif isinstance(value, Stamp):
                value = None
            elif isinstance(value, (Param, Expr)) and not isinstance(values[as_expr(value).param], Buffer):
                value = as_expr(value).evaluate(values[as_expr(value).param])  # type: ignore[arg-type]  # no Buffer
            found[name] = value
        for part in command.memory:
            found[part.field] = self._pointer(found[part.field], values, part.access, accesses)
        return encode(found)

    def _launch(self, command: Exec, values: Mapping[Param, Value], accesses: list[_Access]) -> str:
        """Return an Exec as text of the file, and append what it accesses.

        Numbers among the arguments are the bits of their slots. An argument block keeps the text of a launch
        in which nothing is open, for replays.
        """
        args, sizes = command.args, (command.groups, command.threads, command.cluster)
        try:
            kept, text, accessed = args.captured
        except AttributeError:  # the first capture
            kept = None
        if kept == sizes:  # hot: half of a replay's commands
            accesses += accessed
            return text
        accessed = list[_Access]()
        given: list[Any] = [
            self._pointer(pointer, values, slot.access, accessed) for slot, pointer in args.pointers()
        ]
        if len(given) < len(args.program.image.args):
            block = _with_numbers(args, values)
            for at, slot in enumerate(args.program.image.args):
                if slot.kind is not ArgKind.POINTER:
                    number = int.from_bytes(block[slot.offset : slot.offset + slot.size], "little")
                    given.insert(at, number)
        groups = [
            size if isinstance(size, int) else as_expr(size).evaluate(values[as_expr(size).param])  # type: ignore[arg-type]  # a number
            for size in command.groups
        ]
        program = self._program(command.program)
        found = {"c": "Exec", "program": program, "args": given, "groups": groups}
        text = encode(found | {"threads": command.threads, "cluster": command.cluster})
        if not args.patches and tuple(groups) == command.groups:
            args.captured = sizes, text, accessed
        accesses += accessed
        return text

    def _pointer(
        self,
        pointer: Buffer | Param | Expr,
        values: Mapping[Param, Value],
        access: str,
        accesses: list[_Access],
    ) -> list[int] | dict[str, object]:
        """Return a pointer as JSON, and append it to `accesses`."""
        offset = 0
        if isinstance(pointer, (Param, Expr)):
            expr = as_expr(pointer)
            offset, given = expr.add, values[expr.param]
            if not isinstance(given, Buffer):
                return {"va": given + offset}
            pointer = given
        memory = self._memory_of(pointer)
        accesses.append((memory, pointer, access))
        return [memory.id, pointer.offset + offset]


@cache
def _spec(spec: BufferSpec) -> dict[str, object]:
    """Return a spec as JSON."""
    return asdict(spec) | {"place": spec.place.name}


def _with_numbers(args: KernArgs, values: Mapping[Param, Value]) -> bytearray:
    """Return the argument block with its open numbers."""
    words: array[int] = args.words
    block = bytearray(words.tobytes())
    for offset, width, expr in args.patches:
        given = values[expr.param]
        if not isinstance(given, Buffer):
            number = expr.evaluate(given) & ((1 << width) - 1)
            block[offset : offset + width // 8] = number.to_bytes(width // 8, "little")
    return block


def _contents(buffer: Buffer) -> memoryview:
    """Return the bytes of a buffer that the host can access, without an access of the host."""
    allocation = buffer.chunk.allocation
    assert allocation.host is not None, "the host has had access"
    start = buffer.address - allocation.va
    return allocation.host[start : start + buffer.size]
