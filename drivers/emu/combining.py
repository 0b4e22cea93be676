"""Host stores to write-combined memory: ring entries, and what they refer to, that no fence made visible.

The CPU holds such stores in write-combining buffers and drains them in any order, until a fence. Nothing is
held back here: at each fence of the host the queue records what its ring holds, and checksums of what the
entries refer to; the doorbell compares. So a missing fence is found where it is missing, whatever a real CPU
would have done: entries, packets and arguments come before a fence, then the put index, then a fence, then
the doorbell. Memory that is not write-combined needs none on x86. The doorbell page is uncached: nothing is
needed behind it.

Needs of its vendor a `CombinedRing`: which ring, where its put index is, what an entry refers to.

Next: `drivers.nv.emu.machine.combining`, NVIDIA's rings.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from drivers.emu.machine_report import QueueError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Part(NamedTuple):
    """Memory that a ring entry refers to."""

    name: str
    """In words, as the subject of a sentence."""
    checksum: int | None
    """Of what it holds now; None where it needs no fence."""


class CombinedRing(Protocol):
    """A ring as `Combining` needs it; any member may raise `QueueError` where its memory is not mapped."""

    @property
    def slots(self) -> int:
        """How many entries it has."""
        ...

    @property
    def put(self) -> int:
        """The put index that memory holds now."""
        ...

    @property
    def put_name(self) -> str:
        """What the vendor calls it."""
        ...

    @property
    def put_combined(self) -> bool:
        """Whether stores to the put index are write-combined."""
        ...

    @property
    def combined(self) -> bool:
        """Whether stores to the ring are write-combined."""
        ...

    def slot(self, number: int) -> int:
        """Return what an entry holds now."""
        ...

    def stale(self, number: int) -> int:
        """Return what it held when the doorbell last covered it; 0 if it never did."""
        ...

    def parts(self, number: int, raw: int) -> tuple[Part, ...]:
        """Return what an entry that holds `raw` refers to: always the same parts in the same order."""
        ...


class _Seen(NamedTuple):
    """What a fence found of a ring entry that the put index does not cover yet."""

    raw: int
    parts: tuple[Part, ...]


class Combining:
    """One queue's write-combined stores. Thread-safe: fences and doorbells come from any thread."""

    def __init__(self, ring: CombinedRing) -> None:
        self._ring = ring
        self._lock = threading.Lock()
        self._put = 0
        """The put index at the last fence."""
        self._seen: dict[int, _Seen] = {}
        """Slot -> what the last fence before the put index covered it found."""
        self._late: str = ""
        self._open = True

    def close(self) -> None:
        """Stop looking: the queue is freed, and its memory may be."""
        with self._lock:
            self._open = False

    def fence(self) -> None:
        """Record what memory holds now: a fence of the host has made it visible."""
        with self._lock:
            if self._open:
                try:
                    self._note()
                except QueueError:
                    return  # the ring is not mapped any more, which its next doorbell reports

    def _note(self) -> None:
        ring, put = self._ring, self._ring.put
        if put >= ring.slots:
            return  # which the doorbell refuses
        if put != self._put:
            self._publish(put)
        slot, raw = put, ring.slot(put)
        while raw != ring.stale(slot):
            self._seen[slot] = _Seen(raw, ring.parts(slot, raw))
            slot = (slot + 1) % ring.slots
            if slot == put:
                break
            raw = ring.slot(slot)

    def ring(self, first: int, put: int) -> str:
        """Check the entries from `first` to `put` as the doorbell rings; return which fence is missing."""
        ring = self._ring
        with self._lock:
            seen_put, late = self._put, self._late
            if put != self._put and not ring.put_combined:
                self._publish(put)
                late = self._late
            self._late = ""
            self._put = put
            if ring.put_combined and put != seen_put:
                late = late or (
                    f"no fence between the store of {ring.put_name} {put}, in write-combined memory, and the "
                    f"doorbell: the host may fetch up to {seen_put} only"
                )
            late = late or self._changed(first, put)
            self._seen.clear()
        return late

    def _publish(self, put: int) -> None:
        """Check entries that the put index newly covers: what they refer to must have been fenced before."""
        ring = self._ring
        if ring.combined:
            for slot in self._slots(self._put, put):
                raw, seen = ring.slot(slot), self._seen.get(slot)
                if seen is None and raw == ring.stale(slot):
                    break  # written again with what it held, or not at all: what fences found ends here too
                if seen is None or raw != seen.raw:
                    self._late = self._late or (
                        f"no fence between the store of ring entry {slot}, in write-combined memory, and "
                        f"that of {ring.put_name} {put}: the host may fetch what the slot held before"
                    )
        self._put = put

    def _changed(self, first: int, put: int) -> str:
        """Return what the entries refer to and was stored after the last fence."""
        ring = self._ring
        for slot in self._slots(first, put):
            seen = self._seen.get(slot)
            if seen is None:
                continue
            for now, before in zip(ring.parts(slot, ring.slot(slot)), seen.parts, strict=True):
                if now.checksum != before.checksum:
                    return (
                        f"{now.name} was stored and not fenced before {ring.put_name} covered it: it is in "
                        "write-combined memory"
                    )
        return ""

    def _slots(self, first: int, put: int) -> Iterator[int]:
        slot = first
        while slot != put:
            yield slot
            slot = (slot + 1) % self._ring.slots
