"""Missing cache maintenance: loads that may find old bytes in a cache, and stores that others may not see.

docs/facts/amd-caches.md has the rules and their sources. A cache is assumed to hold every address since its
last invalidation, even one that nobody read, because lines are longer than accesses. So a kernel that loads
an address stored to since then is an error, whatever the bytes are. Stores of the host are not recorded;
they are found by comparing memory with the bytes that a cache took. The check runs only if the machine's
sanitizers include caches.

The SIMT engine's shadow of each dword tells what a kernel loaded. Scalar loads go through the scalar cache.
Vector loads go through the vector cache (L0 and GL1; L1 on gfx9), unless their scope bits bypass it. All
loads go through the L2. Source: LLVM, AMDGPUUsage, memory model of gfx942, gfx11 and gfx12.

Not here: which packet maintains which cache (`maintenance`), the bytes that caches hold
(`emulator.shared.caches`). Next: `order`, which records the accesses.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from drivers.amd.layouts.kfd import MemFlags
from emulator.amd.reports import stale_fault
from emulator.sanitizers.shadow_global import RACE_CELL, THREAD_BITS
from emulator.shared.caches import PAGE, CacheFill, Changed, IncoherentCache, WriteLog
from emulator.shared.races import CELL_BYTES, DWORDS
from emulator.shared.waits import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Mapping as Table

    from emulator.amd.kfd.gpu import GpuSpace, KfdGpu
    from emulator.amd.reports import QueueFault
    from emulator.shared.caches import Stale
    from emulator.shared.memory import GpuMapping
    from emulator.shared.races import QueueWork, Touched
    from emulator.shared.waits import VectorClock

_PAST_VECTOR = re.compile(r" (glc|sc0|sc1|scope:SCOPE_(SE|DEV|SYS))\b")
"""Scope bits of a load that bypasses the vector cache."""
_INVALIDATES = re.compile(r"\b(buffer_gl0_inv|buffer_gl1_inv|buffer_inv|global_inv|global_wbinv)")
_NARROW_STORE = re.compile(r"_store_(d16_hi_)?(b8|b16|byte|short)")
_NUMBERS: Final = {"l2": 0, "scalar": 1, "vector": 2}
"""Cache -> its number in `DispatchLoads`."""
Masks = dict[tuple[int, int], int]
"""Allocation (by host address) and number of the chunk -> one byte for each dword, 1 if set, lowest first."""


def through(text: str) -> str:
    """Return the cache that an instruction's loads go through: "scalar", "vector", or "" for the L2 alone.

    Instructions that load nothing give "", too.
    """
    opcode = text.split(None, 1)[0]
    if opcode.startswith(("s_load", "s_buffer_load")):
        return "scalar"
    if "_load" not in opcode or _PAST_VECTOR.search(text):
        return ""
    return "vector"


class DispatchLoads:
    """The dwords that one kernel loaded, by cache (`emulator.shared.races.Observer`)."""

    def __init__(self, instructions: Sequence[str]) -> None:
        """`instructions` are the texts of the kernel's recorded instructions, by number."""
        self._caches = bytes([_NUMBERS.get(through(text), 0) for text in instructions] or [0])
        self.acquires = any(_INVALIDATES.search(text) for text in instructions)
        """Whether the kernel invalidates the vector cache itself."""
        self.stores_parts = any(_NARROW_STORE.search(text) for text in instructions)
        """Whether the kernel stores bytes or 16-bit halves. The shadows record stores of whole dwords
        only."""
        self.seen: dict[str, Masks] = {"scalar": {}, "vector": {}, "l2": {}}
        """Cache -> the dwords loaded through it."""
        self.mappings: dict[int, GpuMapping] = {}
        """The allocations that were loaded from, by host address."""

    def add(self, mapping: GpuMapping, chunk: int, seen: Touched, raw: bytes) -> None:
        """Add the loads recorded for one chunk of an allocation."""
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
"""Completed stores that are kept; older ones are not checked."""
_PAGES: Final = 4096
"""Pages whose contents one cache keeps; `IncoherentCache` drops the oldest."""
LOAD_CACHES: Final = ("scalar", "vector", "l2")
"""The caches that loads go through, and that maintenance invalidates."""
AGENT, SYSTEM = "agent", "system"
"""How far an L2 is written back: to the other L2s of its GPU; to memory, where everyone sees it."""
_KINDS: Final = (*LOAD_CACHES, AGENT, SYSTEM)
_LINE: Final = 16
"""Dwords of a line of the scalar cache: 64 bytes."""
_FULL: Final = b"\0" + b"\xff" * 255
"""A translation table: a byte that is not zero -> 0xff."""
_HELD: Final = b"\xff" * _LINE
"""A line of which every dword is held."""
_NAMES: Final = {"scalar": "the scalar cache", "vector": "the vector caches", "l2": "the L2"}
# Kind of maintenance -> the fields of packets that ask for it, for reports.
_WANTED: Final = {
    "scalar": "GLK_INV (gfx9 SH_KCACHE)",
    "vector": "GLV_INV and GL1_INV (gfx12 GLV_INV only, gfx9 TCL1)",
    "l2": "GL2_INV (gfx9 TC)",
    SYSTEM: "GL2_WB (gfx9 TC_WB)",
    AGENT: "a release scope of agent or TC_WB",
}


