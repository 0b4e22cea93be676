"""Views without copies: the map from the elements of a view to the elements of its base buffer.

A `ShapeTracker` records a chain of movement operations over a contiguous base, as nodes of the tensor graph
(`compiler.ir.graph`): it validates as tensors do, raises the same errors, and computes indices as the
scheduler does. A `View` is the special case of one offset and one stride per axis.

Both are public, `compiler.ShapeTracker` and `compiler.View`, for programs that plan views of their own
buffers:

    view = ShapeTracker.from_shape((3, 4)).permute((1, 0)).view   # View(shape=(4, 3), strides=(1, 4))

No other module of this project uses them.

Not here: views of tensors, whose writes reach their base (`frontend.evaluation.views`); indices inside
kernels (`movement`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir import index as symbolic
from compiler.ir.movement import Index, push
from compiler.ir.ops import MOVEMENT
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import Shape, UOp

Strides = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One offset and one stride per axis, in elements of the base.

    `mask` is None, or a (begin, end) per axis: elements outside read as 0. A stride may be negative; it is 0
    on axes that repeat one element.
    """

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0
    mask: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def from_shape(cls, shape: Sequence[int]) -> View:
        """Return the view of a contiguous buffer with a shape."""
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
        """Return (base element, mask) of an index, as expressions; by default of ranges idx0, idx1, ...

        `index` has one expression per axis. Without a mask the second result is the constant true.
        """
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
    """A chain of movement operations over a contiguous base buffer.

    Immutable: each movement method returns a new one and copies nothing. Axes
    count from 0; negative ones are refused. A method raises `UsageError` when its argument does not fit the
    shape.
    """

    node: UOp
    """The outermost movement node; the innermost source is the base."""

    @classmethod
    def from_shape(cls, shape: Sequence[int]) -> ShapeTracker:
        """Return the view of a contiguous buffer with a shape."""
        return cls(graph.param(0, shape, dtypes.uint8))

    @property
    def shape(self) -> Shape:
        """The view's shape."""
        return self.node.shape

    @property
    def base(self) -> UOp:
        """The node of the base buffer."""
        node = self.node
        while node.op in MOVEMENT:
            node = node.src[0]
        return node

    @property
    def size(self) -> int:
        """Number of elements of the view."""
        return prod(self.shape)

    def reshape(self, shape: Sequence[int]) -> ShapeTracker:
        """Give the same elements, in row-major order, another shape of the same size."""
        return ShapeTracker(graph.reshape(self.node, shape))

    def permute(self, order: Sequence[int]) -> ShapeTracker:
        """Reorder the axes: axis i of the result is axis order[i]; `order` names every axis once."""
        return ShapeTracker(graph.permute(self.node, order))

    def expand(self, shape: Sequence[int]) -> ShapeTracker:
        """Repeat axes of size 1 to the sizes in `shape`; its rank and its other sizes are the view's."""
        return ShapeTracker(graph.expand(self.node, shape))

    def pad(self, padding: Sequence[tuple[int, int]]) -> ShapeTracker:
        """Add zeros: (before, after) for each axis, neither negative."""
        return ShapeTracker(graph.pad(self.node, padding))

    def shrink(self, bounds: Sequence[tuple[int, int]]) -> ShapeTracker:
        """Keep begin <= i < end of each axis; one (begin, end) for each."""
        return ShapeTracker(graph.shrink(self.node, bounds))

    def flip(self, axes: Sequence[int]) -> ShapeTracker:
        """Reverse the order of elements along these axes, each named once."""
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
        """Append an axis of sliding windows for each entry of `axes`.

        Element w of window o is element o * stride + w * dilation of the axis. The four arguments have one
        length; sizes, strides and dilations are at least 1. The axis itself shrinks to the number of windows
        that fit.
        """
        return ShapeTracker(graph.window(self.node, axes, sizes, strides, dilations))

    def expr_idxs(self, index: Sequence[UOp] | None = None) -> tuple[UOp, UOp]:
        """Return (base element, mask) of an index, as expressions; by default of ranges idx0, idx1, ...

        If the mask is false, the element reads as 0 and the base element is undefined.
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
        """Return the stride of each axis in the base, in elements; None if it is not constant."""
        index, _ = self.expr_idxs()
        terms, _ = symbolic.terms_of(index)
        inside = symbolic.atoms_of([s for atom in terms for s in atom.src])
        return tuple([None if r in inside else terms.get(r, 0) for r in _ranges(self.shape)])

    @property
    def view(self) -> View | None:
        """The equivalent `View`; None if an offset, a stride per axis and a box do not suffice."""
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
        """Return the base element as text, preceded by the mask if there is one."""
        return _render(*self.expr_idxs())


def _ranges(shape: Shape) -> Index:
    return tuple([symbolic.loop(i, n) for i, n in enumerate(shape)])


def _box(mask: UOp, ranges: Index, shape: Shape) -> tuple[tuple[int, int], ...] | None:
    """Return (begin, end) per axis of a mask that is true exactly in a box; None for other masks."""
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
