"""Functions of `torch` and `torch.nn.functional` that are one expression over others: a row each.

Arguments and errors are PyTorch's and those of the methods. Not here: `frontend.functions`, `nn.functional`.
"""

# ruff: noqa: E501, A006, ARG005, PLC3002 - a row is a line, with PyTorch's arguments

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from typing import Any, Final

from compiler.dtype import by_name
from frontend.nn import functional as F  # noqa: N812 - the field's name
from frontend.nn import layers
from frontend.tensor import Tensor


def _lp_pool(rank: int) -> Callable[..., Tensor]:
    def pool(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - PyTorch's signature
        size = kernel_size if isinstance(kernel_size, (tuple, list)) else (kernel_size,) * rank
        mean = (input**norm_type).avg_pool2d(tuple(size), size if stride is None else stride, 0, ceil_mode)
        return (mean * math.prod(size)) ** (1.0 / norm_type)

    return pool


def _window(make: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: str | None = None) -> Tensor:  # noqa: FBT001, FBT002 - PyTorch's signature
        if window_length == 1:
            return Tensor.ones(1, dtype=dtype or "float32", device=device)
        places = Tensor.arange(window_length, dtype=dtype or "float32", device=device)
        return make(places / (window_length - (not periodic)))

    return window


def _bag(input: Tensor, weight: Tensor, offsets: Any = None, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: Any = None) -> Tensor:  # noqa: PLR0917, FBT001, FBT002 - PyTorch's signature
    layer = layers.EmbeddingBag(1, 1, max_norm, norm_type, scale_grad_by_freq, mode, sparse, include_last_offset=include_last_offset)
    layer.weight, layer.padding_idx = weight, padding_idx
    found: Tensor = layer(input, offsets, per_sample_weights)
    return found


def _cast_kinds(a: Any, b: Any) -> bool:
    kinds = ("bool", "uint", "int", "float")
    x, y = (kinds.index(by_name(t).kind if isinstance(t, str) else t.kind) for t in (a, b))
    return x <= y or (x, y) == (2, 1)


ROWS: Final[dict[str, Callable[..., Any]]] = {
    "bilinear": lambda input1, input2, weight, bias=None: (lambda y: y if bias is None else y + bias)(Tensor.einsum("...i,oij,...j->...o", input1, weight, input2)),
    "embedding_bag": _bag,
    "hann_window": _window(lambda t: 0.5 - 0.5 * (2 * math.pi * t).cos()),
    "hamming_window": _window(lambda t: 0.54 - 0.46 * (2 * math.pi * t).cos()),
    "blackman_window": _window(lambda t: 0.42 - 0.5 * (2 * math.pi * t).cos() + 0.08 * (4 * math.pi * t).cos()),
    "bartlett_window": _window(lambda t: 1 - (2 * t - 1).abs()),
    "lp_pool1d": _lp_pool(1),
    "lp_pool2d": _lp_pool(2),
    "lp_pool3d": _lp_pool(3),
    "instance_norm": lambda input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5: F.group_norm(input, input.shape[1], weight, bias, eps),
    "max_unpool1d": lambda input, indices, kernel_size, stride=None, padding=0, output_size=None: input.max_unpool2d(indices, (kernel_size,) if isinstance(kernel_size, int) else kernel_size, stride, padding, output_size),
    "max_unpool3d": lambda input, indices, kernel_size, stride=None, padding=0, output_size=None: input.max_unpool2d(indices, (kernel_size,) * 3 if isinstance(kernel_size, int) else kernel_size, stride, padding, output_size),
    "multilabel_margin_loss": lambda input, target, reduction="mean": _multilabel(input, target, reduction),
    "pdist": lambda input, p=2.0: (lambda pairs: (input[[i for i, _ in pairs]] - input[[j for _, j in pairs]]).norm(p, -1))(list(itertools.combinations(range(len(input)), 2))),
    "rrelu": lambda input, lower=1 / 8, upper=1 / 3, training=False, inplace=False: (input < 0).where(input * Tensor.uniform(*input.shape, low=lower, high=upper, dtype=input.dtype, device=input.device), input) if training else input.leaky_relu((lower + upper) / 2),
    "alpha_dropout": lambda input, p=0.5, training=False, inplace=False: _alpha_dropout(input, p) if training and p else input,
    "max_unpool2d": lambda input, indices, kernel_size, stride=None, padding=0, output_size=None: input.max_unpool2d(indices, kernel_size, stride, padding, output_size),
    "can_cast": _cast_kinds,
    "frombuffer": lambda buffer, *, dtype, count=-1, offset=0: Tensor(bytes(memoryview(buffer))[offset : None if count < 0 else offset + count * dtype.itemsize], dtype=dtype),
    "get_num_interop_threads": lambda: 1,
    "set_num_interop_threads": lambda _count: None,
    "get_float32_matmul_precision": lambda: "highest",
    "set_float32_matmul_precision": lambda _precision: None,
    "chain_matmul": lambda *matrices: __import__("frontend.torch.linalg", fromlist=["multi_dot"]).multi_dot(matrices),
    "combinations": lambda input, r=2, with_replacement=False: input[Tensor(list((itertools.combinations_with_replacement if with_replacement else itertools.combinations)(range(len(input)), r)))] if len(input) >= r > 0 else Tensor.empty(0, r, dtype=input.dtype),
    "cumulative_trapezoid": lambda y, x=None, *, dx=1.0, dim=-1: ((y.narrow(dim, 1, y.shape[dim] - 1) + y.narrow(dim, 0, y.shape[dim] - 1)) / 2 * (dx if x is None else x.diff(axis=dim if x.ndim > 1 else 0))).cumsum(dim),
    "is_floating_point": lambda input: input.is_floating_point(),
    "randint_like": lambda input, low, high=None, *, dtype=None: Tensor.randint(*input.shape, low=0 if high is None else low, high=low if high is None else high, dtype=dtype or input.dtype, device=input.device),
    "range": lambda start, end, step=1, *, dtype=None: Tensor.arange(start, end + step * (1 if (end - start) % step == 0 else 0), step, dtype=dtype or "float32"),
    "rsub": lambda input, other, *, alpha=1: other - input * alpha,
    "scalar_tensor": lambda s, *, dtype=None, device=None: Tensor.full((), s, dtype=dtype or "float32", device=device),
    "unravel_index": lambda indices, shape: tuple([indices // math.prod(shape[k + 1 :]) % shape[k] for k in range(len(shape))]),
    "vander": lambda x, N=None, increasing=False: (lambda powers: x.unsqueeze(-1) ** (powers if increasing else powers.flip(0)))(Tensor.arange(len(x) if N is None else N, device=x.device).cast(x.dtype)),  # noqa: N803 - PyTorch's name
    "get_num_threads": lambda: os.cpu_count() or 1,
    "set_num_threads": lambda _count: None,
}
"""Name -> function. Setting threads and precision has no effect: a thread a core, and exact products."""


def _alpha_dropout(x: Tensor, p: float) -> Tensor:
    least, kept = -1.7580993408473766, 1 - p
    scale = 1 / math.sqrt(kept + least * least * kept * p)
    drawn = Tensor.rand(*x.shape, dtype=x.dtype, device=x.device) < kept
    return drawn.where(x, least) * scale - scale * least * p


def _multilabel(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    x, labels = (t.unsqueeze(0) if t.ndim == 1 else t for t in (input, target))
    valid = (labels >= 0).cast("int64").cumprod(-1) > 0
    safe = valid.where(labels, 0)
    member = ((safe.unsqueeze(-1) == Tensor.arange(x.shape[-1], device=x.device)) & valid.unsqueeze(-1)).any(-2)
    gaps = (1 - (x.gather(-1, safe).unsqueeze(-1) - x.unsqueeze(-2))).relu()
    each = ((valid.unsqueeze(-1) & ~member.unsqueeze(-2)).where(gaps, 0.0)).sum((-1, -2)) / x.shape[-1]
    each = each.reshape(()) if input.ndim == 1 else each
    found: Tensor = each.mean() if reduction == "mean" else each.sum() if reduction == "sum" else each
    return found


for _name, _function in ROWS.items():
    _function.__name__ = _function.__qualname__ = _name
    _function.__doc__ = f"Return PyTorch's `{_name}`."
