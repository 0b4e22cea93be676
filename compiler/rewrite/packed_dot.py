"""The form of a sum of products for matrix operations on words: two or four neighbours along the sum.

`sum over k of cast(a[k]) * cast(b[k])` becomes `sum over h of DOT(word of a, word of b)`: h counts pairs of
16-bit values, and the word of a is a[2h] in its low half and a[2h + 1] in its high half; or h counts quads of
bytes. Where the values of a word are adjacent in memory, it is one load. All else stays a kernel of 32-bit
values, so panels, register tiles and pieces are those of any product (`plan.contraction`). No mask of a load
may end within a word. The products after the last whole word of a single range are added to the result one by
one; with several summed ranges one must be a multiple of the values of a word.

VPDPBUSD takes the bytes of one side without a sign, and of the other with one. Where both sides have one, or
none, each byte of one side is changed by 128 (`XOR` 0x80), and 128 times the sum of the other
side is subtracted, or added: modulo 2**32, as all sums of integers are, the result is the same.

Not here: which operations a target has (`compiler.targets`), their lines (`emit.products`). Next:
`pipeline`, the caller.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import const, uop
from compiler.ir.walk import bound_ranges, ordered, ranges_in
from compiler.rewrite import range_merging

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.targets.shared.matrix import MatrixOp
    from compiler.targets.shared.target import Target

_WHOLE = (dtypes.int32, dtypes.uint32)
_BYTES = (dtypes.int8, dtypes.uint8)
_SHORT = (*_BYTES, dtypes.int16)
"""Integers that 16 bits with a sign hold."""
_ONES = 0x01010101
_TURNED = 0x80808080
"""The bits of a word that change each of its bytes by 128, to one with a sign or without."""


def in_words(ast: UOp, target: Target) -> UOp | None:
    """Return the kernel with its one sum of products over words; None where it or the target has none."""
    if target.threads > 1 or not target.matrix or ast.src[0].op is not Ops.STORE:
        return None
    nodes = ordered(ast)
    sums = [n for n in nodes if n.op is Ops.REDUCE and n.arg[1]]
    if len(sums) != 1 or sums[0].arg[0] != Ops.ADD or sums[0].src[0].op is not Ops.MUL:
        return None
    (node,), product = sums, sums[0].src[0]
    if any(n.op in (Ops.LT, Ops.INDEXOF) for n in nodes):
        return None
    for op in target.matrix:
        if all(_takes(op, x, node.dtype) for x in product.src):
            first = 1 + max(n.arg[0] for n in nodes if n.op is Ops.RANGE)
            r = _divided(node, [x.src[0] for x in product.src], op.shape[2])
            if r is not None:
                return _replaced(ast, node, _sum(node, r, op, first))
            r = _divided_short(node, op.shape[2])
            if r is not None:
                return _replaced(ast, node, _sum_and_rest(node, r, op, first))
    return None


def multiplies(total: UOp) -> bool:
    """Return whether a REDUCE is a sum of products of two operands, not the sum of one over words."""
    value = total.src[0]
    return value.op is not Ops.DOT or all(s.op is not Ops.CONST for s in value.src)


def operation(ast: UOp) -> MatrixOp:
    """Return the matrix operation of a kernel of `in_words`."""
    found: MatrixOp = next(n for n in ordered(ast) if n.op is Ops.DOT).arg
    return found


def _takes(op: MatrixOp, x: UOp, total: DType) -> bool:
    """Return whether an operation multiplies such a factor, and adds up in this dtype."""
    if x.op is not Ops.CAST or x.dtype is not total:
        return False
    if op.dtype.is_float:
        return total is op.total and x.src[0].dtype is op.dtype
    kinds = _SHORT if op.dtype is dtypes.int16 else (op.dtype,) if op.other is None else _BYTES
    return total in _WHOLE and x.src[0].dtype in kinds


def _divided(node: UOp, sources: list[UOp], values: int) -> UOp | None:
    """Return the summed range to divide into words: in no mask, preferably with words adjacent in memory."""
    free = ranges_in(node)
    masked = {r for n in free if n.op is Ops.ILT for r in free[n]}
    bound = sorted(bound_ranges(node, free), key=lambda r: int(r.arg[0]))
    whole = [r for r in bound if r.arg[1] % values == 0 and r.arg[1] > values and r not in masked]

    def adjacent(r: UOp) -> int:
        return sum(x.op is Ops.LOAD and _quotient(x.src[1], r, r, values) is not None for x in sources)

    return max(whole, key=lambda r: (adjacent(r), r.arg[1]), default=None)


def _divided_short(node: UOp, values: int) -> UOp | None:
    """Return the one summed range if it has a few products more than two words or more; else None."""
    free = ranges_in(node)
    bound = bound_ranges(node, free)
    masked = any(bound & free[n] for n in free if n.op is Ops.ILT)
    if masked or len(bound) != 1:
        return None
    (r,) = bound
    return r if r.arg[1] >= 2 * values else None


def _sum_and_rest(node: UOp, r: UOp, op: MatrixOp, first: int) -> UOp:
    """Return the sum over whole words of r, to which the products of the rest are added one by one."""
    product, size = node.src[0], r.arg[1] - r.arg[1] % op.shape[2]
    shorter = symbolic.loop(r.arg[0], size)
    whole = uop(Ops.REDUCE, node.dtype, (range_merging.replace_ranges(product, {r: shorter}),), node.arg)
    total = _sum(whole, shorter, op, first)
    for k in range(size, r.arg[1]):
        one = range_merging.replace_ranges(product, {r: symbolic.const(k)})
        total = uop(Ops.ADD, node.dtype, (total, one))
    return total


def _sum(node: UOp, r: UOp, op: MatrixOp, first: int) -> UOp:
    """Return the sum over words of r that is equal to a sum of products; `first` numbers new ranges."""
    values, sources = op.shape[2], [x.src[0] for x in node.src[0].src]
    part = symbolic.loop(r.arg[0], r.arg[1] // values)
    words = [_word(x, r, part, values) for x in sources]
    kinds = [x.dtype for x in sources]
    change: UOp | None = None
    if op.other is not None:
        if kinds[0] is kinds[1]:
            kept = _summed(node, sources)
            change = _change(node, sources[kept], words[kept], part, op, first)
            words[1 - kept] = uop(Ops.XOR, dtypes.uint32, (words[1 - kept], const(_TURNED, dtypes.uint32)))
            kinds[1 - kept] = dtypes.uint8 if kinds[kept] is dtypes.int8 else dtypes.int8
        if kinds[0] is dtypes.int8:
            words.reverse()
    total = uop(Ops.REDUCE, node.dtype, (uop(Ops.DOT, node.dtype, tuple(words), op),), node.arg)
    return total if change is None else uop(Ops.ADD, node.dtype, (total, change))


def _summed(node: UOp, sources: list[UOp]) -> int:
    """Return the source whose sum is less work: the one that the vectors of results do not run along."""
    free = ranges_in(node)
    last = max(free[node], key=lambda r: int(r.arg[0]), default=None)
    return int(last in free[sources[0]])


def _change(  # noqa: PLR0917  # one caller
    node: UOp, kept: UOp, word: UOp, part: UOp, op: MatrixOp, first: int
) -> UOp:
    """Return what a sum of products lacks: 128 times the sum of the source that is kept, or the negative.

    It has ranges of its own, numbered from `first`. A word that is one load is multiplied by ones.
    """
    bound = sorted(bound_ranges(node, ranges_in(node)), key=lambda r: int(r.arg[0]))
    value = uop(Ops.CAST, node.dtype, (kept,))
    if word.op is Ops.LOAD:
        pair = (const(_ONES, dtypes.uint32), word)
        value = uop(Ops.DOT, node.dtype, pair if kept.dtype is dtypes.int8 else pair[::-1], op)
        bound = [part if r.arg[0] == part.arg[0] else r for r in bound]
    free = ranges_in(value)[value]
    own = {r: symbolic.loop(first + i, r.arg[1]) for i, r in enumerate(bound) if r in free}
    times = math.prod([int(r.arg[1]) for r in bound if r not in own])
    factor = (-128 if kept.dtype is dtypes.int8 else 128) * times & 0xFFFFFFFF
    if node.dtype.kind == "int" and factor >> 31:
        factor -= 1 << 32
    numbers = tuple([r.arg[0] for r in own.values()])
    total = uop(Ops.REDUCE, node.dtype, (range_merging.replace_ranges(value, own),), (Ops.ADD, numbers))
    return uop(Ops.MUL, node.dtype, (total, const(factor, node.dtype)))


def _quotient(index: UOp, r: UOp, part: UOp, values: int) -> UOp | None:
    """Return the index of the word that holds the elements from values * part on; None if none does."""
    terms, constant = symbolic.terms_of(index)
    if terms.pop(r, 0) != 1 or constant % values or any(c % values for c in terms.values()):
        return None
    if r in symbolic.atoms_of(terms):
        return None
    return symbolic.dot((part, *terms), (1, *[c // values for c in terms.values()]), constant // values)


def _word(x: UOp, r: UOp, part: UOp, values: int) -> UOp:
    """Return the word of the values of x at values * part and the next ones of r."""
    size = 4 // values
    at = _quotient(x.src[1], r, part, values) if x.op is Ops.LOAD else None
    if at is not None and x.dtype.itemsize == size:
        return _loaded(x, dtypes.uint32, at)
    if at is not None:
        return _joined(_bytes(x, _loaded(x, dtypes.uint16, at)))
    places = [symbolic.dot((part,), (values,), u) for u in range(values)]
    return _joined([_bits(range_merging.replace_ranges(x, {r: place}), size) for place in places])


def _loaded(x: UOp, dtype: DType, at: UOp) -> UOp:
    """Return the load of another dtype at an index of its elements, with the mask of x."""
    return uop(Ops.LOAD, dtype, (uop(Ops.BUFFER, dtype, (), x.src[0].arg), at, *x.src[2:]))


def _bytes(x: UOp, pair: UOp) -> list[UOp]:
    """Return the two bytes of 16 bits as 16-bit values, extended as the dtype of x says."""
    high = uop(Ops.SHR, dtypes.uint16, (pair, const(8, dtypes.uint16)))
    return [_bits(uop(Ops.CAST, x.dtype, (part,)), 2) for part in (pair, high)]


def _bits(x: UOp, size: int) -> UOp:
    """Return a value as an integer of so many bytes, without a sign."""
    dtype = dtypes.uint8 if size == 1 else dtypes.uint16
    if x.op is Ops.LOAD and x.dtype.itemsize == size:
        return _loaded(x, dtype, x.src[1])
    if x.dtype.itemsize < size:
        x = uop(Ops.CAST, dtypes.int16, (x,))
    return x if x.dtype is dtype else uop(Ops.BITCAST, dtype, (x,))


def _joined(parts: list[UOp]) -> UOp:
    """Return the word of two or four values, the first one lowest."""
    wide, bits = dtypes.uint32, 32 // len(parts)
    word, *others = [uop(Ops.CAST, wide, (part,)) for part in parts]
    for n, part in enumerate(others, 1):
        word = uop(Ops.OR, wide, (word, uop(Ops.SHL, wide, (part, const(bits * n, wide)))))
    return word


def _replaced(ast: UOp, old: UOp, new: UOp) -> UOp:
    """Return the kernel with one value in the place of another."""
    done: dict[UOp, UOp] = {old: new}
    for node in ordered(ast):
        if node not in done:
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else uop(node.op, node.dtype, src, node.arg)
    return done[ast]
