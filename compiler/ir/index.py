"""Index arithmetic with canonical constructors: a sum is always atoms with integer coefficients.

Each constructor returns the canonical node, so there is no simplification pass. Sums are affine by
construction: constant folding, collection of terms, re-association and distribution are merges of
dictionaries. Only division, modulo and comparison have rules. Atoms are ranges, variables, divisions, modulos
and computed indices. Every node has bounds. The order of terms depends on the structure alone, so equal
arithmetic has equal text in every process. A mask is a conjunction of `x < c`, or the constant TRUE or FALSE.

Not here: other values of kernels (`fold`). Next: `compiler.emit.indexing`, index arithmetic on registers.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Final, TypeGuard

from compiler.dtype import dtypes
from compiler.ir.infer import bounds_of_sum
from compiler.ir.ops import MASK, Ops
from compiler.ir.uop import UOp, _table, uop
from compiler.ir.uop import const as _const
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Terms = dict[UOp, int]
"""Atom -> coefficient."""

_INDEX: Final = dtypes.index
_BOOL: Final = dtypes.bool


def const(value: int) -> UOp:
    """Return a number as an index."""
    return _const(value, _INDEX)


ZERO: Final = const(0)
ONE: Final = const(1)
TRUE: Final = _const(value=True, dtype=_BOOL)
FALSE: Final = _const(value=False, dtype=_BOOL)


def loop(number: int, size: int) -> UOp:
    """Return the loop variable `number` with 0 <= r < size; for size 1 the constant 0."""
    return ZERO if size == 1 else uop(Ops.RANGE, _INDEX, (), (number, size))


def Variable(name: str, lo: int, hi: int) -> UOp:  # noqa: N802 - the public name
    """Return an integer whose value is given at launch, `lo <= value <= hi`.

    Raises `UsageError` for a name that is no identifier, and for `lo` above `hi`.
    """
    if not name.isidentifier():
        raise UsageError(f"a Variable's name must be an identifier, not {name!r}")
    if lo > hi:
        raise UsageError(f"Variable {name!r} has no values: its bounds are {lo}..{hi}; expected lo <= hi")
    return uop(Ops.VAR, _INDEX, (), (name, lo, hi))


def as_index(x: UOp | int, operator: str) -> UOp:
    """Return an operand of index arithmetic. Raises `UsageError` for a node of another dtype."""
    if isinstance(x, int):
        return const(x)
    if x.dtype is not _INDEX:
        raise UsageError(
            f"`{operator}` on nodes is index arithmetic; {x!r} has dtype {x.dtype.name}, wanted index"
        )
    return x


def as_number(x: object, operator: str) -> int:
    """Return the right operand of an operator as a number.

    Raises `UsageError` if it is no number, and for `//` and `%` if it is not positive.
    """
    if isinstance(x, UOp) and x.op is Ops.CONST:
        x = x.arg
    if not isinstance(x, int):
        raise UsageError(f"the right side of `{operator}` in index arithmetic must be a number, not {x!r}")
    if x <= 0 and operator in ("//", "%"):
        raise UsageError(f"the right side of `{operator}` in index arithmetic must be positive, not {x}")
    return int(x)


def terms_of(x: UOp) -> tuple[Terms, int]:
    """Return the affine form of an index: a new dictionary of terms, and the constant."""
    if x.op is Ops.SUM:
        coefficients, constant = x.arg
        return dict(zip(x.src, coefficients, strict=True)), constant
    if x.op is Ops.CONST:
        return {}, x.arg
    return {x: 1}, 0


def linear(terms: Terms, constant: int) -> UOp:
    """Return the canonical sum of terms and a constant; a*c*(x // c) + a*(x % c) becomes a*x.

    `terms` may be changed.
    """
    for atom, coefficient in terms.items():
        if atom.op is Ops.IMOD and coefficient:
            quotient = _table.get((Ops.IDIV, _INDEX, atom.arg, atom.src))
            if quotient is not None and terms.get(quotient) == coefficient * atom.arg:
                del terms[atom], terms[quotient]
                return linear(*_added(terms, constant, atom.src[0], coefficient))
    items = [(atom.order, atom.id, atom, c) for atom, c in terms.items() if c]
    if not items:
        return const(constant)
    if len(items) == 1:
        _, _, atom, c = items[0]
        return _scaled(atom, c, constant)
    items.sort()  # structurally; the numbers of two atoms differ
    return uop(Ops.SUM, _INDEX, tuple([i[2] for i in items]), (tuple([i[3] for i in items]), constant))


def _scaled(atom: UOp, factor: int, constant: int) -> UOp:
    """Return atom * factor + constant."""
    return atom if factor == 1 and not constant else uop(Ops.SUM, _INDEX, (atom,), ((factor,), constant))


def _added(terms: Terms, constant: int, x: UOp, factor: int) -> tuple[Terms, int]:
    """Return terms + x * factor, changing `terms` in place."""
    if x.op is Ops.SUM:
        coefficients, k = x.arg
        for atom, c in zip(x.src, coefficients, strict=True):
            terms[atom] = terms.get(atom, 0) + c * factor
        return terms, constant + k * factor
    if x.op is Ops.CONST:
        return terms, constant + x.arg * factor
    terms[x] = terms.get(x, 0) + factor
    return terms, constant


def add(x: UOp, y: UOp) -> UOp:
    """Return x + y."""
    if x.op is Ops.CONST:
        x, y = y, x
    if y.op is not Ops.CONST:
        terms, constant = terms_of(x)
        return linear(*_added(terms, constant, y, 1))
    if y.arg == 0:
        return x
    if x.op is Ops.CONST:
        return const(x.arg + y.arg)
    if x.op is not Ops.SUM:
        return _scaled(x, 1, y.arg)
    coefficients, constant = x.arg
    if len(coefficients) == 1:
        return _scaled(x.src[0], coefficients[0], constant + y.arg)
    return uop(Ops.SUM, _INDEX, x.src, (coefficients, constant + y.arg))


def mul(x: UOp, factor: int) -> UOp:
    """Return x * factor."""
    if factor == 1:
        return x
    if factor == 0:
        return ZERO
    if x.op is Ops.CONST:
        return const(x.arg * factor)
    if x.op is not Ops.SUM:
        return _scaled(x, factor, 0)
    coefficients, constant = x.arg
    if len(coefficients) == 1:
        return _scaled(x.src[0], coefficients[0] * factor, constant * factor)
    return uop(Ops.SUM, _INDEX, x.src, (tuple([c * factor for c in coefficients]), constant * factor))


def dot(xs: Iterable[UOp], factors: Iterable[int], constant: int = 0) -> UOp:
    """Return sum(x * factor) + constant, without intermediate nodes."""
    terms: Terms = {}
    for x, c in zip(xs, factors, strict=True):
        terms, constant = _added(terms, constant, x, c)
    return linear(terms, constant)


def _split(terms: Terms, constant: int, c: int) -> tuple[int, Terms, Terms, int, int] | None:
    """Find a divisor g > 1 of c such that the sum of the terms that g does not divide is in [0, g).

    Return (g, the terms that g divides, divided by g, the other terms, the constant of each); None if there
    is no such divisor.
    """
    for g in sorted({gcd(v, c) for v in terms.values()}, reverse=True):
        if g == 1:
            return None
        small = {a: v for a, v in terms.items() if v % g}
        low, high = bounds_of_sum(_INDEX, small, (small.values(), constant % g))
        if low >= 0 and high < g:
            return g, {a: v // g for a, v in terms.items() if v % g == 0}, small, constant // g, constant % g
    return None


def div(x: UOp, c: int) -> UOp:
    """Return x // c, rounded down, for a positive number c."""
    if c == 1:
        return x
    if x.vmin // c == x.vmax // c:
        return const(x.vmin // c)
    terms, constant = terms_of(x)
    whole = {a: v // c for a, v in terms.items() if v // c}
    rest = {a: v % c for a, v in terms.items() if v % c}
    k = constant % c
    low, high = bounds_of_sum(_INDEX, rest, (rest.values(), k))
    if low >= 0 and high < c:
        return linear(whole, constant // c)
    found = _div_of_rest(rest, k, c)
    return linear(*_added(whole, constant // c, found, 1)) if whole or constant // c else found


def _div_of_rest(rest: Terms, k: int, c: int) -> UOp:
    """Return (rest + k) // c: by a common factor, as a division of a division's source, or as a new atom."""
    split = _split(rest, k, c)
    if split is not None:
        g, big, _, big_k, _ = split
        return div(linear(big, big_k), c // g)
    if len(rest) == 1 and k == 0:
        ((atom, v),) = rest.items()
        if v == 1 and atom.op is Ops.IDIV:
            return div(atom.src[0], atom.arg * c)
        if v == 1 and atom.op is Ops.IMOD and atom.arg % c == 0:
            return mod(div(atom.src[0], c), atom.arg // c)
    x = linear(rest, k)
    if x.vmin // c == x.vmax // c:
        return const(x.vmin // c)
    return uop(Ops.IDIV, _INDEX, (x,), c)


def mod(x: UOp, c: int) -> UOp:
    """Return x % c, 0 <= result < c, for a positive number c."""
    if c == 1:
        return ZERO
    quotient = x.vmin // c
    if quotient == x.vmax // c:
        return x if quotient == 0 else add(x, const(-quotient * c))
    terms, constant = terms_of(x)
    rest = {a: v % c for a, v in terms.items() if v % c}
    k = constant % c
    low, high = bounds_of_sum(_INDEX, rest, (rest.values(), k))
    if low >= 0 and high < c:
        return linear(rest, k)
    split = _split(rest, k, c)
    if split is not None:
        g, big, small, big_k, small_k = split
        return linear(*_added(small, small_k, mod(linear(big, big_k), c // g), g))
    if len(rest) == 1 and k == 0:
        ((atom, v),) = rest.items()
        if v == 1 and atom.op is Ops.IMOD and atom.arg % c == 0:
            return mod(atom.src[0], c)
    inner = linear(rest, k)
    quotient = inner.vmin // c
    if quotient == inner.vmax // c:
        return add(inner, const(-quotient * c))
    return uop(Ops.IMOD, _INDEX, (inner,), c)


def lt(x: UOp, c: int) -> UOp:
    """Return the mask x < c."""
    if x.vmax < c:
        return TRUE
    if x.vmin >= c:
        return FALSE
    if x.op is Ops.SUM:
        coefficients, k = x.arg
        g = gcd(*coefficients)
        if k or g > 1:
            terms = {a: v // g for a, v in zip(x.src, coefficients, strict=True)}
            return lt(linear(terms, 0), -((k - c) // g))
    return uop(Ops.ILT, _BOOL, (x,), c)


def ge(x: UOp, c: int) -> UOp:
    """Return the mask x >= c, as -x < 1 - c."""
    return lt(mul(x, -1), 1 - c)


def both(*masks: UOp) -> UOp:
    """Return the conjunction of masks, with the tightest comparison of each index, in structural order."""
    least: dict[UOp, int] = {}
    for mask in masks:
        if mask is FALSE:
            return FALSE
        if mask is TRUE:
            continue
        for part in mask.src if mask.op is Ops.IAND else (mask,):
            x, c = part.src[0], part.arg
            least[x] = min(c, least.get(x, c))
    if len(least) < 2:
        return next((uop(Ops.ILT, _BOOL, (x,), c) for x, c in least.items()), TRUE)
    parts = [uop(Ops.ILT, _BOOL, (x,), c) for x, c in least.items()]
    parts.sort(key=lambda n: (n.order, n.id))
    return uop(Ops.IAND, _BOOL, tuple(parts))


def implies(mask: UOp, other: UOp) -> bool:
    """Return whether `mask` implies `other` by comparisons of the same indices; False may mean unknown."""
    if other is TRUE or mask is FALSE or mask is other:
        return True
    if other is FALSE or mask is TRUE:
        return False
    have = {part.src[0]: part.arg for part in parts_of(mask)}
    return all(have.get(part.src[0], part.arg + 1) <= part.arg for part in parts_of(other))


def parts_of(mask: UOp) -> tuple[UOp, ...]:
    """Return the comparisons of a mask; none for TRUE, and FALSE itself for FALSE."""
    return mask.src if mask.op is Ops.IAND else () if mask is TRUE else (mask,)


def is_mask(x: UOp) -> TypeGuard[UOp]:
    """Return whether a node is a mask: TRUE, FALSE, a comparison or a conjunction."""
    return x.op in MASK or x is TRUE or x is FALSE


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major strides, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def substitute(x: UOp, env: Mapping[UOp, UOp], memo: dict[UOp, UOp]) -> UOp:
    """Return an index or a mask with its atoms replaced by `env`.

    `memo` keeps results for later calls with the same `env`.
    """
    found = memo.get(x)
    if found is None:
        found = env.get(x)
        if found is None:
            found = REBUILD[x.op](x, [substitute(s, env, memo) for s in x.src]) if x.op in REBUILD else x
        memo[x] = found
    return found


REBUILD: Final[dict[str, Callable[[UOp, list[UOp]], UOp]]] = {
    Ops.SUM: lambda x, src: dot(src, *x.arg),
    Ops.IDIV: lambda x, src: div(src[0], x.arg),
    Ops.IMOD: lambda x, src: mod(src[0], x.arg),
    Ops.ILT: lambda x, src: lt(src[0], x.arg),
    Ops.IAND: lambda _, src: both(*src),
}


def atoms_of(xs: Iterable[UOp]) -> dict[UOp, None]:
    """Return the ranges, variables and computed indices in index nodes and masks, in order of appearance."""
    found: dict[UOp, None] = {}
    seen: set[UOp] = set()
    stack = list(xs)
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op in (Ops.RANGE, Ops.VAR, Ops.INDEXOF):
            found[x] = None
        else:
            stack += reversed(x.src)
    return found


def evaluate(x: UOp, env: Mapping[UOp, int]) -> int:
    """Return the value of an index, or of a mask as 0 or 1; `env` has the values of RANGE, VAR and INDEXOF.

    Raises `KeyError` for an atom without a value, and `UsageError` for another node.
    """
    return _evaluate(x, env, {})


def _evaluate(x: UOp, env: Mapping[UOp, int], memo: dict[UOp, int]) -> int:
    """Return the value of an index or a mask; `memo` has the values of nodes so far."""
    found = memo.get(x)
    if found is not None:
        return found
    op = x.op
    if op is Ops.CONST:
        found = int(x.arg)
    elif op in (Ops.RANGE, Ops.VAR, Ops.INDEXOF):
        found = env[x]
    else:
        values = [_evaluate(s, env, memo) for s in x.src]
        if op is Ops.SUM:
            found = sum([v * c for v, c in zip(values, x.arg[0], strict=True)]) + x.arg[1]
        elif op is Ops.IDIV:
            found = values[0] // x.arg
        elif op is Ops.IMOD:
            found = values[0] % x.arg
        elif op is Ops.ILT:
            found = int(values[0] < x.arg)
        elif op is Ops.IAND:
            found = int(all(values))
        else:
            raise UsageError(f"{x!r} is not index arithmetic")
    memo[x] = found
    return found
