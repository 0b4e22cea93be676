"""Choosing the next token of logits, on the host.

Not here: running the model (`model`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hcq.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a token is chosen: the greatest logit (temperature 0), or by chance.

    By chance: logits are divided by the temperature, the `top_k` greatest stay (0: all), then of these the
    fewest whose probabilities sum to at least `top_p`. Raises `UsageError` for a temperature below 0, a
    `top_k` below 0, and a `top_p` outside 0 < top_p <= 1.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, fits, wanted in (
            ("temperature", 0 <= self.temperature < float("inf"), "a number of at least 0"),
            ("top_k", type(self.top_k) is int and self.top_k >= 0, "a whole number of at least 0"),
            ("top_p", 0 < self.top_p <= 1, "a number above 0, at most 1"),
        ):
            if not fits:
                raise UsageError(f"generate, {name}: wanted {wanted}, saw {getattr(self, name)!r}")

    def choose(self, logits: np.ndarray[Any, Any], draw: np.random.Generator) -> int:
        """Return the id chosen of logits (vocabulary,) float32. Draws one number unless temperature is 0."""
        import numpy as np  # noqa: PLC0415 - only where texts are generated

        if self.temperature == 0 or self.top_k == 1:
            return int(logits.argmax())
        ids = np.arange(len(logits))
        if 0 < self.top_k < len(logits):
            ids = np.argpartition(logits, -self.top_k)[-self.top_k :]
        ids = ids[np.argsort(-logits[ids], kind="stable")]
        scores = logits[ids].astype(np.float64) / self.temperature
        shares = np.exp(scores - scores[0])
        sums = np.cumsum(shares / shares.sum())
        kept = int(np.searchsorted(sums, self.top_p)) + 1 if self.top_p < 1 else len(ids)
        sums = sums[:kept]
        place = np.searchsorted(sums, draw.random() * sums[-1], side="right")
        return int(ids[min(int(place), len(sums) - 1)])
