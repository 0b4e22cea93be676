"""The order in which a warp's lanes visit the blocks of a kernel, and the registers live between blocks.

A warp function visits blocks in this order, so the order determines where diverged lanes reconverge. The blocks of a loop
are contiguous, and every block follows its predecessors, except over edges that close a loop. Then lanes on different
paths wait for each other where the paths join, as on hardware that reconverges at the immediate post-dominator.

Not here: the order of warps and workgroups (`dispatch`). Next: `blocks`, the caller.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(slots=True)
class FlowNode:
    """A basic block as a node of the control-flow graph."""

    successors: tuple[int, ...]
    uses: frozenset[str] = frozenset()
    """Registers that the block reads before it has written them in all lanes."""
    defs: frozenset[str] = frozenset()
    """Registers that the block writes in all lanes."""
    live_in: frozenset[str] = frozenset()
    """Registers whose values at its start are used; `liveness` sets it."""
    live_out: frozenset[str] = frozenset()
    """Registers whose values at its end are used; `liveness` sets it."""
    in_loop: bool = field(default=False)
    """Whether it is in a loop; `order` sets it."""


def order(nodes: Sequence[FlowNode], entry: int = 0) -> list[int]:
    """Return the numbers of the blocks reachable from `entry` in visiting order; set their `in_loop`."""
    seen = {entry}
    todo = [entry]
    while todo:
        for target in nodes[todo.pop()].successors:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    result: list[int] = []
    _arrange(nodes, seen, entry, result, within_loop=False)
    return result


def _arrange(
    nodes: Sequence[FlowNode], members: set[int], head: int, result: list[int], *, within_loop: bool
) -> None:
    """Append `members` in topological order of their strongly connected components; arrange each loop recursively.

    Within a loop, edges to its `head` close the loop and are ignored.
    """
    for component in reversed(_components(nodes, members, head, closed=within_loop)):
        if len(component) == 1:
            (block,) = component
            if block in nodes[block].successors:
                nodes[block].in_loop = True
            result.append(block)
            continue
        for block in component:
            nodes[block].in_loop = True
        heads = {t for b in members - component for t in nodes[b].successors if t in component}
        inner = head if head in component else min(heads)
        _arrange(nodes, component, inner, result, within_loop=True)


def _components(nodes: Sequence[FlowNode], members: set[int], head: int, *, closed: bool) -> list[set[int]]:
    """Return strongly connected components in reverse topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []

    def enter(block: int) -> None:
        index[block] = low[block] = len(index)
        stack.append(block)
        on_stack.add(block)
        # In reverse order: of unordered blocks, the one that is first in the source comes first in the result.
        targets = [
            t for t in reversed(nodes[block].successors) if t in members and not (closed and t == head)
        ]
        work.append((block, iter(targets)))

    work: list[tuple[int, Iterator[int]]] = []
    enter(head)
    while work:
        block, pending = work[-1]
        for target in pending:
            if target not in index:
                enter(target)
                break
            if target in on_stack:
                low[block] = min(low[block], index[target])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[block])
            if low[block] == index[block]:
                at = stack.index(block)
                component = set(stack[at:])
                del stack[at:]
                on_stack -= component
                found.append(component)
    return found


def liveness(nodes: Sequence[FlowNode], reachable: Iterable[int]) -> None:
    """Set `live_in` and `live_out` of each reachable block."""
    blocks = list(reachable)[::-1]
    changed = True
    while changed:
        changed = False
        for block in blocks:
            node = nodes[block]
            out: frozenset[str] = frozenset().union(*(nodes[t].live_in for t in node.successors))
            into = node.uses | (out - node.defs)
            if into != node.live_in or out != node.live_out:
                node.live_in, node.live_out = into, out
                changed = True
