"""Tiles in shared memory: copies to them, by vector loads or asynchronously, and loads from them.

All threads of a workgroup copy a tile (`nest.loop_nest.Stage`). With vector loads each loads vectors from
global memory, and stores them as words of the tile. In a sum, words of the tile beyond its end are 0. A
kernel that transposes copies to tiles, and loads across them (`fill`).

Asynchronous copies fill a ring of tiles, whose rows are rows of global memory: values along the sum, or along
the operand's axis. Pieces of 16 bytes are permuted within rows, so that copies and loads of fragments have no
bank conflicts.

Not here: the choice of the tiles (`plan.shared_product`, `plan.transposes`), the products (`products`). Next:
`staged_sum` and `linearize`, the callers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from compiler.dtype import dtypes, storage_type
from compiler.emit import conversions
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import BINARY, UNARY, Ops
from compiler.nest.kernel_shape import inner_nodes
from compiler.targets.shared.matrix import PIECE, SharedOperand

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compiler.dtype import DType
    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, Stage

    Pieces = list[tuple[UOp, UOp, list[Line]]]
    """What a thread has loaded of a tile, (row, place, words) of each piece; none of asynchronous copies.

    Rows and places are over ranges that are bound, and the words are vectors along the axis, or single words
    of successive rows.
    """

PAIRS = 4
"""Threads whose pairs of vectors of 16 bytes use all 32 banks of shared memory once."""
VECTOR_BYTES = 16
"""The widest access to shared memory."""


class SharedTile:
    """The tile of one operand in shared memory: copies to it and loads from it."""

    def __init__(self, e: Emitter, stage: Stage, k: UOp, block: int, dtype: DType) -> None:
        """`block` values of `k`, the summed range or `stage.across`, are in a tile, of words of `dtype`."""
        self.e = e
        self.b = e.b
        self.stage = stage
        self.k = k
        self.axis: Axis = e.axes[stage.axis]
        self.words = block // stage.layout.pack
        self.block = block
        self.pitch = self.axis.block + stage.layout.pad
        self.dtype = dtype
        self.value = e.value
        """Returns the operand at the current position, as one value or a vector."""
        self.turns: dict[UOp, UOp] = {}
        """For the index of a row the number by which its places are permuted."""
        tag = e.plan.shared_stages().index(stage)
        self.array = (dtype, self.words * self.pitch, tag)
        self.base: Line | None = None
        """The address of the tile; None before `memory`."""

    def memory(self) -> Line:
        """Return the address of the tile, written at the first call."""
        self.base = self.base or self.b.line("shared", POINTER, 1, (), self.array)
        return self.base

    def address(self, word: UOp, place: UOp) -> Line:
        """Return the address of the word in row `word` at `place` in the block; both are indices."""
        b, ix, swizzle, memory = self.b, self.e.index, self.stage.layout.swizzle, self.base or self.memory()
        if swizzle is None:
            at = ix.materialised(symbolic.dot((word, place), (self.pitch, 1)))
        else:
            turned = self.turns.get(word)
            if turned is None:
                number = symbolic.mod(symbolic.div(word, swizzle.run), swizzle.count)
                turned = self.turns[word] = symbolic.mul(number, swizzle.width)
            x, y = ix.materialised(place), ix.materialised(turned)
            if x.op == "const" and y.op == "const":
                assert isinstance(x.arg, int)
                assert isinstance(y.arg, int)
                x = b.index(x.arg ^ y.arg)
            elif y.op != "const" or y.arg != 0:
                x = b.alu("xor", x, y)
            at = b.add(ix.materialised(symbolic.mul(word, self.pitch)), x)
        return b.offset(memory, at, self.dtype)

    def read(self, word: UOp, place: UOp, count: int, token: Line) -> list[Line]:
        """Load `count` neighbours along the axis, as vectors of up to 16 bytes, after `token`."""
        b = self.b
        widest = VECTOR_BYTES // self.dtype.itemsize
        out: list[Line] = []
        for at in range(0, count, widest):
            lanes = min(widest, count - at)
            address = self.address(word, symbolic.add(place, symbolic.const(at)))
            vector = b.line("load", self.dtype, lanes, (address, token), "aligned")
            out.append(vector)
        return out

    def load(self, start: UOp, _slot: Line | None = None) -> Pieces:
        """Load this thread's part of the tile whose values of `k` begin at `start`."""
        e, ix, stage = self.e, self.e.index, self.stage
        r, k = self.axis.range, self.k
        out = []
        with e.range_scope((r, k)) as scope:
            for moved in (r, k):
                e.units.pop(moved, None)
                ix.guards.pop(moved, None)
            lane = ix.fresh(stage.lanes)
            if lane.op is Ops.RANGE:
                ix.lane_ranges[lane] = stage.lanes
            for word, place in self._pieces():
                along_sum = stage.along == "sum" and stage.lanes > 1
                parts = range(1) if along_sum else range(stage.layout.pack)
                values = []
                for part in parts:
                    first = symbolic.add(start, symbolic.dot((word,), (stage.layout.pack,), part))
                    where = symbolic.add(ix.starts[r], place)
                    scope.forget()
                    opened = (k, first, along_sum, k.arg[1]), (r, where, not along_sum, self.axis.size)
                    for moved, begin, vector, size in opened if stage.across is None else opened[::-1]:
                        scope.open(moved, begin, lane if vector else symbolic.ZERO, size)
                    values.append(self._masked(self.value(stage.value)))
                out.append((word, place, self._words(values, along_sum=along_sum)))
        return out

    def _pieces(self) -> Iterator[tuple[UOp, UOp]]:
        """Yield the first (row, place) of each vector that a thread copies."""
        e, ix, stage = self.e, self.e.index, self.stage
        threads, block = e.plan.threads, self.axis.block
        along_sum = stage.along == "sum"
        size = max(1, stage.lanes // stage.layout.pack) if along_sum else stage.lanes
        inner = (self.words if along_sum else block) // size
        outer = block if along_sum else self.words
        thread = ix.fresh(threads)
        ix.bound[thread] = self.e.thread()
        x, y = symbolic.mul(symbolic.mod(thread, inner), size), symbolic.div(thread, inner)
        rows = threads // inner
        for at in range(0, outer, rows):
            far = symbolic.add(y, symbolic.const(at))
            yield (x, far) if along_sum else (far, x)

    def _masked(self, value: Line) -> Line:
        """Return the operand at the current position in every lane; beyond the end of the sum it is 0."""
        e, b = self.e, self.b
        guard = e.index.guards.get(self.k)
        if guard is not None and _computed(self.stage.value):
            mask = e.index.mask(guard)
            if mask is not None:
                value = b.select(mask, value, conversions.zero(b, self.stage.value.dtype, value.lanes))
        return b.splat(value, self.stage.lanes)

    def _words(self, values: list[Line], *, along_sum: bool) -> list[Line]:
        """Return loaded values as words: one vector along the sum, or a vector for each part of a word."""
        b, stage = self.b, self.stage
        if stage.layout.pack == 1:
            (vector,) = values
            if not along_sum:
                return [vector]
            return b.each(vector)
        stored = [conversions.pack(b, v, stage.value.dtype) for v in values]
        if along_sum:
            words = b.line("convert", self.dtype, stage.lanes // stage.layout.pack, (stored[0],), "bitcast")
            return b.each(words)
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

    def store(self, pieces: Pieces) -> None:
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
        """Store two vectors of 16 bytes, neighbours; every second group of threads stores the second first.

        Threads are 32 bytes apart: the first vectors of the next four threads would use the same banks.
        """
        b, ix = self.b, self.e.index
        other = ix.fresh(2)
        thread = self.e.thread()
        number = ix.modulo(ix.divide(thread, PAIRS, signed=False), 2, signed=False)
        ix.bound[other] = number
        turned = b.cmp("ne", number, b.index(0))
        lanes = words[0].lanes
        low = symbolic.add(place, symbolic.mul(other, lanes))
        high = symbolic.add(symbolic.add(place, symbolic.mul(other, -lanes)), symbolic.const(lanes))
        for at, (x, y) in ((low, (words[1], words[0])), (high, (words[0], words[1]))):
            value = b.select(turned, x, y)
            b.line("store", self.dtype, lanes, (self.address(word, at), value), "aligned")


def block_start(e: Emitter, number: Line, count: int, block: int) -> UOp:
    """Return the first value of a block of a sum as an index; there are `count` blocks."""
    counter = e.index.fresh(count)
    if counter.op is Ops.RANGE:
        e.index.bound[counter] = number
    return symbolic.mul(counter, block)


def _computed(operand: UOp) -> bool:
    """Return whether an operand is computed, and so may differ from 0 where all its loads are masked to 0."""
    nodes = inner_nodes((operand,))
    return any(n.op in BINARY or n.op in UNARY or n.op in (Ops.WHERE, Ops.IVALUE, Ops.CONST) for n in nodes
               if n.dtype is not dtypes.index) and operand.op is not Ops.LOAD  # fmt: skip


def fill(e: Emitter, memory: Memory, stages: Sequence[Stage]) -> None:
    """Write the copies to the tiles at the cursor; from then on their operands are loaded from them."""
    tiles = []
    for stage in stages:
        assert stage.across is not None
        kind = storage_type(stage.value.dtype)
        tile = SharedTile(e, stage, stage.across, e.axes[stage.across].block, kind)
        tile.value = memory.stored
        tile.store(tile.load(e.index.starts[stage.across]))
        tiles.append(tile)
    token = e.b.line("barrier", dtypes.bool, 1)
    for tile in tiles:
        e.readers[tile.stage.value] = partial(_read, e, tile, token)


def _read(e: Emitter, tile: SharedTile, token: Line, node: UOp) -> Line:
    """Return the vector of a LOAD at the current position, along the results: a value of each of its rows."""
    b, rows, columns = e.b, tile.axis, e.axes[tile.k]
    unit = e.units.get(rows.range)
    place = symbolic.add(_thread(e, rows), symbolic.const(rows.offset(e.env[unit] if unit else 0)))
    values = []
    for n in range(columns.lanes):
        row = symbolic.add(_thread(e, columns), symbolic.const(n))
        values += tile.read(row, place, 1, token)
    vector = values[0] if len(values) == 1 else b.line("vector", tile.dtype, len(values), tuple(values))
    return conversions.unpack(b, vector, node.dtype)


def _thread(e: Emitter, axis: Axis) -> UOp:
    """Return the place of the thread in the block of an axis."""
    ((digit, stride),) = e.digits[axis.range]
    return symbolic.mul(digit, stride)


BYTES = 16
"""Bytes of one copy of a thread."""


class TileRing:
    """The tiles of one operand: `stage.depth` places in memory, used one after the other."""

    def __init__(self, e: Emitter, memory: Memory, stage: Stage, k: UOp, block: int) -> None:
        self.e = e
        self.b = e.b
        self.accesses = memory
        self.stage = stage
        self.k = k
        self.block = block
        self.axis = e.axes[stage.axis]
        self.along_sum = stage.along == "sum"
        self.inner, self.outer = (block, self.axis.block) if self.along_sum else (self.axis.block, block)
        self.pitch = stage.layout.panel or self.inner
        """Values from one row to the next."""
        tag = e.plan.shared_stages().index(stage)
        count = stage.depth * self.inner * self.outer
        self.memory = self.b.line("dynamic", POINTER, 1, (), (dtypes.uint16, count, tag))
        self.places: dict[tuple[UOp, UOp], tuple[UOp, UOp, UOp]] = {}
        """For (row, along): the place in the row, the number that permutes it, and the start of the row."""
        self.slot: Line | None = None
        """The place in the ring of the tile that is read; None while no tile is."""

    def select(self, slot: Line) -> None:
        """Read the tile in a place of the ring from now on."""
        self.slot = slot

    def operand(self, first: UOp) -> tuple[Line, SharedOperand]:
        """Return the address of the rows (columns) from `first` on in the selected tile, and their layout."""
        row, along = (first, symbolic.ZERO) if self.along_sum else (symbolic.ZERO, first)
        layout = SharedOperand(not self.along_sum, 2 * self.pitch * self.outer)
        return self.address(self.tile(), row, along), layout

    def tile(self) -> Line:
        """Return the address of the tile that is read."""
        assert self.slot is not None
        return self._tile(self.slot)

    def _tile(self, slot: Line) -> Line:
        """Return the address of the tile in a place of the ring."""
        return self.b.offset(self.memory, self.b.mul(slot, self.inner * self.outer), dtypes.uint16)

    def address(self, tile: Line, row: UOp, along: UOp) -> Line:
        """Return the address in a tile of the piece of row `row` that begins at the place `along`."""
        b, ix = self.b, self.e.index
        found = self.places.get((row, along))
        if found is None:
            found = self.places[row, along] = self._split(row, along)
        place, turned, first = found
        at = ix.materialised(place)
        if self.stage.layout.swizzle is not None:
            at = b.alu("xor", at, ix.materialised(turned))
        return b.offset(tile, b.add(ix.materialised(first), at), dtypes.uint16)

    def _split(self, row: UOp, along: UOp) -> tuple[UOp, UOp, UOp]:
        """Return the place in the row, the number that permutes it, and the start of the row."""
        swizzle, turned = self.stage.layout.swizzle, symbolic.ZERO
        if swizzle is not None:
            turned = symbolic.mul(symbolic.mod(symbolic.div(row, swizzle.run), swizzle.count), swizzle.width)
        panel = symbolic.div(along, self.pitch)
        first = symbolic.dot((row, panel), (self.pitch, self.pitch * self.outer))
        return symbolic.mod(along, self.pitch), turned, first

    def load(self, begin: UOp, slot: Line | None) -> Pieces:
        """Start this thread's copies to a place of the ring; the tile begins at the value `begin` of `k`."""
        assert slot is not None
        e, ix, b = self.e, self.e.index, self.b
        r, k = self.axis.range, self.k
        with e.range_scope((r, k)) as scope:
            for moved in (r, k):
                ix.guards.pop(moved, None)
            lane, thread = ix.fresh(PIECE), ix.fresh(e.plan.threads)
            ix.lane_ranges[lane] = PIECE
            ix.bound[thread] = e.thread()
            pieces = self.inner // PIECE
            along = symbolic.mul(symbolic.mod(thread, pieces), PIECE)
            first = symbolic.div(thread, pieces)
            tile = self._tile(slot)
            step = e.plan.threads // pieces
            unit = ix.fresh(self.outer // step)
            if unit.op is Ops.RANGE:
                ix.unit_ranges.add(unit)
            row = symbolic.dot((first, unit), (1, step))
            summed, place = (along, row) if self.along_sum else (row, along)
            zero = symbolic.ZERO
            start = symbolic.add(begin, summed)
            scope.open(k, start, lane if self.along_sum else zero, k.arg[1])
            start = symbolic.add(ix.starts[r], place)
            scope.open(r, start, zero if self.along_sum else lane, self.axis.size)
            for piece in range(self.outer // step):
                if unit.op is Ops.RANGE:
                    ix.env[unit] = piece
                origin, mask = self.accesses.source(self.stage.value)
                to = self.address(tile, row, along)
                size = () if mask is None else (b.select(mask, b.index(BYTES), b.index(0)),)
                b.line("copy", dtypes.bool, 1, (to, origin, *size))
        return []

    def fragments(self, place: tuple[UOp, int], summed: tuple[UOp, int], token: Line) -> Line:
        """Load the four matrices of which each lane addresses the row at (place, sum) in the tile.

        Both are (index of the lane, constant); constants along rows are added to the address.
        """
        (row, far), (along, near) = (place, summed) if self.along_sum else (summed, place)
        base = self.address(self.tile(), row, symbolic.add(along, symbolic.const(near)))
        address = self.b.offset(base, self.b.index(far * self.pitch), dtypes.uint16)
        return self.b.line("fragments", dtypes.uint32, 4, (address, token), not self.along_sum)
