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

from typing import TYPE_CHECKING, Any, Final, cast

from frontend.arguments.conversion import shown
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import ruled
from frontend.evaluation.printing import described
from frontend.evaluation.trace import composite
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


_SAVED: Final = "saved tensors"
"""The name, no attribute's, under which a rule keeps which of the saved values are None."""
_NEEDS: Final = "needs input grad"
"""The name, no attribute's, under which a rule keeps which arguments want a gradient, as 0 and 1."""


class FunctionContext:
    """What `forward` stores for `backward`: `saved_tensors`, and attributes of any name.

    Reading an attribute that `forward` has not set raises `AttributeError`.
    """

    saved_tensors: tuple[Any, ...] = ()
    """The tensors of `save_for_backward`; in `backward` abstract ones, whose values cannot be read."""
    needs_input_grad: tuple[bool, ...] = ()
    """In `backward`: whether a gradient of each argument is wanted."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors, or None, for `backward`, in place of those of an earlier call.

        Raises `UsageTypeError` for anything else.
        """
        if not all(t is None or hasattr(t, "expr") for t in tensors):
            raise UsageTypeError(f"save_for_backward: wanted tensors, saw {shown(tensors)}; set attributes")
        self.saved_tensors = tensors

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"forward left no {name!r} in its context")


class Function:
    """A function of tensors with a gradient of its own: `forward` and `backward`, called by `apply`.

    A subclass defines both; a missing one raises `NotImplementedError`.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Return one tensor, given the arguments of `apply`.

        No gradient flows through the operations inside.
        """
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Return the gradient of each argument of `forward`, given that of its result.

        It is one tensor for one argument, else a tuple with an entry for each argument, tensor or not; None
        is the entry of an argument without a gradient. Further entries may be None. A gradient has the shape
        and dtype of its argument.
        """
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Tensor:
        """Return `forward(ctx, *args)`, differentiated by `backward`.

        Raises `UsageError` when there is no tensor among the arguments, or the result is not one tensor. When
        the gradient is taken, `UsageError` for another number of gradients than arguments or for another
        shape or dtype, `UsageTypeError` for an entry that is neither a tensor nor None.
        """
        ctx = FunctionContext()
        inputs = [i for i, a in enumerate(args) if hasattr(a, "expr")]
        if not inputs:
            raise UsageError(f"{cls.__name__}.apply: wanted a tensor among the arguments, saw {shown(args)}")
        value = cls.forward(ctx, *args)
        if not hasattr(value, "expr"):
            raise UsageError(f"{cls.__name__}.forward: wanted one tensor as its result, saw {shown(value)}")
        saved = [t for t in ctx.saved_tensors if t is not None]
        left = {n: v for n, v in vars(ctx).items() if n != "saved_tensors"}
        left[_NEEDS] = "".join(["01"[bool(getattr(a, "requires_grad", False))] for a in args])
        if len(saved) < len(ctx.saved_tensors):
            left[_SAVED] = " ".join(["none" if t is None else "tensor" for t in ctx.saved_tensors])
        rule = FunctionRule(cls, left, len(args), tuple(inputs))
        return cast("Tensor", _with_rule(value, *[args[i] for i in inputs], *saved, rule=rule))


class FunctionRule:
    """The gradient rule of one call of a `Function`: its class, and the attributes that `forward` stored.

    It is part of an expression's key. Two rules are equal where class, arguments and plain attributes
    (numbers, texts, None) are; a rule with other attributes is equal to itself only.
    """

    def __init__(
        self, cls: type[Function], left: dict[str, Any], count: int, inputs: tuple[int, ...]
    ) -> None:
        self.cls = cls
        self.left = left
        self.count = count
        self.inputs = inputs

    def _key(self) -> tuple[Any, ...]:
        return self.cls, self.count, self.inputs, repr(sorted(self.left.items()))

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
        return hash((self.cls, self.count, self.inputs))

    def gradients(self, g: TensorBase, sources: tuple[TensorBase, ...]) -> tuple[TensorBase | None, ...]:
        """Return the gradient of each source: from `backward` for the arguments, None for saved tensors.

        Raises `UsageError` and `UsageTypeError` as `Function.apply` says of the gradient.
        """
        n = len(self.inputs)
        ctx = FunctionContext()
        vars(ctx).update({name: value for name, value in self.left.items() if name not in {_SAVED, _NEEDS}})
        ctx.needs_input_grad = tuple([wanted == "1" for wanted in self.left[_NEEDS]])
        rest = iter(sources[n:])
        kinds = self.left[_SAVED].split() if _SAVED in self.left else ["tensor"] * len(sources[n:])
        ctx.saved_tensors = tuple([next(rest) if kind == "tensor" else None for kind in kinds])
        found = self.cls.backward(ctx, g)
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


@composite
def _with_rule(self: T, *sources: T, rule: FunctionRule) -> T:
    return ruled("custom", self, *sources, about=(rule,))
