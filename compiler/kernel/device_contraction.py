"""Plan a sum of products on a target with shared memory: tiles, threads, stages, matrix operations.

The output ranges of one operand only are merged to one range of rows, those of the other to one of columns,
and the summed ranges to one, with divisions where the indices need them; so a convolution is a product, too.
A workgroup computes a block of rows x columns from tiles in shared memory (`device_tile`), a thread a part of
the block in registers. Tile sizes follow from the target's row by an estimate of time; nothing is measured.

Not here: products on a target with vectors (`contraction`), other kernels (`tiling`). Next: `plan_check`,
which verifies the plan, and `device_sum`, which writes its loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.kernel import conversions
from compiler.kernel.choice import StagedChoice
from compiler.kernel.device_products import places
from compiler.kernel.device_ring import PIECE
from compiler.kernel.device_tile import shared_bytes
from compiler.kernel.device_vectors import ACCESS_BYTES, in_row
from compiler.kernel.merge import replace_ranges
from compiler.kernel.plan import Axis, Plan, Reduction, SharedStage, Step, Swizzle, Threads
from compiler.kernel.shape import analyse, inner_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compiler.ir.uop import UOp
    from compiler.kernel.plan import Edge
    from compiler.kernel.shape import Kernel
    from compiler.targets.base import Target
    from compiler.targets.matrix import MatrixOp

LEAST_SIDE, LEAST_SUM = 16, 16
"""Rows, columns and products of one output from which on tiles in shared memory pay."""
LEAST_MATRIX = 32
"""Rows, columns and products from which on a matrix operation pays."""
BLOCK_WORDS = 16
"""Words along the sum in a tile, if no choice says otherwise."""
BANKS = 32
"""Banks of shared memory, a word of 32 bits each."""
GRID_LIMIT = 65_535
"""Workgroups along the second and the third dimension of a grid."""
WORDS_PER_CYCLE = 8
"""Words that a processor copies to shared memory in a cycle; for the estimate of time."""
OTHER_REGISTERS = 40
"""Registers of a thread for addresses, counters and masks."""
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


@dataclass(frozen=True, slots=True)
class _Product:
    """A kernel with one range of rows, one of columns and one that is summed."""

    kernel: Kernel
    node: UOp
    """The REDUCE."""
    rows: UOp
    columns: UOp
    k: UOp
    left: UOp
    """The operand of the rows."""
    right: UOp
    """The operand of the columns."""
    others: tuple[UOp, ...]
    known: dict[tuple[UOp, UOp, int], bool] = field(default_factory=dict)
    """Results of `in_row`: several candidates use the same."""

    def in_row(self, node: UOp, r: UOp, lanes: int) -> bool:
        """Return whether values along a range are one vector of a LOAD or STORE; cached."""
        found = self.known.get((node, r, lanes))
        if found is None:
            found = self.known[node, r, lanes] = in_row(node, r, lanes, self.kernel.free)
        return found


@dataclass(frozen=True, slots=True)
class _Split:
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


def choose(ast: UOp, target: Target) -> tuple[UOp, Plan] | None:
    """Return the kernel with merged ranges and its plan; None where tiles in shared memory do not pay."""
    found = _product(ast, target)
    if found is None:
        return None
    merged, p = found
    plan, _ = _fastest(p, target)
    return None if plan is None else (merged, plan)


def estimated(ast: UOp, target: Target) -> StagedChoice | None:
    """Return the choice of the plan of `choose`; None where that is None."""
    found = _product(ast, target)
    return None if found is None else _fastest(found[1], target)[1]


def chosen(ast: UOp, target: Target, choice: StagedChoice) -> tuple[UOp, Plan] | None:
    """Return the kernel with merged ranges and the plan of a choice; None where it does not fit."""
    found = _product(ast, target)
    if found is None:
        return None
    merged, p = found
    op, left, right = _operands(p, target)
    if choice.matrix and op is None:
        return None
    if not choice.matrix:
        op, left, right = None, p.left, p.right
    for split in _all_splits(p, op, target):
        if replace(split.name, words=choice.words) == choice:
            made = _planned(p, split, (left, right), op, target, choice.words)
            return None if made is None else (merged, made[1])
    return None


def choices(ast: UOp, target: Target) -> Iterator[StagedChoice]:
    """Yield the choices with the usual words, those that do not fit included."""
    found = _product(ast, target)
    if found is None:
        return
    op, _, _ = _operands(found[1], target)
    for operation in (op, None) if op is not None else (None,):
        for split in _all_splits(found[1], operation, target):
            yield split.name


def _product(ast: UOp, target: Target) -> tuple[UOp, _Product] | None:
    """Return the kernel with merged ranges and its product; None where tiles in shared memory do not pay."""
    if not target.shared_bytes:
        return None
    product = _find(analyse(ast))
    if product is None:
        return None
    merged = _merged(ast, product)
    p = _single(analyse(merged)) if merged is not None else None
    if merged is None or p is None or min(p.rows.arg[1], p.columns.arg[1]) < LEAST_SIDE:
        return None
    return None if p.k.arg[1] < LEAST_SUM else (merged, p)


def _find(kernel: Kernel) -> tuple[UOp, list[UOp], list[UOp], frozenset[UOp]] | None:
    """Return the REDUCE of a sum of products, with the ranges of rows, of columns, and those summed."""
    if len(kernel.families) != 1 or len(kernel.families[0].nodes) != 1 or kernel.in_place:
        return None
    (family,) = kernel.families
    (node,) = family.nodes
    value = node.src[0]
    if node.arg[0] != "ADD" or value.op is not Ops.MUL or value.dtype is not node.dtype:
        return None
    if conversions.register_type(node.dtype) is not dtypes.float32:
        return None
    x, y = value.src
    if any(n.op is Ops.REDUCE for n in inner_nodes((x, y))):
        return None
    outputs = frozenset(kernel.outputs)
    rows, columns = (_by_number((kernel.free[a] & outputs) - kernel.free[b]) for a, b in ((x, y), (y, x)))
    if not rows or not columns:
        return None
    if _stored_along(kernel, rows[-1]) and not _stored_along(kernel, columns[-1]):
        rows, columns = columns, rows
    return node, rows, columns, family.ranges


def _by_number(ranges: Iterable[UOp]) -> list[UOp]:
    """Return ranges in order of number: the same in every process."""
    return sorted(ranges, key=lambda r: int(r.arg[0]))


def _stored_along(kernel: Kernel, r: UOp) -> bool:
    """Return whether neighbours along a range are neighbours in the results."""
    return all(symbolic.terms_of(s.index)[0].get(r, 0) == 1 for s in kernel.stores)


def _merged(ast: UOp, product: tuple[UOp, list[UOp], list[UOp], frozenset[UOp]]) -> UOp | None:
    """Return the kernel with one range each for the rows, the columns and the sum."""
    _, rows, columns, summed = product
    env: dict[UOp, UOp] = {}
    for ranges in (rows, columns, _by_number(summed)):
        if any(not isinstance(r.arg[1], int) for r in ranges):
            return None
        whole = symbolic.loop(ranges[-1].arg[0], prod([r.arg[1] for r in ranges]))
        inner = 1
        for r in reversed(ranges):
            if len(ranges) > 1:
                env[r] = symbolic.mod(symbolic.div(whole, inner), r.arg[1])
            inner *= r.arg[1]
    return replace_ranges(ast, env) if env else ast


def _single(kernel: Kernel) -> _Product | None:
    """Return the product of a kernel whose rows, columns and sum are one range each."""
    found = _find(kernel)
    if found is None or any(len(ranges) != 1 for ranges in found[1:]):
        return None
    node, (rows,), (columns,), (k,) = found
    left, right = node.src[0].src
    if rows not in kernel.free[left]:
        left, right = right, left
    others = tuple([r for r in kernel.outputs if r is not rows and r is not columns])
    return _Product(kernel, node, rows, columns, k, left, right, others)


def _half(p: _Product) -> tuple[UOp, UOp]:
    """Return the operands; those converted to float32 from one type of 16 bits without the conversion."""
    inner = [x.src[0] if x.op is Ops.CAST else x for x in (p.left, p.right)]
    same = inner[0].dtype is inner[1].dtype and inner[0].dtype in conversions.HALF
    return (inner[0], inner[1]) if same else (p.left, p.right)


def _operands(p: _Product, target: Target) -> tuple[MatrixOp | None, UOp, UOp]:
    """Return the matrix operation of a product, None for multiply-adds, and the operands that it takes."""
    left, right = _half(p)
    op = next((o for o in target.matrix if o.dtype is left.dtype is right.dtype), None)
    if op is None or min(p.rows.arg[1], p.columns.arg[1], p.k.arg[1]) < LEAST_MATRIX:
        return None, p.left, p.right
    return op, left, right


def _all_splits(p: _Product, op: MatrixOp | None, target: Target) -> Iterator[_Split]:
    """Yield the candidates with a matrix operation, or of multiply-adds."""
    if op is not None and op.rows and target.async_bytes == ACCESS_BYTES and _direct(p):
        for group in target.matrix:
            if group.shared and group.dtype is op.dtype:
                yield from _group_splits(p, group)
        yield from _pipelined_splits(p, op, target)
    yield from _splits(p) if op is None else _matrix_splits(p, op, target)


def _fastest(p: _Product, target: Target) -> tuple[Plan | None, StagedChoice | None]:
    """Return the fastest plan that fits the target, and its choice."""
    op, left, right = _operands(p, target)
    best: tuple[float, Plan, StagedChoice] | None = None
    for split in _all_splits(p, op, target):
        if best is not None and _cycles(p, split, target) >= best[0]:
            continue
        made = _planned(p, split, (left, right), op, target, split.name.words)
        if made is not None:
            best = *made, split.name
    return (None, None) if best is None else best[1:]


def _cycles(p: _Product, split: _Split, target: Target) -> float:
    """Return the estimated cycles of a candidate."""
    groups = split.rows.count * split.columns.count * prod([o.arg[1] for o in p.others])
    return float(-(-groups // target.cores) * split.work * p.k.arg[1])


def _planned(  # two callers, with all of them  # noqa: PLR0917  # two callers
    p: _Product, split: _Split, operands: tuple[UOp, UOp], op: MatrixOp | None, target: Target, words: int
) -> tuple[float, Plan] | None:
    """Return the estimated cycles and the plan of a candidate; None where it does not fit the target."""
    op = split.group or op
    if split.group is not None and words != split.name.words:
        return None
    pack = 2 if op is not None else 1
    axes = (split.rows, split.columns)
    stages = [
        _ring(p, value, axis, split, words)
        if split.depth > 1
        else _stage(p, value, axis, split.threads, pack, target, words)
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
    if shared_bytes(split.rows, split.columns, (rows, columns), staged) > most:
        return None
    time = _cycles(p, split, target)
    return time, _made(p, split, (rows, columns), staged, op, time / target.gigahertz, target)


def _made(  # noqa: PLR0917  # one caller
    p: _Product, split: _Split, stages: tuple[SharedStage, SharedStage], staged: int,
    op: MatrixOp | None, nanoseconds: float, target: Target,
) -> Plan:  # fmt: skip
    """Return the plan of a candidate."""
    batch = prod([o.arg[1] for o in p.others])
    flat = split.rows.count > GRID_LIMIT or batch > GRID_LIMIT
    axes = {p.rows: split.rows, p.columns: split.columns, **{o: Axis(o) for o in p.others}}
    groups = [Step("group", o, dim=0 if flat else 2) for o in p.others]
    groups += [Step("group", p.rows, dim=0 if flat else 1), Step("group", p.columns)]
    return Plan(
        tuple([axes[r] for r in p.kernel.outputs]),
        (*[g for g in groups if axes[g.range].count > 1], *stages),
        {frozenset((p.k,)): Reduction((p.k,), staged=staged)},
        threads=split.threads,
        warp=target.warp,
        nanoseconds=nanoseconds,
        matrix=op,
    )


def _axis(  # noqa: PLR0917  # in the order of the fields of Axis
    r: UOp, upcast: int, lanes: int, threads: tuple[Threads, ...], run: int, spread: int
) -> Axis:
    block = upcast * lanes * prod([t.size for t in threads])
    edge: Edge = "exact" if r.arg[1] % block == 0 else "masked"
    return Axis(r, upcast, lanes, edge, threads, run, spread)


def _splits(p: _Product) -> Iterator[_Split]:
    """Yield the candidates of multiply-adds: vectors of 4 columns where the results allow it."""
    for ty, tx, high, wide in THREAD_TILES:
        lanes = 4 if _vectors(p, 4) else 1
        run = min(4, high)
        rows = _axis(p.rows, high, 1, (Threads(ty, tx, run),), run, ty * run)
        columns = _axis(p.columns, wide // lanes, lanes, (Threads(tx, 1, 4),), 4 // lanes, 4 * tx)
        cycles = (1 + (high + wide) / (high * wide)) * rows.block * columns.block / 128
        cycles += (rows.block + columns.block) / WORDS_PER_CYCLE
        name = StagedChoice(rows=ty, columns=tx, high=high, wide=wide)
        yield _Split(rows, columns, ty * tx, high * wide, high + wide, cycles, name)


def _matrix_splits(p: _Product, op: MatrixOp, target: Target) -> Iterator[_Split]:
    """Yield the candidates with a matrix operation: adjacent operations of a warp, and warps."""
    m, n, _ = op.shape
    for high, wide in ((32 // m, 64 // n), (32 // m, 32 // n)):
        row_strides, mine, warp_rows = places(op.d.row, high)
        column_strides, width, warp_columns = places(op.d.column, wide)
        if width > 8 or mine > 16:
            continue
        lanes = width if _vectors(p, width) else 1
        for wy, wx in WARPS:
            rows = _axis(
                p.rows, mine, 1,
                (*[Threads(d.size, d.step, row_strides[d]) for d in op.d.row if d.of == "lane"],
                 *([Threads(wy, op.lanes * wx, warp_rows)] if wy > 1 else [])),
                0, 0,
            )  # fmt: skip
            columns = _axis(
                p.columns, width // lanes, lanes,
                (*[Threads(d.size, d.step, column_strides[d]) for d in op.d.column if d.of == "lane"],
                 *([Threads(wx, op.lanes, warp_columns)] if wx > 1 else [])),
                0, 0,
            )  # fmt: skip
            sums = mine * width
            operands = high * op.a.registers + wide * op.b.registers
            cycles = (1 + 16 * (1 / warp_rows + 1 / warp_columns)) * rows.block * columns.block / 1024
            cycles *= max(1, 4 * target.warp // (wy * wx * op.lanes))
            cycles += (rows.block + columns.block) / (2 * WORDS_PER_CYCLE)
            name = StagedChoice(matrix=True, rows=wy, columns=wx, high=high, wide=wide)
            yield _Split(rows, columns, wy * wx * op.lanes, sums, operands, cycles, name)


def _direct(p: _Product) -> bool:
    """Return whether both operands are elements of 16 bits as they are in memory."""
    return all(x.op is Ops.LOAD and x.dtype in conversions.HALF for x in _half(p))


def _pipelined_splits(p: _Product, op: MatrixOp, target: Target) -> Iterator[_Split]:
    """Yield the candidates with a matrix operation and asynchronous copies.

    The estimate: a processor multiplies while fragments are loaded and tiles are written.
    """
    m, n, _ = op.shape
    (row_lanes, row_register), (column_lanes, column_register) = (
        sorted(digits, key=lambda d: d.of != "lane") for digits in (op.d.row, op.d.column)
    )
    lanes = column_register.size if _vectors(p, column_register.size) else 1
    for high, wide in WARP_TILES:
        for wy, wx in WARPS:
            rows = _axis(
                p.rows, row_register.size * high, 1,
                (Threads(row_lanes.size, row_lanes.step, row_lanes.weight),
                 *([Threads(wy, op.lanes * wx, m * high)] if wy > 1 else [])),
                1, row_register.weight,
            )  # fmt: skip
            each = column_register.size // lanes
            columns = _axis(
                p.columns, each * wide, lanes,
                (Threads(column_lanes.size, column_lanes.step, column_lanes.weight),
                 *([Threads(wx, op.lanes, n * wide)] if wx > 1 else [])),
                each, n,
            )  # fmt: skip
            area = rows.block * columns.block
            multiplied = area / MATRIX_PRODUCTS
            shared = 2 * (wy * wx * (m * high + n * wide) + rows.block + columns.block) / SHARED_BYTES
            cycles = max(multiplied, shared) + OVERLAP * min(multiplied, shared)
            cycles *= max(1, 4 * target.warp / (wy * wx * op.lanes))
            operands = high * op.a.registers + wide * op.b.registers
            for depth in DEPTHS:
                name = StagedChoice(matrix=True, rows=wy, columns=wx, high=high, wide=wide, depth=depth)
                yield _Split(
                    rows, columns, wy * wx * op.lanes, high * wide * op.d.registers, operands, cycles, name,
                    depth,
                )  # fmt: skip


def _group_splits(p: _Product, op: MatrixOp) -> Iterator[_Split]:
    """Yield the candidates with an operation of a warpgroup, whose tiles are rows of `PANEL` values."""
    m, n, _ = op.shape
    lanes = 2 if _vectors(p, 2) else 1
    for wy, wx in ((2, 1), (1, 1), (1, 2)):
        rows = _axis(
            p.rows, 2, 1,
            (*[Threads(d.size, d.step, d.weight) for d in op.d.row if d.of == "lane"],
             *([Threads(wy, op.lanes * wx, m)] if wy > 1 else [])),
            1, 8,
        )  # fmt: skip
        columns = _axis(
            p.columns, n // 4 // lanes, lanes,
            (*[Threads(d.size, d.step, d.weight) for d in op.d.column if d.of == "lane"],
             *([Threads(wx, op.lanes, n)] if wx > 1 else [])),
            2 // lanes, 8,
        )  # fmt: skip
        area = rows.block * columns.block
        shared = 2 * (wy * wx * (m + n) + rows.block + columns.block) / SHARED_BYTES
        multiplied = area / GROUP_PRODUCTS
        cycles = max(multiplied, shared) + OVERLAP * min(multiplied, shared)
        for depth in DEPTHS:
            name = StagedChoice(
                matrix=True, rows=wy, columns=wx, high=m // 16, wide=n // 8, words=PANEL // 2, depth=depth
            )
            yield _Split(
                rows, columns, wy * wx * op.lanes, op.d.registers, 0, cycles, name, depth, op
            )  # fmt: skip


def _ring(p: _Product, value: UOp, axis: Axis, split: _Split, words: int) -> SharedStage | None:
    """Return how an operand's tiles are copied asynchronously; None where its rows are not whole pieces."""
    summed = 2 * words
    for along, r, inner, outer in (
        ("sum", p.k, summed, axis.block), ("axis", axis.range, axis.block, summed),
    ):  # fmt: skip
        if split.group is not None and inner % PANEL:
            continue
        pieces = inner // PIECE
        if not p.in_row(value, r, PIECE) or split.threads % pieces or outer % (split.threads // pieces):
            continue
        count = min(pieces, PIECE)
        run = PIECE // count
        swizzle = Swizzle(run, count, PIECE) if count > 1 else None
        return SharedStage(
            value, axis.range, "sum" if along == "sum" else "axis", PIECE, 1, 0, swizzle, split.depth,
            "asynchronous copies", PANEL if split.group is not None else 0,
        )  # fmt: skip
    return None


def _vectors(p: _Product, lanes: int) -> bool:
    """Return whether results, and what an epilogue loads, can be vectors along the columns."""
    nodes = list(p.kernel.ast.src)
    nodes += [n for n in inner_nodes([s.src[2] for s in p.kernel.ast.src]) if n.op is Ops.LOAD]
    return all(p.in_row(n, p.columns, lanes) for n in nodes) and not any(
        n.op is Ops.IVALUE and p.columns in p.kernel.free[n]
        for n in inner_nodes([s.src[2] for s in p.kernel.ast.src])
    )


def _stage(  # noqa: PLR0917  # one caller
    p: _Product, value: UOp, axis: Axis, threads: int, pack: int, target: Target, words: int
) -> SharedStage | None:
    """Return how an operand's tile is copied; None if the threads do not divide the tile.

    A thread loads along the direction in which the operand lies in memory, as much as one access can.
    """
    loads = [n for n in inner_nodes((value,)) if n.op is Ops.LOAD]
    free = p.kernel.free
    widest = ACCESS_BYTES // max([conversions.storage_type(n.dtype).itemsize for n in loads], default=4)
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
                return SharedStage(
                    value, axis.range, "sum" if along == "sum" else "axis", lanes, pack, pad, swizzle
                )
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
