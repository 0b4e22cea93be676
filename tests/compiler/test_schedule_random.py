"""Random tensor programs: the scheduled kernels compute what the graph means."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.schedule.scheduler import FusionLimits, schedule
from tests import oracle
from tests.compiler.graphs import Program

if TYPE_CHECKING:
    from compiler.ir.uop import UOp


def agrees(outputs: list[UOp], seed: int, limits: FusionLimits) -> None:
    rng = np.random.default_rng(seed)
    params = {
        n.arg[0]: oracle.random_array(rng, n.arg[1], n.dtype) for n in postorder(outputs) if n.op is Ops.PARAM
    }
    old = {slot: buffer.copy() for slot, buffer in params.items()}
    want = oracle.evaluate_all(outputs, old)
    got = oracle.run(schedule(outputs, limits=limits, verify=True), params)
    for i, (output, expected) in enumerate(zip(outputs, want, strict=True)):
        if expected.size and output.op is not Ops.ASSIGN:
            np.testing.assert_allclose(
                got[i], expected, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed} output {output!r}"
            )
    for assign in [n for n in postorder(outputs) if n.op is Ops.ASSIGN]:
        slot, expected = after(assign, old)
        np.testing.assert_allclose(
            params[slot], expected, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed} {assign!r}"
        )


def after(assign: UOp, old: dict[int, oracle.Array]) -> tuple[int, oracle.Array]:
    """The contents of the assigned parameter afterwards."""
    chain = [assign.src[0]]
    while chain[-1].op is not Ops.PARAM:
        chain.append(chain[-1].src[0])
    slot = chain[-1].arg[0]
    places = np.arange(old[slot].size, dtype=old[slot].dtype).reshape(old[slot].shape)
    at = oracle.evaluate(assign.src[0], {slot: places}).astype(np.int64).reshape(-1)
    new = old[slot].copy().reshape(-1)
    new[at] = oracle.evaluate(assign.src[1], old).reshape(-1)
    return slot, new.reshape(old[slot].shape)


def run_program(seed: int) -> None:
    choose = random.Random(seed)
    dtype = dtypes.int64 if seed % 5 == 0 else dtypes.float64
    program = Program(choose, length=choose.choice((3, 10, 25, 60)), assigns=seed % 3 == 0, dtype=dtype)
    limits = choose.choice((
        FusionLimits(), FusionLimits(), FusionLimits(buffers=4), FusionLimits(nodes=4),
        FusionLimits(row=3, few_rows_row=3), FusionLimits(split=4), FusionLimits(chains=True, rows=1),
    ))  # fmt: skip
    agrees(program.outputs(), seed, limits)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("block", range(4))
def test_kernels_of_random_programs_compute_what_the_graph_means(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        run_program(seed)


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_kernels_of_many_random_programs_compute_what_the_graph_means(block: int) -> None:
    for seed in range(1000 + block * 150, 1150 + block * 150):
        run_program(seed)
