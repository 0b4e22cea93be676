"""Gradients of filters that copy each piece of a picture once for all taps: which ones, and results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.ir import index as symbolic
from compiler.targets import target_of
from tests.compiler.host_kernel import ARCH
from tests.compiler.kernels import load, loop, op, reduce, sink, store
from tests.compiler.pictures import ARCHES, run_plan, windowed

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest


@dataclass(frozen=True)
class Gradient:
    """The sizes of the gradient of the filters of a convolution of square pictures."""

    count: int
    channels: int
    height: int
    filters: int
    size: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def out(self) -> int:
        """The height of the gradient of the results."""
        return (self.height + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1

    def ast(self) -> UOp:
        """Return the kernel: pictures in buffer 1, gradients of results in buffer 2."""
        f, c, p, q = loop(0, self.filters), loop(1, self.channels), loop(2, self.size), loop(3, self.size)
        n, y, x = loop(4, self.count), loop(5, self.out), loop(6, self.out)
        row = y * self.stride + p * self.dilation - self.padding
        column = x * self.stride + q * self.dilation - self.padding
        sides = [s for at in (row, column) for s in (symbolic.lt(-at, 1), symbolic.lt(at, self.height))]
        inside = symbolic.both(*sides) if self.padding else None
        picture = load(1, ((n * self.channels + c) * self.height + row) * self.height + column, mask=inside)
        gradient = load(2, ((n * self.filters + f) * self.out + y) * self.out + x)
        at = ((f * self.channels + c) * self.size + p) * self.size + q
        return sink(store(0, at, reduce(op("MUL", picture, gradient), "ADD", n, y, x)))

    def check(self, arch: str, made: tuple[UOp, LoopNest]) -> None:
        """Compare the results of a plan for random numbers with those of NumPy."""
        rng = np.random.default_rng(0)
        image = rng.standard_normal((self.count, self.channels, self.height, self.height), dtype=np.float32)
        out = rng.standard_normal((self.count, self.filters, self.out, self.out), dtype=np.float32)
        border = (self.padding, self.padding)
        wide = np.pad(image.astype(np.float64), ((0, 0), (0, 0), border, border))
        want = np.zeros((self.filters, self.channels, self.size, self.size))
        reach = self.stride * (self.out - 1) + 1
        for p in range(self.size):
            for q in range(self.size):
                down, across = p * self.dilation, q * self.dilation
                part = wide[:, :, down : down + reach : self.stride, across : across + reach : self.stride]
                want[:, :, p, q] = np.einsum("ncyx,nfyx->fc", part, out)
        got = run_plan(made, (np.full(want.size, np.nan, np.float32), image, out), arch)
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-3)


def with_window(shape: Gradient, arch: str, *, groups: int = 0) -> list[tuple[UOp, LoopNest]]:
    """Return the plans that copy pieces of pictures for all taps."""
    target = replace(target_of(arch), winograd=False)
    sizes = ((2, 1), (3, 2), (8, 1), (5, 2), (12, 2))
    return windowed(shape.ast(), target, [(rows, vectors, groups) for rows, vectors in sizes])


SHAPES = [
    Gradient(3, 12, 12, 20, 5),
    Gradient(2, 8, 11, 33, 5, padding=2),
    Gradient(3, 8, 15, 16, 3, stride=2, padding=1),
    Gradient(1, 16, 20, 24, 3, padding=1),
    Gradient(4, 9, 9, 17, 2, padding=3),
    Gradient(2, 10, 14, 16, 3, padding=2, dilation=2),
    Gradient(2, 6, 24, 19, 3, stride=3),
    Gradient(2, 12, 32, 16, 1, padding=1),
    Gradient(5, 8, 8, 16, 8, padding=1),
]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_filters_with_a_window_of_all_taps(shape: Gradient, arch: str) -> None:
    plans = with_window(shape, arch)
    assert plans or shape.size == 1
    for plan in plans:
        shape.check(arch, plan)


@pytest.mark.parametrize("groups", [1, 2, 7, 30])
def test_workgroups_copy_their_part_of_a_piece(groups: int) -> None:
    for shape in (Gradient(3, 12, 12, 20, 5, padding=2), Gradient(1, 30, 24, 40, 3, padding=1)):
        plans = with_window(shape, ARCH, groups=groups)
        assert plans
        for plan in plans:
            shape.check(ARCH, plan)


def test_a_picture_that_exceeds_the_cache_is_copied_in_pieces_of_rows() -> None:
    shape = Gradient(1, 64, 64, 16, 5, padding=2)
    plans = with_window(shape, ARCH)
    assert plans
    assert any("loop(r5," in plan.text() for _, plan in plans)
    for plan in plans:
        shape.check(ARCH, plan)
