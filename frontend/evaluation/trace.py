"""Memoised tensor methods: a call with a known structure of arguments is one dictionary lookup.

A method is *traced* once for each structure of its arguments: their expressions, which of their leaves
coincide, and the values of the other arguments. To trace it, it is called on *abstract* tensors, whose leaves
are integers. The result, an expression and an order of leaves, is stored; later calls look it up. Traces
nest: `softmax` is one lookup, and so is the `exp` inside it.

`method` wraps functions of one tensor and other arguments, `operator` functions of two tensors or of a tensor
and a number, `composite` all others. Each result gets a *recipe*: the function and its arguments. After a
tensor was realized, pending tensors that were built from it are rebuilt from their recipes when they are
realized themselves (`refresh`).

Numbers: a number beside a tensor is part of the structure, so a number that changes from call to call would
need a kernel for each value. For one operator and one expression, outside traces, the fifth different number
and all later ones are passed in a one-element buffer instead.

Threads: the expression and the leaves of a tensor belong together, and another thread may realize the tensor
at any call. Code therefore reads both without a call in between (CPython switches threads only at calls and
at the ends of loops), and sets both with `become` or with the same care.

Not here: the expressions (`expr`), conversion of arguments (`frontend.arguments`). Next: `refresh`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from compiler.dtype import dtypes
from frontend.arguments.aliases import ALIASES, answers, check_call, without_aliases
from frontend.arguments.conversion import fitted
from frontend.device import Device
from frontend.evaluation.base import EPOCH, LOWERED, THREAD, T, TensorBase
from frontend.evaluation.expr import PARAM, RULED, STOP, TABLE, Leaves, Part, TensorExpr, join, merge
from frontend.evaluation.varying import CONSTANT_LIMIT, PLAIN, Numbers, general, has_numbers
from frontend.later import later
from hcq.errors import UsageError

P = ParamSpec("P")
Fn = TypeVar("Fn", bound="Callable[..., Any]")
_new = object.__new__

history = later("frontend.evaluation.history")  # it imports this module
DEEP: Final = 8192
"""The most operations one behind the other that stay pending, so that no plan has all turns of a loop."""
SIZED: Final = frozenset({"expand", "reshape", "shrink"})
"""Methods of one tensor that accept bound variables as sizes."""


def make(like: T, part: Part) -> T:
    """Return a tensor of the same class as `like`, without a recipe."""
    t = _new(like.__class__)
    t.expr, t.leaves = part
    t.recipe = None
    t.used = False
    t.epoch = EPOCH[0]
    return t


def become(t: TensorBase, expr: TensorExpr, leaves: Leaves) -> None:
    """Give a tensor another expression and other leaves; other threads see both or neither."""
    before = t.expr, t.leaves  # kept until both are set, as freeing them may run other code
    try:
        t.expr = expr
        t.leaves = leaves
    except BaseException:  # interrupted between the two
        t.expr, t.leaves = expr, leaves
        raise
    del before


def named(name: str, text: str, fn: Fn) -> Fn:
    """Set the name and the docstring of a generated function; return it."""
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = text
    return fn


def same(x: T) -> T:
    """Return x. As a recipe: a tensor with the value and the memory of x."""
    return x


def apply(op: str, arg: Any, *sources: T) -> T:
    """Return the primitive `op` of tensors, with a recipe outside of traces.

    Shapes and dtypes must agree, as for `join`. Raises `UsageError` for tensors on several devices.
    """
    for s in sources:
        s.used = True
    t = make(sources[0], join(op, arg, *[(s.expr, s.leaves) for s in sources]))
    if not THREAD.depth:
        t.recipe, t.epoch = (partial(apply, op, arg), *sources), min([s.epoch for s in sources])
    return t


def abstract(like: T, expr: TensorExpr, leaves: Leaves) -> T:
    """Return an abstract tensor, for use inside a trace; `leaves` are integers, and its epoch is 0."""
    t = _new(like.__class__)
    t.expr = expr
    t.leaves = leaves
    t.recipe = None
    t.used = False
    t.epoch = 0
    return t


def _result(like: T, expr: TensorExpr, leaves: Leaves, recipe: tuple[Any, ...], epoch: int) -> T:
    t = _new(like.__class__)
    t.expr = expr
    t.leaves = leaves
    t.recipe = recipe
    t.used = False
    t.epoch = epoch
    return t


def traced(fn: Callable[..., Any], *args: Any, **names: Any) -> Any:
    """Return the result of a function on abstract tensors, called as inside a trace."""
    THREAD.depth += 1
    try:
        return fn(*args, **names)
    finally:
        THREAD.depth -= 1


def _static(value: Any) -> Any:
    """Return the key of an argument that is no tensor; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    cls = value.__class__
    if cls is float or cls is bool or cls is complex:
        return (cls, repr(value))
    return value


