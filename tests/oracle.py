"""What graphs and kernels mean, in NumPy: the oracle for all tests of the compiler and the frontend.

`evaluate(node, params)` interprets a tensor graph, `run(items, params)` interprets scheduled kernels,
vectorised over all ranges: range number n is array axis n. Kernels may touch nothing out of bounds and store
no element twice. Buffers of bfloat16 and 8-bit floats are arrays of unsigned integers; values are computed as
float32 and rounded after each operation.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.dtype import DType, dtypes
from compiler.ir.ops import ELEMENTWISE, ROWS, Ops
from compiler.ir.serialize import postorder
from compiler.nest.loop_nest import starts_of
from compiler.schedule.item import OutRef, ParamRef, ScheduleItem
from tests import float8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest

Array = np.ndarray[Any, Any]


def numpy_type(dtype: DType) -> np.dtype[Any]:
    """The type that values are computed in."""
    return np.dtype(dtype.numpy or np.float32)


def stored_type(dtype: DType) -> np.dtype[Any]:
    """The type of buffers."""
    return np.dtype(dtype.numpy or f"uint{dtype.bits}")


def from_memory(x: Array, dtype: DType) -> Array:
    """Buffer elements as values."""
    if dtype is dtypes.bfloat16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return float8.table(dtype.name)[x] if dtype.numpy is None else x


def to_memory(x: Array, dtype: DType) -> Array:
    """Values as buffer elements."""
    if dtype is dtypes.bfloat16:
        return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return float8.encoded(x, dtype.name) if dtype.numpy is None else x.astype(stored_type(dtype))


def rounded(x: Array, dtype: DType) -> Array:
    """Round to what the dtype holds."""
    if not dtype.computes:
        return float8.table(dtype.name)[float8.encoded(x, dtype.name)]
    if dtype is not dtypes.bfloat16:
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(numpy_type(dtype))
    bits = np.asarray(x, np.float32).view(np.uint32)
    up = ((bits >> 16) & 1) + np.uint32(0x7FFF)
    even = ((bits + up) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), even)


def cast(x: Array, source: DType, dtype: DType) -> Array:
    """CAST by the rules of compiler.ir.ops."""
    if dtype is dtypes.bool:
        return np.asarray(x != 0)
    if source.is_float and dtype.is_int:
        wide = np.trunc(np.where(np.isnan(x), 0, x).astype(np.float64))
        low, high = dtype.min, dtype.max
        inside = np.clip(wide, low, float(high) if high < 2**53 else np.nextafter(float(high), 0)).astype(
            numpy_type(dtype)
        )
        return np.where(
            wide >= high,
            np.array(high, numpy_type(dtype)),
            np.where(wide <= low, np.array(low, numpy_type(dtype)), inside),
        )
    return rounded(x, dtype)


def _bitcast(x: Array, source: DType, dtype: DType) -> Array:
    return from_memory(to_memory(x, source).view(stored_type(dtype)), dtype)


def _floordiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


def _mod(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b)))


def _shift(a: Array, b: Array, *, left: bool) -> Array:
    bits = a.dtype.itemsize * 8
    good = (b >= 0) & (b < bits)
    amount = np.where(good, b, 0).astype(a.dtype)
    return (
        np.where(good, a << amount, np.zeros((), a.dtype))
        if left
        else np.where(good, a >> amount, (0 - (a < 0)).astype(a.dtype))
    )


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a, b)
    bits = a.dtype.itemsize * 8
    result = np.array(
        [_whole_power(int(x), int(y), bits) for x, y in zip(a.flat, b.flat, strict=True)], np.uint64
    )
    return result.astype(f"u{a.dtype.itemsize}").view(a.dtype).reshape(a.shape)


def _whole_power(x: int, y: int, bits: int) -> int:
    if y < 0:
        x, y = (x, y & 1) if x in (1, -1) else (0, 1)
    return pow(x, y, 1 << bits)


COMPUTE: dict[str, Any] = {
    **{op: getattr(np, row.oracle) for op, row in ROWS.items() if row.oracle is not None},
    Ops.FLOORDIV: _floordiv, Ops.MOD: _mod, Ops.POW: _power,
    Ops.SHL: lambda a, b: _shift(a, b, left=True), Ops.SHR: lambda a, b: _shift(a, b, left=False),
    Ops.WHERE: np.where,
    Ops.WITHIN: lambda _, a: a,
}  # fmt: skip
REDUCE: dict[str, Any] = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum, Ops.MIN: np.minimum}


def elementwise(node: UOp, values: Sequence[Array]) -> Array:
    """One elementwise operation."""
    with np.errstate(all="ignore"):
        source = node.src[0].dtype
        if node.op is Ops.CAST:
            return cast(values[0], source, node.dtype)
        if node.op is Ops.BITCAST:
            return _bitcast(values[0], source, node.dtype)
        return rounded(COMPUTE[node.op](*values), node.dtype)


def reduced(x: Array, op: str, axes: tuple[int, ...], dtype: DType, *, keepdims: bool = False) -> Array:
    """A reduction, accumulated in float64 for floats."""
    initial: float | None = {Ops.ADD: 0, Ops.MUL: 1}.get(op)
    if initial is None:
        lowest = (-np.inf, np.inf) if dtype.is_float else (dtype.min, dtype.max)
        initial = lowest[0] if op is Ops.MAX else lowest[1]
    wide = np.dtype(np.float64) if dtype.is_float else numpy_type(dtype)
    with np.errstate(all="ignore"):
        if dtype is dtypes.bool:
            rule = np.any if op is Ops.MAX else np.all
            return np.asarray(rule(x, axis=axes, keepdims=keepdims))
        got = REDUCE[op].reduce(
            x.astype(wide),
            axis=axes,
            keepdims=keepdims,
            initial=np.array(initial, wide)[()],
            dtype=wide,
        )
        return rounded(got, dtype)


def evaluate(root: UOp, params: Mapping[int, Array], variables: Mapping[str, int] | None = None) -> Array:
    """Return a tensor graph's value; `params` maps slots to buffers. ASSIGN gives its value and stores
    nothing."""
    return evaluate_all((root,), params, variables)[0]


def evaluate_all(
    roots: Sequence[UOp], params: Mapping[int, Array], variables: Mapping[str, int] | None = None
) -> list[Array]:
    """Return the values of several roots."""
    memo: dict[UOp, Array] = {}
    for node in postorder(roots):
        if node.dtype is not dtypes.index or node.op is Ops.CONST:
            memo[node] = _tensor(node, memo, params, variables or {})
            if node.dtype is not dtypes.index:
                assert memo[node].shape == node.shape, (node, memo[node].shape)
    return [memo[r] for r in roots]


def _index(node: UOp | int, variables: Mapping[str, int]) -> int:
    from compiler.ir import index as symbolic

    if isinstance(node, int):
        return node
    return symbolic.evaluate(node, {a: variables[a.arg[0]] for a in symbolic.atoms_of((node,))})


def _tensor(
    node: UOp, memo: dict[UOp, Array], params: Mapping[int, Array], variables: Mapping[str, int]
) -> Array:
    op, arg, dtype = node.op, node.arg, node.dtype
    if op is Ops.PARAM:
        return from_memory(np.asarray(params[arg[0]]).reshape(arg[1]), dtype)
    if op is Ops.CONST:
        return np.array(arg, numpy_type(dtype))
    if op is Ops.IOTA:
        shape, axis = arg
        line = np.arange(shape[axis], dtype=numpy_type(dtype)).reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
        return np.broadcast_to(line, shape)
    if op is Ops.IVALUE:
        return np.array(_index(node.src[0], variables), numpy_type(dtype))
    src = [memo[s] for s in node.src]
    x = src[0]
    if op in ELEMENTWISE:
        return np.asarray(elementwise(node, src))
    if op is Ops.RESHAPE:
        return x.reshape(arg)
    if op is Ops.PERMUTE:
        return x.transpose(arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(x, arg)
    if op is Ops.PAD:
        return np.pad(x, arg) if arg else x
    if op is Ops.SHRINK:
        return x[tuple(slice(_index(b, variables), _index(e, variables)) for b, e in arg)]
    if op is Ops.FLIP:
        return np.flip(x, arg)
    if op is Ops.WINDOW:
        return _windows(x, *arg)
    if op is Ops.REDUCE:
        return np.asarray(reduced(x, arg[0], arg[1], dtype))
    if op is Ops.GATHER:
        return _gathered(x, src[1], arg)
    if op in {Ops.CONTIGUOUS, Ops.AFTER}:
        return x
    if op is Ops.ASSIGN:
        return src[1]
    raise AssertionError(f"no tensor operation: {node!r}")


def _windows(x: Array, axes: Any, sizes: Any, strides: Any, dilations: Any) -> Array:
    for axis, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        count = (x.shape[axis] - dilation * (size - 1) - 1) // stride + 1
        at = np.arange(count)[:, None] * stride + np.arange(size)[None, :] * dilation
        x = np.moveaxis(np.take(x, at, axis=axis), axis + 1, -1)
    return x


def _gathered(x: Array, indices: Array, axis: int) -> Array:
    n = x.shape[axis]
    good = (indices >= 0) & (indices < n)
    if n == 0:
        return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    got = np.take(x, np.where(good, indices, 0), axis=axis)
    shape = [1] * axis + list(indices.shape) + [1] * (x.ndim - axis - 1)
    return np.where(good.reshape(shape), got, np.zeros((), x.dtype))


def run(
    items: Sequence[ScheduleItem], params: dict[int, Array], variables: Mapping[str, int] | None = None
) -> dict[int, Array]:
    """Run kernels in order; return the outputs by number. Parameters that are assigned change in place."""
    memory: dict[object, Array] = {}
    for item in items:
        for slot, ref in enumerate(item.bufs):
            if isinstance(ref, ParamRef):
                memory[ref] = params[ref.n].reshape(-1)
                assert params[ref.n].flags.c_contiguous, "parameters must be contiguous"
                assert memory[ref].dtype == stored_type(ref.dtype), (ref, memory[ref].dtype)
            elif ref not in memory:
                assert slot in item.stores, f"{ref} is read before it is written"
                garbage = np.full(ref.nbytes, 0x5A, np.uint8)
                memory[ref] = garbage.view(stored_type(ref.dtype))
        parts = item.ast.src if item.ast.src[0].op is Ops.SINK else (item.ast,)  # of a chain
        bufs = dict(enumerate([memory[ref] for ref in item.bufs]))
        for store in [s for part in parts for s in part.src if s.src[0].arg not in bufs]:
            bufs[store.src[0].arg] = np.zeros(store.src[1].vmax + 1, stored_type(store.src[0].dtype))
        for part in parts:
            run_kernel(part, bufs, variables)
    return {ref.n: buffer.reshape(ref.shape) for ref, buffer in memory.items() if isinstance(ref, OutRef)}


def run_kernel(
    ast: UOp, bufs: Sequence[Array] | Mapping[int, Array], variables: Mapping[str, int] | None = None
) -> None:
    """Run one kernel AST on flat buffers."""
    ranges = {n for n in postorder((ast,)) if n.op is Ops.RANGE}
    rank = max([r.arg[0] for r in ranges], default=-1) + 1
    memo: dict[UOp, Array] = {}
    stores = []
    for node in postorder((ast,)):
        if node.op is Ops.STORE:
            stores.append(node)
        elif node.op not in (Ops.SINK, Ops.BUFFER):
            memo[node] = _scalar(node, memo, bufs, rank, variables or {})
    for store in stores:
        target = bufs[store.src[0].arg]
        index, value = np.broadcast_arrays(memo[store.src[1]], memo[store.src[2]])
        if len(store.src) > 3:
            mask = np.broadcast_to(memo[store.src[3]], index.shape)
            index, value = index[mask], value[mask]
        index = index.reshape(-1)
        assert index.size == 0 or (index.min() >= 0 and index.max() < target.size), "store out of bounds"
        assert np.unique(index).size == index.size == memo[store.src[1]].size, (
            "an element is stored twice, or a range is missing"
        )
        target[index] = to_memory(value.reshape(-1), store.src[0].dtype)


def run_plan(ast: UOp, plan: LoopNest, bufs: Mapping[int, Array]) -> None:
    """Run a kernel on flat buffers by slot, in the parts of its plan, if it has any, block by block."""
    memory = dict(bufs)
    for kept in plan.kept:
        if kept.count:
            memory[kept.slot] = np.full(kept.count, 7, stored_type(kept.dtype))

    def run_parts(when: str, variables: Mapping[str, int]) -> None:
        for phase in plan.phases:
            if phase.when == when:
                assert not phase.plan.phases
                run_kernel(phase.ast, memory, variables)

    if not plan.phases:
        run_kernel(ast, memory)
        return
    if plan.beside:
        for phase in plan.phases:
            run_plan(phase.ast, phase.plan, memory)
        return
    *outer, rows = plan.axes
    names = [starts.arg[0] for starts in starts_of([a.range for a in plan.axes], rows.block).values()]
    start, size, count = plan.pieces or (None, 0, 0)
    run_parts("once", {})
    firsts = [min(n * rows.block, rows.size - rows.block) for n in range(rows.count)]
    for values in product(*[range(a.size) for a in outer], firsts):
        variables = dict(zip(names, values, strict=True))
        run_parts("before", variables)
        for piece in range(count):
            assert start is not None
            run_parts("each", variables | {start.arg[0]: piece * size})
        run_parts("after", variables)


def _scalar(
    node: UOp,
    memo: dict[UOp, Array],
    bufs: Sequence[Array] | Mapping[int, Array],
    rank: int,
    variables: Mapping[str, int],
) -> Array:
    op, arg = node.op, node.arg
    if op is Ops.RANGE:
        number, size = arg
        return np.arange(size).reshape([size if i == number else 1 for i in range(rank)])
    if op is Ops.CONST:
        return np.full((1,) * rank, arg, numpy_type(node.dtype))
    if op is Ops.VAR:
        assert arg[1] <= variables[arg[0]] <= arg[2]
        return np.full((1,) * rank, variables[arg[0]], np.int64)
    src = [memo[s] for s in node.src if s.op is not Ops.BUFFER]
    if op is Ops.SUM:
        total = np.full((1,) * rank, arg[1], np.int64)
        for x, c in zip(src, arg[0], strict=True):
            total = total + x.astype(np.int64) * c
        return total
    if op is Ops.IDIV:
        return np.asarray(src[0] // arg)
    if op is Ops.IMOD:
        return np.asarray(src[0] % arg)
    if op is Ops.ILT:
        return np.asarray(src[0] < arg)
    if op is Ops.IAND:
        return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*src)))
    if op is Ops.INDEXOF:
        return src[0].astype(np.int64)
    if op is Ops.IVALUE:
        return src[0].astype(numpy_type(node.dtype))
    if op is Ops.LOAD:
        return _loaded(node, src, bufs)
    if op is Ops.REDUCE:
        missing = [n for n in arg[1] if src[0].shape[n] == 1]
        assert not missing, f"the value does not depend on ranges {missing}"
        return reduced(src[0], arg[0], arg[1], node.dtype, keepdims=True)
    assert op in ELEMENTWISE, node
    return np.asarray(elementwise(node, src))


def _loaded(node: UOp, src: list[Array], bufs: Sequence[Array] | Mapping[int, Array]) -> Array:
    buffer = bufs[node.src[0].arg]
    index = src[0]
    if len(src) > 1:
        index, mask = np.broadcast_arrays(index, src[1])
        got = index[mask]
        assert got.size == 0 or (got.min() >= 0 and got.max() < buffer.size), f"load out of bounds: {node!r}"
        values = np.zeros(index.shape, buffer.dtype)
        values[mask] = buffer[got]
    else:
        assert index.min() >= 0, f"load out of bounds: {node!r}"
        assert index.max() < buffer.size, f"load out of bounds: {node!r}"
        values = buffer[index]
    return from_memory(values, node.dtype)


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> Array:
    """A buffer of small random values."""
    if dtype is dtypes.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_int:
        return rng.integers(0 if dtype.kind == "uint" else -5, 6, shape).astype(dtype.numpy)
    values = rng.standard_normal(prod(shape)).astype(np.float32).reshape(shape)
    return to_memory(rounded(values, dtype), dtype).reshape(shape)