class Covered:
    """The work that one kind of maintenance covers, for each XCC of a GPU: all that happens before it."""

    def __init__(self, clocks: Iterable[VectorClock], last: int = 0) -> None:
        """`clocks` has, for each XCC, the clock of its maintenance; `last` is the number of the last one."""
        self._clocks = [dict(one) for one in clocks]
        self._at = [last] * len(self._clocks)

    def join(self, number: int, known: VectorClock, xcc: int | None) -> None:
        """Record maintenance by one XCC, or by all if None, that happens after `known`."""
        for one in range(len(self._clocks)) if xcc is None else (xcc,):
            join(self._clocks[one], known)
            self._at[one] = number

    def covers(self, work: QueueWork) -> bool:
        """Return whether every XCC did the maintenance after this work."""
        return all(one.get(work.stream, 0) >= work.number for one in self._clocks)

    @property
    def last(self) -> int:
        """The least of the XCCs' last maintenance numbers; 0 if an XCC did none."""
        return min(self._at)

    def copy(self) -> Covered:
        """Return a copy, whose `last` is 0."""
        return Covered(self._clocks)


class _Stored(NamedTuple):
    """The stores of completed work."""

    work: QueueWork
    dirty: KfdGpu | None
    """The GPU whose L2 holds the stores; None if no L2 does."""
    stores: Masks
    cached: frozenset[int]
    """The allocations that the L2 caches, by host address."""
    visible: bool
    """Whether the host maps one of the allocations in `cached`."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The state of the caches when a kernel was put in flight."""

    covered: Table[str, Covered]
    """Cache -> its invalidations; "agent of N" and "system of N" -> write-backs of the L2 of GPU number N."""
    old: Table[str, dict[int, Changed]]
    """Cache -> number of a page -> where the cache's bytes differ from memory."""


