"""Lowering: from a group of tensor nodes to the AST of one kernel.

Values are built once, sources first, with the folding constructors of `compiler.ir.fold`. Before that,
ranges that always move together become one (a contiguous 64x56x56 output is one loop of 200704), and all are
numbered in order: output ranges first, then those of reductions in order of first use. Buffers are numbered
by first use, stored ones first. So equal layers give equal ASTs.

Not here: which nodes form a group (`fusion`), loops and registers (`compiler.emit`). Next: `item`, the
result.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import fold
from compiler.ir import index as symbolic
from compiler.ir.movement import Index, push
from compiler.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from compiler.ir.serialize import postorder, unknown_under
from compiler.ir.uop import UOp, const, uop
from compiler.rewrite.range_merging import replace_ranges
from compiler.schedule.item import BufRef, ParamRef, ScheduleItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compiler.schedule.analysis import Evaluation, KernelDraft, Scope


Known = dict["UOp", "UOp | None"]
"""For each node, the constant that it equals where a mask is false; None if it is not constant there."""
_ALIAS: Final = MOVEMENT | {Ops.CONTIGUOUS, Ops.AFTER, Ops.ASSIGN}


class Buffers:
    """The buffer of each realized node. ASSIGNs in `in_place` use the buffer of their target."""

    def __init__(self, refs: Mapping[UOp, tuple[BufRef, ...]], in_place: Iterable[UOp]) -> None:
        self.refs = refs
        self.in_place = set(in_place)

    def load(self, node: UOp, index: Index) -> tuple[BufRef, UOp]:
        """Return the buffer that holds a node, and the element's offset in it."""
        if node.op is Ops.PARAM:
            slot, shape = node.arg
            return ParamRef(slot, node.dtype, shape), symbolic.dot(index, symbolic.strides_of(shape))
        if node in self.in_place:
            return assigned_place(node, index)
        return self.refs[node][0], symbolic.dot(index, symbolic.strides_of(node.shape))

    def stores(self, kernel: KernelDraft) -> list[tuple[BufRef, UOp, Evaluation]]:
        """Return the buffer, offset and value of each store of a kernel."""
        found: list[tuple[BufRef, UOp, Evaluation]] = []
        for fact, entry in kernel.stores:
            node = fact.node
            index = kernel.index_of(node.shape)
            if kernel.copies is node or node in self.in_place:
                ref, at = assigned_place(node, index)
                found.append((ref, at, entry))
            if kernel.copies is not node:
                at = symbolic.dot(index, symbolic.strides_of(node.shape))
                found += [(ref, at, entry) for ref in self.refs.get(node, ())]
        return found


def assigned_place(assign: UOp, index: Index) -> tuple[BufRef, UOp]:
    """Return the buffer and offset of an element of an ASSIGN's target."""
    target = assign.src[0]
    while target.op is not Ops.PARAM:
        source = target.src[0]
        index, _ = push(target.op, target.arg, source.shape, target.shape, index)
        target = source
    slot, shape = target.arg
    return ParamRef(slot, target.dtype, shape), symbolic.dot(index, symbolic.strides_of(shape))


def lower(kernel: KernelDraft, buffers: Buffers) -> ScheduleItem:
    """Return the kernel as a schedule item."""
    return _Lowering(kernel, buffers).item()


