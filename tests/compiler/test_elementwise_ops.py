"""Every elementwise operation of every dtype.

Through the real object, against NumPy under the rules of compiler.ir.ops.
"""

# ruff: noqa: ANN001, ANN002  # parametrised arguments: their values are listed at the test

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.emit import isel
from compiler.ir import ops
from tests import oracle
from tests.compiler.kernels import ARCH, elementwise, stored_as
from tests.each import check_each
from tests.oracle import COMPUTE

INTS = [d for d in dtypes.all() if d.is_int]
FLOATS = [d for d in dtypes.all() if d.is_float and d.computes]
ALL = [d for d in dtypes.all() if d.computes]
ARCHES = [ARCH, "x86_64-v3"]


def to_memory(x: np.ndarray, dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return oracle.to_memory(oracle.rounded(x, dtype), dtype)


def from_memory(raw: np.ndarray, dtype) -> np.ndarray:
    """Values in a type NumPy can calculate with: float32 for the halves."""
    return raw.astype(np.float32) if dtype is dtypes.float16 else oracle.from_memory(raw, dtype)


def sample(dtype, count=333, seed=0):
    """Memory holding ordinary and special values of a dtype."""
    rng = np.random.default_rng(seed)
    if dtype is dtypes.bool:
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        wide = rng.integers(info.min, info.max, count, dtype=dtype.numpy, endpoint=True)
        wide[::3] = rng.integers(0, 7, len(wide[::3])).astype(dtype.numpy)
        wide[:6] = [info.min, info.max, 0, 1, info.max - 1, 2]
        if dtype.kind == "int":
            wide[6:12] = [-1, -2, -7, info.min + 1, 3, -3]
        return wide
    x = rng.standard_normal(count) * np.exp(rng.uniform(-6, 6, count))
    x[:14] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-7, 6e-5, 65504.0]
    return to_memory(x, dtype)


def compare(got, want, dtype):
    if dtype.is_float:
        nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), nan)
        np.testing.assert_array_equal(got[~nan], want[~nan])
    else:
        np.testing.assert_array_equal(got, want)


BINARY = {op: COMPUTE[op] for op in sorted(ops.BINARY - {"POW"})}
UNARY = {op: COMPUTE[op] for op in sorted(ops.UNARY - ops.TRANSCENDENTAL)}


def applies(name, dtype):
    return dtype.kind in ops.ROWS[name].kinds


def exactly(function, dtype, *memory):
    """The function's value rounded once to the dtype."""
    with np.errstate(all="ignore"):
        return function(*[from_memory(m, dtype) for m in memory])


@pytest.mark.sampled(37)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_operation_agrees_with_numpy(name, arch):
    check_each(((name, dtype, arch) for dtype in ALL if applies(name, dtype)), check_binary)


def check_binary(name, dtype, arch, compute=elementwise):
    """Compare an operation as `compute` runs it on a target with NumPy, over samples and edge values."""
    x, y = sample(dtype, seed=1), sample(dtype, seed=2)[::-1].copy()
    if dtype.is_int and dtype.kind == "int":
        y[7] = -1
        x[7] = np.iinfo(x.dtype).min
    if name in ("SHL", "SHR"):
        y[20:60] = np.arange(40) % (dtype.bits + 3)
    result = dtypes.bool if name in ops.COMPARE else dtype
    got = compute(name, [x, y], [dtype, dtype], result, arch=arch)
    want = exactly(BINARY[name], dtype, x, y)
    if result is not dtypes.bool and dtype.is_float:
        got, want = from_memory(got, dtype), from_memory(to_memory(want, dtype), dtype)
    compare(got, want, result)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("name", UNARY)
def test_unary_operation_agrees_with_numpy(name, arch):
    check_each(((name, dtype, arch) for dtype in ALL if applies(name, dtype)), check_unary)


def check_unary(name, dtype, arch, compute=elementwise):
    x = sample(dtype, seed=3)
    got = compute(name, [x], [dtype], dtype, arch=arch)
    want = exactly(UNARY[name], dtype, x)
    if dtype.is_float:
        got, want = from_memory(got, dtype), from_memory(to_memory(want, dtype), dtype)
    compare(got, want, dtype)


