"""Validation of submissions that other threads send between the check and the sending of one."""

from __future__ import annotations

import pytest

import hcq
from tests.limits import HANG_S


@pytest.mark.parametrize("late", [False, True], ids=["the setter comes between", "the waiter comes between"])
def test_a_deferred_submission_is_entered_when_its_order_is_known(late: bool) -> None:  # noqa: FBT001
    """A submission that waits for a signal, and the one that sets it, in each order of check and sending."""
    with hcq.open("cpu", validate=True) as device:
        first, second = device.computes[0], device.computes[1]
        word = device.alloc(64)
        start, end = device.signal(label="start"), device.signal(label="end")
        setter = first.record().fill(word, 1).signal(start, 1)
        waiter = second.record().wait(start, 1).fill(word, 2).signal(end, 1)
        outer, inner = (first, second) if late else (second, first)
        submit = outer.ring.submit

        def interrupted(pushbuffer: object) -> None:
            outer.ring.submit = submit  # type: ignore[method-assign]
            inner.submit(waiter if late else setter)
            submit(pushbuffer)  # type: ignore[arg-type]

        outer.ring.submit = interrupted  # type: ignore[method-assign]
        point = outer.submit(setter if late else waiter)
        while not point.passed() or end.value < 1:
            pass
        copies = device.copies[0]
        copies.submit(copies.record().wait(end, 1).fill(word, 3))
        copies.submit(copies.record().fill(word, 4)).wait(timeout_s=HANG_S)
        assert word.host()[0] == 4
