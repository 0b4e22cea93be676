"""Kernels that load one buffer as one: results are those of the kernels one by one, also for sizes of 1."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.ir.naming import kernel_name
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key, parse_kernel
from compiler.ir.uop import uop
from compiler.ir.verify import verify_kernel
from compiler.ir.walk import ordered
from compiler.nest.nest_check import verify_parts
from compiler.pipeline import steps
from compiler.plan import proposers
from compiler.plan.proposal import prepared
from compiler.schedule import scheduler
from compiler.schedule.chains import with_buffers
from compiler.schedule.item import TempRef
from compiler.schedule.operands import join_users
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation import plan
from frontend.evaluation.expr import uops
from hcq.config import config, override
from hcq.errors import CompileError
from tests.compiler.test_chains import of_one
from tests.compiler.test_joins import TARGETS, differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.schedule.item import ScheduleItem

SIZES = [(rows, width, wide) for rows in (1, 2, 37) for width in (1, 5, 16) for wide in (1, 3)]


def layers(rows: int, width: int, wide: int, dtype: str) -> list[Tensor]:
    """Return two layers with a residual, and all their gradients."""
    shapes = [(rows, width), (width, wide), (wide,), (wide, width), (width,), (rows, width)]
    x, w, b, v, c, g = drawn(shapes, dtype)
    y = x + ((x @ w + b).relu() @ v + c) * c
    return [y, *(y * g).sum().gradient(x, w, b, v, c)]


def projections(rows: int, width: int, wide: int, dtype: str) -> list[Tensor]:
    """Return three products of one matrix, and its gradient."""
    x, a, b, c = drawn([(2, rows, width), (width, wide), (width, 2), (width, wide)], dtype)
    y = [x @ a, (x @ b).tanh(), x @ c + x.sum(-1, keepdim=True)]
    return [*y, *(y[0].sum() + (y[1] * y[1]).sum() + y[2].sum()).gradient(x, a, b, c)]


def convolution(rows: int, width: int, wide: int, dtype: str) -> list[Tensor]:
    """Return a convolution, with stride 2 for more than one row, and its gradients, with plans in parts."""
    x, w, b = drawn([(2, wide, rows + 2, width + 2), (width, wide, 3, 3), (width,)], dtype)
    y = x.conv2d(w, b, stride=1 + (rows > 1), padding=1)
    return [y, *(y * y).sum().gradient(x, w, b)]


NAMES = {one.__name__: one for one in (layers, projections, convolution)}


def drawn(shapes: Sequence[tuple[int, ...]], dtype: str) -> list[Tensor]:
    """Return drawn values."""
    Tensor.manual_seed(0)
    return [Tensor.randn(*shape).cast(dtype).contiguous().realize() for shape in shapes]


def scheduled(results: Sequence[Tensor], operand: int = 1, arch: str = "x86_64-v3") -> list[ScheduleItem]:
    """Return the kernels on a target where users of a buffer of `operand` bytes are one, if it is a host."""
    leaves = [*{id(leaf): leaf for x in results for leaf in x.leaves}]
    parts = uops([(x.expr, tuple([leaves.index(id(leaf)) for leaf in x.leaves])) for x in results])
    limits = scheduler.limits_on(target_of(arch))
    limits = replace(limits, operand=operand) if limits.operand else limits
    return scheduler.schedule(parts, limits=limits, verify=True)


def joined(items: Sequence[ScheduleItem]) -> list[ScheduleItem]:
    """Return the kernels that are several beside each other."""
    return [item for item in items if item.ast.src[0].op is Ops.SINK and not item.ast.arg[1]]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_plans_beside_each_other_compute_what_the_parts_do(name: str, size: tuple[int, int, int]) -> None:
    found = joined(scheduled(NAMES[name](*size, "float32")))
    assert found
    for item, target in product(found, TARGETS):
        made = proposers.best(prepared(item.ast), target).plan
        assert made.beside
        verify_parts(item.ast, made)
        assert differences(item.ast, made, item.ast) < 1e-4, made.text()
        assert [phase.plan.text() for phase in made.phases] == [
            proposers.best(prepared(part), target).plan.text() for part in item.ast.src
        ]


@pytest.mark.landing
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [(1, 1, 1), (1, 16, 3), (37, 5, 1), (2, 1, 3), (37, 16, 16)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_kernels_one_by_one(
    name: str, size: tuple[int, int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[np.ndarray]] = []
    counts: list[int] = []
    first: list[int] = []
    for operand in (1, 1 << 60):

        def join(items: list[ScheduleItem], _: int, most: int, least: int = operand) -> list[ScheduleItem]:
            made = join_users(items, least, most)
            counts.append(len(made))
            return made

        monkeypatch.setattr(scheduler, "join_users", join)
        monkeypatch.setattr(plan, "_MANY", {})  # else the second run has the kernels of the first
        results = NAMES[name](*size, dtype)
        before = len(counts)
        Tensor.realize(*results)
        first.append(counts[before])
        found.append([x.cast("float64").numpy() for x in results])
    assert first[0] < first[1]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_users_of_a_small_buffer_stay_alone() -> None:
    results = projections(8, 16, 4, "float32")
    assert not joined(scheduled(results, operand=2 * 8 * 16 * 4 + 1))
    assert joined(scheduled(results, operand=2 * 8 * 16 * 4))


def test_kernels_of_gpus_and_kernels_that_are_searched_stay_alone() -> None:
    results = projections(128, 512, 8, "float32")
    limits = [scheduler.limits_on(target_of(arch)).operand for arch in ("sm_90a", "gfx1100", "x86_64-v3")]
    assert limits == [0, 0, scheduler.OPERAND_BYTES]
    leaves = [*{id(leaf): leaf for x in results for leaf in x.leaves}]
    parts = [(x.expr, tuple([leaves.index(id(leaf)) for leaf in x.leaves])) for x in results]
    counts = []
    for beam in (0, 4):
        with override(beam=beam):
            _, items = plan.scheduled(parts, [-1] * len(parts), "x86_64-v3", config())
        counts.append(len(joined(items)))
    assert counts[0] > 0 == counts[1]


def test_a_kernel_that_needs_a_result_or_stores_an_operand_is_not_joined() -> None:
    x, w = of_one(64, 64), of_one(64, 64)
    product = x @ w
    assert not joined(scheduled([product, product @ w]))
    first, second = scheduled([product, x.exp().sum(0)], operand=1 << 60)
    assert len(join_users([first, second], 1, 4)) == 1
    assert len(join_users([first, second], 1, 3)) == 2
    (other,) = [ref for ref in first.bufs if ref.kind == "in" and ref not in second.bufs]
    for ref in (other, replace(other, shape=(4096,)), *first.writes):
        bufs = tuple([ref if slot in second.stores else own for slot, own in enumerate(second.bufs)])
        changed = replace(second, bufs=bufs)
        assert join_users([first, changed], 1, 4) == [first, changed]
        assert join_users([changed, first], 1, 4) == [changed, first]


def test_the_text_of_a_kernel_has_a_function_for_each_part() -> None:
    item = joined(scheduled(projections(64, 64, 8, "float32")))[0]
    assert parse_kernel(kernel_key(item.ast)) is item.ast
    made = steps(item.ast, replace(target_of("x86_64-v3"), cores=2))
    groups = [phase.plan.launch()[0][0] for phase in made.plan.phases]
    assert made.plan.launch()[0] == (sum(groups), 1, 1)
    assert [line.arg for line in made.lines if line.op == "part"] == groups
    assert made.ir.count("define internal") == len(groups) > 1
    assert made.plan.text().count(", beside:") == len(groups)
    assert made.name == kernel_name(item.ast)


def test_parts_that_use_results_of_each_other_are_refused() -> None:
    item = joined(scheduled(projections(8, 16, 4, "float32")))[0]
    verify_kernel(item.ast)
    made = proposers.best(prepared(item.ast), TARGETS[0]).plan
    first, second = item.ast.src[:2]
    stored, loaded = first.src[0].src[0].arg, next(n.arg for n in ordered(second) if n.op is Ops.BUFFER)
    for slots in ({loaded: stored}, {second.src[0].src[0].arg: stored}):
        swapped = [slots.get(n, n) for n in range(item.ast.arg[0])]
        parts = (first, with_buffers(second, swapped), *item.ast.src[2:])
        wrong = uop(Ops.SINK, item.ast.dtype, parts, item.ast.arg)
        with pytest.raises(CompileError, match="wanted one part"):
            verify_kernel(wrong)
        with pytest.raises(CompileError, match="wanted one part that uses it"):
            verify_parts(wrong, made)
    with pytest.raises(CompileError, match=r"wanted \d+ elements up to"):
        verify_parts(item.ast, replace(made, phases=made.phases[:-1]))


@pytest.mark.parametrize("name", NAMES)
def test_every_temporary_is_stored_before_it_is_loaded(name: str) -> None:
    stored: set[object] = set()
    for item in scheduled(NAMES[name](7, 8, 3, "float32")):
        stored.update(item.writes)
        assert {ref for ref in item.bufs if isinstance(ref, TempRef)} <= stored
