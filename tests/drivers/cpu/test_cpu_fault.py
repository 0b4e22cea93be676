"""A fault of the processor, as users of the neutral model see it."""

from __future__ import annotations

import pytest

import hcq
from drivers.cpu import layouts
from hcq.stream import Stream


class NoArguments:
    """These streams place nothing."""

    def room(self, _stream: Stream, _size: int) -> None:
        raise AssertionError


def test_fault_is_raised_by_the_wait_and_by_every_later_call() -> None:
    device = hcq.open("cpu", validate=False)
    stream = Stream(64, NoArguments())
    stream.words += (0x4D, *layouts.Nop.pack()[1:])
    device.compute.ring.submit(stream)
    point = device.compute.submit(device.compute.record(label="behind it"))
    seen = []
    for refused in (
        lambda: point.wait(timeout_s=10),
        lambda: device.alloc(4096),
        lambda: device.compute.submit(device.compute.record()),
        device.sync,
    ):
        with pytest.raises(
            hcq.DeviceFault, match=r"(?s)bad packet.*unknown op 0x4d.*compute queue 0"
        ) as caught:
            refused()
        seen.append(caught.value.report)
    assert all(report is seen[0] for report in seen)
    assert not point.done()
    device.close()
    with hcq.open("cpu", validate=False) as again:
        again.compute.submit(again.compute.record()).wait(timeout_s=10)
