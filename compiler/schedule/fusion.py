"""Fusion: which tensor nodes share a kernel, and at which index each is evaluated there.

The ranges of a kernel begin at its output. Users are visited before sources: when a node is visited, all its
users have their kernels, so all its evaluations are known, each an `Evaluation` (kernel, node, index, mask).
Then the node either stays inside those kernels, or becomes a *root*: it gets a buffer and a kernel, a new or
a compatible one, and its users load it. `Grouping._stays` decides.

Fusion asks whether a store may join a kernel without a cycle, so `Order` keeps the transitive closure of the
dependencies between kernels.

Not here: the costs (`analysis`), where a reduction may be, and whether a value is computed again (`places`),
the order in which kernels run in the end (`scheduler`). Next: `lower`, which makes the AST of a kernel.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.movement import Index, push
from compiler.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from compiler.ir.uop import UOp, uop
from compiler.schedule.analysis import (
    EXPENSIVE,
    Evaluation,
    Fact,
    Facts,
    FusionLimits,
    KernelDraft,
    Scope,
    moved,
    param_of,
    ranges_of,
    squeezed,
)
from compiler.schedule.places import Places, computed_twice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_LEAF: Final = frozenset((Ops.PARAM, Ops.CONST, Ops.IOTA, Ops.IVALUE))


class Grouping:
    """All kernels of one graph."""

    def __init__(self, outputs: Sequence[UOp], limits: FusionLimits) -> None:
        self.limits = limits
        self.outputs = set(outputs)
        self.facts = Facts(outputs, max_leaves=limits.buffers - 1)
        self.kernels: list[KernelDraft] = []
        self.order = Order()
        self._by_shape: dict[tuple[int, ...], list[KernelDraft]] = {}
        self.places = Places(self.facts, limits)
        self._waiting: dict[UOp, dict[KernelDraft, None]] = {}
        """Node -> the kernels that must run after the node is stored: they use an AFTER that names it."""
        for node in reversed(self.facts.order):
            self._visit(self.facts.of[node])

    def _visit(self, fact: Fact) -> None:
        node = fact.node
        if fact.root:
            if fact.size and (fact.entries or node.op is not Ops.CONTIGUOUS or node in self.outputs):
                self._realize(fact)
        elif not fact.entries:
            return
        elif node.op not in _LEAF and not self._stays(fact):
            fact.root = True
            self._realize(fact)
        for entry in fact.entries:
            if not entry.loaded:
                self._expand(entry)

    def _stays(self, fact: Fact) -> bool:
        """Return whether a node needs no buffer.

        A reduction stays where nothing is computed twice: as the only reduction of a kernel, before its
        elementwise operations; beside a reduction over the same elements; or inside a row. If it cannot stay,
        a node through which its whole result passes becomes a root in its place, so that the kernel stores
        the result of the epilogue, not the sums. An elementwise node stays if it is cheap, or computed once;
        of coordinates alone in any number of kernels, whose loops end by it.
        A WHERE stays if it masks a value that is needed only under this mask (WITHIN): a kernel that stores
        that value need not compute the rest, and the loops of its users have the mask.
        """
        entries = fact.entries
        if fact.node.op is Ops.REDUCE:
            return len(entries) == 1 and self.places.take(entries[0], fact.node, claim=True)
        if len(entries[0].kernel.entries) > self.limits.nodes:
            return False
        if any([e.depth > self.limits.depth for e in entries]):  # noqa: C419 - a list is faster
            return False
        if len(entries) > self.limits.places and not self._is_of_coordinates(fact):
            return False
        if _masks_within(fact.node):
            return True
        completed = fact.completed
        if completed:
            if len(entries) > 1:
                return False
            completed.sort(key=self.places.weight, reverse=True)
            if not self.places.take(entries[0], completed[0], claim=True):
                return False
        if fact.own_cost <= EXPENSIVE and not fact.own_rows and not fact.own_heavy:
            return True
        if not fact.inner:
            return True
        return not computed_twice(fact, self.facts, self.limits)

    def _is_of_coordinates(self, fact: Fact) -> bool:
        """Return whether a value, such as a mask of slots, is cheap, of coordinates and single elements."""
        cheap = fact.own_cost <= EXPENSIVE and not (fact.own_rows or fact.own_heavy or fact.completed)
        if not cheap or any(fact.inner >> bit & 1 and n > 1 for bit, n in enumerate(self.facts.leaf_sizes)):
            return False
        most = max(Counter([e.kernel.number for e in fact.entries]).values())
        return most <= self.limits.places

    def _realize(self, fact: Fact) -> None:
        """Give a node a buffer, and a kernel to compute it."""
        kernel = self._joinable(fact)
        if kernel is None:
            kernel = self._new_kernel(squeezed(fact.node.shape))
        kernel.leaves |= fact.inner
        kernel.rows |= fact.own_rows
        if fact.node.op is Ops.ASSIGN:
            param = param_of(fact.node)
            kernel.assigned.add(param.arg[0])
            kernel.updates |= bool(self.facts.of[param].bit & self.facts.of[fact.node.src[1]].leaves)
        entry = self._entry(kernel, fact, kernel.index_of(fact.node.shape), symbolic.TRUE)
        entry.scopes[kernel.out] = None
        kernel.stores.append((fact, entry))
        if fact.node.op not in _LEAF:
            for other in fact.entries:
                if other.kernel is not kernel:
                    other.loaded = True
                    self.order.after(kernel, other.kernel)
        for waiting in self._waiting.get(fact.node, ()):
            self.order.after(kernel, waiting)
        if fact.completed:
            self.places.take(entry, max(fact.completed, key=self.places.weight), claim=True)

    def _new_kernel(self, shape: tuple[int, ...]) -> KernelDraft:
        kernel = KernelDraft(len(self.kernels), shape)
        self.kernels.append(kernel)
        self.order.add()
        self._by_shape.setdefault(shape, []).append(kernel)
        return kernel

    def copy_kernel(self, assign: UOp) -> KernelDraft:
        """Return a kernel that copies an ASSIGN's value from its temporary buffer into the target."""
        kernel = self._new_kernel(squeezed(assign.shape))
        kernel.copies = assign
        entry = self._entry(kernel, self.facts.of[assign], kernel.index_of(assign.shape), symbolic.TRUE)
        entry.loaded = True
        kernel.stores.append((self.facts.of[assign], entry))
        return kernel

    def _joinable(self, fact: Fact) -> KernelDraft | None:
        """Return an existing kernel that can also store this node: one that computes it, or a sibling."""
        users = dict.fromkeys([e.kernel for e in fact.entries])
        if fact.node.op not in _LEAF:
            # First kernels without a reduction, which can still become the epilogue of one below the node.
            for kernel in sorted(users, key=lambda k: k.main is not None):
                if self._computes(kernel, fact) and self._may_join(kernel, fact, users):
                    return kernel
        for kernel in reversed(self._by_shape.get(squeezed(fact.node.shape), ())[-self.limits.siblings :]):
            if kernel not in users and self._is_sibling(kernel, fact) and self._may_join(kernel, fact, users):
                return kernel
        return None

    def _computes(self, kernel: KernelDraft, fact: Fact) -> bool:
        """Return whether a kernel evaluates a node at its output elements and nowhere else."""
        if squeezed(fact.node.shape) != tuple([r.arg[1] for r in kernel.out]):
            return False
        here = [e for e in fact.entries if e.kernel is kernel]
        if (
            len(here) != 1
            or here[0].mask is not symbolic.TRUE
            or here[0].depth > self.limits.depth
            or here[0].index != kernel.index_of(fact.node.shape)
        ):
            return False
        completed = fact.completed
        if not completed and list(here[0].scopes) != [kernel.out]:
            return False
        return not completed or self.places.take(here[0], max(completed, key=self.places.weight), claim=True)

    def _is_sibling(self, kernel: KernelDraft, fact: Fact) -> bool:
        """Return whether kernel and node load the same data, both elementwise or reducing the same axes."""
        if kernel.copies is not None or kernel.row is not None or kernel.rows or fact.own_rows:
            return False
        if fact.completed:
            main = max(fact.completed, key=self.places.weight)
            return kernel.main is not None and self.places.alike(kernel.main, main)
        return (
            kernel.main is None
            and not fact.flow
            and self.places.share(kernel.leaves, fact.inner, kernel.size)
        )

    def _may_join(self, kernel: KernelDraft, fact: Fact, users: Iterable[KernelDraft]) -> bool:
        """Return whether a kernel can store a node, with few enough buffers and no cycle among kernels."""
        buffers = (kernel.leaves & ~fact.bit | fact.inner).bit_count() + len(kernel.stores) + 1
        if buffers > self.limits.buffers:
            return False
        if fact.node.op is Ops.ASSIGN and param_of(fact.node).arg[0] in kernel.assigned:
            return False
        if any(w is kernel or self.order.must_precede(w, kernel) for w in self._waiting.get(fact.node, ())):
            return False
        return not any(user is not kernel and self.order.must_precede(user, kernel) for user in users)

    def _entry(self, kernel: KernelDraft, fact: Fact, index: Index, mask: UOp) -> Evaluation:
        key = (fact.node, index, mask)
        entry = kernel.entries.get(key)
        if entry is None:
            entry = kernel.entries[key] = Evaluation(kernel, fact, index, mask)
            fact.entries.append(entry)
        return entry

    def _use(
        self, user: Evaluation, node: UOp, index: Index, mask: UOp, scopes: Iterable[Scope]
    ) -> tuple[Evaluation, UOp]:
        """Return the entry that a user needs of a node at an index, and the mask outside which it is 0.

        Movements are applied to the index, so the entry is of the node below them. `mask` is true where the
        value is needed.
        """
        fact = self.facts.of[node]
        padding = symbolic.TRUE
        while (
            (node.op in MOVEMENT or node.op is Ops.AFTER)
            and not fact.root
            and fact.uniform is None
            and padding is not symbolic.FALSE
        ):
            source = node.src[0]
            if node.op is Ops.AFTER:
                self._wait(user.kernel, node)
            else:
                index, shown = push(node.op, node.arg, source.shape, node.shape, index)
                if shown is not symbolic.TRUE:
                    padding, mask = symbolic.both(padding, shown), symbolic.both(mask, shown)
            node, fact = source, self.facts.of[source]
            if not fact.size:
                padding = symbolic.FALSE
        if fact.uniform is not None or padding is symbolic.FALSE:
            constant = fact.uniform if fact.uniform is not None else node
            entry = Evaluation(user.kernel, fact, (), symbolic.TRUE)
            entry.value = constant if constant.op is Ops.CONST else uop(Ops.CONST, node.dtype, (), 0)
            return entry, padding
        entry = self._entry(user.kernel, fact, index, mask)
        entry.depth = max(entry.depth, user.depth + 1)
        entry.scopes.update(dict.fromkeys(scopes))
        return entry, padding

    def _wait(self, kernel: KernelDraft, node: UOp) -> None:
        """Note that a kernel uses an AFTER; the nodes that the AFTER names get their kernels later."""
        for other in node.src[1:]:
            self._waiting.setdefault(moved(other), {})[kernel] = None

    def _expand(self, entry: Evaluation) -> None:
        """Add the entries of the sources of an entry."""
        node = entry.node
        op = node.op
        if op in ELEMENTWISE or op is Ops.CONTIGUOUS:
            entry.src = [self._use(entry, s, entry.index, entry.mask, entry.scopes) for s in node.src]
        elif op is Ops.REDUCE:
            self._expand_reduce(entry)
        elif op in MOVEMENT:
            source = node.src[0]
            index, shown = push(op, node.arg, source.shape, node.shape, entry.index)
            found, padding = self._use(entry, source, index, symbolic.both(entry.mask, shown), entry.scopes)
            entry.src = [(found, symbolic.both(padding, shown))]
        elif op is Ops.AFTER:
            self._wait(entry.kernel, node)
            entry.src = [self._use(entry, node.src[0], entry.index, entry.mask, entry.scopes)]
        elif op is Ops.ASSIGN:
            entry.src = [self._use(entry, node.src[1], entry.index, entry.mask, entry.scopes)]
        elif op is Ops.GATHER:
            self._expand_gather(entry)

    def _expand_reduce(self, entry: Evaluation) -> None:
        """Add the entry of the source of a REDUCE, in loops of its own; equal REDUCEs share loops."""
        node = entry.node
        kernel = entry.kernel
        source = node.src[0]
        axes = node.arg[1]
        sizes = tuple([source.shape[a] for a in axes])
        if 0 in sizes:
            return
        key = (entry.index, entry.mask, sizes, axes, entry.fact.level)
        ranges = kernel.reduces.get(key)
        if ranges is None:
            first = kernel.next_range
            ranges = kernel.reduces[key] = tuple([symbolic.loop(first + i, n) for i, n in enumerate(sizes)])
            kernel.next_range += len(ranges)
        outer, inner = iter(entry.index), iter(ranges)
        index = tuple([next(inner) if i in axes else next(outer) for i in range(len(source.shape))])
        entry.ranges = tuple([r for r in ranges if r.op is Ops.RANGE])
        used = ranges_of(entry)
        scopes = {tuple([r for r in scope if r in used]) + entry.ranges for scope in entry.scopes}
        entry.src = [self._use(entry, source, index, entry.mask, scopes)]

    def _expand_gather(self, entry: Evaluation) -> None:
        node = entry.node
        x, indices = node.src
        axis = node.arg
        kernel = entry.kernel
        if x.shape[axis] == 0:
            return
        rank = len(indices.shape)
        at, shown = self._use(entry, indices, entry.index[axis : axis + rank], entry.mask, entry.scopes)
        atom = uop(Ops.INDEXOF, dtypes.index, (), (indices.vmin, indices.vmax, len(kernel.computed)))
        kernel.computed[atom] = (at, shown)
        inside = symbolic.both(symbolic.ge(atom, 0), symbolic.lt(atom, x.shape[axis]))
        index = (*entry.index[:axis], atom, *entry.index[axis + rank :])
        found, padding = self._use(entry, x, index, symbolic.both(entry.mask, inside), entry.scopes)
        entry.src = [(found, symbolic.both(padding, inside)), (at, shown)]


