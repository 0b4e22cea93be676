"""Random numbers: counter-based (Threefry-2x32, 20 rounds), as tensor operations on coordinates.

Element i of draw number d is `threefry(key=seed, counter=(i, d))`: the same on every device, independent of
fusion and tiling. The words of a draw are passed in a buffer of four words, so that all draws of a shape use
one kernel, and a captured function has new draws at each replay.

Functions for new tensors have the `dtype`, `device` and `requires_grad` of `creation`, where None is the
default. They raise `UsageError` for negative sizes, all functions `UsageTypeError` for arguments of other
classes. In-place methods of `Tensor` such as `exponential_` assign what the functions without "_" here
return.

Not here: dropout (`normalization`). Next: `frontend.nn.init`, initial weights.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Final

from compiler.dtype import DType, computing, dtypes
from compiler.ir.ops import Ops
from compiler.ir.uop import round_to
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import FLOAT, Shape, element_type, shape_of, whole
from frontend.arguments.conversion import flag, number
from frontend.device import Device
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, coordinate, spread, stopped, widened
from frontend.evaluation.expr import leaf_expr
from frontend.evaluation.gradient_state import marked
from frontend.evaluation.history import readable
from frontend.evaluation.plan import CAPTURE, refuse
from frontend.evaluation.storage import Leaf
from frontend.evaluation.trace import apply, method
from frontend.ops.arithmetic import div
from frontend.ops.casts import cast
from frontend.ops.elementwise import add, ge, gt, lt, minimum, mul, neg, sub, where
from frontend.ops.functions import cos, exp, floor, log, sqrt, tan
from frontend.ops.movement import expand, narrow, unsqueeze
from frontend.ops.reductions import all as every
from frontend.ops.reductions import sum as total
from frontend.ops.scan import cumsum
from frontend.ops.sorting import argsort, topk
from hcq.errors import UsageError

_ROTATIONS: Final = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY: Final = 0x1BD11BDA
"""Threefry's constant: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011."""
_MASK: Final = 0xFFFFFFFF


class DrawState:
    """The place in a sequence of random numbers: the seed, and how many draws were made."""

    place = 0, 0

    def next(self) -> bytes:
        """Return the words of the next draw: the key, the draw's number, and 0."""
        seed, number = self.place
        self.place = seed, number + 1
        return struct.pack("<4I", seed & _MASK, (seed >> 32) & _MASK, number & _MASK, 0)


GENERATOR: Final = DrawState()


def manual_seed(seed: int = 0) -> None:
    """Seed the generator. The same seed gives the same numbers on every device.

    There is one generator for the process; each draw advances it. Raises as `seed_of`.
    """
    refuse("manual_seed inside a captured function would not be replayed; call it outside")
    GENERATOR.place = seed_of(seed), 0


def seed_of(seed: int) -> int:
    """Return a seed as 64 bits, a negative one as its complement. Raises `UsageError` for one of more."""
    if not -1 << 63 <= whole(seed, "manual_seed") < 1 << 64:
        raise UsageError(f"manual_seed: wanted a seed of 64 bits, saw {seed}")
    return seed % (1 << 64)


def draw(cls: type[T], device: str | None) -> T:
    """Return the words of a new draw, where its device can read them."""
    opened = Device[Device.named(device)]
    buffer = opened.write_small(GENERATOR.next())
    if CAPTURE.now is not None:
        CAPTURE.now.drew(buffer)
    made = cls.of_part((leaf_expr((4,), dtypes.uint32, opened.name), (Leaf(buffer),)))
    if CAPTURE.draws is not None:
        CAPTURE.draws.append(made)
    return made


def _rotated(x: T, by: int) -> T:
    shape = x.expr.shape
    up = apply(Ops.SHL, None, x, constant(x, by, dtypes.uint32, shape))
    down = apply(Ops.SHR, None, x, constant(x, 32 - by, dtypes.uint32, shape))
    return apply(Ops.OR, None, up, down)


def _plus(a: T, b: T) -> T:
    return apply(Ops.ADD, None, a, b)


