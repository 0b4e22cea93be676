"""Choosing the next token of logits, on the host.

Not here: running the model (`model`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hcq.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a token is chosen: the greatest logit (temperature 0, or a `top_k` of 1), or by chance.

    By chance: logits are divided by the temperature, the `top_k` greatest stay (0: all), then of these the
    fewest whose probabilities sum to at least `top_p`. Of equal logits the lower ids come first. Raises
    `UsageError` for a temperature below 0, a `top_k` below 0, and a `top_p` outside 0 < top_p <= 1.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        number = (int, float)
        for name, kinds, least, most, wanted in (
            ("temperature", number, 0, sys.float_info.max, "a number of at least 0"),
            ("top_k", (int,), 0, math.inf, "a whole number of at least 0"),
            ("top_p", number, math.ulp(0.0), 1, "a number above 0, at most 1"),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
                raise UsageError(f"generate, {name}: wanted {wanted}, saw {value!r}")

    def choose(self, logits: np.ndarray[Any, Any], draw: np.random.Generator) -> int:
        """Return the id chosen of logits (vocabulary,) float32. Draws one number unless it is the greatest.

        A logit of minus infinity is never chosen. Raises `UsageError` for logits that are NaN or infinite,
        and if all are minus infinity.
        """
        import numpy as np  # noqa: PLC0415 - only where texts are generated

        best = int(logits.argmax())  # of a NaN, if there is one
        if not np.isfinite(logits[best]):
            raise UsageError(
                f"generate: the logit of the id {best} is {logits[best]}, and no id can be chosen\n"
                "hint: the weights are damaged, or products of this model overflow"
            )
        if self.temperature == 0 or self.top_k == 1:
            return best
        ids = np.arange(len(logits))
        if 0 < self.top_k < len(logits):
            ids = np.flatnonzero(logits >= np.partition(logits, -self.top_k)[-self.top_k])
        ids = ids[np.argsort(-logits[ids], kind="stable")][: self.top_k or None]
        with np.errstate(over="ignore"):  # a quotient of minus infinity is a probability of 0
            scores = (logits[ids].astype(np.float64) - np.float64(logits[best])) / self.temperature
        shares = np.exp(scores)
        sums = np.cumsum(shares / shares.sum())
        kept = int(np.searchsorted(sums, self.top_p)) + 1 if self.top_p < 1 else len(ids)
        sums = sums[:kept]
        place = np.searchsorted(sums, draw.random() * sums[-1], side="right")
        return int(ids[min(int(place), len(sums) - 1)])
