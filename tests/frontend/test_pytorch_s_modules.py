"""Modules under PyTorch's names: distributions, functional_call, gradcheck, samplers, save and load."""

from __future__ import annotations

import copy
import io
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import frontend as torch
from frontend import nn
from frontend.autograd import Function, gradcheck
from frontend.distributions import Bernoulli, Categorical, Normal
from frontend.func import functional_call
from frontend.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from pathlib import Path


def test_distributions_have_pytorch_s_densities_and_entropies():
    """The numbers are those of PyTorch 2.13."""
    classes = Categorical(torch.tensor([[0.1, 0.2, 0.7], [1.0, 1.0, 2.0]]))
    np.testing.assert_allclose(
        classes.log_prob(torch.tensor([2, 0])).numpy(), [-0.35667497, -1.3862944], rtol=1e-5
    )
    np.testing.assert_allclose(classes.entropy().numpy(), [0.80181855, 1.0397208], rtol=1e-5)
    by_logits = Categorical(logits=torch.tensor([0.0, 1.0, -1.0]))
    assert by_logits.log_prob(torch.tensor(1)).item() == pytest.approx(-0.40760589)
    assert Categorical(logits=torch.tensor([0.0, -float("inf")])).entropy().item() == 0
    normal = Normal(torch.tensor([0.0, 1.0]), 2.0)
    np.testing.assert_allclose(
        normal.log_prob(torch.tensor([1.0, 1.0])).numpy(), [-1.7370857, -1.6120857], rtol=1e-5
    )
    np.testing.assert_allclose(normal.entropy().numpy(), [2.1120858, 2.1120858], rtol=1e-5)
    chance = Bernoulli(torch.tensor([0.2, 0.7]))
    np.testing.assert_allclose(
        chance.log_prob(torch.tensor([1.0, 0.0])).numpy(), [-1.609438, -1.2039728], rtol=1e-5
    )
    shapes = [d.sample((5,)).shape for d in (classes, by_logits, normal, chance)]
    assert shapes == [(5, 2), (5,), (5, 2), (5, 2)]


def test_certain_classes_are_always_drawn():
    assert set(Categorical(torch.tensor([0.0, 0.0, 1.0])).sample((50,)).tolist()) == {2}
    assert Bernoulli(torch.tensor([0.0, 1.0])).sample((9,)).tolist() == [[0, 1]] * 9


@pytest.mark.parametrize("kind", [Categorical, Bernoulli])
def test_a_distribution_takes_probabilities_or_logits(kind: Any):
    for given in ({}, {"probs": torch.ones(2), "logits": torch.ones(2)}):
        with pytest.raises(UsageError, match="wanted probs or logits, saw both or none"):
            kind(**given)


def test_a_functional_call_uses_other_tensors_and_leaves_the_module():
    model = nn.Sequential(nn.Linear(2, 1))
    before = model[0].weight
    weight = torch.tensor([[1.0, 2.0]], requires_grad=True)
    given = {"0.weight": weight, "0.bias": torch.tensor([3.0])}
    y = functional_call(model, given, (torch.tensor([[1.0, 1.0]]),))
    assert y.tolist() == [[6]]
    y.sum().backward()
    assert weight.grad is not None
    assert (weight.grad.tolist(), model[0].weight is before) == ([[1, 1]], True)
    with pytest.raises(UsageError, match=r"no tensor '1\.weight'; see named_parameters"):
        functional_call(model, {"1.weight": weight}, (torch.ones(1, 2),))
    with pytest.raises(UsageError):
        functional_call(model, {"0.weight": torch.ones(1, 3)}, (torch.ones(1, 2),))
    assert model[0].weight is before


def test_gradcheck_finds_a_wrong_gradient():
    class Doubled(Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(_: Any, g: Any) -> Any:
            return g * 3

    x = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda t: t.sin() * t, (x,))
    assert not gradcheck(Doubled.apply, (x,), raise_exception=False)
    with pytest.raises(UsageError, match="gradcheck: input 0 has the gradient"):
        gradcheck(Doubled.apply, (x,))


