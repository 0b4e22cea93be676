"""Record what PyTorch gives for powers, remainders and rounded quotients of special numbers.

    python -m tools.special_oracle

Run by hand, in an environment with PyTorch; nothing else of this repository is imported. Writes
`tests/frontend/data/special_values.json`: for each dtype and operation a table, first operands along the
rows. Numbers are as `repr` writes them, so nothing is lost.

Not here: gradients (`tools.gradients`).
"""

from __future__ import annotations

import json
import math
from pathlib import Path

PLACE = Path(__file__).parents[1] / "tests/frontend/data/special_values.json"
NUMBERS = [
    0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 0.1, 1e4, 123456789.0, 1e20, 1e-30, math.inf,
]  # fmt: skip
DTYPES = ("float16", "bfloat16", "float32", "float64")


def main() -> None:
    """Write the tables."""
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - an environment of its own

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


if __name__ == "__main__":
    main()