@dataclass(slots=True)
class _Gpu:
    """The caches of one GPU."""

    covered: dict[str, Covered]
    """One of `_KINDS` -> the work that its maintenance covers."""
    held: dict[str, IncoherentCache] = field(
        default_factory=lambda: {name: IncoherentCache(_PAGES) for name in LOAD_CACHES}
    )
    """Cache -> the bytes that it took."""
    filled: int = 0
    """Number of the last fill; 0 before the first."""


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
        """Record maintenance of the caches `what` by one XCC, or by all if None.

        It covers only the work that happens before `known`; work that merely completed earlier here is not
        covered.
        """
        number, one = self._log.next_number(), self._of(gpu)
        for name in what:
            one.covered[name].join(number, known, xcc)
            if name in one.held and one.covered[name].last > one.filled:
                one.held[name].clear()

    def dispatched(self, gpu: KfdGpu) -> Dispatch:
        """Return the state of the caches for a kernel that is put in flight now; pass it to `kernel_over`."""
        one = self._of(gpu)
        covered = {name: one.covered[name].copy() for name in LOAD_CACHES}
        for other, state in self._gpus.items():
            covered |= {_back(other, name): state.covered[name].copy() for name in (AGENT, SYSTEM)}
        return Dispatch(covered, {name: _changed(gpu, held) for name, held in one.held.items()})

    def done(self, gpu: KfdGpu, work: QueueWork, *, through_l2: bool) -> None:
        """Record the stores of completed work; `through_l2` says that they went through the GPU's L2."""
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
        """Record that stores replaced the contents of a GPU's only L2: the old bytes are not loaded again."""
        for run in re.finditer(rb"[^\0]+", mask.to_bytes(DWORDS, "little")):
            va = mapping.va + 4 * (DWORDS * chunk + run.start())
            self._of(gpu).held["l2"].drop(_space(gpu).number, va, 4 * (run.end() - run.start()))

    def _replace_parts(self, gpu: KfdGpu, began: Dispatch, work: QueueWork) -> None:
        """Record that the only L2 of a GPU holds the bytes and halves that a kernel stored.

        These are the dwords that changed while the kernel ran, except those that concurrent work stored
        without going through this L2.
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
        """Return whether work that does not happen before `work` stored a dword without the L2 of a GPU."""
        chunk, dword = divmod((va - mapping.va) // 4, DWORDS)
        return any(
            one.stores.get((mapping.host, chunk), 0) >> 8 * dword & 0xFF
            for one in self._done
            if one.dirty is not gpu and not work.happens_after(one.work)
        )

    def kernel_over(
        self, gpu: KfdGpu, began: Dispatch, loads: DispatchLoads, work: QueueWork, name: str
    ) -> None:
        """Check the loads of a completed kernel, and record the bytes that they leave in the caches.

        Raises `QueueFault` for a load that may find old bytes. Call it after the kernel's `Turn`, before
        `done`.
        """
        self._check_engines(gpu, began, loads, work)
        self._check_host(gpu, began, loads, work)
        if loads.stores_parts and gpu.profile.xccs == 1:
            self._replace_parts(gpu, began, work)
        self._fill(gpu, loads, name)

    def read(self, work: QueueWork, what: str, reader: KfdGpu | None = None) -> None:
        """Check a copy or a packet: no L2 may hold stores to the memory that it reads or overwrites.

        A `reader` is a GPU through whose L2 the copy goes: it finds the stores of that GPU's kernels there.
        Raises `QueueFault` for a missing write-back; `what` names the copy.
        """
        for (_, chunk), (mapping, seen) in work.touched.items():
            for touched in (seen.read, seen.stored):
                mask = int.from_bytes(touched, "little")
                self._check_dirty(what, work, (mapping, chunk, mask), self._now, reader)

    def released(self, gpu: KfdGpu, work: QueueWork, what: str) -> None:
        """Check a release that does not write the L2 back. `what` names the packet.

        Raises `QueueFault` if the L2 holds stores to memory that the host maps, of work before the release.
        """
        for one in self._done:
            if one.dirty is not gpu or not one.visible or not work.happens_after(one.work):
                continue
            if not self._now(gpu, SYSTEM).covers(one.work):
                raise stale_fault(
                    f"{what} releases {one.work.name}, whose stores to memory that the host maps are still "
                    f"in the L2: wanted {_WANTED[SYSTEM]} in the release"
                )

    def _now(self, gpu: KfdGpu, what: str) -> Covered:
        return self._of(gpu).covered[what]

    def _check_engines(self, gpu: KfdGpu, began: Dispatch, loads: DispatchLoads, work: QueueWork) -> None:
        """Check a kernel's loads against the stores of kernels, copies and packets."""
        for cache, masks in loads.seen.items():
            if cache == "vector" and loads.acquires:
                continue
            for key, mask in masks.items():
                mapping = loads.mappings[key[0]]
                self._check_dirty(
                    "kernel", work, (mapping, key[1], mask),
                    lambda other, what: began.covered[_back(other, what)], gpu,
                )  # fmt: skip
                if cache == "l2" and not in_l2(gpu, mapping):
                    continue
                for one in self._done:
                    if not work.happens_after(one.work) or began.covered[cache].covers(one.work):
                        continue
                    if cache == "l2" and one.dirty is gpu and gpu.profile.xccs == 1:
                        continue  # the stores are in this very cache
                    both = one.stores.get(key, 0) & mask
                    if both:
                        self._raise_stale(cache, work, one, mapping, _address(mapping, key[1], both))

    def _check_dirty(
        self,
        what: str,
        work: QueueWork,
        place: tuple[GpuMapping, int, int],
        covered: Callable[[KfdGpu, str], Covered],
        reader: KfdGpu | None = None,
    ) -> None:
        """Raise if an L2 other than the `reader`'s holds a store to `place` (allocation, chunk, dwords)."""
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
    def _raise_stale(cache: str, work: QueueWork, one: _Stored, mapping: GpuMapping, va: int) -> None:
        raise stale_fault(
            f"{work.reader_of(mapping, va)} may load old bytes through {_NAMES[cache]} at {va:#x}, in "
            f"{mapping}: {one.work.writer_of(mapping, va) or one.work.name} stored there before, and "
            f"{_NAMES[cache]} was not invalidated between; wanted an acquire with {_WANTED[cache]}"
        )

    def _check_host(self, gpu: KfdGpu, began: Dispatch, loads: DispatchLoads, work: QueueWork) -> None:
        """Check a kernel's loads against changes that nobody recorded: stores of the host."""
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
                        raise self._stale(gpu, work, cache, mapping, stale)

    def _stale(
        self, gpu: KfdGpu, work: QueueWork, cache: str, mapping: GpuMapping, stale: Stale
    ) -> QueueFault:
        writer = self._log.writer(_space(gpu).map.find(stale.va), stale, work)
        return stale_fault(
            f"{work.reader_of(mapping, stale.va)} may load old bytes through {_NAMES[cache]} at "
            f"{stale.va:#x}, in {mapping}: {stale.fill.reader} read them, {writer} wrote since, and the "
            f"cache was not invalidated; wanted an acquire with {_WANTED[cache]}"
        )

    def _fill(self, gpu: KfdGpu, loads: DispatchLoads, name: str) -> None:
        """Record the bytes that a kernel's loads leave in the caches; of the scalar cache whole lines."""
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
    """Return whether the L2 of a GPU caches an allocation: the kernel driver's MTYPE for it decides."""
    buffer = _space(gpu).buffers.get(mapping.va)
    if buffer is None:
        return True
    if gpu.profile.target.generation == 9:
        return buffer.kind is MemFlags.VRAM and not buffer.flags & MemFlags.UNCACHED
    return buffer.cached


