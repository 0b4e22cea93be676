"""What programs ported from PyTorch rely on: frozen parameters, `to`, `nn.init`, `nn.utils`, `functional`.

Not here: layers against PyTorch's (`test_layers_of_pytorch`).
"""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import frontend
import frontend.nn.functional as F  # noqa: N812 - as programs write it
from frontend import Tensor, TinyJit, dtypes, nn
from frontend.distributions import Normal
from frontend.nn.utils import rnn
from frontend.optim.lr_scheduler import OneCycleLR, StepLR
from hcq.errors import UsageError


def net() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_frozen_parameters_stay_parameters():
    Tensor.manual_seed(4)
    model = net()
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == 6
    model.requires_grad_(False)
    assert [name for name, _ in model.named_parameters()] == names
    for p in model[3].parameters():
        p.requires_grad = True
    assert [p.requires_grad for p in model.parameters()] == [False] * 4 + [True] * 2
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [name for name, _ in other.named_parameters()] == names
    assert len(model.buffers()) == 3
    optimiser = nn.optim.SGD(model.parameters(), lr=0.5)
    before = [p.numpy() for p in model.parameters()]
    (model(Tensor(np.arange(6, dtype="float32").reshape(2, 3))) ** 2).sum().backward()
    optimiser.step()
    changed = [not np.array_equal(a, p.numpy()) for a, p in zip(before, model.parameters(), strict=True)]
    assert changed == [False] * 4 + [True] * 2


