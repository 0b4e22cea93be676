"""The evaluation in NumPy of one node of a tensor graph: of all its elements, or of a sample.

Evaluation stops at `known` nodes, whose values are given: parameters, and nodes that kernels have stored. A
sum of products of floats is computed without the whole array of products. Where all elements would take more
than `interpreter.MOST_WORK`, a seeded sample is evaluated, and every node only at the elements that the
sample needs.

Not here: single operations and their bounds (`interpreter`). Next: `launches`, which nodes kernels stored.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from frontend.check.interpreter import (
    MOST_WORK, Array, Bounded, TooLargeError, bound_of, elementwise, kept_as, reduced, summed, wide,
)  # fmt: skip

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

SAMPLES: Final = (4096, 256, 32, 4)
"""Sizes of a sample; the first one is used whose evaluation takes no more than `MOST_WORK`."""
_DIRECT: Final = 1 << 14
"""The least number of products whose sum is computed without their array."""
_FASTER: Final = 64
"""Number of products in a sum that count as one element of work."""


def order_of(root: UOp, known: Mapping[UOp, Bounded]) -> list[UOp]:
    """Return the nodes that the values of a root need, sources first, ending at known nodes."""
    done: dict[UOp, None] = {}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready or (node in known and node is not root):
            done[node] = None
        else:
            stack.append((node, True))
            stack += [(s, False) for s in needs(node)]
    return list(done)


def needs(node: UOp) -> tuple[UOp, ...]:
    """Return the sources whose values determine those of a node."""
    if node.op is Ops.ASSIGN:
        return node.src[1:]
    return node.src[:1] if node.op is Ops.AFTER else () if node.op is Ops.IVALUE else node.src


def evaluate(root: UOp, known: Mapping[UOp, Bounded], seed: int) -> tuple[Bounded, Array | None]:
    """Return values of a node and the flat positions of these elements; None: all elements, in its shape.

    Raises `TooLargeError` where the smallest sample takes more than `MOST_WORK`, and for operations that are
    not interpreted.
    """
    order = order_of(root, known)
    products = _sums_of_products(order, known, root)
    inside = set(products.values())
    work = sum(
        [
            math.prod(n.shape) // (_FASTER if n in inside else 1)
            for n in order
            if _computes(n) and (n not in known or n is root)
        ]
    )
    if work <= MOST_WORK:
        return _whole(root, order, known, products), None
    rng = np.random.default_rng(seed)
    size = math.prod(root.shape)
    for count in SAMPLES:
        at = np.unique(rng.integers(0, size, min(count, size)))
        at = np.unique(np.concatenate([at, [0, size - 1]]))
        try:
            return Sample(known, root).values(root, at), at
        except TooLargeError:
            if count == SAMPLES[-1]:
                raise
    raise AssertionError


def _computes(node: UOp) -> bool:
    """Return whether a node takes work and memory for each element; RESHAPE may copy a repeated axis."""
    return node.op in ELEMENTWISE or node.op in {Ops.GATHER, Ops.PAD, Ops.WINDOW, Ops.RESHAPE, Ops.IOTA}


def _sums_of_products(order: Sequence[UOp], known: Mapping[UOp, Bounded], root: UOp) -> dict[UOp, UOp]:
    """Return the product of each sum of products of floats that nothing else uses."""
    users: dict[UOp, int] = {}
    for node in order:
        if node not in known or node is root:
            for s in needs(node):
                users[s] = users.get(s, 0) + 1
    return {
        n: n.src[0]
        for n in order
        if n.op is Ops.REDUCE
        and (n not in known or n is root)
        and n.arg[0] is Ops.ADD
        and n.dtype.is_float
        and n.src[0].op is Ops.MUL
        and n.src[0] not in known
        and users[n.src[0]] == 1
        and math.prod(n.src[0].shape) >= _DIRECT
    }


def _whole(
    root: UOp, order: Sequence[UOp], known: Mapping[UOp, Bounded], products: Mapping[UOp, UOp]
) -> Bounded:
    values: dict[UOp, Bounded] = {}
    inside = set(products.values())
    with np.errstate(all="ignore"):
        for node in order:
            if node in known and node is not root:
                values[node] = known[node]
            elif node in products:
                a, b = products[node].src
                values[node] = _of_products(node, values[a], values[b])
            elif node not in inside:
                values[node] = computed(node, [values[s] for s in needs(node)])
    return values[root]


def computed(node: UOp, src: Sequence[Bounded]) -> Bounded:
    """Return all elements of a node, given those of its sources.

    Raises `TooLargeError` for other operations.
    """
    op, arg = node.op, node.arg
    if op in ELEMENTWISE:
        found = elementwise(node, src)
        return Bounded(np.asarray(found.v), found.e)
    if op is Ops.CONST:
        return Bounded(np.array(arg, kept_as(node.dtype)))
    if op is Ops.IOTA:
        shape, axis = arg
        line = np.arange(shape[axis], dtype=kept_as(node.dtype))
        return Bounded(
            np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
        )
    if op is Ops.REDUCE:
        return reduced(arg[0], src[0], arg[1], node.dtype)
    if op is Ops.GATHER:
        return _gathered(src[0], src[1], arg)
    if op in MOVEMENT:
        x = src[0]
        return Bounded(
            _moved(node, x.v), None if x.e is None else _moved(node, np.broadcast_to(x.e, x.v.shape))
        )
    if op in {Ops.CONTIGUOUS, Ops.AFTER, Ops.ASSIGN}:
        return src[0]
    raise TooLargeError(f"{op} is not interpreted")


def _moved(node: UOp, x: Array) -> Array:
    op, arg = node.op, node.arg
    if op is Ops.RESHAPE:
        return x.reshape(arg)
    if op is Ops.PERMUTE:
        return x.transpose(arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(x, arg)
    if op is Ops.PAD:
        return np.pad(x, arg)
    if op is Ops.FLIP:
        return np.flip(x, arg)
    if op is Ops.SHRINK:
        if not all(isinstance(b, int) for pair in arg for b in pair):
            raise TooLargeError("a slice at a Variable of the compiler is not interpreted")
        return x[tuple([slice(begin, end) for begin, end in arg])]
    for axis, size, stride, dilation in zip(*arg, strict=True):
        x = np.lib.stride_tricks.sliding_window_view(x, dilation * (size - 1) + 1, axis=axis)
        x = x[(slice(None),) * axis + (slice(None, None, stride),)][..., ::dilation]
    return x


def _gathered(x: Bounded, at: Bounded, axis: int) -> Bounded:
    n = x.v.shape[axis]
    shape = (*x.v.shape[:axis], *at.v.shape, *x.v.shape[axis + 1 :])
    if n == 0:
        return Bounded(np.zeros(shape, x.v.dtype))
    good = (at.v >= 0) & (at.v < n)
    # Not `np.take`, which copies the whole of a broadcast array.
    index: tuple[Any, ...] = (*[slice(None)] * axis, np.where(good, at.v, 0))
    beside = [1] * axis + list(at.v.shape) + [1] * (x.v.ndim - axis - 1)
    v = np.where(good.reshape(beside), x.v[index], x.v.dtype.type(0))
    if x.e is None and at.e is None:
        return Bounded(v)
    e = np.where(good.reshape(beside), np.broadcast_to(bound_of(x), x.v.shape)[index], 0.0)
    return Bounded(
        v, e if at.e is None else np.where(np.broadcast_to(at.e, at.v.shape).reshape(beside) > 0, np.inf, e)
    )


def _of_products(node: UOp, a: Bounded, b: Bounded) -> Bounded:
    """Return a sum of products, one matrix product of the factors without their repeated axes."""
    axes = node.arg[1]
    kept = [i for i in range(a.v.ndim) if i not in axes]
    kind = wide(node.dtype)
    count = math.prod([a.v.shape[i] for i in axes])

    def total(x: Array, y: Array) -> Array:
        (x, at), (y, there) = _narrow(x), _narrow(y)
        times = math.prod([a.v.shape[i] for i in axes if i not in at and i not in there])
        out = [i for i in kept if i in at or i in there]
        found = np.einsum(x, at, y, there, out, optimize=kind is np.float64) * times
        shape = [a.v.shape[i] if i in out else 1 for i in kept]
        return np.broadcast_to(found.reshape(shape), node.shape)

    def as_wide(x: Array) -> Array:
        narrow, at = _narrow(x)
        shape = [x.shape[i] if i in at else 1 for i in range(x.ndim)]
        return np.broadcast_to(narrow.astype(kind).reshape(shape), x.shape)

    v, w = as_wide(a.v), as_wide(b.v)
    x, y = as_wide(_finite(a.v)), as_wide(_finite(b.v))
    sizes = total(x, y)
    e: Array | float = 0.0
    for one, other in ((a, y), (b, x)):
        if one.e is not None:
            spread = as_wide(np.broadcast_to(one.e, one.v.shape))
            e = e + total(spread, other) if one is a else e + total(other, spread)
    if a.e is not None and b.e is not None:
        e = e + total(as_wide(np.broadcast_to(a.e, a.v.shape)), as_wide(np.broadcast_to(b.e, b.v.shape)))
    return summed(total(v, w), sizes + e, np.asarray(e, np.float64), count, node.dtype)


def _finite(x: Array) -> Array:
    """Return magnitudes, with 0 for infinities and NaN; repeated axes (stride 0) stay repeated."""
    narrow, at = _narrow(x)
    size = np.where(np.isfinite(narrow), np.abs(narrow), narrow.dtype.type(0))
    return np.broadcast_to(size.reshape([x.shape[i] if i in at else 1 for i in range(x.ndim)]), x.shape)


def _narrow(x: Array) -> tuple[Array, list[int]]:
    """Return an array without its repeated axes (stride 0) and axes of size 1, and the axes that it keeps."""
    at = [i for i in range(x.ndim) if x.strides[i] != 0 and x.shape[i] > 1]
    return x[tuple([slice(None) if i in at else 0 for i in range(x.ndim)])], at


class Sample:
    """The evaluation of nodes at some of their elements."""

    def __init__(self, known: Mapping[UOp, Bounded], root: UOp) -> None:
        self.known = known
        self.root = root
        self.work = 0
        self.made: dict[tuple[UOp, bytes], Bounded] = {}

    def values(self, node: UOp, at: Array) -> Bounded:
        """Return the elements of a node at flat positions. Raises as `evaluate`."""
        with np.errstate(all="ignore"):
            return self._at(node, at)

    def _at(self, node: UOp, at: Array) -> Bounded:
        """Return elements of a node, computed once however many operations need them."""
        key = node, at.tobytes()
        if key not in self.made:
            self.made[key] = self._computed(node, at)
        return self.made[key]

    def _computed(self, node: UOp, at: Array) -> Bounded:
        if node in self.known and node is not self.root:
            x = self.known[node]
            return Bounded(
                x.v.reshape(-1)[at], None if x.e is None else np.broadcast_to(x.e, x.v.shape).reshape(-1)[at]
            )
        self.work += at.size
        if self.work > MOST_WORK:
            raise TooLargeError(f"{node!r} takes more than {MOST_WORK} elements")
        op, arg = node.op, node.arg
        if op is Ops.CONST:
            return Bounded(np.full(at.shape, arg, kept_as(node.dtype)))
        if op is Ops.IOTA:
            return Bounded(np.unravel_index(at, arg[0])[arg[1]].astype(kept_as(node.dtype)))
        if op is Ops.REDUCE:
            return self._reduced(node, at)
        if op in ELEMENTWISE:
            if math.prod(node.shape) < at.size:  # each element once
                once, back = np.unique(at, return_inverse=True)
                x = self._at(node, once)
                return Bounded(x.v[back], None if x.e is None else np.broadcast_to(x.e, x.v.shape)[back])
            return elementwise(node, [self._at(s, at) for s in node.src])
        if op in {Ops.CONTIGUOUS, Ops.AFTER, Ops.ASSIGN}:
            return self._at(needs(node)[0], at)
        index = list(np.unravel_index(at, node.shape)) if node.shape else []
        if op is Ops.GATHER:
            return self._gathered(node, index, at)
        return self._moved(node, index, at)

    def _reduced(self, node: UOp, at: Array) -> Bounded:
        source, axes = node.src[0], node.arg[1]
        sizes = [source.shape[a] for a in axes]
        outer = iter(np.unravel_index(at, node.shape)) if node.shape else iter(())
        if self.work + at.size * math.prod(sizes) > MOST_WORK:
            raise TooLargeError(f"{node!r} takes more than {MOST_WORK} elements")
        inner = iter(np.unravel_index(np.arange(math.prod(sizes)), sizes))
        index = [
            next(inner)[None, :] if i in axes else next(outer)[:, None] for i in range(len(source.shape))
        ]
        flat = np.broadcast_to(
            np.ravel_multi_index(np.broadcast_arrays(*index), source.shape), (at.size, math.prod(sizes))
        )
        x = self._at(source, flat.reshape(-1))
        e = None if x.e is None else np.broadcast_to(x.e, x.v.shape).reshape(flat.shape)
        return reduced(node.arg[0], Bounded(x.v.reshape(flat.shape), e), (1,), node.dtype)

    def _gathered(self, node: UOp, index: list[Array], at: Array) -> Bounded:
        x, indices = node.src
        axis, rank = node.arg, len(indices.shape)
        where = (
            np.ravel_multi_index(index[axis : axis + rank], indices.shape)
            if rank
            else np.zeros(at.shape, int)
        )
        chosen = self._at(indices, where)
        good = (chosen.v >= 0) & (chosen.v < x.shape[axis])
        place = [*index[:axis], np.where(good, chosen.v, 0).astype(np.int64), *index[axis + rank :]]
        found = self._at(x, np.ravel_multi_index(place, x.shape))
        v = np.where(good, found.v, found.v.dtype.type(0))
        if found.e is None and chosen.e is None:
            return Bounded(v)
        return Bounded(
            v, np.where(np.asarray(bound_of(chosen)) > 0, np.inf, np.where(good, bound_of(found), 0.0))
        )

    def _moved(self, node: UOp, index: list[Array], at: Array) -> Bounded:
        op, arg, source = node.op, node.arg, node.src[0]
        if op is Ops.RESHAPE:
            return self._at(source, at)
        good = np.ones(at.shape, bool)
        if op is Ops.PERMUTE:
            place = [index[arg.index(i)] for i in range(len(arg))]
        elif op is Ops.EXPAND:
            place = [i if n > 1 else np.zeros_like(i) for i, n in zip(index, source.shape, strict=True)]
        elif op is Ops.PAD:
            place = [i - low for i, (low, _) in zip(index, arg, strict=True)]
            for i, n in zip(place, source.shape, strict=True):
                good &= (i >= 0) & (i < n)
            place = [np.where(good, i, 0) for i in place]
        elif op is Ops.SHRINK and all(isinstance(b, int) for pair in arg for b in pair):
            place = [i + low for i, (low, _) in zip(index, arg, strict=True)]
        elif op is Ops.FLIP:
            place = [
                n - 1 - i if a in arg else i for a, (i, n) in enumerate(zip(index, source.shape, strict=True))
            ]
        elif op is Ops.WINDOW:
            rank = len(source.shape)
            place = index[:rank]
            for k, (axis, _, stride, dilation) in enumerate(zip(*arg, strict=True)):
                place[axis] = place[axis] * stride + index[rank + k] * dilation
        else:
            raise TooLargeError(f"{op} {arg} is not interpreted")
        x = self._at(source, np.ravel_multi_index(place, source.shape)) if 0 not in source.shape else None
        if x is None:
            return Bounded(np.zeros(at.shape, kept_as(node.dtype)))
        v = np.where(good, x.v, x.v.dtype.type(0))
        return Bounded(v, None if x.e is None else np.where(good, x.e, 0.0))
