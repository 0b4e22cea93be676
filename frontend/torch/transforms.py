"""Invertible functions of random numbers, and their distributions: `torch.distributions.transforms`.

A transform of a program derives from `Transform` and defines `_call`, `_inverse` and `log_abs_det_jacobian`.
With `cache_size=1` the inverse of the last result is its argument itself.

Not here: distributions (`distributions`, `families`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from frontend.torch import constraints as of
from frontend.torch import distributions as base
from frontend.torch.families import Normal
from hcq.errors import UsageError

__all__ = [
    "AbsTransform", "AffineTransform", "ComposeTransform", "ExpTransform", "IndependentTransform",
    "LogisticNormal", "PowerTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform",
    "StickBreakingTransform", "TanhTransform", "Transform", "TransformedDistribution", "identity_transform",
]  # fmt: skip


class Transform:
    """The base: a function with an inverse, on numbers or on the last `event_dim` axes.

    Raises `UsageError` for a `cache_size` other than 0 and 1.
    """

    bijective = False
    domain: Any = of.real
    codomain: Any = of.real
    sign: Any = 1
    event_dim = 0

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in {0, 1}:
            raise UsageError(f"{type(self).__name__}: wanted cache_size 0 or 1, saw {cache_size}")
        self._cache_size, self._last = cache_size, (None, None)

    @property
    def inv(self) -> Any:
        """The inverse transform."""
        return _Inverse(self)

    def with_cache(self, cache_size: int = 1) -> Any:
        """Return the transform, or a copy if its cache has another size."""
        if cache_size == self._cache_size:
            return self
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __call__(self, x: Any) -> Any:
        """Return the values of a tensor."""
        if self._cache_size and x is self._last[0]:
            return self._last[1]
        y = self._call(x)
        self._last = (x, y) if self._cache_size else (None, None)
        return y

    def inverted(self, y: Any) -> Any:
        """Return the arguments of values."""
        if self._cache_size and y is self._last[1]:
            return self._last[0]
        x = self._inverse(y)
        self._last = (x, y) if self._cache_size else (None, None)
        return x

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return log |dy / dx|, summed over the axes of an event; else raise `NotImplementedError`."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the values of a tensor of a shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the arguments of values of a shape."""
        return tuple(shape)


