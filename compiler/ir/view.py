"""Views without copies: which element of a base buffer each element of a view shows.

A `ShapeTracker` is a recorded chain of movement operations over a contiguous base; it keeps the very nodes
that tensor graphs use, so its rules and its messages are theirs, and its arithmetic is the scheduler's. A
`View` is the special case of one offset and one stride per axis.

Both are public, `compiler.ShapeTracker` and `compiler.View`, for programs that plan views of buffers of their
own. No product module imports them: tensors keep expressions, and kernels have indices.

Not here: views of tensors, whose writes reach their base (`frontend.views`); indices inside kernels
(`movement`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir import index as symbolic
from compiler.ir.movement import Index, push
from compiler.ir.ops import MOVEMENT, Ops
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import Shape, UOp

Strides = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One offset and one stride per axis, in elements.

    Outside `mask`, a (begin, end) per axis, elements read as 0.
    """

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0
    mask: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def from_shape(cls, shape: Sequence[int]) -> View:
        """Return the view of a contiguous buffer of that shape."""
        sizes = tuple(shape)
        strides = symbolic.strides_of(sizes)
        return cls(sizes, tuple([0 if n == 1 else s for n, s in zip(sizes, strides, strict=True)]))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether element i of the view is element i of the base."""
        return self.mask is None and self == View.from_shape(self.shape)

    def expr_idxs(self, index: Sequence[UOp] | None = None) -> tuple[UOp, UOp]:
        """Return the base element, and the mask, of an index; by default of ranges idx0, idx1, ..."""
        at = _ranges(self.shape) if index is None else tuple(index)
        masks = []
        for i, (begin, end) in zip(at, self.mask or (), strict=self.mask is not None):
            masks += [symbolic.ge(i, begin), symbolic.lt(i, end)]
        return symbolic.dot(at, self.strides, self.offset), symbolic.both(*masks)

    def render(self) -> str:
        """Return the base element as text."""
        return _render(*self.expr_idxs())


@dataclass(frozen=True, slots=True)
class ShapeTracker:
    """Movement over a contiguous base buffer; every method returns a new one and copies nothing."""

    node: UOp
    """The chain of movement; its innermost source stands for the base."""

    @classmethod
    def from_shape(cls, shape: Sequence[int]) -> ShapeTracker:
        """Return the view of a contiguous buffer of that shape."""
        return cls(graph.param(0, shape, dtypes.uint8))

    @property
    def shape(self) -> Shape:
        """The view's shape."""
        return self.node.shape

    @property
    def base(self) -> UOp:
        """The node that stands for the base buffer."""
        node = self.node
        while node.op in MOVEMENT:
            node = node.src[0]
        return node

    @property
    def size(self) -> int:
        """Number of elements that the view shows."""
        return prod(self.shape)

    # -- movement ----------------------------------------------------------------------------------
    def reshape(self, shape: Sequence[int]) -> ShapeTracker:
        """Show the same elements, in row-major order, in another shape."""
        return ShapeTracker(graph.reshape(self.node, shape))

    def permute(self, order: Sequence[int]) -> ShapeTracker:
        """Reorder the axes."""
        return ShapeTracker(graph.permute(self.node, order))

    def expand(self, shape: Sequence[int]) -> ShapeTracker:
        """Repeat axes of size 1."""
        return ShapeTracker(graph.expand(self.node, shape))

    def pad(self, padding: Sequence[tuple[int, int]]) -> ShapeTracker:
        """Put zeros around."""
        return ShapeTracker(graph.pad(self.node, padding))

    def shrink(self, bounds: Sequence[tuple[int, int]]) -> ShapeTracker:
        """Keep begin <= i < end of each axis."""
        return ShapeTracker(graph.shrink(self.node, bounds))

    def flip(self, axes: Sequence[int]) -> ShapeTracker:
        """Reverse axes."""
        return ShapeTracker(graph.flip(self.node, axes))

    def stride(self, steps: Sequence[int]) -> ShapeTracker:
        """Keep every step-th element of each axis; a negative step reverses the axis first."""
        if len(steps) != len(self.shape) or 0 in steps:
            raise UsageError(
                f"stride {tuple(steps)} of the shape {self.shape}: wanted one step for each axis, none 0"
            )
        found = self.flip([a for a, step in enumerate(steps) if step < 0])
        axes = [a for a, step in enumerate(steps) if abs(step) > 1]
        ones = (1,) * len(axes)
        node = graph.window(found.node, axes, ones, [abs(steps[a]) for a in axes], ones)
        return ShapeTracker(graph.reshape(node, node.shape[: len(steps)]))

    def window(
        self, axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> ShapeTracker:
        """Append one axis of sliding windows per entry."""
        return ShapeTracker(graph.window(self.node, axes, sizes, strides, dilations))

    # -- what it shows -----------------------------------------------------------------------------
    def expr_idxs(self, index: Sequence[UOp] | None = None) -> tuple[UOp, UOp]:
        """Return the base element, and the mask, of an index; by default of ranges idx0, idx1, ...

        Where the mask is false the element reads as 0, and the base element is undefined.
        """
        at: Index = _ranges(self.shape) if index is None else tuple(index)
        if len(at) != len(self.shape):
            raise UsageError(
                f"an index of {len(at)} parts for the shape {self.shape}; wanted {len(self.shape)}"
            )
        node, mask = self.node, symbolic.TRUE
        while node.op in MOVEMENT:
            source = node.src[0]
            if 0 in source.shape:
                return symbolic.ZERO, symbolic.FALSE
            at, shown = push(node.op, node.arg, source.shape, node.shape, at)
            mask = symbolic.both(mask, shown)
            node = source
        return symbolic.dot(at, symbolic.strides_of(node.shape)), mask

    @property
    def contiguous(self) -> bool:
        """Whether the view is the whole base, in order."""
        if self.size != prod(self.base.shape):
            return False
        index, mask = self.expr_idxs()
        return mask is symbolic.TRUE and index is symbolic.dot(
            _ranges(self.shape), symbolic.strides_of(self.shape)
        )

    def real_strides(self) -> Strides:
        """Return the step in the base, in elements, along each axis; None where there is no single one."""
        index, _ = self.expr_idxs()
        terms, _ = symbolic.terms_of(index)
        inside = symbolic.atoms_of([s for atom in terms for s in atom.src])
        return tuple([None if r in inside else terms.get(r, 0) for r in _ranges(self.shape)])

    @property
    def view(self) -> View | None:
        """The same as one View; None if one offset, a stride per axis and a box cannot express it."""
        strides = self.real_strides()
        index, mask = self.expr_idxs()
        terms, offset = symbolic.terms_of(index)
        ranges = _ranges(self.shape)
        if None in strides or any(atom not in ranges for atom in terms):
            return None
        box = _box(mask, ranges, self.shape)
        if box is None:
            return None
        whole = all(pair == (0, n) for pair, n in zip(box, self.shape, strict=True))
        return View(self.shape, tuple([s for s in strides if s is not None]), offset, None if whole else box)

    def render(self) -> str:
        """Return the base element as text, with the mask in front of it when there is one."""
        return _render(*self.expr_idxs())


def base_view(node: UOp) -> tuple[UOp, ShapeTracker] | None:
    """Return base and view when a graph is only movement of a PARAM, which needs no kernel."""
    tracker = ShapeTracker(node)
    return (tracker.base, tracker) if tracker.base.op is Ops.PARAM else None


def _ranges(shape: Shape) -> Index:
    return tuple([symbolic.loop(i, n) for i, n in enumerate(shape)])


def _box(mask: UOp, ranges: Index, shape: Shape) -> tuple[tuple[int, int], ...] | None:
    """Return the box that a mask describes, or None when it is no box."""
    box = [[0, n] for n in shape]
    if mask is symbolic.FALSE:
        return tuple([(0, 0) for _ in shape])
    for part in symbolic.parts_of(mask):
        x, bound = part.src[0], part.arg
        terms, _ = symbolic.terms_of(x)
        if len(terms) != 1:
            return None
        ((atom, c),) = terms.items()
        if atom not in ranges or c not in (1, -1):
            return None
        axis = ranges.index(atom)
        if c == 1:
            box[axis][1] = min(box[axis][1], bound)
        else:
            box[axis][0] = max(box[axis][0], 1 - bound)
    return tuple([(begin, end) for begin, end in box])


def _render(index: UOp, mask: UOp) -> str:
    return index.render() if mask is symbolic.TRUE else f"{mask.render()} ? {index.render()} : 0"
