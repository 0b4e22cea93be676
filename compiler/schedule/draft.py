"""Kernels under construction: which tensor nodes they evaluate, at which indices, and what they store.

Not here: the decisions (`fusion`), the finished AST (`lower`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.movement import Index
    from compiler.ir.uop import UOp
    from compiler.schedule.analysis import Fact

Scope = tuple["UOp", ...]
"""The loops around an evaluation, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where fusion stops."""

    buffers: int = 24
    """Distinct buffers of one kernel."""
    nodes: int = 1024
    """Evaluations in one kernel; beyond it, elementwise values get buffers."""
    places: int = 8
    """Distinct indices at which one kernel may evaluate a computed value."""
    row: int = 1 << 17
    """Longest row, in elements, of a kernel that holds several reductions over one row."""
    few_rows: int = 32
    few_rows_row: int = 1 << 13
    """The same where there are fewer than `few_rows` rows to share among workers."""
    split: int = 1 << 15
    """A reduction of at least this many elements to fewer than `few_rows` is cut in two."""
    siblings: int = 16
    """How many earlier kernels of the same shape are considered for sharing."""


class Entry:
    """The evaluation of a node in a kernel at one index."""

    __slots__ = ("fact", "index", "kernel", "loaded", "mask", "node", "ranges", "scopes", "src", "value")

    def __init__(self, kernel: Kernel, fact: Fact, index: Index, mask: UOp) -> None:
        self.kernel = kernel
        self.fact = fact
        self.node = fact.node
        self.index = index
        self.mask = mask
        self.scopes: dict[Scope, None] = {}
        self.loaded = False
        self.ranges: Scope = ()
        self.src: list[tuple[Entry, UOp]] = []
        self.value: UOp | None = None


class Kernel:
    """A kernel in the making; `number` is its place among all. Its output ranges are 0, 1, ..."""

    __slots__ = (
        "assigned", "computed", "copies", "entries", "leaves", "main", "next_range", "number", "out",
        "reduces", "row", "rows", "size", "stores",
    )  # fmt: skip

    def __init__(self, number: int, shape: tuple[int, ...]) -> None:
        self.number = number
        self.out: Scope = tuple([symbolic.loop(i, n) for i, n in enumerate(shape)])
        self.size = prod(shape)
        self.next_range = len(shape)
        self.entries: dict[tuple[UOp, Index, UOp], Entry] = {}
        self.stores: list[tuple[Fact, Entry]] = []
        self.assigned: set[int] = set()
        self.copies: UOp | None = None
        self.main: UOp | None = None
        self.row: int | None = None
        self.rows = False
        self.leaves = 0
        self.reduces: dict[object, Scope] = {}
        self.computed: dict[UOp, tuple[Entry, UOp]] = {}

    def index_of(self, shape: Sequence[int]) -> Index:
        """Return the output ranges as the index of a node of the kernel's shape; axes of size 1 are 0."""
        ranges = iter(self.out)
        return tuple([next(ranges) if n > 1 else symbolic.ZERO for n in shape])


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    """Drop axes of size 1."""
    return tuple([n for n in shape if n != 1])


def param_of(assign: UOp) -> UOp:
    """Return the PARAM that an ASSIGN stores to."""
    target = assign.src[0]
    while target.op is not Ops.PARAM:
        target = target.src[0]
    return target
