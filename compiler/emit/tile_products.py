"""The products of one round of a register tile as one line, where both factors are loaded in place.

A round adds the product of an element and a vector to each accumulator of the tile. Single lines for that are
half of a kernel: loads with their addresses, spread elements, multiply-adds, carried values, results. As one
line they have the same text: each factor is loaded before its first product, and one spread element at a time
is in a register.

Not here: loops, and rounds of computed factors (`reductions`, the caller), the text
(`compiler.text.llvm_bundles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import register_type
from compiler.emit.linear import BundleProducts, LoadedFactor
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.emit.panels import Panels
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Reduction


class FactorSource(NamedTuple):
    """Where a factor is in memory."""

    pointer: Line
    place: UOp
    """The index of the element, over ranges of the AST."""
    kind: DType
    token: tuple[Line, ...]
    """The source that keeps its loads after the stores to that memory; none for other memory."""


class TileProducts:
    """The products of all unrolled positions of one sum."""

    def __init__(
        self,
        e: Emitter,
        units: Sequence[UOp],
        factors: tuple[FactorSource, FactorSource],
        what: BundleProducts,
    ) -> None:
        self.e = e
        self.units = units
        self.factors = factors
        self.what = what

    def add(self, totals: Line) -> Line:
        """Return the bundle of accumulators with the products of the current round added."""
        b, ix = self.e.b, self.e.index
        ix.env.update(dict.fromkeys(self.units, 0))
        firsts = [b.offset(f.pointer, ix.place(f.place).base, f.kind) for f in self.factors]
        tokens = [token for f in self.factors for token in f.token]
        return b.line("products", totals.dtype, totals.lanes, (*firsts, totals, *tokens), self.what)


def find(  # noqa: PLR0917  # one caller
    e: Emitter,
    panels: Panels,
    node: UOp,
    plan: Reduction,
    units: Sequence[UOp],
    points: Sequence[tuple[int, ...]],
) -> TileProducts | None:
    """Return the products of a sum at all unrolled positions; None where single lines are needed.

    Both factors must be loaded without masks, as elements or vectors, where the innermost loop moves them.
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
    left, right = factors
    return TileProducts(e, units, (left, right), BundleProducts(*loaded))