def _finish(
    result: TensorBase, leaves: Leaves, key: Any, like: Any = None, call: tuple[Any, ...] = ()
) -> tuple[TensorExpr, Leaves]:
    """Return a traced result over the real leaves, and store it under `key`.

    `call` has the function and the arguments of a call whose numbers may vary, `like` one of its tensors.
    """
    order = result.leaves
    if call and not THREAD.depth and (found := _varied(like, call, result, leaves, key)) is not None:
        return found
    if order == tuple(range(len(leaves))):
        if key is not None:
            TABLE[key] = result.expr
        return result.expr, leaves
    if key is not None and all(i.__class__ is int for i in order):
        TABLE[key] = (result.expr, order)
    return result.expr, _ordered(order, leaves)


def _ordered(order: Leaves, leaves: Leaves) -> Leaves:
    return tuple([leaves[i] if i.__class__ is int else i for i in order])


def _varied(
    like: Any, call: tuple[Any, ...], result: TensorBase, leaves: Leaves, key: Any
) -> tuple[TensorExpr, Leaves] | None:
    """Return a traced result with its numbers in memory, if the numbers of such calls vary; else None."""
    raw, args, names = call
    given = (*args, *names.values())
    known = all(i.__class__ is int for i in result.leaves)
    if not (known and has_numbers(tuple([a for a in given if not isinstance(a, TensorBase)]))):
        return None
    every = [like, *[a for a in given if isinstance(a, TensorBase)]]
    wanted = not THREAD.cut and any(map(history.has_history, every))
    moving = not wanted and not Device[like.expr.device].devices  # a mesh has no rule for moving places
    site = (raw, *[a.expr for a in every])  # their own nodes stay, as gradients find them by identity
    found = general(site, [(result.expr, result.leaves)], len(leaves), moving=moving, ruled=True)
    if found is None or found[0][0][0].op is PARAM:
        return None
    [(expr, order)], values = found
    TABLE[_again, key] = expr, order, values
    return _with_numbers(like, expr, order, leaves, values)


def _with_numbers(
    like: Any, expr: TensorExpr, order: Leaves, leaves: Leaves, values: Numbers
) -> tuple[TensorExpr, Leaves]:
    return expr, _ordered(order, leaves + tuple([like.parameter(*value).leaves[0] for value in values]))


def _again(like: Any, key: Any, leaves: Leaves) -> tuple[TensorExpr, Leaves] | None:
    """Return the result of a call that `_varied` traced before, with its numbers in new memory; else None."""
    try:
        found = TABLE.get((_again, key))
    except TypeError:  # an argument is not hashable
        return None
    return None if found is None else _with_numbers(like, found[0], found[1], leaves, found[2])


def _is_wanted(x: TensorBase) -> bool:
    """Return whether a tensor has requires_grad, outside of traces and `no_grad`."""
    return not THREAD.depth and not THREAD.cut and hasattr(x, "state") and bool(x.state.wanted)


