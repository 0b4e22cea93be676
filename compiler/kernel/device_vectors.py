"""Widen loads and stores of a plan whose threads run along contiguous memory: vectors of a thread.

Where every access along a range of threads is contiguous and aligned, a thread takes up to 16 bytes at once:
unrolled values that lay `threads` apart become neighbours, and long loops of reductions run over vectors.

Not here: the choice of the plan (`tiling`, the caller), tiles in shared memory (`device_contraction`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import ordered
from compiler.kernel import conversions
from compiler.kernel.plan import Step, Threads
from compiler.kernel.shape import PROBE

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.kernel.plan import Axis, Plan, Reduction
    from compiler.kernel.shape import Kernel
    from compiler.targets.base import Target

ACCESS_BYTES = 16
"""The widest access of a thread."""
SCALAR = frozenset((Ops.SIN, Ops.COS, Ops.FMOD, Ops.POW))
"""Operations whose rare cases branch, which vectors of GPU threads cannot."""
GROUPS_PER_CORE = 8
"""Workgroups of a processor that must remain when a thread takes more values than the plan says."""


def widened(kernel: Kernel, plan: Plan, target: Target) -> Plan:
    """Return a plan of a target with threads with vectors where they are possible, else the plan."""
    nodes = ordered(kernel.ast)
    if kernel.in_place or plan.threads == 1 or any(n.op in SCALAR for n in nodes):
        return plan
    axes = []
    groups = prod(plan.launch()[0])
    looped = {s.range for s in plan.steps if isinstance(s, Step) and s.kind == "loop"}
    for axis in plan.axes:
        lanes = _most(kernel, nodes, axis.range) if len(axis.threads) == 1 else 1
        spare = axis.count if axis.range in looped else groups // (GROUPS_PER_CORE * target.cores)
        axes.append(_axis(axis, lanes, spare))
    reductions: dict[frozenset[UOp], Reduction] = {}
    for ranges, reduction in plan.reductions.items():
        last = reduction.ranges[-1]
        lanes = _most(kernel, nodes, last) if reduction.threads > 1 else 1
        while lanes > 1 and last.arg[1] < lanes * reduction.threads:
            lanes //= 2
        reductions[ranges] = replace(reduction, lanes=lanes, unroll=max(1, reduction.unroll // lanes))
    return replace(plan, axes=tuple(axes), reductions=reductions)


def _axis(axis: Axis, lanes: int, spare: int) -> Axis:
    """Return an axis with vectors in place of unrolled values, and up to `spare` times the block."""
    while lanes > 1 and axis.upcast % lanes and axis.upcast * spare < lanes:
        lanes //= 2
    if lanes == 1:
        return axis
    (threads,) = axis.threads
    upcast = max(1, axis.upcast // lanes)
    if upcast * lanes < axis.upcast or axis.size % (upcast * lanes * threads.size) > 0:
        return axis
    wide = replace(
        axis, upcast=upcast, lanes=lanes, threads=(Threads(threads.size, threads.step, lanes),),
        run=1, spread=lanes * threads.size,
    )  # fmt: skip
    return replace(wide, edge="exact" if axis.size % wide.block == 0 else "masked")


def _most(kernel: Kernel, nodes: list[UOp], r: UOp) -> int:
    """Return the values of the widest vectors along a range; 1 where an access is not contiguous."""
    free = kernel.free
    moving = [n for n in nodes if r in free[n]]
    if any(n.op is Ops.IVALUE or n.op is Ops.INDEXOF for n in moving):
        return 1
    accesses = [n for n in moving if n.op in (Ops.LOAD, Ops.STORE)]
    widest = max([conversions.storage_type(n.src[0].dtype).itemsize for n in accesses], default=ACCESS_BYTES)
    for lanes in (8, 4, 2):
        if lanes * widest <= ACCESS_BYTES and all(in_row(n, r, lanes, free) for n in accesses):
            return lanes
    return 1


def in_row(node: UOp, r: UOp, lanes: int, free: dict[UOp, frozenset[UOp]]) -> bool:
    """Return whether `lanes` values along a range are one aligned vector of a LOAD or STORE, or one value."""
    masks = node.src[2:] if node.op is Ops.LOAD else node.src[3:]
    if any(r in free[m] for m in masks):
        return False
    index, size = node.src[1], r.arg[1]
    if r not in free[index]:
        return node.op is Ops.LOAD or r not in free[node]
    if size % lanes:
        return False
    lane, start = symbolic.loop(PROBE, lanes), symbolic.mul(symbolic.loop(PROBE + 1, size // lanes), lanes)
    x = symbolic.substitute(index, {r: symbolic.add(start, lane)}, {})
    terms, constant = symbolic.terms_of(x)
    if terms.pop(lane, 0) != 1 or constant % lanes or any(c % lanes for c in terms.values()):
        return False
    return not any(
        a is lane or (a.op is Ops.INDEXOF and r in free.get(a, frozenset((r,))))
        for atom in terms
        for a in symbolic.atoms_of(atom.src or (atom,))
    )
