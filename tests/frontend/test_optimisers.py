"""Steps of optimisers: launches, gradients, rates, dtypes. Their rules: `test_optimisers_of_pytorch`."""

from __future__ import annotations

import pytest

from frontend import Tensor, TinyJit, dtypes, nn, stats
from hcq.errors import UsageError


def test_a_step_is_one_launch_with_the_loss():
    w = Tensor([1.0, 2.0])
    opt = nn.optim.Adam([w])

    def step() -> Tensor:
        loss = (w * w).sum().backward()
        opt.step()
        return loss

    step()
    launches = stats.launches
    loss = step()
    assert stats.launches == launches + 1
    assert loss.is_realized


def test_a_second_step_uses_the_same_gradients_and_leaves_them_to_be_read():
    w = Tensor([1.0])
    opt = nn.optim.SGD([w], 0.1)
    captured = TinyJit(opt.step)  # without any gradient: nothing at first, and no capture
    with pytest.raises(UsageError, match=r"none of 1 parameters.*has a gradient"):
        [captured() for _ in range(2)]
    (w * 2).sum().backward()
    opt.zero_grad()
    assert w.grad is None
    (w * 2).sum().backward()
    opt.step()
    assert w.grad is not None
    assert (w.grad.item(), w.item()) == (2.0, pytest.approx(0.8))
    opt.step()
    assert (w.grad.item(), w.item()) == (2.0, pytest.approx(0.6))
    opt.zero_grad()
    opt.step()
    assert w.item() == pytest.approx(0.6)
    (w * 3).sum().backward()
    assert w.grad.item() == 3.0
    step = TinyJit(lambda x: ((w * x).sum().backward(), opt.step())[0])
    seen = [(step(Tensor([float(k)])), w.grad is None)[1] for k in range(1, 5)]
    assert seen == [False, True, True, True], "a captured step leaves no gradient, old ones neither"


def test_the_learning_rate_may_be_assigned():
    w = Tensor([1.0])
    opt = nn.optim.SGD([w], 0.1)
    plans = 0
    for i in range(10):
        opt.lr.assign(0.01 * (i + 1))
        before = w.item()
        (w * 1.0).sum().backward()
        opt.step()
        assert w.item() == pytest.approx(before - 0.01 * (i + 1), rel=1e-5)
        if i == 5:
            plans = stats.plans
    assert stats.plans == plans


def test_tensors_without_gradients_are_buffers():
    layer = nn.BatchNorm(3)
    opt = nn.optim.SGD(nn.state.get_parameters(layer))
    assert [p is q for p, q in zip(opt.params, (layer.weight, layer.bias), strict=True)] == [True, True]
    assert len(opt.buffers) == 3
    with Tensor.train():
        layer(Tensor.rand(4, 3)).square().sum().backward()
        opt.step()
    assert layer.running_mean.is_realized
    assert layer.num_batches_tracked.item() == 1


def test_optimisers_require_parameters():
    with pytest.raises(UsageError, match="at least one tensor"):
        nn.optim.SGD([])
    with pytest.raises(UsageError, match="requires_grad"):
        nn.optim.SGD([Tensor([1])])
    with pytest.raises(UsageError, match="momentum"):
        nn.optim.SGD([Tensor([1.0])], nesterov=True)


def test_sixteen_bit_parameters_keep_their_dtype():
    w = Tensor([1.0, 2.0], dtype=dtypes.float16)
    opt = nn.optim.Adam([w], 0.01)
    for _ in range(3):
        (w * w).sum().backward()
        opt.step()
    assert w.dtype is dtypes.float16
    assert w.numpy()[0] == pytest.approx(0.97, abs=0.005)


def test_a_step_computes_other_pending_assignments():
    layer = nn.BatchNorm(3)
    opt = nn.optim.SGD([layer.weight, layer.bias])
    with Tensor.train():
        for _ in range(3):
            layer(Tensor.rand(4, 3)).square().sum().backward()
            opt.step()
            assert layer.running_mean.is_realized


def test_all_steps_are_one_structure():
    model = [nn.Linear(3, 4), nn.BatchNorm(4)]
    opt = nn.optim.Adam(nn.state.get_parameters(model))
    plans = []
    with Tensor.train():
        for _ in range(3):
            Tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]).sequential(model).square().sum().backward()
            opt.step()
            plans.append(stats.plans)
    assert plans[0] == plans[1] == plans[2]
