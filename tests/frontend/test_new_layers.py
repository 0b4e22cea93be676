"""New layers: their device and float dtype, norms without a bias, and states of older files."""

from __future__ import annotations

from typing import Any

import pytest

import frontend
from frontend import nn
from hcq.errors import UsageError, UsageTypeError

LAYERS: dict[str, Any] = {
    "Linear": (3, 2), "Bilinear": (2, 3, 4), "Embedding": (5, 3), "EmbeddingBag": (5, 3), "PReLU": (2,),
    "Conv1d": (2, 3, 1), "Conv2d": (2, 3, 1), "Conv3d": (2, 3, 1), "ConvTranspose2d": (2, 3, 1),
    "BatchNorm1d": (3,), "BatchNorm2d": (3,), "InstanceNorm2d": (3,), "LayerNorm": (3,), "RMSNorm": (3,),
    "GroupNorm": (2, 4), "RNN": (2, 3), "LSTM": (2, 3), "GRU": (2, 3), "RNNCell": (2, 3), "LSTMCell": (2, 3),
    "GRUCell": (2, 3), "MultiheadAttention": (4, 2), "TransformerEncoderLayer": (4, 2, 8),
    "TransformerDecoderLayer": (4, 2, 8), "Transformer": (4, 2, 1, 1, 8), "LazyLinear": (3,),
    "LazyConv2d": (3, 1), "LazyBatchNorm2d": (),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_a_device_and_a_dtype(name: str):
    make = getattr(nn, name)
    layer = make(*LAYERS[name], device="cpu:0", dtype=frontend.float64)
    plain = make(*LAYERS[name]).state_dict()
    state = layer.state_dict()
    assert "Lazy" in name or all(t.shape == plain[key].shape for key, t in state.items())
    assert [*state] == [*plain]
    for key, t in state.items():
        wanted = "float64" if plain[key].dtype.is_float else plain[key].dtype.name
        assert (t.dtype.name, str(t.device)) == (wanted, "cpu")
    assert all(t.requires_grad for t in layer.parameters())


def test_other_dtypes_and_unknown_arguments_are_refused():
    with pytest.raises(UsageError, match="wanted a float dtype, saw int32"):
        nn.Linear(3, 2, dtype=frontend.int32)
    with pytest.raises(UsageTypeError, match="did you mean device="):
        nn.Conv2d(1, 2, 3, devise="cpu")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("BatchNorm2d", (3,)), ("InstanceNorm2d", (3, 1e-5, 0.1, True)), ("GroupNorm", (1, 3))],
)
def test_norms_without_a_bias(name: str, settings: Any):
    layer = getattr(nn, name)(*settings, bias=False)
    assert layer.bias is None
    assert layer.weight is not None
    x = frontend.arange(12.0).reshape(1, 3, 2, 2)
    assert abs(layer(x).mean().item()) < 1e-6


def test_a_state_may_lack_the_counts_of_batches():
    model, other = nn.Sequential(nn.BatchNorm1d(2)), nn.Sequential(nn.BatchNorm1d(2))
    model(frontend.tensor([[1.0, 2.0], [3.0, 5.0]]))
    state = {k: v for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}
    found = other.load_state_dict(state)
    assert (found.missing_keys, other[0].num_batches_tracked.item()) == ([], 0)
    assert other[0].running_mean.tolist() == model[0].running_mean.tolist()
    del state["0.bias"]
    with pytest.raises(UsageError, match=r"missing \['0.bias'\]"):
        other.load_state_dict(state)
