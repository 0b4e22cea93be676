"""Processes that share a cache: later ones compile nothing, concurrent ones work, damage is repaired."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.limits import CHILD_S

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = """
import sys
from pathlib import Path
import numpy as np
from frontend import Tensor, TinyJit, nn, stats

Tensor.manual_seed(3)
model = [lambda x: x.conv2d(kernel, padding=1).relu().max_pool2d(), lambda x: x.flatten(1), nn.Linear(64, 10)]
kernel = Tensor.randn(4, 1, 3, 3)
optimiser = nn.optim.Adam([kernel, *nn.state.get_parameters(model)], lr=1e-3)

@TinyJit
def step(x, y):
    with Tensor.train():
        loss = x.sequential(model).sparse_categorical_crossentropy(y).backward()
        optimiser.step()
        return loss

r = np.random.default_rng(0)
x, y = Tensor(r.standard_normal((8, 1, 8, 8), "f")), Tensor(r.integers(0, 10, 8).astype("i"))
losses = [step(x, y).item() for _ in range(4)]
llvm = "llvmlite" in sys.modules or "llvmlite" in Path("/proc/self/maps").read_text()
print(*[f"{loss:.5f}" for loss in losses], stats.lowered, llvm)
"""


def start(cache: Path) -> subprocess.Popen[str]:
    settings = {**os.environ, "HCQ_CACHE": str(cache), "HCQ_VALIDATE": "0"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", TRAIN],
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[list[str], int, bool]:
    """Return (losses, kernels lowered, whether LLVM was loaded)."""
    out, err = process.communicate(timeout=CHILD_S)
    assert (process.returncode, err) == (0, "")
    *losses, lowered, llvm = out.split()
    return losses, int(lowered), llvm == "True"


@pytest.mark.slow
def test_processes_share_a_cache_and_a_later_one_compiles_nothing(tmp_path: Path) -> None:
    together = [finish(p) for p in [start(tmp_path) for _ in range(3)]]
    losses = together[0][0]
    assert all(found[0] == losses for found in together)
    assert any(found[1] > 0 for found in together)
    assert float(losses[-1]) < float(losses[0])

    assert finish(start(tmp_path)) == (losses, 0, False), "LLVM is not even loaded"
    assert not list(tmp_path.rglob(".new-*"))


@pytest.mark.slow
def test_damaged_cache_files_are_replaced(tmp_path: Path) -> None:
    losses = finish(start(tmp_path))[0]
    files = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    for number, path in enumerate(files):
        data = path.read_bytes()
        damaged = (data[: len(data) // 2], b"", data[:-1] + bytes([data[-1] ^ 1]), data + b"x")[number % 4]
        path.write_bytes(damaged)
    found, lowered, llvm = finish(start(tmp_path))
    assert (found, llvm) == (losses, True)
    assert lowered > 0
    assert finish(start(tmp_path)) == (losses, 0, False), "what was damaged is whole again"
