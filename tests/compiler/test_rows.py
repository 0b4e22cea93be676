"""Kernels that work on the same rows as one: the results of the kernels one by one, over sizes with 1."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.ir.ops import Ops
from compiler.ir.verify import verify_kernel
from compiler.nest.nest_check import verify_parts
from compiler.plan import proposers
from compiler.plan.proposal import prepared
from compiler.schedule import scheduler
from compiler.schedule.chains import _all_stored
from compiler.schedule.item import TempRef
from compiler.schedule.rows import join_rows
from frontend import Tensor
from frontend.evaluation import plan
from hcq.errors import CompileError
from tests.compiler.test_chains import of_one, scheduled
from tests.compiler.test_joins import TARGETS, differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.schedule.item import ScheduleItem

SIZES = [(batch, rows, width) for batch in (1, 2) for rows in (1, 3, 37) for width in (1, 5)]


def block(x: Tensor, w: Tensor, m: Tensor, g: Tensor) -> list[Tensor]:
    """Return layer norms around a product, and their gradients."""
    y = x + ((x.layernorm(-1) * w) @ m).gelu()
    y = y.layernorm(-1) * w
    return [y, *(y * g).sum().gradient(x, w, m)]


def attention(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> list[Tensor]:
    """Return attention and its gradients."""
    y = q.scaled_dot_product_attention(k, v, is_causal=True)
    return [y, *(y * g).sum().gradient(q, k, v)]


def graph(name: str, dtype: str, batch: int, rows: int, width: int) -> list[Tensor]:
    """Return the results of one of the functions above for drawn values."""
    Tensor.manual_seed(0)
    shapes = {
        "block": [(batch, rows, width), (width,), (width, width), (batch, rows, width)],
        "attention": [(batch, 2, rows, width)] * 2 + [(batch, 2, rows, 3)] * 2,
    }[name]
    values = [Tensor.randn(*shape).cast(dtype).contiguous().realize() for shape in shapes]
    return {"block": block, "attention": attention}[name](*values)


def joined(results: Sequence[Tensor]) -> list[ScheduleItem]:
    """Return the kernels of which several are one."""
    return [item for item in scheduled(*results, rows=1) if item.ast.src[0].op is Ops.SINK]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["block", "attention"])
def test_each_part_loads_what_a_part_stored_in_the_same_row(name: str, size: tuple[int, int, int]) -> None:
    for item, target in product(joined(graph(name, "float32", *size)), TARGETS):
        externals, shared = item.ast.arg
        assert _all_stored(item.ast.src, externals, shared)
        plan = proposers.best(prepared(item.ast), target).plan
        verify_parts(item.ast, plan)
        assert differences(item.ast, plan, item.ast) < 1e-4, plan.text()


@pytest.mark.landing
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 1, 8), (1, 37, 1), (2, 37, 8)], ids=str)
@pytest.mark.parametrize("name", ["block", "attention"])
def test_results_are_those_of_the_kernels_one_by_one(
    name: str, size: tuple[int, int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, counts = [], []
    for least in (1, 1 << 30):

        def join(items: list[ScheduleItem], _: int, least: int = least) -> list[ScheduleItem]:
            counts.append((least, len(made := join_rows(items, least))))
            return made

        monkeypatch.setattr(scheduler, "join_rows", join)
        monkeypatch.setattr(plan, "_MANY", {})  # else the second run has the kernels of the first
        results = graph(name, dtype, *size)
        Tensor.realize(*results)
        found.append([x.cast("float64").numpy() for x in results])
    joined, plain = (max(n for first, n in counts if first == least) for least in (1, 1 << 30))
    assert joined < plain or (name, size[2]) == ("block", 1)
    bound = {"float32": 2e-6, "float64": 1e-14, "bfloat16": 2e-2}[dtype]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound)


def test_attention_and_its_gradients_are_joined_from_a_number_of_rows_on() -> None:
    q, k, v, g = (of_one(2, 2, 128, 8) for _ in range(4))
    y = q.scaled_dot_product_attention(k, v, is_causal=True)
    results = y, *(y * g).sum().gradient(q, k, v)
    assert [len(scheduled(*results, rows=rows)) for rows in (513, 512)] == [9, 5]


def test_a_product_with_a_factor_of_all_rows_is_not_joined() -> None:
    x = of_one(512, 64)
    y = x @ of_one(64, 64)
    assert len(scheduled(y, y.softmax(-1), rows=256)) == 2


def test_every_temporary_is_stored_before_it_is_loaded() -> None:
    for name in ("block", "attention"):
        stored: set[object] = set()
        for item in scheduled(*graph(name, "float32", 2, 7, 8), rows=1):
            stored.update(item.writes)
            assert {ref for ref in item.bufs if isinstance(ref, TempRef)} <= stored


def test_a_part_that_runs_too_early_or_not_at_all_is_refused() -> None:
    item = max(joined(graph("attention", "float32", 2, 7, 8)), key=lambda item: len(item.ast.src))
    verify_kernel(item.ast)
    backwards = item.ast.src[::-1]
    assert not _all_stored(backwards, *item.ast.arg)
    plan = proposers.best(prepared(item.ast), TARGETS[0]).plan
    with pytest.raises(CompileError, match=r"wanted \d+ elements up to"):
        verify_parts(item.ast, replace(plan, phases=plan.phases[:-1]))
