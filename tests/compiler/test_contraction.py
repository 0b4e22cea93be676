"""Contractions: what the plan contains, and results for whole and ragged sizes in every layout."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

import dataclasses
import math
import re

import numpy as np
import pytest

from compiler import llvm, pipeline
from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp
from compiler.nest import operand_roles, register_tile
from compiler.nest.kernel_shape import analyse
from compiler.nest.loop_nest import Axis, LoopNest, Reduction, Stage, Step
from compiler.pipeline import lower
from compiler.plan import contraction
from compiler.plan.choice import ProductChoice
from compiler.plan.proposal import prepared
from compiler.rewrite.mask_hoisting import hoist_masks
from compiler.targets import target_of
from hcq.errors import CompileError
from tests.compiler.host_kernel import HostKernel
from tests.compiler.kernels import ARCH, load, loop, number, op, proposed, reduce, run, sink, store, stored_as

ARCHES = [ARCH, "x86_64-v3"]
LAYOUTS = ["ab", "aB", "Ab", "AB"]
"""A capital letter is a transposed operand."""


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(m: int, n: int, k: int, layout: str = "ab", dtype=dtypes.float32) -> UOp:
    """Return the multiply of a by b, unsummed; ranges 0 and 1 are the outputs, 2 is summed."""
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    a = load(1, r * m + i if layout[0] == "A" else i * k + r, dtype)
    b = load(2, j * k + r if layout[1] == "B" else r * n + j, dtype)
    return op("MUL", a, b)


def matmul(m: int, n: int, k: int, layout: str = "ab") -> UOp:
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    return sink(store(0, i * n + j, reduce(product(m, n, k, layout), "ADD", r)))


def planned(ast: UOp, arch: str = "x86_64-v3") -> LoopNest | None:
    made = proposed(contraction.propose, ast, target_of(arch))
    return None if made is None else made.plan


def stages(plan: LoopNest) -> list[Stage]:
    return [s for s in plan.steps if isinstance(s, Stage)]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 64, 64), (67, 129, 45), (7, 300, 40), (300, 10, 50), (8, 9, 600), (33, 200, 1100), (200, 24, 8)],
)
def test_products_of_all_sizes_and_layouts(m, n, k, layout, arch):
    ast = matmul(m, n, k, layout)
    a, b = values(m, k), values(k, n, seed=1)
    given = {1: a.T.copy() if layout[0] == "A" else a, 2: b.T.copy() if layout[1] == "B" else b}
    got = run(ast, given, {0: (m * n, dtypes.float32)}, arch=arch)[0].reshape(m, n)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4 * np.sqrt(k))


def test_register_tiles_fit_the_registers():
    for arch, registers in (("x86_64-v3", 16), ("x86_64-v4", 32), ("aarch64-v8", 32)):
        target = target_of(arch)
        for m, n in ((64, 64), (1000, 777), (2, 4096), (4096, 16), (6, 6)):
            for first in (False, True):
                rows, vectors = register_tile.tile(m, n, target.vector_bytes // 4, target, first=first)
                assert rows * vectors + vectors + 1 <= registers
                assert rows <= m


def test_the_choice_among_equal_ranges_is_the_first_by_number():
    """A choice by a set's order would change rounding from process to process."""
    outer = [loop(n, 16) for n in range(6)]
    r = loop(6, 64)
    a = load(1, sum((one * 64 * 16**n for n, one in enumerate(outer[:5])), r))
    b = load(2, r * 16 + outer[5])
    at = sum((one * 16 ** (n + 1) for n, one in enumerate(outer[:5])), outer[5])
    found = operand_roles.candidates(analyse(sink(store(0, at, reduce(op("MUL", a, b), "ADD", r)))))[0]
    assert (found.rows, found.columns) == (outer[0], outer[5])


