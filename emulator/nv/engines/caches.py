"""The check for missing cache maintenance: stale contents that a grid may read from caches.

docs/facts/nv-caches.md states the rules and their sources. The check runs only if the machine's sanitizers
include it.

Not here: the hardware scheduler's cache of descriptors (`emulator.nv.engines.compute`), stores that are not
flushed (`emulator.shared.caches`). Next:
`emulator.sanitizers.shadow_global`, the cells from which `loads_of` takes the loads of a grid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.qmd_values import MembarType
from emulator.nv.reports import FindingKind, launch_error
from emulator.sanitizers.shadow_global import RACE_CELL, race_place
from emulator.shared.caches import PAGE, CacheFill, Changed, IncoherentCache, Stale, split_pages
from emulator.shared.races import CELL_BYTES, DWORDS, Touched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.nv.engines.banks import Bank
    from emulator.nv.engines.descriptor import LaunchDescriptor
    from emulator.nv.engines.engine import EngineChannel
    from emulator.nv.engines.images import LoadedImage
    from emulator.shared.caches import WriteLog
    from emulator.shared.memory import GpuMapping
    from emulator.shared.vaspace import VaSpace

_PAST_L1 = frozenset({"cg", "cv", "volatile", "mmio", "const"})
_WRITES = ("st", "atom", "red")
_INVALIDATES = re.compile(r"\b(fence|membar)\b|\.(acquire|acq_rel)\b")
_BYTE = bytes([0] + [255] * 255)


def through_l1(text: str) -> bool:
    """Return whether an instruction, given as PTX text, may read a line of the L1."""
    first, *words = _opcode(text)
    if first == "cp":
        return "ca" in words
    if first not in ("ld", "ldu") or not _PAST_L1.isdisjoint(words):
        return False
    return "cta" in words or ("relaxed" not in words and "acquire" not in words)


def _opcode(text: str) -> list[str]:
    return next((word for word in text.split() if not word.startswith("@")), "").rstrip(";").split(".")


def may_invalidate(ptx: str) -> bool:
    """Return whether a PTX module has instructions that may invalidate the L1: fences and acquires."""
    return _INVALIDATES.search(ptx) is not None


class GridLoads:
    """The dwords that one grid loaded through the L1, and whether it stored any (`stored`)."""

    def __init__(self, instructions: Sequence[str]) -> None:
        """`instructions` are the texts of instructions, by the number in the shadows."""
        self._past = frozenset(
            i
            for i, text in enumerate(instructions)
            if not through_l1(text) and _opcode(text)[0] not in _WRITES
        )
        self._read: dict[tuple[int, int], tuple[GpuMapping, int]] = {}
        self.stored = False

    def add(self, mapping: GpuMapping, chunk: int, seen: Touched, raw: bytes) -> None:
        """Process the accesses to a chunk of an allocation (`emulator.shared.races.Observer`)."""
        read = seen.read
        if self._past:
            places = memoryview(raw).cast("I")[RACE_CELL["read_at"] // 4 :: CELL_BYTES // 4].tolist()
            read = bytes(bool(place) and race_place(place)[0] not in self._past for place in places)
        self.stored |= any(seen.stored) or any(seen.atomic)
        key = (id(mapping), chunk)
        _, old = self._read.get(key, (mapping, 0))
        self._read[key] = (mapping, old | int.from_bytes(read, "little"))

    def pieces(self) -> Iterator[tuple[GpuMapping, int, bytes]]:
        """Yield pieces with loads: allocation, address, and a byte for each byte, 0xff if it was loaded."""
        for (_, chunk), (mapping, read) in self._read.items():
            if not read:
                continue
            dwords = read.to_bytes(DWORDS, "little").translate(_BYTE)
            mask = bytearray(4 * DWORDS)
            for byte in range(4):
                mask[byte::4] = dwords
            va = mapping.va + 4 * DWORDS * chunk
            yield mapping, va, bytes(mask[: mapping.end - va])


_L1_PAGES = 4096
"""Pages of 4 KiB that the model of the L1 caches holds."""
_METHODS = "INVALIDATE_SHADER_CACHES or its NO_WFI kind with {}"
_CODE = f"INVALIDATE_INSTRUCTION_CACHE of the descriptor, or {_METHODS.format('INSTRUCTION')}"
_LOADS = f"INVALIDATE_SHADER_DATA_CACHE of the descriptor, or {_METHODS.format('DATA')}"
_BANK = (
    "CONSTANT_BUFFER_INVALIDATE[{}] or INVALIDATE_SHADER_CONSTANT_CACHE of the descriptor, or "
    + _METHODS.format("CONSTANT")
)

ACTION_ALONE: Final = (
    "but by the launch's own action (SEND_SIGNALING_PCAS2_B or a dependent launch); one source alone says"
    " that this action invalidates more than the descriptor (nv-caches.md)"
)
"""The warning for a launch that is correct only because of the launch's own action."""


class Caches:
    """The possible contents of the caches of one GPU, and the latest engine work that wrote memory."""

    def __init__(self, log: WriteLog) -> None:
        """`log` is that of the machine: any of its GPUs may write the memory that this one caches."""
        self.constants = IncoherentCache()
        self.code = IncoherentCache()
        self.loads = IncoherentCache(_L1_PAGES)
        self.log = log

    def invalidate(self, *, instructions: bool, constants: bool, data: bool) -> None:
        """Invalidate the instruction, constant and L1 data caches whose argument is true."""
        for cache, asked in ((self.code, instructions), (self.constants, constants), (self.loads, data)):
            if asked:
                cache.clear()


