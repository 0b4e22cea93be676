"""Encodes neutral commands as AQL packets, for compute queues that several XCCs share.

Words are units of 16. Kernels are dispatch packets; all other commands are PM4 words in indirect buffers,
which vendor packets run on every XCC. What must happen once is restricted to the first XCC. The barrier bit
of a packet delays it until all earlier packets are done on all XCCs; therefore a signal begins a packet.

The PM4 words of a vendor packet without an address follow it in the stream, as inline units, because the
values of signals must stand in words. The ring copies them to memory of its own, and only the packets to
the ring. Prebuilt words are resolved here, and their packets are copied unchanged (`call_of`).

Not here: PM4 words (`encode`), rings (`ring`). Source: ROCr's hsa.h; tinygrad's AQL queue of gfx942.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivers.amd.encode import Pm4Encoder, add
from drivers.amd.layouts import pm4
from drivers.amd.layouts.aql import PACKET_WORDS, FenceScope, Header, Pm4Ib
from hcq.commands import (
    Barrier,
    Copy,
    Exec,
    Fill,
    Indirect,
    SetSignal,
    Timestamp,
    Wait,
    Write,
    address,
    refuse_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from drivers.amd.context import QueueContext
    from hcq.commands import Command
    from hcq.params import Word
    from hcq.pushbuffer import PushBuffer

MAX_INLINE: Final = 64
"""PM4 dwords behind one vendor packet at most."""
_ROOM: Final = 20
"""PM4 dwords after which a new packet begins; one command adds 43 at most."""
_PIECES: Final = 4
"""Packets of a copy in one buffer."""
CALL_SHIFT: Final = 48
"""Where in an entry of `PushBuffer.calls` the number of packets stands, above their address."""
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
"""The first word of such a packet: no other kind of packet begins with it."""


def call_of(entry: int) -> tuple[int, int]:
    """Return (device address, number) of the packets that an entry of `PushBuffer.calls` copies."""
    return entry & (1 << CALL_SHIFT) - 1, entry >> CALL_SHIFT


def inline_words(words: Sequence[int], at: int) -> int:
    """Return how many PM4 words follow the packet at `at` in the stream; 0 for a packet that stands alone."""
    if words[at] != INLINE or words[at + _ADDRESS] or words[at + _ADDRESS + 1]:
        return 0
    return words[at + SIZE] & SIZE_MASK


def packets_of(words: Sequence[int]) -> int:
    """Return how many packets a stream has: inline PM4 words are none."""
    at = count = 0
    while at < len(words):
        at += PACKET_WORDS + units(inline_words(words, at))
        count += 1
    return count


def units(count: int) -> int:
    """Return the words that `count` inline words take in the stream."""
    return -(-count // PACKET_WORDS) * PACKET_WORDS


def in_buffer(inline: Sequence[int]) -> list[int]:
    """Return at most `MAX_INLINE` PM4 words behind the vendor packet that runs them, as a ring takes them."""
    count = len(inline)
    assert count <= MAX_INLINE, count
    words = [*_BUFFER, *inline, *(0,) * (-count % PACKET_WORDS)]
    words[SIZE] |= count
    return words


class AqlEncoder:
    """Encodes for one AQL compute queue."""

    def __init__(self, context: QueueContext) -> None:
        self._pm4 = Pm4Encoder(context, shared=True)
        self._launch = self._pm4.table[Exec]
        self._overlap = context.choices.aql_overlap
        self._open = -1
        """Where the vendor packet stands whose PM4 words are being appended, or -1."""
        self._ordered = False
        """Whether the next kernel must wait for all before it."""
        dma = pm4.MAX_DMA_BYTES[context.target.generation]
        self._largest = _PIECES * dma
        self._table: dict[type[Any], Callable[[Any, PushBuffer], None]] = {
            Wait: self._in_buffer,
            SetSignal: self._signal,
            Timestamp: self._in_buffer,
            Barrier: self._barrier,
            Exec: self._exec,
            Copy: self._copy,
            Fill: self._fill,
            Write: self._in_buffer,
            Indirect: self._indirect,
        }

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands`; see `hcq.driver.Encoder`."""
        table = self._table
        self._open, self._ordered = -1, True
        try:
            for command in commands:
                table[command.__class__](command, out)
        except KeyError:
            refuse_unknown(commands, table)
            raise
        if self._open >= 0:
            self._close(out.words)

    def new_code(self) -> Sequence[int]:
        """Return the words that the queue must run before kernels that were loaded since."""
        return in_buffer(self._pm4.new_code())

    def _begin(self, out: PushBuffer) -> None:
        """Open a vendor packet with room for one more command, unless one is open."""
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

    def _signal(self, command: SetSignal, out: PushBuffer) -> None:
        if self._open >= 0:  # all XCCs must have run the words before the first one signals
            self._close(out.words)
        self._in_buffer(command, out)

    def _barrier(self, _command: Barrier, _out: PushBuffer) -> None:
        # Packets acquire and release for the system; the barrier bit of the next one orders.
        self._ordered = True

    def _exec(self, command: Exec, out: PushBuffer) -> None:
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

    def _copy(self, command: Copy, out: PushBuffer) -> None:
        dst, src = address(command.dst), address(command.src)
        for start, size in self._parts(command.size):
            self._begin(out)
            self._pm4.copy(add(dst, start), add(src, start), size, out)
        self._ordered = True

    def _fill(self, command: Fill, out: PushBuffer) -> None:
        dst = address(command.dst)
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

    def _indirect(self, command: Indirect, out: PushBuffer) -> None:
        if self._open >= 0:
            self._close(out.words)
        at, va = len(out.words), command.buffer.va
        for start, count in resolve(command.buffer.borrow().cast("I"), va, command.words):
            out.calls.append((at, count << CALL_SHIFT | va + 4 * start))
        self._ordered = True


def resolve(words: memoryview, va: int, count: int) -> Iterator[tuple[int, int]]:
    """Set the address of the PM4 words in vendor packets in memory at `va`; it may be set already.

    Yield (first word, number) of the runs of packets between those.
    """
    start = at = 0
    while at < count:
        inline = words[at + SIZE] & SIZE_MASK if words[at] == INLINE else 0
        at += PACKET_WORDS
        if inline:
            place = va + 4 * at
            words[at - PACKET_WORDS + _ADDRESS] = place & 0xFFFF_FFFF
            words[at - PACKET_WORDS + _ADDRESS + 1] = place >> 32
            yield start, (at - start) // PACKET_WORDS
            at += units(inline)
            start = at
    if at > start:
        yield start, (at - start) // PACKET_WORDS
