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
    from collections.abc import Callable

    from compiler.ir.uop import UOp

Shape = tuple[int, ...]
Bounds = tuple[int, int]


def _shape_of_first(src: tuple[UOp, ...], _arg: Any) -> Shape:
    return src[0].shape


def _shape_pad(src: tuple[UOp, ...], arg: Any) -> Shape:
    return tuple([n + lo + hi for n, (lo, hi) in zip(src[0].shape, arg, strict=True)])


def _shape_shrink(_src: tuple[UOp, ...], arg: Any) -> Shape:
    return tuple([end - begin if end.__class__ is int else (end - begin).arg for begin, end in arg])


def _shape_window(src: tuple[UOp, ...], arg: Any) -> Shape:
    shape = list(src[0].shape)
    for axis, size, stride, dilation in zip(*arg, strict=True):
        shape[axis] = (shape[axis] - dilation * (size - 1) - 1) // stride + 1
    return (*shape, *arg[1])


def _shape_reduce(src: tuple[UOp, ...], arg: Any) -> Shape:
    shape = src[0].shape
    if not shape:
        return ()  # a kernel's REDUCE, or the reduction of a scalar over no axis
    return tuple([n for i, n in enumerate(shape) if i not in arg[1]])


def _shape_gather(src: tuple[UOp, ...], axis: Any) -> Shape:
    x, indices = src
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _shape_param(_src: tuple[UOp, ...], arg: Any) -> Shape:
    shape: Shape = arg[1]
    return shape


def _shape_iota(_src: tuple[UOp, ...], arg: Any) -> Shape:
    shape: Shape = arg[0]
    return shape


def _shape_arg(_src: tuple[UOp, ...], arg: Any) -> Shape:
    shape: Shape = arg
    return shape


def _shape_permute(src: tuple[UOp, ...], arg: Any) -> Shape:
    shape = src[0].shape
    return tuple([shape[i] for i in arg])


SHAPE: Final[dict[str, Callable[[tuple[UOp, ...], Any], Shape]]] = {
    **dict.fromkeys(ELEMENTWISE, _shape_of_first),
    Ops.FLIP: _shape_of_first,
    Ops.CONTIGUOUS: _shape_of_first,
    Ops.AFTER: _shape_of_first,
    Ops.ASSIGN: _shape_of_first,
    Ops.PARAM: _shape_param,
    Ops.IOTA: _shape_iota,
    Ops.RESHAPE: _shape_arg,
    Ops.EXPAND: _shape_arg,
    Ops.PERMUTE: _shape_permute,
    Ops.PAD: _shape_pad,
    Ops.SHRINK: _shape_shrink,
    Ops.WINDOW: _shape_window,
    Ops.REDUCE: _shape_reduce,
    Ops.GATHER: _shape_gather,
}
"""Operation -> rule of the shape; operations without a row have the shape ()."""


def _bounds_const(_dtype: DType, _src: tuple[UOp, ...], arg: Any) -> Bounds:
    return (0, 0) if arg.__class__ is float else (int(arg), int(arg))


def _bounds_range(_dtype: DType, _src: tuple[UOp, ...], arg: Any) -> Bounds:
    return 0, arg[1] - 1


def _bounds_var(_dtype: DType, _src: tuple[UOp, ...], arg: Any) -> Bounds:
    return arg[1], arg[2]


def _bounds_indexof(_dtype: DType, _src: tuple[UOp, ...], arg: Any) -> Bounds:
    return arg[0], arg[1]


def _bounds_sum(_dtype: DType, src: tuple[UOp, ...], arg: Any) -> Bounds:
    coefficients, low = arg
    high = low
    for atom, c in zip(src, coefficients, strict=True):
        if c > 0:
            low += atom.vmin * c
            high += atom.vmax * c
        else:
            low += atom.vmax * c
            high += atom.vmin * c
    return low, high


def _bounds_idiv(_dtype: DType, src: tuple[UOp, ...], arg: Any) -> Bounds:
    return src[0].vmin // arg, src[0].vmax // arg


def _bounds_imod(_dtype: DType, _src: tuple[UOp, ...], arg: Any) -> Bounds:
    return 0, arg - 1


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


def _bounds_iota(_dtype: DType, _src: tuple[UOp, ...], arg: Any) -> Bounds:
    shape, axis = arg
    return 0, max(0, shape[axis] - 1)


def _order_range(_src: tuple[UOp, ...], arg: Any) -> int:
    number: int = arg[0]
    return number


def _order_var(_src: tuple[UOp, ...], arg: Any) -> int:
    return (1 << 32) + zlib.crc32(arg[0].encode())


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
    Ops.RANGE: _order_range,
    Ops.VAR: _order_var,
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
    Ops.CONST: _bounds_const,
    Ops.RANGE: _bounds_range,
    Ops.VAR: _bounds_var,
    Ops.INDEXOF: _bounds_indexof,
    Ops.SUM: _bounds_sum,
    Ops.IDIV: _bounds_idiv,
    Ops.IMOD: _bounds_imod,
    Ops.IVALUE: _bounds_of_first,
    Ops.CAST: _bounds_of_first,
    Ops.RESHAPE: _bounds_of_first,
    Ops.PERMUTE: _bounds_of_first,
    Ops.EXPAND: _bounds_of_first,
    Ops.SHRINK: _bounds_of_first,
    Ops.FLIP: _bounds_of_first,
    Ops.CONTIGUOUS: _bounds_of_first,
    Ops.AFTER: _bounds_of_first,
    Ops.MOD: _bounds_mod,
    Ops.IOTA: _bounds_iota,
}
"""Operation -> rule of the inclusive bounds; other operations have the bounds of `LIMITS`. Floats have the
bounds (0, 0), without a meaning."""
