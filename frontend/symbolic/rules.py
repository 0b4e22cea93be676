"""The methods of tensors with symbolic sizes: one rule for each kind of method, in a table by name.

A rule is called with the method of fixed sizes and with the method's arguments. It applies the method to
tensors of the capacity. Where an operand is repeated along a symbolic axis, its elements beyond the size are
marked as not needed, so that its gradient leaves them out. Arguments and errors are those of the methods;
`UnsupportedError` for an argument that has no meaning along a symbolic axis.

Not here: the tensor itself (`tensor`). Next: `reductions`; `keys`, slices and indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import signature
from typing import Any, Final

from compiler.dtype import dtypes
from frontend.arguments.checks import Axes, axes_of, axis_of
from frontend.arguments.checks import sizes as sizes_given
from frontend.evaluation.constants import coordinate
from frontend.methods import METHODS
from frontend.ops import elementwise
from frontend.ops.elementwise import beside
from frontend.ops.indexing import place_at
from frontend.symbolic import sizes as algebra
from frontend.symbolic.keys import part_of, written
from frontend.symbolic.reductions import REDUCTIONS, with_identity
from frontend.symbolic.sizes import Size, Sizes, capacities, capacity, symbolic
from frontend.symbolic.tensor import SymbolicTensor, bounded, filled, is_tensor, made, shape_of, whole_of
from frontend.variable import Bound
from hcq.errors import UnsupportedError, UsageError


def spread(x: Any, shape: Sizes) -> Any:
    """Return the tensor of the capacity of x, repeated along symbolic axes of `shape` where x has size 1."""
    whole, own = whole_of(x), shape_of(x)
    aligned = (1,) * (len(shape) - len(own)) + own
    repeated = [(i, s) for i, s in symbolic(shape) if aligned[i] == 1]
    if not repeated:
        return whole
    axes = {i for i, _ in repeated}
    target = tuple([capacity(s if i in axes else aligned[i]) for i, s in enumerate(shape)])
    return bounded(whole.expand(target), repeated)


def _elementwise(call: Any, *args: Any, **names: Any) -> Any:
    what = call.__name__
    every = (*args, *names.values())
    tensors = [a for a in every if is_tensor(a)]
    wide = next(t for t in tensors if isinstance(t, SymbolicTensor))
    tensors += [wide.whole.operand(a) for a in every if hasattr(a, "__array__") and not is_tensor(a)]
    shape = algebra.broadcast([shape_of(t) for t in tensors], what)

    def one(a: Any) -> Any:
        if hasattr(a, "__array__") and not is_tensor(a):
            a = wide.whole.operand(a)
        if not is_tensor(a):
            return a
        if not shape_of(a) and a.expr.dtype is not wide.dtype:  # of shape (), it yields to the other's dtype
            a = a.cast(beside(wide.dtype, a.expr.dtype))
        return spread(a, shape)

    result = call(*[one(a) for a in args], **{k: one(v) for k, v in names.items()})
    return made(result, shape)


ELEMENTWISE = (
    *[row.own for row in METHODS if row.oracle],
    "where", "masked_fill", "clip", "lerp", "lshift", "rshift", "rlshift", "rrshift", "rsub", "rdiv",
    "true_div", "div", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "lt", "gt", "le", "ge", "eq",
    "ne", "isclose", "relu", "relu6", "leaky_relu", "elu", "sigmoid", "logsigmoid", "silu", "gelu",
    "quick_gelu", "softplus", "softsign", "mish", "hardsigmoid", "hardswish", "hardtanh", "cast", "float",
    "double", "half", "bfloat16", "int", "long", "bool", "bitcast", "contiguous", "clone", "detach",
    "dropout",
    "full_like", "zeros_like", "ones_like", "rand_like", "randn_like", "isnan", "isinf", "isfinite",
    "logical_not",
)  # fmt: skip


def _fixed(call: Any, x: Any, *args: Any, **names: Any) -> Any:
    """A method along axes that must have fixed sizes; it keeps the shape."""
    given = signature(call).bind(x, *args, **names)
    given.apply_defaults()
    axis = given.arguments.get("axis", given.arguments.get("axes"))
    for a in axes_of(axis if axis != () else None, x.whole.expr.shape, call.__name__):
        if not isinstance(x.sizes[a], int):
            raise UnsupportedError(
                f"{call.__name__} along the symbolic axis {a} of {x.sizes}\n"
                "hint: use it along an axis of fixed size"
            )
    return made(call(x.whole, *args, **names), x.sizes)


def _permute(call: Any, x: Any, *order: Any) -> Any:
    rank = len(x.sizes)
    if call.__name__ == "transpose":
        given = [*order, *(1, 0)[len(order) :]]
        a, b = (axis_of(n, x.whole.expr.shape, "transpose") for n in given)
        axes = list(range(rank))
        axes[a], axes[b] = b, a
    else:
        axes = [axis_of(n, x.whole.expr.shape, "permute") for n in sizes_given(order, "permute")]
    return made(x.whole.permute(*axes), tuple([x.sizes[a] for a in axes]))


def _unsqueeze(call: Any, x: Any, axis: int) -> Any:
    a = axis_of(axis, x.whole.expr.shape, call.__name__, extra=1)
    return made(call(x.whole, a), (*x.sizes[:a], 1, *x.sizes[a:]))


def _squeeze(call: Any, x: Any, axis: Axes = None) -> Any:
    axes = axes_of(axis, x.whole.expr.shape, call.__name__)
    gone = [a for a in axes if x.sizes[a] == 1]
    sizes = tuple([s for i, s in enumerate(x.sizes) if i not in gone])
    return made(x.whole.reshape(capacities(sizes)), sizes)


def _given(shape: tuple[Any, ...]) -> list[Any]:
    return list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)


def _reshape(call: Any, x: Any, *shape: Any) -> Any:
    sizes = algebra.reshaped(shape_of(x), _given(shape), call.__name__)
    return made(whole_of(x).reshape(capacities(sizes)), sizes)


def _flatten(call: Any, x: Any, start: int = 0, end: int = -1) -> Any:
    a, b = (axis_of(n, x.whole.expr.shape, call.__name__) for n in (start, end))
    merged = algebra.product(x.sizes[a : b + 1])
    if merged is None:
        raise UnsupportedError(f"flatten of {x.sizes}: a product of two bound variables is no size")
    return x.reshape((*x.sizes[:a], merged, *x.sizes[b + 1 :]))


def _expand(call: Any, x: Any, *shape: Any) -> Any:
    wanted, own = _given(shape), shape_of(x)
    if len(wanted) < len(own):
        raise UsageError(f"{call.__name__} of {own} to {tuple(wanted)}: wanted at least {len(own)} sizes")
    aligned = (1,) * (len(wanted) - len(own)) + own
    full = tuple([a if isinstance(w, int) and w == -1 else w for a, w in zip(aligned, wanted, strict=True)])
    if any(
        not algebra.same(s, f, "expand")
        for s, f in zip(algebra.broadcast((aligned, full), "expand"), full, strict=True)
    ):
        raise UsageError(f"{call.__name__} of {own} to {full}: only sizes of 1 can be repeated")
    return made(spread(x, full).expand(capacities(full)), full)


def _matmul(call: Any, a: Any, b: Any) -> Any:
    """The matrix product, of operands with 0 beyond all their sizes.

    Rows and columns that are not summed here are filled, too, as the gradients are sums over them.
    """
    if call.__name__ == "rmatmul":
        a, b = b, a
    left, right = shape_of(a), shape_of(b)
    if not left or not right:
        raise UsageError(f"matmul needs at least one axis on both sides, saw the shapes {left} and {right}")
    column = max(len(right) - 2, 0)
    if not algebra.same(left[-1], right[column], "matmul"):
        raise UsageError(
            f"matmul of {left} with {right}: {left[-1]} and {right[column]} are not equal for all values"
        )
    batch = algebra.broadcast((left[:-2], right[:-2]), "matmul")
    m, n = left[-2:-1], right[-1:] if len(right) > 1 else ()
    x = with_identity(a, range(len(left)), 0)
    y = with_identity(b, range(len(right)), 0)
    return made(x @ y, (*batch, *m, *n))


def _linear(call: Any, x: Any, weight: Any, bias: Any = None) -> Any:  # noqa: ARG001 - as the method
    y = x @ weight if len(shape_of(weight)) > 1 else x * weight
    return y if bias is None else y + bias


def _attention(  # noqa: PLR0917 - as the method
    _call: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as the method
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - as the method
) -> Any:
    depth = shape_of(query)[-1]
    if not isinstance(depth, int) or not depth:
        raise UnsupportedError("scaled_dot_product_attention needs a depth of fixed size")
    if is_causal and attn_mask is not None:
        raise UsageError("scaled_dot_product_attention: give a mask or is_causal, not both")
    if enable_gqa:
        key, value = (_shared_heads(shape_of(query), x) for x in (key, value))
    scores = (query @ key.transpose(-2, -1)) * (1 / math.sqrt(depth) if scale is None else scale)
    if is_causal:
        whole = whole_of(scores)
        n, m = whole.expr.shape[-2:]
        allowed = coordinate(whole, (n, m), 1) <= coordinate(whole, (n, m), 0)
        attn_mask = made(allowed.expand(whole.expr.shape), shape_of(scores))
    if attn_mask is not None:
        boolean = attn_mask.dtype is dtypes.bool
        scores = attn_mask.where(scores, -math.inf) if boolean else scores + attn_mask
    if attn_mask is None or is_causal:
        weights = scores.softmax(-1)
    else:  # rows in which every key is masked give 0
        unseen = scores.amax(-1, True).detach() == -math.inf
        weights = unseen.where(0.0, unseen.where(0.0, scores).softmax(-1))
    return weights.dropout(dropout_p) @ value


def _shared_heads(query: Sizes, x: Any) -> Any:
    """Return keys or values with each head repeated for the queries' heads that share it."""
    own = shape_of(x)
    heads, mine = query[-3], own[-3]
    if not isinstance(heads, int) or not isinstance(mine, int) or not mine or heads % mine:
        raise UsageError(f"scaled_dot_product_attention: {mine} heads do not divide {heads}")
    times = heads // mine
    repeated = x.unsqueeze(-3).expand(*own[:-2], times, *own[-2:])
    return repeated.reshape(*own[:-3], heads, *own[-2:])