@pytest.mark.parametrize("captured", [False, True])
def test_a_parameter_that_is_thawed_later_moves(*, captured: bool):
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), Tensor.ones(2, 3).realize()
    model.requires_grad_(False)
    optimiser = nn.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model[0].requires_grad_(True)

    def step(x: Tensor) -> None:
        model(x).square().sum().backward()
        optimiser.step()

    step(x)
    model.requires_grad_(True)
    before = [p.numpy() for p in model.parameters()]
    (TinyJit(step) if captured else step)(x)
    assert not any(np.array_equal(a, p.numpy()) for a, p in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("device", ["cpu", "nv-emu"])
def test_a_model_moves_in_place_with_its_gradients(device: str):
    model, x = net().eval().requires_grad_(), np.arange(6, dtype="float32").reshape(2, 3)
    want = model(Tensor(x)).numpy()
    model(Tensor(x)).sum().backward()
    weight = model[0].weight
    gradient = weight.grad.numpy()
    assert model.to(device, dtypes.float64) is model
    assert model[0].weight is weight
    assert (weight.dtype, weight.device) == (dtypes.float64, Tensor([1.0], device=device).device)
    assert model[1].num_batches_tracked.dtype is dtypes.int64
    assert np.allclose(weight.grad.numpy(), gradient)
    assert np.allclose(model(Tensor(x, dtype="float64", device=device)).numpy(), want, atol=1e-5)
    optimiser = nn.optim.SGD(model.parameters(), lr=0.1)
    before = weight.numpy()
    optimiser.step()
    assert np.allclose(weight.numpy(), before - 0.1 * gradient)
    assert model.float().cpu()[0].weight.dtype is dtypes.float32
    assert model.half()[3].bias.dtype is dtypes.float16
    assert [p.requires_grad for p in model.parameters()] == [True] * 6


def test_a_model_refuses_to_move_where_it_cannot():
    model = net()
    with pytest.raises(UsageError, match="float dtype"):
        model.to(dtypes.int32)
    with pytest.raises(UsageError, match="no device is called"):
        model.to("nowhere")
    step, x = TinyJit(lambda x: model.half()[0](x) + 1), Tensor([[1.0, 2.0, 3.0]], dtype="float16")
    step(x)
    with pytest.raises(UsageError, match="captured"):
        step(x)


DEVIATIONS: dict[str, tuple[dict[str, Any], float]] = {
    "uniform_": ({"a": -1.0, "b": 2.0}, 3 / 12**0.5),
    "normal_": ({"std": 0.5}, 0.5),
    "trunc_normal_": ({"a": -1.0, "b": 1.0}, 0.5396),
    "xavier_uniform_": ({"gain": 2.0}, 2 * (2 / (80 + 120 * 4)) ** 0.5),
    "xavier_normal_": ({}, (2 / (80 + 120 * 4)) ** 0.5),
    "kaiming_uniform_": ({"nonlinearity": "relu"}, (2 / 80) ** 0.5),
    "kaiming_normal_": ({"a": 1.0, "mode": "fan_out"}, (1 / 480) ** 0.5),
}
"""Arguments and the standard deviation of a weight (120, 20, 4)."""


@pytest.mark.parametrize("name", DEVIATIONS)
def test_first_values_have_their_deviation(name: str):
    Tensor.manual_seed(1)
    arguments, deviation = DEVIATIONS[name]
    weight = nn.Parameter(Tensor.zeros(120, 20, 4))
    assert getattr(nn.init, name)(weight, **arguments) is weight
    assert abs(weight.numpy().std() / deviation - 1) < 0.03


def test_first_values_of_one_kind_and_orthogonal_ones():
    w = nn.Parameter(Tensor.zeros(3, 5))
    assert nn.init.ones_(w).tolist() == [[1.0] * 5] * 3
    assert nn.init.eye_(w).numpy().tolist() == np.eye(3, 5).tolist()
    assert nn.init.constant_(w, 2.5)[0, 0].item() == 2.5
    assert nn.init.zeros_(w).abs().sum().item() == 0
    q = nn.init.orthogonal_(w, gain=2.0).numpy()
    assert np.allclose(q @ q.T, 4 * np.eye(3), atol=1e-5)
    with pytest.raises(UsageError, match="two axes"):
        nn.init.xavier_uniform_(Tensor.zeros(3))
    with pytest.raises(UsageError, match="wanted one of"):
        nn.init.kaiming_normal_(w, nonlinearity="odd")


def test_packed_sequences_give_what_each_gives_alone():
    """Several layers, LSTM, and sequences first: the program `packed_lstm_tagger`."""
    Tensor.manual_seed(2)
    layer, every = nn.GRU(3, 4, bidirectional=True), [Tensor.randn(n, 3) for n in (2, 4, 1)]
    packed = rnn.pack_padded_sequence(rnn.pad_sequence(every), Tensor([2, 4, 1]), enforce_sorted=False)
    out, ends = layer(packed)
    padded, lengths = rnn.pad_packed_sequence(out, batch_first=True, padding_value=-7.0, total_length=5)
    y, last = padded.numpy(), ends.numpy()
    assert (y.shape, lengths.tolist()) == ((3, 5, 8), [2, 4, 1])
    for i, x in enumerate(every):
        alone, end = layer(x.unsqueeze(1))
        assert np.allclose(y[i, : len(x)], alone.numpy()[:, 0], atol=1e-6)
        assert (y[i, len(x) :] == -7).all()
        assert np.allclose(last[:, i], end.numpy()[:, 0], atol=1e-6)


def test_sequences_are_padded_and_cut_again():
    every = [Tensor([1.0, 2.0]), Tensor([3.0])]
    padded = rnn.pad_sequence(every, batch_first=True, padding_value=9.0)
    assert padded.tolist() == [[1.0, 2.0], [3.0, 9.0]]
    assert [x.tolist() for x in rnn.unpad_sequence(padded, [2, 1], batch_first=True)] == [[1.0, 2.0], [3.0]]
    assert rnn.pack_sequence([x.unsqueeze(1) for x in every]).lengths == (2, 1)
    with pytest.raises(UsageError, match="enforce_sorted"):
        rnn.pack_padded_sequence(padded, [1, 2], batch_first=True)
    with pytest.raises(UsageError, match="2 lengths"):
        rnn.pack_padded_sequence(padded, [1], batch_first=True)


def test_functions_have_the_weights_of_layers():
    x = Tensor.randn(2, 4)
    linear, norm = nn.Linear(4, 3), nn.LayerNorm(4)
    assert np.allclose(F.linear(x, linear.weight, linear.bias).numpy(), linear(x).numpy(), atol=1e-6)
    assert np.allclose(F.layer_norm(x, (4,), norm.weight, norm.bias).numpy(), norm(x).numpy(), atol=1e-6)
    table = nn.Embedding(5, 2)
    ids = Tensor([[1, 4]])
    assert np.array_equal(F.embedding(ids, table.weight).numpy(), table(ids).numpy())
    assert np.array_equal(F.dropout(x, 0.5, training=False).numpy(), x.numpy())
    assert np.allclose(F.softmax(x, dim=1).sum(1).numpy(), 1.0)
    with pytest.raises(AttributeError, match="layernorm"):
        F.layernorm(x)


def test_parameters_become_a_vector_and_back():
    model = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 0 + 2, model.parameters())
    assert model.bias.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(UsageError, match="9 elements"):
        nn.utils.vector_to_parameters(vector[1:], model.parameters())
    assert nn.optim.lr_scheduler.StepLR is StepLR


