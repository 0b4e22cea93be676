"""The table of ATen operators: name -> function of tensors of the frontend, with the operator's arguments.

A name is that of an overload ("max.dim"), or of all overloads without a row of their own ("max"). Operators
without a row are decomposed by PyTorch into ones that have one; what remains is refused. `graph` casts each
result to the dtype that PyTorch inferred, and compares its shape.

Functions of `CREATED` have no tensors as arguments, and are given `dtype` and `device`. Those of `DRAWN` are
random: PyTorch draws their values before each launch with its own generator, so that `torch.manual_seed`
holds and values equal those without compilation; the function is given the values as its last argument.

Not here: longer functions (`functions`), and how the table is used (`graph`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from frontend.ops.elementwise import chosen
from frontend.ops.resizing import binned
from frontend.tensor import Tensor
from frontend.torch_compile import functions as f
from frontend.torch_compile.memory import dtype_of

_METHODS: Final = (
    "abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos "
    "cosh digamma eq erf erfc erfinv exp exp2 expm1 floor fmod ge gt hardswish hypot isinf isnan le "
    "lgamma log log10 log1p log2 logical_and logical_not logical_or logical_xor lt maximum minimum mish "
    "mm bmm mul ne neg permute pow reciprocal relu remainder round rsqrt sigmoid sign silu sin sinh sqrt "
    "square tan tanh transpose trunc unsqueeze expand repeat flip select tril triu diagonal roll split "
    "split_with_sizes unbind gather scatter scatter_add scatter_reduce index_add histc argmax argmin "
    "cumprod median nan_to_num masked_fill slice_scatter select_scatter index_select leaky_relu logit topk "
    "hardsigmoid hardtanh mv dot t clamp gelu ones_like sort squeeze copysign fmax fmin signbit gcd lcm "
    "nextafter cummax cummin logcumsumexp heaviside xlogy logaddexp index_reduce diagonal_scatter "
    "lerp "
)
"""Operators that are methods of `Tensor` with the same arguments."""


CREATED: Final[dict[str, Callable[..., Any]]] = {
    "full": Tensor.full,
    "scalar_tensor": lambda value, **how: Tensor.full((), value, **how),
    "ones": lambda size, **how: Tensor.full(size, 1, **how),
    **dict.fromkeys(
        ("zeros", "empty", "empty_strided", "empty_permuted"),
        lambda size, *_, **how: Tensor.full(size, 0, **how),
    ),
    "arange": lambda *bounds, **how: Tensor.arange(*(bounds if len(bounds) > 1 else (0, *bounds)), **how),
}

DRAWN: Final[dict[str, Callable[..., Any]]] = {
    "native_dropout": lambda out, _x, p, train: f.kept_mask(out[0], p if train else 0.0),
    **dict.fromkeys(("rand", "rand_like"), lambda out, *_, **__: f.place(out).uniform_()),
    **dict.fromkeys(("randn", "randn_like"), lambda out, *_, **__: f.place(out).normal_()),
    "prims.normal": lambda out, *_, mean, std, **__: f.place(out).normal_(mean, std),
    "normal_functional": lambda out, _x, *how, **names: f.place(out).normal_(*how, **names),
    "randperm": lambda out, *_: torch.randperm(out.shape[0], dtype=out.dtype),
    **dict.fromkeys(("randint", "randint.low"), lambda out, *how: f.place(out).random_(*(0, *how)[-3:-1])),
    "randint_like": lambda out, _x, *limits: f.place(out).random_(*(0, *limits)[-2:]),
    "bernoulli.p": lambda out, _x, *how, **names: f.place(out).bernoulli_(*how, **names),
    **{
        name: lambda out, _x, *how, _name=f"{name}_", **names: getattr(f.place(out), _name)(*how, **names)
        for name in ("uniform", "exponential", "geometric", "cauchy", "log_normal")
    },
}

TABLE: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(Tensor, name) for name in _METHODS.split()},
    "where": chosen,
    **CREATED,
    **dict.fromkeys(DRAWN, lambda *every, **_: every[-1]),
    "native_dropout": f.native_dropout,
    "add": lambda x, y, alpha=1: f.tensor(x, y) + f.scaled(y, alpha),
    "sub": lambda x, y, alpha=1: f.tensor(x, y) - f.scaled(y, alpha),
    "rsub": lambda x, y, alpha=1: y - f.scaled(x, alpha),
    **dict.fromkeys(
        ("div", "true_divide"),
        lambda x, y, rounding_mode=None: f.tensor(x, y).div(y, rounding_mode=rounding_mode),
    ),
    "pow.Scalar": lambda x, y: x**y,
    "remainder.Scalar_Tensor": lambda x, y: x % y,
    "__lshift__": Tensor.lshift,
    "__rshift__": Tensor.rshift,
    **dict.fromkeys(("fill", "full_like"), f.filled),
    **dict.fromkeys(("zeros_like", "empty_like"), Tensor.zeros_like),
    "copy": lambda x, y: y.cast(x.dtype).expand(x.shape),
    **dict.fromkeys(
        ("_to_copy", "clone", "alias", "detach", "lift", "lift_fresh", "lift_fresh_copy"), lambda x, **_: x
    ),
    "prims.fma": lambda x, y, z: x * y + z,
    "prims.convert_element_type": lambda x, dtype: x.cast(dtype_of(dtype)),
    "view": lambda x, shape: x.reshape(shape),
    "view.dtype": lambda x, dtype: x.bitcast(dtype_of(dtype)),
    **dict.fromkeys(("_unsafe_view", "reshape"), lambda x, shape: x.reshape(shape)),
    "as_strided": f.strided,
    "as_strided_scatter": lambda x, source, *at, seen: f.strided(x, *at, source=source, seen=seen),
    "sym_size.int": lambda x, axis: x.shape[axis],
    "sym_numel": lambda x: math.prod(x.shape),
    "squeeze.dim": lambda x, axis: f.squeezed(x, [axis]),
    "squeeze.dims": f.squeezed,
    "slice": f.sliced,
    "cat": f.joined,
    "stack": lambda tensors, axis=0: Tensor.stack(tensors, axis=axis),
    "constant_pad_nd": f.padded,
    "index": f.indexed,
    "_unsafe_index": f.indexed,
    "index_put": f.stored_at,
    "_unsafe_index_put": f.stored_at,
    "embedding": lambda weight, ids, *_: weight[ids],
    "embedding_dense_backward": f.embedding_backward,
    **{name: f.reduced(name) for name in ("sum", "mean", "prod", "any", "all", "amax", "amin")},
    "max": Tensor.amax,
    "min": Tensor.amin,
    "max.dim": lambda x, axis, keepdim=False: (x.amax(axis, keepdim), x.argmax(axis, keepdim)),
    "min.dim": lambda x, axis, keepdim=False: (x.amin(axis, keepdim), x.argmin(axis, keepdim)),
    "var.correction": lambda x, axes=None, **how: x.var(f.axes(axes), **how),
    "var_mean.correction": lambda x, axes=None, **how: (
        x.var(f.axes(axes), **how),
        x.mean(f.axes(axes), how.get("keepdim", False)),
    ),
    "cumsum": lambda x, axis: x.cumsum(axis) if x.shape else x,
    "sort.stable": lambda x, dim=-1, descending=False, **_: x.sort(dim, descending),
    "_softmax": lambda x, axis, _half: x.softmax(axis),
    "_log_softmax": lambda x, axis, _half: x.log_softmax(axis),
    "addmm": f.addmm,
    "addcmul": lambda x, y, z, value=1: x + f.scaled(y * z, value),
    "addcdiv": lambda x, y, z, value=1: x + f.scaled(y / z, value),
    "linalg_vector_norm": lambda x, order=2, over=None, keepdim=False: x.norm(order, f.axes(over), keepdim),
    "_foreach_norm.Scalar": f.each(lambda x, order=2: x.norm(order)),
    "_foreach_pow.ScalarAndTensor": f.each(lambda x, y: x**y),
    "transformers.grouped_mm_fallback": f.grouped,
    "transformers.grouped_mm_fallback_backward": lambda x, weights, ends, grad: f.gradients(
        lambda a, b: f.grouped(a, b, ends), grad, x, weights
    ),
    "convolution": f.convolution,
    "convolution_backward": f.convolution_backward,
    "max_pool2d_with_indices": f.max_pool(2),
    "max_pool3d_with_indices": f.max_pool(3),
    "max_pool2d_with_indices_backward": f.max_pool_backward(2),
    "max_pool3d_with_indices_backward": f.max_pool_backward(3),
    **{f"avg_pool{n}d": f.avg_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d_backward": f.avg_pool_backward(n) for n in (2, 3)},
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), lambda x, n: binned(x, n, "mean")),
    **dict.fromkeys(("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"), f.adaptive_backward),
    "native_layer_norm": f.layer_norm,
    "_transformer_encoder_layer_fwd": f.encoder_layer,
    "_scaled_dot_product_flash_attention_for_cpu": f.attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": f.attention_backward,
}
"""Name of an operator -> function. Random ones are called with their drawn values."""

CHECKS: Final = frozenset({"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size"})
"""Operators without a result that only check what TorchDynamo guards."""


def row(target: Any, table: dict[str, Callable[..., Any]] = TABLE) -> Callable[..., Any] | None:
    """Return the function of an operator, an `OpOverload`; None: the table has none."""
    name = f.name_of(target)
    short = name.partition(".")[0]
    one = table.get(short.removeprefix("_foreach_")) if short.startswith("_foreach_") else None
    return table.get(name) or (f.each(one) if one else table.get(short))
