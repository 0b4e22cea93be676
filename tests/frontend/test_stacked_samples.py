"""Tensors in memory, which `stack` copies: the values of the plain form, and no plan for each sample."""

from __future__ import annotations

import random

import numpy as np
import pytest

import frontend as torch
from frontend import Tensor, TinyJit, stats
from frontend.ops import splitting


@pytest.mark.parametrize("device", ["cpu", "amd-emu", "nv-emu"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "bool", "int64"])
def test_copies_are_what_the_plain_form_computes(dtype: str, device: str, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(2)
    for shape in ((), (1,), (3,), (1, 3), (2, 1, 3), (0, 2), (33,)):
        xs = [Tensor(rng.integers(0, 3, shape), device=device).cast(dtype).realize() for _ in range(3)]
        pending = xs[0].clone() if dtype == "bool" else xs[0] + 1
        for every in ([*xs, xs[1]], [*xs, pending], [xs[2]] * 5, [*xs, xs[1], pending, xs[0]]):
            monkeypatch.setattr(splitting, "COPIED", 4)
            got = torch.stack(every)
            monkeypatch.setattr(splitting, "COPIED", 99)
            want = torch.stack(every)
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_batch_of_random_samples_makes_no_plan():
    draw = random.Random(3)
    memory = [[torch.tensor([number] * 3) for number in (float(k), 1.0)] for k in range(12)]
    before = 0
    for turn in range(12):
        picked = [draw.randrange(12) for _ in range(6)]
        batch = torch.stack([memory[k][0] for k in picked]) + torch.stack([memory[k][1] for k in picked])
        assert batch.tolist() == [[k + 1.0] * 3 for k in picked]
        before = stats.plans if turn == 1 else before
    assert stats.plans == before


def test_writes_gradients_and_captures_are_those_of_any_stack():
    xs = [torch.ones(2).contiguous().realize() for _ in range(4)]
    first = torch.stack(xs)
    xs[0] += 5
    second = torch.stack(xs)
    xs[1].zero_()
    assert (first.tolist(), second.tolist()) == ([[1, 1]] * 4, [[6, 6], *[[1, 1]] * 3])
    weight = torch.nn.Parameter(torch.ones(2))
    (torch.stack([weight, *xs]) * 2).sum().backward()
    assert weight.grad.tolist() == [2, 2]

    @TinyJit
    def twice(x: Tensor) -> Tensor:
        return torch.stack([x, *xs]) * 2

    for k in range(4):
        assert twice(torch.full((2,), float(k)).realize()).tolist()[0] == [2 * k] * 2
    xs[2] += 1
    assert twice(torch.ones(2).realize()).tolist() == [[2, 2], [12, 12], [0, 0], [4, 4], [2, 2]]
