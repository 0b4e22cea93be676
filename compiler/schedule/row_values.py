"""The values of a schedule's temporary buffers as functions of sums of products and of sums of rows.

A softmax between products is found here, and the products that are functions of its weights. In this module
the arg of a BUFFER is its `BufRef`. A sum over each row of a matrix is a LOAD of a `RowSum`, which no kernel
stores: equal sums of equal values have one.

Not here: the kernels that compute weights again (`recomputed`, the caller).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import bound_ranges, by_number, ordered, ranges_in
from compiler.rewrite.online_softmax import widened
from compiler.rewrite.range_merging import replace_ranges, split_ranges
from compiler.schedule.chains import is_product, with_buffers
from compiler.schedule.item import BufRef, TempRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType
    from compiler.schedule.item import ScheduleItem

_F32 = dtypes.float32
FIRST = 1 << 16
"""The number of the first range that this module makes; the ranges of a kernel are numbered again."""
ROW, KEY, DEPTH = FIRST - 3, FIRST - 2, FIRST - 1
"""The numbers of ranges in values that are compared: of the rows of a matrix, its columns, and a sum."""


class RowSum(BufRef):
    """A REDUCE over each row of a matrix."""

    __slots__ = ()
    kind = "row"


@dataclass(frozen=True, slots=True)
class Softmax:
    """The softmax of the rows of a matrix of scores."""

    scores: TempRef
    rows: int
    keys: int
    largest: UOp
    """LOADs of the two sums in row `ROW`."""
    total: UOp
    top: UOp
    """The exponential of the score in row `ROW` and column `KEY`."""


@dataclass(frozen=True, slots=True)
class Use:
    """A product of which one factor is a function of a softmax's weights."""

    number: int
    """That of the item."""
    ast: UOp
    node: UOp
    """The REDUCE."""
    factor: UOp
    weight: UOp
    """The factor without conversions, for rows that see a key."""
    value: UOp
    """The other factor."""
    at: UOp
    """The index of the score in its matrix."""
    roles: tuple[tuple[int, UOp], ...]
    """(Coefficient in that index, range), the outermost first; then (0, the other output range)."""

    @property
    def along(self) -> bool:
        """Whether the sum is over the keys, not over rows."""
        return self.roles[-2][1].arg[0] in self.node.arg[1]


