"""Functions of `torch` and `torch.nn.functional` that are made of others, by PyTorch's names.

Signatures are PyTorch's, and `device` None is the default one; errors are those of the functions inside:
`UsageError` for values and shapes that do not fit, `UsageTypeError` for arguments of other classes.

Not here: `frontend.functions` and `frontend.nn.functional`, which find these by `FUNCTIONS`. Next: `layers`.
"""

# ruff: noqa: FBT001, FBT002, PLR0917 - PyTorch's signatures

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from compiler.dtype import DType, promote
from frontend.arguments.checks import element_type
from frontend.functions import atleast_2d
from frontend.nn import functional as F  # noqa: N812 - the field's name
from frontend.nn import layers
from frontend.nn.checks import count
from frontend.nn.normalisation import InstanceNorm
from frontend.tensor import Tensor
from frontend.torch.linalg import multi_dot
from hcq.errors import UsageError

_SELU_LEAST: Final = -1.7580993408473766
"""The limit of SELU at minus infinity, -scale * alpha, to which alpha dropout sets elements."""
_DISTANCES: Final = (
    "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
)  # fmt: skip
"""PyTorch's ways to compute distances."""


def block_diag(*tensors: Any) -> Tensor:
    """Return a matrix with matrices along its diagonal, zeros elsewhere; vectors are rows."""
    blocks: list[Tensor] = [atleast_2d(t) for t in tensors]
    width, rows, at = sum(b.shape[1] for b in blocks), [], 0
    for b in blocks:
        rows.append(b.pad((at, width - at - b.shape[1])))
        at += b.shape[1]
    return Tensor.cat(rows, axis=0)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return every combination of elements of vectors, one a row; one vector is returned as it is."""
    if len(tensors) == 1:
        return tensors[0]
    return Tensor.stack([t.flatten() for t in Tensor.meshgrid(*tensors)], axis=-1)


def cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """Return the distances (..., m, n) in the norm `p` of rows of `a` (..., m, k) and `b` (..., n, k).

    All of PyTorch's modes give what "donot_use_mm_for_euclid_dist" gives there; `UsageError` for another.
    """
    if compute_mode is not None and str(compute_mode) not in _DISTANCES:
        raise UsageError(f"cdist, compute_mode: wanted {', '.join(_DISTANCES)}, saw {compute_mode!r}")
    return distance(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def distance(x: Tensor, p: float) -> Tensor:
    """Return the norm of differences along the last axis; no gradient flows where the 2-norm is 0."""
    found = x.norm(p, axis=-1) if p else (x != 0).where(x.isnan().where(x, 1.0), 0.0).sum(-1)
    return (found != 0).where(found, 0.0) if p == 2 else found


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Return the integral of `y` along an axis by the trapezoidal rule, at points `x` or `dx` apart."""
    return trapezoids(y, x, dx, dim).sum(dim)


