"""Rows that a kernel uses several times: values to keep in scratch memory, and rows to prefetch.

A softmax computes exp(x - max) for its sum over an axis, and again for each of its results along that axis.
If a second computation costs more than a store and a load, the first loop stores the values to a row on the
stack of the worker thread, and the second loop loads them.

It reads a row from memory for its maximum; later loops find the row in the caches. While they compute
exponentials, the memory would be idle: a hardware prefetcher cannot predict the next row. So of the loops
that read the row again, the one with the most arithmetic also prefetches the same elements of the next row.
A product of a matrix with one vector prefetches so, too, although it reads each row once.

Not here: buffers between kernels (`compiler.schedule.fusion`), the instructions (`emit.accesses`). Next:
`nest.loop_nest.ScratchRow` and `Ahead`, the results; `tiling`, the caller.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import COSTLY, Ops
from compiler.nest.kernel_shape import PROBE, inner_nodes, weight
from compiler.nest.loop_nest import Ahead, ScratchRow, Step
from compiler.rewrite.range_merging import replace_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelAccess, KernelShape
    from compiler.nest.loop_nest import Axis, LoopNest
    from compiler.plan.cost import Model, RangeSplit


ROW_BYTES = 64 << 10
"""The largest row. It is on a worker's stack, and should stay in the first cache levels."""


def find_rows(kernel: KernelShape, split: RangeSplit) -> tuple[ScratchRow, ...]:
    """Return the rows whose second computation costs more than memory, for a plan with this split."""
    wanted = {n for n in inner_nodes([s.src[2] for s in kernel.ast.src]) if n.op in COSTLY}
    out: list[ScratchRow] = []
    for family in kernel.families:
        alone = split.vector not in family.free and not any(r in split.upcast for r in family.free)
        if len(family.ranges) == 1 and alone:
            out += _of_family(kernel, family, wanted - {row.twin for row in out})
    return tuple(out)


def _of_family(kernel: KernelShape, family: Family, wanted: set[UOp]) -> list[ScratchRow]:
    (k,) = family.ranges
    outs = [r for r in kernel.outputs if r not in family.free and r.arg[1] == k.arg[1]]
    found: list[ScratchRow] = []
    for filler in family.nodes:
        for node in inner_nodes(filler.src):
            if node.op not in COSTLY or k not in kernel.free[node] or k.arg[1] * 8 > ROW_BYTES:
                continue
            for c in outs:
                twin = replace_ranges(node, {k: c})
                if twin in wanted and all(row.twin is not twin for row in found):
                    found.append(ScratchRow(node, twin, k, c, filler))
    return found


LEAST_BYTES = 2048
"""Bytes that are fetched ahead at least: shorter rows are fetched several rows ahead. It takes longer to read
so many from the first caches than one line from memory."""
STREAMED = 4
"""A matrix of more than so many first-level caches is fetched ahead where it is read once."""
STREAM_BYTES = 16 << 10
"""Bytes that a matrix which is read once is fetched ahead at least: they are read in the time of memory."""
NEAR_BYTES = 8 << 10
"""The same of one stream."""
CHAIN_BYTES = 32
"""Bytes of a matrix for each addition from which on one chain of them is as fast as memory."""
CACHE_PART = 4
"""A row and the one after it take at most this part of the second-level cache."""


def find_ahead(kernel: KernelShape, model: Model, split: RangeSplit, plan: LoopNest) -> tuple[Ahead, ...]:
    """Return the loads with which another row is fetched: one for each row that is read again.

    `plan` has the split's axes and steps, and the rows that the kernel keeps in scratch memory.
    """
    if model.threaded or kernel.in_place:
        return ()
    outer = _rows(split, plan)
    if outer is None:
        return ()
    streamed = _of_products(kernel, model, split, outer)
    if streamed or outer.edge != "exact" or not any(_far(x, model) for f in kernel.families for x in f.loads):
        return streamed
    found: dict[object, list[tuple[float, UOp, KernelAccess]]] = {}
    for along, loads, work in _loops(kernel, model, split, plan.rows):
        for load in loads:
            if along is not outer.range and _is_row(load, along, outer.range, model):
                row = symbolic.substitute(load.index, {along: symbolic.loop(PROBE, along.arg[1])}, {})
                found.setdefault((load.node.src[0].arg, row), []).append((work, along, load))
    again = [max(uses[1:], key=lambda use: use[0]) for uses in found.values() if len(uses) > 1]
    return tuple([_ahead(along, load, outer) for _, along, load in again])


