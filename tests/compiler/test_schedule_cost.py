"""How scheduling scales, counted in Python calls rather than time, and what it imports."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import graph as g
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from compiler.plan import tiling
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from tests.children import python
from tests.compiler.graphs import F32, add, conv2d, empty_table, matmul, mean, relu
from tests.compiler.host_kernel import ARCH
from tests.compiler.kernels import proposed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from compiler.ir.uop import UOp

I32 = dtypes.int32
ROOT = Path(__file__).parents[2]
_BLOCKS = (
    (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
    (512, 512, 1),
)  # fmt: skip


def resnet18() -> UOp:
    slots = itertools.count()

    def p(*shape: int) -> UOp:
        return g.param(next(slots), shape, F32)

    x = relu(conv2d(p(1, 3, 224, 224), p(64, 3, 7, 7), p(64), stride=2, padding=3))
    x = g.reduce(
        g.window(g.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (2, 3), (3, 3), (2, 2), (1, 1)), Ops.MAX, (4, 5)
    )
    for c, o, stride in _BLOCKS:
        y = relu(conv2d(x, p(o, c, 3, 3), p(o), stride=stride, padding=1))
        y = conv2d(y, p(o, o, 3, 3), p(o), padding=1)
        x = relu(add(y, x if stride == 1 else conv2d(x, p(o, c, 1, 1), p(o), stride=stride)))
    y = matmul(mean(x, (2, 3)), p(512, 1000))
    return add(y, g.expand(g.reshape(p(1000), (1, 1000)), y.shape))


def calls(build: Callable[[], UOp]) -> int:
    """Python calls that scheduling makes."""
    with empty_table():
        output = build()
        return calls_of(lambda: schedule([output]))


def calls_of(work: Callable[[], object]) -> int:
    """Python calls that some work makes."""
    seen = itertools.count()

    def watch(_frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            next(seen)

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(seen)


def test_equal_layers_of_a_resnet_share_a_key() -> None:
    keys = [kernel_key(item.ast) for item in schedule([resnet18()])]
    assert len(set(keys)) < len(keys)


def test_importing_the_package_loads_nothing() -> None:
    program = (
        "import sys, compiler; print([m for m in sys.modules if m.startswith(('compiler.', 'hcq', 'numpy'))])"
    )
    run = python("-c", program)
    assert run.stdout.strip() == "[]"


def test_scheduling_loads_neither_numpy_nor_llvm() -> None:
    heavy = ("numpy", "llvmlite", "ctypes")
    program = "import sys, compiler.schedule.scheduler\n"
    program += f"print([m for m in {heavy} if m in sys.modules])"
    run = python("-c", program)
    assert run.stdout.strip() == "[]"


def pointers(depth: int) -> UOp:
    """A chain of gathers: each index is a value gathered before, one of two neighbours."""
    table = g.param(0, (1000,), I32)
    place = g.param(1, (64,), I32)
    one = g.full(1, (64,), I32)
    for _ in range(depth):
        beside = g.binary(Ops.ADD, place, one)
        first, second = g.gather(table, place, 0), g.gather(table, beside, 0)
        place = g.where(g.binary(Ops.LT, first, second), first, beside)
    return place


def test_chained_gathers_schedule_in_linear_time() -> None:
    counts = [calls(lambda depth=depth: pointers(depth)) for depth in (10, 20, 40)]
    assert counts[2] - counts[1] <= 2.2 * (counts[1] - counts[0])


def test_chained_gathers_are_tiled_in_linear_time() -> None:
    counts = []
    for depth in (10, 20, 40):
        (item,) = schedule([pointers(depth)])
        ast = item.ast
        counts.append(calls_of(lambda ast=ast: proposed(tiling.propose, ast, target_of(ARCH))))
    assert counts[2] <= 2.5 * counts[1]
