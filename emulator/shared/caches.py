"""A model of incoherent caches: the bytes that each cache may hold, and the engine work that wrote since.

`IncoherentCache` holds the bytes of one cache, `WriteLog` the finished engine work of a machine. The vendor
decides which accesses fill, read and invalidate which cache.

`UnflushedStores` records stores of engines that no barrier has made visible to the host yet
(docs/facts/nv-caches.md, rule 5). A queue reports to it stores, waits for idle, and barriers of system scope.

Not here: stores of the host (`combining`). Next: `emulator.nv.engines.caches`, NVIDIA's rules.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from emulator.shared.races import forget_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emulator.shared.memory import GpuMapping
    from emulator.shared.races import QueueWork

PAGE = 4096
_REMEMBERED = 64
"""Finished pieces of engine work that a `WriteLog` keeps."""


class CacheFill(NamedTuple):
    """One read that brought bytes into a cache."""

    number: int
    """Position in the sequence of a machine's reads and writes (`WriteLog.next_number`)."""
    reader: str
    """What read, for reports."""


class Stale(NamedTuple):
    """An address at which a cache holds another value than memory, and the read that cached that value."""

    va: int
    fill: CacheFill


Fills = tuple[tuple[CacheFill, int], ...]
"""Fills in order, the latest last. Each has a mask of the page, 0xff for each byte that no later fill
replaced."""


class Changed(NamedTuple):
    """The difference between a page of memory and its cached copy."""

    page: int
    """The page's number: its address divided by `PAGE`."""
    bits: int
    """The bits that differ, as a little-endian integer over the page."""
    fills: Fills

    def first(self, mask: int) -> Stale | None:
        """Return the first byte with a bit that differs and is set in `mask` (-1: all); None if none is."""
        hit = self.bits & mask
        if not hit:
            return None
        at = ((hit & -hit).bit_length() - 1) // 8
        fill = next(fill for fill, held in self.fills if held >> 8 * at & 0xFF)
        return Stale(self.page * PAGE + at, fill)


@dataclass(slots=True)
class _Page:
    owner: object
    content: int = 0
    """The cached bytes as a little-endian integer; only bytes that a fill covers are valid."""
    fills: Fills = field(default=())

    def keep(self, mask: int) -> None:
        """Drop all bytes outside a mask."""
        self.fills = tuple((fill, rest) for fill, old in self.fills if (rest := old & mask))

    def changed(self, page: int, low: int, now: bytes) -> Changed:
        """Compare with `now`, the contents of memory from byte `low` of the page on."""
        held = 0
        for _, mask in self.fills:
            held |= mask
        other = self.content ^ int.from_bytes(now, "little") << 8 * low
        return Changed(page, other & held & _mask(low, low + len(now)), self.fills)