def _whole_lines(dwords: bytes) -> bytes:
    """Return `dwords` with 0xff for every dword of a scalar-cache line that has a 0xff."""
    rows = (dwords[at : at + _LINE] for at in range(0, len(dwords), _LINE))
    return b"".join(_HELD if 0xFF in row else row for row in rows)


def _space(gpu: KfdGpu) -> GpuSpace:
    assert gpu.space is not None
    return gpu.space


def _changed(gpu: KfdGpu, held: IncoherentCache) -> dict[int, Changed]:
    """Return the pages of which a cache of a GPU holds other bytes than memory."""
    space = _space(gpu)

    def page(va: int, owner: object) -> bytes | None:
        found = space.map.find(va, PAGE)
        return None if found is None or found is not owner else space.map.read(va, PAGE)

    return held.changed(space.number, page)


def _back(gpu: KfdGpu, what: str) -> str:
    return f"{what} of {gpu.index}"


def _address(mapping: GpuMapping, chunk: int, mask: int) -> int:
    """Return the device address of the first dword in a mask of `Masks`, which is not 0."""
    return mapping.va + 4 * (chunk * DWORDS + ((mask & -mask).bit_length() - 1) // 8)


def _dwords(mapping: GpuMapping, chunk: int, mask: int) -> Iterator[int]:
    """Yield the device addresses of the dwords in a mask of `Masks`."""
    first = mapping.va + 4 * DWORDS * chunk
    for dword, byte in enumerate(mask.to_bytes(DWORDS, "little")):
        if byte:
            yield first + 4 * dword
