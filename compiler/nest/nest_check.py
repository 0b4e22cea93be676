"""Verify plans: limits of the target, one thread for each output element, and what the parts of a plan do.

`compiler.pipeline` verifies every plan with threads, and every plan in parts (chains, remainders, Winograd's
algorithm): what its parts store and load together must be what the kernel stores and loads. That is checked
from the finished plan alone, so that it does not depend on how a planner found the parts: a wrong join would
compute other values and report nothing. Here are also the estimates of registers and of shared memory by
which plans are chosen.

Not here: the check of lines (`emit.linear.verify`), that each part of a chain loads what was stored in the
same row (`schedule.chains`), the values themselves (`HCQ_CHECK=1`). Next: `loop_nest`, the data.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import storage_type
from compiler.ir.ops import Ops
from compiler.ir.walk import ordered, ranges_in, slots_met
from compiler.nest.loop_nest import Step
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, LoopNest, Stage
    from compiler.targets.shared.target import Target


WORD_BYTES = 4
"""A word of a tile: one float32, or two values of 16 bits."""


def verify(plan: LoopNest, target: Target) -> None:
    """Raise `CompileError`, with the plan's text, when a plan exceeds the target or misses an element.

    The message names every problem. A plan of `pipeline.planned` has none: an error is a mistake of a
    planner, or of a plan that a caller made.
    """
    problems = [*_limits(plan, target), *_threads(plan), *_pieces(plan)]
    for axis in plan.axes:
        problems += _places(axis)
    if problems:
        raise CompileError(
            f"the plan is wrong: {'; '.join(problems)}; try the plan of `pipeline.planned`", ast=plan.text()
        )


def register_estimate(plan: LoopNest) -> int:
    """Return the 32-bit registers of a thread for sums of tiles in shared memory; 0 for other plans."""
    if not any(r.staged for r in plan.reductions.values()):
        return 0
    sums = prod([a.upcast * a.lanes for a in plan.axes])
    if plan.online is None:
        return sums
    rows = plan.shared_stages()[0].axis
    own = prod([a.upcast for a in plan.axes if a.range is rows])
    return len(plan.online.weighted) * sums + len(plan.online.scores) * plan.online.axis.upcast * own


def shared_estimate(plan: LoopNest) -> int:
    """Return the bytes of shared memory of the tiles of a plan."""
    blocks = {a.range: a.block for a in plan.every_axis()}
    staged = {reduction.ranges: reduction.staged for reduction in plan.reductions.values()}
    total = 0
    for stage in plan.shared_stages():
        values = staged[stage.ranges] if stage.across is None else blocks[stage.across]
        total += tile_bytes(stage, blocks[stage.axis], values)
    return total


def tile_bytes(stage: Stage, block: int, values: int) -> int:
    """Return the bytes of a stage's tiles, of `block` values of its axis and `values` of the other range."""
    if stage.mechanism == "asynchronous copies" or stage.across is not None:
        return stage.depth * storage_type(stage.value.dtype).itemsize * values * block
    return WORD_BYTES * (values // stage.layout.pack) * (block + stage.layout.pad)


def dynamic_bytes(plan: LoopNest) -> int:
    """Return the bytes of shared memory that a launch must ask for: those of rings of tiles, or 0."""
    rings = [s for s in plan.shared_stages() if s.mechanism == "asynchronous copies"]
    return shared_estimate(plan) if rings else 0


def _limits(plan: LoopNest, target: Target) -> Iterator[str]:
    """Yield what exceeds the target."""
    if plan.threads > target.threads:
        yield f"wanted at most {target.threads} threads on {target.arch}, saw {plan.threads}"
    most = target.dynamic_shared_bytes if dynamic_bytes(plan) else target.shared_bytes
    if shared_estimate(plan) > most:
        wanted, seen = most, shared_estimate(plan)
        yield f"wanted at most {wanted} bytes of shared memory on {target.arch}, saw {seen}"
    if register_estimate(plan) > target.thread_registers:
        wanted, seen = target.thread_registers, register_estimate(plan)
        yield f"wanted at most {wanted} registers of sums on {target.arch}, saw {seen}"
    once = 0 if plan.online is None else len(plan.online.scores)  # the tiles of rows
    for stage in plan.shared_stages()[once:]:
        least = 2 if stage.mechanism == "asynchronous copies" else 1
        if stage.depth < least or (least == 1 and stage.depth > 1):
            yield f"wanted {least} tiles {'or more ' * (least > 1)}with {stage.mechanism}, saw {stage.depth}"


def _threads(plan: LoopNest) -> Iterator[str]:
    """Yield what is wrong unless the digits of the axes are all digits of the thread's number, each once."""
    parts = sorted([t for a in plan.axes for t in a.threads], key=lambda t: t.step)
    covered = 1
    for part in parts:
        if part.step != covered:
            yield f"wanted the next digit of the thread's number by {covered}, saw one by {part.step}"
        covered = part.step * part.size
    if parts and covered != plan.threads:
        yield f"wanted {plan.threads} threads in the ranges, saw {covered}"


def _pieces(plan: LoopNest) -> Iterator[str]:
    """Yield what is wrong unless workgroups that divide a range twice have whole pieces."""
    groups = [s for s in plan.steps if isinstance(s, Step) and s.kind == "group"]
    for axis in plan.axes:
        sizes = [s.size for s in groups if s.range is axis.range]
        if len(sizes) > 1 and any(a % b for a, b in pairwise([axis.count, *sizes])):
            yield f"r{axis.range.arg[0]}: wanted whole pieces of {axis.count} blocks, saw {sizes}"


def _places(axis: Axis) -> Iterator[str]:
    """Yield what is wrong unless the parts of a range are all digits of the place in a block, each once."""
    run = axis.run or axis.upcast
    digits = [(axis.lanes, 1), (run, axis.lanes), (axis.upcast // run, axis.spread)]
    digits += [(t.size, t.stride) for t in axis.threads]
    covered = 1
    for size, stride in sorted([d for d in digits if d[0] > 1], key=lambda d: d[1]):
        if stride != covered:
            yield f"r{axis.range.arg[0]}: wanted the next values {covered} apart, saw {stride} apart"
        covered = stride * size
    if covered != axis.block:
        yield f"r{axis.range.arg[0]}: wanted {axis.block} places in a block, saw {covered}"


_ORDER = ("once", "before", "each", "after", "beside")


def verify_parts(ast: UOp, plan: LoopNest) -> None:
    """Raise `CompileError`, with the plan's text, unless the parts of a plan do what the kernel does.

    Every matrix between parts is stored before it is loaded, and accessed within its elements. All parts of
    all blocks store as many elements of each result as the kernel, up to the same last one, or more where
    blocks overlap. They load no element of an operand beyond the kernel's last one. Kernels beside each other
    use no buffer that another one stores; they are verified too. The message names every problem: an error is
    a mistake of a planner.
    """
    problems = [*_between(plan), *_results(ast, plan), *_operands(ast, plan)]
    if plan.phases and plan.beside:
        problems += [f"b{slot}: wanted one part that uses it" for slot in slots_met(ast.src)]
        for phase in [phase for phase in plan.phases if phase.plan.phases]:
            verify_parts(phase.ast, phase.plan)
    if problems:
        raise CompileError(f"the plan in parts is wrong: {'; '.join(problems)}", ast=plan.text())


def _between(plan: LoopNest) -> Iterator[str]:
    """Yield what is wrong with the accesses to the matrices between parts, in the order of execution."""
    sizes, stored = {k.slot: k.count for k in plan.kept if k.count}, set[int]()
    for phase in sorted(plan.phases, key=lambda phase: _ORDER.index(phase.when)):
        accesses = [n for n in ordered(phase.ast) if n.op in (Ops.LOAD, Ops.STORE) and n.src[0].arg in sizes]
        for n in accesses:
            slot, index = n.src[0].arg, n.src[1]
            masked = len(n.src) > (2 if n.op is Ops.LOAD else 3)
            if not masked and not 0 <= index.vmin <= index.vmax < sizes[slot]:
                yield f"b{slot}: wanted {sizes[slot]} elements, saw {index.vmin} to {index.vmax}"
            if n.op is Ops.LOAD and slot not in stored:
                yield f"b{slot}: wanted a store before the load, saw none"
        stored |= {n.src[0].arg for n in accesses if n.op is Ops.STORE}


def _results(ast: UOp, plan: LoopNest) -> Iterator[str]:
    """Yield the results of which the parts do not store all elements; a part `once` stores none of them."""
    blocks = prod([axis.count for axis in plan.axes])
    rounds = {"each": blocks * (1 if plan.pieces is None else plan.pieces[2])}
    seen = _stored([(phase.ast, rounds.get(phase.when, blocks)) for phase in plan.phases])
    overlap = any(axis.edge != "exact" for axis in plan.axes)
    kernels = [(part, 1) for part in ast.src] if ast.arg and ast.src[0].op is Ops.SINK else [(ast, 1)]
    for slot, (count, last) in _stored(kernels).items():
        if ast.arg and slot >= ast.arg[0]:
            continue
        found, end = seen.get(slot, (0, -1))
        if end != last or found < count or (found > count and not overlap):
            yield f"b{slot}: wanted {count} elements up to {last}, saw {found} up to {end}"


def _stored(parts: Iterable[tuple[UOp, int]]) -> dict[int, tuple[int, int]]:
    """Return (elements stored, last of them) by slot, for kernels that run a number of times."""
    out: dict[int, tuple[int, int]] = {}
    for part, times in parts:
        free = ranges_in(part)
        for store in part.src:
            count, last = out.get(store.src[0].arg, (0, -1))
            count += times * prod([int(r.arg[1]) for r in free[store.src[1]]])
            out[store.src[0].arg] = count, max(last, int(store.src[1].vmax))
    return out


def _operands(ast: UOp, plan: LoopNest) -> Iterator[str]:
    """Yield the operands that parts load beyond the last element that the kernel may load."""
    last: dict[int, int] = {k.slot: k.count for k in plan.kept if k.count}
    for n in [n for n in ordered(ast) if n.op is Ops.LOAD]:
        last[n.src[0].arg] = max(last.get(n.src[0].arg, -1), int(n.src[1].vmax))
    for n in [n for phase in plan.phases for n in ordered(phase.ast) if n.op is Ops.LOAD and len(n.src) == 2]:
        if n.src[1].vmax > last.get(n.src[0].arg, -1):
            yield f"b{n.src[0].arg}: wanted loads up to {last.get(n.src[0].arg, -1)}, saw {n.src[1].vmax}"
