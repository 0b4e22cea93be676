"""The bytes of cached plans are bounded; a plan dropped while in use remains valid."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Device, Tensor, TinyJit, stats
from frontend.evaluation.plan import MEASURE, OBJECTS, PLANS, build
from hcq.config import config, override, read
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUND = 1 << 20


@pytest.fixture(autouse=True)
def bound(room: None) -> Iterator[None]:  # above the bound of other tests
    with override(plan_bytes=BOUND):
        yield


def new_shape(n: int) -> float:
    x = Tensor(np.ones(n, "f"))
    y = (x * 2).realize()
    Tensor.realize(y + 1, total := y.sum())
    return total.item()


def held() -> int:
    return sum(plan.nbytes for plan, _, _ in PLANS._kept.values())


class Probe:
    """A device that records whether the collector is on when a program is loaded, and may fail then."""

    def __init__(self, device: Any, error: Exception | None = None) -> None:
        self.device, self.error, self.seen = device, error, list[bool]()

    def program(self, image: object) -> Any:
        self.seen.append(gc.isenabled())
        if self.error is not None:
            raise self.error
        return self.device.program(image)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)


def test_plans_do_not_keep_the_results_of_their_last_launch() -> None:
    with override(plan_bytes=256 << 20):
        result = weakref.ref((Tensor(np.ones(4001, "f")) * 3).realize().leaves[0].buffer)
        for n in range(MEASURE):
            (Tensor(np.ones(4002 + n, "f")) * 3).numpy()  # waits, so that no launch is in flight
        gc.collect()
        assert result() is None


@pytest.mark.parametrize("error", [None, UsageError("no room")])
def test_the_collector_is_off_while_a_plan_is_built_and_back_on_afterwards(error: UsageError | None) -> None:
    x = Tensor(np.ones(17, "f")).realize() * 3
    probe: Any = Probe(Device[x.device], error)
    with nullcontext() if error is None else pytest.raises(UsageError):
        build([(x.expr, tuple(range(len(x.leaves))))], [-1], probe, config())
    assert probe.seen == [False]
    assert gc.isenabled()


@pytest.mark.slow
def test_new_shapes_stay_under_the_bound():
    most, plans = 0, stats.plans
    for n in range(1001, 1061):
        assert new_shape(n) == 2.0 * n
        assert PLANS.nbytes <= BOUND
        most = max(most, len(PLANS))
    assert held() <= BOUND
    assert most < stats.plans - plans == 120


def test_plan_memory_is_counted():
    (Tensor(np.ones(1301, "f")) * 2).realize()
    plan, _, size = list(PLANS._kept.values())[-1]
    words = sum(b.size for slot in plan.executable._slots for b in slot.kept.memories)
    assert size >= words + 2 * len(plan.kernels[0].program.image.code) + OBJECTS
    assert words >= 2 * 4096  # two copies, each with a block of arguments


def test_a_dropped_plan_releases_its_memory_immediately():
    opened = Device[Device.DEFAULT]
    (Tensor(np.ones(1401, "f")) * 2).realize()
    plan, *_ = list(PLANS._kept.values())[-1]
    gone = [weakref.ref(plan.executable), weakref.ref(plan.kernels[0].program)]
    code = plan.kernels[0].program.image.code
    assert code in opened.programs
    del plan
    opened.synchronize()
    gc.disable()
    try:
        with override(plan_bytes=0):
            (Tensor([1.0, 2.0]) * 3).tolist()
            (Tensor([1.0, 2.0, 3.0]) * 4).tolist()
        assert [ref() for ref in gone] == [None, None]
        assert code not in opened.programs
    finally:
        gc.enable()


def test_dropped_plans_in_use_remain_valid():
    x = Tensor(np.arange(1501, dtype="f"))
    captured = TinyJit(lambda a: (a * 3 + a.max()).realize())
    for _ in range(3):
        captured(x)
    y = x * 5
    y.realize()
    run = (x * 5).expr.run
    assert run is not None
    with override(plan_bytes=0):
        for n in range(1601, 1605):
            new_shape(n)
        assert len(PLANS) == 1
        assert (x * 5).expr.run is None
        assert captured(x).numpy()[2] == 1506.0
        (leaf,) = run(x.leaves)
        assert Tensor.of_part((y.expr, (leaf,))).numpy()[3] == 15.0
        assert y.numpy()[4] == 20.0
        plans = stats.plans
        assert (x * 5).numpy()[5] == 25.0
        assert stats.plans == plans + 1


@pytest.mark.slow
def test_the_oldest_are_dropped_first():
    for n in range(1701, 1800):
        new_shape(n)
    plans = stats.plans
    new_shape(1799)
    assert stats.plans == plans
    new_shape(1701)
    assert stats.plans == plans + 2


def test_the_bound_is_a_setting():
    assert read({"HCQ_PLAN_BYTES": "0x100000"}).plan_bytes == 1 << 20
    with pytest.raises(UsageError, match="HCQ_PLAN_BYTES"):
        read({"HCQ_PLAN_BYTES": "much"})
