"""Find a matrix product in a kernel for shared memory: a range of rows, one of columns, one that is summed.

The output ranges of one operand alone are merged to the range of rows, those of the other operand to the
range of columns, and all summed ranges to one. Indices get divisions where they need them. So a convolution
is a product, too.

Not here: how a product is divided (`block_splits`), its plan (`shared_product`, the caller).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import HALF, dtypes, register_type
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import by_number
from compiler.nest.kernel_shape import analyse
from compiler.nest.operand_roles import operands_of
from compiler.plan.thread_vectors import in_row
from compiler.rewrite.range_merging import replace_ranges

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import KernelShape
    from compiler.targets.shared.matrix import MatrixOp
    from compiler.targets.shared.target import Target

LEAST_SIDE, LEAST_SUM = 16, 16
"""Rows, columns and products of one output from which on tiles in shared memory pay."""
LEAST_MATRIX = 32
"""Rows, columns and products from which on a matrix operation pays."""


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel with one range of rows, one of columns and one that is summed."""

    kernel: KernelShape
    node: UOp
    """The REDUCE."""
    rows: UOp
    columns: UOp
    k: UOp
    left: UOp
    """The operand of the rows."""
    right: UOp
    """The operand of the columns."""
    others: tuple[UOp, ...]
    known: dict[tuple[UOp, UOp, int], bool] = field(default_factory=dict)
    """Results of `in_row`: several candidates use the same."""

    def in_row(self, node: UOp, r: UOp, lanes: int) -> bool:
        """Return whether values along a range are one vector of a LOAD or STORE; cached."""
        found = self.known.get((node, r, lanes))
        if found is None:
            found = self.known[node, r, lanes] = in_row(node, r, lanes, self.kernel.free)
        return found


def product_of(kernel: KernelShape, target: Target) -> Product | None:
    """Return the product of a kernel after its ranges are merged; None where shared memory does not pay.

    None also for a kernel that is no product, and on a target without shared memory.
    """
    product = _find(kernel) if target.shared_bytes else None
    merged = None if product is None else _merged(kernel.ast, product)
    p = None if merged is None else _single(kernel if merged is kernel.ast else analyse(merged))
    if p is None or min(p.rows.arg[1], p.columns.arg[1]) < LEAST_SIDE or p.k.arg[1] < LEAST_SUM:
        return None
    return p


def _find(kernel: KernelShape) -> tuple[UOp, list[UOp], list[UOp], frozenset[UOp]] | None:
    """Return the REDUCE of a sum of products, with the ranges of rows, of columns, and those summed."""
    found = None if kernel.in_place else operands_of(kernel)
    if found is None or not all(found.own) or register_type(found.node.dtype) is not dtypes.float32:
        return None
    rows, columns = found.own
    if _stored_along(kernel, rows[-1]) and not _stored_along(kernel, columns[-1]):
        rows, columns = columns, rows
    return found.node, rows, columns, found.family.ranges


def _stored_along(kernel: KernelShape, r: UOp) -> bool:
    """Return whether neighbours along a range are neighbours in the results."""
    return all(symbolic.terms_of(s.index)[0].get(r, 0) == 1 for s in kernel.stores)


def _merged(ast: UOp, product: tuple[UOp, list[UOp], list[UOp], frozenset[UOp]]) -> UOp | None:
    """Return the kernel with one range each for the rows, the columns and the sum."""
    _, rows, columns, summed = product
    env: dict[UOp, UOp] = {}
    for ranges in (rows, columns, by_number(summed)):
        if any(not isinstance(r.arg[1], int) for r in ranges):
            return None
        whole = symbolic.loop(ranges[-1].arg[0], prod([r.arg[1] for r in ranges]))
        inner = 1
        for r in reversed(ranges):
            if len(ranges) > 1:
                env[r] = symbolic.mod(symbolic.div(whole, inner), r.arg[1])
            inner *= r.arg[1]
    return replace_ranges(ast, env) if env else ast


def _single(kernel: KernelShape) -> Product | None:
    """Return the product of a kernel whose rows, columns and sum are one range each."""
    found = _find(kernel)
    if found is None or any(len(ranges) != 1 for ranges in found[1:]):
        return None
    node, (rows,), (columns,), (k,) = found
    left, right = node.src[0].src
    if rows not in kernel.free[left]:
        left, right = right, left
    others = tuple([r for r in kernel.outputs if r is not rows and r is not columns])
    return Product(kernel, node, rows, columns, k, left, right, others)


def half(p: Product) -> tuple[UOp, UOp]:
    """Return the operands; those converted to float32 from one type of 16 bits without the conversion."""
    inner = [x.src[0] if x.op is Ops.CAST else x for x in (p.left, p.right)]
    same = inner[0].dtype is inner[1].dtype and inner[0].dtype in HALF
    return (inner[0], inner[1]) if same else (p.left, p.right)


def operands(p: Product, target: Target) -> tuple[MatrixOp | None, UOp, UOp]:
    """Return the matrix operation of a product, None for multiply-adds, and the operands that it takes."""
    left, right = half(p)
    op = next((o for o in target.matrix if o.dtype is left.dtype is right.dtype), None)
    if op is None or min(p.rows.arg[1], p.columns.arg[1], p.k.arg[1]) < LEAST_MATRIX:
        return None, p.left, p.right
    return op, left, right
