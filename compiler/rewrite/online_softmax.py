"""Cut the rows of a softmax between two products into pieces, with running maxima, sums and weighted values.

For each piece of the keys the scores are computed, and their exponentials relative to the largest score so
far. If a piece has a larger score, the sum of exponentials and the weighted values of the earlier pieces are
scaled. After the last piece the values are divided by the sum. No row is ever in memory as a whole.
Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867 (2018).

Not here: the loop over pieces. Next: `compiler.plan.phases`, the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import bound_ranges, by_number, ordered, ranges_in
from compiler.rewrite.range_merging import replace_ranges, replace_value

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_KEYS, LEAST_KEYS = 512, 64
"""The most and the least keys of a piece."""
_F32 = dtypes.float32


@dataclass(frozen=True, slots=True)
class Pieces:
    """The kernels of a chain in pieces."""

    start: UOp
    """The variable whose value is the first key of the current piece."""
    size: int
    """Keys of a piece."""
    count: int
    """The number of pieces."""
    before: tuple[UOp, ...]
    """The kernels before the first piece."""
    each: tuple[UOp, ...]
    """The kernels of each piece, in order."""
    after: tuple[UOp, ...]
    """The kernels after the last piece."""
    kept: dict[int, int]
    """Number of each buffer in scratch memory -> its elements."""


def keys_of(parts: Sequence[UOp]) -> int:
    """Return the keys of a piece of a chain: scores, their softmax in float32, and a sum of weighted values.

    Return 0 for any other chain, or if no divisor of the number of keys is between `LEAST_KEYS` and
    `MOST_KEYS`.
    """
    if len(parts) != 3 or any(len(part.src) != 1 for part in parts):
        return 0
    scores, middle, last = parts
    keys, sums = _along(middle.src[0].src[2], ranges_in(middle)), [_the_sum(part) for part in (scores, last)]
    made, weights = (part.src[0].src[0] for part in (scores, middle))
    if keys is None or None in sums or made.dtype is not _F32 or weights.dtype is not _F32:
        return 0
    loads = [[n for n in ordered(part) if n.op is Ops.LOAD] for part in (middle, last)]
    used = [[n.src[0].arg for n in part] for part in loads]
    if {*used[0]} != {made.arg} or made.arg in used[1] or used[1].count(weights.arg) != 1:
        return 0
    node = sums[1]
    weight = next(n for n in loads[1] if n.src[0].arg == weights.arg)
    if node is None or weight not in node.src[0].src or len(node.arg[1]) != 1 or node.dtype is not _F32:
        return 0
    most = next(d for d in range(min(keys.arg[1], MOST_KEYS), 0, -1) if keys.arg[1] % d == 0)
    return most if most >= LEAST_KEYS else 0


def _the_sum(ast: UOp) -> UOp | None:
    """Return the sum of products of a kernel; None if it has another REDUCE."""
    found = [n for n in ordered(ast) if n.op is Ops.REDUCE]
    return found[0] if len(found) == 1 and _of_products(found[0]) else None


def _along(value: UOp, free: dict[UOp, frozenset[UOp]]) -> UOp | None:
    """Return the range along the rows of exp(x - max(x)) / sum(exp(x - max(x))) of loaded x; else None."""
    if value.op is not Ops.DIV or value.dtype is not _F32:
        return None
    top, total = value.src
    if top.op is not Ops.EXP or top.src[0].op is not Ops.SUB or total.op is not Ops.REDUCE:
        return None
    x, largest = top.src[0].src
    if (
        x.op is not Ops.LOAD
        or largest.op is not Ops.REDUCE
        or (total.arg[0], largest.arg[0]) != ("ADD", "MAX")
    ):
        return None
    along = [r for r in free[x] if r not in free[largest]]
    sums = [list(bound_ranges(n, free)) for n in (total, largest)]
    if len(along) != 1 or any(len(s) != 1 or s[0].arg[1] != along[0].arg[1] for s in sums):
        return None
    same = (
        replace_ranges(total.src[0], {sums[0][0]: along[0]}) is top
        and replace_ranges(largest.src[0], {sums[1][0]: along[0]}) is x
    )
    return along[0] if same else None


def in_pieces(parts: Sequence[UOp], rows: UOp, first: int) -> Pieces | None:
    """Return the kernels of a chain in pieces; None if `keys_of` is 0.

    `rows` is the range over the rows of a block; new buffers are numbered from `first`.
    """
    size, last = keys_of(parts), parts[-1]
    if not size:
        return None
    node = next(n for n in ordered(last) if n.op is Ops.REDUCE)
    (key,) = bound_ranges(node, ranges_in(last))
    start = uop(Ops.VAR, dtypes.index, (), ("#piece", 0, key.arg[1] - size))
    return _Writer(parts, rows, first, node, key, start, size).pieces()


class _Writer:
    """Writes the kernels of one chain.

    Its buffers are numbers: `s` and `p` hold the scores and the exponentials of a piece. Of each row
    `largest` is the largest score before the piece, `newest` that with the piece, `factor` scales earlier
    results, and `total` is the sum of exponentials. `products` are the weighted values of the piece, `values`
    of all so far.
    """

    def __init__(  # noqa: PLR0917  # one caller
        self, parts: Sequence[UOp], rows: UOp, first: int, node: UOp, key: UOp, start: UOp, size: int
    ) -> None:
        self.scores, self.middle, self.last = parts
        self.rows, self.node, self.key, self.start, self.size = rows, node, key, start, size
        outputs = ranges_in(self.last)[self.last.src[0].src[1]]
        self.others = by_number([r for r in outputs if r is not rows])
        self.s, self.p = self.scores.src[0].src[0].arg, self.middle.src[0].src[0].arg
        self.largest, self.newest, self.factor, self.total, self.products, self.values = range(
            first, first + 6
        )

    def pieces(self) -> Pieces:
        """Return the kernels."""
        width = math.prod([r.arg[1] for r in self.others])
        block = self.rows.arg[1]
        kept = dict.fromkeys((self.largest, self.newest, self.factor, self.total), block)
        kept |= dict.fromkeys((self.s, self.p), block * self.size)
        kept |= dict.fromkeys((self.products, self.values), block * width)
        low, zero = const(-math.inf, _F32), const(0.0, _F32)
        before = (
            _sink(self._store(self.largest, self.rows, low), self._store(self.total, self.rows, zero)),
            _sink(self._store(self.values, self._place(), zero)),
        )
        return Pieces(
            self.start, self.size, self.key.arg[1] // self.size, before, self._each(), self._after(), kept
        )

    def _store(self, slot: int, index: UOp, value: UOp) -> UOp:
        return uop(Ops.STORE, dtypes.void, (uop(Ops.BUFFER, _F32, (), slot), index, value))

    def _load(self, slot: int, index: UOp | None = None) -> UOp:
        at = self.rows if index is None else index
        return uop(Ops.LOAD, _F32, (uop(Ops.BUFFER, _F32, (), slot), at))

    def _place(self) -> UOp:
        """Return the index of an output in the buffer of a block's weighted values."""
        ranges = (self.rows, *self.others)
        return symbolic.dot(ranges, symbolic.strides_of([r.arg[1] for r in ranges]))

    def _within(self, r: UOp) -> UOp:
        """Return the index of a score in the buffer of a piece."""
        return symbolic.dot((self.rows, r), (self.size, 1))

    def _each(self) -> tuple[UOp, ...]:
        """Return the kernels of one piece."""
        number = 1 + max(
            n.arg[0] for part in (self.scores, self.last) for n in ordered(part) if n.op is Ops.RANGE
        )
        along = symbolic.loop(number, self.size)
        s = self._load(self.s, self._within(along))
        reduced = uop(Ops.REDUCE, _F32, (s,), ("MAX", (number,)))
        largest, newest = self._load(self.largest), self._load(self.newest)
        low, zero = const(-math.inf, _F32), const(0.0, _F32)
        none = uop(Ops.EQ, dtypes.bool, (newest, low))  # all scores so far are -inf: exp(x - 0) is 0
        base = uop(Ops.WHERE, _F32, (none, zero, newest))
        p = self._load(self.p, self._within(along))
        summed = uop(Ops.REDUCE, _F32, (p,), ("ADD", (number,)))
        factor, at = self._load(self.factor), self._place()
        return (
            self._scores(along),
            _sink(self._store(self.newest, self.rows, uop(Ops.MAX, _F32, (largest, reduced)))),
            _sink(self._store(self.factor, self.rows, _exp(largest, base))),
            _sink(self._store(self.p, self._within(along), _exp(s, base))),
            _sink(
                self._store(self.total, self.rows, _scaled(self._load(self.total), factor, summed)),
                self._store(self.largest, self.rows, newest),
            ),
            self._products(),
            _sink(
                self._store(
                    self.values,
                    at,
                    _scaled(self._load(self.values, at), factor, self._load(self.products, at)),
                )
            ),
        )

    def _scores(self, along: UOp) -> UOp:
        """Return the first part for the keys of a piece."""
        store = self.scores.src[0]
        (keys,) = [r for r in ranges_in(self.scores)[store.src[1]] if r is not self.rows]
        made = replace_ranges(self.scores, {keys: symbolic.add(self.start, along)})
        return _sink(self._store(self.s, self._within(along), made.src[0].src[2]))

    def _products(self) -> UOp:
        """Return the sum of products of the last part for the keys of a piece."""
        inner = symbolic.loop(self.key.arg[0], self.size)
        moved = {self.key: symbolic.add(self.start, inner)}
        made = replace_ranges(_sink(self._store(self.products, self._place(), self.node)), moved)
        weights = next(n for n in ordered(made) if n.op is Ops.LOAD and n.src[0].arg == self.p)
        return replace_value(made, weights, self._load(self.p, self._within(inner)))

    def _after(self) -> tuple[UOp, ...]:
        """Return the last part, with the weighted values divided by the sum."""
        value = uop(Ops.DIV, _F32, (self._load(self.values, self._place()), self._load(self.total)))
        return (replace_value(self.last, self.node, value),)


