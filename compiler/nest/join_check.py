"""Verify a plan in parts: what its parts store and load together is what the kernel stores and loads.

The obligation of every plan with phases (chains, remainders, Winograd's algorithm), checked from the finished
plan alone, so that it does not depend on how a planner found the parts. A plan that does not meet it is
refused: a wrong join would compute other values and report nothing.

Not here: that each part of a chain loads what was stored in the same row (`schedule.chains`), plans with
threads (`nest_check`), the values themselves (`HCQ_CHECK=1`). Next: `compiler.pipeline`, the caller.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler.ir.ops import Ops
from compiler.ir.walk import ordered, ranges_in
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest

_ORDER = ("once", "before", "each", "after")


def verify_parts(ast: UOp, plan: LoopNest) -> None:
    """Raise `CompileError`, with the plan's text, unless the parts of a plan do what the kernel does.

    Every matrix between parts is stored before it is loaded, and accessed within its elements. All parts of
    all blocks store as many elements of each result as the kernel, up to the same last one, or more where
    blocks overlap. They load no element of an operand beyond the kernel's last one. The message names every
    problem: an error is a mistake of a planner.
    """
    problems = [*_between(plan), *_results(ast, plan), *_operands(ast, plan)]
    if problems:
        raise CompileError(f"the plan in parts is wrong: {'; '.join(problems)}", ast=plan.text())


def _between(plan: LoopNest) -> Iterator[str]:
    """Yield what is wrong with the accesses to the matrices between parts, in the order of execution."""
    sizes, stored = {k.slot: k.count for k in plan.kept}, set[int]()
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
    for slot, (count, last) in _stored([(ast.src[-1] if ast.arg else ast, 1)]).items():
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
    last: dict[int, int] = {k.slot: k.count for k in plan.kept}
    for n in [n for n in ordered(ast) if n.op is Ops.LOAD]:
        last[n.src[0].arg] = max(last.get(n.src[0].arg, -1), int(n.src[1].vmax))
    for n in [n for phase in plan.phases for n in ordered(phase.ast) if n.op is Ops.LOAD and len(n.src) == 2]:
        if n.src[1].vmax > last.get(n.src[0].arg, -1):
            yield f"b{n.src[0].arg}: wanted loads up to {last.get(n.src[0].arg, -1)}, saw {n.src[1].vmax}"
