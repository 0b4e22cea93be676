"""The example of a character GPT: writing from the cache equals computing all positions at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, stats
from tests.children import python
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def example() -> Any:
    return examples.example("char_gpt")


@pytest.mark.slow
def test_the_cache_gives_the_logits_of_the_whole_text_with_one_graph(example: Any):
    context, prompt = 5, [3, 1]
    model = example.CharGPT(vocabulary=5, width=8, heads=2, layers=1, context=context).eval()
    writer, ids, logits, plans = example.Writer(model, context, 1.0), list(prompt), [], []
    for character in writer.write(prompt, context - len(prompt)):
        ids.append(character)
        logits.append(writer.logits.numpy())
        plans.append(stats.plans)
    assert len(ids) == context
    whole = model(Tensor([ids])).numpy()[0]
    np.testing.assert_allclose(logits, whole[len(prompt) - 1 : -1], rtol=1e-4, atol=1e-5)
    assert plans[-1] == plans[0]


def test_windows_are_followed_by_the_next_characters(example: Any):
    ids, after = example.windows(Tensor.arange(10), Tensor([0, 5]), 4)
    assert ids.tolist() == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert after.tolist() == [[1, 2, 3, 4], [6, 7, 8, 9]]


@pytest.mark.slow
def test_the_example_learns_and_writes(tmp_path: Path):
    words = ("examples/char_gpt.py", "--steps", "40", "--max-loss", "2.9", "--batch", "8", "--context", "64")
    done = python(*words, HCQ_CACHE=str(tmp_path), HCQ_VALIDATE="0")
    assert "step 40/40" in done.stderr
    assert re.search(r"one captured graph: The statement '.+'", done.stdout)