def _apart(expr: TensorExpr, leaves: Leaves) -> Part:
    """Return the value of a tensor with requires_grad as another node: `x * 1` has a gradient of its own."""
    return join(RULED, ("beside",), (expr, leaves), (expr, leaves))


def _stop(t: TensorBase) -> None:
    """Wrap a result in STOP, so that it passes no gradient on; inside a trace, do nothing."""
    if not THREAD.depth and t.expr.dtype.is_float:
        fn, *args = t.recipe  # type: ignore[misc]  # a method has just set it
        t.expr, t.leaves = join(STOP, None, (t.expr, t.leaves))
        t.recipe = (partial(_stopped, fn), *args)


def _stopped(fn: Callable[..., T], *args: Any) -> T:
    """Return the result of a recipe, wrapped in STOP."""
    t = fn(*args)
    if t.expr.op is not STOP:
        t.expr, t.leaves = join(STOP, None, (t.expr, t.leaves))
    return t


def has_variable(args: Any) -> bool:
    """Return whether arguments, or sequences among them, hold a bound variable."""
    return any(hasattr(a, "scalar") or (isinstance(a, (tuple, list)) and has_variable(a)) for a in args)


def method(
    fn: Callable[Concatenate[T, P], T], shared: Callable[..., None] | None = None
) -> Callable[Concatenate[T, P], T]:
    """Decorate a method of one tensor and other arguments: memoise its results.

    Outside traces `shared(tensor, result, call, args, names)`, if given, is called with each result. A call
    that does not fit the parameters raises `UsageTypeError` (`frontend.arguments.conversion.fitted`).
    """
    raw = cast("Any", fn)

    @wraps(fn)
    def call(x: T, *args: Any, **names: Any) -> T:
        if names and not ALIASES.keys().isdisjoint(names):
            every, names = without_aliases(raw, (x, *args), names)
            args = every[1:]
        e = x.expr
        leaves = x.leaves
        key = (
            (raw, e, *[_static(a) for a in args], *names, *[_static(a) for a in names.values()])
            if args or names
            else (raw, e)
        )
        try:
            found = TABLE.get(key)
        except TypeError:  # an argument is not hashable, such as a list
            found = None
        if found is None:
            if raw.__name__ in SIZED and has_variable(args):
                return cast("T", x.symbolic_rules[raw.__name__](call, x, *args, **names))
            given = fitted(raw, (x, *args), names)
            if given is not None:
                return call(*given[0], **given[1])
            if e.depth > DEEP and history.shortened((x,)):
                return call(x, *args, **names)
            again = None if THREAD.depth else _again(x, key, leaves)
            if again is None:
                y = traced(raw, abstract(x, e, tuple(range(len(leaves)))), *args, **names)
                again = _finish(y, leaves, key, x, (raw, args, names))
            expr, leaves = again
        elif found.__class__ is TensorExpr:
            expr = found
        else:
            expr, order = found
            leaves = tuple([leaves[i] for i in order])
        if expr is e and _is_wanted(x):
            expr, leaves = _apart(expr, leaves)
        t = _new(x.__class__)
        t.expr = expr
        t.leaves = leaves
        t.recipe = (call, x, *args) if not names else (partial(call, **names), x, *args)
        t.used = False
        t.epoch = x.epoch
        x.used = True
        if THREAD.cut:
            _stop(t)
        if shared is not None and x.epoch:
            shared(x, t, call, args, names)
        return t

    return cast("Callable[Concatenate[T, P], T]", answers(call))


