"""Sums of products over tiles in shared memory: the copies, the register tile, and matrix operations.

For each block of the sum all threads of a workgroup copy a tile of each operand to shared memory
(`plan.SharedStage`), wait, and add the products of their register tile: by multiply-adds of vectors, or by
the matrix operation of the plan. Words of a tile that are beyond the end of the sum are 0.

With a matrix operation a thread's part of a block is contiguous: the rows (columns) of adjacent operations
that lie in one register of one lane are neighbours, so that fragments are loaded and results are stored as
vectors. `places` gives this order.

Not here: the choice of the tiles (`device_contraction`), other reductions (`reductions`). Next: `linearize`,
the caller.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Protocol

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import BINARY, UNARY, Ops
from compiler.ir.walk import bound_ranges
from compiler.kernel import conversions
from compiler.kernel.linear import POINTER
from compiler.kernel.shape import inner_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.kernel.builder import Builder
    from compiler.kernel.indexing import Indexer
    from compiler.kernel.linear import Line
    from compiler.kernel.plan import Axis, Plan, SharedStage
    from compiler.targets.matrix import Digit

PAIRS = 4
"""Threads whose pairs of vectors of 16 bytes fill the 32 banks of shared memory."""
VECTOR_BYTES = 16
"""The widest access to shared memory."""


class Writer(Protocol):
    """What a staged sum needs of the writer of its kernel (`linearize.Linearizer`)."""

    b: Builder
    plan: Plan
    index: Indexer
    env: dict[UOp, int]
    free: dict[UOp, frozenset[UOp]]
    units: dict[UOp, UOp]
    unit_keys: dict[UOp, tuple[UOp, ...]]
    digits: dict[UOp, list[tuple[UOp, int]]]
    values: dict[tuple[object, ...], Line]

    def value(self, node: UOp) -> Line:
        """Return the register of a node at the current position."""
        ...

    def finish(self, node: UOp, total: Line) -> None:
        """Record a reduction's value at the current position."""
        ...


def places(digits: Sequence[Digit], adjacent: int) -> tuple[dict[Digit, int], int, int]:
    """Return the order of a matrix operation's rows (or columns) in the block of a warp.

    `adjacent` operations lie side by side. The result is the distance in the block between neighbours of each
    digit of D's coordinate, the values of a thread, and the values of the block: digits of the register are
    innermost, after the adjacent operations, digits of the lane outermost.
    """
    strides: dict[Digit, int] = {}
    total = adjacent
    for digit in sorted(digits, key=lambda d: (d.of == "lane", d.weight)):
        if digit.of == "lane":
            continue
        strides[digit] = total
        total *= digit.size
    mine = total
    for digit in sorted(digits, key=lambda d: d.weight):
        if digit.of == "lane":
            strides[digit] = total
            total *= digit.size
    return strides, mine, total


