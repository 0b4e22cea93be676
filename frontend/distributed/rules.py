"""Sharding rules: what each primitive operation does on several devices, by the layouts of its sources.

A `Value` is a node of a tensor's expression as one expression a device, and its layout. Elementwise
operations take the layout of their first divided source; what is whole is cut where it is used, which costs
nothing. A reduction over the divided axis is *pending*: each device has its part of the sum. A pending value
becomes whole by an all-reduce, or divided by a reduce-scatter. An operation without a rule for the layouts of
its sources gets them whole, by an all-gather, so every operation is right on every layout.

Contributions are added in the order of the devices, whatever the size; 16-bit floats are added in float32 and
rounded once. So a result is the same on every device, and the same each time.

Not here: launches and copies (`plans`). Next: `frontend.evaluation.expr`, the expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.distributed.layout import WHOLE, Bounds, Layout, Shape, even
from frontend.evaluation.expr import (
    CONV,
    INPUT,
    LIMIT,
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
from frontend.primitives.erf import ERF
from frontend.primitives.gather_scatter import LAST_INDEX, SEGMENT_SUM, TAKE_ALONG_AXIS
from hcq.errors import UnsupportedError

ONE_SHOT: Final = 64 << 10
"""Values of fewer bytes are reduced by every device from all contributions; larger ones a piece each."""
SAME: Final = frozenset({STOP, RULED, INPUT, SEGMENT, VERSION, Ops.AFTER})
"""Operations with the values of their first source; they matter to gradients alone."""
HEAVY: Final = frozenset({Ops.REDUCE, Ops.GATHER, CONV, TAKE_ALONG_AXIS, SEGMENT_SUM, LAST_INDEX})
"""Operations whose values are kept in memory instead of being computed again in a later level."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A node on all devices. `shape` is that of the whole."""

    layout: Layout
    parts: tuple[Part, ...]
    """The expression of each device, over numbers of memory (`Parts`)."""
    shape: Shape
    dtype: DType


@dataclass(frozen=True, slots=True)
class Exchange:
    """A copy between the memories of two devices, by their numbers."""

    source: int
    source_memory: int
    at: int
    target: int
    target_memory: int
    to: int
    size: int
    target_bytes: int
    """Bytes of the whole target memory, which the first copy into it allocates."""
    kept: bool

    def of(self, memory: dict[int, Any], copy: Callable[..., Any]) -> Any:
        """Return `copy` of the buffers."""
        return copy(
            self.source, memory[self.source_memory], self.at,
            self.target, memory[self.target_memory], self.to, self.size, self.kept,
        )  # fmt: skip


class Parts:
    """The memory of a plan: numbers, the level at which each is available, what computes or copies it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.given: list[tuple[int, int, int]] = []
        """(memory, joint leaf, device) of the inputs."""
        self.levels = 1
        """Number of levels that hold something."""
        self._level: list[int] = []
        self._inputs: set[int] = set()
        self._cut: dict[tuple[int, Part], int] = {}
        self._cuts: dict[tuple[int, int], list[tuple[Part, int, int]]] = {}
        self._exchanges: dict[int, list[Exchange]] = {}
        self._heavy: dict[Any, bool] = {}

    def new(self, level: int) -> int:
        """Return a new number of memory, which is available from a level on."""
        self._level.append(level)
        self.levels = max(self.levels, level)
        return len(self._level) - 1

    def input(self, leaf: int, device: int) -> int:
        """Return the memory of a device's part of a joint leaf."""
        number = self.new(0)
        self._inputs.add(number)
        self.given.append((number, leaf, device))
        return number

    def level(self, part: Part) -> int:
        """Return the level in which a part can be computed."""
        return max([self._level[i] for i in part[1]], default=0)

    def cuts(self, level: int, device: int) -> list[tuple[Part, int, int]]:
        """Return the intermediate outputs (part, memory, -1) of a level on a device."""
        return self._cuts.get((level, device), [])

    def exchanges(self, level: int) -> list[Exchange]:
        """Return the copies after a level."""
        return self._exchanges.get(level, [])

    def cut(self, device: int, part: Part) -> tuple[int, int]:
        """Return (memory, level) with the elements of a part, row-major: computed in its level if needed."""
        e, leaves = part
        level = self.level(part)
        while e.op is Ops.RESHAPE:
            e, leaves = inside((e, leaves))
        if e.op is PARAM:
            return leaves[0], level
        found = self._cut.get((device, (e, leaves)))
        if found is None:
            found = self._cut[device, (e, leaves)] = self.new(level + 1)
            self._cuts.setdefault((level, device), []).append(((e, leaves), found, -1))
        return found, level

    def leaf_of(self, device: int, part: Part) -> Part:
        """Return a part as memory that is computed in its level."""
        number, _ = self.cut(device, part)
        return leaf_expr(part[0].shape, part[0].dtype, self.names[device]), (number,)

    def heavy(self, part: Part) -> bool:
        """Return whether an expression contains an operation of `HEAVY`."""
        e = part[0]
        found = self._heavy.get(e)
        if found is None:
            found = self._heavy[e] = e.op in HEAVY or any([self.heavy((s, ())) for s in e.src])  # noqa: C419
        return found

    def copy(
        self, level: int, source: tuple[int, int, int], target: tuple[int, int, int, int], size: int
    ) -> None:
        """Add a copy after a level.

        `source` is (device, memory, byte), `target` (device, memory, bytes of the memory, byte).
        """
        self.levels = max(self.levels, level + 2)
        self._exchanges.setdefault(level, []).append(
            Exchange(*source, target[0], target[1], target[3], size, target[2], source[1] in self._inputs)
        )


