"""Probability distributions under the names of `torch.distributions`: the base, those of classes and vectors.

Parameters and values are checked (`UsageError`), which reads them, unless `validate_args=False`; a captured
function checks none. A method that a distribution does not have raises `NotImplementedError`.

Not here: random tensors (`frontend.ops.random`). Next: `families`, those of numbers; `transforms`.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from frontend.arguments.conversion import shown
from frontend.evaluation.history import realize_beside
from frontend.evaluation.plan import CAPTURE
from frontend.tensor import Tensor
from frontend.torch import constraints
from hcq.errors import UsageError

__all__ = [
    "Categorical", "Distribution", "Independent", "LowRankMultivariateNormal", "MixtureSameFamily",
    "Multinomial", "MultivariateNormal", "OneHotCategorical", "OneHotCategoricalStraightThrough",
]  # fmt: skip
_CHECKS: Final = [True]
"""Whether distributions check what they get, if their `validate_args` is None."""


def resolution(dtype: Any) -> float:
    """Return the distance from 1 to the next number of a dtype of floats."""
    return float(2.0 ** -{"float64": 52, "float16": 10, "bfloat16": 7}.get(dtype.name, 23))


def inside_unit(probs: Tensor) -> Tensor:
    """Return probabilities limited to what has a finite logarithm and logit."""
    eps = resolution(probs.dtype)
    return probs.clamp(eps, 1 - eps)


def _lacking(name: str) -> Callable[..., Any]:
    """Return a method that raises `NotImplementedError`, for a subclass to define."""

    def method(self: Any, *_given: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no {name}")

    return method


class Distribution:
    """The base: `sample` draws (*sample_shape, *batch_shape, *event_shape), without gradients.

    `mean`, `mode` and `variance` have the shape (*batch_shape, *event_shape); through draws of `rsample`
    gradients flow to the parameters. `log_prob` and `entropy`, in nats, have the shape of the batch; `cdf` is
    the probability of at most a value, and `icdf` its inverse. A subclass defines what it has of these, sets
    its parameters and then calls this constructor, which checks them by `arg_constraints`.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[Any] = {}
    support: Any = constraints.dependent
    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()
    _validate_args = False

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)
        self._validate_args = _CHECKS[0] if validate_args is None else validate_args
        for name, constraint in self.arg_constraints.items() if self._validate_args else ():
            if name in vars(self) and not constraints.is_dependent(constraint):
                self._check(f"{name}=", constraint, getattr(self, name))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions that are made from now on check what they get."""
        if value not in {True, False}:
            raise UsageError(f"set_default_validate_args: wanted a bool, saw {value!r}")
        _CHECKS[0] = bool(value)

    def _check(self, what: str, constraint: Any, value: Any) -> None:
        if CAPTURE.now is not None or CAPTURE.notes is not None or not value.epoch or not value.numel():
            return
        good = constraint.check(value.detach())
        every = good.all()
        realize_beside([every], [value])  # one launch; value is not computed again
        if not bool(every.item()):
            first = value.detach().reshape(-1, *value.shape[value.ndim - constraint.event_dim :])
            seen = first[int((~good).reshape(-1).int().argmax().item())].tolist()
            raise UsageError(
                f"{type(self).__name__}: {what}: wanted {constraint!r}, saw {seen}\n"
                "hint: validate_args=False checks nothing"
            )

    def _validate_sample(self, value: Any) -> None:
        """Raise `UsageError` unless a value is a tensor of elements of the support, of a shape that fits."""
        if not self._validate_args:
            return
        own = type(self).__name__
        if not isinstance(value, Tensor):
            raise UsageError(f"{own}.log_prob: wanted a tensor, saw {shown(value)}")
        batch, event = (*self.batch_shape, *self.event_shape), self.event_shape
        pairs = zip(reversed(value.shape), reversed(batch), strict=False)
        if tuple(value.shape[value.ndim - len(event) :]) != event or any(
            m != n and 1 not in {m, n} for m, n in pairs
        ):
            raise UsageError(f"{own}.log_prob: wanted a value that broadcasts to {batch}, saw {value.shape}")
        if not constraints.is_dependent(self.support):
            self._check("value", self.support, value)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """Return the distribution with its parameters expanded to another shape of the batch."""
        new, old = copy.copy(self), len(self.batch_shape)
        new.batch_shape = tuple(batch_shape)
        for name, t in vars(self).items():
            if isinstance(t, Tensor):
                setattr(new, name, t.expand(*new.batch_shape, *t.shape[old:]))
            elif isinstance(t, Distribution):
                setattr(new, name, t.expand((*new.batch_shape, *t.batch_shape[old:])))
        return new

    mean, mode, variance = (property(_lacking(n)) for n in ("mean", "mode", "variance"))
    rsample, log_prob, cdf, icdf, entropy, _values = map(
        _lacking, ("rsample", "log_prob", "cdf", "icdf", "entropy", "finite support")
    )

    @property
    def stddev(self) -> Any:
        """The standard deviations."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return numbers without gradients."""
        return self.rsample(sample_shape).detach()

    def sample_n(self, n: int) -> Any:
        """Return n draws."""
        return self.sample((n,))

    def perplexity(self) -> Any:
        """Return the exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Any:
        """Return all values along a new first axis, of the batch's shape, or with `expand=False` of ones."""
        values = self._values() if self.has_enumerate_support else Distribution._values(self)
        rest = values.shape[1:]
        values = values.reshape(-1, *(1,) * len(self.batch_shape), *rest)
        return values.expand(-1, *self.batch_shape, *rest) if expand else values

    def _shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        return *sample_shape, *self.batch_shape, *self.event_shape

    _extended_shape = _shape

    def __repr__(self) -> str:
        given = [f"{n}: {getattr(self, n)}" for n in self.arg_constraints if n in vars(self)]
        return f"{type(self).__name__}({', '.join(given)})"


