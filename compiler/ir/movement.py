"""Movement operations as functions on index tuples.

Indices propagate from the output to the buffers. `push` translates the index of an element of the result to
the index of the corresponding element of the source, with a mask that is false for padding. A reshape is
divided into groups of axes with equal products, so unchanged axes keep their index. `WINDOW` is affine and
needs no division.

Not here: index arithmetic (`index`). Next: `compiler.schedule.lower`, which pushes indices to the buffers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from compiler.ir.index import TRUE, ZERO, add, both, const, div, dot, ge, lt, mod, mul, strides_of
from compiler.ir.ops import Ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import Shape, UOp

Index = tuple["UOp", ...]
Pushed = tuple[Index, "UOp"]
Group = tuple[tuple[int, ...], tuple[int, ...]]


def push(op: str, arg: Any, source: Shape, result: Shape, index: Index) -> Pushed:
    """Return the source's index for an index of the result, and a mask that is false for padding.

    `arg` is the argument of the movement `op`, `source` and `result` are the shapes. No axis may have size 0.
    """
    return _PUSH[op](arg, source, result, index)


@lru_cache(maxsize=4096)
def groups(old: Shape, new: Shape) -> tuple[Group, ...]:
    """Divide a reshape into the smallest groups of axes with equal products: (old axes, new axes) of each."""
    found = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_old, first_new = i, j
        p = q = 1
        if i < len(old):
            p, i = old[i], i + 1
        if j < len(new):
            q, j = new[j], j + 1
        while p != q:
            if p < q:
                p, i = p * old[i], i + 1
            else:
                q, j = q * new[j], j + 1
        found.append((tuple(range(first_old, i)), tuple(range(first_new, j))))
    return tuple(found)


def _reshape(_arg: Any, source: Shape, result: Shape, index: Index) -> Pushed:
    """In each group flatten the index of the new axes, and split it into indices of the old axes."""
    out = [ZERO] * len(source)
    for olds, news in groups(source, result):
        if len(olds) == len(news) == 1:
            out[olds[0]] = index[news[0]]
            continue
        flat = dot([index[j] for j in news], strides_of([result[j] for j in news]))
        for axis in reversed(olds):
            n = source[axis]
            if n > 1:
                out[axis] = mod(flat, n)
                flat = div(flat, n)
    return tuple(out), TRUE


def _permute(arg: Any, _source: Shape, _result: Shape, index: Index) -> Pushed:
    out = list(index)
    for i, axis in enumerate(arg):
        out[axis] = index[i]
    return tuple(out), TRUE


def _expand(_arg: Any, source: Shape, _result: Shape, index: Index) -> Pushed:
    return tuple([ZERO if n == 1 else i for i, n in zip(index, source, strict=True)]), TRUE


def _pad(arg: Any, source: Shape, _result: Shape, index: Index) -> Pushed:
    """Shift the index, and mask elements outside the source."""
    out = []
    masks = []
    for i, (before, after), n in zip(index, arg, source, strict=True):
        x = add(i, const(-before)) if before else i
        if before:
            masks.append(ge(x, 0))
        if after:
            masks.append(lt(x, n))
        out.append(x)
    return tuple(out), both(*masks)


def _shrink(arg: Any, _source: Shape, _result: Shape, index: Index) -> Pushed:
    out = []
    for i, (begin, _) in zip(index, arg, strict=True):
        if begin.__class__ is int:
            out.append(add(i, const(begin)) if begin else i)
        else:
            out.append(add(i, begin))
    return tuple(out), TRUE


def _flip(arg: Any, source: Shape, _result: Shape, index: Index) -> Pushed:
    out = list(index)
    for axis in arg:
        out[axis] = add(mul(index[axis], -1), const(source[axis] - 1))
    return tuple(out), TRUE


def _window(arg: Any, source: Shape, _result: Shape, index: Index) -> Pushed:
    axes, _, strides, dilations = arg
    out = list(index[: len(source)])
    for w, axis, stride, dilation in zip(index[len(source) :], axes, strides, dilations, strict=True):
        out[axis] = dot((out[axis], w), (stride, dilation))
    return tuple(out), TRUE


_PUSH: Final[dict[str, Callable[[Any, Shape, Shape, Index], Pushed]]] = {
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.WINDOW: _window,
}
