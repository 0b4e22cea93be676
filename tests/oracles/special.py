"""Record PyTorch's powers, remainders and floor divisions of special numbers, as test data.

    python -m tests.oracles.special

Run it by hand in an environment with PyTorch. It writes
`tests/frontend/data/special_values.json`: a table for each dtype and operation, with the first operand along
the rows. Numbers are written with `repr`, so they are exact.

Not here: gradients (`tests.oracles.gradients`).
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE = Path(__file__).parents[2] / "tests/frontend/data/special_values.json"
NUMBERS = [
    0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 0.1, 1e4, 123456789.0, 1e20, 1e-30, math.inf,
]  # fmt: skip
DTYPES = ("float16", "bfloat16", "float32", "float64")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables; return 0."""
    command("tests.oracles.special", __doc__).parse_args(argv)
    torch = pytorch()
    numbers = [*NUMBERS, *[-n for n in NUMBERS], math.nan]
    operations = {
        "pow": torch.pow,
        "mod": torch.remainder,
        "floordiv": torch.floor_divide,
    }
    tables: dict[str, object] = {"torch": torch.__version__, "numbers": [repr(n) for n in numbers]}
    for name in DTYPES:
        x = torch.tensor(numbers, dtype=getattr(torch, name))
        rows, columns = torch.meshgrid(x, x, indexing="ij")
        results = {op: fn(rows, columns).double().tolist() for op, fn in operations.items()}
        tables[name] = {op: [[repr(n) for n in row] for row in table] for op, table in results.items()}
    PLACE.write_text(json.dumps(tables, separators=(",", ":")).replace("]],", "]],\n") + "\n")
    print(f"written: {PLACE}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
