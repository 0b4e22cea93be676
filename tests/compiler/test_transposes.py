"""Kernels that transpose on GPUs: tiles in shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import DType, dtypes
from compiler.ir.index import loop
from compiler.nest.loop_nest import Stage
from compiler.nest.nest_check import shared_estimate, verify
from compiler.pipeline import steps
from compiler.plan import transposes
from compiler.targets import target_of
from compiler.targets.nvptx.target import ptx
from hcq.errors import CompileError
from tests.compiler.kernels import load, number, op, proposed, sink, store
from tests.compiler.test_nvptx import run
from tools.bank_conflicts import conflicts

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

F16, F32, U8 = dtypes.float16, dtypes.float32, dtypes.uint8


def transposed(rows: int, columns: int, dtype: DType, *, added: bool = False) -> UOp:
    """The transpose of a matrix of columns x rows, plus a matrix of the result's shape with `added`."""
    i, j = loop(0, rows), loop(1, columns)
    value = load(1, j * rows + i, dtype)
    if added:
        value = op("ADD", value, load(2, i * columns + j, dtype))
    return sink(store(0, i * columns + j, value))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((64, 96), F32), ((72, 104), F16), ((100, 52), F32), ((33, 47), F32), ((40, 50), U8)]
)
def test_transposes_are_exact_at_every_edge(shape: tuple[int, int], dtype: DType) -> None:
    rows, columns = shape
    ast = transposed(rows, columns, dtype, added=True)
    assert proposed(transposes.propose, ast, target_of("sm_90a")) is not None
    rng = np.random.default_rng(0)
    x = rng.integers(0, 99, (columns, rows)).astype(dtype.numpy)
    y = rng.integers(0, 99, (rows, columns)).astype(dtype.numpy)
    got = run(ast, {1: x, 2: y}, {0: (x.size, dtype)})[0].reshape(rows, columns)
    assert (got == x.T + y).all()


@pytest.mark.parametrize("arch", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_tiles_have_no_bank_conflicts_and_loads_and_stores_are_vectors(arch: str, dtype: DType) -> None:
    target = target_of(arch)
    made = steps(transposed(512, 512, dtype), target)
    found = conflicts(made.lines, target.warp)
    assert found.accesses > 4
    assert found.passes == found.least
    if arch == "sm_90a":
        text = ptx(made.ir, target.machine(), 0)
        assert text.count("ld.global.v4") == text.count("st.global.v4") == 2
        assert "cvt" not in text.replace("cvt.u64.u32", ""), "values stay as they are in memory"


def test_a_range_between_two_others_is_turned_within_its_batch() -> None:
    batch, rows, columns = 3, 20, 36
    b, i, j = loop(0, batch), loop(1, rows), loop(2, columns)
    value = op("MUL", load(1, (b * columns + j) * rows + i), number(2.0))
    ast = sink(store(0, (b * rows + i) * columns + j, value))
    made = proposed(transposes.propose, ast, target_of("sm_90a"))
    assert made is not None
    plan = made.plan
    assert plan.launch()[0][2] == batch
    assert len([s for s in plan.steps if isinstance(s, Stage) and s.across]) == 1
    x = np.arange(batch * rows * columns, dtype=np.float32).reshape(batch, columns, rows)
    got = run(ast, {1: x}, {0: (x.size, F32)})[0].reshape(batch, rows, columns)
    assert (got == 2 * x.transpose(0, 2, 1)).all()


def test_a_tile_beyond_the_shared_memory_is_refused() -> None:
    target, ast = target_of("sm_90a"), transposed(512, 512, F32)
    plan = steps(ast, target).plan
    assert shared_estimate(plan) == 8192
    with pytest.raises(CompileError, match=r"at most 8191 bytes of shared memory on sm_90a, saw 8192"):
        verify(plan, replace(target, shared_bytes=8191))


def test_other_kernels_have_no_such_plan() -> None:
    i, j = loop(0, 64), loop(1, 64)
    same = sink(store(0, i * 64 + j, load(1, i * 64 + j)))
    strided = sink(store(0, i * 64 + j, load(1, (j * 64 + i) * 2)))
    in_place = sink(store(0, i * 64 + j, load(0, j * 64 + i)))
    short = transposed(64, 8, F32)
    for ast in (same, strided, in_place, short):
        assert proposed(transposes.propose, ast, target_of("sm_90a")) is None
    assert proposed(transposes.propose, transposed(64, 64, F32), target_of("x86_64-v3")) is None
