"""The repetition of a function's expression, for calls whose results carry gradients.

A launch that is replayed keeps no history. `History` therefore records the expressions that a call returns,
over stand-ins of its arguments, and builds them again over the arguments and the outside tensors of later
calls. No Python code of the function runs. The results are pending tensors with a history, as those of a
plain call: a later `backward` differentiates them, and the step of an optimiser computes everything in one
launch. Random draws are new at each call.

`record` gives the cause instead of a history where this would not do the same: the function assigns to a
tensor, registers hooks, or returns a tensor that existed before or shares elements with one.

Not here: replayed launches (`jit`), the choice between both (`compiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from frontend.arguments.checks import FLOAT
from frontend.capture.captured import settle
from frontend.containers import filled, flattened
from frontend.device import LOCK
from frontend.evaluation import gradient_state as grad_state
from frontend.evaluation.base import THREAD
from frontend.evaluation.expr import PARAM, VERSION, Part, TensorExpr, inside, join
from frontend.evaluation.history import realize_for_reading
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.realize import pending
from frontend.evaluation.storage import Leaf
from frontend.evaluation.views import others
from frontend.ops.random import draw
from frontend.tensor import Tensor
from hcq.errors import UsageError

ASSIGNS: Final = "it assigns to a tensor, and its result has gradients"
HOOKS: Final = "it sets requires_grad or a hook of a tensor, and its result has gradients"
_LIMIT: Final = 64
"""The most structures of tensors for which one history keeps its expressions."""


def assigned() -> dict[int, tuple[Any, Any]]:
    """Return id -> (tensor, recipe) of the tensors with a pending assignment, which a later call compares."""
    return {id(t): (t, t.recipe) for t in pending()}


def same_assignments(before: dict[int, tuple[Any, Any]]) -> bool:
    """Return whether no tensor was assigned to since `assigned` returned `before`."""
    return all(i in before and before[i][1] is t.recipe for i, t in [(id(t), t) for t in pending()])


def _around() -> tuple[Any, ...]:
    """Return the modes of the process that functions of tensors read."""
    return THREAD.precision, Tensor.training, FLOAT[0]


class History:
    """The expressions of one call, over its arguments, outside tensors and random draws."""

    def __init__(
        self, nest: Any, results: list[Part], outside: list[Tensor], places: list[Leaf], draws: list[str]
    ) -> None:
        self._nest, self._results, self._outside = nest, results, outside
        self._places = places
        """The leaf in `results` of each argument, then of each outside tensor, then of each draw."""
        self._draws = draws
        """The device of each draw."""
        self._modes = _around()
        self._kinds = [t.expr.leaf for t in outside]
        self._found: dict[Any, list[tuple[TensorExpr, tuple[int, ...]]]] = {}

    def changed(self) -> str:
        """Return what changed since the recording, so that `run` would differ, as a text; "": nothing."""
        if _around() != self._modes:
            return "the mode of autocast or Tensor.train, or the default dtype changed"
        gone = [t for t, e in zip(self._outside, self._kinds, strict=True) if t.expr.leaf is not e]
        return f"{described(gone[0])} has another shape, dtype or device" if gone else ""

    def run(self, tensors: list[Tensor]) -> Any:
        """Return the results for `tensors`, the arguments, in their containers."""
        return self.replayed([*tensors, *self._outside, *[draw(Tensor, d) for d in self._draws]])

    def replayed(self, every: list[Tensor]) -> Any:
        """Return the results for the arguments, the outside tensors and the draws."""
        return filled(self._nest, [self._made(i, *every) for i in range(len(self._results))])

    def _made(self, number: int, *every: Tensor) -> Tensor:
        with LOCK:
            parts = [(t.expr, t.leaves) for t in every]
            epoch = min([t.epoch for t in every])
        order = list(dict.fromkeys([leaf for _, leaves in parts for leaf in leaves]))
        at = {leaf: i for i, leaf in enumerate(order)}
        over = [(e, tuple([at[leaf] for leaf in leaves])) for e, leaves in parts]
        key = tuple(over)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _LIMIT:
                self._found.clear()
            given: dict[Any, Part] = dict(zip(self._places, over, strict=True))
            found = self._found[key] = rebuilt(self._results, given)
        e, leaves = found[number]
        t = Tensor.of_part((e, tuple([order[i] for i in leaves])))
        t.recipe, t.epoch = (partial(self._made, number), *every), epoch
        for other in every:
            other.used = True
        return t


def rebuilt(roots: Iterable[Part], given: dict[Any, Part]) -> list[Part]:
    """Return expressions with the leaves of `given` replaced by their parts."""
    new: dict[Part, Part] = {}
    out: list[Part] = []
    for root in roots:
        stack = [root]
        while stack:
            node = stack[-1]
            e = node[0]
            sources = [inside(node, i) for i in range(len(e.src))]
            waiting = [s for s in sources if s not in new]
            if node in new or not waiting:
                stack.pop()
                if node not in new and e.op is PARAM:
                    new[node] = given.get(node[1][0], node)
                elif node not in new:
                    new[node] = join(e.op, e.arg, *[new[s] for s in sources]) if sources else node
            else:
                stack += waiting
        out.append(new[root])
    return out


def record(
    fn: Callable[..., Any], shape: Any, tensors: list[Tensor], outside: list[Tensor]
) -> tuple[Any, History | None, str]:
    """Call a function on stand-ins of its arguments; return (result, history, cause that there is none).

    `shape` are the containers of the arguments, with places of `tensors`; `outside` the tensors that the
    function can read. The result is that of a plain call. Raises the errors of the function, and `UsageError`
    if it assigns to a tensor or hooks one, which the call before did not.
    """
    with LOCK:
        settle()
    stand_ins = []
    for t in tensors:
        realize_for_reading(t)
        stand_in = Tensor.of_part((t.expr.leaf, (Leaf(t.leaves[0].buffer),)))
        stand_ins.append(stand_in)
        if t.requires_grad:
            grad_state.want((stand_in,), True)
    marks = [t.leaves[0] for t in stand_ins]
    before, wanting = assigned(), {id(t) for t in grad_state.wanting()}
    notes, draws = list[str](), list[Tensor]()
    CAPTURE.notes, CAPTURE.draws = notes, draws
    try:
        args, names = filled(shape, stand_ins)
        result = fn(*args, **names)
    finally:
        CAPTURE.notes = CAPTURE.draws = None
    same = all(t.leaves == (mark,) for t, mark in zip(stand_ins, marks, strict=True))
    hooks = any(id(t) not in wanting for t in grad_state.wanting())
    if hooks or not same or not same_assignments(before):
        raise UsageError(
            f"{fn!r} {'hooks' if hooks else 'assigns to'} a tensor in this call, not in the one before\n"
            "hint: return the new value, or call the function without compile"
        )
    returned: list[Tensor] = []
    nest = flattened(result, returned, "the compiled function returns", strict=True)
    given: dict[Any, Part] = {m: (t.expr, t.leaves) for m, t in zip(marks, tensors, strict=True)}
    parts = [(t.expr, t.leaves) for t in returned]
    cause = notes[0] if notes else _obstacle(returned, [*stand_ins, *outside])
    if not cause:
        places, cause = _places(parts, marks, outside, draws)
    if cause:
        old = {id(s): t for s, t in zip([*stand_ins, *outside], [*tensors, *outside], strict=True)}
        made = zip(returned, rebuilt(parts, given), strict=True)
        return filled(nest, [old[id(t)] if id(t) in old else Tensor.of_part(p) for t, p in made]), None, cause
    history = History(nest, parts, *places)
    return history.replayed([*tensors, *places[0], *draws]), history, ""


def _obstacle(returned: list[Tensor], known: list[Tensor]) -> str:
    """Return which result a history would not repeat; "": none."""
    ids = {id(t) for t in (*known, *returned)}
    if any(any(id(m) in ids for m in others(t)) for t in returned) or any(
        any(t is k for k in known) for t in returned
    ):
        return "it returns a tensor from outside, or one that shares elements with another"
    return ""


def _places(
    parts: list[Part], marks: list[Leaf], outside: list[Tensor], draws: list[Tensor]
) -> tuple[tuple[list[Tensor], list[Leaf], list[str]], str]:
    """Return (outside tensors, leaves, devices of draws) that expressions are over, and the cause against."""
    owners: dict[Any, list[Tensor]] = {}
    for t in outside:
        for leaf in t.leaves:
            owners.setdefault(leaf, []).append(t)
    drawn = [t.leaves[0] for t in draws]
    mine = dict.fromkeys([leaf for _, leaves in parts for leaf in leaves])
    used = [leaf for leaf in mine if leaf not in marks and leaf not in drawn]
    found = [owners.get(leaf, []) for leaf in used]
    nothing: Any = ([], [], [])
    if any(len(each) != 1 or each[0].expr.op is not PARAM for each in found):
        return nothing, "it uses a tensor from outside that is computed, shared or not found by a name"
    if any(node[0].op is VERSION for node in _nodes(parts)):
        return nothing, ASSIGNS
    return ([each[0] for each in found], [*marks, *used, *drawn], [t.expr.device for t in draws]), ""


def _nodes(roots: list[Part]) -> set[Part]:
    """Return all nodes of expressions."""
    seen: set[Part] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += [inside(node, i) for i in range(len(node[0].src))]
    return seen
