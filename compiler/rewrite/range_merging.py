"""Range merging: two ranges that every index uses as one become one, for long loops and full vectors.

If every index has `a*size_b*c + b*c` for some c, and a and b occur nowhere else, this is `m*c` with a range m
of size size_a * size_b. `split_ranges` does the reverse, if a division keeps a product of matrices from being
planned as one, or a sum from having vectors.

Not here: the blocks of ranges (`compiler.plan.tiling`). Next: `compiler.pipeline`, which runs this before a
plan is chosen.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import INDEX, MASK, Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import bound_ranges, by_number, ordered, ranges_in, rebuilt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def merge_ranges(ast: UOp) -> UOp:
    """Return the same kernel with all ranges merged that can be merged without a division in an index."""
    while True:
        pair = _mergeable(ast)
        if pair is None:
            return ast
        a, b = pair
        merged = symbolic.loop(b.arg[0], a.arg[1] * b.arg[1])
        ast = replace_ranges(ast, {a: symbolic.ZERO, b: merged})


def merge_masked_ranges(ast: UOp) -> UOp | None:
    """Merge two output ranges that only masks use separately; None if there are no such ranges.

    A convolution with same padding loads everywhere at `y*width + x` plus a constant. One range m over the
    whole picture fills vectors, which a row of 7 or 14 elements does not. Only the masks need `m // width`
    and `m % width`, and they move out of the inner loops.
    """
    free = ranges_in(ast)
    outputs = by_number({r for s in ast.src for r in free[s]})
    masks = {r for n in ordered(ast) if n.op is Ops.ILT for r in free[n]}
    for a, b in pairwise(outputs):
        if a in masks and b in masks:
            whole = symbolic.loop(b.arg[0], a.arg[1] * b.arg[1])
            flat = replace_ranges(ast, {a: symbolic.div(whole, b.arg[1]), b: symbolic.mod(whole, b.arg[1])})
            indices = [n.src[1] for n in ordered(flat) if n.op in (Ops.LOAD, Ops.STORE)]
            atoms = [atom for index in indices for atom in symbolic.terms_of(index)[0]]
            if all(atom.op is Ops.RANGE or atom.op is Ops.VAR for atom in atoms):
                return flat
    return None


def split_ranges(ast: UOp) -> UOp | None:
    """Split ranges of which an index has a quotient or remainder, if then no index has one; else None.

    Attention with its heads side by side loads weights at `(column // 32) * size`. With one range for the
    head and one for the column in it, no index needs a division, and the weights do not depend on columns. A
    sum that uses each element of a picture twice in a row gets vectors along the quotient. Output ranges are
    split only in kernels with a sum of products: elsewhere adjacent results would be stored apart.
    """
    nodes = ordered(ast)
    kept: set[UOp] = set()
    if not [n for n in nodes if n.op is Ops.REDUCE and n.src[0].op is Ops.MUL]:
        free = ranges_in(ast)
        kept = {r for store in ast.src for r in free[store]}
    parts: dict[UOp, set[int]] = {}
    for n in nodes:
        if n.op in (Ops.IDIV, Ops.IMOD) and n.src[0].op is Ops.RANGE:
            parts.setdefault(n.src[0], set()).add(n.arg)
    cuts = {
        r: min(sizes)
        for r, sizes in parts.items()
        if r not in kept and len(sizes) == 1 and r.arg[1] % min(sizes) == 0
    }
    if not cuts:
        return None
    env: dict[UOp, UOp] = {}
    for n in nodes:
        if n.op is Ops.RANGE:
            number, size = 2 * n.arg[0], n.arg[1]
            inner = cuts.get(n, 1)
            outer = symbolic.loop(number, size // inner)
            env[n] = symbolic.dot((outer, symbolic.loop(number + 1, inner)), (inner, 1))
    made = replace_ranges(ast, env)
    if any(n.op in (Ops.IDIV, Ops.IMOD) for n in ordered(made)) or _sums_lost(made):
        return None
    return made


def _sums_lost(ast: UOp) -> bool:
    """Return whether a REDUCE names a range that its value does not use, so that it would not be summed."""
    free = ranges_in(ast)
    return any(
        not {r.arg[0] for r in free[n.src[0]]}.issuperset(n.arg[1])
        for n in ordered(ast)
        if n.op is Ops.REDUCE
    )


def _mergeable(ast: UOp) -> tuple[UOp, UOp] | None:
    nodes = ordered(ast)
    ranges = [n for n in nodes if n.op is Ops.RANGE]
    if len(ranges) < 2:
        return None
    reducers = _reducers(ast, nodes)
    sums = [
        n for n in nodes if n.op in (Ops.SUM, Ops.IVALUE, Ops.IDIV, Ops.IMOD, Ops.ILT, Ops.LOAD, Ops.STORE)
    ]
    uses = [_uses(n) for n in sums]
    for a in ranges:
        for b in ranges:
            as_one = a is not b and reducers.get(a) == reducers.get(b)
            if as_one and all(u.get(a, 0) == u.get(b, 0) * b.arg[1] for u in uses):
                return a, b
    return None


def _reducers(ast: UOp, nodes: Iterable[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return the REDUCEs that bind each RANGE; an output range has none."""
    free = ranges_in(ast)
    out: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        if node.op is Ops.REDUCE:
            for r in bound_ranges(node, free):
                out[r] = out.get(r, frozenset()) | {node}
    return out


def _uses(node: UOp) -> dict[UOp, int]:
    """Return the ranges that are sources of a node, with their coefficients: 1 outside of a SUM."""
    if node.op is Ops.SUM:
        return {a: c for a, c in zip(node.src, node.arg[0], strict=True) if a.op is Ops.RANGE}
    return {s: 1 for s in node.src if s.op is Ops.RANGE}


def replace_ranges(ast: UOp, env: Mapping[UOp, UOp]) -> UOp:
    """Return a kernel with ranges replaced by indices, with the canonical constructors.

    A REDUCE over a replaced range runs over the ranges in its replacement afterwards.
    """
    known = dict(env)
    memo: dict[UOp, UOp] = {}
    done: dict[UOp, UOp] = {}
    gone = {
        r.arg[0]: [a.arg[0] for a in symbolic.atoms_of((x,)) if a.op is Ops.RANGE] for r, x in env.items()
    }
    for node in ordered(ast):
        if node.op is Ops.INDEXOF:
            known[node] = done[node] = uop(Ops.INDEXOF, node.dtype, (done[node.src[0]],), node.arg)
        elif node.op in INDEX or node.op in MASK:
            done[node] = symbolic.substitute(node, known, memo)
        else:
            arg = node.arg
            if node.op is Ops.REDUCE:
                numbers: dict[int, None] = {}
                for n in arg[1]:
                    numbers.update(dict.fromkeys(gone.get(n, [n])))
                arg = (arg[0], tuple(numbers))
            done[node] = uop(node.op, node.dtype, tuple([done[s] for s in node.src]), arg)
    return done[ast]


def replace_value(ast: UOp, old: UOp, new: UOp) -> UOp:
    """Return a kernel with the value `new` in place of the value `old`."""
    return rebuilt(ordered(ast), lambda node, _src: new if node is old else None)[ast]
