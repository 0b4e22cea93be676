"""Expressions that PyTorch users write: results, dtypes, gradients and errors against PyTorch's.

`tests.oracles` lists them; `tests.oracles.answers` recorded the answers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from frontend import Tensor
from tests.oracles import coverage
from tests.oracles.compare import compared
from tests.oracles.every import EVERY
from tests.oracles.expressions import ANSWERS, EXPRESSIONS
from tests.oracles.opdb import archive

RECORDS = [json.loads(line) for line in ANSWERS.read_text().splitlines()]


@pytest.mark.sampled(169)
@pytest.mark.parametrize("want", RECORDS, ids=[r["of"] for r in RECORDS])
def test_the_answer_is_that_of_pytorch(want: dict[str, Any]):
    assert compared(want) == []


def test_every_expression_is_recorded_once():
    assert len(set(EXPRESSIONS)) == len(EXPRESSIONS) >= len(EVERY) + 921
    assert set(EVERY) <= set(EXPRESSIONS)


def test_every_method_has_a_recorded_dtype():
    """Dtypes are compared as they are recorded, by the test above and that of `test_operator_database`."""
    recorded = {*re.findall(r"\.(\w+)\b", " ".join(EXPRESSIONS)), *[n.split(".")[-1] for n in archive.read()]}
    names = Path(coverage.__file__).with_name("torch.txt").read_text().split()
    left = [n for n in names if hasattr(Tensor, n) and not {n, n.rstrip("_")} & recorded]
    no_tensor = "backward cuda data device dtype grad grad_fn nbytes pin_memory register_hook"
    assert [n for n in left if n[:3] != "is_"] == [
        *no_tensor.split(),
        "register_post_accumulate_grad_hook",
        "requires_grad",
        "requires_grad_",
        "retain_grad",
        "size",
        "storage",
        "untyped_storage",
    ]
