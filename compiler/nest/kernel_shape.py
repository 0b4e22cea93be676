"""Properties of one kernel by which it is planned: ranges, memory accesses, reductions, strides.

Not here: properties of tensor nodes (`compiler.schedule.analysis`). Next: `plan.cost`, the estimated time of
a kernel; `plan.tiling`, which plans it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from compiler.dtype import register_type, storage_type
from compiler.ir import index as symbolic
from compiler.ir.ops import BINARY, ROWS, UNARY, Ops
from compiler.ir.walk import KEPT, bound_ranges, by_number, ordered, ranges_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compiler.ir.uop import UOp

MOST_STRIDE = 4
"""The largest distance between lanes for which whole rows are loaded and lanes selected, without a gather."""
Kind = Literal["same", "row", "strided", "scattered"]
"""The lanes of an access along a range: one element, adjacent, a few elements apart, or anything else."""

_RARE = 16
"""An int64 value is rare if it is computed this much less often than the most frequent values."""
PROBE = 1 << 19
"""The number of the first range that `kind_along` makes."""


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """One LOAD or STORE."""

    node: UOp
    index: UOp
    free: frozenset[UOp]
    itemsize: int
    masked: bool
    nbytes: float
    """Bytes of the elements at most: of one for every value of the ranges, or of all from first to last."""


@dataclass(slots=True)
class Family:
    """REDUCEs over one set of ranges that depend on the same other ranges."""

    ranges: frozenset[UOp]
    """The ranges that are reduced."""
    free: frozenset[UOp]
    """The other ranges."""
    nodes: list[UOp] = field(default_factory=list)
    loads: list[KernelAccess] = field(default_factory=list)
    ops: float = 0.0
    """Weighted operations of one round, without those of multiply-adds."""
    fused: int = 0
    """The `nodes` that are sums of products: one multiply-add in a round."""
    trips: int = 1
    """The number of values from which each result is reduced."""


@dataclass(slots=True)
class KernelShape:
    """The properties of one kernel."""

    ast: UOp
    free: dict[UOp, frozenset[UOp]]
    outputs: list[UOp]
    """Output ranges, sorted by number."""
    families: list[Family]
    loads: list[KernelAccess]
    """Loads outside reductions."""
    stores: list[KernelAccess]
    ops: float
    """Weighted operations outside reductions."""
    ops_of: dict[frozenset[UOp], float]
    """The same by the ranges on which they depend."""
    in_place: bool
    """Whether the kernel reads a buffer that it writes."""
    masked_ranges: frozenset[UOp]
    """Ranges on which masks depend."""
    widest: int
    """Bytes of the widest value in a register."""


def weight(op: str) -> float:
    """Return the approximate number of vector instructions of an operation; 0 for loads and indices."""
    row = ROWS.get(op)
    return row.cost.instructions if row else 1.0 if op in (Ops.WHERE, Ops.CAST, Ops.DOT) else 0.0


def inner_nodes(roots: Iterable[UOp], ends: frozenset[UOp] = frozenset()) -> tuple[UOp, ...]:
    """Return the roots and the nodes under them, each once; not those under a REDUCE or a node of `ends`."""
    return _inner_nodes(tuple(roots), ends)


@lru_cache(maxsize=KEPT)
def _inner_nodes(roots: tuple[UOp, ...], ends: frozenset[UOp]) -> tuple[UOp, ...]:
    seen: set[UOp] = set()
    out: list[UOp] = []
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        out.append(node)
        if node.op is not Ops.REDUCE and node not in ends:
            stack += node.src
    return tuple(out)


def access(node: UOp, free: dict[UOp, frozenset[UOp]]) -> KernelAccess:
    """Describe a LOAD or STORE."""
    at = 2 if node.op is Ops.LOAD else 3
    size = storage_type(node.src[0].dtype).itemsize
    ranges = free[node] if node.op is Ops.LOAD else free[node.src[1]]
    elements = min(math.prod([r.arg[1] for r in ranges]), node.src[1].vmax - node.src[1].vmin + 1)
    nbytes = float(size * elements)
    return KernelAccess(node, node.src[1], ranges, size, len(node.src) > at, nbytes)


def analyse(ast: UOp) -> KernelShape:
    """Find the properties of a kernel."""
    free = ranges_in(ast)
    nodes = ordered(ast)
    families: dict[tuple[frozenset[UOp], frozenset[UOp]], Family] = {}
    for node in nodes:
        if node.op is Ops.REDUCE and node.arg[1]:
            key = bound_ranges(node, free), free[node]
            families.setdefault(key, Family(*key)).nodes.append(node)
    for family in families.values():
        _fill(family, free)
    outside = inner_nodes([s.src[2] for s in ast.src])
    reads = {n.src[0].arg for n in nodes if n.op is Ops.LOAD}
    writes = {s.src[0].arg for s in ast.src}
    masks = frozenset([r for n in nodes if n.op is Ops.ILT for r in free[n]])
    values = [
        n
        for n in nodes
        if n.op in BINARY or n.op in UNARY or n.op in (Ops.LOAD, Ops.CAST, Ops.REDUCE, Ops.WHERE)
    ]
    outputs: dict[UOp, None] = {}
    for s in ast.src:
        outputs.update(dict.fromkeys(free[s]))
    return KernelShape(
        ast, free, by_number(outputs), list(families.values()),
        [access(n, free) for n in outside if n.op is Ops.LOAD], [access(s, free) for s in ast.src],
        sum([weight(n.op) for n in outside]), _by_ranges(outside, free), bool(reads & writes), masks,
        _widest(ast, values, free),
    )  # fmt: skip


def _widest(ast: UOp, values: list[UOp], free: Mapping[UOp, frozenset[UOp]]) -> int:
    """Return the bytes of the widest value in a register.

    An int64 value does not count if it is rare, as a row's label beside the elements of the row, or if it is
    only the form in which a narrower one is stored.
    """
    wide = [n for n in values if n.dtype.is_int and n.dtype.bits == 64]
    if wide:
        times = {n: math.prod([r.arg[1] for r in free[n]]) for n in values}
        often = max(times.values()) // _RARE
        stored = {s.src[2] for s in ast.src if s.src[2].op is Ops.CAST}
        values = [n for n in values if n not in wide or (times[n] > often and n not in stored)]
    return max([register_type(n.dtype).itemsize for n in values], default=4)


def _by_ranges(nodes: Iterable[UOp], free: Mapping[UOp, frozenset[UOp]]) -> dict[frozenset[UOp], float]:
    """Return the weighted operations by the ranges on which they depend."""
    out: dict[frozenset[UOp], float] = {}
    for node in nodes:
        if each := weight(node.op):
            out[free[node]] = out.get(free[node], 0.0) + each
    return out


def _fill(family: Family, free: dict[UOp, frozenset[UOp]]) -> None:
    inside = inner_nodes([n.src[0] for n in family.nodes])
    family.trips = math.prod([int(r.arg[1]) for r in family.ranges])
    family.loads = [access(n, free) for n in inside if n.op is Ops.LOAD]
    family.ops = sum([weight(n.op) for n in inside]) + len(family.nodes)
    family.fused = sum(
        1
        for n in family.nodes
        if n.arg[0] == "ADD" and (n.src[0].op is Ops.DOT or (n.src[0].op is Ops.MUL and n.dtype.is_float))
    )
    family.ops -= 2 * family.fused  # the multiplication and the addition


def kind_along(
    index: UOp, r: UOp, lanes: int, block: int, *, aligned: bool, free: dict[UOp, frozenset[UOp]]
) -> Kind:
    """Return how the elements at `lanes` successive values of r lie in memory.

    r is split into blocks of `block` values. They start at multiples of their size if `aligned`, else
    anywhere. `free` are the ranges on which each node of the kernel depends.
    """
    found = linear_in(index, r, free)
    if found is not None:
        return _kind(found[0] if lanes > 1 else 0)
    size = r.arg[1]
    lane = symbolic.loop(PROBE, lanes)
    if aligned:
        start = symbolic.mul(symbolic.loop(PROBE + 1, -(-size // block)), block)
    else:
        start = symbolic.loop(PROBE + 1, max(1, size - block + 1))
    unit = symbolic.loop(PROBE + 2, block // lanes)
    x = symbolic.substitute(index, {r: symbolic.dot((start, unit, lane), (1, lanes, 1))}, {})
    terms, _ = symbolic.terms_of(x)
    stride = terms.pop(lane, 0)
    for atom in terms:
        if atom.op in (Ops.IDIV, Ops.IMOD, Ops.INDEXOF) and _depends(atom, lane, r, free):
            return "scattered"
    return _kind(stride)


def _kind(stride: int) -> Kind:
    if stride == 0:
        return "same"
    return "row" if stride in (1, -1) else "strided" if 1 < stride <= MOST_STRIDE else "scattered"


def linear_in(
    index: UOp, r: UOp, free: Mapping[UOp, frozenset[UOp]]
) -> tuple[int, dict[UOp, int], int] | None:
    """Return an index as (factor of r, other terms, constant); None where another term depends on r."""
    terms, constant = symbolic.terms_of(index)
    factor = terms.pop(r, 0)
    for atom in terms:
        if atom.op is not Ops.RANGE and atom.op is not Ops.VAR and r in free.get(atom, (r,)):
            return None
    return factor, terms, constant


def _depends(atom: UOp, lane: UOp, r: UOp, free: dict[UOp, frozenset[UOp]]) -> bool:
    """Return whether an atom depends on the lane: a computed index does if its value depends on r."""
    if atom.op is Ops.INDEXOF:
        return r in free[atom]
    return any(
        a is lane or (a.op is Ops.INDEXOF and _depends(a, lane, r, free)) for a in symbolic.atoms_of(atom.src)
    )
