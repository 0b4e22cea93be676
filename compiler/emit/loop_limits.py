"""Which blocks and iterations a loop runs over: limits of ranges that are known at launch, and extents.

A limit is a number from which on the iterations of a loop have no effect. A size that changes from launch to
launch is two things in a kernel: a capacity, the size of the range, and a mask `coordinate < number`.
The loop ends at the number where a reduction combines its identity under a false mask, or where no store
needs the value (`Ops.WITHIN`). Limits only shorten loops: lanes of the last vector or block that a mask
excludes stay masked. A store beyond the number, inside the capacity, writes any value.

A store in place of `where(mask, value, what is there)` has no effect where the mask is false. If the kernel
sums nothing, its loops end at the mask's `coordinate < number`, and begin after its `number < coordinate`.

An extent is the blocks of an output range that the code at the cursor computes. It begins as all blocks.
Workgroups divide it, a limit ends it earlier, and inside a loop it is the blocks of one iteration.

Not here: the loops (`reductions`, `partials`, `staged_sum`), the parts of a range inside a block (`emitter`).
Next: `linearize`, which writes the limits and the loops over blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import dtypes
from compiler.emit import indexing
from compiler.ir import fold
from compiler.ir import index as symbolic
from compiler.ir.ops import ELEMENTWISE, Ops
from compiler.ir.walk import bound_ranges, by_number, ordered
from compiler.nest.loop_nest import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compiler.emit.builder import Builder
    from compiler.emit.indexing import Indexer
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, LoopNest, ScratchRow


Free = dict["UOp", frozenset["UOp"]]


@dataclass(frozen=True, slots=True)
class LoopLimit:
    """The first value of a range without effect: (number * factor + plus) / divisor, rounded up."""

    number: UOp
    """An integer value that no range changes."""
    factor: int = 1
    plus: int = 0
    divisor: int = 1

    def below(self, factor: int, plus: int) -> LoopLimit:
        """Return the limit of x where `factor * x + plus` has this one."""
        return LoopLimit(self.number, self.factor, self.plus - plus * self.divisor, self.divisor * factor)

    def divided(self, divisor: int) -> LoopLimit:
        """Return a limit of x where `x // divisor` has this one."""
        plus = self.plus if self.divisor == 1 else self.plus + self.divisor
        return LoopLimit(self.number, self.factor * divisor, plus * divisor, self.divisor)


class LoopLimits:
    """The limits of the ranges of one kernel."""

    def __init__(
        self, b: Builder, found: Mapping[UOp, tuple[LoopLimit, ...]], before: Mapping[UOp, UOp]
    ) -> None:
        self.b = b
        self.found = found
        self.before = before
        """For some ranges a number up to which values have no effect."""
        self.lines: dict[UOp, Line] = {}
        """For each range with limits the least of them, a register of the outermost block; not negative."""
        self.begins: dict[UOp, Line] = {}
        """For each range of `before` the first value with an effect."""

    def __contains__(self, r: object) -> bool:
        return r in self.lines

    def write(self, numbers: Mapping[UOp, Line]) -> None:
        """Write the limits, given the registers of their numbers."""
        b = self.b
        for r, limits in self.found.items():
            least = b.index(r.arg[1])
            for limit in limits:
                line = indexing.resized(b, numbers[limit.number], dtypes.int64)
                line = b.add(b.mul(line, limit.factor), b.index(limit.plus))
                line = _rounded_up(b, b.call("smax", line, b.index(0)), limit.divisor)
                least = b.call("smin", least, line)
            self.lines[r] = least
        for r, number in self.before.items():
            line = b.add(indexing.resized(b, numbers[number], dtypes.int64), b.index(1))
            self.begins[r] = b.call("smax", line, b.index(0))

    def blocks(self, r: UOp, size: int, most: Line) -> Line:
        """Return the number of blocks of `size` values of r that have an effect, at most `most`; may be 0."""
        line = self.lines.get(r)
        return most if line is None else self.b.call("smin", most, _rounded_up(self.b, line, size))

    def rounds(self, r: UOp, size: int, most: Line) -> Line:
        """Return the number of rounds of `size` values of r that have an effect, at least 1."""
        if r not in self.lines:
            return most
        return self.b.call("smax", self.blocks(r, size, most), self.b.index(1))


def _rounded_up(b: Builder, line: Line, size: int) -> Line:
    """Return line / size, rounded up; line is not negative."""
    if size == 1:
        return line
    up = b.add(line, b.index(size - 1))
    if not size & (size - 1):
        return b.alu("lshr", up, b.index(size.bit_length() - 1))
    return b.alu("udiv", up, b.index(size))


def find(ast: UOp, free: Free, rows: Iterable[ScratchRow] = ()) -> dict[UOp, tuple[LoopLimit, ...]]:
    """Return the limits of the ranges of a kernel, in the same order in every process.

    `rows` are those of its plan: the range of a reduction that fills a row for an output range has only the
    limits that both ranges have. No range of a chain of kernels has a limit: each part has its own.
    """
    nodes = ordered(ast)
    if ast.src[0].op is not Ops.STORE:  # a chain: each part has limits of its own
        return {}
    if not any(n.op is Ops.LT and not free[n.src[1]] for n in nodes):
        return {}
    found: dict[UOp, set[LoopLimit]] = {}
    for store in ast.src:
        _meet(found, _of_store(store, free), frozenset(r for s in ast.src for r in free[s]))
    for node in nodes:
        if node.op is Ops.REDUCE and node.arg[1]:
            bound = bound_ranges(node, free)
            _meet(found, _of_reduction(node, bound, free), bound)
    for row in rows:
        both = found.get(row.inner, set()) & found.get(row.outer, set())
        found[row.inner] = both
    place = {node: at for at, node in enumerate(nodes)}

    def order(limit: LoopLimit) -> tuple[int, ...]:
        return place[limit.number], limit.factor, limit.plus, limit.divisor

    ranges = by_number([r for r, limits in found.items() if limits])
    return {r: tuple(sorted(found[r], key=order)) for r in ranges}


def _meet(
    found: dict[UOp, set[LoopLimit]], more: Mapping[UOp, set[LoopLimit]], ranges: Iterable[UOp]
) -> None:
    """Remove those limits of some ranges that one more user of the ranges does not have."""
    for r in ranges:
        limits = more.get(r, set())
        found[r] = found[r] & limits if r in found else limits


def _of_store(store: UOp, free: Free) -> dict[UOp, set[LoopLimit]]:
    value = store.src[2]
    found: dict[UOp, set[LoopLimit]] = {}
    while value.op is Ops.WITHIN:
        for part in _conjuncts(value.src[0]):
            _add(found, part, free)
        value = value.src[1]
    mask = _mask_of_kept(store)
    if mask is not None and not any(n.op is Ops.REDUCE for n in free):
        for part in _conjuncts(mask):
            _add(found, part, free)
    return found


def _mask_of_kept(store: UOp) -> UOp | None:
    """Return the mask of a store in place that keeps what is there where the mask is false, else None."""
    value = store.src[2]
    if value.op is not Ops.WHERE:
        return None
    kept = value.src[2]
    return value.src[0] if kept.op is Ops.LOAD and kept.src[:2] == store.src[:2] else None


def find_begins(ast: UOp, free: Free) -> dict[UOp, UOp]:
    """Return for ranges of a kernel's only store a number up to which a store in place has no effect."""
    if len(ast.src) != 1 or any(n.op is Ops.REDUCE for n in free):
        return {}
    mask = _mask_of_kept(ast.src[0]) if ast.src[0].op is Ops.STORE else None
    found: dict[UOp, UOp] = {}
    for part in _conjuncts(mask) if mask is not None else ():
        if part.op is Ops.LT and part.src[0].dtype.is_int and not free[part.src[0]]:
            place = _coordinate(part.src[1])
            if place is not None and place.op is Ops.RANGE:
                found.setdefault(place, part.src[0])
    return found


