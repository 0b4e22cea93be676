"""The validation layer on waits: which are a deadlock, and which something may still end."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hcq.errors import SignalTimeout, UsageError
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.memory import Buffer


def test_an_unmeetable_wait_is_an_error_with_the_wait_graph(device: Device):
    gate = device.signal(label="gate")
    point = device.compute.submit(device.compute.record(label="late"), after=[gate.at(2)])
    with pytest.raises(UsageError) as caught:
        point.wait()
    assert str(caught.value) == (
        "the host waits for compute 0 of fake:0 >= 1, now 0, and nothing can raise it: all that could end "
        "this wait is waiting itself\n"
        "  compute 0 of fake:0: late waits for gate >= 2, now 0; nothing submitted raises it"
    )
    device.copies[0].submit(device.copies[0].record().signal(gate, 2))
    point.wait(timeout_s=HANG_S)


def test_a_wait_that_the_host_may_satisfy_is_allowed(device: Device):
    gate = device.signal(host_set=True)
    point = device.compute.submit(device.compute.record(), after=[gate.at(1)])
    gate.value = 1
    point.wait()


def test_a_host_wait_behind_its_own_gate_is_reported(device: Device):
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


def test_a_cycle_of_waits_is_reported_with_both_sides_when_the_host_waits(device: Device):
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


def test_order_through_a_signal_recorded_later_is_recognised(device: Device, abc: list[Buffer]):
    """The third waits for the second, which is submitted last and ordered after the first."""
    a, b, _ = abc
    compute, other, copies = device.compute, device.computes[1], device.copies[0]
    done = device.signal(label="done")
    first = compute.submit(compute.record(label="first").fill(a, 1))
    third = copies.submit(copies.record(label="third").wait(done, 1).copy(b, a))
    other.submit(other.record(label="second").signal(done, 1), after=[first])
    compute.submit(compute.record(label="fourth").fill(b, 2), after=[third]).wait()


def test_a_hazard_behind_a_later_signal_is_reported_when_the_signal_is_submitted(
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


def test_a_timeout_names_the_waits_of_all_queues(device: Device):
    """A thread whose wait has a timeout continues, and may raise the signal."""
    gate = device.signal(host_set=True, label="gate")
    point = device.compute.submit(device.compute.record(label="late"), after=[gate.at(1)])
    with pytest.raises(SignalTimeout, match="compute 0 of fake:0: late waits for gate >= 1, now 0; nothing"):
        point.wait(timeout_s=0.02)
    gate.value = 1
    point.wait(timeout_s=HANG_S)


def test_closing_reports_unmeetable_waits_at_once():
    device = wrap(FakeDevice(), validate=True)
    gate = device.signal(host_set=True, label="gate")
    device.compute.submit(device.compute.record(label="late"), after=[gate.at(1)])
    with pytest.warns(ResourceWarning, match="nothing can raise it(?s:.*)late waits for gate >= 1"):
        device.close(timeout_s=HANG_S)


def test_a_wait_that_another_thread_may_satisfy_is_allowed(device: Device):
    ready, checked, copies = device.signal(), threading.Event(), device.copies[0]

    def later() -> None:
        checked.wait()
        copies.submit(copies.record().signal(ready, 1))

    thread = threading.Thread(target=later)
    thread.start()
    real = device.watch.check_wait

    def check_wait(*args: object) -> None:
        real(*args)
        checked.set()  # the wait was found legal before anything raised it

    device.watch.check_wait = check_wait
    ready.wait(1)
    thread.join()


def test_a_deadlock_of_threads_is_reported_to_each(device: Device):
    """The first wait is legal while the second thread may submit; then both are a deadlock."""
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


def test_threads_of_drivers_are_not_counted_as_submitters(device: Device):
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="hcq emu")
    thread.start()
    try:
        with pytest.raises(UsageError, match="nothing can raise it"):
            device.signal().wait(1)
    finally:
        over.set()
        thread.join()


def test_a_wait_that_an_unvalidated_device_may_satisfy_is_allowed(device: Device):
    fake = FakeDevice(index=7)
    with wrap(fake) as other:
        gate, ready = other.signal(host_set=True), device.signal(label="ready")
        other.compute.submit(other.compute.record().wait(gate, 1).signal(ready, 1))
        real = device.watch.check_wait

        def check_wait(*args: object) -> None:
            real(*args)
            gate.value = 1  # the wait was found legal
            fake.run()

        device.watch.check_wait = check_wait
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
