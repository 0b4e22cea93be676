"""Convolutions that multiply places of a picture, read in place, by vectors of filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.kernel.nearby import lines_of
from compiler.kernel.plan import Stage
from compiler.pipeline import planned
from compiler.targets import target_of
from tests.compiler.host_kernel import ARCH
from tests.compiler.kernels import load, loop, op, reduce, run, sink, store

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.kernel.plan import Plan

ARCHES = [ARCH, "x86_64-v3"]


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution of square pictures."""

    count: int
    channels: int
    height: int
    filters: int
    size: int
    stride: int = 1
    padding: int = 0

    @property
    def out(self) -> int:
        """The height of the result."""
        return (self.height + 2 * self.padding - self.size) // self.stride + 1

    def ast(self) -> UOp:
        """Return the kernel: pictures in buffer 1, filters in buffer 2."""
        n, f, y, x = loop(0, self.count), loop(1, self.filters), loop(2, self.out), loop(3, self.out)
        c, p, q = loop(4, self.channels), loop(5, self.size), loop(6, self.size)
        row, column = y * self.stride + p - self.padding, x * self.stride + q - self.padding
        sides = [s for at in (row, column) for s in (symbolic.lt(-at, 1), symbolic.lt(at, self.height))]
        inside = symbolic.both(*sides) if self.padding else None
        picture = load(1, ((n * self.channels + c) * self.height + row) * self.height + column, mask=inside)
        weight = load(2, ((f * self.channels + c) * self.size + p) * self.size + q)
        at = ((n * self.filters + f) * self.out + y) * self.out + x
        return sink(store(0, at, reduce(op("MUL", picture, weight), "ADD", c, p, q)))

    def check(self, arch: str) -> None:
        """Compare the results for random numbers with those of NumPy."""
        rng = np.random.default_rng(0)
        image = rng.standard_normal((self.count, self.channels, self.height, self.height), dtype=np.float32)
        weights = rng.standard_normal((self.filters, self.channels, self.size, self.size), dtype=np.float32)
        border = (self.padding, self.padding)
        padded = np.pad(image, ((0, 0), (0, 0), border, border))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (self.size, self.size), (2, 3))
        windows = windows[:, :, :: self.stride, :: self.stride]
        want = np.einsum("ncyxpq,fcpq->nfyx", windows.astype(np.float64), weights)
        got = run(self.ast(), {1: image, 2: weights}, {0: (want.size, dtypes.float32)}, arch=arch)[0]
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-3)

    def plan(self, arch: str) -> Plan:
        """Return the plan."""
        return planned(self.ast(), target_of(arch))[1]


def stages(plan: Plan) -> list[Stage]:
    return [s for s in plan.steps if isinstance(s, Stage)]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "shape",
    [
        Convolution(3, 8, 24, 32, 5),
        Convolution(2, 20, 10, 64, 3),
        Convolution(2, 7, 21, 48, 3, stride=2),
        Convolution(2, 5, 13, 19, 3),
    ],
)
def test_pictures_without_borders(shape: Convolution, arch: str) -> None:
    shape.check(arch)


def test_a_picture_is_read_in_place_where_few_lines_hold_all_that_a_tile_multiplies() -> None:
    for arch in ("x86_64-v3", "x86_64-v4"):
        plan = Convolution(16, 32, 24, 32, 5).plan(arch)
        rows = next(a for a in plan.axes if a.upcast > 1 and a.lanes == 1)
        assert [s.axis.arg[1] for s in stages(plan)] == [32], "only the filters are copied"
        assert rows.size == 20
        assert rows.upcast in (5, 10), "all rows are of use"


def test_lines_of_neighbours_along_rows() -> None:
    x, c, p, q = loop(0, 20), loop(1, 32), loop(2, 5), loop(3, 5)
    picture = (c * 24 + p) * 24 + x + q
    assert lines_of(picture, x, 10, (c, p, q), 4) == 32 * 5 * 2, "each row of a picture, from any place on"
    assert lines_of(picture, x, 1, (c, p, q), 4) == 32 * 5 * 2
    assert lines_of(picture, x, 20, (c, p, q), 4) == 32 * 5 * 3
    assert lines_of(x * 24 + c, x, 10, (c,), 4) is None, "rows are too far apart"
    assert lines_of(picture, loop(4, 8), 8, (c, p, q), 4) is None, "the same for all rows"
    assert lines_of(symbolic.div(picture, 3), x, 10, (c, p, q), 4) is None
