"""Layers print, name their state and compute as PyTorch 2.13 (`data/layers.json`: `tests.oracles.layers`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, nn
from hcq.errors import UsageError
from tests.oracles.layers import filled, flat, given
from tests.oracles.recording import recorded

WANT = recorded("layers.json")


def made(text: str) -> Any:
    return eval(f"nn.{text}", {"nn": nn}).eval()


def computed(text: str) -> list[Tensor]:
    layer = made(text)
    for n, (_, p) in enumerate(sorted(layer.named_parameters())):
        p.assign(Tensor(filled(p.shape, n)))
    return flat(layer(*[Tensor(given(tuple(s), n)) for n, s in enumerate(WANT[text]["inputs"])]))


def test_layers_print_and_name_their_state_as_in_pytorch():
    for text, want in WANT.items():
        layer = made(text)
        printed = want["text"].replace("NonDynamicallyQuantizableLinear", "Linear")
        assert repr(layer) == printed
        assert {name: list(t.shape) for name, t in layer.state_dict().items()} == want["state"], text


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", [text for text, one in WANT.items() if one["inputs"]])
def test_a_layer_computes_what_that_of_pytorch_does(text: str):
    want, got = WANT[text], computed(text)
    assert [list(t.shape) for t in got] == want["shapes"]
    for t, values in zip(got, want["values"], strict=True):
        np.testing.assert_allclose(t.numpy().reshape(-1), values, rtol=1e-4, atol=2e-6)


def test_channel_dropout_drops_whole_channels():
    layer, x = nn.Dropout2d(0.5), Tensor.ones(8, 8, 3, 3)
    kept = layer(x).numpy().reshape(64, 9)
    assert all(len(set(channel)) == 1 for channel in kept.tolist())
    assert set(kept[:, 0].tolist()) == {0.0, 2.0}
    assert layer.eval()(x) is x


def test_the_padding_row_of_an_embedding_has_no_gradient():
    layer = nn.Embedding(3, 2, padding_idx=-1)
    assert layer.weight.tolist()[2] == [0.0, 0.0]
    layer.requires_grad_()
    layer([2, 0, 2]).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    "text",
    [
        "Conv1d(2, 4, 3, padding='same', stride=2)",
        "Conv1d(2, 4, 3, padding_mode='typo')",
        "ConvTranspose1d(2, 4, 3, padding='same')",
        "Conv1d(3, 4, 3, groups=2)",
        "RNN(2, 3, nonlinearity='typo')",
        "RNNCell(2, 3, nonlinearity='typo')",
        "MultiheadAttention(5, 2)",
        "AdaptiveAvgPool2d((1, 2, 3))",
        "AdaptiveAvgPool2d(0)",
        "Embedding(3, 2, padding_idx=3)",
        "Hardtanh(1, 0)",
        "TransformerEncoderLayer(4, 2, activation='typo')",
    ],
)
def test_settings_that_a_layer_cannot_have_are_refused(text: str):
    with pytest.raises(UsageError):
        made(text)


def test_masks_of_attention_cut_what_is_not_allowed():
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True).eval(), Tensor(given((1, 3, 4), 0))
    causal = Tensor([[False, True, True], [False, False, True], [False, False, False]])
    _, weights = layer(x, x, x, attn_mask=causal)
    assert weights is not None
    assert (weights.numpy()[0] > 0).tolist() == [[True, False, False], [True, True, False], [True] * 3]
    _, weights = layer(x, x, x, key_padding_mask=Tensor([[False, False, True]]))
    assert weights is not None
    assert (weights.numpy()[0] > 0).tolist() == [[True, True, False]] * 3


def test_sizes_of_an_embedding_have_the_names_of_both_libraries():
    for names in ({"num_embeddings": 3, "embedding_dim": 2}, {"vocab_size": 3, "embed_size": 2}):
        assert nn.Embedding(**names).weight.shape == (3, 2)
    for wrong in (
        {},
        {"num_embeddings": 3, "vocab_size": 3, "embed_size": 1},
        {"vocab_size": 0, "embed_size": 1},
    ):
        with pytest.raises(UsageError):
            nn.Embedding(**wrong)


def test_classes_have_weights_in_a_loss():
    logits, classes = Tensor([[1.0, 2.0], [0.5, -1.0]]), Tensor([1, 0])
    logs = logits.log_softmax(1).numpy()
    want = -(3.0 * logs[0, 1] + 1.0 * logs[1, 0]) / 4.0
    assert nn.CrossEntropyLoss(Tensor([1.0, 3.0]))(logits, classes).item() == pytest.approx(want, rel=1e-5)


def test_buffers_and_parameters_are_marked():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter([1.0, 2.0])
            self.register_buffer("shift", Tensor([0.5]))

    layer = Scaled()
    assert [name for name, _ in layer.named_parameters()] == ["scale"]
    assert list(layer.state_dict()) == ["scale", "shift"]
    assert [name for name, _ in layer.named_buffers()] == ["shift"]
    assert [t is layer.shift for t in layer.buffers()] == [True]
    layer.add_module("inner", nn.Sequential(nn.ReLU(), nn.ParameterList([nn.Parameter([3.0])])))
    assert layer.get_submodule("inner.0") is layer.inner[0]
    assert list(layer.state_dict()) == ["scale", "shift", "inner.1.0"]
    with pytest.raises(UsageError, match=r"inner\.7"):
        layer.get_submodule("inner.7")
