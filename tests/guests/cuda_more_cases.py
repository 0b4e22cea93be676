"""Cases of more CUDA C++ kernels: printed text, clusters, products by inline PTX.

Not here: the kernels (`tests/guests/cuda_more.cu`), what a case is (`tests.guests.cuda_cases`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from interop import elements
from tests.guests.cases import Data, rounded
from tests.guests.cuda_cases import CudaCase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Made = tuple[Mapping[str, Any], Mapping[str, Any]]

_CLUSTERS: Final = ("sm_90a", "sm_120a")
_FP8: Final = ("sm_89", "sm_90a", "sm_120a")
_ROWS: Final = np.linspace(-3, 3, 40).astype(np.float32)


def _printed(_: np.random.Generator) -> Made:
    return {"n": 40, "x": Data(_ROWS)}, {}


def _kinds(_: np.random.Generator) -> Made:
    return {"x": Data(np.array([-42, 0xBEEF, 3], np.int32)), "factor": 1234.5}, {}


def _histogram(r: np.random.Generator) -> Made:
    data = r.integers(0, 1 << 30, 1000).astype(np.uint32)
    return {"n": 1000, "data": Data(data), "out": Data(np.zeros(256, np.uint32))}, {
        "out": np.bincount(data & 255, minlength=256)
    }


def _ring(r: np.random.Generator) -> Made:
    x = r.integers(-99, 99, (2, 4, 32)).astype(np.float32)
    return {"in": Data(x), "out": Data(np.zeros_like(x))}, {"out": np.repeat(x.sum(1, keepdims=True), 4, 1)}


def _halo(r: np.random.Generator) -> Made:
    x = r.integers(-99, 99, (2, 128)).astype(np.float32)
    p = np.pad(x, ((0, 0), (1, 1)))
    return {"n": 256, "x": Data(x), "out": Data(np.zeros_like(x))}, {"out": p[:, :-2] + x + p[:, 2:]}


def _decoded(_: np.random.Generator) -> Made:
    codes = np.arange(256, dtype=np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0  # not a number
    out = elements.decode(codes, elements.resolve("float8_e4m3fn"))
    return {"x": Data(codes.view(np.uint32)), "out": Data(np.zeros(256, np.float32))}, {"out": out}


def _product(rows: int, k: int, kind: str) -> Callable[[np.random.Generator], Made]:
    def make(r: np.random.Generator) -> Made:
        a, b = (rounded(r.standard_normal((n, k)).astype(np.float32), kind) for n in (rows, 8))
        c = Data(np.zeros((rows, 8), np.float32))
        return {"a": Data(a, kind), "b": Data(b, kind), "c": c}, {"c": a.astype(np.float64) @ b.T}

    return make


C = CudaCase
CASES: Final = (
    C("printf_rows", _printed, (2,), (32,),
      text="".join(f"row {i:3} of 40: {v:+.3f} {'above' if v >= 0 else 'below'}\n"
                   for i, v in enumerate(_ROWS))),
    C("printf_kinds", _kinds, (1,), (32,),
      text="  -42|7     |0000beef|d|1099511627776|1.2345e+03|2469| 99.5%|end\n"),
    C("cluster_histogram", _histogram, (8,), (64,), only=_CLUSTERS),
    C("cluster_ring", _ring, (8,), (32,), shared=128, only=_CLUSTERS, cluster=(4, 1, 1)),
    C("cluster_halo", _halo, (8,), (32,), only=_CLUSTERS, cluster=(4, 1, 1)),
    C("fp8_round_trip", _decoded, (2,), (32,)),
    C("mma_inline", _product(16, 16, "float16"), (1,), (32,), 1e-5),
    C("mma_e4m3", _product(16, 32, "float8_e4m3fn"), (1,), (32,), 1e-3, only=_FP8),
    C("mma_e5m2", _product(16, 32, "float8_e5m2"), (1,), (32,), 1e-3, only=_FP8),
    C("gemm_wgmma", _product(64, 16, "float16"), (1,), (128,), 1e-5, only=("sm_90a",)),
    C("wgmma_e4m3", _product(64, 32, "float8_e4m3fn"), (1,), (128,), 1e-3, only=("sm_90a",)),
)  # fmt: skip
"""Every kernel of the file."""
