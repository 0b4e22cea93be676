"""First values of parameters, with PyTorch's names: `nn.init.xavier_uniform_(layer.weight)`.

Each function assigns numbers to a tensor in place, also to one with requires_grad, realizes it and returns
it. Weights are (outputs, inputs, *kernel); functions that need their sizes raise `UsageError` below two axes.
Numbers out of range raise `UsageError`, values that are no numbers or tensors `UsageTypeError`.

Not here: tensors of random numbers (`frontend.ops.random`). Next: `layers`, whose first values differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any, Literal

from frontend.arguments import checks
from frontend.arguments.aliases import answer_module
from frontend.arguments.conversion import number
from frontend.arguments.settings import number_within
from frontend.tensor import Tensor
from hcq.errors import UsageError

Mode = Literal["fan_in", "fan_out"]
GAINS: dict[str, Callable[[float], float]] = {
    **dict.fromkeys(
        ("linear", "sigmoid", *[f"conv{n}d" for n in (1, 2, 3)], *[f"conv_transpose{n}d" for n in (1, 2, 3)]),
        lambda _: 1.0,
    ),
    "tanh": lambda _: 5 / 3,
    "relu": lambda _: math.sqrt(2),
    "leaky_relu": lambda slope: math.sqrt(2 / (1 + slope * slope)),
    "selu": lambda _: 3 / 4,
}
"""Name of a function -> its gain, a factor of the deviation of the weights before it, given a slope."""


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the gain of a function; `param` is the slope of "leaky_relu", None for 0.01.

    Raises `UsageError` for a name that is not in `GAINS`.
    """
    if nonlinearity not in GAINS:
        raise UsageError(f"calculate_gain: wanted one of {', '.join(GAINS)}, saw {nonlinearity!r}")
    return GAINS[nonlinearity](0.01 if param is None else number(param, "calculate_gain, param"))


def _assigned(t: Tensor, made: Callable[..., Tensor], **names: Any) -> Tensor:
    """Assign numbers of the shape, dtype and device of a tensor; return it realized."""
    checks.tensor(t, "nn.init", Tensor.zeros(()))
    return t.assign(made(t.shape, dtype=t.dtype, device=t.device, **names)).realize()


def _calculate_fan_in_and_fan_out(t: Tensor) -> tuple[int, int]:
    """Return (inputs, outputs) of a weight."""
    if t.ndim < 2:
        raise UsageError(f"nn.init: wanted a weight of at least two axes, saw the shape {t.shape}")
    inner = math.prod(t.shape[2:])
    return t.shape[1] * inner, t.shape[0] * inner


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Assign numbers uniform in [a, b)."""
    return _assigned(tensor, Tensor.uniform, low=a, high=b)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Assign normal numbers with a mean and a standard deviation, which is not negative."""
    return _assigned(tensor, Tensor.normal, mean=mean, std=std)


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Assign normal numbers, drawn from the part of their distribution in [a, b].

    Raises `UsageError` unless std > 0 and a < b.
    """
    mean, std = number(mean, "trunc_normal_, mean"), number(std, "trunc_normal_, std")
    if not (std > 0 and a < b):
        raise UsageError(f"trunc_normal_: wanted std > 0 and a < b, saw {std}, {a} and {b}")
    low, high = (math.erf((x - mean) / (std * math.sqrt(2))) for x in (a, b))
    chance = Tensor.uniform(tensor.shape, low=low, high=high, dtype="float64", device=tensor.device)
    found = (chance.erfinv() * (std * math.sqrt(2)) + mean).clip(a, b)
    return tensor.assign(found.cast(tensor.dtype)).realize()


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Assign one number to all elements, truncated for integers. Raises `UsageError` if it does not fit."""
    return tensor.assign(tensor.full_like(val)).realize()


def zeros_(tensor: Tensor) -> Tensor:
    """Assign zeros."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Assign ones."""
    return constant_(tensor, 1)


