"""Plans in parts compute what their kernels do, for sizes with 1 in every place; mistakes are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import storage_type
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import ordered
from compiler.nest.nest_check import verify_parts
from compiler.plan import proposers
from compiler.plan.proposal import prepared
from compiler.rewrite.range_merging import replace_ranges
from compiler.targets import target_of
from hcq.errors import CompileError
from tests import oracle
from tests.compiler.test_chains import of_one, scheduled
from tests.fuzz.plans.small import gradient, leaf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest
    from frontend import Tensor

TARGETS = [replace(target_of("x86_64-v3"), cores=3, l2_bytes=size) for size in (1 << 12, 1 << 20)]
"""With a small cache a block has some rows only: a plan has several blocks, the last of which may overlap."""


def attention(batch: int, heads: int, rows: int, keys: int) -> Tensor:
    q, k, v = of_one(batch, heads, rows, 2), of_one(batch, heads, keys, 2), of_one(batch, heads, keys, 3)
    return q.scaled_dot_product_attention(k, v)


def results() -> Iterator[Tensor]:
    """Yield chains, products of batches, and gradients with stride, over sizes of 1, 2 and primes."""
    for batch, heads, rows, keys in product((1, 2), (1, 3), (1, 2, 37), (1, 5)):
        yield attention(batch, heads, rows, keys)
    yield attention(1, 1, 70, 512)  # in pieces
    for batch, m, n, k in product((1, 2), (1, 3), (1, 5), (1, 2)):
        yield (leaf(batch, m, k) @ leaf(batch, k, n)).transpose(-1, -2).contiguous()
    for channels, filters, side, kernel, stride in product((1, 2), (1, 3), (4, 7), (1, 2, 3), (2, 3)):
        yield gradient(
            (1, channels, side, side), (filters, channels, kernel, kernel), stride, of_filters=False
        )
    for side, of_filters in product((8, 14), (False, True)):  # by Winograd's algorithm
        yield gradient((2, 16, side, side), (16, 16, 3, 3), 1, of_filters=of_filters)


def differences(ast: UOp, plan: LoopNest, made: UOp) -> float:
    """Return the largest difference of a plan's results from the kernel's, for small whole numbers."""
    buffers: dict[int, np.ndarray] = {}
    for n in [n for n in ordered(ast) if n.op in (Ops.LOAD, Ops.STORE)]:
        size = max(n.src[1].vmax + 1, buffers.get(n.src[0].arg, np.empty(0)).size)
        data = np.random.default_rng(n.src[0].arg).integers(-3, 4, size).astype(np.float32)
        buffers[n.src[0].arg] = oracle.to_memory(data, storage_type(n.src[0].dtype))
    wanted, seen = ({k: v.copy() for k, v in buffers.items()} for _ in range(2))
    for part in ast.src if ast.arg else (ast,):
        oracle.run_kernel(part, wanted)
    oracle.run_plan(made, plan, seen)
    inner = {kept.slot for kept in plan.kept if kept.count}
    stored = {s.src[0].arg for part in (ast.src if ast.arg else (ast,)) for s in part.src} - inner
    return max(float(np.abs(wanted[slot] - seen[slot]).max()) for slot in stored)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(8))
def test_every_proposal_of_small_kernels_means_what_the_kernel_does(part: int) -> None:
    kinds: set[tuple[type, bool]] = set()
    items = [item for result in [*results()][part::8] for item in scheduled(result)]
    for item, target in product(items, TARGETS):
        for one in proposers.every(prepared(item.ast), target):
            if one.plan.phases:
                verify_parts(item.ast, one.plan)
            assert differences(item.ast, one.plan, one.ast) < 1e-4, one.plan.text()
            kinds.add((type(one.choice), one.plan.pieces is not None))
    assert len(kinds) > 1


def test_parts_that_miss_or_mix_elements_are_refused() -> None:
    (item,) = scheduled(attention(2, 1, 5, 3))
    plan = proposers.best(prepared(item.ast), target_of("x86_64-v3")).plan
    verify_parts(item.ast, plan)
    first, *_, last = plan.phases
    with pytest.raises(CompileError, match="wanted a store before the load, saw none"):
        verify_parts(item.ast, replace(plan, phases=plan.phases[1:]))
    with pytest.raises(CompileError, match=r"wanted \d+ elements, saw 0 to"):
        verify_parts(item.ast, replace(plan, kept=tuple([replace(k, count=k.count - 1) for k in plan.kept])))
    with pytest.raises(CompileError, match="wanted 30 elements up to 29, saw 0 up to -1"):
        verify_parts(item.ast, replace(plan, phases=plan.phases[:-1]))
    for part, wanted in ((last, "wanted 30 elements up to 29"), (first, r"wanted loads up to \d+, saw")):
        own = max([n for n in ordered(part.ast) if n.op is Ops.RANGE], key=lambda r: int(r.arg[1]))
        longer = replace_ranges(part.ast, {own: symbolic.loop(own.arg[0], own.arg[1] + 1)})
        phases = tuple([replace(part, ast=longer) if p is part else p for p in plan.phases])
        with pytest.raises(CompileError, match=wanted):
            verify_parts(item.ast, replace(plan, phases=phases))
