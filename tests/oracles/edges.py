"""Record the gradients of PyTorch where functions have kinks, poles and undefined slopes.

Writes `tests/frontend/data/edges.json`: for each expression there, and each that is added, the values of its
result and the gradient of each `t(...)`, a float32 tensor of these numbers; None where there is none.

Not here: the comparison (`tests/frontend/test_gradients_at_edges.py`).
"""

from __future__ import annotations

import importlib
import math
from typing import Any


def record(torch: Any, text: str) -> list[Any]:
    """Return the values and the gradients of an expression; `torch` is PyTorch or `frontend`."""
    leaves: list[Any] = []

    def c(*values: float) -> Any:
        return torch.tensor(list(values) if len(values) > 1 else values[0], dtype=torch.float32)

    def t(*values: float) -> Any:
        leaves.append(c(*values).requires_grad_())
        return leaves[-1]

    functional = importlib.import_module(f"{torch.__name__}.nn.functional")
    space = {"t": t, "c": c, "torch": torch, "F": functional, "inf": math.inf, "nan": math.nan}
    y = eval(text, space)  # noqa: S307 - this tool's own text
    y.sum().backward() if y.ndim else y.backward()
    every = [y.detach(), *[x.grad for x in leaves]]
    return [None if v is None else [float(f"{n:.6g}") for n in v.reshape(-1).tolist()] for v in every]
