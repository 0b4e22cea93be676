"""Lines of tensor programs with functions of floats, which are compared within an error that grows with them.

NumPy computes in float64 whatever the dtype of the program. No line has a meaning that jumps: a comparison,
a rounding or an index of a computed float would make a small error a large one.

Not here: a whole program (`tensor_programs`), other kinds of lines (`tensor_kinds` lists them).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Maker

Array = np.ndarray[Any, Any]
ERRORS: Final = {"float16": 8e-3, "float32": 2e-5, "float64": 1e-6}
"""The error of a value of weight 1, relative to the largest of 1 and all its elements."""
COARSEST: Final = 0.05
"""The largest relative error: beyond it a comparison would say nothing."""
RAGGED: Final = (1, 1, 2, 3, 4, 5, 7, 7, 8, 13, 17)
"""Sizes of axes: one, two, primes, a power of two, none of them zero."""
LARGE: Final = (1, 31, 64, 101, 130, 257)
"""Ragged sizes of kernels that several threads share."""
_CHANNELS: Final = 8
"""The largest number of channels of a convolution."""
_FEW: Final = 50.0
"""The largest exponent of `logsumexp`."""


def plain(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return multiples of 1/8 up to 4, exact in every dtype of floats."""
    return np.asarray(rng.integers(-32, 33, shape) / 8.0)