class _Lowering:
    """The lowering of one kernel; `sequence` has its entries, sources first."""

    def __init__(self, kernel: KernelDraft, buffers: Buffers) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.stores = buffers.stores(kernel)
        self.sequence = unknown_under([entry for _, _, entry in self.stores], (), self._needs)
        self.offsets: dict[Evaluation, tuple[BufRef, UOp]] = {
            e: buffers.load(e.node, e.index)
            for e in self.sequence
            if e.value is None and (e.loaded or e.node.op is Ops.PARAM)
        }
        """The buffer and the offset of each load."""
        self.env: dict[UOp, UOp] = {}
        """Range or computed index -> what replaces it."""
        self.ranges: dict[Scope, Scope] = {}
        """Ranges of a loop nest -> the final ranges."""
        self.parts: dict[Scope, dict[int, dict[UOp, UOp]]] = {}
        """Ranges of a loop nest -> which of them a REDUCE uses -> their replacements there; {} at first."""
        self.memo: dict[UOp, UOp] = {}
        """Index or mask -> the result of its replacement."""
        self.uses: dict[UOp, int] = {}
        """Results of `_ranges_used`."""
        self.known: dict[UOp, Known] = {}
        """Mask -> results of `where_false`."""
        self.number = 0
        """The number of the next range."""
        self.slots: dict[BufRef, int] = {}

    def _needs(self, entry: Evaluation) -> list[Evaluation]:
        found = [] if entry.loaded else [s for s, _ in entry.src]
        if computed := self.kernel.computed:
            padding = [mask for _, mask in entry.src]
            atoms = symbolic.atoms_of((*entry.index, entry.mask, *padding))
            found += [computed[a][0] for a in atoms if a.op is Ops.INDEXOF]
        return found

    def _plan_ranges(self) -> None:
        """Merge ranges that every index uses as one, and number all ranges."""
        roots = dict.fromkeys([at for _, at, _ in self.stores])
        for e in self.sequence:
            if e.value is not None:
                continue
            if e in self.offsets:
                roots[self.offsets[e][1]] = None
                roots[e.mask] = None
            elif e.node.op is Ops.IOTA:
                roots[e.index[e.node.arg[1]]] = None
            roots.update(dict.fromkeys([mask for _, mask in e.src]))
        alone, sums = _occurrences(roots)
        number = 0
        for scope in dict.fromkeys(
            [self.kernel.out, *[e.ranges for e in self.sequence if e.ranges and not e.loaded]]
        ):
            joined: list[list[UOp]] = [[r] for r in scope[:1]]
            for a, b in pairwise(scope):
                if (
                    a not in alone
                    and b not in alone
                    and all(s.get(a, 0) == s.get(b, 0) * b.arg[1] for s in sums)
                ):
                    joined[-1].append(b)
                else:
                    joined.append([b])
            new = []
            for run in joined:
                size = 1
                for r in run:
                    size *= r.arg[1]
                    self.env[r] = symbolic.ZERO
                self.env[run[-1]] = r = symbolic.loop(number, size)
                new.append(r)
                number += 1
            self.ranges[scope] = tuple(new)
        self.number = number
        if all(a is b for a, b in self.env.items()):
            self.env.clear()

    def _final(self, x: UOp) -> UOp:
        """Return an index or a mask with the final ranges and computed indices."""
        return symbolic.substitute(x, self.env, self.memo) if self.env else x

    def item(self) -> ScheduleItem:
        """Return the schedule item; to be called once."""
        self._plan_ranges()
        for ref, _, _ in self.stores:
            self.slots.setdefault(ref, len(self.slots))
        written = tuple(range(len(self.slots)))
        values = {ref: entry.node for ref, _, entry in self.stores}
        atoms: dict[Evaluation, list[tuple[UOp, UOp]]] = {}
        for atom, (entry, mask) in self.kernel.computed.items():
            atoms.setdefault(entry, []).append((atom, mask))
        for entry in self.sequence:
            if entry.value is None:
                entry.value = self._value(entry)
            for atom, mask in atoms.get(entry, ()):
                value = masked(entry.value, self._final(mask), self.known)  # 0 outside the mask
                self.env[atom] = fold.index_of(value, min(atom.vmin, 0), max(atom.vmax, 0))
        stores = []
        for ref, at, entry in self.stores:
            assert entry.value is not None
            buffer = uop(Ops.BUFFER, ref.dtype, (), self.slots[ref])
            value = self._within(entry, entry.value)
            stores.append(uop(Ops.STORE, dtypes.void, (buffer, self._final(at), value)))
        ast = uop(Ops.SINK, dtypes.void, tuple(stores))
        return _dense(
            ast, tuple(self.slots), written, tuple([values[ref] for ref in [*self.slots][: len(written)]])
        )

    def _within(self, entry: Evaluation, value: UOp) -> UOp:
        """Return a stored value under the WITHINs just before its store; other WITHINs are left out."""
        while entry not in self.offsets:
            op = entry.node.op
            if op is Ops.WITHIN:
                (condition, mask), (entry, _) = entry.src
                held = masked(self._of(condition), self._final(mask), self.known)
                value = fold.alu(Ops.WITHIN, value.dtype, (held, value))
            elif op in _ALIAS and len(entry.src) == 1 and entry.src[0][1] is symbolic.TRUE:
                entry = entry.src[0][0]
            else:
                break
        return value

    def _value(self, entry: Evaluation) -> UOp:
        """Return the value of an entry whose sources have theirs."""
        node = entry.node
        op = node.op
        if entry in self.offsets:
            return self._load(entry)
        if op is Ops.IOTA:
            return fold.number(self._final(entry.index[node.arg[1]]), node.dtype)
        if op is Ops.IVALUE:
            return fold.number(node.src[0], node.dtype)
        if op is Ops.CONST:
            return node
        values = [masked(self._of(e), self._final(mask), self.known) for e, mask in entry.src]
        if op is Ops.WITHIN:
            return values[1]
        if op in ELEMENTWISE:
            return fold.alu(op, node.dtype, tuple(values))
        if op is Ops.REDUCE:
            if not values:
                return fold.identity(node.arg[0], node.dtype)
            ranges = self.ranges[entry.ranges] if entry.ranges else ()
            return self._reduction(node.arg[0], values[0], ranges)
        if op is Ops.GATHER:
            return values[0] if values else const(0, node.dtype)
        assert op in _ALIAS, op
        return values[0]

    def _reduction(self, op: str, value: UOp, ranges: Scope) -> UOp:
        """Return the reduction of a value; over some of the ranges of another one it has loops of its own."""
        used = self._ranges_used(value) & sum([1 << r.arg[0] for r in ranges]) if ranges else 0
        if used:
            parts = self.parts.setdefault(ranges, {used: {}})
            env = parts.get(used)
            if env is None:
                env = {r: symbolic.loop(self.number + i, r.arg[1]) for i, r in enumerate(ranges)}
                self.number += len(ranges)
                parts[used] = env
            if env:
                value = replace_ranges(value, env)
                ranges = tuple([env[r] for r in ranges])
                used = self._ranges_used(value)
        return fold.combine(op, value, ranges, used)

    @staticmethod
    def _of(entry: Evaluation) -> UOp:
        assert entry.value is not None
        return entry.value

    def _load(self, entry: Evaluation) -> UOp:
        ref, at = self.offsets[entry]
        mask = self._final(entry.mask)
        if mask is symbolic.FALSE:
            return const(0, ref.dtype)
        slot = self.slots.setdefault(ref, len(self.slots))
        src = (uop(Ops.BUFFER, ref.dtype, (), slot), self._final(at))
        return uop(Ops.LOAD, ref.dtype, src if mask is symbolic.TRUE else (*src, mask))

    def _ranges_used(self, x: UOp) -> int:
        """Return the numbers of the free ranges under a value, as a bit set."""
        found = self.uses.get(x)
        if found is None:
            for node in unknown_under([x], self.uses, lambda node: node.src):
                bits = 1 << node.arg[0] if node.op is Ops.RANGE else 0
                for s in node.src:
                    bits |= self.uses[s]
                if node.op is Ops.REDUCE:
                    for number in node.arg[1]:
                        bits &= ~(1 << number)
                self.uses[node] = bits
            found = self.uses[x]
        return found


