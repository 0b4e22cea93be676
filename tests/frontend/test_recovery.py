"""Tensors after a fault of their device: which keep their values, which raise it, and recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.cpu import layouts
from frontend import Device, Tensor, TinyJit
from frontend.device import TensorDevice
from hcq.pushbuffer import PushBuffer
from tests.drivers.cpu.rig import NoArguments
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("uncompared")

NAME = "cpu:8"


class Faulty:
    """A device whose compute queue can be held, and that faults on request."""

    def __init__(self) -> None:
        self.opened = TensorDevice(NAME, hcq.open("cpu"))
        Device._open[NAME] = self.opened

    def hold(self) -> None:
        gate = self.opened.hcq.signal(host_set=True)
        self.opened.queue.submit(self.opened.queue.record().wait(gate, 1))

    def fault(self) -> None:
        pushbuffer = PushBuffer(64, NoArguments())
        pushbuffer.words += (0x4D, *layouts.Nop.pack()[1:])
        self.opened.hcq.copies[0].ring.submit(pushbuffer)
        queue = self.opened.hcq.copies[0]
        with pytest.raises(hcq.DeviceFault):
            queue.submit(queue.record()).wait(timeout_s=HANG_S)


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    made = Faulty()
    yield made
    made.opened.close()


def tensor(*numbers: float) -> Tensor:
    return Tensor(list(numbers), device=NAME).realize()


def test_realized_tensors_survive_a_fault_and_lost_ones_raise_it(faulty: Faulty):
    a = tensor(1.0, 2.0)
    b = (a * 3).realize()
    assert b.tolist() == [3.0, 6.0]
    faulty.hold()
    lost = (a + 1).realize()
    behind = (lost * 2).realize()
    pending = lost - 1
    faulty.fault()
    faulty.opened.recover()
    for broken in (lost, behind, pending, lost + 1):
        with pytest.raises(hcq.DeviceFault, match="bad packet"):
            broken.tolist()
    assert (a.tolist(), b.tolist()) == ([1.0, 2.0], [3.0, 6.0])
    assert (a + 1).tolist() == [2.0, 3.0]
    assert (a * b).sum().item() == 15.0


def test_a_launch_refused_by_a_fault_succeeds_after_recovery(faulty: Faulty):
    a = tensor(1.0, 2.0)
    faulty.fault()
    b = a + 5
    with pytest.raises(hcq.DeviceFault):
        b.tolist()
    faulty.opened.recover()
    assert b.tolist() == [6.0, 7.0]


def test_a_tensor_whose_assignment_was_lost_takes_a_new_value(faulty: Faulty):
    w = tensor(1.0, 2.0)
    faulty.hold()
    w.assign(w + 1).realize()
    faulty.fault()
    w.assign(w * 2)
    faulty.opened.recover()
    with pytest.raises(hcq.DeviceFault):
        w.tolist()
    other = tensor(1.0, 1.0)
    assert (other.assign(other + 1)).tolist() == [2.0, 2.0], "what is pending elsewhere is no obstacle"
    w.assign(Tensor([8.0, 9.0], device=NAME))
    assert w.tolist() == [8.0, 9.0]
    assert w.assign(w + 1).tolist() == [9.0, 10.0]


def test_a_captured_function_continues_after_recovery(faulty: Faulty):
    double = TinyJit(lambda x: (x + x).sum(axis=0) * 2)
    a = tensor(1.0, 2.0)
    for _ in range(3):
        assert double(a).item() == 12.0
    faulty.hold()
    lost = double(a)
    faulty.fault()
    faulty.opened.recover()
    with pytest.raises(hcq.DeviceFault):
        lost.item()
    for n in range(3):
        assert double(tensor(n, 1.0)).item() == 4.0 * (n + 1)


def test_a_captured_function_that_stores_lost_values_raises(faulty: Faulty):
    w = tensor(1.0)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return w.assign(w + x).realize()

    for n in range(3):
        assert step(tensor(1.0)).item() == n + 2.0
    one = tensor(1.0)
    faulty.hold()
    step(one)
    faulty.fault()
    faulty.opened.recover()
    with pytest.raises(hcq.DeviceFault):
        step(one)
    w.assign(tensor(10.0)).realize()
    step.reset()
    for n in range(3):
        assert step(one).item() == 11.0 + n


def test_a_device_without_a_fault_refuses(faulty: Faulty):
    with pytest.raises(hcq.UsageError, match="has no fault"):
        faulty.opened.recover()
