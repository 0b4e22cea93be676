"""Loads and stores of the kernel AST as lines: rows, elements, gathers, scatters, transposed squares.

A row is a vector whose lanes are neighbours in memory. A square is as many vectors as each has lanes: where
the lanes of an access are far apart, but the unrolled positions of one range are neighbours, the vectors
along that range are loaded or stored, and the square is transposed in registers.

Not here: addresses and masks (`indexing`), accumulators (`reductions`). Next: `emitter`, the caller for
the value of a LOAD; `results`, the caller for stores.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import dtypes, storage_type
from compiler.emit import conversions, indexing
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir import narrowing
from compiler.ir.ops import Ops
from compiler.nest.kernel_shape import MOST_STRIDE
from compiler.nest.register_tile import APART, FEWEST

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp


LINE = 64
"""Bytes of a cache line."""
WOVEN = 2
"""Vectors whose lanes alternate in one store."""
LEAST_STREAMED = 16
"""Bytes of the narrowest vector that has a store instruction which bypasses the caches."""
_FLOATS = (dtypes.float16, dtypes.float32, dtypes.float64)
"""Float types that are stored as they are; others are bits of an integer type in memory."""


def transposed(b: Builder, rows: list[Line], count: int) -> Line:
    """Return the first `count` rows of the transpose of a square, as a bundle.

    There must be as many rows as each has lanes.
    """
    kind, lanes = rows[0].dtype, rows[0].lanes
    return b.line("transpose", kind, lanes, (b.line("bundle", kind, lanes, tuple(rows)),), count)


def rows_of(b: Builder, bundle: Line, count: int) -> list[Line]:
    """Return the first registers of a bundle."""
    return [b.line("row", bundle.dtype, bundle.lanes, (bundle,), k) for k in range(count)]


class FactorSource(NamedTuple):
    """The address and the index of a factor that a sum loads."""

    pointer: Line
    place: UOp
    """The index of the element, over ranges of the AST."""
    kind: DType
    token: tuple[Line, ...]
    """The source that keeps the loads after the stores to scratch memory; empty for other memory."""


class Memory:
    """Writes the loads and stores of one kernel at the current position."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.b = e.b
        self.index = e.index
        e.handlers[Ops.LOAD] = self.load
        self.ahead = {a.load: a for a in e.plan.ahead}
        self.fetched: set[tuple[UOp, Line, int]] = set()
        """Buffer, the variable part of its index, and line of 64 bytes after that, which are prefetched."""
        self.written = {node.src[0].arg for node in e.free if node.op is Ops.STORE}
        """Buffers that the kernel also writes. Other threads may change elements that a mask excludes."""

    def load(self, node: UOp) -> Line:
        """Return the register of a LOAD at the current position; 0, and no read, where its mask is false."""
        mask = self._mask(node)
        if mask is None:
            transposed_column = self._load_transposed(node)
            if transposed_column is not None:
                return transposed_column
        short = len(node.src) > 2 and narrowing.is_short(node.src[1], node.src[2])
        stored = self.read(node.src[0], node.src[1], mask, short=short)
        if node in self.ahead and mask is None:
            self.fetch(node, lines=True)
        return conversions.unpack(self.b, stored, node.dtype)

    def fetch(self, node: UOp, *, lines: bool = False) -> None:
        """Prefetch what is the plan's distance after the current element or vector, if the plan has one.

        With `lines` only for the first vector in a cache line, and only for lanes that are neighbours. A
        prefetch beyond the end of a buffer has no effect: it never faults.
        """
        if node not in self.ahead:
            return
        place, kind = self.index.place(node.src[1]), storage_type(node.src[0].dtype)
        if lines:
            line = node.src[0], place.base, place.offset * kind.itemsize // LINE
            if place.vector is not None or place.stride != 1 or line in self.fetched:
                return
            self.fetched.add(line)
        address = self.index.address(self.index.buffer(node.src[0].arg), place, kind)
        ahead = self.ahead[node]
        later = self.b.offset(address, self.b.index(ahead.distance), kind)
        self.b.line("prefetch", POINTER, 1, (later,), 3 if ahead.near else 2)

    def stored(self, node: UOp) -> Line:
        """Return the register of a LOAD at the current position, of the type in memory."""
        mask = self._mask(node)
        return self.read(node.src[0], node.src[1], mask)

    def source(self, node: UOp) -> tuple[Line, Line | None]:
        """Return the address of the vector of a LOAD at the current position, and its mask; None is true.

        The lanes must be neighbours. Where the mask is false, the address is that of the buffer.
        """
        b, ix = self.b, self.index
        mask = self._mask(node)
        kind = storage_type(node.src[0].dtype)
        pointer, place = ix.buffer(node.src[0].arg), ix.place(node.src[1])
        assert place.vector is None
        assert place.stride == 1
        if mask is None:
            return ix.address(pointer, place, kind), None
        where = b.select(mask, b.add(place.base, b.index(place.offset)), b.index(0))
        return b.offset(pointer, where, kind), mask

    def plain(self, node: UOp) -> FactorSource | None:
        """Return where the values of a LOAD are; None with a mask or a prefetch, or outside `_FLOATS`."""
        if node.op is not Ops.LOAD or len(node.src) > 2 or node in self.ahead:
            return None
        if node.dtype not in _FLOATS or any(r in self.index.guards for r in self.e.free[node]):
            return None
        buffer = node.src[0]
        return FactorSource(self.index.buffer(buffer.arg), node.src[1], node.dtype, self.token(buffer))

    def _load_transposed(self, node: UOp) -> Line | None:
        """Load a square, or a part of one, by rows along an unrolled range, and transpose it in registers.

        Return the value at the current position, and record those of the range's other positions. None for an
        access of another form.
        """
        b, env = self.b, self.index.env
        found = self._square(node)
        if found is None:
            return None
        unit, square = found
        here, keys = env[unit], self.e.unit_keys[node]
        for k, column in enumerate(rows_of(b, square, unit.arg[1])):
            env[unit] = k
            self.e.values[node, *[env[u] for u in keys]] = conversions.unpack(b, column, node.dtype)
        env[unit] = here
        return self.e.values[node, *[env[u] for u in keys]]

    def square(self, node: UOp) -> tuple[UOp, Line] | None:
        """Return an unrolled range, and the bundle of a LOAD's stored vectors at all positions of the range.

        None where the access has a mask, or is not read by rows of a square along a range.
        """
        plain = node.op is Ops.LOAD and len(node.src) == 2 and self._mask(node) is None
        return self._square(node) if plain else None

    def _square(self, node: UOp) -> tuple[UOp, Line] | None:
        ix, b = self.index, self.b
        p = ix.parts(ix.split(node.src[1]))
        unit = self._side(p, part=p.stride > MOST_STRIDE and self.e.plan.threads == 1)
        if unit is None or p.computed or p.stride in (-1, 0, 1):
            return None
        here = ix.env[unit]
        ix.env[unit] = 0
        base, offset = self._origin(node.src[0], p)
        ix.env[unit] = here
        kind, token, count = storage_type(node.dtype), self.token(node.src[0]), unit.arg[1]
        places = [offset + p.stride * lane for lane in range(p.lanes)]
        if count == p.lanes:
            rows = b.line("load_rows", kind, p.lanes, (base, *token), tuple(places))
            return unit, b.line("transpose", kind, p.lanes, (rows,), count)
        some = b.const(dtypes.bool, tuple([k < count for k in range(p.lanes)]), p.lanes)
        addresses = [b.offset(base, b.index(at), kind) for at in places]
        read = [self._read_row(kind, at, p.lanes, some, token) for at in addresses]
        return unit, transposed(b, read, count)

    def _origin(self, buffer: UOp, p: indexing.IndexParts) -> tuple[Line, int]:
        """Return the address of an access without its units, and the elements from there to their places."""
        ix, kind = self.index, storage_type(buffer.dtype)
        pointer = ix.buffer(buffer.arg)
        base = self.b.offset(pointer, ix.sum([(ix.leaf(a), c) for a, c in p.outer]), kind)
        return base, p.constant + sum([c * ix.env[u] for u, c in p.units])

    def _mask(self, node: UOp, *, apart: bool = False) -> Line | None:
        """Return the mask of a LOAD or STORE and the guards of its ranges; None if that is always true.

        `apart`: of a STORE to one element, whose mask then holds if it does for the first lane.
        """
        masks, ix = node.src[2:] if node.op is Ops.LOAD else node.src[3:], self.index
        if masks and apart:
            masks = (
                symbolic.substitute(ix.split(masks[0]), dict.fromkeys(ix.lane_ranges, symbolic.ZERO), {}),
            )
        line = ix.mask(masks[0]) if masks else None
        for r, guard in self.index.guards.items():
            if r in self.e.free[node]:
                line = self.b.both(line, self.index.mask(guard))
        return line

    def read(self, buffer: UOp, index: UOp, mask: Line | None, *, short: bool = False) -> Line:
        """Return the elements of a buffer at an index, of the type in memory; 0 where the mask is false.

        With `short` the index is from 0 to the largest int32 where the mask is true.
        """
        b, ix = self.b, self.index
        kind = storage_type(buffer.dtype)
        pointer = ix.buffer(buffer.arg)
        token = self.token(buffer)
        place = ix.place(index, strided=True)
        if place.vector is not None:
            every = self._every(mask, place.vector.lanes)
            return b.line("gather", kind, every.lanes, (pointer, place.vector, every, *token))
        if place.stride == 0:
            if mask is not None and buffer.arg in self.written:
                return self._read_if(kind, self.index.address(pointer, place, kind), mask, token)
            return self._read_once(kind, pointer, place, mask, token, short=short)
        address = self._within(pointer, place, kind, mask)
        if place.stride == -1:
            flipped = None if mask is None else self._reversed(mask)
            return self._reversed(self._read_row(kind, address, place.lanes, flipped, token))
        if place.stride > 1:
            return self._read_thinned(kind, address, place, mask, token)
        if self.e.plan.threads > 1 and (mask is None or mask.lanes == 1):
            return self._read_once(kind, pointer, place, mask, token)
        return self._read_row(kind, address, place.lanes, mask, token)

    def _within(self, pointer: Line, place: indexing.AccessPlace, kind: DType, mask: Line | None) -> Line:
        """Return the address of a vector; where one mask of all lanes is false, an address in the buffer.

        A processor needs hundreds of cycles for a load with all lanes masked where no memory is mapped.
        """
        b = self.b
        if mask is None or mask.lanes > 1:
            return self.index.address(pointer, place, kind)
        offset = place.offset - (place.lanes - 1 if place.stride == -1 else 0)
        if offset < 0:
            return b.offset(pointer, b.select(mask, b.add(place.base, b.index(offset)), b.index(0)), kind)
        base = b.select(mask, place.base, b.index(0))
        return b.offset(b.offset(pointer, base, kind), b.index(offset), kind)

    def _every(self, mask: Line | None, lanes: int) -> Line:
        """Return a mask, None is true, for every lane."""
        return self.b.const(dtypes.bool, True, lanes) if mask is None else self.b.splat(mask, lanes)

    def _reversed(self, value: Line) -> Line:
        """Return the lanes of a value in reverse order."""
        return value if value.lanes == 1 else self.b.shuffle(value, value, range(value.lanes)[::-1])

    def token(self, buffer: UOp) -> tuple[Line, ...]:
        """Return the source that keeps loads of scratch memory after its stores; empty for other buffers."""
        kept = self.index.kept.get(buffer.arg)
        return () if kept is None else kept[1:]

    @staticmethod
    def _aligned(place: indexing.AccessPlace) -> bool:
        """Return whether a vector starts at a multiple of its size; GPU buffers start at one of 16 bytes."""
        return place.align % place.lanes == 0

    def _read_thinned(
        self, kind: DType, address: Line, place: indexing.AccessPlace, mask: Line | None,
        token: tuple[Line, ...]
    ) -> Line:  # fmt: skip
        """Load lanes that are a few elements apart: load rows, and select the lanes from them.

        No row extends beyond the last lane.
        """
        b, lanes, stride = self.b, place.lanes, place.stride
        starts = [lanes * k for k in range(stride - 1)] + [(lanes - 1) * (stride - 1)]
        row_of = [min(i * stride // lanes, stride - 1) for i in range(lanes)]
        never = b.const(dtypes.bool, False, lanes)
        result: Line | None = None
        for k, start in enumerate(starts):
            mine = [i for i in range(lanes) if row_of[i] == k]
            only = None
            if mask is not None:
                lane_of = {i * stride - start: i for i in mine}
                only = b.shuffle(b.splat(mask, lanes), never, [lane_of.get(j, lanes) for j in range(lanes)])
            row = self._read_row(kind, b.offset(address, b.index(start), kind), lanes, only, token)
            picks = [i * stride - start if row_of[i] == k else 0 for i in range(lanes)]
            if result is None:
                result = b.shuffle(row, row, picks)
            else:
                result = b.shuffle(
                    result, row, [lanes + picks[i] if row_of[i] == k else i for i in range(lanes)]
                )
        assert result is not None
        return result

    def _read_row(
        self, kind: DType, address: Line, lanes: int, mask: Line | None, token: tuple[Line, ...]
    ) -> Line:
        if mask is None:
            return self.b.line("load", kind, lanes, (address, *token))
        return self.b.line("load_masked", kind, lanes, (address, self.b.splat(mask, lanes), *token))

    def _read_once(
        self, kind: DType, pointer: Line, place: indexing.AccessPlace, mask: Line | None,
        token: tuple[Line, ...], *, short: bool = False
    ) -> Line:  # fmt: skip
        """Load an element, or a vector with one mask; where it is false, load the first element and use 0."""
        b, lanes = self.b, place.lanes if place.stride else 1
        policy = "aligned" if lanes > 1 and self._aligned(place) else None
        if mask is None:
            return b.line("load", kind, lanes, (self.index.address(pointer, place, kind), *token), policy)
        some = b.any(mask)
        where = b.select(some, b.add(place.base, b.index(place.offset)), b.index(0))
        if short:
            where = indexing.resized(b, indexing.resized(b, where, dtypes.uint32), dtypes.int64)
        read = b.line("load", kind, lanes, (b.offset(pointer, where, kind), *token), policy)
        return b.select(mask, read, b.const(kind, 0.0 if kind.is_float else 0, lanes))

    def _read_if(self, kind: DType, address: Line, mask: Line, token: tuple[Line, ...]) -> Line:
        """Load one element in a branch: where the mask is false nothing is read, and the value is 0."""
        b = self.b
        some = b.any(mask)
        zero = b.const(kind, 0.0 if kind.is_float else 0)
        branch = b.enter_branch(some)
        read = b.line("load", kind, 1, (address, *token))
        (value,) = b.leave_branch(branch, [(read, zero)])
        return value if mask.lanes == 1 else b.select(mask, value, zero)

    def store(self, store: UOp, value: Line) -> None:
        """Write a STORE of a value at the current position; nothing is stored where its mask is false."""
        b, ix = self.b, self.index
        buffer, index = store.src[:2]
        kind = storage_type(buffer.dtype)
        value = conversions.pack(b, value, buffer.dtype)
        pointer, place = ix.buffer(buffer.arg), ix.place(index)
        mask = b.both(self._mask(store, apart=not place.stride), self._first_thread())
        if place.vector is not None:
            every = self._every(mask, place.vector.lanes)
            value = b.splat(value, every.lanes)
            b.line("scatter", kind, every.lanes, (pointer, place.vector, value, every))
            return
        masked = mask is not None and self.e.plan.threads == 1 and place.stride
        address = self._within(pointer, place, kind, mask if masked else None)
        if place.stride:
            value = b.splat(value, place.lanes)
        if place.stride == -1:
            value = self._reversed(value)
            if mask is not None and mask.op == "const" and isinstance(mask.arg, tuple):
                mask = b.const(dtypes.bool, mask.arg[::-1], mask.lanes)
            elif mask is not None:
                mask = self._reversed(mask)
        if mask is None or (self.e.plan.threads > 1 and mask.lanes == 1):
            whole = self.e.plan.threads > 1 and place.stride == 1 and self._aligned(place)
            policy = "aligned" if whole else "stream" if self._streams(place, kind) else None
            branch = None if mask is None else b.enter_branch(mask)
            b.line("store", kind, value.lanes, (address, value), policy)
            if branch is not None:
                b.leave_branch(branch)
        elif place.stride:
            self._store_masked(kind, address, value, b.splat(mask, place.lanes))
        else:
            branch = b.enter_branch(mask)
            b.line("store", kind, 1, (address, value))
            b.leave_branch(branch)

    def store_all(self, store: UOp, units: list[UOp], values: list[Line]) -> bool:
        """Write a STORE of vectors at all positions of `units` as one line, and return True.

        False, and nothing is written, with a mask, lanes that are no neighbours, threads, or one position.
        """
        b, ix, buffer = self.b, self.index, store.src[0]
        p, kind = ix.parts(ix.split(store.src[1])), storage_type(buffer.dtype)
        if len(values) == 1 or self.e.plan.threads > 1 or p.computed or p.stride != 1:
            return False
        if len(store.src) > 3 or any(r in self.e.free[store] for r in ix.guards):
            return False
        if any(value.dtype is not kind or value.lanes != p.lanes for value in values):
            return False
        ix.env.update(dict.fromkeys(units, 0))
        place, steps = ix.place(store.src[1]), dict(p.units)
        if self._streams(place, kind):
            return False
        apart = [[steps.get(u, 0) * k for k in range(u.arg[1])] for u in units]
        places = tuple([place.offset + sum(point) for point in itertools.product(*apart)])
        first = b.offset(ix.buffer(buffer.arg), place.base, kind)
        b.line("store_rows", kind, p.lanes, (first, b.line("bundle", kind, p.lanes, tuple(values))), places)
        return True

    def _store_masked(self, kind: DType, address: Line, value: Line, mask: Line) -> None:
        """Store the lanes of a vector where a mask is true.

        A single lane of a constant mask is stored alone: LLVM 22 stores 32 bits of a value truncated to 16.
        """
        b = self.b
        if mask.op == "const" and isinstance(mask.arg, tuple) and sum(mask.arg) == 1:
            lane = mask.arg.index(True)
            one = b.line("extract", kind, 1, (value,), lane)
            b.line("store", kind, 1, (b.offset(address, b.index(lane), kind), one))
        else:
            b.line("store_masked", kind, value.lanes, (address, value, mask))

    def across(self, store: UOp) -> UOp | None:
        """Return the unrolled range along which a STORE of strided lanes is contiguous; see `store_across`.

        None for other stores, with threads, and with a mask unless two vectors alternate.
        """
        p = self.index.parts(self.index.split(store.src[1]))
        if self.e.plan.threads > 1 or p.computed or p.stride in (-1, 0, 1):
            return None
        woven = self._woven(p)
        return woven if woven is not None or self._mask(store) is not None else self._row_of(p)

    @staticmethod
    def _woven(p: indexing.IndexParts) -> UOp | None:
        """Return the unrolled range of `WOVEN` positions whose vectors alternate without gaps; else None."""
        if p.stride != WOVEN:
            return None
        return next((unit for unit, c in p.units if c == 1 and unit.arg[1] == WOVEN), None)

    @staticmethod
    def _side(p: indexing.IndexParts, *, part: bool) -> UOp | None:
        """Return the unrolled range of neighbours that is a side of a square; with `part` also of a part."""
        for unit, c in p.units:
            count = unit.arg[1]
            if c == 1 and (count == p.lanes or (part and p.lanes <= FEWEST * count < FEWEST * p.lanes)):
                return unit
        return None

    @staticmethod
    def _row_of(p: indexing.IndexParts) -> UOp | None:
        """Return the unrolled range whose elements are a row, or every second element of one; else None.

        It is the side of one square, of a part of one, or of several.
        """
        for unit, c in sorted(p.units, key=lambda item: item[1]):
            if 1 <= c <= APART and p.lanes <= FEWEST * unit.arg[1]:
                return unit
        return None

    def store_across(self, store: UOp, unit: UOp, values: list[Line]) -> None:
        """Write a STORE of the values of all positions of `unit`, transposed in registers: a row a lane.

        Two vectors whose lanes alternate in memory are interleaved instead. Elements in the gaps of a row
        keep their values.
        """
        b, ix = self.b, self.index
        buffer = store.src[0]
        ix.env[unit] = 0
        p = ix.parts(ix.split(store.src[1]))
        if self._woven(p) is unit:
            self._store_woven(store, unit, p, values)
            return
        kind, step = storage_type(buffer.dtype), dict(p.units)[unit]
        base, offset = self._origin(buffer, p)
        rows = [b.splat(conversions.pack(b, value, buffer.dtype), p.lanes) for value in values]
        for first in range(0, len(rows), p.lanes):
            square = rows[first : first + p.lanes]
            count = len(square)
            some = b.const(dtypes.bool, tuple([k < count for k in range(p.lanes)]), p.lanes)
            turned = transposed(b, square + rows[:1] * (p.lanes - count), p.lanes)
            if step == 1 and count == p.lanes:
                places = tuple([offset + first + p.stride * lane for lane in range(p.lanes)])
                b.line("store_rows", kind, p.lanes, (base, turned), places)
                continue
            for lane, row in enumerate(rows_of(b, turned, p.lanes)):
                address = b.offset(base, b.index(offset + step * first + p.stride * lane), kind)
                if step > 1:
                    self._store_apart(kind, address, row, count)
                else:
                    self._store_masked(kind, address, row, some)

    def _store_apart(self, kind: DType, address: Line, row: Line, count: int) -> None:
        """Store the first lanes of a vector, `APART` elements from one to the next."""
        b, lanes = self.b, row.lanes
        for start in range(0, APART * (count - 1) + 1, lanes):
            places = range(start, start + lanes)
            some = tuple([e % APART == 0 and e // APART < count for e in places])
            picked = b.shuffle(row, row, [min(e // APART, lanes - 1) for e in places])
            at = b.offset(address, b.index(start), kind)
            self._store_masked(kind, at, picked, b.const(dtypes.bool, some, lanes))

    def _store_woven(self, store: UOp, unit: UOp, p: indexing.IndexParts, values: list[Line]) -> None:
        """Write a STORE of two vectors whose lanes alternate in memory; the position of `unit` is 0."""
        b, ix = self.b, self.index
        buffer, lanes = store.src[0], p.lanes
        kind = storage_type(buffer.dtype)
        base, offset = self._origin(buffer, p)
        masks = [self._mask(store) for _ in self.e.positions([unit])]
        ix.env[unit] = 0
        rows = [b.splat(conversions.pack(b, value, buffer.dtype), lanes) for value in values]
        true = b.const(dtypes.bool, True)
        some = [b.splat(true if mask is None else mask, lanes) for mask in masks]
        for start in range(0, WOVEN * lanes, lanes):
            picked = [lanes * (e % WOVEN) + e // WOVEN for e in range(start, start + lanes)]
            row, address = b.shuffle(rows[0], rows[1], picked), b.offset(base, b.index(offset + start), kind)
            if masks == [None] * WOVEN:
                b.line("store", kind, lanes, (address, row))
            else:
                b.line("store_masked", kind, lanes, (address, row, b.shuffle(some[0], some[1], picked)))

    def _streams(self, place: indexing.AccessPlace, kind: DType) -> bool:
        """Return whether a store bypasses the caches: the plan says so, and it is a wide aligned vector."""
        wide = place.stride == 1 and place.lanes * kind.itemsize >= LEAST_STREAMED
        return self.e.plan.streamed and wide and self._aligned(place)

    def _first_thread(self) -> Line | None:
        """Return the mask of the only thread that stores, if all threads have the same value; else None."""
        if self.e.plan.threads == 1 or any(a.threads for a in self.e.plan.axes):
            return None
        return self.b.cmp("eq", self.b.line("thread", dtypes.int64, 1, (), 0), self.b.index(0))
