"""A profile of tensors names each kernel by its role."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.children import python

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import numpy as np
from frontend import Tensor, TinyJit
from frontend.device import Device

r = np.random.default_rng(0)
w = Tensor(r.standard_normal((48, 32), "f")).realize()

@TinyJit
def step(x):
    return (x @ w.T).softmax().clone().sum(1).realize()

for _ in range(4):
    step(Tensor(r.standard_normal((64, 32), "f")).realize()).numpy()
print(len(Device["cpu"].hcq.spans()) > 0)
"""


@pytest.mark.slow
def test_a_profile_shows_each_kernel_of_a_captured_step_by_its_role(tmp_path: Path):
    trace = tmp_path / "trace.json"
    settings = {"HCQ_TRACE": str(trace), "HCQ_PROFILE": "1", "HCQ_DEVICE": "cpu", "HCQ_VALIDATE": "0"}
    done = python("-c", PROGRAM, **settings)
    assert done.stdout == "True\n"
    bars = [bar for bar in json.loads(trace.read_text())["traceEvents"] if bar["ph"] == "X"]
    steps = [bar for bar in bars if bar["name"] == "step"]
    assert len(steps) >= 2
    for step in steps:
        end = step["ts"] + step["dur"]
        inside = [bar["name"] for bar in bars if step["ts"] <= bar["ts"] and bar["ts"] + bar["dur"] <= end]
        roles = {re.sub("_[0-9a-f]{6}$", "", name) for name in inside}
        assert {"matmul_64x48x32", "softmax_64x48", "sum_64_of_48"} <= roles
