"""A decoder with a growing cache of keys and values: one captured graph for all positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, Variable, nn
from frontend.stats import stats

LENGTH, HEADS, DEPTH, WORDS = 9, 2, 4, 11
WIDTH = HEADS * DEPTH


class Decoder:
    """One block of attention and a perceptron over a cache of earlier positions."""

    def __init__(self, length: int = LENGTH) -> None:
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(length, WIDTH)
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.cache = Tensor.zeros(2, HEADS, length, DEPTH).contiguous().realize()

    def step(self, word: Tensor, at: Any) -> Tensor:
        """Return the logits after one more word."""
        x = self.words(word) + self.places.weight[at].reshape(1, WIDTH)
        q, k, v = self.qkv(self.norm(x)).reshape(1, 3, HEADS, 1, DEPTH).unbind(1)
        self.cache[0, :, at : at + 1] = k[0]
        self.cache[1, :, at : at + 1] = v[0]
        keys, values = self.cache[0][:, : at + 1], self.cache[1][:, : at + 1]
        y = q[0].scaled_dot_product_attention(keys, values)
        x = x + self.out(y.transpose(0, 1).reshape(1, WIDTH))
        return (x + self.down(self.up(self.norm2(x)).gelu())) @ self.words.weight.T

    def whole(self, words: Any) -> Tensor:
        """Return the logits after each of some words, without a cache."""
        n = len(words)
        x = self.words(Tensor(words)) + self.places.weight[:n]
        q, k, v = self.qkv(self.norm(x)).reshape(n, 3, HEADS, DEPTH).permute(1, 2, 0, 3).unbind(0)
        y = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(y.transpose(0, 1).reshape(n, WIDTH))
        return (x + self.down(self.up(self.norm2(x)).gelu())) @ self.words.weight.T


def test_a_step_with_a_growing_cache_is_one_captured_graph_for_all_positions() -> None:
    Tensor.manual_seed(3)
    decoder, position = Decoder(), Variable("position", 0, LENGTH - 1)
    words = [int(n) for n in np.random.default_rng(0).integers(0, WORDS, LENGTH)]
    step, seen = TinyJit(decoder.step), []
    want = decoder.whole(words).numpy()
    for i, word in enumerate(words):
        found = step(Tensor([word]), position.bind(i)).numpy()
        np.testing.assert_allclose(found[0], want[i], rtol=1e-4, atol=1e-5)
        seen.append((stats.plans, stats.lowered + stats.hits))
    assert len(set(seen[2:])) == 1


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (1, 2, 3, 2), pytest.param((2, 1, 4, 1), marks=pytest.mark.landing)]
)
def test_nine_caches_that_a_step_writes_at_one_slot(shape: tuple[int, ...]) -> None:
    """(batch, heads, slots, depth). More kernels use the mask of the slot than a value has places."""
    batch, heads, slots, depth = shape
    caches = [Tensor.zeros(*shape).contiguous().realize() for _ in range(9)]

    def step(x: Tensor, at: Any) -> Tensor:
        for cache in caches:
            cache[:, :, at : at + x.shape[2]] = x
            x = x + cache[:, :, : at + x.shape[2]].sum(2, keepdim=True)
        return x

    for tokens in {1, min(2, slots)}:
        captured, slot = TinyJit(step), Variable(f"slot{tokens}", 0, slots - tokens)
        want = [c.numpy() for c in caches]
        for at in [*range(slots - tokens + 1), 0]:
            x = np.full((batch, heads, tokens, depth), at + 1.0, np.float32) / 64
            found = captured(Tensor(x), slot.bind(at)).numpy()
            for cache, held in zip(caches, want, strict=True):
                held[:, :, at : at + tokens] = x
                x = x + held[:, :, : at + tokens].sum(2, keepdims=True)
                np.testing.assert_allclose(cache.numpy(), held, rtol=1e-4)
            np.testing.assert_allclose(found, x, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["nv-emu", "amd-emu"])
def test_emulated_gpus_end_loops_at_the_size(device: str) -> None:
    rows = Variable("rows", 1, 40)
    keys, q = (np.random.default_rng(n).standard_normal((40, 8), dtype=np.float32) for n in (1, 2))
    k, query = Tensor(keys, device=device).realize(), Tensor(q[:2], device=device).realize()
    plans = []
    for n in (3, 40):
        part = k[: rows.bind(n, device=device)]
        found = query.scaled_dot_product_attention(part, part).numpy()
        scores = np.exp(q[:2] @ keys[:n].T / np.sqrt(8))
        np.testing.assert_allclose(
            found, scores / scores.sum(1, keepdims=True) @ keys[:n], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose((part * 2).mean(0).numpy(), 2 * keys[:n].mean(0), rtol=1e-4, atol=1e-5)
        plans.append((stats.plans, stats.lowered + stats.hits))
    assert len(set(plans)) == 1