def _masks_within(node: UOp) -> bool:
    """Return whether a node is a WHERE of a WITHIN with the same condition."""
    if node.op is not Ops.WHERE:
        return False
    x = node.src[1]
    while x.op is Ops.WHERE or x.op is Ops.WITHIN:
        if x.op is Ops.WITHIN and x.src[0] is node.src[0]:
            return True
        x = x.src[1]
    return False


class Order:
    """The dependencies between kernels, by their numbers."""

    def __init__(self) -> None:
        self.later: list[int] = []
        """For each kernel, the bit set of the kernels that must run after it, directly or not."""
        self.users: list[dict[int, None]] = []
        """For each kernel, the kernels that directly wait for it."""
        self._waiting = 0
        """The bit set of all kernels that wait for another."""

    def add(self) -> None:
        """Add the next kernel, without dependencies."""
        self.later.append(0)
        self.users.append({})

    def after(self, first: KernelDraft, then: KernelDraft) -> None:
        """Record that `first` must run before `then`."""
        self.users[first.number][then.number] = None
        bit = 1 << first.number
        new = self.later[then.number] | 1 << then.number
        self._waiting |= new
        if new & ~self.later[first.number]:
            self.later[first.number] |= new
            if self._waiting & bit:
                for number, later in enumerate(self.later):
                    if later & bit:
                        self.later[number] = later | new

    def must_precede(self, first: KernelDraft, then: KernelDraft) -> bool:
        """Return whether `first` is already known to run before `then`."""
        return bool(self.later[first.number] >> then.number & 1)
