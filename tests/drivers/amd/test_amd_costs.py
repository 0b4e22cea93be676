"""Launches and replays of the AMD driver run about as much Python as NVIDIA's, counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drivers.nv.test_nv_streams import instructions_of
from tests.support.host_time.amd import FinishedAmd
from tests.support.host_time.nv import FinishedNv

KERNELS = 64


KERNEL_SIDE = (
    "drivers/kernel.py",
    "tests/support/scripted/host.py",
    "tests/support/amd/scripted.py",
    "tests/support/amd/scripted_queues.py",
    "tests/support/nv/scripted.py",
    "tests/support/nv/scripted_doorbell.py",
)
"""What stands in for the operating system: no part of a driver."""


def counts(gpu: Any) -> list[int]:
    """Return the instructions of a launch, and of a replay with every input changed and with none."""
    runs = (gpu.launcher(), gpu.replayer(KERNELS, changed=True), gpu.replayer(KERNELS, changed=False))
    return [instructions_of(run, gpu.finish, without=KERNEL_SIDE) for run in runs]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["gfx1100", "gfx942"])
def test_launches_and_replays_cost_at_most_a_tenth_more_than_nvidia_s(target: str):
    with FinishedNv() as beside, FinishedAmd(target) as gpu:
        for seen, theirs in zip(counts(gpu), counts(beside), strict=True):
            assert seen <= 1.1 * theirs
