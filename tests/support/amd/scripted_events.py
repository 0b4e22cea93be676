"""Events of the scripted KFD: creation, waiting, interrupts and exception reports.

Not here: page faults, which also stop queues (`scripted_queues`). Next: `scripted`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.amd.layouts import events
from drivers.amd.layouts.kfd import MemFlags
from drivers.kernel import view_at
from tests.support.amd.scripted_rules import demand

if TYPE_CHECKING:
    from tests.support.amd.scripted_memory import GpuMemory


@dataclass(slots=True)
class Event:
    """An event of the process; `payload` is the data of an exception event."""

    kind: int
    fired: bool = False
    payload: bytes = b""


class EventTable:
    """The events of a process, and its event page; `page_given` if another library gave the page before."""

    def __init__(self, memory: GpuMemory, *, page_given: bool) -> None:
        self._memory = memory
        self.events: dict[int, Event] = {}
        """Id -> event."""
        self.page_given = page_given
        self._next_signal = itertools.count(1)
        self._next_other = itertools.count(events.FIRST_OTHER_EVENT)

    def create(self, asked: events.kfd_ioctl_create_event_args, block: bytearray) -> None:
        """CREATE_EVENT: the first signal event brings the event page."""
        if asked.event_page_offset:
            demand(not self.page_given, "a second event page")
            page = self._memory.buffer(asked.event_page_offset)
            demand(page.size >= events.EVENT_PAGE_BYTES, "event page too small")
            demand(bool(page.flags & MemFlags.GTT), "the event page lies in GTT")
            self._memory.event_page, self.page_given = asked.event_page_offset, True
            view_at(page.va, page.size)[:] = b"\xff" * page.size
        demand(self.page_given, "no event page yet")
        signal = asked.event_type == events.EventType.SIGNAL
        number = next(self._next_signal if signal else self._next_other)
        self.events[number] = Event(asked.event_type)
        slot = number if signal else 0
        type(asked).store(block, event_id=number, event_trigger_data=slot, event_slot_index=slot)

    def event(self, number: int) -> Event:
        """Return an event by its id; EINVAL for an unknown one."""
        demand(number in self.events, f"no event {number:#x}")
        return self.events[number]

    def destroy(self, asked: events.kfd_ioctl_destroy_event_args, _: bytearray) -> None:
        """DESTROY_EVENT."""
        self.event(asked.event_id)
        del self.events[asked.event_id]

    def set(self, asked: events.kfd_ioctl_set_event_args, _: bytearray) -> None:
        """SET_EVENT: fire a signal event from the host."""
        event = self.event(asked.event_id)
        demand(event.kind == events.EventType.SIGNAL, "not a signal event")
        event.fired = True

    def wait(self, asked: events.kfd_ioctl_wait_events_args, block: bytearray) -> None:
        """WAIT_EVENTS: report and reset the fired events; TIMEOUT at once if there is none."""
        layout = events.kfd_event_data
        data = view_at(asked.events_ptr, asked.num_events * layout.SIZE)
        waited = [
            self.event(layout.from_bytes(data, i * layout.SIZE).event_id) for i in range(asked.num_events)
        ]
        fired = False
        for index, event in enumerate(waited):
            if event.fired:
                event.fired, fired = False, True
                payload = event.payload.ljust(32, b"\0")
                layout.store(data, index * layout.SIZE, payload=payload)
        result = events.WaitResult.COMPLETE if fired else events.WaitResult.TIMEOUT
        type(asked).store(block, wait_result=result)

    def interrupt(self, number: int) -> None:
        """Handle a GPU interrupt with an event id: the event fires if its slot in the page was written."""
        handle = self._memory.event_page
        assert handle is not None, "an interrupt before the event page exists"
        page = self._memory.buffers[handle]
        slot = view_at(page.va + number * events.EVENT_SLOT_BYTES, events.EVENT_SLOT_BYTES).cast("Q")
        if slot[0] != events.UNSIGNALLED:
            slot[0] = events.UNSIGNALLED
            self.event(number).fired = True

    def report(self, kind: events.EventType, payload: bytes) -> None:
        """Fire all events of a kind, with the data of the exception."""
        for event in self.events.values():
            if event.kind == kind:
                event.fired, event.payload = True, payload
