"""Split a sum of products by residues: one kernel for each remainder of output ranges modulo a stride.

The gradient of a convolution with a stride loads under the mask `(y + k) % stride == 0`, so most products
have a factor 0. For outputs y with one remainder, only products with one remainder of k are not 0. Each part
is a dense convolution.

Not here: plans of the parts, and their common launch (`compiler.plan.phases`). Next: `compiler.pipeline`, the
caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import by_number, ordered, ranges_in, rebuilt
from compiler.rewrite.range_merging import replace_ranges, replace_value

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_PARTS = 16
"""The most parts of one kernel."""


@dataclass(frozen=True, slots=True)
class _Residue:
    """A mask `(a * output + b * summed + c) % stride == 0`; without a summed range b is 0."""

    output: UOp
    summed: UOp | None
    a: int
    b: int
    c: int
    stride: int

    def partner(self, rest: int) -> int | None:
        """Return the remainder of the summed range for which the mask is true, for a remainder of the output.

        Without a summed range it is 0. None if the mask is false for all.
        """
        every = range(1 if self.summed is None else self.stride)
        return next((k for k in every if not (self.a * rest + self.b * k + self.c) % self.stride), None)


def split_residues(ast: UOp) -> tuple[list[UOp], list[UOp]] | None:
    """Return a kernel for each combination of remainders that occurs, and the unsplit output ranges.

    The kernels together store what `ast` stores. Return None for a kernel with several stores or several
    reductions, a reduction that is no sum of products, no mask of the form of `_Residue`, another test of a
    remainder, more than `MOST_PARTS` parts, or no output range that is not split.
    """
    nodes = ordered(ast)
    sums = [n for n in nodes if n.op is Ops.REDUCE]
    if len(sums) != 1 or len(ast.src) != 1 or sums[0].src[0].op is not Ops.MUL:
        return None
    found = _residues(ast, nodes, sums[0])
    if not found or prod([one.stride for one in found]) > MOST_PARTS:
        return None
    split = [one.output for one in found]
    left = [r for r in ranges_in(ast)[ast.src[0].src[1]] if r not in split]
    if not left:
        return None
    parts = []
    for rests in product(*[range(one.stride) for one in found]):
        part = _part(ast, sums[0], found, rests)
        if part is not None:
            parts.append(part)
    return parts, by_number(left)


def _residues(ast: UOp, nodes: Iterable[UOp], total: UOp) -> list[_Residue]:
    """Return the masks that test a remainder of an output range, alone or in a sum with a summed range.

    The list is empty if any mask that tests a remainder has another form, or if products of `total` under a
    false mask are neither 0 nor unused.
    """
    outputs = ranges_in(ast)[ast.src[0].src[1]]
    found: dict[UOp, _Residue] = {}
    for n in nodes:
        if n.op is not Ops.ILT or n.arg != 1 or n.src[0].op is not Ops.IMOD:
            continue
        stride = n.src[0].arg
        terms, c = symbolic.terms_of(n.src[0].src[0])
        own = [r for r in terms if r in outputs]
        others = [r for r in terms if r not in outputs]
        if len(own) != 1 or len(others) > 1 or any(r.op is not Ops.RANGE for r in terms) or own[0] in found:
            return []
        k, b = next(((r, terms[r]) for r in others), (None, 0))
        if k is not None and (gcd(b, stride) > 1 or any(one.summed is k for one in found.values())):
            return []
        if not any(_is_zero(x, n) for x in total.src[0].src) and not _is_unused(ast, total, n):
            return []
        found[own[0]] = _Residue(own[0], k, terms[own[0]], b, c, stride)
    return sorted(found.values(), key=lambda one: int(one.output.arg[0]))


def _conditions(x: UOp) -> tuple[UOp, ...]:
    """Return comparisons that are all true if a condition is true."""
    if x.op is Ops.IVALUE and symbolic.is_mask(x.src[0]):
        return symbolic.parts_of(x.src[0])
    return tuple([part for s in x.src for part in _conditions(s)]) if x.op is Ops.AND else ()


def _is_zero(x: UOp, mask: UOp) -> bool:
    """Return whether a value is known to be 0 if a comparison is false."""
    if x.op is Ops.LOAD:
        return len(x.src) > 2 and mask in symbolic.parts_of(x.src[2])
    if x.op is Ops.CONST:
        return bool(x.arg == 0)
    if x.op is Ops.CAST:
        return _is_zero(x.src[0], mask)
    if x.op is Ops.MUL:
        return any(_is_zero(s, mask) for s in x.src)
    if x.op is Ops.WHERE:
        other = mask in _conditions(x.src[0]) or _is_zero(x.src[1], mask)
        return other and _is_zero(x.src[2], mask)
    return False


def _is_unused(ast: UOp, total: UOp, mask: UOp) -> bool:
    """Return whether the stored value does not use the sum `total` if a comparison is false."""
    seen: set[UOp] = set()
    stack = [ast.src[0].src[2]]
    while stack:
        x = stack.pop()
        if x is total:
            return False
        if x not in seen:
            seen.add(x)
            stack += x.src[2:] if x.op is Ops.WHERE and mask in _conditions(x.src[0]) else x.src
    return True


def _part(ast: UOp, node: UOp, found: list[_Residue], rests: tuple[int, ...]) -> UOp | None:
    """Return the kernel for the outputs with these remainders; None if there are no such outputs."""
    env: dict[UOp, UOp] = {}
    empty = False
    for one, rest in zip(found, rests, strict=True):
        size, partner = -(-(one.output.arg[1] - rest) // one.stride), one.partner(rest)
        if size < 1:
            return None
        env[one.output] = symbolic.dot((symbolic.loop(one.output.arg[0], size),), (one.stride,), rest)
        empty |= partner is None
        if one.summed is not None and partner is not None:
            count = -(-(one.summed.arg[1] - partner) // one.stride)
            empty |= count < 1
            inner = symbolic.loop(one.summed.arg[0], max(count, 1))
            env[one.summed] = symbolic.dot((inner,), (one.stride,), partner)
    if empty:  # no product is left
        ast = replace_value(ast, node, const(0, node.dtype))
        env = {r: x for r, x in env.items() if any(one.output is r for one in found)}
    return _without_remainders(replace_ranges(ast, env))


def _without_remainders(ast: UOp) -> UOp:
    """Return the kernel without quotients and remainders in masked indices, if the mask decides them.

    A load whose mask has become false is replaced by 0.
    """

    def change(n: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if n.op is not Ops.LOAD or len(src) < 3:
            return None
        if src[2] is symbolic.FALSE:
            return const(0, n.dtype)
        src = src[:2] if src[2] is symbolic.TRUE else (src[0], _decided(src[1], src[2]), src[2])
        return uop(n.op, n.dtype, src, n.arg)

    return rebuilt(ordered(ast), change)[ast]


def _decided(index: UOp, mask: UOp) -> UOp:
    """Return an index that is equal if the mask is true, with fewer quotients and remainders."""
    for atom in symbolic.terms_of(index)[0]:
        if atom.op in (Ops.IMOD, Ops.IDIV):
            low, high = _bounds(atom.src[0], mask)
            quotient = low // atom.arg
            if quotient == high // atom.arg:
                exact = symbolic.add(atom.src[0], symbolic.const(-quotient * atom.arg))
                new = exact if atom.op is Ops.IMOD else symbolic.const(quotient)
                return _decided(symbolic.substitute(index, {atom: new}, {}), mask)
    return index


def _bounds(x: UOp, mask: UOp) -> tuple[int, int]:
    """Return the bounds of an index for the values for which a mask is true."""
    terms, constant = symbolic.terms_of(x)
    low, high = int(x.vmin), int(x.vmax)
    for part in symbolic.parts_of(mask):
        theirs, k = symbolic.terms_of(part.src[0])
        if theirs == terms:
            high = min(high, part.arg - 1 - k + constant)
        elif theirs == {a: -c for a, c in terms.items()}:
            low = max(low, k - part.arg + 1 + constant)
    return low, high
