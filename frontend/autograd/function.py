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

`backward` may be called once for many gradients of one structure. It therefore uses `ctx` and its argument
alone, and tensor operations, which can be differentiated again.

Not here: the rules of the built-in functions (`rules`). Next: `engine`, which calls the rules.
"""

from __future__ import annotations

from typing import Any, Final

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.conversion import shown
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import constant, number_like, ruled, stopped
from frontend.evaluation.expr import inside
from frontend.evaluation.gradient_state import CALLED
from frontend.evaluation.printing import described
from frontend.evaluation.trace import composite, make
from frontend.ops.elementwise import add
from hcq.errors import UsageError, UsageTypeError

_SAVED: Final = "saved tensors"
"""The name, no attribute's, under which a rule keeps which of the saved values are None."""
_NEEDS: Final = "needs input grad"
"""The name, no attribute's, under which a rule keeps which arguments want a gradient, as 0 and 1."""


_KEPT: Final = frozenset({"saved_tensors", "needs_input_grad", "fixed"})
"""Attributes of a context that are no part of a rule."""


class FunctionContext:
    """What `forward` stores for `backward`: `saved_tensors`, and attributes of any name.

    Reading an attribute that `forward` has not set raises `AttributeError`.
    """

    saved_tensors: tuple[Any, ...] = ()
    """The tensors of `save_for_backward`; in `backward` abstract ones, whose values cannot be read."""
    needs_input_grad: tuple[bool, ...] = ()
    """Whether a gradient of each argument is wanted."""
    fixed: tuple[Any, ...] = ()
    """Results without a gradient."""
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
        entry of an argument without a gradient. Further entries may be None. A gradient has the shape and
        dtype of its argument.
        """
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Return `forward(ctx, *args)`, differentiated by `backward`.

        Raises `UsageError` when there is no tensor among the arguments, or among the results. When
        the gradient is taken, `UsageError` for another number of gradients than arguments or for another
        shape or dtype, `UsageTypeError` for an entry that is neither a tensor nor None.
        """
        ctx = FunctionContext()
        inputs = [i for i, a in enumerate(args) if hasattr(a, "expr")]
        if not inputs:
            raise UsageError(f"{cls.__name__}.apply: wanted a tensor among the arguments, saw {shown(args)}")
        ctx.needs_input_grad = tuple([bool(getattr(a, "requires_grad", False)) for a in args])
        apart = cls.setup_context is not Function.setup_context
        value = cls.forward(*args) if apart else cls.forward(ctx, *args)
        if apart:
            cls.setup_context(ctx, args, value)
        every = value if isinstance(value, tuple) else (value,)
        if not any(hasattr(v, "expr") for v in every):
            raise UsageError(f"{cls.__name__}.forward: wanted a tensor as its result, saw {shown(value)}")
        saved = [t for t in ctx.saved_tensors if t is not None]
        left = {n: v for n, v in vars(ctx).items() if n not in _KEPT}
        left[_NEEDS] = "".join(["01"[needed] for needed in ctx.needs_input_grad])
        if len(saved) < len(ctx.saved_tensors):
            left[_SAVED] = " ".join(["none" if t is None else "tensor" for t in ctx.saved_tensors])
        results = tuple([(v.expr.shape, v.expr.dtype) if hasattr(v, "expr") else None for v in every])
        given, found = [*[args[i] for i in inputs], *saved], list(every)
        fixed = [k for k, v in enumerate(every) if any(v is t for t in ctx.fixed)]
        flowing = [k for k, r in enumerate(results) if r is not None and r[1].is_float and k not in fixed]
        rule = FunctionRule(cls, left, len(args), tuple(inputs), (tuple(flowing), results))
        CALLED[0] |= len(flowing) > 1
        call = _call(*given, rule=rule) if len(flowing) > 1 else None
        for k in fixed:
            found[k] = stopped(every[k])
        for k in flowing:
            own = (
                _with_rule(every[k], *given, rule=rule) if call is None else _result(every[k], call, place=k)
            )
            found[k] = own
        return tuple(found) if isinstance(value, tuple) else found[0]