class RowValues:
    """The values of a schedule's temporary buffers as functions of products and of sums of rows."""

    def __init__(self, items: Sequence[ScheduleItem]) -> None:
        self.items = items
        self.writers = {ref: n for n, item in enumerate(items) for ref in item.writes}
        self.temps = 1 + max([ref.n for ref in self.writers if isinstance(ref, TempRef)], default=-1)
        self.ranges = FIRST
        self.values: dict[BufRef, UOp] = {}
        """For a buffer the STORE of its values, a function of other buffers alone."""
        self.products: dict[BufRef, UOp] = {}
        """For a buffer of sums of products its STORE."""
        self.sums: dict[tuple[str, UOp], RowSum] = {}
        """For a sum of each row, (operation, value in row `ROW` and column `KEY`), its number."""
        self.asts: dict[int, UOp] = {}
        """For an item with a sum of products its AST."""
        self.raw: dict[BufRef, UOp] = {}
        """For a buffer its STORE as it is."""
        if any(n.op is Ops.REDUCE and n.arg[0] == "MAX" for item in items for n in ordered(item.ast)):
            for number, item in enumerate(items):
                if not item.ast.arg:
                    self._read(number, item)

    def _read(self, number: int, item: ScheduleItem) -> None:
        ast = with_buffers(item.ast, item.bufs)
        free, product, done = ranges_in(ast), is_product(ast), dict[UOp, UOp]()
        self.raw |= {store.src[0].arg: store for store in ast.src}
        for node in ordered(ast):
            src = tuple([done[s] for s in node.src])
            if node.op is Ops.LOAD and len(src) == 2 and src[0].arg in self.values:
                made = self.at(self.values[src[0].arg], src[1])
            elif node.op is Ops.REDUCE and not product:
                made = self._sum(node, src[0], free)
            else:
                made = node if src == node.src else uop(node.op, node.dtype, src, node.arg)
            done[node] = made
        for store in done[ast].src:
            terms, constant = symbolic.terms_of(store.src[1])
            simple = len(store.src) == 3 and not constant and all(r.op is Ops.RANGE for r in terms)
            if isinstance(store.src[0].arg, TempRef) and simple:
                (self.products if product else self.values)[store.src[0].arg] = store
        if product:
            self.asts[number] = done[ast]

    def at(self, store: UOp, index: UOp) -> UOp:
        """Return the value of a STORE at an index, with new ranges in its sums."""
        env = _places(store.src[1], index)
        bound = {n for n in ordered(store.src[2]) if n.op is Ops.RANGE} - env.keys()
        env |= {r: self.fresh(r.arg[1]) for r in by_number(bound)}
        return replace_ranges(store.src[2], env)

    def _sum(self, node: UOp, value: UOp, free: dict[UOp, frozenset[UOp]]) -> UOp:
        """Return a sum of each row as a LOAD in that row; any other REDUCE with a changed value."""
        own, bound = by_number(free[node]), bound_ranges(node, free)
        if len(bound) != 1 or not own or node.dtype is not _F32:
            return uop(node.op, node.dtype, (value,), node.arg)
        (key,), sizes = bound, [r.arg[1] for r in own]
        row = symbolic.dot(own, symbolic.strides_of(sizes))
        value = _in_one(self.seen(value), own, symbolic.loop(ROW, prod(sizes)))
        of = node.arg[0], replace_ranges(value, {key: symbolic.loop(KEY, key.arg[1])})
        ref = self.sums.setdefault(of, RowSum(len(self.sums), _F32, (prod(sizes), key.arg[1])))
        return load_of(ref, row)

    def seen(self, x: UOp, *, unseen: bool = False) -> UOp:
        """Return a value for rows of which some score is not -inf, or for the others."""
        most = [ref for (op, _), ref in self.sums.items() if op == "MAX"]
        done: dict[UOp, UOp] = {}
        for n in ordered(x):
            src = tuple([done[s] for s in n.src])
            condition = n.src[0] if n.op is Ops.WHERE else n
            if (
                condition.op is Ops.EQ
                and condition.src[1].op is Ops.CONST
                and condition.src[1].arg == -math.inf
            ):
                load = condition.src[0]
                if n.op is Ops.WHERE and load.op is Ops.LOAD and load.src[0].arg in most:
                    done[n] = src[1] if unseen else src[2]
                    continue
            done[n] = uop(n.op, n.dtype, src, n.arg) if src != n.src else n
            if unseen and is_zero(done[n]):
                done[n] = const(0.0, n.dtype)
        return done[x]

    def softmaxes(self) -> list[Softmax]:
        """Return the softmaxes of rows of products."""
        found = []
        for (op, top), ref in self.sums.items():
            rows, keys = ref.shape
            row = symbolic.loop(ROW, rows)
            if op != "ADD" or top.op is not Ops.EXP or top.src[0].op is not Ops.SUB:
                continue
            x = top.src[0].src[0]
            most = self.sums.get(("MAX", x))
            at = symbolic.dot((row, symbolic.loop(KEY, keys)), (keys, 1))
            if x.op is Ops.LOAD and x.src[0].arg in self.products and x.src[1] is at and most is not None:
                largest = load_of(most, row)
                if top.src[0].src[1] is largest:
                    found.append(Softmax(x.src[0].arg, rows, keys, largest, load_of(ref, row), top))
        return found

    def uses(self, s: Softmax) -> list[Use] | None:
        """Return the products with functions of a softmax's weights; None if one has another form."""
        found = []
        for number, ast in self.asts.items():
            if any(n.op is Ops.LOAD and n.src[0].arg == s.scores for n in ordered(ast)):
                one = self.use(s, number, split_ranges(ast) or ast)
                if one is None:
                    return None
                found.append(one)
        return found

    def use(self, s: Softmax, number: int, ast: UOp) -> Use | None:
        """Return a product as one with a softmax's weights; None if it has another form."""
        node, *others = [n for n in ordered(ast) if n.op is Ops.REDUCE]  # others: of the values it loads
        unknown = any(n.op in (Ops.VAR, Ops.INDEXOF) for n in ordered(ast))
        if others or unknown or symbolic.terms_of(ast.src[0].src[1])[1]:
            return None
        loads = [n for n in ordered(ast) if n.op is Ops.LOAD and n.src[0].arg == s.scores]
        factors = [x for x in node.src[0].src if any(n in loads for n in ordered(x))]
        if len(loads) != 1 or len(factors) != 1 or len(ast.src) != 1 or len(node.arg[1]) != 1:
            return None
        (factor,), at, free = factors, loads[0].src[1], ranges_in(ast)
        (value,) = [x for x in node.src[0].src if x is not factor]
        terms, constant = symbolic.terms_of(at)
        rest = [r for r in free[ast.src[0].src[1]] if r not in terms]
        if constant or len(rest) != 1 or any(r.op is not Ops.RANGE for r in terms) or 1 not in terms.values():
            return None
        roles = (*sorted([(c, r) for r, c in terms.items()], key=lambda role: -role[0]), (0, rest[0]))
        whole = self.seen(factor, unseen=True)
        weight = widened(self.seen(widened(factor)))
        if self.seen(factor) is not factor and not is_zero(whole):
            return None
        return Use(number, ast, node, factor, weight, value, at, roles)

    def temp(self, dtype: DType, shape: tuple[int, ...]) -> TempRef:
        """Return a new temporary buffer."""
        self.temps += 1
        return TempRef(self.temps - 1, dtype, shape)

    def fresh(self, size: int) -> UOp:
        """Return a new range."""
        self.ranges += 1
        return symbolic.loop(self.ranges, size)


