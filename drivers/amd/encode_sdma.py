"""The SDMA encoder: neutral commands to SDMA words, for copy queues.

An engine runs its packets in order. Fences and compares have 32 bits; values of timelines are smaller. Each
call of `encode` appends a multiple of 8 words, padded with NOPs, because an indirect packet must end at a
multiple of 8 words of the ring.

Not here: PM4 (`encode`), rings (`ring`), the packets' fields (`drivers.amd.layouts.sdma`). Next: `ring`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from drivers.amd.context import QueueContext
from drivers.amd.encode import add, comparable, constant, number_words, patch_number, pieces
from drivers.amd.layouts import sdma
from drivers.shared.uploader import CopyWords
from hcq import commands as neutral
from hcq.commands import Command
from hcq.errors import UnsupportedError, UsageError
from hcq.layout import BitStruct
from hcq.pushbuffer import PushBuffer

Words = tuple[int, ...]
_LOW: Final = 0xFFFF_FFFF
_V5: Final = 5
_V6: Final = 6
_PADDING: Final = tuple((sdma.NOP_WORD,) * count for count in range(sdma.ALIGN_WORDS))
COPY_BYTES: Final = 1
COPY_SOURCE: Final = 3
COPY_TARGET: Final = 5
"""Indices, in the words of a copy, of the number of bytes less one and of the addresses."""
FILL_TARGET: Final = 1
FILL_VALUE: Final = 3
FILL_BYTES: Final = 4
"""Indices, in the words of a fill, of the address, the value and the size, which is 4 * (dwords - 1)."""
FENCE_ADDRESS: Final = 1
FENCE_VALUE: Final = 3
POLL_VALUE: Final = 3
"""Indices, in the words of a fence and of a poll, of the address and the value."""
_LATE: Final = "the driver's copy queue ran no packet"
_LATE_HINT: Final = (
    "the doorbell did not reach the GPU, or its scheduler (MES or HWS) does not run the queue: `dmesg | "
    "grep -E 'amdgpu|kfd'`; `hcq bringup --device amd` shows the step"
)
_TIME_BYTES: Final = 8
_FENCE_AT: Final = 16
"""Offset in bytes, in the aligned record of a timestamp, of the slot of the fence after it."""


class SdmaEncoder:
    """The encoder for one copy queue; see `hcq.driver.Encoder`. `Exec` raises `UnsupportedError`."""

    def __init__(self, context: QueueContext) -> None:
        version = context.target.sdma
        layouts = sdma.packets(version)
        self._copies: type[BitStruct] = layouts[sdma.Op.COPY]
        self._fills: type[BitStruct] = layouts[sdma.Op.CONST_FILL]
        choices = context.choices
        mtype = {"MTYPE": sdma.FENCE_MTYPE_UC} if version[0] >= _V5 and choices.fence_mtype else {}
        self._fence_head = layouts[sdma.Op.FENCE].pack(ADDRESS_LO=0, ADDRESS_HI=0, DATA=0, **mtype)[0]
        small = choices.copy_pieces == "small"
        self._copy_bytes = sdma.SMALL_PIECE if small or version[0] < _V5 else sdma.LARGE_PIECE
        self._fill_bytes = sdma.SMALL_PIECE if small or version[0] < _V6 else sdma.LARGE_PIECE
        self._by_fence = choices.copy_order == "fence"
        self._direct_stamps = choices.copy_stamp == "direct"
        event = context.event
        self._wake: Words = ()
        if event is not None:
            self._wake = self.fence(event.slot_va, event.number) + sdma.Trap.pack(INT_CONTEXT=event.number)
        self.table = neutral.CommandTable()
        self.table |= {
            neutral.Wait: self._wait,
            neutral.WaitMemory: self._wait,
            neutral.SetSignal: self._signal,
            neutral.Timestamp: self._timestamp,
            neutral.Barrier: self._barrier,
            neutral.Exec: self._refuse,
            neutral.Copy: self._copy,
            neutral.Fill: self._fill,
            neutral.Write: self._write,
            neutral.Indirect: self._indirect,
        }

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands`; see `hcq.driver.Encoder`."""
        table = self.table
        for command in commands:
            table[command.__class__](command, out)
        out.words += _PADDING[-len(out.words) % sdma.ALIGN_WORDS]

    def fence(self, va: int, value: int) -> Words:
        """Return words that store a u32 when all earlier packets are done."""
        return (self._fence_head, va & _LOW, va >> 32, value)

    @staticmethod
    def poll(va: int, value: int, function: sdma.Function = sdma.Function.GE) -> Words:
        """Return words that wait until the u32 at `va` compares with `value` by `function`."""
        return sdma.PollRegmem.pack(
            FUNCTION=function,
            MEM_POLL=True,
            ADDRESS_LO=va & _LOW,
            ADDRESS_HI=va >> 32,
            REFERENCE=value,
            MASK=_LOW,
            INTERVAL=sdma.POLL_INTERVAL,
            RETRY=sdma.POLL_FOREVER,
        )

    def copy_words(self, dst: int, src: int, size: int) -> Words:
        """Return words that copy `size` bytes, at most one piece."""
        return self._copies.pack(
            COUNT_MINUS_ONE=size - 1,
            SRC_LO=src & _LOW,
            SRC_HI=src >> 32,
            DST_LO=dst & _LOW,
            DST_HI=dst >> 32,
        )

    def fill_words(self, dst: int, value: int, size: int) -> Words:
        """Return words that fill `size` bytes, a multiple of 4 and at most one piece, with a u32."""
        return self._fills.pack(
            FILL_SIZE=sdma.FILL_SIZE_DWORD,
            DST_LO=dst & _LOW,
            DST_HI=dst >> 32,
            DATA=value,
            COUNT=size - 4,
        )

    def uploads(self) -> CopyWords:
        """Return the engine of the driver's own copies, of at most one piece each."""

        def signalled(words: Words, va: int, value: int) -> Words:
            words = (*words, *self.fence(va, value))
            return words + _PADDING[-len(words) % sdma.ALIGN_WORDS]

        return CopyWords(copy=self.copy_words, signalled=signalled, late=_LATE, hint=_LATE_HINT)

    def _wait(self, command: neutral.Wait | neutral.WaitMemory, out: PushBuffer) -> None:
        value = command.value
        neutral.limit(command, 32)
        if isinstance(value, int):
            out.words += self.poll(command.signal.va, comparable(value))
            return
        at = len(out.words)
        out.words += self.poll(command.signal.va, 0)
        out.patch_word(at + POLL_VALUE, value, width=32)

    def _signal(self, command: neutral.SetSignal, out: PushBuffer) -> None:
        value = command.value
        if isinstance(value, int):
            if value >> 32:
                raise UsageError(f"copy engines store 32 bits, {value:#x} does not fit")
            out.words += self.fence(command.signal.va, value)
        else:
            at = len(out.words)
            out.words += self.fence(command.signal.va, 0)
            out.patch_word(at + FENCE_VALUE, value, width=32)
        out.words += self._wake

    def _ordered(self, out: PushBuffer) -> None:
        """Wait until all earlier packets are done, if the engine's order is not trusted (`copy_order`)."""
        if self._by_fence:
            self._fenced(out, out.place((0,), align=8))

    def _fenced(self, out: PushBuffer, slot: int) -> None:
        out.words += self.fence(slot, 1)
        out.words += self.poll(slot, 1, sdma.Function.EQ)
        out.words += self.fence(slot, 0)

    def _timestamp(self, command: neutral.Timestamp, out: PushBuffer) -> None:
        va = command.stamp.ticks_va
        if self._direct_stamps:
            out.words += sdma.Timestamp.pack(ADDRESS_LO=va & _LOW, ADDRESS_HI=va >> 32)
            return
        record = out.place((0,) * (sdma.TIMESTAMP_ALIGN // 8), align=sdma.TIMESTAMP_ALIGN)
        out.words += sdma.Timestamp.pack(ADDRESS_LO=record & _LOW, ADDRESS_HI=record >> 32)
        self._fenced(out, record + _FENCE_AT)
        out.words += self.copy_words(va, record, _TIME_BYTES)

    def _barrier(self, _command: neutral.Barrier, out: PushBuffer) -> None:
        self._ordered(out)  # by default the engine's order is enough

    @staticmethod
    def _refuse(command: neutral.Exec, _out: PushBuffer) -> None:
        raise UnsupportedError(f"kernel {command.program.name}: copy engines run no kernels")

    def _copy(self, command: neutral.Copy, out: PushBuffer) -> None:
        dst, src, size = neutral.address(command.dst), neutral.address(command.src), command.size
        for start, piece, _ in pieces(size, self._copy_bytes):
            at = len(out.words)
            to, source = add(dst, start), add(src, start)
            out.words += self.copy_words(constant(to), constant(source), piece or 1)
            patch_number(out, source, at + COPY_SOURCE, 2)
            patch_number(out, to, at + COPY_TARGET, 2)
            if not isinstance(size, int):
                width = self._copies.FIELDS["COUNT_MINUS_ONE"].width
                out.patch_word(at + COPY_BYTES, size + -1, width=width)
        self._ordered(out)

    def _fill(self, command: neutral.Fill, out: PushBuffer) -> None:
        dst, value, size = neutral.address(command.dst), command.value, command.size
        for start, piece, _ in pieces(size, self._fill_bytes):
            at = len(out.words)
            to = add(dst, start)
            out.words += self.fill_words(constant(to), constant(value) & _LOW, piece or 4)
            patch_number(out, to, at + FILL_TARGET, 2)
            patch_number(out, value, at + FILL_VALUE, 1)
            if not isinstance(size, int):
                width = self._fills.FIELDS["COUNT"].width
                out.patch_word(at + FILL_BYTES, size + -4, width=width)
        self._ordered(out)

    def _write(self, command: neutral.Write, out: PushBuffer) -> None:
        # Fences are ordered with copies; WRITE packets are not.
        dst, value = neutral.address(command.dst), command.value
        first = len(out.words)
        numbers = number_words(value, command.bits)
        for i, number in enumerate(numbers):
            out.words += self.fence(constant(add(dst, 4 * i)), number)
        fences = range(first, len(out.words), sdma.Fence.WORDS)
        if not isinstance(value, int):  # the two halves one after the other: the replay then sees one number
            for i, at in enumerate(fences):
                out.patch_word(at + FENCE_VALUE, value >> 32 * i if i else value, width=32)
        for i, at in enumerate(fences):
            patch_number(out, add(dst, 4 * i), at + FENCE_ADDRESS, 2)

    @staticmethod
    def _indirect(command: neutral.Indirect, out: PushBuffer) -> None:
        va, end = command.buffer.va, command.words
        ranges = [(0, end)]
        if end > sdma.MAX_INDIRECT_WORDS:
            ranges = list(cut(command.buffer.borrow().cast("I"), end, sdma.MAX_INDIRECT_WORDS))
        for start, stop in ranges:
            out.words += _PADDING[(-len(out.words) - sdma.Indirect.WORDS) % sdma.ALIGN_WORDS]
            base = va + 4 * start
            out.words += sdma.Indirect.pack(BASE_LO=base & _LOW, BASE_HI=base >> 32, IB_SIZE=stop - start)


def cut(words: memoryview, count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end), in words, of runs of whole packets; each has at most `most` words.

    Every run but the last ends at a multiple of 8 words. Raises `UsageError` if there is no such end,
    `ValueError` for an unknown packet.
    """
    start = good = at = 0
    while at < count:
        at += sdma.packet_words(words, at)
        if at - start > most:
            if good == start:
                raise UsageError(f"no packet of {at - start} words of copies ends at a multiple of 8 words")
            yield start, good
            start = good
        if at % sdma.ALIGN_WORDS == 0:
            good = at
    yield start, count