def test_every_row_has_instructions_and_an_oracle():
    assert set(isel.UNARY) == ops.UNARY
    assert set(isel.BINARY) == ops.BINARY
    assert {*COMPUTE, *ops.CASTS} == ops.ELEMENTWISE
    for row in ops.ROWS.values():
        assert (row.floats is not None or row.op == "POW") == ("float" in row.kinds)
        assert (row.whole is not None) == ("int" in row.kinds)


@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_where_picks_by_condition(dtype):
    mask, x, y = sample(dtypes.bool, seed=4), sample(dtype, seed=5), sample(dtype, seed=6)
    got = elementwise("WHERE", [mask, x, y], [dtypes.bool, dtype, dtype], dtype)
    compare(from_memory(got, dtype), from_memory(np.where(mask, x, y), dtype), dtype)


def cast_by_rule(x, source, target):
    """CAST as compiler.ir.ops defines it, in memory form."""
    value = from_memory(x, source)
    if target is dtypes.bool:
        return value != 0
    if source.is_float and target.is_int:
        exact = [
            0 if np.isnan(v) else int(max(min(v, 2.0**70), -(2.0**70))) for v in value.astype(np.float64)
        ]
        return np.array([min(max(v, target.min), target.max) for v in exact], dtype=target.numpy)
    if target is dtypes.bfloat16 and source is dtypes.float64:
        return np.array([nearest_bfloat16(v) for v in value], np.uint16)
    if target is dtypes.bfloat16 and source.is_int:
        return np.array([nearest_bfloat16(float(v)) for v in value.tolist()], np.uint16)
    return to_memory(value, target)


def nearest_bfloat16(v):
    """A float64 rounded once to bfloat16, as bits."""
    if np.isnan(v) or np.isinf(v) or v == 0:
        return int(to_memory(np.array([v]), dtypes.bfloat16)[0])
    exponent = max(np.frexp(v)[1] - 8, -133)
    return int(to_memory(np.array([np.ldexp(np.rint(np.ldexp(v, -exponent)), exponent)]), dtypes.bfloat16)[0])


@pytest.mark.sampled(29)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("source", ALL, ids=lambda d: d.name)
def test_cast_follows_the_rules(source, arch):
    check_each(((source, target, arch) for target in ALL), check_cast)


def check_cast(source, target, arch):
    if source.bits == 64 and source.is_int and target in (dtypes.float16, dtypes.bfloat16):
        x = sample(source)
        x = x[np.abs(x.astype(np.float64)) < 2.0**24]  # wider ones round twice, as documented
    else:
        x = sample(source, seed=7)
    got = elementwise("CAST", [x], [source], target, arch=arch)
    want = cast_by_rule(x, source, target)
    compare(from_memory(got, target), from_memory(want, target), target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (a, b)
        for a in ALL
        for b in ALL
        if a.itemsize == b.itemsize and dtypes.bool not in (a, b) and a is not b
    ],
)
def test_bitcast_keeps_bits(source, target):
    x = sample(source, seed=8)
    x = x[~np.isnan(from_memory(x, source))] if source.is_float else x
    got = elementwise("BITCAST", [x], [source], target)
    want = x.view(stored_as(target))
    keep = ~np.isnan(from_memory(want, target)) if target.is_float else np.ones(len(want), bool)
    np.testing.assert_array_equal(got[keep], want[keep])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 10, 64, 100])
@pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.name)
def test_division_by_a_constant_rounds_down(dtype, divisor):
    from tests.compiler.kernels import load, loop, number, op, run, sink, store

    x = sample(dtype, seed=9)
    i = loop(0, x.size)
    value = load(1, i, dtype)
    divided = op("FLOORDIV", value, number(divisor, dtype))
    rest = op("MOD", value, number(divisor, dtype))
    got = run(sink(store(0, i, divided), store(2, i, rest)), {1: x}, {0: (x.size, dtype), 2: (x.size, dtype)})
    by = np.full_like(x, divisor)
    np.testing.assert_array_equal(got[0], COMPUTE["FLOORDIV"](x, by))
    np.testing.assert_array_equal(got[2], COMPUTE["MOD"](x, by))