def threefry(key0: T, key1: T, low: T, high: T) -> tuple[T, T]:
    """Return the two words of Threefry-2x32 with 20 rounds; all are uint32 of one shape."""
    parity = constant(low, _PARITY, dtypes.uint32, low.expr.shape)
    keys = (key0, key1, apply(Ops.XOR, None, apply(Ops.XOR, None, key0, key1), parity))
    x, y = _plus(low, key0), _plus(high, key1)
    for group in range(5):
        for i in range(4):
            x = _plus(x, y)
            y = apply(Ops.XOR, None, _rotated(y, _ROTATIONS[4 * (group % 2) + i]), x)
        x = _plus(x, keys[(group + 1) % 3])
        y = _plus(y, keys[(group + 2) % 3])
        y = _plus(y, constant(y, group + 1, dtypes.uint32, y.expr.shape))
    return x, y


def _words(draw: T, shape: Shape) -> tuple[T, T]:
    """Return two random words for each element of a shape."""
    count = prod(shape)

    def word(i: int) -> T:
        return spread(apply(Ops.RESHAPE, (), apply(Ops.SHRINK, ((i, i + 1),), draw)), (count,))

    place = convert(coordinate(draw, (count,), 0), dtypes.uint32)
    x, y = threefry(word(0), word(1), place, word(2))
    return apply(Ops.RESHAPE, shape, x), apply(Ops.RESHAPE, shape, y)


_DIGITS: Final = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 32}
"""Bits of a word that a float of [0, 1) takes: as many as it holds without rounding, up to 1.0."""


def _top(word: T, bits: int, dtype: DType) -> T:
    """Return the upper bits of words as a whole number."""
    shift = constant(word, 32 - bits, dtypes.uint32, word.expr.shape)
    return convert(apply(Ops.SHR, None, word, shift) if bits < 32 else word, dtype)


def _unit(word: T, dtype: DType) -> T:
    """Return words as floats in [0, 1), multiples of 2 to minus the digits of the dtype."""
    bits = _DIGITS[dtype]
    return mul(_top(word, bits, dtype), 2.0**-bits)


@method
def _rand(draw: T, shape: Shape, dtype: DType) -> T:
    x, y = _words(draw, shape)
    if dtype is not dtypes.float64:
        return _unit(x, dtype)
    return mul(add(mul(_top(x, 27, dtype), 2.0**26), _top(y, 26, dtype)), 2.0**-53)


@method
def _randn(draw: T, shape: Shape, dtype: DType) -> T:
    """Box-Muller: the radius from one word, the angle from the other."""
    x, y = _words(draw, shape)
    wide = dtypes.float32 if dtype.bits == 16 else dtype
    radius = sqrt(mul(log(add(neg(_unit(x, wide)), 1.0)), -2.0))
    return convert(mul(radius, cos(mul(_unit(y, wide), 2 * math.pi))), dtype)


@method
def _randint(draw: T, low: int, span: int, shape: Shape, dtype: DType) -> T:
    """Scale a word by the span: the high half of their product."""
    word = convert(_words(draw, shape)[0], dtypes.uint64)
    product = apply(Ops.MUL, None, word, constant(word, span, dtypes.uint64, shape))
    high = apply(Ops.SHR, None, product, constant(word, 32, dtypes.uint64, shape))
    return convert(add(convert(high, dtypes.int64), low), dtype)


def _float(dtype: DType | str | None) -> DType:
    found = element_type(dtype) or FLOAT[0]
    if not found.is_float:
        raise UsageError(f"random floats cannot be {found.name}; see randint")
    return computing(found, "random numbers")


