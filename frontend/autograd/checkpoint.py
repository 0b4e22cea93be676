"""Activation checkpointing: intermediate values are computed again for the gradient, instead of kept.

    from frontend import checkpoint

    x = checkpoint(block, x)          # as torch.utils.checkpoint.checkpoint

The function runs once, when `checkpoint` is called. Its arguments and results are marked (`INPUT`,
`SEGMENT`), which costs nothing; `segments` computes what lies between the marks again. One launch holds both
computations when nothing of them is realized before, as in a training step whose optimiser realizes
everything. Random draws are part of the expression: the second computation has the same numbers.

Not here: the second computation (`segments`), gradients (`engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from frontend.arguments.checks import whole
from frontend.arguments.conversion import flag, shown
from frontend.containers import filled, flattened
from frontend.evaluation.base import T
from frontend.evaluation.expr import INPUT, SEGMENT
from frontend.evaluation.trace import apply, composite, method
from hcq.errors import UsageError, UsageTypeError


@method
def _input(self: T) -> T:
    return apply(INPUT, None, self)


@composite
def _segment(self: T, *inputs: T) -> T:
    return apply(SEGMENT, None, self, *inputs)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **names: Any,
) -> Any:
    """Return `function(*args, **names)`; `backward` computes its intermediate values again.

    The results and gradients are those of a plain call, of any order, random draws included. Tensors among
    the arguments, also in containers, are kept; what the function uses from outside is as in a plain call.
    The result is a tensor, or a container of tensors.

    `preserve_rng_state` and `use_reentrant` are PyTorch's. Draws are always preserved, and gradients flow to
    all tensors that the function uses, so that both values of each give the same.

    Raises `UsageTypeError` for a function that cannot be called or returns anything but tensors, and
    `UsageError` when the function assigns to an argument, which the caller's tensor would not follow.
    """
    if not callable(function):
        raise UsageTypeError(f"checkpoint: wanted a function, saw {shown(function)}")
    if use_reentrant is not None:
        flag(use_reentrant, "checkpoint, use_reentrant")
    flag(preserve_rng_state, "checkpoint, preserve_rng_state")
    given: list[Any] = []
    nest = flattened((args, names), given, "", strict=False)
    inputs = [_input(t) if t.expr.dtype.is_float else t for t in given]
    before = [t.expr for t in inputs]
    new_args, new_names = filled(nest, inputs)
    result = function(*new_args, **new_names)
    for i, (t, e) in enumerate(zip(inputs, before, strict=True)):
        if t is not given[i] and t.recipe.__class__ is not tuple and t.expr is not e.leaf:
            raise UsageError(
                f"checkpoint: the function assigns to its argument {i}, which the caller would not see\n"
                "hint: return the new value, or assign outside"
            )
    marks = [t for t, x in zip(inputs, given, strict=True) if t is not x]
    found: list[Any] = []
    try:
        outputs = flattened(result, found, "the function returns", strict=True)
    except UsageError as error:
        raise UsageTypeError(f"checkpoint: {error}") from None
    marked = [_segment(t, *marks) if marks and t.expr.dtype.is_float else t for t in found]
    return filled(outputs, marked)


def checkpoint_sequential(
    functions: Sequence[Callable[[Any], Any]], segments: int, input: Any, **settings: Any
) -> Any:
    """Return the input after all functions; they are checkpointed in `segments` parts, all but the last.

    `functions` may be an `nn.Sequential`. `settings` are those of `checkpoint`. Raises `UsageError` unless
    there are at least as many functions as segments.
    """
    each = list(functions)
    count = whole(segments, "checkpoint_sequential, segments")
    if not 1 <= count <= len(each):
        raise UsageError(
            f"checkpoint_sequential: wanted 1 to {len(each)} segments, as there are functions, saw {count}"
        )
    size = len(each) // count

    def part(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for f in functions:
                x = f(x)
            return x

        return run

    x = input
    for i in range(count - 1):
        x = checkpoint(part(each[i * size : (i + 1) * size]), x, **settings)
    return part(each[(count - 1) * size :])(x)