def probs_or_logits(name: str, probs: Any, logits: Any) -> None:
    """Raise `UsageError` unless exactly one of both is given."""
    if (probs is None) == (logits is None):
        raise UsageError(f"{name}: wanted probs or logits, saw both or none")


class Categorical(Distribution):
    """The classes 0 to n - 1 with probabilities, or logits, along the last axis, normalised or not.

    Raises `UsageError` unless exactly one of both is given.
    """

    arg_constraints: ClassVar[Any] = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _classes_are_vectors = False

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        probs_or_logits(type(self).__name__, probs, logits)
        given = logits if probs is None else probs
        if not given.ndim:
            raise UsageError(f"{type(self).__name__}: wanted an axis of classes, saw a number")
        if probs is None:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        event = given.shape[-1:] if self._classes_are_vectors else ()
        super().__init__(given.shape[:-1], event, validate_args)  # checks what was given
        if probs is None:
            self.probs = self.logits.softmax(-1)
        else:
            self.logits = inside_unit(self.probs).log()

    @property
    def support(self) -> Any:
        """The classes."""
        return constraints.integer_interval(0, self.probs.shape[-1] - 1)

    @property
    def param_shape(self) -> Any:
        """The shape of the probabilities."""
        return self.probs.shape

    @property
    def mean(self) -> Any:
        """NaN: classes have none."""
        return Tensor.full(self.batch_shape, math.nan, dtype=self.probs.dtype, device=self.probs.device)

    variance = mean

    @property
    def mode(self) -> Any:
        """The most probable classes."""
        return self.probs.argmax(-1)

    def _drawn(self, sample_shape: Sequence[int]) -> Any:
        batch, classes = self.probs.shape[:-1], self.probs.shape[-1]
        count = math.prod(sample_shape)
        if not count or not math.prod(batch):
            return Tensor.zeros(*sample_shape, *batch, dtype="int64", device=self.probs.device)
        drawn = self.probs.detach().reshape(-1, classes).multinomial(count, replacement=True)
        return drawn.T.reshape(*sample_shape, *batch)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return classes (*sample_shape, *batch), without gradients."""
        return self._drawn(sample_shape)

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the probabilities of classes."""
        self._validate_sample(value)
        return self._log_prob(value)

    def _log_prob(self, value: Any) -> Any:
        shape = (value.unsqueeze(-1) + self.logits.detach()).shape
        places = value.cast("int64").unsqueeze(-1).expand(*shape[:-1], 1)
        return self.logits.expand(shape).gather(-1, places).squeeze(-1)

    def entropy(self) -> Any:
        """Return the entropy in nats, of the batch's shape; a class of probability 0 adds nothing."""
        return -(self.probs * (self.probs > 0).where(self.logits, 0.0)).sum(-1)

    def _values(self) -> Any:
        return Tensor.arange(self.probs.shape[-1], device=self.probs.device).cast("int64")


