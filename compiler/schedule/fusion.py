"""Fusion: which tensor nodes share a kernel, and at which index each is evaluated there.

The ranges of a kernel begin at its output. Users are visited before sources: when a node is visited, all its
users have their kernels, so all its evaluations are known, each an `Entry` (kernel, node, index, mask). Then
the node either stays inside those kernels, or becomes a *root*: it gets a buffer and a kernel, a new or a
compatible one, and its users load it. `Grouping._stays` decides.

Not here: the costs on which it decides (`analysis`), dependencies between kernels (`order`), the AST of a
kernel (`lower`).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.movement import Index, push
from compiler.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from compiler.ir.uop import UOp, uop
from compiler.schedule.analysis import (
    EXPENSIVE,
    Entry,
    Fact,
    Facts,
    Kernel,
    Limits,
    Scope,
    is_contraction,
    is_trailing,
    moved,
    param_of,
    reduced_sizes,
    squeezed,
)
from compiler.schedule.order import Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LEAF: Final = frozenset((Ops.PARAM, Ops.CONST, Ops.IOTA, Ops.IVALUE))
_SLACK: Final = 1.3
"""Evaluations per element up to which a value does not count as computed twice; padding adds some."""
_RECOMPUTED: Final = 64
"""Cost of the repeated evaluations of an element up to which they are cheaper than a large buffer: that costs
a store, and a load in each kernel."""
_AMORTISED: Final = 32
"""Evaluations per element from which even a cheap division gets a buffer."""


class Grouping:
    """All kernels of one graph."""

    def __init__(self, outputs: Sequence[UOp], limits: Limits) -> None:
        self.limits = limits
        self.outputs = set(outputs)
        self.facts = Facts(outputs, max_leaves=limits.buffers - 1)
        self.kernels: list[Kernel] = []
        self.order = Order()
        self._by_shape: dict[tuple[int, ...], list[Kernel]] = {}
        self._contractions: dict[UOp, bool] = {}
        self._waiting: dict[UOp, dict[Kernel, None]] = {}
        """Node -> the kernels that an AFTER lets wait for it."""
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
        elementwise operations; beside a reduction over the same elements; or inside a row. A node through
        which the whole result of such a reduction passes becomes a root in its place, so that the kernel
        stores the result of the epilogue, not the sums. Elementwise nodes stay if they are cheap, or computed
        once. A mask of a value that is needed under the mask only stays: then a kernel that stores the value
        need not compute the rest, and the loops of its users see the mask.
        """
        entries = fact.entries
        if fact.node.op is Ops.REDUCE:
            return len(entries) == 1 and self._place(entries[0], fact.node, claim=True)
        if len(entries) > self.limits.places or len(entries[0].kernel.entries) > self.limits.nodes:
            return False
        if _masks_within(fact.node):
            return True
        completed = fact.completed
        if completed:
            if len(entries) > 1:
                return False
            completed.sort(key=self._weight, reverse=True)
            if not self._place(entries[0], completed[0], claim=True):
                return False
        if fact.own_cost <= EXPENSIVE and not fact.own_rows and not fact.own_heavy:
            return True
        if not fact.inner:
            return True
        return not self._computed_twice(fact)

    def _weight(self, reduction: UOp) -> tuple[bool, int]:
        return self._is_contraction(reduction), prod(reduced_sizes(reduction))

    def _is_contraction(self, reduction: UOp) -> bool:
        found = self._contractions.get(reduction)
        if found is None:
            found = self._contractions[reduction] = is_contraction(reduction)
        return found

    def _computed_twice(self, fact: Fact) -> bool:
        """Return whether a costly value is evaluated more often than it has elements, or in several kernels.

        Elements of a row that one worker computes may be evaluated once for every loop over the row.
        """
        kernel = fact.entries[0].kernel
        costly = fact.own_cost > EXPENSIVE or fact.own_rows
        users = dict.fromkeys([e.kernel for e in fact.entries])
        if costly and len(users) > 1:
            return not self._cheaper_than_memory(fact, users)
        times = [self._evaluations(e) / fact.size for e in fact.entries]
        if not costly:
            return sum(times) >= _AMORTISED
        if kernel.row is not None and max(times) <= _SLACK:
            row = set(kernel.out[: kernel.row])
            return not all(row <= self._ranges_of(e) for e in fact.entries)
        return sum(times) > _SLACK

    def _cheaper_than_memory(self, fact: Fact, users: Iterable[Kernel]) -> bool:
        """Return whether it costs less to compute a value in several kernels than to store and load it.

        Each of them evaluates every element about once. Compared are the bytes that the kernels but one load
        to compute it, and those of the store and of their loads of the value.
        """
        nbytes = fact.size * fact.node.dtype.itemsize
        costly = fact.own_cost > EXPENSIVE
        if costly and (
            nbytes < self.limits.near or fact.own_cost * (len(fact.entries) - 1) > _RECOMPUTED
        ):
            return False
        if max([self._evaluations(e) for e in fact.entries]) > fact.size * _SLACK:
            return False
        more = [self._bytes(fact.inner & ~kernel.leaves) for kernel in users]
        return sum(more) - max(more) <= nbytes * len(more)

    def _bytes(self, leaves: int) -> int:
        """Return the bytes of a set of buffers."""
        total = 0
        while leaves:
            low = leaves & -leaves
            total += self.facts.leaf_bytes[low.bit_length() - 1]
            leaves ^= low
        return total

    def _evaluations(self, entry: Entry) -> int:
        """Return how often an entry is evaluated; it is outside every loop on which it does not depend."""
        used = self._ranges_of(entry)
        most = 0
        for scope in entry.scopes:
            times = inner = 1
            for r in scope:
                times *= r.arg[1]
                if r in used:
                    inner = times
            most = max(most, inner)
        return most

    def _ranges_of(self, entry: Entry) -> set[UOp]:
        """Return the ranges on which an entry's index depends, through computed indices, too."""
        used: set[UOp] = set()
        todo = list(symbolic.atoms_of((*entry.index, entry.mask)))
        seen: set[UOp] = set()
        while todo:
            atom = todo.pop()
            if atom.op is Ops.INDEXOF and atom not in seen:
                seen.add(atom)
                source, mask = entry.kernel.computed[atom]
                todo += symbolic.atoms_of((*source.index, mask))
            if atom.op is not Ops.VAR:
                used.add(atom)
        return used

    def _place(self, entry: Entry, reduction: UOp, *, claim: bool) -> bool:
        """Return whether a reduction whose whole result reaches this entry may be in the entry's kernel.

        As *main* reduction it is evaluated once for each output element. As *row* reduction it depends on
        leading output ranges only, and every loop that repeats it is along the row that it reduces. A
        contraction is in no kernel that updates a buffer in place, because its register tiles overlap at the
        edges. With `claim`, the kernel is marked as one with such a reduction.
        """
        kernel = entry.kernel
        if kernel.updates and self._is_contraction(reduction):
            return False
        used = self._ranges_of(entry)
        prefix = len(used)
        if used != set(kernel.out[:prefix]):
            return False
        rows = prod([r.arg[1] for r in kernel.out[:prefix]])
        if rows > entry.fact.size * _SLACK:
            return False
        leaves = kernel.leaves & ~self.facts.of[reduction].bit | self.facts.of[reduction].inner
        if leaves.bit_count() + len(kernel.stores) > self.limits.buffers:
            return False
        if prefix == len(kernel.out) and list(entry.scopes) == [kernel.out]:
            fits = self._fits_main(kernel, reduction, prefix)
            if fits and claim and kernel.main is None:
                kernel.main = reduction
        else:
            fits = self._fits_row(entry, reduction, prefix, rows)
            if fits and claim:
                kernel.row = prefix
        if fits and claim:
            kernel.leaves = leaves
        return fits

    def _fits_main(self, kernel: Kernel, reduction: UOp, prefix: int) -> bool:
        if kernel.row not in (None, prefix):
            return False
        return kernel.main is None or kernel.main is reduction or self._alike(kernel.main, reduction)

    def _alike(self, a: UOp, b: UOp) -> bool:
        """Return whether two reductions can share a loop and loads, such as sums and sums of squares."""
        if a.src[0].shape != b.src[0].shape or a.arg[1] != b.arg[1]:
            return False
        if self._is_contraction(a) or self._is_contraction(b):
            return False
        size = prod(a.src[0].shape)
        return self._share(self.facts.of[a].inner, self.facts.of[b].inner, size)

    def _share(self, a: int, b: int, size: int) -> bool:
        """Return whether two sets of leaves have a common one of at least that size."""
        common = a & b
        sizes = self.facts.leaf_sizes
        while common:
            low = common & -common
            if sizes[low.bit_length() - 1] >= size:
                return True
            common ^= low
        return False

    def _fits_row(self, entry: Entry, reduction: UOp, prefix: int, rows: int) -> bool:
        kernel = entry.kernel
        length = prod(reduced_sizes(reduction))
        limits = self.limits
        if length > limits.row or (rows < limits.few_rows and length > limits.few_rows_row):
            return False
        if kernel.row not in (None, prefix) or self._is_contraction(reduction) or not is_trailing(reduction):
            return False
        if kernel.main is not None and kernel.main is not reduction:
            along = prod(reduced_sizes(kernel.main)) == length
            if prefix != len(kernel.out) or self._is_contraction(kernel.main) or not along:
                return False
        return all(prod([r.arg[1] for r in scope[prefix:]]) in (1, length) for scope in entry.scopes)

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
            self._place(entry, max(fact.completed, key=self._weight), claim=True)

    def _new_kernel(self, shape: tuple[int, ...]) -> Kernel:
        kernel = Kernel(len(self.kernels), shape)
        self.kernels.append(kernel)
        self.order.add()
        self._by_shape.setdefault(shape, []).append(kernel)
        return kernel

    def copy_kernel(self, assign: UOp) -> Kernel:
        """Return a kernel that copies an ASSIGN's value from its temporary buffer into the target."""
        kernel = self._new_kernel(squeezed(assign.shape))
        kernel.copies = assign
        entry = self._entry(kernel, self.facts.of[assign], kernel.index_of(assign.shape), symbolic.TRUE)
        entry.loaded = True
        kernel.stores.append((self.facts.of[assign], entry))
        return kernel

    def _joinable(self, fact: Fact) -> Kernel | None:
        """Return an existing kernel that can also store this node: one that computes it, or a sibling."""
        users = dict.fromkeys([e.kernel for e in fact.entries])
        if fact.node.op not in _LEAF:
            # first those without a reduction, which can be the epilogue of a source of the node
            for kernel in sorted(users, key=lambda k: k.main is not None):
                if self._computes(kernel, fact) and self._may_join(kernel, fact, users):
                    return kernel
        for kernel in reversed(self._by_shape.get(squeezed(fact.node.shape), ())[-self.limits.siblings :]):
            if kernel not in users and self._is_sibling(kernel, fact) and self._may_join(kernel, fact, users):
                return kernel
        return None

    def _computes(self, kernel: Kernel, fact: Fact) -> bool:
        """Return whether a kernel evaluates a node at its output elements, maybe outside its loops."""
        if squeezed(fact.node.shape) != tuple([r.arg[1] for r in kernel.out]):
            return False
        here = [e for e in fact.entries if e.kernel is kernel]
        if (
            len(here) != 1
            or here[0].mask is not symbolic.TRUE
            or here[0].index != kernel.index_of(fact.node.shape)
        ):
            return False
        completed = fact.completed
        if not completed and list(here[0].scopes) != [kernel.out]:
            return False
        return not completed or self._place(here[0], max(completed, key=self._weight), claim=True)

    def _is_sibling(self, kernel: Kernel, fact: Fact) -> bool:
        """Return whether a kernel loads the same data: both elementwise, or reducing the same elements."""
        if kernel.copies is not None or kernel.row is not None or kernel.rows or fact.own_rows:
            return False
        if fact.completed:
            main = max(fact.completed, key=self._weight)
            return kernel.main is not None and self._alike(kernel.main, main)
        return kernel.main is None and not fact.flow and self._share(kernel.leaves, fact.inner, kernel.size)

    def _may_join(self, kernel: Kernel, fact: Fact, users: Iterable[Kernel]) -> bool:
        """Return whether a kernel can store a node without too many buffers or a cycle among kernels."""
        if (kernel.leaves & ~fact.bit | fact.inner).bit_count() + len(
            kernel.stores
        ) + 1 > self.limits.buffers:
            return False
        if fact.node.op is Ops.ASSIGN and param_of(fact.node).arg[0] in kernel.assigned:
            return False
        if any(w is kernel or self.order.must_precede(w, kernel) for w in self._waiting.get(fact.node, ())):
            return False
        return not any(user is not kernel and self.order.must_precede(user, kernel) for user in users)

    def _entry(self, kernel: Kernel, fact: Fact, index: Index, mask: UOp) -> Entry:
        key = (fact.node, index, mask)
        entry = kernel.entries.get(key)
        if entry is None:
            entry = kernel.entries[key] = Entry(kernel, fact, index, mask)
            fact.entries.append(entry)
        return entry

    def _use(
        self, user: Entry, node: UOp, index: Index, mask: UOp, scopes: Iterable[Scope]
    ) -> tuple[Entry, UOp]:
        """Return the entry of a node at an index, and the mask outside which the value is 0.

        Movement operations are applied to the index. `mask` is true where the value is needed.
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
            entry = Entry(user.kernel, fact, (), symbolic.TRUE)
            entry.value = constant if constant.op is Ops.CONST else uop(Ops.CONST, node.dtype, (), 0)
            return entry, padding
        entry = self._entry(user.kernel, fact, index, mask)
        entry.scopes.update(dict.fromkeys(scopes))
        return entry, padding

    def _wait(self, kernel: Kernel, node: UOp) -> None:
        """Let a kernel that uses an AFTER wait for the nodes that it names, which get their kernels later."""
        for other in node.src[1:]:
            self._waiting.setdefault(moved(other), {})[kernel] = None

    def _expand(self, entry: Entry) -> None:
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

    def _expand_reduce(self, entry: Entry) -> None:
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
        used = self._ranges_of(entry)
        scopes = {tuple([r for r in scope if r in used]) + entry.ranges for scope in entry.scopes}
        entry.src = [self._use(entry, source, index, entry.mask, scopes)]

    def _expand_gather(self, entry: Entry) -> None:
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
