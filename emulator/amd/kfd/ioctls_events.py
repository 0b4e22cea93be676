"""The ioctls of events: create, destroy, set, reset, wait.

Each function takes the call in progress and its decoded structure, and refuses with the errno of Linux
(`CallRefused`). Source: docs/sources-amd.md, KFD ioctls.

Not here: dispatch by number (`ioctls`). Next: `events`, the state of events.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.events import (
    EVENT_PAGE_BYTES,
    EventType,
    WaitResult,
    kfd_event_data,
    kfd_hsa_signal_event_data,
    kfd_ioctl_create_event_args,
    kfd_ioctl_destroy_event_args,
    kfd_ioctl_reset_event_args,
    kfd_ioctl_set_event_args,
    kfd_ioctl_wait_events_args,
)
from drivers.amd.layouts.kfd import MemFlags
from emulator.amd.kfd.refusal import refuse
from emulator.shared.backing import Backing

if TYPE_CHECKING:
    from emulator.amd.kfd.events import EventWaiter, KfdEvent
    from emulator.amd.kfd.files import Asked

_MOST_EVENTS: Final = 4096
"""Events in one wait."""
_FIRED: Final = (EventType.SIGNAL, EventType.HW_EXCEPTION, EventType.MEMORY)
"""The kinds of events that the emulated kernel sets."""
_SIGNAL_LIKE: Final = (EventType.SIGNAL, EventType.DEBUG)


def create(ask: Asked, args: kfd_ioctl_create_event_args) -> None:
    """Run CREATE_EVENT. Answers the event's number, for signal events also as trigger and slot."""
    events = ask.process.events
    if int(args.event_type) not in frozenset(EventType):
        refuse(errno.EINVAL, f"event type {int(args.event_type)} is unknown")
    if args.event_page_offset:
        _take_page(ask, args.event_page_offset)
    if args.event_type not in _FIRED:
        ask.process.hardware.lint(f"nothing fires {EventType(args.event_type).name} events")
    if int(args.auto_reset) > 1:
        ask.process.hardware.report_unverified(f"auto_reset is {int(args.auto_reset):#x}: 0 or 1")
    signal = args.event_type in _SIGNAL_LIKE
    if signal and events.page is None:
        events.set_page(Backing.new(ask.process.linux, EVENT_PAGE_BYTES, "signal page of the kernel"), None)
        ask.process.hardware.report_unverified(
            "a signal event without a signal page: the GPU cannot reach the page that the kernel allocates"
        )
    event = events.create(EventType(args.event_type), auto_reset=bool(args.auto_reset))
    ask.answer(event_id=event.number)
    if signal:
        ask.answer(event_trigger_data=event.number, event_slot_index=event.number)


def _take_page(ask: Asked, handle: int) -> None:
    """Use the caller's buffer as the signal page.

    Refuses a second page, and small or other memory than GTT.
    """
    events = ask.process.events
    if events.page is not None:
        refuse(errno.EINVAL, "the process has a signal page already")
    buffer = ask.process.buffer(handle, errno.EINVAL)
    if buffer.kind is not MemFlags.GTT or buffer.backing is None:
        refuse(errno.EINVAL, f"a signal page lies in GTT, not in {buffer}")
    if buffer.size < EVENT_PAGE_BYTES:
        refuse(errno.EINVAL, f"a signal page has {EVENT_PAGE_BYTES} bytes at least, not {buffer.size}")
    events.set_page(buffer.backing, handle)


def destroy(ask: Asked, args: kfd_ioctl_destroy_event_args) -> None:
    """Run DESTROY_EVENT; waits for the event end with FAIL."""
    ask.process.events.destroy(args.event_id)


def set_(ask: Asked, args: kfd_ioctl_set_event_args) -> None:
    """Run SET_EVENT, for signal events only."""
    events = ask.process.events
    events.set(events.find(args.event_id, signal=True))


def reset(ask: Asked, args: kfd_ioctl_reset_event_args) -> None:
    """Run RESET_EVENT, for signal events only."""
    events = ask.process.events
    events.reset(events.find(args.event_id, signal=True))


def wait(ask: Asked, args: kfd_ioctl_wait_events_args) -> None:
    """Run WAIT_EVENTS; called without the machine's lock, because it sleeps."""
    user, size = ask.process.user, kfd_event_data.SIZE
    if args.num_events > _MOST_EVENTS:
        refuse(errno.ENOMEM, f"{args.num_events} events in one wait")
    with ask.kernel.lock:
        raw = user.read(args.events_ptr, size * args.num_events)
    data = [kfd_event_data.from_bytes(raw, at * size) for at in range(args.num_events)]
    aged = ask.process.kernel.has("event_age")
    wanted = [
        (one.event_id, kfd_hsa_signal_event_data.from_bytes(one.payload).last_event_age if aged else 0)
        for one in data
    ]
    _check_wait(ask, [number for number, _ in wanted])
    result, fired = ask.process.events.wait(wanted, every=bool(args.wait_for_all), timeout_ms=args.timeout)
    with ask.kernel.lock:
        for at, found in enumerate(fired):
            if found is not None:
                user.write(args.events_ptr + at * size, _payload(*found))
    ask.answer(wait_result=int(result))
    if result is WaitResult.FAIL:
        ask.process.hardware.advise("an event was destroyed while it was waited for")


def _check_wait(ask: Asked, numbers: list[int]) -> None:
    """Report a wait for signals that a fault does not end, and a repeated wait for a set signal."""
    events, report = ask.process.events, ask.process.hardware.report_unverified
    with ask.kernel.lock, events.changed:
        found = [events.table[number] for number in numbers if number in events.table]
        kinds = {event.kind for event in found}
        if EventType.SIGNAL not in kinds:
            return
        missing = [kind.name for kind in (EventType.MEMORY, EventType.HW_EXCEPTION) if kind not in kinds]
        if missing:
            report(f"a wait without the {' and the '.join(missing)} event, which ends it at a fault")
        for event in found:
            stays = event.kind is EventType.SIGNAL and event.signalled and not event.auto_reset
            if stays and event.stays:
                report(f"event {event.number:#x} stays signalled: nothing resets it, and waits do not sleep")
            event.stays = stays


def _payload(event: KfdEvent, waiter: EventWaiter) -> bytes:
    """Return the bytes that the kernel writes for an event that fired; b"" if it leaves the caller's."""
    if event.kind is not EventType.SIGNAL:
        return event.payload
    return kfd_hsa_signal_event_data.pack(last_event_age=event.age) if waiter.asks_age else b""