def sink(*stores: UOp) -> UOp:
    """Return a kernel of some stores."""
    return uop(Ops.SINK, dtypes.void, stores)


def load_of(ref: BufRef, at: UOp) -> UOp:
    """Return a LOAD from a buffer."""
    return uop(Ops.LOAD, ref.dtype, (uop(Ops.BUFFER, ref.dtype, (), ref), at))


def store_to(ref: BufRef, at: UOp, value: UOp) -> UOp:
    """Return a STORE to a buffer."""
    return uop(Ops.STORE, dtypes.void, (uop(Ops.BUFFER, ref.dtype, (), ref), at, value))


def is_zero(x: UOp) -> bool:
    """Return whether a value is 0 because a factor is: of finite values."""
    if x.op is Ops.CONST:
        return bool(x.arg == 0)
    if x.op in (Ops.MUL, Ops.DIV):
        return is_zero(x.src[0]) or (x.op is Ops.MUL and is_zero(x.src[1]))
    if x.op is Ops.WHERE:
        return is_zero(x.src[1]) and is_zero(x.src[2])
    return x.op in (Ops.CAST, Ops.NEG) and is_zero(x.src[0])


def _places(index: UOp, at: UOp) -> dict[UOp, UOp]:
    """Return the values of an index's ranges at which it is `at`; the index is without gaps."""
    terms, _ = symbolic.terms_of(index)
    return {r: symbolic.mod(symbolic.div(at, c), r.arg[1]) for r, c in terms.items()}


def _in_one(value: UOp, ranges: Sequence[UOp], at: UOp) -> UOp:
    """Return a value with an index in place of ranges that it counts, the outermost first.

    Two at a time: then `a // 6 * 6 + a // 3 % 2 * 3 + a % 3` is a again.
    """
    while len(ranges) > 1:
        *ranges, a, b = ranges
        both = at if not ranges else symbolic.loop(b.arg[0], a.arg[1] * b.arg[1])
        value = replace_ranges(value, {a: symbolic.div(both, b.arg[1]), b: symbolic.mod(both, b.arg[1])})
        ranges = [*ranges, both]
    return value if ranges[0] is at else replace_ranges(value, {ranges[0]: at})


def in_place(s: Softmax, value: UOp, index: UOp) -> UOp:
    """Return a value for row `ROW` and column `KEY` of a matrix, of which its ranges count `index`."""
    terms, _ = symbolic.terms_of(index)
    ranges = sorted(terms, key=lambda r: -terms[r])
    value = replace_ranges(value, {r: symbolic.loop(KEY, s.keys) for r in ranges if terms[r] == 1})
    return _in_one(value, [r for r in ranges if terms[r] > 1], symbolic.loop(ROW, s.rows))


def in_row(s: Softmax, value: UOp, at: UOp) -> UOp:
    """Return a value in row `ROW` and column `KEY` at an index of the matrix of scores."""
    row, key = symbolic.loop(ROW, s.rows), symbolic.loop(KEY, s.keys)
    return replace_ranges(value, {row: symbolic.div(at, s.keys), key: symbolic.mod(at, s.keys)})
