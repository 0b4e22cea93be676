"""Events of the emulated kernel driver: the signal page, waits, interrupts, memory and hardware exceptions.

The semantics are those of Linux 6.12 kfd_events.c. A set activates every waiter of the event, and adds 1 to
the event's age. It leaves the event signalled, except an auto-reset event that has waiters. A wait that
begins with a signalled auto-reset event makes the event unsignalled.

A refused call raises `CallRefused`, with the errno of Linux.

Not here: the structures of the calls (`ioctls`). Next: `process`, which owns the events.
"""

from __future__ import annotations

import errno
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.events import (
    EVENT_PAGE_BYTES,
    EVENT_SLOT_BYTES,
    EVENT_SLOTS,
    FIRST_OTHER_EVENT,
    UNSIGNALLED,
    WAIT_FOREVER,
    EventType,
    WaitResult,
)
from emulator.amd.kfd.refusal import refuse
from hcq.locks import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.shared.backing import Backing

_SIGNAL_LIKE: Final = (EventType.SIGNAL, EventType.DEBUG)
"""The kinds of events that have a slot of the signal page."""


@dataclass(slots=True, eq=False)
class KfdEvent:
    """One event."""

    number: int
    kind: EventType
    auto_reset: bool
    signalled: bool = False
    age: int = 1
    """1 plus the number of sets."""
    stays: bool = False
    """Whether a wait began with the event signalled, and nothing has reset it since."""
    payload: bytes = b""
    """The data of a MEMORY or HW_EXCEPTION event that fired; b"" before."""
    waiters: list[EventWaiter] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class EventWaiter:
    """One event of one wait."""

    event: KfdEvent | None
    """None after the event was destroyed."""
    asks_age: bool = False
    """Whether the caller gave the age that it saw last, and gets the new one."""
    activated: bool = False
    """Whether the event fired for this wait."""


