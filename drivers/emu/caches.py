"""A model of incoherent caches: a second view of memory, as it was when read, and which work wrote since.

Needs of its vendor who fills, reads and invalidates which cache, and when: those rules are the vendor's.

Next: `drivers.nv.emu.machine.caches`, NVIDIA's rules.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from drivers.emu.races import forget_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivers.emu.memory import Mapping
    from drivers.emu.races import Work

PAGE = 4096
_REMEMBERED = 64


class Fill(NamedTuple):
    """One reading that brought bytes into a cache."""

    number: int
    """Readings and writings of a machine are counted together."""
    reader: str


class Stale(NamedTuple):
    """Where a cache holds something else than memory."""

    va: int
    fill: Fill


Fills = tuple[tuple[Fill, int], ...]
"""The latest last, each with a mask of the bytes that it brought and none has since."""


class Changed(NamedTuple):
    """What differs between a page and what is held of it."""

    page: int
    bits: int
    fills: Fills

    def first(self, mask: int) -> Stale | None:
        """Return the first byte of a mask that differs."""
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
    """The bytes, as a number; only those that some fill covers mean anything."""
    fills: Fills = field(default=())

    def keep(self, mask: int) -> None:
        """Hold no more than these bytes."""
        self.fills = tuple((fill, rest) for fill, old in self.fills if (rest := old & mask))

    def changed(self, page: int, low: int, now: bytes) -> Changed:
        """Compare with what lies in memory from byte `low` of the page on."""
        held = 0
        for _, mask in self.fills:
            held |= mask
        other = self.content ^ int.from_bytes(now, "little") << 8 * low
        return Changed(page, other & held & _mask(low, low + len(now)), self.fills)


class IncoherentCache:
    """What one cache may hold, by address space and address, until it is invalidated or evicted."""

    def __init__(self, pages: int | None = None) -> None:
        """`pages` is how many pages of 4 KiB are remembered; None is all."""
        self._most = pages
        self._pages: dict[tuple[int, int], _Page] = {}

    def clear(self) -> None:
        """Drop everything."""
        self._pages.clear()

    def drop(self, space: int, va: int, size: int) -> None:
        """Drop [va, va + size)."""
        for page, low, high in cut(va, size):
            known = self._pages.get((space, page))
            if known is not None:
                known.keep(~_mask(low, high))

    def fill(
        self, space: int, va: int, data: bytes, fill: Fill, *, mask: bytes | None = None, owner: object = None
    ) -> None:
        """Take what was read at `va`; `mask` has 0xff for each byte of it that was, without it all were.

        Contents of another `owner` are dropped.
        """
        for page, low, high in cut(va, len(data)):
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
            self._pages[space, page] = known  # behind those that were filled before
        while self._most is not None and len(self._pages) > self._most:
            del self._pages[next(iter(self._pages))]

    def stale(self, space: int, va: int, data: bytes) -> Stale | None:
        """Return where what is held of [va, va + len(data)) first differs from what lies there now."""
        for page, low, high in cut(va, len(data)):
            known = self._pages.get((space, page))
            if known is not None:
                first = page * PAGE + low - va
                found = known.changed(page, low, data[first : first + high - low]).first(-1)
                if found is not None:
                    return found
        return None

    def changed(self, space: int, read: Callable[[int, object], bytes | None]) -> dict[int, Changed]:
        """Compare all that is held of a space with memory; returns the pages that differ, by number.

        `read` returns the page at an address, or None where it is no longer its owner's: that entry is
        dropped.
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
    work: Work


class WriteLog:
    """Finished engine work of one machine, numbered together with the readings that filled its caches."""

    def __init__(self) -> None:
        self._done: deque[_Done] = deque(maxlen=_REMEMBERED)
        self._number = 0

    def count(self) -> int:
        """Return the number of a reading or writing, above those of all before it."""
        self._number += 1
        return self._number

    def wrote(self, work: Work) -> None:
        """Take note of engine work that is done."""
        self._done.append(_Done(self.count(), work))
        forget_cells([one.work for one in self._done])

    def writer(self, mapping: Mapping | None, stale: Stale, running: Work | None) -> str:
        """Return what wrote an address since it was read: `running` work, or the last that is remembered."""
        if mapping is not None:
            since = [one.work for one in self._done if one.number > stale.fill.number]
            for work in (*([] if running is None else [running]), *reversed(since)):
                name = work.wrote(mapping, stale.va)
                if name:
                    return name
        return "no engine work that is remembered (so the host, as a rule)"


def cut(va: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Cut a range into pages: number, its first byte and the one behind its last."""
    for page in range(va // PAGE, -(-(va + size) // PAGE)):
        yield page, max(va - page * PAGE, 0), min(va + size - page * PAGE, PAGE)


def _mask(low: int, high: int) -> int:
    return ((1 << 8 * (high - low)) - 1) << 8 * low