def test_the_seventh_argument_of_avg_pool2d_is_the_divisor():
    found = F.avg_pool2d(Tensor.ones(1, 1, 5, 5), 3, 1, 1, True, False, 2)
    assert found.tolist()[0][0][0] == [2.0, 3.0, 3.0, 3.0, 2.0]
    with pytest.raises(UsageError, match="divisor_override: wanted a number other than 0"):
        F.avg_pool2d(Tensor.ones(1, 1, 5, 5), 3, divisor_override=0)


@pytest.mark.parametrize("dim", [-2, 0, 1, 2])
def test_the_cosine_of_broadcast_tensors_is_that_of_their_expanded_ones(dim: int):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((1, 2, 3)), rng.standard_normal((2, 1, 3))
    size = [np.sqrt((np.broadcast_to(x, (2, 2, 3)) ** 2).sum(dim)) for x in (a, b)]
    wanted = (a * b).sum(dim) / size[0] / size[1]
    np.testing.assert_allclose(F.cosine_similarity(Tensor(a), Tensor(b), dim=dim).numpy(), wanted, rtol=1e-12)


def test_the_cosine_loss_of_broadcast_tensors_is_that_of_their_expanded_ones():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 3)), rng.standard_normal((4, 1))
    cosine = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * 3 * b[:, 0] ** 2)
    found = F.cosine_embedding_loss(Tensor(a), Tensor(b), Tensor.ones(4), reduction="none")
    np.testing.assert_allclose(found.numpy(), 1 - cosine, rtol=1e-9)


def test_variances_of_a_gaussian_loss_are_one_for_each_row():
    x, zeros = Tensor([[0.0, 1.0], [2.0, 3.0]]), Tensor.zeros(2, 2)
    assert F.gaussian_nll_loss(x, zeros, Tensor([1.0, 4.0])).item() == pytest.approx(0.8778236)
    assert F.gaussian_nll_loss(x, zeros, Tensor([[1.0], [4.0]])).item() == pytest.approx(0.8778236)
    with pytest.raises(UsageError, match=r"var has the shape \(3,\), wanted \(2, 3\) or one for each row"):
        F.gaussian_nll_loss(Tensor.ones(2, 3), Tensor.ones(2, 3), Tensor.ones(3))


@pytest.mark.parametrize(
    "weights", [[0.0, 0.0], [1.0, -1.0], [1.0, float("inf")], [1.0, float("nan")], [[1.0], [0.0]]]
)
@pytest.mark.parametrize("replacement", [True, False])
def test_weights_from_which_nothing_can_be_drawn_are_refused(weights: Any, replacement: bool):  # noqa: FBT001
    with pytest.raises(UsageError, match="multinomial: wanted weights from 0 on, finite, not all 0"):
        Tensor(weights).multinomial(1, replacement)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"fweights": [1.5, 1.0, 1.0]}, "fweights: wanted whole numbers, saw float32"),
        ({"fweights": [True, True, False]}, "fweights: wanted whole numbers, saw bool"),
        ({"aweights": [1, 1, 2]}, "aweights: wanted floats, saw int64"),
        ({"fweights": [-1, 1, 2]}, "fweights: wanted weights from 0 on"),
        ({"aweights": [-1.0, 1.0, 2.0]}, "aweights: wanted weights from 0 on"),
        ({"aweights": [float("nan"), 1.0, 2.0]}, "aweights: wanted weights from 0 on"),
        ({"fweights": [0, 0, 0]}, "not all 0"),
        ({"fweights": [1, 2]}, "wanted a weight for each of 3 observations"),
        ({"fweights": 3}, "cov"),
        ({"correction": 1.5}, "correction"),
    ],
)
def test_weights_of_covariances_are_checked(names: dict[str, Any], message: str):
    x = Tensor([[1.0, 2.0, 4.0], [3.0, 1.0, 2.0]])
    with pytest.raises(UsageError, match=message):
        x.cov(**names)


def test_settings_do_not_change_the_dtype_of_integers_and_weights_that_of_halves():
    x = Tensor([[1, 2], [3, 4]])
    padded = F.pad(x, (0, 1), "constant", 1.7)
    assert (padded.dtype.name, padded.tolist()) == ("int64", [[1, 2, 1], [3, 4, 1]])
    assert F.pad(x > 1, (0, 1), "constant", 0.5).tolist() == [[False, True, True], [True, True, True]]
    with pytest.raises(UsageError, match="300 does not fit int8"):
        F.pad(x.cast("int8"), (0, 1), "constant", 300)
    rows = F.embedding(Tensor([1, 1]), x, scale_grad_by_freq=True)
    assert (rows.dtype.name, rows.tolist()) == ("int64", [[3, 4], [3, 4]])
    half = x.cast("bfloat16")
    assert half.cov(aweights=Tensor([0.5, 1.0])).dtype.name == "float32"
    assert half.cov(fweights=Tensor([2, 1])).dtype.name == "bfloat16"


