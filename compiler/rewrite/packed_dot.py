"""Sums of products for matrix operations on 32-bit words, each of two or four consecutive values of the sum.

`sum over k of cast(a[k]) * cast(b[k])` becomes `sum over h of DOT(word of a, word of b)`. If h counts pairs
of 16-bit values, the word of a has a[2h] in its low half and a[2h + 1] in its high half; or h counts groups
of four bytes. If the values of a word are adjacent in memory, the word is one load. The rest of the kernel
stays one of 32-bit values, so panels, register tiles and pieces are those of any product
(`compiler.plan.contraction`). No mask of a load may end within a word. If there is one summed range, the
products after its last whole word are added to the result one by one. If there are several, the size of one
must be a multiple of a word's values.

VPDPBUSD multiplies unsigned bytes by signed bytes. If both operands are signed, or both unsigned, each byte
of one operand is changed by 128 (`XOR` 0x80), and 128 times the sum of the other operand is subtracted or
added. Sums of integers are modulo 2**32, so the result is the same.

Not here: the operations of a target (`compiler.targets`), their lines (`compiler.emit.products`). Next:
`compiler.pipeline`, the caller.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import const, uop
from compiler.ir.walk import bound_ranges, by_number, ordered, ranges_in
from compiler.rewrite import range_merging

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.targets.shared.matrix import MatrixOp
    from compiler.targets.shared.target import Target

_WHOLE = (dtypes.int32, dtypes.uint32)
_BYTES = (dtypes.int8, dtypes.uint8)
_SHORT = (*_BYTES, dtypes.int16)
"""Types whose values are values of int16."""
_ONES = 0x01010101
"""A word of four bytes 1."""
_CHANGED = 0x80808080
"""The bits whose inversion changes each byte of a word by 128: between int8 and uint8."""


def in_words(ast: UOp, target: Target) -> UOp | None:
    """Return the kernel with its one sum of products over words.

    Return None if the target has threads or no matrix operation for the operands, or if the kernel is a
    chain, compares values, loads at computed indices, or has no sum of products that can be divided into
    words.
    """
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
                return range_merging.replace_value(ast, node, _sum(node, r, op, first))
            r = _divided_short(node, op.shape[2])
            if r is not None:
                return range_merging.replace_value(ast, node, _sum_and_rest(node, r, op, first))
    return None


def multiplies(total: UOp) -> bool:
    """Return whether a REDUCE is a sum of products of two operands, not of one operand and words of ones."""
    value = total.src[0]
    return value.op is not Ops.DOT or all(s.op is not Ops.CONST for s in value.src)


def operation(ast: UOp) -> MatrixOp:
    """Return the matrix operation of a kernel of `in_words`."""
    found: MatrixOp = next(n for n in ordered(ast) if n.op is Ops.DOT).arg
    return found


def _takes(op: MatrixOp, x: UOp, total: DType) -> bool:
    """Return whether a matrix operation takes the factor x, with sums of dtype `total`."""
    if x.op is not Ops.CAST or x.dtype is not total:
        return False
    if op.dtype.is_float:
        return total is op.total and x.src[0].dtype is op.dtype
    kinds = _SHORT if op.dtype is dtypes.int16 else (op.dtype,) if op.other is None else _BYTES
    return total in _WHOLE and x.src[0].dtype in kinds


def _divided(node: UOp, sources: list[UOp], values: int) -> UOp | None:
    """Return the summed range that is divided into words: one in no mask, whose size is a multiple of a word.

    Ranges along which words are adjacent in memory come first, then longer ones. None if there is none.
    """
    free = ranges_in(node)
    masked = {r for n in free if n.op is Ops.ILT for r in free[n]}
    bound = by_number(bound_ranges(node, free))
    whole = [r for r in bound if r.arg[1] % values == 0 and r.arg[1] > values and r not in masked]

    def adjacent(r: UOp) -> int:
        return sum(x.op is Ops.LOAD and _quotient(x.src[1], r, r, values) is not None for x in sources)

    return max(whole, key=lambda r: (adjacent(r), r.arg[1]), default=None)


def _divided_short(node: UOp, values: int) -> UOp | None:
    """Return the only summed range if it has two words or more and is in no mask; else None."""
    free = ranges_in(node)
    bound = bound_ranges(node, free)
    masked = any(bound & free[n] for n in free if n.op is Ops.ILT)
    if masked or len(bound) != 1:
        return None
    (r,) = bound
    return r if r.arg[1] >= 2 * values else None


def _sum_and_rest(node: UOp, r: UOp, op: MatrixOp, first: int) -> UOp:
    """Return the sum over whole words of r, plus the products of the remaining values, one by one."""
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
            words[1 - kept] = uop(Ops.XOR, dtypes.uint32, (words[1 - kept], const(_CHANGED, dtypes.uint32)))
            kinds[1 - kept] = dtypes.uint8 if kinds[kept] is dtypes.int8 else dtypes.int8
        if kinds[0] is dtypes.int8:
            words.reverse()
    total = uop(Ops.REDUCE, node.dtype, (uop(Ops.DOT, node.dtype, tuple(words), op),), node.arg)
    return total if change is None else uop(Ops.ADD, node.dtype, (total, change))


def _summed(node: UOp, sources: list[UOp]) -> int:
    """Return the operand whose sum is less work: one that does not depend on the last output range."""
    free = ranges_in(node)
    last = max(free[node], key=lambda r: int(r.arg[0]), default=None)
    return int(last in free[sources[0]])


def _change(  # noqa: PLR0917  # one caller
    node: UOp, kept: UOp, word: UOp, part: UOp, op: MatrixOp, first: int
) -> UOp:
    """Return the correction of a sum of products: 128 or -128 times the sum of the operand `kept`.

    The sum has ranges of its own, numbered from `first`. If a word of the operand is one load, the sum is one
    of its products with a word of ones.
    """
    bound = by_number(bound_ranges(node, ranges_in(node)))
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
    """Return the index of the word with the elements r = values * part and following; None if no word has."""
    terms, constant = symbolic.terms_of(index)
    if terms.pop(r, 0) != 1 or constant % values or any(c % values for c in terms.values()):
        return None
    if r in symbolic.atoms_of(terms):
        return None
    return symbolic.dot((part, *terms), (1, *[c // values for c in terms.values()]), constant // values)


def _word(x: UOp, r: UOp, part: UOp, values: int) -> UOp:
    """Return the word of the values of x at r = values * part and following."""
    size = 4 // values
    at = _quotient(x.src[1], r, part, values) if x.op is Ops.LOAD else None
    if at is not None and x.dtype.itemsize == size:
        return _loaded(x, dtypes.uint32, at)
    if at is not None:
        return _joined(_bytes(x, _loaded(x, dtypes.uint16, at)))
    places = [symbolic.dot((part,), (values,), u) for u in range(values)]
    return _joined([_bits(range_merging.replace_ranges(x, {r: place}), size) for place in places])


def _loaded(x: UOp, dtype: DType, at: UOp) -> UOp:
    """Return the load of x as another dtype, at an index in elements of that dtype, with the mask of x."""
    return uop(Ops.LOAD, dtype, (uop(Ops.BUFFER, dtype, (), x.src[0].arg), at, *x.src[2:]))


def _bytes(x: UOp, pair: UOp) -> list[UOp]:
    """Return the two bytes of a uint16 as 16-bit values, extended by sign or zero as x's dtype demands."""
    high = uop(Ops.SHR, dtypes.uint16, (pair, const(8, dtypes.uint16)))
    return [_bits(uop(Ops.CAST, x.dtype, (part,)), 2) for part in (pair, high)]


def _bits(x: UOp, size: int) -> UOp:
    """Return the bits of a value as uint8 for size 1, else as uint16."""
    dtype = dtypes.uint8 if size == 1 else dtypes.uint16
    if x.op is Ops.LOAD and x.dtype.itemsize == size:
        return _loaded(x, dtype, x.src[1])
    if x.dtype.itemsize < size:
        x = uop(Ops.CAST, dtypes.int16, (x,))
    return x if x.dtype is dtype else uop(Ops.BITCAST, dtype, (x,))


def _joined(parts: list[UOp]) -> UOp:
    """Return the word of two or four values; the first value has the lowest bits."""
    wide, bits = dtypes.uint32, 32 // len(parts)
    word, *others = [uop(Ops.CAST, wide, (part,)) for part in parts]
    for n, part in enumerate(others, 1):
        word = uop(Ops.OR, wide, (word, uop(Ops.SHL, wide, (part, const(bits * n, wide)))))
    return word
