"""Comparison of a case's values, gradients and dtypes with those recorded from PyTorch.

The tolerance depends on the dtype. A result may also agree with PyTorch's float64 result, where that was
recorded.

Not here: recording (`oracle`). Next: `tests/frontend/test_gradients_of_pytorch.py`, which compares
each recorded line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frontend import Tensor, dtypes
from hcq.errors import UsageError
from tests.oracles.gradients.cases import LEAST, evaluated

if TYPE_CHECKING:
    from tests.oracles.gradients.cases import Case

TOLERANCE: Final = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def compared(case: Case, inputs: dict[str, Tensor], want: dict[str, Any]) -> list[str]:
    """Return a line for each value, gradient or dtype of a case that differs from the record `want`."""
    outs = evaluated(case.ours, inputs)
    if [o.dtype.name for o in outs] != want["results"]:
        return [f"dtypes {[o.dtype.name for o in outs]}, PyTorch {want['results']}"]
    found = _gradients(case, outs, [x for x in inputs.values() if x.dtype.is_float])
    none: list[dict[str, str]] = [{}] * max(len(outs), len(inputs))
    wrong = []
    closers = want.get("closer values", none)
    for i, (out, values, closer) in enumerate(zip(outs, want["values"], closers, strict=False)):
        wrong += _differences(f"value {i}", case, out, values, closer)
    closers = want.get("closer gradients", none)
    for i, (g, numbers, closer) in enumerate(zip(found, want["gradients"], closers, strict=False)):
        if g is None or numbers is None:
            if (g is None) != (numbers is None):
                wrong.append(f"gradient {i}: {'none' if g is None else 'one'}, PyTorch {numbers}")
            continue
        wrong += _differences(f"gradient {i}", case, g, numbers, closer)
    return wrong


def _read(numbers: list[str], dtype: str) -> Any:
    return np.array(numbers, "float64" if dtype == "float64" else "float32").astype("float64")


def inputs_of(case: Case, dtype: str) -> dict[str, Tensor]:
    """Return the inputs of a case as tensors, floats in a dtype and others unchanged."""
    found = {}
    for name, data in case.given(dtype).items():
        array = np.array(data)
        floats = array.dtype == np.float64
        found[name] = Tensor(array, dtype="float64").cast(dtype).realize() if floats else Tensor(array)
    return found


def _seeded(case: Case, out: Tensor) -> Tensor:
    n = int(np.prod(out.shape))
    seed = np.ones(n) if case.tiled else 1 + np.arange(n) % 5 / 2
    return Tensor(seed.reshape(out.shape), dtype="float64").cast(out.dtype)


def _gradients(case: Case, outs: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    if len(outs) == 1:
        root, seed = outs[0], _seeded(case, outs[0])
    else:
        root, seed = sum([(o * _seeded(case, o)).sum() for o in outs], Tensor(0.0, dtype=outs[0].dtype)), None
    found: list[Tensor | None] = []
    for x in inputs:
        try:
            found += root.gradient(x, gradient=seed)
        except UsageError as error:
            if "is not part of" not in str(error):
                raise
            found.append(None)
    return found


def _differences(what: str, case: Case, got: Tensor, want: list[str], closer: dict[str, str]) -> list[str]:
    dtype = got.dtype.name
    found, wanted = got.cast(dtypes.float64).numpy(), _read(want, dtype).reshape(got.shape)
    exact = wanted.copy()
    exact.reshape(-1)[[int(i) for i in closer]] = _read(list(closer.values()), dtype)
    tolerance = case.tolerance.get(dtype, TOLERANCE[dtype])
    fine = _near(case, found, wanted, tolerance) | _near(case, found, exact, tolerance)
    fine |= (wanted == 0) & (np.abs(found) < LEAST[dtype])  # PyTorch flushes denormals in places
    wrong = [what + "".join([f"[{i}]" for i in at]) for at in np.argwhere(~fine)]
    return [
        f"{at}: {g!r}, PyTorch {w!r}"
        for at, g, w in zip(wrong, found[~fine], wanted[~fine], strict=True)
        if not (at.startswith(case.places) or f"{dtype} {at}".startswith(case.places))
    ]


def _near(case: Case, got: Any, want: Any, tolerance: float) -> Any:
    """Return whether numbers agree relative to their size, their row's size, or 1, by case."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(np.where(np.isfinite(want), want, 0.0))
        if case.beside_one:
            size = np.maximum(size, 1.0)
        elif not case.tiled and size.size:
            size = size.max(-1, keepdims=True)
        close = np.abs(got - want) <= tolerance * size
    return close | (got == want) | (np.isnan(got) & np.isnan(want))
