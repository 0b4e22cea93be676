"""Triton's own code objects, through the driver on emulated GPUs, agree with NumPy."""

# ruff: noqa: E501, PLR0917 - rows of cases read best on one line; a product takes its operands one by one

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.drivers.amd.guests import TRITON

if TYPE_CHECKING:
    from tests.drivers.amd_guests.conftest import Array, Runner


def rng() -> np.random.Generator:
    return np.random.default_rng(12)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def close(found: Array, wanted: Array, size: Array | float, bits: int) -> None:
    """Hold each number to a bound: `size` is what its terms add up to, `bits` how many of it must be right."""
    wrong = np.abs(found.astype("f8") - wanted) > np.asarray(size) * 2.0**-bits
    assert not np.any(wrong), (np.argwhere(wrong)[:4], found[wrong][:4], wanted[wrong][:4])


@pytest.mark.sampled(3)
def test_add(runner: Runner) -> None:
    x, y = (rng().standard_normal(5000).astype("f4") for _ in range(2))
    out = np.zeros(5001, "f4")
    runner.run(TRITON, "add", (cdiv(5000, 1024),), x, y, out, 5000)
    assert np.array_equal(out[:5000], x + y)
    assert out[5000] == 0


@pytest.mark.sampled(5)
@pytest.mark.parametrize("columns", [781, 1024, 3])
def test_softmax(runner: Runner, columns: int) -> None:
    x = 4 * rng().standard_normal((6, columns)).astype("f4")
    out = np.zeros_like(x)
    runner.run(TRITON, "softmax", (6,), x, out, columns)
    power = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    wanted = power / power.sum(axis=1, keepdims=True)
    close(out, wanted, wanted, 17)


@pytest.mark.sampled(3)
def test_layer_norm(runner: Runner) -> None:
    rows, columns = 5, 1151
    x = 3 + rng().standard_normal((rows, columns)).astype("f4")
    weight, bias = (rng().standard_normal(columns).astype("f4") for _ in range(2))
    out, mean, scale = np.zeros_like(x), np.zeros(rows, "f4"), np.zeros(rows, "f4")
    runner.run(TRITON, "layer_norm", (rows,), x, weight, bias, out, mean, scale, columns, 1e-5)
    exact = x.astype("f8")
    middle = exact.mean(axis=1)
    factor = 1 / np.sqrt(exact.var(axis=1) + 1e-5)
    close(mean, middle, np.abs(exact).mean(axis=1), 20)
    close(scale, factor, factor, 18)
    wanted = (exact - middle[:, None]) * factor[:, None] * weight + bias
    close(out, wanted, 4 + np.abs(wanted), 17)


def matmul(runner: Runner, name: str, a: Array, b: Array, c: Array, tile: tuple[int, int]) -> None:
    (m, k), n = a.shape, b.shape[1]
    groups = (cdiv(m, tile[0]), cdiv(n, tile[1]))
    runner.run(TRITON, name, groups, a, b, c, m, n, k, k, n, n)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", ["matmul", pytest.param("matmul_pipelined", marks=pytest.mark.slow)])
def test_matmul_of_half_precision(runner: Runner, name: str) -> None:
    a, b = (rng().standard_normal(s).astype("f2") for s in ((80, 208), (208, 96)))
    c = np.zeros((80, 96), "f4" if name == "matmul" else "f2")
    matmul(runner, name, a, b, c, (64, 64))
    wanted = a.astype("f8") @ b.astype("f8")
    close(c, wanted, np.abs(a).astype("f8") @ np.abs(b).astype("f8"), 20 if name == "matmul" else 11)


def bf16(numbers: Array) -> tuple[Array, Array]:
    """Return numbers cut to bfloat16: their bits, and as float32."""
    bits = (numbers.astype("f4").view("u4") >> 16).astype("u2")
    return bits, (bits.astype("u4") << 16).view("f4")


@pytest.mark.slow
def test_matmul_of_bfloat16(runner: Runner) -> None:
    a, left = bf16(rng().standard_normal((48, 96)))
    b, right = bf16(rng().standard_normal((96, 64)))
    c = np.zeros((48, 64), "f4")
    matmul(runner, "matmul_bf16", a, b, c, (32, 64))
    close(c, left.astype("f8") @ right, np.abs(left).astype("f8") @ np.abs(right), 20)


