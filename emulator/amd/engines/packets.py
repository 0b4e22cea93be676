"""PM4 packets: their lengths and fields, waits for memory, and the stores ahead in a stream.

The search for deadlocks uses the waits of queues and the stores that are ahead. SDMA and AQL use the same
waits. Compares are unsigned and masked.

A malformed packet raises `QueueFault`.

Not here: what packets do (`pm4`), the search (`emulator.shared.waits`). Next: `pm4`. Source of the fields:
`drivers.amd.layouts.pm4`.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.events import QueueException
from drivers.amd.layouts.pm4 import (
    NOP_COUNT_ONE_DWORD,
    TYPE_2_FILLER,
    TYPE_3,
    DataSel,
    Function,
    Header,
    IndirectBuffer,
    Opcode,
    WriteData,
    WriteDst,
)
from drivers.amd.layouts.pm4_generations import WITH_DATA, ReleaseMem, packets
from emulator.amd.reports import check, packet_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from emulator.amd.engines.bus import Bus
    from hcq.layout import BitStruct

COMPARES: Final[Mapping[int, Callable[[int, int], bool]]] = {
    Function.ALWAYS: lambda _value, _reference: True,
    Function.LT: operator.lt,
    Function.LE: operator.le,
    Function.EQ: operator.eq,
    Function.NE: operator.ne,
    Function.GE: operator.ge,
    Function.GT: operator.gt,
}
"""FUNCTION -> compare of a value with the reference. PM4 and SDMA use the same numbers."""
_EXACT: Final = (Function.ALWAYS, Function.EQ, Function.NE)
"""Compares that do not order values."""


@dataclass(frozen=True, slots=True)
class PacketWait:
    """A wait for a word of memory (`emulator.shared.waits.QueueWait`)."""

    name: str
    """The packet, for reports."""
    va: int
    """Device address of the word."""
    payload: int
    """The reference that the masked word is compared with."""
    function: int
    """A key of `COMPARES`."""
    bits: int = 32
    """Width of the word: 32 or 64."""
    mask: int = (1 << 64) - 1

    @property
    def whole(self) -> bool:
        """Whether the mask keeps all bits of the word."""
        return not ~self.mask & (1 << self.bits) - 1

    @property
    def equality(self) -> bool:
        """Whether only the payload itself ends the wait."""
        return self.function == Function.EQ and self.whole

    def satisfied(self, value: int) -> bool:
        """Return whether a value of the word ends the wait."""
        return COMPARES[self.function](value & self.mask, self.payload)

    @property
    def unordered(self) -> bool:
        """Whether the compare orders values (LT, LE, GE, GT) and the mask is not of the lowest bits alone."""
        whole = self.mask & (1 << self.bits) - 1
        return self.function not in _EXACT and bool(whole & (whole + 1))

    @property
    def vain(self) -> bool:
        """Whether every value of the word ends the wait."""
        whole = self.mask & (1 << self.bits) - 1
        low, high = self.satisfied(0), self.satisfied(whole)
        ordered = {Function.GE: low, Function.GT: low, Function.LE: high, Function.LT: high}
        return ordered.get(Function(self.function), self.function is Function.ALWAYS)

    def __str__(self) -> str:
        how = Function(self.function).name
        mask = "" if self.whole else f" under MASK {self.mask & (1 << self.bits) - 1:#x}"
        return f"{self.name} for {self.bits} bits at {self.va:#x}{mask} {how} {self.payload:#x}"


@dataclass(frozen=True, slots=True)
class StorePromise:
    """A store of a packet that is not executed yet (`emulator.shared.waits.ReleasePromise`)."""

    va: int
    """Device address."""
    payload: int
    """The low 32 bits of the value."""


_SHADER_TYPE: Final = Header.FIELDS["SHADER_TYPE"].mask()
_IGNORED: Final = {
    (Opcode.ACQUIRE_MEM, generation): (3, 0xFFFF_FF00, "COHER_SIZE_HI of more than its 8 bits")
    for generation in (9, 10, 11, 12)
} | {(Opcode.RELEASE_MEM, 12): (1, 0xB000, "GLM or GL1, which gfx12 ignores")}
"""(packet, generation) -> number of a dword, its bits that hardware ignores, and their name for reports."""


def wide(low: int, high: int) -> int:
    """Return the 64-bit number of two dwords."""
    return high << 32 | low


@functools.lru_cache(maxsize=4096)
def length(head: int) -> int:
    """Return the length in dwords of the packet with this header.

    Raises `QueueFault` for a type other than 3. A type-2 filler and a NOP with the largest count have one
    dword.
    """
    if head == TYPE_2_FILLER:
        return 1
    fields = Header.from_int(head)
    if fields.TYPE != TYPE_3:
        raise packet_fault(
            f"header {head:#010x} is of type {fields.TYPE}: compute queues take packets of type 3"
            + ("" if head else "; nothing was stored there: the write pointer, in dwords, lies too far"),
            QueueException.PACKET_RESERVED,
        )
    if head & 0xFF00 == Opcode.NOP << 8 and fields.COUNT == NOP_COUNT_ONE_DWORD:
        return 1
    return fields.COUNT + 2


@functools.lru_cache(maxsize=4096)
def opcode(head: int, generation: int) -> Opcode:
    """Return the opcode of a header. Raises `QueueFault` for a packet that compute queues do not support."""
    number = head >> 8 & 0xFF
    known = {Opcode.NOP, Opcode.SET_UCONFIG_REG, *packets(generation)}
    if number not in known:
        named = Opcode(number).name if number in set(Opcode) else f"{number:#x}"
        raise packet_fault(f"packet {named} (header {head:#010x}) is not supported on this queue")
    return Opcode(number)


def decode(words: Sequence[int], generation: int) -> BitStruct:
    """Return the fields of a packet; for a packet with data, the fields before the data.

    Bits that hardware ignores are cleared first. Raises `QueueFault` for a wrong length, and for bits or
    values that the layout does not declare.
    """
    code = opcode(words[0], generation)
    layout = packets(generation)[code]
    data = code in WITH_DATA
    if len(words) <= layout.WORDS if data else len(words) != layout.WORDS:
        wanted = f"{layout.WORDS + 1} or more" if data else f"{layout.WORDS}"
        raise packet_fault(f"{code.name} has {len(words)} dwords, gfx{generation} has {wanted}")
    kept = [words[0] & ~_SHADER_TYPE, *words[1 : layout.WORDS]]
    if (code, generation) in _IGNORED:
        word, mask, _ = _IGNORED[code, generation]
        kept[word] &= ~mask
    return _checked(code, generation, tuple(kept))


def ignored(words: Sequence[int], generation: int) -> str:
    """Return a text about the ignored bits that a packet sets; "" if it sets none."""
    code = opcode(words[0], generation)
    word, mask, what = _IGNORED.get((code, generation), (0, 0, ""))
    return f"{code.name} names {what}" if len(words) > word and words[word] & mask else ""


@functools.lru_cache(maxsize=4096)
def _checked(code: Opcode, generation: int, words: tuple[int, ...]) -> BitStruct:
    """Return the checked fields. The results are cached: streams repeat most of their packets."""
    packet = packets(generation)[code].from_words(words)
    check(packet, code.name)
    return packet


def stores(bus: Bus, words: Sequence[int], generation: int, depth: int = 0) -> Iterator[StorePromise]:
    """Yield the stores that a stream would do, of a 64-bit store the low half.

    Enters indirect buffers two deep, except those that are not mapped. A packet that is cut off at the end of
    `words` is left out. Raises `QueueFault` for a bad packet.
    """
    at = 0
    while at < len(words):
        size = length(words[at])
        part = words[at : at + size]
        if size > 1 and len(part) == size:
            code = opcode(part[0], generation)
            if code not in (Opcode.NOP, Opcode.SET_UCONFIG_REG):
                yield from _store(bus, decode(part, generation), part, generation, depth)
        at += size


def _store(
    bus: Bus, packet: BitStruct, words: Sequence[int], generation: int, depth: int
) -> Iterator[StorePromise]:
    if isinstance(packet, ReleaseMem) and packet.DATA_SEL in (DataSel.LOW_32, DataSel.FULL_64):
        yield StorePromise(wide(packet.ADDRESS_LO, packet.ADDRESS_HI), packet.DATA_LO)
    elif isinstance(packet, WriteData) and packet.DST_SEL != WriteDst.REGISTER:
        for at, word in enumerate(words[WriteData.WORDS :]):
            yield StorePromise(wide(packet.ADDRESS_LO, packet.ADDRESS_HI) + 4 * at, word)
    elif isinstance(packet, IndirectBuffer) and depth < 2:
        va, count = wide(packet.ADDRESS_LO, packet.ADDRESS_HI), packet.IB_SIZE
        if bus.space.mapped(va, 4 * count) == 4 * count:
            yield from stores(bus, bus.words(va, count, "a look ahead"), generation, depth + 1)
