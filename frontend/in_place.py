"""Methods that change their tensor, with PyTorch's names: `x.add_(y)` assigns `x.add(y)` to x and returns x.

The result is converted to the dtype of x; floats are not stored in integers. A tensor with requires_grad that
was not computed from others is changed only inside `Tensor.no_grad()` (`assignment.change`).
Type checkers see the names; each has the arguments of the method without `_`.

Not here: the assignment (`assignment`), operators such as `+=` (`operators`).
"""

from __future__ import annotations

from typing import Any

from frontend.assignment import change
from frontend.assignment import in_place as _in_place
from frontend.autograd.engine import stopped
from frontend.later import AT_ONCE, Item, all_later
from frontend.methods import Methods
from frontend.ops import creation
from frontend.ops.casts import cast
from frontend.tensor_base import T, TensorBase

if AT_ONCE:
    from frontend.ops import diagonals, sampling
else:
    globals().update(all_later("frontend.ops", "diagonals sampling"))


def zero_(self: T) -> T:
    """Set all elements to 0; return self."""
    return change(self, 0)


def fill_(self: T, value: Any) -> T:
    """Set all elements to a number, or to the value of a tensor of shape (); return self."""
    return change(
        self, creation.full_like(self, value) if not hasattr(value, "expr") else cast(value, self.expr.dtype)
    )


def copy_(self: T, src: T) -> T:
    """Set the elements to those of another tensor, broadcast, moved and converted; return self."""
    return change(self, cast(self.operand(src).to(self.expr.device), self.expr.dtype))


def uniform_(self: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Set the elements to numbers uniform in [low, high); return self."""
    e = self.expr
    return change(self, self.uniform(e.shape, low=low, high=high, dtype=e.dtype, device=e.device))


def normal_(self: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Set the elements to numbers of a normal distribution; return self."""
    e = self.expr
    return change(self, self.normal(e.shape, mean=mean, std=std, dtype=e.dtype, device=e.device))


def detach_(self: Any) -> Any:
    """End the history of self: no gradient flows through it any more, and it requires none; return self."""
    self.requires_grad = False
    return self if self.is_realized else self.replace(stopped(self))


class _Same:
    """The members `name_` of a class that assign the result of the method `name`."""

    def __set_name__(self, owner: type, name: str) -> None:
        found = next(vars(cls)[name[:-1]] for cls in Methods.__mro__ if name[:-1] in vars(cls))
        member: Any = _in_place(found)
        setattr(owner, name, member)
        if isinstance(member, Item):
            member.__set_name__(owner, name)


_SAME: Any = _Same()


class InPlace(TensorBase):
    """The methods of `Tensor` that change it."""

    __slots__ = ()

    zero_ = zero_
    fill_ = fill_
    copy_ = copy_
    uniform_ = uniform_
    normal_ = normal_
    detach_ = detach_
    exponential_ = _in_place(sampling.exponential)
    log_normal_ = _in_place(sampling.log_normal)
    cauchy_ = _in_place(sampling.cauchy)
    geometric_ = _in_place(sampling.geometric)
    random_ = _in_place(sampling.whole_numbers)
    fill_diagonal_ = _in_place(diagonals.fill_diagonal)

    abs_ = absolute_ = acos_ = acosh_ = add_ = addbmm_ = addcdiv_ = addcmul_ = addmm_ = addmv_ = _SAME
    addr_ = arccos_ = arccosh_ = arcsin_ = arcsinh_ = arctan2_ = arctan_ = arctanh_ = asin_ = asinh_ = _SAME
    atan2_ = atan_ = atanh_ = baddbmm_ = bernoulli_ = bitwise_and_ = bitwise_left_shift_ = _SAME
    bitwise_not_ = bitwise_or_ = bitwise_right_shift_ = bitwise_xor_ = ceil_ = celu_ = clamp_ = _SAME
    clamp_max_ = clamp_min_ = clip_ = conj_physical_ = copysign_ = cos_ = cosh_ = cumprod_ = cumsum_ = _SAME
    deg2rad_ = digamma_ = div_ = divide_ = elu_ = eq_ = erf_ = erfc_ = erfinv_ = exp2_ = exp_ = _SAME
    expm1_ = fix_ = float_power_ = floor_ = floor_divide_ = fmod_ = frac_ = gcd_ = ge_ = greater_ = _SAME
    greater_equal_ = gt_ = hardsigmoid_ = hardswish_ = hardtanh_ = heaviside_ = hypot_ = i0_ = _SAME
    index_add_ = index_copy_ = index_fill_ = index_put_ = index_reduce_ = lcm_ = ldexp_ = le_ = _SAME
    leaky_relu_ = lerp_ = less_ = less_equal_ = lgamma_ = log10_ = log1p_ = log2_ = log_ = _SAME
    logical_and_ = logical_not_ = logical_or_ = logical_xor_ = logit_ = lt_ = masked_fill_ = _SAME
    masked_scatter_ = mish_ = mul_ = multiply_ = mvlgamma_ = nan_to_num_ = ne_ = neg_ = negative_ = _SAME
    nextafter_ = not_equal_ = pow_ = put_ = rad2deg_ = reciprocal_ = relu6_ = relu_ = remainder_ = _SAME
    renorm_ = round_ = rsqrt_ = scatter_ = scatter_add_ = scatter_reduce_ = selu_ = sgn_ = sigmoid_ = _SAME
    sign_ = silu_ = sin_ = sinc_ = sinh_ = sqrt_ = square_ = sub_ = subtract_ = tan_ = tanh_ = _SAME
    threshold_ = tril_ = triu_ = true_divide_ = trunc_ = xlogy_ = _SAME
