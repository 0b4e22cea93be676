"""The second computation of a checkpointed function, from which the rules of its gradient read values.

Where a gradient reaches a `SEGMENT`, the expression of its result is built once more, over the arguments.
Each argument is wrapped in `Ops.AFTER` of the gradient. The second expression therefore differs from the
first, and its kernels run after the gradient is computed. The memory of the first computation is free in
between.

Not here: the nodes INPUT and SEGMENT (`checkpoint`), the order of kernels (`compiler.schedule.fusion`), the
memory of temporaries (`compiler.schedule.memory`). Next: `engine`, which calls `Recomputed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir.ops import Ops
from frontend.evaluation.expr import Leaves, TensorExpr, constant_of, inside, join

if TYPE_CHECKING:
    Node = tuple[TensorExpr, Leaves]


class Recomputed:
    """The expressions from which rules read values: nodes inside a segment map to its second computation."""

    def __init__(self) -> None:
        self._of: dict[Node, Node] = {}

    def of(self, node: Node) -> Node:
        """Return the node that has the values of `node` in the backward graph."""
        return self._of.get(node, node)

    def enter(self, segment: Node, g: Node) -> None:
        """Compute the nodes of a segment again, after g, the gradient of its result.

        The inputs of a segment inside another one are those of the outer segment's second computation.
        """
        inputs = {inside(segment, i) for i in range(1, len(segment[0].src))}
        new: dict[Node, Node] = {}
        stack = [inside(segment)]
        while stack:
            node = stack[-1]
            if node in new:
                stack.pop()
                continue
            if node in inputs:
                new[node] = _after(self.of(inside(node)), g)
                stack.pop()
                continue
            sources = [inside(node, i) for i in range(len(node[0].src))]
            waiting = [s for s in sources if s not in new]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            again = [new[s] for s in sources]
            same = all(a == self.of(s) for a, s in zip(again, sources, strict=True))
            new[node] = self.of(node) if same else join(node[0].op, node[0].arg, *again)
        self._of.update(new)


def _after(x: Node, g: Node) -> Node:
    """Return x wrapped so that kernels which read it run after g is computed; a constant needs no order."""
    return x if constant_of(x[0]) is not None else join(Ops.AFTER, None, x, g)
