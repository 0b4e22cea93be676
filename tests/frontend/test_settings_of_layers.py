"""Settings of layers and optimisers are checked when set; a captured step uses a new learning rate."""

# ruff: noqa: PLW0108 - a layer made while tests are collected would open the device

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, nn
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIMISERS = (nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW)


def weight() -> Tensor:
    return Tensor([1.0, 2.0], requires_grad=True)


def stepped(t: Tensor, optimiser: nn.optim.Optimizer) -> None:
    t.square().sum().backward()
    optimiser.step()


@pytest.mark.parametrize(
    "made",
    [
        lambda: 0.0,
        lambda: 0.25,
        lambda: np.float32(0.5),
        lambda: Tensor(0.25),
        lambda: Tensor([0.5], dtype="float64"),
    ],
    ids=["zero", "number", "of numpy", "tensor", "float64 tensor"],
)
def test_a_learning_rate_is_set_at_any_time(made: Callable[[], Any]):
    t, rate = weight(), made()
    optimiser = nn.optim.SGD([t], 0.1)
    optimiser.lr = rate
    stepped(t, optimiser)
    got = float(rate.item() if isinstance(rate, Tensor) else rate)
    np.testing.assert_allclose(t.numpy(), np.array([1.0, 2.0]) * (1 - 2 * got), rtol=1e-6)
    assert optimiser.lr.item() == got


def test_a_captured_step_uses_a_new_learning_rate():
    t = weight()
    optimiser = nn.optim.SGD([t], 0.25)

    @TinyJit
    def step() -> None:
        stepped(t, optimiser)

    for _ in range(3):
        step()
    np.testing.assert_allclose(t.numpy(), [0.125, 0.25])
    optimiser.lr = 0.0
    step()
    np.testing.assert_allclose(t.numpy(), [0.125, 0.25])
    optimiser.lr = 0.5
    step()
    np.testing.assert_allclose(t.numpy(), [0.0, 0.0])
    optimiser.lr *= 0.5
    assert optimiser.lr.item() == 0.25


def test_other_settings_are_fixed_once_a_step_was_captured():
    t = weight()
    optimiser = nn.optim.SGD([t], 0.25, momentum=0.5)
    optimiser.momentum = 0.0
    step = TinyJit(lambda: stepped(t, optimiser))
    step()
    optimiser.weight_decay = 0.5
    step()
    for name in ("momentum", "weight_decay"):
        with pytest.raises(UsageError, match=f"SGD, {name}: a captured step uses"):
            setattr(optimiser, name, 0.25)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("rate", [-1, float("nan"), -1e-9, float("inf")])