class StagedSum:
    """The loop of one REDUCE whose operands are staged in shared memory."""

    def __init__(self, owner: Writer, node: UOp) -> None:
        self.owner = owner
        self.b = owner.b
        self.node = node
        self.plan = owner.plan
        self.reduction = owner.plan.reductions[bound_ranges(node, owner.free)]
        (self.k,) = self.reduction.ranges
        self.rows, self.columns = [_Tile(owner, s, self.k, self.reduction.staged) for s in
                                   owner.plan.shared_stages()]  # fmt: skip

    def run(self) -> None:
        """Write the loop at the cursor, and record the sums with `Linearizer.finish`."""
        b = self.b
        size, block = self.k.arg[1], self.reduction.staged
        inner: _Products | _MatrixProducts = (
            _Products(self.owner, self.rows, self.columns)
            if self.plan.matrix is None
            else _MatrixProducts(self.owner, self.rows, self.columns)
        )
        sums = inner.zeros()
        if size <= block:
            sums = self._block(b.index(0), inner, sums, again=False)
        else:
            loop = b.enter_loop(b.index(0), b.index(-(-size // block)), 1, b.cursor)
            carried = [b.carry(loop, s) for s in sums]
            sums = b.leave_loop(loop, self._block(loop.index, inner, carried, again=True))
        units = [self.owner.units.get(r) for r in (self.rows.axis.range, self.columns.axis.range)]
        here = {u: self.owner.env.get(u, 0) for u in units if u is not None}
        for (row, column), total in inner.results(sums):
            for unit, at in zip(units, (row, column), strict=True):
                if unit is not None:
                    self.owner.env[unit] = at
            self.owner.finish(self.node, total)
        self.owner.env.update(here)

    def _block(
        self, number: Line, inner: _Products | _MatrixProducts, sums: list[Line], *, again: bool
    ) -> list[Line]:
        """Write the copies and the products of one block of the sum."""
        b = self.b
        loaded = [tile.load(number) for tile in (self.rows, self.columns)]
        if again:  # other threads still read the tiles of the block before
            b.line("barrier", dtypes.bool, 1)
        for tile, words in zip((self.rows, self.columns), loaded, strict=True):
            tile.store(words)
        return inner.add(sums, b.line("barrier", dtypes.bool, 1))


class _Tile:
    """The tile of one operand in shared memory: copies to it and loads from it."""

    def __init__(self, owner: Writer, stage: SharedStage, k: UOp, block: int) -> None:
        self.owner = owner
        self.b = owner.b
        self.stage = stage
        self.k = k
        self.axis: Axis = next(a for a in owner.plan.axes if a.range is stage.axis)
        self.words = block // stage.pack
        self.block = block
        self.pitch = self.axis.block + stage.pad
        self.dtype: DType = dtypes.uint32 if stage.pack > 1 else conversions.register_type(stage.value.dtype)
        tag = owner.plan.shared_stages().index(stage)
        self.memory = self.b.line("shared", POINTER, 1, (), (self.dtype, self.words * self.pitch, tag))

    def address(self, word: UOp, place: UOp) -> Line:
        """Return the address of the word at (row `word`, `place` in the block), both over bound ranges."""
        b, ix, swizzle = self.b, self.owner.index, self.stage.swizzle
        if swizzle is None:
            at = ix.materialised(symbolic.dot((word, place), (self.pitch, 1)))
        else:
            turned = symbolic.mul(symbolic.mod(symbolic.div(word, swizzle.run), swizzle.count), swizzle.width)
            x, y = ix.materialised(place), ix.materialised(turned)
            if x.op == "const" and y.op == "const":
                assert isinstance(x.arg, int)
                assert isinstance(y.arg, int)
                x = b.index(x.arg ^ y.arg)
            elif y.op != "const" or y.arg != 0:
                x = b.alu("xor", x, y)
            at = b.add(ix.materialised(symbolic.mul(word, self.pitch)), x)
        return b.offset(self.memory, at, self.dtype)

    def read(self, word: UOp, place: UOp, count: int, token: Line) -> list[Line]:
        """Load `count` neighbours along the axis in vectors."""
        b = self.b
        widest = VECTOR_BYTES // self.dtype.itemsize
        out: list[Line] = []
        for at in range(0, count, widest):
            lanes = min(widest, count - at)
            address = self.address(word, symbolic.add(place, symbolic.const(at)))
            vector = b.line("load", self.dtype, lanes, (address, token), "aligned")
            out.append(vector)
        return out

    def load(self, number: Line) -> list[tuple[UOp, UOp, list[Line]]]:
        """Load this thread's part of the tile of block `number` of the sum.

        Return (row, place, words) of each piece: rows and places are over ranges that are bound, and the
        words are vectors along the axis, or single words of successive rows.
        """
        owner, ix, stage = self.owner, self.owner.index, self.stage
        r, k = self.axis.range, self.k
        saved = ix.exprs, ix.memo, ix.guards, owner.units, owner.unit_keys, owner.values
        position = dict(owner.env)
        ix.exprs, ix.memo, ix.guards = dict(ix.exprs), {}, dict(ix.guards)
        owner.units, owner.unit_keys = dict(owner.units), {}
        owner.values = self._kept()
        for moved in (r, k):
            owner.units.pop(moved, None)
            ix.guards.pop(moved, None)
        counter = ix.fresh(-(-k.arg[1] // self.block))
        if counter.op is Ops.RANGE:
            ix.bound[counter] = number
        lane = ix.fresh(stage.lanes)
        if lane.op is Ops.RANGE:
            ix.lane_ranges[lane] = stage.lanes
        out = []
        for word, place in self._pieces():
            along_sum = stage.along == "sum" and stage.lanes > 1
            parts = range(1) if along_sum else range(stage.pack)
            values = []
            for part in parts:
                first = symbolic.dot((counter, word), (self.block, stage.pack), part)
                where = symbolic.add(ix.starts[r], place)
                ix.memo, owner.values = {}, self._kept()
                self._open(k, first, lane if along_sum else symbolic.ZERO, k.arg[1])
                self._open(r, where, symbolic.ZERO if along_sum else lane, self.axis.size)
                values.append(self._value())
            out.append((word, place, self._words(values, along_sum=along_sum)))
        ix.exprs, ix.memo, ix.guards, owner.units, owner.unit_keys, owner.values = saved
        owner.env.clear()
        owner.env.update(position)
        return out

    def _kept(self) -> dict[tuple[object, ...], Line]:
        """Return the registers of nodes that depend neither on the axis nor on the sum."""
        moved, free = {self.axis.range, self.k}, self.owner.free
        return {n: v for n, v in self.owner.values.items() if not moved & free[n[0]]}  # type: ignore[index]  # a node

    def _open(self, r: UOp, first: UOp, lane: UOp, size: int) -> None:
        """Set the current values of a range: `first` and the lanes after it, masked from `size` on."""
        ix = self.owner.index
        ix.exprs[r] = symbolic.add(first, lane)
        ix.guards.pop(r, None)
        guard = symbolic.lt(first, size)
        if guard is not symbolic.TRUE:
            ix.guards[r] = guard

    def _pieces(self) -> Iterator[tuple[UOp, UOp]]:
        """Yield the first (row, place) of each vector that a thread copies."""
        owner, ix, stage = self.owner, self.owner.index, self.stage
        threads, block = owner.plan.threads, self.axis.block
        along_sum = stage.along == "sum"
        size = max(1, stage.lanes // stage.pack) if along_sum else stage.lanes
        inner = (self.words if along_sum else block) // size
        outer = block if along_sum else self.words
        thread = ix.fresh(threads)
        ix.bound[thread] = self.b.line("thread", dtypes.int64, 1, (), 0)
        x, y = symbolic.mul(symbolic.mod(thread, inner), size), symbolic.div(thread, inner)
        rows = threads // inner
        for at in range(0, outer, rows):
            far = symbolic.add(y, symbolic.const(at))
            yield (x, far) if along_sum else (far, x)

    def _value(self) -> Line:
        """Return the operand at the current position; beyond the end of the sum it is 0."""
        owner, b = self.owner, self.b
        value = owner.value(self.stage.value)
        guard = owner.index.guards.get(self.k)
        if guard is not None and _computed(self.stage.value):
            mask = owner.index.mask(guard)
            if mask is not None:
                value = b.select(mask, value, conversions.zero(b, self.stage.value.dtype, value.lanes))
        return b.splat(value, self.stage.lanes)

    def _words(self, values: list[Line], *, along_sum: bool) -> list[Line]:
        """Return the words of loaded values: of one vector along the sum, or of a vector for each part."""
        b, stage = self.b, self.stage
        if stage.pack == 1:
            (vector,) = values
            if not along_sum:
                return [vector]
            return [b.line("extract", vector.dtype, 1, (vector,), n) for n in range(vector.lanes)]
        stored = [conversions.pack(b, v, stage.value.dtype) for v in values]
        if along_sum:
            words = b.line("convert", self.dtype, stage.lanes // stage.pack, (stored[0],), "bitcast")
            return [b.line("extract", self.dtype, 1, (words,), n) for n in range(words.lanes)]
        low, high = stored
        if stage.lanes == 1:
            u16 = dtypes.uint16
            bits = [s if s.dtype is u16 else b.convert("bitcast", s, u16) for s in (low, high)]
            halves = [b.convert("zext", s, self.dtype) for s in bits]
            return [b.alu("or", halves[0], b.alu("shl", halves[1], b.const(self.dtype, 16)))]
        mixed = b.shuffle(low, high, [n // 2 + n % 2 * stage.lanes for n in range(2 * stage.lanes)])
        words = b.line("convert", self.dtype, stage.lanes, (mixed,), "bitcast")
        widest = VECTOR_BYTES // self.dtype.itemsize
        if stage.lanes <= widest:
            return [words]
        return [b.shuffle(words, words, range(at, at + widest)) for at in range(0, stage.lanes, widest)]

    def store(self, pieces: list[tuple[UOp, UOp, list[Line]]]) -> None:
        """Store the pieces of `load`."""
        along_sum = self.stage.along == "sum" and self.stage.lanes > 1
        for word, place, words in pieces:
            if len(words) == 2 and not along_sum:
                self._store_pair(word, place, words)
                continue
            for n, vector in enumerate(words):
                row = symbolic.add(word, symbolic.const(n)) if along_sum else word
                at = place if along_sum else symbolic.add(place, symbolic.const(n * vector.lanes))
                policy = "aligned" if vector.lanes > 1 else None
                self.b.line("store", self.dtype, vector.lanes, (self.address(row, at), vector), policy)

    def _store_pair(self, word: UOp, place: UOp, words: list[Line]) -> None:
        """Store two neighbouring vectors of 16 bytes; every second group of threads begins with the second.

        Threads are 32 bytes apart, so after four of them the first vectors use the same banks again.
        """
        b, ix = self.b, self.owner.index
        other = ix.fresh(2)
        thread = b.line("thread", dtypes.int64, 1, (), 0)
        number = ix.modulo(ix.divide(thread, PAIRS, signed=False), 2, signed=False)
        ix.bound[other] = number
        turned = b.cmp("ne", number, b.index(0))
        lanes = words[0].lanes
        low = symbolic.add(place, symbolic.mul(other, lanes))
        high = symbolic.add(symbolic.add(place, symbolic.mul(other, -lanes)), symbolic.const(lanes))
        for at, (x, y) in ((low, (words[1], words[0])), (high, (words[0], words[1]))):
            value = b.select(turned, x, y)
            b.line("store", self.dtype, lanes, (self.address(word, at), value), "aligned")


class _Products:
    """Multiply-adds of a register tile: each thread reads its rows and its columns of the tiles."""

    def __init__(self, owner: Writer, rows: _Tile, columns: _Tile) -> None:
        self.owner = owner
        self.b = owner.b
        self.rows = rows
        self.columns = columns
        self.depth = min(rows.words, 4)

    def zeros(self) -> list[Line]:
        """Return the initial sums, of each row and vector of columns."""
        zero = self.b.const(self.rows.dtype, 0.0, self.columns.axis.lanes)
        return [zero] * (self.rows.axis.upcast * self.columns.axis.upcast)

    def add(self, sums: list[Line], token: Line) -> list[Line]:
        """Add the products of one block."""
        b, steps = self.b, self.rows.words // self.depth
        if steps == 1:
            return self._round(symbolic.ZERO, sums, token)
        loop = b.enter_loop(b.index(0), b.index(steps), 1, b.cursor)
        counter = self.owner.index.fresh(steps)
        self.owner.index.bound[counter] = loop.index
        carried = [b.carry(loop, s) for s in sums]
        return b.leave_loop(loop, self._round(symbolic.mul(counter, self.depth), carried, token))

    def _round(self, first: UOp, sums: list[Line], token: Line) -> list[Line]:
        b = self.b
        for n in range(self.depth):
            word = symbolic.add(first, symbolic.const(n))
            left = self._values(self.rows, word, token)
            right = self._values(self.columns, word, token)
            sums = [
                b.fma(*b.level((x, y, total)))
                for (x, y), total in zip([(x, y) for x in left for y in right], sums, strict=True)
            ]
        return sums

    def _values(self, tile: _Tile, word: UOp, token: Line) -> list[Line]:
        """Return the vectors of a thread's part of one row of a tile, in the order of its units."""
        b, axis = self.b, tile.axis
        base = symbolic.dot([d for d, _ in self.owner.digits[axis.range]],
                            [c for _, c in self.owner.digits[axis.range]])  # fmt: skip
        run = axis.run or axis.upcast
        out: list[Line] = []
        for unit in range(0, axis.upcast, run):
            place = symbolic.add(base, symbolic.const(axis.offset(unit)))
            for vector in tile.read(word, place, run * axis.lanes, token):
                if vector.lanes == axis.lanes:
                    out.append(vector)
                else:
                    assert axis.lanes == 1
                    out += [b.line("extract", vector.dtype, 1, (vector,), n) for n in range(vector.lanes)]
        return out

    def results(self, sums: list[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
        """Yield each sum with its units of rows and columns."""
        columns = self.columns.axis.upcast
        for n, total in enumerate(sums):
            yield divmod(n, columns), total


class _MatrixProducts:
    """Matrix operations on fragments of the tiles."""

    def __init__(self, owner: Writer, rows: _Tile, columns: _Tile) -> None:
        assert owner.plan.matrix is not None
        self.op = owner.plan.matrix
        self.owner = owner
        self.b = owner.b
        self.rows = rows
        self.columns = columns
        self.row_strides, mine, _ = places(self.op.d.row, 1)
        self.high = rows.axis.upcast * rows.axis.lanes // mine
        self.column_strides, mine, _ = places(self.op.d.column, 1)
        self.wide = columns.axis.upcast * columns.axis.lanes // mine
        self.row_strides, _, self.warp_rows = places(self.op.d.row, self.high)
        self.column_strides, _, self.warp_columns = places(self.op.d.column, self.wide)
        self.lane = owner.index.fresh(self.op.lanes)
        thread = self.b.line("thread", dtypes.int64, 1, (), 0)
        owner.index.bound[self.lane] = (
            owner.index.modulo(thread, self.op.lanes, signed=False)
            if owner.plan.threads > self.op.lanes
            else thread
        )

    def zeros(self) -> list[Line]:
        """Return the initial accumulators of each operation."""
        return [self.b.const(dtypes.float32, 0.0, self.op.d.registers)] * (self.high * self.wide)

    def add(self, sums: list[Line], token: Line) -> list[Line]:
        """Add the products of one block."""
        op, b = self.op, self.b
        for first in range(0, self.rows.words, op.depth):
            left = self._fragments(self.rows, op.a.registers, first, token)
            right = self._fragments(self.columns, op.b.registers, first, token)
            pairs = [(x, y) for x in left for y in right]
            sums = [
                b.line("matrix", dtypes.float32, op.d.registers, (*x, *y, total), op)
                for (x, y), total in zip(pairs, sums, strict=True)
            ]
        return sums

    def _fragments(self, tile: _Tile, registers: int, first: int, token: Line) -> list[list[Line]]:
        """Return the words of A (B) of each adjacent operation."""
        a = tile is self.rows
        lanes_of = self.op.a if a else self.op.b
        d_digits = self.op.d.row if a else self.op.d.column
        strides, adjacent = (self.row_strides, self.high) if a else (self.column_strides, self.wide)
        base = self._warp(tile.axis, self.warp_rows if a else self.warp_columns)
        groups: dict[UOp, list[tuple[UOp, int]]] = {}
        for register in range(registers):
            row = self._coordinate(lanes_of.row, register)
            word = symbolic.add(self._coordinate(lanes_of.column, register), symbolic.const(first))
            place = base
            for digit in d_digits:
                part = symbolic.mod(symbolic.div(row, digit.weight), digit.size)
                place = symbolic.add(place, symbolic.mul(part, strides[digit]))
            groups.setdefault(word, []).append((place, register))
        words: dict[int, list[Line]] = {}
        for word, members in groups.items():
            apart = [symbolic.add(at, symbolic.mul(members[0][0], -1)) for at, _ in members]
            joined = apart == [symbolic.const(n * adjacent) for n in range(len(members))]
            for group in [members] if joined else [[m] for m in members]:
                values = self._single(tile.read(word, group[0][0], adjacent * len(group), token))
                for n, (_, register) in enumerate(group):
                    words[register] = values[n * adjacent : (n + 1) * adjacent]
        return [[words[register][n] for register in range(registers)] for n in range(adjacent)]

    def _single(self, vectors: list[Line]) -> list[Line]:
        """Return the values of vectors one by one."""
        out: list[Line] = []
        for v in vectors:
            out += (
                [v] if v.lanes == 1 else [self.b.line("extract", v.dtype, 1, (v,), n) for n in range(v.lanes)]
            )
        return out

    def _coordinate(self, digits: Sequence[Digit], register: int) -> UOp:
        """Return a coordinate of a lane map as an index over the lane."""
        total = symbolic.ZERO
        for d in digits:
            if d.of == "register":
                part = symbolic.const(register // d.step % d.size)
            else:
                part = symbolic.mod(symbolic.div(self.lane, d.step), d.size)
            total = symbolic.add(total, symbolic.mul(part, d.weight))
        return total

    def _warp(self, axis: Axis, values: int) -> UOp:
        """Return the first place of the warp in the block of an axis: its digits of whole warps."""
        total = symbolic.ZERO
        for (digit, stride), part in zip(self.owner.digits[axis.range], axis.threads, strict=True):
            if part.step >= self.op.lanes:
                total = symbolic.add(total, symbolic.mul(digit, stride))
        assert values > 0
        return total

    def results(self, sums: list[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
        """Yield the sums of each row and vector of columns, with their units."""
        b, op = self.b, self.op
        lanes, units = self.columns.axis.lanes, self.columns.axis.upcast
        for row in range(self.rows.axis.upcast):
            high, row_register = self._of(op.d.row, self.row_strides, self.high, row)
            for unit in range(units):
                sources = []
                for at in range(unit * lanes, unit * lanes + lanes):
                    wide, register = self._of(op.d.column, self.column_strides, self.wide, at)
                    sources.append((sums[high * self.wide + wide], row_register + register))
                if lanes == 1:
                    ((source, at),) = sources
                    yield (row, unit), b.line("extract", source.dtype, 1, (source,), at)
                else:
                    yield (row, unit), self._vector(sources)

    def _vector(self, sources: list[tuple[Line, int]]) -> Line:
        """Return the vector of one lane of each source; their number is a power of two from 2 on."""
        if len(sources) == 2:
            (x, low), (y, high) = sources
            return self.b.shuffle(x, y, (low, x.lanes + high))
        half = len(sources) // 2
        return self.b.shuffle(self._vector(sources[:half]), self._vector(sources[half:]), range(len(sources)))

    @staticmethod
    def _of(digits: Sequence[Digit], strides: dict[Digit, int], adjacent: int, at: int) -> tuple[int, int]:
        """Return the operation, and the register's part, of a value in a thread's part of the block."""
        register = sum(at // strides[d] % d.size * d.step for d in digits if d.of == "register")
        return at % adjacent, register


def _computed(operand: UOp) -> bool:
    """Return whether an operand is computed, so that it need not be 0 where its loads are."""
    nodes = inner_nodes((operand,))
    return any(n.op in BINARY or n.op in UNARY or n.op in (Ops.WHERE, Ops.IVALUE, Ops.CONST) for n in nodes
               if n.dtype is not dtypes.index) and operand.op is not Ops.LOAD  # fmt: skip


def shared_bytes(rows: Axis, columns: Axis, stages: Sequence[SharedStage], staged: int) -> int:
    """Return the bytes of the tiles of a staged sum."""
    return prod((4, staged // stages[0].pack)) * sum(
        axis.block + stage.pad for axis, stage in zip((rows, columns), stages, strict=True)
    )
