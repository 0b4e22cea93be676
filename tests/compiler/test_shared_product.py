# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test
"""Products on GPUs: tiles in shared memory, matrix operations, and the verifier of their plans."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from compiler import llvm
from compiler.dtype import DType, dtypes
from compiler.ir.index import loop
from compiler.ir.uop import UOp, uop
from compiler.nest import nest_check
from compiler.nest.loop_nest import Axis, LoopNest, Step, Threads
from compiler.pipeline import lower, steps
from compiler.plan.choice import StagedChoice
from compiler.plan.shared_product import strip
from compiler.targets import target_of
from compiler.targets.amdgcn import matrix as amd
from compiler.targets.amdgcn.rows import ROWS as AMD_ROWS
from compiler.targets.amdgcn.rows import choice_of
from compiler.targets.host import matrix as host
from compiler.targets.host.target import LEVELS, MATRIX
from compiler.targets.nvptx import matrix as nv
from compiler.targets.nvptx.target import ROWS as NV_ROWS
from compiler.targets.nvptx.target import ptx
from compiler.text.llvm_ir import render
from hcq.errors import CompileError
from tests.compiler.kernels import load, number, op, reduce, sink, store
from tests.compiler.test_nvptx import run
from tests.fuzz.plans import small
from tools.bank_conflicts import conflicts

F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
INSTRUCTIONS = {
    ("sm_80", F16): "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ("sm_90a", BF16): "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    ("sm_120a", F16): "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ("gfx942", F16): "v_mfma_f32_16x16x16_f16",
    ("gfx942", BF16): "v_mfma_f32_16x16x16_bf16",
    ("gfx1100", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1100", BF16): "v_wmma_f32_16x16x16_bf16",
    ("gfx1201", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1201", BF16): "v_wmma_f32_16x16x16_bf16",
}


def product(m: int, n: int, k: int, layout: str = "ab", dtype: DType = F32) -> UOp:
    """The product of two matrices; a capital letter is a transposed operand."""
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    a = load(1, i * k + r if layout[0] == "a" else r * m + i, dtype)
    b = load(2, r * n + j if layout[1] == "b" else j * k + r, dtype)
    return sink(store(0, i * n + j, reduce(op("MUL", a, b), "ADD", r)))


def stored(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Return small integers as they are in memory."""
    if dtype is BF16:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype.numpy)


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


WARPGROUP = StagedChoice(matrix=True, rows=2, columns=1, high=4, wide=16, words=32, depth=4)
"""Two warpgroups, one above the other, with 128 columns."""
BESIDE = replace(WARPGROUP, rows=1, columns=2)
"""The same side by side."""


def assembly(ast: UOp, arch: str) -> tuple[str, LoopNest]:
    target = target_of(arch)
    ir, plan = lower(ast, target)
    return (ptx if arch.startswith("sm") else llvm.emit_assembly)(ir, target.machine(), level=0), plan


@pytest.mark.parametrize(
    ("size", "layout", "dtype"),
    [
        ((64, 64, 32), "ab", F32),
        ((33, 47, 29), "aB", F32),
        ((40, 36, 20), "AB", F32),
        ((33, 68, 40), "ab", F16),
        ((65, 39, 33), "AB", F16),
        ((48, 40, 64), "aB", BF16),
        ((40, 33, 34), "aB", BF16),  # rows of pairs, no more
        ((34, 50, 18), "ab", F16),
    ],
)
def test_products_of_small_integers_are_exact(size, layout, dtype):
    m, n, k = size
    a, b = integers(m, k), integers(k, n, seed=1)
    given = {1: a.T if layout[0] == "A" else a, 2: b.T if layout[1] == "B" else b}
    given = {slot: stored(np.ascontiguousarray(x), dtype) for slot, x in given.items()}
    got = run(product(m, n, k, layout, dtype), given, {0: (m * n, dtype)})[0]
    assert (got.reshape(m, n) == stored(a @ b, dtype)).all()