def _of_products(kernel: KernelShape, model: Model, split: RangeSplit, outer: Axis) -> tuple[Ahead, ...]:
    """Return the loads of a matrix that is read once beside a vector, such as that of a decoded token.

    Each row has its own arithmetic, so few lines are on their way from memory.
    """
    found = []
    for family in kernel.families:
        along = model.inner(family, split).vector
        loads = matrices(family, model) if outer.range in family.free and along is not None else []
        for load in loads:
            terms, _ = symbolic.terms_of(load.index)
            row, size = terms[outer.range], load.itemsize
            block = row * outer.block * size
            if terms.get(along or outer.range) != 1 or not 0 < block * CACHE_PART <= model.target.l2_bytes:
                continue
            stream = outer.block == 1 and is_stream(family, model)
            distance = NEAR_BYTES // size if stream else row * outer.block * -(-STREAM_BYTES // block)
            found.append(Ahead(load.node, distance, near=distance * size <= model.target.l1_bytes))
    return tuple(found)


def matrices(family: Family, model: Model) -> list[KernelAccess]:
    """Return the loads of a large matrix that is read once, beside a vector that all its rows share."""
    if len(family.free) != 1 or all(family.free <= load.free for load in family.loads):
        return []
    whole, large = family.free | family.ranges, STREAMED * model.target.l1_bytes
    return [
        load
        for load in family.loads
        if load.free == whole
        and not load.masked
        and load.nbytes > large
        and all(a.op is Ops.RANGE for a in symbolic.terms_of(load.index)[0])
    ]


def is_stream(family: Family, model: Model) -> bool:
    """Return whether such a matrix is best read row after row, a stream that prefetchers follow.

    Each row loads the whole vector again, which must stay in the first-level cache. A sum over two ranges is
    one chain of additions, each of which must take enough bytes; its rows must be long.
    """
    taken, cache = model.width * sum([x.itemsize for x in matrices(family, model)]), model.target.l1_bytes
    if model.threaded or not taken or (len(family.ranges) > 1 and taken < CHAIN_BYTES):
        return False
    vectors = sum([load.nbytes for load in family.loads if not family.free <= load.free])
    return (0 if len(family.ranges) == 1 else cache / 4) <= vectors <= cache * 3 / 4


def _loops(
    kernel: KernelShape, model: Model, split: RangeSplit, rows: Sequence[ScratchRow]
) -> list[tuple[UOp, list[KernelAccess], float]]:
    """Return (range of the vectors, loads, operations of a value) of the loops over rows, in order."""
    loops: list[tuple[UOp, list[KernelAccess], float]] = []
    for family in kernel.families:
        along = model.inner(family, split).vector
        if along is not None and len(family.ranges) == 1:
            loops.append((along, family.loads, family.ops + family.fused))
    v = split.vector
    if v is not None:
        inside = inner_nodes([s.src[2] for s in kernel.ast.src], frozenset([row.twin for row in rows]))
        work = sum([weight(n.op) for n in inside if v in kernel.free[n]])
        loops.append((v, [x for x in kernel.loads if x.node in inside], work))
    return loops


def _rows(split: RangeSplit, plan: LoopNest) -> Axis | None:
    """Return the axis of the innermost loop around the row, one block after the other; None without."""
    axis = {a.range: a for a in plan.axes}
    loops = [s for s in plan.steps if isinstance(s, Step) and s.kind == "loop"]
    last = [s for s in loops if s.range is not split.vector and axis[s.range].count > 1][-1:]
    return axis[last[0].range] if last and last[0].size == 1 else None


def _far(load: KernelAccess, model: Model) -> bool:
    """Return whether an operand exceeds the last cache."""
    return 0 < model.target.last_level_bytes < load.itemsize * prod([int(r.arg[1]) for r in load.free])


def _is_row(load: KernelAccess, along: UOp, outer: UOp, model: Model) -> bool:
    """Return whether a load reads a row of adjacent elements of a matrix that exceeds the last cache."""
    terms, _ = symbolic.terms_of(load.index)
    if load.masked or not {along, outer} <= load.free or any(a.op is not Ops.RANGE for a in terms):
        return False
    row = max(int(along.arg[1]) * load.itemsize, LEAST_BYTES)
    if not _far(load, model) or row * CACHE_PART > model.target.l2_bytes:
        return False
    return terms.get(along) == 1 and terms.get(outer, 0) > 0


def _ahead(along: UOp, load: KernelAccess, outer: Axis) -> Ahead:
    terms, _ = symbolic.terms_of(load.index)
    row = int(along.arg[1]) * load.itemsize * outer.block
    return Ahead(load.node, terms[outer.range] * outer.block * -(-LEAST_BYTES // row))
