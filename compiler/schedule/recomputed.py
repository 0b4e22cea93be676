"""Gradients of attention: kernels that compute weights again, instead of matrices of weights in memory.

A softmax between products has a matrix of weights, and its gradient one of their gradients. Both are
functions of sums of products and of values of whole rows: the largest score, the sum of exponentials, and
the sum of weights times their gradients. The kernel of the results also stores the first two for each row
(`largest`, and 1 / `total`). The third is the sum of results times their gradients, because a result is the
sum of weighted values: a small kernel computes it. Each product with a matrix then computes the elements
that it needs in registers. Two products that are sums over the same rows are one kernel. Source: T. Dao,
"FlashAttention-2", arXiv:2307.08691 (2023), section 3.1.

Every new kernel is compared with those that it replaces (`merge_check.verify_recomputed`).

Not here: attention without gradients (`chains`), plans of the new kernels (`compiler.plan.online_product`).
Next: `row_values`, which finds a softmax and its products; `threaded`, the caller.
"""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import HALF, dtypes
from compiler.ir import graph
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import bound_ranges, by_number, ordered, ranges_in
from compiler.nest.merge_check import verify_merged, verify_recomputed
from compiler.rewrite.online_softmax import merged, widened
from compiler.rewrite.range_merging import replace_ranges, replace_value
from compiler.schedule.chains import joined, may_wait, with_buffers
from compiler.schedule.item import BufRef, ScheduleItem, TempRef, needed
from compiler.schedule.row_values import (
    DEPTH,
    FIRST,
    KEY,
    ROW,
    RowSum,
    RowValues,
    in_place,
    in_row,
    load_of,
    sink,
    store_to,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from compiler.dtype import DType
    from compiler.schedule.row_values import Softmax, Use

_F32 = dtypes.float32


def recompute_weights(items: Sequence[ScheduleItem], fits: Callable[[UOp], bool]) -> list[ScheduleItem]:
    """Return the schedule with the products of each softmax and its gradient as kernels without a matrix.

    `fits` returns whether a kernel has a plan. A softmax stays as it is where one of its kernels has none.
    """
    found = RowValues(items)
    made: dict[int, list[ScheduleItem]] = {}
    gone: set[int] = set()
    for softmax in found.softmaxes():
        new = _replaced(found, softmax, fits)
        if new is not None and gone.isdisjoint(new[1]):
            for at, item in new[0]:
                made.setdefault(at, []).append(item)
            gone |= new[1]
    if not gone:
        return list(items)
    out: list[ScheduleItem] = []
    for n, item in enumerate(items):
        out += made.get(n, []) + ([] if n in gone else [item])
    out = needed(out)
    return out if _in_order(out) else list(items)


def _in_order(items: Sequence[ScheduleItem]) -> bool:
    """Return whether every temporary buffer is stored before it is loaded."""
    stored: set[BufRef] = set()
    for item in items:
        loads = {ref for slot, ref in enumerate(item.bufs) if slot not in item.stores}
        if any(isinstance(ref, TempRef) and ref not in stored for ref in loads):
            return False
        stored.update(item.writes)
    return True


def _replaced(
    of: RowValues, s: Softmax, fits: Callable[[UOp], bool]
) -> tuple[list[tuple[int, ScheduleItem]], set[int]] | None:
    """Return (position, kernel) of each new kernel, and the numbers of the items that they replace."""
    uses, first = of.uses(s), of.items[of.writers[s.scores]]
    if uses is None or not uses or len(first.stores) != 1 or first.values[0].shape[-1] != s.keys:
        return None
    made = _Kernels(of, s, uses, fits).made()
    replaced = {u.number for u in uses}
    among = sorted({of.writers[s.scores], *replaced})
    return (made, replaced) if made is not None and may_wait(of.items, among) else None


class _Kernels:
    """The new kernels of one softmax."""

    def __init__(self, of: RowValues, s: Softmax, uses: list[Use], fits: Callable[[UOp], bool]) -> None:
        self.of, self.s, self.uses, self.fits = of, s, uses, fits
        self.unseen = any(of.seen(widened(u.factor)) is not widened(u.factor) for u in uses)
        self.largest, self.total = of.temp(_F32, (s.rows,)), of.temp(_F32, (s.rows,))
        self.sums: dict[BufRef, TempRef] = {}
        """For a further sum of each row the buffer that holds it."""
        self.result_node: UOp | None = None
        """The node of the results in the tensor graph, where no item has it."""
        first = of.items[of.writers[s.scores]]
        self.scores = first.values[0]
        """The node of the tensor graph, and below that the values of `largest` and `total`."""
        axis = len(self.scores.shape) - 1
        most = graph.reduce(self.scores, "MAX", (axis,))
        wide = graph.expand(graph.reshape(most, (*most.shape[:axis], 1)), self.scores.shape)
        self.tops = graph.unary(Ops.EXP, graph.binary(Ops.SUB, self.scores, wide))
        one = graph.full(1.0, most.shape, _F32)
        self.nodes = most, graph.binary(Ops.DIV, one, graph.reduce(self.tops, "ADD", (axis,)))
        if self.unseen:
            none = graph.binary(Ops.EQ, most, graph.full(-math.inf, most.shape, _F32))
            high, zero = (graph.full(x, most.shape, _F32) for x in (math.inf, 0.0))
            self.nodes = graph.where(none, high, most), graph.where(none, zero, self.nodes[1])

    def made(self) -> list[tuple[int, ScheduleItem]] | None:
        """Return (position, kernel) of each kernel; None where one has no plan.

        None also where a sum of a row or the result has another form.
        """
        of, s = self.of, self.s
        probability = uop(Ops.DIV, _F32, (s.top, s.total))
        results = [u for u in self.uses if u.along and u.weight is in_row(s, probability, u.at)]
        if results == self.uses:
            return None
        further = {
            n.src[0].arg: None for u in self.uses for n in ordered(u.weight)
            if n.op is Ops.LOAD and isinstance(n.src[0].arg, RowSum)
        }  # fmt: skip
        known = {x.src[0].arg for x in (s.largest, s.total)}
        parsed = {ref: self._gradient(ref) for ref in further if ref not in known}
        loads = [found[0] for found in parsed.values() if found is not None]
        if len(loads) < len(parsed):
            return None
        last = max([of.writers[s.scores], *[of.writers[x] for x in loads]])
        result = results[0] if results else self._result(loads[0], last) if loads else None
        if result is None or widened(result.ast.src[0].src[2]) is not result.node:
            return None
        forward = self._forward(result)
        if forward is None:
            return None
        at = min(last, result.number) if loads else result.number
        out = [(at, forward)]
        for ref, (product, sign, power) in ((r, p) for r, p in parsed.items() if p is not None):
            item = self._row_sum(ref, product, sign, power, result)
            if item is None:
                return None
            at = max(at, of.writers[product])
            out.append((at, item))
        for group in self._groups([u for u in self.uses if u is not result]):
            item = self._gradients(group)
            if item is None:
                return None
            out.append((max(at, min([u.number for u in group])), item))
        return out

    def _gradient(self, ref: BufRef) -> tuple[TempRef, int, int] | None:
        """Return (p, sign, power) of a sum of each row that is sign * sum(weights * p) / total**power."""
        s = self.s
        of = next(of for of, known in self.of.sums.items() if known == ref)
        sign, over, under = _factors(of[1])
        loads = [x for x in over if x.op is Ops.LOAD]
        if of[0] != "ADD" or len(over) != 2 or len(loads) != 1 or s.top not in over or not under:
            return None
        at = symbolic.dot((symbolic.loop(ROW, s.rows), symbolic.loop(KEY, s.keys)), (s.keys, 1))
        (load,) = loads
        same = load.src[0].arg in self.of.products and load.src[1] is at and ref.shape == (s.rows, s.keys)
        if not same or any(x is not s.total for x in under):
            return None
        return load.src[0].arg, sign, len(under) - 1

    def _canonical(self, product: TempRef) -> tuple[UOp, UOp] | None:
        """Return the factors of a product as functions of rows, keys and the sum, that of the keys second."""
        store, s = self.of.products[product], self.s
        node = widened(self.of.seen(store.src[2]))
        if node.op is not Ops.REDUCE or len(node.arg[1]) != 1:
            return None
        (depth,) = bound_ranges(node, ranges_in(node))
        key, env = symbolic.loop(KEY, s.keys), {depth: symbolic.loop(DEPTH, depth.arg[1])}
        x, y = [replace_ranges(in_place(s, f, store.src[1]), env) for f in node.src[0].src]
        x, y = (y, x) if key in ordered(x) else (x, y)
        return (x, y) if key not in ordered(x) else None

    def _result(self, product: TempRef, number: int) -> Use | None:
        """Return the sum of weighted values where no item has it; `product` is its gradient @ values."""
        s, store, of = self.s, self.of.products[product], self.of
        node = widened(of.seen(store.src[2]))
        if node.op is not Ops.REDUCE or len(node.arg[1]) != 1:
            return None
        (depth,) = bound_ranges(node, ranges_in(node))
        terms, _ = symbolic.terms_of(store.src[1])
        key = next((r for r, c in terms.items() if c == 1), None)
        values = [x for x in node.src[0].src if key in ordered(x)]
        item = of.items[of.writers[product]]
        self.result_node = self._node_of(item.values[item.stores.index(item.bufs.index(product))])
        if key is None or len(values) != 1 or self.result_node is None:
            return None
        column, summed = of.fresh(depth.arg[1]), of.fresh(s.keys)
        value = replace_ranges(values[0], {key: summed, depth: column})
        kind = value.src[0].dtype
        at = replace_ranges(store.src[1], {key: summed})
        weight = in_row(s, uop(Ops.DIV, _F32, (s.top, s.total)), at)
        if self.unseen:
            none = uop(Ops.EQ, dtypes.bool, (in_row(s, s.largest, at), const(-math.inf, _F32)))
            weight = uop(Ops.WHERE, _F32, (none, const(0.0, _F32), weight))
        for dtype in (kind, _F32):
            weight = uop(Ops.CAST, dtype, (weight,))
        product_ = uop(Ops.MUL, _F32, (weight, value))
        total = uop(Ops.CAST, kind, (uop(Ops.REDUCE, _F32, (product_,), ("ADD", (summed.arg[0],))),))
        row = symbolic.div(symbolic.linear({r: c for r, c in terms.items() if r is not key}, 0), s.keys)
        width = depth.arg[1]
        ref = of.temp(kind, (s.rows, width))
        place = symbolic.dot((row, column), (width, 1))
        return of.use(s, number, sink(store_to(ref, place, total)))

    def _node_of(self, gradient: UOp) -> UOp | None:
        """Return the node of the results from that of a gradient times the values; None if unknown."""
        kind = next((x.dtype for x in ordered(gradient) if x.dtype in HALF), _F32)
        while gradient.op in (Ops.CAST, Ops.RESHAPE, Ops.WHERE):
            gradient = gradient.src[-1]
        if gradient.op is not Ops.REDUCE or gradient.src[0].op is not Ops.MUL:
            return None
        shape, axes = gradient.src[0].shape, gradient.arg[1]
        spread = [x for x in gradient.src[0].src if x.op is Ops.EXPAND and x.src[0].shape[-1] == self.s.keys]
        if axes != (len(shape) - 2,) or len(spread) != 1 or prod(shape[:-2]) != self.s.rows:
            return None
        inverse = graph.reshape(self.nodes[1], (*self.scores.shape[:-1], 1))
        weights = graph.binary(Ops.MUL, self.tops, graph.expand(inverse, self.scores.shape))
        weights = graph.expand(graph.reshape(weights, (*shape[:-2], 1, shape[-1])), shape)
        total = graph.reduce(graph.binary(Ops.MUL, weights, spread[0]), "ADD", (len(shape) - 1,))
        return graph.cast(total, kind)

    def _forward(self, result: Use) -> ScheduleItem | None:
        """Return the kernel of the results, which also stores two values of each row."""
        of, s = self.of, self.s
        first = of.items[of.writers[s.scores]]
        weights = of.temp(_F32, (s.rows, s.keys))
        last = replace_value(result.ast, result.factor, load_of(weights, result.at))
        own = result.ast.src[0].src[0].arg
        item = of.items[result.number]
        values = item.values if own in item.writes or self.result_node is None else (self.result_node,)
        chain = joined((first, self._middle(weights, result.factor), item_of(last, values)), self.fits)
        found = None if chain is None else merged(chain.ast)
        if chain is None or found is None:
            return None
        assert found.largest is not None
        assert found.total is not None
        verify_merged(chain.ast, found.ast, found)
        loaded = next(
            n for n in ordered(chain.ast.src[2]) if n.op is Ops.LOAD and n.src[0].arg >= chain.ast.arg[0]
        )
        terms, _ = symbolic.terms_of(loaded.src[1])
        rows = {r: c for r, c in terms.items() if c != 1}
        row = symbolic.div(symbolic.linear(rows, 0), s.keys)
        columns = [r for r in ranges_in(found.ast)[found.ast.src[0].src[1]] if r not in rows]
        inverse = uop(Ops.DIV, _F32, (const(1.0, _F32), found.total))
        values_ = [found.largest, inverse]
        if self.unseen:
            none = uop(Ops.EQ, dtypes.bool, (found.largest, const(-math.inf, _F32)))
            values_ = [
                uop(Ops.WHERE, _F32, (none, const(x, _F32), y))
                for x, y in zip((math.inf, 0.0), values_, strict=True)
            ]
        mask = [symbolic.lt(c, 1) for c in columns]
        stores = [
            uop(Ops.STORE, dtypes.void, (uop(Ops.BUFFER, _F32, (), len(chain.bufs) + n), row, value, *mask))
            for n, value in enumerate(values_)
        ]
        ast = with_buffers(sink(*found.ast.src, *stores), (*chain.bufs, self.largest, self.total))
        return self._merged(ast, (*values, *self.nodes))

    def _middle(self, weights: TempRef, factor: UOp) -> ScheduleItem:
        """Return a kernel that stores the weights, with the conversions of a factor."""
        s = self.s
        row, *keys = (symbolic.loop(n, size) for n, size in enumerate((s.rows, s.keys, s.keys, s.keys)))
        x, y, z = (load_of(s.scores, symbolic.dot((row, key), (s.keys, 1))) for key in keys)
        largest = uop(Ops.REDUCE, _F32, (y,), ("MAX", (2,)))
        top, other = (uop(Ops.EXP, _F32, (uop(Ops.SUB, _F32, (v, largest)),)) for v in (x, z))
        value = uop(Ops.DIV, _F32, (top, uop(Ops.REDUCE, _F32, (other,), ("ADD", (3,)))))
        if self.unseen:
            none = uop(Ops.EQ, dtypes.bool, (largest, const(-math.inf, _F32)))
            value = uop(Ops.WHERE, _F32, (none, const(0.0, _F32), value))
        casts: list[DType] = []
        while factor.op is Ops.CAST and factor.src[0].dtype.is_float:
            casts.insert(0, factor.dtype)
            factor = factor.src[0]
        for dtype in casts:
            value = uop(Ops.CAST, dtype, (value,))
        return item_of(
            sink(store_to(weights, symbolic.dot((row, keys[0]), (s.keys, 1)), value)), (self.scores,)
        )

    def _row_sum(
        self, ref: BufRef, product: TempRef, sign: int, power: int, result: Use
    ) -> ScheduleItem | None:
        """Return the kernel of a sum of each row, as the sum of results times their gradients."""
        s, factors = self.s, self._canonical(product)
        if factors is None:
            return None
        gradient, values = factors
        (_, column), store = result.roles[-1], result.ast.src[0]
        row, env = symbolic.loop(ROW, s.rows), {column: symbolic.loop(DEPTH, column.arg[1])}
        value, place = (replace_ranges(in_place(s, x, result.at), env) for x in (result.value, store.src[1]))
        if value is not values:
            return None
        found = load_of(store.src[0].arg, place)
        found = found if found.dtype is _F32 else uop(Ops.CAST, _F32, (found,))
        total = uop(Ops.REDUCE, _F32, (uop(Ops.MUL, _F32, (gradient, found)),), ("ADD", (DEPTH,)))
        for _ in range(power):
            total = uop(Ops.MUL, _F32, (total, load_of(self.total, row)))
        self.sums[ref] = buffer = self.of.temp(_F32, (s.rows,))
        value = total if sign > 0 else uop(Ops.NEG, _F32, (total,))
        return item_of(sink(store_to(buffer, row, value)), (self._sum_node(product, sign, power),))

    def _sum_node(self, product: TempRef, sign: int, power: int) -> UOp:
        """Return the node of the tensor graph of a further sum of each row."""
        item = self.of.items[self.of.writers[product]]
        shape = self.scores.shape
        other = graph.reshape(item.values[item.stores.index(item.bufs.index(product))], shape)
        other = other if other.dtype is _F32 else graph.cast(other, _F32)
        node = graph.reduce(graph.binary(Ops.MUL, self.tops, other), "ADD", (len(shape) - 1,))
        for _ in range(power + 1):
            node = graph.binary(Ops.MUL, node, self.nodes[1])
        return node if sign > 0 else graph.unary(Ops.NEG, node)

    def _groups(self, uses: list[Use]) -> list[list[Use]]:
        """Return the uses of each kernel: sums over the same rows share one if their results are alike."""
        groups: dict[object, list[Use]] = {}
        inner = {(c, r.arg[1]) for u in uses for c, r in u.roles}
        stored = {u.ast.src[0].src[0].arg for u in uses}
        for given in uses:
            u = given if given.along else self._divided(given, inner)
            sizes = tuple([(c, r.arg[1]) for c, r in u.roles])
            kind = u.ast.src[0].src[0].dtype
            reads = any(
                n.op is Ops.LOAD and n.src[0].arg in stored for n in ordered(u.ast)
            )  # another's result
            groups.setdefault(u.number if u.along or reads else (sizes, kind), []).append(u)
        return list(groups.values())

    def _divided(self, u: Use, inner: Iterable[tuple[int, int]]) -> Use:
        """Return a use with each range of rows divided where others are, (coefficient, size)."""
        env: dict[UOp, UOp] = {}
        for c, r in u.roles:
            size = min([n for at, n in inner if at == c and r.arg[1] % n == 0])
            if c and size < r.arg[1]:
                parts = self.of.fresh(r.arg[1] // size), self.of.fresh(size)
                env[r] = symbolic.dot(parts, (size, 1))
        return (self.of.use(self.s, u.number, replace_ranges(u.ast, env)) or u) if env else u

    def _gradients(self, group: list[Use]) -> ScheduleItem | None:
        """Return the kernel of some uses, in which weights are functions of scores and of values of rows."""
        stores, known = [], dict[tuple[BufRef, UOp], UOp]()
        for u in group:
            env = {r: to for (_, r), (_, to) in zip(u.roles, group[0].roles, strict=True)}
            weight = self._weight(replace_ranges(u.weight, env), known)
            if weight is None:
                return None
            factor = replace_ranges(u.factor, env)
            stores.append(replace_value(replace_ranges(u.ast, env), factor, weight).src[0])
        ast = sink(*stores)
        if any(n.op in (Ops.VAR, Ops.INDEXOF) for n in ordered(ast)):
            return None
        rows = {self.largest, self.total, *self.sums.values()}
        key = next(r for _, r in group[0].roles if r.arg[0] in group[0].node.arg[1])
        loaded = {n.src[0].arg for n in ordered(ast) if n.op is Ops.LOAD}
        inside = {ref: one for ref, one in self.of.raw.items() if ref not in loaded}
        for u, one in zip(group, stores, strict=True):
            verify_recomputed(self.of.raw[u.ast.src[0].src[0].arg], one, key, inside, rows)
        return self._merged(ast, tuple([x for u in group for x in self.of.items[u.number].values]))

    def _weight(self, weight: UOp, known: dict[tuple[BufRef, UOp], UOp]) -> UOp | None:
        """Return a weight with products in place of their loads, and loads of the values of rows.

        `known` has the products of the kernel: at one index each has one value, with one range of its sum.
        """
        s, of = self.s, self.of
        rows = {s.largest.src[0].arg: self.largest, **self.sums}
        done: dict[UOp, UOp] = {}
        for n in ordered(weight):
            src = tuple([done[x] for x in n.src])
            ref = n.src[0].arg if n.op is Ops.LOAD else None
            if ref in of.products and (ref == s.scores or len(n.src) == 2):
                value = known.get((ref, n.src[1])) or of.at(of.products[ref], n.src[1])
                known[ref, n.src[1]] = value
                done[n] = value if ref == s.scores else widened(of.seen(value))
            elif n.op is Ops.CAST and src[0].dtype is n.dtype:  # of a product that is not rounded now
                done[n] = src[0]
            elif ref in rows:
                done[n] = load_of(rows[ref], n.src[1])
            elif n.op is Ops.DIV and n.src[1].op is Ops.LOAD and n.src[1].src[0] is s.total.src[0]:
                done[n] = uop(Ops.MUL, _F32, (src[0], load_of(self.total, n.src[1].src[1])))
            else:
                done[n] = n if src == n.src else uop(n.op, n.dtype, src, n.arg)
        left = [n for n in ordered(done[weight]) if n.op is Ops.BUFFER and isinstance(n.arg, RowSum)]
        return None if left else done[weight]

    def _merged(self, ast: UOp, values: tuple[UOp, ...]) -> ScheduleItem | None:
        """Return a merged kernel as an item; None if it has no plan."""
        item = item_of(ast, values, merge=True)
        return item if self.fits(item.ast) else None


def _factors(x: UOp) -> tuple[int, list[UOp], list[UOp]]:
    """Return a value as a sign, factors and divisors, without conversions between floats."""
    x = widened(x)
    if x.op is Ops.NEG:
        sign, over, under = _factors(x.src[0])
        return -sign, over, under
    if x.op in (Ops.MUL, Ops.DIV):
        (a, over, under), (b, over2, under2) = (_factors(y) for y in x.src)
        if x.op is Ops.DIV:
            over2, under2 = under2, over2
        return a * b, over + over2, under + under2
    return 1, [x], []


def item_of(ast: UOp, values: tuple[UOp, ...], *, merge: bool = False) -> ScheduleItem:
    """Return a kernel whose buffers are `BufRef`s as an item, with ranges and buffers numbered."""
    free = ranges_in(ast)
    outputs = by_number({r for store in ast.src for r in free[store.src[1]]})
    others = by_number({n for n in ordered(ast) if n.op is Ops.RANGE} - {*outputs})
    env = {r: symbolic.loop(FIRST * FIRST + n, r.arg[1]) for n, r in enumerate((*outputs, *others))}
    ast = replace_ranges(ast, env)
    ast = replace_ranges(ast, {r: symbolic.loop(r.arg[0] - FIRST * FIRST, r.arg[1]) for r in env.values()})
    refs = {store.src[0].arg: None for store in ast.src}
    refs |= {n.src[0].arg: None for n in ordered(ast) if n.op is Ops.LOAD}
    ast = with_buffers(ast, {ref: n for n, ref in enumerate(refs)})
    if merge:
        ast = uop(Ops.SINK, dtypes.void, ast.src, (len(refs), 0))
    return ScheduleItem(ast, tuple(refs), tuple(range(len(ast.src))), values)
