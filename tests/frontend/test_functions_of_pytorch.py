"""`nn.functional` returns what PyTorch 2.14 does (`data/functions.json`: `tests.oracles.functions`)."""

from __future__ import annotations

import numpy as np
import pytest

import frontend.nn.functional as F  # noqa: N812 - as programs write it
from frontend import Tensor, TinyJit, nn
from frontend.nn.attention import causal_mask
from hcq.errors import UsageError
from tests.oracles.functions import names
from tests.oracles.recording import recorded

WANT = recorded("functions.json")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("text", WANT)
def test_a_function_returns_what_that_of_pytorch_does(text: str):
    got = eval(text, {"F": F, **names(Tensor)})
    assert list(got.shape) == WANT[text]["shape"]
    np.testing.assert_allclose(got.numpy().reshape(-1), WANT[text]["values"], rtol=1e-4, atol=2e-6)


def test_batch_norm_moves_the_running_statistics_that_it_is_given():
    mean, var, x = Tensor([1.0, 2.0]), Tensor([1.0, 1.0]), Tensor([[1.0, 4.0], [3.0, 4.0]]).realize()
    F.batch_norm(x, mean, var, training=True, momentum=0.5).realize()
    assert (mean.tolist(), var.tolist()) == ([1.5, 3.0], [1.5, 0.5])
    step = TinyJit(lambda x: F.batch_norm(x, mean, var, training=True, momentum=0.5).realize())
    for _ in range(3):
        step(x)
    np.testing.assert_allclose(mean.numpy(), [2 - 0.5**4, 4 - 0.5**3])
    with pytest.raises(UsageError, match="running statistics"):
        F.batch_norm(x, None, None)


def test_dropout_of_channels_and_gumbel_softmax_draw():
    Tensor.manual_seed(3)
    dropped = F.dropout2d(Tensor.ones(20, 20, 3), 0.5).numpy()
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert (dropped == dropped[:, :, :1]).all()
    assert F.dropout2d(Tensor.ones(2, 2, 3), 0.5, training=False).tolist() == [[[1.0] * 3] * 2] * 2
    logits = Tensor([[0.0, 1.0, 2.0]]).expand(3000, 3).contiguous()
    hard = F.gumbel_softmax(logits, hard=True)
    assert set(np.unique(hard.numpy().round(5))) == {0.0, 1.0}
    shares = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    np.testing.assert_allclose(hard.numpy().mean(0), shares, atol=0.04)
    w = Tensor([[0.0, 1.0]], requires_grad=True)
    (F.gumbel_softmax(w * 1, tau=0.5, hard=True) * Tensor([[1.0, 3.0]])).sum().backward()
    assert w.grad is not None
    assert abs(w.grad.sum().item()) < 1e-5


def test_a_causal_mask_hides_later_places():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval()
    mask = causal_mask(3)
    assert mask.tolist() == [[0.0, -np.inf, -np.inf], [0.0, 0.0, -np.inf], [0.0, 0.0, 0.0]]
    x = Tensor.randn(1, 3, 4).realize()
    whole, part = encoder(x, mask, is_causal=True), encoder(x[:, :2], causal_mask(2))
    np.testing.assert_allclose(whole.numpy()[:, :2], part.numpy(), atol=1e-5)
    assert len({id(p) for p in encoder.parameters()}) == 24
    with pytest.raises(UsageError, match="hint beside a mask"):
        encoder(x, is_causal=True)
