"""Marks in a graph at which `backward` calls functions with values: hooks of modules, calls of a `Function`.

The results of a module with hooks, its arguments that carry gradients, and the results of a `Function` are
marked. A mark is a RULED expression of the same value; its last source, the token, has a leaf that keeps the
call, so that all calls have one structure. `backward` differentiates the parts of the graph between marks
one after the other, users before sources.

Not here: registration (`frontend.nn.hooks`), hooks of tensors (`frontend.evaluation.gradient_state`), calls
of a `Function` (`function`). Next: `engine`, which differentiates the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from compiler.dtype import dtypes
from frontend.arguments.conversion import shown
from frontend.device import Device
from frontend.evaluation.base import THREAD, T
from frontend.evaluation.constants import ruled
from frontend.evaluation.expr import PARAM, RULED, TABLE, inside, leaf_expr
from frontend.evaluation.gradient_state import MARKED, written_since
from frontend.evaluation.history import Node, flowing_of, has_history, nodes
from frontend.evaluation.storage import NUMBERS, Leaf, behind
from frontend.evaluation.trace import composite, make
from frontend.ops.elementwise import add
from hcq.errors import UsageError, UsageTypeError


class _Hooked:
    """The marked arguments, or results, of one call of a module with hooks."""

    def __init__(self, module: Any, hooks: Any, values: tuple[Any, ...], entered: Any = None) -> None:
        self.module, self.hooks, self.entered, self.given = module, hooks, entered, len(values)
        """`entered`: the call that marks the arguments, for that of the results."""
        self.places = [i for i, v in enumerate(values) if hasattr(v, "expr") and has_history(v)]
        plain = [values[i] for i in self.places]
        rest = (*plain, token(plain[0], self)) if plain else ()
        found = [marked(t, *rest, place=i) for i, t in enumerate(plain)]
        self.values = tuple((dict(enumerate(values)) | dict(zip(self.places, found, strict=True))).values())

    def passed(self, found: Mapping[Node, T], outputs: dict[Any, Any], like: T) -> list[tuple[T, T | None]]:
        """Call the hooks with the gradients of the marks; return the tensors before them with theirs.

        `outputs` keeps the gradients of the results of a call for the hooks at its arguments. Raises
        `UsageError` and `UsageTypeError` for what a hook returns.
        """
        each = summed(found)
        by_place = dict(zip(self.places, map(each.get, range(len(self.places))), strict=True))
        grads, entered = tuple(map(by_place.get, range(self.given))), self.entered
        if entered is not None:
            for hook, _ in self.hooks.every("gradient_before"):
                grads = _replaced(grads, hook(self.module, grads), "output")
            outputs[entered] = grads
            if not entered.places:
                for hook, _ in self.hooks.every("gradient_after"):
                    hook(self.module, (None,) * entered.given, grads)
        else:
            after = outputs.get(self)
            if after is None:
                raise UsageError(
                    f"a hook of {type(self.module).__name__}: saw a gradient of an argument and none of a "
                    "result\n"
                    "hint: differentiate what was computed from the results alone"
                )
            for hook, _ in self.hooks.every("gradient_after"):
                grads = _replaced(grads, hook(self.module, grads, after), "input")
        node = next(iter(found))
        return [(make(like, inside(node, 1 + i)), grads[place]) for i, place in enumerate(self.places)]


@composite
def marked(self: T, *sources: T, place: int) -> T:
    """Return the same value with a mark: the place of a result or argument in its call."""
    return ruled("mark", self, *sources, about=(place,))


def token(like: T, call: Any) -> T:
    """Return a tensor whose leaf keeps a call: the last source of its marks."""
    device = Device[like.expr.device]
    leaf = Leaf(device.write_small(bytes(16)))
    leaf.call, call.number = call, next(NUMBERS)
    return make(like, (leaf_expr((), dtypes.bool, device.name), (leaf,)))


def call(module: Any, hooks: Any, args: tuple[Any, ...], forward: Callable[..., Any]) -> Any:
    """Return `forward(*args)`, with marks at its arguments and results that carry gradients."""
    if THREAD.cut:
        return forward(*args)
    MARKED[0] = True
    entered = _Hooked(module, hooks, args)
    given, entered.values = entered.values, ()
    out = forward(*given)
    results = _Hooked(module, hooks, out if isinstance(out, tuple) else (out,), entered)
    found, results.values = results.values, ()
    return found if isinstance(out, tuple) else found[0]


def points(t: Any) -> list[Node]:
    """Return the marked nodes of a tensor's graph."""
    key = ("marks", t.expr)
    found = TABLE.get(key)
    if found is None:
        every = nodes((t.expr, tuple(range(len(t.leaves)))))
        found = TABLE[key] = [(e, on) for e, on in every if e.op is RULED and e.arg[0] == "mark"]
    return [(e, tuple([t.leaves[i] for i in numbers])) for e, numbers in found]


def _token(node: Node) -> Leaf:
    leaf: Leaf = inside(node, len(node[0].src) - 1)[1][0]
    return leaf


def _under(leaves: Iterable[Leaf]) -> set[Leaf]:
    """Return leaves and all that they were computed from."""
    return {*leaves, *[leaf for moved in behind(leaves) for leaf in moved.origin.leaves]}


def ready(waiting: Iterable[Any]) -> list[Node]:
    """Return the marks of the youngest call that is reached from no other mark or leaf, or []."""
    groups: dict[Leaf, list[Node]] = {}
    for place in waiting:
        if place.__class__ is tuple:
            groups.setdefault(_token(place), []).append(place)
    leaves = {w: w.origin.leaves for w in waiting if w.__class__ is Leaf}
    leaves |= {own: [leaf for node in group for leaf in node[1]] for own, group in groups.items()}
    under = {place: _under(on) for place, on in leaves.items()} if groups else {}
    free = [t for t in groups if not any(t in found for other, found in under.items() if other is not t)]
    return groups[max(free, key=lambda t: t.call.number)] if free else []


def summed(found: Mapping[Node, T]) -> dict[int, T]:
    """Return the gradients of the marks of one call by place; a value read since may have several marks."""
    each: dict[int, T] = {}
    for node, g in found.items():
        place = node[0].arg[1]
        each[place] = add(each[place], g) if place in each else g
    return each


def called(
    found: Mapping[Node, T], outputs: dict[Any, Any], targets: Sequence[T], leading: set[Leaf], like: T
) -> list[tuple[T, T]]:
    """Call the function of the marks of one call; return the tensors before them with their gradients.

    It is not called where no gradient can reach a target, or a leaf of `leading`. Raises as `Function.apply`
    says of the gradient, and as the hooks of modules do.
    """
    node = next(iter(found))
    wanted = leading.union(t.leaves[0] for t in targets if t.expr.op is PARAM)
    flows = not wanted.isdisjoint([leaf for e, on in found for leaf in (on[i] for i in flowing_of(e))])
    pending = any(set(t.leaves) <= set(node[1]) for t in targets if t.expr.op is not PARAM)
    if not (flows or pending or written_since(node[1])):
        return []
    return [(t, g) for t, g in _token(node).call.passed(found, outputs, like) if g is not None]


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