@pytest.mark.parametrize(
    ("size", "layout", "dtype", "arch", "choice"),
    [
        ((136, 72, 200), "ab", F16, "sm_80", None),  # beyond the last whole block in every direction
        ((64, 64, 40), "AB", F16, "sm_80", None),  # fewer blocks of the sum than places in the ring
        ((72, 64, 160), "aB", BF16, "sm_80", None),
        ((64, 72, 192), "Ab", BF16, "sm_80", None),
        ((136, 136, 200), "ab", F16, "sm_90a", WARPGROUP),
        ((64, 64, 40), "AB", F16, "sm_90a", BESIDE),
        ((72, 64, 136), "aB", BF16, "sm_90a", WARPGROUP),
        ((64, 136, 72), "Ab", BF16, "sm_90a", BESIDE),
        ((64, 256, 128), "ab", F16, "sm_90a", replace(WARPGROUP, rows=1, wide=32, depth=2)),
    ],
)
def test_pipelined_products_of_small_integers_are_exact(size, layout, dtype, arch, choice):
    m, n, k = size
    ast = product(m, n, k, layout, dtype)
    plan = steps(ast, target_of(arch), choice=choice).plan
    assert plan.matrix is not None
    assert plan.matrix.shared == (choice is not None)
    assert {s.mechanism for s in plan.shared_stages()} == {"asynchronous copies"}
    a, b = integers(m, k), integers(k, n, seed=1)
    given = {1: a.T if layout[0] == "A" else a, 2: b.T if layout[1] == "B" else b}
    given = {slot: stored(np.ascontiguousarray(x), dtype) for slot, x in given.items()}
    got = run(ast, given, {0: (m * n, dtype)}, arch=arch, choice=choice)[0]
    assert (got.reshape(m, n) == stored(a @ b, dtype)).all()


@pytest.mark.parametrize("layout", ["ab", "Ab", "aB", "AB"])
def test_warpgroups_take_tiles_from_shared_memory_and_copy_while_they_multiply(layout):
    target = target_of("sm_90a")
    made = steps(product(4096, 4096, 4096, layout, F16), target)
    found = conflicts(made.lines, 32)
    assert found.accesses > 8
    assert found.passes == found.least
    text = ptx(made.ir, target.machine(), 0)
    assert text.count("wgmma.mma_async.sync.aligned.m64n256k16") == 4
    order = [line.op for line in made.lines if line.op in ("publish", "barrier", "issue", "copy", "settle")]
    assert order.index("publish") < order.index("barrier") < order.index("issue") < order.index("settle")
    assert "copy" in order[order.index("issue") : order.index("settle")]
    assert ".local" not in text


@pytest.mark.parametrize("layout", ["ab", "Ab", "aB", "AB"])
def test_rings_of_tiles_have_no_bank_conflicts_and_no_spills(layout):
    made = steps(product(512, 512, 512, layout, F16), target_of("sm_80"))
    found = conflicts(made.lines, 32)
    assert found.accesses > 8
    assert found.passes == found.least
    text = ptx(made.ir, target_of("sm_80").machine(), 0)
    assert "cp.async.cg.shared.global" in text
    assert "ldmatrix.sync" in text
    assert ".local" not in text


def test_operands_that_are_computed_or_unaligned_are_not_copied_asynchronously():
    i, j, r = loop(0, 64), loop(1, 64), loop(2, 64)
    doubled = op("MUL", load(1, i * 64 + r, F16), number(2.0, F16))
    ast = sink(store(0, i * 64 + j, reduce(op("MUL", doubled, load(2, r * 64 + j, F16)), "ADD", r)))
    for kernel in (ast, product(64, 68, 64, "ab", F16), product(64, 64, 60, "aB", F16)):
        _, plan = lower(kernel, target_of("sm_90a"))
        assert {s.mechanism for s in plan.shared_stages()} == {"vector loads"}


