"""The builder places lines, the verifier refuses wrong lists, plans say what they do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from compiler.dtype import dtypes
from compiler.emit import linear
from compiler.emit.builder import Builder
from compiler.emit.indexing import Indexer
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import ordered
from compiler.pipeline import arguments, lower, steps, to_lines
from compiler.plan.proposal import KernelForm
from compiler.plan.proposers import OF_EVERY_FORM, fastest
from compiler.rewrite.range_merging import merge_masked_ranges, merge_ranges
from compiler.targets import target_of
from compiler.targets.shared.matrix import SharedOperand, SharedProducts
from compiler.text.llvm_ir import RENDERERS
from compiler.text.llvm_text import Text
from hcq.errors import CompileError
from tests.compiler.kernels import ARCH, load, loop, number, op, reduce, sink, store
from tests.fuzz.plans import small

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest
    from compiler.targets.shared.target import Target

I64 = dtypes.int64


def choose(ast: UOp, target: Target) -> LoopNest:
    """Return the plan of a kernel as it is."""
    made = fastest(OF_EVERY_FORM, KernelForm(ast), target)
    assert made is not None
    return made.plan


def open_loop(b: Builder) -> linear.Loop:
    return b.enter_loop(b.index(0), b.index(10), 1, b.cursor)


def test_a_line_that_does_not_depend_on_a_loop_stands_before_it():
    b = Builder()
    outside = b.line("group", I64, 1, (), 0)
    open_loop(b)
    assert b.mul(outside, 3).block is b.root


def test_equal_lines_are_one():
    b = Builder()
    x = b.line("group", I64, 1, (), 0)
    assert b.mul(x, 3) is b.mul(x, 3)
    assert b.mul(x, 3) is not b.mul(x, 5)


def test_zeros_of_different_sign_are_different_constants():
    b = Builder()
    assert b.const(dtypes.float32, 0.0) is not b.const(dtypes.float32, -0.0)


def test_a_read_does_not_leave_the_branch_that_guards_it():
    b = Builder()
    pointer = b.line("argument", POINTER, 1, (), 0)
    condition = b.cmp("slt", b.line("group", I64, 1, (), 0), b.index(5))
    branch = b.enter_branch(condition)
    assert b.line("load", dtypes.float32, 1, (pointer,)).block is branch.body


def test_no_work_is_hoisted_out_of_a_cold_branch():
    b = Builder()
    x = b.line("group", I64, 1, (), 0)
    branch = b.enter_branch(b.cmp("slt", x, b.index(5)), cold=True)
    assert b.alu("mul", x, x).block is branch.body
    b.leave_branch(branch)
    assert b.alu("mul", x, x).block is b.root


def test_the_verifier_refuses_a_register_from_a_closed_loop():
    b = Builder()
    loop_ = open_loop(b)
    inside = b.mul(loop_.index, 3)
    b.leave_loop(loop_, [])
    b.root.body.append(linear.Line("alu", I64, 1, (inside, inside), "add", b.root, 99))
    with pytest.raises(CompileError, match="not defined here"):
        linear.verify(linear.flatten(b.root))


def test_the_verifier_refuses_mixed_types():
    b = Builder()
    x, y = b.line("group", I64, 1, (), 0), b.const(dtypes.float32, 1.0)
    b.root.body.append(linear.Line("alu", I64, 1, (x, y), "add", b.root, 99))
    with pytest.raises(CompileError, match="float32x1, the result int64x1"):
        linear.verify(linear.flatten(b.root))


def test_unused_lines_are_dropped():
    b = Builder()
    b.line("group", I64, 1, (), 0)
    assert linear.prune(linear.flatten(b.root)) == []


@pytest.mark.parametrize("users", [0, 1])
@pytest.mark.parametrize(("name", "said"), [("exp2", "must be 'read' or 'effect'"), ("copy4", "unknown op")])
def test_lines_whose_row_does_not_tell_what_they_do_are_refused(name: str, said: str, users: int):
    """A row that calls a value what takes an address, and no row; with and without a user."""
    b = Builder()
    made = b.line(name, dtypes.float32, 1, (b.line("argument", POINTER, 1, (), 0),))
    if users:
        b.line("store", dtypes.float32, 1, (b.line("argument", POINTER, 1, (), 1), made))
    with pytest.raises(CompileError, match=said):
        linear.verify(linear.prune(linear.flatten(b.root)))


def rest() -> list[linear.Line]:
    """Operations that no small kernel has, for sm_90a."""
    b = Builder()
    x, lanes = b.const(dtypes.float32, 1.0), b.const(dtypes.float32, 1.0, 64)
    shared = next(op for op in target_of("sm_90a").matrix if op.shared)
    what = SharedProducts(shared, SharedOperand(False, 128), SharedOperand(False, 128), 1)
    at = b.line("shared", POINTER, 1, (), (dtypes.float16, 64))
    b.line("variable", I64, 1, (), (0, 1))
    b.line("table", POINTER, 1, (), (dtypes.float32, (1.0,)))
    b.line("exp2", dtypes.float32, 1, (x,))
    b.line("halves", dtypes.uint32, 1, (x, x), dtypes.float16)
    two = b.line("repeat", dtypes.float32, 1, (x,), 2)
    b.line("alu_rows", dtypes.float32, 1, (two, two), "fadd")
    b.line("phase", dtypes.bool, 1)
    b.line("publish", dtypes.bool, 1)
    b.line("settle", dtypes.float32, 64, (b.line("issue", dtypes.float32, 64, (at, at, lanes), what),))
    return linear.flatten(b.root)


def test_the_text_of_every_operation_does_no_more_than_its_kind_allows():
    """A value neither reads nor stores memory, a read stores none: what its text has on any target."""
    wrong: set[tuple[str, str]] = set()
    seen: set[str] = set()

    def render(lines: list[linear.Line], _name: str, _counts: object, target: Target, *launch: Any) -> str:
        text = Text(target.dialect, launch[0])
        for line in lines:
            start = len(text.lines)
            RENDERERS[line.op](text, line)
            seen.add(line.op)
            kind = linear.SIGNATURES[line.op][1]
            for done in text.lines[start:]:
                stores, reads = _STORES.search(done), _READS.search(done) and line.op != "argument"
                if (stores and kind != "effect") or (reads and kind not in {"read", "effect"}):
                    wrong.add((line.op, done))
        return ""

    x = small.leaf(300)
    more = (x.sin().cast("int32"), -x, small.product(96, 96, 96, "ab", "float16"))
    asts = [small.ast_of(name) for name in small.NAMES] + [small.kernel_of(value) for value in more]
    for arch in ("x86_64-v4", "sm_80", "sm_90a", "gfx1100", "gfx942"):
        target = replace(target_of(arch), render=render)
        for ast in asts:
            steps(ast, target)
    render(rest(), "", (), target_of("sm_90a"), (1, 1, 1))
    assert wrong == set()
    assert set(linear.SIGNATURES) - seen == {"const", "part"}


_STORES = re.compile(r"\bstore |call void |sideeffect|\bfence |masked\.(store|scatter)")
_READS = re.compile(r"= load |masked\.(load|gather)|ldmatrix")


def test_dump_shows_loops_by_indentation():
    target = target_of(ARCH)
    i = loop(0, 1000)
    ast = sink(store(0, i, op("ADD", load(1, i), number(1.0))))
    text = linear.dump(to_lines(ast, choose(ast, target), arguments(ast)))
    assert "\n  %" in text
    assert "endloop" in text


def test_ranges_that_every_index_walks_as_one_are_merged():
    n, c, y, x = loop(0, 2), loop(1, 3), loop(2, 5), loop(3, 7)
    at = n * 105 + c * 35 + y * 7 + x
    merged = merge_ranges(sink(store(0, at, op("ADD", load(1, at), number(1.0)))))
    assert [r.arg[1] for r in ordered(merged) if r.op is Ops.RANGE] == [210]


def test_a_bias_keeps_its_own_range():
    n, c, x = loop(0, 2), loop(1, 3), loop(2, 7)
    at = n * 21 + c * 7 + x
    merged = merge_ranges(sink(store(0, at, op("ADD", load(1, at), load(2, c)))))
    assert sorted([r.arg[1] for r in ordered(merged) if r.op is Ops.RANGE]) == [2, 3, 7]


def picture(size: int):
    """A 3x3 sum with padding over a square picture."""
    y, x, ky, kx = loop(0, size), loop(1, size), loop(2, 3), loop(3, 3)
    iy, ix = y + ky - 1, x + kx - 1
    inside = symbolic.both(iy >= 0, iy < size, ix >= 0, ix < size)
    value = reduce(load(1, iy * size + ix, mask=inside), "ADD", ky, kx)
    return sink(store(0, y * size + x, value))


def test_a_padded_image_is_one_range():
    flat = merge_masked_ranges(picture(7))
    assert flat is not None
    assert [r.arg[1] for r in ordered(flat) if r.op is Ops.RANGE and r.arg[1] > 3] == [49]


def test_an_image_read_at_another_width_keeps_two_ranges():
    y, x = loop(0, 7), loop(1, 7)
    masked = load(1, y * 9 + x, mask=symbolic.both(y < 6, x < 6))
    assert merge_masked_ranges(sink(store(0, y * 7 + x, masked))) is None


def matmul(n: int):
    i, j, k = loop(0, n), loop(1, n), loop(2, n)
    return sink(store(0, i * n + j, reduce(op("MUL", load(1, i * n + k), load(2, k * n + j)), "ADD", k)))


def test_a_matmul_is_tiled_to_fill_registers_and_split_into_workgroups():
    plan = choose(matmul(512), target_of("x86_64-v4"))
    rows, columns = plan.axes
    assert columns.lanes == 16
    assert 12 <= rows.upcast * columns.upcast <= 30
    assert plan.launch()[0][0] > 1


def test_a_plan_does_not_depend_on_what_was_planned_before():
    first = choose(matmul(96), target_of("x86_64-v4")).text()
    choose(matmul(100), target_of("x86_64-v4"))
    assert choose(matmul(96), target_of("x86_64-v4")).text() == first


@pytest.mark.parametrize(("size", "most"), [(64, 220), (512, 220)])
def test_emitted_text_stays_small(size: int, most: int):
    ir, _ = lower(matmul(size), target_of("x86_64-v4"))
    assert ir.count("\n") <= most


def test_a_small_kernel_is_one_workgroup():
    i = loop(0, 1000)
    plan = choose(sink(store(0, i, op("ADD", load(1, i), number(1.0)))), target_of(ARCH))
    assert plan.launch() == ((1, 1, 1), (1, 1, 1))


def test_no_fast_math_and_no_library_call_is_written():
    r = loop(0, 4096)
    ast = sink(store(0, r * 0, reduce(op("EXP", op("SIN", load(1, r))), "ADD", r)))
    ir, _ = lower(ast, target_of(ARCH))
    for word in ("fast", "reassoc", "contract", "nnan", "llvm.sin", "llvm.exp"):
        assert word not in ir


def test_lanes_run_along_the_first_of_equally_good_summed_ranges():
    """A choice by a set's order would change rounding from process to process."""
    i, summed = loop(0, 2), [loop(n + 1, 64) for n in range(4)]
    loads = [load(n + 1, i * 64 + r) for n, r in enumerate(summed)]
    total = op("ADD", op("ADD", loads[0], loads[1]), op("ADD", loads[2], loads[3]))
    plan = choose(sink(store(0, i, reduce(total, "ADD", *summed))), target_of("x86_64-v4"))
    (reduction,) = plan.reductions.values()
    assert (reduction.ranges[-1], reduction.lanes) == (summed[0], 16)