def softly(x: Array, axis: int) -> Array:
    """Return the softmax along an axis."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def level(x: Array, axis: int) -> Array:
    """Return the layer norm along an axis with an eps of 0.1."""
    d = x - x.mean(axis, keepdims=True)
    return np.asarray(d / np.sqrt((d * d).mean(axis, keepdims=True) + 0.1))


FUNCTIONS: Final = (plain, softly, level)
_UNARY: Final = (
    ("{0}.clip(-3, 3).exp()", "np.exp(np.clip({0}, -3, 3))"),
    ("({0}.abs() + 1).log()", "np.log(np.abs({0}) + 1)"),
    ("({0}.abs() + 1).sqrt()", "np.sqrt(np.abs({0}) + 1)"),
    ("({0} * {0} + 1).rsqrt()", "1 / np.sqrt({0} * {0} + 1)"),
    ("({0}.abs() + 1).reciprocal()", "1 / (np.abs({0}) + 1)"),
    ("{0}.sin()", "np.sin({0})"),
    ("{0}.cos()", "np.cos({0})"),
    ("{0}.tanh()", "np.tanh({0})"),
    ("{0}.sigmoid()", "1 / (1 + np.exp(-{0}))"),
    ("{0}.silu()", "{0} / (1 + np.exp(-{0}))"),
    ("{0}.relu()", "np.maximum({0}, 0)"),
    ("{0}.abs()", "np.abs({0})"),
    ("{0}.tanh().square()", "np.tanh({0}) ** 2"),
    ("3 * {0} - 0.25", ""),
    ("2 / ({0}.square() + 1)", "2 / ({0} * {0} + 1)"),
    ("1 - {0} / 2", ""),
    ("({0}.abs() + 0.5) ** 0.5", "(np.abs({0}) + 0.5) ** 0.5"),
    ("{0}.leaky_relu(0.1)", "np.where({0} > 0, {0}, 0.1 * {0})"),
    ("{0}.clip(-1, 1.5)", "np.clip({0}, -1, 1.5)"),
    ("{0}.softplus()", "np.logaddexp({0}, 0)"),
)
_BINARY: Final = (
    ("{0} + {1}", ""),
    ("{0} - {1}", ""),
    ("{0} * {1}", ""),
    ("{0}.maximum({1})", "np.maximum({0}, {1})"),
    ("{0}.minimum({1})", "np.minimum({0}, {1})"),
    ("{0} / ({1} * {1} + 1)", ""),
    ("{0}.lerp({1}, 0.25)", "{0} + ({1} - {0}) * 0.25"),
)
_ROWS: Final = (
    ("{{0}}.softmax({0})", "softly({{0}}, {0})"),
    ("{{0}}.log_softmax({0})", "np.log(softly({{0}}, {0}))"),
    ("{{0}}.layernorm({0}, 0.1)", "level({{0}}, {0})"),
    ("{{0}}.rmsnorm({0}, 0.1)", "{{0}} / np.sqrt(({{0}} * {{0}}).mean({0}, keepdims=True) + 0.1)"),
    ("{{0}}.cumsum({0})", "np.cumsum({{0}}, {0})"),
)


def unary(m: Maker) -> None:
    """Append a function of each element."""
    a = m.pick("f")
    if a is not None:
        m.add((a,), *m.r.choice(_UNARY))


def binary(m: Maker) -> None:
    """Append arithmetic of two values, or a selection among them by the place along the last axis."""
    a = m.pick("f")
    b = m.mate(a) if a is not None else None
    if a is None or b is None:
        return
    shape = np.broadcast_shapes(m.env[a].shape, m.env[b].shape)
    if shape and m.r.random() < 0.15:
        mask = f"arange({shape[-1]}) % {m.r.randint(2, 4)} == 1"
        m.add((a, b), f"(Tensor.{mask}).where({{0}}, {{1}})", f"np.where(np.{mask}, {{0}}, {{1}})")
    else:
        m.add((a, b), *m.r.choice(_BINARY))


def reduce(m: Maker) -> None:
    """Append a sum, mean, extreme, variance or logarithm of a sum over some axes."""
    a = m.pick("f", nonempty=True)
    if a is None:
        return
    x = m.env[a]
    axis: int | tuple[int, ...] | None = None
    if x.ndim and m.r.random() < 0.75:
        axis = tuple(sorted(m.r.sample(range(x.ndim), m.r.randint(1, x.ndim))))
        axis = axis[0] if len(axis) == 1 and m.r.random() < 0.7 else axis
    keep = m.r.random() < 0.4
    rows = [
        (f"{{0}}.{name}({axis}, keepdim={keep})", f"{{0}}.{other}({axis}, keepdims={keep})")
        for name, other in (("sum", "sum"), ("mean", "mean"), ("amax", "max"), ("amin", "min"))
    ]
    if x.size >= 2 * x.max(axis).size:
        rows.append((f"{{0}}.var({axis}, keepdim={keep})", f"{{0}}.var({axis}, keepdims={keep}, ddof=1)"))
    if np.abs(x).max() <= _FEW:
        text = f"np.log(np.exp({{0}}).sum({axis}, keepdims={keep}))"
        rows.append((f"{{0}}.logsumexp({axis}, keepdim={keep})", text))
    m.add((a,), *m.r.choice(rows))


def rows(m: Maker) -> None:
    """Append a softmax, a norm or running sums along an axis."""
    a = m.pick("f", rank=1, nonempty=True)
    if a is not None:
        axis = m.r.choice((-1, m.r.randrange(m.env[a].ndim)))
        tensor, numpy = m.r.choice(_ROWS)
        m.add((a,), tensor.format(axis), numpy.format(axis))


def product(m: Maker) -> None:
    """Append a matrix product of rows with rows as long, divided by their length."""
    a = m.pick("f", rank=1, nonempty=True)
    if a is None:
        return
    k = m.env[a].shape[-1]
    most = m.elements * k * k // m.env[a].size
    fit = [n for n in m.alias if m.env[n].shape[-1:] == (k,) and 0 < m.env[n].size <= most]
    if not fit:
        return
    right = f"{{1}}.reshape(-1, {k}).T"
    m.add((a, m.r.choice(fit)), f"({{0}}.reshape(-1, {k}) @ {right}) / {k}")


def picture(m: Maker) -> None:
    """Append a convolution, or the maximum of windows, of a value with two axes of a picture."""
    a = m.pick("f", rank=2, nonempty=True)
    if a is None or m.env[a].ndim > 4:
        return
    shape = (1,) * (4 - m.env[a].ndim) + m.env[a].shape
    x, (channels, *sides) = f"{{0}}.reshape({shape!r})", shape[1:]
    size, stride, padding = m.r.randint(1, 3), m.r.randint(1, 2), m.r.randint(0, 1)
    if m.r.random() < 0.4:
        if min(sides) >= size:
            text = f"{x}.max_pool2d(({size}, {size}), {stride})"
            m.add((a,), text, f"greatest_of_windows({x}, {size}, {stride})")
        return
    dilation, outputs = m.r.choice((1, 1, 2)), m.r.randint(1, 4)
    filters = (outputs, channels, size, size)
    if channels > _CHANNELS or min(sides) + 2 * padding <= (size - 1) * dilation:
        return
    b, count = m.pick("f", nonempty=True), math.prod(filters)
    if b is not None and m.env[b].size >= count:
        w = same = f"{{1}}.reshape(-1)[:{count}].reshape({filters!r})"
    else:
        b, w = a, f"((Tensor.arange({count}) % 7 - 3) / 4).cast({m.wide!r}).reshape({filters!r})"
        same = f"((np.arange({count}) % 7 - 3) / 4).reshape({filters!r})"
    options = f"stride={stride}, padding={padding}, dilation={dilation}"
    tensor, numpy = f"{x}.conv2d({w}, {options})", f"convolved({x}, {same}, {options}, groups=1)"
    terms = math.prod(filters[1:])
    m.add((a, b), f"{tensor} / {terms}", f"{numpy} / {terms}")
