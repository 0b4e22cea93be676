"""Activation checkpointing: intermediate values are computed again for the gradient, instead of kept.

    from frontend import checkpoint

    x = checkpoint(block, x)          # as torch.utils.checkpoint.checkpoint

The Python function runs once, when `checkpoint` is called. Its float arguments become INPUT nodes and its
float results SEGMENT nodes, which cost no work. Where a gradient reaches a SEGMENT, `segments` builds the
operations between the two kinds of nodes a second time. Where nothing is realized before, as in a training
step whose optimiser realizes everything, one launch holds both computations. Random draws are part of the
expression, so the second computation has the same numbers.

Not here: gradients (`engine`). Next: `segments`, the second computation.
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

    Results, random draws and gradients of any order are those of a plain call. The values of tensors among
    the arguments, also in containers, are kept in memory for the second computation, and so are tensors that
    the function uses from outside. The function returns a tensor or a container of tensors.

    `preserve_rng_state` and `use_reentrant` are PyTorch's, and change nothing: draws are always preserved,
    and gradients flow to all tensors that the function uses.

    Raises `UsageTypeError` for a function that cannot be called or returns anything but tensors, and
    `UsageError` when the function assigns to an argument: the caller's tensor would keep its value.
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
    """Return the result of all functions in turn, checkpointed in `segments` parts but for the last part.

    `functions` may be an `nn.Sequential`. `settings` are those of `checkpoint`. Raises `UsageError` unless
    there are at least as many functions as segments, `UsageTypeError` for a number of segments that is no
    whole number, and as `checkpoint`.
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
