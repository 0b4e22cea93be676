"""The input of fusion: the properties of each tensor node, and kernels under construction.

The properties are found in one pass, sources first. Costs are approximate: a simple operation costs 1, a load
2. They only decide whether a value that would be computed several times gets a buffer.

Not here: the AST of a kernel (`lower`), its costs (`compiler.plan.cost`). Next: `fusion`, the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from compiler.ir import index as symbolic
from compiler.ir.ops import COSTLY, ELEMENTWISE, MOVEMENT, ROWS, Ops
from compiler.ir.serialize import postorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compiler.ir.movement import Index
    from compiler.ir.uop import UOp
    from compiler.targets.shared.target import Target

EXPENSIVE: Final = 16
"""A value that costs more gets a buffer instead of being computed twice."""
_LOAD: Final = 2
_CAP: Final = 1000
"""The highest cost of a value; a higher one decides nothing else."""
_WEIGHT: Final = {**{op: ROWS[op].cost.weight for op in COSTLY}, Ops.GATHER: 20}
_HEAVY: Final = frozenset(_WEIGHT)
_PRIME: Final = (1 << 61) - 1
_FLOWS: Final = 4
"""The most reductions whose shares one node records."""
_WORK: Final = 64
"""The most nodes whose costs are counted one by one."""
_SAME_ELEMENTS: Final = frozenset((Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK))
_LEAF: Final = frozenset((Ops.CONST, Ops.IOTA, Ops.IVALUE))
_UNSTORED: Final = _LEAF | {Ops.PARAM}


class Fact:
    """The properties of one node.

    `cost`, `heavy`, `rows` and `leaves` describe what a user of the node evaluates: a load, if the node has a
    buffer, else its computation. `own_cost`, `own_heavy`, `own_rows` and `inner` always describe its
    computation.

    `cost` is the sum of the costs in `work`: a node that is used twice costs once, but the nodes below a
    movement are evaluated at other indices and cost again. `heavy` marks a value that needs a costly
    operation, `rows` one that needs a reduction over its own trailing axes (softmax, layer norm). `leaves`
    and `inner` are bit sets of the buffers that are loaded, `bit` is the bit of the node's own buffer.

    `users` is the number of distinct users; being an output counts as one. `root` marks a node that a kernel
    stores, `barrier` one that its users are assumed to load. `flow` has the share of each reduction's result
    that passes through the node, as a number modulo a prime; if it is 1, the node can end that reduction's
    epilogue. `level` is the number of reductions on the longest path below. `uniform` is the constant that
    all elements are. `entries` are the node's evaluations in kernels.
    """

    __slots__ = (
        "barrier", "bit", "cost", "entries", "flow", "heavy", "inner", "leaves", "level", "node", "own_cost",
        "own_heavy", "own_rows", "root", "rows", "size", "uniform", "users", "work",
    )  # fmt: skip

    def __init__(self, node: UOp, users: int, size: int, *, root: bool) -> None:
        self.node = node
        self.users = users
        self.size = size
        self.root = root
        self.barrier = root
        self.bit = 0
        self.cost = 0
        self.work: dict[UOp, int] = {}
        self.heavy = False
        self.inner = 0
        self.leaves = 0
        self.flow: dict[UOp, int] = {}
        self.rows = False
        self.own_cost = 0
        self.own_heavy = False
        self.own_rows = False
        self.level = 0
        self.uniform: UOp | None = None
        self.entries: list[Evaluation] = []

    @property
    def completed(self) -> list[UOp]:
        """The reductions whose whole result passes through this node."""
        return [r for r, share in self.flow.items() if share == 1]


class Facts:
    """The properties of all nodes of a graph, in topological order."""

    def __init__(self, outputs: Iterable[UOp], *, max_leaves: int) -> None:
        roots = dict.fromkeys(outputs)
        self.order = postorder(roots)
        self.of: dict[UOp, Fact] = {}
        self.leaf_sizes: list[int] = []
        """Elements of each buffer, by the number of its bit."""
        self.leaf_bytes: list[int] = []
        """Bytes of each buffer."""
        self._max_leaves = max_leaves
        users: dict[UOp, int] = dict.fromkeys(roots, 1)
        for node in self.order:
            src = node.src
            if node.op is Ops.AFTER:
                roots.update(dict.fromkeys([b for s in src if (b := moved(s)).op not in _UNSTORED]))
            for s in dict.fromkeys(src) if len(src) > 1 else src:
                users[s] = users.get(s, 0) + 1
        for node in self.order:
            root = node in roots or node.op is Ops.CONTIGUOUS or node.op is Ops.ASSIGN
            fact = self.of[node] = Fact(node, users.get(node, 0), prod(node.shape), root=root)
            self._fill(fact, [self.of[s] for s in dict.fromkeys(node.src)])

    def _fill(self, fact: Fact, sources: list[Fact]) -> None:
        """Set the properties of a node from those of its sources."""
        node = fact.node
        op = node.op
        if op is Ops.CONST:
            fact.uniform = node
            return
        if op in _LEAF:
            fact.cost = 1
            fact.work = {node: 1}
            return
        if op is Ops.PARAM:
            fact.barrier = True
        elif op is Ops.AFTER:
            fact.inner, fact.level = sources[0].leaves, sources[0].level
            self._take_work(fact, sources[:1])
            self._movement(fact, sources[0])
        else:
            self._limit_leaves(sources)
            self._take_work(fact, sources)
            for s in sources:
                fact.inner |= s.leaves
                fact.level = max(fact.level, s.level)
            if op in ELEMENTWISE:
                self._elementwise(fact, sources)
            elif op in MOVEMENT:
                self._movement(fact, sources[0])
            elif op is Ops.REDUCE:
                fact.barrier = True
                fact.level += 1
                fact.flow = {node: 1}
            elif op is Ops.CONTIGUOUS or op is Ops.ASSIGN:
                fact.heavy, fact.rows = sources[-1].heavy, sources[-1].rows
                self._take_flow(fact, sources[-1])
            elif op is Ops.GATHER:
                fact.heavy = True
                fact.cost = min(_CAP, fact.cost + _WEIGHT[op])
                fact.work = {node: fact.cost}
        fact.own_cost, fact.own_heavy, fact.own_rows = fact.cost, fact.heavy, fact.rows
        if fact.barrier:
            self.make_barrier(fact)
        else:
            fact.leaves = fact.inner

    def make_barrier(self, fact: Fact) -> None:
        """Give a node a buffer, from which its users load it."""
        fact.barrier = True
        if not fact.bit:
            fact.bit = 1 << len(self.leaf_sizes)
            self.leaf_sizes.append(fact.size)
            self.leaf_bytes.append(fact.size * fact.node.dtype.itemsize)
        fact.leaves = fact.bit
        fact.cost = _LOAD
        fact.work = {fact.node: _LOAD}
        fact.heavy = fact.rows = False

    def _elementwise(self, fact: Fact, sources: list[Fact]) -> None:
        op = fact.node.op
        weight = _WEIGHT.get(op, 1)
        fact.cost = min(_CAP, fact.cost + weight)
        if len(fact.work) < _WORK:
            fact.work[fact.node] = weight
        else:
            fact.work = {fact.node: fact.cost}
        fact.heavy = op in _HEAVY
        for s in sources:
            fact.heavy |= s.heavy
            fact.rows |= s.rows
            self._take_flow(fact, s)

    @staticmethod
    def _take_work(fact: Fact, sources: list[Fact]) -> None:
        """Add the costs of the sources, each node once."""
        if not sources:
            return
        work = fact.work = dict(sources[0].work)
        fact.cost = sources[0].cost
        for s in sources[1:]:
            if work.keys() >= s.work.keys():
                continue
            fact.cost += sum([s.work[n] for n in s.work.keys() - work.keys()])
            work.update(s.work)

    def _movement(self, fact: Fact, source: Fact) -> None:
        fact.work = {fact.node: fact.cost} if fact.cost else {}
        fact.heavy = source.heavy
        fact.rows = source.rows
        op = fact.node.op
        if op is not Ops.PAD:
            fact.uniform = source.uniform
        if op in _SAME_ELEMENTS:
            self._take_flow(fact, source)
        elif op is Ops.EXPAND and any(back_over_rows(r, fact.node) for r in source.flow):
            fact.rows = True

    def _take_flow(self, fact: Fact, source: Fact) -> None:
        """Add the source's shares of reductions to a node; the users of a source have equal parts."""
        if source.root or not source.flow:
            return
        part = pow(source.users, -1, _PRIME) if source.users > 1 else 1
        for reduction, share in source.flow.items():
            if reduction in fact.flow or len(fact.flow) < _FLOWS:
                fact.flow[reduction] = (fact.flow.get(reduction, 0) + share * part) % _PRIME

    def _limit_leaves(self, sources: Sequence[Fact]) -> None:
        """Give the sources with the most leaves buffers until all together have few enough leaves."""
        while True:
            union = 0
            for s in sources:
                union |= s.leaves
            if union.bit_count() <= self._max_leaves:
                return
            widest = max(sources, key=lambda s: s.leaves.bit_count())
            if widest.leaves.bit_count() == 1:
                return
            self._force(widest)

    def _force(self, fact: Fact) -> None:
        """Give a node a buffer; for a movement, the node that it moves."""
        chain = [fact]
        while chain[-1].node.op in MOVEMENT and not chain[-1].root:
            chain.append(self.of[chain[-1].node.src[0]])
        chain[-1].root = True
        self.make_barrier(chain[-1])
        for moved in reversed(chain[:-1]):
            moved.inner = moved.leaves = chain[-1].leaves
            moved.cost = _LOAD
            moved.work = {moved.node: _LOAD}
            moved.heavy = moved.rows = False
            moved.flow = {}