class Rules:
    """The evaluation of expressions on the devices of a mesh."""

    def __init__(self, names: Sequence[str]) -> None:
        self.parts = Parts(names)
        self.names = self.parts.names
        self.count = len(self.names)
        self._values: dict[Part, Value] = {}
        self._placed: dict[tuple[int, Layout], tuple[Value, Value]] = {}

    def input(self, leaf: int, layout: Layout, shape: Shape, dtype: DType) -> Value:
        """Return a joint leaf as a value."""
        parts = tuple(
            [
                (leaf_expr(layout.shape_on(d, shape), dtype, name), (self.parts.input(leaf, d),))
                for d, name in enumerate(self.names)
            ]
        )
        return Value(layout, parts, shape, dtype)

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
            self._values[node] = self._apply(e, [self._values[s] for s in under])
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
        if rule not in _PENDING:
            sources = [self.settled(v) for v in sources]
        found = rule(self, e, sources) if any(v.layout != WHOLE for v in sources) else None
        return (
            found if found is not None else self._on_each(e, [self.whole(v) for v in sources], WHOLE, e.arg)
        )

    def _on_each(self, e: Any, sources: list[Value], layout: Layout, arg: Any) -> Value:
        """Return the operation on each device; `arg` is its argument, or gives it for a device's number."""
        parts = []
        for d in range(self.count):
            own = [v.parts[d] for v in sources]
            level = max(map(self.parts.level, own))
            own = [
                self.parts.leaf_of(d, p) if self.parts.level(p) < level and self.parts.heavy(p) else p
                for p in own
            ]
            parts.append(join(e.op, arg(d) if callable(arg) else arg, *own))
        return Value(layout, tuple(parts), e.shape, e.dtype)

    # layouts

    def placed(self, v: Value, layout: Layout | None) -> Value:
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
        return self.divided(v, Layout(axis, even(v.shape[axis], self.count)))

    def settled(self, v: Value) -> Value:
        """Return a value that is not pending."""
        return self.whole(v) if v.layout.pending is not None else v

    def _remembered(self, v: Value, layout: Layout, make: Callable[[], Value]) -> Value:
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
            return self._remembered(v, WHOLE, lambda: self._moved(v, WHOLE))
        return self._remembered(v, WHOLE, lambda: self._all_reduced(v))

    def divided(self, v: Value, layout: Layout) -> Value:
        """Return a value in a divided layout: by a cut, a reduce-scatter or an all-to-all."""
        if v.layout == layout:
            return v
        if v.layout.pending is not None:
            return self._remembered(v, layout, lambda: self._reduce_scattered(v, layout))
        if v.layout.axis is None:
            return self._remembered(v, layout, lambda: self._cut_out(v, layout))
        return self._remembered(v, layout, lambda: self._moved(v, layout))

    def _cut_out(self, v: Value, layout: Layout) -> Value:
        assert layout.axis is not None, layout
        parts = [_slice(p, layout.axis, *layout.bounds[d]) for d, p in enumerate(v.parts)]
        return Value(layout, tuple(parts), v.shape, v.dtype)

    def _moved(self, v: Value, layout: Layout) -> Value:
        """Return a divided value whole, or divided otherwise: each device copies the elements it needs.

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
            pieces, top = [], 0
            for source, p in enumerate(v.parts):
                begin, end = v.layout.bounds[source]
                if begin == end:
                    continue
                piece = p
                if layout.axis is not None and layout.axis != axis:
                    piece = _slice(p, layout.axis, *layout.bounds[target])
                number, level = self.parts.cut(source, join(Ops.PERMUTE, order, piece))
                pieces.append((source, number, begin, end))
                top = max(top, level)
            if not pieces:  # no elements at all
                zero = source_expr(Ops.CONST, 0, v.dtype, self.names[target])
                parts.append(
                    join(
                        Ops.EXPAND,
                        layout.shape_on(target, v.shape),
                        join(Ops.RESHAPE, (1,) * rank, (zero, ())),
                    )
                )
                continue
            received = self.parts.new(top + 1)
            for source, number, begin, end in pieces:
                size = (end - begin) * row
                where = (target, received, v.shape[axis] * row, begin * row)
                self.parts.copy(top, (source, number, 0), where, size)
            e = leaf_expr(tuple([shape[i] for i in order]), v.dtype, self.names[target])
            part = join(Ops.PERMUTE, back, (e, (received,)))
            if layout.axis == axis:
                part = _slice(part, axis, *layout.bounds[target])
            parts.append(part)
        return Value(layout, tuple(parts), v.shape, v.dtype)

    def _combined(self, op: str, contributions: Sequence[Part]) -> Part:
        """Return the reduction of contributions, in their order."""
        dtype = contributions[0][0].dtype
        wide = dtypes.float32 if dtype.is_float and dtype.bits == 16 and op in {Ops.ADD, Ops.MUL} else dtype
        total = join(Ops.CAST, wide, contributions[0])
        for more in contributions[1:]:
            total = join(op, None, total, join(Ops.CAST, wide, more))
        return join(Ops.CAST, dtype, total)

    def _received(self, v: Value, target: int, begin: int, end: int) -> list[Part]:
        """Return elements begin to end of each device's flat contribution, on the target device."""
        size, found = (end - begin) * v.dtype.itemsize, []
        for source, p in enumerate(v.parts):
            number, level = self.parts.cut(source, p)
            if source == target:
                flat = (leaf_expr((prod(v.shape),), v.dtype, self.names[target]), (number,))
                found.append(_slice(flat, 0, begin, end))
                continue
            received = self.parts.new(level + 1)
            at = begin * v.dtype.itemsize
            self.parts.copy(level, (source, number, at), (target, received, size, 0), size)
            found.append((leaf_expr((end - begin,), v.dtype, self.names[target]), (received,)))
        return found

    def _all_reduced(self, v: Value) -> Value:
        """Return a pending value whole.

        A small one is reduced by every device from all contributions. Of a large one each device reduces a
        piece, and copies the pieces of the others: the fewest bytes that an all-reduce can move.
        """
        op, count = v.layout.pending, prod(v.shape)
        assert op is not None, v.layout
        if count * v.dtype.itemsize < ONE_SHOT or count < self.count:
            flat = [self._combined(op, self._received(v, d, 0, count)) for d in range(self.count)]
        else:
            bounds = even(count, self.count)
            mine = [self._combined(op, self._received(v, d, *bounds[d])) for d in range(self.count)]
            flat = list(self._moved(Value(Layout(0, bounds), tuple(mine), (count,), v.dtype), WHOLE).parts)
        parts = tuple([join(Ops.RESHAPE, v.shape, p) for p in flat])
        return Value(WHOLE, parts, v.shape, v.dtype)

    def _reduce_scattered(self, v: Value, layout: Layout) -> Value:
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
            got = self._combined(op, self._received(moved, d, begin * row, end * row))
            own = join(Ops.RESHAPE, (end - begin, *turned[1:]), got)
            parts.append(join(Ops.PERMUTE, back, own))
        return Value(layout, tuple(parts), v.shape, v.dtype)


