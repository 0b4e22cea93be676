"""Closing a device: by one thread, once, after an interrupt again, also where a trace cannot be written."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hcq.closing import Once, drain
from hcq.errors import SignalTimeout
from hcq.idle import LOOK_S, IdleTime, Standstill, others_run
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice

if TYPE_CHECKING:
    from pathlib import Path


def test_work_is_done_once():
    once = Once(threading.Lock(), threading.Lock())
    assert (once.begun, once.done) == (False, False)
    assert once.run(lambda: 5) == 5
    assert (once.begun, once.done) == (True, True)
    assert once.run(lambda: 6) is None


def test_interrupted_work_is_begun_again():
    once = Once(threading.Lock(), threading.Lock())

    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once.run(interrupted)
    assert (once.begun, once.done) == (False, False)
    assert once.run(lambda: 7) == 7


def test_another_thread_does_nothing_while_work_is_done():
    once = Once(threading.Lock(), threading.Lock())
    seen: list[object] = []

    def work() -> int:
        other = threading.Thread(target=lambda: seen.append(once.run(lambda: 1)))
        other.start()
        other.join()
        return 2

    assert once.run(work) == 2
    assert seen == [None]


def test_a_device_closes_where_its_trace_cannot_be_written(tmp_path: Path):
    fake = FakeDevice()
    device = wrap(fake, trace=str(tmp_path / "gone" / "trace.json"))
    device.compute.submit(device.compute.record().fill(device.alloc(64), 0)).wait()
    with pytest.warns(UserWarning, match="a trace or counts could not be written: .*No such file"):
        device.close()
    assert device.closed
    device.close()  # is complete: neither raises nor warns again


class Late:
    """A queue, its last point, and the signal of that: reached after some looks."""

    value = 1

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.signal = self.device = self

    def end(self) -> Any:
        return self

    def wait(self, *, timeout_s: float) -> None:
        self.looks -= 1
        if self.looks >= 0:
            raise SignalTimeout("one look", point=self, seen=0, waited_s=timeout_s)

    def stuck_on(self, _signal: object, _value: int, waited_s: float) -> str:
        return f"stuck for {waited_s} s"


def test_work_is_waited_for_while_the_clock_stands_still():
    late: Any = Late(1000)
    assert not drain([late], list, lambda: None, 0.01, lambda: 0.0)
    assert late.looks < 0


def test_work_is_stuck_once_the_clock_has_passed():
    late: Any = Late(1000)
    ticks = itertools.count()
    assert drain([late], list, lambda: None, 5, lambda: float(next(ticks))).startswith("stuck for ")
    assert late.looks > 900


def test_idle_time_passes_while_no_other_thread_runs_or_with_processor_time():
    elapsed, spent, busy = [0.0], [0.0], [False]
    clock = IdleTime(elapsed=lambda: elapsed[0], spent=lambda: spent[0], busy=lambda: busy[0])
    elapsed[0] = 2.0
    assert clock.read() == 2.0
    busy[0], elapsed[0] = True, 5.0
    assert clock.read() == 2.0
    spent[0] = 4.0
    assert clock.read() == 4.0
    spent[0] = 9.0
    assert clock.read() == 5.0
    busy[0], elapsed[0] = False, 8.0
    assert clock.read() == 8.0


def test_a_thread_that_computes_is_seen():
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    while not others_run():  # nothing limits it but the limit of all tests
        pass
    ended.set()
    thread.join()


def test_a_standstill_is_counted_by_looks_that_see_no_thread_run():
    elapsed, spent, busy = [0.0], [0.0], [False]
    clock = Standstill(elapsed=lambda: elapsed[0], spent=lambda: spent[0], busy=lambda: busy[0])
    assert clock() == 0.0
    for _ in range(20):
        elapsed[0] += 1000.0  # as after a pause of the whole process
        seen = clock()
    assert seen == clock() == pytest.approx(20 * LOOK_S)
    busy[0], elapsed[0] = True, elapsed[0] + LOOK_S / 2
    assert clock() == seen
    elapsed[0] += 1.0
    assert clock() == seen  # perhaps a thread that polls between sleeps
    elapsed[0] += 1.0
    assert clock() == 0.0
    spent[0] = 300.0  # threads that never end do not stop it
    assert clock() == 5.0
