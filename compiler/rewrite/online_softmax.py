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
    """Return the keys of a piece of a chain of three parts.

    Return 0 if the middle part is no softmax of float32, or if no divisor of the number of keys is between
    `LEAST_KEYS` and `MOST_KEYS`.
    """
    scores, middle, last = parts
    keys = _softmax(middle)
    node = next(n for n in ordered(last) if n.op is Ops.REDUCE)
    stored = [part.src[0].src[0].dtype for part in (scores, middle)]
    if keys is None or len(node.arg[1]) != 1 or any(dtype is not _F32 for dtype in (node.dtype, *stored)):
        return 0
    most = next(d for d in range(min(keys.arg[1], MOST_KEYS), 0, -1) if keys.arg[1] % d == 0)
    return most if most >= LEAST_KEYS else 0


def _softmax(ast: UOp) -> UOp | None:
    """Return the range along the rows of exp(x - max(x)) / sum(exp(x - max(x))) of loaded x.

    Return None if the kernel computes anything else.
    """
    value, free = ast.src[0].src[2], ranges_in(ast)
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


def _sink(*stores: UOp) -> UOp:
    return uop(Ops.SINK, dtypes.void, stores)


def _exp(x: UOp, base: UOp) -> UOp:
    return uop(Ops.EXP, _F32, (uop(Ops.SUB, _F32, (x, base)),))


def _scaled(before: UOp, factor: UOp, more: UOp) -> UOp:
    return uop(Ops.ADD, _F32, (uop(Ops.MUL, _F32, (before, factor)), more))
