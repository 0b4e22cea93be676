"""List how the block of a workgroup can be divided among threads and warps: the candidates of a product.

There are candidates with multiply-adds of threads, with matrix operations of warps on tiles of words, the
same on rings of tiles that are copied asynchronously, and with operations of a warpgroup that read shared
memory. Each has an estimate in cycles of one processor; nothing is measured.

Not here: the choice among them, and the tiles in shared memory (`shared_product`, the caller).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import HALF
from compiler.ir.ops import Ops
from compiler.nest.kernel_shape import inner_nodes
from compiler.nest.loop_nest import Axis, Threads
from compiler.plan.choice import StagedChoice
from compiler.plan.matrix_product import half
from compiler.plan.thread_vectors import ACCESS_BYTES
from compiler.targets.shared.matrix import places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Edge
    from compiler.plan.matrix_product import Product
    from compiler.targets.shared.matrix import Digit, MatrixOp
    from compiler.targets.shared.target import Target

WORDS_PER_CYCLE = 8
"""Words that a processor copies to shared memory in a cycle; for the estimate of time."""
THREAD_TILES = ((16, 16, 8, 8), (16, 16, 4, 8), (16, 16, 4, 4), (8, 16, 4, 4), (8, 8, 4, 4), (8, 8, 2, 4))
"""Threads along rows and columns, and the rows and columns of a thread."""
WARPS = ((2, 4), (4, 2), (2, 2), (1, 2), (2, 1), (1, 1))
"""Warps along rows and columns, with matrix operations."""
WARP_TILES = ((4, 8), (2, 8), (4, 4), (2, 4))
"""Operations along rows and columns of a warp, with asynchronous copies."""
DEPTHS = (4, 2)
"""Tiles in flight."""
MATRIX_PRODUCTS = 1300
"""Products of a processor's matrix units in a cycle, as `mma.sync` reaches them; for the estimate of time."""
GROUP_PRODUCTS = 1800
"""The same of operations on tiles in shared memory."""
PANEL = 64
"""Values of a row of their tiles: 128 bytes."""
SHARED_BYTES = 128
"""Bytes that shared memory moves in a cycle."""
OVERLAP = 0.3
"""The part of the smaller of products and accesses to shared memory that does not overlap with the larger."""
GRID_LIMIT = 65_535
"""Workgroups along the second and the third dimension of a grid."""


@dataclass(frozen=True, slots=True)
class BlockSplit:
    """A candidate: how the block of a workgroup is divided."""

    rows: Axis
    columns: Axis
    threads: int
    sums: int
    """Accumulators of a thread."""
    operands: int
    """Registers of the operands of one round."""
    work: float
    """The estimated cycles of a processor for one product of each output of the block."""
    name: StagedChoice
    depth: int = 1
    """Tiles in flight, from 2 on by asynchronous copies."""
    group: MatrixOp | None = None
    """The operation on tiles in shared memory."""


def all_splits(p: Product, op: MatrixOp | None, target: Target) -> Iterator[BlockSplit]:
    """Yield the candidates with a matrix operation, or (`op` None) of multiply-adds."""
    if op is not None and op.rows and target.async_bytes == ACCESS_BYTES and _direct(p):
        for group in target.matrix:
            if group.shared and group.dtype is op.dtype:
                yield from _group_splits(p, group)
        yield from _pipelined_splits(p, op, target)
    yield from _splits(p) if op is None else _matrix_splits(p, op, target)


def block_axis(  # noqa: PLR0917  # in the order of the fields of Axis
    r: UOp, upcast: int, lanes: int, threads: tuple[Threads, ...], run: int, spread: int
) -> Axis:
    """Return the axis of a range with masks if it is not a multiple of the block."""
    block = upcast * lanes * prod([t.size for t in threads])
    edge: Edge = "exact" if r.arg[1] % block == 0 else "masked"
    return Axis(r, upcast, lanes, edge, threads, run, spread)


