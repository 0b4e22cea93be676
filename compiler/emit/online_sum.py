"""Sums of weighted values in one loop over blocks of keys: scores, weights and results in registers.

For each block the scores are computed, and their exponentials relative to the largest score so far. If a
block has a larger one, the sums and results of the blocks before are scaled. Source: M. Milakov and N.
Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867 (2018).

The lanes of a warp that have the scores of one row exchange their largest scores in each block, and their
sums once, after the loop. Blocks of keys that a mask `key < place` excludes for all rows of the workgroup are
left out, so their values are not read: an infinite one there does not make the result NaN.

Not here: the plan and how weights become an operand (`plan.online_product`), copies to tiles
(`shared_tiles`). Next: `fragments`, the operands of both products; `reductions`, the caller.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import dtypes
from compiler.emit.fragments import Fragments, MatrixFragments, WordFragments, lane_number, matrix_lane
from compiler.emit.products import multiplied, vector_of
from compiler.emit.shared_tiles import SharedTile, TileRing, block_start
from compiler.emit.staged_sum import in_blocks, tile_of
from compiler.emit.workgroup_reduce import exchanged
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import round_to, uop
from compiler.nest.kernel_shape import inner_nodes
from compiler.targets.shared.matrix import Digit, LaneMap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.emit.shared_tiles import Pieces
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, Online, Stage

_F32 = dtypes.float32


class _State(NamedTuple):
    """What the loop carries."""

    results: list[list[Line]]
    """The accumulators of each sum of weighted values."""
    largest: list[Line]
    """For each row of the thread the largest score so far, times log2(e); empty without a softmax."""
    totals: list[Line]
    """For each row the sum of exponentials of the keys of this thread; empty without a softmax."""

    def lines(self) -> list[Line]:
        """Return all values, as the loop carries them."""
        return [x for results in self.results for x in results] + [*self.largest, *self.totals]


class OnlineSum:
    """The loop of one kernel whose softmax is computed online."""

    def __init__(self, e: Emitter, memory: Memory, online: Online) -> None:
        self.e = e
        self.b = e.b
        self.memory = memory
        self.online = online
        assert e.plan.matrix is not None
        self.op = e.plan.matrix
        self.turned = online.turned
        self.softmax = online.largest is not None
        self.score, self.scale = online.weights[0], 1.0
        if online.score is not None:
            self.score, self.scale = self._unscaled(online.score)
        self.key = online.axis
        self.stages = e.plan.shared_stages()
        self.rows: Axis = e.axes[self.stages[0].axis]
        self.columns: Axis = e.axes[self.stages[-1].axis]
        self.steps = self.key.block // self.op.shape[2]
        """Operations of the second product along the keys."""
        self.own = self.key.upcast // 2 // self.steps
        """Words of weights of a thread in each of them."""

    def run(self) -> None:
        """Write the loop at the cursor, and record the values of its reductions with `Emitter.finish`."""
        e, b, online = self.e, self.b, self.online
        units = [e.units.get(axis.range) for axis in (self.rows, self.columns)]
        here = {u: e.env.get(u, 0) for u in units if u is not None}
        state = self._in_blocks()
        totals = [self._over_lanes(total, self._sum) for total in state.totals]
        for row, (total, most) in enumerate(zip(totals, state.largest, strict=True)):
            self._at(units[0], row)
            largest = b.alu("fmul", most, b.const(_F32, round_to(math.log(2), _F32)))
            assert online.largest is not None
            assert online.total is not None
            e.finish(online.largest, b.select(b.cmp("uno", total, total), total, largest))
            e.finish(online.total, total)
        for node, values, sums in zip(online.weighted, self.values, state.results, strict=True):
            results = [self._pinned(x) for x in sums] if self.turned else sums
            self._finish(node, values, results, units)
        e.env.update(here)

    def _finish(self, node: UOp, values: Fragments, results: list[Line], units: list[UOp | None]) -> None:
        """Record the values of a sum of weighted values at all positions of rows and columns."""
        wide, lanes = values.count, self.columns.lanes
        for row in range(self.rows.upcast):
            self._at(units[0], row)
            for unit in range(self.columns.upcast):
                self._at(units[1], unit)
                places = range(unit * lanes, unit * lanes + lanes)
                found = [self._source(results, wide, row, values.place(at)) for at in places]
                self.e.finish(node, vector_of(self.b, found))

    def _at(self, unit: UOp | None, position: int) -> None:
        if unit is not None:
            self.e.env[unit] = position

    def _source(self, sums: list[Line], wide: int, row: int, column: tuple[int, int]) -> tuple[Line, int]:
        """Return the accumulator of a row and a column, and its lane; `wide` operations are columns."""
        (high, upper), (n, left) = self.first.place(row), column
        number = n * self.first.count + high if self.turned else high * wide + n
        return sums[number], upper + left

    def _pinned(self, total: Line) -> Line:
        """Return an accumulator, computed before any branch after this line.

        LLVM moves WMMA outside loops, with its operands, into the branch of the stores of its results, which
        not all lanes run; an exchange stays.
        """
        active = min(self.e.plan.threads, self.e.plan.warp)
        every = [exchanged(self.b, x, 0, active) for x in self.b.each(total)]
        return self.b.line("vector", total.dtype, total.lanes, tuple(every))

    # The loop over blocks of keys.

    def _in_blocks(self) -> _State:
        """Write the loop, after the copy of the queries."""
        b, many = self.b, len(self.online.scores)
        tiles = [tile_of(self.e, self.memory, s, s.ranges[-1], self._staged(s)) for s in self.stages]
        self._read(tiles)
        (begin, end), copied, keys = self._blocks(), b.index(0), tiles[many : 2 * many]

        def load(tile: SharedTile | TileRing, number: Line, slot: Line | None) -> Pieces:
            start = block_start(self.e, b.add(number, begin), self.key.count, self.key.block)
            if tile not in keys:
                return tile.load(start, slot)
            starts, key = self.e.index.starts, self.key.range
            before, starts[key] = starts[key], start
            loaded = tile.load(symbolic.ZERO, slot)
            self.e.index.starts[key] = before
            return loaded

        def start() -> list[Line]:
            nonlocal copied
            if isinstance(tiles[0], TileRing):
                b.line("wait", dtypes.bool, 1, (), self.stages[-1].depth - 1)
                copied = b.line("barrier", dtypes.bool, 1)
            return self._initial()

        def block(number: Line, carried: list[Line], token: Line, later: Callable[[], None]) -> list[Line]:
            later()
            return self._block(self._state(carried), b.add(number, begin), token, copied).lines()

        for query in tiles[:many]:
            if isinstance(query, TileRing):
                query.select(b.index(0))
            pieces = query.load(symbolic.ZERO, b.index(0))
            if isinstance(query, SharedTile):
                query.store(pieces)
        if isinstance(tiles[0], TileRing):
            b.line("commit", dtypes.bool, 1)
        else:
            copied = b.line("barrier", dtypes.bool, 1)
        count, others = b.alu("sub", end, begin), tiles[many:]
        return self._state(in_blocks(b, others, count, least=0, load=load, start=start, block=block))

    def _read(self, tiles: Sequence[SharedTile | TileRing]) -> None:
        """Set the readers of the tiles."""
        e, op, many = self.e, self.op, len(self.online.scores)
        rings = [tile for tile in tiles if isinstance(tile, TileRing)]
        readers: list[Fragments] = []
        if rings:
            place = matrix_lane(e)
            readers += [MatrixFragments(e, op, r, place, columns=n >= many) for n, r in enumerate(rings)]
        else:
            lane, maps = lane_number(e, op), [(op.b, op.d.column)] * many + [(op.a, op.d.row)] * many
            maps += [(self._value_map(), op.d.row)] * len(self.online.weighted)
            words = [tile for tile in tiles if isinstance(tile, SharedTile)]
            readers += [WordFragments(e, op, t, *of, lane) for t, of in zip(words, maps, strict=True)]
        self.queries, self.keys, self.values = readers[:many], readers[many : 2 * many], readers[2 * many :]
        self.first = readers[0]
        self.row_at = {self.first.place(at): at for at in range(self.rows.upcast)}
        """For an operation and a part of D's register the row of the thread."""

    def _staged(self, stage: Stage) -> int:
        """Return the values of the sum in a tile."""
        return next(r.staged for r in self.e.plan.reductions.values() if r.ranges == stage.ranges)

    def _initial(self) -> list[Line]:
        """Return the lines of the state before the first block."""
        b, rows = self.b, self.rows.upcast if self.softmax else 0
        zero = b.const(_F32, 0.0, self.op.d.registers)
        low, none = b.const(_F32, -math.inf), b.const(_F32, 0.0)
        return [zero] * sum(self._widths()) + [low] * rows + [none] * rows

    def _widths(self) -> list[int]:
        """Return the accumulators of each sum of weighted values."""
        return [self.first.count * values.count for values in self.values]

    def _state(self, lines: list[Line]) -> _State:
        """Return the state of some lines, in the order of `_State.lines`."""
        results, at = [], 0
        for width in self._widths():
            results.append(lines[at : at + width])
            at += width
        rows = self.rows.upcast if self.softmax else 0
        return _State(results, lines[at : at + rows], lines[at + rows :])

    def _blocks(self) -> tuple[Line, Line]:
        """Return the first and the end of the blocks that some row of the workgroup needs, at least one."""
        b, key = self.b, self.key.range
        end, begin = self.e.limits.rounds(key, self.key.block, b.index(self.key.count)), b.index(0)
        for score in self._scored():
            for place, first in _bounds(score, key):
                limit = self.e.index.materialised(self._extreme(place, least=first))
                shift = b.index(self.key.block.bit_length() - 1)
                if first:
                    begin = b.call("smax", begin, b.alu("ashr", limit, shift))
                else:
                    blocks = b.alu("ashr", b.add(limit, b.index(self.key.block - 1)), shift)
                    end = b.call("smin", end, blocks)
        begin = b.call("smin", begin, b.index(self.key.count - 1))
        return begin, b.call("smax", end, b.add(begin, b.index(1)))

    def _scored(self) -> list[UOp]:
        """Return the values of whose exponentials the weights are products: -inf makes all weights 0."""
        if self.online.score is not None:
            return [self.online.score]
        found = [[n.src[0].src[0] for n in _exponentials(w)] for w in self.online.weights]
        return found[0][:1] if all(len(f) == 1 and f == found[0] for f in found) else []

    def _extreme(self, place: UOp, *, least: bool) -> UOp:
        """Return the largest (least) value of an index for the rows of the workgroup, over split ranges."""
        ix, r = self.e.index, self.rows.range
        terms, constant = symbolic.terms_of(place)
        factor = terms.pop(r, 0)
        far = symbolic.add(ix.starts[r], symbolic.const(self.rows.block - 1 if (factor > 0) != least else 0))
        return symbolic.add(ix.split(symbolic.linear(terms, constant)), symbolic.mul(far, factor))

    # One block of keys.

    def _block(self, state: _State, number: Line, token: Line, copied: Line) -> _State:
        """Return the state after a block whose tiles are filled at `token`; rows are since `copied`."""
        self.e.index.bind(self.key.range, number)
        every = range(len(self.online.scores))
        scores = [self._scores(n, token, copied if self.online.held else token) for n in every]
        self.b.line("phase", dtypes.bool, 1)
        if self.softmax:
            return self._scaled(state, scores[0], token)
        words = self._weights(scores)
        results = []
        for sums, values, own in zip(state.results, self.values, words, strict=True):
            self.b.line("phase", dtypes.bool, 1)
            results.append(self._added(sums, own, values, token))
        return _State(results, [], [])

    def _scaled(self, state: _State, scores: list[Line], token: Line) -> _State:
        """Return the state after a block of a softmax, which may have larger scores than those before."""
        b, words, factors = self.b, [], []
        largest, totals, scale = [], [], b.const(_F32, round_to(self.scale * math.log2(math.e), _F32))
        for row in range(self.rows.upcast):
            (masked,) = self._of_row([scores], row, [self.score], -math.inf)
            most = self._over_lanes(_tree(masked, self._most), self._most)
            newest = self._most(state.largest[row], b.alu("fmul", most, scale))
            low = b.const(_F32, -math.inf)  # all scores so far are -inf: exp(x - 0) is 0
            base = b.select(b.cmp("oeq", newest, low), b.const(_F32, 0.0), newest)
            down = b.line("fneg", _F32, 1, (base,))
            # 2 ulp of float32: far more exact than a weight of 16 bits
            weights = [b.line("exp2", _F32, 1, (b.fma(x, scale, down),)) for x in masked]
            factor = b.line("exp2", _F32, 1, (b.alu("fsub", state.largest[row], base),))
            largest.append(newest)
            totals.append(b.fma(state.totals[row], factor, _tree(weights, self._sum)))
            factors.append(factor)
            words.append(self._halves(weights))
        (before,) = state.results
        results = [
            b.alu("fmul", total, self._factors(number, factors)) for number, total in enumerate(before)
        ]
        b.line("phase", dtypes.bool, 1)
        return _State([self._added(results, words, self.values[0], token)], largest, totals)

    def _weights(self, scores: list[list[Line]]) -> list[list[list[Line]]]:
        """Return for each sum the words of the weights of each row; beyond the last key they are 0."""
        self.e.readers |= {x: self._exponential for w in self.online.weights for x in _exponentials(w)}
        rows = [self._of_row(scores, n, self.online.weights, 0.0) for n in range(self.rows.upcast)]
        return [[self._halves(row[n]) for row in rows] for n in range(len(self.online.weights))]

    def _exponential(self, node: UOp) -> Line:
        """Return exp(x - y) of two values as an exponential of base 2, which the target approximates."""
        b, (x, y) = self.b, node.src[0].src
        value, scale = self._unscaled(x)
        down = b.alu("fmul", self.e.value(y), b.const(_F32, round_to(-math.log2(math.e), _F32)))
        factor = b.const(_F32, round_to(scale * math.log2(math.e), _F32))
        return b.line("exp2", _F32, 1, (b.fma(self.e.value(value), factor, down),))

    def _unscaled(self, score: UOp) -> tuple[UOp, float]:
        """Return a value and a factor whose product is a score (`_unscaled`); both have the same ranges."""
        value, scale = _unscaled(score, self.online.scores)
        inner = value
        while inner not in self.e.free:
            self.e.free[inner], inner = self.e.free[score], inner.src[1]
        return value, scale

    def _halves(self, weights: list[Line]) -> list[Line]:
        pairs = zip(weights[::2], weights[1::2], strict=True)
        return [self.b.line("halves", dtypes.uint32, 1, pair, self.op.dtype) for pair in pairs]

    def _scores(self, number: int, token: Line, copied: Line) -> list[Line]:
        """Return the accumulators of a score."""
        queries, keys = self.queries[number], self.keys[number]
        tokens = {queries: copied, keys: token}
        pair = (keys, queries) if self.turned else (queries, keys)
        zero = self.b.const(_F32, 0.0, self.op.d.registers)
        sums = [zero] * (queries.count * keys.count)

        def read(step: int) -> list[list[list[Line]]]:
            return [reader.read(symbolic.ZERO, step * self.op.depth, tokens[reader]) for reader in pair]

        return self._multiplied(queries.words // self.op.depth, read, sums)

    def _multiplied(
        self, steps: int, read: Callable[[int], Sequence[list[list[Line]]]], sums: list[Line]
    ) -> list[Line]:
        """Return accumulators with the products of some steps added."""
        later, b = read(0), self.b
        for step in range(steps):
            left, right = later
            if self.online.ahead and step + 1 < steps:
                later = read(step + 1)
            b.line("phase", dtypes.bool, 1)
            sums = multiplied(b, self.op, left, right, sums)
            if not self.online.ahead and step + 1 < steps:
                b.line("phase", dtypes.bool, 1)
                later = read(step + 1)
        return sums

    def _of_row(
        self, sums: list[list[Line]], row: int, wanted: Sequence[UOp], beyond: float
    ) -> list[list[Line]]:
        """Return values of a row of the thread in the order of its keys; `beyond` after the last key."""
        e, b, online = self.e, self.b, self.online
        rows, keys = e.units.get(self.rows.range), e.units[self.key.range]
        self._at(rows, row)
        guard = e.index.guards.get(self.key.range)
        out: list[list[Line]] = [[] for _ in wanted]
        for at in range(self.key.upcast):
            e.env[keys] = at
            for node, own, reader in zip(online.scores, sums, self.keys, strict=True):
                found = self._source(own, reader.count, row, reader.place(at))
                e.finish(node, vector_of(b, [found]))
            mask = None if guard is None else e.index.mask(guard)
            for values, node in zip(out, wanted, strict=True):
                value = e.value(node)
                values.append(value if mask is None else b.select(mask, value, b.const(_F32, beyond)))
        return out

    def _most(self, x: Line, y: Line) -> Line:
        """Return the larger value; the other one where one is NaN, which makes the sum NaN."""
        return self.b.call("maxnum", x, y)

    def _sum(self, x: Line, y: Line) -> Line:
        return self.b.alu("fadd", x, y)

    def _over_lanes(self, value: Line, combine: Callable[[Line, Line], Line]) -> Line:
        """Return the value of all lanes that have keys of the same row."""
        for digit in self._key_digits():
            distance = digit.step * digit.size // 2
            while distance >= digit.step:
                other = exchanged(self.b, value, distance, min(self.e.plan.threads, self.e.plan.warp))
                value = combine(value, other)
                distance //= 2
        return value

    def _key_digits(self) -> list[Digit]:
        """Return the digits of the lane that count keys."""
        return [d for d in (self.op.d.row if self.turned else self.op.d.column) if d.of == "lane"]

    def _factors(self, number: int, factors: list[Line]) -> Line:
        """Return the factor of each register of an accumulator of the second product."""
        count = self.first.count
        high = number % count if self.turned else number // self.values[0].count
        digits = self.op.d.column if self.turned else self.op.d.row
        found = []
        for register in range(self.op.d.registers):
            part = sum(register // d.step % d.size * d.step for d in digits if d.of == "register")
            found.append(factors[self.row_at[high, part]])
        if len(set(found)) == 1:
            return self.b.splat(found[0], len(found))
        return self.b.line("vector", _F32, len(found), tuple(found))

    # The weights as an operand of the second product.

    def _added(self, sums: list[Line], words: list[list[Line]], reader: Fragments, token: Line) -> list[Line]:
        """Return the accumulators of a sum of weighted values with those of a block added."""

        def read(step: int) -> tuple[list[list[Line]], list[list[Line]]]:
            weights = [self._operand(words, step, high) for high in range(self.first.count)]
            at = step * (self.own if self.turned else self.op.depth)
            values = reader.read(symbolic.ZERO, at, token)
            return (values, weights) if self.turned else (weights, values)

        return self._multiplied(self.steps, read, sums)

    def _operand(self, words: list[list[Line]], step: int, high: int) -> list[Line]:
        """Return the registers of the weights of an operation's rows for one step along the keys.

        A thread's registers have its own words, in order. If there are more, they also have those of the
        lanes with the other keys of the same row.
        """
        to, rows = (self.op.b, self.op.d.column) if self.turned else (self.op.a, self.op.d.row)
        found = []
        for register in range(to.registers):
            part = sum(
                register // d.step % d.size * own.step
                for d in to.row
                for own in rows
                if d.of == own.of == "register" and d.weight == own.weight
            )
            half, word = divmod(_rank(to.column, register), self.own)
            mine = words[self.row_at[high, part]][step * self.own + word]
            registers = math.prod([d.size for d in to.column if d.of == "register"])
            found.append(self._of_half(mine, half) if registers > self.own else mine)
        return found

    def _of_half(self, word: Line, half: int) -> Line:
        """Return a word of the lanes whose digit of the keys is `half`, in all lanes of the same row."""
        b, ix, (digit,) = self.b, self.e.index, self._key_digits()
        assert digit.size == 2
        other = exchanged(b, word, digit.step, min(self.e.plan.threads, self.e.plan.warp))
        number = ix.modulo(ix.divide(self.e.thread(), digit.step, signed=False), 2, signed=False)
        return b.select(b.cmp("eq", number, b.index(half)), word, other)

    def _value_map(self) -> LaneMap:
        """Return the map of the values as operand A, for keys in the order in which lanes have weights."""
        (digit,), to = self._key_digits(), self.op.a
        far = self.key.upcast // 2
        lanes = any(d.of == "lane" for d in to.column)
        step = digit.step if lanes else self.own
        others = Digit("lane" if lanes else "register", step, digit.size, far)
        return LaneMap(to.registers, to.row, (Digit("register", 1, self.own, 1), others))


def _rank(digits: Sequence[Digit], register: int) -> int:
    """Return the place of a register among those that differ in their digits, by weight."""
    place, size = 0, 1
    for d in sorted([d for d in digits if d.of == "register"], key=lambda d: d.weight):
        place += register // d.step % d.size * size
        size *= d.size
    return place


def _tree(values: list[Line], combine: Callable[[Line, Line], Line]) -> Line:
    """Return some values combined in pairs."""
    while len(values) > 1:
        values = [combine(x, y) for x, y in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _unscaled(score: UOp, scores: Sequence[UOp]) -> tuple[UOp, float]:
    """Return a value and a positive factor whose product is the score: one multiplication then does both."""
    if score.op is Ops.MUL and score.src[0] in scores and score.src[1].op is Ops.CONST:
        factor = float(score.src[1].arg)
        return (score.src[0], factor) if 2.0**-64 < factor < 2.0**64 else (score, 1.0)
    if score.op is Ops.WHERE and score.src[2].op is Ops.CONST and score.src[2].arg == -math.inf:
        inner, factor = _unscaled(score.src[1], scores)
        return uop(Ops.WHERE, score.dtype, (score.src[0], inner, score.src[2])), factor
    return score, 1.0


def _exponentials(weight: UOp) -> list[UOp]:
    """Return the exponentials of differences in a weight."""
    return [n for n in inner_nodes((weight,)) if n.op is Ops.EXP and n.src[0].op is Ops.SUB]


def _bounds(score: UOp, key: UOp) -> list[tuple[UOp, bool]]:
    """Return the places from which on, or (True) below which, the score is -inf, over the other ranges."""
    found: list[tuple[UOp, bool]] = []
    while score.op is Ops.WHERE and score.src[2].op is Ops.CONST and score.src[2].arg == -math.inf:
        conditions = [score.src[0]]
        while conditions:
            condition = conditions.pop()
            if condition.op is Ops.AND:
                conditions += condition.src
            elif condition.op is Ops.IVALUE:
                found += [at for part in symbolic.parts_of(condition.src[0]) for at in _bound(part, key)]
        score = score.src[1]
    return found


def _bound(part: UOp, key: UOp) -> list[tuple[UOp, bool]]:
    """Return the place below or from which `key` is where a part of a mask, x < c, is true; none for others.

    key + x < c means key < c - x; x - key < c means key >= x - c + 1.
    """
    if part.op is not Ops.ILT:
        return []
    terms, constant = symbolic.terms_of(part.src[0])
    factor = terms.pop(key, 0)
    if factor not in (1, -1) or any(r.op is not Ops.RANGE for r in terms):
        return []
    if factor == 1:
        return [(symbolic.linear({r: -c for r, c in terms.items()}, part.arg - constant), False)]
    return [(symbolic.linear(terms, constant - part.arg + 1), True)]
