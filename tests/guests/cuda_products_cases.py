"""Cases of products in the manner of CUTLASS, and of the synchronisation that such kernels use.

Not here: the kernels (`tests/guests/cuda_products.cu`), what a case is (`tests.guests.cuda_cases`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.guests.cases import Data, rounded
from tests.guests.cuda_cases import CudaCase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Made = tuple[Mapping[str, Any], Mapping[str, Any]]


def _floats(*shape: int) -> Data:
    return Data(np.zeros(shape, np.float32))


def _product(size: tuple[int, int, int], slices: int, kind: str) -> Callable[[np.random.Generator], Made]:
    def make(r: np.random.Generator) -> Made:
        m, n, k = size
        a, b = (rounded(r.standard_normal((rows, k)).astype(np.float32), kind) for rows in (m, n))
        given: dict[str, Any] = {
            "m": m,
            "n": n,
            "k": k,
            "slices": slices,
            "a": Data(a, kind),
            "b": Data(b, kind),
        }
        given |= {"c": _floats(m, n), "locks": Data(np.zeros(64, np.int32))}
        return given, {"c": a.astype(np.float64) @ b.T}

    return make


def _tile(r: np.random.Generator) -> Made:
    a, b = (rounded(r.standard_normal((64, 96)).astype(np.float32), "float16") for _ in range(2))
    return {"k": 96, "a": Data(a, "float16"), "b": Data(b, "float16"), "c": _floats(64, 64)}, {
        "c": a.astype(np.float64) @ b.T
    }


def _stream(r: np.random.Generator) -> Made:
    a, b = r.standard_normal((48, 80)).astype(np.float32), r.standard_normal((80, 48)).astype(np.float32)
    given = {"n": 48, "k": 80, "a": Data(a), "b": Data(b), "c": _floats(48, 48), "parts": _floats(48, 48)}
    return given | {"arrived": Data(np.zeros(9, np.int32))}, {"c": a.astype(np.float64) @ b}


def _semaphores(_: np.random.Generator) -> Made:
    return {"out": Data(np.full(2, -1, np.int32))}, {"out": np.array([1, 0])}


def _turns(_: np.random.Generator) -> Made:
    out = [1]
    for _step in range(5):
        out.append(out[-1] * 3 + 1)
    return {"turn": Data(np.zeros(1, np.int32)), "out": Data(np.zeros(6, np.int32))}, {"out": np.array(out)}


def _jacobi(r: np.random.Generator) -> Made:
    x = r.standard_normal(500).astype(np.float32)
    y = x.astype(np.float64)
    for _step in range(4):
        y = (np.roll(y, 1) + 2 * y + np.roll(y, -1)) / 4
    return {"n": 500, "rounds": 4, "x": Data(x), "y": _floats(500)}, {"x": y}


def _turned(r: np.random.Generator) -> Made:
    x = r.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)  # four matrices of 8 x 8
    return {"x": Data(x.view(np.uint32)), "out": Data(np.zeros((4, 8, 4), np.uint32))}, {
        "out": np.ascontiguousarray(x.transpose(0, 2, 1)).view(np.uint32)
    }


C = CudaCase
CASES: Final = (
    C("cutlass_f16", _product((128, 64, 160), 2, "float16"), (2, 1, 2), (128,), 1e-5, shared=49152),
    C("cutlass_simt", _product((40, 70, 50), 1, "float32"), (2, 2, 1), (64,), 1e-5, shared=16384),
    C("cute_f16", _tile, (1,), (128,), 1e-5),
    C("stream_k", _stream, (4,), (256,), 1e-5),
    C("semaphores", _semaphores, (1,), (64,)),
    C("atomic_turns", _turns, (6,), (32,)),
    C("grid_jacobi", _jacobi, (4,), (64,), 1e-6, cooperative=True),
    C("stmatrix_turned", _turned, (1,), (32,), only=("sm_90a", "sm_120a")),
)
"""Every kernel of the file."""
