"""Distributions of numbers as rows of a table: parameters, moments, densities and draws; divergences.

Parameters are numbers or tensors, which broadcast. Gradients of draws flow to locations, scales and rates;
`rsample` raises `UsageError` where a shape (`concentration`, `df`) has requires_grad.

Sources: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000, for draws. Not here:
other distributions (`distributions`), divergences (`divergences`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Final

from frontend.arguments.aliases import check_call
from frontend.tensor import Tensor
from frontend.torch import constraints as of
from frontend.torch import distributions as base
from hcq.errors import UsageError

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Cauchy", "Chi2", "Dirichlet", "Exponential", "FisherSnedecor", "Gamma",
    "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy", "Laplace", "LogNormal",
    "NegativeBinomial", "Normal", "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical",
    "StudentT", "Uniform", "Weibull",
]  # fmt: skip
_NEEDED: Final = inspect.Parameter.empty
_EULER: Final = 0.5772156649015329
_REAL: Final = (_NEEDED, of.real)
_POSITIVE: Final = (_NEEDED, of.positive)
_CHANCES: Final = {"probs": (None, of.unit_interval), "logits": (None, of.real)}


def _both(*given: Any) -> tuple[Tensor, ...]:
    """Return numbers or tensors as tensors of the shape that they broadcast to."""
    like = next((t for t in given if isinstance(t, Tensor)), None)
    dtype, device = (
        (None, None) if like is None or not like.is_floating_point() else (like.dtype, like.device)
    )
    made = [t if isinstance(t, Tensor) else Tensor(float(t), dtype=dtype, device=device) for t in given]
    return tuple(Tensor.broadcast_tensors(*made))


def _family(
    name: str, text: str, known: dict[str, Any], support: Any, bases: Any = (base.Distribution,), **rules: Any
) -> Any:  # fmt: skip
    """Return the class of a distribution; `known`: its parameters -> (default, constraint).

    `support` is a constraint, or a function of the object. A rule takes the object: `mean`, `variance`,
    `mode`, `entropy`; `log_prob`, `cdf` and `icdf` also values; `rsample`, or `sample` for whole numbers,
    also the shape of the draws. `values` returns all values, `ordered`
    two parameters of which the first is the greater one; `free`: draws give gradients to shapes, too.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    accepted = {n: default for n, (default, _) in known.items()} | {"validate_args": None}
    signature = inspect.Signature([inspect.Parameter(n, kind, default=d) for n, d in accepted.items()])

    def __init__(self: Any, *args: Any, **names: Any) -> None:  # noqa: N807 - of the class below
        given = accepted | check_call(name, type(self), args, names).arguments
        validate, late = given.pop("validate_args"), {}
        if "probs" in given:
            p, logits = given["probs"], given["logits"]
            base.probs_or_logits(name, p, logits)
            given.pop("logits" if logits is None else "probs")
        made = dict(zip(given, _both(*given.values()), strict=True))
        if "probs" in known:
            p = made.get("probs")
            late = (
                {"probs": made["logits"].sigmoid()} if p is None else {"logits": base.inside_unit(p).logit()}
            )
        vars(self).update(made)
        base.Distribution.__init__(self, next(iter(made.values())).shape, (), validate)
        vars(self).update(late)
        if self._validate_args and "ordered" in rules:
            more, less = rules["ordered"](self)
            self._check("ends", of.Constraint("high above low", lambda gap: gap > 0), more - less)

    def rsample(self: Any, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers (*sample_shape, *batch) with gradients; see the module for those of shapes."""
        shapes = [
            n for n in known if n[:4] in {"conc", "df", "df1", "df2"} and getattr(self, n).requires_grad
        ]
        if (shapes and "free" not in rules) or "rsample" not in rules:
            why = f"no gradient flows to {shapes[0]}" if shapes else "draws are whole numbers"
            raise UsageError(f"{name}.rsample: {why}\nhint: sample()")
        found: Tensor = rules["rsample"](self, self._shape(sample_shape))
        return found

    def sample(self: Any, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return numbers (*sample_shape, *batch) without gradients."""
        rule = rules.get("rsample") or rules["sample"]
        found: Tensor = rule(self, self._shape(sample_shape)).detach()
        return found

    def log_prob(self: Any, value: Any) -> Any:
        """Return the logarithm of the density or of the probability, of the batch's shape."""
        self._validate_sample(value)
        return rules["log_prob"](self, value)

    def cdf(self: Any, value: Any) -> Any:
        """Return the probability of at most a value."""
        self._validate_sample(value)
        return rules["cdf"](self, value)

    fields: dict[str, Any] = {n: property(rules[n]) for n in ("mean", "variance", "mode") if n in rules}
    fields |= {n: rules[n] for n in ("entropy", "icdf") if n in rules} | (
        {"cdf": cdf} if "cdf" in rules else {}
    )
    fields |= {"__init__": __init__, "rsample": rsample, "sample": sample, "__signature__": signature}
    fields |= {
        "log_prob": log_prob,
        "support": support if isinstance(support, of.Constraint) else property(support),
        "arg_constraints": {n: constraint for n, (_, constraint) in known.items()},
        "has_rsample": "rsample" in rules,
        "has_enumerate_support": "values" in rules,
        **({"_values": rules["values"]} if "values" in rules else {}),
    }
    return type(name, bases, {**fields, "__doc__": text, "__module__": __name__})


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


def log_beta(shapes: Tensor) -> Any:
    return shapes.lgamma().sum(-1) - shapes.sum(-1).lgamma()


def pair(d: Any) -> Any:
    return Dirichlet(Tensor.stack([d.concentration1, d.concentration0], -1), validate_args=False)


def _trials(self: Any) -> int:
    n = int(self.total_count.max().item())
    if int(self.total_count.min().item()) != n:
        raise UsageError("Binomial: wanted one total_count for all values, saw several")
    return n


def _binomial_entropy(self: Any) -> Any:
    every = self.log_prob(self.enumerate_support(False))
    return -(every.exp() * every).sum(0)


def _relaxed(d: Any, value: Any) -> Any:
    y = value.logit()
    apart = d.logits - y * d.temperature
    return d.temperature.log() + apart - 2 * apart.softplus() + y.softplus() + (-y).softplus()


def _cross(d: Any, value: Any) -> Any:
    logits, wanted = Tensor.broadcast_tensors(d.logits, value)
    return logits.binary_crossentropy_logits(wanted, "none")


def _logs(d: Any) -> Any:
    return Normal(d.loc, d.scale, validate_args=False)


def _kumaraswamy(d: Any, power: int) -> Any:
    a, b = 1 + power / d.concentration1, d.concentration0
    return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()


def _student_scale(self: Any) -> Any:
    halves = Tensor.stack([self.df / 2, self.df * 0 + 0.5], -1)
    return self.scale.log() + self.df.log() / 2 + log_beta(halves)


def _normal(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return Tensor.randn(*shape, dtype=like.dtype, device=like.device)


def _flat(d: Any, value: float) -> Any:
    return next(t for n, t in vars(d).items() if n in d.arg_constraints) * 0 + value


Normal = _family(
    "Normal", "The normal distribution with a mean and a standard deviation.",
    {"loc": _REAL, "scale": _POSITIVE}, of.real,
    mean=lambda d: d.loc, mode=lambda d: d.loc, variance=lambda d: d.scale * d.scale,
    log_prob=lambda d, value: -((value - d.loc) / d.scale).square() / 2 - d.scale.log()
    - math.log(2 * math.pi) / 2,
    entropy=lambda d: d.scale.log() + (1 + math.log(2 * math.pi)) / 2,
    cdf=lambda d, value: (1 + ((value - d.loc) / (d.scale * math.sqrt(2))).erf()) / 2,
    icdf=lambda d, value: d.loc + d.scale * math.sqrt(2) * (2 * value - 1).erfinv(),
    rsample=lambda d, shape: d.loc + d.scale * _normal(d.loc, shape),
)  # fmt: skip
HalfNormal = _family(
    "HalfNormal", "Magnitudes of normal numbers around 0, of a scale.", {"scale": _POSITIVE}, of.nonnegative,
    mean=lambda d: d.scale * math.sqrt(2 / math.pi), mode=lambda d: d.scale * 0,
    variance=lambda d: d.scale.square() * (1 - 2 / math.pi),
    log_prob=lambda d, value: (value >= 0).where(
        -(value / d.scale).square() / 2 - d.scale.log() + math.log(2 / math.pi) / 2, -math.inf),
    entropy=lambda d: d.scale.log() + (1 + math.log(math.pi / 2)) / 2,
    cdf=lambda d, value: (value / (d.scale * math.sqrt(2))).erf(),
    icdf=lambda d, value: d.scale * math.sqrt(2) * value.erfinv(),
    rsample=lambda d, shape: (d.scale * _normal(d.scale, shape)).abs(),
)  # fmt: skip
Cauchy = _family(
    "Cauchy", "Quotients of two normal numbers, moved and scaled.",
    {"loc": _REAL, "scale": _POSITIVE}, of.real,
    mean=lambda d: _flat(d, math.nan), mode=lambda d: d.loc, variance=lambda d: _flat(d, math.inf),
    log_prob=lambda d,
    value: -math.log(math.pi) - d.scale.log() - ((value - d.loc) / d.scale).square().log1p(),
    entropy=lambda d: math.log(4 * math.pi) + d.scale.log(),
    cdf=lambda d, value: ((value - d.loc) / d.scale).atan() / math.pi + 0.5,
    icdf=lambda d, value: (math.pi * (value - 0.5)).tan() * d.scale + d.loc,
    rsample=lambda d, shape: (math.pi * (_drawn(d.loc, shape) - 0.5)).tan() * d.scale + d.loc,
)  # fmt: skip
HalfCauchy = _family(
    "HalfCauchy", "Magnitudes of Cauchy numbers around 0, of a scale.", {"scale": _POSITIVE}, of.nonnegative,
    mean=lambda d: _flat(d, math.inf), mode=lambda d: d.scale * 0, variance=lambda d: _flat(d, math.inf),
    log_prob=lambda d, value: (value >= 0).where(
        math.log(2 / math.pi) - d.scale.log() - (value / d.scale).square().log1p(), -math.inf),
    entropy=lambda d: math.log(2 * math.pi) + d.scale.log(),
    cdf=lambda d, value: (value / d.scale).atan() * (2 / math.pi),
    icdf=lambda d, value: (math.pi * value / 2).tan() * d.scale,
    rsample=lambda d, shape: ((math.pi * (_drawn(d.scale, shape) - 0.5)).tan() * d.scale).abs(),
)  # fmt: skip
Uniform = _family(
    "Uniform", "The uniform distribution from `low` to below `high`.",
    {"low": (_NEEDED, of.dependent), "high": (_NEEDED, of.dependent)},
    lambda d: of.interval(d.low, d.high),
    ordered=lambda d: (d.high, d.low),
    mean=lambda d: (d.low + d.high) / 2, mode=lambda d: math.nan * d.high,
    variance=lambda d: (d.high - d.low).square() / 12,
    log_prob=lambda d, value: ((value >= d.low) & (value < d.high)).where(0.0, -math.inf)
    - (d.high - d.low).log(),
    entropy=lambda d: (d.high - d.low).log(),
    cdf=lambda d, value: ((value - d.low) / (d.high - d.low)).clamp(0, 1),
    icdf=lambda d, value: value * (d.high - d.low) + d.low,
    rsample=lambda d, shape: d.low
    + (d.high - d.low) * Tensor.rand(*shape, dtype=d.low.dtype, device=d.low.device),
)  # fmt: skip
Bernoulli = _family(
    "Bernoulli", "0 or 1, with a probability, or a logit, of 1.", _CHANCES, of.boolean,
    mean=lambda d: d.probs, variance=lambda d: d.probs * (1 - d.probs),
    mode=lambda d: (d.probs == 0.5).where(math.nan, (d.probs > 0.5).cast(d.probs.dtype)),
    log_prob=lambda d, value: -_cross(d, value), entropy=lambda d: _cross(d, d.probs),
    sample=lambda d, shape: d.probs.detach().expand(shape).bernoulli(),
    values=lambda d: Tensor.arange(2, device=d.probs.device).cast(d.probs.dtype),
)  # fmt: skip
Exponential = _family(
    "Exponential", "Waiting times at a rate.", {"rate": _POSITIVE}, of.nonnegative,
    mean=lambda d: 1 / d.rate, mode=lambda d: d.rate * 0, variance=lambda d: 1 / d.rate**2,
    log_prob=lambda d, value: d.rate.log() - d.rate * value, entropy=lambda d: 1 - d.rate.log(),
    cdf=lambda d, value: -(-d.rate * value).expm1(), icdf=lambda d, value: -(-value).log1p() / d.rate,
    rsample=lambda d, shape: -_drawn(d.rate, shape).log() / d.rate,
)  # fmt: skip
Laplace = _family(
    "Laplace", "Two exponential tails around `loc`, of a scale.", {"loc": _REAL, "scale": _POSITIVE}, of.real,
    mean=lambda d: d.loc, mode=lambda d: d.loc, variance=lambda d: 2 * d.scale**2,
    log_prob=lambda d, value: -(2 * d.scale).log() - (value - d.loc).abs() / d.scale,
    entropy=lambda d: 1 + (2 * d.scale).log(),
    cdf=lambda d, value: 0.5 - 0.5 * (value - d.loc).sign() * (-(value - d.loc).abs() / d.scale).expm1(),
    icdf=lambda d, value: d.loc - d.scale * (value - 0.5).sign() * (-2 * (value - 0.5).abs()).log1p(),
    rsample=lambda d, shape: d.loc + d.scale * (_drawn(d.loc, shape) / _drawn(d.loc, shape)).log(),
)  # fmt: skip
Gumbel = _family(
    "Gumbel", "Extremes of many numbers: a location and a scale.", {"loc": _REAL, "scale": _POSITIVE},
    of.real,
    mean=lambda d: d.loc + d.scale * _EULER, mode=lambda d: d.loc,
    variance=lambda d: d.scale.square() * (math.pi**2 / 6),
    log_prob=lambda d, value: (d.loc - value) / d.scale - ((d.loc - value) / d.scale).exp() - d.scale.log(),
    entropy=lambda d: d.scale.log() + (1 + _EULER),
    cdf=lambda d, value: (-((d.loc - value) / d.scale).exp()).exp(),
    icdf=lambda d, value: d.loc - d.scale * (-value.log()).log(),
    rsample=lambda d, shape: d.loc - d.scale * (-_drawn(d.loc, shape).log()).log(),
)  # fmt: skip
LogNormal = _family(
    "LogNormal", "Numbers whose logarithms are normal, with `loc` and `scale`.",
    {"loc": _REAL, "scale": _POSITIVE}, of.positive,
    mean=lambda d: (d.loc + d.scale**2 / 2).exp(), mode=lambda d: (d.loc - d.scale**2).exp(),
    variance=lambda d: (d.scale**2).expm1() * (2 * d.loc + d.scale**2).exp(),
    log_prob=lambda d, value: _logs(d).log_prob(value.log()) - value.log(),
    entropy=lambda d: _logs(d).entropy() + d.loc,
    cdf=lambda d, value: _logs(d).cdf(value.log()), icdf=lambda d, value: _logs(d).icdf(value).exp(),
    rsample=lambda d, shape: (d.loc + d.scale * _normal(d.loc, shape)).exp(),
)  # fmt: skip
_GAMMA: Final[dict[str, Any]] = {
    "mean": lambda d: d.concentration / d.rate, "variance": lambda d: d.concentration / d.rate**2,
    "mode": lambda d: ((d.concentration - 1) / d.rate).clamp(0.0),
    "log_prob": lambda d, value: d.concentration.xlogy(d.rate) + (d.concentration - 1).xlogy(value)
    - d.rate * value - d.concentration.lgamma(),
    "entropy": lambda d: d.concentration - d.rate.log() + d.concentration.lgamma()
    + (1 - d.concentration) * d.concentration.digamma(),
    "rsample": lambda d, shape: _gammas(d.concentration, shape) / d.rate,
}  # fmt: skip
Gamma = _family(
    "Gamma", "Sums of `concentration` waiting times at a rate.",
    {"concentration": _POSITIVE, "rate": _POSITIVE}, of.nonnegative, **_GAMMA,
)  # fmt: skip
Chi2 = _family(
    "Chi2", "Sums of the squares of `df` normal numbers.", {"df": _POSITIVE}, of.nonnegative, (Gamma,),
    **_GAMMA,
)  # fmt: skip
Chi2.concentration, Chi2.rate = property(lambda d: d.df / 2), property(lambda d: _flat(d, 0.5))
InverseGamma = _family(
    "InverseGamma", "Reciprocals of gamma variables.",
    {"concentration": _POSITIVE, "rate": _POSITIVE}, of.positive,
    mean=lambda d: (d.concentration > 1).where(d.rate / (d.concentration - 1), math.inf),
    mode=lambda d: d.rate / (d.concentration + 1),
    variance=lambda d: (d.concentration > 2).where(
        d.rate**2 / ((d.concentration - 1).square() * (d.concentration - 2)), math.inf),
    log_prob=lambda d, value: d.concentration.xlogy(d.rate) - d.concentration.lgamma()
    - (d.concentration + 1) * value.log() - d.rate / value,
    entropy=lambda d: d.concentration + d.rate.log() + d.concentration.lgamma()
    - (1 + d.concentration) * d.concentration.digamma(),
    rsample=lambda d, shape: d.rate / _gammas(d.concentration, shape),
)  # fmt: skip
Beta = _family(
    "Beta", "Shares x of 0..1, with the density x**(a - 1) * (1 - x)**(b - 1) / B(a, b).",
    {"concentration1": _POSITIVE, "concentration0": _POSITIVE}, of.unit_interval,
    mean=lambda d: d.concentration1 / (d.concentration1 + d.concentration0),
    mode=lambda d: pair(d).mode[..., 0],
    variance=lambda d: d.mean * (1 - d.mean) / (d.concentration1 + d.concentration0 + 1),
    log_prob=lambda d, value: pair(d).log_prob(Tensor.stack([value, 1 - value], -1)),
    entropy=lambda d: pair(d).entropy(),
    rsample=lambda d, shape: pair(d).sample(shape[: len(shape) - len(d.batch_shape)])[..., 0],
)  # fmt: skip
Kumaraswamy = _family(
    "Kumaraswamy", "Shares x of 0..1, with the density a b x**(a - 1) * (1 - x**a)**(b - 1).",
    {"concentration1": _POSITIVE, "concentration0": _POSITIVE}, of.unit_interval, free=True,
    mean=lambda d: _kumaraswamy(d, 1), variance=lambda d: _kumaraswamy(d, 2) - _kumaraswamy(d, 1).square(),
    mode=lambda d: ((d.concentration0 < 1) | (d.concentration1 < 1)).where(
        math.nan,

    ((-d.concentration0).log1p() / d.concentration0 - (-d.concentration0 * d.concentration1).log1p()).exp()),
    log_prob=lambda d, value: d.concentration1.log() + d.concentration0.log()
    + (d.concentration1 - 1) * value.log() + (d.concentration0 - 1) * (-(value**d.concentration1)).log1p(),
    cdf=lambda d, value: 1 - (1 - value**d.concentration1) ** d.concentration0,
    icdf=lambda d, value: (1 - (1 - value) ** (1 / d.concentration0)) ** (1 / d.concentration1),
    entropy=lambda d: (1 - 1 / d.concentration0)
    + (1 - 1 / d.concentration1) * ((d.concentration0 + 1).digamma() + _EULER)
    - d.concentration1.log() - d.concentration0.log(),
    rsample=lambda d, shape: (1 - _drawn(d.concentration1, shape) ** (1 / d.concentration0))
    ** (1 / d.concentration1),
)  # fmt: skip
Pareto = _family(
    "Pareto", "Numbers from a scale on, with a tail of the power `alpha`.",
    {"scale": _POSITIVE, "alpha": _POSITIVE}, lambda d: of.greater_than_eq(d.scale),
    mean=lambda d: (d.alpha > 1).where(d.alpha * d.scale / (d.alpha - 1), math.inf), mode=lambda d: d.scale,
    variance=lambda d: (d.alpha > 2).where(
        d.scale.square() * d.alpha / ((d.alpha - 1).square() * (d.alpha - 2)), math.inf),
    log_prob=lambda d, value: d.alpha.log() + d.alpha * d.scale.log() - (d.alpha + 1) * value.log(),
    entropy=lambda d: (d.scale / d.alpha).log() + (1 + 1 / d.alpha),
    cdf=lambda d, value: 1 - (d.scale / value) ** d.alpha,
    icdf=lambda d, value: d.scale * (1 - value) ** (-1 / d.alpha),
    rsample=lambda d, shape: d.scale * _drawn(d.scale, shape) ** (-1 / d.alpha),
)  # fmt: skip
Weibull = _family(
    "Weibull", "Waiting times whose rate grows with a power of time.",
    {"scale": _POSITIVE, "concentration": _POSITIVE}, of.positive, free=True,
    mean=lambda d: d.scale * (1 + 1 / d.concentration).lgamma().exp(),
    mode=lambda d: d.scale * ((d.concentration - 1) / d.concentration) ** (1 / d.concentration),
    variance=lambda d: d.scale.square()
    * ((1 + 2 / d.concentration).lgamma().exp() - (2 * (1 + 1 / d.concentration).lgamma()).exp()),
    log_prob=lambda d, value: (d.concentration / d.scale).log()
    + (d.concentration - 1) * (value / d.scale).log() - (value / d.scale) ** d.concentration,
    entropy=lambda d: _EULER * (1 - 1 / d.concentration) + (d.scale / d.concentration).log() + 1,
    cdf=lambda d, value: -(-((value / d.scale) ** d.concentration)).expm1(),
    icdf=lambda d, value: d.scale * (-(-value).log1p()) ** (1 / d.concentration),
    rsample=lambda d, shape: d.scale * (-_drawn(d.scale, shape).log()) ** (1 / d.concentration),
)  # fmt: skip
StudentT = _family(
    "StudentT", "Student's distribution with `df` degrees of freedom, moved and scaled.",
    {"df": _POSITIVE, "loc": (0.0, of.real), "scale": (1.0, of.positive)}, of.real,
    mean=lambda d: (d.df > 1).where(d.loc, math.nan), mode=lambda d: d.loc,
    variance=lambda d: (d.df > 2).where(
        d.scale**2 * d.df / (d.df - 2), (d.df > 1).where(d.df * 0 + math.inf, math.nan)),
    log_prob=lambda d, value: -(d.df + 1) / 2 * (((value - d.loc) / d.scale) ** 2 / d.df).log1p()
    - _student_scale(d),
    entropy=lambda d: (d.df + 1) / 2 * (((d.df + 1) / 2).digamma() - (d.df / 2).digamma())
    + _student_scale(d),
    rsample=lambda d, shape: d.loc + d.scale * _normal(d.df, shape)
    / (2 * _gammas(d.df / 2, shape) / d.df).sqrt(),
)  # fmt: skip
FisherSnedecor = _family(
    "FisherSnedecor", "Quotients of two `Chi2` numbers, each by its degrees of freedom.",
    {"df1": _POSITIVE, "df2": _POSITIVE}, of.positive,
    mean=lambda d: (d.df2 > 2).where(d.df2 / (d.df2 - 2), math.nan),
    mode=lambda d: (d.df1 > 2).where((d.df1 - 2) / d.df1 * d.df2 / (d.df2 + 2), math.nan),
    variance=lambda d: (d.df2 > 4).where(
        2 * d.df2**2 * (d.df1 + d.df2 - 2) / (d.df1 * (d.df2 - 2).square() * (d.df2 - 4)), math.nan),
    log_prob=lambda d, value: d.df1 / 2 * (d.df1 / d.df2).log() + (d.df1 / 2 - 1) * value.log()
    - (d.df1 + d.df2) / 2 * (d.df1 / d.df2 * value).log1p() - log_beta(Tensor.stack([d.df1, d.df2], -1) / 2),
    rsample=lambda d, shape: _gammas(d.df1 / 2, shape) / d.df1 / (_gammas(d.df2 / 2, shape) / d.df2),
)  # fmt: skip
Poisson = _family(
    "Poisson", "Counts of arrivals at a rate.", {"rate": (_NEEDED, of.nonnegative)}, of.nonnegative_integer,
    mean=lambda d: d.rate, mode=lambda d: d.rate.floor(), variance=lambda d: d.rate,
    log_prob=lambda d, value: value.xlogy(d.rate) - d.rate - (value + 1).lgamma(),
    sample=lambda d, shape: poisson(d.rate.expand(shape)),
)  # fmt: skip
Geometric = _family(
    "Geometric", "Failures before the first success, of a probability.",
    _CHANCES | {"probs": (None, of.Constraint("values in (0, 1]", lambda v: (v > 0) & (v <= 1)))},
    of.nonnegative_integer,
    mean=lambda d: 1 / d.probs - 1, mode=lambda d: d.probs * 0,
    variance=lambda d: (1 / d.probs - 1) / d.probs,
    log_prob=lambda d, value: ((d.probs == 1) & (value == 0)).where(0.0, value * (-d.probs).log1p())
    + d.probs.log(),
    entropy=lambda d: _cross(d, d.probs) / d.probs,
    sample=lambda d, shape: (_drawn(d.probs, shape).log() / (-d.probs).log1p()).floor(),
)  # fmt: skip
Binomial = _family(
    "Binomial", "Successes of `total_count` trials, of a probability.",
    {"total_count": (1, of.nonnegative_integer), **_CHANCES}, lambda d: of.integer_interval(0, d.total_count),
    mean=lambda d: d.total_count * d.probs, variance=lambda d: d.total_count * d.probs * (1 - d.probs),
    mode=lambda d: ((d.total_count + 1) * d.probs).floor().minimum(d.total_count),
    log_prob=lambda d, value: (d.total_count + 1).lgamma() - (value + 1).lgamma()
    - (d.total_count - value + 1).lgamma() + value * d.logits - d.total_count * d.logits.softplus(),
    entropy=_binomial_entropy,
    sample=lambda d, shape: binomial(d.total_count.expand(shape), d.probs.expand(shape)),
    values=lambda d: Tensor.arange(_trials(d) + 1, device=d.probs.device).cast(d.probs.dtype),
)  # fmt: skip
NegativeBinomial = _family(
    "NegativeBinomial", "Successes, of a probability, before `total_count` failures.",
    {"total_count": (_NEEDED, of.nonnegative), **_CHANCES, "probs": (None, of.half_open_interval(0.0, 1.0))},
    of.nonnegative_integer,
    mean=lambda d: d.total_count * d.logits.exp(),
    variance=lambda d: d.total_count * d.logits.exp() / (-d.logits).sigmoid(),
    mode=lambda d: ((d.total_count - 1) * d.logits.exp()).floor().clamp(0.0),
    log_prob=lambda d, value: d.total_count * (-d.logits).logsigmoid() + value * d.logits.logsigmoid()
    + (d.total_count + value == 0).where(
        0.0, (d.total_count + value).lgamma() - (1 + value).lgamma() - d.total_count.lgamma()),
    sample=lambda d, shape: poisson(_gammas(d.total_count, shape) * d.logits.detach().exp()),
)  # fmt: skip
RelaxedBernoulli = _family(
    "RelaxedBernoulli", "Numbers between 0 and 1 that a low temperature draws to both ends.",
    {"temperature": _POSITIVE, **_CHANCES}, of.unit_interval,
    log_prob=_relaxed,
    rsample=lambda d, shape: ((_drawn(d.logits, shape).logit() + d.logits) / d.temperature).sigmoid(),
)  # fmt: skip


class RelaxedOneHotCategorical(base.OneHotCategorical):
    """Shares (..., n) that a low temperature draws to single 1s; other parameters as of `Categorical`."""

    has_rsample, has_enumerate_support, support = True, False, of.simplex
    mean, mode, variance = base.Distribution.mean, base.Distribution.mode, base.Distribution.variance
    entropy, sample = base.Distribution.entropy, base.Distribution.sample

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None  # noqa: FBT001 - PyTorch's signature
    ) -> None:  # fmt: skip
        (self.temperature,) = _both(temperature)
        super().__init__(probs, logits, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """Return the distribution expanded to another shape of the batch."""
        logits = self.logits.expand(*batch_shape, *self.event_shape)
        return RelaxedOneHotCategorical(self.temperature, logits=logits, validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return shares (*sample_shape, *batch, n) with gradients to probabilities and temperature."""
        noise = -(-_drawn(self.logits, self._shape(sample_shape)).log()).log()
        return ((self.logits + noise) / self.temperature).softmax(-1)

    def _log_prob(self, value: Any) -> Any:
        n, logs = self.event_shape[0], value.log()
        score = (self.logits - logs * self.temperature).log_softmax(-1).sum(-1)
        return score + (n - 1) * self.temperature.log() + math.lgamma(n) - logs.sum(-1)


class Dirichlet(base.Distribution):
    """Shares (..., n) with the sum 1, of `concentration` (..., n); draws have no gradient."""

    has_rsample = True
    arg_constraints: ClassVar[Any] = {"concentration": of.independent(of.positive, 1)}
    support = of.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:  # noqa: FBT001 - PyTorch's signature
        if not concentration.ndim:
            raise UsageError("Dirichlet: wanted a vector of concentrations, saw a number")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def _total(self) -> Any:
        return self.concentration.sum(-1, keepdim=True)

    @property
    def mean(self) -> Any:
        """The means."""
        return self.concentration / self._total

    @property
    def variance(self) -> Any:
        """The variances of each element."""
        return self.mean * (1 - self.mean) / (self._total + 1)

    @property
    def mode(self) -> Any:
        """The most probable shares; where all concentrations are below 1, the greatest gets all."""
        above = (self.concentration - 1).clamp(0.0)
        alone = self.concentration.argmax(-1).one_hot(self.event_shape[0]).cast(above.dtype)
        return (
            (self.concentration < 1).all(-1, keepdim=True).where(alone, above / above.sum(-1, keepdim=True))
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return shares as `sample`; raise `UsageError` where `concentration` has requires_grad."""
        if self.concentration.requires_grad:
            raise UsageError("Dirichlet.rsample: no gradient flows to concentration\nhint: sample()")
        return self.sample(sample_shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return shares (*sample_shape, *batch, n) without gradients."""
        found = _gammas(self.concentration, (*sample_shape, *self.concentration.shape)).realize()
        return found / found.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Any:
        """Return the logarithm of the density."""
        self._validate_sample(value)
        return (self.concentration - 1).xlogy(value).sum(-1) - log_beta(self.concentration)

    def entropy(self) -> Any:
        """Return the entropy in nats."""
        a, total = self.concentration, self._total.squeeze(-1)
        free = (total - a.shape[-1]) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)
        return log_beta(a) + free
