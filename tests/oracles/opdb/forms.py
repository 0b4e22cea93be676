"""The structure of results, and the weights with which they are differentiated: the same here and in PyTorch.

Not here: how they are computed (`ours`, `theirs`).
"""

from __future__ import annotations

from typing import Any

import numpy as np


def weights_of(shape: tuple[int, ...]) -> Any:
    """Return what results are weighted with before they are differentiated."""
    return 1 + np.arange(int(np.prod(shape)), dtype="float64").reshape(shape) % 5 / 2


def flat(result: Any, kind: type[Any]) -> tuple[str, list[Any]]:
    """Return the structure of a result and its tensors; other values are part of the structure."""
    if isinstance(result, kind):
        return "T", [result]
    if isinstance(result, (list, tuple)) and any(isinstance(r, (kind, list, tuple)) for r in result):
        parts = [flat(r, kind) for r in result]
        return f"({''.join([f for f, _ in parts])})", [t for _, ts in parts for t in ts]
    return repr(list(result) if isinstance(result, (list, tuple)) else result), []
