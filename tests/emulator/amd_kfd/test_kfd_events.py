"""Events: the signal page, waits, ages, interrupts."""

from __future__ import annotations

import errno
import threading
import time
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import events as ev
from drivers.amd.layouts import kfd
from drivers.amd.layouts.events import EVENT_PAGE_BYTES, EventType, WaitResult
from drivers.amd.layouts.kfd import Call, MmapOffset, MmapType
from hcq.errors import DriverError
from tests.emulator.amd_kfd.caller import PAGE, SYSTEM, VRAM
from tests.facts import amd_errnos

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.layout import Struct
    from tests.emulator.amd_kfd.caller import Caller, Memory

ERRNOS = amd_errnos.ERRNOS
CREATE = Call.CREATE_EVENT, ev.kfd_ioctl_create_event_args
NONE = (1 << 64) - 1


def page_of(caller: Caller) -> tuple[Memory, memoryview]:
    memory = caller.memory(EVENT_PAGE_BYTES)
    return memory, caller.see(memory).cast("Q")


def test_the_first_event_hands_over_the_page(caller: Caller) -> None:
    memory, slots = page_of(caller)
    event = caller.event(page=memory.handle)
    assert (event.event_id, event.event_trigger_data, event.event_slot_index) == (1, 1, 1)
    assert set(slots) == {NONE}
    again = caller.refused(*CREATE, event_page_offset=memory.handle)
    assert again == ERRNOS["CREATE_EVENT"]["second signal page"]
    freed = caller.refused(
        Call.FREE_MEMORY_OF_GPU, kfd.kfd_ioctl_free_memory_of_gpu_args, handle=memory.handle
    )
    assert freed == ERRNOS["FREE_MEMORY_OF_GPU"]["signal page"]
    assert caller.event(EventType.MEMORY).event_id == 0x4000_0000
    assert caller.event().event_id == 2


def test_pages_that_are_no_signal_page(caller: Caller) -> None:
    small, video = caller.memory(PAGE), caller.memory(EVENT_PAGE_BYTES, VRAM)
    wanted = ERRNOS["CREATE_EVENT"]["signal page too small"]
    assert caller.refused(*CREATE, event_page_offset=small.handle) == wanted
    assert caller.refused(*CREATE, event_page_offset=video.handle) == errno.EINVAL
    assert caller.refused(*CREATE, event_page_offset=small.handle + 9) == errno.EINVAL
    assert caller.refused(*CREATE, event_type=9) == errno.EINVAL


def test_the_kernel_makes_a_page_that_the_gpu_does_not_reach(caller: Caller) -> None:
    caller.event()
    assert any("signal page" in report.message for report in caller.kernel.reports)
    token = int(MmapOffset(TYPE=MmapType.EVENTS, GPU_ID=caller.id))
    shown = caller.kernel.mmap(EVENT_PAGE_BYTES, fd=caller.fd, offset=token)
    assert set(shown.view.cast("Q")) == {NONE}
    caller.kernel.munmap(shown.va, shown.size)


@pytest.mark.slow
def test_there_are_4095_signal_events(caller: Caller) -> None:
    memory, _ = page_of(caller)
    caller.event(page=memory.handle)
    events = caller.machine.process.events
    for _ in range(4094):
        events.create(EventType.SIGNAL, auto_reset=False)
    assert caller.refused(*CREATE) == ERRNOS["CREATE_EVENT"]["no slot left"]
    caller.call(Call.DESTROY_EVENT, ev.kfd_ioctl_destroy_event_args, event_id=77)
    assert caller.event().event_id == 77


def test_set_and_reset_are_for_signal_events(caller: Caller) -> None:
    memory, _ = page_of(caller)
    one = caller.event(page=memory.handle).event_id
    other = caller.event(EventType.MEMORY).event_id
    for call, layout in (
        (Call.SET_EVENT, ev.kfd_ioctl_set_event_args),
        (Call.RESET_EVENT, ev.kfd_ioctl_reset_event_args),
    ):
        assert caller.refused(call, layout, event_id=other) == ERRNOS[call.name]["no signal event"]
        assert caller.refused(call, layout, event_id=999) == errno.EINVAL
        caller.call(call, layout, event_id=one)
    assert caller.wait((one, 0))[0] == WaitResult.TIMEOUT


@pytest.mark.parametrize("auto_reset", [True, False])
def test_an_event_without_waiters_stays_signalled_until_a_wait(caller: Caller, *, auto_reset: bool) -> None:
    memory, _ = page_of(caller)
    one = caller.event(page=memory.handle, auto_reset=auto_reset).event_id
    assert caller.wait((one, 0))[0] == WaitResult.TIMEOUT
    caller.call(Call.SET_EVENT, ev.kfd_ioctl_set_event_args, event_id=one)
    assert caller.wait((one, 0))[0] == WaitResult.COMPLETE
    assert caller.wait((one, 0))[0] == (WaitResult.TIMEOUT if auto_reset else WaitResult.COMPLETE)


def test_a_wait_for_all_needs_every_event(caller: Caller) -> None:
    memory, _ = page_of(caller)
    one, two = caller.event(page=memory.handle).event_id, caller.event().event_id
    caller.call(Call.SET_EVENT, ev.kfd_ioctl_set_event_args, event_id=one)
    assert caller.wait((one, 0), (two, 0))[0] == WaitResult.COMPLETE
    assert caller.wait((one, 0), (two, 0), every=True)[0] == WaitResult.TIMEOUT
    caller.call(Call.SET_EVENT, ev.kfd_ioctl_set_event_args, event_id=two)
    assert caller.wait((one, 0), (two, 0), every=True)[0] == WaitResult.COMPLETE