def _cat(call: Any, *given: Any, axis: int = 0) -> Any:  # noqa: ARG001 - as the method
    every = list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else list(given)
    first = shape_of(every[0])
    a = axis_of(axis, whole_of(every[0]).expr.shape, "cat")
    for t in every[1:]:
        other = shape_of(t)
        if len(other) != len(first) or not all(
            algebra.same(x, y, "cat") for i, (x, y) in enumerate(zip(first, other, strict=True)) if i != a
        ):
            raise UsageError(
                f"cat along axis {a}: the shapes {first} and {other} must be equal in the other axes"
            )
    whole, size = whole_of(every[0]), first[a]
    for t in every[1:]:
        more, own = whole_of(t), shape_of(t)[a]
        total = algebra.add(size, own, "cat")
        if isinstance(size, int):
            whole = whole.cat(more, axis=a)
        else:
            whole = _behind(whole, more, size, a, capacity(total))
        size = total
    return made(whole, (*first[:a], size, *first[a + 1 :]))


def _behind(x: Any, more: Any, size: Any, axis: int, n: int) -> Any:
    """Return x up to a symbolic size along an axis, then `more`; the axis has the capacity n."""
    dtype = elementwise.result_dtype(x, more)
    rank = len(x.expr.shape)
    x, more = x.cast(dtype), more.cast(dtype)
    x = x.pad(tuple([(0, n - x.expr.shape[i]) if i == axis else (0, 0) for i in range(rank)]))
    start = size.scalar(x)
    placed = place_at(x, more, start, axis)
    shape = tuple([n if i == axis else 1 for i in range(rank)])
    return (coordinate(x, (n,), 0) < start).reshape(shape).where(x, placed)