def test_an_index_has_one_base_for_all_units_and_another_for_each_register_of_its_range():
    b = Builder()
    ix = Indexer(b, lambda _node: b.index(0), 1)
    outer, unit = ix.fresh(8), ix.fresh(4)
    ix.unit_ranges.add(unit)
    index = symbolic.dot((outer, unit), (12, 1), 5)
    ix.bound[outer] = b.line("group", dtypes.int64, 1, (), 0)
    ix.env[unit] = 0
    first, line = ix.place(index), ix.line(index)
    ix.env[unit] = 3
    assert ix.place(index) == replace(first, offset=first.offset + 3, align=4)
    assert ix.line(index) is not line
    ix.env[unit] = 0
    assert ix.line(index) is line
    ix.bound[outer] = b.line("group", dtypes.int64, 1, (), 1)
    assert ix.place(index).base is not first.base
    assert ix.line(index) is not line


def test_registers_of_a_closed_loop_are_written_again():
    b = Builder()
    ix = Indexer(b, lambda _node: b.index(0), 1)
    outer = ix.fresh(8)
    bases = []
    loop = b.enter_loop(b.index(0), b.index(8), 1, b.cursor)
    ix.bound[outer] = loop.index
    bases += [ix.place(symbolic.mul(outer, 3)).base, ix.line(symbolic.mul(outer, 3))]
    assert bases[0] is bases[1]
    b.leave_loop(loop, [])
    again = ix.place(symbolic.mul(outer, 3))
    assert again.base is not bases[0]


def test_indices_that_differ_by_a_number_have_one_base():
    b = Builder()
    ix = Indexer(b, lambda _node: b.index(0), 1)
    outer, lane = ix.fresh(8), ix.fresh(4)
    ix.lane_ranges[lane] = 4
    ix.bound[outer] = b.line("group", dtypes.int64, 1, (), 0)
    places = [ix.place(symbolic.dot((outer, lane), (12, 1), number)) for number in (0, 5, -7)]
    assert [place.offset for place in places] == [0, 5, -7]
    assert len({place.base for place in places}) == len(ix.bases) == 1
    assert [place.align for place in places] == [12, 1, 1]


def test_a_vector_of_indices_has_the_number_of_its_index():
    b = Builder()
    ix = Indexer(b, lambda _node: b.index(0), 1)
    lane = ix.fresh(4)
    ix.lane_ranges[lane] = 4
    place = ix.place(symbolic.dot((lane,), (50,), 7))
    assert place.vector is not None
    base, steps = place.vector.src
    assert (base.arg, steps.arg) == (7, (0, 50, 100, 150))