def _of_reduction(node: UOp, bound: frozenset[UOp], free: Free) -> dict[UOp, set[LoopLimit]]:
    value, identity = node.src[0], fold.identity(node.arg[0], node.dtype)
    found: dict[UOp, set[LoopLimit]] = {}
    for part in dict.fromkeys(_masks(value)):
        if free[part] & bound and _where_false(value, part, {}) is identity:
            _add(found, part, free)
    return found


def _masks(value: UOp) -> list[UOp]:
    """Return the comparisons in the conditions of a value, without those inside reductions."""
    found: list[UOp] = []
    seen: set[UOp] = set()
    stack = [value]
    while stack:
        x = stack.pop()
        if x in seen or x.op not in ELEMENTWISE:
            continue
        seen.add(x)
        if x.op is Ops.WHERE:
            found += _conjuncts(x.src[0])
        stack += x.src
    return found


def _conjuncts(condition: UOp) -> list[UOp]:
    if condition.op is Ops.AND:
        return [part for s in condition.src for part in _conjuncts(s)]
    return [condition]


def _where_false(x: UOp, part: UOp, known: dict[UOp, UOp | None]) -> UOp | None:
    """Return the constant that x is where `part`, a part of its conditions, is false; None if it is none."""
    if x in known:
        return known[x]
    found: UOp | None = None
    if x.op is Ops.CONST:
        found = x
    elif x.op is Ops.WHERE:
        b = _where_false(x.src[2], part, known)
        a = b if part in _conjuncts(x.src[0]) else _where_false(x.src[1], part, known)
        found = a if a is b else None
    elif x.op is Ops.WITHIN:
        found = _where_false(x.src[1], part, known)
    elif x.op in ELEMENTWISE:
        values = [_where_false(s, part, known) for s in x.src]
        if None not in values:
            folded = fold.alu(x.op, x.dtype, tuple([v for v in values if v is not None]))
            found = folded if folded.op is Ops.CONST else None
    known[x] = found
    return found