def operator(fn: Callable[[Any, Any], TensorBase]) -> Callable[[T, Any], T]:
    """Decorate a method of two tensors, or of a tensor and a number: memoise its results."""

    @wraps(fn)
    def call(a: T, b: Any) -> T:
        if b.__class__ is not a.__class__:
            return _with_number(call, fn, a, b)
        ea = a.expr
        eb = b.expr
        la = a.leaves
        lb = b.leaves
        where: Any
        if la is lb:
            leaves = la
            where = None
        elif len(lb) == 1:
            if lb[0] in la:
                leaves = la
                where = la.index(lb[0])
            else:
                leaves = la + lb
                where = -1
        else:
            leaves, where = merge(la, lb)
        key = (fn, ea, eb, where)
        found = TABLE.get(key)
        if found is None:
            if (ea.depth > DEEP or eb.depth > DEEP) and history.shortened((a, b)):
                return cast("T", cast("Any", call)(a, b))
            expr, leaves = _trace_pair(fn, a, (ea, la), (eb, lb), leaves, key)
        elif found.__class__ is TensorExpr:
            expr = found
        else:
            expr, order = found
            leaves = tuple([leaves[i] for i in order])
        if (expr is ea and leaves == la and _is_wanted(a)) or (expr is eb and leaves == lb and _is_wanted(b)):
            expr, leaves = _apart(expr, leaves)
        t: T = _new(a.__class__)
        t.expr = expr
        t.leaves = leaves
        t.recipe = (call, a, b)
        t.used = False
        t.epoch = a.epoch if a.epoch < b.epoch else b.epoch  # noqa: FURB136 - hot: a call costs more
        a.used = True
        b.used = True
        if THREAD.cut:
            _stop(t)
        return t

    call.by_position = True  # type: ignore[attr-defined]  # its own names are not those of `fn`
    return cast("Callable[[T, Any], T]", call)


def _trace_pair(  # noqa: PLR0917 - internal
    fn: Any, like: TensorBase, first: Part, second: Part, leaves: Leaves, key: Any
) -> tuple[TensorExpr, Leaves]:
    position = {leaf: i for i, leaf in enumerate(leaves)}
    x = abstract(like, first[0], tuple([position[leaf] for leaf in first[1]]))
    y = abstract(like, second[0], tuple([position[leaf] for leaf in second[1]]))
    return _finish(traced(fn, x, y), leaves, key)


def _with_number(call: Any, fn: Any, a: T, value: Any) -> T:
    """Apply an operator to a tensor and a value that is no tensor: a number, or data for a tensor."""
    cls = value.__class__
    if cls is not int and cls is not float and cls is not bool:
        if hasattr(value, "dispatch"):
            return cast("T", value.dispatch(call, (a, value), {}))
        value = a.operand(value)
        if value.__class__ is a.__class__:
            return cast("T", call(a, value))
        cls = value.__class__
    e = a.expr
    leaves = a.leaves
    key = (fn, e, value, cls) if value else (fn, e, repr(value), cls)
    found = TABLE.get(key)
    if found is None:
        if e.depth > DEEP and history.shortened((a,)):
            return cast("T", call(a, value))
        if varies(fn, e, value):
            if e.dtype.is_float and e.dtype.bits == 16 and hasattr(fn, "rounds_once"):
                return cast("T", call(a, a.to(dtype=dtypes.float32).parameter(value)).cast(e.dtype))
            return cast("T", call(a, a.parameter(value)))
        y = traced(fn, abstract(a, e, tuple(range(len(leaves)))), value)
        expr, leaves = _finish(y, leaves, key)
    elif found.__class__ is TensorExpr:
        expr = found
    else:
        expr, order = found
        leaves = tuple([leaves[i] for i in order])
    if expr is e and _is_wanted(a):
        expr, leaves = _apart(expr, leaves)
    a.used = True
    found = _result(a, expr, leaves, (call, a, value), a.epoch)
    if THREAD.cut:
        _stop(found)
    return found


