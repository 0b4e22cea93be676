"""Random choices: permutations, samples of a distribution, events.

Not here: uniform and normal numbers (`random`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from frontend.arg_aliases import accepts_aliases
from frontend.ops.arguments import element_type, shape_of, whole
from frontend.ops.casts import cast
from frontend.ops.comparison import ge, lt
from frontend.ops.division import div
from frontend.ops.elementwise import mul, neg, sub
from frontend.ops.functions import log
from frontend.ops.movement import unsqueeze
from frontend.ops.random import rand
from frontend.ops.reduce import detached
from frontend.ops.reduce import sum as total
from frontend.ops.scan import cumsum
from frontend.ops.sorting import argsort, topk
from frontend.ops.sources import widened
from frontend.parameters import flag
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor_base import T


def randperm(cls: type[T], n: int, *, dtype: DType | str | None = None, device: str | None = None) -> T:
    """Return the numbers below n in random order; `dtype` is int32 by default."""
    (count,) = shape_of((whole(n, "randperm"),), "randperm")
    order = argsort(rand(cls, count, dtype=dtypes.float64, device=device))
    return cast(order, element_type(dtype) or dtypes.int32)


@accepts_aliases
def multinomial(self: T, num_samples: int, replacement: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return indices (int32) drawn with these weights, of a vector or of each row of a matrix.

    Without `replacement` no index is drawn twice. Raises `UsageError` for other ranks, no floats, and more
    samples than weights; weights of 0 are drawn only when the others are used up.
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
    if not replacement:
        chance = rand(self.__class__, shape, device=self.expr.device)
        return topk(div(log(neg(sub(chance, 1.0))), weights), num_samples).indices
    bounds = cumsum(weights, -1)
    chance = rand(self.__class__, (*shape[:-1], num_samples), device=self.expr.device)
    mark = unsqueeze(mul(chance, total(weights, -1, keepdim=True)), -1)
    passed = ge(mark, unsqueeze(bounds, -2))
    return total(cast(passed, dtypes.int32), -1)


def bernoulli(self: T, p: float | None = None) -> T:
    """Return 1 with the probability that each element gives, or p, else 0, in the dtype of self."""
    if p is None and not self.expr.dtype.is_float:
        raise UsageError(f"bernoulli: wanted probabilities as floats, saw {self.expr.dtype.name}")
    chance = rand(self.__class__, self.expr.shape, device=self.expr.device)
    return cast(lt(chance, detached(self) if p is None else p), self.expr.dtype)
