"""Events of the emulated kernel driver: the signal page, waits, interrupts, memory and hardware exceptions.

Semantics of Linux 6.12 kfd_events.c: a waiter is marked by every `set` that it sees; an event without
waiters stays signalled; an auto-reset event goes unsignalled when a wait begins with it or a set finds
waiters. The age of an event grows with each set.

Not here: the structures of the calls (`ioctls_events`).
"""

from __future__ import annotations

import errno
import itertools
import threading
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.shared.backing import Backing

_SIGNAL_LIKE: Final = (EventType.SIGNAL, EventType.DEBUG)


@dataclass(slots=True, eq=False)
class KfdEvent:
    """One event."""

    number: int
    kind: EventType
    auto_reset: bool
    signalled: bool = False
    age: int = 1
    told: bool = False
    """Whether a wait found it signalled already, and it stayed so."""
    payload: bytes = b""
    """The payload of a MEMORY or HW_EXCEPTION event."""
    waiters: list[EventWaiter] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class EventWaiter:
    """One event in a wait."""

    event: KfdEvent | None
    """None once the event was destroyed."""
    asks_age: bool = False
    activated: bool = False


class KfdEvents:
    """The events of one process. `changed` guards them; waits sleep on it, no other lock held."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.table: dict[int, KfdEvent] = {}
        self.page: Backing | None = None
        """The signal page: a slot of 8 bytes for each SIGNAL event."""
        self.page_handle: int | None = None
        """The handle of the memory that the process gave for it; None where the kernel made it."""

    def set_page(self, page: Backing, handle: int | None) -> None:
        """Use these pages; every slot becomes unsignalled."""
        self.page, self.page_handle = page, handle
        page.view[:EVENT_PAGE_BYTES] = b"\xff" * EVENT_PAGE_BYTES

    def create(self, kind: EventType, *, auto_reset: bool) -> KfdEvent:
        """Make an event."""
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
        """Return an event, or refuse."""
        event = self.table.get(number)
        if event is None:
            refuse(errno.EINVAL, f"there is no event {number:#x}")
        if signal and event.kind is not EventType.SIGNAL:
            refuse(errno.EINVAL, f"event {number:#x} is a {event.kind.name} event: only the kernel sets it")
        return event

    def destroy(self, number: int) -> None:
        """Remove an event; waits for it fail."""
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
            event.signalled = event.told = False

    def fire(self, kind: EventType, payload: bytes) -> int:
        """Set every event of a kind with its data; returns how many there were."""
        with self.changed:
            found = [event for event in self.table.values() if event.kind is kind]
            for event in found:
                event.payload = payload
                self.set(event)
            return len(found)

    def names(self, context: int, bits: int) -> bool:
        """Return whether the low `bits` of a context are those of a signal event."""
        mask = (1 << bits) - 1
        with self.changed:
            return any(
                one.number & mask == context & mask
                for one in self.table.values()
                if one.number < FIRST_OTHER_EVENT
            )

    def interrupt(self, context: int, bits: int) -> list[int]:
        """Take an interrupt that carries the low `bits` of an event's number; returns the events it set.

        An event is set if its slot is not unsignalled; the slot becomes so. Where the number matches no such
        event, all slots are looked at.
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
        """Sleep until one of (event, age last seen) fired, or all; an age of 0 is not asked for.

        Returns the result, and for each event that fired (event, waiter), None for the others. Called with no
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