def varies(fn: Any, e: TensorExpr, value: float) -> bool:
    """Count a new number for one operator and expression; return whether it must be passed in a buffer."""
    if THREAD.depth or value in PLAIN or value != value:  # noqa: PLR0124 - NaN has one structure
        return False
    if e.dtype.is_int and isinstance(value, int) and not e.dtype.min <= value <= e.dtype.max:
        return False
    site = (varies, fn, e)  # in the table of structures, as the key keeps its expression alive
    count: int = TABLE.get(site, 0)
    if count >= CONSTANT_LIMIT:
        return True
    TABLE[site] = count + 1
    return False


def composite(fn: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of several tensors and other arguments, the first a tensor: memoise its results.

    Raises as a `method`; `UsageError` if the function returns anything but one tensor.
    """
    raw = cast("Any", fn)
    declared: Any = inspect.unwrap(fn)  # a decorator hides the parameters

    @wraps(fn)
    def call(*args: Any, **names: Any) -> Any:
        if names and not ALIASES.keys().isdisjoint(names):
            args, names = without_aliases(declared, args, names)
        lower = THREAD.lower
        if lower is not None and not THREAD.depth and raw.__name__.strip("_") in LOWERED:
            args, names = lower(*args), dict(zip(names, lower(*names.values()), strict=True))
        first = args[0]
        cls = first.__class__
        if names and any(a.__class__ is cls for a in names.values()):
            args, names = _by_position(declared, args, names)
        leaves: Any = None
        epoch = first.epoch
        key: list[Any] = [raw]
        for a in (*args, *names.values()) if names else args:
            if a.__class__ is cls:
                e = a.expr
                own = a.leaves
                if leaves is None:
                    leaves = own
                leaves, where = merge(leaves, own) if own is not leaves else (leaves, None)
                key += (e, where)
                a.used = True
                epoch = min(epoch, a.epoch)
            else:
                key.append(_static(a))
        key += names
        name = tuple(key)
        try:
            found = TABLE.get(name)
        except TypeError:  # an argument is not hashable, such as a list or an array
            found = None
        if found is None:
            for a in (*args, *names.values()):
                if hasattr(a, "dispatch"):
                    return a.dispatch(call, args, names)
            given = fitted(declared, args, names)
            if given is not None:
                return call(*given[0], **given[1])
            if any(a.__class__ is cls and a.expr.depth > DEEP for a in args) and history.shortened(args):
                return call(*args, **names)
            again = None if THREAD.depth else _again(first, name, leaves)
            expr, leaves = again or _trace(raw, args, names, leaves, name)
        elif found.__class__ is TensorExpr:
            expr = found
        else:
            expr, order = found
            leaves = tuple([leaves[i] for i in order])
        if expr.op is PARAM and any(
            a.__class__ is cls and a.expr is expr and a.leaves == leaves and _is_wanted(a) for a in args
        ):
            expr, leaves = _apart(expr, leaves)
        recipe = (call, *args) if not names else (partial(call, **names), *args)
        made = _result(first, expr, leaves, recipe, epoch)
        if THREAD.cut:
            _stop(made)
        return made

    return cast("Callable[P, T]", answers(call))


def _by_position(
    fn: Any, args: tuple[Any, ...], names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with named ones moved to their positions where the function allows that."""
    bound = check_call(fn.__name__.strip("_"), fn, args, names)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _trace(
    raw: Any, args: tuple[Any, ...], names: dict[str, Any], leaves: Leaves, key: Any
) -> tuple[TensorExpr, Leaves]:
    cls = args[0].__class__
    rest = iter(key[1:])  # for each tensor its expression and which leaves (None: the first ones)

    def abstracted(a: Any) -> Any:
        e = next(rest)
        if a.__class__ is not cls:
            return a
        where = next(rest)
        return abstract(cast("TensorBase", a), e, tuple(range(e.n)) if where is None else where)

    result = traced(raw, *[abstracted(a) for a in args], **names)
    if not isinstance(result, cls):
        raise UsageError(f"{raw.__name__} must return one tensor, it returned {result!r}")
    return _finish(cast("TensorBase", result), leaves, key, args[0], (raw, args, names))
