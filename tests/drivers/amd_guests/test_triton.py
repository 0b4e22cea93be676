"""Triton's own code objects of products that `tests.guests` lacks, through the driver on emulated GPUs, against NumPy."""

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


def matmul(runner: Runner, name: str, a: Array, b: Array, c: Array, tile: tuple[int, int]) -> None:
    (m, k), n = a.shape, b.shape[1]
    groups = (cdiv(m, tile[0]), cdiv(n, tile[1]))
    runner.run(TRITON, name, groups, a, b, c, m, n, k, k, n, n)


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