@pytest.mark.parametrize("arch", ARCHES)
def test_batches_run_outside(arch):
    count, m, n, k = 5, 48, 40, 32
    g, i, j, r = loop(0, count), loop(1, m), loop(2, n), loop(3, k)
    a, b = load(1, (g * m + i) * k + r), load(2, (g * n + j) * k + r)
    ast = sink(store(0, (g * m + i) * n + j, reduce(op("MUL", a, b), "ADD", r)))
    x, y = values(count, m, k), values(count, n, k, seed=1)
    assert planned(ast) is not None
    got = run(ast, {1: x, 2: y}, {0: (count * m * n, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got.reshape(count, m, n), x @ y.transpose(0, 2, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHES)
def test_prologue_and_epilogue(arch):
    """Operands that are computed go through panels once; what follows the sum runs on the tile."""
    m, n, k = 70, 90, 64
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    a = op("MAX", load(1, i * k + r), number(0.0))
    b = op("MUL", load(2, r * n + j), load(3, j))
    total = op("ADD", reduce(op("MUL", a, b), "ADD", r), load(4, j))
    ast = sink(store(0, i * n + j, op("MAX", total, number(0.0))))
    plan = planned(ast)
    assert plan is not None
    assert {int(s.axis.arg[0]) for s in stages(plan)} == {0, 1}
    x, y, scale, bias = values(m, k), values(k, n, seed=1), values(n, seed=2), values(n, seed=3)
    want = np.maximum(np.maximum(x, 0) @ (y * scale) + bias, 0)
    got = run(ast, {1: x, 2: y, 3: scale, 4: bias}, {0: (m * n, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got.reshape(m, n), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
def test_operands_of_other_dtypes(dtype):
    m, n, k = 40, 50, 33
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    x = np.random.default_rng(0).integers(-4, 5, (m, k)).astype(np.float64)
    y = np.random.default_rng(1).integers(-4, 5, (k, n)).astype(np.float64)

    def stored(v: np.ndarray) -> np.ndarray:
        if dtype is dtypes.bfloat16:
            return (v.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return v.astype(stored_as(dtype))

    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    a, b = load(1, i * k + r, dtype), load(2, r * n + j, dtype)
    if wide is not dtype:
        a, b = op(Ops.CAST, a, dtype=wide), op(Ops.CAST, b, dtype=wide)
    ast = sink(store(0, i * n + j, reduce(op("MUL", a, b), "ADD", r)))
    assert planned(ast) is not None
    got = run(ast, {1: stored(x), 2: stored(y)}, {0: (m * n, wide)})[0]
    np.testing.assert_array_equal(got.reshape(m, n), x @ y)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("channels", "filters", "height"), [(5, 12, 14), (16, 20, 9)])
def test_convolution_reads_patches_into_panels(channels, filters, height, arch):
    """Padding is a mask of the copy; the register tile sees whole panels."""
    f, y, x = loop(0, filters), loop(1, height), loop(2, height)
    c, p, q = loop(3, channels), loop(4, 3), loop(5, 3)
    row, column = y + p - 1, x + q - 1
    inside = symbolic.both(
        symbolic.both(symbolic.lt(-row, 1), symbolic.lt(row, height)),
        symbolic.both(symbolic.lt(-column, 1), symbolic.lt(column, height)),
    )
    picture = load(1, (c * height + row) * height + column, mask=inside)
    weight = load(2, ((f * channels + c) * 3 + p) * 3 + q)
    ast = sink(store(0, (f * height + y) * height + x, reduce(op("MUL", picture, weight), "ADD", c, p, q)))
    plan = planned(ast)
    assert plan is not None
    assert stages(plan)
    image, kernel = values(channels, height, height), values(filters, channels, 3, 3, seed=1)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    want = np.einsum("cyxpq,fcpq->fyx", windows, kernel)
    got = run(ast, {1: image, 2: kernel}, {0: (want.size, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-4)


def test_long_sums_are_added_in_blocks():
    """Rounding grows with the root of the length, not with the length."""
    m, n, k = 8, 16, 1 << 16
    x = np.full((m, k), 0.1, np.float32)
    y = np.ones((k, n), np.float32)
    got = run(matmul(m, n, k), {1: x, 2: y}, {0: (m * n, dtypes.float32)})[0]
    np.testing.assert_allclose(got, k * float(np.float32(0.1)), rtol=1e-5)


@pytest.mark.parametrize("k", [300, 3001])
def test_groups_do_not_change_the_sums(k):
    """The plan for many cores adds in the same order as the one for one core."""
    m, n = 192, 384
    ast = matmul(m, n, k, "aB")
    assert bool(cuts(ast)) == (k > 1000)
    target = target_of(ARCH)
    x, y = values(m, k), values(n, k, seed=1)
    results = []
    for cores in (1, 16):
        one = dataclasses.replace(target, cores=cores)
        ir, plan = lower(ast, one)
        out = np.zeros(m * n, np.float32)
        HostKernel(one.emit(ir, one.machine(), 0)).run(
            [out.ctypes.data, x.ctypes.data, y.ctypes.data], [], plan.launch()[0][0]
        )
        results.append((plan.launch()[0][0], out))
    assert results[0][0] != results[1][0], "both plans have as many workgroups"
    np.testing.assert_array_equal(results[0][1], results[1][1])


def cuts(ast: UOp, arch: str = ARCH) -> dict[int, int]:
    """Return the sizes of the pieces of summed ranges, by number."""
    plan = planned(ast, arch)
    assert plan is not None
    summed = {r for reduction in plan.reductions.values() for r in reduction.ranges}
    return {int(s.range.arg[0]): s.size for s in plan.steps if isinstance(s, Step) and s.range in summed}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    ("m", "n", "k", "layout"),
    [(50, 37, 2999, "aB"), (48, 32, 4096, "aB"), (13, 70, 2049, "aB"), (4, 150, 2900, "ab")],
)
def test_long_sums_are_cut_into_pieces(m, n, k, layout, arch):
    """Whole and short last pieces, one and several blocks, and what follows the sum once only."""
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    total = op("ADD", reduce(product(m, n, k, layout), "ADD", r), load(3, j))
    ast = sink(store(0, i * n + j, op("MAX", total, number(0.0))))
    assert list(cuts(ast, arch)) == [2]
    a, b, bias = values(m, k), values(k, n, seed=1), values(n, seed=2)
    given = {1: a.T.copy() if layout[0] == "A" else a, 2: b.T.copy() if layout[1] == "B" else b, 3: bias}
    got = run(ast, given, {0: (m * n, dtypes.float32)}, arch=arch)[0].reshape(m, n)
    np.testing.assert_allclose(got, np.maximum(a.astype(np.float64) @ b + bias, 0), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("count", "channels", "filters", "height"), [(19, 8, 10, 13), (2, 11, 6, 30)])
def test_gradient_of_weights_sums_pieces_of_pictures(count, channels, filters, height, arch):
    """The sum is over pictures, rows and columns: the outer ones are cut, the totals of all taps are kept."""
    f, c, p, q = loop(0, filters), loop(1, channels), loop(2, 3), loop(3, 3)
    n, y, x = loop(4, count), loop(5, height), loop(6, height)
    row, column = y + p - 1, x + q - 1
    inside = symbolic.both(
        symbolic.both(symbolic.lt(-row, 1), symbolic.lt(row, height)),
        symbolic.both(symbolic.lt(-column, 1), symbolic.lt(column, height)),
    )
    picture = load(1, ((n * channels + c) * height + row) * height + column, mask=inside)
    gradient = load(2, ((n * filters + f) * height + y) * height + x)
    ast = sink(
        store(0, ((f * channels + c) * 3 + p) * 3 + q, reduce(op("MUL", picture, gradient), "ADD", n, y, x))
    )
    assert cuts(ast, arch), "no range is cut"
    image, out = values(count, channels, height, height), values(count, filters, height, height, seed=1)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))), (height, height), (2, 3)
    )
    want = np.einsum("ncpqyx,nfyx->fcpq", windows, out)
    got = run(ast, {1: image, 2: out}, {0: (want.size, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-2)


def test_a_range_outside_the_sum_has_no_totals_between_pieces():
    i, j, e, r = loop(0, 8), loop(1, 16), loop(2, 4), loop(3, 64)
    total = reduce(op("MUL", load(1, i * 64 + r), load(2, r * 16 + j)), "ADD", r)
    ast = sink(store(0, (i * 16 + j) * 4 + e, op("MUL", total, load(3, e))))
    axes = (Axis(i, 4), Axis(j, 2, 8), Axis(e))
    steps = [Step("loop", r, 16), Step("loop", i), Step("loop", j), Step("loop", e)]
    with pytest.raises(CompileError, match="r2"):
        lower(ast, target_of(ARCH), LoopNest(axes, tuple(steps), {frozenset([r]): Reduction((r,))}))
    steps.insert(0, steps.pop())
    x, y, z = values(8, 64), values(64, 16, seed=1), values(4, seed=2)
    target = target_of(ARCH)
    ir, _ = lower(ast, target, LoopNest(axes, tuple(steps), {frozenset([r]): Reduction((r,))}))
    out = np.zeros((8, 16, 4), np.float32)
    HostKernel(target.emit(ir, target.machine(), 0)).run([v.ctypes.data for v in (out, x, y, z)])
    np.testing.assert_allclose(out, (x @ y)[..., None] * z, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("m", [2, 5, 14])
def test_few_rows_of_a_large_matrix_are_read_in_place(m, arch):
    """A piece is a few rows of the matrix, read side by side; nothing is copied.

    More products than loads need pieces only where each row of the matrix is on another page.
    """
    n, k = 1100, 301
    near = planned(matmul(m, 700, 500), arch)
    plan = planned(matmul(m, n, k), arch)
    assert plan is not None
    assert near is not None
    assert stages(plan) == stages(near) == []
    assert list(cuts(matmul(m, n, k), arch).values()) == [8]
    assert list(cuts(matmul(m, 700, 500), arch).values()) == [8] * (m <= 4)
    a, b = values(m, k), values(k, n, seed=1)
    got = run(matmul(m, n, k), {1: a, 2: b}, {0: (m * n, dtypes.float32)}, arch=arch)[0]
    np.testing.assert_allclose(got.reshape(m, n), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)


def test_masks_that_both_factors_share_go_outside_the_sum():
    """A padded product is a contraction; infinite weights outside make no NaN."""
    m, n, k = 30, 40, 32
    i, j, r = loop(0, m), loop(1, n + 2), loop(2, k)
    inside = symbolic.both(symbolic.lt(-j, 0), symbolic.lt(j, n + 1))
    a, b = load(1, i * k + r, mask=inside), load(2, r * n + j - 1, mask=inside)
    ast = sink(store(0, i * (n + 2) + j, reduce(op("MUL", a, b), "ADD", r)))
    assert planned(ast) is None
    hoisted = hoist_masks(ast)
    assert planned(hoisted) is not None
    assert hoist_masks(hoisted) is hoisted
    for arch in ("x86_64-v3", "gfx1100"):
        assert pipeline.planned(ast, target_of(arch)) == pipeline.planned(hoisted, target_of(arch))
    x, y = values(m, k), values(k, n, seed=1)
    x[3, 4] = np.inf
    got = run(ast, {1: x, 2: y}, {0: (m * (n + 2), dtypes.float32)})[0].reshape(m, n + 2)
    assert (got[:, [0, -1]] == 0).all()
    np.testing.assert_allclose(got[:, 1:-1], x.astype(np.float64) @ y, rtol=1e-4, atol=1e-4)


def test_masks_of_summed_ranges_and_of_both_indices_stay():
    i, j, r = loop(0, 20), loop(1, 40), loop(2, 32)
    summed, row = symbolic.lt(r, 30), symbolic.lt(i + j, 50)
    for mask in (summed, row):
        a, b = load(1, i * 32 + r, mask=mask), load(2, (r * 40 + j) * 20 + i, mask=mask)
        ast = sink(store(0, i * 40 + j, reduce(op("MUL", a, b), "ADD", r)))
        assert hoist_masks(ast) is ast


@pytest.mark.parametrize(
    ("arch", "multiply_add"),
    [
        ("x86_64-v3", r"vfmadd\d+ps\s.*%ymm\d+"),
        ("x86_64-v4", r"vfmadd\d+ps\s.*%zmm\d+"),
        ("aarch64-v8", r"fmla\s+v\d+\.4s"),
    ],
)
def test_each_row_of_the_host_multiplies_whole_vectors_in_registers(arch, multiply_add):
    """Compiled for each architecture: the multiply-adds of one round are those of the tile, none spilled."""
    ast, target = matmul(96, 192, 3001, "aB"), target_of(arch)
    ir, plan = lower(ast, target)
    text = llvm.emit_assembly(ir, target.machine())
    blocks = re.split(r"^\.?L\w+:", text, flags=re.MULTILINE)
    found = max((list(re.finditer(multiply_add, block)) for block in blocks), key=len)
    assert len(found) == math.prod([axis.upcast for axis in plan.axes])
    one_round = found[0].string[: found[-1].end()]
    assert not re.search(r"\(%rsp|\[sp", one_round), one_round


def test_a_summed_range_of_which_only_the_remainder_is_used_is_summed_whole():
    i, j, k = loop(0, 8), loop(1, 8), loop(2, 6)
    x, y = np.round(values(8, 3) * 4), np.round(values(8, 3, seed=1) * 4)
    value = reduce(op("MUL", load(1, i * 3 + k % 3), load(2, j * 3 + k % 3)), "ADD", k)
    got = run(sink(store(0, i * 8 + j, value)), {1: x, 2: y}, {0: (64, dtypes.float32)})[0]
    np.testing.assert_array_equal(got.reshape(8, 8), 2 * x @ y.T)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16, dtypes.float32])
def test_a_block_with_one_column_in_its_last_vector_stores_nothing_behind_it(dtype, arch):
    """LLVM stores 32 bits for the single 16-bit lane of a masked store whose value is truncated."""
    i, j, r = loop(0, 40), loop(1, 33), loop(2, 34)
    x, y = load(1, i * 34 + r, dtype), load(2, j * 34 + r, dtype)
    if dtype is not dtypes.float32:
        x, y = [op("CAST", value, dtype=dtypes.float32) for value in (x, y)]
    total = reduce(op("MUL", x, y), "ADD", r)
    ast = sink(store(0, i * 33 + j, total if dtype is dtypes.float32 else op("CAST", total, dtype=dtype)))
    target = target_of(arch)
    for rows, groups in ((8, 8), (8, 1), (4, 3), (3, 2)):
        choice = ProductChoice(rows=rows, vectors=3, staged=True, copied="all", groups=groups)
        made = pipeline.chosen(prepared(ast), target, choice)
        if made is None:  # too few registers
            continue
        code = target.emit(lower(made.ast, target, made.plan)[0], target.machine(), 0)
        room = np.full(40 * 33 + 64, 7, stored_as(dtype))
        given = np.zeros((40, 34), stored_as(dtype))
        HostKernel(code).run([z.ctypes.data for z in (room, given, given)], groups=made.plan.launch()[0][0])
        assert not room[: 40 * 33].any()
        assert (room[40 * 33 :] == 7).all(), choice
