"""The encoder: neutral commands to packets of the `cpu` device.

Not here: the packets' fields (`layouts`), their execution (`processor`), writing them to a ring (`ring`).
Next: `processor`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from drivers.cpu import layouts
from drivers.cpu.layouts import PACKET_WORDS
from hcq.commands import (
    Barrier,
    Command,
    CommandTable,
    Copy,
    Exec,
    Fill,
    Indirect,
    SetSignal,
    Timestamp,
    Wait,
    WaitMemory,
    Write,
    address,
)
from hcq.driver import QueueKind
from hcq.errors import UsageError
from hcq.layout import BitStruct
from hcq.params import Word
from hcq.pushbuffer import PushBuffer

ONE_THREAD = (1, 1, 1)
_ARGS = layouts.Exec.sites("args")[0].word - PACKET_WORDS
"""A word of the last packet of a stream, a launch, counted from its end."""


def _emit(out: PushBuffer, layout: type[BitStruct], **words: Word) -> None:
    """Append a packet; a word that is not a number becomes 0, with a patch for the submission."""
    numbers = {name: word if isinstance(word, int) else 0 for name, word in words.items()}
    index = len(out.words)
    out.words.extend(layout.pack(**numbers))
    for name, word in words.items():
        if not isinstance(word, int):
            out.patch_field(index, layout, name, word)


class CpuEncoder:
    """The encoder for one kind of queue; see `hcq.driver.Encoder`. Packets have the order of the commands.

    Raises `UsageError` for a kernel on a copy queue, a workgroup of more than one thread, a number that does
    not fit its field, and an Indirect of parts of packets.
    """

    def __init__(self, kind: QueueKind, foreign: Callable[[object], bool]) -> None:
        self._foreign = foreign
        """Returns whether anything but a cpu device or the host may set the signals of a device."""
        self.table = CommandTable()
        self.table |= {
            Wait: self._wait,
            WaitMemory: self._wait,
            SetSignal: _set_signal,
            Timestamp: _timestamp,
            Barrier: _barrier,
            Exec: _exec if kind is QueueKind.COMPUTE else _refuse_exec,
            Copy: _copy,
            Fill: _fill,
            Write: _write,
            Indirect: _indirect,
        }

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands` to `out`; see `hcq.driver.Encoder`."""
        table = self.table
        if out.words.__class__ is not array:
            out.words = array("Q", out.words)
        for command in commands:
            table[command.__class__](command, out)

    def _wait(self, command: Wait | WaitMemory, out: PushBuffer) -> None:
        signal, value = command.signal, command.value
        foreign = int(signal.file >= 0 or self._foreign(signal.device))
        if value.__class__ is int:
            out.words.extend(layouts.Wait.pack(signal=signal.va, value=value, foreign=foreign))
        else:
            _emit(out, layouts.Wait, signal=signal.va, value=value, foreign=foreign)


def _set_signal(command: SetSignal, out: PushBuffer) -> None:
    _emit(out, layouts.SetSignal, signal=command.signal.va, value=command.value)


def _timestamp(command: Timestamp, out: PushBuffer) -> None:
    out.words.extend(layouts.Timestamp.pack(at=command.stamp.ticks_va))


def _barrier(_command: Barrier, out: PushBuffer) -> None:
    out.words.extend(layouts.Barrier.pack())


def _exec(command: Exec, out: PushBuffer) -> None:
    code: Any = command.program.loaded  # a CpuProgram: the queue's device loaded it
    args = command.args
    groups, threads, packet = code.ready
    if command.groups is not groups or command.threads is not threads:
        threads, packet = command.threads, None
        x, y, z = groups = command.groups
        if threads != ONE_THREAD:
            seen = f"a workgroup here has one thread, {threads} were given"
            raise UsageError(f"kernel {code.image.name}: {seen}")
        entry, group_ns = code.entry, code.image.group_ns
        if x.__class__ is y.__class__ is z.__class__ is int:
            packet = array("Q", layouts.Exec.pack(function=entry, args=0, x=x, y=y, z=z, group_ns=group_ns))
            if groups.__class__ is tuple:  # a list may change
                code.ready = groups, threads, packet
    va = out.place(args.words)
    if packet:
        words = out.words
        words.extend(packet)
        words[_ARGS] = va
    else:
        _emit(out, layouts.Exec, function=entry, args=va, x=x, y=y, z=z, group_ns=group_ns)
    for offset, bits, expr in args.patches:
        out.patch_memory(va + offset, expr, width=bits)


def _refuse_exec(command: Exec, _out: PushBuffer) -> None:
    raise UsageError(f"kernel {command.program.image.name}: a copy queue runs no kernels")


def _copy(command: Copy, out: PushBuffer) -> None:
    _emit(out, layouts.Copy, dst=address(command.dst), src=address(command.src), size=command.size)


def _fill(command: Fill, out: PushBuffer) -> None:
    _emit(out, layouts.Fill, dst=address(command.dst), pattern=command.value, size=command.size)


def _write(command: Write, out: PushBuffer) -> None:
    value = command.value
    number = value if isinstance(value, int) else 0
    _emit(out, layouts.Write, dst=address(command.dst), value=number, width=command.bits // 8)
    if not isinstance(value, int):  # of a u32 only its own bits, so that a larger number is refused
        index = len(out.words) - PACKET_WORDS + layouts.Write.sites("value")[0].word
        out.patch_word(index, value, width=command.bits)


def _indirect(command: Indirect, out: PushBuffer) -> None:
    if command.words % PACKET_WORDS:
        raise UsageError(f"{command.words} words are not a whole number of packets of {PACKET_WORDS} words")
    out.words.extend(layouts.Indirect.pack(packets=command.buffer.va, count=command.words // PACKET_WORDS))
