"""Submissions that the host holds: their arguments, errors, and what a cancelled one releases."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import CancelledError, Future, wait
from typing import TYPE_CHECKING, Any

import pytest

from hcq.errors import DeviceFault, FaultKind, FaultReport, UsageError, UsageTypeError
from hcq.params import Param
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.signal import Point


def test_commands_and_values_are_those_of_the_call(device: Device):
    gate, n, buffer = device.signal(host_set=True), Param("n", bits=32), device.alloc(64)
    commands, values = device.compute.record().fill(buffer, n, 4), {n: 7}
    future = device.compute.submit_later(commands, after=[gate.at(1)], values=values)
    values[n] = 8
    commands.fill(buffer, 9)
    gate.value = 1
    assert future.result(timeout=HANG_S).passed()
    assert buffer.host()[0] == 7


def test_a_cancelled_submission_releases_its_buffers_and_wakes_who_waits(device: Device):
    gate, buffer = device.signal(host_set=True), device.alloc(64)
    alive = weakref.ref(buffer)
    commands = device.compute.record().fill(buffer, 1)
    future = device.compute.submit_later(commands, after=[gate.at(1)])
    del buffer, commands
    assert future.cancel()
    gc.collect()
    assert alive() is None
    assert wait([future], timeout=HANG_S).done == {future}
    with pytest.raises(CancelledError):
        future.result()


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"commands": 3}, UsageTypeError, "wanted a command buffer"),
        ({"after": 3}, UsageTypeError, "list of points and futures"),
        ({"after": [3]}, UsageTypeError, "list of points and futures"),
        ({"values": 3}, UsageTypeError, "values"),
        ({"limit_s": "x"}, UsageTypeError, "seconds"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    device: Device, wrong: dict[str, Any], error: type[Exception], text: str
):
    with pytest.raises(error, match=text):
        device.compute.submit_later(**({"commands": device.compute.record()} | wrong))


def test_commands_of_another_kind_and_closed_buffers_are_refused_at_once(device: Device):
    buffer = device.alloc(64)
    commands = device.compute.record().fill(buffer, 1)
    with pytest.raises(UsageError, match="was given to"):
        device.copies[0].submit_later(commands)
    buffer.close()
    with pytest.raises(UsageError, match="after it was closed"):
        device.compute.submit_later(commands)


def test_an_error_of_the_later_submission_is_that_of_its_future_and_of_those_after_it(device: Device):
    gate, buffer = device.signal(host_set=True), device.alloc(64)
    future = device.compute.submit_later(device.compute.record().fill(buffer, 1), after=[gate.at(1)])
    later = device.compute.submit_later(device.compute.record(), after=[future])
    buffer.close()
    gate.value = 1
    for one in (future, later):
        assert isinstance(one.exception(timeout=HANG_S), UsageError)
    device.compute.submit(device.compute.record()).wait(timeout_s=HANG_S)


@pytest.mark.parametrize("end", ["cancelled", "an error", "done"])
def test_a_chain_longer_than_the_stack_ends(device: Device, end: str):
    gate = device.signal(host_set=True)
    open_ = Param("n", bits=32)  # without a value: an error when it is submitted
    commands = device.compute.record().fill(device.alloc(64), open_ if end == "an error" else 1)
    chain = [device.compute.submit_later(commands, after=[gate.at(1)])]
    for _ in range(2000):
        chain.append(device.compute.submit_later(commands, after=chain[-1:]))
    if end == "cancelled":
        assert chain[0].cancel()
        assert all(one.cancelled() for one in chain)
        return
    gate.value = 1
    assert wait(chain, timeout=HANG_S).not_done == set()
    errors = {type(one.exception()) for one in chain}
    assert errors == {UsageError if end == "an error" else type(None)}


def test_a_future_of_another_library_is_no_order(device: Device):
    other: Future[Point] = Future()
    future = device.compute.submit_later(device.compute.record(), after=[other])
    other.set_result(3)  # type: ignore[arg-type]  # the wrong class is the point of the test
    assert "after= takes points" in str(future.exception(timeout=HANG_S))


def test_a_fault_and_a_close_end_what_is_held():
    driver = FakeDevice()
    driver.hold = True
    with wrap(driver, validate=True) as device:
        lost = device.compute.submit(device.compute.record())
        future = device.compute.submit_later(device.compute.record(), after=[lost])
        driver.report = FaultReport(kind=FaultKind.HANG, device="fake:0", message="stopped")
        assert isinstance(future.exception(timeout=HANG_S), DeviceFault)
        driver.hold = False
    with wrap(FakeDevice()) as device:
        gate = device.signal(host_set=True)
        held = device.compute.submit_later(device.compute.record(), after=[gate.at(1)])
    assert "is closed" in str(held.exception(timeout=HANG_S))