def test_waits_for_unknown_events_and_bad_addresses(caller: Caller) -> None:
    layout = ev.kfd_ioctl_wait_events_args
    with pytest.raises(DriverError) as caught:
        caller.wait((55, 0))
    assert caught.value.status == ERRNOS["WAIT_EVENTS"]["unknown event"]
    assert caller.refused(Call.WAIT_EVENTS, layout, num_events=5000) == errno.ENOMEM
    with pytest.raises(DriverError) as bad:
        caller.call(Call.WAIT_EVENTS, layout, num_events=1, events_ptr=64)
    assert bad.value.status == errno.EFAULT


@pytest.mark.parametrize(("linux", "told"), [("6.12", True), ("6.1", False)])
def test_an_age_that_has_passed_returns_at_once(
    machine: Callable[..., Caller], linux: str, *, told: bool
) -> None:
    caller = machine(linux=linux)
    memory, _ = page_of(caller)
    one = caller.event(page=memory.handle, auto_reset=True).event_id
    caller.call(Call.SET_EVENT, ev.kfd_ioctl_set_event_args, event_id=one)
    caller.wait((one, 0))
    result, (payload,) = caller.wait((one, 1))
    assert result == (WaitResult.COMPLETE if told else WaitResult.TIMEOUT)
    assert int.from_bytes(payload[:8], "little") == (2 if told else 1)
    assert caller.wait((one, 2))[0] == WaitResult.TIMEOUT


def woken(caller: Caller, event_id: int, call: Call, args: type[Struct]) -> int:
    """Sleep on an event until a call about it wakes the sleeper; return the result of the wait."""
    results: list[int] = []
    sleeper = threading.Thread(
        target=lambda: results.append(caller.wait((event_id, 0), timeout=ev.WAIT_FOREVER)[0])
    )
    sleeper.start()
    while not caller.machine.process.events.table[event_id].waiters:
        time.sleep(0.001)
    caller.call(call, args, event_id=event_id)
    sleeper.join()
    return results[0]


def test_a_set_wakes_a_sleeping_wait(caller: Caller) -> None:
    memory, _ = page_of(caller)
    one = caller.event(page=memory.handle, auto_reset=True).event_id
    event = caller.machine.process.events.table[one]
    assert woken(caller, one, Call.SET_EVENT, ev.kfd_ioctl_set_event_args) == WaitResult.COMPLETE
    assert not event.signalled


def test_a_wait_fails_when_its_event_is_destroyed(caller: Caller) -> None:
    memory, _ = page_of(caller)
    one = caller.event(page=memory.handle).event_id
    assert woken(caller, one, Call.DESTROY_EVENT, ev.kfd_ioctl_destroy_event_args) == WaitResult.FAIL
    with pytest.raises(DriverError):
        caller.call(Call.DESTROY_EVENT, ev.kfd_ioctl_destroy_event_args, event_id=one)


def test_an_interrupt_sets_the_event_whose_slot_was_written(caller: Caller) -> None:
    memory, slots = page_of(caller)
    one, two = caller.event(page=memory.handle).event_id, caller.event().event_id
    gpu = caller.gpus[0]
    caller.machine.interrupt(gpu, one, 32)
    assert caller.wait((one, 0))[0] == WaitResult.TIMEOUT
    assert any("unsignalled" in report.message for report in caller.kernel.reports)
    slots[two] = two
    caller.machine.interrupt(gpu, two, 28)
    assert slots[two] == NONE
    assert caller.wait((two, 0))[0] == WaitResult.COMPLETE


def test_a_slot_that_another_queue_s_interrupt_reset_is_no_doubt(caller: Caller) -> None:
    one = caller.event(page=page_of(caller)[0].handle).event_id
    caller.machine.interrupt(caller.gpus[0], one, 32, written=True)
    assert not caller.kernel.reports


def test_a_number_that_matches_nothing_makes_the_kernel_scan_all_slots(caller: Caller) -> None:
    memory, slots = page_of(caller)
    one, two = caller.event(page=memory.handle).event_id, caller.event().event_id
    slots[one] = slots[two] = 0
    caller.machine.interrupt(caller.gpus[0], 77, 24)
    assert caller.wait((one, 0), (two, 0), every=True)[0] == WaitResult.COMPLETE
    assert slots[one] == slots[two] == NONE


@pytest.mark.parametrize(("name", "fires"), [("gfx942", False), ("gfx1100", True)])
def test_gfx9_ignores_the_end_of_pipe_interrupt_of_event_0(
    machine: Callable[..., Caller], name: str, *, fires: bool
) -> None:
    caller = machine(name)
    memory, slots = page_of(caller)
    one = caller.event(page=memory.handle).event_id
    slots[one] = one
    caller.machine.interrupt(caller.gpus[0], 0, 32)
    assert (caller.wait((one, 0))[0] == WaitResult.COMPLETE) is fires


def test_the_signal_page_is_memory_like_any_other(caller: Caller) -> None:
    memory = caller.memory(EVENT_PAGE_BYTES, SYSTEM)
    caller.event(page=memory.handle)
    space = caller.gpus[0].space
    assert space is not None
    space.write(memory.va + 8, b"\1" + bytes(7), "a test")
    caller.machine.interrupt(caller.gpus[0], 1, 32)
    assert space.read(memory.va + 8, 8, "a test") == b"\xff" * 8


@pytest.mark.parametrize(
    ("change", "word"), [({"event_type": 1}, "NODECHANGE"), ({"auto_reset": 2}, "auto_reset")]
)
def test_events_that_are_a_sign_of_a_mistake(caller: Caller, change: dict[str, int], word: str) -> None:
    caller.call(*CREATE, **{"event_type": 8} | change)
    assert any(word in report.message for report in caller.kernel.reports)
