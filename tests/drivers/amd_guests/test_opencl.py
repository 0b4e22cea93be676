"""Clang's code objects of OpenCL C, through the driver on emulated GPUs, agree with NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.drivers.amd.guests import OPENCL

if TYPE_CHECKING:
    from tests.drivers.amd_guests.conftest import Runner

GROUP = (256, 1, 1)


def rng() -> np.random.Generator:
    return np.random.default_rng(21)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", [64, 96, 256])
def test_saxpy_reads_the_size_of_its_workgroup(runner: Runner, threads: int) -> None:
    x, y = (rng().integers(-1000, 1000, 1003).astype("f4") for _ in range(2))
    wanted = y + np.float32(2.5) * x
    runner.run(OPENCL, "saxpy", (-(-1003 // threads),), y, x, 2.5, 1003, threads=(threads, 1, 1))
    assert np.array_equal(y, wanted)


@pytest.mark.sampled(3)
def test_reduce_by_a_tree_in_shared_memory(runner: Runner) -> None:
    x = rng().integers(-50, 50, 4000).astype("f4")
    out = np.zeros(3, "f4")
    runner.run(OPENCL, "reduce", (3,), out, x, 4000, threads=GROUP)
    padded = np.zeros(6 * 768, "f4")
    padded[:4000] = x
    assert np.array_equal(out, padded.reshape(6, 3, 256).sum(axis=(0, 2)))


@pytest.mark.sampled(3)
def test_scan_between_two_buffers(runner: Runner) -> None:
    x = rng().integers(0, 2**32, 512, dtype="u4")
    out = np.zeros_like(x)
    runner.run(OPENCL, "scan", (2,), out, x, threads=GROUP)
    assert np.array_equal(out, np.cumsum(x.reshape(2, 256), axis=1, dtype="u4").ravel())


@pytest.mark.sampled(3)
def test_transpose_by_tiles(runner: Runner) -> None:
    x = rng().standard_normal((37, 50)).astype("f4")
    out = np.zeros((50, 37), "f4")
    runner.run(OPENCL, "transpose", (4, 3), out, x, 37, 50, threads=(16, 16, 1))
    assert np.array_equal(out, x.T)


def test_histogram_by_atomics(runner: Runner) -> None:
    x = np.minimum(rng().integers(0, 256, 5001, dtype="u1"), 200).astype("u1")
    counts = np.zeros(256, "u4")
    runner.run(OPENCL, "histogram", (4,), counts, x, 5001, threads=GROUP)
    assert np.array_equal(counts, np.bincount(x, minlength=256))


@pytest.mark.sampled(3)
def test_places_of_a_grid_of_three_axes(runner: Runner) -> None:
    columns, rows, depth = 20, 9, 4
    out = np.zeros((depth, rows, columns), "u4")
    runner.run(OPENCL, "places", (3, 3, 2), out, columns, rows, threads=(8, 4, 2))
    at = np.arange(out.size, dtype="u4").reshape(out.shape)
    assert np.array_equal(out, at ^ np.uint32(24 << 16))


@pytest.mark.sampled(3)
def test_collatz_with_private_memory(runner: Runner) -> None:
    n = 300
    steps, last = np.zeros(n, "u4"), np.zeros(n, "u4")
    runner.run(OPENCL, "collatz", (3,), steps, last, n, threads=(128, 1, 1))
    for k in range(n):
        value, seen, count = k + 1, [0] * 8, 0
        while value != 1:
            seen[count & 7] = value
            value = 3 * value + 1 if value & 1 else value // 2
            count += 1
        assert (steps[k], last[k]) == (count, seen[count + 5 & 7] ^ seen[count + 6 & 7]), k


PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)


def mixed(value: int) -> int:
    prime = PRIMES[value & 15]
    whole = {0: value // prime, 1: value % prime, 2: value * prime, 5: (value << 20) // prime}
    kind = value % 7
    if kind in whole:
        return whole[kind]
    if kind == 3:
        return int(np.array(value / prime).view("u8"))
    if kind == 4:
        return int((np.float32(value) / np.float32(3)).view("u4"))
    return value.bit_count() + (32 - max(value, 1).bit_length() << 8)


@pytest.mark.sampled(3)
def test_a_mix_of_divisions_tables_and_double_precision(runner: Runner) -> None:
    x = rng().integers(0, 2**32, 400, dtype="u4") >> rng().integers(0, 32, 400, dtype="u4")
    out = np.zeros(400, "u8")
    runner.run(OPENCL, "mix", (4,), out, x, 400, threads=(100, 1, 1))
    wanted = np.array([mixed(int(value)) for value in x], "u8")
    inexact = x % 7 == 4  # the device library is not linked: f32 divisions are right to 2.5 ulp
    assert np.array_equal(out[~inexact], wanted[~inexact])
    assert np.all(np.abs(out[inexact].astype("i8") - wanted[inexact].astype("i8")) <= 3)