class _Inverse(Transform):
    """The inverse of a transform."""

    def __init__(self, inner: Transform) -> None:
        super().__init__()
        self._inner = inner
        self.bijective, self.sign, self.event_dim = inner.bijective, inner.sign, inner.event_dim
        self.domain, self.codomain = inner.codomain, inner.domain
        self.forward_shape, self.inverse_shape = inner.inverse_shape, inner.forward_shape  # type: ignore[method-assign] # the other way

    @property
    def inv(self) -> Any:
        """The transform."""
        return self._inner

    def __call__(self, x: Any) -> Any:
        """Return the arguments of values."""
        return self._inner.inverted(x)

    def inverted(self, y: Any) -> Any:
        """Return the values of arguments."""
        return self._inner(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return log |dy / dx|."""
        return -self._inner.log_abs_det_jacobian(y, x)


def _transform(name: str, text: str, *rules: Any, **more: Any) -> Any:
    """Return the class of a transform of functions of x, of y, and of both (log |dy / dx|)."""
    call, inverse, slope = rules
    fields = {
        "_call": lambda _, x: call(x), "_inverse": lambda _, y: inverse(y),
        "log_abs_det_jacobian": lambda _, x, y: slope(x, y), "__eq__": lambda a, b: type(a) is type(b),
        "__hash__": lambda a: hash(type(a)), "bijective": True, "__doc__": text, "__module__": __name__,
    }  # fmt: skip
    return type(name, (Transform,), fields | more)


ExpTransform = _transform(
    "ExpTransform", "y = exp(x).", lambda x: x.exp(), lambda y: y.log(), lambda x, _: x, codomain=of.positive
)
SigmoidTransform = _transform(
    "SigmoidTransform", "y = 1 / (1 + exp(-x)), limited to what has a finite inverse.",
    lambda x: base.inside_unit(x.sigmoid()), lambda y: base.inside_unit(y).logit(),
    lambda x, _: -(-x).softplus() - x.softplus(), codomain=of.unit_interval,
)  # fmt: skip
SoftplusTransform = _transform(
    "SoftplusTransform", "y = log(1 + exp(x)).", lambda x: x.softplus(), lambda y: (-(-y).expm1()).log() + y,
    lambda x, _: -(-x).softplus(), codomain=of.positive,
)  # fmt: skip
TanhTransform = _transform(
    "TanhTransform", "y = tanh(x).", lambda x: x.tanh(), lambda y: y.atanh(),
    lambda x, _: 2 * (math.log(2) - x - (-2 * x).softplus()), codomain=of.interval(-1.0, 1.0),
)  # fmt: skip
AbsTransform = _transform(
    "AbsTransform", "y = |x|, with x as the inverse.", lambda x: x.abs(), lambda y: y,
    lambda x, _: x * 0, codomain=of.nonnegative, bijective=False,
)  # fmt: skip
SoftmaxTransform = _transform(
    "SoftmaxTransform", "y = exp(x) by its sum along the last axis; the inverse is log(y).",
    lambda x: x.softmax(-1), lambda y: y.log(), lambda *_: _not_invertible(), codomain=of.simplex,
    bijective=False, event_dim=1, domain=of.real_vector,
)  # fmt: skip


def _not_invertible() -> Any:
    raise NotImplementedError("SoftmaxTransform has no log_abs_det_jacobian")


class AffineTransform(Transform):
    """y = loc + scale * x, of numbers or tensors; `event_dim` axes are one event."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        self.domain = self.codomain = of.independent(of.real, event_dim)

    @property
    def sign(self) -> Any:
        """Whether y grows with x: 1 or -1."""
        return self.scale.sign() if hasattr(self.scale, "sign") else (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return log |scale| for each element, summed over an event."""
        each = self.scale.abs().log() if hasattr(self.scale, "abs") else math.log(abs(self.scale))
        return base.summed((x + y) * 0 + each, self.event_dim)


class PowerTransform(Transform):
    """y = x ** exponent, of positive numbers."""

    bijective = True
    domain = codomain = of.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    def _call(self, x: Any) -> Any:
        return x**self.exponent

    def _inverse(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return log |exponent y / x|."""
        return (self.exponent * y / x).abs().log()


class StickBreakingTransform(Transform):
    """Vectors of n numbers as n + 1 shares with the sum 1."""

    bijective, event_dim = True, 1
    domain, codomain = of.real_vector, of.simplex

    def _parts(self, x: Any) -> Any:
        n = x.shape[-1]
        left = type(x).arange(n, 0, -1, device=x.device).cast(x.dtype)
        return base.inside_unit((x - left.log()).sigmoid())

    def _call(self, x: Any) -> Any:
        z = self._parts(x)
        return z.pad((0, 1), value=1.0) * (1 - z).cumprod(-1).pad((1, 0), value=1.0)

    def _inverse(self, y: Any) -> Any:
        head = y[..., :-1]
        left = type(y).arange(head.shape[-1], 0, -1, device=y.device).cast(y.dtype)
        rest = (1 - head.cumsum(-1)).clamp(base.resolution(y.dtype))
        return head.log() - rest.log() + left.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return the logarithm of the determinant."""
        left = type(x).arange(x.shape[-1], 0, -1, device=x.device).cast(x.dtype)
        moved = x - left.log()
        return (-moved + moved.logsigmoid() + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape with one more element."""
        return *shape[:-1], shape[-1] + 1

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape with one element less."""
        return *shape[:-1], shape[-1] - 1


class IndependentTransform(Transform):
    """A transform whose last `reinterpreted_batch_ndims` axes are axes of one event."""

    def __init__(self, base_transform: Any, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, base_transform.sign
        self.event_dim = base_transform.event_dim + reinterpreted_batch_ndims
        self.domain = of.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = of.independent(base_transform.codomain, reinterpreted_batch_ndims)

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return the sum along the axes of the event."""
        return base.summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)


class ComposeTransform(Transform):
    """Transforms one after the other, the first of the list first."""

    def __init__(self, parts: Sequence[Any], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(p.bijective for p in parts)
        self.event_dim = max([p.event_dim for p in parts], default=0)
        self.domain = parts[0].domain if parts else of.real
        self.codomain = parts[-1].codomain if parts else of.real

    @property
    def sign(self) -> Any:
        """Whether y grows with x: 1 or -1."""
        return math.prod([p.sign for p in self.parts])

    @property
    def inv(self) -> Any:
        """The inverses, the last first."""
        return ComposeTransform([p.inv for p in reversed(self.parts)])

    def __call__(self, x: Any) -> Any:
        """Return the values of a tensor."""
        for part in self.parts:
            x = part(x)
        return x

    def inverted(self, y: Any) -> Any:
        """Return the arguments of values."""
        return self.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return the sum of the parts."""
        found = base.summed(x * 0, self.event_dim)
        for part in self.parts:
            after = y if part is self.parts[-1] else part(x)
            found = found + base.summed(part.log_abs_det_jacobian(x, after), self.event_dim - part.event_dim)
            x = after
        return found

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the values of a tensor of a shape."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)


identity_transform = ComposeTransform([])


class TransformedDistribution(base.Distribution):
    """The distribution of a transform, or of a list of them, of draws of another distribution.

    Raises `UsageError` for what is no transform, and for too few axes.
    """

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:  # noqa: FBT001 - PyTorch's signature
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise UsageError(f"TransformedDistribution: wanted transforms, saw {transforms!r}")
        every, own = ComposeTransform(self.transforms), base_distribution
        whole = (*own.batch_shape, *own.event_shape)
        more = max(every.event_dim - len(own.event_shape), 0)
        if len(whole) < every.event_dim:
            raise UsageError(f"TransformedDistribution: wanted {every.event_dim} axes, saw the shape {whole}")
        shape = every.forward_shape(whole)
        own = own.expand(shape[: len(own.batch_shape)]) if not own.event_shape and not more else own
        self.base_dist = base.Independent(own, more) if more else own
        cut = len(shape) - len(self.base_dist.event_shape)
        super().__init__(shape[:cut], shape[cut:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    support = property(
        lambda self: of.independent(
            self.transforms[-1].codomain, len(self.event_shape) - self.transforms[-1].codomain.event_dim)
        if self.transforms else self.base_dist.support
    )  # fmt: skip

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """Return the distribution expanded to another shape of the batch."""
        return TransformedDistribution(
            self.base_dist.expand(batch_shape), self.transforms, validate_args=False
        )

    def _through(self, x: Any) -> Any:
        for t in self.transforms:
            x = t(x)
        return x

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return numbers with gradients."""
        return self._through(self.base_dist.rsample(sample_shape))

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Return numbers without gradients."""
        return self._through(self.base_dist.sample(sample_shape)).detach()

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density."""
        self._validate_sample(value)
        events, y, found = len(self.event_shape), value, 0.0
        for t in reversed(self.transforms):
            x = t.inverted(y)
            found = found - base.summed(t.log_abs_det_jacobian(x, y), events - t.event_dim)
            y = x
        return base.summed(self.base_dist.log_prob(y), events - len(self.base_dist.event_shape)) + found

    def _sign(self) -> Any:
        return math.prod([t.sign for t in self.transforms])

    def cdf(self, value: Any) -> Any:
        """Return the probability of at most a value."""
        self._validate_sample(value)
        for t in reversed(self.transforms):
            value = t.inverted(value)
        return self._sign() * (self.base_dist.cdf(value) - 0.5) + 0.5

    def icdf(self, value: Any) -> Any:
        """Return the value at a probability."""
        return self._through(self.base_dist.icdf(self._sign() * (value - 0.5) + 0.5))


class LogisticNormal(TransformedDistribution):
    """Shares whose stick-breaking logits are normal numbers, with `loc` and `scale` (..., n - 1)."""

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:  # noqa: FBT001 - PyTorch's signature
        super().__init__(Normal(loc, scale, validate_args), StickBreakingTransform(), validate_args)
        self.loc, self.scale = (getattr(self.base_dist.base_dist, n) for n in ("loc", "scale"))
