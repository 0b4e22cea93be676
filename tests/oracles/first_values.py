"""Record the distributions of PyTorch's first values of parameters.

Writes `tests/frontend/data/first_values.json`: for each layer there, and each that is added, the number of
elements, of zeros, the mean, deviation and kurtosis (1.8 uniform, 3 normal) of each parameter and buffer.

Not here: the comparison (`tests/frontend/test_first_values.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np


def record(torch: Any, text: str) -> dict[str, list[float]]:
    """Return what is recorded of a layer, a text after `nn.`, whose parameters are drawn from the seed 0."""
    torch.manual_seed(0)
    layer = eval(f"nn.{text}", {"nn": torch.nn, "torch": torch})  # noqa: S307 - this tool's own text
    found = {}
    for name, t in layer.state_dict().items():
        x = np.array(t.tolist(), dtype=float).reshape(-1)
        spread = float(x.std())
        kurtosis = float((((x - x.mean()) / spread) ** 4).mean()) if spread else 0.0
        values = (float(x.mean()), spread, kurtosis)
        found[name] = [x.size, int((x == 0).sum()), *[float(f"{v:.5g}") for v in values]]
    return found
