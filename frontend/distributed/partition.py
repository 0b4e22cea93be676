"""The evaluation of an expression on the devices of a mesh, and the changes of layout.

Contributions are added in the order of the devices, whatever the size; 16-bit floats are added in float32 and
rounded once. So a result is the same on every device, and the same each time.

Not here: the rule of each operation (`rules`), launches and copies (`plans`). Next: `parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from compiler.dtype import DType
from compiler.ir.ops import Ops
from frontend.distributed.layout import WHOLE, Shape, TensorLayout, even
from frontend.distributed.parts import Parts, Value, summed_in
from frontend.distributed.rules import PENDING, RULES
from frontend.evaluation.expr import (
    INPUT,
    PARAM,
    PLACE,
    RULED,
    SEGMENT,
    STOP,
    VERSION,
    Part,
    inside,
    join,
    leaf_expr,
    source_expr,
)
from hcq.errors import UnsupportedError

ONE_SHOT: Final = 64 << 10
"""Values of fewer bytes are reduced by every device from all contributions; larger ones a piece each."""
ONE_EXCHANGE: Final = 4 << 20
"""The same bound for two devices, between which as many bytes move in one exchange as in two."""
SAME: Final = frozenset({STOP, RULED, INPUT, SEGMENT, VERSION, Ops.AFTER})
"""Operations with the values of their first source; they matter to gradients alone."""


class Partition:
    """The evaluation of expressions on the devices of a mesh."""

    def __init__(self, names: Sequence[str]) -> None:
        self.parts = Parts(names)
        self.names = self.parts.names
        self.count = len(self.names)
        self._values: dict[Part, Value] = {}
        self._placed: dict[tuple[int, TensorLayout], tuple[Value, Value]] = {}
        self._late = 0
        """The level of the operation whose sources are being placed."""

    def input(self, leaf: int, layout: TensorLayout, shape: Shape, dtype: DType) -> Value:
        """Return a joint leaf as a value."""
        own = [leaf_expr(layout.shape_on(d, shape), dtype, name) for d, name in enumerate(self.names)]
        parts = [(e, (self.parts.input(leaf, d),)) for d, e in enumerate(own)]
        return Value(layout, tuple(parts), shape, dtype)

    def value(self, root: Part, inputs: Sequence[Value | None]) -> Value:
        """Return a part over joint leaves as a value. Raises `UnsupportedError` for an unknown operation."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self._values:
                stack.pop()
                continue
            e, leaves = node
            if e.op is PARAM:
                found = inputs[leaves[0]]
                assert found is not None, "a store's memory without contents is no source"
                self._values[node] = found
                continue
            under = [inside(node, i) for i in range(1 if e.op in SAME else len(e.src))]
            waiting = [s for s in under if s not in self._values]
            if waiting:
                stack += waiting
                continue
            sources = [self._values[s] for s in under]
            self._late = max([self.parts.level(p) for v in sources for p in v.parts], default=0)
            self._values[node] = self._apply(e, sources)
            self._late = 0
        return self._values[root]

    def _apply(self, e: Any, sources: list[Value]) -> Value:
        op = e.op
        if op in SAME:
            return sources[0]
        if not sources:
            parts = tuple([(source_expr(op, e.arg, e.dtype, name), ()) for name in self.names])
            return Value(WHOLE, parts, e.shape, e.dtype)
        if op is PLACE:
            return self._place(sources[0], e.arg)
        rule = RULES.get(op)
        if rule is None:
            raise UnsupportedError(
                f"{op} has no sharding rule\n"
                f"hint: move the tensor to one device first, with .to({self.names[0]!r})"
            )
        if rule not in PENDING:
            sources = [self.settled(v) for v in sources]
        found = rule(self, e, sources) if any(v.layout != WHOLE for v in sources) else None
        return found if found is not None else self.on_each(e, [self.whole(v) for v in sources], WHOLE, e.arg)

    def on_each(self, e: Any, sources: list[Value], layout: TensorLayout, arg: Any) -> Value:
        """Return the operation on each device; `arg` is its argument, or gives it for a device's number."""
        parts = []
        for d in range(self.count):
            own = [v.parts[d] for v in sources]
            level = max(map(self.parts.level, own))
            own = [
                self.parts.kept(d, p) if self.parts.level(p) < level and self.parts.heavy(p) else p
                for p in own
            ]
            parts.append(join(e.op, arg(d) if callable(arg) else arg, *own))
        return Value(layout, tuple(parts), e.shape, e.dtype)

    # layouts

    def placed(self, v: Value, layout: TensorLayout | None) -> Value:
        """Return a value in a layout; None: in its own, if that is one of memory."""
        if layout is None:
            return self.settled(v)
        if layout.axis is None:
            return self.whole(v)
        return self.divided(v, layout)

    def _place(self, v: Value, axis: int | None) -> Value:
        if axis is None:
            return self.whole(v)
        if v.layout.axis == axis and v.layout.pending is None:
            return v
        return self.divided(v, TensorLayout(axis, even(v.shape[axis], self.count)))

    def settled(self, v: Value) -> Value:
        """Return a value that is not pending."""
        return self.whole(v) if v.layout.pending is not None else v

    def _remembered(self, v: Value, layout: TensorLayout, make: Callable[[], Value]) -> Value:
        key = (id(v), layout)
        found = self._placed.get(key)
        if found is None:
            found = self._placed[key] = v, make()  # v too, so that its id stays its own
        return found[1]

    def whole(self, v: Value) -> Value:
        """Return a value with all elements on every device: by an all-gather or an all-reduce."""
        if v.layout == WHOLE:
            return v
        if v.layout.pending is None:
            return self._gathered(v, WHOLE)
        return self._remembered(v, WHOLE, lambda: self._all_reduced(v))

    def divided(self, v: Value, layout: TensorLayout) -> Value:
        """Return a value in a divided layout: by a cut, a reduce-scatter or an all-to-all."""
        if v.layout == layout:
            return v
        if v.layout.pending is not None:
            return self._remembered(v, layout, lambda: self._reduce_scattered(v, layout))
        if v.layout.axis is None:
            return self._remembered(v, layout, lambda: self._cut_out(v, layout))
        return self._gathered(v, layout)

    def _gathered(self, v: Value, layout: TensorLayout) -> Value:
        """Return a divided value whole, or divided otherwise.

        What only repeats elements moves before it repeats them. Large parts of inputs are moved just before
        the operation that needs them, and again for a later one, so that few of them are there at a time.
        """
        if v.repeats is not None:
            return self._repeated(v, layout)
        found = self._placed.get((id(v), layout))
        if found is not None and v.dtype.itemsize * prod(v.shape) < ONE_SHOT:
            return found[1]
        level = max(map(self.parts.level, v.parts))
        if level or self._late == 0 or v.dtype.itemsize * prod(v.shape) < ONE_SHOT:
            return self._remembered(v, layout, lambda: self._moved(v, layout))
        after = self._late + 1  # the level between reduces what the last one sent, and releases it
        if found is None or max(map(self.parts.level, found[1].parts)) != after + 1:
            found = self._placed[id(v), layout] = v, self._moved(v, layout, after)
        return found[1]

    def _repeated(self, v: Value, layout: TensorLayout) -> Value:
        """Return the expansion of a value that is moved itself."""
        source = v.repeats
        assert source is not None, v
        axis = layout.axis
        kept = axis is not None and source.shape[axis] == v.shape[axis]
        parts = (self.divided(source, layout) if kept else self.whole(source)).parts
        shapes = [layout.shape_on(d, v.shape) for d in range(self.count)]
        made = [join(Ops.EXPAND, shape, p) for shape, p in zip(shapes, parts, strict=True)]
        return Value(layout, tuple(made), v.shape, v.dtype)

    def _cut_out(self, v: Value, layout: TensorLayout) -> Value:
        assert layout.axis is not None, layout
        parts = [piece_of(p, layout.axis, *layout.bounds[d]) for d, p in enumerate(v.parts)]
        return Value(layout, tuple(parts), v.shape, v.dtype)

    def _moved(self, v: Value, layout: TensorLayout, after: int = 0) -> Value:
        """Return a divided value whole, or divided otherwise: each device copies the elements it needs.

        They are copied after level `after`, or later.

        The divided axis is made the first one, so that what a device sends to another is one range of memory.
        """
        axis, rank = v.layout.axis, len(v.shape)
        assert axis is not None, v.layout
        order = (axis, *[i for i in range(rank) if i != axis])
        back = tuple([order.index(i) for i in range(rank)])
        parts = []
        for target in range(self.count):
            shape = layout.shape_on(target, v.shape)
            if layout.axis == axis:  # the same axis at other places: all of it, then the cut
                shape = v.shape
            row = prod([n for i, n in enumerate(shape) if i != axis]) * v.dtype.itemsize
            pieces, top = [], after
            for source, p in enumerate(v.parts):
                begin, end = v.layout.bounds[source]
                if begin == end:
                    continue
                piece = p
                if layout.axis is not None and layout.axis != axis:
                    piece = piece_of(p, layout.axis, *layout.bounds[target])
                number, level = self.parts.cut(source, join(Ops.PERMUTE, order, piece))
                pieces.append((source, number, begin, end))
                top = max(top, level)
            if not pieces:  # no elements at all
                zero = source_expr(Ops.CONST, 0, v.dtype, self.names[target])
                one = join(Ops.RESHAPE, (1,) * rank, (zero, ()))
                parts.append(join(Ops.EXPAND, layout.shape_on(target, v.shape), one))
                continue
            received = self.parts.new(top + 1)
            for source, number, begin, end in pieces:
                size = (end - begin) * row
                where = (target, received, v.shape[axis] * row, begin * row)
                self.parts.copy(top, (source, number, 0), where, size)
            e = leaf_expr(tuple([shape[i] for i in order]), v.dtype, self.names[target])
            part = join(Ops.PERMUTE, back, (e, (received,)))
            if layout.axis == axis:
                part = piece_of(part, axis, *layout.bounds[target])
            parts.append(part)
        return Value(layout, tuple(parts), v.shape, v.dtype)

    def _combined(self, op: str, contributions: Sequence[Part], dtype: DType) -> Part:
        """Return the reduction of contributions, in their order."""
        wide = summed_in(op, dtype)
        total = join(Ops.CAST, wide, contributions[0])
        for more in contributions[1:]:
            total = join(op, None, total, join(Ops.CAST, wide, more))
        return join(Ops.CAST, dtype, total)

    def _received(self, v: Value, target: int, begin: int, end: int) -> list[Part]:
        """Return elements begin to end of each device's flat contribution, on the target device."""
        kind = v.parts[0][0].dtype
        size, found = (end - begin) * kind.itemsize, []
        for source, p in enumerate(v.parts):
            number, level = self.parts.cut(source, p)
            if source == target:
                flat = (leaf_expr((prod(v.shape),), kind, self.names[target]), (number,))
                found.append(piece_of(flat, 0, begin, end))
                continue
            received = self.parts.new(level + 1)
            at = begin * kind.itemsize
            self.parts.copy(level, (source, number, at), (target, received, size, 0), size)
            found.append((leaf_expr((end - begin,), kind, self.names[target]), (received,)))
        return found

    def _all_reduced(self, v: Value) -> Value:
        """Return a pending value whole.

        A small one is reduced by every device from all contributions. Of a large one each device reduces a
        piece, and copies the pieces of the others: the fewest bytes that an all-reduce can move.
        """
        op, count = v.layout.pending, prod(v.shape)
        assert op is not None, v.layout
        most = ONE_EXCHANGE if self.count == 2 else ONE_SHOT
        if count * v.parts[0][0].dtype.itemsize < most or count < self.count:
            flat = [self._combined(op, self._received(v, d, 0, count), v.dtype) for d in range(self.count)]
        else:
            bounds = even(count, self.count)
            mine = [self._combined(op, self._received(v, d, *bounds[d]), v.dtype) for d in range(self.count)]
            flat = list(
                self._moved(Value(TensorLayout(0, bounds), tuple(mine), (count,), v.dtype), WHOLE).parts
            )
        parts = tuple([join(Ops.RESHAPE, v.shape, p) for p in flat])
        return Value(WHOLE, parts, v.shape, v.dtype)

    def _reduce_scattered(self, v: Value, layout: TensorLayout) -> Value:
        """Return a pending value divided: each device reduces its own part of all contributions."""
        op, axis, rank = v.layout.pending, layout.axis, len(v.shape)
        assert op is not None, v.layout
        assert axis is not None, layout
        order = (axis, *[i for i in range(rank) if i != axis])
        back = tuple([order.index(i) for i in range(rank)])
        turned = tuple([v.shape[i] for i in order])
        moved = Value(v.layout, tuple([join(Ops.PERMUTE, order, p) for p in v.parts]), turned, v.dtype)
        row, parts = prod(turned[1:]), []
        for d, (begin, end) in enumerate(layout.bounds):
            got = self._combined(op, self._received(moved, d, begin * row, end * row), v.dtype)
            own = join(Ops.RESHAPE, (end - begin, *turned[1:]), got)
            parts.append(join(Ops.PERMUTE, back, own))
        return Value(layout, tuple(parts), v.shape, v.dtype)


def piece_of(part: Part, axis: int, begin: int, end: int) -> Part:
    """Return the elements begin to end along an axis."""
    bounds = tuple([(begin, end) if i == axis else (0, n) for i, n in enumerate(part[0].shape)])
    return join(Ops.SHRINK, bounds, part)
