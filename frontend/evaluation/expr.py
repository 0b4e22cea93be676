"""Abstract expressions: the computation of a tensor without its buffers.

- A `TensorExpr` is an interned expression over *parameters* 0..n-1: its operation, its sources, the mapping
  of its parameters to those of each source, its shape, dtype and device, and (once needed) the prebuilt
  launch `run`. It references no buffer, so the table of expressions can keep every structure.
- A tensor (`frontend.tensor`) is `(expr, leaves)`: the expression, and the tuple of realized buffers, without
  duplicates, for parameters 0..n-1. `a + b` is one lookup by both expressions and by which leaves coincide;
  broadcasting, promotion and shape inference run only when that lookup misses.
- The expression of a realized tensor is the one leaf expression of its shape, dtype and device. Two realized
  tensors agree in all three exactly if their expressions are one object.

`join` builds an expression from parts, with exact simplifications only. `uops` translates expressions into
the tensor graph that the compiler schedules; parameter k is PARAM slot k. The table is cleared when it
exceeds `TABLE_LIMIT`; expressions in use remain valid.

Not here: buffers (`storage`), kernels of an expression (`plan`). Next: `trace`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from compiler.dtype import DType, computing
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const
from frontend.arguments.aliases import caller
from frontend.arguments.checks import FLOAT
from frontend.primitives import convolution, erf, gather_scatter
from frontend.primitives.erf import ERF
from frontend.primitives.gather_scatter import LAST_INDEX, SEGMENT_SUM, TAKE_ALONG_AXIS
from hcq.errors import UsageError

Shape = tuple[int, ...]
Leaves = tuple[Any, ...]
"""`Leaf` objects; inside a trace, integers instead."""
Part = tuple["TensorExpr", Leaves]
"""An expression and its leaves: the value of a tensor."""

PARAM: Final = Ops.PARAM
CONV: Final = "CONV"
"""A convolution with its own gradient rule: see `frontend.primitives.convolution`."""
STOP: Final = "STOP"
"""The values of its source, through which no gradient flows."""
RULED: Final = "RULED"
"""The values of its first source; a rule of `frontend.autograd.rules` gives the gradients of the others."""
INPUT: Final = "INPUT"
"""The values of its source, an argument of a checkpointed function: see `frontend.autograd.segments`."""
SEGMENT: Final = "SEGMENT"
"""The values of its first source, a result of a checkpointed function; the others are its INPUTs."""
VERSION: Final = "VERSION"
"""The values of its first source, assigned to a tensor with requires_grad whose memory the second source was.

No other tensor has such a node; see `frontend.evaluation.gradient_state.version`.
"""
PLACE: Final = "PLACE"
"""The values of its source, divided along the axis `arg` over the devices of a mesh; None: whole on each."""
LIMIT: Final = "LIMIT"
"""The integers of its source, each with a limit: see `frontend.evaluation.limits`."""
TABLE_LIMIT: Final = 100_000
"""The most structures in `TABLE`, of about 600 bytes each."""

_new = object.__new__


class TensorExpr:
    """One interned expression over parameters 0..n-1. Made by `join`, `leaf_expr` and `source_expr`."""

    __slots__ = (
        "__weakref__", "arg", "depth", "device", "dtype", "leaf", "limited", "maps", "n", "op", "params",
        "run", "shape", "skeleton", "src",
    )  # fmt: skip

    op: str
    src: tuple[TensorExpr, ...]
    maps: tuple[tuple[int, ...], ...]
    """For each source: for each of its parameters, the number of the same parameter in this expression."""
    arg: Any
    shape: Shape
    dtype: DType
    device: str
    n: int
    params: tuple[TensorExpr, ...]
    """The leaf expression of each parameter."""
    leaf: TensorExpr
    """The leaf expression of the result's shape, dtype and device."""
    limited: bool
    """Whether it contains a LIMIT."""
    depth: int
    """The most operations one behind the other, from a leaf on."""
    skeleton: int | None
    """See `varying.skeleton`; None until it is computed."""
    run: Callable[[Leaves], Leaves] | None
    """The prebuilt launch, from the leaves to a tuple of the new leaf; None until it is built."""

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f" {self.arg}"
        return f"<{self.op}{arg} {self.dtype.name}{list(self.shape)} of {self.n} parameters>"


