"""Mutants of the memory that a submission references: constant banks with arguments, code, semaphores.

They change every non-zero word and every argument word of a bank, every eighth zero word of it, every
relocated code word and every fourth other one, and every semaphore at its first use. Addresses differ between
runs, therefore a mutant identifies memory by the launch or packet that references it.

Not here: the words of the submission itself (`doorbells`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.chips import CHIPS
from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.dma import DmaMethod
from drivers.nv.layouts.gpfifo import SecOp, Subchannel
from drivers.nv.layouts.host import HostMethod
from emulator.nv.engines import descriptor
from emulator.nv.engines.images import Images
from tests.mutants import sites
from tests.mutants.nv import packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from emulator.nv.engines.channel import ChannelRun
    from emulator.nv.engines.cubins import KernelInfo
    from emulator.nv.engines.descriptor import LaunchDescriptor
    from tests.mutants.sites import Mutant

WHAT: Final = "mutant"
CODE: Final = 8
SEMAPHORE: Final = 9
"""Numbers of the memory regions after the constant banks."""
CHAINED: Final = 1 << 20
"""Distance of the places of two launches of which the first starts the second; a segment has fewer words."""
_EACH_ZERO: Final = 32
_EACH_CODE: Final = 16
_ZERO: Final = ("ones", "plus")
_PAIRS: Final[Mapping[tuple[int, int], tuple[int, int]]] = {
    (-1, HostMethod.SEM_ADDR_HI): (HostMethod.SEM_ADDR_LO, HostMethod.SEM_ADDR_HI),
    (Subchannel.COPY, DmaMethod.SET_SEMAPHORE_B): (DmaMethod.SET_SEMAPHORE_B, DmaMethod.SET_SEMAPHORE_A),
    (Subchannel.COMPUTE, ComputeMethod.SET_REPORT_SEMAPHORE_ADDRESS_UPPER): (
        ComputeMethod.SET_REPORT_SEMAPHORE_ADDRESS_LOWER,
        ComputeMethod.SET_REPORT_SEMAPHORE_ADDRESS_UPPER,
    ),
}
"""(subchannel, or -1 for host methods; second method) -> the methods of the low and the high half."""


@dataclass(frozen=True, slots=True)
class _Region:
    """A region of device memory, and the word of the segment or the launch that references it."""

    word: int
    part: int
    va: int
    size: int
    label: str


class Contents:
    """The memory that the submissions of one run reference; code and semaphores count at their first use."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def find(self, run: ChannelRun, words: Sequence[int], index: int, entry: int) -> Iterator[Mutant]:
        """Yield the mutants of the memory that one segment references."""
        for region in _regions(run, words):
            key = region.part, region.va
            if region.part >= CODE and key in self._seen:
                continue
            self._seen.add(key)
            data = run.space.read(region.va, region.size, WHAT)
            relocated = _relocated(run, region.va) if region.part == CODE else frozenset()
            step = 8 if region.part == SEMAPHORE else 4
            for offset in range(0, region.size, step):
                raw = int.from_bytes(data[offset : offset + step], "little")
                operations = _operations(region, offset, raw, relocated, run.gpu.profile.name)
                yield from sites.variants(
                    "memory", index, entry, region.word, ((8 * offset, 8 * step),), raw << 8 * offset,
                    f"{region.label} +{offset:#x}", part=region.part, operations=operations,
                )  # fmt: skip


def change(run: ChannelRun, words: Sequence[int], mutant: Mutant) -> None:
    """Make a mutant of memory."""
    region = next(one for one in _regions(run, words) if (one.word, one.part) == (mutant.at, mutant.part))
    (bit, width), *_ = mutant.runs
    va, size = region.va + bit // 8, width // 8
    raw = int.from_bytes(run.space.read(va, size, WHAT), "little")
    new = sites.changed(raw, ((0, width),), mutant.operation)
    run.space.write(va, new.to_bytes(size, "little"), WHAT)


def launches(run: ChannelRun, words: Sequence[int]) -> Iterator[tuple[int, LaunchDescriptor]]:
    """Yield the place and the launch descriptor of every launch of a segment.

    The place is the index of the word that has the descriptor's address, plus `CHAINED` for each launch
    before it in a chain of dependent descriptors.
    """
    profile = run.gpu.profile
    for at, _, head in packets.packets(words):
        if head.ADDRESS != ComputeMethod.SEND_PCAS_A or head.OPCODE == SecOp.IMMEDIATE:
            continue
        chain = [words[at + 1] << 8]
        for number, va in enumerate(chain):
            raw = run.space.read(va, descriptor.descriptor_bytes(profile), WHAT)
            one = descriptor.read(profile, va, raw)
            yield at + 1 + number * CHAINED, one
            chain += [after for after, _, _ in one.dependents if after not in chain]


def named(place: int) -> str:
    """Return the name of a launch in labels by its place: none, or its number in a chain, with a space."""
    return f"launch {place // CHAINED + 1} " if place >= CHAINED else ""


def _regions(run: ChannelRun, words: Sequence[int]) -> Iterator[_Region]:
    for at, one in launches(run, words):
        kernel = _kernel(run, one.program)
        name = named(at) + kernel.name
        for bank in one.banks.values():
            yield _Region(at, bank.index, bank.va, bank.size, f"{name} bank {bank.index}")
        yield _Region(at, CODE, one.program, len(kernel.code), f"{name} code")
    halves: dict[tuple[int, int], int] = {}
    for at, subchannel, address, value in packets.methods(words):
        where = subchannel if (subchannel, address) in _PAIRS else -1
        halves[where if address < HostMethod.SEM_ADDR_LO else subchannel, address] = value
        pair = _PAIRS.get((where, address))
        if pair is not None:
            low, high = (halves.get((subchannel, half), 0) for half in pair)
            yield _Region(at, SEMAPHORE, high << 32 | low, 8, f"semaphore of word {at}")


def _kernel(run: ChannelRun, program: int) -> KernelInfo:
    """Return the kernel at an address, looked up without changing the machine's state."""
    return Images().find(run.space, program).kernel


def _relocated(run: ChannelRun, program: int) -> frozenset[int]:
    """Return the offsets of code words that relocations change."""
    patches = _kernel(run, program).patches
    return frozenset(patch.offset // 4 * 4 + step for patch in patches for step in (0, 4))


def _operations(
    region: _Region, offset: int, raw: int, relocated: frozenset[int], profile: str
) -> Sequence[str]:
    if region.part == SEMAPHORE or offset in relocated:
        return sites.OPERATIONS
    if region.part == CODE:
        return () if offset % _EACH_CODE else ("plus",)
    if raw or (region.part == 0 and offset >= CHIPS[profile].bank0.SIZE):
        return sites.OPERATIONS
    return () if offset % _EACH_ZERO else _ZERO
