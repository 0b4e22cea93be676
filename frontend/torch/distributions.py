"""Probability distributions under the names of `torch.distributions`.

A method that a distribution does not have raises `NotImplementedError`; parameters that do not fit raise
`UsageError`.

Not here: random tensors (`frontend.ops.random`). Next: `families`, those of numbers, and divergences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from frontend.tensor import Tensor
from hcq.errors import UsageError

__all__ = ["Categorical", "Distribution", "Independent", "MultivariateNormal"]


class Distribution:
    """The base: `sample` draws (*sample_shape, *batch_shape, *event_shape), without gradients.

    Its means and variances have the shape (*batch_shape, *event_shape).
    """

    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()
    mean: Tensor
    variance: Tensor

    @property
    def stddev(self) -> Tensor:
        """The standard deviations."""
        return self.variance.sqrt()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers through which gradients flow to the parameters; a subclass may define it."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample")

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers without gradients."""
        return self.rsample(sample_shape).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density or of the probability, of the batch's shape."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Return the entropy in nats, of the batch's shape."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")


class Categorical(Distribution):
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
        self.batch_shape = self.probs.shape[:-1]

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
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


class MultivariateNormal(Distribution):
    """The normal distribution of vectors with a mean (..., n) and a covariance, or its factor, (..., n, n).

    `scale_tril` is the lower triangular L with L @ L.T the covariance. Raises `UsageError` unless exactly one
    of both is given.
    """

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None, *, scale_tril: Tensor | None = None
    ) -> None:
        if (covariance_matrix is None) == (scale_tril is None):
            raise UsageError("MultivariateNormal: wanted covariance_matrix or scale_tril, saw both or none")
        lower = covariance_matrix.cholesky() if covariance_matrix is not None else scale_tril
        assert lower is not None
        self.batch_shape = (loc.unsqueeze(-1) + lower).shape[:-2]
        self.loc = self.mean = loc.expand(*self.batch_shape, loc.shape[-1])
        self.scale_tril, self.event_shape = lower, loc.shape[-1:]
        self.variance = (lower * lower).sum(-1).expand(self.loc.shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return vectors (*sample_shape, *batch, n) through which gradients flow to both parameters."""
        shape = (*sample_shape, *self.loc.shape)
        noise = Tensor.randn(*shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril * noise.unsqueeze(-2)).sum(-1)

    def _half_log_det(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density."""
        far = (value - self.loc).unsqueeze(-1)
        lower = self.scale_tril.expand(*far.shape[:-2], *self.scale_tril.shape[-2:])
        n, scaled = self.event_shape[0], lower.solve(far)
        return -(scaled * scaled).sum((-2, -1)) / 2 - self._half_log_det() - n * math.log(2 * math.pi) / 2

    def entropy(self) -> Tensor:
        """Return the entropy in nats."""
        n = self.event_shape[0]
        return (self._half_log_det() + n * (1 + math.log(2 * math.pi)) / 2).expand(self.batch_shape)


class Independent(Distribution):
    """A distribution whose last `reinterpreted_batch_ndims` axes of the batch are axes of one event."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int) -> None:
        self.base_dist, self.axes = base_distribution, tuple(range(-reinterpreted_batch_ndims, 0))
        cut = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        if cut < 0:
            raise UsageError(
                f"Independent: {reinterpreted_batch_ndims} axes of {base_distribution.batch_shape}"
            )
        self.batch_shape = base_distribution.batch_shape[:cut]
        self.event_shape = base_distribution.batch_shape[cut:] + base_distribution.event_shape

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base_dist, name)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers of the base with gradients."""
        return self.base_dist.rsample(sample_shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers of the base."""
        return self.base_dist.sample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the sum of the logarithms along the axes of the event."""
        found = self.base_dist.log_prob(value)
        return found.sum(self.axes) if self.axes else found

    def entropy(self) -> Tensor:
        """Return the sum of the entropies along the axes of the event."""
        found = self.base_dist.entropy()
        return found.sum(self.axes) if self.axes else found