TABLE: Final[dict[Any, Any]] = {}
"""Structure of an operation or a method call -> its expression; the keys are those of `join` and `trace`.

`trace.varies` also counts here how many different numbers an operator had at one structure.
"""
LEAVES: Final[WeakValueDictionary[tuple[Shape, DType, str], TensorExpr]] = WeakValueDictionary()
"""The leaf expressions in use, one for each key, as captured functions compare them by identity."""
_FIRST: Final = threading.Lock()
"""Held while a leaf expression is made, so that all threads get the same one."""


def leaf_expr(shape: Shape, dtype: DType, device: str) -> TensorExpr:
    """Return the expression of a realized tensor: its parameter 0."""
    key = (shape, dtype, device)
    found = LEAVES.get(key)
    if found is not None:
        return found
    with _FIRST:
        found = LEAVES.get(key)
        if found is None:
            e = found = _new(TensorExpr)
            e.op, e.src, e.maps, e.arg, e.n, e.run = PARAM, (), (), None, 1, None
            e.skeleton = None
            e.shape, e.dtype, e.device = shape, dtype, device
            e.leaf = e
            e.params = (e,)
            e.limited, e.depth = False, 0
            LEAVES[key] = e
    return found


def source_expr(op: str, arg: Any, dtype: DType, device: str) -> TensorExpr:
    """Return an expression without sources: CONST (arg=value, shape ()) or IOTA (arg=(shape, axis))."""
    if op is Ops.CONST:
        arg = const(arg, dtype).arg
    key = (op, repr(arg) if arg.__class__ is float else arg, dtype, device)
    found: TensorExpr | None = TABLE.get(key)
    if found is None:
        shape = () if op is Ops.CONST else graph.iota(arg[0], arg[1], dtype).shape
        found = TABLE[key] = _birth(op, (), (), arg, shape, dtype, device, ())
    return found


def _birth(  # noqa: PLR0917 - positional: all of them, twice
    op: str,
    src: tuple[TensorExpr, ...],
    maps: tuple[tuple[int, ...], ...],
    arg: Any,
    shape: Shape,
    dtype: DType,
    device: str,
    params: tuple[TensorExpr, ...],
) -> TensorExpr:
    if len(TABLE) > TABLE_LIMIT:
        TABLE.clear()
    e = _new(TensorExpr)
    e.op, e.src, e.maps, e.arg, e.n, e.run = op, src, maps, arg, len(params), None
    e.skeleton = None
    e.shape, e.dtype, e.device, e.params = shape, dtype, device, params
    e.leaf = leaf_expr(shape, dtype, device)
    e.limited, e.depth = op is LIMIT, 1 + max([s.depth for s in src], default=0)
    for s in src:
        if s.limited:
            e.limited = True
    return e


def merge(first: Leaves, second: Leaves) -> tuple[Leaves, tuple[int, ...]]:
    """Return the union of two leaf tuples, beginning with `first`, and the positions of `second` in it."""
    if len(second) == 1 and second[0] in first:
        return first, (first.index(second[0]),)
    index = dict.fromkeys(first)
    index.update(dict.fromkeys(second))
    n = len(index)
    if n == len(first) + len(second):
        return first + second, tuple(range(len(first), n))
    leaves = tuple(index)
    position = {leaf: i for i, leaf in enumerate(leaves)}
    return leaves, tuple([position[leaf] for leaf in second])


