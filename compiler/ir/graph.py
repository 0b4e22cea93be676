"""Constructors of tensor graphs: they infer shapes and dtypes, and raise `UsageError` for invalid arguments.

They build the requested node. Broadcasting, promotion and default arguments belong to the frontend,
arithmetic simplification to `compiler.ir.fold`. There are two shortcuts: a movement that changes nothing
returns its source, and two reshapes, permutes or expands in a row become one.

Not here: the meaning of the operations (`ops`). Next: `compiler.schedule.scheduler`, which turns these graphs
into kernels.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import DType, computing, dtypes
from compiler.ir import ops
from compiler.ir.ops import Ops
from compiler.ir.uop import Shape, UOp, const, uop
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Row = tuple[str | Callable[[list[UOp], Any], UOp], Sequence[int], Any]

__all__ = [
    "assign", "binary", "bitcast", "build", "cast", "const", "contiguous", "expand", "flip", "full", "gather",
    "iota", "number_of", "pad", "param", "permute", "reduce", "reshape", "shrink", "unary", "where", "window",
]  # fmt: skip

Bound = int | UOp
"""A number, or index arithmetic on Variables."""


def param(slot: int, shape: Sequence[int], dtype: DType) -> UOp:
    """Return the buffer of parameter `slot`, row-major and contiguous."""
    if slot < 0:
        raise UsageError(f"PARAM slot must not be negative, not {slot}")
    return uop(Ops.PARAM, _storable(dtype, "PARAM"), (), (slot, _sizes(shape, "PARAM")))


def iota(shape: Sequence[int], axis: int, dtype: DType = dtypes.int32) -> UOp:
    """Return a tensor with the coordinate along one axis, int32 or int64."""
    sizes = _sizes(shape, "IOTA")
    if dtype not in (dtypes.int32, dtypes.int64):
        raise UsageError(f"IOTA is int32 or int64, not {dtype.name}; CAST it")
    axis = _axis(axis, len(sizes), "IOTA", sizes)
    if sizes[axis] - 1 > dtype.max:
        raise UsageError(f"IOTA of {sizes[axis]} elements does not fit {dtype.name}; use int64")
    return uop(Ops.IOTA, dtype, (), (sizes, axis))


def number_of(index: UOp, dtype: DType = dtypes.int64) -> UOp:
    """Return a Variable, or arithmetic on Variables, as a scalar tensor (IVALUE)."""
    if index.dtype is not dtypes.index:
        raise UsageError(f"wanted index arithmetic on Variables, saw {index!r}")
    if dtype not in (dtypes.int32, dtypes.int64):
        raise UsageError(f"an index as a value is int32 or int64, not {dtype.name}; CAST it")
    return uop(Ops.IVALUE, dtype, (index,))


def reshape(x: UOp, shape: Sequence[int]) -> UOp:
    """Return x with another shape of the same number of elements, in row-major order."""
    sizes = _sizes(shape, "RESHAPE")
    if sizes == x.shape:
        return x
    if prod(sizes) != prod(x.shape):
        raise UsageError(f"RESHAPE of {_show(x)} to {sizes}: {prod(x.shape)} elements are not {prod(sizes)}")
    if x.op is Ops.RESHAPE:
        return reshape(x.src[0], sizes)
    return uop(Ops.RESHAPE, x.dtype, (x,), sizes)


def permute(x: UOp, order: Sequence[int]) -> UOp:
    """Return x with its axes reordered: axis i of the result is axis order[i] of x."""
    rank = len(x.shape)
    axes = tuple(order)
    if sorted(axes) != list(range(rank)):
        wanted = f"every axis 0..{rank - 1} exactly once" if rank else "no axis"
        raise UsageError(f"PERMUTE of {_show(x)} by {axes}: the shape {x.shape} needs {wanted}")
    if axes == tuple(range(rank)):
        return x
    if x.op is Ops.PERMUTE:
        return permute(x.src[0], [x.arg[a] for a in axes])
    return uop(Ops.PERMUTE, x.dtype, (x,), axes)


def expand(x: UOp, shape: Sequence[int]) -> UOp:
    """Return x with axes of size 1 repeated to `shape`, which has the same rank."""
    sizes = _sizes(shape, "EXPAND")
    if sizes == x.shape:
        return x
    if len(sizes) != len(x.shape) or any(n not in (1, m) for n, m in zip(x.shape, sizes, strict=True)):
        raise UsageError(
            f"EXPAND of {_show(x)} to {sizes}: wanted the same rank, and other sizes only where the axis"
            f" has size 1"
            f"{'; RESHAPE it first' if len(sizes) != len(x.shape) else ''}"
        )
    if x.op is Ops.EXPAND:
        return expand(x.src[0], sizes)
    return uop(Ops.EXPAND, x.dtype, (x,), sizes)


def pad(x: UOp, padding: Sequence[tuple[int, int]]) -> UOp:
    """Return x with zeros before and after each axis."""
    pairs = _pairs(padding, x, "PAD")
    if any(lo < 0 or hi < 0 for lo, hi in pairs):
        raise UsageError(f"PAD of {_show(x)} by {pairs}: padding must not be negative; use SHRINK to cut")
    if all(pair == (0, 0) for pair in pairs):
        return x
    return uop(Ops.PAD, x.dtype, (x,), pairs)


def shrink(x: UOp, bounds: Sequence[tuple[Bound, Bound]]) -> UOp:
    """Return the part begin <= i < end of each axis.

    `begin` and `end` may contain Variables if their difference is a number: such a slice has a fixed size at
    a variable position. Raises `UsageError` for bounds outside of the axis for some value of a Variable.
    """
    if len(bounds) != len(x.shape):
        raise UsageError(f"SHRINK of {_show(x)} by {tuple(bounds)}: wanted one (begin, end) for each axis")
    pairs = tuple([_slice(x, axis, begin, end) for axis, (begin, end) in enumerate(bounds)])
    if all(begin == 0 and end == n for (begin, end), n in zip(pairs, x.shape, strict=True)):
        return x
    return uop(Ops.SHRINK, x.dtype, (x,), pairs)


def _slice(x: UOp, axis: int, begin: Bound, end: Bound) -> tuple[Bound, Bound]:
    """Return the checked bounds of one axis of a SHRINK: numbers unless the slice moves with a Variable."""
    if isinstance(begin, UOp) or isinstance(end, UOp):
        from compiler.ir import index as symbolic  # noqa: PLC0415 - needed for moving slices only

        low, high = symbolic.as_index(begin, "SHRINK"), symbolic.as_index(end, "SHRINK")
        size = high - low
        if size.op is not Ops.CONST:
            raise UsageError(
                f"SHRINK of {_show(x)}, axis {axis}: {low.render()} to {high.render()} has the size"
                f" {size.render()}; wanted a number: a slice may move with a Variable, but not change size"
            )
        if any(a.op is not Ops.VAR for a in symbolic.atoms_of((low, high))):
            raise UsageError(
                f"SHRINK of {_show(x)}, axis {axis}: bounds must be made of Variables, saw {low.render()}"
            )
        least, most = low.vmin, high.vmax
        if low.op is not Ops.CONST:
            begin, end = low, high
        else:
            begin, end = low.arg, high.arg
    else:
        least, most = begin, end
    if not 0 <= least <= most <= x.shape[axis]:
        raise UsageError(
            f"SHRINK of {_show(x)}, axis {axis}: {least}..{most} is not inside 0..{x.shape[axis]}"
        )
    return begin, end


def flip(x: UOp, axes: Sequence[int]) -> UOp:
    """Return x with the axes reversed."""
    found = tuple(sorted({_axis(a, len(x.shape), "FLIP", x.shape) for a in axes}))
    if len(found) != len(axes):
        raise UsageError(f"FLIP of {_show(x)} along {tuple(axes)}: an axis occurs twice")
    found = tuple([a for a in found if x.shape[a] > 1])
    return uop(Ops.FLIP, x.dtype, (x,), found) if found else x


def window(
    x: UOp, axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> UOp:
    """Return x with sliding windows along `axes`, and a new last axis for each, over the window's elements.

    out[..., o, ..., w] = x[..., o * stride + w * dilation, ...]; `sizes` are the windows' elements.
    """
    if not len(axes) == len(sizes) == len(strides) == len(dilations):
        raise UsageError(
            f"WINDOW of {_show(x)}: axes {tuple(axes)}, sizes {tuple(sizes)}, strides {tuple(strides)} and"
            f" dilations {tuple(dilations)} must be of one length"
        )
    found = tuple([_axis(a, len(x.shape), "WINDOW", x.shape) for a in axes])
    if len(set(found)) != len(found):
        raise UsageError(f"WINDOW of {_show(x)} along {tuple(axes)}: an axis occurs twice")
    for axis, size, stride, dilation in zip(found, sizes, strides, dilations, strict=True):
        if min(size, stride, dilation) < 1:
            raise UsageError(
                f"WINDOW of {_show(x)}, axis {axis}: size {size}, stride {stride}, dilation {dilation}"
                " must be positive"
            )
        if dilation * (size - 1) + 1 > x.shape[axis]:
            raise UsageError(
                f"WINDOW of {_show(x)}, axis {axis}: a window of {size} elements, {dilation} apart, spans"
                f" {dilation * (size - 1) + 1}, the axis only {x.shape[axis]}; PAD it first"
            )
    if not found:
        return x
    return uop(Ops.WINDOW, x.dtype, (x,), (found, tuple(sizes), tuple(strides), tuple(dilations)))


def unary(op: str, x: UOp) -> UOp:
    """Return op(x) for an operation of `compiler.ir.ops.UNARY`."""
    if op not in ops.UNARY:
        raise UsageError(f"{op} is not a unary operation; there are: {', '.join(sorted(ops.UNARY))}")
    _suits(op, x)
    return uop(op, x.dtype, (x,))


def cast(x: UOp, dtype: DType) -> UOp:
    """Return x converted to another dtype."""
    _storable(dtype, "CAST")
    return x if x.dtype is dtype else uop(Ops.CAST, dtype, (x,))


def bitcast(x: UOp, dtype: DType) -> UOp:
    """Return the same bits as another dtype of the same itemsize."""
    _storable(dtype, "BITCAST")
    if x.dtype is dtype:
        return x
    if x.dtype.itemsize != dtype.itemsize or dtypes.bool in (x.dtype, dtype):
        raise UsageError(f"BITCAST of {_show(x)} to {dtype.name}: wanted numbers of one itemsize")
    return uop(Ops.BITCAST, dtype, (x,))


def binary(op: str, a: UOp, b: UOp) -> UOp:
    """Return op(a, b) for an operation of `compiler.ir.ops.BINARY`; shapes and dtypes must be equal."""
    if op not in ops.BINARY:
        raise UsageError(f"{op} is not a binary operation; there are: {', '.join(sorted(ops.BINARY))}")
    if a.dtype is not b.dtype:
        raise UsageError(f"{op} of {a.dtype.name} and {b.dtype.name}: dtypes must be equal; CAST one of them")
    if a.shape != b.shape:
        raise UsageError(
            f"{op} of shapes {a.shape} and {b.shape}: must be equal; RESHAPE and EXPAND one of them"
        )
    _suits(op, a)
    return uop(op, dtypes.bool if op in ops.COMPARE else a.dtype, (a, b))


def where(condition: UOp, a: UOp, b: UOp) -> UOp:
    """Return a where the bool condition is true, else b; shapes must be equal."""
    if condition.dtype is not dtypes.bool:
        raise UsageError(f"WHERE: the condition {_show(condition)} must be bool; compare it with 0")
    if a.dtype is not b.dtype:
        raise UsageError(
            f"WHERE of {a.dtype.name} and {b.dtype.name}: dtypes must be equal; CAST one of them"
        )
    if not condition.shape == a.shape == b.shape:
        raise UsageError(
            f"WHERE of shapes {condition.shape}, {a.shape} and {b.shape}: must be equal;"
            " RESHAPE and EXPAND them"
        )
    return uop(Ops.WHERE, a.dtype, (condition, a, b))


def within(condition: UOp, a: UOp) -> UOp:
    """Return a where the bool condition is true, any value elsewhere; shapes must be equal."""
    if condition.dtype is not dtypes.bool:
        raise UsageError(f"WITHIN: the condition {_show(condition)} must be bool; compare it with 0")
    if condition.shape != a.shape:
        raise UsageError(
            f"WITHIN of shapes {condition.shape} and {a.shape}: must be equal; RESHAPE and EXPAND them"
        )
    return uop(Ops.WITHIN, a.dtype, (condition, a))


def full(value: float, shape: Sequence[int], dtype: DType) -> UOp:
    """Return a constant expanded to a shape."""
    scalar = const(value, dtype)
    return expand(reshape(scalar, (1,) * len(shape)), shape)


def reduce(x: UOp, op: str, axes: Sequence[int]) -> UOp:
    """Return x reduced by ADD, MUL, MAX or MIN over axes; the result lacks them. Over no axis return x."""
    if op not in ops.REDUCERS:
        raise UsageError(f"REDUCE by {op}: wanted one of {', '.join(sorted(ops.REDUCERS))}")
    found = tuple(sorted({_axis(a, len(x.shape), "REDUCE", x.shape) for a in axes}))
    if len(found) != len(axes):
        raise UsageError(f"REDUCE of {_show(x)} over {tuple(axes)}: an axis occurs twice")
    if x.dtype is dtypes.bool and op in (Ops.ADD, Ops.MUL):
        raise UsageError(
            f"REDUCE of {_show(x)} by {op}: bool is combined by MAX (any) or MIN (all); CAST it to count"
        )
    return uop(Ops.REDUCE, computing(x.dtype, "REDUCE"), (x,), (op, found)) if found else x


def gather(x: UOp, indices: UOp, axis: int) -> UOp:
    """Return x[..., indices, ...] along one axis of n elements; indices outside [0, n) give 0."""
    axis = _axis(axis, len(x.shape), "GATHER", x.shape)
    if indices.dtype not in (dtypes.int32, dtypes.int64):
        raise UsageError(f"GATHER: indices {_show(indices)} must be int32 or int64; CAST them")
    return uop(Ops.GATHER, x.dtype, (x, indices), axis)


def contiguous(x: UOp) -> UOp:
    """Return x stored in its own buffer."""
    return x if x.op is Ops.CONTIGUOUS else uop(Ops.CONTIGUOUS, x.dtype, (x,))


def after(x: UOp, *others: UOp) -> UOp:
    """Return the values of x; kernels that use the result run after the kernels that compute `others`."""
    return uop(Ops.AFTER, x.dtype, (x, *others))


def assign(target: UOp, value: UOp) -> UOp:
    """Return `value` stored in place to `target`: a PARAM, or SHRINK, RESHAPE, PERMUTE, FLIP of one.

    Uses of the result read the new contents; every other use of the PARAM reads the contents before.
    """
    if target.shape != value.shape or target.dtype is not value.dtype:
        raise UsageError(f"ASSIGN of {_show(value)} to {_show(target)}: shapes and dtypes must be equal")
    base = target
    while base.op in (Ops.SHRINK, Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP):
        base = base.src[0]
    if base.op is not Ops.PARAM:
        raise UsageError(
            f"ASSIGN to {_show(target)}: below SHRINK, RESHAPE, PERMUTE and FLIP it must be a PARAM,"
            f" saw {base.op}"
        )
    return uop(Ops.ASSIGN, target.dtype, (target, value))


def build(rows: Iterable[Row]) -> list[UOp]:
    """Return the nodes of rows (operation, numbers of earlier rows, argument), in order, in one pass.

    An operation may also be a function that makes its node from (sources, argument).
    """
    nodes: list[UOp] = []
    for op, sources, arg in rows:
        src = list(map(nodes.__getitem__, sources))
        nodes.append(MAKERS[op](op, src, arg) if isinstance(op, str) else op(src, arg))
    return nodes


MAKERS: Final[dict[str, Callable[[str, list[UOp], Any], UOp]]] = {
    **dict.fromkeys(ops.UNARY, lambda op, src, _: unary(op, src[0])),
    **dict.fromkeys(ops.BINARY, lambda op, src, _: binary(op, src[0], src[1])),
    Ops.PARAM: lambda _, __, arg: param(*arg),
    Ops.CONST: lambda _, __, arg: const(*arg),
    Ops.IOTA: lambda _, __, arg: iota(arg[1][0], arg[1][1], arg[0]),
    Ops.IVALUE: lambda _, src, arg: number_of(src[0], arg),
    Ops.WHERE: lambda _, src, __: where(*src),
    Ops.WITHIN: lambda _, src, __: within(*src),
    Ops.CAST: lambda _, src, arg: cast(src[0], arg),
    Ops.BITCAST: lambda _, src, arg: bitcast(src[0], arg),
    Ops.RESHAPE: lambda _, src, arg: reshape(src[0], arg),
    Ops.PERMUTE: lambda _, src, arg: permute(src[0], arg),
    Ops.EXPAND: lambda _, src, arg: expand(src[0], arg),
    Ops.PAD: lambda _, src, arg: pad(src[0], arg),
    Ops.SHRINK: lambda _, src, arg: shrink(src[0], arg),
    Ops.FLIP: lambda _, src, arg: flip(src[0], arg),
    Ops.WINDOW: lambda _, src, arg: window(src[0], *arg),
    Ops.REDUCE: lambda _, src, arg: reduce(src[0], *arg),
    Ops.GATHER: lambda _, src, arg: gather(src[0], src[1], arg),
    Ops.CONTIGUOUS: lambda _, src, __: contiguous(src[0]),
    Ops.AFTER: lambda _, src, __: after(*src),
    Ops.ASSIGN: lambda _, src, __: assign(*src),
}
"""Operation -> the constructor of a node from its name, sources and argument.

