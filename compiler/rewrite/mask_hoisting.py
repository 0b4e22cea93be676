"""Move masks outside sums of products: masks that both factors share and that depend on no summed range.

A convolution whose result is padded loads pictures and weights under a mask of the output's index. By this
mask the weights depend on the output's index, and the sum is no contraction. Outside the sum the mask does no
harm.

Not here: ranges (`range_merging`), masks as registers (`compiler.emit.indexing`). Next: `compiler.pipeline`,
which runs this pass first.
"""

from __future__ import annotations

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import bound_ranges, ordered, ranges_in, rebuilt


def hoist_masks(ast: UOp) -> UOp:
    """Return the kernel with masks moved outside its sums of products of floats.

    sum(load(x, m and a) * load(w, m)) -> where(m, sum(load(x, m and a) * load(w)), 0)
    if m depends neither on a summed range nor on a range in the index of w. A mask that neither factor can do
    without stays.
    """
    nodes = ordered(ast)
    if not [node for node in nodes if node.op is Ops.REDUCE and _masked(node)]:
        return ast
    free = ranges_in(ast)

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _hoisted(node, free) if node.op is Ops.REDUCE and src == node.src else None

    return rebuilt(nodes, change)[ast]


def _masked(node: UOp) -> bool:
    """Return whether a REDUCE adds products of two loads with masks."""
    value = node.src[0]
    if node.arg[0] != "ADD" or value.op is not Ops.MUL or not node.dtype.is_float:
        return False
    return all(s.op is Ops.LOAD and len(s.src) > 2 for s in value.src)


def _hoisted(node: UOp, free: dict[UOp, frozenset[UOp]]) -> UOp:
    """Return a REDUCE, or the WHERE that replaces it."""
    if not _masked(node):
        return node
    value = node.src[0]
    x, y = value.src
    theirs = symbolic.parts_of(y.src[2])
    bound = bound_ranges(node, free)
    shared = [p for p in symbolic.parts_of(x.src[2]) if p in theirs and not ranges_in(p)[p] & bound]
    factors = [_without(load, shared) for load in value.src]
    gone = [p for p in shared if any(p not in _parts(load) for load in factors)]
    if not gone:
        return node
    product = uop(Ops.MUL, value.dtype, tuple(factors))
    total = uop(Ops.REDUCE, node.dtype, (product,), node.arg)
    inside = uop(Ops.IVALUE, dtypes.bool, (symbolic.both(*gone),))
    return uop(Ops.WHERE, node.dtype, (inside, total, const(0.0, node.dtype)))


def _without(load: UOp, parts: list[UOp]) -> UOp:
    """Return a LOAD without the comparisons `parts` in its mask that share no range with its index."""
    atoms = _atoms(load.src[1])
    if any(a.op is Ops.INDEXOF for a in atoms):
        return load
    kept = [p for p in _parts(load) if p not in parts or _atoms(p) & atoms]
    mask = (symbolic.both(*kept),) if kept else ()
    return uop(Ops.LOAD, load.dtype, (*load.src[:2], *mask), load.arg)


def _parts(load: UOp) -> tuple[UOp, ...]:
    """Return the comparisons in the mask of a LOAD."""
    return symbolic.parts_of(load.src[2]) if len(load.src) > 2 else ()


def _atoms(x: UOp) -> set[UOp]:
    """Return the ranges and other atoms of an index or a mask."""
    return set(symbolic.atoms_of((x,)))
