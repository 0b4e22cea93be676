"""Methods that change their tensor, with PyTorch's names: `x.add_(y)` assigns `x.add(y)` to x and returns x.

The result is converted to the dtype of x; floats are not stored in integers. A tensor with requires_grad that
was not computed from others is changed only inside `Tensor.no_grad()` (`assignment.change`).
Type checkers see the names; each has the arguments of the method without `_`.

Not here: the assignment (`assignment`), operators such as `+=` (`operators`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend.assignment import change
from frontend.assignment import in_place as _in_place
from frontend.autograd.engine import stopped
from frontend.later import AT_ONCE, all_later
from frontend.ops import creation
from frontend.ops.casts import cast
from frontend.tensor_base import TensorBase

if AT_ONCE:
    from frontend.ops import (
        about,
        activation,
        along,
        combined,
        comparison,
        diagonals,
        division,
        elementwise,
        functions,
        indexed,
        powers,
        products,
        sampling,
        scan,
        special,
    )
else:
    globals().update(
        all_later(
            "frontend.ops",
            "about activation along combined comparison diagonals division elementwise functions indexed "
            "powers products sampling scan special",
        )
    )
if TYPE_CHECKING:
    from frontend.tensor_base import T


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
    conj_physical_ = _in_place(about.conj)
    fill_diagonal_ = _in_place(diagonals.fill_diagonal)
    gcd_ = _in_place(special.gcd)
    i0_ = _in_place(special.i0)
    lcm_ = _in_place(special.lcm)
    abs_ = _in_place(functions.abs)
    absolute_ = _in_place(functions.abs)
    acos_ = _in_place(special.acos)
    acosh_ = _in_place(special.acosh)
    add_ = _in_place(combined.plus)
    addbmm_ = _in_place(products.addbmm)
    addcdiv_ = _in_place(combined.addcdiv)
    addcmul_ = _in_place(combined.addcmul)
    addmm_ = _in_place(products.addmm)
    addmv_ = _in_place(products.addmv)
    addr_ = _in_place(products.addr)
    arccos_ = _in_place(special.acos)
    arccosh_ = _in_place(special.acosh)
    arcsin_ = _in_place(special.asin)
    arcsinh_ = _in_place(special.asinh)
    arctan2_ = _in_place(special.atan2)
    arctan_ = _in_place(special.atan)
    arctanh_ = _in_place(special.atanh)
    asin_ = _in_place(special.asin)
    asinh_ = _in_place(special.asinh)
    atan2_ = _in_place(special.atan2)
    atan_ = _in_place(special.atan)
    atanh_ = _in_place(special.atanh)
    baddbmm_ = _in_place(products.baddbmm)
    bernoulli_ = _in_place(sampling.bernoulli)
    bitwise_and_ = _in_place(elementwise.bitwise_and)
    bitwise_left_shift_ = _in_place(elementwise.lshift)
    bitwise_not_ = _in_place(elementwise.invert)
    bitwise_or_ = _in_place(elementwise.bitwise_or)
    bitwise_right_shift_ = _in_place(elementwise.rshift)
    bitwise_xor_ = _in_place(elementwise.bitwise_xor)
    ceil_ = _in_place(functions.ceil)
    celu_ = _in_place(activation.celu)
    clamp_ = _in_place(elementwise.clip)
    clamp_max_ = _in_place(about.clamp_max)
    clamp_min_ = _in_place(about.clamp_min)
    clip_ = _in_place(elementwise.clip)
    copysign_ = _in_place(functions.copysign)
    cos_ = _in_place(functions.cos)
    cosh_ = _in_place(special.cosh)
    cumprod_ = _in_place(scan.cumprod)
    cumsum_ = _in_place(scan.cumsum)
    deg2rad_ = _in_place(combined.deg2rad)
    digamma_ = _in_place(special.digamma)
    div_ = _in_place(division.div)
    divide_ = _in_place(division.div)
    elu_ = _in_place(activation.elu)
    eq_ = _in_place(comparison.eq)
    erf_ = _in_place(functions.erf)
    erfc_ = _in_place(special.erfc)
    erfinv_ = _in_place(special.erfinv)
    exp2_ = _in_place(functions.exp2)
    exp_ = _in_place(functions.exp)
    expm1_ = _in_place(functions.expm1)
    fix_ = _in_place(functions.trunc)
    float_power_ = _in_place(special.float_power)
    floor_ = _in_place(functions.floor)
    floor_divide_ = _in_place(division.floordiv)
    fmod_ = _in_place(combined.fmod)
    frac_ = _in_place(combined.frac)
    ge_ = _in_place(comparison.ge)
    greater_ = _in_place(comparison.gt)
    greater_equal_ = _in_place(comparison.ge)
    gt_ = _in_place(comparison.gt)
    hardsigmoid_ = _in_place(activation.hardsigmoid)
    hardswish_ = _in_place(activation.hardswish)
    hardtanh_ = _in_place(activation.hardtanh)
    heaviside_ = _in_place(combined.heaviside)
    hypot_ = _in_place(combined.hypot)
    index_add_ = _in_place(indexed.index_add)
    index_copy_ = _in_place(indexed.index_copy)
    index_fill_ = _in_place(indexed.index_fill)
    index_put_ = _in_place(indexed.index_put)
    index_reduce_ = _in_place(indexed.index_reduce)
    ldexp_ = _in_place(special.ldexp)
    le_ = _in_place(comparison.le)
    leaky_relu_ = _in_place(activation.leaky_relu)
    lerp_ = _in_place(elementwise.lerp)
    less_ = _in_place(comparison.lt)
    less_equal_ = _in_place(comparison.le)
    lgamma_ = _in_place(special.lgamma)
    log10_ = _in_place(functions.log10)
    log1p_ = _in_place(functions.log1p)
    log2_ = _in_place(functions.log2)
    log_ = _in_place(functions.log)
    logical_and_ = _in_place(combined.logical_and)
    logical_not_ = _in_place(functions.logical_not)
    logical_or_ = _in_place(combined.logical_or)
    logical_xor_ = _in_place(combined.logical_xor)
    logit_ = _in_place(combined.logit)
    lt_ = _in_place(comparison.lt)
    masked_fill_ = _in_place(elementwise.masked_fill)
    masked_scatter_ = _in_place(indexed.masked_scatter)
    mish_ = _in_place(activation.mish)
    mul_ = _in_place(elementwise.mul)
    multiply_ = _in_place(elementwise.mul)
    mvlgamma_ = _in_place(special.mvlgamma)
    nan_to_num_ = _in_place(combined.nan_to_num)
    ne_ = _in_place(comparison.ne)
    neg_ = _in_place(elementwise.neg)
    negative_ = _in_place(elementwise.neg)
    nextafter_ = _in_place(special.nextafter)
    not_equal_ = _in_place(comparison.ne)
    pow_ = _in_place(powers.pow)
    put_ = _in_place(indexed.put)
    rad2deg_ = _in_place(combined.rad2deg)
    reciprocal_ = _in_place(functions.reciprocal)
    relu6_ = _in_place(activation.relu6)
    relu_ = _in_place(activation.relu)
    remainder_ = _in_place(division.mod)
    renorm_ = _in_place(products.renorm)
    round_ = _in_place(functions.round)
    rsqrt_ = _in_place(functions.rsqrt)
    scatter_ = _in_place(along.scatter)
    scatter_add_ = _in_place(along.scatter_add)
    scatter_reduce_ = _in_place(along.scatter_reduce)
    selu_ = _in_place(activation.selu)
    sgn_ = _in_place(special.sgn)
    sigmoid_ = _in_place(activation.sigmoid)
    sign_ = _in_place(functions.sign)
    silu_ = _in_place(activation.silu)
    sin_ = _in_place(functions.sin)
    sinc_ = _in_place(combined.sinc)
    sinh_ = _in_place(special.sinh)
    sqrt_ = _in_place(functions.sqrt)
    square_ = _in_place(functions.square)
    sub_ = _in_place(combined.minus)
    subtract_ = _in_place(combined.minus)
    tan_ = _in_place(functions.tan)
    tanh_ = _in_place(functions.tanh)
    threshold_ = _in_place(activation.threshold)
    tril_ = _in_place(diagonals.tril)
    triu_ = _in_place(diagonals.triu)
    true_divide_ = _in_place(division.true_div)
    trunc_ = _in_place(functions.trunc)
    xlogy_ = _in_place(combined.xlogy)
