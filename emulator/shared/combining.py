"""The check of fences for write-combined memory: ring entries and their targets must be fenced in order.

The CPU holds stores to write-combined memory in buffers, and drains the buffers in any order until a fence.
The emulator does not delay stores. Instead, at each fence of the CPU the check records the contents of the
ring and checksums of the memory that its entries refer to. At the doorbell it compares. This finds a missing
fence whatever a real CPU would have done. The required order: entries, packets and arguments; a fence; the
put index; a fence; the doorbell. Memory that is not write-combined needs no fence on x86. The doorbell page
is uncached and needs no fence after the store.

Not found:

- a fence by a thread other than the one that stored: on hardware it does not drain the other CPU's buffers;
- a late store to the target of an entry whose value equals the slot's previous value: checksums of such
  targets would cost time at every submission;
- a late store to the target of an entry that was stored after the last fence, in a ring that needs no fence;
- memory that a kernel or a copy reads besides its arguments.

The vendor supplies a `CombinedRing`: the ring, its put index, and the memory that an entry refers to. "The
host" in messages is the GPU's host interface, which fetches ring entries.

Not here: what the entries of a ring refer to. Next: `emulator.nv.engines.combining`, NVIDIA's rings.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from emulator.shared.machine_report import QueueError

if TYPE_CHECKING:
    from collections.abc import Iterator


class EntryPart(NamedTuple):
    """Memory that a ring entry refers to."""

    name: str
    """A noun phrase for messages, used as the subject of a sentence."""
    checksum: int | None
    """Checksum of the current contents; None if the memory needs no fence."""


class Missing(NamedTuple):
    """A missing fence."""

    text: str
    """A description of the store without a fence."""
    hazard: bool
    """Whether a fence before the doorbell made all stores visible. Then the GPU sees old contents only if it
    fetches before the doorbell."""


class CombinedRing(Protocol):
    """A ring as `WriteCombining` reads it. Any member may raise `QueueError` if its memory is not mapped."""

    @property
    def slots(self) -> int:
        """The number of entries."""

    @property
    def put(self) -> int:
        """The put index in memory."""

    @property
    def put_name(self) -> str:
        """The vendor's name of the put index, for messages."""

    @property
    def put_combined(self) -> bool:
        """Whether stores to the put index are write-combined."""

    @property
    def combined(self) -> bool:
        """Whether stores to the ring are write-combined."""

    def slot(self, number: int) -> int:
        """Return the raw value of an entry in memory."""

    def stale(self, number: int) -> int:
        """Return the value of the entry when a doorbell last covered it; 0 if none did."""

    def parts(self, number: int, raw: int) -> tuple[EntryPart, ...]:
        """Return the memory that an entry of value `raw` refers to; their number depends on `raw` alone."""


class _Fenced(NamedTuple):
    """The state, at a fence, of a ring entry that the put index did not cover yet."""

    raw: int
    parts: tuple[EntryPart, ...]


class WriteCombining:
    """The fence check of one queue. Thread-safe: fences and doorbells come from any thread."""

    def __init__(self, ring: CombinedRing) -> None:
        self._ring = ring
        self._lock = threading.Lock()
        self._put = 0
        """The put index at the last fence."""
        self._rung = 0
        """The put index at the last doorbell."""
        self._fenced: dict[int, _Fenced] = {}
        """Slot -> its state at the last fence before the put index covered it."""
        self._missing: Missing | None = None
        self._open = True

    def close(self) -> None:
        """Stop reading the ring: the queue is freed, and its memory may be, too."""
        with self._lock:
            self._open = False

    def fence(self) -> None:
        """Record the ring's state: a fence of the host has made all earlier stores visible."""
        with self._lock:
            if self._open:
                try:
                    self._note()
                except QueueError:
                    return  # the ring is unmapped; the next doorbell reports it

    def _note(self) -> None:
        """Record the entries that the stores before this fence have written."""
        ring, put = self._ring, self._ring.put
        if put >= ring.slots:
            return  # an invalid index, which the doorbell refuses
        if put != self._put:
            self._publish(put, hazard=True)
        fenced: dict[int, _Fenced] = {}
        if put != self._rung:  # covered, and not rung yet: what the fence before the put index saw counts
            fenced = {at: self._fenced[at] for at in self._slots(self._rung, put) if at in self._fenced}
        slot, raw = put, ring.slot(put)
        while raw != ring.stale(slot):
            fenced[slot] = _Fenced(raw, ring.parts(slot, raw))
            slot = (slot + 1) % ring.slots
            if slot == put:
                break
            raw = ring.slot(slot)
        self._fenced = fenced

    def overlook(self) -> None:
        """Treat the current contents of memory that ring entries refer to as those of the last fence.

        Tools call it after they change memory that the driver has written.
        """
        with self._lock:
            for slot, seen in self._fenced.items():
                try:
                    self._fenced[slot] = seen._replace(parts=self._ring.parts(slot, seen.raw))
                except QueueError:
                    continue  # unmapped by the change; the doorbell reports it

    def check_doorbell(self, first: int, put: int) -> Missing | None:
        """Check the entries [first, put), modulo the ring's length, at a doorbell.

        Returns a missing fence, or None. One that the GPU can certainly observe comes before a hazard. Raises
        `QueueError` if memory of the ring is not mapped.
        """
        ring = self._ring
        with self._lock:
            seen_put = self._put
            if put != self._put and not ring.put_combined:
                self._publish(put, hazard=False)
            missing, self._missing = self._missing, None
            self._put = self._rung = put
            certain = self._changed(first, put)
            if ring.put_combined and put != seen_put:
                certain = (
                    f"no fence between the store of {ring.put_name} {put}, in write-combined memory, and the "
                    f"doorbell: the host may fetch up to {seen_put} only"
                )
            if certain and (missing is None or missing.hazard):
                missing = Missing(certain, hazard=False)
            for slot in self._slots(first, put):
                self._fenced.pop(slot, None)
        return missing

    def _publish(self, put: int, *, hazard: bool) -> None:
        """Check the entries that the put index newly covers: a fence must precede the store of the index."""
        ring = self._ring
        if ring.combined:
            for slot in self._slots(self._put, put):
                raw, seen = ring.slot(slot), self._fenced.get(slot)
                if seen is None and raw == ring.stale(slot):
                    break  # unchanged since the last doorbell: fences recorded nothing from here on
                if seen is None or raw != seen.raw:
                    text = (
                        f"no fence between the store of ring entry {slot}, in write-combined memory, and "
                        f"that of {ring.put_name} {put}: the host may fetch the old contents of the slot"
                    )
                    self._missing = self._missing or Missing(text, hazard=hazard)
        self._put = put

    def _changed(self, first: int, put: int) -> str:
        """Return a message on memory of the entries that was stored after the last fence, or ""."""
        ring = self._ring
        for slot in self._slots(first, put):
            seen = self._fenced.get(slot)
            raw = ring.slot(slot)
            if seen is None or raw != seen.raw:  # the latter in a ring that needs no fence
                continue
            for now, before in zip(ring.parts(slot, raw), seen.parts, strict=True):
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
