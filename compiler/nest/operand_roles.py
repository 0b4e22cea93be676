"""Find the operands of a kernel's sum of products, and on the host which is broadcast over columns.

Some output ranges occur in one operand only (rows of a matrix product), and some in the other only (columns).
`operands_of` finds both, for every target. On the host, one operand is broadcast over the columns, and the
other is read in vectors along them (`Contraction`).

Next: `plan.contraction`, which plans a contraction; `plan.matrix_product`, products on targets with shared
memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from compiler.ir.ops import BINARY, UNARY, Ops
from compiler.ir.walk import KEPT, by_number
from compiler.nest.kernel_shape import access, inner_nodes, kind_along
from compiler.rewrite.packed_dot import multiplies

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelShape

LEAST_WORK = 1 << 15
"""Multiply-adds from which on a kernel is a contraction."""
LEAST_SUM = 8
"""Products of one output from which on a register tile pays."""
LEAST_SIZE = (2, 8)
"""Rows and columns from which on a register tile pays."""
FAR_STORES = 512
"""Products of one output from which on the time of stores that are not in rows does not matter."""
_COMPUTED = BINARY | UNARY | {Ops.WHERE, Ops.CAST, Ops.IVALUE, Ops.BITCAST}
"""Operations that compute a value; all others of an operand are loads, constants and index arithmetic."""


class Operands(NamedTuple):
    """The operands of a kernel's one sum of products, or sum over words."""

    family: Family
    node: UOp
    """The REDUCE."""
    x: UOp
    y: UOp
    own: tuple[list[UOp], list[UOp]]
    """The output ranges on which x alone depends, and those of y alone, by number."""


def operands_of(kernel: KernelShape) -> Operands | None:
    """Return the operands of a kernel's sum of products of floats or words; None for any other kernel.

    Beside a sum over words there may be the sum of one operand (`rewrite.packed_dot`).
    """
    families = kernel.families
    if len(families) == 2:
        families = [f for f in families if any(n.src[0].op is Ops.DOT and multiplies(n) for n in f.nodes)]
    if len(families) != 1 or len(families[0].nodes) != 1:
        return None
    (family,) = families
    (node,) = family.nodes
    value = node.src[0]
    multiplied = value.op is Ops.DOT or (value.op is Ops.MUL and node.dtype.is_float)
    if node.arg[0] != "ADD" or not multiplied or value.dtype is not node.dtype:
        return None
    x, y = value.src
    if any(n.op is Ops.REDUCE for n in inner_nodes((x, y))):
        return None
    outputs = frozenset(kernel.outputs)
    free_x, free_y = kernel.free[x] & outputs, kernel.free[y] & outputs
    return Operands(family, node, x, y, (by_number(free_x - free_y), by_number(free_y - free_x)))


@dataclass(frozen=True, slots=True)
class Contraction:
    """The two operands of a sum of products, by role."""

    family: Family
    node: UOp
    """The REDUCE."""
    rows: UOp
    """Output range of the operand that is broadcast."""
    columns: UOp
    """Output range of the operand that vectors run along."""
    broadcast: UOp
    """The operand that depends on `rows`, not on `columns`."""
    streamed: UOp
    """The operand that depends on `columns`, not on `rows`."""
    others: tuple[UOp, ...]
    """The other output ranges, by number."""

    @property
    def size(self) -> tuple[int, int, int]:
        """The rows, columns, and products of one output."""
        return self.rows.arg[1], self.columns.arg[1], self.family.trips


def candidates(kernel: KernelShape) -> list[Contraction]:
    """Return the choices of rows and columns of a kernel, the likely best first.

    Empty for a kernel that is no contraction, and for one of few products (`LEAST_WORK`, `LEAST_SUM`,
    `LEAST_SIZE`).
    """
    operands = operands_of(kernel)
    if operands is None:
        return []
    family, node, x, y, (mine, theirs) = operands
    if family.trips < LEAST_SUM or family.trips * math.prod([r.arg[1] for r in kernel.outputs]) < LEAST_WORK:
        return []
    found: list[Contraction] = []
    for broadcast, streamed, rows, columns in ((x, y, mine, theirs), (y, x, theirs, mine)):
        for r, c in product(rows, columns):
            if r.arg[1] >= LEAST_SIZE[0] and c.arg[1] >= LEAST_SIZE[1]:
                others = tuple([o for o in kernel.outputs if o is not r and o is not c])
                found.append(Contraction(family, node, r, c, broadcast, streamed, others))
    return sorted(found, key=lambda c: -_score(kernel, c))


def _score(kernel: KernelShape, c: Contraction) -> float:
    """Return the preference of a choice of rows and columns: long ranges, results stored in rows."""
    m, n, k = c.size
    stored = all(
        kind_along(s.index, c.columns, 2, 2, aligned=True, free=kernel.free) == "row" for s in kernel.stores
    )
    loads = [access(x, kernel.free) for x in inner_nodes((c.streamed,)) if x.op is Ops.LOAD]
    read = all(
        kind_along(a.index, c.columns, 2, 2, aligned=True, free=kernel.free) in ("row", "same") for a in loads
    )
    return (
        min(m, 16) / 16
        + min(n, 64) / 64
        + (1.0 if stored or k > FAR_STORES else 0.0)
        + (0.5 if read else 0.0)
    )


@lru_cache(maxsize=KEPT)
def loads_of(operand: UOp) -> tuple[UOp, ...]:
    """Return the LOADs of an operand."""
    return tuple([n for n in inner_nodes((operand,)) if n.op is Ops.LOAD])


@lru_cache(maxsize=KEPT)
def is_computed(operand: UOp) -> bool:
    """Return whether an operand is more than a load."""
    return any(n.op in _COMPUTED for n in inner_nodes((operand,)))
