"""Language models of every family equal `transformers` (recorded by `tests.oracles.language_models`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from compiler.dtype import dtypes
from frontend import llm
from frontend.llm.sampling import Sampling
from frontend.nn.state import safetensors
from hcq.errors import UsageError
from tests.oracles.language_models import MODELS, PROMPTS, SCORED, weights

if TYPE_CHECKING:
    from collections.abc import Mapping

WANT = json.loads((Path(__file__).parents[1] / "data" / "language_models.json").read_text())
FORMS = {dtypes.float32: lambda x: x, dtypes.float16: lambda x: x.astype(np.float16),
         dtypes.bfloat16: lambda x: (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)}  # fmt: skip


def write(folder: Path, name: str, form: Any = dtypes.float32, **changed: Any) -> Path:
    """Write a recorded model's settings and weights to a folder, the matrices in a float dtype."""
    tensors = {}
    for n, x in weights(WANT[name]["shapes"]).items():
        stored, kind = (FORMS[form](x), form) if x.ndim > 1 else (x, dtypes.float32)
        tensors[n] = (kind, x.shape, stored.tobytes)
    safetensors.write(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(WANT[name]["config"] | changed))
    return folder


def near(got: Any, want: Any, to: float = 1e-3) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=to * float(np.abs(want).max()))


def compared(model: llm.LanguageModel, want: Mapping[str, Any], *, count: int = 200) -> None:
    """Compare logits, and ids alone and in a batch of unequal lengths."""
    near(model.logits(PROMPTS[0][0]).numpy()[list(SCORED)], np.array(want["logits"]))
    first = model.generate(PROMPTS[0][0], max_tokens=count, stop=())
    assert list(first) == want["greedy"][0][:count]
    steps = list(model.generate_batch([p for p, _ in PROMPTS], max_tokens=min(count, 40), stop=()))
    for i, ids in enumerate(zip(*steps, strict=True)):
        assert list(ids) == want["greedy"][i][: len(ids)]


@pytest.mark.slow
@pytest.mark.sampled(81)
@pytest.mark.parametrize("name", MODELS)
def test_every_family_equals_transformers(name: str, tmp_path: Path):
    """17 models, 2 or 3 layers: logits, 200 ids past the window of 24, three prompts in a batch."""
    form = list(FORMS)[list(MODELS).index(name) % 3]
    compared(llm.load(write(tmp_path, name, form)), WANT[name])


@pytest.mark.landing
@pytest.mark.parametrize("name", ["mistral", "qwen 2 moe", "gpt 2"])
@pytest.mark.parametrize("device", ["nv-emu", "amd-emu"])
def test_emulated_gpus_run_language_models(device: str, name: str, tmp_path: Path):
    compared(llm.load(write(tmp_path, name), device=device), WANT[name], count=8)


def test_a_text_that_ended_does_not_change_longer_ones_beside_it(tmp_path: Path):
    """One text of a batch reaches the model's last position, or a stop id, long before the other one ends."""
    model = llm.load(write(tmp_path, "gpt 2"))
    short, want = PROMPTS[1][0], WANT["gpt 2"]["greedy"][1]
    steps = list(model.generate_batch([[3] * 500, short], max_tokens=40, stop=()))
    assert [s[1] for s in steps] == want
    assert [s[0] is None for s in steps] == [False] * 12 + [True] * 28
    first = list(model.generate(PROMPTS[0][0], max_tokens=1, stop=()))
    assert list(model.generate(PROMPTS[0][0], max_tokens=9, stop=first)) == []  # at the first place
    steps = list(model.generate_batch([PROMPTS[0][0], short], max_tokens=40, stop=first))
    end = want.index(first[0]) if first[0] in want else 40
    assert steps == [[None, t] for t in want[:end]]
    assert list(model.generate(short, max_tokens=0)) == []
    assert list(model.generate([3] * 512, max_tokens=9)) == []  # no position is left


def test_greatest_logits_are_chosen_at_every_setting():
    """Equal logits, temperatures at the ends of floats, more ids than there are, NaN and infinity."""
    x = np.array([1, 3, 3, 2, -np.inf], np.float32)

    def counts(**settings: Any) -> list[int]:
        draws = [Sampling(**settings).choose(x, np.random.default_rng(i)) for i in range(200)]
        return np.bincount(draws, minlength=5).tolist()

    assert counts() == counts(temperature=1.0, top_k=1) == counts(temperature=1.0, top_p=5e-324)
    assert counts() == [0, 200, 0, 0, 0]
    cold = counts(temperature=5e-324)
    assert (
        cold == counts(temperature=1e-300) == counts(temperature=1.0, top_k=2) == [0, cold[1], cold[2], 0, 0]
    )
    assert min(cold[1:3]) > 60
    hot = counts(temperature=1e308)
    assert min(hot[:4]) > 30
    assert hot[4] == 0
    assert counts(temperature=1.0, top_k=9) == counts(temperature=1.0) == counts(temperature=1.0, top_k=5)
    for value in (np.nan, np.inf):
        for settings in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 2}):
            with pytest.raises(UsageError, match="the logit of the id 3 is"):
                Sampling(**settings).choose(np.where(x == 2, np.float32(value), x), np.random.default_rng(0))
    with pytest.raises(UsageError, match="is -inf"):
        Sampling().choose(x[4:], np.random.default_rng(0))


def test_a_model_generates_by_chance_and_from_its_cache(tmp_path: Path):
    model = llm.load(write(tmp_path, "llama 2"))
    ids, greedy = PROMPTS[0][0], WANT["llama 2"]["greedy"][0]
    near(model.logits(ids[:9]).numpy()[7], np.array(WANT["llama 2"]["logits"][1]))
    assert list(model.generate(ids, max_tokens=20, stop=())) == greedy[:20]
    # the first 60 tokens are in the cache, then a prompt that differs early
    assert list(model.generate(ids + greedy[:20], max_tokens=9, stop=())) == greedy[20:29]
    assert list(model.generate(PROMPTS[1][0], max_tokens=9, stop=())) == WANT["llama 2"]["greedy"][1][:9]
    end = greedy[5]
    assert list(model.generate(ids, max_tokens=20, stop=[end])) == greedy[: greedy.index(end)]
    assert list(model.generate(ids, max_tokens=3, temperature=0.7, top_k=1)) == greedy[:3]
    chance = [
        list(model.generate(ids, max_tokens=12, temperature=1.5, top_k=40, top_p=0.95, seed=s, stop=()))
        for s in (1, 1, 2)
    ]
    assert chance[0] == chance[1] != chance[2]
    running = [model.generate(ids, max_tokens=8, stop=()) for _ in range(2)]  # two at once
    assert [list(pair) for pair in zip(*running, strict=True)] == [[t, t] for t in greedy[:8]]