def test_rings_need_two_tiles_and_fit_the_memory_of_a_launch():
    _, plan = lower(product(512, 512, 512, "ab", F16), target_of("sm_90a"))
    for depth, words in ((1, "2 tiles"), (64, "bytes of shared memory")):
        stages = [replace(s, depth=depth) for s in plan.shared_stages()]
        others = [s for s in plan.steps if s not in plan.shared_stages()]
        with pytest.raises(CompileError, match=words):
            nest_check.verify(replace(plan, steps=(*others, *stages)), target_of("sm_90a"))
    with pytest.raises(CompileError, match="asynchronous copies"):
        render(
            steps(product(512, 512, 512, "ab", F16), target_of("sm_90a")).lines,
            "k",
            3,
            0,
            target_of("gfx1100").dialect,
        )


def test_workgroups_of_large_products_run_down_strips_of_rows():
    """A wave of workgroups then loads the tiles of fewer rows and columns."""
    m, n, k = 1000, 2048, 16
    ast = product(m, n, k, "ab", F16)
    _, plan = lower(ast, target_of("sm_80"))
    high = strip(*plan.axes, target_of("sm_80").cores)
    assert high > 1
    assert f"group(r0,{high}) group(r1,1) group(r0,1)" in plan.text()
    rows, columns = plan.axes
    assert plan.launch()[0] == (rows.count * columns.count, 1, 1)
    a, b = integers(m, k), integers(k, n, seed=1)
    given = {1: stored(a, F16), 2: stored(b, F16)}
    got = run(ast, given, {0: (m * n, F16)}, arch="sm_80")[0]
    assert (got.reshape(m, n) == stored(a @ b, F16)).all()


def test_strips_need_more_workgroups_than_cores_and_whole_pieces():
    wide = Axis(loop(0, 4096), 128)
    assert strip(wide, Axis(loop(1, 4096), 256), cores=132) == 16
    assert strip(wide, Axis(loop(1, 1024), 256), cores=132) == 0, "one wave"
    assert strip(Axis(loop(0, 128 * 31), 128), Axis(loop(1, 4096), 256), cores=132) == 0, "31 blocks of rows"
    assert strip(wide, Axis(loop(1, 256), 256), cores=16) == 0, "one column"


def test_sums_of_random_floats_are_within_the_bound_of_a_chain():
    m, n, k = 32, 32, 200
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    got = run(product(m, n, k), {1: a, 2: b}, {0: (m * n, F32)})[0].reshape(m, n)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(got - exact) <= k * 2.0**-24 * (np.abs(a) @ np.abs(b))).all()


