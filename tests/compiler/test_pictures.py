"""Convolutions that multiply places of a picture by vectors of filters: read in place, or from a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.nest.loop_nest import Step
from compiler.nest.windows import sides_of
from compiler.pipeline import lower, planned
from compiler.plan.in_place_reads import lines_of
from compiler.targets import target_of
from tests.compiler.host_kernel import ARCH
from tests.compiler.kernels import load, loop, op, run, sink, store, stored_as
from tests.compiler.pictures import ARCHES, Convolution, stages, windowed

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest


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


def test_lines_of_neighbours_along_rows() -> None:
    x, c, p, q = loop(0, 20), loop(1, 32), loop(2, 5), loop(3, 5)
    picture = (c * 24 + p) * 24 + x + q
    assert lines_of(picture, x, 10, (c, p, q), 4) == 32 * 5 * 2, "each row of a picture, from any place on"
    assert lines_of(picture, x, 1, (c, p, q), 4) == 32 * 5 * 2
    assert lines_of(picture, x, 20, (c, p, q), 4) == 32 * 5 * 3
    assert lines_of(x * 24 + c, x, 10, (c,), 4) is None, "rows are too far apart"
    assert lines_of(picture, loop(4, 8), 8, (c, p, q), 4) is None, "the same for all rows"
    assert lines_of(symbolic.div(picture, 3), x, 10, (c, p, q), 4) is None


WINDOWS = [
    Convolution(5, 20, 9, 32, 3, padding=1),
    Convolution(1, 24, 31, 96, 3, padding=1),
    Convolution(1, 16, 40, 32, 5, padding=2),
    Convolution(3, 12, 17, 64, 3, stride=2, padding=1),
    Convolution(2, 33, 8, 40, 4, padding=3),
    Convolution(1, 3, 40, 64, 7, stride=2, padding=3),
    Convolution(2, 16, 15, 48, 3, stride=3, padding=2),
]


def with_window(shape: Convolution, arch: str) -> list[tuple[UOp, LoopNest]]:
    """Return kernels and plans that copy a window: the estimated one, others with few or many groups."""
    ast, target = shape.ast(), target_of(arch)
    first = planned(ast, target)
    own = [first] if any(s.window for s in stages(first[1])) else []
    return own + windowed(ast, target, [(4, 2, 0), (5, 2, 1), (7, 2, 16)])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("shape", WINDOWS)
def test_windows_have_zeros_around_the_picture(shape: Convolution, arch: str) -> None:
    plans = with_window(shape, arch)
    assert plans
    for plan in plans[:: max(1, len(plans) // 4)]:
        shape.check(arch, plan)


@pytest.mark.parametrize("arch", ["x86_64-v3", "x86_64-v4", "aarch64-v8"])
def test_windows_compile_for_each_row_of_the_host(arch: str) -> None:
    target = target_of(arch)
    ast, plan = with_window(WINDOWS[0], arch)[0]
    assert target.emit(lower(ast, target, plan)[0], target.machine(), 0)


def test_workgroups_of_one_picture_copy_their_rows_of_it() -> None:
    shape = Convolution(1, 16, 40, 32, 5, padding=2)
    divided = [
        (ast, plan)
        for ast, plan in with_window(shape, ARCH)
        if any(isinstance(s, Step) and s.kind == "group" and s.range.arg[1] == 40 for s in plan.steps)
    ]
    assert divided
    for one in divided:
        shape.check(ARCH, one)


def test_sides_of_a_window() -> None:
    shape = Convolution(2, 7, 21, 48, 3, stride=2, padding=1)
    value = shape.ast().src[0].src[2].src[0].src[0]
    found = sides_of(value, [loop(4, 7), loop(5, 3), loop(6, 3)])
    assert found is not None
    assert [side.size for side in found] == [7, 23, 23]
    assert found[1].place is loop(2, 11) * 2 + loop(5, 3)
    plain = load(1, loop(3, 8))
    assert sides_of(plain, []) is None, "no mask"
    wrong = load(1, loop(3, 8) * 2, mask=symbolic.lt(loop(3, 8), 5))
    assert sides_of(wrong, []) is None, "neighbours are apart"
    turned = load(1, loop(3, 8) - loop(4, 8) + 8, mask=symbolic.lt(loop(3, 8) - loop(4, 8), 5))
    assert sides_of(turned, []) is None, "places would be negative"
    other = load(1, loop(3, 8) + loop(4, 8), mask=symbolic.lt(loop(3, 8) + loop(4, 8) * 2, 5))
    assert sides_of(other, []) is None, "another sum than in the index"


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    ("height", "dtype"), [(12, dtypes.float32), (9, dtypes.float32), (17, dtypes.float16)]
)
def test_results_and_operands_across_the_vectors_are_transposed_in_registers(
    height: int, dtype: DType, arch: str
) -> None:
    """The vectors are along filters, and the tile's rows lie beside each other in the result."""
    shape = Convolution(2, 32, height, 32, 3, padding=1)
    (plain,) = shape.ast().src
    _, at, total = plain.src
    other = op("CAST", load(3, at, dtype), dtype=dtypes.float32)
    value = op("ADD", total, other)
    ast = sink(store(0, at, value), store(4, at, op("CAST", op("MUL", value, value), dtype=dtype)))
    rng = np.random.default_rng(1)
    image = rng.integers(-1, 2, (2, 32, height, height)).astype(np.float32)
    weights = rng.integers(-1, 2, (32, 32, 3, 3)).astype(np.float32)
    added = rng.integers(-9, 9, (2, 32, height, height)).astype(stored_as(dtype))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    want = np.einsum("ncyxpq,fcpq->nfyx", windows, weights) + added
    outputs = {0: (want.size, dtypes.float32), 4: (want.size, dtype)}
    got = run(ast, {1: image, 2: weights, 3: added}, outputs, arch=arch)
    np.testing.assert_array_equal(got[0].reshape(want.shape), want)
    np.testing.assert_array_equal(got[4].reshape(want.shape), (want * want).astype(stored_as(dtype)))


def test_a_window_that_exceeds_half_of_the_cache_is_copied_in_parts() -> None:
    shape = Convolution(2, 64, 56, 32, 3, padding=1)
    plan = shape.plan("x86_64-v4")
    assert "loop(r2,28) stage(r3,window,64,58,58) loop(r2,1)" in plan.text()
    shape.check(ARCH)
