"""Gradients through moved tensors flow back to the device that these were moved from."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import hcq
from frontend import Device, Tensor, TinyJit, nn
from frontend.device import TensorDevice
from hcq.errors import UsageError

X = np.array([0.5, -1.0, 2.0])


@pytest.fixture
def other():
    """The name of a device of its own, beside the default one."""
    device = TensorDevice("cpu:9", hcq.open("cpu"))
    Device._open["cpu:9"] = device
    yield "cpu:9"
    device.close()


def marked(data: object) -> Tensor:
    return Tensor(data, dtype="float64", requires_grad=True)


def test_a_gradient_flows_back_to_the_device_a_tensor_was_moved_from(other: str):
    x = marked(X)
    (x.to(other) ** 2).sum().backward()
    assert x.grad is not None
    assert x.grad.device == x.device
    np.testing.assert_allclose(x.grad.numpy(), 2 * X)


def test_a_moved_loss_has_a_gradient(other: str):
    x = marked(X)
    loss = (x**3).sum().to(other)
    loss.backward()
    assert loss.item() == pytest.approx((X**3).sum())
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2)


def test_a_moved_pending_tensor_keeps_its_history(other: str):
    x = marked(X)
    h = x.exp()
    y = h.to(other)
    assert not h.is_realized
    (h.sum() * 2).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(X))
    x.grad = None
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(X))


def test_gradients_over_both_devices_accumulate(other: str):
    """x is moved forth and back and used on both devices, and one moved tensor is used twice."""
    x, w = marked(X), Tensor([3.0, 1.0, -2.0], dtype="float64", device=other, requires_grad=True)
    over = x.sin().to(other)
    back = (over * w + over).to(x.device)
    loss = (back * x).sum() + (over * over).to(x.device).sum()
    loss.backward()
    s, c, v = np.sin(X), np.cos(X), w.numpy()
    np.testing.assert_allclose(x.grad.numpy(), (X * (v + 1) + 2 * s) * c + s * (v + 1))
    np.testing.assert_allclose(w.grad.numpy(), X * s)
    assert (x.grad.device, w.grad.device) == (x.device, other)


def test_gradient_names_targets_on_any_device(other: str):
    x = marked(X)
    h = x * 2
    over = h.to(other)
    of_x, of_h, of_over = (over**2).sum().gradient(x, h, over)
    np.testing.assert_allclose(of_over.numpy(), 4 * X)
    np.testing.assert_allclose(of_h.numpy(), 4 * X)
    np.testing.assert_allclose(of_x.numpy(), 8 * X)
    assert (of_x.device, of_h.device, of_over.device) == (x.device, x.device, other)


def test_second_order_gradients_cross_devices_twice(other: str):
    x = marked(X)
    (g,) = (x.to(other) ** 3).sum().gradient(x)
    (g2,) = (g.to(other) * 2).sum().gradient(x)
    np.testing.assert_allclose(g2.numpy(), 12 * X)


def test_moved_detached_and_unmarked_tensors_have_no_history(other: str):
    x, plain = marked(X), Tensor(X)
    for moved in (x.detach().to(other), plain.to(other), (x > 0).to(other).double()):
        with pytest.raises(UsageError, match=r"no tensor with requires_grad|is realized"):
            moved.sum().backward()
    with pytest.raises(UsageError, match="requires_grad"):
        plain.to(other).sum().gradient(plain)


def test_moving_data_holds_no_memory_of_the_source(other: str):
    x = Tensor(X)
    leaf = weakref.ref(x.leaves[0])
    y = x.to(other)
    del x
    gc.collect()
    assert leaf() is None
    assert y.tolist() == X.tolist()


def test_a_chain_of_moves_of_unmarked_tensors_does_not_grow(other: str):
    state = Tensor([1.0])
    first = None
    for _ in range(3):
        state = (state.to(other) * 2).to(state.device)
        first = first or weakref.ref(state.leaves[0])
    assert state.tolist() == [8.0]
    assert first() is None


def test_a_later_assignment_does_not_change_moved_tensors(other: str):
    x = marked(X)
    loss = (x.exp().to(other) * 2).sum()
    kept = marked(X + 1)
    both = (x * kept).to(other).sum()
    x.assign(x * 0).realize()
    both.backward()
    np.testing.assert_allclose(kept.grad.numpy(), X)
    assert loss.item() == pytest.approx(2 * np.exp(X).sum())


@pytest.mark.slow
def test_layers_on_two_devices_train_together(other: str):
    Tensor.manual_seed(1)
    first = nn.Linear(4, 8)
    second = nn.Linear(8, 1)
    for t in nn.state.get_parameters(second):
        t.replace(t.detach().to(other))
    steps = [nn.optim.SGD(nn.state.get_parameters(layer), lr=0.05) for layer in (first, second)]
    data = Tensor(np.random.default_rng(2).normal(size=(16, 4)).astype(np.float32))
    goal = data.sum(1, keepdim=True).to(other)
    losses = []
    for _ in range(30):
        loss = (second(first(data).tanh().to(other)) - goal).square().mean()
        loss.backward()
        for step in steps:
            step.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


def test_a_captured_function_refuses_gradients_across_its_boundary(other: str):
    x = marked(X)
    over = x.to(other)

    def step(y: Tensor) -> Tensor:
        loss = (over * y).sum()
        loss.backward()
        return loss

    f, y = TinyJit(step), Tensor(X, device=other)
    f(y)
    with pytest.raises(UsageError, match="captured function"):
        f(y)