def _add(found: dict[UOp, set[LoopLimit]], part: UOp, free: Free) -> None:
    """Add the limits of the ranges of a comparison `coordinate < number`."""
    if part.op is not Ops.LT or not part.src[0].dtype.is_int or free[part.src[1]]:
        return
    place = _coordinate(part.src[0])
    if place is not None:
        _below(found, place, LoopLimit(part.src[1]))


def _coordinate(x: UOp) -> UOp | None:
    """Return the index of which an integer is the value, None if it is that of none."""
    while x.op is Ops.CAST and x.src[0].op in (Ops.CAST, Ops.IVALUE) and x.dtype.bits >= 32:
        x = x.src[0]
    return x.src[0] if x.op is Ops.IVALUE and x.dtype.is_int else None


def _below(found: dict[UOp, set[LoopLimit]], x: UOp, limit: LoopLimit) -> None:
    if x.op is Ops.RANGE:
        found.setdefault(x, set()).add(limit)
    elif x.op is Ops.IDIV and x.src[0].vmin >= 0:
        _below(found, x.src[0], limit.divided(x.arg))
    elif x.op is Ops.SUM:
        terms, plus = symbolic.terms_of(x)
        if all(c > 0 and atom.vmin >= 0 for atom, c in terms.items()):
            for atom, c in terms.items():
                _below(found, atom, limit.below(c, plus))


class Extent(NamedTuple):
    """The blocks of one range."""

    first: Line
    """The number of the first block."""
    end: Line
    """The number after that of the last block."""
    most: int
    """The number of blocks at most."""


class Extents(dict["UOp", Extent]):
    """The extent of each output range of one kernel."""

    def __init__(self, b: Builder, index: Indexer) -> None:
        super().__init__()
        self.b = b
        self.index = index

    def open(self, axis: Axis) -> None:
        """Begin with all blocks of an axis."""
        self[axis.range] = Extent(self.b.index(0), self.b.index(axis.count), axis.count)

    def divide(self, plan: LoopNest) -> None:
        """Restrict the extents to those of the workgroup; the last axis varies fastest with its number."""
        every = [s for s in plan.steps if isinstance(s, Step) and s.kind == "group"]
        for dim in sorted({s.dim for s in every}):
            self._divide_along(dim, [s for s in every if s.dim == dim])

    def _divide_along(self, dim: int, groups: list[Step]) -> None:
        """Divide one dimension of the grid among the ranges that share it."""
        b = self.b
        rest = b.line("group", dtypes.int64, 1, (), dim)
        counts = {step.range: self[step.range].most for step in groups}
        for n, step in reversed(list(enumerate(groups))):
            around = [s.size for s in groups[:n] if s.range is step.range]
            number, pieces = rest, -(-(around[-1] if around else counts[step.range]) // step.size)
            if n:
                number = self.index.modulo(rest, pieces, signed=False)
                rest = self.index.divide(rest, pieces, signed=False)
            first, size = b.mul(number, step.size), step.size
            if any(s.range is step.range for s in groups[n + 1 :]):
                inner, _, size = self[step.range]
                first = b.add(first, inner)
            end = b.add(first, b.index(size))
            if counts[step.range] % step.size:
                end = b.call("smin", end, b.index(counts[step.range]))
            self[step.range] = Extent(first, end, size)

    def limit(self, axes: Iterable[Axis], limits: LoopLimits) -> Line | None:
        """End each axis at its limit; return whether all have blocks left, None if no axis has a limit."""
        b = self.b
        some: Line | None = None
        for axis in axes:
            if axis.range in limits:
                first, end, most = self[axis.range]
                end = limits.blocks(axis.range, axis.block, end)
                if axis.range in limits.begins:
                    begin = b.alu("udiv", limits.begins[axis.range], b.index(axis.block))
                    first = b.call("smax", first, begin)
                self[axis.range] = Extent(first, end, most)
                some = b.both(some, b.cmp("slt", first, end))
        return some

    def narrow(self, r: UOp, first: Line, size: int, *, limited: bool) -> None:
        """Restrict a range to the `size` blocks that begin with block `first`, and to its extent.

        `limited` says that `limit` may have ended the extent: then `size` need not divide it.
        """
        b, (_, end, most) = self.b, self[r]
        last = b.add(first, b.index(size))
        if size > 1 and (most % size or limited):
            last = b.call("smin", last, end)
        self[r] = Extent(first, last, size)