def moved(x: UOp) -> UOp:
    """Return the node below a chain of movements and AFTERs."""
    while x.op in MOVEMENT or x.op is Ops.AFTER:
        x = x.src[0]
    return x


def reduced_sizes(reduction: UOp) -> tuple[int, ...]:
    """Return the sizes of the axes over which a REDUCE of a tensor graph reduces."""
    shape = reduction.src[0].shape
    return tuple([shape[a] for a in reduction.arg[1]])


def is_trailing(reduction: UOp) -> bool:
    """Return whether the reduced axes are the last ones, except for axes of size 1."""
    shape = reduction.src[0].shape
    axes = reduction.arg[1]
    return all(shape[a] == 1 or a in axes for a in range(min(axes), len(shape)))


def back_over_rows(reduction: UOp, expand: UOp) -> bool:
    """Return whether an EXPAND repeats the reduction of a row along a row of the same size."""
    before, after = expand.src[0].shape, expand.shape
    grown = [i for i, (n, m) in enumerate(zip(before, after, strict=True)) if n != m]
    if not all(after[i] == 1 or i in grown for i in range(grown[0], len(after))):
        return False
    return is_trailing(reduction) and prod([after[i] for i in grown]) == prod(reduced_sizes(reduction))


def is_contraction(reduction: UOp) -> bool:
    """Return whether a reduction adds products of repeated operands: matmul, convolution."""
    product = reduction.src[0]
    while product.op is Ops.CAST:
        product = product.src[0]
    return product.op is Ops.MUL and all(_is_repeated(s) for s in product.src)


