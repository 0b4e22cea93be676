"""Traversals of kernel ASTs: all nodes with sources first, and the ranges that each node depends on.

Not here: traversals that rebuild a graph (`compiler.kernel.merge`, `compiler.schedule.lower`). Next: `ops`,
which defines RANGE and REDUCE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir.ops import Ops

if TYPE_CHECKING:
    from compiler.ir.uop import UOp


def ranges_in(root: UOp) -> dict[UOp, frozenset[UOp]]:
    """Return, for every node under the root, the free RANGEs on which it depends.

    The RANGEs that a REDUCE binds are not free in it.
    """
    free: dict[UOp, frozenset[UOp]] = {}
    empty: frozenset[UOp] = frozenset()
    for node in ordered(root):
        if node.op is Ops.RANGE:
            free[node] = frozenset((node,))
            continue
        got = empty
        for s in node.src:
            if free[s]:
                got = got | free[s] if got else free[s]
        if node.op is Ops.REDUCE:
            numbers = node.arg[1]
            got = frozenset([r for r in got if r.arg[0] not in numbers])
        free[node] = got
    return free


def ordered(root: UOp) -> list[UOp]:
    """Return every node under the root once, sources first."""
    seen: set[UOp] = set()
    out: list[UOp] = []
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            out.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(s, False) for s in node.src if s not in seen]
    return out


def bound_ranges(reduce: UOp, free: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """Return the RANGEs over which a REDUCE runs."""
    return frozenset([r for r in free[reduce.src[0]] if r.arg[0] in reduce.arg[1]])