def trapezoids(y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    """Return the integrals between neighbours along an axis; see `trapezoid`."""
    n = y.shape[dim]
    means = (y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) / 2
    if x is None:
        return means * dx
    steps = x.diff(axis=dim if x.ndim > 1 else 0)
    return means * (steps if x.ndim > 1 else steps.reshape(-1, *[1] * (y.ndim - 1 - dim % y.ndim)))


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (..., out): for each output o the product input1 @ weight[o] @ input2, plus the bias."""
    found = Tensor.einsum("...i,oij,...j->...o", input1, weight, input2)
    return found if bias is None else found + bias


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: Any = None,
) -> Tensor:
    """Return one row for each bag of indices into `weight`; see `nn.EmbeddingBag`."""
    layer = layers.EmbeddingBag(
        1, 1, max_norm, norm_type, scale_grad_by_freq, mode, sparse, include_last_offset=include_last_offset
    )
    layer.weight, layer.padding_idx = weight, padding_idx
    return layer.forward(input, offsets, per_sample_weights)


def _window(name: str, length: int, periodic: bool, shape: Any, dtype: Any, device: str | None) -> Tensor:
    """Return `shape` of `length` places from 0 on, of which 1 is the end of a period.

    A shape is a function of places, or factors of cosines of 0, 1, ... periods.
    """
    length, found = count(f"{name}, window_length", length, 0), element_type(dtype) or element_type("float32")
    if length < 2:
        return Tensor.ones(length, dtype=found, device=device)
    t = Tensor.arange(length, dtype=found, device=device) / (length if periodic else length - 1)
    waves = enumerate(() if callable(shape) else shape)
    made: Tensor = shape(t) if callable(shape) else sum(f * (2 * k * math.pi * t).cos() for k, f in waves)
    return made


def _fixed(name: str, text: str, shape: Any) -> Callable[..., Tensor]:
    """Return the function of a window whose shape has no parameters; see `_window`."""

    def window(
        window_length: int, periodic: bool = True, *, dtype: Any = None, device: str | None = None
    ) -> Tensor:
        return _window(name, window_length, periodic, shape, dtype, device)

    window.__name__, window.__doc__ = name, f"Return {text}; without `periodic` the last is the first again."
    return window


hann_window = _fixed("hann_window", "(window_length,) raised cosines", (0.5, -0.5))
blackman_window = _fixed("blackman_window", "Blackman's sum of two cosines", (0.42, -0.5, 0.08))
bartlett_window = _fixed("bartlett_window", "a triangle of height 1", lambda t: 1 - (2 * t - 1).abs())


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """Return alpha - beta * cos over one period; see `hann_window`."""
    return _window("hamming_window", window_length, periodic, (alpha, -beta), dtype, device)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """Return Kaiser's window of the shape `beta`, a Bessel function over one period; see `hann_window`."""

    def shape(t: Tensor) -> Tensor:
        width = (1 - (2 * t - 1).square()).clamp(0).sqrt()
        return (beta * width).i0() / t.full_like(beta).i0()

    return _window("kaiser_window", window_length, periodic, shape, dtype, device)


def _lp_pool(rank: int) -> Callable[..., Tensor]:
    def pool(
        input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Tensor:
        """Return the norms of windows of the last axes; NaN where a sum of powers is negative."""
        several = isinstance(kernel_size, (tuple, list))
        sizes = tuple(kernel_size) if several else (kernel_size,) * rank
        mean = (input**norm_type).avg_pool2d(sizes, sizes if stride is None else stride, 0, ceil_mode)
        found: Tensor = (mean * math.prod(sizes)) ** (1.0 / norm_type)
        return found

    pool.__name__ = f"lp_pool{rank}d"
    return pool


def _unpool(rank: int) -> Callable[..., Tensor]:
    def unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Tensor:
        """Return zeros with the maxima of a pool over the last axes at their places."""
        sizes = (kernel_size,) * rank if isinstance(kernel_size, int) else kernel_size
        return input.max_unpool2d(indices, sizes, stride, padding, output_size)

    unpool.__name__ = f"max_unpool{rank}d"
    return unpool


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (batch, channels, ...) normalised by sample and channel.

    Without `use_input_stats` by the running statistics, as `batch_norm`; with it they are updated, if given.
    """
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    layer = InstanceNorm(input.shape[1], eps, momentum, track_running_stats=running_mean is not None)
    every: Any = weight, bias, running_mean, running_var
    layer.weight, layer.bias, layer.running_mean, layer.running_var = every
    with Tensor.train():
        return layer.forward(input)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the hinge loss between the classes in `target`, up to its first -1, and all others.

    `input` and `target` have the shape (batch, classes) or (classes,).
    """
    if reduction not in {"mean", "sum", "none"}:
        raise UsageError(f"multilabel_margin_loss, reduction: wanted mean, sum or none, saw {reduction!r}")
    x, labels = (t.reshape(1, -1) if t.ndim < 2 else t for t in (input, target))
    valid = (labels >= 0).cast("int64").cumprod(-1) > 0
    safe = valid.where(labels, 0)
    classes = Tensor.arange(x.shape[-1], device=x.device)
    member = ((safe.unsqueeze(-1) == classes) & valid.unsqueeze(-1)).any(-2)
    gaps = (1 - (x.gather(-1, safe).unsqueeze(-1) - x.unsqueeze(-2))).relu()
    counted = valid.unsqueeze(-1) & ~member.unsqueeze(-2)
    each: Tensor = counted.where(gaps, 0.0).sum((-1, -2)) / x.shape[-1]
    if reduction == "none":
        return each.reshape(()) if input.ndim < 2 else each
    return each.mean() if reduction == "mean" else each.sum()


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the p-norms of the differences of all pairs of rows, in the order of `combinations`."""
    pairs = list(itertools.combinations(range(len(input)), 2))
    if not pairs:
        return Tensor.empty(0, dtype=input.dtype, device=input.device)
    return distance(input[[i for i, _ in pairs]] - input[[j for _, j in pairs]], p)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Return negative elements times slopes: random in [lower, upper) with `training`, else their mean."""
    del inplace  # a result of its own: tensors are lazy
    if not training:
        return input.leaky_relu((lower + upper) / 2)
    slopes = Tensor.uniform(*input.shape, low=lower, high=upper, dtype=input.dtype, device=input.device)
    return (input < 0).where(input * slopes, input)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Return elements set with probability p to SELU's limit, then scaled to keep mean 0 and variance 1."""
    del inplace  # as in `rrelu`
    return _alpha_dropout(input, p, training, input.shape)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Return `alpha_dropout` of whole channels of (batch, channels, ...)."""
    del inplace  # as in `rrelu`
    if input.ndim < 2:
        raise UsageError(f"feature_alpha_dropout: wanted (batch, channels, ...), saw {input.shape}")
    return _alpha_dropout(input, p, training, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def _alpha_dropout(input: Tensor, p: float, training: bool, shape: tuple[int, ...]) -> Tensor:
    if not 0 <= p <= 1:
        raise UsageError(f"alpha_dropout, p: wanted a probability, saw {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input.zeros_like()
    kept = 1 - p
    scale = 1 / math.sqrt(kept + _SELU_LEAST * _SELU_LEAST * kept * p)
    drawn = Tensor.rand(*shape, dtype=input.dtype, device=input.device) < kept
    return drawn.where(input, _SELU_LEAST) * scale - scale * _SELU_LEAST * p


def can_cast(from_: Any, to: Any) -> bool:
    """Return whether PyTorch's promotion allows the cast: to the same kind of number or a wider one."""
    kinds = ("bool", "uint", "int", "float")
    x, y = (kinds.index(_dtype(t).kind) for t in (from_, to))
    return x <= y or (x, y) == (2, 1)


def _dtype(given: Any) -> DType:
    found = element_type(given)
    if found is None:
        raise UsageError("wanted a dtype, saw None")
    return found


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0) -> Tensor:
    """Return `count` elements of a buffer from byte `offset` on, -1: all. A copy, unlike PyTorch's.

    Raises `UsageError` for elements that are not all in the buffer.
    """
    found, data = _dtype(dtype), bytes(memoryview(buffer))
    size = len(data) - offset if count < 0 else count * found.itemsize
    if not 0 <= offset <= offset + size <= len(data) or size % found.itemsize:
        what = f"{'all' if count < 0 else count} elements of {found.name} from byte {offset} on"
        raise UsageError(f"frombuffer: wanted {what}, the buffer has {len(data)} bytes")
    return Tensor(data[offset : offset + size], dtype=found)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """Return the product of matrices, in the cheapest order."""
    return multi_dot(matrices)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return (n, r): the combinations of r elements of a vector, in the order of `itertools`."""
    r = count("combinations, r", r, 0)
    drawn = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(drawn(range(len(input)), r)) if r else []
    if not places:
        return Tensor.empty(0, *([r] if r else []), dtype=input.dtype, device=input.device)
    return input[Tensor(places, device=input.device)]


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Return the running integral of y along an axis by trapezoids, one element fewer than y.

    `x`, of the shape of y or a vector along `dim`, has the places; without it they are `dx` apart.
    """
    return trapezoids(y, x, dx, dim).cumsum(dim)


def polygamma(n: int, input: Tensor) -> Tensor:
    """Return the n-th derivative of `digamma`, by sums of powers up to 10 and Euler's formula beyond.

    Reads the least element. Raises `UsageError` for a negative n.
    """
    if not count("polygamma, n", n, 0):
        return input.digamma()
    x, s = input.cast("float64"), n + 1
    least = float(x.detach().amin().item()) if x.numel() else 0.0
    terms = 10 - math.floor(min(least, 0.0)) if math.isfinite(least) else 10
    found: Any = sum((x + k) ** -s for k in range(terms))
    z, rising = x + terms, float(s)
    found = found + z ** (1 - s) / (s - 1) + z**-s / 2
    for j, bernoulli in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)):
        found = found + bernoulli * rising * z ** (-s - 2 * j - 1)
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2)
    result: Tensor = found * ((-1) ** s * math.factorial(n))
    return result.cast(input.dtype if input.is_floating_point() else "float32")


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Return the derivative along each axis by differences of the second order, at the ends of `edge_order`.

    `spacing` is a number, a number for each axis, or a tensor of places for each. Raises `UsageError` for
    another number of these, and for axes that have at most `edge_order` elements.
    """
    axes = tuple(range(input.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    each = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    if len(each) != len(axes) or edge_order not in {1, 2}:
        seen = f"{spacing}, {edge_order}"
        raise UsageError(f"gradient: wanted {len(axes)} spacings and edge_order 1 or 2, saw {seen}")
    return tuple([_slopes(input, axis, step, edge_order) for axis, step in zip(axes, each, strict=True)])


def _slopes(input: Tensor, axis: int, step: Any, order: int) -> Tensor:
    f = input.movedim(axis, -1) * 1.0
    size = f.shape[-1]
    if size <= order:
        raise UsageError(f"gradient: wanted more than {order} elements along axis {axis}, saw {input.shape}")
    places = step if isinstance(step, Tensor) else Tensor.arange(size, dtype=f.dtype, device=f.device) * step
    f = f.cast(promote(f.dtype, places.dtype))
    h, slope = places.diff(), f.diff() / places.diff()
    first, last = slope[..., :1], slope[..., -1:]
    if size > 2:
        if isinstance(step, Tensor):
            ratio = h[:-1] / (h[:-1] + h[1:])
            middle = slope[..., :-1] * (1 - ratio) + slope[..., 1:] * ratio
        else:  # infinities stay what they are
            middle = (f[..., 2:] - f[..., :-2]) / (2 * step)
        if order == 2:
            first, last = 2 * first - middle[..., :1], 2 * last - middle[..., -1:]
        first = first.cat(middle, axis=-1)
    return first.cat(last, axis=-1).movedim(-1, axis)


def randint_like(
    input: Tensor, low: int = 0, high: int | None = None, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Return random integers from `low` (with one number 0) below `high`, in the shape of a tensor."""
    low, high = (0, low) if high is None else (low, high)
    found = element_type(dtype) or input.dtype
    return Tensor.randint(*input.shape, low=low, high=high, dtype=found, device=device or input.device)


