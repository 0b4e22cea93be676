"""Missing cache maintenance: loads that may find old bytes in a cache, stores that others may not see.

The rules, and what they rest on, are docs/facts/amd-caches.md. A cache is taken to hold every address since
it was invalidated last, whoever read it: lines are longer than accesses. So a kernel that loads what was
stored since then is an error, whatever the bytes are. Stores of the host are not seen; their effect is, by
the contents that caches took. Checked only where the machine's sanitizers include caches.

What a kernel loads comes from the record of each dword of the SIMT engine. Scalar loads go through the scalar
cache, vector loads through the vector cache (L0 and GL1; L1 on gfx9) unless their scope bits say otherwise,
all of them through the L2. Source: LLVM, AMDGPUUsage, memory model of gfx942, gfx11 and gfx12.

Not here: which packet maintains what (`maintenance`).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from drivers.amd.layouts.kfd import MemFlags
from emulator.amd.engines.errors import stale_fault
from emulator.sanitizers.shadow_global import RACE_CELL, THREAD_BITS
from emulator.shared.caches import PAGE, CacheFill, Changed, IncoherentCache, WriteLog
from emulator.shared.races import CELL_BYTES, DWORDS
from emulator.shared.releases import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Mapping as Table

    from emulator.amd.kfd.gpu import GpuSpace, KfdGpu
    from emulator.amd.reports import QueueFault
    from emulator.shared.caches import Stale
    from emulator.shared.memory import GpuMapping
    from emulator.shared.races import QueueWork, Touched
    from emulator.shared.releases import VectorClock

_PAST_VECTOR = re.compile(r" (glc|sc0|sc1|scope:SCOPE_(SE|DEV|SYS))\b")
_INVALIDATES = re.compile(r"\b(buffer_gl0_inv|buffer_gl1_inv|buffer_inv|global_inv|global_wbinv)")
_NARROW_STORE = re.compile(r"_store_(d16_hi_)?(b8|b16|byte|short)")
_NUMBERS: Final = {"l2": 0, "scalar": 1, "vector": 2}
Masks = dict[tuple[int, int], int]
"""Allocation (by host address) and number of the chunk -> a byte of 1 for each dword, lowest first."""


def through(text: str) -> str:
    """Return which cache an instruction reads: "scalar", "vector", or "" for one that reads the L2 itself."""
    opcode = text.split(None, 1)[0]
    if opcode.startswith(("s_load", "s_buffer_load")):
        return "scalar"
    if "_load" not in opcode or _PAST_VECTOR.search(text):
        return ""
    return "vector"


class DispatchLoads:
    """The dwords that one kernel loaded, by cache (`emulator.shared.races.Observer`)."""

    def __init__(self, instructions: Sequence[str]) -> None:
        """`instructions` are the texts of those that are noted, by number."""
        self._caches = bytes([_NUMBERS.get(through(text), 0) for text in instructions] or [0])
        self.acquires = any(_INVALIDATES.search(text) for text in instructions)
        """Whether the kernel invalidates the vector cache itself."""
        self.stores_parts = any(_NARROW_STORE.search(text) for text in instructions)
        """Whether it stores bytes or halves: the shadows record whole dwords alone."""
        self.seen: dict[str, Masks] = {"scalar": {}, "vector": {}, "l2": {}}
        self.mappings: dict[int, GpuMapping] = {}
        """By host address."""

    def add(self, mapping: GpuMapping, chunk: int, seen: Touched, raw: bytes) -> None:
        """Take the notes of a chunk of an allocation."""
        import numpy as np  # noqa: PLC0415 - only where caches are checked

        places = np.frombuffer(raw, "<u4")[RACE_CELL["read_at"] // 4 :: CELL_BYTES // 4].astype(np.int64)
        reads = np.frombuffer(seen.read, np.uint8) | np.frombuffer(seen.polled, np.uint8)
        read = (reads != 0) & (places > 0)
        if not read.any():
            return
        key = (mapping.host, chunk)
        self.mappings[mapping.host] = mapping
        caches = np.frombuffer(self._caches, np.uint8)[np.maximum(places - 1, 0) >> THREAD_BITS]
        for name, number in _NUMBERS.items():
            mask = (read if name == "l2" else read & (caches == number)).tobytes()
            if any(mask):
                masks = self.seen[name]
                masks[key] = masks.get(key, 0) | int.from_bytes(mask, "little")


_REMEMBERED: Final = 256
_PAGES: Final = 4096
LOAD_CACHES: Final = ("scalar", "vector", "l2")
AGENT, SYSTEM = "agent", "system"
"""How far the L2s were written back: to the other L2s of the GPU, to everything."""
_KINDS: Final = (*LOAD_CACHES, AGENT, SYSTEM)
_LINE: Final = 16
"""Dwords of a line of the scalar cache: 64 bytes."""
_FULL: Final = b"\0" + b"\xff" * 255
"""A byte that is not zero -> 0xff."""
_HELD: Final = b"\xff" * _LINE
_NAMES: Final = {"scalar": "the scalar cache", "vector": "the vector caches", "l2": "the L2"}
_WANTED: Final = {
    "scalar": "GLK_INV (gfx9 SH_KCACHE)",
    "vector": "GLV_INV and GL1_INV (gfx12 GLV_INV alone, gfx9 TCL1)",
    "l2": "GL2_INV (gfx9 TC)",
    SYSTEM: "GL2_WB (gfx9 TC_WB)",
    AGENT: "a release scope of agent or TC_WB",
}


class Covered:
    """Which work each XCC of a GPU covered by one kind of cache maintenance: what was done before it."""

    def __init__(self, clocks: Iterable[VectorClock], last: int = 0) -> None:
        self._clocks = [dict(one) for one in clocks]
        self._at = [last] * len(self._clocks)

    def join(self, number: int, known: VectorClock, xcc: int | None) -> None:
        """Record maintenance by one XCC, or by all, that happens after `known`."""
        for one in range(len(self._clocks)) if xcc is None else (xcc,):
            join(self._clocks[one], known)
            self._at[one] = number

    def covers(self, work: QueueWork) -> bool:
        """Return whether all XCCs did the maintenance after this work."""
        return all(one.get(work.stream, 0) >= work.number for one in self._clocks)

    @property
    def last(self) -> int:
        """The number of the last maintenance that all XCCs did."""
        return min(self._at)

    def copy(self) -> Covered:
        """Return what it is now."""
        return Covered(self._clocks)


class _Stored(NamedTuple):
    """Stores of finished work."""

    work: QueueWork
    dirty: KfdGpu | None
    """The GPU whose L2 the stores are in; None: they went past it."""
    stores: Masks
    cached: frozenset[int]
    """The allocations, by host address, that the L2 holds."""
    visible: bool
    """Whether the host maps one of these."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The state of the caches when a kernel was put in flight."""

    covered: Table[str, Covered]
    old: Table[str, dict[int, Changed]]
    """Cache -> pages of which it holds something else than memory."""