@dataclass(frozen=True, slots=True)
class Merged:
    """A kernel of sums of weighted values, whose weights are functions of sums of products."""

    ast: UOp
    scores: tuple[UOp, ...]
    """The sums of products inside the weights, for each key."""
    weights: tuple[UOp, ...]
    """The weight in each sum, before it is rounded."""
    weighted: tuple[UOp, ...]
    """The sums of weighted values over the keys."""
    score: UOp | None = None
    """The value of which the exponential of a softmax over the keys is taken; None for other weights."""
    largest: UOp | None = None
    """The largest score of a row."""
    total: UOp | None = None
    """The sum of exponentials."""


def described(ast: UOp) -> Merged | None:
    """Return the sums of a merged kernel; None if it is no kernel of weighted values.

    A sum over the keys is a REDUCE of a value times a weight with REDUCEs inside. If there is a largest
    score, the kernel has a softmax: one score, one sum of weighted values and that of exponentials.
    """
    free = ranges_in(ast)
    every = [n for n in ordered(ast) if n.op is Ops.REDUCE]
    inner = {x for n in every for x in ordered(n.src[0]) if x.op is Ops.REDUCE}
    tops = [n for n in every if n.arg[0] == "ADD" and n.src[0].op is Ops.EXP]
    most = [n for n in every if n.arg[0] == "MAX"]
    weighted = [n for n in every if n not in inner and n not in tops and n not in most and _of_products(n)]
    scores = [n for n in every if n in inner and n not in most and n not in tops and _of_products(n)]
    bound = {n: bound_ranges(n, free) for n in (*weighted, *scores, *tops, *most)}
    if not weighted or len(bound) != len(every) or any(len(b) != 1 for b in bound.values()):
        return None
    (key,) = bound[weighted[0]]
    factors = [[x for x in n.src[0].src if not inner.isdisjoint(ordered(x))] for n in weighted]
    if any(bound[n] != {key} for n in weighted) or any(len(f) != 1 for f in factors):
        return None
    weights = tuple([widened(f[0]) for f in factors])
    here = [n for n in scores if key in free[n]]
    if not most and not tops:
        return Merged(ast, tuple(here), weights, tuple(weighted)) if here == scores else None
    single = all(len(found) == 1 for found in (tops, most, weighted, here))
    if not single or weights[0] is not tops[0].src[0]:
        return None
    return Merged(ast, tuple(here), weights, tuple(weighted), weights[0].src[0].src[0], most[0], tops[0])


