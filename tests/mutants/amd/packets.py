"""Mutants of AMD's streams: removals of packets, and changes of every field of PM4, SDMA and AQL packets.

The fields are those of `drivers.amd.layouts`, or of a dword's own layout (cache operations, registers,
initiators). NOPs of the same length replace a removed packet, because addresses and indices depend on
positions.

Not here: the contents of indirect buffers, which are streams of their own; memory that packets reference; the
changes of a number (`tests.mutants.sites`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from drivers.amd.decode import aql_packet, pm4_packets, sdma_packets
from drivers.amd.layouts import aql, pm4, pm4_generations, registers, sdma
from tests.mutants import sites
from tests.mutants.sites import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivers.amd.decode import Packet
    from hcq.layout import BitStruct
    from tests.mutants.sites import Runs

_WORD: Final = 32
_ALL: Final[Runs] = ((0, _WORD),)
_CACHE: Final = re.compile(r"^(GL[IKVM12]+_(INV|WB)|TC\w*|SH_[IK]CACHE|KCACHE_\w+)$")
"""Fields of ACQUIRE_MEM that are cache operations."""
_ACQUIRED: Final = frozenset({"SH_KCACHE", "TCL1", "TC"})
"""Those of gfx9 that the fence of a dispatch packet does, too."""


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
    slots: range = range(0)
    """Addresses of the slots of events; what stores there is named so."""
    acquired: bool = False
    """Whether a dispatch packet follows whose fence invalidates scalar, vector and L2 caches (facts 5)."""

    def mutants(self, words: Sequence[int], index: int, entry: int = 0) -> Iterator[Mutant]:
        """Yield the mutants."""
        packets = [
            packet for packet in pm4_packets(words, self.generation) if packet.name != pm4.Opcode.NOP.name
        ]
        again = _repeated(packets, acquired=self.acquired)
        for packet, following in zip(packets, (*packets[1:], None), strict=True):
            at = packet.at
            where = f"word {at} {packet.name}"
            if isinstance(packet.value, pm4_generations.ReleaseMem) and _target(packet.value) in self.slots:
                where += " of an event"
            what = where
            if at in again:
                what += f" of {again[at].caches}" if again[at].caches else " of what another does"
            if isinstance(packet.value, pm4.SetShReg):
                what += f" {registers.register_names(self.generation)[packet.value.REG_OFFSET]}"
            elif isinstance(packet.value, pm4.EventWrite) and _releases(following):
                what += " before a release"
            yield _deleted(packet, index, entry, what)
            yield from sites.fields(pm4.Header, "word", index, entry, at, words[at], f"{where} header")
            for one in _fields(type(packet.value), words, at, (index, entry), where, first=_WORD):
                whole = at in again and one.label.endswith(".GCR_CNTL")
                yield replace(one, label=f"{what}.GCR_CNTL") if whole else _named(one, again.get(at))
            for offset, layout in self._nested(packet):
                raw, name = words[at + offset], f"{where} {layout.__name__}"
                for one in sites.fields(layout, "word", index, entry, at + offset, raw, name):
                    yield _named(one, again.get(at))
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
    slots: range = range(0)
    """Addresses of the slots of events; what stores there is named so."""

    def mutants(self, words: Sequence[int], index: int, entry: int = 0) -> Iterator[Mutant]:
        """Yield the mutants."""
        for packet in sdma_packets(words, self.version):
            if packet.name == sdma.Op.NOP.name:
                continue
            at = packet.at
            where = f"word {at} {packet.name}"
            if isinstance(packet.value, sdma.Fence) and _target(packet.value) in self.slots:
                where += " of an event"
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


@dataclass(frozen=True, slots=True)
class _Acquire:
    """What an ACQUIRE_MEM does that no other does before the next launch or wait."""

    caches: str
    again: frozenset[str]
    """What another does, too."""


def _caches(packet: Packet) -> frozenset[str]:
    """Return the cache operations of an ACQUIRE_MEM."""
    value: BitStruct = packet.value
    if isinstance(value, pm4_generations.AcquireMem):
        value = pm4_generations.GcrCntl.from_int(value.GCR_CNTL)
    return frozenset(name for name in value.FIELDS if _CACHE.search(name) and getattr(value, name))


def _repeated(packets: Sequence[Packet], *, acquired: bool) -> dict[int, _Acquire]:
    """Return place -> what each ACQUIRE_MEM does alone among those that follow each other.

    `acquired`: a dispatch follows that acquires, too.
    """
    out: dict[int, _Acquire] = {}
    dispatch = _ACQUIRED if acquired else frozenset()
    run: list[Packet] = []
    for packet in (*packets, None):
        if packet is not None and isinstance(
            packet.value, pm4_generations.AcquireMem | pm4_generations.AcquireMemGfx9
        ):
            run.append(packet)
            continue
        for one in run:
            others = [_caches(other) for other in run if other is not one]
            alone = _caches(one) - dispatch.union(*others)
            out[one.at] = _Acquire(", ".join(sorted(alone)), _caches(one) - alone)
        run = []
    return out


def _named(mutant: Mutant, acquire: _Acquire | None) -> Mutant:
    """Return a mutant whose label ends in `again` if another ACQUIRE_MEM does its cache operation, too."""
    name = mutant.label.rpartition(".")[2]
    if acquire is None or name not in acquire.again:
        return mutant
    return replace(mutant, label=f"{mutant.label} again")


def _target(value: pm4_generations.ReleaseMem | sdma.Fence) -> int:
    return value.ADDRESS_HI << 32 | value.ADDRESS_LO


def _releases(packet: Packet | None) -> bool:
    return packet is not None and isinstance(packet.value, pm4_generations.ReleaseMem)


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
