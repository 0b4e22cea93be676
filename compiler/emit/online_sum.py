"""Softmax between two products, in one loop over blocks of keys: scores, weights and results in registers.

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
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from compiler.dtype import dtypes
from compiler.emit.fragments import Fragments, MatrixFragments, WordFragments, lane_number, matrix_lane
from compiler.emit.products import multiplied, vector_of
from compiler.emit.shared_tiles import SharedTile, TileRing, block_start, in_rings
from compiler.emit.workgroup_reduce import exchanged
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import round_to, uop
from compiler.targets.shared.matrix import Digit, LaneMap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, Online, Stage

T = TypeVar("T")
_F32 = dtypes.float32


class _State(NamedTuple):
    """What the loop carries."""

    results: list[Line]
    """The accumulators of the second product."""
    largest: list[Line]
    """For each row of the thread the largest score so far, times log2(e)."""
    totals: list[Line]
    """For each row the sum of exponentials of the keys of this thread."""

    def lines(self) -> list[Line]:
        """Return all values, as the loop carries them."""
        return [*self.results, *self.largest, *self.totals]


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
        self.score, self.scale = _unscaled(online.score, online.scores)
        e.free.setdefault(self.score, e.free[online.score])
        self.key = online.axis
        self.stages = e.plan.shared_stages()
        self.rows: Axis = e.axes[self.stages[0].axis]
        self.columns: Axis = e.axes[self.stages[2].axis]
        self.steps = self.key.block // self.op.shape[2]
        """Operations of the second product along the keys."""
        self.own = self.key.upcast // 2 // self.steps
        """Words of weights of a thread in each of them."""

    def run(self) -> None:
        """Write the loop at the cursor, and record the values of its reductions with `Emitter.finish`."""
        e, b, online = self.e, self.b, self.online
        units = [e.units.get(axis.range) for axis in (self.rows, self.columns)]
        here = {u: e.env.get(u, 0) for u in units if u is not None}
        write = self._in_tiles if self.stages[0].mechanism == "vector loads" else self._in_rings
        state = write()
        results = [self._pinned(x) for x in state.results] if self.turned else state.results
        totals = [self._over_lanes(total, self._sum) for total in state.totals]
        wide, lanes = self.values.count, self.columns.lanes
        for row in range(self.rows.upcast):
            self._at(units[0], row)
            total, largest = totals[row], state.largest[row]
            largest = b.alu("fmul", largest, b.const(_F32, round_to(math.log(2), _F32)))
            e.finish(online.largest, b.select(b.cmp("uno", total, total), total, largest))
            e.finish(online.total, total)
            for unit in range(self.columns.upcast):
                self._at(units[1], unit)
                places = range(unit * lanes, unit * lanes + lanes)
                found = [self._source(results, wide, row, self.values.place(at)) for at in places]
                e.finish(online.weighted, vector_of(b, found))
        e.env.update(here)

    def _at(self, unit: UOp | None, position: int) -> None:
        if unit is not None:
            self.e.env[unit] = position

    def _source(self, sums: list[Line], wide: int, row: int, column: tuple[int, int]) -> tuple[Line, int]:
        """Return the accumulator of a row and a column, and its lane; `wide` operations are columns."""
        (high, upper), (n, left) = self.queries.place(row), column
        number = n * self.queries.count + high if self.turned else high * wide + n
        return sums[number], upper + left

    def _pinned(self, total: Line) -> Line:
        """Return an accumulator, computed before any branch after this line.

        LLVM moves WMMA outside loops, with its operands, into the branch of the stores of its results, which
        not all lanes run; an exchange stays.
        """
        active = min(self.e.plan.threads, self.e.plan.warp)
        every = [exchanged(self.b, x, 0, active) for x in self.b.each(total)]
        return self.b.line("vector", total.dtype, total.lanes, tuple(every))

    # The loops over blocks of keys.

    def _block_of(self, number: Line) -> UOp:
        """Return the first key of a block as an index."""
        return block_start(self.e, number, self.key.count, self.key.block)

    def _in_rings(self) -> _State:
        """Write the loop with asynchronous copies: those of later blocks run while a block is multiplied."""
        b, stages = self.b, self.stages
        query, keys, values = (
            TileRing(self.e, self.memory, s, s.ranges[-1], self._staged(s)) for s in stages
        )
        lane = matrix_lane(self.e)
        self._read(
            MatrixFragments(self.e, self.op, query, lane),
            MatrixFragments(self.e, self.op, keys, lane, columns=True),
            MatrixFragments(self.e, self.op, values, lane, columns=True),
        )
        count, copied = self._count(), b.index(0)

        def copy(number: Line, slot: Line) -> None:
            start = self._block_of(number)
            self._from(start, lambda: keys.copy(symbolic.ZERO, slot))
            values.copy(start, slot)

        def start() -> list[Line]:
            nonlocal copied
            b.line("wait", dtypes.bool, 1, (), stages[1].depth - 1)
            copied = b.line("barrier", dtypes.bool, 1)
            return self._initial()

        def block(number: Line, carried: list[Line], token: Line, later: Callable[[], None]) -> list[Line]:
            later()
            return self._block(self._state(carried), number, token, copied).lines()

        query.select(b.index(0))
        query.copy(symbolic.ZERO, b.index(0))
        b.line("commit", dtypes.bool, 1)
        rings = (keys, values)
        return self._state(in_rings(b, rings, count, least=0, copy=copy, start=start, block=block))

    def _in_tiles(self) -> _State:
        """Write the loop with vector loads: a block is loaded before all threads have used the one before."""
        b = self.b
        query, keys, values = tiles = [
            SharedTile(self.e, s, s.ranges[-1], self._staged(s), dtypes.uint32) for s in self.stages
        ]
        for tile in tiles:  # outside the loop
            tile.memory()
        lane = lane_number(self.e, self.op)
        self._read(
            WordFragments(self.e, self.op, query, self.op.b, self.op.d.column, lane),
            WordFragments(self.e, self.op, keys, self.op.a, self.op.d.row, lane),
            WordFragments(self.e, self.op, values, self._value_map(), self.op.d.row, lane),
        )
        query.store(query.load(symbolic.ZERO, self.e.value))
        copied = b.line("barrier", dtypes.bool, 1)
        loop = b.enter_loop(b.index(0), self._count(), 1, b.cursor)
        state = self._state([b.carry(loop, value) for value in self._initial()])
        start = self._block_of(loop.index)
        loaded = [
            self._from(start, lambda: keys.load(symbolic.ZERO, self.e.value)),
            values.load(start, self.e.value),
        ]
        b.line("barrier", dtypes.bool, 1)  # other threads still read the tiles of the block before
        for tile, words in zip((keys, values), loaded, strict=True):
            tile.store(words)
        state = self._block(state, loop.index, b.line("barrier", dtypes.bool, 1), copied)
        return self._state(b.leave_loop(loop, state.lines()))

    def _read(self, queries: Fragments, keys: Fragments, values: Fragments) -> None:
        """Set the readers of the tiles."""
        self.queries, self.keys, self.values = queries, keys, values
        self.row_at = {queries.place(at): at for at in range(self.rows.upcast)}
        """For an operation and a part of D's register the row of the thread."""

    def _from(self, start: UOp, copy: Callable[[], T]) -> T:
        """Return the result of `copy` for the block of keys that begins at an index."""
        starts, key = self.e.index.starts, self.key.range
        before, starts[key] = starts[key], start
        done = copy()
        self.e.index.starts[key] = before
        return done

    def _staged(self, stage: Stage) -> int:
        """Return the values of the sum in a tile."""
        return next(r.staged for r in self.e.plan.reductions.values() if r.ranges == stage.ranges)

    def _initial(self) -> list[Line]:
        """Return the lines of the state before the first block."""
        b, rows = self.b, self.rows.upcast
        zero = b.const(_F32, 0.0, self.op.d.registers)
        low, none = b.const(_F32, -math.inf), b.const(_F32, 0.0)
        return [zero] * (self.queries.count * self.values.count) + [low] * rows + [none] * rows

    def _state(self, lines: list[Line]) -> _State:
        """Return the state of some lines, in the order of `_State.lines`."""
        rows = self.rows.upcast
        return _State(lines[: -2 * rows], lines[-2 * rows : -rows], lines[-rows:])

    def _count(self) -> Line:
        """Return the number of blocks that some row of the workgroup needs, at least 1."""
        b, most = self.b, self.b.index(self.key.count)
        end = self.e.limits.rounds(self.key.range, self.key.block, most)
        for place in _ends(self.online.score, self.key.range):
            limit = self.e.index.materialised(self._largest(place))
            blocks = b.alu(
                "ashr", b.add(limit, b.index(self.key.block - 1)), b.index(self.key.block.bit_length() - 1)
            )
            end = b.call("smax", b.call("smin", end, blocks), b.index(1))
        return end

    def _largest(self, place: UOp) -> UOp:
        """Return the largest value of an index for the rows of the workgroup, over split ranges."""
        ix, r = self.e.index, self.rows.range
        terms, constant = symbolic.terms_of(place)
        factor = terms.pop(r, 0)
        far = symbolic.add(ix.starts[r], symbolic.const(self.rows.block - 1 if factor > 0 else 0))
        return symbolic.add(ix.split(symbolic.linear(terms, constant)), symbolic.mul(far, factor))

    # One block of keys.

    def _block(self, state: _State, number: Line, token: Line, copied: Line) -> _State:
        """Return the state after a block whose tiles are filled at `token`; queries are since `copied`."""
        self.e.index.bind(self.key.range, number)
        scores = self._scores(token, copied if self.online.held else token)
        b, words, factors = self.b, [], []
        b.line("phase", dtypes.bool, 1)
        largest, totals, scale = [], [], b.const(_F32, round_to(self.scale * math.log2(math.e), _F32))
        for row in range(self.rows.upcast):
            masked = self._masked(scores, row)
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
            pairs = zip(weights[::2], weights[1::2], strict=True)
            words.append([b.line("halves", dtypes.uint32, 1, pair, self.op.dtype) for pair in pairs])
        results = [
            b.alu("fmul", total, self._factors(number, factors)) for number, total in enumerate(state.results)
        ]
        b.line("phase", dtypes.bool, 1)
        return _State(self._added(results, words, token), largest, totals)

    def _scores(self, token: Line, copied: Line) -> list[Line]:
        """Return the accumulators of the first product."""
        tokens = {self.queries: copied, self.keys: token}
        pair = (self.keys, self.queries) if self.turned else (self.queries, self.keys)
        zero = self.b.const(_F32, 0.0, self.op.d.registers)
        sums = [zero] * (self.queries.count * self.keys.count)

        def read(step: int) -> list[list[list[Line]]]:
            return [reader.read(symbolic.ZERO, step * self.op.depth, tokens[reader]) for reader in pair]

        return self._multiplied(self.queries.words // self.op.depth, read, sums)

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

    def _masked(self, sums: list[Line], row: int) -> list[Line]:
        """Return the scores of a row of the thread, in the order of its keys; beyond the last key -inf."""
        e, b, online = self.e, self.b, self.online
        rows, keys = e.units.get(self.rows.range), e.units[self.key.range]
        self._at(rows, row)
        guard = e.index.guards.get(self.key.range)
        out: list[Line] = []
        for at in range(self.key.upcast):
            e.env[keys] = at
            found = self._source(sums, self.keys.count, row, self.keys.place(at))
            e.finish(online.scores, vector_of(b, [found]))
            value = e.value(self.score)
            mask = None if guard is None else e.index.mask(guard)
            out.append(value if mask is None else b.select(mask, value, b.const(_F32, -math.inf)))
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
        count = self.queries.count
        high = number % count if self.turned else number // self.values.count
        digits = self.op.d.column if self.turned else self.op.d.row
        found = []
        for register in range(self.op.d.registers):
            part = sum(register // d.step % d.size * d.step for d in digits if d.of == "register")
            found.append(factors[self.row_at[high, part]])
        if len(set(found)) == 1:
            return self.b.splat(found[0], len(found))
        return self.b.line("vector", _F32, len(found), tuple(found))

    # The weights as an operand of the second product.

    def _added(self, sums: list[Line], words: list[list[Line]], token: Line) -> list[Line]:
        """Return the accumulators of the second product with those of a block added."""

        def read(step: int) -> tuple[list[list[Line]], list[list[Line]]]:
            weights = [self._operand(words, step, high) for high in range(self.queries.count)]
            at = step * (self.own if self.turned else self.op.depth)
            values = self.values.read(symbolic.ZERO, at, token)
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
            found.append(self._of_half(mine, half) if _count(to.column) > self.own else mine)
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


def _count(digits: Sequence[Digit]) -> int:
    """Return how many registers differ in their digits."""
    return math.prod([d.size for d in digits if d.of == "register"])


def _tree(values: list[Line], combine: Callable[[Line, Line], Line]) -> Line:
    """Return some values combined in pairs."""
    while len(values) > 1:
        values = [combine(x, y) for x, y in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _unscaled(score: UOp, scores: UOp) -> tuple[UOp, float]:
    """Return a value and a positive factor whose product is the score: one multiplication then does both."""
    if score.op is Ops.MUL and score.src[0] is scores and score.src[1].op is Ops.CONST:
        factor = float(score.src[1].arg)
        return (scores, factor) if 2.0**-64 < factor < 2.0**64 else (score, 1.0)
    if score.op is Ops.WHERE and score.src[2].op is Ops.CONST and score.src[2].arg == -math.inf:
        inner, factor = _unscaled(score.src[1], scores)
        return uop(Ops.WHERE, score.dtype, (score.src[0], inner, score.src[2])), factor
    return score, 1.0


def _ends(score: UOp, key: UOp) -> list[UOp]:
    """Return the places from which on the score is -inf, as indices over the other ranges."""
    found: list[UOp] = []
    while score.op is Ops.WHERE and score.src[2].op is Ops.CONST and score.src[2].arg == -math.inf:
        conditions = [score.src[0]]
        while conditions:
            condition = conditions.pop()
            if condition.op is Ops.AND:
                conditions += condition.src
            elif condition.op is Ops.IVALUE:
                found += [end for part in symbolic.parts_of(condition.src[0]) for end in _end(part, key)]
        score = score.src[1]
    return found


def _end(part: UOp, key: UOp) -> list[UOp]:
    """Return the place below which `key` is where a part of a mask, x < c, is true; none for other parts."""
    if part.op is not Ops.ILT:
        return []
    terms, constant = symbolic.terms_of(part.src[0])
    if terms.pop(key, 0) != 1 or any(r.op is not Ops.RANGE for r in terms):
        return []
    return [symbolic.linear({r: -c for r, c in terms.items()}, part.arg - constant)]
