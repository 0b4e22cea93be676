"""What a process keeps for the structures that it has seen is bounded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler import compile as compiling
from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.uop import const, table_size
from compiler.schedule.scheduler import schedule
from frontend import Tensor, stats
from frontend.evaluation import expr, plan, trace
from tests.children import python
from tests.compiler.host_kernel import ARCH

if TYPE_CHECKING:
    from pathlib import Path


def test_changing_numbers_need_few_structures() -> None:
    x = Tensor(np.arange(16, dtype="f"))
    (x * 3 + 4).sum().realize()
    before, size = stats.plans, len(expr.TABLE)
    for i in range(300):
        found = (x * (1 + i * 1e-3) + (i + 0.5)).sum()
        assert np.isclose(found.item(), 120 * (1 + i * 1e-3) + 16 * (i + 0.5))
    assert stats.plans - before <= 4 * trace.CONSTANT_LIMIT
    assert len(expr.TABLE) - size < 200


@pytest.mark.slow
def test_nodes_of_earlier_plans_are_dropped() -> None:
    x = Tensor(np.arange(16, dtype="f"))
    first = (x * 11 + x.max()).tolist()
    for i in range(plan.NODE_LIMIT):
        const(1_000_000 + i, dtypes.int64)
    assert table_size() > plan.NODE_LIMIT
    assert (x * 13 + x.min()).tolist() == [13.0 * i for i in range(16)]
    assert table_size() < 10_000
    assert (x * 11 + x.max()).tolist() == first


def test_kernels_in_memory_are_bounded() -> None:
    x = Tensor(np.arange(16, dtype="f"))
    (x.sin() - x.max()).realize()
    (item,) = schedule([graph.unary("SIN", graph.param(0, (16,), dtypes.float32))])
    kernel = compiling.compile_kernel(item.ast, ARCH)
    for i in range(200):
        compiling._made.put(i, kernel, compiling.MADE_BYTES // 100)
    assert len(compiling._made) <= 100
    (x.cos() - x.min()).realize()
    assert compiling._made.nbytes <= compiling.MADE_BYTES


SHAPES = """
import gc
from pathlib import Path
import numpy as np
from frontend import Tensor
from frontend.evaluation.plan import PLANS
from hcq.config import config

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def work(begin, end):
    for n in range(begin, end):
        x = Tensor(np.ones(n % 150 + 1, "f")) * 2 + 1
        for i in range(n // 150):
            x = x.exp() if i % 2 else x.neg()
        x.sum().item()

work(0, 300)  # the youngest are kept, as in the end
before = resident()
work(300, 450)
print(resident() - before, PLANS.nbytes - config().plan_bytes)
"""


@pytest.mark.slow
def test_changing_shapes_are_bounded(tmp_path: Path) -> None:
    """Every structure is a new one: plans are dropped, and what is remembered of each is a few KiB."""
    settings = {**os.environ, "HCQ_CACHE": str(tmp_path), "HCQ_PLAN_BYTES": str(2 << 20)}
    done = python("-c", SHAPES, env=settings)
    grown, beyond = map(int, done.stdout.split())
    assert grown < 2 << 20
    assert beyond <= 0