def _stack(call: Any, *given: Any, axis: int = 0) -> Any:
    every = list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else list(given)
    a = axis_of(axis, whole_of(every[0]).expr.shape, call.__name__, extra=1)
    return _cat(call, *[t.unsqueeze(a) for t in every], axis=a)


def _pad(call: Any, x: Any, padding: Any, value: float = 0.0) -> Any:
    whole = call(x.whole, padding, value)
    flat = not all(p is None or isinstance(p, (tuple, list)) for p in padding)
    rank = len(x.sizes)
    pairs = [padding[2 * (rank - 1 - i) : 2 * (rank - i)] or (0, 0) for i in range(rank)] if flat else padding
    for axis, _ in symbolic(x.sizes):
        if pairs[axis] is not None and tuple(pairs[axis]) != (0, 0):
            raise UnsupportedError(f"pad of the symbolic axis {axis} of {x.sizes}\nhint: use cat with zeros")
    new: list[Size] = [
        s if not isinstance(s, int) else n for s, n in zip(x.sizes, whole.expr.shape, strict=True)
    ]
    return made(whole, tuple(new))


def _shrink(call: Any, x: Any, bounds: Any) -> Any:
    if len(bounds) != len(shape_of(x)):
        raise UsageError(
            f"{call.__name__} of {shape_of(x)}: wanted one (begin, end) for each axis, saw {bounds}"
        )
    key = tuple([slice(None) if b is None else slice(*b) for b in bounds])
    return part_of(whole_of(x), shape_of(x), key)