class KfdEvents:
    """The events of one process. `changed` guards them; waits sleep on it, and hold no other lock."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.table: dict[int, KfdEvent] = {}
        """Number -> event. SIGNAL and DEBUG events have numbers below `EVENT_SLOTS`, others from
        `FIRST_OTHER_EVENT` on."""
        self.page: Backing | None = None
        """The signal page: a slot of 8 bytes for each number below `EVENT_SLOTS`; None before the first
        event."""
        self.page_handle: int | None = None
        """The handle of the buffer that the process gave as the page; None if the kernel allocated it."""

    def set_page(self, page: Backing, handle: int | None) -> None:
        """Use `page` as the signal page, and make every slot unsignalled. `handle`: see `page_handle`."""
        self.page, self.page_handle = page, handle
        page.view[:EVENT_PAGE_BYTES] = b"\xff" * EVENT_PAGE_BYTES

    def create(self, kind: EventType, *, auto_reset: bool) -> KfdEvent:
        """Create an event with the lowest free number. Refuses with ENOSPC if all slots are used."""
        with self.changed:
            if kind in _SIGNAL_LIKE:
                free = (one for one in range(1, EVENT_SLOTS) if one not in self.table)
                number = next(free, 0)
                if not number:
                    refuse(errno.ENOSPC, f"all {EVENT_SLOTS - 1} signal events are in use")
            else:
                number = next(one for one in itertools.count(FIRST_OTHER_EVENT) if one not in self.table)
            event = self.table[number] = KfdEvent(number, kind, auto_reset)
            if kind in _SIGNAL_LIKE:
                self._store(number, UNSIGNALLED)
            return event

    def find(self, number: int, *, signal: bool = False) -> KfdEvent:
        """Return an event. Refuses with EINVAL an unknown number, and with `signal` any kind but SIGNAL."""
        event = self.table.get(number)
        if event is None:
            refuse(errno.EINVAL, f"there is no event {number:#x}")
        if signal and event.kind is not EventType.SIGNAL:
            refuse(errno.EINVAL, f"event {number:#x} is a {event.kind.name} event: only the kernel sets it")
        return event

    def destroy(self, number: int) -> None:
        """Remove an event; waits for it end with FAIL. Refuses with EINVAL an unknown number."""
        with self.changed:
            event = self.find(number)
            del self.table[number]
            for waiter in event.waiters:
                waiter.event = None
            self.changed.notify_all()

    def set(self, event: KfdEvent) -> None:
        """Signal an event."""
        with self.changed:
            event.signalled = not event.auto_reset or not event.waiters
            event.age += 1
            for waiter in event.waiters:
                waiter.activated = True
            self.changed.notify_all()

    def reset(self, event: KfdEvent) -> None:
        """Make an event unsignalled."""
        with self.changed:
            event.signalled = event.stays = False

    def fire(self, kind: EventType, payload: bytes) -> int:
        """Set every event of a kind, with `payload` as its data; return how many there are."""
        with self.changed:
            found = [event for event in self.table.values() if event.kind is kind]
            for event in found:
                event.payload = payload
                self.set(event)
            return len(found)

    def names(self, context: int, bits: int) -> bool:
        """Return whether the low `bits` of a context are those of a SIGNAL or DEBUG event's number."""
        mask = (1 << bits) - 1
        with self.changed:
            return any(
                one.number & mask == context & mask
                for one in self.table.values()
                if one.number < FIRST_OTHER_EVENT
            )

    def interrupt(self, context: int, bits: int) -> list[int]:
        """Handle an interrupt that carries the low `bits` of an event's number.

        Returns the numbers of the events that it set. An event can be set if its slot does not hold
        `UNSIGNALLED`; the slot then gets that value. The first such event with a matching number is set. If
        there is none, or `context` is 0, all such events are set.
        """
        mask = (1 << bits) - 1
        with self.changed:
            signals = [one for one in self.table.values() if one.number < FIRST_OTHER_EVENT]
            hit = [
                one
                for one in signals
                if context and one.number & mask == context & mask and self._load(one.number) != UNSIGNALLED
            ]
            fired = hit[:1] or [one for one in signals if self._load(one.number) != UNSIGNALLED]
            for event in fired:
                self._store(event.number, UNSIGNALLED)
                self.set(event)
            return [event.number for event in fired]

    def _load(self, number: int) -> int:
        at = number * EVENT_SLOT_BYTES
        if self.page is None:
            return UNSIGNALLED
        return int.from_bytes(self.page.view[at : at + EVENT_SLOT_BYTES], "little")

    def _store(self, number: int, value: int) -> None:
        at = number * EVENT_SLOT_BYTES
        if self.page is not None:
            self.page.view[at : at + EVENT_SLOT_BYTES] = value.to_bytes(EVENT_SLOT_BYTES, "little")

    def wait(
        self, wanted: Sequence[tuple[int, int]], *, every: bool, timeout_ms: int
    ) -> tuple[WaitResult, list[tuple[KfdEvent, EventWaiter] | None]]:
        """Sleep until one of the events fired, or all if `every`. `wanted` has (number, age last seen).

        A SIGNAL event whose age differs from the given one counts as fired; an age of 0 is not compared.
        `timeout_ms` of `WAIT_FOREVER` has no limit. Returns the result, and for each event (event, waiter) if
        it fired and the wait is complete, else None. Refuses with EINVAL an unknown number. Called with no
        lock held.
        """
        deadline = None if timeout_ms == WAIT_FOREVER else time.monotonic() + timeout_ms / 1000
        with self.changed:
            events = [self.find(number) for number, _ in wanted]
            waiters = [self._begin(event, age) for event, (_, age) in zip(events, wanted, strict=True)]
            try:
                result = self._sleep(waiters, every=every, deadline=deadline)
            finally:
                for event, waiter in zip(events, waiters, strict=True):
                    event.waiters.remove(waiter)
            fired = [
                (event, waiter) if waiter.activated and result is WaitResult.COMPLETE else None
                for event, waiter in zip(events, waiters, strict=True)
            ]
            return result, fired

    @staticmethod
    def _begin(event: KfdEvent, age: int) -> EventWaiter:
        """Add a waiter to an event, activated if the event is signalled or has another age."""
        waiter = EventWaiter(event, activated=event.signalled)
        event.signalled = event.signalled and not event.auto_reset
        if age and event.kind is EventType.SIGNAL:
            waiter.asks_age = True
            waiter.activated = waiter.activated or age != event.age
        event.waiters.append(waiter)
        return waiter

    def _sleep(self, waiters: Sequence[EventWaiter], *, every: bool, deadline: float | None) -> WaitResult:
        while True:
            if any(waiter.event is None for waiter in waiters):
                return WaitResult.FAIL
            done = sum(waiter.activated for waiter in waiters)
            if done == len(waiters) if every else done:
                return WaitResult.COMPLETE
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return WaitResult.TIMEOUT
            self.changed.wait(left)
