"""Propose a plan of a sum of products on a target with shared memory: tiles, threads, stages, operations.

A workgroup computes a block of rows x columns from tiles in shared memory (`emit.shared_tiles`), a thread a
part of the block in registers. Tile sizes follow from the target's row by an estimate of time; nothing is
measured.

Not here: products on a target with vectors (`contraction`), other kernels (`tiling`). Next: `matrix_product`,
rows and columns of a kernel; `block_splits`, the candidates; `nest.nest_check`, which verifies the plan;
`emit.staged_sum`, which writes its loop.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import storage_type
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest.kernel_shape import inner_nodes
from compiler.nest.loop_nest import Axis, Layout, LoopNest, Reduction, Stage, Step, Swizzle
from compiler.nest.nest_check import tile_bytes
from compiler.plan.block_splits import GRID_LIMIT, PANEL, WORDS_PER_CYCLE, all_splits
from compiler.plan.matrix_product import operands, product_of
from compiler.plan.proposal import Proposal
from compiler.plan.thread_vectors import ACCESS_BYTES
from compiler.targets.shared.matrix import PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.ir.uop import UOp
    from compiler.plan.block_splits import BlockSplit
    from compiler.plan.choice import StagedChoice
    from compiler.plan.matrix_product import Product
    from compiler.plan.proposal import KernelForm
    from compiler.targets.shared.matrix import MatrixOp
    from compiler.targets.shared.target import Target

BANKS = 32
"""Banks of shared memory, a word of 32 bits each."""
WIDER = (32,)
"""Words of a tile besides the usual ones, where rows of those would be parts of lines."""
STRIP_GAIN = 0.9
"""The largest part of the bytes without a strip that the bytes with one may be."""

OTHER_REGISTERS = 40
"""Registers of a thread for addresses, counters and masks."""


def propose(kernel: KernelForm, target: Target, _best: Proposal | None = None) -> Iterator[Proposal]:
    """Yield the fastest plan of a product that fits the target; none where shared memory does not pay."""
    p = product_of(kernel.shape, target)
    if p is None:
        return
    op, left, right = operands(p, target)
    best: tuple[float, LoopNest, StagedChoice] | None = None
    for split in all_splits(p, op, target):
        least = _cycles(p, split, target, p.k.arg[1], split.work)
        for words in (split.name.words, *WIDER) if split.depth == 1 else (split.name.words,):
            if best is not None and least >= best[0]:
                continue
            made = _planned(p, split, (left, right), op, target, words)
            if made is not None and (best is None or made[0] < best[0]):
                best = *made, replace(split.name, words=words)
    if best is not None:
        yield Proposal(p.kernel.ast, best[1].nanoseconds, *best[1:])


def by_choice(kernel: KernelForm, target: Target, choice: StagedChoice) -> Proposal | None:
    """Return the plan of a choice; None where it does not fit.

    None also for a kernel without a product (`product_of`), and for a matrix operation that the product
    lacks.
    """
    p = product_of(kernel.shape, target)
    if p is None:
        return None
    op, left, right = operands(p, target)
    if choice.matrix and op is None:
        return None
    if not choice.matrix:
        op, left, right = None, p.left, p.right
    for split in all_splits(p, op, target):
        if replace(split.name, words=choice.words) == choice:
            made = _planned(p, split, (left, right), op, target, choice.words)
            return None if made is None else Proposal(p.kernel.ast, made[1].nanoseconds, made[1], choice)
    return None


def _cycles(p: Product, split: BlockSplit, target: Target, length: int, work: float) -> float:
    """Return the estimated cycles of a candidate, for sums of a length and `work` cycles for each product."""
    groups = split.rows.count * split.columns.count * prod([o.arg[1] for o in p.others])
    return float(-(-groups // target.cores) * work * length)


def _parts_of_lines(
    axes: tuple[Axis, Axis], stages: tuple[Stage, Stage], staged: int, target: Target
) -> float:
    """Return the cycles, for one product of each output of the block, of bytes that copies move for nothing.

    A row of a tile that is shorter than what a request moves at least (`Target.line_bytes`) moves all of it.
    Rows that are copied value by value are not aligned, so that no tile has whole lines.
    """
    cycles = 0.0
    for axis, stage in zip(axes, stages, strict=True):
        size = storage_type(stage.value.dtype).itemsize
        row = size * (staged if stage.along == "sum" else axis.block)
        if stage.mechanism == "vector loads" and stage.lanes > 1 and row < target.line_bytes:
            cycles += (target.line_bytes / row - 1) * axis.block / (WORDS_PER_CYCLE * stage.layout.pack)
    return cycles


def _planned(  # two callers, with all of them  # noqa: PLR0917  # two callers
    p: Product, split: BlockSplit, operands: tuple[UOp, UOp], op: MatrixOp | None, target: Target, words: int
) -> tuple[float, LoopNest] | None:
    """Return the estimated cycles and the plan of a candidate; None where it does not fit the target."""
    op = split.group or op
    if split.group is not None and words != split.name.words:
        return None
    pack = 2 if op is not None else 1
    axes = (split.rows, split.columns)
    stages = [
        ring(p, value, axis, split.threads, 2 * words, depth=split.depth, panels=split.group is not None)
        if split.depth > 1
        else tile(p, value, axis, split.threads, target, words, pack=pack)
        for value, axis in zip(operands, axes, strict=True)
    ]
    rows, columns = stages
    if rows is None or columns is None or split.threads > target.threads:
        return None
    staged = words * pack
    copied = 0 if split.depth > 1 else sum(words * axis.block // split.threads for axis in axes)
    registers = split.sums + max(split.operands, copied) + OTHER_REGISTERS
    if registers > target.thread_registers:
        return None
    most = target.dynamic_shared_bytes if split.depth > 1 else target.shared_bytes
    if sum([tile_bytes(s, a.block, staged) for s, a in zip((rows, columns), axes, strict=True)]) > most:
        return None
    work = split.work + _parts_of_lines(axes, (rows, columns), staged, target)
    time = _cycles(p, split, target, -(-p.k.arg[1] // staged) * staged, work)
    return time, _made(p, split, (rows, columns), staged, op, time / target.gigahertz, target)


def _made(  # noqa: PLR0917  # one caller
    p: Product, split: BlockSplit, stages: tuple[Stage, Stage], staged: int,
    op: MatrixOp | None, nanoseconds: float, target: Target,
) -> LoopNest:  # fmt: skip
    """Return the plan of a candidate."""
    batch = prod([o.arg[1] for o in p.others])
    flat = split.rows.count > GRID_LIMIT or batch > GRID_LIMIT
    axes = {p.rows: split.rows, p.columns: split.columns, **{o: Axis(o) for o in p.others}}
    groups = [Step("group", o, dim=0 if flat else 2) for o in p.others]
    high = strip(split.rows, split.columns, target.cores)
    if high:
        groups += [Step("group", p.rows, high), Step("group", p.columns), Step("group", p.rows)]
    else:
        groups += [Step("group", p.rows, dim=0 if flat else 1), Step("group", p.columns)]
    return LoopNest(
        tuple([axes[r] for r in p.kernel.outputs]),
        (*[g for g in groups if axes[g.range].count > 1], *stages),
        {frozenset((p.k,)): Reduction((p.k,), staged=staged)},
        threads=split.threads,
        warp=target.warp,
        nanoseconds=nanoseconds,
        matrix=op,
    )


def strip(rows: Axis, columns: Axis, cores: int) -> int:
    """Return how many blocks of rows the workgroups go down before the next block of columns; 0: only one.

    Workgroups run in order of number, one on each core at a time. Those that run together load the tiles of
    all their rows and columns, which the cache of the device gives to each: a strip of rows over several
    columns needs fewer bytes than all columns of a row. A strip divides the blocks of rows evenly. It is used
    if it needs a tenth fewer bytes at least.
    """
    if rows.count * columns.count <= cores:
        return 0

    def loaded(high: int) -> int:
        strips = -(-cores // (high * columns.count))
        return high * strips * rows.block + min(columns.count, -(-cores // high)) * columns.block

    sizes = [n for n in (2, 4, 8, 16, 32, 64) if n < rows.count and rows.count % n == 0]
    best = min(sizes, key=loaded, default=0)
    return best if best and loaded(best) <= STRIP_GAIN * loaded(1) else 0


def ring(
    p: Product, value: UOp, axis: Axis, threads: int, summed: int, *, depth: int, panels: bool = False
) -> Stage | None:
    """Return how an operand's tiles of `summed` values of the sum are copied asynchronously.

    With `panels` their rows are cut for operations that read shared memory. None where the rows are not whole
    pieces, where the threads do not divide the tile, and where a row of `panels` is not whole panels.
    """
    for along, r, inner, outer in (
        ("sum", p.k, summed, axis.block), ("axis", axis.range, axis.block, summed),
    ):  # fmt: skip
        if panels and inner % PANEL:
            continue
        pieces = inner // PIECE
        if not p.in_row(value, r, PIECE) or threads % pieces or outer % (threads // pieces):
            continue
        count = min(pieces, PIECE)
        run = PIECE // count
        swizzle = Swizzle(run, count, PIECE) if count > 1 else None
        return Stage(
            value, axis.range, (p.k,), "asynchronous copies",
            Layout(swizzle=swizzle, panel=PANEL if panels else 0), depth, PIECE,
            "sum" if along == "sum" else "axis",
        )  # fmt: skip
    return None


def tile(  # noqa: PLR0917  # in the order of a stage's fields
    p: Product, value: UOp, axis: Axis, threads: int, target: Target, words: int, *, pack: int
) -> Stage | None:
    """Return how an operand's tile of words is copied; None if the threads do not divide the tile.

    A thread loads along the direction in which the operand lies in memory, as much as one access can.
    """
    loads = [n for n in inner_nodes((value,)) if n.op is Ops.LOAD]
    free = p.kernel.free
    widest = ACCESS_BYTES // max([storage_type(n.dtype).itemsize for n in loads], default=4)
    for lanes in (8, 4, 2, 1):
        if lanes > widest:
            continue
        for along, r in (("sum", p.k), ("axis", axis.range)):
            if lanes > 1 and not all(p.in_row(n, r, lanes) for n in loads):
                continue
            if lanes == 1 and along == "sum" and not _adjacent(loads, p.k, free):
                continue
            if _divides(axis, threads, along, max(1, lanes // pack) if along == "sum" else lanes, words):
                pad = BANKS // 4 if pack > 1 else 0
                swizzle = _swizzle(axis, lanes, pack, target.warp, words) if along == "sum" else None
                return Stage(
                    value, axis.range, (p.k,), "vector loads", Layout(pack, pad, swizzle), lanes=lanes,
                    along="sum" if along == "sum" else "axis",
                )  # fmt: skip
    return None


def _adjacent(loads: list[UOp], r: UOp, free: dict[UOp, frozenset[UOp]]) -> bool:
    """Return whether some load has its neighbours along a range next to each other."""
    return any(symbolic.terms_of(n.src[1])[0].get(r, 0) == 1 for n in loads if r in free[n])


def _divides(axis: Axis, threads: int, along: str, size: int, words: int) -> bool:
    """Return whether the vectors of a tile, `size` words or places each, are the same number a thread."""
    inner, outer = (words, axis.block) if along == "sum" else (axis.block, words)
    if inner % size or threads % (inner // size):
        return False
    return outer % (threads // (inner // size)) == 0


def _swizzle(axis: Axis, lanes: int, pack: int, warp: int, words: int) -> Swizzle | None:
    """Return the permutation that spreads a warp's stores of single words, which lie `run` rows apart."""
    run = max(1, lanes // pack)
    inner = words // run
    width = max(4, min(warp, BANKS) // inner)
    count = min(inner, BANKS // width, axis.block // width)
    return Swizzle(run, count, width) if count > 1 else None
