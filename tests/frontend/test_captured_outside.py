"""Captured functions that use and assign outside tensors give the results of uncaptured ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
    "view of a temporary": lambda _: Tensor([1, 2]).realize()[:],
    "view of a pending temporary": lambda w: (w + w)[:],
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


ASSIGNED: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "assign": lambda s, y, x: s.assign(s + y + x),
    "assign itself": lambda s, y, _: s.assign(y),
    "add in place": lambda s, y, _: s.add_(y),
    "a part": lambda s, y, _: s.__setitem__(slice(1, 3), y[:2]),
    "a view": lambda s, y, _: s[1:3].mul_(y[:2]),
    "an element": lambda s, y, _: s.__setitem__(0, y[1]),
}


@pytest.mark.parametrize("write", ASSIGNED)
@pytest.mark.parametrize("changed", [False, True])
def test_a_pending_tensor_that_is_only_assigned_from_is_computed_once(write: str, *, changed: bool):
    def play(*, captured: bool) -> tuple[list[object], list[int]]:
        w, s = Tensor([1.0, 2.0, 3.0]).realize(), Tensor.zeros(3).contiguous().realize()
        y = (w * 2 + 1).sum() * (w + 1)
        f = TinyJit(lambda x: [ASSIGNED[write](s, y, x)][1:])
        call = f if captured else f.fn
        seen: list[object] = []
        counts: list[int] = []
        for k in range(5):
            x = Tensor([k, 0.0, 1.0]).realize()
            before = stats.kernels
            call(x)
            s.realize()
            counts.append(stats.kernels - before)
            seen.append(s.tolist())
            if changed and k > 1:
                w.assign(w * 0.0).realize()
        seen.append(y.tolist())
        return seen, counts

    found, counts = play(captured=True)
    assert found == play(captured=False)[0]
    assert counts[3:] == [1, 1]


def test_an_argument_that_was_computed_from_a_parameter_keeps_its_gradient():
    w = Tensor([2.0, 3.0], requires_grad=True)
    norm = TinyJit(lambda x: x.square().sum())
    for _ in range(4):
        h = w * 3
        assert norm(h).item() == 117.0
        (h * h).sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [36.0, 54.0]
        w.grad = None


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (2, 2.0),
        (1, True),
        (0, False),
        (0.0, -0.0),
        (1.0, True),
        (1, "1"),
        ([1, 2], [1, 2.0]),
        ({"a": 1}, {"a": True}),
    ],
)
def test_a_number_of_another_kind_is_another_argument(first: object, other: object):
    def scaled(x: Tensor, value: Any) -> Tensor:
        value = value["a"] if isinstance(value, dict) else value[1] if isinstance(value, list) else value
        return x * float(value) if isinstance(value, str) else x * value

    f = TinyJit(scaled)
    for _ in range(3):
        assert f(Tensor([1, 2]), first).tolist() == scaled(Tensor([1, 2]), first).tolist()
    with pytest.raises(UsageError, match="was captured with arguments"):
        f(Tensor([1, 2]), other)


def test_numbers_that_are_equal_and_nan_are_one_argument():
    f = TinyJit(lambda x, value, *_: x * value)
    for value, extra in ((2.0, float("nan")), (2.0, float("nan")), (2.0, math.nan)):
        assert f(Tensor([1.0, 2.0]), value, extra).tolist() == [2.0, 4.0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("outside", OUTSIDE)
def test_a_returned_outside_tensor_has_its_value(outside: str, write: str):
    def play(*, captured: bool) -> list[object]:
        w = Tensor([1, 2]).realize()
        y = OUTSIDE[outside](w)
        f = TinyJit(lambda x: (x + 1, y))
        call = f if captured else f.fn
        seen: list[object] = []
        for k in range(6):
            seen.append([t.tolist() for t in call(Tensor([k, 2 * k]).realize())])
            if k >= 2:
                WRITES[write](y, w)
        return seen

    assert play(captured=True) == play(captured=False)


def test_an_assigned_argument_whose_view_is_used_from_outside_is_refused():
    a = Tensor([0, 1, 2, 3]).realize()
    b = a.reshape(2, 2)[1].realize()
    b.assign(b + 1).realize()

    def add(x: Tensor) -> Tensor:
        x += x
        x[1:3] = b * 3
        return b * 2

    f = TinyJit(add)
    for _ in range(3):
        f(Tensor([1, 2, 3, 4]))
    with pytest.raises(UsageError, match="also uses it from outside"):
        f(a)
    assert f(a.clone()).tolist() == (b * 2).tolist()


def test_a_capture_assigns_to_a_view_whose_root_only_a_pending_value_keeps():
    root = Tensor([1.0, 2.0])
    part, other = root[:1], root * 2
    del root
    f = TinyJit(lambda x: [part.mul_(2), x + other][1])
    assert [f(Tensor([3.0, 7.0])).tolist() for _ in range(4)] == [[5.0, 11.0]] * 4
    assert part.tolist() == [16.0]
