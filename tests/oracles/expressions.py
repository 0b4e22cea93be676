"""The expressions whose answers are recorded: those of `tests/frontend/data/answers.jsonl`.

They are as PyTorch users write them: `torch.` and `F.` stand for the methods of `Tensor`, names for the
tensors of `inputs`. `python -m tests.oracles.answers EXPRESSION` adds one.

Next: `every` (products of methods and forms), `inputs`, `compare`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

ANSWERS: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "answers.jsonl"
EXPRESSIONS: Final[list[str]] = [json.loads(line)["of"] for line in ANSWERS.read_text().splitlines()]
