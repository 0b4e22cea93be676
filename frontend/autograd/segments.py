"""The second computation of a checkpointed function, from which the rules of its gradient read values.

Where a gradient reaches a `SEGMENT`, the expression of its result is built once more, over the arguments. The
arguments are wrapped in `Ops.AFTER` of the gradient. So it is another expression, its kernels run after
the gradient is known, and the memory of the first computation is used by others in between.

Not here: the marks (`checkpoint`), the traversal (`engine`), the order of kernels
(`compiler.schedule.fusion`), the memory of temporaries (`compiler.schedule.memory`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir.ops import Ops
from frontend.evaluation.expr import Leaves, TensorExpr, constant_of, inside, join

if TYPE_CHECKING:
    Node = tuple[TensorExpr, Leaves]


class Recomputed:
    """The expressions from which rules read values: inside a segment those of its second computation."""

    def __init__(self) -> None:
        self._of: dict[Node, Node] = {}

    def of(self, node: Node) -> Node:
        """Return the node from which the values of a node are read."""
        return self._of.get(node, node)

    def enter(self, segment: Node, g: Node) -> None:
        """Compute the nodes of a segment again, after g, the gradient of its result.

        A segment inside another one starts from the second computation of that.
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
    """Return x for kernels that run after g is known; a constant is no memory, and needs no order."""
    return x if constant_of(x[0]) is not None else join(Ops.AFTER, None, x, g)
