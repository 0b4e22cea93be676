"""The validation layer: what it refuses, with which words, and what it lets pass."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from hcq.errors import SignalTimeout, UsageError
from hcq.graph import Graph
from hcq.hazards import _DEAD_KEPT
from hcq.memory import Buffer
from hcq.params import Param
from hcq.program import ArgKind, ArgSlot, KernelImage
from hcq.registry import wrap
from hcq.validate import _SHARED, Watch
from tests.hcq.fake import ADD, HANG_S, ONE, FakeDevice

if TYPE_CHECKING:
    from hcq.commands import CommandBuffer
    from hcq.device import Device


@pytest.fixture
def abc(device: Device) -> list[Buffer]:
    return [device.alloc(64, label=name) for name in "abc"]


def adding(device: Device, commands: CommandBuffer, out: Buffer, a: Buffer, b: Buffer) -> CommandBuffer:
    program = device.load(ADD)
    return commands.exec(program, program.args(out, a, b), groups=(8, 1, 1), threads=ONE)


# Missing barriers


def test_a_kernel_that_reads_what_the_one_before_writes_needs_a_barrier(device: Device, abc: list[Buffer]):
    a, b, c = abc
    commands = adding(device, adding(device, device.compute.record(label="step"), b, a, a), c, b, b)
    with pytest.raises(UsageError) as caught:
        device.compute.submit(commands)
    assert str(caught.value) == (
        f"missing barrier in step: kernel add, argument out, writes {b!r} "
        f"and kernel add, argument a, reads it; nothing orders the two\nhint: record .barrier() between them"
    )


def test_a_barrier_between_them_is_enough(device: Device, abc: list[Buffer]):
    a, b, c = abc
    commands = adding(device, device.compute.record(), b, a, a).barrier()
    device.compute.submit(adding(device, commands, c, b, b)).wait()


def test_a_kernel_that_overwrites_what_the_one_before_reads_needs_a_barrier(
    device: Device, abc: list[Buffer]
):
    a, b, c = abc
    commands = adding(device, adding(device, device.compute.record(), b, a, a), a, c, c)
    with pytest.raises(UsageError, match=r"argument b, reads <Buffer 'a' .* argument out, writes it"):
        device.compute.submit(commands)


def test_two_kernels_that_write_one_place_need_a_barrier(device: Device, abc: list[Buffer]):
    a, b, c = abc
    commands = adding(device, adding(device, device.compute.record(), b, a, a), b.view(63), c, c)
    with pytest.raises(UsageError, match=r"argument out, writes <Buffer 'b' .* argument out, writes it"):
        device.compute.submit(commands)


def test_kernels_on_different_parts_or_only_reading_need_no_barrier(device: Device, abc: list[Buffer]):
    a, b, c = abc
    commands = adding(device, device.compute.record(), b.view(0, 32), a, a)
    device.compute.submit(adding(device, adding(device, commands, b.view(32, 32), a, a), c, a, a)).wait()


def test_everything_but_kernels_is_ordered_without_barriers(device: Device, abc: list[Buffer]):
    a, b, c = abc
    commands = device.compute.record().fill(a, 1).copy(b, a).fill(a, 2)
    device.compute.submit(adding(device, commands, c, a, b).copy(a, c).fill(c, 0)).wait()


def test_a_kernel_in_a_graph_needs_barriers_too(device: Device, abc: list[Buffer]):
    a, b, c = abc
    graph, program = Graph(label="g"), device.load(ADD)
    x = graph.param("x")
    commands = device.compute.record().exec(program, program.args(b, x, x), groups=ONE, threads=ONE)
    commands.exec(program, program.args(c, a, a), groups=ONE, threads=ONE)
    graph.add(device.compute, commands)
    executable = graph.compile()
    executable.replay([a]).wait()
    with pytest.raises(UsageError, match="missing barrier in g"):
        executable.replay([c])


# Hazards between queues


def test_queues_that_share_memory_need_a_point_between_them(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    device.compute.submit(device.compute.record().fill(a, 1))
    with pytest.raises(UsageError) as caught:
        device.copies[0].submit(device.copies[0].record().copy(b, a))
    assert str(caught.value) == (
        f"hazard: copy reads {a!r} on copy 0 of fake:0, and nothing orders it after fill, which writes it on "
        f"compute 0 of fake:0\nhint: submit with after=[the point of that submission], or wait for it"
    )


@pytest.mark.parametrize("how", ["after", "host wait", "host looks", "sync", "chain", "recorded wait"])
def test_what_orders_two_queues(device: Device, fake: FakeDevice, abc: list[Buffer], how: str):
    a, b, c = abc
    copies, other = device.copies[0], device.computes[1]
    point = device.compute.submit(device.compute.record().fill(a, 1))
    after, commands = [], copies.record()
    if how == "after":
        after = [point]
    elif how == "host wait":
        point.wait()
    elif how == "host looks":
        fake.run()
        assert point.done()
    elif how == "sync":
        device.sync()
    elif how == "chain":
        after = [other.submit(other.record().fill(c, 1), after=[point])]
    else:
        commands.wait(point)
    copies.submit(commands.copy(b, a), after=after).wait()


def test_an_older_point_orders_only_what_was_before_it(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    early = device.compute.submit(device.compute.record())
    device.compute.submit(device.compute.record().fill(a, 1))
    with pytest.raises(UsageError, match="hazard"):
        device.copies[0].submit(device.copies[0].record().copy(b, a), after=[early])


def test_how_far_the_device_has_come_does_not_decide_what_is_refused(
    device: Device, fake: FakeDevice, abc: list[Buffer]
):
    a, b, _ = abc
    early = device.compute.submit(device.compute.record())
    device.compute.submit(device.compute.record().fill(a, 1))
    fake.run()  # both are done by now, but nobody has seen the second
    early.wait(timeout_s=HANG_S)
    with pytest.raises(UsageError, match="hazard"):
        device.copies[0].submit(device.copies[0].record().copy(b, a), after=[early])


def test_a_signal_set_in_the_middle_orders_what_was_before_it(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    middle = device.signal(label="middle").at(1)
    device.compute.submit(device.compute.record().fill(a, 1).signal(middle).fill(b, 1))
    copies = device.copies[0]
    copies.submit(copies.record().wait(middle).fill(a, 2)).wait()
    with pytest.raises(UsageError, match="fill writes <Buffer 'b'"):
        copies.submit(copies.record().wait(middle).fill(b, 2))


def test_a_wait_submitted_before_the_signal_is_order_too(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    copies, ready = device.copies[0], device.signal().at(1)
    raising = device.compute.record().fill(a, 1).signal(ready)
    copies.submit(copies.record().wait(ready).copy(b, a))
    device.compute.submit(raising)
    device.sync()


def test_a_write_after_an_unordered_read_is_a_hazard(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    device.copies[0].submit(device.copies[0].record().copy(b, a))
    with pytest.raises(UsageError, match=r"fill writes .* after copy, which reads it"):
        device.compute.submit(device.compute.record().fill(a, 1))


def test_two_queues_may_read_one_buffer(device: Device, abc: list[Buffer]):
    a, b, c = abc
    device.copies[0].submit(device.copies[0].record().copy(b, a))
    device.compute.submit(device.compute.record().copy(c, a))
    device.sync()


def test_two_queues_may_write_two_parts_of_one_buffer(device: Device, abc: list[Buffer]):
    a = abc[0]
    device.copies[0].submit(device.copies[0].record().fill(a.view(0, 32), 1))
    device.compute.submit(device.compute.record().fill(a.view(32, 32), 2))
    device.sync()


def test_a_refused_submission_is_forgotten(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    first = device.compute.submit(device.compute.record().fill(a, 1))
    with pytest.raises(UsageError, match="hazard"):
        device.copies[0].submit(device.copies[0].record().copy(b, a))
    device.computes[1].submit(device.computes[1].record().fill(b, 1))
    device.copies[0].submit(device.copies[0].record().copy(device.alloc(64), a), after=[first])
    device.sync()


# Waits that nothing can meet


def test_a_wait_for_what_nothing_can_raise_any_more_is_an_error_with_the_wait_graph(device: Device):
    gate = device.signal(label="gate")
    point = device.compute.submit(device.compute.record(label="late"), after=[gate.at(2)])
    with pytest.raises(UsageError) as caught:
        point.wait()
    assert str(caught.value) == (
        "the host waits for compute 0 of fake:0 >= 1, now 0, and nothing can raise it: all that could is "
        "waiting itself\n  compute 0 of fake:0: late waits for gate >= 2, now 0; nothing submitted raises it"
    )
    device.copies[0].submit(device.copies[0].record().signal(gate, 2))
    point.wait(timeout_s=HANG_S)


def test_a_wait_for_what_the_host_may_raise_is_let_pass(device: Device):
    gate = device.signal(host_set=True)
    point = device.compute.submit(device.compute.record(), after=[gate.at(1)])
    gate.value = 1
    point.wait()


def test_the_host_that_waits_behind_its_own_gate_is_told(device: Device):
    gate = device.signal(host_set=True, label="gate")
    point = device.compute.submit(device.compute.record(label="late"), after=[gate.at(1)])
    with pytest.raises(UsageError, match="late waits for gate >= 1, now 0; nothing submitted"):
        point.wait()
    gate.value = 1
    point.wait(timeout_s=HANG_S)


def test_a_wait_may_be_submitted_before_its_signal_is_recorded(device: Device):
    ready, copies = device.signal().at(1), device.copies[0]
    point = device.compute.submit(device.compute.record().wait(ready))
    copies.submit(copies.record().signal(ready))
    point.wait(timeout_s=HANG_S)


def test_a_cycle_of_waits_is_told_with_both_sides_when_the_host_waits(device: Device):
    compute, copies = device.compute, device.copies[0]
    third, fourth = device.signal(label="third"), device.signal(label="fourth")
    compute.submit(compute.record(label="left").wait(fourth.at(1)).signal(third.at(1)))
    copies.submit(copies.record(label="right").wait(third.at(1)).signal(fourth.at(2)))
    with pytest.raises(UsageError) as caught:
        device.sync()
    left, right = str(caught.value).splitlines()[1:]
    assert left.startswith("  compute 0 of fake:0: left waits for fourth >= 1, now 0; raised by right on ")
    assert right.startswith("  copy 0 of fake:0: right waits for third >= 1, now 0; raised by left on ")
    other = device.computes[1]
    other.submit(other.record().signal(fourth.at(3)))  # the host that is told may still end it
    device.sync(timeout_s=HANG_S)


def test_order_that_comes_by_a_signal_recorded_later_counts(device: Device, abc: list[Buffer]):
    """Third waits for second, which is submitted last and comes after first: so third comes after first."""
    a, b, _ = abc
    compute, other, copies = device.compute, device.computes[1], device.copies[0]
    done = device.signal(label="done")
    first = compute.submit(compute.record(label="first").fill(a, 1))
    third = copies.submit(copies.record(label="third").wait(done, 1).copy(b, a))
    other.submit(other.record(label="second").signal(done, 1), after=[first])
    compute.submit(compute.record(label="fourth").fill(b, 2), after=[third]).wait()


def test_a_hazard_of_what_waits_for_a_later_signal_is_told_when_that_is_submitted(
    device: Device, abc: list[Buffer]
):
    a, b, _ = abc
    compute, other, copies = device.compute, device.computes[1], device.copies[0]
    done = device.signal(label="done")
    first = compute.submit(compute.record(label="first").fill(a, 1))
    copies.submit(copies.record(label="third").wait(done, 1).copy(b, a))
    before = other.timeline.last
    with pytest.raises(UsageError, match=r"hazard: copy reads <Buffer 'a'.* on copy 0 of fake:0"):
        other.submit(other.record(label="second").signal(done, 1))
    assert other.timeline.last == before  # nothing was sent
    other.submit(other.record(label="second").signal(done, 1), after=[first])
    device.sync(timeout_s=HANG_S)


def test_the_host_is_told_at_once_that_it_waits_in_vain(device: Device):
    gate = device.signal(label="gate")
    with pytest.raises(UsageError, match="the host waits for gate >= 1, now 0, and nothing can raise it"):
        gate.wait(1)


def test_a_wait_with_a_timeout_ends_by_it_and_names_what_the_queues_wait_for(device: Device):
    """Who waits so goes on, and may raise what it waited for."""
    gate = device.signal(host_set=True, label="gate")
    point = device.compute.submit(device.compute.record(label="late"), after=[gate.at(1)])
    with pytest.raises(SignalTimeout, match="compute 0 of fake:0: late waits for gate >= 1, now 0; nothing"):
        point.wait(timeout_s=0.02)
    gate.value = 1
    point.wait(timeout_s=HANG_S)


def test_closing_tells_at_once_what_can_never_end():
    device = wrap(FakeDevice(), validate=True)
    gate = device.signal(host_set=True, label="gate")
    device.compute.submit(device.compute.record(label="late"), after=[gate.at(1)])
    with pytest.warns(ResourceWarning, match="nothing can raise it(?s:.*)late waits for gate >= 1"):
        device.close(timeout_s=HANG_S)


def test_a_thread_that_does_not_wait_may_come(device: Device):
    ready, looked, copies = device.signal(), threading.Event(), device.copies[0]

    def later() -> None:
        looked.wait()
        copies.submit(copies.record().signal(ready, 1))

    thread = threading.Thread(target=later)
    thread.start()
    real = device.watch.waiting

    def looks(*args: object) -> None:
        real(*args)
        looked.set()  # the wait was judged, and let go on, before anything raises it

    device.watch.waiting = looks
    ready.wait(1)
    thread.join()


def test_threads_that_all_wait_are_told_of_each_other(device: Device):
    """The first to wait is let wait as long as the second may come; then none may."""
    one, two = device.signal(label="one"), device.signal(label="two")
    told: list[str] = []

    def wait() -> None:
        try:
            one.wait(1)
        except UsageError as error:
            told.append(str(error))

    thread = threading.Thread(target=wait, name="first")
    thread.start()
    try:
        two.wait(1)
    except UsageError as error:
        told.append(str(error))
        device.copies[0].submit(device.copies[0].record().signal(one, 1))
    thread.join(timeout=HANG_S)
    assert not thread.is_alive()
    assert told
    assert "nothing can raise it" in told[0]


def test_drivers_threads_do_not_come(device: Device):
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="hcq emu")
    thread.start()
    try:
        with pytest.raises(UsageError, match="nothing can raise it"):
            device.signal().wait(1)
    finally:
        over.set()
        thread.join()


def test_a_queue_without_validation_may_come(device: Device):
    fake = FakeDevice(index=7)
    with wrap(fake) as other:
        gate, ready = other.signal(host_set=True), device.signal(label="ready")
        other.compute.submit(other.compute.record().wait(gate, 1).signal(ready, 1))
        real = device.watch.waiting

        def looks(*args: object) -> None:
            real(*args)
            gate.value = 1  # the wait was judged, and let go on
            fake.run()

        device.watch.waiting = looks
        ready.wait(1)


def test_a_point_is_raised_once(device: Device):
    ready = device.signal(label="ready").at(1)
    commands = device.compute.record(label="again").signal(ready)
    device.compute.submit(commands).wait()
    with pytest.raises(UsageError, match="again sets <Signal ready: 1> to 1, but 1 was submitted before"):
        device.compute.submit(commands)


def test_a_point_is_not_raised_twice_in_one_submission(device: Device):
    ready = device.signal(label="ready").at(1)
    with pytest.raises(UsageError, match="a point is raised once"):
        device.compute.submit(device.compute.record().signal(ready).signal(ready))


# Limits and bounds


@pytest.mark.parametrize(
    ("groups", "threads", "why"),
    [
        ((101, 1, 1), ONE, "101 groups along x, wanted 1 to 100"),
        ((1, -1, 1), ONE, "-1 groups along y"),
        ((1, 1, 1), (8, 8, 2), r"\(8, 8, 2\) is 128 threads a group, wanted 1 to 64"),
        ((1, 1, 1), (0, 1, 1), "0 threads a group"),
    ],
)
def test_launches_beyond_the_limits_are_refused(
    groups: tuple[int, int, int], threads: tuple[int, int, int], why: str
):
    with wrap(FakeDevice(max_threads=64, max_groups_x=100), validate=True) as device:
        a, b = device.alloc(64), device.alloc(64)
        program = device.load(ADD)
        commands = device.compute.record().exec(
            program, program.args(a, b, b), groups=groups, threads=threads
        )
        with pytest.raises(UsageError, match=why):
            device.compute.submit(commands)


def test_a_kernel_that_needs_more_shared_memory_than_there_is_is_refused():
    image = KernelImage(name="k", arch="fake1", code=b"add", args=(), kernarg_size=0, shared_bytes=1 << 20)
    with wrap(FakeDevice(max_shared_bytes=1 << 16), validate=True) as device:
        program = device.load(image)
        with pytest.raises(UsageError, match="1048576 bytes of shared memory, the device has 65536"):
            device.compute.submit(
                device.compute.record().exec(program, program.args(), groups=ONE, threads=ONE)
            )


def test_copies_of_parameters_outside_their_buffers_are_refused(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    size, to = Param("size", 32), Param("to")
    commands = device.compute.record().copy(to + 8, b, size)
    with pytest.raises(UsageError, match="copy: bytes 8 to 65 lie outside <Buffer 'a'"):
        device.compute.submit(commands, values={size: 57, to: a})
    device.compute.submit(commands, values={size: 56, to: a}).wait()


def test_a_copy_onto_itself_is_refused(device: Device, abc: list[Buffer]):
    a = abc[0]
    with pytest.raises(UsageError, match=r"copy within <Buffer 'a' .*: bytes 8 and 0 on overlap"):
        device.compute.submit(device.compute.record().copy(a.view(8, 32), a.view(0, 32)))


def test_a_pointer_outside_its_buffer_is_refused(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    graph, program = Graph(), device.load(ADD)
    x = graph.param("x")
    commands = device.compute.record().exec(program, program.args(b, x + 64, a), groups=ONE, threads=ONE)
    graph.add(device.compute, commands)
    with pytest.raises(UsageError, match="argument a: byte 64 lies outside"):
        graph.compile().replay([a])


# Reordering


def test_kernels_between_barriers_run_in_another_order_and_others_do_not():
    images = [
        KernelImage(name=f"k{i}", arch="fake1", code=b"add", args=ADD.args, kernarg_size=24) for i in range(8)
    ]
    orders = set()
    for seed in range(6):
        device = wrap(FakeDevice(), seed=seed)
        outs, a = [device.alloc(64) for _ in images], device.alloc(64)
        commands = device.compute.record()
        for half in (slice(0, 4), slice(4, 8)):
            for image, out in zip(images[half], outs[half], strict=True):
                program = device.load(image)
                commands.exec(program, program.args(out, a, a), groups=ONE, threads=ONE)
            commands.barrier()
        shuffled = device.watch.reorder(commands.commands) if device.watch else commands.commands
        names = [getattr(getattr(command, "program", None), "name", "|") for command in shuffled]
        assert sorted(names[:4]) == ["k0", "k1", "k2", "k3"]
        assert names[4] == names[9] == "|"
        orders.add(tuple(names))
        if seed == 0:
            assert names[:4] == ["k0", "k1", "k2", "k3"]
        device.close()
    assert len(orders) > 3


def test_the_same_seed_gives_the_same_order(device: Device, abc: list[Buffer]):
    a, b, _ = abc
    program = device.load(ADD)
    commands = device.compute.record()
    for i in range(16):
        commands.exec(program, program.args(b.view(4 * i, 4), a, a), groups=ONE, threads=ONE)
    first, second = Watch(check=False, seed=7), Watch(check=False, seed=7)
    order = first.reorder(commands.commands)
    assert order == second.reorder(commands.commands)
    assert order != commands.commands


# Many devices


def work(device: Device) -> None:
    """Let two queues depend on each other, and the host on both."""
    a, b = device.alloc(64), device.alloc(64)
    point = device.compute.submit(device.compute.record().fill(a, 1))
    device.copies[0].submit(device.copies[0].record().copy(b, a), after=[point]).wait(timeout_s=HANG_S)


def test_a_device_that_is_closed_is_let_go():
    fake = FakeDevice()
    device = wrap(fake, validate=True)
    gone = weakref.ref(device)
    work(device)
    device.close()
    del device
    gc.collect()
    assert gone() is None


def test_what_is_known_of_queues_does_not_grow_with_those_that_are_gone():
    for _ in range(150):
        with wrap(FakeDevice(), validate=True) as device:
            work(device)
        del device
        gc.collect()
    with wrap(FakeDevice(), validate=True) as device:
        work(device)
        clocks = _SHARED.ledger.clocks
        assert len(clocks[device.copies[0]]) <= len(clocks) + _DEAD_KEPT + len(device.queues)


# Fault reports


def test_the_nearest_buffer_is_named_also_when_it_was_freed(device: Device):
    kept = device.alloc(64, label="kept")
    assert device.nearest(kept.va + 3) == f"inside {kept.va:#x} to {kept.va + 64:#x}, 64 bytes, 'kept'"
    assert device.nearest(kept.va + 70).startswith("7 bytes after the end of ")
    va = device.alloc(4096, label="gone").va
    assert "'gone', dropped at " in device.nearest(va)
    assert __file__ in device.nearest(va)
    kept.close()
    assert f"'kept', closed at {__file__}" in device.nearest(kept_va(kept, device))


def kept_va(buffer: Buffer, device: Device) -> int:
    return next(va for ref, (va, _, label) in device.watch._live.items() if ref() is buffer)


def test_buffers_that_had_one_address_in_turn_are_forgotten_each_by_itself(device: Device):
    """A thread drops a buffer; before it has forgotten it, another has its memory anew, and drops that."""
    first = device.alloc(64, label="first")
    second, third = (Buffer(device, first._block, [], 64, first.spec, label) for label in ("second", "third"))
    for buffer in (second, third):
        device.watch.allocated(buffer)
    forget = {ref(): ref for ref in device.watch._live}
    for gone in (second, first):
        forget[gone].__callback__(forget[gone])
    assert device.nearest(third.va).endswith("'third'")
    assert [ref() for ref in device.watch._live if ref() in {first, second, third}] == [third]


def test_the_new_buffer_at_an_address_is_named_before_the_closed_one(device: Device):
    closed = device.alloc(64, label="closed")
    va = closed.va
    closed.close()
    new = device.alloc(64, label="new")
    assert new.va == va
    assert device.nearest(va).endswith("'new'")


@pytest.mark.parametrize("slot", [ArgSlot("p", ArgKind.POINTER, 0, 8, access) for access in ("r", "w", "rw")])
def test_hazards_go_by_the_declared_access(device: Device, abc: list[Buffer], slot: ArgSlot):
    image = KernelImage(name="k", arch="fake1", code=b"add", args=(slot,), kernarg_size=8)
    program, a = device.load(image), abc[0]
    commands = device.compute.record()
    for _ in range(2):
        commands.exec(program, program.args(a), groups=ONE, threads=ONE)
    if slot.access == "r":
        device.watch.submission(device.compute, "", commands.commands, None)
    else:
        with pytest.raises(UsageError, match="missing barrier"):
            device.watch.submission(device.compute, "", commands.commands, None)


def test_a_thread_may_record_while_another_submits(device: Device):
    kept = [device.compute.record() for _ in range(2000)]
    done = threading.Event()

    def record() -> None:
        while not done.is_set() and len(kept) < 20_000:  # each wait is played over all of them
            kept.append(device.compute.record())
            time.sleep(0)

    before = sys.getswitchinterval()
    recorder = threading.Thread(target=record)
    sys.setswitchinterval(1e-5)
    recorder.start()
    try:
        for _ in range(20):
            point = device.compute.submit(device.compute.record())
            device.copies[0].submit(device.copies[0].record(), after=[point])
    finally:
        done.set()
        recorder.join()
        sys.setswitchinterval(before)
