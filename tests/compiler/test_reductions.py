"""Reductions, contractions, rows and gathers on whole and ragged sizes, through the real object."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.pipeline import planned
from compiler.targets import target_of
from tests.compiler.kernels import ARCH, load, loop, number, op, reduce, run, sink, store, stored_as

ARCHES = [ARCH, "x86_64-v3"]
SIZES = [1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 100, 129, 1000]
NUMPY = {"ADD": np.sum, "MUL": np.prod, "MAX": np.max, "MIN": np.min}


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rows_of(n: int, k: int, name: str, dtype=dtypes.float32) -> UOp:
    i, r = loop(0, n), loop(1, k)
    return sink(store(0, i, reduce(load(1, i * k + r, dtype), name, r)))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("name", ["ADD", "MAX"])
def test_reduction_along_contiguous_rows(name, k, arch):
    x = values(5, k)
    got = run(rows_of(5, k, name), {1: x}, {0: (5, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got, NUMPY[name](x, axis=1), rtol=2e-5, atol=1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["ADD", "MIN"])
def test_reduction_across_columns(name, n, arch):
    x = values(37, n)
    i, r = loop(0, n), loop(1, 37)
    ast = sink(store(0, i, reduce(load(1, r * n + i), name, r)))
    got = run(ast, {1: x}, {0: (n, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got, NUMPY[name](x, axis=0), rtol=2e-5, atol=1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "dtype", [d for d in dtypes.all() if d.computes and d is not dtypes.bool], ids=lambda d: d.name
)
@pytest.mark.parametrize("name", ["ADD", "MUL", "MAX", "MIN"])
def test_reduction_of_every_dtype(name, dtype):
    rng = np.random.default_rng(2)
    if dtype is dtypes.bfloat16:
        x = (rng.integers(1, 9, (3, 77)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        exact = (x.astype(np.uint32) << 16).view(np.float32)
    else:
        x = rng.integers(1, 9, (3, 77)).astype(stored_as(dtype))
        exact = x
    if name == "MUL":
        if dtype.is_float and dtype.bits == 16:
            pytest.skip("the product leaves the range")
        exact = exact % 2 + 1 if dtype.is_float else exact
        x = exact.astype(x.dtype)
    got = run(rows_of(3, 77, name, dtype), {1: x}, {0: (3, dtype)})[0]
    with np.errstate(over="ignore"):
        want = NUMPY[name](exact.astype(np.float64) if dtype.is_float else exact, axis=1)
    if dtype is dtypes.bfloat16:
        got = (got.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(got, want, rtol=1 / 256)
    else:
        np.testing.assert_array_equal(got, want.astype(stored_as(dtype)))


@pytest.mark.parametrize("name", ["MAX", "MIN"])
def test_reduction_keeps_nan(name):
    x = values(4, 100)
    x[1, 3] = x[2, 99] = np.nan
    got = run(rows_of(4, 100, name), {1: x}, {0: (4, dtypes.float32)})[0]
    assert np.isnan(got).tolist() == [False, True, True, False]


def test_a_sum_over_elements_that_are_used_twice_in_a_row_has_vectors():
    i, y, x, n = loop(0, 6), loop(1, 20), loop(2, 20), loop(3, 16)
    at = n * 600 + i * 100 + symbolic.div(y, 2) * 10 + symbolic.div(x, 2)
    corner = load(2, symbolic.mod(y, 2) * 2 + symbolic.mod(x, 2))
    ast = sink(store(0, i, reduce(op("MAX", load(1, at), corner), "ADD", y, x, n)))
    _, plan = planned(ast, target_of("x86_64-v4"))
    assert [r.lanes for r in plan.reductions.values()] == [16]
    random = np.random.default_rng(3)
    numbers = random.integers(-9, 9, (16, 6, 10, 10)).astype(np.float32)
    corners = random.integers(-9, 9, (2, 2)).astype(np.float32)
    got = run(ast, {1: numbers, 2: corners}, {0: (6, dtypes.float32)})[0]
    wide = np.maximum(numbers.repeat(2, 2).repeat(2, 3), np.tile(corners, (10, 10)))
    np.testing.assert_array_equal(got, wide.sum((0, 2, 3)))


def test_whole_sum_has_no_output_range():
    x = values(100_003)
    r = loop(0, 100_003)
    ast = sink(store(0, symbolic.ZERO, reduce(load(1, r), "ADD", r)))
    got = run(ast, {1: x}, {0: (1, dtypes.float32)})[0]
    np.testing.assert_allclose(got[0], x.sum(dtype=np.float64), rtol=1e-4, atol=1e-2)


def matmul(m: int, n: int, k: int, *, ta: bool, tb: bool) -> UOp:
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    a = load(1, r * m + i if ta else i * k + r)
    b = load(2, j * k + r if tb else r * n + j)
    return sink(store(0, i * n + j, reduce(op("MUL", a, b), "ADD", r)))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(
    "shape", [(64, 64, 64), (33, 50, 17), (1, 100, 70), (100, 1, 70), (5, 3, 7), (130, 77, 33)]
)
def test_matmul_of_every_layout(shape, ta, tb, arch):
    m, n, k = shape
    a, b = values(m, k), values(k, n, seed=1)
    inputs = {1: a.T.copy() if ta else a, 2: b.T.copy() if tb else b}
    got = run(matmul(m, n, k, ta=ta, tb=tb), inputs, {0: (m * n, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got.reshape(m, n), a @ b, rtol=1e-4, atol=1e-4)


def test_multiply_add_in_a_reduction_rounds_once():
    x = np.array([1 + 2.0**-12, 1.0], np.float32)
    y = np.array([1 + 2.0**-12, -1.0], np.float32)
    r = loop(0, 2)
    ast = sink(store(0, symbolic.ZERO, reduce(op("MUL", load(1, r), load(2, r)), "ADD", r)))
    got = run(ast, {1: x[::-1].copy(), 2: y[::-1].copy()}, {0: (1, dtypes.float32)})[0][0]
    exact = float(x[0]) * float(y[0]) - 1
    assert got in (np.float32(exact), np.float32(np.float32(x[0] * y[0]) - 1))


def convolution(*shape: int) -> tuple[UOp, int]:
    n, c, size, o, k, pad, stride = shape
    out = (size + 2 * pad - k) // stride + 1
    ranges = [loop(q, s) for q, s in enumerate((n, o, out, out, c, k, k))]
    b, f, y, x, ch, ky, kx = ranges
    iy, ix = y * stride + ky - pad, x * stride + kx - pad
    inside = symbolic.both(iy >= 0, iy < size, ix >= 0, ix < size)
    image = load(
        1,
        b * (c * size * size) + ch * (size * size) + iy * size + ix,
        mask=None if inside is symbolic.TRUE else inside,
    )
    weight = load(2, f * (c * k * k) + ch * (k * k) + ky * k + kx)
    total = reduce(op("MUL", image, weight), "ADD", ch, ky, kx)
    value = op("MAX", op("ADD", total, load(3, f)), number(0.0))
    return sink(store(0, b * (o * out * out) + f * (out * out) + y * out + x, value)), out


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "shape",
    [
        (2, 8, 20, 9, 3, 1, 1),
        (1, 3, 31, 8, 7, 3, 2),
        (2, 5, 7, 4, 3, 1, 1),
        (1, 16, 14, 24, 1, 0, 1),
        (1, 4, 9, 7, 3, 1, 2),
    ],
)
def test_convolution_with_bias_and_relu(shape, arch):
    n, c, size, o, k, pad, stride = shape
    x, w, bias = values(n, c, size, size), values(o, c, k, k, seed=1), values(o, seed=2)
    ast, out = convolution(*shape)
    got = run(ast, {1: x, 2: w, 3: bias}, {0: (n * o * out * out, dtypes.float32)}, arch=arch)[0]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    want = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w) + bias[None, :, None, None], 0)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-4)


def softmax(rows: int, n: int) -> UOp:
    i, c, k, m = loop(0, rows), loop(1, n), loop(2, n), loop(3, n)
    top = reduce(load(1, i * n + k), "MAX", k)
    total = reduce(op("EXP", op("SUB", load(1, i * n + m), top)), "ADD", m)
    return sink(store(0, i * n + c, op("DIV", op("EXP", op("SUB", load(1, i * n + c), top)), total)))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("n", SIZES)
def test_softmax_in_one_kernel(n, arch):
    x = 10 * values(6, n)
    got = run(softmax(6, n), {1: x}, {0: (6 * n, dtypes.float32)}, arch=arch)[0].reshape(6, n)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_softmax_in_place():
    n = 50
    x = values(6, n)
    i, c, k, m = loop(0, 6), loop(1, n), loop(2, n), loop(3, n)
    top = reduce(load(0, i * n + k), "MAX", k)
    total = reduce(op("EXP", op("SUB", load(0, i * n + m), top)), "ADD", m)
    ast = sink(store(0, i * n + c, op("DIV", op("EXP", op("SUB", load(0, i * n + c), top)), total)))
    got = run(ast, {0: x}, {0: (6 * n, dtypes.float32)})[0].reshape(6, n)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("n", [5, 32, 200])
def test_layernorm_in_one_kernel(n):
    x, gain, bias = values(9, n), values(n, seed=1), values(n, seed=2)
    i, c, k, m = loop(0, 9), loop(1, n), loop(2, n), loop(3, n)
    mean = op("MUL", reduce(load(1, i * n + k), "ADD", k), number(1 / n))
    away = op("SUB", load(1, i * n + m), mean)
    spread = op("MUL", reduce(op("MUL", away, away), "ADD", m), number(1 / n))
    scale = op("RECIP", op("SQRT", op("ADD", spread, number(1e-5))))
    normal = op("MUL", op("SUB", load(1, i * n + c), mean), scale)
    ast = sink(store(0, i * n + c, op("ADD", op("MUL", normal, load(2, c)), load(3, c))))
    got = run(ast, {1: x, 2: gain, 3: bias}, {0: (9 * n, dtypes.float32)})[0].reshape(9, n)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gain + bias
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_reductions_over_the_same_range_share_a_loop():
    from compiler.pipeline import lower
    from compiler.targets import target_of

    i, r = loop(0, 8), loop(1, 640)
    x = load(1, i * 640 + r)
    ast = sink(store(0, i, reduce(x, "ADD", r)), store(2, i, reduce(op("MUL", x, x), "ADD", r)))
    ir, _ = lower(ast, target_of(ARCH))
    assert ir.count("phi i64") == 2
    data = values(8, 640)
    got = run(ast, {1: data}, {0: (8, dtypes.float32), 2: (8, dtypes.float32)})
    np.testing.assert_allclose(got[0], data.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got[2], (data * data).sum(1), rtol=1e-4)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("shape", [(16, 16), (64, 48), (33, 50), (7, 100), (1, 9), (20, 300)])
@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.float64, dtypes.uint8, dtypes.float16], ids=lambda d: d.name
)
def test_transpose(shape, dtype, arch):
    m, n = shape
    x = (np.arange(m * n) % 251).astype(stored_as(dtype)).reshape(m, n)
    i, j = loop(0, n), loop(1, m)
    ast = sink(store(0, i * m + j, load(1, j * n + i, dtype)))
    got = run(ast, {1: x}, {0: (m * n, dtype)}, arch=arch)[0]
    np.testing.assert_array_equal(got.reshape(n, m), x.T)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize("n", [16, 40, 64, 100])
def test_strided_reads_stay_inside_the_buffer(n, stride, arch):
    x = np.arange((n - 1) * stride + 1, dtype=np.float32)
    i = loop(0, n)
    got = run(sink(store(0, i, load(1, i * stride))), {1: x}, {0: (n, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_array_equal(got, x[::stride])
    masked = run(
        sink(store(0, i, load(1, i * stride, mask=i < 13))), {1: x}, {0: (n, dtypes.float32)}, arch=arch
    )[0]
    np.testing.assert_array_equal(masked, np.where(np.arange(n) < 13, x[::stride], 0))


@pytest.mark.parametrize("n", [10, 64, 77])
def test_reversed_reads_and_writes(n):
    x = np.arange(n, dtype=np.float32)
    i = loop(0, n)
    np.testing.assert_array_equal(
        run(sink(store(0, i, load(1, i * -1 + (n - 1)))), {1: x}, {0: (n, dtypes.float32)})[0], x[::-1]
    )
    np.testing.assert_array_equal(
        run(sink(store(0, i * -1 + (n - 1), load(1, i))), {1: x}, {0: (n, dtypes.float32)})[0], x[::-1]
    )


@pytest.mark.parametrize("kind", [dtypes.int32, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("width", [1, 3, 40])
def test_gather_of_rows_gives_zero_out_of_range(kind, width):
    table, n = values(11, width), 50
    index = np.random.default_rng(0).integers(-3, 14, n).astype(kind.numpy)
    index[0] = np.iinfo(kind.numpy).min
    i, c = loop(0, n), loop(1, width)
    row = uop(Ops.INDEXOF, dtypes.index, (load(2, i, kind),), (kind.min, kind.max))
    inside = symbolic.both(row >= 0, row < 11)
    ast = sink(store(0, i * width + c, load(1, row * width + c, mask=inside)))
    got = run(ast, {1: table, 2: index}, {0: (n * width, dtypes.float32)})[0].reshape(n, width)
    safe = np.clip(index, 0, 10)
    want = np.where(((index >= 0) & (index < 11))[:, None], table[safe], 0)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.uint8, dtypes.bool, dtypes.bfloat16], ids=lambda d: d.name
)
def test_padding_reads_nothing_outside(dtype, arch):
    n, before, after = 37, 5, 20
    x = np.ones(n, stored_as(dtype))
    i = loop(0, n + before + after)
    at = i - before
    ast = sink(store(0, i, load(1, at, dtype, symbolic.both(at >= 0, at < n))))
    got = run(ast, {1: x}, {0: (n + before + after, dtype)}, arch=arch)[0]
    np.testing.assert_array_equal(got, np.pad(x, (before, after)))


@pytest.mark.parametrize("n", [6, 16, 100])
def test_iota_and_mask_as_values(n):
    i, j = loop(0, 3), loop(1, n)
    count = uop(Ops.IVALUE, dtypes.int32, (j * 2 + i,))
    low = uop(Ops.IVALUE, dtypes.bool, (j < 5,))
    ast = sink(store(0, i * n + j, op("WHERE", low, count, number(-1, dtypes.int32))))
    got = run(ast, {}, {0: (3 * n, dtypes.int32)})[0].reshape(3, n)
    j_, i_ = np.meshgrid(np.arange(n), np.arange(3))
    np.testing.assert_array_equal(got, np.where(j_ < 5, 2 * j_ + i_, -1))


@pytest.mark.parametrize("n", [4, 48, 50])
def test_division_and_modulo_in_indices(n):
    """A flat range over a padded picture: index (i // n) * (n + 3) + i % n."""
    x = values(5, n + 3)
    i = loop(0, 5 * n)
    got = run(sink(store(0, i, load(1, (i // n) * (n + 3) + i % n))), {1: x}, {0: (5 * n, dtypes.float32)})[0]
    np.testing.assert_array_equal(got.reshape(5, n), x[:, :n])


def test_variables_come_after_the_buffers():
    x = values(100)
    start, scale = symbolic.Variable("start", 0, 60), symbolic.Variable("a_first", 0, 9)
    i = loop(0, 40)
    value = op(
        "ADD", load(1, i + start), op("CAST", uop(Ops.IVALUE, dtypes.int32, (scale,)), dtype=dtypes.float32)
    )
    got = run(sink(store(0, i, value)), {1: x}, {0: (40, dtypes.float32)}, variables=[7, 31])[0]
    np.testing.assert_array_equal(got, x[31:71] + np.float32(7))


@pytest.mark.parametrize("n", [5, 33, 1000])
def test_in_place_update(n):
    weight, gradient = values(n), values(n, seed=1)
    i = loop(0, n)
    ast = sink(store(0, i, op("SUB", load(0, i), op("MUL", load(1, i), number(0.5)))))
    got = run(ast, {0: weight, 1: gradient}, {0: (n, dtypes.float32)})[0]
    np.testing.assert_array_equal(got, weight - gradient * np.float32(0.5))


def test_masked_store_writes_only_where_the_mask_holds():
    i = loop(0, 40)
    before = values(40)
    ast = sink(store(0, i, number(1.0), mask=i < 13))
    got = run(ast, {0: before}, {0: (40, dtypes.float32)})[0]
    np.testing.assert_array_equal(got, np.where(np.arange(40) < 13, 1, before))