def test_fractions_of_a_range_of_integers_are_cut_off():
    assert Tensor.arange(2.1, -2.9, -1.0, dtype="int64").tolist() == [2, 1, 0, -1]
    assert Tensor.arange(2.1, -2.9, -1.0, dtype="int8").tolist() == [2, 1, 0, -1, -2]
    assert Tensor.arange(0.0, 7, 1.9, dtype="int32").tolist() == [0, 1, 2, 3]
    assert Tensor.arange(0, 1, 0.5, dtype="uint8").tolist() == [0, 0]
    with pytest.raises(UsageError, match="the step must not be 0"):
        Tensor.arange(0, 1, 0.5, dtype="int64")


def test_moves_take_the_further_arguments_of_pytorch():
    x = Tensor([1.0, 2.0]).realize()
    assert x.to("cpu", non_blocking=True) is x
    assert x.to(dtypes.float32, False, True) is not x
    assert x.to("cpu", dtypes.float64, True, True).tolist() == [1.0, 2.0]
    assert net().to("cpu", non_blocking=True)[0].weight.device == x.device
    with pytest.raises(UsageError, match="to, copy: wanted True or False"):
        x.to("cpu", copy=1)  # type: ignore[arg-type]


def test_layers_take_the_further_arguments_of_pytorch():
    x = Tensor(np.arange(30, dtype="float32").reshape(1, 1, 5, 6))
    values, places = nn.AdaptiveMaxPool2d((2, 3), return_indices=True)(x)
    assert values.tolist() == [[[[13.0, 15.0, 17.0], [25.0, 27.0, 29.0]]]]
    assert places.tolist() == [[[[13, 15, 17], [25, 27, 29]]]]
    assert nn.AvgPool2d(2, divisor_override=1)(x)[0, 0, 0].tolist() == [14.0, 22.0, 30.0]
    assert nn.Upsample(scale_factor=1.5, recompute_scale_factor=True)(x[..., :3]).shape == (1, 1, 7, 4)
    assert nn.MSELoss(size_average=False)(x, x + 1).item() == 30
    assert nn.CrossEntropyLoss(reduce=False)(x[0, 0], Tensor([0, 1, 2, 3, 4])).shape == (5,)
    assert nn.Linear(2, 3, 1).bias is not None  # type: ignore[arg-type]
    assert nn.Conv2d(1, 2, 1, bias=0).bias is None  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Linear, bias: wanted True or False, saw 2"):
        nn.Linear(2, 3, 2)  # type: ignore[arg-type]


