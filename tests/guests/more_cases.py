"""Cases beyond the tutorials: scans, sorts, histograms, stencils, sparse rows, norms, random numbers.

Triton is not needed here. Not here: the tutorials' cases (`tests.guests.cases`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.guests.cases import (
    TUTORIALS,
    Case,
    Data,
    Run,
    Value,
    rounded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Array = np.ndarray[Any, Any]
Made = tuple["dict[str, Value]", "dict[str, Array]"]
_M32: Final = 0xFFFF_FFFF


def case(
    name: str,
    make: Callable[[np.random.Generator], Made],
    constants: Mapping[str, Any],
    grid: tuple[int, ...],
    tolerance: float = 0.0,
    *,
    kernel: str = "",
    warps: int = 4,
) -> Case:
    """Return a case; array arguments that the launch writes first are among the values of `make`."""
    x, y, z = (*grid, 1, 1)[:3]

    def run(rng: np.random.Generator) -> Run:
        values, expected = make(rng)
        return Run(values, expected, (x, y, z), tolerance)

    return Case(name, kernel or name, run, constants, warps)


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _sum_rows(rng: np.random.Generator, rows: int = 4) -> Made:
    x = _normal(rng, rows, 300)
    values: dict[str, Value] = {"x": Data(x), "out": Data(np.zeros(rows, np.float32)), "n": 300}
    return values, {"out": x.sum(1, dtype=np.float64)}


def _argmax(rng: np.random.Generator, rows: int = 4) -> Made:
    x = _normal(rng, rows, 300)
    zeros = Data(np.zeros(rows, np.float32)), Data(np.zeros(rows, np.int32))
    values: dict[str, Value] = {"x": Data(x), "best": zeros[0], "place": zeros[1], "n": 300}
    return values, {"best": x.max(1), "place": x.argmax(1)}


def _cumsum(rng: np.random.Generator, rows: int = 2) -> Made:
    x = rng.integers(-9, 9, (rows, 256)).astype(np.int32)
    return {"x": Data(x), "out": Data(np.zeros_like(x))}, {"out": x.cumsum(1)}


def _cumsum_reversed(rng: np.random.Generator, rows: int = 2) -> Made:
    x = rng.integers(-9, 9, (rows, 256)).astype(np.int32)
    return {"x": Data(x), "out": Data(np.zeros_like(x))}, {"out": x[:, ::-1].cumsum(1)[:, ::-1]}


def _running(rng: np.random.Generator, rows: int = 2) -> Made:
    x = _normal(rng, rows, 256)
    return {"x": Data(x), "out": Data(np.zeros_like(x))}, {"out": np.maximum.accumulate(x, 1)}


def _sorted(step: int, rows: int = 2) -> Callable[[np.random.Generator], Made]:
    def make(rng: np.random.Generator) -> Made:
        x = _normal(rng, rows, 128)
        return {"x": Data(x), "out": Data(np.zeros_like(x))}, {"out": np.sort(x, 1)[:, ::step]}

    return make


def _histogram(rng: np.random.Generator, n: int = 900) -> Made:
    x = rng.integers(0, 32, n).astype(np.int32)
    values: dict[str, Value] = {"x": Data(x), "out": Data(np.zeros(32, np.int32)), "n": n}
    return values, {"out": np.bincount(x, minlength=32)}


def _scatter(rng: np.random.Generator, n: int = 500) -> Made:
    x, index = rng.integers(-4, 5, n).astype(np.float32), rng.integers(0, 20, n).astype(np.int32)
    out = np.zeros(20, np.float32)
    np.add.at(out, index, x)
    values: dict[str, Value] = {"x": Data(x), "index": Data(index), "out": Data(np.zeros_like(out)), "n": n}
    return values, {"out": out}


def _extremes(rng: np.random.Generator, n: int = 500) -> Made:
    x = rng.integers(-1000, 1000, n).astype(np.int32)
    zeros = np.zeros(4, np.int32)
    low = np.array([min(0, x[i::4].min()) for i in range(4)])
    high = np.array([max(0, x[i::4].max()) for i in range(4)])
    values: dict[str, Value] = {"x": Data(x), "low": Data(zeros), "high": Data(zeros), "n": n}
    return values, {"low": low, "high": high}


def _transpose(rng: np.random.Generator, m: int = 50, n: int = 70) -> Made:
    x = _normal(rng, m, n)
    values: dict[str, Value] = {"x": Data(x), "out": Data(np.zeros((n, m), np.float32)), "M": m, "N": n}
    return values, {"out": x.T}


def _stencil(rng: np.random.Generator, n: int = 40) -> Made:
    x = _normal(rng, n, n)
    out = x.copy()
    out[1:-1, 1:-1] = (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1]) * np.float32(0.25)
    return {"x": Data(x), "out": Data(np.zeros_like(x)), "H": n, "W": n}, {"out": out}


def _sparse(rng: np.random.Generator, rows: int = 12) -> Made:
    dense = _normal(rng, rows, 50) * (rng.random((rows, 50)) < 0.3)
    row, column = np.nonzero(dense)
    start = np.concatenate([[0], np.bincount(row, minlength=rows).cumsum()]).astype(np.int32)
    x = _normal(rng, 50)
    values: dict[str, Value] = {
        "start": Data(start), "column": Data(column.astype(np.int32)),
        "value": Data(dense[row, column].astype(np.float32)), "x": Data(x),
        "out": Data(np.zeros(rows, np.float32)),
    }  # fmt: skip
    return values, {"out": dense @ x}


def _gather_rows(rng: np.random.Generator, rows: int = 6) -> Made:
    table, index = _normal(rng, 20, 50), rng.integers(0, 20, rows).astype(np.int64)
    out = np.zeros((rows, 50), np.float32)
    return {"table": Data(table), "index": Data(index), "out": Data(out), "n": 50}, {"out": table[index]}


def _gather_in_block(rng: np.random.Generator) -> Made:
    x, index = _normal(rng, 128), rng.integers(0, 128, 128).astype(np.int32)
    return {"x": Data(x), "index": Data(index), "out": Data(np.zeros_like(x))}, {"out": x[index]}


def _gelu(rng: np.random.Generator, n: int = 512) -> Made:
    x = _normal(rng, n)
    erf = np.array([math.erf(v * math.sqrt(0.5)) for v in x.astype(np.float64)])
    return {"x": Data(x), "out": Data(np.zeros_like(x))}, {"out": x * 0.5 * (1 + erf)}


def _elementary(rng: np.random.Generator) -> Made:
    x = rng.uniform(0.1, 3.0, 256).astype(np.float32)
    v = x.astype(np.float64)
    out = [np.exp(v), np.log(v), np.sin(v), np.cos(v), np.sqrt(v), 1 / np.sqrt(v), np.exp2(v), np.log2(v)]
    return {"x": Data(x), "out": Data(np.zeros((8, 256), np.float32))}, {"out": np.stack(out)}


def _rounding(rng: np.random.Generator) -> Made:
    x = (3 * _normal(rng, 256)).astype(np.float32)
    out = [np.floor(x), np.ceil(x), np.abs(x), np.clip(x, -1, 1), np.minimum(x, 0.5)]
    return {"x": Data(x), "out": Data(np.zeros((5, 256), np.float32))}, {"out": np.stack(out)}


def _division(rng: np.random.Generator) -> Made:
    x = rng.integers(-1000, 1000, 128).astype(np.int32)
    y = (rng.integers(1, 30, 128) * rng.choice([-1, 1], 128)).astype(np.int32)
    whole = np.trunc(x / y)
    values: dict[str, Value] = {"x": Data(x), "y": Data(y), "out": Data(np.zeros((2, 128), np.int32))}
    return values, {"out": np.stack([whole, x - whole * y])}


def _bits(rng: np.random.Generator) -> Made:
    x, y = (rng.integers(0, 1 << 32, 128, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    out = [(x & y) ^ (x | ~y), (x << 3) + (x >> 5), (a * b >> 32).astype(np.uint32)]
    values: dict[str, Value] = {"x": Data(x), "y": Data(y), "out": Data(np.zeros((3, 128), np.uint32))}
    return values, {"out": np.stack(out)}


def _philox(_rng: np.random.Generator, n: int = 256) -> Made:
    """Philox 4x32 with 10 rounds (Salmon et al., 2011): the counter is the offset, the key the seed."""
    words: list[Array] = [np.arange(n, dtype=np.uint64), *(np.zeros(n, np.uint64) for _ in range(3))]
    key: list[Any] = [np.uint64(77), np.uint64(0)]
    for _ in range(10):
        a, b = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            b >> 32 ^ words[1] ^ key[0], b & _M32, a >> 32 ^ words[3] ^ key[1], a & _M32,
        ]  # fmt: skip
        key = [key[0] + np.uint64(0x9E3779B9) & _M32, key[1] + np.uint64(0xBB67AE85) & _M32]
    return {"out": Data(np.zeros(n, np.uint32)), "seed": 77}, {"out": words[0].astype(np.uint32)}


def _casts(rng: np.random.Generator) -> Made:
    x = (20 * _normal(rng, 256)).astype(np.float32)
    zeros = np.zeros(256, np.float32)
    values: dict[str, Value] = {
        "x": Data(x), "half": Data(zeros, "float16"), "brain": Data(zeros, "bfloat16"),
        "whole": Data(zeros, "int32"),
    }  # fmt: skip
    return values, {"half": x.astype(np.float16), "brain": rounded(x, "bfloat16"), "whole": np.trunc(x)}


def _fp8(rng: np.random.Generator) -> Made:
    x = (20 * _normal(rng, 256)).astype(np.float32)
    values: dict[str, Value] = {"x": Data(x), "out": Data(np.zeros(256, np.float32), "float8_e5m2")}
    return values, {"out": rounded(x, "float8_e5m2")}


def _product(dtype: str, result: str, batch: int = 1) -> Callable[[np.random.Generator], Made]:
    def make(rng: np.random.Generator) -> Made:
        a, b = (_normal(rng, batch, 32, 32) for _ in range(2))
        a, b = (np.rint(5 * a), np.rint(5 * b)) if dtype == "int8" else (rounded(a, dtype), rounded(b, dtype))
        values: dict[str, Value] = {
            "a": Data(a, dtype), "b": Data(b, dtype),
            "c": Data(np.zeros((batch, 32, 32), np.float32), result),
        }  # fmt: skip
        return values, {"c": a.astype(np.float64) @ b}

    return make


def _matvec(rng: np.random.Generator, rows: int = 16) -> Made:
    a, x = _normal(rng, rows, 200), _normal(rng, 200)
    values: dict[str, Value] = {"a": Data(a), "x": Data(x), "out": Data(np.zeros(rows, np.float32)), "n": 200}
    return values, {"out": a.astype(np.float64) @ x}


def _convolution(rng: np.random.Generator, n: int = 500) -> Made:
    x, w = _normal(rng, n), _normal(rng, 5)
    padded = np.concatenate([x, np.zeros(4, np.float32)]).astype(np.float64)
    values: dict[str, Value] = {"x": Data(x), "weight": Data(w), "out": Data(np.zeros_like(x)), "n": n}
    return values, {"out": sum(padded[t : t + n] * w[t] for t in range(5))}


def _pool(rng: np.random.Generator, rows: int = 4) -> Made:
    x = _normal(rng, 2 * rows, 64)
    out = x.reshape(rows, 2, 32, 2).max((1, 3))
    return {"x": Data(x), "out": Data(np.zeros_like(out)), "W": 64}, {"out": out}


def _rms(rng: np.random.Generator, rows: int = 3) -> Made:
    x, w = _normal(rng, rows, 200), _normal(rng, 200)
    out = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6) * w
    values: dict[str, Value] = {
        "x": Data(x), "weight": Data(w), "out": Data(np.zeros_like(x)), "n": 200, "eps": 1e-6,
    }  # fmt: skip
    return values, {"out": out}


def _entropy(rng: np.random.Generator, rows: int = 5) -> Made:
    x, label = _normal(rng, rows, 90), rng.integers(0, 90, rows).astype(np.int64)
    loss = np.log(np.exp(x.astype(np.float64)).sum(1)) - x[np.arange(rows), label]
    values: dict[str, Value] = {
        "x": Data(x),
        "label": Data(label),
        "loss": Data(np.zeros(rows, np.float32)),
        "n": 90,
    }
    return values, {"loss": loss}


def _adam(rng: np.random.Generator, n: int = 256) -> Made:
    p, g, m = (_normal(rng, n) for _ in range(3))
    v = np.abs(_normal(rng, n))
    m1, v1 = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    values: dict[str, Value] = {
        "p": Data(p), "g": Data(g), "m": Data(m), "v": Data(v), "rate": 0.01, "beta1": 0.9, "beta2": 0.99,
    }  # fmt: skip
    return values, {"p": p - 0.01 * m1 / (np.sqrt(v1) + 1e-8), "m": m1, "v": v1}


def _rotary(rng: np.random.Generator, rows: int = 4) -> Made:
    x, angle = _normal(rng, rows, 64), rng.uniform(0, 6, (rows, 32)).astype(np.float32)
    c, s = np.cos(angle), np.sin(angle)
    out = np.concatenate([x[:, :32] * c - x[:, 32:] * s, x[:, 32:] * c + x[:, :32] * s], 1)
    return {"x": Data(x), "cosine": Data(c), "sine": Data(s), "out": Data(np.zeros_like(x))}, {"out": out}


def _flip(rng: np.random.Generator) -> Made:
    x, y = _normal(rng, 128), _normal(rng, 128)
    values: dict[str, Value] = {
        "x": Data(x), "y": Data(y), "flipped": Data(np.zeros_like(x)),
        "joined": Data(np.zeros(256, np.float32)),
    }  # fmt: skip
    return values, {"flipped": x[::-1], "joined": np.stack([x, y], 1).ravel()}


def _split(rng: np.random.Generator) -> Made:
    x = _normal(rng, 256)
    zeros = np.zeros(128, np.float32)
    return {"x": Data(x), "even": Data(zeros), "odd": Data(zeros)}, {"even": x[::2], "odd": x[1::2]}


def _welford(rng: np.random.Generator, rows: int = 3) -> Made:
    x = _normal(rng, rows, 256)
    zeros = np.zeros(rows, np.float32)
    v = x.astype(np.float64)
    return {"x": Data(x), "mean": Data(zeros), "variance": Data(zeros)}, {
        "mean": v.mean(1),
        "variance": v.var(1),
    }


def _parity(rng: np.random.Generator, rows: int = 3) -> Made:
    x = rng.integers(0, 1 << 30, (rows, 128)).astype(np.int32)
    return {"x": Data(x), "out": Data(np.zeros(rows, np.int32))}, {"out": np.bitwise_xor.reduce(x, 1)}


def _wide(rng: np.random.Generator) -> Made:
    x, y = (rng.integers(-(1 << 30), 1 << 30, 128) for _ in range(2))
    return {"x": Data(x), "y": Data(y), "out": Data(np.zeros_like(x))}, {"out": x * y + (x >> 7) - (y << 2)}


def _doubles(rng: np.random.Generator) -> Made:
    x, y = rng.standard_normal((2, 128))
    return {"x": Data(x), "y": Data(y), "out": Data(np.zeros_like(x))}, {"out": (x * y + x) / (y * y + 1)}


def _swap(_rng: np.random.Generator) -> Made:
    zeros = np.zeros(4, np.int32)
    values: dict[str, Value] = {"counter": Data(np.zeros(1, np.int32)), "out": Data(zeros)}
    return values, {"counter": np.array([7]), "out": np.ones(4)}


def _split_k(rng: np.random.Generator, k: int = 128) -> Made:
    a, b = rounded(_normal(rng, 32, k), "float16"), rounded(_normal(rng, k, 32), "float16")
    values: dict[str, Value] = {
        "a": Data(a, "float16"), "b": Data(b, "float16"), "c": Data(np.zeros((32, 32), np.float32)),
    }  # fmt: skip
    return values, {"c": a.astype(np.float64) @ b}


_PRODUCTS: Final = (
    ("f32", "float32", "float32"), ("tf32", "float32", "float32"), ("int8", "int8", "int32"),
    ("batched", "float16", "float32"),
)  # fmt: skip
_TILE: Final = {"M": 32, "N": 32, "K": 32}
MORE: Final = (
    case("sum_rows", _sum_rows, {"BLOCK": 512}, (4,), 1e-5),
    case("argmax_rows", _argmax, {"BLOCK": 512}, (4,)),
    case("cumulative_sum", _cumsum, {"BLOCK": 256, "REVERSE": False}, (2,)),
    case("cumulative_sum_reversed", _cumsum_reversed, {"BLOCK": 256, "REVERSE": True}, (2,),
         kernel="cumulative_sum"),
    case("running_maximum", _running, {"BLOCK": 256}, (2,)),
    case("sort_rows", _sorted(1), {"BLOCK": 128, "DESCENDING": False}, (2,)),
    case("sort_rows_down", _sorted(-1), {"BLOCK": 128, "DESCENDING": True}, (2,), kernel="sort_rows"),
    case("histogram", _histogram, {"BINS": 32, "BLOCK": 256}, (4,)),
    case("scatter_add", _scatter, {"BLOCK": 128}, (4,)),
    case("atomic_extremes", _extremes, {"BLOCK": 128}, (4,)),
    case("transpose", _transpose, {"BM": 32, "BN": 32}, (2, 3)),
    case("stencil", _stencil, {"BH": 16, "BW": 16}, (3, 3), 1e-6),
    case("sparse_rows", _sparse, {"BLOCK": 32}, (12,), 1e-5, warps=1),
    case("gather_rows", _gather_rows, {"BLOCK": 64}, (6,), warps=1),
    case("gather_in_block", _gather_in_block, {"BLOCK": 128}, (1,)),
    case("gelu", _gelu, {"BLOCK": 256}, (2,), 1e-6),
    case("elementary", _elementary, {"BLOCK": 256}, (1,), 1e-6),
    case("rounding", _rounding, {"BLOCK": 256}, (1,)),
    case("integer_division", _division, {"BLOCK": 128}, (1,)),
    case("bit_operations", _bits, {"BLOCK": 128}, (1,)),
    case("random_numbers", _philox, {"BLOCK": 128}, (2,)),
    case("casts", _casts, {"BLOCK": 256}, (1,)),
    case("to_fp8", _fp8, {"BLOCK": 256}, (1,)),
    case("product_f32", _product("float32", "float32"), _TILE | {"PRECISION": "ieee"}, (1,), 1e-6,
         kernel="product"),
    case("product_tf32", _product("float32", "float32"), _TILE | {"PRECISION": "tf32"}, (1,), 2e-3,
         kernel="product"),
    case("product_int8", _product("int8", "int32"), _TILE | {"PRECISION": "ieee"}, (1,), kernel="product"),
    case("product_batched", _product("float16", "float32", 3), _TILE | {"PRECISION": "ieee"}, (3,), 2e-3,
         kernel="product"),
    case("matrix_vector", _matvec, {"ROWS": 4, "BLOCK": 64}, (4,), 1e-5),
    case("convolution", _convolution, {"TAPS": 5, "BLOCK": 128}, (4,), 1e-6),
    case("max_pool", _pool, {"BLOCK": 32}, (4,), warps=1),
    case("rms_norm", _rms, {"BLOCK": 256}, (3,), 1e-5),
    case("cross_entropy", _entropy, {"BLOCK": 128}, (5,), 1e-5),
    case("adam", _adam, {"BLOCK": 128}, (2,), 1e-6),
    case("rotary", _rotary, {"HALF": 32}, (4,), 1e-6, warps=1),
    case("flip_and_interleave", _flip, {"BLOCK": 128}, (1,)),
    case("split_pairs", _split, {"BLOCK": 128}, (1,)),
    case("welford", _welford, {"BLOCK": 256}, (3,), 1e-5),
    case("parity", _parity, {"BLOCK": 128}, (3,)),
    case("wide_integers", _wide, {"BLOCK": 128}, (1,)),
    case("doubles", _doubles, {"BLOCK": 128}, (1,), 1e-14),
    case("compare_and_swap", _swap, {"BLOCK": 1}, (7,), warps=1),
    case("split_k", _split_k, {"M": 32, "N": 32, "K": 128, "BK": 32}, (4,), 1e-5),
)  # fmt: skip
"""The cases of this file."""
ALL: Final = (*TUTORIALS, *MORE)
"""Every case, with a name of its own."""