def test_a_convolution_with_prologue_and_epilogue_runs_on_tiles():
    """Rows are channels, columns all pixels of all pictures; padding is a mask of the copy."""
    count, channels, size, out = 2, 3, 6, 16
    b, o, y, x = loop(0, count), loop(1, out), loop(2, size), loop(3, size)
    c, ky, kx = loop(4, channels), loop(5, 3), loop(6, 3)
    row, column = y + ky + -1, x + kx + -1
    inside = [(row * -1, 1), (row, size), (column * -1, 1), (column, size)]
    mask = uop("IAND", dtypes.bool, tuple([uop("ILT", dtypes.bool, (at,), end) for at, end in inside]))
    picture = load(1, ((b * channels + c) * size + row) * size + column, F32, mask)
    weight = op("MUL", load(2, ((o * channels + c) * 3 + ky) * 3 + kx), number(2.0))
    total = reduce(op("MUL", picture, weight), "ADD", c, ky, kx)
    result = op("MAX", op("ADD", total, load(3, o)), number(0))
    ast = sink(store(0, ((b * out + o) * size + y) * size + x, result))
    _, plan = lower(ast, target_of("sm_90a"))
    assert len(plan.shared_stages()) == 2
    pictures, weights = integers(count, channels, size, size), integers(out, channels, 3, 3, seed=1)
    bias = integers(out, seed=2)
    padded = np.pad(pictures, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    want = np.einsum("bcyxij,ocij->boyx", windows, 2 * weights) + bias[:, None, None]
    got = run(ast, {1: pictures, 2: weights, 3: bias}, {0: (want.size, F32)})[0]
    assert (got.reshape(want.shape) == np.maximum(want, 0)).all()


def test_batches_are_a_dimension_of_the_grid_and_the_end_of_a_computed_operand_counts_as_0():
    count, m, n, k = 3, 17, 18, 21
    g, i, j, r = loop(0, count), loop(1, m), loop(2, n), loop(3, k)
    a = op("EXP2", load(1, (g * m + i) * k + r))
    ast = sink(store(0, (g * m + i) * n + j, reduce(op("MUL", a, load(2, (g * k + r) * n + j)), "ADD", r)))
    _, plan = lower(ast, target_of("sm_90a"))
    assert plan.launch()[0][2] == count
    x, y = integers(count, m, k), integers(count, k, n, seed=1)
    got = run(ast, {1: x, 2: y}, {0: (count * m * n, F32)})[0]
    np.testing.assert_allclose(got.reshape(count, m, n), np.exp2(x) @ y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("arch", "dtype"), INSTRUCTIONS)
def test_half_types_use_matrix_operations_and_spill_nothing(arch, dtype):
    text, plan = assembly(product(128, 128, 64, "ab", dtype), arch)
    assert INSTRUCTIONS[arch, dtype] in text
    assert plan.matrix is not None
    if arch.startswith("sm"):
        assert ".local" not in text
    else:
        assert ".vgpr_spill_count: 0" in text
        assert ".private_segment_fixed_size: 0" in text


def test_every_row_of_matrix_operations_is_used_by_a_product():
    """On each architecture, each of its rows; and each row of the tables on some architecture."""
    tables = (*amd.OPERATIONS.values(), nv.OPERATIONS, *nv.GROUPED.values())
    rows = {op for ops in tables for op in ops} | {op for ops in MATRIX[64].values() for op in ops}
    rows |= {op for ops in MATRIX[16].values() for op in ops}
    kinds = ["float16", "bfloat16", "int8", "uint8", "int16"]
    asts = [small.kernel_of(small.product(64, 64, 64, "ab", kind)) for kind in kinds]
    asts += [product(n, n, n, "ab", kind) for n in (1024, 4096) for kind in (F16, BF16)]
    used: set[object] = set()
    for arch in (*NV_ROWS, *AMD_ROWS, *LEVELS):
        target = replace(target_of(arch), render=lambda *_: "")
        lines = [line for ast in asts for line in steps(ast, target).lines if line.op in {"matrix", "issue"}]
        named = {line.arg.op if line.op == "issue" else line.arg for line in lines}
        assert {op.name for op in named} == {op.name for op in target.matrix}, arch
        used.update(target.matrix)
    assert used == rows


MFMA, MMA, GROUP = amd.OPERATIONS["mfma"][0], nv.OPERATIONS[0], nv.GROUPED["sm_90a"][0]
REFUSED = {
    "bytes on a GPU": ("gfx942", replace(MFMA, dtype=dtypes.int8, total=dtypes.int32), "sums of float32"),
    "float32 on a GPU": ("gfx942", replace(MFMA, dtype=F32), "float16 or bfloat16"),
    "two types on a GPU": ("gfx1100", replace(MFMA, other=BF16), "operands of one type"),
    "a second row": ("sm_80", replace(MMA, name="mma.sync.m16n8k8.f16"), f"saw {MMA.name} before it"),
    "no copies": ("gfx1100", GROUP, "copies of 16 bytes"),
    "two words": ("x86_64-znver4", replace(host.SHORT, shape=(1, 16, 4)), "k values in 32 bits"),
    "wide sums": ("x86_64-znver4", replace(host.BF16, dtype=F16, total=dtypes.float64), "float32"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_row_that_no_plan_would_use_is_refused_with_the_rule(what: str):
    arch, row, rule = REFUSED[what]
    target = target_of(arch)
    with pytest.raises(CompileError, match=rf"{re.escape(row.name)} of {row.dtype.name}.* wanted .*({rule})"):
        replace(target, matrix=(*target.matrix, row))


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(("layout", "dtype"), [("ab", F16), ("AB", F16), ("ab", F32)])
def test_tiles_along_the_sum_have_whole_lines(arch, layout, dtype):
    target = target_of(arch)
    ast = product(512, 512, 512, layout, dtype)
    compiled = steps(ast, target)
    along = [s for s in compiled.plan.shared_stages() if s.along == "sum"]
    (reduction,) = compiled.plan.reductions.values()
    assert [reduction.staged * s.value.dtype.itemsize for s in along] == [target.line_bytes] * len(along)
    found = conflicts(compiled.lines, target.warp)
    assert found.passes == found.least
    text, _ = assembly(ast, arch)
    assert ".private_segment_fixed_size: 0" in text


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201", "sm_90a"])
def test_half_products_in_wide_tiles_loop_over_rounds_and_spill_nothing(arch):
    ast = product(512, 512, 512, "ab", F16)
    wide = 4 if arch == "sm_90a" else 2
    choice = StagedChoice(matrix=True, rows=2, columns=2, high=2, wide=wide, words=32)
    target = target_of(arch)
    compiled = steps(ast, target, choice=choice)
    emit = ptx if arch.startswith("sm") else llvm.emit_assembly
    text = emit(compiled.ir, target.machine(), level=0)
    assert compiled.plan.matrix is not None
    assert (".local" not in text) if arch.startswith("sm") else ".private_segment_fixed_size: 0" in text


EXCLUSIVE = (*nv.OPERATIONS, *amd.OPERATIONS["mfma"], *amd.OPERATIONS["wmma-gfx12"])


@pytest.mark.parametrize("operation", EXCLUSIVE)
def test_lane_maps_hold_every_element_once(operation):
    m, n, k = operation.shape
    for at, rows, columns in ((operation.a, m, k // 2), (operation.b, n, k // 2), (operation.d, m, n)):
        held = [at.at(lane, r) for lane in range(operation.lanes) for r in range(at.registers)]
        assert sorted(held) == [(i, j) for i in range(rows) for j in range(columns)]


def test_both_halves_of_a_wave_of_gfx11_hold_the_same_operands():
    (operation, _) = amd.OPERATIONS["wmma-gfx11"]
    for lane in range(16):
        for register in range(8):
            assert operation.a.at(lane, register) == operation.a.at(lane + 16, register) == (lane, register)
    held = {operation.d.at(lane, r) for lane in range(32) for r in range(8)}
    assert len(held) == 256


def test_waves_of_64_have_their_own_operations():
    assert amd.operations(choice_of("gfx1100:wave64")) == ()


def test_the_verifier_refuses_what_exceeds_the_target_or_misses_an_element():
    target = target_of("sm_90a")
    _, plan = lower(product(128, 128, 64), target)
    nest_check.verify(plan, target)
    with pytest.raises(CompileError, match="threads"):
        nest_check.verify(plan, replace(target, threads=32))
    with pytest.raises(CompileError, match="shared memory"):
        nest_check.verify(plan, replace(target, shared_bytes=1024))
    rows, columns = plan.axes
    with pytest.raises(CompileError, match="apart"):
        nest_check.verify(replace(plan, axes=(rows, replace(columns, threads=(Threads(8, 1, 3),)))), target)
    pieces = (Step("group", rows.range, 3), Step("group", rows.range))
    with pytest.raises(CompileError, match="whole pieces"):
        nest_check.verify(replace(plan, steps=(*pieces, *plan.steps)), target)
    deeper = tuple([replace(s, depth=2) if s in plan.shared_stages() else s for s in plan.steps])
    with pytest.raises(CompileError, match="depth 2"):
        nest_check.verify(replace(plan, steps=deeper), target)