class OneHotCategorical(Categorical):
    """Classes as vectors with a single 1; parameters as of `Categorical`."""

    _classes_are_vectors = True
    support = constraints.one_hot

    @property
    def mean(self) -> Any:
        """The probabilities."""
        return self.probs

    @property
    def variance(self) -> Any:
        """The variances of each element."""
        return self.probs * (1 - self.probs)

    def _vectors(self, classes: Any) -> Any:
        return classes.one_hot(self.probs.shape[-1]).cast(self.probs.dtype)

    @property
    def mode(self) -> Any:
        """The most probable vectors."""
        return self._vectors(self.probs.argmax(-1))

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return vectors (*sample_shape, *batch, n) without gradients."""
        return self._vectors(self._drawn(sample_shape))

    def _log_prob(self, value: Any) -> Any:
        return super()._log_prob(value.argmax(-1))

    def _values(self) -> Any:
        return Tensor.eye(self.probs.shape[-1], dtype=self.probs.dtype, device=self.probs.device)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A `OneHotCategorical` whose draws pass gradients on to the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return vectors (*sample_shape, *batch, n) with the gradient of the probabilities."""
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(Categorical):
    """How often each class occurs in `total_count` draws; other parameters as of `Categorical`."""

    _classes_are_vectors = True
    has_enumerate_support = False

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise UsageError(f"Multinomial: wanted total_count as a whole number, saw {shown(total_count)}")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @property
    def support(self) -> Any:
        """Counts that sum to `total_count`."""
        n = self.total_count
        return constraints.Constraint(
            f"counts with the sum {n}", lambda v: (v >= 0).all(-1) & (v.sum(-1) == n),
            is_discrete=True, event_dim=1,
        )  # fmt: skip

    @property
    def mean(self) -> Any:
        """The expected counts."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        """The variances of each count."""
        return self.total_count * self.probs * (1 - self.probs)

    mode = Distribution.mode

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return counts (*sample_shape, *batch, n) without gradients."""
        drawn = self._drawn((*sample_shape, self.total_count)).movedim(len(sample_shape), -1)
        return drawn.one_hot(self.probs.shape[-1]).sum(-2).cast(self.probs.dtype)

    def _log_prob(self, value: Any) -> Any:
        powers = ((value == 0) & (self.logits == -math.inf)).where(0.0, self.logits * value).sum(-1)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + powers

    def entropy(self) -> Any:
        """Return the entropy in nats."""
        n = self.total_count
        counts = Tensor.arange(1, n + 1, device=self.probs.device).cast(self.probs.dtype)
        counts = counts.reshape(-1, *(1,) * self.probs.ndim)
        p, rest = inside_unit(self.probs), math.lgamma(n + 1)
        ways = rest - (counts + 1).lgamma() - (n - counts + 1).lgamma()
        each = (ways + counts * p.log() + (n - counts) * (-p).log1p()).exp()
        return n * super().entropy() - rest + (each * (counts + 1).lgamma()).sum((0, -1))