def range_(start: float, end: float, step: float = 1, *, dtype: Any = None) -> Tensor:
    """Return start, start + step, ... up to `end`, which is included; float32 without `dtype`."""
    if step == 0 or (end - start) / step < 0:
        raise UsageError(f"range: wanted a step from {start} to {end}, saw {step}")
    number = math.floor((end - start) / step) + 1
    found = element_type(dtype) or element_type("float32")
    return (Tensor.arange(number, dtype="float64") * step + start).cast(_dtype(found))


def rsub(input: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """Return other - alpha * input."""
    return other.sub(input, alpha=alpha) if isinstance(other, Tensor) else other - input * alpha


def scalar_tensor(s: float, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return a tensor of shape () with a number; float32 without `dtype`."""
    return Tensor.full((), s, dtype=dtype or "float32", device=device)


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Return the coordinates of flat indices into a shape, one tensor for each axis.

    They are int64. An index outside the shape wraps around, as in PyTorch.
    """
    indices = indices.cast("int64")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return tuple([indices // math.prod(sizes[k + 1 :]) % size for k, size in enumerate(sizes)])


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 - PyTorch's name
    """Return (len(x), N): powers of each element from N - 1 down to 0, or rising; N None: len(x)."""
    powers = Tensor.arange(len(x) if N is None else N, device=x.device).cast(x.dtype)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))


def get_num_threads() -> int:
    """Return the number of cores: every core computes."""
    return os.cpu_count() or 1


def _answer(name: str, text: str, found: Any = None) -> Callable[..., Any]:
    """Return a function that has one result, or no effect, whatever its arguments are; `text` says why."""

    def function(*_args: Any, **_names: Any) -> Any:
        return found

    function.__name__ = name
    function.__doc__ = f"{'Do nothing' if found is None else f'Return {found!r}'}: {text}."
    return function


_FIXED: Final = (
    _answer("get_num_interop_threads", "operations run one after the other on a queue", 1),
    _answer("set_num_interop_threads", "operations run one after the other on a queue"),
    _answer("set_num_threads", "`HCQ_WORKERS` sets the number of threads, before the device opens"),
    _answer("get_float32_matmul_precision", "float32 is never computed in fewer bits", "highest"),
    _answer("set_float32_matmul_precision", "fewer bits are a permission, of which no use is made"),
    _answer("are_deterministic_algorithms_enabled", "no operation has a second algorithm", False),
    _answer("use_deterministic_algorithms", "no operation adds in an order of chance"),
)


LATER: Final = {
    "affine_grid": "frontend.torch.grids", "ctc_loss": "frontend.torch.alignment",
    "grid_sample": "frontend.torch.grids",
}  # fmt: skip
"""Further functions of `nn.functional` -> their modules."""
_EVERY: Final[Any] = (
    alpha_dropout, bartlett_window, bilinear, blackman_window, block_diag, can_cast, cartesian_prod, cdist,
    chain_matmul, combinations, cumulative_trapezoid, embedding_bag, feature_alpha_dropout, frombuffer,
    get_num_threads, gradient, hamming_window, hann_window, instance_norm, kaiser_window,
    multilabel_margin_loss, pdist, polygamma, randint_like, range_, rrelu, rsub, scalar_tensor, trapezoid,
    unravel_index, vander, *_FIXED, *map(_lp_pool, (1, 2, 3)), *map(_unpool, (1, 2, 3)),
)  # fmt: skip
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {f.__name__.rstrip("_"): f for f in _EVERY}
FUNCTIONS["trapz"] = trapezoid
"""PyTorch's name -> function."""
