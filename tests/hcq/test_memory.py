"""Buffers and the caching allocator: lifetimes, reuse, out of memory."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.driver import BufferSpec
from hcq.errors import OutOfMemoryError, UsageError
from hcq.heap import CHUNK_BYTES, LARGE_BYTES, size_class
from hcq.registry import wrap
from tests.hcq.fake import ADD, FakeDevice

if TYPE_CHECKING:
    from hcq.device import Device


@given(st.integers(1, 1 << 40), st.sampled_from([1, 256, 4096, 1 << 21]))
def test_a_size_class_wastes_at_most_a_quarter_beyond_the_alignment(size: int, align: int):
    rounded = size_class(size, align)
    assert rounded >= size
    assert rounded % max(align, 256) == 0
    assert rounded - size < max(256, align, size / 4 + 1)
    assert size_class(rounded, align) == rounded


@given(st.lists(st.tuples(st.integers(1, 3 << 20), st.sampled_from([1, 256, 4096])), max_size=20))
def test_live_buffers_never_overlap(wanted: list[tuple[int, int]]):
    with wrap(FakeDevice()) as device:
        buffers = [device.alloc(size, BufferSpec(align=align)) for size, align in wanted]
        for buffer, (size, align) in zip(buffers, wanted, strict=True):
            assert buffer.size == size
            assert buffer.va % align == 0
        ranges = sorted((buffer.va, buffer.va + buffer.size) for buffer in buffers)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))


def test_small_buffers_share_pages_and_large_ones_do_not(device: Device, fake: FakeDevice):
    before = len(fake.memory)
    small = [device.alloc(256) for _ in range(100)]
    assert len(fake.memory) == before + 1
    large = [device.alloc(LARGE_BYTES) for _ in range(2)]
    assert len(fake.memory) == before + 3
    assert max(b.va for b in small) - min(b.va for b in small) < CHUNK_BYTES
    assert large[0].va != large[1].va


def test_a_view_outside_its_buffer_is_refused(device: Device):
    buffer = device.alloc(256, label="b")
    for offset, size in ((-1, 1), (0, 257), (257, None), (250, 7)):
        with pytest.raises(UsageError, match="lie outside <Buffer 'b' of 256 bytes"):
            buffer.view(offset, size)


def test_addresses_end_with_the_device():
    with wrap(FakeDevice()) as device:
        buffer, closed = device.alloc(256), device.alloc(256)
        view = buffer.view(16)
        closed.close()
    for part in (buffer, view, closed):
        with pytest.raises(TypeError):
            part.va + 1
        with pytest.raises(UsageError, match="closed"):
            part.live()
    buffer.close()


def test_closing_a_root_closes_its_views(device: Device):
    buffer = device.alloc(256)
    view = buffer.view(0, 8)
    buffer.close()
    assert view.closed
    with pytest.raises(UsageError, match="was used after it was closed"):
        view.host()


def test_closing_a_view_leaves_the_root_open(device: Device):
    buffer = device.alloc(256)
    view = buffer.view(0, 8)
    view.close()
    assert buffer.host()[0] == 0
    with pytest.raises(UsageError):
        view.host()


def test_a_use_of_a_closed_buffer_reports_where_it_was_closed(device: Device):
    buffer = device.alloc(256, label="b")
    buffer.close()
    buffer.close()
    with pytest.raises(UsageError, match=rf"closed at {__file__}:\d+"):
        buffer.view(0)


def test_a_block_closed_during_a_sweep_is_freed_by_the_next_sweep(device: Device, fake: FakeDevice):
    """A thread has read where to note it, and appends it when the other thread has looked there."""
    point = device.compute.timeline.last
    buffer, program, stamp = device.alloc(64), device.load(ADD), device.stamp()
    appends = (
        device.heap.deferred_frees.append,
        device.retired.unloads.waiting.append,
        device.span_log.pending.append,
    )
    device.sweep()
    assert device.spans() == []
    appends[0](([point], buffer._block, buffer._free_list))
    appends[1](([point], program.loaded))
    appends[2]((device.compute, [("span", stamp, stamp)]))
    device.sweep()
    assert device.alloc(64).va == buffer.va, "the block can be taken again"
    assert fake.unloaded == ["add"]
    device.compute.submit(device.compute.record().timestamp(stamp)).wait()
    assert [span.name for span in device.spans()] == ["span"]
    buffer._block, program._drop = None, bool


def test_a_dropped_program_is_unloaded_at_the_next_sweep_and_runs_no_python_code(
    device: Device, fake: FakeDevice
):
    program, called = device.load(ADD), list[str]()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    del program
    sys.setprofile(None)
    assert called == []
    assert device.retired.pending
    device.sweep()
    assert fake.unloaded == ["add"]
    assert not device.retired.pending
    closed = device.load(ADD)
    closed.close()
    del closed
    device.sweep()
    assert fake.unloaded == ["add", "add"], "once each"


def test_memory_of_a_buffer_closed_while_idle_is_reused_immediately(device: Device):
    buffer = device.alloc(256)
    va = buffer.va
    buffer.close()
    assert device.alloc(256).va == va


@pytest.mark.sampled(2)
def test_out_of_memory_waits_for_work_in_flight_and_reuses_its_memory(device: Device, fake: FakeDevice):
    fake.hold = True
    a = device.alloc(8 << 20)
    fake.room = sum(size for size, _ in fake.memory.values())
    device.compute.submit(device.compute.record().fill(a, 7))
    del a
    fake.hold = False
    assert device.alloc(8 << 20).size == 8 << 20


@pytest.mark.sampled(2)
def test_out_of_memory_leaks_nothing_and_the_next_call_works(device: Device, fake: FakeDevice):
    before = dict(fake.memory)
    fake.room = sum(size for size, _ in before.values()) + (4 << 20)
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match="alloc failed with ENOMEM"):
            device.alloc(64 << 20)
    assert fake.memory.keys() <= before.keys()
    assert device.alloc(4 << 20).host()[0] == 0


@pytest.mark.parametrize("room", [0, 1 << 20, 2 << 20])
def test_a_device_without_memory_for_its_queues_does_not_open_and_keeps_nothing(room: int):
    fake = FakeDevice()
    fake.room = room
    with pytest.raises(OutOfMemoryError, match="alloc failed with ENOMEM"):
        wrap(fake)
    assert not fake.memory
    assert all(ring.closed for ring in fake.rings)
    assert fake.closes == 1


def test_out_of_memory_empties_the_caches_of_other_sizes(device: Device, fake: FakeDevice):
    cached = [device.alloc(2 << 20) for _ in range(4)]
    fake.room = sum(size for size, _ in fake.memory.values())
    del cached
    assert device.alloc(8 << 20).size == 8 << 20


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_an_invalid_size_is_refused(device: Device, size: float):
    with pytest.raises(UsageError, match="wanted a size in bytes, an int of at least 1"):
        device.alloc(size)


def test_an_alignment_that_is_no_power_of_two_is_refused(device: Device):
    with pytest.raises(UsageError, match="alignment 48"):
        device.alloc(64, BufferSpec(align=48))


def test_a_peer_accesses_memory_once_it_is_mapped(device: Device, fake: FakeDevice):
    with wrap(FakeDevice(index=1)) as other:
        buffer = device.alloc(64)
        buffer.map_to(other)
        buffer.map_to(other)
        assert buffer.visible_to(other)
        assert len(other.driver.peers) == 1
        assert buffer.view(8).visible_to(other)


def test_no_python_code_runs_as_memory_signals_and_stamps_are_freed() -> None:
    # A signal that arrived as such code began would be dropped, and the finalizer with it.
    with wrap(FakeDevice()) as device:
        owners: list[Any] = [device.alloc(64), device.signal(), device.stamp(), device.alloc(64).view(8)]
        freed = device.alloc(64)
        va, began = freed.va, []
        sys.setprofile(lambda frame, event, _: began.append((event, frame.f_code.co_name)))
        try:
            del freed
            owners.clear()
        finally:
            sys.setprofile(None)
        assert not [name for event, name in began if event == "call"]
        owners += [device.alloc(64) for _ in range(4)]
        assert va in [buffer.va for buffer in owners]


def test_a_point_ends_the_life_of_a_buffer_and_its_queue_reuses_the_memory_at_once(fake: FakeDevice):
    with wrap(fake) as device:
        fake.hold = True
        queue, other = device.compute, device.copies[0]
        buffer, target = device.alloc(4096, label="a"), device.alloc(4096, label="b")
        gate = device.signal(host_set=True)
        blocked = other.submit(other.record().wait(gate, 1).fill(target, 1))
        point = queue.submit(queue.record().fill(buffer, 1))
        address = buffer.va
        buffer.close(at=point)
        assert device.memory().deferred == 4096
        assert device.alloc(4096).va != address  # the point is not reached
        assert device.alloc(4096, queue=other).va != address  # its order is not that of this queue
        again = device.alloc(4096, queue=queue)
        assert again.va == address
        again.close(at=queue.submit(queue.record().fill(again, 2)))
        fake.hold = False
        point.wait()
        queue.sync()
        assert not blocked.passed()
        assert device.memory().deferred == 0  # the other queue's work does not use it
        gate.value = 1


@pytest.mark.parametrize(
    "end", ["dropped", "closed", "closed at a reached point", "closed at its queue's point"]
)
def test_memory_that_a_queue_took_early_stays_in_its_order_if_no_work_uses_it(fake: FakeDevice, end: str):
    with wrap(fake) as device:
        queue = device.compute
        (reached := queue.submit(queue.record())).wait()
        fake.hold = True
        buffer = device.alloc(4096)
        address = buffer.va
        point = queue.submit(queue.record().fill(buffer, 1))
        buffer.close(at=point)
        for _ in range(3):
            early = device.alloc(4096, queue=queue)
            assert early.va == address
            if end == "closed":
                early.close()
            elif end != "dropped":
                early.close(at=reached if "reached" in end else queue.timeline.last)
            del early
        assert device.alloc(4096).va != address  # work that is not done stores there
        fake.hold = False
        point.wait()
        device.sweep()
        assert device.memory().deferred == 0
        assert address in [device.alloc(4096).va for _ in range(2)]


def test_a_queue_takes_memory_that_only_a_host_view_kept(fake: FakeDevice):
    with wrap(fake) as device:
        buffer = device.alloc(4096)
        view, address = buffer.host(), buffer.va
        buffer.close()
        del view
        assert device.alloc(4096, queue=device.compute).va == address


def test_validation_refuses_a_point_that_does_not_follow_all_uses(device: Device, fake: FakeDevice):
    fake.hold = True
    queue, other = device.compute, device.copies[0]
    buffer = device.alloc(64, label="a")
    first = queue.submit(queue.record().fill(buffer, 1))
    second = other.submit(other.record().fill(buffer, 2), after=[first])
    with pytest.raises(UsageError, match=r"nothing orders fill, which uses it on copy 0 of .*, before that"):
        buffer.close(at=first)
    buffer.close(at=second)
    assert buffer.closed


def test_memory_use_adds_up_and_trim_returns_what_is_free(device: Device, fake: FakeDevice):
    fixed = device.memory()
    kept = [device.alloc(1000, label="small") for _ in range(3)]
    large = device.alloc(8 * LARGE_BYTES, label="large")
    use = device.memory()
    assert use.reserved == use.used + use.deferred + use.cached + use.uncut
    assert use.reserved == sum(size for size, _ in fake.memory.values())
    assert use.owners[0] == ("large", 8 * LARGE_BYTES, 1)
    assert ("small", 3000, 3) in use.owners
    large.close()
    assert device.memory().cached >= LARGE_BYTES
    assert device.trim() >= LARGE_BYTES
    assert device.memory().reserved < use.reserved
    del kept
    assert fixed.reserved <= device.memory().reserved


def test_out_of_memory_names_the_largest_owners(device: Device, fake: FakeDevice):
    kept = [device.alloc(8 * LARGE_BYTES, label="weights"), device.alloc(64, label="bias")]
    fake.room = 0
    with pytest.raises(OutOfMemoryError, match=r"largest: weights 8 MiB in 1, .*bias 64 bytes in 1"):
        device.alloc(LARGE_BYTES)
    assert kept
