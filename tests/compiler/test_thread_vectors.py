"""Row kernels on GPUs: vectors of a thread, and one workgroup for a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import graph as g
from compiler.ir.index import loop
from compiler.nest.loop_nest import Step
from compiler.pipeline import lower
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from compiler.targets.nvptx.target import ptx
from tests.compiler.graphs import layernorm, softmax
from tests.compiler.kernels import load, reduce, sink, store
from tests.compiler.test_nvptx import run

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest

F32, F16 = dtypes.float32, dtypes.float16


def kernel_of(node: UOp) -> UOp:
    (item,) = schedule([node])
    return item.ast


def text_of(ast: UOp, arch: str = "sm_90a") -> tuple[str, LoopNest]:
    target = target_of(arch)
    ir, plan = lower(ast, target)
    return ptx(ir, target.machine(), 0), plan


@pytest.mark.parametrize(("dtype", "rtol"), [(F32, 1e-6), (F16, 4e-3)])
def test_a_softmax_of_long_rows_loads_and_stores_vectors(dtype: DType, rtol: float) -> None:
    rows, columns = 3, 1024
    ast = kernel_of(softmax(g.param(1, (rows, columns), dtype)))
    text, plan = text_of(ast)
    assert plan.launch()[0] == (rows, 1, 1), "a workgroup computes its row once"
    assert "ld.global.v" in text
    assert "st.global.v" in text
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(dtype.numpy)
    got = run(ast, {1: x}, {0: (x.size, dtype)})[0].reshape(x.shape).astype(np.float64)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=rtol, atol=rtol * 1e-3)


@pytest.mark.parametrize(("columns", "loads"), [(4096, 4), (2048, 2)])
def test_rows_that_fit_the_registers_are_loaded_once(columns: int, loads: int) -> None:
    text, plan = text_of(kernel_of(softmax(g.param(1, (2, columns), F32))))
    assert text.count("ld.global") == text.count("st.global") == loads
    assert all(r.unroll == loads for r in plan.reductions.values())
    x = np.random.default_rng(0).standard_normal((2, columns)).astype(np.float32)
    got = run(kernel_of(softmax(g.param(1, (2, columns), F32))), {1: x}, {0: (x.size, F32)})[0]
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(got.reshape(x.shape), wide / wide.sum(1, keepdims=True), rtol=1e-6)


def test_sums_have_64_bytes_of_each_thread_under_way() -> None:
    i, j = loop(0, 1 << 16), loop(1, 4096)
    _, plan = text_of(sink(store(0, i, reduce(load(1, j * (1 << 16) + i), "ADD", j))))
    (columns,) = plan.reductions.values()
    lanes = next(a.lanes for a in plan.axes if a.threads)
    assert columns.unroll * lanes * 4 >= 64
    k = loop(2, 1 << 16)
    _, plan = text_of(sink(store(0, i, reduce(load(1, i * (1 << 16) + k), "ADD", k))))
    (rows,) = plan.reductions.values()
    assert rows.unroll * rows.lanes * 4 >= 64


def test_a_layer_norm_of_long_rows_uses_vectors() -> None:
    rows, columns = 2, 512
    shapes = ((rows, columns), (columns,), (columns,))
    ast = kernel_of(layernorm(*[g.param(n, s, F32) for n, s in enumerate(shapes, 1)]))
    text, _ = text_of(ast)
    assert "ld.global.v" in text
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, columns), columns, columns))
    got = run(ast, {1: x, 2: w, 3: b}, {0: (x.size, F32)})[0].reshape(x.shape)
    centred = x.astype(np.float64) - x.mean(1, keepdims=True, dtype=np.float64)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("first", "size"), [(1, 1024), (0, 1023)])
def test_rows_that_may_be_misaligned_are_loaded_value_by_value(first: int, size: int) -> None:
    i, r = loop(0, 4), loop(1, size)
    ast = sink(store(0, i, reduce(load(1, i * size + r + first), "ADD", r)))
    text, _ = text_of(ast)
    assert "ld.global.v" not in text
    x = np.random.default_rng(0).integers(-8, 9, 4 * size + first).astype(np.float32)
    assert (run(ast, {1: x}, {0: (4, F32)})[0] == x[first:].reshape(4, size).sum(1)).all()


def test_a_workgroup_that_loops_over_its_row_writes_all_of_it() -> None:
    rows, columns = 2, 4608
    ast = kernel_of(softmax(g.param(1, (rows, columns), F32)))
    _, plan = text_of(ast)
    assert plan.launch()[0] == (rows, 1, 1)
    assert [s.kind for s in plan.steps if isinstance(s, Step)] == ["group", "loop"]
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    got = run(ast, {1: x}, {0: (x.size, F32)})[0].reshape(x.shape)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=1e-5, atol=1e-9)
