"""Random choices: permutations, samples of a distribution, events.

Not here: uniform and normal numbers (`random`).
"""

from __future__ import annotations

import math
from typing import Final

from compiler.dtype import DType, dtypes
from frontend.arg_aliases import accepts_aliases
from frontend.ops.arguments import element_type, shape_of, whole
from frontend.ops.casts import cast
from frontend.ops.division import div
from frontend.ops.elementwise import add, ge, gt, lt, mul, neg, sub, where
from frontend.ops.functions import exp, floor, log, tan
from frontend.ops.movement import narrow, unsqueeze
from frontend.ops.random import normal, rand, randint, refuse_beyond
from frontend.ops.reduce import all as every
from frontend.ops.reduce import detached
from frontend.ops.reduce import sum as total
from frontend.ops.scan import cumsum
from frontend.ops.sorting import argsort, topk
from frontend.ops.sources import widened
from frontend.parameters import flag, number
from frontend.plan import CAPTURE
from frontend.tensor_base import T
from hcq.errors import UsageError


def randperm(cls: type[T], n: int, *, dtype: DType | str | None = None, device: str | None = None) -> T:
    """Return the numbers below n in random order; `dtype` is int32 by default."""
    (count,) = shape_of((whole(n, "randperm"),), "randperm")
    order = argsort(rand(cls, count, dtype=dtypes.float64, device=device))
    return cast(order, element_type(dtype) or dtypes.int32)


@accepts_aliases
def multinomial(self: T, num_samples: int, replacement: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return indices (int32) drawn with these weights, of a vector or of each row of a matrix.

    Without `replacement` no index is drawn twice. Raises `UsageError` for other ranks, no floats, and more
    samples than weights; and, outside captured functions, which read no values, for weights that are
    negative, infinite, NaN, or all 0. Weights of 0 are drawn only when the others are used up.
    """
    replacement = flag(replacement, "multinomial, replacement")
    shape = self.expr.shape
    if len(shape) not in {1, 2} or not self.expr.dtype.is_float:
        raise UsageError(
            f"multinomial: wanted a vector or matrix of floats, saw {self.expr.dtype.name}{list(shape)}"
        )
    if whole(num_samples, "multinomial") < 1 or (not replacement and num_samples > shape[-1]):
        raise UsageError(f"multinomial: {num_samples} samples of {shape[-1]} weights, wanted 1..{shape[-1]}")
    weights = detached(widened(self))
    if CAPTURE.now is None:
        fit = every(mul(ge(weights, 0.0), lt(weights, math.inf)), -1)
        if not every(mul(fit, gt(total(weights, -1), 0.0))).item():
            raise UsageError("multinomial: wanted weights from 0 on, finite, not all 0; saw others")
    if not replacement:
        chance = rand(self.__class__, shape, device=self.expr.device)
        reached = where(gt(weights, 0.0), div(log(neg(sub(chance, 1.0))), weights), -math.inf)
        return topk(reached, num_samples).indices
    bounds = cumsum(weights, -1)
    chance = rand(self.__class__, (*shape[:-1], num_samples), device=self.expr.device)
    mark = unsqueeze(mul(chance, narrow(bounds, -1, shape[-1] - 1, 1)), -1)
    passed = ge(mark, unsqueeze(bounds, -2))
    return total(passed, -1, dtype=dtypes.int32)


def bernoulli(self: T, p: float | None = None) -> T:
    """Return 1 with the probability that each element gives, or p, else 0, in the dtype of self."""
    if p is None and not self.expr.dtype.is_float:
        raise UsageError(f"bernoulli: wanted probabilities as floats, saw {self.expr.dtype.name}")
    if p is not None and not 0 <= number(p, "bernoulli, p") <= 1:
        raise UsageError(f"bernoulli: wanted a probability 0 <= p <= 1, saw {p}")
    chance = rand(self.__class__, self.expr.shape, device=self.expr.device)
    return cast(lt(chance, detached(self) if p is None else p), self.expr.dtype)


def _chance(self: T) -> T:
    """Return numbers uniform in (0, 1] in the shape of self, wide enough for its dtype."""
    e = self.expr
    wide = dtypes.float64 if e.dtype is dtypes.float64 else dtypes.float32
    return neg(sub(rand(self.__class__, e.shape, dtype=wide, device=e.device), 1.0))


def _floats(self: T, what: str) -> T:
    if not self.expr.dtype.is_float:
        raise UsageError(f"{what}: wanted floats, saw {self.expr.dtype.name}")
    return _chance(self)


def _above_zero(value: float, what: str) -> float:
    if not number(value, what) > 0:
        raise UsageError(f"{what}: wanted a number above 0, saw {value}")
    return value


def exponential(self: T, lambd: float = 1.0) -> T:
    """Return numbers of the exponential distribution with a rate, in the shape of self."""
    chance = _floats(self, "exponential_")
    return cast(mul(log(chance), -1.0 / _above_zero(lambd, "exponential_, lambd")), self.expr.dtype)


def log_normal(self: T, mean: float = 1.0, std: float = 2.0) -> T:
    """Return numbers whose logarithms are of a normal distribution, in the shape of self."""
    e = self.expr
    _floats(self, "log_normal_")
    _above_zero(std, "log_normal_, std")
    found = normal(self.__class__, e.shape, mean=mean, std=std, dtype=e.dtype, device=e.device)
    return exp(found)


def cauchy(self: T, median: float = 0.0, sigma: float = 1.0) -> T:
    """Return numbers of the Cauchy distribution, in the shape of self."""
    angle = mul(sub(_floats(self, "cauchy_"), 0.5), math.pi)
    wide = add(mul(tan(angle), _above_zero(sigma, "cauchy_, sigma")), number(median, "cauchy_, median"))
    return cast(wide, self.expr.dtype)


def geometric(self: T, p: float) -> T:
    """Return how many trials of probability p the first success takes, in the shape and dtype of self."""
    if not 0 < number(p, "geometric_, p") < 1:
        raise UsageError(f"geometric_: wanted 0 < p < 1, saw {p}")
    trials = add(floor(mul(log(_chance(self)), 1 / math.log1p(-p))), 1.0)
    return cast(trials, self.expr.dtype)


def whole_numbers(self: T, first: int | None = None, to: int | None = None) -> T:
    """Return whole numbers, first <= x < to; of one number n, 0 <= x < n, in the shape and dtype of self.

    Without numbers, all that the dtype holds, at most 2**32; of floats those that it holds exactly.
    """
    e = self.expr
    most = int(e.dtype.max) + 1 if not e.dtype.is_float else 2 ** WHOLE[e.dtype.name]
    low, high = (0, most if first is None else first) if to is None else (first or 0, to)
    high = min(high, low + (1 << 32)) if first is None and to is None else high
    refuse_beyond("random_", low, high, e.dtype)
    found = randint(self.__class__, e.shape, low=low, high=high, dtype=dtypes.int64, device=e.device)
    return cast(found, e.dtype)


WHOLE: Final = {"float64": 32, "float32": 24, "float16": 11, "bfloat16": 8}
"""Random bits of a whole number in a float dtype: at most those of its significand."""