def in_order(
    r: UOp, digits: Sequence[Digit], size: int, count: int, *, lanes: int = 1, warps: tuple[int, int] = (1, 1)
) -> Axis:
    """Return an axis of `count` operations of `size` values each, in order; `warps` are (number, lanes)."""
    registers = sorted([d for d in digits if d.of == "register"], key=lambda d: d.weight)
    run = registers[0].size // lanes if registers[0].weight == 1 else 1
    spread = next((d.weight for d in registers if d.weight > 1), size)
    threads = [Threads(d.size, d.step, d.weight) for d in digits if d.of == "lane"]
    threads += [Threads(warps[0], warps[1], size * count)] if warps[0] > 1 else []
    mine = prod([d.size for d in registers]) * count
    return block_axis(r, mine // lanes, lanes, tuple(threads), run, spread)


def by_lanes(
    r: UOp, digits: Sequence[Digit], count: int, *, lanes: int = 1, warps: tuple[int, int] = (1, 1)
) -> Axis:
    """Return an axis of `count` operations in the order of `places`: a lane's values are neighbours."""
    strides, mine, block = places(digits, count)
    threads = [Threads(d.size, d.step, strides[d]) for d in digits if d.of == "lane"]
    threads += [Threads(warps[0], warps[1], block)] if warps[0] > 1 else []
    return block_axis(r, mine // lanes, lanes, tuple(threads), 0, 0)


def _splits(p: Product) -> Iterator[BlockSplit]:
    """Yield the candidates of multiply-adds: vectors of 4 columns where the results allow it."""
    for ty, tx, high, wide in THREAD_TILES:
        lanes = 4 if has_vectors(p, 4) else 1
        run = min(4, high)
        rows = block_axis(p.rows, high, 1, (Threads(ty, tx, run),), run, ty * run)
        columns = block_axis(p.columns, wide // lanes, lanes, (Threads(tx, 1, 4),), 4 // lanes, 4 * tx)
        cycles = (1 + (high + wide) / (high * wide)) * rows.block * columns.block / 128
        cycles += (rows.block + columns.block) / WORDS_PER_CYCLE
        name = StagedChoice(rows=ty, columns=tx, high=high, wide=wide)
        yield BlockSplit(rows, columns, ty * tx, high * wide, high + wide, cycles, name)


def _matrix_splits(p: Product, op: MatrixOp, target: Target) -> Iterator[BlockSplit]:
    """Yield the candidates with a matrix operation: adjacent operations of a warp, and warps."""
    m, n, _ = op.shape
    for high, wide in ((32 // m, 64 // n), (32 // m, 32 // n)):
        _, mine, warp_rows = places(op.d.row, high)
        _, width, warp_columns = places(op.d.column, wide)
        if width > 8 or mine > 16:
            continue
        lanes = width if has_vectors(p, width) else 1
        for wy, wx in WARPS:
            rows = by_lanes(p.rows, op.d.row, high, warps=(wy, op.lanes * wx))
            columns = by_lanes(p.columns, op.d.column, wide, lanes=lanes, warps=(wx, op.lanes))
            sums = mine * width
            operands = high * op.a.registers + wide * op.b.registers
            cycles = (1 + 16 * (1 / warp_rows + 1 / warp_columns)) * rows.block * columns.block / 1024
            cycles *= max(1, 4 * target.warp // (wy * wx * op.lanes))
            cycles += (rows.block + columns.block) / (2 * WORDS_PER_CYCLE)
            name = StagedChoice(matrix=True, rows=wy, columns=wx, high=high, wide=wide)
            yield BlockSplit(rows, columns, wy * wx * op.lanes, sums, operands, cycles, name)


def _direct(p: Product) -> bool:
    """Return whether both operands are elements of 16 bits as they are in memory."""
    return all(x.op is Ops.LOAD and x.dtype in HALF for x in half(p))


def _pipelined_splits(p: Product, op: MatrixOp, target: Target) -> Iterator[BlockSplit]:
    """Yield the candidates with a matrix operation and asynchronous copies.

    The estimate: a processor multiplies while fragments are loaded and tiles are written.
    """
    m, n, _ = op.shape
    (width,) = (d.size for d in op.d.column if d.of == "register")
    lanes = width if has_vectors(p, width) else 1
    for high, wide in WARP_TILES:
        for wy, wx in WARPS:
            rows = in_order(p.rows, op.d.row, m, high, warps=(wy, op.lanes * wx))
            columns = in_order(p.columns, op.d.column, n, wide, lanes=lanes, warps=(wx, op.lanes))
            area = rows.block * columns.block
            multiplied = area / MATRIX_PRODUCTS
            shared = 2 * (wy * wx * (m * high + n * wide) + rows.block + columns.block) / SHARED_BYTES
            cycles = max(multiplied, shared) + OVERLAP * min(multiplied, shared)
            cycles *= max(1, 4 * target.warp / (wy * wx * op.lanes))
            operands = high * op.a.registers + wide * op.b.registers
            for depth in DEPTHS:
                name = StagedChoice(matrix=True, rows=wy, columns=wx, high=high, wide=wide, depth=depth)
                yield BlockSplit(
                    rows, columns, wy * wx * op.lanes, high * wide * op.d.registers, operands, cycles, name,
                    depth,
                )  # fmt: skip


def _group_splits(p: Product, op: MatrixOp) -> Iterator[BlockSplit]:
    """Yield the candidates with an operation of a warpgroup, whose tiles are rows of `PANEL` values."""
    m, n, _ = op.shape
    lanes = 2 if has_vectors(p, 2) else 1
    for wy, wx in ((2, 1), (1, 1), (1, 2)):
        rows = in_order(p.rows, op.d.row, m, 1, warps=(wy, op.lanes * wx))
        columns = in_order(p.columns, op.d.column, n, 1, lanes=lanes, warps=(wx, op.lanes))
        area = rows.block * columns.block
        shared = 2 * (wy * wx * (m + n) + rows.block + columns.block) / SHARED_BYTES
        multiplied = area / GROUP_PRODUCTS
        cycles = max(multiplied, shared) + OVERLAP * min(multiplied, shared)
        for depth in DEPTHS:
            name = StagedChoice(
                matrix=True, rows=wy, columns=wx, high=m // 16, wide=n // 8, words=PANEL // 2, depth=depth
            )
            yield BlockSplit(
                rows, columns, wy * wx * op.lanes, op.d.registers, 0, cycles, name, depth, op
            )  # fmt: skip


def has_vectors(p: Product, lanes: int) -> bool:
    """Return whether results, and what an epilogue loads, can be vectors along the columns.

    Values of rows, which a mask stores once, stay as they are.
    """
    nodes = [s for s in p.kernel.ast.src if len(s.src) == 3 or p.columns in p.kernel.free[s.src[1]]]
    nodes += [n for n in inner_nodes([s.src[2] for s in p.kernel.ast.src]) if n.op is Ops.LOAD]
    return all(p.in_row(n, p.columns, lanes) for n in nodes) and not any(
        n.op is Ops.IVALUE and p.columns in p.kernel.free[n]
        for n in inner_nodes([s.src[2] for s in p.kernel.ast.src])
    )
