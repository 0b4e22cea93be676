"""Divergences of Kullback and Leibler between distributions, as rows of a table.

Not here: the distributions (`distributions`, `families`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from frontend.tensor import Tensor
from frontend.torch import distributions as base
from frontend.torch.families import (
    Bernoulli,
    Beta,
    Binomial,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    Geometric,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Pareto,
    Poisson,
    Uniform,
    log_beta,
    pair,
)
from hcq.errors import UsageError

__all__ = ["kl_divergence", "register_kl"]


def _gamma_pair(p: Any, q: Any) -> Any:
    a, b = (getattr(d, "concentration", d.rate * 0 + 1) for d in (p, q))
    rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * a / p.rate
    return rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()


def _shares(p: Any, q: Any) -> Any:
    a, b = (d.concentration if isinstance(d, Dirichlet) else pair(d).concentration for d in (p, q))
    total = a.sum(-1, keepdim=True)
    return log_beta(b) - log_beta(a) + ((a - b) * (a.digamma() - total.digamma())).sum(-1)


def _to_laplace(p: Any, q: Any) -> Any:
    far = (p.loc - q.loc) / p.scale
    mean = math.sqrt(2 / math.pi) * (-far * far / 2).exp() + far * (far / math.sqrt(2)).erf()
    return mean * p.scale / q.scale - (p.scale / q.scale).log() - (1 + math.log(math.pi / 2)) / 2


def _binomials(p: Any, q: Any) -> Any:
    if bool((p.total_count < q.total_count).any().item()):
        raise UsageError("kl_divergence: wanted a second Binomial of no more trials than the first")
    inside = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count > q.total_count).where(math.inf, p.total_count * inside)


def _vectors(p: Any, q: Any) -> Any:
    lower, far = q.scale_tril, (p.loc - q.loc).unsqueeze(-1)
    squares = [lower.solve(t).square().sum((-2, -1)) for t in (p.scale_tril, far)]
    logs = [d.scale_tril.diagonal(0, -2, -1).log().sum(-1) for d in (q, p)]
    return logs[0] - logs[1] + (squares[0] + squares[1] - p.event_shape[0]) / 2


def _gumbels(p: Any, q: Any) -> Any:
    ratio, apart = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return (
        -ratio.log()
        - apart
        + ratio * 0.5772156649015329
        + (apart + (1 + ratio).lgamma()).exp()
        - 1.5772156649015329
    )


_KL: Final[dict[tuple[Any, Any], Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(
        [(Normal, Normal), (LogNormal, LogNormal)],
        lambda p, q: ((p.scale / q.scale).square() + ((p.loc - q.loc) / q.scale).square() - 1) / 2
        - (p.scale / q.scale).log(),
    ),
    (HalfNormal, HalfNormal): lambda p, q: ((p.scale / q.scale).square() - 1) / 2 - (p.scale / q.scale).log(),
    (Cauchy, Cauchy): lambda p, q: ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log()
    - (4 * p.scale * q.scale).log(),
    (Gumbel, Gumbel): _gumbels,
    (Pareto, Pareto): lambda p, q: (p.scale < q.scale).where(
        math.inf, q.alpha * (p.scale / q.scale).log() - (q.alpha / p.alpha).log() + q.alpha / p.alpha - 1),
    (base.Categorical, base.Categorical): lambda p, q: (p.probs == 0).where(
        0.0, (q.probs == 0).where(math.inf, p.probs * (p.logits - q.logits))).sum(-1),
    (Bernoulli, Bernoulli): lambda p, q: q.probs.binary_crossentropy(p.probs, "none") - p.entropy(),
    (Bernoulli, Poisson): lambda p, q: q.rate - p.probs * q.rate.log() - p.entropy(),
    **dict.fromkeys(
        [(d, Normal) for d in (Beta, Exponential, Gamma, Laplace, Uniform)],
        lambda p, q: (p.variance + (p.mean - q.loc).square()) / (2 * q.scale**2) + q.scale.log()
        + math.log(2 * math.pi) / 2 - p.entropy(),
    ),
    **{(p, q): _gamma_pair for p in (Exponential, Gamma) for q in (Exponential, Gamma)},
    (Beta, Exponential): lambda p, q: q.rate * p.mean - q.rate.log() - p.entropy(),
    (Beta, Beta): _shares, (Dirichlet, Dirichlet): _shares,
    (Laplace, Laplace): lambda p, q: (p.loc - q.loc).abs() / q.scale - 1 - (p.scale / q.scale).log()
    + p.scale / q.scale * (-(p.loc - q.loc).abs() / p.scale).exp(),
    (Normal, Laplace): _to_laplace, (Binomial, Binomial): _binomials,
    (Uniform, Uniform): lambda p, q: ((q.low > p.low) | (q.high < p.high)).where(
        math.inf, ((q.high - q.low) / (p.high - p.low)).log()),
    (Poisson, Poisson): lambda p, q: p.rate * (p.rate / q.rate).log() - p.rate + q.rate,
    (Geometric, Geometric): lambda p, q: -p.entropy() - (-q.probs).log1p() / p.probs - q.logits,
    (base.MultivariateNormal, base.MultivariateNormal): _vectors,
}  # fmt: skip
"""(class of p, class of q) -> their divergence."""
_INFINITE: Final = {
    Exponential: (Beta, Uniform), Gamma: (Beta, Uniform), Laplace: (Beta, Exponential, Gamma, Uniform),
    Normal: (Beta, Exponential, Gamma, Uniform), Poisson: (Bernoulli, Binomial),
}  # fmt: skip
"""Class of p -> classes of q that lack values of p."""


def register_kl(type_p: Any, type_q: Any) -> Callable[[Any], Any]:
    """Return a decorator of a function (p, q) that computes the divergence of two classes.

    Raises `UsageError` for what is no class of distributions.
    """
    for kind in (type_p, type_q):
        if not (isinstance(kind, type) and issubclass(kind, base.Distribution)):
            raise UsageError(f"register_kl: wanted classes of distributions, saw {kind!r}")

    def register(rule: Any) -> Any:
        _KL[type_p, type_q] = rule
        return rule

    return register


def kl_divergence(p: base.Distribution, q: base.Distribution) -> Any:
    """Return the divergence of p from q in nats, of the pairs of classes that a table has.

    Also of two `Independent` ones of these with equally many axes. Of several rows that fit, those of the
    nearest base classes count. Raises `UsageError` for other pairs.
    """
    if isinstance(p, base.Independent) and isinstance(q, base.Independent):
        axes = p.reinterpreted_batch_ndims
        if axes == q.reinterpreted_batch_ndims:
            return base.summed(kl_divergence(p.base_dist, q.base_dist), axes)
    orders = [type(d).__mro__ for d in (p, q)]
    rows = [key for key in _KL if isinstance(p, key[0]) and isinstance(q, key[1])]
    if rows:
        key = min(rows, key=lambda row: [o.index(kind) for o, kind in zip(orders, row, strict=True)])
        return _KL[key](p, q)
    if any(isinstance(p, first) and isinstance(q, others) for first, others in _INFINITE.items()):
        return Tensor.full((p.mean + q.mean).shape, math.inf, dtype=p.mean.dtype, device=p.mean.device)
    raise UsageError(f"kl_divergence: not of {type(p).__name__} and {type(q).__name__}")
