"""Record what functions of `torch.nn.functional` return.

Writes `tests/frontend/data/functions.json`: for each expression there, and each that is added, the shape and
the values of its result. `t(2, 3)` is a float tensor of that shape, another one for each `n`; `p` the same
within 0..1.

Not here: the comparison (`tests/frontend/test_functions_of_pytorch.py`), layers (`layers`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.oracles.layers import given

if TYPE_CHECKING:
    from collections.abc import Callable


def names(make: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Return what the expressions call to make tensors, given how an array becomes one."""

    def t(*shape: int, n: int = 0) -> Any:
        return make(given(shape, n))

    def p(*shape: int, n: int = 0) -> Any:
        return make((given(shape, n) * 0.45 + 0.5).astype(np.float32))

    def whole(*numbers: int) -> Any:
        return make(np.array(numbers, np.int64))

    return {"t": t, "p": p, "whole": whole}


def record(torch: Any, text: str) -> dict[str, Any]:
    """Return the shape and the values of an expression's result."""
    space = {"F": importlib.import_module("torch.nn.functional"), **names(torch.tensor)}
    result = eval(text, space)  # noqa: S307 - this tool's own text
    values = [float(f"{v:.6g}") for v in result.reshape(-1).tolist()]
    return {"shape": list(result.shape), "values": values}