def join(op: str, arg: Any, *parts: Part, key: Hashable = None) -> Part:
    """Return the primitive `op` of some parts: the interned and simplified expression, and its leaves.

    Shapes and dtypes must agree as the constructors of `compiler.ir.graph` require. `key` replaces, in the
    key of `TABLE`, an `arg` that has no hash by value. Raises `UsageError` for parts on several devices.
    """
    simple = _simplify(op, arg, parts)
    if simple is not None:
        return simple
    leaves = parts[0][1]
    maps = [tuple(range(len(leaves)))]
    for _, more in parts[1:]:
        leaves, where = merge(leaves, more)
        maps.append(where)
    name = (op, arg if key is None else key, *[p[0] for p in parts], *maps[1:])
    found: TensorExpr | None = TABLE.get(name)
    if found is None:
        found = TABLE[name] = _infer(op, arg, tuple([p[0] for p in parts]), tuple(maps), len(leaves))
    return found, leaves


def _infer(
    op: str, arg: Any, src: tuple[TensorExpr, ...], maps: tuple[tuple[int, ...], ...], n: int
) -> TensorExpr:
    device = src[0].device
    for s in src[1:]:
        if s.device != device:
            places = f"one tensor is on {device}, another on {s.device}"
            raise UsageError(f"{caller()}: {places}; move one, or the model, with .to({device!r})")
    rows: list[graph.Row] = [(Ops.PARAM, (), (i, s.shape, s.dtype)) for i, s in enumerate(src)]
    node = graph.build([*rows, (LOWERED.get(op, op), range(len(src)), arg)])[-1]
    params: list[Any] = [None] * n
    for s, where in zip(src, maps, strict=True):
        for leaf, at in zip(s.params, where, strict=True):
            params[at] = leaf
    return _birth(op, src, maps, arg, node.shape, node.dtype, device, tuple(params))


def constant_of(e: TensorExpr) -> Any:
    """Return the number that all elements of an expression are, if it is a constant; else None."""
    while e.op is Ops.EXPAND or e.op is Ops.RESHAPE or e.op is Ops.PERMUTE:
        e = e.src[0]
    return e.arg if e.op is Ops.CONST else None


def inside(part: Part, source: int = 0) -> Part:
    """Return one source of a part, with the leaves of that source."""
    e, leaves = part
    return e.src[source], tuple([leaves[i] for i in e.maps[source]])


def _simplify(op: str, arg: Any, parts: tuple[Part, ...]) -> Part | None:
    rule = _SIMPLER.get(op)
    return None if rule is None else rule(op, arg, parts)


def _simpler_movement(op: str, arg: Any, parts: tuple[Part, ...]) -> Part | None:
    """A movement without effect → its source; reshape of reshape → reshape, permute of permute → permute."""
    x = parts[0][0]
    if op is Ops.RESHAPE:
        if arg == x.shape:
            return parts[0]
        if x.op is Ops.RESHAPE:
            return join(op, arg, inside(parts[0]))
    elif op is Ops.PERMUTE:
        if arg == tuple(range(len(x.shape))):
            return parts[0]
        if x.op is Ops.PERMUTE:
            return join(op, tuple([x.arg[i] for i in arg]), inside(parts[0]))
    elif op is Ops.EXPAND:
        if arg == x.shape:
            return parts[0]
    elif op is Ops.PAD:
        if not any(lo or hi for lo, hi in arg):
            return parts[0]
    elif op is Ops.SHRINK:
        if all(begin == 0 and end == n for (begin, end), n in zip(arg, x.shape, strict=True)):
            return parts[0]
    elif not (arg if op is Ops.FLIP else arg[0]):  # FLIP and WINDOW of no axis
        return parts[0]
    return None


def _simpler_cast(_op: str, arg: Any, parts: tuple[Part, ...]) -> Part | None:
    """A cast to the same dtype → its source."""
    return parts[0] if parts[0][0].dtype is arg else None


def _simpler_reduce(_op: str, arg: Any, parts: tuple[Part, ...]) -> Part | None:
    """A reduction over no axis → its source.

    Of integers, a reduction of the same reduction → one over all axes.
    """
    if not arg[1]:
        return parts[0]
    x = parts[0][0]
    if x.op is Ops.REDUCE and x.arg[0] is arg[0] and not x.dtype.is_float:
        kept = [i for i in range(len(x.src[0].shape)) if i not in x.arg[1]]
        axes = tuple(sorted((*x.arg[1], *[kept[i] for i in arg[1]])))
        return join(Ops.REDUCE, (arg[0], axes), inside(parts[0]))
    return None