def rand(
    cls: type[T],
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return numbers uniform in [0, 1): multiples of 2**-24; half types 2**-11, 2**-8, float64 2**-53.

    `dtype` is float32 by default. It has no memory until it is realized. Raises `UsageError` for a dtype of
    integers.
    """
    return marked(_rand(draw(cls, device), shape_of(shape, "rand"), _float(dtype)), requires_grad)


def randn(
    cls: type[T],
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return numbers of the standard normal distribution.

    `dtype` is float32 by default. Raises `UsageError` for a dtype of integers.
    """
    return marked(_randn(draw(cls, device), shape_of(shape, "randn"), _float(dtype)), requires_grad)


def randint(
    cls: type[T],
    *shape: int | Sequence[int],
    low: int = 0,
    high: int = 10,
    dtype: DType | str | None = None,
    device: str | None = None,
) -> T:
    """Return whole numbers, low <= x < high; `dtype` is int64 by default.

    PyTorch's positional forms `randint(high, (2, 3))` and `randint(low, high, (2, 3))` are accepted, too.

    Raises `UsageError` unless low < high, at most 2**32 apart, within the dtype.
    """
    if len(shape) in {2, 3} and isinstance(shape[-1], (tuple, list)):
        *bounds, size = shape
        low, high = (low, *bounds)[-2:]  # type: ignore[assignment]  # `whole` reads them
        shape = (size,)
    span = whole(high, "randint") - whole(low, "randint")
    if not 0 < span <= 1 << 32:
        raise UsageError(f"randint: wanted low < high, at most 2**32 apart, saw {low} and {high}")
    found = element_type(dtype) or dtypes.int64
    refuse_beyond("randint", low, high, found)
    return _randint(draw(cls, device), low, span, shape_of(shape, "randint"), found)


def refuse_beyond(what: str, low: int, high: int, dtype: DType) -> None:
    """Raise `UsageError` if a dtype does not hold all numbers low <= x < high."""
    if dtype.is_float:
        there = all(math.isfinite(round_to(float(n), dtype)) for n in (low, high - 1))
    else:
        there = dtype is dtypes.bool or (dtype.min <= low and high - 1 <= dtype.max)
    if not there:
        raise UsageError(f"{what}: {dtype.name} does not hold the numbers {low} to {high - 1}")


def uniform(
    cls: type[T],
    *shape: int | Sequence[int],
    low: float = 0.0,
    high: float = 1.0,
    dtype: DType | str | None = None,
    device: str | None = None,
) -> T:
    """Return numbers uniform in [low, high); a dtype of integers rounds them towards zero.

    If low equals high, all are that number. Raises `UsageError` for low > high and infinite bounds.
    """
    found = element_type(dtype) or FLOAT[0]
    wide = found if found.is_float else dtypes.float32
    low, high = number(low, "uniform, low"), number(high, "uniform, high")
    if not (low <= high and math.isfinite(high - low)):
        raise UsageError(f"uniform: wanted low <= high, both finite, saw {low} and {high}")
    result = add(mul(rand(cls, *shape, dtype=wide, device=device), high - low), low)
    if low and high > low:  # the sum may round up to high
        result = minimum(result, _below(high, wide))
    return cast(result, found)


def _below(high: float, dtype: DType) -> float:
    """Return a value of dtype next below a number, or the one below that."""
    near = round_to(float(high), dtype)
    digits = 53 if dtype is dtypes.float64 else _DIGITS[dtype]
    return near if near < high else round_to(near - abs(near) * 0.75 * 2.0 ** (1 - digits), dtype)


def normal(
    cls: type[T],
    *shape: int | Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DType | str | None = None,
    device: str | None = None,
) -> T:
    """Return numbers of the normal distribution with a mean and a standard deviation.

    Raises `UsageError` for a negative `std` and a dtype of integers.
    """
    mean, std = number(mean, "normal, mean"), number(std, "normal, std")
    if not std >= 0:
        raise UsageError(f"normal: wanted a standard deviation that is not negative, saw {std}")
    return add(mul(randn(cls, *shape, dtype=dtype, device=device), std), mean)


def _fans(shape: Shape) -> tuple[int, int]:
    """Return (inputs, outputs) of a weight (outputs, inputs, *kernel)."""
    if not shape:
        return 1, 1
    inner = prod(shape[2:])
    return (shape[1] if len(shape) > 1 else shape[0]) * inner, shape[0] * inner


def scaled_uniform(
    cls: type[T], *shape: int | Sequence[int], dtype: DType | str | None = None, device: str | None = None
) -> T:
    """Return numbers uniform in ±1/sqrt(number of elements)."""
    sizes = shape_of(shape, "scaled_uniform")
    bound = max(1, prod(sizes)) ** -0.5
    return uniform(cls, sizes, low=-bound, high=bound, dtype=dtype, device=device)


def glorot_uniform(
    cls: type[T], *shape: int | Sequence[int], dtype: DType | str | None = None, device: str | None = None
) -> T:
    """Return numbers uniform in ±sqrt(6 / (inputs + outputs)) for a weight (outputs, inputs, *kernel)."""
    sizes = shape_of(shape, "glorot_uniform")
    bound = math.sqrt(6 / max(1, sum(_fans(sizes))))
    return uniform(cls, sizes, low=-bound, high=bound, dtype=dtype, device=device)


def kaiming_uniform(
    cls: type[T],
    *shape: int | Sequence[int],
    a: float = 0.01,
    dtype: DType | str | None = None,
    device: str | None = None,
) -> T:
    """Return numbers uniform in ±sqrt(6 / (1 + a²) / inputs) for a weight (outputs, inputs, *kernel)."""
    sizes = shape_of(shape, "kaiming_uniform")
    a = number(a, "kaiming_uniform, a")
    bound = math.sqrt(6 / (1 + a * a) / max(1, _fans(sizes)[0]))
    return uniform(cls, sizes, low=-bound, high=bound, dtype=dtype, device=device)


def kaiming_normal(
    cls: type[T],
    *shape: int | Sequence[int],
    a: float = 0.01,
    dtype: DType | str | None = None,
    device: str | None = None,
) -> T:
    """Return normal numbers with the deviation sqrt(2 / (1 + a²) / inputs) for (outputs, inputs, *kernel)."""
    sizes = shape_of(shape, "kaiming_normal")
    a = number(a, "kaiming_normal, a")
    std = math.sqrt(2 / (1 + a * a) / max(1, _fans(sizes)[0]))
    return normal(cls, sizes, std=std, dtype=dtype, device=device)


def rand_like(
    self: T, *, dtype: DType | str | None = None, device: str | None = None, requires_grad: bool | None = None
) -> T:
    """Return numbers as of `rand` in the shape of self, and on its device unless another is given.

    `dtype` is by default that of self if it is a float, else float32.
    """
    return marked(_like(rand, self, dtype, device), requires_grad)


def randn_like(
    self: T, *, dtype: DType | str | None = None, device: str | None = None, requires_grad: bool | None = None
) -> T:
    """Return numbers as of `randn` in the shape of self; `dtype` and device as of `rand_like`."""
    return marked(_like(randn, self, dtype, device), requires_grad)


def _like(make: Any, x: T, dtype: DType | str | None, device: str | None) -> T:
    own = element_type(dtype) or (x.expr.dtype if x.expr.dtype.is_float else dtypes.float32)
    found: T = make(x.__class__, x.expr.shape, dtype=own, device=x.expr.device if device is None else device)
    return found


def randperm(cls: type[T], n: int, *, dtype: DType | str | None = None, device: str | None = None) -> T:
    """Return the numbers 0 to n - 1 in random order; `dtype` is int64 by default."""
    (count,) = shape_of((whole(n, "randperm"),), "randperm")
    order = argsort(rand(cls, count, dtype=dtypes.float64, device=device))
    return cast(order, element_type(dtype) or order.expr.dtype)


@accepts_aliases
def multinomial(self: T, num_samples: int, replacement: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return indices (int64) drawn with these weights, of a vector or of each row of a matrix.

    Without `replacement` no index is drawn twice: weights of 0 are drawn only after all others. Raises
    `UsageError` for another number of axes, for integers, and for fewer than one sample or, without
    `replacement`, more samples than weights. Outside captured functions the weights are computed, and
    negative, infinite or NaN ones, or all 0, raise `UsageError`.
    """
    replacement = flag(replacement, "multinomial, replacement")
    shape = self.expr.shape
    if len(shape) not in {1, 2} or not self.expr.dtype.is_float:
        raise UsageError(
            f"multinomial: wanted a vector or matrix of floats, saw {self.expr.dtype.name}{list(shape)}"
        )
    if whole(num_samples, "multinomial") < 1 or (not replacement and num_samples > shape[-1]):
        raise UsageError(f"multinomial: {num_samples} samples of {shape[-1]} weights, wanted 1..{shape[-1]}")
    if CAPTURE.now is None:
        readable(self)  # it is computed once, for the check and for the draws
    weights = stopped(widened(self))
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
    return total(passed, -1)


def bernoulli(self: T, p: float | None = None) -> T:
    """Return 1 with the probability that each element gives, or p, else 0, in the dtype of self.

    Elements above 1 give 1, negative ones 0. Raises `UsageError` for p outside 0..1, and without p for a
    tensor of integers.
    """
    if p is None and not self.expr.dtype.is_float:
        raise UsageError(f"bernoulli: wanted probabilities as floats, saw {self.expr.dtype.name}")
    if p is not None and not 0 <= number(p, "bernoulli, p") <= 1:
        raise UsageError(f"bernoulli: wanted a probability 0 <= p <= 1, saw {p}")
    chance = rand(self.__class__, self.expr.shape, device=self.expr.device)
    return cast(lt(chance, stopped(self) if p is None else p), self.expr.dtype)


def trials(self: T, p: Any = 0.5) -> T:
    """Return 1 with the probability p, a number or a tensor that broadcasts to self, else 0, as self.

    Raises `UsageError` for a number outside 0..1, and for a tensor of integers.
    """
    found: T = bernoulli(expand(p, *self.expr.shape)) if hasattr(p, "expr") else bernoulli(self, p)
    return cast(found, self.expr.dtype)


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
    """Return numbers of the exponential distribution with the rate `lambd`, in the shape and dtype of self.

    Raises `UsageError` for a rate not above 0 and for integers.
    """
    chance = _floats(self, "exponential_")
    return cast(mul(log(chance), -1.0 / _above_zero(lambd, "exponential_, lambd")), self.expr.dtype)


def log_normal(self: T, mean: float = 1.0, std: float = 2.0) -> T:
    """Return numbers whose logarithms are of a normal distribution, in the shape and dtype of self.

    Raises `UsageError` for a `std` not above 0 and for integers.
    """
    e = self.expr
    _floats(self, "log_normal_")
    _above_zero(std, "log_normal_, std")
    found = normal(self.__class__, e.shape, mean=mean, std=std, dtype=e.dtype, device=e.device)
    return exp(found)


def cauchy(self: T, median: float = 0.0, sigma: float = 1.0) -> T:
    """Return numbers of the Cauchy distribution, in the shape and dtype of self.

    Raises `UsageError` for a `sigma` not above 0 and for integers.
    """
    angle = mul(sub(_floats(self, "cauchy_"), 0.5), math.pi)
    wide = add(mul(tan(angle), _above_zero(sigma, "cauchy_, sigma")), number(median, "cauchy_, median"))
    return cast(wide, self.expr.dtype)


def geometric(self: T, p: float) -> T:
    """Return how many trials of probability p the first success takes, in the shape and dtype of self.

    Raises `UsageError` unless 0 < p < 1.
    """
    if not 0 < number(p, "geometric_, p") < 1:
        raise UsageError(f"geometric_: wanted 0 < p < 1, saw {p}")
    trials = add(floor(mul(log(_chance(self)), 1 / math.log1p(-p))), 1.0)
    return cast(trials, self.expr.dtype)


def whole_numbers(self: T, first: int | None = None, to: int | None = None) -> T:
    """Return whole numbers, first <= x < to, in the shape and dtype of self; with one number n, 0 <= x < n.

    Without numbers, 0 <= x < 2**n, n the bits of a positive integer that the dtype holds exactly, at most 32.
    Raises `UsageError` unless first < to, at most 2**32 apart, within the dtype.
    """
    e = self.expr
    computing(e.dtype, "random_")
    most = int(e.dtype.max) + 1 if not e.dtype.is_float else 2 ** WHOLE[e.dtype.name]
    low, high = (0, most if first is None else first) if to is None else (first or 0, to)
    high = min(high, low + (1 << 32)) if first is None and to is None else high
    refuse_beyond("random_", low, high, e.dtype)
    found = randint(self.__class__, e.shape, low=low, high=high, dtype=dtypes.int64, device=e.device)
    return cast(found, e.dtype)


WHOLE: Final = {"float64": 32, "float32": 24, "float16": 11, "bfloat16": 8}
"""Random bits of a whole number in each float dtype: at most the bits of its significand, and 32."""
