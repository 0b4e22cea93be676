"""Sums of products over words, the form for AVX512-BF16 and VNNI: which kernels, objects, and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import hcq
from compiler import llvm
from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from compiler.ir.walk import ordered
from compiler.kernel.words import in_words
from compiler.pipeline import changed, lower, planned, prepared
from compiler.targets import arch_for, target_of
from frontend import Tensor
from tests.compiler.kernels import load, loop, op, reduce, sink, store

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp

WITH, WITHOUT = "x86_64-znver4", "x86_64-v4"
LAYOUTS = ["ab", "aB", "Ab", "AB"]
"""A capital letter is a transposed operand."""
INSTRUCTION = {dtypes.bfloat16: "vdpbf16ps", dtypes.int8: "vpdpwssd", dtypes.uint8: "vpdpwssd",
               dtypes.int16: "vpdpwssd"}  # fmt: skip
TOTAL = {dtypes.bfloat16: dtypes.float32}


def product(m: int, n: int, k: int, dtype: DType, layout: str = "ab") -> UOp:
    total = TOTAL.get(dtype, dtypes.int32)
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    a = load(1, r * m + i if layout[0] == "A" else i * k + r, dtype)
    b = load(2, j * k + r if layout[1] == "B" else r * n + j, dtype)
    wide = [op("CAST", x, dtype=total) for x in (a, b)]
    return sink(store(0, i * n + j, reduce(op("MUL", *wide), "ADD", r)))


def has_operations(arch: str) -> bool:
    return bool(target_of(arch).matrix)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", INSTRUCTION, ids=lambda d: d.name)
def test_the_object_has_the_instruction_where_the_level_has_it(dtype: DType, layout: str) -> None:
    for arch in (WITH, WITHOUT):
        target = target_of(arch)
        ir, plan = lower(product(64, 64, 64, dtype, layout), target)
        text = llvm.emit_assembly(ir, target.machine())
        assert (INSTRUCTION[dtype] in text) == (arch == WITH)
        assert (f"matrix {INSTRUCTION[dtype]}" in plan.text()) == (arch == WITH)


def test_an_odd_number_of_products_and_other_types_have_no_words() -> None:
    target = target_of(WITH)
    assert in_words(prepared(product(8, 8, 33, dtypes.bfloat16)), target) is None
    assert in_words(prepared(product(8, 8, 34, dtypes.float16)), target) is None
    assert in_words(prepared(product(8, 8, 34, dtypes.bfloat16)), target_of(WITHOUT)) is None
    assert in_words(prepared(product(8, 8, 34, dtypes.bfloat16)), target_of("sm_90a")) is None


def test_adjacent_pairs_are_one_load() -> None:
    made = changed(prepared(product(16, 16, 64, dtypes.bfloat16, "aB")), "words", target_of(WITH))
    assert made is not None
    loads = [n for n in ordered(made) if n.op is Ops.LOAD]
    assert [n.dtype for n in loads] == [dtypes.uint32] * 2
    made = changed(prepared(product(16, 16, 64, dtypes.bfloat16, "ab")), "words", target_of(WITH))
    assert made is not None
    assert sorted(n.dtype.name for n in ordered(made) if n.op is Ops.LOAD) == ["uint16", "uint16", "uint32"]


def test_words_cost_less_than_single_values() -> None:
    ast = product(256, 256, 256, dtypes.bfloat16)
    assert (
        planned(ast, target_of(WITH))[1].nanoseconds < 0.7 * planned(ast, target_of(WITHOUT))[1].nanoseconds
    )


@pytest.fixture(scope="module")
def native() -> str:
    with hcq.open("cpu") as device:
        arch = arch_for(device.info)
    if not has_operations(arch):
        pytest.skip("this machine has neither AVX512-BF16 nor AVX512-VNNI")
    return arch


def turned(x: np.ndarray, *, swap: bool) -> np.ndarray:
    return np.ascontiguousarray(x.swapaxes(-1, -2)) if swap else x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(33, 47, 66), (1, 40, 64), (64, 3, 130), (17, 96, 1026), (5, 7, 4)]
)
def test_products_of_bytes_are_exact(native: str, m: int, n: int, k: int, layout: str) -> None:
    del native
    rng = np.random.default_rng(m)
    for kind in ("int8", "uint8"):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        a, b = [rng.integers(low, high + 1, shape).astype(kind) for shape in ((m, k), (k, n))]
        x = Tensor(turned(a, swap=layout[0] == "A")).realize()
        y = Tensor(turned(b, swap=layout[1] == "B")).realize()
        x, y = x.T if layout[0] == "A" else x, y.T if layout[1] == "B" else y
        np.testing.assert_array_equal((x @ y).numpy(), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(33, 47, 66), (1, 40, 64), (64, 3, 130), (17, 96, 1026), (5, 7, 4)]
)
def test_products_of_bfloat16_are_rounded_once(native: str, m: int, n: int, k: int, layout: str) -> None:
    """Sums are in float32: their error is at most a few units of the largest partial sum."""
    del native
    rng = np.random.default_rng(m)
    x = Tensor(rng.standard_normal((k, m) if layout[0] == "A" else (m, k), dtype=np.float32)).cast("bfloat16")
    y = Tensor(rng.standard_normal((n, k) if layout[1] == "B" else (k, n), dtype=np.float32)).cast("bfloat16")
    x, y = x.realize(), y.realize()
    a, b = x.float().numpy().astype(np.float64), y.float().numpy().astype(np.float64)
    a, b = a.T if layout[0] == "A" else a, b.T if layout[1] == "B" else b
    x, y = x.T if layout[0] == "A" else x, y.T if layout[1] == "B" else y
    wanted = a @ b
    error = np.abs((x @ y).float().numpy() - wanted)
    assert (error <= 2.0**-8 * np.abs(wanted) + 2.0**-20 * (np.abs(a) @ np.abs(b))).all()


def test_infinities_and_nan_pass(native: str) -> None:
    del native
    a = np.ones((4, 64), np.float32)
    a[0, 3], a[1, 5], a[2, 6], a[2, 7] = np.inf, np.nan, np.inf, -np.inf
    x, y = Tensor(a).cast("bfloat16").realize(), Tensor.ones(64, 32).cast("bfloat16").contiguous().realize()
    got = (x @ y).float().numpy()
    assert np.isposinf(got[0]).all()
    assert np.isnan(got[1:3]).all()
    assert (got[3] == 64).all()


def test_operands_that_are_computed_and_convolutions_are_right(native: str) -> None:
    del native
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 64), dtype=np.float32), rng.standard_normal((64, 48), dtype=np.float32)
    x, y = Tensor(a).cast("bfloat16").realize(), Tensor(b).cast("bfloat16").realize()
    wanted = np.maximum(x.float().numpy(), 0) @ (2 * y.float().numpy())
    np.testing.assert_allclose((x.relu() @ (y * 2)).float().numpy(), wanted, rtol=2.0**-7, atol=0.02)
    image, filters = rng.integers(-9, 9, (2, 6, 9, 9)), rng.integers(-9, 9, (8, 6, 3, 3))
    given = [Tensor(z.astype(np.int8)).realize().cast("int32") for z in (image, filters)]
    plain = [Tensor(z.astype(np.float32)).realize() for z in (image, filters)]
    got = given[0].conv2d(given[1], padding=1).numpy()
    np.testing.assert_array_equal(got.astype(np.float32), plain[0].conv2d(plain[1], padding=1).numpy())
