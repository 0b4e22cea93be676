"""Callbacks, futures and coroutines that wait for points."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from hcq.callbacks import WAITER
from hcq.errors import DeviceFault, FaultKind, FaultReport, UsageError, UsageTypeError
from hcq.registry import wrap
from hcq.signal import Point
from tests.hcq.fake import FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device


def eventually(condition: Callable[[], bool]) -> None:
    """Return once a condition is true; fail where it hangs."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_callbacks_of_a_signal_are_called_once_in_the_order_of_their_values(device: Device):
    signal, called = device.signal(host_set=True), list[int]()
    for value in (3, 1, 2, 1):
        signal.at(value).add_done_callback(lambda point: called.append(point.value))
    signal.value = 2
    eventually(lambda: len(called) == 3)
    assert called == [1, 1, 2]
    signal.value = 9
    eventually(lambda: len(called) == 4)
    assert called == [1, 1, 2, 3]


def test_a_callback_of_a_reached_point_is_called_in_another_thread(device: Device):
    threads = list[threading.Thread]()
    device.signal(5).at(5).add_done_callback(lambda _: threads.append(threading.current_thread()))
    eventually(lambda: bool(threads))
    assert threads[0] is not threading.current_thread()


def test_callbacks_of_several_signals_do_not_wait_for_each_other(device: Device):
    signals = [device.signal(host_set=True) for _ in range(5)]
    futures = [signal.at(1).future() for signal in signals]
    for number in (3, 0, 4, 1, 2):
        signals[number].value = 1
        futures[number].result(timeout=HANG_S)
    assert all(future.done() for future in futures)


def test_the_thread_ends_with_the_last_callback_and_starts_again(device: Device):
    for _ in range(2):
        device.signal(1).at(1).future().result(timeout=HANG_S)
        eventually(lambda: "callbacks of points" not in [t.name for t in threading.enumerate()])


def test_a_callback_may_submit_and_register_the_next_one(device: Device):
    points = list[int]()

    def again(point: Point) -> None:
        points.append(point.value)
        if len(points) < 5:
            device.compute.submit(device.compute.record()).add_done_callback(again)

    device.compute.submit(device.compute.record()).add_done_callback(again)
    eventually(lambda: len(points) == 5)
    assert points == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("hook_raises", [False, True])
def test_what_a_callback_raises_is_reported_and_the_next_one_is_called(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: Any, *, hook_raises: bool
):
    reported = list[threading.ExceptHookArgs]()

    def hook(raised: threading.ExceptHookArgs) -> None:
        reported.append(raised)
        if hook_raises:
            raise ValueError("of the hook")

    monkeypatch.setattr(threading, "excepthook", hook)

    def refuse(_: Point) -> None:
        raise SystemExit(3)

    signal = device.signal(host_set=True)
    signal.at(1).add_done_callback(refuse)
    after = signal.at(1).future()
    signal.value = 1
    after.result(timeout=HANG_S)
    assert [one.exc_type for one in reported] == [SystemExit]
    assert ("ValueError: of the hook" in capsys.readouterr().err) == hook_raises


def test_a_future_of_work_that_a_fault_ends_has_the_fault_as_its_exception():
    driver = FakeDevice()
    driver.hold = True
    with wrap(driver, validate=True) as device:
        called = list[Point]()
        point = device.compute.submit(device.compute.record())
        point.add_done_callback(called.append)
        future = point.future()
        driver.report = FaultReport(kind=FaultKind.HANG, device="fake:0", message="stopped")
        with pytest.raises(DeviceFault):
            future.result(timeout=HANG_S)
        eventually(lambda: called == [point])
        with pytest.raises(DeviceFault):
            point.wait(timeout_s=0)
        driver.hold = False


def test_a_close_ends_the_callbacks_of_points_that_are_not_reached():
    with wrap(FakeDevice()) as device:
        future = device.signal(host_set=True).at(1).future()
    with pytest.raises(UsageError, match="closed"):
        future.result(timeout=HANG_S)


def test_a_cancelled_future_or_task_leaves_the_others(device: Device):
    signal = device.signal(host_set=True)
    cancelled, kept = signal.at(1).future(), signal.at(1).future()
    assert cancelled.cancel()

    async def both() -> None:
        async def wait() -> None:
            await signal.at(1)

        task, other = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        signal.value = 1
        await other
        assert task.cancelled() or (await asyncio.gather(task, return_exceptions=True))

    asyncio.run(both())
    kept.result(timeout=HANG_S)


def test_a_thousand_coroutines_wait_in_one_thread(device: Device):
    signal, threads = device.signal(host_set=True), set[object]()

    async def wait(value: int) -> int:
        await signal.at(value)
        return value

    async def everything() -> list[int]:
        tasks = [asyncio.ensure_future(wait(value)) for value in range(1, 1001)]
        for _ in range(3):
            await asyncio.sleep(0)
            threads.add(WAITER._thread)
        signal.value = 1000
        return await asyncio.gather(*tasks)

    assert asyncio.run(everything()) == list(range(1, 1001))
    assert len(threads - {None}) == 1


def test_a_point_of_no_number_is_refused_where_it_is_registered(device: Device):
    with pytest.raises(UsageTypeError, match="wanted an int"):
        device.signal().at("one").future()  # type: ignore[arg-type]  # the mistake


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_has_no_callbacks(device: Device):
    signal = device.signal(host_set=True)
    future = signal.at(1).future()
    if (pid := os.fork()) == 0:
        os._exit(0 if not WAITER._waiting and WAITER._thread is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    signal.value = 1
    future.result(timeout=HANG_S)