def eye_(tensor: Tensor) -> Tensor:
    """Assign ones to the diagonal of a matrix and zeros elsewhere. Raises `UsageError` for no matrix."""
    if tensor.ndim != 2:
        raise UsageError(f"eye_: wanted a matrix, saw the shape {tensor.shape}")
    return tensor.assign(Tensor.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device)).realize()


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Assign what passes channels on: ones at the middles of kernels (outputs, inputs, *kernel), else zeros.

    Each of `groups` of outputs has the first inputs. Raises `UsageError` unless there are 3 to 5 axes, and
    outputs that the groups divide.
    """
    if tensor.ndim not in {3, 4, 5} or groups < 1 or tensor.shape[0] % groups:
        raise UsageError(f"dirac_: wanted 3 to 5 axes and outputs of {groups} groups, saw {tensor.shape}")
    each = tensor.shape[0] // groups
    found = Tensor.zeros(*tensor.shape, dtype=tensor.dtype, device=tensor.device)
    for k in range(min(each, tensor.shape[1])):
        for group in range(groups):
            found[(group * each + k, k, *[n // 2 for n in tensor.shape[2:]])] = 1
    return tensor.assign(found).realize()


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Assign numbers uniform in ±gain sqrt(6 / (inputs + outputs))."""
    bound = number(gain, "xavier_uniform_, gain") * math.sqrt(
        6 / max(1, sum(_calculate_fan_in_and_fan_out(tensor)))
    )
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Assign normal numbers with the deviation gain sqrt(2 / (inputs + outputs))."""
    total = max(1, sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, number(gain, "xavier_normal_, gain") * math.sqrt(2 / total))


def _calculate_correct_fan(tensor: Tensor, mode: Mode) -> int:
    """Return the inputs or the outputs of a weight."""
    if mode not in {"fan_in", "fan_out"}:
        raise UsageError(f"nn.init: wanted the mode fan_in or fan_out, saw {mode!r}")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _deviation(tensor: Tensor, a: float, mode: Mode, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(max(1, _calculate_correct_fan(tensor, mode)))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: Mode = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Assign numbers uniform in ±gain sqrt(3 / n), with n the inputs, or the outputs for `mode` "fan_out".

    The gain is `calculate_gain(nonlinearity, a)`. Raises `UsageError` for another mode or nonlinearity.
    """
    bound = math.sqrt(3) * _deviation(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: Mode = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Assign normal numbers with the deviation gain / sqrt(n); n, gain and errors as `kaiming_uniform_`."""
    return normal_(tensor, 0.0, _deviation(tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Assign gain times a matrix (outputs, inputs * kernel) with orthonormal rows, or columns if fewer."""
    rows, columns = tensor.shape[0] if tensor.ndim else 1, _calculate_fan_in_and_fan_out(tensor)[0]
    sizes = max(rows, columns), min(rows, columns)
    q, r = Tensor.randn(*sizes, dtype="float64", device=tensor.device).realize().qr()
    q = q * r.diagonal().sign()
    q = q if rows >= columns else q.transpose(0, 1)
    found = (q * number(gain, "orthogonal_, gain")).reshape(tensor.shape)
    return tensor.assign(found.cast(tensor.dtype)).realize()


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Assign normal numbers to a matrix, and 0 to the share `sparsity` of the rows of each column.

    Raises `UsageError` unless it is a matrix, and for a share outside 0..1.
    """
    if tensor.ndim != 2:
        raise UsageError(f"sparse_: wanted a matrix, saw the shape {tensor.shape}")
    rows = math.ceil(number_within("sparse_, sparsity", sparsity, 0.0, 1.0 + 1e-9) * tensor.shape[0])
    kept = Tensor.rand(*tensor.shape, device=tensor.device).argsort(0).argsort(0) >= rows
    return tensor.assign((normal_(tensor, 0.0, std) * kept).cast(tensor.dtype)).realize()


def _drawing(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that draws its numbers from PyTorch's argument `generator`, if it is given."""

    @wraps(fn)
    def call(*args: Any, generator: Any = None, **names: Any) -> Tensor:
        with nullcontext() if generator is None else generator.drawing():
            return fn(*args, **names)

    return call


_KINDS = [k + n for k in ("", "xavier_", "kaiming_") for n in ("uniform_", "normal_")]
for _name in ("trunc_normal_", "orthogonal_", "sparse_", *_KINDS):
    globals()[_name] = _drawing(globals()[_name])
answer_module(globals(), __name__)
