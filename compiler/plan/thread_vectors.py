"""Give the threads of a plan vector loads and stores, where threads along a range read contiguous memory.

If every access along a range of threads is contiguous and aligned, each thread takes up to 16 bytes at once.
Then the unrolled values of a thread are neighbours in memory, instead of a distance of all threads apart.
Long loops of reductions run over vectors in the same way.

Not here: the choice of the plan (`tiling`, the caller), tiles in shared memory (`shared_product`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import storage_type
from compiler.ir import index as symbolic
from compiler.ir.ops import BRANCHING, Ops
from compiler.ir.walk import ordered
from compiler.nest.kernel_shape import PROBE, linear_in
from compiler.nest.loop_nest import Step, Threads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import KernelShape
    from compiler.nest.loop_nest import Axis, LoopNest, Reduction
    from compiler.targets.shared.target import Target

ACCESS_BYTES = 16
"""The widest access of a thread."""
HELD = 32
"""Values of a row, or sums, that a thread may hold in registers."""
IN_FLIGHT = 64
"""Bytes that a thread loads before it uses the first: with 512 threads of a processor, 32 KiB."""
GROUPS_PER_CORE = 8
"""Workgroups of a processor that must remain when a thread takes more values than the plan says."""


def widened(kernel: KernelShape, plan: LoopNest, target: Target) -> LoopNest:
    """Return a plan of a target with threads with vectors where they are possible, else the plan."""
    nodes = ordered(kernel.ast)
    if kernel.in_place or plan.threads == 1 or any(n.op in BRANCHING for n in nodes):
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
        wide = replace(reduction, lanes=lanes, unroll=max(1, reduction.unroll // lanes))
        held = _held(wide)
        reductions[ranges] = replace(wide, unroll=held or _rounds(kernel, axes, wide))
    return replace(plan, axes=tuple([_beside(a, reductions.values()) for a in axes]), reductions=reductions)


def _held(reduction: Reduction) -> int:
    """Return the vectors of a thread if all its values of a reduction fit in registers, in one round; else 0.

    Each load is then written once for all reductions and results over the same row (`builder`).
    """
    size, wide = reduction.ranges[-1].arg[1], reduction.lanes * reduction.threads
    fits = reduction.threads > 1 and size % wide == 0 and size // reduction.threads <= HELD
    return size // wide if fits and len(reduction.ranges) == 1 else 0


def _beside(axis: Axis, reductions: Iterable[Reduction]) -> Axis:
    """Return an axis with the values of each thread where a reduction held in registers has them."""
    for r in reductions:
        held, wide = _held(r), r.lanes * r.threads
        same = held and axis.size == r.ranges[-1].arg[1] and len(axis.threads) == 1
        if same and axis.threads[0] == Threads(r.threads, 1, r.lanes) and axis.lanes == r.lanes:
            return replace(axis, upcast=held, run=1, spread=wide, edge="exact")
    return axis


def _rounds(kernel: KernelShape, axes: list[Axis], reduction: Reduction) -> int:
    """Return the unrolled iterations with which a thread has `IN_FLIGHT` bytes of its loads under way."""
    ranges = frozenset(reduction.ranges)
    family = next(f for f in kernel.families if f.ranges == ranges)
    copies = prod([a.upcast * a.lanes for a in axes if a.range in family.free]) * reduction.lanes
    bytes_each = sum([load.itemsize for load in family.loads]) * copies
    sums = copies * len(family.nodes)
    most = reduction.ranges[-1].arg[1] // (reduction.lanes * reduction.threads)
    unroll = reduction.unroll
    while bytes_each * unroll < IN_FLIGHT and 2 * unroll * sums <= HELD and 2 * unroll <= most:
        unroll *= 2
    return unroll


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


def _most(kernel: KernelShape, nodes: Iterable[UOp], r: UOp) -> int:
    """Return the values of the widest vectors along a range; 1 where an access is not contiguous."""
    free = kernel.free
    moving = [n for n in nodes if r in free[n]]
    if any(n.op is Ops.IVALUE or n.op is Ops.INDEXOF for n in moving):
        return 1
    accesses = [n for n in moving if n.op in (Ops.LOAD, Ops.STORE)]
    widest = max([storage_type(n.src[0].dtype).itemsize for n in accesses], default=ACCESS_BYTES)
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
    found = linear_in(index, r, free)
    if found is not None:
        factor, terms, constant = found
        return factor == 1 < lanes and not constant % lanes and not any(c % lanes for c in terms.values())
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
