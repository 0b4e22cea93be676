"""The functions of the array API standard's Fourier extension that need no complex numbers.

There are no transforms, as there are no complex dtypes. `device` None is the default one. An axis that does
not exist raises `UsageIndexError`, a count of samples below 1 `UsageError`.

Not here: the main namespace (`frontend.array_api`).
"""

from __future__ import annotations

from typing import Any

from frontend.arguments.aliases import answer_module
from frontend.tensor import Tensor
from hcq.errors import UsageError


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return the n frequencies, in cycles per unit of d, of a transform of n samples at a distance d.

    They are 0, 1, ..., -2, -1, divided by n * d; float32 by default. Raises `UsageError` for n below 1.
    """
    if n < 1:
        raise UsageError(f"fftfreq: wanted at least one sample, saw {n}")
    place = Tensor.arange(n, dtype=dtype or "float32", device=device)
    return (place >= (n + 1) // 2).where(place - n, place) / (n * d)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return the n // 2 + 1 frequencies >= 0 of a transform of n real samples; else as `fftfreq`."""
    if n < 1:
        raise UsageError(f"rfftfreq: wanted at least one sample, saw {n}")
    return Tensor.arange(n // 2 + 1, dtype=dtype or "float32", device=device) / (n * d)


def _shifted(x: Tensor, axes: Any, sign: int) -> Tensor:
    given = range(x.ndim) if axes is None else axes
    named = tuple(given) if isinstance(given, (list, range, tuple)) else (given,)
    sizes = [x.shape[a] for a in named]
    return x.roll(tuple([n // 2 if sign > 0 else (n + 1) // 2 for n in sizes]), named)


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Return x rolled along axes by half their size, so that index 0 moves to the middle; None: all axes."""
    return _shifted(x, axes, 1)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Undo `fftshift`."""
    return _shifted(x, axes, -1)


answer_module(globals(), __name__)
