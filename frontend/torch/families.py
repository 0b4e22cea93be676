"""Distributions of numbers as rows of a table: parameters, moments, densities and draws; divergences.

Parameters are numbers or tensors, which broadcast. Gradients of draws flow to locations, scales and rates;
`rsample` raises `UsageError` where a shape (`concentration`, `df`) has requires_grad. Values outside of a
support are not checked.

Sources: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000, for draws. Not here:
other distributions (`distributions`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

from frontend.arguments.aliases import check_call
from frontend.tensor import Tensor
from frontend.torch import distributions as base
from hcq.errors import UsageError

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Dirichlet", "Exponential", "Gamma", "Geometric", "Laplace", "LogNormal",
    "Normal", "Poisson", "StudentT", "Uniform", "kl_divergence",
]  # fmt: skip
_NEEDED: Final = inspect.Parameter.empty


def _both(*given: Any) -> tuple[Tensor, ...]:
    """Return numbers or tensors as tensors of the shape that they broadcast to."""
    made = [t if isinstance(t, Tensor) else Tensor(float(t)) for t in given]
    return tuple(Tensor.broadcast_tensors(*made))


def _family(name: str, text: str, known: dict[str, Any], **rules: Callable[..., Any]) -> Any:
    """Return the class of a distribution with parameters and their defaults; a rule takes the object.

    The rules: `mean`, `variance`, `log_prob`, `cdf` and `icdf` (also of values), `entropy`, and `rsample`, or
    `sample` for whole numbers (also of the shape of the draws).
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(n, kind, default=d) for n, d in known.items()])

    def __init__(self: Any, *args: Any, **names: Any) -> None:  # noqa: N807 - of the class below
        given = known | check_call(name, type(self), args, names).arguments
        if "probs" in given:
            p, logits = given["probs"], given["logits"]
            if (p is None) == (logits is None):
                raise UsageError(f"{name}: wanted probs or logits, saw both or none")
            (t,) = _both(logits if p is None else p)
            given["probs"], given["logits"] = (t.sigmoid(), t) if p is None else (t, t.logit(1e-7))
        made = _both(*given.values())
        for n, t in zip(given, made, strict=True):
            setattr(self, n, t)
        self.batch_shape = made[0].shape

    def rsample(self: Any, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers (*sample_shape, *batch) with gradients; see the module for those of shapes."""
        shapes = [n for n in known if n[:4] in {"conc", "df"} and getattr(self, n).requires_grad]
        if shapes or "rsample" not in rules:
            why = f"no gradient flows to {shapes[0]}" if shapes else "draws are whole numbers"
            raise UsageError(f"{name}.rsample: {why}\nhint: sample()")
        found: Tensor = rules["rsample"](self, (*sample_shape, *self.batch_shape))
        return found

    def sample(self: Any, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers (*sample_shape, *batch) without gradients."""
        rule = rules.get("rsample") or rules["sample"]
        found: Tensor = rule(self, (*sample_shape, *self.batch_shape)).detach()
        return found

    fields: dict[str, Any] = {**rules, **{n: property(rules[n]) for n in ("mean", "variance")}}
    fields |= {"__init__": __init__, "rsample": rsample, "sample": sample, "__signature__": signature}
    return type(name, (base.Distribution,), {**fields, "__doc__": text, "__module__": __name__})


def _drawn(like: Tensor, shape: tuple[int, ...], *trials: int) -> Tensor:
    """Return numbers uniform in (0, 1)."""
    found = Tensor.rand(*trials, *shape, dtype=like.dtype, device=like.device)
    return found.clamp(1e-7, 1 - 1e-7)


def _gammas(concentration: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return gamma variables of rate 1: the first of 12 trials that is accepted, as 95 % of all are."""
    a = concentration.detach().expand(shape)
    d = (a < 1).where(a + 1, a) - 1 / 3
    x = Tensor.randn(12, *shape, dtype=a.dtype, device=a.device).realize()
    v = (1 + x / (9 * d).sqrt()) ** 3
    safe = v.clamp(1e-30)
    good = (v > 0) & (_drawn(a, shape, 12).log() < x * x / 2 + d - d * safe + d * safe.log())
    found = d * safe.gather(0, good.cast("int32").argmax(0, keepdim=True)).squeeze(0)
    raised = (a < 1).where(found * _drawn(a, shape) ** (1 / a), found)
    return raised.clamp(1e-30)


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Return Poisson variables of the rates `input`: arrivals before a time. Reads the greatest rate.

    Memory grows with it. Raises `UsageError` for rates that are negative or not finite.
    """
    rate = input.detach()
    most = float(rate.max().item()) if rate.numel() else 0.0
    if not (math.isfinite(most) and bool((rate >= 0).all().item())):
        raise UsageError(f"poisson: wanted finite rates of at least 0, the greatest is {most}")
    with generator.drawing() if generator else nullcontext():
        times = -(_drawn(rate, rate.shape, int(most + 12 * math.sqrt(most) + 30)).log()).cumsum(0)
    return (times < rate).sum(0).cast(input.dtype)


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Return how many of `count` trials succeed with the probability `prob`, which broadcast.

    Reads the greatest count; memory grows with it. Raises `UsageError` for a probability outside of 0..1.
    """
    n, p = Tensor.broadcast_tensors(count.detach(), prob.detach())
    if not bool(((p >= 0) & (p <= 1)).all().item()):
        raise UsageError("binomial: wanted probabilities in 0..1")
    most = int(n.max().item()) if n.numel() else 0
    places = Tensor.arange(most, device=p.device).reshape(-1, *(1,) * p.ndim)
    with generator.drawing() if generator else nullcontext():
        tries = Tensor.rand(most, *p.shape, dtype=p.dtype, device=p.device)
    return ((tries < p) & (places < n)).sum(0).cast(count.dtype)


def _log_beta(shapes: Tensor) -> Any:
    return shapes.lgamma().sum(-1) - shapes.sum(-1).lgamma()


def _pair(d: Any) -> Any:
    return Dirichlet(Tensor.stack([d.concentration1, d.concentration0], -1))


def _binomial_entropy(self: Any) -> Any:
    n = int(self.total_count.max().item())
    if int(self.total_count.min().item()) != n:
        raise UsageError("Binomial.entropy: wanted one total_count, saw several")
    every = self.log_prob(Tensor.arange(n + 1).cast(self.probs.dtype).reshape(-1, *(1,) * self.probs.ndim))
    return -(every.exp() * every).sum(0)


def _student_scale(self: Any) -> Any:
    halves = Tensor.stack([self.df / 2, self.df * 0 + 0.5], -1)
    return self.scale.log() + self.df.log() / 2 + _log_beta(halves)


def _normal(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return Tensor.randn(*shape, dtype=like.dtype, device=like.device)


Normal = _family(
    "Normal", "The normal distribution with a mean and a standard deviation.",
    {"loc": _NEEDED, "scale": _NEEDED},
    mean=lambda d: d.loc, variance=lambda d: d.scale * d.scale,
    log_prob=lambda d, value: -((value - d.loc) / d.scale).square() / 2 - d.scale.log()
    - math.log(2 * math.pi) / 2,
    entropy=lambda d: d.scale.log() + (1 + math.log(2 * math.pi)) / 2,
    cdf=lambda d, value: (1 + ((value - d.loc) / (d.scale * math.sqrt(2))).erf()) / 2,
    icdf=lambda d, value: d.loc + d.scale * math.sqrt(2) * (2 * value - 1).erfinv(),
    rsample=lambda d, shape: d.loc + d.scale * _normal(d.loc, shape),
)  # fmt: skip
Uniform = _family(
    "Uniform", "The uniform distribution from `low` to below `high`.", {"low": _NEEDED, "high": _NEEDED},
    mean=lambda d: (d.low + d.high) / 2, variance=lambda d: (d.high - d.low).square() / 12,
    log_prob=lambda d, value: ((value >= d.low) & (value < d.high)).where(0.0, -math.inf)
    - (d.high - d.low).log(),
    entropy=lambda d: (d.high - d.low).log(),
    rsample=lambda d, shape: d.low
    + (d.high - d.low) * Tensor.rand(*shape, dtype=d.low.dtype, device=d.low.device),
)  # fmt: skip
Bernoulli = _family(
    "Bernoulli", "0 or 1, with a probability, or a logit, of 1.", {"probs": None, "logits": None},
    mean=lambda d: d.probs, variance=lambda d: d.probs * (1 - d.probs),
    log_prob=lambda d, value: -d.probs.binary_crossentropy(value, "none"),
    entropy=lambda d: d.probs.binary_crossentropy(d.probs, "none"),
    sample=lambda d, shape: d.probs.detach().expand(shape).bernoulli(),
)  # fmt: skip
Exponential = _family(
    "Exponential", "Waiting times at a rate.", {"rate": _NEEDED},
    mean=lambda d: 1 / d.rate, variance=lambda d: 1 / d.rate**2,
    log_prob=lambda d, value: d.rate.log() - d.rate * value, entropy=lambda d: 1 - d.rate.log(),
    rsample=lambda d, shape: -_drawn(d.rate, shape).log() / d.rate,
)  # fmt: skip
Laplace = _family(
    "Laplace", "Two exponential tails around `loc`, of a scale.", {"loc": _NEEDED, "scale": _NEEDED},
    mean=lambda d: d.loc, variance=lambda d: 2 * d.scale**2,
    log_prob=lambda d, value: -(2 * d.scale).log() - (value - d.loc).abs() / d.scale,
    entropy=lambda d: 1 + (2 * d.scale).log(),
    rsample=lambda d, shape: d.loc + d.scale * (_drawn(d.loc, shape) / _drawn(d.loc, shape)).log(),
)  # fmt: skip
LogNormal = _family(
    "LogNormal", "Numbers whose logarithms are normal, with `loc` and `scale`.",
    {"loc": _NEEDED, "scale": _NEEDED},
    mean=lambda d: (d.loc + d.scale**2 / 2).exp(),
    variance=lambda d: (d.scale**2).expm1() * (2 * d.loc + d.scale**2).exp(),
    log_prob=lambda d, value: Normal(d.loc, d.scale).log_prob(value.log()) - value.log(),
    entropy=lambda d: Normal(d.loc, d.scale).entropy() + d.loc,
    rsample=lambda d, shape: (d.loc + d.scale * _normal(d.loc, shape)).exp(),
)  # fmt: skip
Gamma = _family(
    "Gamma", "Sums of `concentration` waiting times at a rate.", {"concentration": _NEEDED, "rate": _NEEDED},
    mean=lambda d: d.concentration / d.rate, variance=lambda d: d.concentration / d.rate**2,
    log_prob=lambda d, value: d.concentration * d.rate.log() + (d.concentration - 1).xlogy(value)
    - d.rate * value - d.concentration.lgamma(),
    entropy=lambda d: d.concentration - d.rate.log() + d.concentration.lgamma()
    + (1 - d.concentration) * d.concentration.digamma(),
    rsample=lambda d, shape: _gammas(d.concentration, shape) / d.rate,
)  # fmt: skip
Beta = _family(
    "Beta", "Shares x of 0..1, with the density x**(a - 1) * (1 - x)**(b - 1) / B(a, b).",
    {"concentration1": _NEEDED, "concentration0": _NEEDED},
    mean=lambda d: d.concentration1 / (d.concentration1 + d.concentration0),
    variance=lambda d: d.mean * (1 - d.mean) / (d.concentration1 + d.concentration0 + 1),
    log_prob=lambda d, value: _pair(d).log_prob(Tensor.stack([value, 1 - value], -1)),
    entropy=lambda d: _pair(d).entropy(),
    rsample=lambda d, shape: _pair(d).sample(shape[: len(shape) - len(d.batch_shape)])[..., 0],
)  # fmt: skip
StudentT = _family(
    "StudentT", "Student's distribution with `df` degrees of freedom, moved and scaled.",
    {"df": _NEEDED, "loc": 0.0, "scale": 1.0},
    mean=lambda d: (d.df > 1).where(d.loc, math.nan),
    variance=lambda d: (d.df > 2).where(
        d.scale**2 * d.df / (d.df - 2), (d.df > 1).where(d.df * 0 + math.inf, math.nan)),
    log_prob=lambda d, value: -(d.df + 1) / 2 * (((value - d.loc) / d.scale) ** 2 / d.df).log1p()
    - _student_scale(d),
    entropy=lambda d: (d.df + 1) / 2 * (((d.df + 1) / 2).digamma() - (d.df / 2).digamma())
    + _student_scale(d),
    rsample=lambda d, shape: d.loc + d.scale * _normal(d.df, shape)
    / (2 * _gammas(d.df / 2, shape) / d.df).sqrt(),
)  # fmt: skip
Poisson = _family(
    "Poisson", "Counts of arrivals at a rate.", {"rate": _NEEDED},
    mean=lambda d: d.rate, variance=lambda d: d.rate,
    log_prob=lambda d, value: value.xlogy(d.rate) - d.rate - (value + 1).lgamma(),
    sample=lambda d, shape: poisson(d.rate.expand(shape)),
)  # fmt: skip
Geometric = _family(
    "Geometric", "Failures before the first success, of a probability.", {"probs": None, "logits": None},
    mean=lambda d: 1 / d.probs - 1, variance=lambda d: (1 / d.probs - 1) / d.probs,
    log_prob=lambda d, value: ((d.probs == 1) & (value == 0)).where(0.0, value * (-d.probs).log1p())
    + d.probs.log(),
    entropy=lambda d: d.probs.binary_crossentropy(d.probs, "none") / d.probs,
    sample=lambda d, shape: (_drawn(d.probs, shape).log() / (-d.probs).log1p()).floor(),
)  # fmt: skip
Binomial = _family(
    "Binomial", "Successes of `total_count` trials, of a probability.",
    {"total_count": 1, "probs": None, "logits": None},
    mean=lambda d: d.total_count * d.probs, variance=lambda d: d.total_count * d.probs * (1 - d.probs),
    log_prob=lambda d, value: (d.total_count + 1).lgamma() - (value + 1).lgamma()
    - (d.total_count - value + 1).lgamma() + value * d.logits - d.total_count * d.logits.softplus(),
    entropy=_binomial_entropy,
    sample=lambda d, shape: binomial(d.total_count.expand(shape), d.probs.expand(shape)),
)  # fmt: skip


class Dirichlet(base.Distribution):
    """Shares (..., n) with the sum 1, of `concentration` (..., n); draws have no gradient."""

    def __init__(self, concentration: Tensor) -> None:
        self.concentration, self.total = concentration, concentration.sum(-1, keepdim=True)
        self.batch_shape, self.event_shape = concentration.shape[:-1], concentration.shape[-1:]
        self.mean = concentration / self.total
        self.variance = self.mean * (1 - self.mean) / (self.total + 1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return shares (*sample_shape, *batch, n) without gradients."""
        found = _gammas(self.concentration, (*sample_shape, *self.concentration.shape)).realize()
        return found / found.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Any:
        """Return the logarithm of the density."""
        return (self.concentration - 1).xlogy(value).sum(-1) - _log_beta(self.concentration)

    def entropy(self) -> Any:
        """Return the entropy in nats."""
        a, total = self.concentration, self.total.squeeze(-1)
        free = (total - a.shape[-1]) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)
        return _log_beta(a) + free


def _gamma_pair(p: Any, q: Any) -> Any:
    a, b = (getattr(d, "concentration", d.rate * 0 + 1) for d in (p, q))
    rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * a / p.rate
    return rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()


def _shares(p: Any, q: Any) -> Any:
    a, b = (d.concentration if isinstance(d, Dirichlet) else _pair(d).concentration for d in (p, q))
    total = a.sum(-1, keepdim=True)
    return _log_beta(b) - _log_beta(a) + ((a - b) * (a.digamma() - total.digamma())).sum(-1)


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


_KL: Final[dict[tuple[Any, Any], Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(
        [(Normal, Normal), (LogNormal, LogNormal)],
        lambda p, q: ((p.scale / q.scale).square() + ((p.loc - q.loc) / q.scale).square() - 1) / 2
        - (p.scale / q.scale).log(),
    ),
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


def kl_divergence(p: base.Distribution, q: base.Distribution) -> Tensor:
    """Return the divergence of p from q in nats, of the pairs of classes that a table has.

    Also of two `Independent` ones of these with equally many axes. Raises `UsageError` for other pairs.
    """
    if isinstance(p, base.Independent) and isinstance(q, base.Independent) and p.axes == q.axes:
        each = kl_divergence(p.base_dist, q.base_dist)
        return each.sum(p.axes) if p.axes else each
    for (first, second), rule in _KL.items():
        if isinstance(p, first) and isinstance(q, second):
            found: Tensor = rule(p, q)
            return found
    if any(isinstance(p, first) and isinstance(q, others) for first, others in _INFINITE.items()):
        return Tensor.full((p.mean + q.mean).shape, math.inf, dtype=p.mean.dtype, device=p.mean.device)
    raise UsageError(f"kl_divergence: not of {type(p).__name__} and {type(q).__name__}")