The argument of a leaf has the dtype as well, that of a conversion is the dtype."""


def _show(x: UOp) -> str:
    return f"{x.op} {x.dtype.name}{list(x.shape)}"


def _storable(dtype: DType, what: str) -> DType:
    if dtype in (dtypes.index, dtypes.void):
        raise UsageError(f"{what} cannot have dtype {dtype.name}; it exists only inside kernels")
    return dtype


def _sizes(shape: Sequence[int], what: str) -> Shape:
    sizes = tuple(shape)
    for n in sizes:
        if n.__class__ is not int or n < 0:
            raise UsageError(f"{what}: sizes of a shape are non-negative integers, not {sizes}")
    return sizes


def _axis(axis: int, rank: int, what: str, shape: Shape) -> int:
    if not 0 <= axis < rank:
        raise UsageError(f"{what}: the shape {shape} has axes 0..{rank - 1}, there is no axis {axis}")
    return axis


def _pairs(pairs: Sequence[tuple[int, int]], x: UOp, what: str) -> tuple[tuple[int, int], ...]:
    found = tuple([(lo, hi) for lo, hi in pairs])
    if len(found) != len(x.shape):
        raise UsageError(f"{what} of {_show(x)} by {found}: wanted one pair for each axis")
    return found


_WANTED: Final = {
    ops.FLOATS: "a float",
    ops.INTEGERS: "an integer",
    ops.BITS: "an integer or bool",
    ops.NUMBERS: "a number",
}


def _suits(op: str, x: UOp) -> None:
    """Raise `UsageError` unless the dtype of x has the operation."""
    dtype = x.dtype
    if dtype in (dtypes.index, dtypes.void):
        raise UsageError(
            f"{op} of {x!r}: index nodes take the arithmetic of compiler.ir.index; see number_of"
        )
    if op is not Ops.EQ and op is not Ops.NE:
        computing(dtype, op)
    kinds = ops.ROWS[op].kinds
    if dtype.kind not in kinds:
        raise UsageError(f"{op} of {_show(x)}: wanted {_WANTED[kinds]}; CAST it")
