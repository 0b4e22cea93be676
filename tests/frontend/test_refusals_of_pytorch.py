"""What PyTorch 2.13 refuses, allows and leaves as it is, in modules, schedules and indices."""

from __future__ import annotations

import math
from typing import Any

import pytest

import frontend as torch
from frontend import array_api, nn
from frontend.nn.utils import parametrize
from hcq.errors import UsageError


def test_a_frozen_weight_stays_frozen_when_it_is_parametrized():
    class Half(nn.Module):
        def forward(self, weight: Any) -> Any:
            return weight / 2

    for wanted in (True, False, None):
        layer = nn.Linear(2, 2)
        if wanted is not None:  # else undecided, as no optimiser was made
            layer.weight.requires_grad_(wanted)
        parametrize.register_parametrization(layer, "weight", Half())
        assert layer.parametrizations.weight.original.requires_grad is (wanted is not False)


def test_one_cycle_allows_as_many_steps_as_a_loop_makes():
    """PyTorch 2.13: OneCycleLR(RMSprop(p, lr=1e-3, momentum=0.5), max_lr=0.01, total_steps=6)."""
    optimiser = torch.optim.RMSprop([torch.ones(1).requires_grad_()], lr=1e-3, momentum=0.5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.01, total_steps=6)
    for _ in range(6):
        schedule.step()
    assert schedule.get_last_lr()[0] == pytest.approx(0.0013347753018883054)
    with pytest.raises(UsageError, match="this is one more"):
        schedule.step()


def test_a_number_may_come_before_the_tensor():
    assert torch.bucketize(2.5, torch.tensor([1, 2, 3])).item() == 2
    assert torch.xlogy(2.0, torch.tensor([1, 2])).tolist() == pytest.approx([0.0, 2 * math.log(2)])
    found = torch.special.xlog1py(2.5, torch.tensor([1, 0]))
    assert found.tolist() == pytest.approx([2.5 * math.log(2), 0.0])


@pytest.mark.parametrize(
    ("name", "settings", "values", "slopes"),
    [  # PyTorch 2.13: of 1.5 * [-3, 0.7, 8], and gradients of the sum
        ("relu", (), [0.0, 1.05, 12.0], [0.0, 1.5, 1.5]),
        ("relu6", (), [0.0, 1.05, 6.0], [0.0, 1.5, 0.0]),
        ("leaky_relu", (0.2,), [-0.9, 1.05, 12.0], [0.3, 1.5, 1.5]),
        ("hardtanh", (-1.0, 2.0), [-1.0, 1.05, 2.0], [0.0, 1.5, 0.0]),
        ("threshold", (0.1, 9.0), [9.0, 1.05, 12.0], [0.0, 1.5, 1.5]),
        ("dropout", (0.0,), [-4.5, 1.05, 12.0], [1.5, 1.5, 1.5]),
    ],
)
def test_a_function_that_works_in_place_changes_its_input(
    name: str, settings: tuple[float, ...], values: list[float], slopes: list[float]
):
    function = getattr(nn.functional, name)
    leaf = torch.tensor([-3.0, 0.7, 8.0]).requires_grad_()
    x = leaf * 1.5
    assert function(x, *settings, inplace=True) is x
    assert x.tolist() == pytest.approx(values)
    x.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == pytest.approx(slopes)
    kept = torch.ones(2)
    assert function(kept, *settings, inplace=False) is not kept or name == "dropout"


def test_a_uint8_index_is_a_mask():
    mask = torch.tensor([0, 1], dtype=torch.uint8)
    with pytest.raises(IndexError, match="mask"):
        torch.arange(3)[mask]
    assert torch.arange(4).reshape(2, 2)[mask].tolist() == [[2, 3]]


def test_the_array_api_keeps_its_own_sign_and_truth():
    assert math.isnan(array_api.sign(torch.tensor([math.nan])).item())
    assert array_api.any(torch.tensor([1], dtype=torch.uint8)).dtype == torch.bool
    assert array_api.all(torch.tensor([0], dtype=torch.uint8)).item() is False
