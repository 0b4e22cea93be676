"""The lines of a value that is neither a load nor a reduction nor arithmetic, by its operation.

Not here: arithmetic (`isel`), loads (`accesses`), reductions (`reductions`). Next: `linearize`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.emit import conversions, indexing
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.emit.device_tile import StagedSumWriter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp


def constant(writer: StagedSumWriter, node: UOp) -> Line:
    """Write a CONST."""
    return conversions.constant(writer.b, node.dtype, node.arg)


def where(writer: StagedSumWriter, node: UOp) -> Line:
    """Write a WHERE."""
    mask, x, y = [writer.value(s) for s in node.src]
    return writer.b.select(mask, x, y)


def within(writer: StagedSumWriter, node: UOp) -> Line:
    """Write a WITHIN: its value, also where the condition is false."""
    return writer.value(node.src[1])


def cast(writer: StagedSumWriter, node: UOp) -> Line:
    """Write a CAST."""
    return conversions.cast(writer.b, writer.value(node.src[0]), node.src[0].dtype, node.dtype)


def bitcast(writer: StagedSumWriter, node: UOp) -> Line:
    """Write a BITCAST."""
    return conversions.bitcast(writer.b, writer.value(node.src[0]), node.src[0].dtype, node.dtype)


def index_value(writer: StagedSumWriter, node: UOp) -> Line:
    """Write an IVALUE, an index or a mask as a value."""
    source = node.src[0]
    if symbolic.is_mask(source):
        mask = writer.index.mask(source)
        return writer.b.const(dtypes.bool, True) if mask is None else mask
    return indexing.resized(writer.b, writer.index.line(source), node.dtype)


HANDLERS: Final[dict[str, Callable[[StagedSumWriter, UOp], Line]]] = {
    Ops.CONST: constant,
    Ops.WHERE: where,
    Ops.CAST: cast,
    Ops.WITHIN: within,
    Ops.BITCAST: bitcast,
    Ops.IVALUE: index_value,
}
"""Operation -> what writes its lines at the current position."""