def _is_repeated(x: UOp) -> bool:
    while True:
        if x.op is Ops.WINDOW or x.op is Ops.EXPAND:
            return True
        if x.op not in MOVEMENT and x.op is not Ops.CAST:
            return False
        x = x.src[0]


Scope = tuple["UOp", ...]
"""The loops around an evaluation, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionLimits:
    """The limits of fusion, for one kernel."""

    buffers: int = 24
    """The most distinct buffers of a kernel."""
    nodes: int = 1024
    """The most evaluations in a kernel; with more, elementwise values get buffers."""
    depth: int = 256
    """The most evaluations one behind the other in a kernel, which compiling it follows by recursion."""
    places: int = 8
    """The most distinct indices at which a value without a buffer is evaluated."""
    row: int = 1 << 17
    """The longest row, in elements, in a kernel with several reductions over one row."""
    few_rows: int = 32
    """The number of rows, or of results of a reduction, below which workers have too few to share."""
    few_rows_row: int = 1 << 13
    """The longest row if a kernel has fewer than `few_rows` rows."""
    split: int = 1 << 15
    """A reduction of at least this many elements to fewer than `few_rows` is split in two."""
    outputs: int = 0
    """Results that keep a device busy if one thread sums each; 0 for a device without threads."""
    groups: int = 0
    """Results that keep a device busy if a workgroup sums each; 0 for a device without threads."""
    near: int = 1 << 22
    """The fewest bytes of a value that has left the caches when the next kernel loads it."""
    siblings: int = 16
    """The most earlier kernels of the same shape that a store may join."""
    chains: bool = False
    """Whether a kernel may be a chain of products and a function of rows between them."""
    rows: int = 256
    """The fewest rows of kernels that become one: with fewer, it would occupy fewer cores than they."""
    operand: int = 0
    """The fewest bytes of a buffer whose users become one kernel, beside each other; 0: none do."""
    threaded: Target | None = None
    """The target with threads whose plans a chain must fit. None: rows must be short, or in pieces."""


class Evaluation:
    """The evaluation of a node in a kernel at one index, also called an entry of the kernel.

    `mask` is true where the value is needed. `scopes` are the loops in which it is used. `loaded` marks a
    value that is loaded from the node's buffer. `ranges` are the loops of a REDUCE. `src` has the entry of
    each source, and the mask outside which that source is 0. `value` is the node of the AST, once it is made.
    `depth` is the largest number of evaluations between it and a stored one.
    """

    __slots__ = (
        "depth", "fact", "index", "kernel", "loaded", "mask", "node", "ranges", "scopes", "src", "value",
    )  # fmt: skip

    def __init__(self, kernel: KernelDraft, fact: Fact, index: Index, mask: UOp) -> None:
        self.kernel = kernel
        self.fact = fact
        self.node = fact.node
        self.index = index
        self.mask = mask
        self.scopes: dict[Scope, None] = {}
        self.loaded = False
        self.depth = 0
        self.ranges: Scope = ()
        self.src: list[tuple[Evaluation, UOp]] = []
        self.value: UOp | None = None


class KernelDraft:
    """A kernel under construction, with its number. Its output ranges `out` are 0, 1, ...

    `stores` are the nodes that it stores, with their entries. `leaves` is the bit set of the buffers that it
    loads. `assigned` are the slots of the PARAMs that it assigns, `copies` the ASSIGN whose value it only
    copies from a temporary buffer. `main` is the reduction that it evaluates once for each output element.
    `row` is the number of leading output ranges on which its row reductions depend, None without these;
    `rows` marks a stored value that needs a reduction over its own trailing axes.
    """

    __slots__ = (
        "assigned", "computed", "copies", "entries", "leaves", "main", "next_range", "number", "out",
        "reduces", "row", "rows", "size", "stores", "updates", "used",
    )  # fmt: skip

    def __init__(self, number: int, shape: tuple[int, ...]) -> None:
        self.number = number
        self.out: Scope = tuple([symbolic.loop(i, n) for i, n in enumerate(shape)])
        self.size = prod(shape)
        self.next_range = len(shape)
        self.entries: dict[tuple[UOp, Index, UOp], Evaluation] = {}
        self.stores: list[tuple[Fact, Evaluation]] = []
        self.assigned: set[int] = set()
        self.updates = False
        """Whether it loads a buffer that it assigns."""
        self.copies: UOp | None = None
        self.main: UOp | None = None
        self.row: int | None = None
        self.rows = False
        self.leaves = 0
        self.reduces: dict[object, Scope] = {}
        """The ranges of each reduction: equal reductions at the same index have the same ones."""
        self.computed: dict[UOp, tuple[Evaluation, UOp]] = {}
        """INDEXOF -> the entry whose value is this index, and the mask outside which that value is 0."""
        self.used: dict[tuple[Index, UOp], frozenset[UOp]] = {}
        """Results of `ranges_of`; all entries of a chain of operations have one index."""

    def index_of(self, shape: Sequence[int]) -> Index:
        """Return the output ranges as the index of a node of the kernel's shape; axes of size 1 are 0."""
        ranges = iter(self.out)
        return tuple([next(ranges) if n > 1 else symbolic.ZERO for n in shape])


def ranges_of(entry: Evaluation) -> frozenset[UOp]:
    """Return the ranges on which an entry's index and mask depend, also those of computed indices in them."""
    kernel = entry.kernel
    found = kernel.used.get((entry.index, entry.mask))
    if found is not None:
        return found
    used: set[UOp] = set()
    todo = list(symbolic.atoms_of((*entry.index, entry.mask)))
    seen: set[UOp] = set()
    while todo:
        atom = todo.pop()
        if atom.op is Ops.INDEXOF and atom not in seen:
            seen.add(atom)
            source, mask = kernel.computed[atom]
            todo += symbolic.atoms_of((*source.index, mask))
        if atom.op is not Ops.VAR:
            used.add(atom)
    found = kernel.used[entry.index, entry.mask] = frozenset(used)
    return found


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without axes of size 1."""
    return tuple([n for n in shape if n != 1])


def param_of(assign: UOp) -> UOp:
    """Return the PARAM that an ASSIGN stores to."""
    target = assign.src[0]
    while target.op is not Ops.PARAM:
        target = target.src[0]
    return target
