"""Convolutions of pictures for tests of host plans: their ASTs, results by NumPy, and plans with a window.

Not here: what is true of them (`test_pictures`, `test_tap_windows`, `test_borders`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.nest.loop_nest import Stage
from compiler.pipeline import lower, planned
from compiler.plan.choice import ProductChoice
from compiler.targets import target_of
from frontend.tuning.space import Space
from hcq.config import override
from tests.compiler.host_kernel import ARCH, HostKernel
from tests.compiler.kernels import load, loop, op, reduce, run, sink, store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest
    from compiler.targets.shared.target import Target

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

    def check(self, arch: str, planned_as: tuple[UOp, LoopNest] | None = None) -> None:
        """Compare the results for random numbers with those of NumPy, of one plan or the estimated sum."""
        rng = np.random.default_rng(0)
        image = rng.standard_normal((self.count, self.channels, self.height, self.height), dtype=np.float32)
        weights = rng.standard_normal((self.filters, self.channels, self.size, self.size), dtype=np.float32)
        border = (self.padding, self.padding)
        padded = np.pad(image, ((0, 0), (0, 0), border, border))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (self.size, self.size), (2, 3))
        windows = windows[:, :, :: self.stride, :: self.stride]
        want = np.einsum("ncyxpq,fcpq->nfyx", windows.astype(np.float64), weights)
        if planned_as is None:
            with override(winograd=False):
                got = run(self.ast(), {1: image, 2: weights}, {0: (want.size, dtypes.float32)}, arch=arch)[0]
        else:
            got = run_plan(planned_as, (np.empty(want.size, np.float32), image, weights), arch)
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-3)

    def plan(self, arch: str) -> LoopNest:
        """Return the plan of the sum."""
        return planned(self.ast(), replace(target_of(arch), winograd=False))[1]


def run_plan(made: tuple[UOp, LoopNest], memory: Sequence[np.ndarray], arch: str = ARCH) -> np.ndarray:
    """Run a plan with buffers of float32, the first of them the result; return that."""
    (ast, plan), target = made, target_of(arch)
    room = np.full(memory[0].size + 64, np.nan, np.float32)
    kernel = HostKernel(target.emit(lower(ast, target, plan)[0], target.machine(), 0))
    kernel.run([x.ctypes.data for x in (room, *memory[1:])], groups=plan.launch()[0][0])
    assert np.isnan(room[memory[0].size :]).all(), "the kernel wrote behind its results"
    return room[: memory[0].size].reshape(memory[0].shape)


def stages(plan: LoopNest) -> list[Stage]:
    return [s for s in plan.steps if isinstance(s, Stage)]


def windowed(ast: UOp, target: Target, tiles: Iterable[tuple[int, int, int]]) -> list[tuple[UOp, LoopNest]]:
    """Return the plans with a window of all roles of the operands, for (rows, vectors, workgroups) each."""
    space, sizes = Space(ast, target), list(tiles)
    found = [
        space.candidate(
            ProductChoice(role=role, rows=rows, vectors=vectors, staged=True, copied="window", groups=groups)
        )
        for role in range(6)
        for rows, vectors, groups in sizes
    ]
    made = [(one.ast, one.plan) for one in found if one is not None]
    return [(ast, plan) for ast, plan in made if any(s.window for s in stages(plan))]
