"""What the cost model of the host takes into account: lines, ragged rows, sets of the cache, few filters.

Each test states a choice that was measured (`python -m tools.search choose`), for a target that does not
depend on this machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from compiler.nest.kernel_shape import analyse
from compiler.nest.loop_nest import Stage, Step
from compiler.nest.operand_roles import candidates
from compiler.pipeline import planned
from compiler.plan import contraction, in_place_reads, tiling
from compiler.plan.choice import ProductChoice, SplitChoice
from compiler.plan.cost import Model, RangeSplit
from compiler.plan.proposal import KernelForm, prepared
from compiler.search.space import Space
from compiler.targets import target_of
from tests.compiler.kernels import load, loop, op, proposed, reduce, sink, store
from tests.compiler.pictures import Convolution

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.targets.shared.target import Target


def host() -> Target:
    return replace(target_of("x86_64-v4"), cores=2)


def matmul(m: int, n: int, k: int) -> UOp:
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    return sink(store(0, i * n + j, reduce(op("MUL", load(1, i * k + r), load(2, r * n + j)), "ADD", r)))


def sum_of_columns(m: int, n: int) -> UOp:
    j, r = loop(0, n), loop(1, m)
    return sink(store(0, j, reduce(load(1, r * n + j), "ADD", r)))


def sum_of_rows(m: int, n: int) -> UOp:
    i, r = loop(0, m), loop(1, n)
    return sink(store(0, i, reduce(load(1, i * n + r), "ADD", r)))


def row_added(m: int, n: int) -> UOp:
    i, j = loop(0, m), loop(1, n)
    return sink(store(0, i * n + j, op("ADD", load(1, i * n + j), load(2, j))))


@pytest.mark.parametrize(("columns", "rows"), [(464, 512), (512, 16), (1024, 8), (2048, 8), (1000, 512)])
def test_rows_share_a_set_of_the_cache_if_their_distance_is_a_multiple_of_its_size(columns, rows) -> None:  # noqa: ANN001  # listed above
    (c, *_) = [c for c in candidates(analyse(matmul(64, 12, columns))) if c.rows.arg[1] == 64]
    assert in_place_reads.most_in_place(c) == rows


def test_many_rows_of_a_narrow_product_are_read_in_place_where_they_do_not_share_a_set() -> None:
    made = [proposed(contraction.propose, matmul(65, 12, k), host()) for k in (464, 1024)]
    spread, shared = [one.plan for one in made if one is not None]
    assert spread.axes[0].upcast > 8 >= shared.axes[0].upcast
    assert not any(isinstance(step, Stage) for step in spread.steps)


@pytest.mark.parametrize(("columns", "copied"), [(304, False), (600, True)])
def test_operand_that_the_second_level_cache_holds_is_read_in_place(columns, copied) -> None:  # noqa: ANN001  # listed above
    kernel = analyse(matmul(64, columns, 512))
    role = [c.columns.arg[1] for c in candidates(kernel)].index(columns)
    made = contraction.by_choice(KernelForm(kernel.ast), host(), ProductChoice(role=role, rows=0))
    assert made is not None
    assert isinstance(made.choice, ProductChoice)
    assert made.choice.staged is copied


def split_of(ast: UOp) -> SplitChoice:
    """Return the estimated split of a kernel as it is."""
    made = proposed(tiling.propose, ast, host())
    assert made is not None
    assert isinstance(made.choice, SplitChoice)
    return made.choice


def test_blocks_of_a_sum_of_columns_touch_few_lines() -> None:
    """Rows of 87 floats begin within lines: of four vectors one line in five is also in the next block."""
    kernel = prepared(sum_of_columns(800, 87)).shape
    model, (columns,) = Model(kernel, host()), kernel.outputs
    one, four = [model.total(RangeSplit(columns, 16, {columns: n})) for n in (1, 4)]
    assert four < 0.8 * one
    assert split_of(kernel.ast).upcast == ((0, 4),)


def test_ragged_rows_are_unrolled_less() -> None:
    """After five whole vectors one is masked; with two at once it would be two."""
    ragged, whole = [split_of(sum_of_rows(800, n)) for n in (87, 96)]
    assert ragged.sums == ((1, 1),)
    assert whole.sums == ((1, 2),)


@pytest.mark.parametrize(("rows", "n"), [(52000, 16), (40000, 20), (40000, 32), (10000, 64)])
def test_short_sums_run_along_the_row_one_by_one(rows: int, n: int) -> None:
    """Their ends overlap: sums of 16 floats took 3 cycles, element after element 10; four at once no less."""
    choice = split_of(sum_of_rows(rows, n))
    assert choice.upcast == ()
    assert [vector for vector, _ in choice.sums] == [1]


def order_of_loops(ast: UOp, choice: SplitChoice) -> list[int]:
    plan = tiling.by_choice(KernelForm(ast), host(), choice).plan
    return [step.range.arg[0] for step in plan.steps if isinstance(step, Step) and step.kind == "loop"]


def test_unrolled_rows_are_outside_where_their_sums_share_no_loads() -> None:
    """Sums over windows of three rows: the loop over neighbours in memory stays the inner one."""
    c, y, x, i = loop(0, 64), loop(1, 56), loop(2, 48), loop(3, 3)
    at = c * 58 * 48 + (y + i) * 48 + x
    ast = sink(store(0, c * 56 * 48 + y * 48 + x, reduce(load(1, at), "ADD", i)))
    assert order_of_loops(ast, SplitChoice(vector=2, upcast=((0, 16),))) == [0, 1, 2]


def test_unrolled_rows_are_inside_where_their_sums_load_the_same_elements() -> None:
    """Blocks of rows of a product read the same vectors of a matrix in turn."""
    assert order_of_loops(matmul(64, 64, 64), SplitChoice(vector=1, upcast=((0, 4), (1, 2)))) == [1, 0]


def test_row_is_added_in_vectors_that_compute_little_twice() -> None:
    """Rows of 74 floats are five vectors, but six in pairs and eight in blocks of four."""
    assert split_of(row_added(624, 74)).upcast == ()


@pytest.mark.parametrize(("channels", "filters", "split"), [(8, 8, True), (1, 8, False), (8, 48, False)])
def test_few_filters_of_several_channels_have_no_panels(channels, filters, split) -> None:  # noqa: ANN001  # listed above
    ast = Convolution(5, channels, 12, filters, 3, padding=1).ast()
    made, plan = planned(ast, host())
    by_split = proposed(tiling.propose, made, host())
    assert by_split is not None
    assert (plan == by_split.plan) is split
    estimated = Space(ast, host()).estimated()
    assert (estimated.ast, estimated.plan) == (made, plan)


def test_sums_along_rows_cost_the_same_beside_other_splits() -> None:
    """What a model remembers of one split is what another model finds for the next one."""
    i, j, r = loop(0, 64), loop(1, 96), loop(2, 96)
    total = reduce(op("EXP", load(1, i * 96 + r)), "ADD", r)
    kernel = analyse(sink(store(0, i * 96 + j, op("DIV", load(1, i * 96 + j), total))))
    rows, columns = kernel.outputs
    model, (family,) = Model(kernel, host()), kernel.families
    splits = [RangeSplit(columns, 16, {columns: n, rows: m}) for m in (1, 2, 4) for n in (1, 2, 6)]
    splits += [RangeSplit(None, 1), RangeSplit(rows, 16)]
    assert [model.inner(family, s) for s in splits] == [
        Model(kernel, host()).inner(family, s) for s in splits
    ]
    assert model.inner(family, splits[0]) is model.inner(family, splits[1])
    assert model.inner(family, splits[1]) is not model.inner(family, splits[2]), "a block with the whole row"
