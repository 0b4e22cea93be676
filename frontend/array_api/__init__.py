"""The array API standard (2024.12): its functions and names, on tensors.

    from frontend import array_api as xp
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    xp.mean(x, axis=0), xp.linalg.inv(x)

Its arrays are `Tensor`s, and its functions raise what the methods of `Tensor` raise: `UsageError` and its
subclasses. Two arrays promote by dtype alone, also those of shape (). docs/coverage.md lists what is missing,
with the reasons.

Not here: PyTorch's functions, which are methods of `frontend.Tensor`. Next: `rows`, the table of functions.
"""

# ruff: noqa: I001, A004 - lists of names stand in rows; the standard's names

from __future__ import annotations

import math
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any, Final

from compiler.dtype import dtypes as _dtypes
from frontend.arguments.aliases import answer_module as _answer_module
from frontend.array_api import fft, linalg
from frontend.array_api.creation import asarray, eye, from_dlpack, linspace
from frontend.array_api.data_types import Info, astype, can_cast, finfo, iinfo, isdtype, result_type
from frontend.array_api.elementwise import clip, floor_divide, real, remainder, where
from frontend.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from frontend.array_api.manipulation import concat, repeat, reshape, roll, squeeze, stack, take
from frontend.array_api.rows import functions as _functions
from frontend.array_api.statistics import (
    count_nonzero, cumulative_prod, cumulative_sum, nonzero, prod, searchsorted, sum, unique_all,
    unique_counts, unique_inverse,
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

_ROWS: Final = _functions()
globals().update(_ROWS)
__all__ = [  # noqa: PLE0604 - the names of rows are texts
    *_ROWS, "__array_api_version__", "__array_namespace_info__", "asarray", "astype", "bool", "can_cast",
    "clip", "concat", "count_nonzero", "cumulative_prod", "cumulative_sum", "e", "eye", "fft", "finfo",
    "float32", "float64", "floor_divide", "from_dlpack", "iinfo", "inf", "int8", "int16", "int32", "int64",
    "isdtype", "linalg", "linspace", "matmul", "matrix_transpose", "nan", "newaxis", "nonzero", "pi", "prod",
    "real", "remainder", "repeat", "reshape", "result_type", "roll", "searchsorted", "squeeze", "stack",
    "sum", "take", "tensordot", "uint8", "uint16", "uint32", "uint64", "unique_all", "unique_counts",
    "unique_inverse", "vecdot", "where",
]  # fmt: skip

_answer_module(globals(), __name__)

if _TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
