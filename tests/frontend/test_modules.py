"""Modules: modes, parameters by name, text; clipping as in PyTorch.

Recurrent layers: `test_layers_of_pytorch`; schedules: `test_optimisers_of_pytorch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, nn
from hcq.errors import UsageError


class Net(nn.Module):
    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Dropout(0.5))
        self.heads = nn.ModuleList([nn.Linear(4, 1)])

    def forward(self, x: Tensor) -> Any:
        return self.heads[0](self.body(x))


def close(got: Tensor, want: list[float]) -> None:
    np.testing.assert_allclose(got.numpy().reshape(-1), want, rtol=1e-4, atol=2e-6)


def test_a_module_names_its_parameters_as_pytorch_does():
    names = [name for name, _ in Net().named_parameters()]
    assert names == ["body.0.weight", "body.0.bias", "heads.0.weight", "heads.0.bias"]
    assert list(Net().state_dict()) == names
    net, other = Net(), Net()
    net.load_state_dict(other.state_dict())
    assert net.body[0].weight.tolist() == other.body[0].weight.tolist()


def test_modes_reach_all_modules_and_a_block_overrides_them():
    net, x = Net(), Tensor.ones(64, 2)
    assert all(m.training for m in net.modules())
    net.eval()
    assert not any(m.training for m in net.modules())
    assert net(x).tolist() == net(x).tolist()
    with Tensor.train():
        assert net.body(x).tolist() != net.body(x).tolist()
    assert net.train() is net
    assert net.body[2].training


def test_modules_print_as_in_pytorch():
    assert (
        repr(Net())
        == """Net(
  (body): Sequential(
    (0): Linear(in_features=2, out_features=4, bias=True)
    (1): ReLU()
    (2): Dropout(p=0.5, inplace=False)
  )
  (heads): ModuleList(
    (0): Linear(in_features=4, out_features=1, bias=True)
  )
)"""
    )
    assert repr(nn.Conv2d(1, 2, 3, padding=1)) == (
        "Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
    )
    assert repr(nn.GELU()) == "GELU(approximate='none')"
    with pytest.raises(UsageError, match="no forward"):
        nn.Module()(1)
    with pytest.raises(UsageError, match="wanted layers"):
        nn.Sequential(3)


def test_clipping_scales_gradients_to_the_norm():
    w = Tensor([3.0, 4.0], requires_grad=True)
    (w * Tensor([3.0, 4.0])).sum().backward()
    close(nn.clip_grad_norm_([w], 1.0), [5.0])
    assert w.grad is not None
    close(w.grad, [0.6, 0.8])
    nn.clip_grad_value_(w, 0.7)
    close(w.grad, [0.6, 0.7])
    assert nn.clip_grad_norm_([Tensor([1.0])], 1.0).item() == 0


def test_clipping_to_an_infinite_norm_passes_on_what_is_no_number():
    w = Tensor([3.0, 4.0], requires_grad=True)
    w.grad = Tensor([3.0, 4.0])
    assert (nn.clip_grad_norm_([w], float("inf")).item(), w.grad.tolist()) == (5.0, [3.0, 4.0])
    w.grad = Tensor([1.0, float("nan")])
    with pytest.raises(UsageError, match="norm of the gradients is nan"):
        nn.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
    assert w.grad.tolist()[0] == 1.0
    nn.clip_grad_norm_([w], float("inf"))
    assert np.isnan(w.grad.numpy()).all()


def test_no_grad_cuts_what_is_computed_inside():
    w = Tensor([2.0, 3.0], requires_grad=True)
    with Tensor.no_grad():
        cut = w * 2 + w.exp() - w.exp()
    (cut * w).sum().backward()
    assert w.grad is not None
    close(w.grad, [4.0, 6.0])


class Tied(nn.Module):
    def __init__(self) -> None:
        self.wte = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x: Tensor) -> Any:
        return self.head(self.wte(x))


def test_a_tied_weight_is_one_parameter_with_two_names_in_the_state():
    net = Tied().requires_grad_()
    assert [name for name, _ in net.named_parameters()] == ["wte.weight"]
    assert list(net.state_dict()) == ["wte.weight", "head.weight"]
    assert len(nn.state.get_parameters(net)) == 1
    assert nn.utils.parameters_to_vector(net.parameters()).shape == (20,)
    net(Tensor([1, 3])).sum().backward()
    gradient = net.wte.weight.grad.numpy()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    np.testing.assert_allclose(norm.item(), np.sqrt((gradient**2).sum()), rtol=1e-5)
    np.testing.assert_allclose(np.sqrt((net.wte.weight.grad.numpy() ** 2).sum()), 0.5, rtol=1e-4)
    net.load_state_dict({name: Tensor.ones(5, 4) for name in net.state_dict()})
    assert net.head.weight.numpy().sum() == 20
    assert net.to(dtype="float16").head.weight is net.wte.weight
