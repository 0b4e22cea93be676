"""Removal of tensors without elements from a graph, before it is scheduled.

Only three operations make elements out of none: PAD gives zeros, REDUCE the neutral element of its reduction,
GATHER from an empty axis zeros. Each becomes a constant, so no other node depends on a tensor without
elements.

Next: `scheduler`, which runs this pass first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir import graph
from compiler.ir.fold import identity
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.ir.uop import uop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import UOp


def without_empties(outputs: Sequence[UOp]) -> list[UOp]:
    """Return the outputs with constants in place of what is made of empty tensors alone.

    Outputs that are empty themselves come back as they are.
    """
    order = postorder(outputs)
    if not any([0 in x.shape for x in order]):  # noqa: C419 - a list is faster
        return list(outputs)
    new: dict[UOp, UOp] = {}
    for x in order:
        if 0 in x.shape:
            new[x] = x
        elif x.src and 0 in x.src[0].shape:
            value = identity(x.arg[0], x.dtype).arg if x.op is Ops.REDUCE else 0
            new[x] = graph.full(value, x.shape, x.dtype)
        else:
            src = tuple([new[s] for s in x.src])
            same = all([a is b for a, b in zip(src, x.src, strict=True)])  # noqa: C419 - a list is faster
            new[x] = x if same else uop(x.op, x.dtype, src, x.arg)
    return [new[x] for x in outputs]