def _take_rows(call: Any, table: Any, index: Any) -> Any:
    """Rows of a table of fixed size, for indices with symbolic sizes; the table is repeated nowhere."""
    inside = index.whole
    for axis, size in symbolic(index.sizes):
        inside = filled(inside, size.scalar(inside), axis, 0)
    return made(call(table, inside), (*index.sizes, *table.expr.shape[1:]))


RULES: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **REDUCTIONS,
    **dict.fromkeys(("sort", "argsort", "flip", "normalize"), _fixed),
    **dict.fromkeys(("permute", "transpose"), _permute),
    **dict.fromkeys(("matmul", "rmatmul", "dot"), _matmul),
    **dict.fromkeys(("rows", "item"), _take_rows),
    "getitem": lambda _call, x, key: part_of(x.whole, x.sizes, key),
    "shrink": _shrink,
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "reshape": _reshape, "flatten": _flatten,
    "expand": _expand, "linear": _linear, "scaled_dot_product_attention": _attention, "cat": _cat,
    "stack": _stack, "pad": _pad, "part_of": part_of, "written": written,
}  # fmt: skip
"""The name of a method -> its rule, called as rule(method, *arguments, **named arguments).

`part_of` and `written` are no methods: `frontend.ops` calls them for keys with symbolic sizes.
"""


def made_with(fn: Any, cls: type[Any], args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """Return the tensor that a function of the class `cls` makes, for a shape with bound variables.

    Raises `UnsupportedError` for an `arange` with a symbolic start or another step than 1.
    """
    if fn.__name__ == "arange":
        return _arange(fn, cls, args, names)
    first, *rest = args
    if isinstance(first, (tuple, list)):
        shape = tuple(first)
    elif fn.__name__ == "full":
        shape = (first,)
    else:
        shape, rest = args, []
    return made(fn(cls, capacities(shape), *rest, **names), shape)


def _arange(fn: Any, cls: type[Any], args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, *(0, 0, 1)[len(args) :])
    size: Size = algebra.add(stop, algebra.negative(start), "arange")
    low = size.low if isinstance(size, Bound) else size
    if step != 1 or not isinstance(start, int) or low < 0:
        raise UnsupportedError(
            f"arange{args}: with a bound variable wanted a start that is a plain number, a size that is "
            "never negative, and the step 1\nhint: arange(n) * step + start"
        )
    return made(fn(cls, start, start + capacity(size), **names), (size,))