def _occurrences(roots: Iterable[UOp]) -> tuple[set[UOp], list[dict[UOp, int]]]:
    """Return the ranges that occur outside sums, and the coefficients of each sum."""
    alone: set[UOp] = set()
    sums: list[dict[UOp, int]] = []
    seen: set[UOp] = set()
    stack = list(roots)
    alone.update([x for x in stack if x.op is Ops.RANGE])
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op is Ops.SUM:
            sums.append(dict(zip(x.src, x.arg[0], strict=True)))
        else:
            alone.update([s for s in x.src if s.op is Ops.RANGE])
        stack += x.src
    return alone, sums


def _dense(
    ast: UOp, refs: tuple[BufRef, ...], written: tuple[int, ...], values: tuple[UOp, ...]
) -> ScheduleItem:
    """Return the schedule item, with buffers and ranges numbered again if folding has removed some."""
    nodes = postorder((ast,))
    used = {n.arg for n in nodes if n.op is Ops.BUFFER}
    numbers = sorted(n.arg[0] for n in nodes if n.op is Ops.RANGE)
    if len(used) == len(refs) and (not numbers or numbers[-1] == len(numbers) - 1):
        return ScheduleItem(ast, refs, written, values)
    slots = {slot: i for i, slot in enumerate(sorted(used))}
    ranges = {number: i for i, number in enumerate(numbers)}
    new: dict[UOp, UOp] = {}
    env = {n: symbolic.loop(ranges[n.arg[0]], n.arg[1]) for n in nodes if n.op is Ops.RANGE}
    for n in nodes:
        src = tuple([new[s] for s in n.src])
        if n.op is Ops.RANGE:
            new[n] = env[n]
        elif n.op is Ops.BUFFER:
            new[n] = uop(Ops.BUFFER, n.dtype, (), slots[n.arg])
        elif n.op is Ops.REDUCE:
            new[n] = uop(n.op, n.dtype, src, (n.arg[0], tuple([ranges[r] for r in n.arg[1]])))
        elif n.op in symbolic.REBUILD:
            new[n] = symbolic.REBUILD[n.op](n, list(src))
        else:
            new[n] = uop(n.op, n.dtype, src, n.arg)
    stores = tuple([slots[s] for s in written])
    return ScheduleItem(new[ast], tuple([refs[slot] for slot in slots]), stores, values)


