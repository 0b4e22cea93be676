"""Loops of many turns that read no value: no kernel is too deep to compile, and no plan has all turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frontend as torch
from frontend import Tensor, stats
from frontend.evaluation import history, trace
from frontend.evaluation.expr import TABLE


def logistic(x: Any) -> Any:
    return 3.5 * x * (1 - x)


@pytest.mark.parametrize("device", ["cpu", "amd-emu", "nv-emu"])
def test_the_values_of_a_loop_of_one_elementwise_expression(device: str):
    start = np.linspace(0.1, 0.8, 7)
    x, y, want, turns = Tensor(start, device=device), Tensor(start, device=device), start, 400
    for _ in range(turns):
        x, want = logistic(x), logistic(want)
        y.mul_(0.75).add_(0.125)
    np.testing.assert_allclose([x.mean().item(), y.sum().item()], [want.mean(), 3.5], rtol=1e-6)
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(y.numpy(), 0.5, rtol=1e-9)


@pytest.mark.parametrize("turns", [1, 130, 400])
def test_gradients_of_a_loop_of_one_elementwise_expression(turns: int):
    x = torch.tensor([0.3, 0.0, -2.0, 1.0], dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(turns):
        y = y * 0.99 + y.tanh() * 0.01
    y.sum().backward()
    value, slope = x.detach().numpy(), np.ones(4)
    for _ in range(turns):
        slope = slope * (0.99 + 0.01 * (1 - np.tanh(value) ** 2))
        value = value * 0.99 + np.tanh(value) * 0.01
    np.testing.assert_allclose(y.tolist(), value, rtol=1e-12)
    np.testing.assert_allclose(x.grad.tolist(), slope, rtol=1e-12)


@pytest.mark.parametrize("wants", [False, True])
def test_what_is_deep_is_computed_on_the_way(*, wants: bool, monkeypatch: pytest.MonkeyPatch):
    """Values and gradients are those of one plan; each launch has a part of the turns."""
    found = []
    for deep in (60, 1 << 20):
        monkeypatch.setattr(trace, "DEEP", deep)
        monkeypatch.setattr(history, "DEEP", deep)
        TABLE.clear()  # a structure that was met before is not looked at again
        w = torch.tensor([[0.5, 0.2], [-0.1, 0.7]], requires_grad=wants)
        x, total, launches = torch.tensor([1.0, -2.0]), torch.zeros(2), stats.launches
        for k in range(40):
            x = torch.tanh(w @ x) + torch.cat([x[1:], x[:1]]) * (0.1 + k % 3)
            total += x
        launches = stats.launches - launches
        if wants:
            total.sum().backward()
        found.append((x.tolist(), total.tolist(), w.grad.tolist() if wants else []))
        assert (launches > 3) is (deep == 60)
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