def _slice(part: Part, axis: int, begin: int, end: int) -> Part:
    bounds = tuple([(begin, end) if i == axis else (0, n) for i, n in enumerate(part[0].shape)])
    return join(Ops.SHRINK, bounds, part)


def _axis(sources: Sequence[Value]) -> Layout:
    """Return the layout of the first divided source."""
    return next(v.layout for v in sources if v.layout.axis is not None)


def _elementwise(rules: Rules, e: Any, sources: list[Value]) -> Value:
    layout = _axis(sources)
    return rules._on_each(e, [rules.divided(v, layout) for v in sources], layout, e.arg)  # noqa: SLF001


def _reduce(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    """Over the divided axis: pending. Of a pending value by the same operation: pending still."""
    (v,), (op, axes) = sources, e.arg
    layout = v.layout
    if layout.pending is not None:
        if layout.pending == op and not v.dtype.is_float:
            return rules._on_each(e, sources, layout, e.arg)  # noqa: SLF001
        return None
    assert layout.axis is not None, layout
    if layout.axis in axes:
        return rules._on_each(e, sources, Layout(pending=op), e.arg)  # noqa: SLF001
    left = layout.axis - sum([a < layout.axis for a in axes])
    return rules._on_each(e, sources, Layout(left, layout.bounds), e.arg)  # noqa: SLF001


def _permute(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    if layout.pending is not None:
        return rules._on_each(e, sources, layout, e.arg)  # noqa: SLF001
    assert layout.axis is not None, layout
    return rules._on_each(e, sources, Layout(e.arg.index(layout.axis), layout.bounds), e.arg)  # noqa: SLF001


def _expand(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    assert layout.axis is not None, layout
    if sources[0].shape[layout.axis] != e.shape[layout.axis]:
        return None
    return rules._on_each(e, sources, layout, lambda d: layout.shape_on(d, e.shape))  # noqa: SLF001


def _reshape(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    """The divided axis stays, is merged with axes behind it, or is split, where no device's part is torn."""
    v = sources[0]
    layout, old, new = v.layout, v.shape, e.shape
    if layout.pending is not None:
        return rules._on_each(e, sources, layout, e.arg)  # noqa: SLF001
    assert layout.axis is not None, layout
    if 0 in old:
        return None
    before, inner = prod(old[: layout.axis]), prod(old[layout.axis + 1 :])
    for axis, n in enumerate(new):
        step = prod(new[axis + 1 :])
        ends = [(begin * inner, end * inner) for begin, end in layout.bounds]
        if prod(new[:axis]) == before and n > 1 and not any(x % step for pair in ends for x in pair):
            kept = Layout(axis, tuple([(begin // step, end // step) for begin, end in ends]))
            return rules._on_each(e, sources, kept, lambda d, to=kept: to.shape_on(d, new))  # noqa: SLF001
    return None


def _pad(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    assert layout.axis is not None, layout
    if any(e.arg[layout.axis]):
        return None
    return rules._on_each(e, sources, layout, e.arg)  # noqa: SLF001


def _shrink(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    """Each device keeps what it has of the range."""
    layout = sources[0].layout
    axis = layout.axis
    assert axis is not None, layout
    if not all(isinstance(x, int) for pair in e.arg for x in pair):
        raise UnsupportedError("a slice by a bound variable has no sharding rule")
    low, high = e.arg[axis]
    kept = tuple([(min(max(b, low), high) - low, min(max(x, low), high) - low) for b, x in layout.bounds])

    def own(d: int) -> Any:
        begin = layout.bounds[d][0]
        at = min(max(begin, low), high) - begin if kept[d][1] > kept[d][0] else 0
        pair = (at, at + kept[d][1] - kept[d][0])
        return tuple([pair if i == axis else old for i, old in enumerate(e.arg)])

    found = rules._on_each(e, sources, Layout(axis, kept), own)  # noqa: SLF001
    return found if high - low >= rules.count else rules.whole(found)  # a row or two are wanted by all


def _flip(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    return None if layout.axis in e.arg else rules._on_each(e, sources, layout, e.arg)  # noqa: SLF001


def _window(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    layout = sources[0].layout
    return None if layout.axis in e.arg[0] else rules._on_each(e, sources, layout, e.arg)  # noqa: SLF001


def _gather(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    """Divided indices of a whole table, or a table that is divided along another axis."""
    x, indices = sources
    if x.layout.axis is None and indices.layout.axis is not None:
        layout = Layout(e.arg + indices.layout.axis, indices.layout.bounds)
        return rules._on_each(e, sources, layout, e.arg)  # noqa: SLF001
    if x.layout.axis is None or x.layout.axis == e.arg:
        return None
    axis = x.layout.axis
    axis += len(indices.shape) - 1 if axis > e.arg else 0
    return rules._on_each(e, [x, rules.whole(indices)], Layout(axis, x.layout.bounds), e.arg)  # noqa: SLF001


def _along(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    """Elements or sums along an axis that is not divided: rows of their own on each device."""
    layout, axis = _axis(sources), e.arg[0]
    if e.op is SEGMENT_SUM and len(sources) > 2:
        return None
    if layout.axis == axis:
        return _segment_sum(rules, e, sources) if e.op is SEGMENT_SUM else None
    assert layout.axis is not None, layout
    if sources[0].shape[layout.axis] != e.shape[layout.axis]:
        return None
    given = [
        rules.divided(v, layout) if v.shape[layout.axis] == e.shape[layout.axis] else rules.whole(v)
        for v in sources
    ]
    return rules._on_each(e, given, layout, e.arg)  # noqa: SLF001


def _segment_sum(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    """Sums by index whose values are divided along the axis of the index: pending."""
    layout = _axis(sources)
    given = [rules.divided(v, layout) for v in sources]
    return rules._on_each(e, given, Layout(pending=Ops.ADD), e.arg)  # noqa: SLF001


def _convolution(rules: Rules, e: Any, sources: list[Value]) -> Value | None:
    """A divided batch, or a whole batch and divided output channels."""
    x, weight = sources
    if x.layout.axis == 0:
        return rules._on_each(e, [x, rules.whole(weight)], x.layout, e.arg)  # noqa: SLF001
    if x.layout.axis is None and weight.layout.axis == 0 and e.arg[2] == 1:
        return rules._on_each(e, sources, Layout(1, weight.layout.bounds), e.arg)  # noqa: SLF001
    return None


_MOVES: Final[dict[str, Any]] = {
    Ops.REDUCE: _reduce,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.RESHAPE: _reshape,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.WINDOW: _window,
    Ops.GATHER: _gather,
    CONV: _convolution,
    TAKE_ALONG_AXIS: _along,
    SEGMENT_SUM: _along,
    LAST_INDEX: lambda *_: None,
}
_ELEMENTWISE: Final = (
    *("NEG", "ABS", "RECIP", "SQRT", "EXP", "EXP2", "LOG", "LOG2", "EXPM1", "LOG1P", "SIN", "COS", "TANH"),
    *("FLOOR", "CEIL", "TRUNC", "ROUND", "NOT", "CAST", "BITCAST", "ADD", "SUB", "MUL", "DIV", "FLOORDIV"),
    *("MOD", "FMOD", "POW", "COPYSIGN", "MAX", "MIN", "AND", "OR", "XOR", "SHL", "SHR", "LT", "EQ", "NE"),
    *("WHERE", "WITHIN", "CONTIGUOUS", ERF, LIMIT),
)
_PENDING: Final = (_reduce, _permute, _reshape)
"""Rules that take a pending source; other operations get it whole."""
RULES: Final[dict[str, Any]] = {**dict.fromkeys(_ELEMENTWISE, _elementwise), **_MOVES}
"""Operation -> its rule, called as rule(rules, expression, sources) with a divided source.

None from a rule: the sources are made whole.
"""

__all__ = ["Bounds", "Exchange", "Parts", "Rules", "Value"]