def _of_products(n: UOp) -> bool:
    return n.arg[0] == "ADD" and n.src[0].op is Ops.MUL


def widened(x: UOp) -> UOp:
    """Return a value before its conversions between floats."""
    while x.op is Ops.CAST and x.src[0].dtype.is_float:
        x = x.src[0]
    return x


def merged(chain: UOp) -> Merged | None:
    """Return a chain of three parts as one kernel; None if the middle part is no softmax of whole rows.

    None also if a part loads at computed indices, or if the parts do not use one range of keys. product,
    softmax, product → `sum(exp(s - max(s)) * v) / sum(exp(s - max(s)))`, with the score s in place of the
    loads. The three reductions run over the keys, and can share a loop (`LoopNest.online`). Weights that are
    rounded are rounded before the division. `nest.merge_check.verify_merged` checks the result.
    """
    scores, middle, last = chain.src
    weights = _weights(middle)
    sums = [n for n in ordered(last) if n.op is Ops.REDUCE]
    if any(n.op is Ops.INDEXOF for n in ordered(chain)):
        return None
    if weights is None or len(sums) != 1 or len(sums[0].arg[1]) != 1:
        return None
    shared, (node,) = chain.arg[1], sums
    (key,) = bound_ranges(node, ranges_in(last))
    load = next((s for s in node.src[0].src if s.op is Ops.LOAD and s.src[0].arg == weights.slot), None)
    inner = _within_row(scores.src[0].src[1], shared)
    if load is None or inner is None or _within_row(load.src[1], shared) is not key:
        return None
    if not inner.arg[1] == weights.along.arg[1] == key.arg[1]:
        return None
    first = 1 + max(n.arg[0] for n in ordered(last) if n.op is Ops.RANGE)
    others = [n for n in ordered(scores) if n.op is Ops.RANGE and n.arg[0] >= shared and n is not inner]
    env = {r: symbolic.loop(first + k, r.arg[1]) for k, r in enumerate(others)} | {inner: key}
    s = replace_ranges(scores, env).src[0].src[2]
    other = symbolic.loop(first + len(others), key.arg[1])
    largest = uop(Ops.REDUCE, _F32, (replace_ranges(s, {key: other}),), ("MAX", (other.arg[0],)))
    top = _exp(s, largest)
    value, total, weighted = _quotient(top, node, load, weights)
    products = [n for n in ordered(s) if n.op is Ops.REDUCE]
    if len(products) != 1 or len(products[0].arg[1]) != 1:
        return None
    found = (s, largest, total)
    return Merged(replace_value(last, node, value), (products[0],), (top,), (weighted,), *found)