class IncoherentCache:
    """The contents that one cache may hold, by number of the address space (`VaSpace.number`) and address.

    Bytes stay until they are invalidated or evicted.
    """

    def __init__(self, pages: int | None = None) -> None:
        """Create an empty cache of at most `pages` pages of 4 KiB; None means no limit."""
        self._most = pages
        self._pages: dict[tuple[int, int], _Page] = {}

    def clear(self) -> None:
        """Invalidate the whole cache."""
        self._pages.clear()

    def drop(self, space: int, va: int, size: int) -> None:
        """Invalidate [va, va + size) of an address space."""
        for page, low, high in split_pages(va, size):
            known = self._pages.get((space, page))
            if known is not None:
                known.keep(~_mask(low, high))

    def fill(
        self,
        space: int,
        va: int,
        data: bytes,
        fill: CacheFill,
        *,
        mask: bytes | None = None,
        owner: object = None,
    ) -> None:
        """Cache `data`, which was read at `va`. `mask` has 0xff for each byte that was read; None means all.

        `owner` is the object whose memory it is. A cached page of another owner is dropped first.
        """
        for page, low, high in split_pages(va, len(data)):
            first = page * PAGE + low - va
            part = slice(first, first + high - low)
            got = _mask(low, high) if mask is None else int.from_bytes(mask[part], "little") << 8 * low
            if not got:
                continue
            known = self._pages.pop((space, page), None)
            if known is None or known.owner is not owner:
                known = _Page(owner)
            known.keep(~got)
            known.fills += ((fill, got),)
            now = int.from_bytes(data[part], "little") << 8 * low
            known.content = (known.content & ~got) | (now & got)
            self._pages[space, page] = known  # at the end: eviction takes the page filled longest ago
        while self._most is not None and len(self._pages) > self._most:
            del self._pages[next(iter(self._pages))]

    def stale(self, space: int, va: int, data: bytes) -> Stale | None:
        """Return the first byte of [va, va + len(data)) whose cached value differs from `data`, or None."""
        for page, low, high in split_pages(va, len(data)):
            known = self._pages.get((space, page))
            if known is not None:
                first = page * PAGE + low - va
                found = known.changed(page, low, data[first : first + high - low]).first(-1)
                if found is not None:
                    return found
        return None

    def changed(self, space: int, read: Callable[[int, object], bytes | None]) -> dict[int, Changed]:
        """Compare all cached pages of a space with memory; return those that differ, by page number.

        `read(va, owner)` returns the 4 KiB at `va`, or None if they no longer belong to `owner`. The cache
        then drops that page.
        """
        out = {}
        for key, known in tuple(self._pages.items()):
            number, page = key
            if number != space:
                continue
            now = read(page * PAGE, known.owner)
            if now is None:
                del self._pages[key]
                continue
            changed = known.changed(page, 0, now)
            if changed.bits:
                out[page] = changed
        return out


class _Done(NamedTuple):
    number: int
    work: QueueWork


class WriteLog:
    """Finished engine work of one machine, numbered in one sequence with the reads that filled its caches."""

    def __init__(self) -> None:
        self._done: deque[_Done] = deque(maxlen=_REMEMBERED)
        self._number = 0

    def next_number(self) -> int:
        """Return the next number of the sequence of reads and writes."""
        self._number += 1
        return self._number

    def record(self, work: QueueWork) -> None:
        """Record engine work that has finished."""
        self._done.append(_Done(self.next_number(), work))
        forget_cells([one.work for one in self._done])

    def writer(self, mapping: GpuMapping | None, stale: Stale, running: QueueWork | None) -> str:
        """Describe what wrote an address after the stale read: `running` work, or the latest recorded work.

        `mapping` is the allocation that holds the address, None if there is none. Without a known writer the
        text says so.
        """
        if mapping is not None:
            since = [one.work for one in self._done if one.number > stale.fill.number]
            for work in (*([] if running is None else [running]), *reversed(since)):
                name = work.writer_of(mapping, stale.va)
                if name:
                    return name
        return "no recorded engine work (so usually the host)"


def split_pages(va: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield for each page of a range: its number, and the range's first and end byte within the page."""
    for page in range(va // PAGE, -(-(va + size) // PAGE)):
        yield page, max(va - page * PAGE, 0), min(va + size - page * PAGE, PAGE)


def _mask(low: int, high: int) -> int:
    return ((1 << 8 * (high - low)) - 1) << 8 * low


class UnflushedStores:
    """Stores of one queue's engines that the host may not see even when it sees their work as done."""

    def __init__(self) -> None:
        self._running = self._done = ""

    def add(self, what: str) -> None:
        """Record stores of `what`, a description of work that does not flush them itself."""
        self._running = what

    def idle(self) -> None:
        """Record that the queue waited for its engines: a later release signals that their work is done."""
        self._done = self._running or self._done
        self._running = ""

    def flushed(self) -> None:
        """Record a barrier of system scope: all stores are visible."""
        self._running = self._done = ""

    @property
    def any(self) -> str:
        """A description of work with stores that are not flushed; "" if there is none."""
        return self._running or self._done

    @property
    def done(self) -> str:
        """A description of work with unflushed stores that the queue has waited for; "" if there is none."""
        return self._done
