"""Mutants of AMD's streams: removals of packets, and changes of every field of PM4, SDMA and AQL packets.

The fields are those of `drivers.amd.layouts`, or of a dword's own layout (cache operations, registers,
initiators). NOPs of the same length replace a removed packet, because addresses and indices depend on
positions.

Not here: the contents of indirect buffers, which are streams of their own; memory that packets reference; the
changes of a number (`tools.mutants.sites`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from drivers.amd.decode import aql_packet, pm4_packets, sdma_packets
from drivers.amd.layouts import aql, pm4, pm4_generations, registers, sdma
from tools.mutants import sites
from tools.mutants.sites import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivers.amd.decode import Packet
    from hcq.layout import BitStruct
    from tools.mutants.sites import Runs

_WORD: Final = 32
_ALL: Final[Runs] = ((0, _WORD),)


class Stream(Protocol):
    """A packet format."""

    def mutants(self, words: Sequence[int], index: int, entry: int = 0) -> Iterator[Mutant]:
        """Yield the mutants of a stream; `index` is the number of its doorbell, `entry` that of its buffer.

        `ValueError` for words that are not packets.
        """
        ...

    def nops(self, count: int) -> list[int]:
        """Return `count` words of NOPs."""
        ...


@dataclass(frozen=True, slots=True)
class Pm4:
    """PM4 packets of a generation, in a ring or an indirect buffer."""

    generation: int

    def mutants(self, words: Sequence[int], index: int, entry: int = 0) -> Iterator[Mutant]:
        """Yield the mutants."""
        for packet in pm4_packets(words, self.generation):
            if packet.name == pm4.Opcode.NOP.name:
                continue
            at = packet.at
            where = f"word {at} {packet.name}"
            what = where
            if isinstance(packet.value, pm4.SetShReg):
                what += f" {registers.register_names(self.generation)[packet.value.REG_OFFSET]}"
            yield _deleted(packet, index, entry, what)
            yield from sites.fields(pm4.Header, "word", index, entry, at, words[at], f"{where} header")
            yield from _fields(type(packet.value), words, at, (index, entry), where, first=_WORD)
            for offset, layout in self._nested(packet):
                raw, name = words[at + offset], f"{where} {layout.__name__}"
                yield from sites.fields(layout, "word", index, entry, at + offset, raw, name)
            yield from self._data(packet, index, entry, where)

    @staticmethod
    def _nested(packet: Packet) -> Iterator[tuple[int, type[BitStruct]]]:
        """Yield index and layout of the words of a packet that have their own layout."""
        if isinstance(packet.value, pm4_generations.AcquireMem):
            yield 7, pm4_generations.GcrCntl
        elif isinstance(packet.value, pm4.DispatchDirect):
            yield 4, registers.Initiator

    def _data(self, packet: Packet, index: int, entry: int, where: str) -> Iterator[Mutant]:
        """Yield the mutants of the words after the layout: registers or data."""
        names = registers.register_names(self.generation)
        first = packet.at + packet.value.WORDS
        for i, raw in enumerate(packet.data):
            name, layout = f"{where} data {i}", None
            if isinstance(packet.value, pm4.SetShReg):
                register = names[packet.value.REG_OFFSET + i]
                name = f"{where} {register}"
                layout = registers.FIELDS.get(register, {}).get(self.generation)
            if layout is None:
                yield from sites.variants("word", index, entry, first + i, _ALL, raw, name)
            else:
                yield from sites.fields(layout, "word", index, entry, first + i, raw, name)

    @staticmethod
    def nops(count: int) -> list[int]:
        """Return one NOP of `count` words."""
        head = pm4.NOP_ONE_DWORD if count == 1 else pm4.header(pm4.Opcode.NOP, count)
        return [head, *[0] * (count - 1)]


@dataclass(frozen=True, slots=True)
class Sdma:
    """The packets of the copy engines of a version, such as (6, 0, 0)."""

    version: tuple[int, ...]

    def mutants(self, words: Sequence[int], index: int, entry: int = 0) -> Iterator[Mutant]:
        """Yield the mutants."""
        for packet in sdma_packets(words, self.version):
            if packet.name == sdma.Op.NOP.name:
                continue
            at = packet.at
            where = f"word {at} {packet.name}"
            yield _deleted(packet, index, entry, where)
            yield from sites.fields(sdma.Head, "word", index, entry, at, words[at], f"{where} header")
            yield from _fields(type(packet.value), words, at, (index, entry), where)
            for i, raw in enumerate(packet.data, at + packet.value.WORDS):
                yield from sites.variants("word", index, entry, i, _ALL, raw, f"{where} data word {i}")

    @staticmethod
    def nops(count: int) -> list[int]:
        """Return NOPs of one word."""
        return [sdma.NOP_WORD] * count


@dataclass(frozen=True, slots=True)
class Aql:
    """The packets of an AQL ring."""

    def mutants(self, words: Sequence[int], index: int, entry: int = 0) -> Iterator[Mutant]:
        """Yield the mutants."""
        for at in range(0, len(words), aql.PACKET_WORDS):
            layout = type(aql_packet(words, at))
            where = f"packet {at // aql.PACKET_WORDS} {layout.__name__}"
            runs = ((0, _WORD * aql.PACKET_WORDS),)
            yield Mutant("packet", index, entry, at, runs, sites.DELETE, where)
            yield from _fields(layout, words, at, (index, entry), where)

    @staticmethod
    def nops(count: int) -> list[int]:
        """Return barrier packets without dependencies; `count` is a multiple of a packet's words."""
        barrier = int(aql.BarrierAnd())
        one = [barrier >> _WORD * i & 0xFFFF_FFFF for i in range(aql.PACKET_WORDS)]
        return one * (count // aql.PACKET_WORDS)


def change(stream: Stream, words: Sequence[int], mutant: Mutant) -> list[int]:
    """Return the words of a stream with one of its mutants made; their number does not change."""
    top = max(lo + width for lo, width in mutant.runs)
    count = -(-top // _WORD)
    before, after = words[: mutant.at], words[mutant.at + count :]
    if mutant.operation == sites.DELETE:
        return [*before, *stream.nops(count), *after]
    new = sites.changed(_number(words, mutant.at, count), mutant.runs, mutant.operation)
    return [*before, *(new >> _WORD * i & 0xFFFF_FFFF for i in range(count)), *after]


def _number(words: Sequence[int], at: int, count: int) -> int:
    return sum(word << _WORD * i for i, word in enumerate(words[at : at + count]))


def _deleted(packet: Packet, index: int, entry: int, where: str) -> Mutant:
    runs = ((0, _WORD * (packet.end - packet.at)),)
    return Mutant("packet", index, entry, packet.at, runs, sites.DELETE, where)


def _fields(
    layout: type[BitStruct],
    words: Sequence[int],
    at: int,
    place: tuple[int, int],
    where: str,
    *,
    first: int = 0,
) -> Iterator[Mutant]:
    """Yield the mutants of a packet's fields from bit `first` on, and of its non-zero constants."""
    raw = _number(words, at, layout.WORDS)
    index, entry = place
    for name, field in (layout.FIELDS | layout.FIXED).items():
        for part in range(field.count):
            runs = tuple((lo + part * field.stride, width) for lo, width in field.runs)
            constant = name in layout.FIXED
            if runs[0][0] < first or (constant and not sites.extract(raw, runs)):
                continue
            label = f"{where}.{name}" + (f"[{part}]" if field.count > 1 else "")
            yield from sites.variants("word", index, entry, at, runs, raw, label)
