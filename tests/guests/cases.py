"""Cases of the Triton kernels: inputs, grid, constants, and the results that NumPy expects.

Triton is not needed here. Not here: the kernels (`tests/guests/triton_kernels.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from interop import elements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Array = np.ndarray[Any, Any]
Value: TypeAlias = "Data | Pointers | int | float"


@dataclass(frozen=True, slots=True)
class Data:
    """One array argument: its values, and a type that NumPy may lack."""

    values: Array
    dtype: str = ""
    """Element type; empty: that of `values`."""

    @property
    def kind(self) -> Any:
        """The element type as `interop.elements` resolves it."""
        return elements.resolve(self.dtype or self.values.dtype)


@dataclass(frozen=True, slots=True)
class Pointers:
    """An array argument of the 64-bit addresses of other arrays of the same run."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments of one launch, by parameter, and the arrays expected after it.

    Arrays that no parameter names are those of `Pointers`.
    """

    values: Mapping[str, Value]
    expected: Mapping[str, Array]
    grid: tuple[int, int, int]
    tolerance: float = 0.0
    """Largest absolute difference, in units of the largest expected magnitude; 0: exact."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel with its constants and sizes."""

    name: str
    kernel: str
    make: Callable[[np.random.Generator], Run]
    constants: Mapping[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 2
    full: bool = False
    """Sizes of a real workload, for hardware."""


def placed(run: Run, place: Callable[[Array, Any], Any]) -> dict[str, Any]:
    """Return the values of a run, with each array where `place` puts it; it takes values and element type."""
    out: dict[str, Any] = {
        name: place(one.values, one.kind) if isinstance(one, Data) else one
        for name, one in run.values.items()
    }
    for name, one in run.values.items():
        if isinstance(one, Pointers):
            addresses = np.array([out[each].data_ptr() for each in one.names], np.int64)
            out[name] = place(addresses, elements.resolve(addresses.dtype))
    return out


def kernel_of(case: Case) -> Any:
    """Return the `@triton.jit` function of a case. Raises `ImportError` where Triton is not installed."""
    return getattr(import_module("tests.guests.triton_kernels"), case.kernel)


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def rounded(values: Array, dtype: str) -> Array:
    """Return `values` rounded to an element type, as float32."""
    kind = elements.resolve(dtype)
    return elements.decode(elements.encode(values, kind), kind).astype(np.float32)


def add(n: int, *, full: bool = False) -> Case:
    """Tutorial 01."""

    def make(rng: np.random.Generator) -> Run:
        x, y = _normal(rng, n), _normal(rng, n)
        values: dict[str, Value] = {"x": Data(x), "y": Data(y), "out": Data(np.zeros(n, np.float32)), "n": n}
        return Run(values, {"out": x + y}, (-(-n // 1024), 1, 1))

    return Case("vector_add", "vector_add", make, {"BLOCK": 1024}, full=full)


def softmax(rows: int, n: int, *, full: bool = False) -> Case:
    """Tutorial 02."""

    def make(rng: np.random.Generator) -> Run:
        x = _normal(rng, rows, n)
        raised = np.exp(x - x.max(1, keepdims=True))
        values: dict[str, Value] = {"out": Data(np.zeros_like(x)), "x": Data(x), "row_stride": n, "n": n}
        return Run(values, {"out": raised / raised.sum(1, keepdims=True)}, (rows, 1, 1), 1e-6)

    return Case("softmax", "softmax", make, {"BLOCK": 1 << (n - 1).bit_length()}, full=full)


def matmul(
    shape: tuple[int, int, int],
    tile: tuple[int, int, int],
    dtype: str,
    *,
    stages: int = 2,
    full: bool = False,
) -> Case:
    """Tutorial 03, in float16, bfloat16 and 8-bit floats."""
    m, n, k = shape
    bm, bn, bk = tile
    result = "float16" if dtype.startswith("float8") else dtype

    def make(rng: np.random.Generator) -> Run:
        a, b = rounded(_normal(rng, m, k), dtype), rounded(_normal(rng, k, n), dtype)
        values: dict[str, Value] = {
            "a": Data(a, dtype), "b": Data(b, dtype), "c": Data(np.zeros((m, n), np.float32), result),
            "M": m, "N": n, "K": k, "a_row": k, "b_row": n, "c_row": n,
        }  # fmt: skip
        return Run(
            values, {"c": a @ b}, (-(-m // bm) * -(-n // bn), 1, 1), 4e-3 if result == "bfloat16" else 1e-3
        )

    constants = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 4}
    return Case(f"matmul_{dtype}_{stages}", "matmul", make, constants, stages=stages, full=full)


def layer_norm(rows: int, n: int, *, full: bool = False) -> Case:
    """Tutorial 05, forward."""

    def make(rng: np.random.Generator) -> Run:
        x, w, b = _normal(rng, rows, n), _normal(rng, n), _normal(rng, n)
        mean = x.mean(1, dtype=np.float64)
        scale = 1 / np.sqrt(x.var(1, dtype=np.float64) + 1e-5)
        out = (x - mean[:, None]) * scale[:, None] * w + b
        zeros = np.zeros(rows, np.float32)
        values: dict[str, Value] = {
            "x": Data(x), "out": Data(np.zeros_like(x)), "weight": Data(w), "bias": Data(b),
            "mean_out": Data(zeros), "scale_out": Data(zeros), "stride": n, "n": n, "eps": 1e-5,
        }  # fmt: skip
        expected = {"out": out, "mean_out": mean, "scale_out": scale}
        return Run(values, expected, (rows, 1, 1), 1e-5)

    return Case("layer_norm", "layer_norm", make, {"BLOCK": 1024 if full else 256}, full=full)


def layer_norm_dx(rows: int, n: int, groups: int, *, full: bool = False) -> Case:
    """Tutorial 05, backward: partial sums of the weights' gradients under a spin lock."""

    def make(rng: np.random.Generator) -> Run:
        x, dy, w = _normal(rng, rows, n), _normal(rng, rows, n), _normal(rng, n)
        mean, scale = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
        hat, wide = (x - mean[:, None]) * scale[:, None], w * dy
        first, second = (hat * wide).mean(1, keepdims=True), wide.mean(1, keepdims=True)
        dw = np.stack([(dy * hat)[g::groups].sum(0) for g in range(groups)])
        db = np.stack([dy[g::groups].sum(0) for g in range(groups)])
        zeros = np.zeros((groups, n), np.float32)
        values: dict[str, Value] = {
            "dx": Data(np.zeros_like(x)), "dy": Data(dy), "dw": Data(zeros), "db": Data(zeros), "x": Data(x),
            "weight": Data(w), "mean_in": Data(mean), "scale_in": Data(scale.astype(np.float32)),
            "lock": Data(np.zeros(2 * groups, np.int32)), "stride": n, "n": n,
        }  # fmt: skip
        expected = {"dx": (wide - hat * first - second) * scale[:, None], "dw": dw, "db": db}
        return Run(values, expected, (rows, 1, 1), 1e-5)

    constants = {"GROUP": groups, "BLOCK": 1 << (n - 1).bit_length()}
    return Case("layer_norm_dx", "layer_norm_dx", make, constants, full=full)


def attention(
    heads: int, rows: int, depth: int, *, causal: bool, dtype: str = "float16", full: bool = False
) -> Case:
    """Tutorial 06, forward."""
    block = 128 if full else 64

    def make(rng: np.random.Generator) -> Run:
        q, k, v = (rounded(_normal(rng, heads, rows, depth), dtype) for _ in range(3))
        scale = depth**-0.5
        score = q @ k.transpose(0, 2, 1) * scale
        if causal:
            score = np.where(np.tri(rows, dtype=bool), score, -np.inf)
        chance = np.exp(score - score.max(-1, keepdims=True))
        out = chance / chance.sum(-1, keepdims=True) @ v
        values: dict[str, Value] = {
            "q": Data(q, dtype), "k": Data(k, dtype), "v": Data(v, dtype),
            "out": Data(np.zeros_like(q), dtype), "scale": scale, "rows": rows,
        }  # fmt: skip
        return Run(values, {"out": out}, (rows // block, heads, 1), 8e-3 if dtype == "bfloat16" else 2e-3)

    constants = {"CAUSAL": causal, "D": depth, "BM": block, "BN": 64 if full else 32}
    return Case(f"attention_{'causal_' if causal else ''}{dtype}", "attention", make, constants, full=full)


def grouped(shapes: Sequence[tuple[int, int, int]], programs: int) -> Case:
    """Tutorial 08: products of several sizes in one launch, by arrays of pointers."""

    def make(rng: np.random.Generator) -> Run:
        values: dict[str, Value] = {}
        expected: dict[str, Array] = {}
        for g, (m, n, k) in enumerate(shapes):
            a, b = rounded(_normal(rng, m, k), "float16"), rounded(_normal(rng, k, n), "float16")
            values[f"a{g}"], values[f"b{g}"] = Data(a, "float16"), Data(b, "float16")
            values[f"c{g}"] = Data(np.zeros((m, n), np.float32), "float16")
            expected[f"c{g}"] = a @ b
        for name in "abc":
            values[f"{name}_list"] = Pointers(tuple(f"{name}{g}" for g in range(len(shapes))))
        values["sizes"] = Data(np.array(shapes, np.int32))
        values["strides"] = Data(np.array([(k, n, n) for _, n, k in shapes], np.int32))
        values["count"] = len(shapes)
        return Run(values, expected, (programs, 1, 1), 1e-3)

    constants = {"SMS": programs, "BM": 32, "BN": 32, "BK": 16}
    return Case("grouped_gemm", "grouped_gemm", make, constants)


def persistent(
    shape: tuple[int, int, int], programs: int, dtype: str = "float16", *, full: bool = False
) -> Case:
    """Tutorial 09, with tensor descriptors that the kernel makes."""
    m, n, k = shape
    bm, bn, bk = (128, 128, 64) if full else (64, 64, 32)

    def make(rng: np.random.Generator) -> Run:
        a, b = rounded(_normal(rng, m, k), dtype), rounded(_normal(rng, n, k), dtype)
        values: dict[str, Value] = {
            "a": Data(a, dtype), "b": Data(b, dtype), "c": Data(np.zeros((m, n), np.float32), dtype),
            "M": m, "N": n, "K": k,
        }  # fmt: skip
        return Run(values, {"c": a @ b.T}, (programs, 1, 1), 4e-3 if dtype == "bfloat16" else 1e-3)

    constants = {"SMS": programs, "BM": bm, "BN": bn, "BK": bk}
    return Case(f"persistent_matmul_{dtype}", "persistent_matmul", make, constants, full=full)


TUTORIALS: Final = (
    add(5000), softmax(8, 781), matmul((128, 96, 80), (64, 32, 32), "float16"),
    matmul((64, 64, 64), (64, 32, 32), "bfloat16", stages=3), layer_norm(4, 600), layer_norm_dx(6, 200, 2),
    attention(2, 128, 64, causal=False), attention(1, 128, 32, causal=True, dtype="bfloat16"),
    persistent((128, 128, 64), 3), grouped(((64, 32, 32), (32, 96, 48), (32, 32, 16)), 3),
)  # fmt: skip
"""The tutorials' kernels, sized for emulated GPUs."""
FULL: Final = (
    add(1 << 26, full=True), softmax(4096, 4096, full=True),
    matmul((4096, 4096, 4096), (128, 128, 64), "float16", stages=3, full=True),
    matmul((4096, 4096, 4096), (128, 128, 64), "bfloat16", stages=3, full=True),
    layer_norm(4096, 4096, full=True), layer_norm_dx(4096, 4096, 64, full=True),
    attention(16, 4096, 64, causal=False, full=True),
    attention(16, 4096, 64, causal=True, full=True), persistent((4096, 4096, 4096), 132, full=True),
)  # fmt: skip
"""The same kernels with sizes for a large GPU."""
