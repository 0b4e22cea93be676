"""Inference of a node's shape, bounds and structural order, by tables keyed by operation.

A rule gets the sources and the argument, a rule of bounds also the dtype. The factory in `compiler.ir.uop`
calls the rules once for each distinct node. The structural order is a hash that is equal in every process; it
sorts the terms of index arithmetic.

Not here: checks of the arguments (`graph`, `verify`). Next: `uop`, the factory.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import DType, dtypes
from compiler.ir.ops import ELEMENTWISE, Ops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compiler.ir.uop import UOp

Shape = tuple[int, ...]
Bounds = tuple[int, int]


def _shape_window(src: tuple[UOp, ...], arg: Any) -> Shape:
    shape = list(src[0].shape)
    for axis, size, stride, dilation in zip(*arg, strict=True):
        shape[axis] = (shape[axis] - dilation * (size - 1) - 1) // stride + 1
    return (*shape, *arg[1])


SHAPE: Final[dict[str, Callable[[tuple[UOp, ...], Any], Shape]]] = {
    **dict.fromkeys(
        ELEMENTWISE | {Ops.FLIP, Ops.CONTIGUOUS, Ops.AFTER, Ops.ASSIGN}, lambda src, _arg: src[0].shape
    ),
    Ops.PARAM: lambda _src, arg: arg[1],
    Ops.IOTA: lambda _src, arg: arg[0],
    Ops.RESHAPE: lambda _src, arg: arg,
    Ops.EXPAND: lambda _src, arg: arg,
    Ops.PERMUTE: lambda src, arg: tuple([src[0].shape[i] for i in arg]),
    Ops.PAD: lambda src, arg: tuple([n + lo + hi for n, (lo, hi) in zip(src[0].shape, arg, strict=True)]),
    Ops.SHRINK: lambda _src, arg: tuple(
        [end - begin if end.__class__ is int else (end - begin).arg for begin, end in arg]
    ),
    Ops.WINDOW: _shape_window,
    # () for a kernel's REDUCE, and for the reduction of a scalar over no axis
    Ops.REDUCE: lambda src, arg: tuple([n for i, n in enumerate(src[0].shape) if i not in arg[1]]),
    Ops.GATHER: lambda src, axis: (*src[0].shape[:axis], *src[1].shape, *src[0].shape[axis + 1 :]),
}
"""Operation -> rule of the shape; operations without a row have the shape ()."""


def bounds_of_sum(_dtype: DType, atoms: Iterable[UOp], arg: tuple[Iterable[int], int]) -> Bounds:
    """Return the bounds of a sum of atoms with the coefficients and the constant of `arg`."""
    coefficients, low = arg
    high = low
    for atom, c in zip(atoms, coefficients, strict=True):
        if c > 0:
            low += atom.vmin * c
            high += atom.vmax * c
        else:
            low += atom.vmax * c
            high += atom.vmin * c
    return low, high


def _bounds_of_first(dtype: DType, src: tuple[UOp, ...], _arg: Any) -> Bounds:
    """Return the bounds of the first source if the dtype has all its values, else the limits of the dtype."""
    if dtype.kind == "float":
        return 0, 0
    low, high = LIMITS[dtype]
    x = src[0]
    if x.dtype.kind != "float" and low <= x.vmin and x.vmax <= high:
        return x.vmin, x.vmax
    return low, high


def _bounds_mod(dtype: DType, src: tuple[UOp, ...], _arg: Any) -> Bounds:
    divisor = src[1]
    if divisor.vmin > 0:
        return 0, divisor.vmax - 1
    return LIMITS[dtype]


def corners(op: str, a: UOp, b: UOp) -> Bounds:
    """Return the least and the greatest ADD, SUB or MUL of two integers, by their bounds; it may overflow."""
    if op is Ops.ADD:
        return a.vmin + b.vmin, a.vmax + b.vmax
    if op is Ops.SUB:
        return a.vmin - b.vmax, a.vmax - b.vmin
    every = (a.vmin * b.vmin, a.vmin * b.vmax, a.vmax * b.vmin, a.vmax * b.vmax)
    return min(every), max(every)


def _bounds_of_corners(op: str) -> Callable[[DType, tuple[UOp, ...], Any], Bounds]:
    def bounds(dtype: DType, src: tuple[UOp, ...], _arg: Any) -> Bounds:
        low, high = corners(op, *src)
        limits = LIMITS[dtype]
        return (low, high) if limits[0] <= low and high <= limits[1] else limits

    return bounds


def _bounds_reduce(dtype: DType, src: tuple[UOp, ...], arg: Any) -> Bounds:
    """Return the bounds of the source for MAX and MIN of a kernel, whose ranges are never empty."""
    x = src[0]
    return (x.vmin, x.vmax) if arg[0] in (Ops.MAX, Ops.MIN) and not x.shape else LIMITS[dtype]


def _order_indexof(src: tuple[UOp, ...], arg: Any) -> int:
    text = (*[_structure(s) for s in src], *[3 * n + 1 for n in arg])
    return (1 << 33) + (hash(text) & 0xFFFFFFFF)


def _structure(x: UOp) -> int:
    """Return a hash of the structure of a value, and store it in `order` of each node under it."""
    stack = [x]
    while stack:
        node = stack[-1]
        waiting = [] if node.order else [s for s in node.src if not s.order and s.op not in ORDER]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if not node.order and node.op not in ORDER:
            own = zlib.crc32(f"{node.op}|{node.dtype.name}|{node.arg!r}".encode())
            node.order = (1 << 35) + (hash((own, *[s.order for s in node.src])) & 0xFFFFFFFFFFFF)
    return x.order


def _order_hash(kind: int) -> Callable[[tuple[UOp, ...], Any], int]:
    def order(src: tuple[UOp, ...], arg: Any) -> int:
        numbers = (*arg[0], arg[1]) if arg.__class__ is tuple else () if arg is None else (arg,)
        text = (kind, *[s.order for s in src], *[3 * n + 1 for n in numbers])  # since hash(-1) == hash(-2)
        return (1 << 34) + (hash(text) & 0xFFFFFFFFFFFF)

    return order


ORDER: Final[dict[str, Callable[[tuple[UOp, ...], Any], int]]] = {
    Ops.RANGE: lambda _src, arg: arg[0],
    Ops.VAR: lambda _src, arg: (1 << 32) + zlib.crc32(arg[0].encode()),
    Ops.INDEXOF: _order_indexof,
    Ops.SUM: _order_hash(1),
    Ops.IDIV: _order_hash(2),
    Ops.IMOD: _order_hash(3),
    Ops.ILT: _order_hash(4),
    Ops.IAND: _order_hash(5),
}
"""Operation -> rule of `UOp.order`; other nodes have 0 until an INDEXOF of them is made."""
LIMITS: Final[dict[DType, Bounds]] = {
    **{t: (t.min, t.max) for t in dtypes.all() if t.kind != "float"},
    dtypes.index: (dtypes.index.min, dtypes.index.max),
    dtypes.void: (0, 0),
}
"""Dtype -> its smallest and largest value, inclusive; floats have no row."""
BOUNDS: Final[dict[str, Callable[[DType, tuple[UOp, ...], Any], Bounds]]] = {
    Ops.CONST: lambda _dtype, _src, arg: (0, 0) if arg.__class__ is float else (int(arg), int(arg)),
    Ops.RANGE: lambda _dtype, _src, arg: (0, arg[1] - 1),
    Ops.VAR: lambda _dtype, _src, arg: (arg[1], arg[2]),
    Ops.INDEXOF: lambda _dtype, _src, arg: (arg[0], arg[1]),
    Ops.SUM: bounds_of_sum,
    Ops.IDIV: lambda _dtype, src, arg: (src[0].vmin // arg, src[0].vmax // arg),
    Ops.IMOD: lambda _dtype, _src, arg: (0, arg - 1),
    **dict.fromkeys(
        (Ops.IVALUE, Ops.CAST, Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP, Ops.CONTIGUOUS,
         Ops.AFTER),
        _bounds_of_first,
    ),
    **{op: _bounds_of_corners(op) for op in (Ops.ADD, Ops.SUB, Ops.MUL)},
    Ops.WHERE: lambda _dtype, src, _arg: (min(src[1].vmin, src[2].vmin), max(src[1].vmax, src[2].vmax)),
    Ops.MAX: lambda _dtype, src, _arg: (max(src[0].vmin, src[1].vmin), max(src[0].vmax, src[1].vmax)),
    Ops.MIN: lambda _dtype, src, _arg: (min(src[0].vmin, src[1].vmin), min(src[0].vmax, src[1].vmax)),
    Ops.REDUCE: _bounds_reduce,
    Ops.MOD: _bounds_mod,
    Ops.IOTA: lambda _dtype, _src, arg: (0, max(0, arg[0][arg[1]] - 1)),
}  # fmt: skip
"""Operation -> rule of the inclusive bounds; other operations have the bounds of `LIMITS`. Floats have the
bounds (0, 0), without a meaning."""
