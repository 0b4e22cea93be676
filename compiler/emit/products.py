"""The products of two operands: operations of a row of the target's table, or multiply-adds.

An operation takes registers of A and of B and adds their products to registers of D. On a GPU `Products`
writes the operations of a thread (multiply-adds) or a warp (`mma.sync`, `wgmma`, WMMA, MFMA) on one block of
the sum; `fragments` loads their registers. In a sum's loop on the host each accumulator takes one product in
a round (`multiply_add`). If the host loads both factors in place, the products of a round are one line
(`bundled`): single lines for them would be half of a kernel, and have the same text.

Not here: loops over the sum (`staged_sum`, `reductions`), rows of the table (`compiler.targets`), which
kernels have them (`plan.shared_product`, `rewrite.packed_dot`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from compiler.dtype import register_type
from compiler.emit import fragments
from compiler.emit.linear import BundleProducts, LoadedFactor
from compiler.emit.shared_tiles import TileRing, block_start
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.targets.shared.matrix import SharedProducts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from compiler.emit.accesses import FactorSource
    from compiler.emit.builder import Builder
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.emit.panels import Panels
    from compiler.emit.shared_tiles import SharedTile
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Reduction
    from compiler.targets.shared.matrix import MatrixOp


class Products:
    """The operations on one block of a sum whose operands, rows (A) and columns (B), are in shared memory."""

    def __init__(self, e: Emitter, rows: SharedTile | TileRing, columns: SharedTile | TileRing) -> None:
        self.e = e
        self.b = e.b
        self.op = e.plan.matrix
        self.tiles = rows, columns
        self.rows, self.columns = fragments.of_tiles(e, rows, columns)

    def zeros(self) -> list[Line]:
        """Return the initial accumulators of each operation."""
        kind, registers = self.rows.total, self.columns.axis.lanes if self.op is None else self.op.d.registers
        zero = self.b.const(kind, 0.0, registers)
        return [zero] * (self.rows.count * self.columns.count)

    def add(self, sums: list[Line], token: Line) -> list[Line]:
        """Add the products of one block, whose tiles are filled at `token`; several rounds are a loop."""
        b, step = self.b, self.rows.step
        rounds = self.rows.words // step
        if rounds == 1:
            return self._round(symbolic.ZERO, sums, token)
        loop = b.enter_loop(b.index(0), b.index(rounds), 1, b.cursor)
        start = block_start(self.e, loop.index, rounds, step)
        carried = [b.carry(loop, s) for s in sums]
        return b.leave_loop(loop, self._round(start, carried, token))

    def _round(self, start: UOp, sums: list[Line], token: Line) -> list[Line]:
        """Add the products of the unrolled words from `start` on."""
        op = self.op
        for at in range(0, self.rows.step, 1 if op is None else op.depth):
            left = self.rows.read(start, at, token)
            right = self.columns.read(start, at, token)
            sums = multiplied(self.b, op, left, right, sums)
        return sums

    def issue(self, sums: list[Line]) -> list[Line]:
        """Start the operations of a block that take tiles from shared memory, one for each step of k."""
        assert self.op is not None
        (total,) = sums
        found = []
        for ring in self.tiles:
            assert isinstance(ring, TileRing)
            found.append(ring.operand(fragments.warp_place(self.e, ring.axis, self.op)))
        (left, a), (right, b) = found
        what = SharedProducts(self.op, a, b, self.rows.words // self.op.depth)
        return [self.b.line("issue", total.dtype, total.lanes, (left, right, total), what)]

    def results(self, sums: list[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
        """Yield the vector of columns of each row, with their units."""
        lanes, wide = self.columns.axis.lanes, self.columns.count
        for row in range(self.rows.axis.upcast):
            high, upper = self.rows.place(row)
            for unit in range(self.columns.axis.upcast):
                found = [self.columns.place(at) for at in range(unit * lanes, unit * lanes + lanes)]
                sources = [(sums[high * wide + n], upper + left) for n, left in found]
                yield (row, unit), vector_of(self.b, sources)


def multiplied(
    b: Builder, op: MatrixOp | None, left: Sequence[list[Line]], right: Sequence[list[Line]],
    sums: list[Line]
) -> list[Line]:  # fmt: skip
    """Return the accumulators of each operation, or (`op` None) of multiply-adds, with its products added."""
    pairs = zip([(x, y) for x in left for y in right], sums, strict=True)
    if op is None:
        return [b.fma(x[0], y[0], total) for (x, y), total in pairs]
    return [b.line("matrix", total.dtype, total.lanes, (*x, *y, total), op) for (x, y), total in pairs]


def vector_of(b: Builder, sources: list[tuple[Line, int]]) -> Line:
    """Return the vector of one lane of each source; their number is a power of two."""
    source, first = sources[0]
    if sources == [(source, first + n) for n in range(len(sources))]:
        if source.lanes == len(sources):
            return source
        if len(sources) == 1:
            return b.line("extract", source.dtype, 1, (source,), first)
        return b.shuffle(source, source, range(first, first + len(sources)))
    if len(sources) == 2:
        (x, low), (y, high) = sources
        return b.shuffle(x, y, (low, x.lanes + high))
    half = len(sources) // 2
    return b.shuffle(vector_of(b, sources[:half]), vector_of(b, sources[half:]), range(len(sources)))


def multiply_add(b: Builder, op: MatrixOp | None, x: Line, y: Line, total: Line) -> Line:
    """Return the total with one product added in every lane, by an operation on words or (None) multiply-add.

    Words of one lane are those of all. Fewer lanes than the narrowest operation has are filled with zeros.
    """
    if op is None:
        return b.fma(x, y, total)
    lanes = total.lanes
    row = op
    while row.narrower is not None and row.narrower.d.registers >= lanes:
        row = row.narrower
    wide = row.d.registers
    src = tuple([_filled(b, b.splat(s, lanes), wide) for s in (x, y, total)])
    made = b.line("matrix", total.dtype, wide, src, row)
    if wide == lanes:
        return made
    if lanes == 1:
        return b.line("extract", total.dtype, 1, (made,), 0)
    return b.shuffle(made, made, range(lanes))


def _filled(b: Builder, value: Line, lanes: int) -> Line:
    """Return a value with zeros in more lanes."""
    if value.lanes == lanes:
        return value
    zero = 0.0 if value.dtype.is_float else 0
    if value.lanes == 1:
        value = b.splat(value, 2)
        first = [0] + [2] * (lanes - 1)
    else:
        first = [*range(value.lanes)] + [value.lanes] * (lanes - value.lanes)
    return b.shuffle(value, b.const(value.dtype, zero, value.lanes), first)


def bundled(  # noqa: PLR0917  # one caller
    e: Emitter, panels: Panels, node: UOp, plan: Reduction, units: Sequence[UOp],
    points: Sequence[tuple[int, ...]]
) -> Callable[[Line], Line] | None:  # fmt: skip
    """Return what adds the products of a round at all unrolled positions to a bundle of accumulators.

    None where single lines are needed: for one position, in a kernel of threads, for a sum that skips
    products or is unrolled, spread over lanes or added up without blocks, and for other sums than of float
    products of one type. Both factors must be loaded without masks, as elements or vectors, where the
    innermost loop moves them. Each factor is loaded before its first product, and one element that is spread
    over lanes is in a register at a time.
    """
    value, kind = node.src[0], register_type(node.dtype)
    plain = plan.inside is None and plan.block and plan.unroll == plan.lanes == plan.threads == 1
    if not plain or value.op is not Ops.MUL or node.arg[0] != "ADD" or not node.dtype.is_float:
        return None
    if e.plan.threads > 1 or value.dtype is not node.dtype or len(points) == 1:
        return None
    counters = symbolic.atoms_of((e.index.starts[plan.ranges[-1]],))
    factors, loaded = [], []
    for operand in value.src:
        source = panels.factor(operand)
        if source is None or register_type(source.kind) is not kind:
            return None
        p = e.index.parts(e.index.split(source.place))
        moves = any(atom in counters for atom, _ in p.outer)
        if p.computed or p.stride not in (0, 1) or not moves or any(u not in units for u, _ in p.units):
            return None
        at = dict(p.units)
        steps = [at.get(u, 0) for u in units]
        offsets = [p.constant + sum([c * n for c, n in zip(steps, point, strict=True)]) for point in points]
        factors.append(source)
        loaded.append(LoadedFactor(source.kind, p.lanes if p.stride else 1, tuple(offsets)))
    return partial(_add_bundled, e, units, factors, BundleProducts(*loaded))


def _add_bundled(
    e: Emitter, units: Sequence[UOp], factors: Sequence[FactorSource], what: BundleProducts, totals: Line
) -> Line:
    """Return the bundle of accumulators with the products of the current round added."""
    b, ix = e.b, e.index
    ix.env.update(dict.fromkeys(units, 0))
    firsts = [b.offset(f.pointer, ix.place(f.place).base, f.kind) for f in factors]
    tokens = [token for f in factors for token in f.token]
    return b.line("products", totals.dtype, totals.lanes, (*firsts, totals, *tokens), what)
