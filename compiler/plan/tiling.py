"""Propose a split of a kernel's ranges: the vector range, unrolled copies, loop order and workgroups.

Few candidates are compared. Vectors are along an output range, or along a reduction if no output range is
contiguous in memory. One more output range is unrolled where that reuses loads. All other ranges are loops;
the ranges on which every reduction depends are the outermost loops. Planning takes about a millisecond.

Not here: the cost of a candidate (`cost`), the contents of a plan (`nest.loop_nest`). Next: `emit.linearize`,
which follows the plan.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from compiler.nest.kernel_shape import inner_nodes
from compiler.nest.loop_nest import Axis, LoopNest, Reduction, Stage, Step, Threads
from compiler.plan import column_sums
from compiler.plan.choice import SplitChoice
from compiler.plan.cost import Model, RangeSplit, picks
from compiler.plan.proposal import GROUP_NS, GROUPS_PER_CORE, divided
from compiler.plan.row_reuse import find_ahead, find_rows, is_stream
from compiler.plan.thread_vectors import widened
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelShape
    from compiler.nest.loop_nest import Edge
    from compiler.plan.proposal import KernelForm, Proposal
    from compiler.targets.shared.target import Target

FEW_ROWS = 32
"""Rows of a contraction up to which a plan without its panels may be faster."""
LEAST_SHARED = 8
"""Products for which a mask is computed once, such as channels, from which on that is so."""
LONG_NS = 100_000
"""The least time of a workgroup where there are more than that for each core."""
MOST_PER_CORE = 16
"""The most workgroups for each core: a core that starts late, or that other programs use, takes fewer."""
TILE = 16
"""Squares along each side of a tile that is transposed at once, to stay in the cache."""
ACROSS = 4
"""Squares side by side along the rows that are read, where the results bypass the caches: neighbouring lines
are read together, and then those of the next rows."""
LINE = 64
"""Bytes of a line of the caches."""
ROWS = (2, 3, 4, 5, 6, 8, 12)
COLUMNS = (1, 2, 3, 4, 8, 16)
SIDE_BY_SIDE = (2, 4)
"""Rows whose sums, with vectors along them, run at once."""


def propose(kernel: KernelForm, target: Target, best: Proposal | None = None) -> Iterator[Proposal]:
    """Yield the split of a kernel that is fastest by the estimate; beside `best` only one that may win."""
    shape = kernel.shape
    if best is not None and not _is_rival(shape, best.plan):
        return
    model, split = _estimated(shape, target)
    plan = _plan(shape, target, model, split, SplitChoice())
    yield kernel.proposal(plan, lambda: replace(_choice(shape, model, split), form=kernel.form))


def by_choice(kernel: KernelForm, target: Target, choice: SplitChoice) -> Proposal:
    """Return the plan of a choice. Raises `CompileError` if the kernel has no such ranges."""
    shape = kernel.shape
    ranges = {int(r.arg[0]): r for r in shape.outputs}
    inner = {int(r.arg[0]): r for f in shape.families for r in f.ranges}
    model = Model(shape, target, most_threads=choice.threads or target.threads)
    try:
        vector = ranges[choice.vector] if choice.vector >= 0 else None
        split = RangeSplit(
            vector,
            1 if vector is None else model.lanes(vector),
            {ranges[number]: n for number, n in choice.upcast},
            {
                family.ranges: (inner[number] if number >= 0 else None, unroll)
                for family, (number, unroll) in zip(shape.families, choice.sums, strict=bool(choice.sums))
            },
        )
        return kernel.proposal(_plan(shape, target, model, split, choice), choice)
    except (KeyError, ValueError) as error:
        raise CompileError(
            f"wanted a choice over ranges {sorted(ranges)} and the sums of {len(shape.families)} families, "
            f"saw {choice}; try one of frontend.tuning.space",
            ast=kernel_key(shape.ast),
        ) from error


def _is_rival(kernel: KernelShape, product: LoopNest) -> bool:
    """Return whether a split may be faster than the plan of a product.

    It may be for few rows, such as filters, with panels of masked elements: a panel of each tap is copied for
    few products, and a split reads the picture in place. Its masks must serve several products each: their
    operations are not in the estimate.
    """
    rows = [a.size for a in product.axes if a.lanes == 1 and a.upcast > 1]
    copies = [s.value for s in product.steps if isinstance(s, Stage) and not s.window]
    masked = any(n.op is Ops.LOAD and len(n.src) > 2 for n in inner_nodes(copies))
    summed = [r for family in kernel.families for r in family.ranges if r not in kernel.masked_ranges]
    return masked and max(rows, default=0) <= FEW_ROWS and prod([r.arg[1] for r in summed]) >= LEAST_SHARED


def _choice(kernel: KernelShape, model: Model, split: RangeSplit) -> SplitChoice:
    """Return the choice of an estimated split."""
    inner = [model.inner(family, split) for family in kernel.families]
    return SplitChoice(
        vector=-1 if split.vector is None else split.vector.arg[0],
        upcast=tuple(sorted([(int(r.arg[0]), n) for r, n in split.upcast.items() if n > 1])),
        sums=tuple([(-1 if one.vector is None else int(one.vector.arg[0]), one.unroll) for one in inner]),
        threads=model.width if model.threaded else 0,
    )


def _estimated(kernel: KernelShape, target: Target) -> tuple[Model, RangeSplit]:
    """Return the fastest split by the estimate, with the model of its number of threads."""
    model = Model(kernel, target)
    split = _best_split(kernel, model)
    while model.threaded and (used := model.busy(split)) <= model.width // 2 and model.width > target.warp:
        model = Model(kernel, target, most_threads=used)
        split = _best_split(kernel, model)
    even = _aligned(model, split)
    if _streams(kernel, model, even):
        split = _whole_lines(kernel, model, even)
    return model, split


def _plan(
    kernel: KernelShape, target: Target, model: Model, split: RangeSplit, choice: SplitChoice
) -> LoopNest:
    """Return the plan of a split; `choice` has the order of loops and the workgroups."""
    streamed = _streams(kernel, model, split) and _whole_lines(kernel, model, split) == split
    pieces = column_sums.split_of(kernel, model, split)
    split = pieces or split
    axes = tuple([_axis(model, split, r) for r in kernel.outputs])
    reductions = {}
    for family in kernel.families:
        reductions[family.ranges] = _reduction(kernel, family, model, split)
    nanoseconds = max(model.total(split) / target.gigahertz, _bytes(kernel) / target.bytes_per_ns)
    steps = _steps(model, split, axes, nanoseconds, choice, streamed=streamed)
    threads = model.width if model.threaded else 1
    plan = LoopNest(
        axes, steps, reductions, () if model.threaded else find_rows(kernel, split), threads, target.warp,
        streamed=streamed, nanoseconds=nanoseconds,
    )  # fmt: skip
    if model.threaded:
        return widened(kernel, plan, target)
    if pieces is None or plan.rows:
        return replace(plan, ahead=find_ahead(kernel, model, split, plan))
    return column_sums.in_pieces(kernel, plan, split, target.cores)


def _bytes(kernel: KernelShape) -> float:
    """Return the bytes moved if every access touched its elements once."""
    accesses = (*kernel.loads, *kernel.stores, *[a for f in kernel.families for a in f.loads])
    return sum([access.nbytes for access in accesses])


def _streams(kernel: KernelShape, model: Model, split: RangeSplit) -> bool:
    """Return whether the results bypass the caches.

    They do if they are at least half as large as the last-level cache: their reader would find little of them
    there, and stores through the caches read each line first. Stored lines must be whole, or the memory
    would be written several times. Results that replace an operand are in the caches already.
    """
    if not model.target.last_level_bytes or kernel.in_place or split.vector is None:
        return False
    if sum([store.nbytes for store in kernel.stores]) < model.target.last_level_bytes / 2:
        return False
    rows = [model.kind(s, split.vector, split, split.lanes, aligned=True) for s in kernel.stores]
    return all(kind == "row" for kind in rows) and split.aligned(split.vector)


def _aligned(model: Model, split: RangeSplit) -> RangeSplit:
    """Return the split with blocks that divide the vector range, if any number of vectors does."""
    v = split.vector
    if v is None or model.threaded or v.arg[1] % split.lanes:
        return split
    vectors = split.upcast.get(v, 1)
    while v.arg[1] % (vectors * split.lanes):
        vectors -= 1
    return split if vectors == split.upcast.get(v, 1) else replace(split, upcast=split.upcast | {v: vectors})


def _whole_lines(kernel: KernelShape, model: Model, split: RangeSplit) -> RangeSplit:
    """Return the split with blocks of whole lines along the vector range, if another range is unrolled."""
    v, narrow = split.vector, min([s.itemsize for s in kernel.stores])
    assert v is not None
    upcast = dict(split.upcast)
    while len(upcast.keys() - {v}) and upcast.get(v, 1) * split.lanes * narrow < LINE:
        upcast[v] = 2 * upcast.get(v, 1)
    return replace(split, upcast=upcast) if _fits(model, v, upcast.get(v, 1) * split.lanes) else split


def _best_split(kernel: KernelShape, model: Model) -> RangeSplit:
    candidates = [RangeSplit(None, 1)]
    if model.width > 1:
        candidates += [RangeSplit(r, model.lanes(r)) for r in reversed(kernel.outputs)]
    if model.threaded:  # a workgroup of one busy thread is the last resort
        candidates = [split for split in candidates if model.busy(split) > 1] or candidates
    scored = sorted([(model.total(s), i) for i, s in enumerate(candidates)])
    best_cost, best = scored[0][0], candidates[scored[0][1]]
    main = max(kernel.families, key=lambda f: f.trips * prod([int(r.arg[1]) for r in f.free]), default=None)
    for _, i in scored[:2]:
        kept = not model.threaded and bool(find_rows(kernel, candidates[i]))
        for tile in _tiles(model, main, candidates[i], kept=kept):
            several = any(r in f.free for f in kernel.families for r in tile.upcast)
            if kept and several and not _covers(tile):
                continue  # its rows would be computed twice
            cost = model.total(tile)
            if cost < best_cost * 0.999:
                best_cost, best = cost, tile
    return best


def _tiles(model: Model, main: Family | None, base: RangeSplit, *, kept: bool) -> list[RangeSplit]:
    """Return the splits that add unrolled copies to a vector range.

    Copies of the vector, rows of another range, or a square of two others.
    """
    kernel, v = model.kernel, base.vector
    out: list[RangeSplit] = []
    if v is None and main is not None and is_stream(main, model):
        return out
    reuse = (
        []
        if main is None
        else [r for r in kernel.outputs if r in main.free and r is not v and _reuses(main, r)]
    )
    if v is not None:
        out += [
            RangeSplit(v, base.lanes, {u: base.lanes})
            for u in kernel.outputs
            if u is not v and base.lanes > 1 and _fits(model, u, base.lanes) and _fits(model, v, base.lanes)
        ]
        columns = [n for n in COLUMNS if n == 1 or model.threaded or _fits(model, v, n * base.lanes)]
        out += [RangeSplit(v, base.lanes, {v: n}) for n in columns if n > 1]
        rows = reuse if main is None or v in main.free else []
    else:
        columns, rows = [1], reuse
    near = main is not None and all(load.nbytes <= model.target.l1_bytes for load in main.loads)
    slow = main is not None and (bool(reuse) or picks(main) or len(kernel.families) > 1 or near)
    if main is not None and slow and v not in main.free and not model.threaded:
        whole = [n for n in columns if v is not None and n * base.lanes == v.arg[1]]
        out += [  # sums of several rows side by side: their ends wait for one another no longer
            RangeSplit(v, base.lanes, {a: m} if v is None else {a: m, v: n})
            for a in kernel.outputs
            if a is not v and a in main.free
            for m in (SIDE_BY_SIDE[:1] if kept else SIDE_BY_SIDE)
            if _fits(model, a, m)
            for n in ([1] if v is None else whole if kept else columns[:3])
        ]
    for a in rows:
        for m in ROWS:
            if not _fits(model, a, m):
                continue
            if v is not None and columns != [1]:
                out += [RangeSplit(v, base.lanes, {a: m, v: n}) for n in columns if n * m <= 32]
                continue
            out.append(RangeSplit(v, base.lanes, {a: m}))
            if main is not None and (v is None or v not in main.free):
                out += [
                    RangeSplit(v, base.lanes, {a: m, c: n})
                    for c in rows
                    if c.arg[0] > a.arg[0]
                    for n in (2, 3, 4)
                    if _fits(model, c, n)
                ]
    return out


def _covers(split: RangeSplit) -> bool:
    """Return whether a block has the whole vector range: all values of a row stay in registers."""
    v = split.vector
    return v is not None and split.block(v) == v.arg[1]


def _reuses(family: Family, r: UOp) -> bool:
    """Return whether some load is the same for all values of r."""
    return any(r not in load.free for load in family.loads)


def _fits(model: Model, r: UOp, block: int) -> bool:
    """Return whether a block of that size is possible without masks."""
    size = r.arg[1]
    return size % block == 0 or (size >= block and not model.exact)


def _axis(model: Model, split: RangeSplit, r: UOp) -> Axis:
    upcast = split.upcast.get(r, 1)
    lanes = split.lanes if r is split.vector else 1
    size, block = r.arg[1], upcast * lanes
    edge: Edge = "exact" if size % block == 0 else "masked" if size < block or model.exact else "overlap"
    if model.threaded and lanes > 1:
        return Axis(r, upcast, 1, edge, (Threads(lanes),), run=1, spread=lanes)
    return Axis(r, upcast, lanes, edge)


def _reduction(kernel: KernelShape, family: Family, model: Model, split: RangeSplit) -> Reduction:
    """Return the loops of a family: ranges with masks outermost, so that masks leave the rest.

    Longest last.
    """
    inner = model.inner(family, split)
    order = sorted(family.ranges, key=lambda r: (r not in kernel.masked_ranges, r.arg[1], r.arg[0]))
    if inner.vector is not None:
        order.remove(inner.vector)
        order.append(inner.vector)
    lanes = inner.lanes if inner.vector is not None else 1
    unroll = inner.unroll
    while unroll > 1 and unroll * lanes > order[-1].arg[1]:
        unroll //= 2
    if model.threaded:
        return Reduction(tuple(order), 1, unroll, threads=lanes)
    return Reduction(tuple(order), lanes, unroll)


def _steps(
    model: Model,
    split: RangeSplit,
    axes: tuple[Axis, ...],
    nanoseconds: float,
    choice: SplitChoice,
    *,
    streamed: bool,
) -> tuple[Step, ...]:
    """Return the loop nest: workgroups, then loops.

    Ranges on which all reductions depend are outermost; among the others the vector range is outside an
    unrolled one for whose values a sum loads the same elements, but inside it where squares are transposed
    and their lines stay in the caches. Other ranges are in the order of the results in memory.
    """
    kernel, target = model.kernel, model.target
    if model.threaded:  # a workgroup computes a whole row whose reductions all its results use
        return _device_steps(kernel, axes)
    count = {a.range: a.count for a in axes}
    turned = _turned(model, split)
    reused = [r for r in split.upcast if turned is not None or any(_reuses(f, r) for f in kernel.families)]

    def rank(r: UOp) -> tuple[int, int, int]:
        missing = sum(r not in f.free for f in kernel.families)
        tiled = 0
        if turned is not None and not streamed:  # neighbours along the vectors are stored in turn
            tiled = int(r is split.vector)
        elif turned is not None or kernel.families:
            tiled = 1 if r is split.vector else 2 if r in reused else 0
        return missing, tiled, int(r.arg[0])

    order = sorted(kernel.outputs, key=rank)
    if choice.order:
        order.sort(key=lambda r: choice.order.index(int(r.arg[0])))
    wanted = choice.groups or _wanted(nanoseconds, target.cores)
    apart = bool(kernel.families) or turned is not None
    shared = [r for r in order if all(r in f.free for f in kernel.families)]
    shared.sort(key=lambda r: (r is split.vector and apart, order.index(r)))
    groups = divided([next(a for a in axes if a.range is r) for r in shared], wanted)
    loops = [Step("loop", r) for r in order]
    if turned is None:
        return (*groups, *loops)
    if not streamed:
        return (*groups, *[Step("loop", r, TILE) for r in order if count[r] > TILE], *loops)
    first = min(i for i, r in enumerate(order) if r is turned or r is split.vector)
    return (*groups, *loops[:first], Step("loop", turned, ACROSS), *loops[first:])


def _wanted(nanoseconds: float, cores: int) -> int:
    """Return the number of workgroups of a kernel that takes so long on one core."""
    few = min(nanoseconds / GROUP_NS, GROUPS_PER_CORE * cores)
    return int(max(few, min(nanoseconds / LONG_NS, MOST_PER_CORE * cores)))


def _device_steps(kernel: KernelShape, axes: tuple[Axis, ...]) -> tuple[Step, ...]:
    """Return workgroups along the ranges on which all reductions depend, and loops along the others."""
    many = [a.range for a in axes if a.count > 1]
    rows = [r for r in many if all(r in f.free for f in kernel.families)]
    return (*[Step("group", r) for r in rows], *[Step("loop", r) for r in many if r not in rows])


def _turned(model: Model, split: RangeSplit) -> UOp | None:
    """Return the unrolled range along which the plan reads the squares that it transposes; None without."""
    found = [model.transposed(load, split) for load in model.kernel.loads]
    return next((r for r in found if r is not None), None)