def where_false(x: UOp, mask: UOp, known: Known) -> UOp | None:
    """Return the constant that x equals where `mask` is false, or None; `known` caches its results."""
    for node in unknown_under([x], known, _deciding):
        known[node] = _where_false(node, mask, known)
    return known[x]


def _deciding(x: UOp) -> tuple[UOp, ...]:
    """Return the sources that decide whether x is constant: of a load none, its mask decides."""
    if x.op is Ops.REDUCE:
        return x.src[:1]
    return x.src if x.op in fold.RULES or x.op is Ops.SQRT else ()


def _where_false(x: UOp, mask: UOp, known: Known) -> UOp | None:
    if x.op is Ops.CONST:
        return x
    if x.op is Ops.LOAD:
        return const(0, x.dtype) if len(x.src) == 3 and symbolic.implies(x.src[2], mask) else None
    if x.op is Ops.REDUCE:
        value = known[x.src[0]]
        kept = value is not None and (x.arg[0] in (Ops.MAX, Ops.MIN) or fold.is_constant(value, 0))
        return value if kept else None
    if x.op not in fold.RULES and x.op is not Ops.SQRT:
        return None
    values = [known[s] for s in x.src]
    if None in values:
        return None
    folded = fold.alu(x.op, x.dtype, tuple([v for v in values if v is not None]))
    return folded if folded.op is Ops.CONST else None


def masked(x: UOp, mask: UOp, known: dict[UOp, Known]) -> UOp:
    """Return x where the mask is true, else 0; `known` caches the results for each mask."""
    if mask is symbolic.TRUE:
        return x
    zero = const(0, x.dtype)
    if mask is symbolic.FALSE:
        return zero
    if where_false(x, mask, known.setdefault(mask, {})) is zero:
        return x
    return fold.alu(Ops.WHERE, x.dtype, (fold.number(mask, dtypes.bool), x, zero))
