"""Hooks of the gradients of modules: marks in a graph at which `backward` calls functions with values.

The results of a module with hooks, and its arguments that carry gradients, are marked. A mark is a RULED
expression of the same value. `backward` differentiates the parts of the graph between marks one after the
other, the youngest mark first, and passes the gradients on that the hooks return.

Not here: registration (`frontend.nn.hooks`), hooks of tensors (`frontend.evaluation.gradient_state`). Next:
`engine`, which differentiates the parts.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from frontend.arguments.conversion import shown
from frontend.evaluation.base import THREAD, T
from frontend.evaluation.constants import ruled
from frontend.evaluation.expr import RULED, TABLE, inside
from frontend.evaluation.gradient_state import MARKED
from frontend.evaluation.history import Node, has_history
from frontend.evaluation.trace import composite, make
from hcq.errors import UsageError, UsageTypeError

_NUMBERS: Final = itertools.count()


class Mark:
    """The place of one marked tensor in a call of a module; part of an expression's key.

    The marks of equal calls are equal, so that their structures are: `number` is that of the first, and
    orders the marks of a graph. Calls since the hooks were last called in a `backward` are told apart.
    """

    def __init__(self, module: Any, hooks: Any, about: tuple[Any, ...]) -> None:
        self.module, self.hooks, self.about, self.number = weakref.ref(module), hooks, about, next(_NUMBERS)
        self.call, self.index, self.places, self.given, self.inputs = about
        """`places`: of the marked ones among all arguments, or results, of which there are `given`. `inputs`
        of a result: places and number of the arguments, whose marks are the last sources."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and self.hooks is other.hooks and self.about == other.about

    def __hash__(self) -> int:
        return hash((id(self.hooks), self.about))

    def gradients(self, g: T, sources: tuple[T, ...]) -> tuple[T | None, ...]:
        """Return the gradient of each source."""
        return tuple([g if i == self.index else None for i in range(len(sources))])


@composite
def _marked(self: T, *sources: T, mark: Mark) -> T:
    return ruled("custom", self, *sources, about=(mark,))


def call(module: Any, hooks: Any, args: tuple[Any, ...], forward: Callable[..., Any]) -> Any:
    """Return `forward(*args)`, with marks at its arguments and results that carry gradients."""
    if THREAD.cut:
        return forward(*args)
    hooks.calls += 1
    number, MARKED[0] = hooks.calls, True

    def marked(values: tuple[Any, ...], behind: Sequence[Any], inputs: Any = None) -> tuple[Any, Any, Any]:
        """Return the values with marks, the places that have one, and the marked tensors."""
        places = tuple([i for i, v in enumerate(values) if hasattr(v, "expr") and has_history(v)])
        plain = [values[i] for i in places]
        marks = [Mark(module, hooks, (number, i, places, len(values), inputs)) for i in range(len(plain))]
        found = [_marked(t, *plain, *behind, mark=m) for t, m in zip(plain, marks, strict=True)]
        every = dict(enumerate(values)) | dict(zip(places, found, strict=True))
        return tuple(every.values()), places, found

    given, flows, entered = marked(args, ())
    out = forward(*given)
    several = isinstance(out, tuple)
    results, places, _ = marked(out if several else (out,), entered, (flows, len(args)))
    for place in places[:1]:  # a leaf of the graph keeps the module for its hooks
        own = [leaf for leaf in results[place].leaves if not any(leaf in t.leaves for t in entered)]
        leaf = (own or results[place].leaves)[0]
        leaf.owners = {*getattr(leaf, "owners", ()), module}
    return results if several else results[0]


def points(t: Any) -> list[Node]:
    """Return the marked nodes of a tensor's graph."""
    key = ("marks", t.expr)
    found = TABLE.get(key)
    if found is None:
        seen: set[Node] = set()
        stack: list[Node] = [(t.expr, tuple(range(len(t.leaves))))]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += [inside(node, i) for i in range(len(node[0].src))]
        found = TABLE[key] = [node for node in seen if _mark_of(node) is not None]
    return [(e, tuple([t.leaves[i] for i in numbers])) for e, numbers in found]


def _mark_of(node: Node) -> Any:
    e = node[0]
    own = e.op is RULED and e.arg[0] == "custom"
    return e.arg[1] if own and isinstance(e.arg[1], Mark) else None


def called(
    waiting: dict[Node, T], every: Sequence[Node], outputs: dict[Any, Any], like: T
) -> list[tuple[T, T]]:
    """Call the hooks of the youngest waiting mark's tensors, which are removed from `waiting`.

    Return the tensors before the marks with their gradients. `outputs` keeps the gradients of the results of
    a call for the hooks at its arguments. Raises `UsageError` and `UsageTypeError` for what a hook returns.
    """
    youngest = max(waiting, key=lambda node: _mark_of(node).number)
    mark = _mark_of(youngest)
    count, mark.hooks.calls = len(mark.places), 0
    around = [inside(youngest, i) for i in range(1, len(youngest[0].src))]
    same = {_mark_of(n).index: n for n in every if _alike(n, mark, around)}
    found: list[T | None] = [None] * mark.given
    for i, node in same.items():
        found[mark.places[i]] = waiting.pop(node, None)
    module, grads = mark.module(), tuple(found)
    if mark.inputs is not None:
        for hook, _ in mark.hooks.every("gradient_before"):
            grads = _replaced(grads, hook(module, grads), "output")
        outputs[mark.hooks, tuple(around[count:])] = grads
        if not mark.inputs[0]:
            for hook, _ in mark.hooks.every("gradient_after"):
                hook(module, (None,) * mark.inputs[1], grads)
    else:
        after = outputs.get((mark.hooks, tuple([same[i] for i in range(count)])))
        if after is None:
            raise UsageError(
                f"a hook of {type(module).__name__}: saw a gradient of an argument and none of a result\n"
                "hint: differentiate what was computed from the results alone"
            )
        for hook, _ in mark.hooks.every("gradient_after"):
            grads = _replaced(grads, hook(module, grads, after), "input")
    pairs = [(make(like, around[i]), grads[place]) for i, place in enumerate(mark.places)]
    return [(t, g) for t, g in pairs if g is not None]


def _alike(node: Node, mark: Mark, around: list[Node]) -> bool:
    """Return whether a node is marked in the same call as another one, at the same side."""
    own = _mark_of(node)
    same = (own.hooks, own.call, own.places, own.inputs) == (mark.hooks, mark.call, mark.places, mark.inputs)
    return same and [inside(node, i) for i in range(1, len(node[0].src))] == around


def _replaced(grads: tuple[Any, ...], found: Any, what: str) -> tuple[Any, ...]:
    """Return the gradients after a hook that returned `found`."""
    if found is None:
        return grads
    every = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(every) != len(grads):
        raise UsageError(f"a hook of a module: wanted {len(grads)} gradients of {what}s, saw {len(every)}")
    for new, old in zip(every, grads, strict=True):
        if new is not None and not hasattr(new, "expr"):
            raise UsageTypeError(f"a hook of a module: wanted a gradient, a tensor or None, saw {shown(new)}")
        if new is not None and old is not None and new.shape != old.shape:
            raise UsageError(f"a hook of a module: wanted a gradient of shape {old.shape}, saw {new.shape}")
    return every