def test_samplers_give_the_numbers_of_batches():
    data = TensorDataset(torch.arange(5))
    assert list(SequentialSampler(data)) == [0, 1, 2, 3, 4]
    drawn = RandomSampler(data, generator=torch.Generator().manual_seed(3))
    first, second = list(drawn), list(drawn)
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert first != second
    assert list(BatchSampler(SequentialSampler(data), 2)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(SequentialSampler(data), 2, drop_last=True)) == [[0, 1], [2, 3]]
    loaded = [x.tolist() for (x,) in DataLoader(data, batch_sampler=[[4, 0], [1]])]
    assert loaded == [[4, 0], [1]]
    assert len(DataLoader(data, 2, sampler=[3, 1, 0])) == 2
    assert len(DataLoader(data, 2, sampler=[])) == 0
    with pytest.raises(UsageError, match="a sampler draws the order itself"):
        DataLoader(data, shuffle=True, sampler=[0])


def test_nested_data_is_saved_and_loaded(tmp_path: Path):
    data = {
        "a": torch.tensor([[1.0, 2.0]]),
        "b": [torch.tensor([1, 2]).cast("int64"), (None, 3, 0.5, "x", b"yz")],
        "c": {5: {1, 2}}, "empty": torch.zeros(0, 3), "dtype": torch.float16,
        "half": torch.tensor([1.5]).cast("bfloat16"), "kept": torch.ones(2, requires_grad=True),
    }  # fmt: skip
    torch.save(data, tmp_path / "x.pt")
    got = torch.load(tmp_path / "x.pt")
    assert (got["a"].tolist(), got["b"][0].tolist(), got["b"][0].dtype) == ([[1, 2]], [1, 2], torch.int64)
    assert (got["b"][1], got["c"], got["dtype"]) == ((None, 3, 0.5, "x", b"yz"), {5: {1, 2}}, torch.float16)
    assert (got["empty"].shape, got["half"].dtype, got["kept"].requires_grad) == (
        (0, 3),
        torch.bfloat16,
        True,
    )
    stream = io.BytesIO()
    torch.save(data["a"], stream)
    assert zipfile.ZipFile(stream).namelist()[0] == "archive/data.pkl"


def test_what_cannot_be_saved_is_named_and_an_older_file_is_kept(tmp_path: Path):
    path = tmp_path / "x.pt"
    torch.save(1, path)
    with pytest.raises(UsageTypeError, match=r"save: data\['model'\]\[0\] is .*\nhint: save numbers"):
        torch.save({"model": [nn.ReLU()]}, path)
    assert (torch.load(path), [p.name for p in tmp_path.iterdir()]) == (1, ["x.pt"])


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: torch.range(0, 1, 0.25), [0, 0.25, 0.5, 0.75, 1]),
        (lambda: torch.range(0, 1, 0.1).shape[0], 11),
        (lambda: torch.cumulative_trapezoid(torch.ones(2, 2), torch.tensor([0.0, 3.0]), dim=0), [[3, 3]]),
        (lambda: torch.hann_window(0), []),
        (lambda: nn.functional.alpha_dropout(torch.ones(2), 1.0, training=True), [0, 0]),
        (lambda: torch.pdist(torch.ones(1, 3)), []),
        (
            lambda: nn.functional.instance_norm(
                torch.ones(1, 1, 2), torch.ones(1), torch.ones(1), use_input_stats=False
            ),
            [[[0, 0]]],
        ),
    ],
)
def test_functions_have_pytorch_s_answers_at_their_edges(call: Any, want: Any):
    found = call()
    assert (found.tolist() if isinstance(found, torch.Tensor) else found) == want


def test_instance_norm_moves_the_running_statistics_that_it_is_given():
    mean, var = torch.tensor([2.0]), torch.ones(1)
    nn.functional.instance_norm(torch.tensor([[[0.0, 2.0]]]), mean, var)
    np.testing.assert_allclose([mean.item(), var.item()], [1.9, 1.1], rtol=1e-6)


def test_a_copy_of_a_module_with_a_spectral_norm_has_its_own_iterations():
    module = nn.utils.spectral_norm(nn.Linear(4, 3))
    copied, before = copy.deepcopy(module), module.weight_u.tolist()
    copied.weight_orig.assign(copied.weight_orig.detach() * 0 + torch.arange(12.0).reshape(3, 4))
    for _ in range(20):
        copied(torch.ones(1, 4))
    assert module.weight_u.tolist() == before
    assert copied.weight_u.tolist() != before
    assert np.linalg.svd(copied.weight.numpy())[1][0] == pytest.approx(1, rel=1e-5)