def test_a_learning_rate_is_finite_and_not_negative(kind: Any, rate: float):
    with pytest.raises(ValueError, match="lr: wanted at least 0"):
        kind([weight()], lr=rate)
    optimiser = kind([weight()])
    with pytest.raises(UsageError, match="lr: wanted at least 0"):
        optimiser.lr = rate


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.optim.SGD([weight()], momentum=-1),
        lambda: nn.optim.SGD([weight()], weight_decay=-1),
        lambda: nn.optim.Adam([weight()], b1=1.5),
        lambda: nn.optim.Adam([weight()], b2=1),
        lambda: nn.optim.AdamW([weight()], eps=-1),
        lambda: nn.optim.AdamW([weight()], weight_decay=-1),
        lambda: nn.Dropout(2),
        lambda: nn.Linear(0, 3),
        lambda: nn.Linear(3, -1),
        lambda: nn.Conv2d(3, 4, 0),
        lambda: nn.Conv2d(3, 4, 3, stride=0),
        lambda: nn.Conv2d(3, 4, (3, 3, 3)),
        lambda: nn.Conv2d(3, 4, 3, groups=0),
        lambda: nn.ConvTranspose2d(3, 4, 3, groups=2),
        lambda: nn.BatchNorm(0),
        lambda: nn.BatchNorm(3, momentum=2),
        lambda: nn.GroupNorm(0, 4),
        lambda: nn.GroupNorm(3, 4),
        lambda: nn.Embedding(-1, 4),
        lambda: nn.LayerNorm((3, 0)),
        lambda: Tensor.ones(1, 1, 4, 4).conv2d(Tensor.ones(1, 1, 3, 3), Tensor.ones(4)),
        lambda: Tensor.ones(1, 1, 4, 4).conv_transpose2d(Tensor.ones(1, 1, 3, 3), padding=-1),
        lambda: nn.functional.gaussian_nll_loss(weight(), weight(), -1.0),
        lambda: nn.functional.embedding(Tensor([0.5]), Tensor.ones(3, 4)),
        lambda: nn.optim.lr_scheduler.StepLR(nn.optim.SGD([weight()]), 0),
        lambda: nn.optim.lr_scheduler.LinearLR(nn.optim.SGD([weight()]), total_iters=0),
        lambda: nn.optim.lr_scheduler.PolynomialLR(nn.optim.SGD([weight()]), 0),
        lambda: nn.optim.lr_scheduler.CosineAnnealingLR(nn.optim.SGD([weight()]), 0),
        lambda: nn.optim.lr_scheduler.CosineAnnealingWarmRestarts(nn.optim.SGD([weight()]), 0),
    ],
)
def test_invalid_layer_settings_are_refused_at_construction(make: Callable[[], Any]):
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv2d(3, 4, 3, padding="typo"),
        lambda: nn.Conv2d(3, 4, "3"),
        lambda: nn.ConvTranspose2d(3, 4, 3, padding="typo"),
        lambda: nn.Linear("3", 4),
        lambda: nn.Linear(3.0, 4),
        lambda: nn.Dropout("0.5"),
        lambda: nn.LayerNorm("3"),
        lambda: nn.BatchNorm(None),
        lambda: nn.optim.SGD(weight()),
        lambda: nn.optim.SGD([1.0]),
        lambda: nn.optim.SGD(5),
        lambda: nn.optim.Adam([weight()], betas=("a", None)),
        lambda: nn.optim.SGD([weight()], lr="fast"),
        lambda: nn.optim.Adam([weight()], b1=[0.9]),
        lambda: nn.Linear(3, 4)("text"),
        lambda: nn.Embedding(3, 4)(Tensor([0.5])),
    ],
)
def test_invalid_classes_are_refused_at_the_call(make: Callable[[], Any]):
    with pytest.raises(TypeError) as caught:
        make()
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: nn.BatchNorm2d(3)(x),
            r"BatchNorm2d has 3 channels, axis 1 of the input \(2, 4, 5, 5\) has 4",
        ),
        (lambda x: nn.GroupNorm(3, 3)(x), "GroupNorm has 3 channels"),
        (lambda x: nn.Conv2d(3, 4, 3)(x), "Conv2d has 3 channels"),
        (lambda x: nn.ConvTranspose2d(3, 4, 3)(x), "ConvTranspose2d has 3 channels"),
        (lambda x: nn.Linear(3, 4)(x), "Linear has 3 inputs"),
        (lambda x: nn.LayerNorm(3)(x), "LayerNorm over"),
        (lambda x: nn.RMSNorm(3)(x), "RMSNorm over"),
        (lambda x: nn.BatchNorm2d(3)(x[0, 0, 0]), "at least 2 axes"),
        (lambda x: x.batchnorm(None, None, Tensor.zeros(3), Tensor.ones(3)), "axis 1 of .* has 4 channels"),
        (lambda x: x.conv2d(Tensor.ones(4, 3, 3, 3)), "3 input channels"),
    ],
)
def test_inputs_of_other_channels_are_named(make: Callable[[Tensor], Any], message: str):
    with pytest.raises(UsageError, match=message):
        make(Tensor.zeros(2, 4, 5, 5))


def test_layers_take_arrays_and_lists():
    assert nn.Linear(3, 4)([[1.0, 2.0, 3.0]]).shape == (1, 4)
    assert nn.Linear(3, 4)(np.ones((2, 3), np.float32)).shape == (2, 4)
    assert nn.Embedding(3, 4)([[0, 1], [2, 0]]).shape == (2, 2, 4)
    assert nn.LayerNorm(3)(np.ones((2, 3), np.float32)).shape == (2, 3)