@dataclass(slots=True)
class _Gpu:
    covered: dict[str, Covered]
    held: dict[str, IncoherentCache] = field(
        default_factory=lambda: {name: IncoherentCache(_PAGES) for name in LOAD_CACHES}
    )
    filled: int = 0
    """Number of the last fill."""


class Coherence:
    """The caches of all GPUs of one machine."""

    def __init__(self) -> None:
        self._log = WriteLog()
        self._gpus: dict[KfdGpu, _Gpu] = {}
        self._done: deque[_Stored] = deque(maxlen=_REMEMBERED)

    def _of(self, gpu: KfdGpu) -> _Gpu:
        if gpu not in self._gpus:
            self._gpus[gpu] = _Gpu({what: Covered([{}] * gpu.profile.xccs) for what in _KINDS})
        return self._gpus[gpu]

    def maintain(self, gpu: KfdGpu, what: frozenset[str], known: VectorClock, xcc: int | None = None) -> None:
        """Record maintenance after `known`: invalidated caches, and how far the L2 is written back.

        That of work which is not over for sure counts for nothing, whichever came first here.
        """
        number, one = self._log.next_number(), self._of(gpu)
        for name in what:
            one.covered[name].join(number, known, xcc)
            if name in one.held and one.covered[name].last > one.filled:
                one.held[name].clear()

    def dispatched(self, gpu: KfdGpu) -> Dispatch:
        """Return the state of the caches for a kernel that is put in flight now."""
        one = self._of(gpu)
        covered = {name: one.covered[name].copy() for name in LOAD_CACHES}
        for other, state in self._gpus.items():
            covered |= {_back(other, name): state.covered[name].copy() for name in (AGENT, SYSTEM)}
        return Dispatch(covered, {name: _changed(gpu, held) for name, held in one.held.items()})

    def done(self, gpu: KfdGpu, work: QueueWork, *, through_l2: bool) -> None:
        """Record completed work; stores of kernels, and some copies, go through the GPU's L2."""
        self._log.record(work)
        stores: Masks = {}
        cached, visible = set(), False
        for (_, chunk), (mapping, seen) in work.touched.items():
            mask = int.from_bytes(seen.stored, "little") | int.from_bytes(seen.atomic, "little")
            if not mask:
                continue
            stores[mapping.host, chunk] = mask
            if through_l2 and in_l2(gpu, mapping):
                cached.add(mapping.host)
                if gpu.profile.xccs == 1:
                    self._replace(gpu, mapping, chunk, mask)
                buffer = _space(gpu).buffers.get(mapping.va)
                visible |= buffer is not None and (buffer.cpu_visible or buffer.kind is MemFlags.USERPTR)
        if stores:
            self._done.append(_Stored(work, gpu if cached else None, stores, frozenset(cached), visible))

    def _replace(self, gpu: KfdGpu, mapping: GpuMapping, chunk: int, mask: int) -> None:
        """Record new contents of a GPU's only L2: what it held before is not loaded again."""
        for run in re.finditer(rb"[^\0]+", mask.to_bytes(DWORDS, "little")):
            va = mapping.va + 4 * (DWORDS * chunk + run.start())
            self._of(gpu).held["l2"].drop(_space(gpu).number, va, 4 * (run.end() - run.start()))

    def _replace_parts(self, gpu: KfdGpu, began: Dispatch, work: QueueWork) -> None:
        """Record that the only L2 of a GPU holds the bytes and halves that a kernel stored.

        They are what changed while it ran, but for the dwords that work beside it stored past this L2.
        """
        held, space = self._of(gpu).held["l2"], _space(gpu)
        for number, page in _changed(gpu, held).items():
            before = began.old["l2"].get(number)
            changed = page.bits.to_bytes(PAGE, "little")
            old = bytes(PAGE) if before is None else before.bits.to_bytes(PAGE, "little")
            for at in range(0, PAGE, 4):
                now = changed[at : at + 4]
                if not any(now) or now == old[at : at + 4]:
                    continue
                va = number * PAGE + at
                mapping = space.map.find(va)
                if mapping is None or not self._stored_past(gpu, work, mapping, va):
                    held.drop(space.number, va, 4)

    def _stored_past(self, gpu: KfdGpu, work: QueueWork, mapping: GpuMapping, va: int) -> bool:
        """Return whether work that does not come before `work` stored a dword past the L2 of a GPU."""
        chunk, dword = divmod((va - mapping.va) // 4, DWORDS)
        return any(
            one.stores.get((mapping.host, chunk), 0) >> 8 * dword & 0xFF
            for one in self._done
            if one.dirty is not gpu and not work.happens_after(one.work)
        )

    def kernel_over(
        self, gpu: KfdGpu, began: Dispatch, loads: DispatchLoads, work: QueueWork, name: str
    ) -> None:
        """Check what a kernel loaded, and take what it leaves in the caches."""
        self._judge_engines(gpu, began, loads, work)
        self._judge_host(gpu, began, loads, work)
        if loads.stores_parts and gpu.profile.xccs == 1:
            self._replace_parts(gpu, began, work)
        self._fill(gpu, loads, name)

    def read(self, work: QueueWork, what: str, reader: KfdGpu | None = None) -> None:
        """Check what a copy engine reads and overwrites: kernels' stores to it must have left the L2.

        With a `reader` the copy goes through the L2 of that GPU, and finds there what its kernels stored.
        """
        for (_, chunk), (mapping, seen) in work.touched.items():
            for touched in (seen.read, seen.stored):
                mask = int.from_bytes(touched, "little")
                self._judge_dirty(what, work, (mapping, chunk, mask), self._now, reader)

    def released(self, gpu: KfdGpu, work: QueueWork, what: str) -> None:
        """Check a release that does not write the L2 back: the host must not read what it tells of."""
        for one in self._done:
            if one.dirty is not gpu or not one.visible or not work.happens_after(one.work):
                continue
            if not self._now(gpu, SYSTEM).covers(one.work):
                raise stale_fault(
                    f"{what} tells that {one.work.name} is over, whose stores to memory that the host maps "
                    f"are in the L2: wanted {_WANTED[SYSTEM]} in the release"
                )

    def _now(self, gpu: KfdGpu, what: str) -> Covered:
        return self._of(gpu).covered[what]

    def _judge_engines(self, gpu: KfdGpu, began: Dispatch, loads: DispatchLoads, work: QueueWork) -> None:
        for cache, masks in loads.seen.items():
            if cache == "vector" and loads.acquires:
                continue
            for key, mask in masks.items():
                mapping = loads.mappings[key[0]]
                self._judge_dirty(
                    "kernel", work, (mapping, key[1], mask),
                    lambda other, what: began.covered[_back(other, what)], gpu,
                )  # fmt: skip
                if cache == "l2" and not in_l2(gpu, mapping):
                    continue
                for one in self._done:
                    if not work.happens_after(one.work) or began.covered[cache].covers(one.work):
                        continue
                    if cache == "l2" and one.dirty is gpu and gpu.profile.xccs == 1:
                        continue  # it is in this very cache
                    both = one.stores.get(key, 0) & mask
                    if both:
                        self._tell(cache, work, one, mapping, _address(mapping, key[1], both))

    def _judge_dirty(
        self,
        what: str,
        work: QueueWork,
        place: tuple[GpuMapping, int, int],
        covered: Callable[[KfdGpu, str], Covered],
        reader: KfdGpu | None = None,
    ) -> None:
        mapping, chunk, mask = place
        for one in self._done if mask else ():
            if one.dirty is None or mapping.host not in one.cached or not work.happens_after(one.work):
                continue
            if one.dirty is reader and reader.profile.xccs == 1:
                continue
            level = AGENT if one.dirty is reader else SYSTEM
            both = one.stores.get((mapping.host, chunk), 0) & mask
            if both and not covered(one.dirty, level).covers(one.work):
                va = _address(mapping, chunk, both)
                raise stale_fault(
                    f"{work.name} ({what}) reads or overwrites {va:#x}, in {mapping}, which {one.work.name} "
                    f"stored, and the L2 of {one.dirty.name} was not written back since: wanted "
                    f"{_WANTED[level]}"
                )

    @staticmethod
    def _tell(cache: str, work: QueueWork, one: _Stored, mapping: GpuMapping, va: int) -> None:
        raise stale_fault(
            f"what {work.reader_of(mapping, va)} loads through {_NAMES[cache]} at {va:#x}, in {mapping}, may "
            f"be older than what {one.work.writer_of(mapping, va) or one.work.name} stored: {_NAMES[cache]} "
            f"was not invalidated between; wanted an acquire with {_WANTED[cache]}"
        )

    def _judge_host(self, gpu: KfdGpu, began: Dispatch, loads: DispatchLoads, work: QueueWork) -> None:
        for cache, masks in loads.seen.items():
            changed = began.old[cache]
            if not changed or (cache == "vector" and loads.acquires):
                continue
            for (host, chunk), mask in masks.items():
                mapping = loads.mappings[host]
                if cache == "l2" and not in_l2(gpu, mapping):
                    continue
                for va in _dwords(mapping, chunk, mask):
                    page = changed.get(va // PAGE)
                    stale = None if page is None else page.first(0xFFFF_FFFF << 8 * (va % PAGE))
                    if stale is not None:
                        raise self._old(gpu, work, cache, mapping, stale)

    def _old(self, gpu: KfdGpu, work: QueueWork, cache: str, mapping: GpuMapping, stale: Stale) -> QueueFault:
        writer = self._log.writer(_space(gpu).map.find(stale.va), stale, work)
        return stale_fault(
            f"what {work.reader_of(mapping, stale.va)} loads through {_NAMES[cache]} at {stale.va:#x}, in "
            f"{mapping}, may be as old as when {stale.fill.reader} read it: written since by {writer}, and "
            f"the cache was not invalidated; wanted an acquire with {_WANTED[cache]}"
        )

    def _fill(self, gpu: KfdGpu, loads: DispatchLoads, name: str) -> None:
        one, space = self._of(gpu), _space(gpu)
        fill = CacheFill(self._log.next_number(), f"kernel {name}")
        one.filled = fill.number
        for cache, masks in loads.seen.items():
            for (host, chunk), mask in masks.items():
                mapping = loads.mappings[host]
                if cache == "l2" and not in_l2(gpu, mapping):
                    continue
                va = mapping.va + 4 * DWORDS * chunk
                size = min(4 * DWORDS, mapping.end - va)
                if space.map.find(va, size) is mapping:
                    held = bytearray(4 * DWORDS)
                    dwords = mask.to_bytes(DWORDS, "little").translate(_FULL)
                    if cache == "scalar":
                        dwords = _whole_lines(dwords)
                    for byte in range(4):
                        held[byte::4] = dwords
                    data = space.map.read(va, size)
                    one.held[cache].fill(space.number, va, data, fill, mask=bytes(held[:size]), owner=mapping)


def in_l2(gpu: KfdGpu, mapping: GpuMapping) -> bool:
    """Return whether the L2 of a GPU holds an allocation: what the kernel's MTYPE decides (facts 1.4)."""
    buffer = _space(gpu).buffers.get(mapping.va)
    if buffer is None:
        return True
    if gpu.profile.target.generation == 9:
        return buffer.kind is MemFlags.VRAM and not buffer.flags & MemFlags.UNCACHED
    return buffer.cached


def _whole_lines(dwords: bytes) -> bytes:
    """Return 0xff for each dword of the lines of the scalar cache in which one dword has it."""
    rows = (dwords[at : at + _LINE] for at in range(0, len(dwords), _LINE))
    return b"".join(_HELD if 0xFF in row else row for row in rows)


def _space(gpu: KfdGpu) -> GpuSpace:
    assert gpu.space is not None
    return gpu.space


def _changed(gpu: KfdGpu, held: IncoherentCache) -> dict[int, Changed]:
    """Return the pages of which a cache of a GPU holds something else than memory."""
    space = _space(gpu)

    def page(va: int, owner: object) -> bytes | None:
        found = space.map.find(va, PAGE)
        return None if found is None or found is not owner else space.map.read(va, PAGE)

    return held.changed(space.number, page)


def _back(gpu: KfdGpu, what: str) -> str:
    return f"{what} of {gpu.index}"


def _address(mapping: GpuMapping, chunk: int, mask: int) -> int:
    return mapping.va + 4 * (chunk * DWORDS + ((mask & -mask).bit_length() - 1) // 8)


def _dwords(mapping: GpuMapping, chunk: int, mask: int) -> Iterator[int]:
    first = mapping.va + 4 * DWORDS * chunk
    for dword, byte in enumerate(mask.to_bytes(DWORDS, "little")):
        if byte:
            yield first + 4 * dword
