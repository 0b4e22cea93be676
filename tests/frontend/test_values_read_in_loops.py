"""Loops that read a value in each turn compute each turn once: kernels and plans of a turn do not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import frontend as torch
from frontend import nn, stats
from frontend.evaluation import history

if TYPE_CHECKING:
    from collections.abc import Callable

Turn = "Callable[[Any, Any], tuple[Any, float]]"
TURNS = 12


def iterated(m: Any, s: Any) -> tuple[Any, float]:
    x = m.tanh(m.w @ s) + s * 0.5
    return x, float(m.abs(x - x.mean()).max())


def in_place(m: Any, s: Any) -> tuple[Any, float]:
    s *= 0.9
    s += m.tanh(m.w @ s)
    return s, float(m.abs(s).max())


def gradient_descent(m: Any, s: Any) -> tuple[Any, float]:
    """Solve by conjugate gradients: three states, of which one is read."""
    x, r, p = s if isinstance(s, tuple) else (s * 0, s, s)
    rr, ap = r @ r, m.spd @ p
    step = rr / (p @ ap)
    x, new = x + step * p, r - step * ap
    left = new @ new
    found = float(left)
    return (x, new, new + (left / rr) * p), found


def counted(m: Any, s: Any) -> tuple[Any, float]:
    """Add to a number that no memory is behind, and read a comparison."""
    x, t = s if isinstance(s, tuple) else (s, m.zeros(()))
    t = t + 0.25
    x = m.tanh(m.w @ x) * t
    return (x, t), float(t < 100) + float(x.max() > 0)


def greedy(m: Any, s: Any) -> tuple[Any, float]:
    h, token = s if isinstance(s, tuple) else (s, 3)
    h = m.tanh(m.table[token] + m.w @ h)
    token = int((m.table @ h).argmax())
    return (h, token), float(token)


def sampled(m: Any, s: Any) -> tuple[Any, float]:
    """Cut logits off in place, and draw; the chances of all but one are 0."""
    h = s if isinstance(s, tuple) else (s, s * 0)
    x, y = h[-1], m.tanh(m.w @ h[0])
    logits = m.table @ (x + y)
    logits[logits < logits.max()] = -float("inf")
    p = m.exp(logits - logits.max())
    token = m.draw(p)
    return (y, m.table[token].reshape(16)), float(p.sum())


class Ours:
    exp, draw = staticmethod(torch.exp), staticmethod(lambda p: torch.multinomial(p, 1))
    tanh, abs, zeros = staticmethod(torch.tanh), staticmethod(torch.abs), staticmethod(torch.zeros)


class Numpys:
    exp, draw = np.exp, staticmethod(np.argmax)
    tanh, abs, zeros = np.tanh, np.abs, staticmethod(np.zeros)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("turn", [iterated, in_place, gradient_descent, counted, greedy, sampled])
def test_a_turn_of_a_loop_costs_what_the_turn_before_did(turn: Callable[[Any, Any], tuple[Any, float]]):
    w, table = numbers(16, 16) * np.float32(0.1), numbers(16, 16)
    spd = w @ w.T + np.eye(16, dtype=np.float32)
    ours, theirs = Ours(), Numpys()
    for m, make in ((ours, torch.tensor), (theirs, np.array)):
        m.w, m.table, m.spd = make(w), make(table), make(spd)
    state, wanted, costs, plans = torch.tensor(numbers(16)), numbers(16), [], 0
    for k in range(TURNS):
        before, plans_before = stats.kernels, stats.plans
        state, got = turn(ours, state)
        wanted, want = turn(theirs, wanted)
        assert got == pytest.approx(want, rel=1e-3, abs=1e-5)
        costs.append(stats.kernels - before)
        plans += stats.plans - plans_before if k >= TURNS - 4 else 0
    assert max(costs[-4:]) <= max(costs[:3]), costs
    assert plans == 0


@pytest.mark.parametrize("read", [False, True])
def test_a_text_that_grows_by_drawn_tokens_is_computed_once(*, read: bool):
    """As `generate` of many programs: the best logits are kept in place, `cat` appends what was drawn."""
    torch.manual_seed(1)
    table, w = torch.tensor(numbers(10, 16)), torch.tensor(numbers(16, 16))
    ids, costs = torch.zeros((1, 1), dtype=torch.long), []
    with torch.no_grad():
        for k in range(TURNS):
            before = stats.kernels
            logits = (torch.tanh(table[ids] @ w).sum(1) @ table.T) / 0.8
            top, _ = torch.topk(logits, 3)
            logits[logits < top[:, [-1]]] = -float("inf")
            drawn = torch.multinomial(torch.softmax(logits, -1), 1)
            ids = torch.cat((ids, drawn), dim=1)
            assert ids.shape == (1, k + 2)
            if read:
                assert 0 <= ids[0, -1].item() < 10
            costs.append(stats.kernels - before)
    assert costs[-1] <= costs[3], costs
    x, chosen = table.numpy(), ids.numpy()[0]
    for k in range(1, len(chosen)):
        logits = np.tanh(x[chosen[:k]] @ w.numpy()).sum(0) @ x.T
        assert logits[chosen[k]] >= np.sort(logits)[-3] - 1e-4


def test_gradients_flow_through_turns_whose_values_were_read():
    """A fixed point of a layer: its gradient is that of the loop in which nothing is read."""
    found = []
    for read in (True, False):
        layer = nn.Linear(8, 8)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(numbers(8, 8) * np.float32(0.3)))
            layer.bias.copy_(torch.tensor(numbers(8)))
        x, costs = torch.zeros(8), []
        for _ in range(6):
            before = stats.kernels
            y = torch.tanh(layer(x))
            if read:
                assert ((y - x).norm().item() > 0) is True
            x = y
            costs.append(stats.kernels - before)
        x.square().sum().backward()
        found.append((x.tolist(), layer.weight.grad.tolist(), layer.bias.grad.tolist()))
        assert not read or max(costs[3:]) <= max(costs[:3]), costs
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_views_constants_and_large_tensors_are_not_kept(monkeypatch: pytest.MonkeyPatch):
    """A mask of places and a transposed weight are no work, and a large tensor would take memory."""
    monkeypatch.setattr(history, "KEPT_BYTES", 64)
    w, mask, x = torch.tensor(numbers(4, 4)), torch.arange(4), torch.tensor(numbers(4))
    view, low, large, small = w.T, mask < 2, torch.tensor(numbers(8, 4)) * 2, x * 2
    for _ in range(3):
        assert np.isfinite((view @ small + low + large.sum(0)).sum().item())
    kept = [t.expr.op == "PARAM" for t in (view, low, large, small)]
    assert kept == [False, False, False, True]


@pytest.mark.parametrize("kind", ["dropout", "noise", "norm"])
def test_reading_values_changes_no_training(kind: str):
    """What is kept is what is rebuilt: random draws and statistics are those of a run without reads."""
    found = []
    for reads in (True, False):
        torch.manual_seed(3)
        first, last, norm = nn.Linear(6, 8), nn.Linear(8, 3), nn.BatchNorm1d(8)
        model = nn.ModuleList([first, last, norm])
        sgd, x = torch.optim.SGD(model.parameters(), 0.1), torch.tensor(numbers(16, 6))
        for _ in range(4):
            h = first(x)
            read = [h.sum().item(), h.max().item()] if reads else []
            h = norm(h) if kind == "norm" else h + torch.rand_like(h) if kind == "noise" else h
            h = nn.functional.dropout(torch.tanh(h), 0.3 if kind == "dropout" else 0.0)
            read += [h.sum().item(), (h > 0).float().mean().item()] if reads else []
            loss = nn.functional.cross_entropy(last(h), torch.arange(16) % 3)
            sgd.zero_grad()
            loss.backward()
            read += [p.grad.norm().item() for p in model.parameters() if p.grad is not None and reads]
            sgd.step()
            assert np.isfinite(read).all()
        found.append([loss.item(), *[p.tolist() for p in model.parameters()], norm.running_mean.tolist()])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
