"""Expressions that PyTorch users write: results, dtypes, gradients and errors against PyTorch's.

`tests.oracles` lists them; `tests.oracles.answers` recorded the answers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.oracles.compare import compared
from tests.oracles.every import EVERY
from tests.oracles.expressions import ANSWERS, EXPRESSIONS

RECORDS = [json.loads(line) for line in ANSWERS.read_text().splitlines()]


@pytest.mark.sampled(40)
@pytest.mark.parametrize("want", RECORDS, ids=[r["of"] for r in RECORDS])
def test_the_answer_is_that_of_pytorch(want: dict[str, Any]):
    assert compared(want) == []


def test_every_expression_is_recorded_once():
    assert len(set(EXPRESSIONS)) == len(EXPRESSIONS) >= len(set(EVERY)) + 746
    assert set(EVERY) <= set(EXPRESSIONS)
