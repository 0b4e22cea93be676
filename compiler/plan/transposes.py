"""Propose a plan of a kernel that transposes on a target with shared memory: tiles between loads and stores.

A kernel without sums that stores along one range, and loads along another, would load one value of each line
of the cache. All threads of a workgroup load a tile with vectors along the second range, store it to shared
memory, and read their values from there. Vectors are permuted within the rows of the tile, so that stores and
reads are free of bank conflicts.

Not here: tiles of sums (`shared_product`), plans of other kernels (`tiling`). Next:
`nest.loop_nest.Stage`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import storage_type
from compiler.ir import index as symbolic
from compiler.ir.ops import BRANCHING, Ops
from compiler.ir.walk import ordered
from compiler.nest.loop_nest import Axis, Layout, LoopNest, Stage, Step, Swizzle, Threads
from compiler.plan.block_splits import GRID_LIMIT, block_axis
from compiler.plan.choice import TurnedChoice
from compiler.plan.thread_vectors import ACCESS_BYTES, in_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import KernelAccess, KernelShape
    from compiler.plan.proposal import KernelForm, Proposal
    from compiler.targets.shared.target import Target

LEAST = 16
"""Values of both ranges from which on a tile pays."""
THREADS = 256
NARROW = 8
"""Threads along the stores where they store vectors; they fill a line of the cache."""
WIDE = 32
"""Threads along the stores where they store single values."""


def propose(kernel: KernelForm, target: Target, _best: Proposal | None = None) -> Iterator[Proposal]:
    """Yield the plan with tiles of a kernel that transposes; none for any other.

    None also on a target without shared memory, with fewer than `THREADS` threads, and for a kernel in place.
    """
    if not target.shared_bytes or target.threads < THREADS:
        return
    shape = kernel.shape
    if shape.families or shape.in_place or len(shape.outputs) < 2:
        return
    columns = next((r for r in shape.outputs if all(_adjacent(s, r) for s in shape.stores)), None)
    if columns is None or columns.arg[1] < LEAST:
        return
    turned = {a.node: r for a in shape.loads if (r := _along(shape, a, columns)) is not None}
    rows = next(iter(turned.values()), None)
    if rows is None or any(r is not rows for r in turned.values()):
        return
    for lanes in (8, 4, 2, 1):
        plan = _plan(shape, list(turned), rows, columns, lanes, target)
        if plan is not None:
            yield kernel.proposal(plan, TurnedChoice())
            return


def _adjacent(access: KernelAccess, r: UOp) -> bool:
    """Return whether neighbours along a range are neighbours in memory."""
    return bool(symbolic.terms_of(access.index)[0].get(r, 0) == 1)


def _along(kernel: KernelShape, access: KernelAccess, columns: UOp) -> UOp | None:
    """Return the other range along which a load lies in memory, if it is not the same for all columns."""
    if columns not in access.free or _adjacent(access, columns):
        return None
    others = [r for r in kernel.outputs if r is not columns and r.arg[1] >= LEAST and _adjacent(access, r)]
    return others[0] if others else None


def _plan(  # noqa: PLR0917  # one caller
    kernel: KernelShape, turned: list[UOp], rows: UOp, columns: UOp, lanes: int, target: Target
) -> LoopNest | None:
    """Return the plan with vectors of `lanes` values; None where an access has no such vectors."""
    nodes = ordered(kernel.ast)
    accesses = [n for n in nodes if n.op in (Ops.LOAD, Ops.STORE)]
    sizes = [storage_type(n.src[0].dtype).itemsize for n in accesses]
    if lanes > 1:
        if lanes * max(sizes) > ACCESS_BYTES or any(n.op in BRANCHING or n.op is Ops.IVALUE for n in nodes):
            return None
        along = [(n, rows if n in turned else columns) for n in accesses]
        if not all(in_row(n, r, lanes, kernel.free) for n, r in along):
            return None
    across = NARROW if lanes > 1 else WIDE
    high = THREADS // across
    upcast = max(2, -(-across * lanes // high))
    wide = block_axis(columns, 1, lanes, (Threads(across, 1, lanes),), 0, 0)
    tall = block_axis(rows, upcast, 1, (Threads(high, across),), 1, high)
    width = max(storage_type(n.src[0].dtype).itemsize for n in turned)
    if len(turned) * tall.block * wide.block * width > target.shared_bytes:
        return None
    others = [Axis(r) for r in kernel.outputs if r is not rows and r is not columns]
    flat = tall.count > GRID_LIMIT or prod([a.count for a in others]) > GRID_LIMIT
    groups = [Step("group", a.range, dim=0 if flat else 2) for a in others]
    groups += [Step("group", rows, dim=0 if flat else 1), Step("group", columns)]
    axes = {a.range: a for a in (wide, tall, *others)}
    layout = Layout(swizzle=Swizzle(lanes, across, lanes))
    stages = [
        Stage(n, rows, mechanism="vector loads", layout=layout, lanes=lanes, across=columns) for n in turned
    ]
    moved = sum([size * prod([r.arg[1] for r in kernel.outputs]) for size in sizes])
    return LoopNest(
        tuple([axes[r] for r in kernel.outputs]),
        (*[g for g in groups if axes[g.range].count > 1], *stages),
        threads=THREADS,
        warp=target.warp,
        nanoseconds=moved / target.bytes_per_ns,
    )