@dataclass(frozen=True, slots=True)
class _Weights:
    """What the middle part of a chain stores."""

    slot: int
    along: UOp
    """The range along the rows."""
    rounded: tuple[UOp, ...]
    """The conversions of the weights, innermost first."""
    seen: bool
    """Whether the weights of a row of which every score is -inf are 0."""


def _weights(middle: UOp) -> _Weights | None:
    """Return what a part stores, if it is a softmax of whole rows of another part's results."""
    if len(middle.src) != 1:
        return None
    store, rounded = middle.src[0], list[UOp]()
    value = store.src[2]
    while value.op is Ops.CAST and value.dtype.is_float:
        rounded.insert(0, value)
        value = value.src[0]
    seen = value.op is Ops.WHERE and value.src[1].op is Ops.CONST and value.src[1].arg == 0
    if seen:
        unseen, _, value = value.src
        if unseen.op is not Ops.EQ or unseen.src[1].arg != -math.inf or unseen.src[0].op is not Ops.REDUCE:
            return None
        value = _without(value, unseen)
    free = ranges_in(_sink(uop(Ops.STORE, dtypes.void, (*store.src[:2], value))))
    along = _along(value, free)
    if along is None:
        return None
    x = value.src[0].src[0].src[0]
    places = [symbolic.terms_of(at)[0].get(along) for at in (x.src[1], store.src[1])]
    same = len(x.src) == 2 and len(store.src) == 3 and x.src[1] is store.src[1]
    return _Weights(store.src[0].arg, along, tuple(rounded), seen) if same and places == [1, 1] else None


def _without(value: UOp, unseen: UOp) -> UOp:
    """Return a value as it is where `unseen`, one of its conditions, is false."""
    done: dict[UOp, UOp] = {}
    for n in ordered(value):
        src = tuple([done[s] for s in n.src])
        plain = n.op is Ops.WHERE and n.src[0] is unseen
        done[n] = src[2] if plain else uop(n.op, n.dtype, src, n.arg)
    return done[value]


def _within_row(index: UOp, shared: int) -> UOp | None:
    """Return the range that counts the places in a row, one by one; None if there is no such range."""
    terms, constant = symbolic.terms_of(index)
    own = [(r, c) for r, c in terms.items() if r.op is not Ops.RANGE or r.arg[0] >= shared]
    return own[0][0] if not constant and len(own) == 1 and own[0][1] == 1 else None


def _quotient(top: UOp, node: UOp, load: UOp, weights: _Weights) -> tuple[UOp, UOp, UOp]:
    """Return the value of the last part's sum `node`, with exponentials in place of the loaded weights.

    The others are the sum of exponentials, and that of weighted values.
    """
    total, largest = uop(Ops.REDUCE, _F32, (top,), node.arg), top.src[0].src[1]
    rounded = top
    for cast in weights.rounded:
        rounded = uop(Ops.CAST, cast.dtype, (rounded,))
    factors = tuple([rounded if f is load else f for f in node.src[0].src])
    value = uop(Ops.REDUCE, node.dtype, (uop(Ops.MUL, node.src[0].dtype, factors),), node.arg)
    scale = uop(Ops.DIV, _F32, (const(1.0, _F32), total))
    if weights.seen:  # the exponentials of a row without a key are 0
        none = uop(Ops.EQ, dtypes.bool, (largest, const(-math.inf, _F32)))
        scale = uop(Ops.WHERE, _F32, (none, const(1.0, _F32), scale))
    return uop(Ops.MUL, _F32, (value, scale)), total, value


def _sink(*stores: UOp) -> UOp:
    return uop(Ops.SINK, dtypes.void, stores)


def _exp(x: UOp, base: UOp) -> UOp:
    return uop(Ops.EXP, _F32, (uop(Ops.SUB, _F32, (x, base)),))


def _scaled(before: UOp, factor: UOp, more: UOp) -> UOp:
    return uop(Ops.ADD, _F32, (uop(Ops.MUL, _F32, (before, factor)), more))
