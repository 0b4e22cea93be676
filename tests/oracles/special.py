"""Record PyTorch's powers, remainders and floor divisions of special numbers.

`tests/frontend/data/special.json` has a table for each operation and dtype, a text such as "pow float16",
with the first operand along the rows. Numbers are written with `repr`, so they are exact.

Not here: the comparison (`tests/frontend/test_special_values.py`), gradients (`tests.oracles.gradients`).
"""

from __future__ import annotations

import math
from typing import Any, Final

_SIZES: Final = (0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 0.1, 1e4, 123456789.0, 1e20, 1e-30, math.inf)
NUMBERS: Final = (*_SIZES, *[-n for n in _SIZES], math.nan)


def record(torch: Any, text: str) -> list[list[str]]:
    """Return the table of an operation and a dtype."""
    name, dtype = text.split()
    operation = {"pow": torch.pow, "mod": torch.remainder, "floordiv": torch.floor_divide}[name]
    x = torch.tensor(NUMBERS, dtype=getattr(torch, dtype))
    rows, columns = torch.meshgrid(x, x, indexing="ij")
    return [[repr(n) for n in row] for row in operation(rows, columns).double().tolist()]
