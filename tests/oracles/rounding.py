"""Record how far PyTorch's sixteen-bit results are from those of float64, for functions of several steps.

A function of sixteen-bit floats computes in float32 and rounds once. Its inputs are rounded to the dtype
first, so that their errors do not count. `tests/frontend/data/rounding.json` has, for each expression and
dtype, the greatest and the root mean square error.

Not here: the comparison (`tests/frontend/test_rounding_of_functions.py`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES: Final = ("bfloat16", "float16")


def names(make: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Return what the expressions call to make tensors, given how an array of floats becomes one."""

    def t(*shape: int, n: int = 0) -> Any:
        at = np.arange(int(np.prod(shape)), dtype=np.float64)
        return make((np.sin(at * at * 0.618 + at * 0.1 + n) * 1.5).reshape(shape))

    def p(*shape: int, n: int = 0) -> Any:
        at = np.arange(int(np.prod(shape)), dtype=np.float64)
        return make((np.sin(at * at * 0.437 + at * 0.3 + n) * 0.45 + 0.5).reshape(shape))

    def whole(count: int, below: int) -> Any:
        return make(np.arange(count) * 7 % below)

    return {"t": t, "p": p, "whole": whole}


def errors(found: Any, exact: Any) -> list[float]:
    """Return the greatest and the root mean square difference."""
    off = np.asarray(found, np.float64) - exact
    return [float(f"{v:.4g}") for v in (np.abs(off).max(), np.sqrt((off * off).mean()))]


def record(torch: Any, text: str) -> dict[str, list[float]]:
    """Return the errors of an expression, by dtype."""
    functional = importlib.import_module("torch.nn.functional")
    found = {}
    for dtype in DTYPES:
        kind = getattr(torch, dtype)

        def value(*, wide: bool, kind: Any = kind) -> Any:
            def make(a: Any) -> Any:
                t = torch.tensor(a)
                return t.to(kind).to(torch.float64 if wide else kind) if t.is_floating_point() else t

            return eval(text, {"F": functional, **names(make)}).double().numpy()  # noqa: S307 - this tool's own

        found[dtype] = errors(value(wide=False), value(wide=True))
    return found
