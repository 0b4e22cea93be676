"""Probability distributions under the names of `torch.distributions`: Categorical, Normal, Bernoulli.

Not here: random tensors (`frontend.ops.random`).
"""

from __future__ import annotations

import math
from typing import Any

from frontend.tensor import Tensor
from hcq.errors import UsageError


class Categorical:
    """The classes 0 to n - 1 with probabilities, or logits, along the last axis, normalised or not.

    Raises `UsageError` unless exactly one of both is given.
    """

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None) -> None:
        if (probs is None) == (logits is None):
            raise UsageError("Categorical: wanted probs or logits, saw both or none")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
            self.logits = self.probs.clamp(1e-7, 1 - 1e-7).log()
        else:
            assert logits is not None
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
            self.probs = self.logits.exp()

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return classes (*sample_shape, *batch), without gradients."""
        batch, classes = self.probs.shape[:-1], self.probs.shape[-1]
        count = math.prod(sample_shape)
        drawn = self.probs.detach().reshape(-1, classes).multinomial(count, replacement=True)
        return drawn.T.reshape(*sample_shape, *batch)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probabilities of classes."""
        shape = (*value.shape, self.logits.shape[-1])
        return self.logits.expand(shape).gather(-1, value.cast("int64").unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return the entropy in nats, of the batch's shape; a class of probability 0 adds nothing."""
        return -(self.probs * (self.probs > 0).where(self.logits, 0.0)).sum(-1)


class Normal:
    """The normal distribution with a mean `loc` and a standard deviation `scale`, which broadcast."""

    def __init__(self, loc: Any, scale: Any) -> None:
        given = [t if isinstance(t, Tensor) else Tensor(float(t)) for t in (loc, scale)]
        self.loc, self.scale = given[0] + given[1] * 0, given[1] + given[0] * 0

    def rsample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return numbers (*sample_shape, *batch) through which gradients flow to both parameters."""
        noise = Tensor.randn(*sample_shape, *self.loc.shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * noise

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return numbers (*sample_shape, *batch), without gradients."""
        return self.rsample(sample_shape).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density."""
        far = (value - self.loc) / self.scale
        return -(far * far) / 2 - self.scale.log() - math.log(2 * math.pi) / 2

    def entropy(self) -> Tensor:
        """Return the entropy in nats."""
        return self.scale.log() + (1 + math.log(2 * math.pi)) / 2


class Bernoulli:
    """0 or 1 with a probability, or a logit, of 1. Raises `UsageError` unless exactly one is given."""

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None) -> None:
        if (probs is None) == (logits is None):
            raise UsageError("Bernoulli: wanted probs or logits, saw both or none")
        self.probs = probs if probs is not None else logits.sigmoid()  # type: ignore[union-attr]  # one is given

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return zeros and ones (*sample_shape, *batch), without gradients."""
        return self.probs.detach().expand((*sample_shape, *self.probs.shape)).bernoulli()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probability of 0 or 1."""
        return -self.probs.binary_crossentropy(value, "none")
