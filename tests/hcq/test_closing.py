"""Closing a device: by one thread, once, after an interrupt again, also where a trace cannot be written."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from hcq.closing import Once
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
