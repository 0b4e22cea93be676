"""Random tensor programs and layers, scheduled, compiled for the host and run.

They compute what the graph means.
"""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import graph as g
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.schedule.item import OutRef, ParamRef
from compiler.schedule.scheduler import schedule
from tests import oracle
from tests.compiler import graphs
from tests.compiler.kernels import ARCH, GUARD, build

TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2}


def guarded(count: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """(whole memory, the part for the kernel)."""
    raw = np.full(2 * GUARD + count * dtype.itemsize, 0xA5, np.uint8)
    return raw, raw[GUARD : GUARD + count * dtype.itemsize].view(dtype)


def run_compiled(items, params: dict[int, np.ndarray], arch: str) -> dict[int, np.ndarray]:
    """Run scheduled kernels as machine code; outputs by number. Assigned parameters change in place."""
    raws: list[np.ndarray] = []
    memory: dict[object, np.ndarray] = {}
    for item in items:
        for ref in item.bufs:
            if ref not in memory:
                raw, view = guarded(max(1, int(np.prod(ref.shape))), oracle.stored_type(ref.dtype))
                raws.append(raw)
                memory[ref] = view
                if isinstance(ref, ParamRef):
                    view[: params[ref.n].size] = params[ref.n].ravel()
        kernel, groups = build(item.ast, arch)
        kernel.run([memory[ref].ctypes.data for ref in item.bufs], [], groups)
    for raw in raws:
        assert (raw[:GUARD] == 0xA5).all()
        assert (raw[len(raw) - GUARD :] == 0xA5).all()
    for ref, view in memory.items():
        if isinstance(ref, ParamRef):
            params[ref.n] = view.reshape(ref.shape).copy()
    return {ref.n: view.reshape(ref.shape) for ref, view in memory.items() if isinstance(ref, OutRef)}


def agrees(outputs, seed: int, dtype, arch: str = ARCH) -> None:
    rng = np.random.default_rng(seed)
    params = {
        n.arg[0]: oracle.random_array(rng, n.arg[1], n.dtype) for n in postorder(outputs) if n.op is Ops.PARAM
    }
    with np.errstate(all="ignore"):
        want = oracle.evaluate_all(outputs, {k: v.copy() for k, v in params.items()})
    got = run_compiled(schedule(outputs), params, arch)
    tolerance = TOLERANCE.get(dtype.name, 0)
    for i, (output, expected) in enumerate(zip(outputs, want, strict=True)):
        if expected.size and output.op is not Ops.ASSIGN:
            np.testing.assert_allclose(
                got[i], expected, rtol=tolerance, atol=tolerance, err_msg=f"seed {seed} {output!r}"
            )


def run_program(seed: int, arch: str) -> None:
    choose = random.Random(seed)
    program = graphs.Program(choose, length=choose.choice((3, 10, 25)), assigns=False, dtype=dtypes.float64)
    agrees(program.outputs(), seed, dtypes.float64, arch)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("arch", [ARCH, "x86_64-v3"])
@pytest.mark.parametrize("block", range(3))
def test_random_programs(block, arch):
    for seed in range(1000 + block * 12, 1000 + block * 12 + 12):
        run_program(seed, arch)


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_random_programs(block):
    for seed in range(5000 + block * 30, 5000 + block * 30 + 30):
        run_program(seed, ARCH)


def p(slot: int, *shape: int, dtype=dtypes.float32):
    return g.param(slot, shape, dtype)


LAYERS = {
    "softmax": lambda: [graphs.softmax(p(0, 7, 33))],
    "softmax of three axes": lambda: [graphs.softmax(p(0, 2, 5, 40))],
    "layernorm": lambda: [graphs.layernorm(p(0, 9, 70), p(1, 70), p(2, 70))],
    "matmul": lambda: [graphs.matmul(p(0, 33, 20), p(1, 20, 50))],
    "batched matmul": lambda: [graphs.matmul(p(0, 3, 10, 20), p(1, 3, 20, 17))],
    "conv": lambda: [graphs.relu(graphs.conv2d(p(0, 2, 5, 14, 14), p(1, 8, 5, 3, 3), p(2, 8), padding=1))],
    "strided conv": lambda: [
        graphs.conv2d(p(0, 2, 3, 21, 21), p(1, 6, 3, 7, 7), p(2, 6), stride=2, padding=3)],
    "conv 1x1": lambda: [graphs.conv2d(p(0, 2, 16, 7, 7), p(1, 24, 16, 1, 1))],
    "attention": lambda: [
        graphs.matmul(graphs.softmax(graphs.matmul(p(0, 2, 20, 8), g.permute(p(1, 2, 20, 8), (0, 2, 1)))),
            p(2, 2, 20, 8))],
    "transposed copy": lambda: [g.contiguous(g.permute(p(0, 65, 40), (1, 0)))],
    "flip and pad": lambda: [g.contiguous(g.pad(g.flip(p(0, 6, 33), (1,)), ((1, 2), (3, 4))))],
    "sum of everything": lambda: [g.reduce(p(0, 13, 77), Ops.ADD, (0, 1))],
    "max pool": lambda: [
        g.reduce(g.window(p(0, 2, 3, 12, 12), (2, 3), (2, 2), (2, 2), (1, 1)), Ops.MAX, (4, 5))],
    "gather": lambda: [g.gather(p(0, 30, 9), g.cast(g.iota((12,), 0), dtypes.int32), 0)],
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", [ARCH, "x86_64-v3"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, arch):
    agrees(LAYERS[name](), 3, dtypes.float32, arch)