def _simpler_binary(op: str, _arg: Any, parts: tuple[Part, ...]) -> Part | None:
    """X * 1, 1 * x, x / 1, x - 0, and for integers x + 0 → x."""
    a, b = parts
    if op is Ops.MUL and constant_of(a[0]) == 1:
        return b
    if op is Ops.SUB:
        return a if _is_zero(constant_of(b[0])) else None
    if op is Ops.ADD:
        return a if not a[0].dtype.is_float and constant_of(b[0]) == 0 else None
    return a if constant_of(b[0]) == 1 else None


def _is_zero(value: Any) -> bool:
    """Return whether a value is 0 and not -0.0, as x - (-0.0) changes -0.0 to 0.0."""
    return value is not None and value == 0 and str(value)[0] != "-"


def _simpler_twice(op: str, _arg: Any, parts: tuple[Part, ...]) -> Part | None:
    """-(-x), ~(~x) → x."""
    return inside(parts[0]) if parts[0][0].op is op else None


_SIMPLER: Final[dict[str, Callable[[str, Any, tuple[Part, ...]], Part | None]]] = {
    **dict.fromkeys(
        (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.WINDOW), _simpler_movement
    ),
    **dict.fromkeys((Ops.MUL, Ops.DIV, Ops.SUB, Ops.ADD), _simpler_binary),
    **dict.fromkeys((Ops.NEG, Ops.NOT), _simpler_twice),
    Ops.CAST: _simpler_cast,
    Ops.REDUCE: _simpler_reduce,
}


def _same(src: list[UOp], _: Any) -> UOp:
    return src[0]


LOWERED: Final[dict[str, Callable[[list[UOp], Any], UOp]]] = {
    **dict.fromkeys((STOP, RULED, INPUT, SEGMENT, VERSION, PLACE, LIMIT), _same),
    CONV: lambda src, arg: convolution.lower(src[0], src[1], *arg),
    ERF: lambda src, _: erf.lower(src[0]),
    TAKE_ALONG_AXIS: lambda src, arg: gather_scatter.lower_take(src[0], src[1], arg[0]),
    SEGMENT_SUM: lambda src, arg: gather_scatter.lower_sum(tuple(src), *arg),
    LAST_INDEX: lambda src, arg: gather_scatter.lower_last(tuple(src), *arg),
}
"""Primitive of the frontend -> the function that builds its graph; other primitives are the compiler's."""


def _source_row(e: TensorExpr, leaves: Leaves) -> graph.Row:
    if e.op is PARAM:
        return Ops.PARAM, (), (leaves[0], e.shape, e.dtype)
    return e.op, (), (e.arg, e.dtype) if e.op is Ops.CONST else (e.dtype, e.arg)


def uops(parts: Sequence[Part]) -> list[UOp]:
    """Return the tensor graph of each part. The leaves are numbers; leaf k becomes PARAM slot k.

    Equal parts share nodes.
    """
    done: dict[Part, int] = {}
    rows: list[graph.Row] = []
    for root in parts:
        stack: list[tuple[Part, list[Part] | None]] = [(root, None)]
        while stack:
            part, sources = stack.pop()
            e, leaves = part
            if part in done:
                continue
            if sources is None and e.src:
                sources = [(s, tuple([leaves[i] for i in m])) for s, m in zip(e.src, e.maps, strict=True)]
                stack.append((part, sources))
                stack += [(s, None) for s in sources if s not in done]
                continue
            done[part] = len(rows)
            if sources is None:
                rows.append(_source_row(e, leaves))
            else:
                rows.append((LOWERED.get(e.op, e.op), list(map(done.__getitem__, sources)), e.arg))
    nodes = graph.build(rows)
    return [nodes[done[part]] for part in parts]


def float_dtype(dtype: DType) -> DType:
    """Return the result dtype of float functions: `dtype` itself if it is a float, else `FLOAT`.

    Raises `UsageError` for an 8-bit float.
    """
    computing(dtype, "a function of floats")
    return dtype if dtype.is_float else FLOAT[0]
