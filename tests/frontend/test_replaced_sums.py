"""Kernels in which a workgroup sums one value and replaces operands of it, with all checks of emulated GPUs.

A step of Adam is one: each thread of the sum loads the parameter and both averages, and one stores them.
Not here: what the compiler writes for such a sum (`tests/compiler`), assignments on processors
(`test_assignment`).
"""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from frontend import Device, Tensor, nn
from frontend.device import TensorDevice
from hcq.config import override

NAME = "nv-emu:7"


@pytest.mark.parametrize("gpu", ["nv-emu:sm_80", "amd-emu:gfx942"])
def test_threads_load_what_one_of_them_replaces_before_it_does(gpu: str) -> None:
    given = np.arange(1280, dtype=np.float32).reshape(128, 10) / 1280
    with override(emu_checked=True, validate=True):
        made = TensorDevice(NAME, hcq.open(f"{gpu}+checked"))
    Device._open[NAME] = made
    try:
        x = Tensor(given, device=NAME).realize()
        weight = Tensor(np.ones(10, np.float32), device=NAME).realize()
        weight.requires_grad = True
        step = nn.optim.Adam([weight], lr=0.25)
        for _ in range(2):
            step.zero_grad()
            ((x + weight) * x).sum().backward()
            step.step()
            weight.realize()
        # the gradient is constant and positive, so each step is the rate
        np.testing.assert_allclose(weight.numpy(), np.full(10, 0.5), rtol=1e-5)
    finally:
        made.close()
        Device._open.pop(NAME, None)
