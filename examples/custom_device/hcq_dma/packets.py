"""Packets, of four u64 (an op and its operands), and the encoder that translates commands to them.

Not here: the execution of packets (`engine`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from hcq import UnsupportedError
from hcq.commands import (
    Barrier,
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.commands import Command
    from hcq.params import Word
    from hcq.pushbuffer import PushBuffer

PACKET_WORDS = 4


class Op(enum.IntEnum):
    """The first word of a packet. Addresses are virtual, sizes are bytes."""

    COPY = 1  # target, source, size
    FILL = 2  # target, u32 to repeat, size
    WRITE32 = 3  # target, number
    WRITE64 = 4  # target, number
    WAIT = 5  # slot, least value
    SIGNAL = 6  # slot, value
    TIMESTAMP = 7  # address that receives the nanoseconds
    INDIRECT = 8  # address of words, their count


class DmaEncoder:
    """The encoder of both queues. A Barrier needs no packet, as packets run one after another."""

    def __init__(self) -> None:
        self.table = CommandTable()  # empty: the commands are matched below

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the packets of `commands`. Raises `UnsupportedError` for a kernel."""
        for command in commands:
            match command:
                case Copy(dst, src, size):
                    _packet(out, Op.COPY, address(dst), address(src), size)
                case Fill(dst, value, size):
                    _packet(out, Op.FILL, address(dst), value, size)
                case Write(dst, value, bits):
                    _packet(out, Op.WRITE32 if bits == 32 else Op.WRITE64, address(dst), value)
                case Wait(signal, value):
                    _packet(out, Op.WAIT, signal.va, value)
                case WaitMemory(src, value):
                    _packet(out, Op.WAIT, address(src), value)
                case SetSignal(signal, value):
                    _packet(out, Op.SIGNAL, signal.va, value)
                case Timestamp(stamp):
                    _packet(out, Op.TIMESTAMP, stamp.ticks_va)
                case Indirect(buffer, words):
                    _packet(out, Op.INDIRECT, buffer.va, words)
                case Barrier():
                    pass
                case Exec(program):
                    raise UnsupportedError(f"kernel {program.name}: dma-emu runs no kernels")
                case _:
                    raise UnsupportedError(f"dma-emu has no packet for {type(command).__name__}")


_NARROW = {(Op.FILL, 1), (Op.WRITE32, 1)}
"""Operands of 32 bits, as (op, position)."""


def _packet(out: PushBuffer, op: Op, *operands: Word) -> None:
    """Append a packet; an operand that is open (a Param or Expr) is left 0 and becomes a patch."""
    at = len(out.words)
    words = [word if isinstance(word, int) else 0 for word in operands]
    out.words += [op, *words, *[0] * (PACKET_WORDS - 1 - len(words))]
    for i, word in enumerate(operands):
        if not isinstance(word, int):
            out.patch_word(at + 1 + i, word, width=32 if (op, i) in _NARROW else 64)