@pytest.mark.slow
def test_matmul_of_bytes(runner: Runner) -> None:
    a, b = (rng().integers(-128, 128, s, dtype="i1") for s in ((64, 208), (208, 64)))
    c = np.zeros((64, 64), "i4")
    matmul(runner, "matmul_i8", a, b, c, (64, 32))
    assert np.array_equal(c, a.astype("i4") @ b.astype("i4"))


@pytest.mark.slow
def test_matmul_of_single_precision(runner: Runner) -> None:
    a, b = (rng().standard_normal(s).astype("f4") for s in ((48, 96), (96, 64)))
    c = np.zeros((48, 64), "f4")
    matmul(runner, "matmul_f32", a, b, c, (32, 32))
    close(c, a.astype("f8") @ b, np.abs(a).astype("f8") @ np.abs(b), 20)


def eight_bits(bits: Array, bias: int) -> Array:
    """Return numbers of 8 bits with 4 bits of exponent as float64, without NaNs and infinities."""
    exponent, fraction = (bits >> 3 & 15).astype("i4"), (bits & 7).astype("f8")
    size = np.where(
        exponent == 0, fraction / 8 * 2.0 ** (1 - bias), (1 + fraction / 8) * 2.0 ** (exponent - bias)
    )
    return np.where(bits >> 7, -size, size)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["gfx1201", "gfx942"], indirect=True)
def test_matmul_of_eight_bit_floats(runner: Runner) -> None:
    """OCP's on gfx1201, without infinities and negative zero on gfx942; gfx1100 has no such matrix operation."""
    name, bias = {"gfx1201": ("matmul_fp8", 7), "gfx942": ("matmul_fp8_fnuz", 8)}[runner.arch]
    a, b = (
        rng().integers(0, 127, s, dtype="u1") | rng().integers(0, 2, s, dtype="u1") << 7
        for s in ((32, 128), (128, 64))
    )
    a[a == 0x80] = b[b == 0x80] = 0
    c = np.zeros((32, 64), "f4")
    matmul(runner, name, a, b, c, (32, 32))
    left, right = eight_bits(a, bias), eight_bits(b, bias)
    close(c, left @ right, np.abs(left) @ np.abs(right), 19)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "attention_causal"])
def test_attention(runner: Runner, name: str) -> None:
    heads, length, depth, scale = 2, 100, 64, 0.125
    q, k, v = (rng().standard_normal((heads, length, depth)).astype("f2") for _ in range(3))
    q, k = np.roll(q, 1, 2), np.roll(k, 2, 1)
    out = np.zeros_like(q)
    runner.run(TRITON, name, (cdiv(length, 64), heads), q, k, v, out, length, scale)
    score = q.astype("f8") @ k.astype("f8").transpose(0, 2, 1) * scale
    if "causal" in name:
        score[:, ~np.tri(length, dtype=bool)] = -np.inf
    power = np.exp(score - score.max(axis=2, keepdims=True))
    power /= power.sum(axis=2, keepdims=True)
    close(out, power @ v.astype("f8"), power @ np.abs(v).astype("f8"), 9)


@pytest.mark.sampled(3)
def test_scan(runner: Runner) -> None:
    x = rng().standard_normal((3, 900)).astype("f4")
    out = np.zeros((2, 3, 900), "f4")
    runner.run(TRITON, "scan", (3,), x, out, 900)
    close(out[0], np.cumsum(x.astype("f8"), axis=1), np.cumsum(np.abs(x.astype("f8")), axis=1), 20)
    assert np.array_equal(out[1], np.maximum.accumulate(x, axis=1))


@pytest.mark.sampled(3)
def test_histogram(runner: Runner) -> None:
    x = rng().integers(0, 64, 3000, dtype="i4")
    counts = np.zeros(64, "i4")
    runner.run(TRITON, "histogram", (3,), x, counts, 3000)
    assert np.array_equal(counts, np.bincount(x, minlength=64))
