"""Cases of the CUDA C++ kernels: inputs, launch shapes, and the results that NumPy expects.

Values are in the order of the kernel's parameters. Not here: the kernels (`tests/guests/cuda_kernels.cu`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from interop import elements
from tests.guests.cases import Data, rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Array = np.ndarray[Any, Any]
Given = "dict[str, Data | int | float | bytes]"


@dataclass(frozen=True, slots=True)
class CudaCase:
    """One kernel of the file, named as the case."""

    name: str
    make: Callable[[np.random.Generator], tuple[Mapping[str, Any], Mapping[str, Any]]]
    grid: tuple[int, ...]
    threads: tuple[int, ...]
    tolerance: float = 0.0
    """Largest absolute difference, in units of the largest expected magnitude; 0: exact."""
    shared: int = 0
    only: tuple[str, ...] = ()
    """The targets that have it; empty: all."""
    cluster: tuple[int, int, int] | None = None
    """Workgroups of a cluster; None: what the kernel requires, if anything."""
    cooperative: bool = False
    """Whether its workgroups wait for each other at a barrier of the grid."""
    text: str = ""
    """What it prints, its lines in any order."""

    def has(self, target: str) -> bool:
        """Return whether a target has it."""
        return target in self.only or not self.only


def _f(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _i(rng: np.random.Generator, *shape: int, low: int = -99, high: int = 100) -> Array:
    return rng.integers(low, high, shape).astype(np.int32)


def _zeros(count: Any, kind: Any = np.int32) -> Data:
    return Data(np.zeros(count, kind))


Made = tuple["Mapping[str, Any]", "Mapping[str, Any]"]


def _saxpy(r: np.random.Generator) -> Made:
    x, y = _f(r, 200), _f(r, 200)
    return {"n": 200, "a": 2.5, "x": Data(x), "y": Data(y)}, {"y": 2.5 * x.astype(float) + y}


def _stride(r: np.random.Generator) -> Made:
    x = _i(r, 300)
    return {"n": 300, "x": Data(x), "out": _zeros(300)}, {"out": 3 * x + 1}


def _shared(r: np.random.Generator) -> Made:
    x = _f(r, 500)
    return {"n": 500, "x": Data(x), "out": _zeros(2, np.float32)}, {
        "out": np.array([x[:256].sum(dtype=float), x[256:].sum(dtype=float)])
    }


def _total(r: np.random.Generator) -> Made:
    x = _i(r, 200)
    return {"n": 200, "x": Data(x), "out": _zeros(1)}, {"out": np.array([x.sum()])}


def _redux(r: np.random.Generator) -> Made:
    x = r.integers(0, 1 << 31, 32).astype(np.uint32)
    return {"x": Data(x), "out": _zeros(3, np.uint32)}, {
        "out": np.array([x.min(), x.max(), np.bitwise_xor.reduce(x)])
    }


def _scan(width: int, first: int) -> Callable[[np.random.Generator], Made]:
    def make(r: np.random.Generator) -> Made:
        x = _i(r, 512 // width, width)
        return {"x": Data(x), "out": _zeros(512)}, {"out": (x.cumsum(1) - first * x).ravel()}

    return make


def _sort(r: np.random.Generator) -> Made:
    x = _f(r, 2, 128)
    return {"x": Data(x), "out": _zeros(256, np.float32)}, {"out": np.sort(x, 1).ravel()}


def _histogram(r: np.random.Generator) -> Made:
    x = r.integers(0, 256, 900).astype(np.uint8)
    return {"n": 900, "x": Data(x), "out": _zeros(64)}, {"out": np.bincount(x & 63, minlength=64)}


def _transpose(r: np.random.Generator) -> Made:
    x = _f(r, 20, 40)
    return {"rows": 20, "columns": 40, "x": Data(x), "out": _zeros((40, 20), np.float32)}, {"out": x.T}


def _stencil(r: np.random.Generator) -> Made:
    x = _i(r, 100).astype(np.float32)
    p = np.pad(x, 1)
    return {"n": 100, "x": Data(x), "out": _zeros(100, np.float32)}, {"out": p[:-2] - 2 * x + p[2:]}


def _spmv(r: np.random.Generator) -> Made:
    dense = _f(r, 40, 30) * (r.random((40, 30)) < 0.2)
    row, column = np.nonzero(dense)
    start = np.concatenate([[0], np.bincount(row, minlength=40).cumsum()]).astype(np.int32)
    x = _f(r, 30)
    return {
        "rows": 40, "start": Data(start), "column": Data(column.astype(np.int32)),
        "value": Data(dense[row, column].astype(np.float32)), "x": Data(x), "out": _zeros(40, np.float32),
    }, {"out": dense @ x}  # fmt: skip


def _gemm(r: np.random.Generator) -> Made:
    a, b = _f(r, 32, 32), _f(r, 32, 32)
    return {"n": 32, "a": Data(a), "b": Data(b), "c": _zeros((32, 32), np.float32)}, {
        "c": a.astype(float) @ b
    }


def _wmma(r: np.random.Generator) -> Made:
    a, b = rounded(_f(r, 32, 32), "float16"), rounded(_f(r, 32, 32), "float16")
    return {"n": 32, "a": Data(a, "float16"), "b": Data(b, "float16"), "c": _zeros((32, 32), np.float32)}, {
        "c": a @ b
    }


def _async(r: np.random.Generator) -> Made:
    x = _i(r, 2, 128)
    return {"x": Data(x), "out": _zeros((2, 128))}, {"out": x[:, ::-1]}


def _pipeline(r: np.random.Generator) -> Made:
    x = _i(r, 5, 64)
    return {"n": 320, "x": Data(x), "out": _zeros(64)}, {"out": x.sum(0)[::-1]}


def _of(values: Array, *functions: Callable[[float], float]) -> Array:
    return np.array([[f(float(v)) for v in values] for f in functions])


def _libm(r: np.random.Generator) -> Made:
    x = r.uniform(-8, 8, 64).astype(np.float32)
    out = _of(
        x, math.sin, math.cos, math.exp, lambda v: math.log(abs(v) + 1), math.tanh, math.erf, math.atan,
        lambda v: math.copysign(abs(v) ** (1 / 3), v), lambda v: math.sqrt(abs(v)),
        lambda v: math.log1p(abs(v)),
        lambda v: math.expm1(v / 8), lambda v: (abs(v) + 0.5) ** 1.7,
    )  # fmt: skip
    return {"x": Data(x), "out": _zeros((12, 64), np.float32)}, {"out": out}


def _libm64(r: np.random.Generator) -> Made:
    x = r.uniform(-5, 5, 64)
    out = _of(
        x, math.sin, math.exp, lambda v: math.log(abs(v) + 1), math.tanh, math.erf,
        lambda v: math.sqrt(abs(v)), lambda v: v / 3.7, lambda v: math.gamma(abs(v) + 1),
    )  # fmt: skip
    return {"x": Data(x), "out": _zeros((8, 64), np.float64)}, {"out": out}


def _intrinsics(r: np.random.Generator) -> Made:
    x = r.integers(0, 1 << 32, 64, dtype=np.uint64)
    bytes_ = [
        [int(v) >> 8 * k & 255 for k in range(4)] + [~int(v) >> 8 * k & 255 for k in range(4)] for v in x
    ]
    text = [f"{int(v):032b}" for v in x]
    out = [
        [t.count("1") for t in text], [len(t) - len(t.lstrip("0")) for t in text],
        [int(t[::-1], 2) for t in text],
        [(t[::-1].find("1") + 1) for t in text],
        [b[1] | b[6] << 8 | b[5] << 16 | b[2] << 24 for b in bytes_],
        [int(v) * 2654435761 >> 32 for v in x], [(int(v) << 7 | int(v) >> 25) & 0xFFFFFFFF for v in x],
        [b[0] * 4 + b[1] * 3 + b[2] * 2 + b[3] + 5 for b in bytes_],
    ]  # fmt: skip
    return {"x": Data(x.astype(np.uint32)), "out": _zeros((8, 64), np.uint32)}, {"out": np.array(out)}


def _votes(r: np.random.Generator) -> Made:
    x = _i(r, 64, low=-2, high=3)
    out = []
    for v in x.reshape(2, 32):
        same = np.array([(v == one).sum() for one in v])
        out.append(same + 100 * (v[0] > 0) + 1000 * (v > 0).any() + 10000 * (v > 0).all())
    return {"x": Data(x), "out": _zeros(64, np.uint32)}, {"out": np.concatenate(out)}


def _barrier_votes(r: np.random.Generator) -> Made:
    x = _i(r, 2, 64)
    p = x > 0
    out = p.sum(1) + 1000 * p.all(1) + 10000 * p.any(1)
    return {"x": Data(x), "out": _zeros((2, 64))}, {"out": np.repeat(out[:, None], 64, 1)}


def _atomics(r: np.random.Generator) -> Made:
    x = _i(r, 100)
    mask = np.bitwise_or.reduce(1 << (x & 15))
    start = np.array([0, 0, 0, -1, 0, 0, 0, 0], np.int32)
    out = np.array(
        [x.sum(), min(0, x.min()), max(0, x.max()), ~mask, mask, np.bitwise_xor.reduce(x), 100, -100]
    )
    return {"n": 100, "x": Data(x), "out": Data(start)}, {"out": out}


def _atomics_float(r: np.random.Generator) -> Made:
    x = r.integers(-8, 9, 64).astype(np.float32)
    return {
        "x": Data(x), "f": _zeros(1, np.float32), "d": _zeros(1, np.float64), "h": _zeros(2, np.float16),
    }, {"f": np.array([x.sum()]), "d": np.array([x.sum()]), "h": np.array([x.sum(), 64])}  # fmt: skip


def _compare(r: np.random.Generator) -> Made:
    x = np.abs(_f(r, 64))
    return {"x": Data(x), "best": _zeros(1, np.float32)}, {"best": np.array([x.max()])}


def _last(r: np.random.Generator) -> Made:
    x = _i(r, 150)
    values = {"n": 150, "x": Data(x), "part": _zeros(5), "count": _zeros(1, np.uint32), "out": _zeros(1)}
    return values, {"out": np.array([x.sum()])}


def _halves(r: np.random.Generator) -> Made:
    x = _f(r, 64).astype(np.float16)
    square = (x * x).astype(np.float16)
    return {"x": Data(x), "out": _zeros(64, np.float16)}, {"out": square + np.sqrt(np.abs(x))}


def _bfloats(r: np.random.Generator) -> Made:
    x = rounded(_f(r, 64), "bfloat16")
    out = Data(np.zeros(64, np.float32), "bfloat16")
    return {"x": Data(x, "bfloat16"), "out": out}, {
        "out": rounded((x.astype(float) ** 2 + 1).astype(np.float32), "bfloat16")
    }


def _fp8(r: np.random.Generator) -> Made:
    x = (20 * _f(r, 64)).astype(np.float32)
    out = np.stack([elements.encode(x, "float8_e4m3fn"), elements.encode(x, "float8_e5m2")])
    return {"x": Data(x), "out": _zeros((2, 64), np.uint8)}, {"out": out}


def _by_value(_: np.random.Generator) -> Made:
    return {"p": struct.pack("<fid", 1.5, 4, 0.25), "out": _zeros(8, np.float32)}, {
        "out": 6.25 + np.arange(8)
    }


def _filter(r: np.random.Generator) -> Made:
    x = _f(r, 100)
    out = np.convolve(x.astype(float), [0.1, 0.2, 0.4, 0.2, 0.1], "same")
    return {"n": 100, "x": Data(x), "out": _zeros(100, np.float32)}, {"out": out}


def _recursion(_: np.random.Generator) -> Made:
    return {"out": _zeros(8)}, {"out": np.array([0, 1, 1, 2, 3, 5, 8, 13])}


def _local(r: np.random.Generator) -> Made:
    x = _i(r, 16)
    t = np.arange(32)
    return {"x": Data(x), "out": _zeros(32)}, {"out": x[t * 7 % 16] * (t + 1)}


def _switch(r: np.random.Generator) -> Made:
    x = _i(r, 64, low=0, high=1000)
    do = [lambda v: v + 7, lambda v: v * 3, lambda v: ~v, lambda v: v >> 2,
          lambda v: v - 100, lambda v: v ^ 0x55,
          lambda v: v * v, lambda v: -v, lambda _: 1]  # fmt: skip
    return {"x": Data(x), "out": _zeros(64)}, {"out": np.array([do[v % 9](v) for v in x.tolist()])}


def _vectors(r: np.random.Generator) -> Made:
    x = _f(r, 32, 4)
    return {"x": Data(x), "out": _zeros((32, 4), np.float32)}, {"out": x[:, ::-1]}


def _mandelbrot(_: np.random.Generator) -> Made:
    at, w = np.arange(256), np.float32(16)
    cr = ((at % 16).astype(np.float32) * np.float32(3) / w - np.float32(2)).astype(np.float32)
    ci = ((at // 16).astype(np.float32) * np.float32(2) / w - np.float32(1)).astype(np.float32)
    r, i, n = np.zeros(256, np.float32), np.zeros(256, np.float32), np.zeros(256, int)
    for _step in range(50):
        on = r * r + i * i < 4
        r, i = np.where(on, r * r - i * i + cr, r), np.where(on, np.float32(2) * r * i + ci, i)
        n += on
    return {"w": 16, "out": _zeros(256)}, {"out": n}


def _nbody(r: np.random.Generator) -> Made:
    p = np.abs(_f(r, 128, 4))
    d = p[None, :, :3].astype(float) - p[:, None, :3]
    force = d * (p[None, :, 3] / ((d**2).sum(-1) + 0.01) ** 1.5)[..., None]
    return {"n": 128, "p": Data(p), "out": _zeros((128, 3), np.float32)}, {"out": force.sum(1)}


def _softmax(r: np.random.Generator) -> Made:
    x = _f(r, 3, 100)
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return {"n": 100, "x": Data(x), "out": _zeros((3, 100), np.float32)}, {"out": e / e.sum(1, keepdims=True)}


def _scoped(_: np.random.Generator) -> Made:
    return {"flag": _zeros(1), "data": _zeros(1), "out": _zeros(1)}, {"out": np.array([43])}


C = CudaCase
CASES: Final = (
    C("saxpy", _saxpy, (4,), (64,), 1e-6), C("grid_stride", _stride, (2,), (64,)),
    C("reduce_shared", _shared, (2,), (256,), 1e-5), C("reduce_shuffle", _total, (4,), (64,)),
    C("reduce_groups", _total, (4,), (64,)), C("reduce_redux", _redux, (1,), (32,)),
    C("scan_block", _scan(256, 0), (2,), (256,)), C("scan_groups", _scan(32, 1), (4,), (128,)),
    C("bitonic_sort", _sort, (2,), (128,)), C("histogram_shared", _histogram, (3,), (128,)),
    C("transpose_tile", _transpose, (3, 2), (16, 16)),
    C("stencil_halo", _stencil, (2,), (64,), shared=4 * 66),
    C("spmv", _spmv, (1,), (64,), 1e-5), C("gemm_tiled", _gemm, (2, 2), (16, 16), 1e-5),
    C("gemm_wmma", _wmma, (2, 2), (32,), 1e-5),
    C("async_copy", _async, (2,), (128,)), C("pipeline_copy", _pipeline, (1,), (64,)),
    C("libm_float", _libm, (1,), (64,), 1e-6), C("libm_double", _libm64, (1,), (64,), 1e-14),
    C("integer_intrinsics", _intrinsics, (1,), (64,)), C("votes", _votes, (1,), (64,)),
    C("barrier_votes", _barrier_votes, (2,), (64,)), C("atomics_integer", _atomics, (2,), (64,)),
    C("atomics_float", _atomics_float, (1,), (64,)), C("compare_loop", _compare, (2,), (32,)),
    C("last_block", _last, (5,), (32,)), C("halves", _halves, (1,), (64,), 1e-3),
    C("bfloats", _bfloats, (1,), (64,)),
    C("to_fp8", _fp8, (1,), (64,)), C("by_value", _by_value, (1,), (8,)),
    C("constant_filter", _filter, (2,), (64,), 1e-6), C("recursion", _recursion, (1,), (8,)),
    C("local_array", _local, (1,), (32,)), C("switch_table", _switch, (1,), (64,)),
    C("vector_loads", _vectors, (1,), (32,)), C("mandelbrot", _mandelbrot, (4,), (64,)),
    C("nbody", _nbody, (2,), (64,), 1e-5), C("softmax_row", _softmax, (3,), (32,), 1e-6),
    C("scoped_atomics", _scoped, (2,), (32,)),
)  # fmt: skip
"""Every kernel of the file."""
