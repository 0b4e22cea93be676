"""Captured functions that use and assign outside tensors give the results of uncaptured ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frontend import Tensor, TinyJit, nn
from frontend.stats import stats
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

OUTSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "pending no-operation": lambda w: w + 0,
    "computed no-operation": lambda w: (w + 0).realize(),
    "no-operation on a temporary": lambda _: (Tensor([1, 2]).realize() + 0).realize(),
    "pending": lambda w: w * 2,
    "pending over pending": lambda w: (w * 2 + 1) * 3,
    "computed": lambda w: (w * 2).realize(),
    "detached": lambda w: w.detach(),
    "detached and computed": lambda w: w.detach().realize(),
    "replaced": lambda w: Tensor([5, 5]).realize().replace(w),
    "view": lambda w: w[:],
    "reshaped": lambda w: w.reshape(2),
    "computed view": lambda w: w.reshape(2).realize(),
    "view of a pending tensor": lambda w: (w * 2)[:],
    "flipped": lambda w: w.flip(0),
    "assigned": lambda w: Tensor([7, 7]).assign(w),
}
WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "it": lambda y, _: y.assign(y + 10).realize(),
    "it, pending": lambda y, _: y.assign(y + 10),
    "what it was made of": lambda _, w: w.assign(w * 100).realize(),
    "both": lambda y, w: (w.assign(w * 100).realize(), y.assign(y + 10).realize()),
    "a part of it": lambda y, _: y.__setitem__(0, 9),
}


def play(outside: str, write: str, *, captured: bool) -> list[object]:
    w = Tensor([1, 2]).realize()
    y = OUTSIDE[outside](w)

    def add(x: Tensor) -> Tensor:
        return (x * 3 + y).realize()

    f = TinyJit(add) if captured else add
    seen: list[object] = []
    for k in range(6):
        seen.append(f(Tensor([k, 2 * k]).realize()).tolist())
        if k >= 2:
            WRITES[write](y, w)
            seen += [y.tolist(), w.tolist()] if k == 4 else []
    return seen


@pytest.mark.sampled(7)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("outside", OUTSIDE)
def test_replays_use_values_assigned_to_outside_tensors(outside: str, write: str):
    assert play(outside, write, captured=True) == play(outside, write, captured=False)


def test_a_capture_inside_the_first_call_of_another_uses_assigned_values():
    y = Tensor([1, 2]).realize() * 2
    inner = TinyJit(lambda x: (x + y).realize())
    outer = TinyJit(lambda x: (inner(x) * 2).realize())
    for _ in range(3):
        outer(Tensor([0, 0]).realize())
    y.assign(y + 10).realize()
    assert outer(Tensor([0, 0]).realize()).tolist() == [24, 28]


def test_running_statistics_share_the_work_of_the_result_in_a_captured_function():
    conv, norm, same_norm = nn.Conv2d(2, 4, 3), nn.BatchNorm(4), nn.BatchNorm(4)
    x = Tensor.rand(2, 2, 8, 8).realize(conv.weight, conv.bias)

    def both() -> Tensor:
        return same_norm(conv(x)).realize(*nn.state.get_state_dict(same_norm).values())

    f = TinyJit(lambda x: norm(conv(x)).realize())
    counts: list[tuple[int, int]] = []
    for _ in range(4):
        before = stats.kernels
        y = f(x)
        middle = stats.kernels
        z = both()
        counts.append((middle - before, stats.kernels - middle))
        assert y.tolist() == z.tolist()
    assert counts[2:] == [(n, n) for _, n in counts[2:]]
    assert norm.num_batches_tracked.item() == 4
    assert norm.running_mean.tolist() == same_norm.running_mean.tolist()
    assert norm.running_var.tolist() == same_norm.running_var.tolist()


def test_an_assignment_before_a_result_is_computed_once_in_a_captured_function():
    total, borrowed = Tensor([0.0, 0.0]).realize(), Tensor([1.0, 1.0]).realize().detach()

    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        borrowed.assign(borrowed * 2)
        return (x + 1).realize()

    f = TinyJit(add)
    for k in range(1, 5):
        assert f(Tensor([1.0, 2.0]).realize()).tolist() == [2.0, 3.0]
        assert total.tolist() == [k, 2.0 * k]
        assert borrowed.tolist() == [2.0**k, 2.0**k]


def train(*, captured: bool) -> list[float]:
    w = Tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
    offset = Tensor([1.0, 2.0]).realize() * 0.5
    optimiser = nn.optim.SGD([w], lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimiser.zero_grad()
        loss = ((x @ w + offset) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss.realize()

    run = TinyJit(step) if captured else step
    losses = []
    for k in range(6):
        losses.append(run(Tensor([[1.0, float(k)], [0.5, 2.0]]).realize()).item())
        if k >= 2:
            offset.assign(offset * 0.5).realize()
    return losses


def test_training_with_a_pending_outside_tensor_equals_uncaptured_training():
    assert train(captured=True) == pytest.approx(train(captured=False), rel=1e-6)


@pytest.mark.parametrize(
    "change", ["w.replace(Tensor([5.0, 5.0]).realize())", "model.double()", "model.half()"]
)
def test_a_replay_refuses_outside_memory_that_was_replaced(change: str):
    model = nn.Linear(2, 2)
    w = model.bias
    assert w is not None
    x = Tensor([[1.0, 2.0]])
    captured, plain = TinyJit(lambda x: x * w), TinyJit(lambda x: x * 2.0)
    for _ in range(3):
        captured(x)
        plain(x)
    exec(change, {"w": w, "model": model, "Tensor": Tensor})
    with pytest.raises(UsageError, match=r"moved or replaced(.|\n)*reset"):
        captured(x)
    assert plain(x).tolist() == [[2.0, 4.0]]
    captured.reset()
    for _ in range(4):
        assert captured(x).tolist() == (x * w).tolist()


def test_a_replay_sees_writes_to_tensors_that_a_pending_result_was_built_from():
    model, x = nn.Linear(2, 2), Tensor([[1.0, 2.0]])
    f = TinyJit(lambda x: {"y": [model(x)]})
    for _ in range(3):
        f(x)
    assert model.bias is not None
    model.weight.assign(model.weight * 0.0)
    model.bias.assign(model.bias * 0.0 + 1.0)
    assert f(x)["y"][0].tolist() == [[1.0, 1.0]]
