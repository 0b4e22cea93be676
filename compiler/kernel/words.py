"""The form of a sum of products for matrix operations on words: pairs of 16-bit values along the sum.

`sum over k of cast(a[k]) * cast(b[k])` becomes `sum over h of DOT(word of a, word of b)`: h counts pairs, and
the word of a is a[2h] in its low half and a[2h + 1] in its high half. Where pairs are adjacent in memory, a
word is one load. All else stays a kernel of 32-bit values, so panels, register tiles and pieces are those of
any product (`contraction`). Not for an odd number of products, nor where a mask of a load ends within a pair.

Not here: which operations a target has (`compiler.targets`), their lines (`matrix_words`). Next: `pipeline`,
the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import const, uop
from compiler.ir.walk import bound_ranges, ordered, ranges_in
from compiler.kernel import merge

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.targets.base import Target
    from compiler.targets.matrix import MatrixOp

PAIR = 2
"""Values of a word."""
_WHOLE = (dtypes.int32, dtypes.uint32)
_SHORT = (dtypes.int8, dtypes.uint8, dtypes.int16)
"""Integers that 16 bits with a sign hold."""


def in_words(ast: UOp, target: Target) -> UOp | None:
    """Return the kernel with its one sum of products over words; None where it or the target has none."""
    if target.threads > 1 or not target.matrix or ast.src[0].op is not Ops.STORE:
        return None
    nodes = ordered(ast)
    sums = [n for n in nodes if n.op is Ops.REDUCE and n.arg[1]]
    if len(sums) != 1 or sums[0].arg[0] != Ops.ADD or sums[0].src[0].op is not Ops.MUL:
        return None
    (node,), product = sums, sums[0].src[0]
    op = next((o for o in target.matrix if all(_takes(o, x, node.dtype) for x in product.src)), None)
    if op is None or any(n.op in (Ops.LT, Ops.INDEXOF) for n in nodes):
        return None
    sources = [x.src[0] for x in product.src]
    r = _paired(node, sources)
    if r is None:
        return None
    half = symbolic.loop(r.arg[0], r.arg[1] // PAIR)
    words = tuple([_word(x, r, half) for x in sources])
    return _replaced(ast, product, uop(Ops.DOT, node.dtype, words, op))


def operation(ast: UOp) -> MatrixOp:
    """Return the matrix operation of a kernel of `in_words`."""
    found: MatrixOp = next(n for n in ordered(ast) if n.op is Ops.DOT).arg
    return found


def _takes(op: MatrixOp, x: UOp, total: DType) -> bool:
    """Return whether an operation multiplies such a factor, and adds up in this dtype."""
    if x.op is not Ops.CAST or x.dtype is not total:
        return False
    if op.dtype is dtypes.int16:
        return total in _WHOLE and x.src[0].dtype in _SHORT
    return total is op.total and x.src[0].dtype is op.dtype


def _paired(node: UOp, sources: list[UOp]) -> UOp | None:
    """Return the summed range to pair: even, in no mask, preferably with pairs adjacent in memory."""
    free = ranges_in(node)
    masked = {r for n in free if n.op is Ops.ILT for r in free[n]}
    bound = sorted(bound_ranges(node, free), key=lambda r: int(r.arg[0]))
    even = [r for r in bound if r.arg[1] % PAIR == 0 and r.arg[1] > PAIR and r not in masked]

    def adjacent(r: UOp) -> int:
        return sum(x.op is Ops.LOAD and _halved(x.src[1], r, r) is not None for x in sources)

    return max(even, key=lambda r: (adjacent(r), r.arg[1]), default=None)


def _halved(index: UOp, r: UOp, half: UOp) -> UOp | None:
    """Return the index of the word that holds the elements at 2 * half and the next; None if none does."""
    terms, constant = symbolic.terms_of(index)
    if terms.pop(r, 0) != 1 or constant % PAIR or any(c % PAIR for c in terms.values()):
        return None
    if r in symbolic.atoms_of(terms):
        return None
    return symbolic.dot((half, *terms), (1, *[c // PAIR for c in terms.values()]), constant // PAIR)


def _word(x: UOp, r: UOp, half: UOp) -> UOp:
    """Return the word of a value at 2 * half and the next one of r."""
    wide = dtypes.uint32
    if x.op is Ops.LOAD:
        at = _halved(x.src[1], r, half)
        if at is not None and x.dtype.itemsize == PAIR:
            return _loaded(x, wide, at)
        if at is not None:
            low, high = _bytes(x, _loaded(x, dtypes.uint16, at))
            return _joined(low, high)
    places = [symbolic.dot((half,), (PAIR,), u) for u in range(PAIR)]
    low, high = [_bits(merge.replace_ranges(x, {r: place})) for place in places]
    return _joined(low, high)


def _loaded(x: UOp, dtype: DType, at: UOp) -> UOp:
    """Return the load of another dtype at an index of its elements, with the mask of x."""
    return uop(Ops.LOAD, dtype, (uop(Ops.BUFFER, dtype, (), x.src[0].arg), at, *x.src[2:]))


def _bytes(x: UOp, pair: UOp) -> list[UOp]:
    """Return the two bytes of 16 bits as 16-bit values, extended as the dtype of x says."""
    high = uop(Ops.SHR, dtypes.uint16, (pair, const(8, dtypes.uint16)))
    return [_bits(uop(Ops.CAST, x.dtype, (part,))) for part in (pair, high)]


def _bits(x: UOp) -> UOp:
    """Return a value as 16 bits."""
    if x.op is Ops.LOAD and x.dtype.itemsize == PAIR:
        return _loaded(x, dtypes.uint16, x.src[1])
    if x.dtype in _SHORT and x.dtype is not dtypes.int16:
        x = uop(Ops.CAST, dtypes.int16, (x,))
    return uop(Ops.BITCAST, dtypes.uint16, (x,))


def _joined(low: UOp, high: UOp) -> UOp:
    """Return the word of two values of 16 bits."""
    wide = dtypes.uint32
    parts = [uop(Ops.CAST, wide, (part,)) for part in (low, high)]
    above = uop(Ops.SHL, wide, (parts[1], const(16, wide)))
    return uop(Ops.OR, wide, (parts[0], above))


def _replaced(ast: UOp, old: UOp, new: UOp) -> UOp:
    """Return the kernel with one value in the place of another."""
    done: dict[UOp, UOp] = {old: new}
    for node in ordered(ast):
        if node not in done:
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else uop(node.op, node.dtype, src, node.arg)
    return done[ast]
