"""Microscaling: every code of every element type, boundaries and random blocks, against exact arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from frontend import Tensor
from frontend.nn.microscaling import from_mx, to_mx
from hcq.errors import UsageError
from tests.float8 import SMALLER, encoded, table

ELEMENTS = ("float8_e4m3fn", "float8_e5m2", *SMALLER)
DEVICES = ["cpu", "nv-emu:sm_90", "amd-emu:gfx1100", "amd-emu:gfx942"]


def blocks_of(element: str) -> np.ndarray:
    """Return blocks of every value and every middle, of random numbers, and of special ones."""
    rng = np.random.default_rng(1)
    every = table(element)
    sizes = np.unique(np.abs(every[np.isfinite(every)])).astype(np.float64)
    numbers = np.concatenate([sizes, (sizes[1:] + sizes[:-1]) / 2, [sizes[-1] * 1.02, sizes[-1] * 1.1]])
    numbers = np.concatenate([numbers, np.nextafter(numbers.astype("f"), np.float32(0)), -numbers])
    numbers = np.resize(numbers, (-(-len(numbers) // 31), 31))
    whole = np.concatenate([numbers, np.full((len(numbers), 1), 2.0 ** math.floor(math.log2(sizes[-1])))], 1)
    wild = rng.standard_normal((64, 32)) * np.exp2(rng.integers(-140, 120, (64, 1)))
    special = np.zeros((5, 32))
    special[1, 3], special[2, 4], special[3, 5], special[4, :2] = 1e-45, np.nan, -np.inf, (3.4e38, -1e38)
    special[0, :3] = -0.0
    with np.errstate(over="ignore"):
        return np.concatenate([whole, wild, special]).astype(np.float32)


def by_definition(x: np.ndarray, element: str) -> tuple[np.ndarray, np.ndarray]:
    """Return codes, one a number, and scales of blocks of 32 numbers."""
    every = table(element)
    most = every[np.isfinite(every)].max()
    codes, scales = np.zeros(x.shape, np.uint8), np.full(len(x), 255, np.uint8)
    for i, block in enumerate(x.astype(np.float64)):
        size = np.abs(block).max()
        if np.isfinite(size):
            power = max(-127, math.floor(math.log2(size)) - math.floor(math.log2(most))) if size else -127
            codes[i], scales[i] = encoded(np.clip(block / 2.0**power, -most, most), element), power + 127
    return codes, scales


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_are_those_of_the_definition(device: str):
    for element in ELEMENTS:
        x = blocks_of(element)
        wanted, scale = by_definition(x, element)
        codes, scales = to_mx(Tensor(x, device=device), element)
        assert scales.reshape(-1).tolist() == scale.tolist(), element
        stored = wanted[:, ::2] | wanted[:, 1::2] << 4 if element == "float4_e2m1fn" else wanted
        assert codes.tobytes() == stored.astype(np.uint8).tobytes(), element
        back = from_mx(codes, scales, element).numpy()
        factor = np.where(scale == 255, np.nan, np.exp2(scale.astype(np.float64) - 127))[:, None]
        exact = table(element)[wanted] * factor
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(back, exact.astype(np.float32))


def test_wrong_arguments_are_refused():
    x = Tensor.ones(2, 64)
    for call in (lambda: to_mx(x, "float3"), lambda: from_mx(x, x, "float3")):
        with pytest.raises(UsageError, match=r"wanted one of float8_e4m3fn, .*, saw 'float3'"):
            call()
    for wrong in (x[:, :40], x.double(), Tensor(1.0)):
        with pytest.raises(UsageError, match="last axis of a multiple of 32, saw"):
            to_mx(wrong)
    codes, scales = to_mx(x)
    for given in ((codes, scales[:, :1]), (codes.float(), scales), (codes, scales.int())):
        with pytest.raises(UsageError, match="from_mx: wanted float8_e4m3fn elements, and a uint8 scale"):
            from_mx(*given)
