"""Launches and replays of the AMD driver run about as much Python as NVIDIA's, counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drivers.nv.test_nv_streams import instructions_of
from tools.bench.amd import FinishedAmd
from tools.bench.nv import FinishedGpu

KERNELS = 64


def counts(gpu: Any) -> list[int]:
    """Return the instructions of a launch, and of a replay with every input changed and with none."""
    runs = (gpu.launcher(), gpu.replayer(KERNELS, changed=True), gpu.replayer(KERNELS, changed=False))
    return [instructions_of(run, gpu.finish) for run in runs]


# AQL packets are copied to the ring one launch or replay after the other, which NVIDIA's ring entries spare.
@pytest.mark.parametrize(("target", "more"), [("gfx1100", (1.1, 1.1, 1.1)), ("gfx942", (1.25, 1.15, 1.45))])
def test_launches_and_replays_cost_about_what_nvidia_s_cost(target: str, more: tuple[float, ...]):
    with FinishedGpu() as beside, FinishedAmd(target) as gpu:
        for seen, theirs, factor in zip(counts(gpu), counts(beside), more, strict=True):
            assert seen <= factor * theirs
