"""Copies of tensors, layers, models and optimisers: `copy`, `deepcopy`, pickle."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
from frontend import Tensor, TinyJit, nn
from frontend.evaluation.gradient_state import decided
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


WAYS: tuple[Callable[[Any], Any], ...] = (copy.deepcopy, pickled)


@pytest.mark.parametrize("way", [copy.copy, *WAYS])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_a_copy_has_the_value_and_the_dtype(way: Callable[[Any], Any], dtype: str):
    t = Tensor(X % 2).cast(dtype)
    for one in (t, t.realize(), t[0, 0], t[:, :0]):
        got = way(one)
        assert got is not one
        assert (got.dtype, got.shape, got.device) == (one.dtype, one.shape, one.device)
        assert got.tolist() == one.tolist()


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_and_its_source_are_independent(way: Callable[[Any], Any]):
    t = Tensor(X).realize()
    got = way(t)
    got += 1
    np.testing.assert_array_equal(t.numpy(), X)
    t *= 3
    np.testing.assert_array_equal(got.numpy(), X + 1)
    np.testing.assert_array_equal(t.numpy(), X * 3)


@pytest.mark.parametrize("wanted", [None, False, True])
@pytest.mark.parametrize("way", [copy.copy, *WAYS])
def test_requires_grad_is_kept(way: Callable[[Any], Any], wanted: bool | None):  # noqa: FBT001 - a parameter of the test
    got = way(Tensor(X, requires_grad=wanted))
    assert (decided(got), got.requires_grad) == (wanted, bool(wanted))


def test_a_deep_copy_has_a_gradient_of_its_own():
    t = Tensor(X, requires_grad=True)
    (t * t).sum().backward()
    got = copy.deepcopy(t)
    assert got.grad is not None
    assert got.grad is not t.grad
    np.testing.assert_array_equal(got.grad.numpy(), 2 * X)
    assert pickled(t).grad is None


def test_a_copy_of_a_pending_tensor_leaves_it_pending():
    t = Tensor(X) * 2
    np.testing.assert_array_equal(copy.deepcopy(t).numpy(), X * 2)
    assert not t.is_realized


class Model:
    """A layer used twice, norms, an embedding."""

    def __init__(self) -> None:
        self.table = nn.Embedding(5, 3)
        self.first = nn.Linear(3, 3)
        self.layers = [self.first, nn.LayerNorm(3), nn.Dropout(0.0)]
        self.norm = nn.BatchNorm(3)

    def __call__(self, index: Tensor) -> Tensor:
        return self.norm(self.first(self.table(index)).sequential(self.layers))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_model_and_its_optimiser_are_copied_together_and_train_alike(way: Callable[[Any], Any]):
    model = Model()
    optimiser = nn.optim.AdamW(nn.state.get_parameters(model), 0.1)
    index = Tensor([0, 4, 2, 2])

    def trained(m: Model, o: nn.optim.AdamW) -> float:
        with Tensor.train():
            loss = (m(index) - 1).square().sum()
            loss.backward()
            o.step()
        return float(loss.item())

    trained(model, optimiser)
    twin, other = way((model, optimiser))
    assert twin.layers[0] is twin.first
    assert any(p is twin.table.weight for p in other.params)
    assert trained(twin, other) == trained(model, optimiser)
    own, copied = nn.state.get_state_dict(model), nn.state.get_state_dict(twin)
    assert own.keys() == copied.keys()
    for name in own:
        np.testing.assert_array_equal(own[name].numpy(), copied[name].numpy())
    trained(model, optimiser)
    assert not np.array_equal(model.first.weight.numpy(), twin.first.weight.numpy())


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_optimiser_alone_moves_its_own_tensors(way: Callable[[Any], Any]):
    t = Tensor(X)
    optimiser = nn.optim.SGD([t], 0.5, momentum=0.9)
    got = way(optimiser)
    assert got.params[0] is not t
    (got.params[0].square().sum()).backward()
    got.step()
    np.testing.assert_array_equal(t.numpy(), X)
    np.testing.assert_array_equal(got.params[0].numpy(), np.zeros_like(X))


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_optimiser_knows_its_frozen_parameters(way: Callable[[Any], Any]):
    layer = nn.Linear(2, 2, bias=False)
    (frozen,) = layer.parameters()
    frozen.requires_grad = False
    optimiser = way(nn.optim.SGD([Tensor(X), frozen], 0.5))
    optimiser.params[0].square().sum().backward()
    optimiser.step()
    thawed = optimiser.params[1].requires_grad_()
    before = thawed.numpy()
    thawed.square().sum().backward()
    optimiser.step()
    assert (thawed.numpy() != before).any()


def test_deep_copies_inside_a_capture_are_refused():
    @TinyJit
    def f(t: Tensor) -> Tensor:
        return copy.deepcopy(t).realize()

    x = Tensor(X).realize()
    f(x)
    with pytest.raises(UsageError, match="inside a captured function"):
        f(x)


def test_device_memory_owners_are_not_copied():
    with hcq.open("cpu") as device:
        buffer = device.alloc(64)
        signal = device.signal()
        for owner in (buffer, signal, device, device.compute):
            for way in (copy.copy, *WAYS):
                with pytest.raises(TypeError, match=f"{type(owner).__name__} .* cannot be copied or pickled"):
                    way(owner)