@dataclass(slots=True, kw_only=True)
class GridCaches:
    """The check of one grid: the cache contents that it may read, and those that it leaves in caches."""

    run: EngineChannel
    caches: Caches
    one: LaunchDescriptor
    loaded: LoadedImage
    fresh: bool
    """Whether the launch's action invalidates the descriptor. Only one source says that such an action
    invalidates shader caches, too."""
    loads: GridLoads | None = None
    """The observer of the grid's loads; None until `watch`."""
    _old: dict[int, Changed] = field(default_factory=dict)
    """Number of a page -> the difference between the L1 and memory, when the grid began."""

    def begin(self) -> None:
        """Apply the launch's invalidations; check code and constant banks.

        Raises a launch error if one is stale.
        """
        one, caches = self.one, self.caches
        caches.invalidate(
            instructions=one.invalidates_instructions,
            constants=one.invalidates_constants,
            data=one.invalidates_data,
        )
        for bank in one.banks.values():
            if bank.invalidate:
                caches.constants.drop(self._space.number, bank.va, bank.size)
        self._judge_code()
        self._judge_banks()
        self._old = caches.loads.changed(self._space.number, self._page)
        self._fill()

    def watch(self, instructions: Sequence[str]) -> GridLoads:
        """Return the observer of the grid's loads; `instructions` are their texts, by number."""
        self.loads = GridLoads(instructions)
        return self.loads

    def end(self) -> None:
        """Check the grid's loads; record the cache contents that it leaves and stores that it did not flush.

        Raises a launch error for a stale load.
        """
        self._fill()
        if self.loads is None:
            return
        if self.one.caches_loads:
            if self._old and not may_invalidate(self.loaded.cubin.ptx):
                self._judge_loads(self.loads)
            self._fill_l1(self.loads)
        flushes = self.one.membar is not MembarType.L1_NONE or self.one.releases
        if flushes:
            self.run.unflushed.flushed()
        elif self.loads.stored:
            self.run.unflushed.add(f"kernel {self._name}, whose CWD_MEMBAR_TYPE is L1_NONE")

    @property
    def _space(self) -> VaSpace:
        return self.run.space

    @property
    def _name(self) -> str:
        return self.loaded.kernel.name

    def _page(self, va: int, owner: object) -> bytes | None:
        found = self._space.map.find(va, PAGE)
        return None if found is None or found is not owner else self._space.map.read(va, PAGE)

    def _fill(self) -> None:
        fill, number = CacheFill(self.caches.log.next_number(), f"kernel {self._name}"), self._space.number
        for va, code in self._code():
            self.caches.code.fill(number, va, code, fill)
        for bank in self.one.banks.values():
            self.caches.constants.fill(number, bank.va, self._bank(bank), fill)

    def _code(self) -> list[tuple[int, bytes]]:
        """Return the code of the kernel, and of the functions that its relocations name."""
        sizes = {one.text.index: len(one.code) for one in self.loaded.cubin.kernels.values()}
        places = [(va, sizes[index]) for index, va in self.loaded.bases.items() if index in sizes]
        return [(va, self._content(va, size)) for va, size in places]

    def _bank(self, bank: Bank) -> bytes:
        return self._content(bank.va, bank.size, f"constant bank {bank.index}, at CONSTANT_BUFFER_ADDR,")

    def _content(self, va: int, size: int, what: str = "a cache") -> bytes:
        return self._space.read(va, size, f"{what} for kernel {self._name}")

    def _fill_l1(self, loads: GridLoads) -> None:
        fill = CacheFill(self.caches.log.next_number(), f"kernel {self._name}")
        for mapping, va, mask in loads.pieces():
            if self._space.map.find(va, len(mask)) is mapping:
                data = self._space.map.read(va, len(mask))
                self.caches.loads.fill(self._space.number, va, data, fill, mask=mask, owner=mapping)

    def _judge_code(self) -> None:
        for va, code in self._code():
            stale = self.caches.code.stale(self._space.number, va, code)
            if stale is not None:
                at = stale.va - va
                self._tell(f"the code of kernel {self._name} at {stale.va:#x} (+{at:#x})", stale, _CODE)

    def _judge_banks(self) -> None:
        for bank in self.one.banks.values():
            content = self._bank(bank)
            stale = self.caches.constants.stale(self._space.number, bank.va, content)
            if stale is not None:
                at = stale.va - bank.va
                what = f"constant bank {bank.index} of kernel {self._name} at {stale.va:#x} (+{at:#x})"
                self._tell(what, stale, _BANK.format(bank.index))

    def _judge_loads(self, loads: GridLoads) -> None:
        """Report the first byte that a grid may have read from a cache although it has changed since."""
        for mapping, va, mask in loads.pieces():
            for page, low, high in split_pages(va, len(mask)):
                changed = self._old.get(page)
                if changed is None:
                    continue
                first = page * PAGE + low - va
                read = int.from_bytes(mask[first : first + high - low], "little") << 8 * low
                stale = changed.first(read)
                if stale is not None:
                    self._tell(self._load(mapping, stale), stale, _LOADS)
                    return

    def _load(self, mapping: GpuMapping, stale: Stale) -> str:
        work = None if self.run.acting is None else self.run.acting.work
        who = f"kernel {self._name}" if work is None else work.reader_of(mapping, stale.va)
        return f"what {who} loads through the L1 at {stale.va:#x}, in {mapping},"

    def _writer(self, stale: Stale) -> str:
        running = None if self.run.acting is None else self.run.acting.work
        return self.caches.log.writer(self._space.map.find(stale.va), stale, running)

    def _tell(self, what: str, stale: Stale, wanted: str) -> None:
        but = f" {ACTION_ALONE}" if self.fresh else ""
        text = (
            f"{what} may be as old as when {stale.fill.reader} read it: written since by "
            f"{self._writer(stale)}, and the cache was not invalidated{but}; wanted {wanted}"
        )
        raise launch_error(text, FindingKind.COHERENCE)
