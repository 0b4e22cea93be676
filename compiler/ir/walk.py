"""Traversals of kernel ASTs: all nodes with sources first, and the ranges that each node depends on.

Not here: the passes that change a graph (`compiler.rewrite`, `compiler.schedule`). Next: `ops`, which defines
RANGE and REDUCE.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from compiler.ir.ops import Ops
from compiler.ir.uop import uop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from compiler.ir.uop import UOp

KEPT: Final = 64
"""The number of traversals that are kept: the passes over one kernel ask for the same traversals many
times."""


@lru_cache(maxsize=KEPT)
def ranges_in(root: UOp) -> dict[UOp, frozenset[UOp]]:
    """Return, for every node under the root, the free RANGEs on which it depends.

    The RANGEs that a REDUCE binds are not free in it. The result is shared by all callers: do not change it.
    """
    free: dict[UOp, frozenset[UOp]] = {}
    empty: frozenset[UOp] = frozenset()
    for node in ordered(root):
        op, got = node.op, empty
        if op is Ops.RANGE:
            got = frozenset((node,))
        else:
            for s in node.src:
                theirs = free[s]
                if theirs is not got and theirs:
                    got = got | theirs if got else theirs
            if op is Ops.REDUCE:
                numbers = node.arg[1]
                got = frozenset([r for r in got if r.arg[0] not in numbers])
        free[node] = got
    return free


@lru_cache(maxsize=KEPT)
def ordered(root: UOp) -> Sequence[UOp]:
    """Return every node under the root once, sources first. The result is shared by all callers."""
    seen: set[UOp] = set()
    out: list[UOp] = []
    stack: list[UOp | None] = [root]
    while stack:
        node = stack.pop()
        if node is None:  # the sources of the node below it are done
            done = stack.pop()
            assert done is not None
            out.append(done)
        elif node not in seen:
            seen.add(node)
            if node.src:
                stack += (node, None)
                stack += [s for s in node.src if s not in seen]
            else:
                out.append(node)
    return tuple(out)


def bound_ranges(reduce: UOp, free: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """Return the RANGEs over which a REDUCE runs; `free` is the result of `ranges_in` for a root above it."""
    return frozenset([r for r in free[reduce.src[0]] if r.arg[0] in reduce.arg[1]])


def slots_between(parts: Sequence[UOp]) -> set[int]:
    """Return the slots of the buffers that some part of a chain stores and some part loads."""
    loads = {n.src[0].arg for part in parts for n in ordered(part) if n.op is Ops.LOAD}
    return loads & {store.src[0].arg for part in parts for store in part.src}


def slots_met(parts: Sequence[UOp]) -> set[int]:
    """Return the slots of the buffers that some part of a kernel stores and another part uses."""
    found: set[int] = set()
    for k, part in enumerate(parts):
        others = [n for other in (*parts[:k], *parts[k + 1 :]) for n in ordered(other)]
        stored = {store.src[0].arg for store in part.src}
        found |= stored.intersection([n.arg for n in others if n.op is Ops.BUFFER])
    return found


def by_number(ranges: Iterable[UOp]) -> list[UOp]:
    """Return RANGEs in order of number: the same in every process."""
    return sorted(ranges, key=lambda r: int(r.arg[0]))


def rebuilt(
    nodes: Iterable[UOp], change: Callable[[UOp, tuple[UOp, ...]], UOp | None]
) -> dict[UOp, UOp]:
    """Return for each node the one in a changed graph; `nodes` are in order, sources first.

    `change` makes it from the node and its new sources. Where that is None the operation stays as it is.
    """
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple([done[s] for s in node.src])
        made = change(node, src)
        if made is None:
            made = node if src == node.src else uop(node.op, node.dtype, src, node.arg)
        done[node] = made
    return done
