"""The shared state of all writers of one kernel: builder, index, environment, and values on demand.

`value(node)` writes a node's lines, and the builder places them in the outermost loop where their sources
exist. So a reduction that depends on few ranges is outside the loops over the others: a softmax in one kernel
needs no more. The current unrolled positions are in `env`, not in the graph: indices are affine, so a
position adds a constant to an address.

Not here: the loops over blocks (`linearize`, which makes the emitter), loads and stores (`accesses`),
reductions (`reductions`), arithmetic (`isel`). Next: `indexing`, which writes indices and masks.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, Self

from compiler.dtype import dtypes
from compiler.emit import conversions, indexing, isel, loop_limits
from compiler.emit.builder import Builder
from compiler.emit.indexing import Indexer
from compiler.emit.loop_limits import Extents
from compiler.emit.partials import Partials
from compiler.ir import index as symbolic
from compiler.ir.ops import BINARY, COMPARE, UNARY, Ops
from compiler.ir.walk import by_number, ranges_in
from compiler.nest.loop_nest import Stage
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, LoopNest


class Emitter:
    """What the writers of one kernel share. Each writer gets it from `linearize.Linearizer`."""

    def __init__(self, ast: UOp, plan: LoopNest, buffers: int, builder: Builder | None = None) -> None:
        self.ast = ast
        self.plan = plan
        self.free = ranges_in(ast)
        """For each node of the AST the ranges on which it depends."""
        self.b = builder or Builder()
        self.index = Indexer(self.b, self.value, buffers)
        self.env = self.index.env
        """The current unrolled position of each unit."""
        self.extents = Extents(self.b, self.index)
        self.limits = loop_limits.LoopLimits(
            self.b, loop_limits.find(ast, self.free, plan.rows), loop_limits.find_begins(ast, self.free)
        )
        turn = max([s.turn for s in plan.steps if isinstance(s, Stage)], default=1)
        self.partials = Partials(self.b, self.index, self.limits, turn)
        self.axes: dict[UOp, Axis] = {axis.range: axis for axis in plan.every_axis()}
        self.units: dict[UOp, UOp] = {}
        """For a RANGE of the AST the range of its unrolled positions, its unit."""
        self.lanes: dict[UOp, UOp] = {}
        """For a RANGE of the AST the range of its lanes, or the constant 0."""
        self.digits: dict[UOp, list[tuple[UOp, int]]] = {}
        """For each range its thread parts: (the digit of the thread's number, values between neighbours)."""
        self.unit_keys: dict[UOp, tuple[UOp, ...]] = {}
        """For a node the units on which it depends, by number."""
        self.values: dict[tuple[object, ...], Line] = {}
        """For a node and the positions of its units its register."""
        self.readers: dict[UOp, Callable[[UOp], Line]] = {}
        """For each value that is in memory of the kernel, what loads it."""
        self.handlers: dict[str, Callable[[UOp], Line]] = {}
        """For LOAD and REDUCE what writes the value of such a node at the current position."""

    def value(self, node: UOp) -> Line:
        """Return the register of a node at the current position.

        Raises `CompileError` for an operation that is no value of a kernel.
        """
        keys, env = self.unit_keys.get(node), self.env  # as `key`, without a call: this is hot
        key = self.key(node) if keys is None else (node, *[env[u] for u in keys]) if keys else (node,)
        found = self.values.get(key)
        if found is None or not found.block.open:
            found = self.values[key] = self._compute(node)
        return found

    def key(self, node: UOp) -> tuple[object, ...]:
        """Return the key of a node in `values` at the current position."""
        keys = self.unit_keys.get(node)
        if keys is None:
            units = [self.units[r] for r in self.free[node] if r in self.units]
            keys = self.unit_keys[node] = tuple(by_number(units) if len(units) > 1 else units)
        env = self.env
        return (node, *[env[u] for u in keys]) if keys else (node,)

    def _compute(self, node: UOp) -> Line:
        read = self.readers.get(node)
        if read is not None:
            return read(node)
        op, src = node.op, node.src
        if op in BINARY:
            x, y = self.value(src[0]), self.value(src[1])
            if op in COMPARE and x.dtype is dtypes.int64 and x.lanes != y.lanes:
                x, y = self._short(src[0], x, y)
                y, x = self._short(src[1], y, x)
            return isel.binary(self.b, op, node.dtype, x, y)
        if op in UNARY:
            return isel.unary(self.b, op, node.dtype, self.value(src[0]))
        handler = self.handlers.get(op)
        if handler is not None:
            return handler(node)
        if op not in _HANDLERS:
            raise CompileError(f"wanted a value of a kernel, saw the operation {op}")
        return _HANDLERS[op](self, node)

    def _short(self, node: UOp, x: Line, y: Line) -> tuple[Line, Line]:
        """Return an int64 vector and a single value for a comparison, in int32 if the vector was so before.

        The single value is limited to one less than the least and one more than the greatest of the vector's
        node: the comparison stays the same.
        """
        b, kind = self.b, dtypes.int32
        if (x.op, x.arg) != ("convert", "sext") or x.src[0].dtype is not kind or y.lanes > 1:
            return x, y
        low, high = node.vmin - 1, node.vmax + 1
        if low < kind.min or high > kind.max:
            return x, y
        limited = b.call("smin", b.call("smax", y, b.index(low)), b.index(high))
        return x.src[0], b.convert("trunc", limited, kind)

    def finish(self, node: UOp, total: Line) -> None:
        """Record a reduction's value at the current position."""
        self.values[self.key(node)] = conversions.rounded(self.b, total, node.dtype)

    def units_of(self, node: UOp) -> list[UOp]:
        """Return the units of a REDUCE, by the number of the range that each is a part of.

        The range of the vectors is last: one value of the others at a time is then spread over lanes.
        """
        free = sorted(
            self.free[node], key=lambda r: (self.lanes.get(r) in self.index.lane_ranges, int(r.arg[0]))
        )
        return [self.units[r] for r in free if r in self.units]

    def positions(self, units: list[UOp]) -> Iterator[None]:
        """Set `env` to every combination of unrolled positions in turn."""
        for point in itertools.product(*[range(u.arg[1]) for u in units]):
            self.env.update(zip(units, point, strict=True))
            yield

    def enter_block(self, r: UOp, number: Line) -> None:
        """Bind an axis to its block of that number; the last one may begin earlier."""
        axis = self.axes[r]
        if axis.edge == "overlap":
            first = self.b.mul(number, axis.block)
            number = self.b.call("smin", first, self.b.index(axis.size - axis.block))
        self.index.bind(r, number)

    def thread(self) -> Line:
        """Return the thread's number in the workgroup."""
        return self.b.line("thread", dtypes.int64, 1, (), 0)

    def range_scope(self, ranges: Iterable[UOp]) -> RangeScope:
        """Return a context in which some ranges can be given other parts; see `RangeScope`."""
        return RangeScope(self, frozenset(ranges))


class RangeScope:
    """A context in which some ranges of the AST can be given other values, units and masks.

    On entry the registers of values that depend on the ranges are forgotten. On exit the environment is as
    before, with the registers of all other values that were written inside.
    """

    __slots__ = ("emitter", "ranges", "saved")

    def __init__(self, emitter: Emitter, ranges: frozenset[UOp]) -> None:
        self.emitter = emitter
        self.ranges = ranges

    def __enter__(self) -> Self:
        e, ix = self.emitter, self.emitter.index
        self.saved = (
            ix.exprs, ix.memo, ix.starts, ix.guards, e.units, e.unit_keys, e.values, e.readers, dict(e.env),
        )  # fmt: skip
        ix.exprs, ix.memo, ix.starts, ix.guards = dict(ix.exprs), {}, dict(ix.starts), dict(ix.guards)
        e.units, e.unit_keys, e.readers = dict(e.units), {}, dict(e.readers)
        self.forget()
        return self

    def forget(self) -> None:
        """Forget the registers of values that depend on the ranges, which get other values again."""
        self.emitter.index.memo = {}
        self.emitter.values = self._independent()

    def open(self, r: UOp, first: UOp, lane: UOp, size: int) -> None:
        """Set the current values of a range: `first` and the lanes after it, masked from `size` on."""
        ix = self.emitter.index
        ix.exprs[r] = symbolic.add(first, lane)
        ix.guards.pop(r, None)
        guard = symbolic.lt(first, size)
        if guard is not symbolic.TRUE:
            ix.guards[r] = guard

    def _independent(self) -> dict[tuple[object, ...], Line]:
        """Return the registers of values that do not depend on the ranges."""
        ranges, free = self.ranges, self.emitter.free
        return {k: v for k, v in self.emitter.values.items() if ranges.isdisjoint(free[k[0]])}  # type: ignore[index]  # k[0] is a node

    def __exit__(self, *_: object) -> None:
        e, ix = self.emitter, self.emitter.index
        written = self._independent()
        ix.exprs, ix.memo, ix.starts, ix.guards, e.units, e.unit_keys, e.values, e.readers, env = self.saved
        e.values.update(written)
        e.env.clear()
        e.env.update(env)


def _where(e: Emitter, node: UOp) -> Line:
    mask, x, y = [e.value(s) for s in node.src]
    return e.b.select(mask, x, y)


def _index_value(e: Emitter, node: UOp) -> Line:
    """Return an IVALUE, an index or a mask as a value."""
    source = node.src[0]
    if symbolic.is_mask(source):
        mask = e.index.mask(source)
        return e.b.const(dtypes.bool, True) if mask is None else mask
    return indexing.resized(e.b, e.index.line(source), node.dtype)


_HANDLERS: Final[dict[str, Callable[[Emitter, UOp], Line]]] = {
    Ops.CONST: lambda e, node: conversions.constant(e.b, node.dtype, node.arg),
    Ops.WHERE: _where,
    Ops.CAST: lambda e, node: conversions.cast(e.b, e.value(node.src[0]), node.src[0].dtype, node.dtype),
    Ops.WITHIN: lambda e, node: e.value(node.src[1]),  # also where its condition is false
    Ops.BITCAST: lambda e, node: conversions.bitcast(
        e.b, e.value(node.src[0]), node.src[0].dtype, node.dtype
    ),
    Ops.IVALUE: _index_value,
}
"""Operation -> what writes its lines at the current position."""
