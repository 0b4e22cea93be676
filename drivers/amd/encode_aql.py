"""The AQL encoder: neutral commands to AQL packets, for compute queues that several XCCs share.

The stream consists of packets of 16 words. Kernels are dispatch packets. All other commands are PM4 words in
indirect buffers, which vendor packets run on every XCC; stores and signals are restricted to the first XCC.
The barrier bit of a packet delays it until all earlier packets are done on all XCCs. Therefore a signal
begins a new packet.

The PM4 words of a vendor packet without an address follow it in the stream ("inline"), so that values of
signals can be patched there. The ring copies inline words to its own memory. In prebuilt memory this module
fills in the addresses itself (`resolve`), and the ring copies the packets unchanged (`call_of`).

Not here: PM4 words (`encode`), rings (`aql_ring`). Source: ROCr's hsa.h; tinygrad's AQL queue of gfx942.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from drivers.amd.context import QueueContext
from drivers.amd.encode import Pm4Encoder, add
from drivers.amd.layouts import pm4
from drivers.amd.layouts.aql import PACKET_WORDS, FenceScope, Header, Pm4Ib
from hcq import commands as neutral
from hcq.commands import Command
from hcq.params import Word
from hcq.pushbuffer import PushBuffer

MAX_INLINE: Final = 64
"""The most inline PM4 dwords of a vendor packet."""
_ROOM: Final = 20
"""PM4 dwords after which a command begins a new packet; one command adds at most 43."""
_PIECES: Final = 4
"""The most DMA packets of a copy in one buffer."""
CALL_SHIFT: Final = 48
"""Lowest bit of the number of packets in an entry of `PushBuffer.calls`; their address is below."""
_ADDRESS: Final = Pm4Ib.sites("IB_ADDRESS_LO")[0].word
SIZE: Final = Pm4Ib.sites("IB_SIZE")[0].word
SIZE_MASK: Final = (1 << Pm4Ib.FIELDS["IB_SIZE"].width) - 1
_BARRIER: Final = Header.FIELDS["BARRIER"].mask()
_BUFFER: Final = Pm4Ib.pack(
    BARRIER=True,
    ACQUIRE_SCOPE=FenceScope.SYSTEM,
    RELEASE_SCOPE=FenceScope.SYSTEM,
    IB_HEADER=pm4.header(pm4.Opcode.INDIRECT_BUFFER, pm4.IndirectBuffer.WORDS),
    IB_ADDRESS_LO=0,
    IB_ADDRESS_HI=0,
    IB_SIZE=0,
    IB_VALID=True,
)
"""A vendor packet whose PM4 words follow in the stream."""
INLINE: Final = _BUFFER[0]
"""The first word of `_BUFFER`: no other kind of packet begins with it."""


def call_of(entry: int) -> tuple[int, int]:
    """Return (device address, number) of the packets that an entry of `PushBuffer.calls` copies."""
    return entry & (1 << CALL_SHIFT) - 1, entry >> CALL_SHIFT


def inline_words(words: Sequence[int], at: int) -> int:
    """Return the number of inline PM4 words of the packet at word `at` of the stream; 0: none."""
    if words[at] != INLINE or words[at + _ADDRESS] or words[at + _ADDRESS + 1]:
        return 0
    return words[at + SIZE] & SIZE_MASK


def packets_of(words: Sequence[int]) -> int:
    """Return the number of packets in a stream, without inline PM4 words."""
    at = count = 0
    while at < len(words):
        at += PACKET_WORDS + units(inline_words(words, at))
        count += 1
    return count


def units(count: int) -> int:
    """Return the length of `count` inline words in the stream, in words: whole packets."""
    return -(-count // PACKET_WORDS) * PACKET_WORDS


def in_buffer(inline: Sequence[int]) -> list[int]:
    """Return a vendor packet with `inline`, at most `MAX_INLINE` PM4 words, after it, as in the stream."""
    count = len(inline)
    assert count <= MAX_INLINE, count
    words = [*_BUFFER, *inline, *(0,) * (-count % PACKET_WORDS)]
    words[SIZE] |= count
    return words


class AqlEncoder:
    """The encoder for one AQL compute queue; see `hcq.driver.Encoder`."""

    def __init__(self, context: QueueContext) -> None:
        self._pm4 = Pm4Encoder(context, shared=True)
        self._launch = self._pm4.table[neutral.Exec]
        self._overlap = context.choices.aql_overlap
        self._open = -1
        """Index of the vendor packet whose PM4 words are being appended; -1: none."""
        self._ordered = False
        """Whether the next kernel must wait for all earlier packets."""
        dma = pm4.MAX_DMA_BYTES[context.target.generation]
        self._largest = _PIECES * dma
        self.table = neutral.CommandTable()
        self.table |= {
            neutral.Wait: self._in_buffer,
            neutral.WaitMemory: self._in_buffer,
            neutral.SetSignal: self._signal,
            neutral.Timestamp: self._in_buffer,
            neutral.Barrier: self._barrier,
            neutral.Exec: self._exec,
            neutral.Copy: self._copy,
            neutral.Fill: self._fill,
            neutral.Write: self._in_buffer,
            neutral.Indirect: self._indirect,
        }

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands`; see `hcq.driver.Encoder`."""
        table = self.table
        self._open, self._ordered = -1, True
        for command in commands:
            table[command.__class__](command, out)
        if self._open >= 0:
            self._close(out.words)

    def new_code(self) -> Sequence[int]:
        """Return the words that the queue must run after code was loaded, before its next kernel."""
        return in_buffer(self._pm4.new_code())

    def _begin(self, out: PushBuffer) -> None:
        """Begin a vendor packet, unless one is open that has space for one more command."""
        words = out.words
        if self._open >= 0 and len(words) - self._open - PACKET_WORDS > _ROOM:
            self._close(words)
        if self._open < 0:
            self._open = len(words)
            words += _BUFFER

    def _close(self, words: Any) -> None:
        """End the PM4 words of the open packet."""
        count = len(words) - self._open - PACKET_WORDS
        assert count <= MAX_INLINE, count
        words[self._open + SIZE] |= count
        words += (0,) * (-count % PACKET_WORDS)
        self._open = -1

    def _in_buffer(self, command: Command, out: PushBuffer) -> None:
        self._begin(out)
        self._pm4.table[command.__class__](command, out)
        self._ordered = True

    def _signal(self, command: neutral.SetSignal, out: PushBuffer) -> None:
        if self._open >= 0:  # the first XCC may signal only after all XCCs have run the earlier words
            self._close(out.words)
        self._in_buffer(command, out)

    def _barrier(self, _command: neutral.Barrier, _out: PushBuffer) -> None:
        # Each packet acquires and releases for the system; the barrier bit of the next packet orders.
        self._ordered = True

    def _exec(self, command: neutral.Exec, out: PushBuffer) -> None:
        if self._open >= 0:
            self._close(out.words)
        if not self._overlap:
            self._launch(command, out)
            return
        at = len(out.words)
        self._launch(command, out)
        if self._ordered:
            out.words[at] |= _BARRIER
            self._ordered = False

    def _copy(self, command: neutral.Copy, out: PushBuffer) -> None:
        dst, src = neutral.address(command.dst), neutral.address(command.src)
        for start, size in self._parts(command.size):
            self._begin(out)
            self._pm4.copy(add(dst, start), add(src, start), size, out)
        self._ordered = True

    def _fill(self, command: neutral.Fill, out: PushBuffer) -> None:
        dst = neutral.address(command.dst)
        for start, size in self._parts(command.size):
            self._begin(out)
            self._pm4.fill(add(dst, start), command.value, size, out)
        self._ordered = True

    def _parts(self, size: Word) -> Iterator[tuple[int, Word]]:
        if not isinstance(size, int):
            yield 0, size
            return
        for start in range(0, size, self._largest):
            yield start, min(size - start, self._largest)

    def _indirect(self, command: neutral.Indirect, out: PushBuffer) -> None:
        if self._open >= 0:
            self._close(out.words)
        at, va = len(out.words), command.buffer.va
        for start, count in resolve(command.buffer.borrow().cast("I"), va, command.words):
            out.calls.append((at, count << CALL_SHIFT | va + 4 * start))
        self._ordered = True


def resolve(words: memoryview, va: int, count: int) -> Iterator[tuple[int, int]]:
    """Set the address of the inline PM4 words in the vendor packets of prebuilt `words`, which lie at `va`.

    Yield (first word, number of packets) of the runs of packets between inline words. May be repeated.
    """
    start = at = 0
    while at < count:
        inline = words[at + SIZE] & SIZE_MASK if words[at] == INLINE else 0
        at += PACKET_WORDS
        if inline:
            start_va = va + 4 * at
            words[at - PACKET_WORDS + _ADDRESS] = start_va & 0xFFFF_FFFF
            words[at - PACKET_WORDS + _ADDRESS + 1] = start_va >> 32
            yield start, (at - start) // PACKET_WORDS
            at += units(inline)
            start = at
    if at > start:
        yield start, (at - start) // PACKET_WORDS