class MultivariateNormal(Distribution):
    """The normal distribution of vectors with a mean (..., n) and a matrix (..., n, n).

    The matrix is the covariance, its inverse (`precision_matrix`), or `scale_tril`, the lower triangular L
    with L @ L.T the covariance. Raises `UsageError` unless exactly one of them is given.
    """

    has_rsample = True
    support = constraints.real_vector
    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {n: m for n, m in given.items() if m is not None}
        if len(given) != 1 or not loc.ndim:
            raise UsageError(
                "MultivariateNormal: wanted a vector loc and one of covariance_matrix, precision_matrix, "
                f"scale_tril, saw loc of shape {loc.shape} and {', '.join(given) or 'none'}"
            )
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise UsageError(f"MultivariateNormal: wanted a matrix {name}, saw the shape {matrix.shape}")
        batch = (loc.unsqueeze(-1) + matrix).shape[:-2]
        self.loc, wide = loc.expand(*batch, loc.shape[-1]), matrix.expand(*batch, *matrix.shape[-2:])
        setattr(self, name if name == "scale_tril" else "_" + name, wide)
        if name != "scale_tril" and (_CHECKS[0] if validate_args is None else validate_args):
            self._check(f"{name}=", self.arg_constraints[name], wide)
        super().__init__(batch, loc.shape[-1:], validate_args)
        if name == "precision_matrix":
            upper = wide.flip((-2, -1)).cholesky().flip((-2, -1)).mT
            eye = Tensor.eye(loc.shape[-1], dtype=loc.dtype, device=loc.device)
            wide = upper.solve(eye.expand(upper.shape)).tril()
        self.scale_tril = wide.cholesky() if name == "covariance_matrix" else wide

    @property
    def covariance_matrix(self) -> Any:
        """The covariance (*batch, n, n)."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance (*batch, n, n)."""
        return self.covariance_matrix.inverse()

    @property
    def mean(self) -> Any:
        """The means, which are also the modes."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        """The variances of each element."""
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return vectors (*sample_shape, *batch, n) through which gradients flow to both parameters."""
        noise = Tensor.randn(*self._shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril * noise.unsqueeze(-2)).sum(-1)

    def _half_log_det(self) -> Any:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density."""
        self._validate_sample(value)
        far = (value - self.loc).unsqueeze(-1)
        lower = self.scale_tril.tril().expand(*far.shape[:-2], *self.scale_tril.shape[-2:])
        n, scaled = self.event_shape[0], lower.solve(far)
        return -(scaled * scaled).sum((-2, -1)) / 2 - self._half_log_det() - n * math.log(2 * math.pi) / 2

    def entropy(self) -> Any:
        """Return the entropy in nats."""
        return self._half_log_det() + self.event_shape[0] * (1 + math.log(2 * math.pi)) / 2


class LowRankMultivariateNormal(MultivariateNormal):
    """The normal distribution of vectors with the covariance `cov_factor @ cov_factor.T + diag(cov_diag)`."""

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if cov_factor.ndim < 2 or cov_factor.shape[-2:-1] != cov_diag.shape[-1:]:
            raise UsageError(
                f"LowRankMultivariateNormal: wanted cov_factor (..., n, m) and cov_diag (..., n), saw "
                f"{cov_factor.shape} and {cov_diag.shape}"
            )
        if _CHECKS[0] if validate_args is None else validate_args:
            self._check("cov_diag=", constraints.independent(constraints.positive, 1), cov_diag)
        covariance = cov_factor @ cov_factor.mT + cov_diag.diag_embed()
        super().__init__(loc, covariance, validate_args=validate_args)
        self.cov_factor = cov_factor.expand(*self.batch_shape, *cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(*self.batch_shape, *self.event_shape)


def summed(x: Any, axes: int) -> Any:
    """Return the sums along the last axes."""
    return x.sum(tuple(range(-axes, 0))) if axes else x


class Independent(Distribution):
    """A distribution whose last `reinterpreted_batch_ndims` axes of the batch are axes of one event."""

    def __init__(
        self, base_distribution: Any, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        whole = base_distribution.batch_shape
        cut = len(whole) - reinterpreted_batch_ndims
        if cut < 0:
            raise UsageError(f"Independent: {reinterpreted_batch_ndims} axes of {whole}")
        super().__init__(whole[:cut], whole[cut:] + base_distribution.event_shape, validate_args)

    def __getattr__(self, name: str) -> Any:
        if name in {"base_dist", "reinterpreted_batch_ndims"}:
            raise AttributeError(name)
        return getattr(self.base_dist, name)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """Return the distribution expanded to another shape of the batch."""
        event = self.event_shape[: self.reinterpreted_batch_ndims]
        new = self.base_dist.expand((*batch_shape, *event))
        return Independent(new, self.reinterpreted_batch_ndims, validate_args=False)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    support = property(
        lambda self: constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)
    )
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return numbers of the base with gradients."""
        return self.base_dist.rsample(sample_shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return numbers of the base."""
        return self.base_dist.sample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        """Return the sum of the logarithms along the axes of the event."""
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        """Return the sum of the entropies along the axes of the event."""
        return summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)


class MixtureSameFamily(Distribution):
    """Draws of the components along the last axis of a distribution's batch, chosen by a `Categorical`."""

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ) -> None:
        mixture, parts = mixture_distribution, component_distribution
        if not (type(mixture) is Categorical and isinstance(parts, Distribution)):
            raise UsageError("MixtureSameFamily: wanted a Categorical and the distribution of its components")
        n = parts.batch_shape[-1:]
        if n != mixture.probs.shape[-1:] or mixture.batch_shape not in {(), parts.batch_shape[:-1]}:
            raise UsageError(
                f"MixtureSameFamily: wanted components for {mixture.probs.shape}, saw {parts.batch_shape}"
            )
        self.mixture_distribution, self.component_distribution = mixture, parts
        super().__init__(parts.batch_shape[:-1], parts.event_shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """Return the distribution expanded to another shape of the batch."""
        parts = self.component_distribution
        return MixtureSameFamily(
            self.mixture_distribution.expand(batch_shape),
            parts.expand((*batch_shape, parts.batch_shape[-1])),
            validate_args=False,
        )

    support = property(lambda self: self.component_distribution.support)

    def _weights(self) -> Any:
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * len(self.event_shape))

    def _mixed(self, x: Any) -> Any:
        return (self._weights() * x).sum(-1 - len(self.event_shape))

    @property
    def mean(self) -> Any:
        """The means of the components, weighted."""
        return self._mixed(self.component_distribution.mean)

    @property
    def variance(self) -> Any:
        """The variances: those of the components, and of their means."""
        far = self.component_distribution.mean - self.mean.unsqueeze(-1 - len(self.event_shape))
        return self._mixed(self.component_distribution.variance) + self._mixed(far.square())

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density or of the probability."""
        self._validate_sample(value)
        each = self.component_distribution.log_prob(value.unsqueeze(-1 - len(self.event_shape)))
        return (each + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, value: Any) -> Any:
        """Return the probability of at most a value."""
        return (self.component_distribution.cdf(value.unsqueeze(-1)) * self.mixture_distribution.probs).sum(
            -1
        )

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return numbers without gradients."""
        axis, event = len(sample_shape) + len(self.batch_shape), len(self.event_shape)
        every = self.component_distribution.sample(sample_shape)
        chosen = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
        places = chosen.reshape(*chosen.shape, *(1,) * (event + 1))
        return every.gather(axis, places.expand(*chosen.shape, 1, *self.event_shape)).squeeze(axis)
