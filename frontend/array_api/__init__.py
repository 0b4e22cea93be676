"""The array API standard (2024.12): its functions and names, on tensors.

    from frontend import array_api as xp
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    xp.mean(x, axis=0), xp.linalg.inv(x)

Its arrays are `Tensor`s, and its functions raise what the methods of `Tensor` raise: `UsageError` and its
subclasses. Two arrays promote by dtype alone, also those of shape (). docs/coverage.md lists what is missing,
with the reasons.

Not here: PyTorch's functions, which are methods of `frontend.Tensor`. Next: `creation`, `elementwise`.
"""

# ruff: noqa: I001, A004 - lists of names stand in rows; the standard's names

from __future__ import annotations

import math
from typing import Final

from compiler.dtype import dtypes as _dtypes
from frontend.arguments.aliases import answer_module as _answer_module
from frontend.array_api import fft, linalg
from frontend.array_api.creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, meshgrid, ones,
    ones_like, tril, triu, zeros, zeros_like,
)  # fmt: skip
from frontend.array_api.data_types import Info, astype, can_cast, finfo, iinfo, isdtype, result_type
from frontend.array_api.elementwise import (
    abs, acos, acosh, add, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_invert, bitwise_left_shift,
    bitwise_or, bitwise_right_shift, bitwise_xor, ceil, clip, conj, copysign, cos, cosh, divide, equal, exp,
    expm1, floor, floor_divide, greater, greater_equal, hypot, isfinite, isinf, isnan, less, less_equal, log,
    log1p, log2, log10, logaddexp, logical_and, logical_not, logical_or, logical_xor, maximum, minimum,
    multiply, negative, nextafter, not_equal, positive, pow, real, reciprocal, remainder, round, sign,
    signbit, sin, sinh, sqrt, square, subtract, tan, tanh, trunc, where,
)  # fmt: skip
from frontend.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from frontend.array_api.manipulation import (
    broadcast_arrays, broadcast_shapes, broadcast_to, concat, diff, expand_dims, flip, moveaxis, permute_dims,
    repeat, reshape, roll, squeeze, stack, take, take_along_axis, tile, unstack,
)  # fmt: skip
from frontend.array_api.statistics import (
    all, any, argmax, argmin, argsort, count_nonzero, cumulative_prod, cumulative_sum, isin, max, mean, min,
    nonzero, prod, searchsorted, sort, std, sum, unique_all, unique_counts, unique_inverse, unique_values,
    var,
)  # fmt: skip

__array_namespace_info__ = Info
__array_api_version__: Final = "2024.12"
bool = _dtypes.bool
int8, int16, int32, int64 = _dtypes.int8, _dtypes.int16, _dtypes.int32, _dtypes.int64
uint8, uint16, uint32, uint64 = _dtypes.uint8, _dtypes.uint16, _dtypes.uint32, _dtypes.uint64
float32, float64 = _dtypes.float32, _dtypes.float64
e: Final = math.e
pi: Final = math.pi
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add", "all", "any",
    "arange", "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "bool", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "ceil", "clip", "concat",
    "conj", "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "divide",
    "e", "empty", "empty_like", "equal", "exp", "expand_dims", "expm1", "eye", "fft", "finfo", "flip",
    "float32", "float64", "floor", "floor_divide", "from_dlpack", "full", "full_like", "greater",
    "greater_equal", "hypot", "iinfo", "inf", "int8", "int16", "int32", "int64", "isdtype", "isfinite",
    "isin", "isinf", "isnan", "less", "less_equal", "linalg", "linspace", "log", "log1p", "log2", "log10",
    "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "matrix_transpose",
    "max", "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan", "negative",
    "newaxis", "nextafter", "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "pi", "positive",
    "pow", "prod", "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round",
    "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze", "stack", "std",
    "subtract", "sum", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril", "triu", "trunc",
    "uint8", "uint16", "uint32", "uint64", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "unstack", "var", "vecdot", "where", "zeros", "zeros_like",
]  # fmt: skip

_answer_module(globals(), __name__)