def test_rows_of_a_table_are_limited_in_place_and_their_gradients_shared():
    layer = nn.Embedding(4, 2, max_norm=1.0, scale_grad_by_freq=True, sparse=True)
    layer.weight.assign(Tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0], [5.0, 0.0]])).realize()
    layer.weight.requires_grad = True
    found = layer(Tensor([0, 1, 1, 3]))
    np.testing.assert_allclose(found.numpy(), [[0.6, 0.8], [0.3, 0.4], [0.3, 0.4], [1.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(layer.weight.numpy()[2], [6.0, 8.0])
    found.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_tensors_are_printed_as_set():
    t = Tensor([1.23456, 2.0, 3.5, 4.25])
    try:
        frontend.set_printoptions(precision=2)
        assert str(t) == "tensor([1.23, 2.00, 3.50, 4.25])"
        frontend.set_printoptions(threshold=2, edgeitems=1, sci_mode=True)
        assert str(t) == "tensor([1.23e+00,  ..., 4.25e+00])"
        frontend.set_printoptions(profile="short", edgeitems=0)
        assert str(t) == "tensor([1.23, 2.00, 3.50, 4.25])"
        with pytest.raises(UsageError, match="wanted one of default, short, full, saw 'long'"):
            frontend.set_printoptions(profile="long")
        with pytest.raises(UsageError, match="precision: wanted a number of at least 0, saw -1"):
            frontend.set_printoptions(precision=-1)
    finally:
        frontend.set_printoptions(profile="default")
    assert str(t) == "tensor([1.2346, 2.0000, 3.5000, 4.2500])"


def test_probabilities_of_a_normal_distribution_up_to_a_number():
    normal = Normal(Tensor([0.0, 1.0]), Tensor([1.0, 2.0]))
    found = normal.cdf(Tensor([0.5, 0.5]))
    np.testing.assert_allclose(found.numpy(), [0.6914625, 0.4012937], rtol=1e-6)
    np.testing.assert_allclose(normal.icdf(found).numpy(), [0.5, 0.5], rtol=1e-5)


def test_one_cycle_has_a_rate_for_each_group():
    """PyTorch 2.13: OneCycleLR(SGD([{"params": a}, {"params": b}], 0.1), [0.02, 0.1], total_steps=6)."""
    optimiser = nn.optim.SGD([{"params": [Tensor([1.0])]}, {"params": [Tensor([1.0])]}], 0.1, momentum=0.9)
    schedule = OneCycleLR(optimiser, max_lr=[0.02, 0.1], total_steps=6)
    found = []
    for _ in range(5):
        schedule.step()
        found.append([round(group["lr"], 5) for group in optimiser.param_groups])
    first = [0.01989, 0.01623, 0.00925, 0.00267, 0.0]
    assert found == [[a, b] for a, b in zip(first, [0.09944, 0.08117, 0.04626, 0.01335, 0.0], strict=True)]
    with pytest.raises(UsageError, match="max_lr: wanted 2, one for each group, saw 1"):
        OneCycleLR(optimiser, max_lr=[0.02], total_steps=6)


def test_keys_and_values_of_attention_may_have_sizes_of_their_own():
    layer = nn.MultiheadAttention(4, 2, batch_first=True, kdim=3, vdim=5)
    names = ["q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"]
    assert set(layer.state_dict()) == {*names, "out_proj.weight", "out_proj.bias"}
    assert [layer.state_dict()[n].shape for n in names] == [(4, 4), (4, 3), (4, 5), (12,)]
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, n, size), "f4") for n, size in ((3, 4), (6, 3), (6, 5)))
    found, weights = layer(Tensor(q), Tensor(k), Tensor(v))

    heads = [x @ w.numpy().T for x, w in zip((q, k, v), (layer.state_dict()[n] for n in names), strict=False)]
    qh, kh, vh = (x.reshape(2, -1, 2, 2).transpose(0, 2, 1, 3) for x in heads)
    scores = np.exp(qh @ kh.transpose(0, 1, 3, 2) / np.sqrt(2))
    scores /= scores.sum(-1, keepdims=True)
    joined = (scores @ vh).transpose(0, 2, 1, 3).reshape(2, 3, 4)
    np.testing.assert_allclose(weights.numpy(), scores.mean(1), rtol=1e-4)
    wanted = joined @ layer.out_proj.weight.numpy().T + layer.out_proj.bias.numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError):
        layer(Tensor(q), Tensor(v), Tensor(k))


def test_pictures_of_bytes_are_resized_to_bytes():
    x = Tensor([[[[0, 255, 10], [200, 7, 90]]]], dtype="uint8")
    wanted = {
        "bilinear": [[0, 102, 255, 108, 10], [100, 113, 131, 83, 50], [200, 123, 7, 57, 90]],
        "bicubic": [[0, 117, 255, 130, 0], [110, 118, 131, 84, 49], [238, 119, 0, 37, 107]],
    }
    for mode, want in wanted.items():
        found = x.interpolate(size=(3, 5), mode=mode)
        assert (str(found.dtype), found[0, 0].tolist()) == ("torch.uint8", want)


def test_a_layer_called_by_names_runs_its_hooks_once_and_keeps_errors_of_the_program():
    layer, seen = nn.Linear(2, 2), []
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    layer.register_forward_hook(lambda *_: seen.append("after"))
    layer(input=Tensor([[1.0, 2.0]]))
    assert seen == ["before", "after"]

    class Failing(nn.Module):
        def forward(self, x: Tensor, **more: Any) -> Tensor:
            raise TypeError(f"of the program: {sorted(more)}, {x.shape}")

    with pytest.raises(TypeError, match="of the program"):
        Failing()(Tensor([1.0]), target=1)


def test_no_tensor_is_none():
    x = Tensor([1.0, 2.0])
    assert operator.eq(x, None) is False
    assert operator.ne(x, None) is True
    assert None not in [x, x + 1]
    assert (x == 1.0).tolist() == [True, False]
