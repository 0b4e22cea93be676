"""Calls that work on every kernel and are signs of a mistake: reported where all is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import kfd
from drivers.amd.layouts.cwsr import kfd_context_save_area_header
from drivers.amd.layouts.events import EVENT_PAGE_BYTES, EventType
from drivers.amd.layouts.kfd import Call, QueueType, RuntimeMode
from drivers.kernel import PROT_READ, PROT_WRITE
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.reports import FindingKind
from hcq.errors import DriverError, UsageError
from tests.emulator.amd_kfd.caller import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_kfd.caller import Caller


@pytest.fixture
def strict(machine: Callable[..., Caller]) -> Caller:
    """A process where all is checked, with a signal page and the events of faults."""
    caller = machine(tracks=True)
    page = caller.memory(EVENT_PAGE_BYTES)
    caller.see(page)
    caller.event(page=page.handle, auto_reset=True)
    return caller


def reports(caller: Caller) -> list[str]:
    assert all(one.kind is FindingKind.HOST for one in caller.machine.fatal)
    return [one.message for one in caller.machine.fatal]


def enable(caller: Caller) -> None:
    mode = RuntimeMode.ENABLE
    caller.call(Call.RUNTIME_ENABLE, kfd.kfd_ioctl_runtime_enable_args, mode_mask=mode)


def test_a_queue_whose_exceptions_reach_nobody(strict: Caller) -> None:
    strict.queue(QueueType.SDMA)
    assert "RUNTIME_ENABLE" in reports(strict)[0]


def test_a_queue_behind_runtime_enable_is_no_doubt(strict: Caller) -> None:
    enable(strict)
    strict.queue(QueueType.SDMA)
    assert reports(strict) == []


def test_a_queue_behind_runtime_enable_of_mode_0_is_advice(strict: Caller) -> None:
    """Drivers that read no exceptions call it so, for what the kernel sets up besides."""
    strict.call(Call.RUNTIME_ENABLE, kfd.kfd_ioctl_runtime_enable_args, mode_mask=0)
    strict.queue(QueueType.SDMA)
    assert reports(strict) == []
    assert ["RUNTIME_ENABLE" in one.message for one in strict.machine.reports] == [True]


def test_a_wait_that_a_fault_does_not_end(strict: Caller) -> None:
    memory = strict.event(EventType.MEMORY).event_id
    strict.wait((1, 0), (memory, 0))
    assert "HW_EXCEPTION" in reports(strict)[0]
    strict.event(EventType.HW_EXCEPTION)
    assert len(reports(strict)) == 1


def test_an_event_that_stays_signalled(strict: Caller) -> None:
    ends = [(strict.event(kind).event_id, 0) for kind in (EventType.MEMORY, EventType.HW_EXCEPTION)]
    lasting = strict.event(auto_reset=False).event_id
    events = strict.machine.process.events
    events.set(events.find(lasting))
    strict.wait((lasting, 0), *ends)
    assert reports(strict) == []
    strict.wait((lasting, 0), *ends)
    assert f"event {lasting:#x} stays signalled" in reports(strict)[0]


def test_a_signal_event_without_a_page(machine: Callable[..., Caller]) -> None:
    caller = machine(tracks=True)
    caller.event(auto_reset=True)
    assert "without a signal page" in reports(caller)[0]


def test_an_interrupt_that_names_no_event(strict: Caller) -> None:
    strict.machine.interrupt(strict.gpus[0], 7, 32)
    assert "context 0x7, which names no event" in reports(strict)[0]


def test_the_kernel_says_once_why_it_refused_a_call(strict: Caller) -> None:
    with pytest.raises(DriverError):
        strict.call(kfd.Call.FREE_MEMORY_OF_GPU, kfd.kfd_ioctl_free_memory_of_gpu_args, handle=1)
    assert "no GPU has gpu_id 0x0" in strict.kernel.refusal()
    assert not strict.kernel.refusal()


def test_what_is_not_given_back(strict: Caller) -> None:
    strict.memory(4096)
    strict.kernel.close(strict.fd)
    assert any("memory was not released" in one for one in reports(strict))


def test_a_mapping_that_the_cpu_cannot_use(strict: Caller) -> None:
    memory = strict.memory(4096)
    for prot in (0, PROT_READ, PROT_WRITE):
        strict.kernel.mmap(4096, fd=strict.renders[0], offset=memory.mmap_offset, prot=prot)
    assert len(reports(strict)) == 3


def test_a_store_beyond_the_doorbells_is_refused(strict: Caller) -> None:
    with pytest.raises(UsageError, match="outside"):
        strict.doorbells().write64(kfd.DOORBELL_SLICE_BYTES, 1)


def test_the_same_is_advice_where_not_all_is_checked(machine: Callable[..., Caller]) -> None:
    caller = machine()
    caller.event(auto_reset=True)
    caller.queue(QueueType.SDMA)
    assert reports(caller) == []
    assert caller.machine.reports


def saved(caller: Caller, **header: int) -> dict[str, int]:
    """Return arguments of a compute queue whose context-save area the process sees, with a header there."""
    args = caller.queue_args()
    area = args["ctx_save_restore_address"]
    buffer = next(one for one in caller.gpus[0].handles.values() if one.va == area)
    caller.see(Memory(buffer.handle, area, buffer.size, buffer.mmap_offset))[:40] = (
        kfd_context_save_area_header.pack(**header)
    )
    return args


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({}, "names no word for exceptions"),
        ({"err_event_id": 1}, "names no word for exceptions"),
        ({"err_payload_addr": 0x1000, "err_event_id": 0x77}, "names event 0x77 for exceptions"),
        ({"err_payload_addr": 0x1000, "err_event_id": 1}, ""),
    ],
)
def test_a_context_save_header_by_which_exceptions_reach_nobody(
    strict: Caller, header: dict[str, int], text: str
) -> None:
    enable(strict)
    strict.queue(**saved(strict, **header))
    found = reports(strict)
    assert [text in one for one in found] == [True] * bool(text), found


def test_a_header_is_of_no_account_without_exceptions(strict: Caller) -> None:
    strict.call(Call.RUNTIME_ENABLE, kfd.kfd_ioctl_runtime_enable_args, mode_mask=0)
    strict.queue(**saved(strict))
    assert reports(strict) == []


@pytest.mark.parametrize("order", ["pointer fence bell", "fence pointer bell", "pointer bell fence"])
def test_a_fence_lies_between_write_pointer_and_doorbell(machine: Callable[..., Caller], order: str) -> None:
    caller = machine(tracks=True, fences=True, engines=AmdEngines())
    enable(caller)
    args = caller.queue_args(QueueType.SDMA)
    at = caller.call(Call.CREATE_QUEUE, kfd.kfd_ioctl_create_queue_args, **args).doorbell_offset & 0x1FFF
    space = caller.gpus[0].space
    assert space is not None
    bells = caller.doorbells()
    for value in (4, 8):
        for step in order.split():
            if step == "pointer":
                space.map.write(args["write_pointer_address"], value.to_bytes(8, "little"))
            elif step == "fence":
                caller.kernel.fence()
            else:
                bells.write64(at, value)
    found = reports(caller)
    assert ["rang without a fence" in one for one in found] == [True] * (order != "pointer fence bell"), found


def test_a_fence_while_a_write_pointer_is_not_mapped_is_no_fault(machine: Callable[..., Caller]) -> None:
    """Linux 6.1 lets it be unmapped while the queue is there."""
    caller = machine(linux="6.1", tracks=True, fences=True, engines=AmdEngines())
    args = caller.queue_args(QueueType.SDMA)
    layout = kfd.kfd_ioctl_create_queue_args_1_11
    known = {name: value for name, value in args.items() if name in layout.FIELDS}
    caller.call(Call.CREATE_QUEUE, layout, **known)
    page = next(b for b in caller.gpus[0].handles.values() if b.va == args["write_pointer_address"])
    caller.unmap(Memory(page.handle, page.va, page.size, page.mmap_offset))
    caller.kernel.fence()
    assert reports(caller) == []
