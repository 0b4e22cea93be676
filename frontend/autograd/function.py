"""Functions whose gradient the user writes.

    class Clipped(Function):
        @staticmethod
        def forward(ctx: Context, x: Tensor, most: float) -> Tensor:
            ctx.save_for_backward(x)
            ctx.most = most
            return x.minimum(most)

        @staticmethod
        def backward(ctx: Context, g: Tensor) -> Tensor:
            return g                                  # also where x was limited

    y = Clipped.apply(x, 3.0)

`forward` runs once, without gradients. Each `backward` of what was computed from the results calls `backward`
once, with tensors that have values: it may read them, and take gradients of its own inside `enable_grad`.
What it computes can be differentiated again.

Not here: the rules of the built-in functions (`rules`). Next: `hooks`, which orders the calls in a graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from frontend.arguments.conversion import shown
from frontend.assignment import change
from frontend.autograd.hooks import marked, summed, token
from frontend.device import LOCK
from frontend.evaluation.base import THREAD, T, TensorBase
from frontend.evaluation.constants import constant, ruled, stopped
from frontend.evaluation.expr import inside
from frontend.evaluation.gradient_state import MARKED
from frontend.evaluation.printing import described
from frontend.evaluation.refresh import refresh
from frontend.evaluation.trace import composite, make
from frontend.ops.casts import cast
from frontend.ops.rearranging import sum_to_size
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.evaluation.history import Node


class FunctionContext:
    """What `forward` stores for `backward`: `saved_tensors`, and attributes of any name.

    Reading an attribute that `forward` has not set raises `AttributeError`.
    """

    saved_tensors: tuple[Any, ...] = ()
    """The tensors of `save_for_backward`."""
    needs_input_grad: tuple[bool, ...] = ()
    """Whether a gradient of each argument is wanted."""
    fixed: tuple[Any, ...] = ()
    """Results without a gradient."""
    dirty: tuple[Any, ...] = ()
    """Arguments that `forward` changes in place."""
    materialized: bool = True
    """Whether `backward` gets zeros, not None, for a result without a gradient."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors, or None, for `backward`, in place of those of an earlier call.

        Raises `UsageTypeError` for anything else.
        """
        if not all(t is None or hasattr(t, "expr") for t in tensors):
            raise UsageTypeError(f"save_for_backward: wanted tensors, saw {shown(tensors)}; set attributes")
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Let no gradient flow through some results."""
        self.fixed = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Name arguments that `forward` changes in place and returns: results, with its gradient."""
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:  # noqa: FBT001 - the field's signature
        """Choose whether `backward` gets zeros, or None, for a result without a gradient."""
        self.materialized = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"forward left no {name!r} in its context")


class Function:
    """A function of tensors with a gradient of its own: `forward` and `backward`, called by `apply`.

    A subclass defines both; a missing one raises `NotImplementedError`.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Return a tensor, or a tuple, given the arguments of `apply`; without `ctx` beside `setup_context`.

        No gradient flows through the operations inside.
        """
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Store what `backward` needs, if `forward` takes no context; a subclass may define it."""

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        """Return the gradient of each argument of `forward`, given that of each of its results.

        It is called once, with zeros, or None, for results that nothing was computed from. It returns one
        tensor for one argument, else a tuple with an entry for each argument, tensor or not; None is the
        entry of an argument without a gradient. Further entries may be None. A gradient has the shape of its
        argument, or one that the argument broadcasts to: it is summed, and cast to the argument's dtype.
        """
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Return `forward(ctx, *args)`, differentiated by `backward`.

        Raises `UsageError` when there is no tensor among the arguments, or among the results. When
        the gradient is taken, `UsageError` for another number of gradients than arguments or for another
        shape, `UsageTypeError` for an entry that is neither a tensor nor None.
        """
        ctx = FunctionContext()
        inputs = [i for i, a in enumerate(args) if hasattr(a, "expr")]
        if not inputs:
            raise UsageError(f"{cls.__name__}.apply: wanted a tensor among the arguments, saw {shown(args)}")
        ctx.needs_input_grad = tuple([bool(getattr(a, "requires_grad", False)) for a in args])
        before = {i: _unwritten(args[i]) for i in inputs}
        apart = cls.setup_context is not Function.setup_context
        cut, THREAD.cut = THREAD.cut, True
        try:
            value = cls.forward(*args) if apart else cls.forward(ctx, *args)
            if apart:
                cls.setup_context(ctx, args, value)
        finally:
            THREAD.cut = cut
        every = value if isinstance(value, tuple) else (value,)
        if not any(hasattr(v, "expr") for v in every):
            raise UsageError(f"{cls.__name__}.forward: wanted a tensor as its result, saw {shown(value)}")
        if cut:
            return value
        fixed = [any(v is t for t in ctx.fixed) for v in every]
        flowing = [
            k for k, v in enumerate(every) if hasattr(v, "expr") and v.expr.dtype.is_float and not fixed[k]
        ]
        given = [before[i] if any(args[i] is t for t in ctx.dirty) else args[i] for i in inputs]
        called = _Call(cls, ctx, args, every, flowing)
        MARKED[0] = True
        sources = [*given, *[t for t in ctx.saved_tensors if t is not None], token(given[0], called)]
        ctx.saved_tensors, found = (), [stopped(v) if f else v for v, f in zip(every, fixed, strict=True)]
        for k in flowing:
            v = every[k]
            new = marked(v, *sources, place=k)
            found[k] = change(v, new) if any(v is t for t in ctx.dirty) else new
            vars(ctx).update({n: new for n, kept in vars(ctx).items() if kept is v})
        called.results = {k: weakref.ref(found[k]) for k in flowing}
        return tuple(found) if isinstance(value, tuple) else found[0]


def _unwritten(x: TensorBase) -> TensorBase:
    """Return the present value of a tensor as another one, which no write in place changes."""
    new = make(x, (x.expr, x.leaves))
    if x.recipe.__class__ is tuple:
        new.recipe, new.epoch = x.recipe, x.epoch
    return new


class _Call:
    """One call of a `Function`, kept by a leaf of the graphs that lead to it."""

    def __init__(
        self, cls: type[Function], ctx: FunctionContext, args: Any, every: Any, flowing: list[int]
    ) -> None:
        self.cls, self.ctx, self.flowing, self.count = cls, ctx, flowing, len(args)
        self.inputs = [i for i, a in enumerate(args) if hasattr(a, "expr")]
        self.made = [(v.expr.shape, v.expr.dtype) if hasattr(v, "expr") else None for v in every]
        """(shape, dtype) of each result, None for what is no tensor."""
        self.kept = [next((k for k in flowing if every[k] is t), None) for t in ctx.saved_tensors]
        """For each saved tensor: its place among the results, None if it is no result."""
        self.missing = [t is None for t in ctx.saved_tensors]
        self.known = [weakref.ref(t) for t in ctx.saved_tensors if t is not None]
        self.results: dict[int, weakref.ref[TensorBase]] = {}

    def passed(self, found: Mapping[Node, T], _: Any, like: T) -> list[tuple[T, T | None]]:
        """Call `backward` with the gradients of the results; return the arguments with their gradients.

        Raises `UsageError` and `UsageTypeError` as `Function.apply` says of the gradient.
        """
        node = next(iter(found))
        sources = [make(like, inside(node, i)) for i in range(1, len(node[0].src))]
        every_g = summed(found)
        zeros = [
            None if r is None or not self.ctx.materialized else constant(like, 0, r[1], r[0])
            for r in self.made
        ]
        count = len(self.inputs)
        rest = iter(zip(self.known, sources[count:], strict=False))
        saved: list[Any] = [None if none else _known(*next(rest)) for none in self.missing]
        for i, k in enumerate(self.kept):
            if k is not None:
                t = self.results[k]()
                saved[i] = marked(saved[i], *sources, place=k) if t is None else t
        self.ctx.saved_tensors = tuple(saved)
        try:
            out = self.cls.backward(self.ctx, *[every_g.get(k, zero) for k, zero in enumerate(zeros)])
        finally:
            self.ctx.saved_tensors = ()
        every = out if isinstance(out, tuple) else (out,)
        while len(every) > self.count and every[-1] is None:
            every = every[:-1]
        name = f"{self.cls.__name__}.backward"
        if len(every) != self.count:
            raise UsageError(f"{name}: wanted {self.count} gradients, one an argument, saw {len(every)}")
        pairs = zip(self.inputs, sources, strict=False)
        return [(x, _fitted(every[i], x, f"{name}: the gradient of argument {i}")) for i, x in pairs]


def _known(ref: weakref.ref[TensorBase], x: Any) -> Any:
    """Return the tensor that a call was given, with its state, if it still has the value of x; else x."""
    t = ref()
    if t is not None and t.recipe.__class__ is tuple:
        with LOCK:
            refresh(t)
    return t if t is not None and (t.expr, t.leaves) == (x.expr, x.leaves) else x


def _fitted(g: Any, x: T, what: str) -> T | None:
    """Return a gradient of x in its shape and dtype: summed over axes along which x broadcasts to it."""
    if g is None:
        return None
    if not hasattr(g, "expr"):
        raise UsageTypeError(f"{what}: wanted a tensor or None, saw {shown(g)}")
    e = x.expr
    try:
        fitted: T = g if g.expr.shape == e.shape else sum_to_size(g, *e.shape)
    except UsageError:
        raise UsageError(f"{what} is {described(g)}, the argument {described(x)}") from None
    return fitted if g.expr.dtype is e.dtype or not e.dtype.is_float else cast(fitted, e.dtype)


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` so that it runs without gradients; a second derivative raises `UsageError`."""

    @wraps(function)
    def backward(ctx: Any, *g: Any) -> Any:
        cut, THREAD.cut = THREAD.cut, True
        try:
            found = function(ctx, *g)
        finally:
            THREAD.cut = cut
        behind = [t for t in g if getattr(t, "requires_grad", False)]
        every = found if isinstance(found, tuple) else (found,)
        return tuple([_once(v, *behind) if behind and hasattr(v, "expr") else v for v in every])

    return backward


@composite
def _once(self: T, *sources: T) -> T:
    return ruled("once", self, *sources)