class FunctionRule:
    """The gradient rule of one call of a `Function`: its class, and the attributes that `forward` stored.

    It is part of an expression's key. Two rules are equal where class, arguments and plain attributes
    (numbers, texts, None) are; a rule with other attributes is equal to itself only.
    """

    def __init__(
        self,
        cls: type[Function],
        left: dict[str, Any],
        count: int,
        inputs: tuple[int, ...],
        result: tuple[tuple[int, ...], tuple[Any, ...]],
    ) -> None:
        self.cls = cls
        self.left = left
        self.count = count
        self.inputs = inputs
        self.result = result
        """The places of results with gradients, and (shape, dtype) of all, None for what is no tensor."""

    def _key(self) -> tuple[Any, ...]:
        return self.cls, self.count, self.inputs, self.result, repr(sorted(self.left.items()))

    def _plain(self) -> bool:
        return all(v is None or isinstance(v, (bool, int, float, str)) for v in self.left.values())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, FunctionRule)
            and self._plain()
            and other._plain()
            and self._key() == other._key()
        )

    def __hash__(self) -> int:
        return hash((self.cls, self.count, self.inputs, self.result))

    def gradients(self, g: Any, sources: tuple[TensorBase, ...]) -> tuple[TensorBase | None, ...]:
        """Return the gradient of each source: from `backward` for the arguments, None for saved tensors.

        `g` is the gradient of the one result that has one, or the packed ones of several.

        Raises `UsageError` and `UsageTypeError` as `Function.apply` says of the gradient.
        """
        n = len(self.inputs)
        ctx = FunctionContext()
        vars(ctx).update({name: value for name, value in self.left.items() if name not in {_SAVED, _NEEDS}})
        ctx.needs_input_grad = tuple([wanted == "1" for wanted in self.left[_NEEDS]])
        rest = iter(sources[n:])
        kinds = self.left[_SAVED].split() if _SAVED in self.left else ["tensor"] * len(sources[n:])
        ctx.saved_tensors = tuple([next(rest) if kind == "tensor" else None for kind in kinds])
        places, results = self.result
        every_g = _unpacked(g) if len(places) > 1 else {places[0]: g}
        zeros = [
            None if r is None or not ctx.materialized else constant(sources[0], 0, r[1], r[0])
            for r in results
        ]
        found = self.cls.backward(ctx, *[every_g.get(k, zero) for k, zero in enumerate(zeros)])
        every = found if isinstance(found, tuple) else (found,)
        while len(every) > self.count and every[-1] is None:
            every = every[:-1]
        name = f"{self.cls.__name__}.backward"
        if len(every) != self.count:
            raise UsageError(f"{name}: wanted {self.count} gradients, one an argument, saw {len(every)}")
        for i, x in zip(self.inputs, sources, strict=False):
            part = every[i]
            if part is not None and not hasattr(part, "expr"):
                raise UsageTypeError(f"{name}: wanted a tensor or None for argument {i}, saw {shown(part)}")
            if part is not None and (part.expr.shape, part.expr.dtype) != (x.expr.shape, x.expr.dtype):
                raise UsageError(
                    f"{name}: the gradient of argument {i} is {described(part)}, the argument {described(x)}"
                )
        return (*[every[i] for i in self.inputs], *[None] * (len(sources) - n))


def _unpacked(g: TensorBase) -> dict[int, TensorBase]:
    """Return the gradients of the results of one call by place, given the sum of what `_Place` packed."""
    if g.expr.op is Ops.ADD:
        first, second = (_unpacked(make(g, inside((g.expr, g.leaves), i))) for i in range(2))
        return first | {k: add(first[k], part) if k in first else part for k, part in second.items()}
    return {int(g.expr.arg[1]): make(g, inside((g.expr, g.leaves), 1))}


class _Place(int):
    """The gradient rule of one of several results of a call: its place among them."""

    def gradients(self, g: TensorBase, sources: tuple[TensorBase, ...]) -> tuple[TensorBase]:
        """Return the gradient of the call, a number that holds g."""
        return (ruled("custom", number_like(sources[0], 0.0), g, about=(self,)),)


@composite
def _call(self: T, *sources: T, rule: FunctionRule) -> T:
    """Return a number that stands for a call with several results, whose gradient holds theirs."""
    return ruled("call", constant(self, 0.0, dtypes.float32, ()), self, *sources, about=(rule,))


@composite
def _result(self: T, call: T, place: int) -> T:
    return ruled("custom", self, call, about=(_Place(place),))


@composite
def _with_rule(self: T, *sources: T, rule: FunctionRule) -> T:
    return ruled("custom", self, *sources, about=(rule,))
