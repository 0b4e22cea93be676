"""Gradients: reverse mode, by a rule for each primitive operation.

A rule takes the gradient of a result, the result and its sources, and returns the gradient of each source
(None: no gradient flows). Rules are written with tensor methods, so gradients are lazy tensors that can be
differentiated again. The gradients of an expression are derived once (`_vjp`); later calls with the same
expression and targets look them up in `frontend.evaluation.expr.TABLE`.

A node is an expression with its leaves. Two tensors with the same expression over the same leaves are one
node, and get the same gradient.

A graph belongs to one device. The gradient of a leaf that was moved to another device (`frontend.transfer`)
is moved back, and continues through the expression that the leaf was moved from.

Not here: the gradient that a tensor keeps (`frontend.evaluation.gradient_state`). Next: `table`,
`primitives`, `rules`: the rules.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from frontend import assignment
from frontend.arguments.checks import tensor
from frontend.arguments.conversion import flag
from frontend.autograd.grad_modes import ANOMALY, no_grad
from frontend.autograd.segments import Recomputed
from frontend.device import LOCK
from frontend.evaluation.base import (
    BORROWED, EPOCH, THREAD, GradientState, KeptHistory, Rebound, T, TensorBase,
)  # fmt: skip
from frontend.evaluation.constants import constant, convert
from frontend.evaluation.expr import PARAM, SEGMENT, TABLE, VERSION, Leaves, TensorExpr, inside
from frontend.evaluation.gradient_state import (
    AFTER_BACKWARD, MARKED, depend, grad_from_outside, group, hooked, state_of, wanting, written_since,
)  # fmt: skip
from frontend.evaluation.history import Node, between, nodes, realize_written, sources
from frontend.evaluation.modes import GRAD, changed
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.refresh import refresh
from frontend.evaluation.storage import RESULT, Leaf, behind
from frontend.evaluation.trace import make, traced
from frontend.evaluation.views import others
from frontend.later import AT_ONCE, later
from frontend.ops import elementwise
from hcq.errors import UsageError

if AT_ONCE:
    from frontend.autograd import anomaly, hooks, table
else:
    hooks = later("frontend.autograd.hooks")
    anomaly = later("frontend.autograd.anomaly")
    table = later("frontend.autograd.table")
_placement = later("frontend.distributed.placement")


def _vjp(like: T, root: Node, seed: Node, wanted: Sequence[Node], ends: frozenset[Node]) -> list[Node | None]:
    """Return the gradient of each wanted node, None where none flows, given the gradient `seed` of the root.

    All nodes are over the same abstract leaves. No gradient flows through a node of `ends`.
    """
    gradients_of: dict[Node, T] = {root: make(like, seed)}
    again = Recomputed()
    for node in between(root, set(wanted), ends):
        g = gradients_of.get(node)
        e = node[0]
        rule = table.rule_of(e.op)
        if g is None or not e.src or rule is None or node in ends:
            continue
        given = [inside(node, i) for i in range(len(e.src))]
        flowing = sources(node)
        if not flowing:
            continue
        if e.op is SEGMENT:
            again.enter(node, (g.expr, g.leaves))
        found = rule(g, make(like, again.of(node)), *[make(like, again.of(s)) for s in given])
        for source, part in zip(given, found if found.__class__ is tuple else (found,), strict=True):
            if part is not None and source in flowing:
                before = gradients_of.get(source)
                gradients_of[source] = part if before is None else before + part
    results = [gradients_of.get(w) for w in wanted]
    return [None if r is None else (r.expr, r.leaves) for r in results]


def gradient(self: T, *targets: T, gradient: T | None = None) -> list[T]:
    """Return the gradient of self with respect to each target, as lazy tensors of the targets' shapes.

    Self is a float tensor of shape (); with `gradient`, the gradient of self, it may have any shape. Targets
    are pending or realized tensors that self was computed from.

    Raises `UsageError` when self does not depend on a target, is no float, or is not of shape () without
    `gradient`, and for a `gradient` of another shape or of integers; `UsageTypeError` for a target that is no
    tensor.
    """
    for t in targets:
        tensor(t, "gradient, targets", self)
    found = gradients_or_none(self, targets, gradient)
    group(found)
    for i, (g, t) in enumerate(zip(found, targets, strict=True)):
        if g is None:
            raise UsageError(
                f"gradient: target {i} ({described(t)}) is not part of what {described(self)} "
                "was computed from\n"
                "hint: realizing a tensor in between ends its history: keep it pending, or make it a target; "
                "a target needs requires_grad before tensors that depend on it are moved or read"
            )
    return [g for g in found if g is not None]


def gradients_or_none(self: T, targets: Sequence[T], seed: T | None = None) -> list[T | None]:
    """Return the gradient for each target, None where self does not depend on it; `seed`: that of self.

    Raises `UsageError` and `UsageTypeError` as `gradient`, but not for a target that self does not depend on.
    """
    if not self.expr.dtype.is_float:
        raise UsageError(f"only floats have gradients, this is {self.expr.dtype.name}; cast it with .float()")
    if seed is not None:
        tensor(seed, "gradient=", self)
    if seed is None and prod(self.expr.shape) != 1:
        raise UsageError(
            f"the gradient of a tensor of shape {self.expr.shape} needs gradient=..., of that shape\n"
            "hint: sum() it first"
        )
    if seed is not None and seed.expr.shape == self.expr.shape and seed.expr.dtype.is_float:
        seed = convert(seed, self.expr.dtype)
    if seed is not None and (seed.expr.shape != self.expr.shape or seed.expr.dtype is not self.expr.dtype):
        raise UsageError(
            f"gradient= must be {self.expr.dtype.name}{list(self.expr.shape)} as self, "
            f"saw {seed.expr.dtype.name}{list(seed.expr.shape)}"
        )
    with LOCK:
        realize_written(self)
        _refreshed(self)
        moved, precision = behind(self.leaves), THREAD.precision
        THREAD.precision = None  # gradients are computed in the dtypes of the operands
        try:
            several = moved or MARKED[0]
            return _across(self, targets, seed, moved) if several else _of_versions(self, targets, seed)
        finally:
            THREAD.precision = precision


def _across(self: T, targets: Sequence[T], seed: T | None, moved: list[Leaf]) -> list[T | None]:
    """Differentiate the graphs of several devices, and the parts between marks, one after the other.

    A moved leaf, and a mark, pass their gradient on when all its contributions are added up. The origin of a
    leaf has only older leaves, and a mark has a leaf of its own: the youngest waiting leaf is complete if no
    mark is. `moved` is ordered oldest first. Raises `UsageError` for a leaf whose origin was released.
    """
    _refreshed(self, *targets)  # now, as a function that is called may read values
    targets = [make(t, (t.expr, t.leaves)) if t.recipe.__class__ is tuple else t for t in targets]
    found: list[T | None] = [None] * len(targets)
    waiting: dict[Any, T] = {}
    outputs: dict[Any, Any] = {}
    within: dict[Node, list[Node]] = {}
    leading = _leading(moved, targets)
    roots: list[tuple[Any, Any, list[Node] | None]] = [(self, seed, None)]
    while True:
        for root, start, known in roots:
            marks = hooks.points(root) if known is None and MARKED[0] else known or []
            here = [leaf for leaf in root.leaves if leaf in leading]
            parts = [*[(leaf.origin.there, (leaf,)) for leaf in here], *marks]
            new = _of_versions(root, [*targets, *[make(root, part) for part in parts]], start, marks)
            found = [_sum(a, b) for a, b in zip(found, new[: len(targets)], strict=True)]
            within.update(dict.fromkeys(marks, marks))
            each = dict(zip([*here, *marks], new[len(targets) :], strict=True))
            for place, g in each.items():
                if place.__class__ is Leaf and g is not None and place.origin.spent:
                    raise UsageError(
                        f"backward of {described(self)}: it was computed from a "
                        f"{place.origin.there.dtype.name} tensor of shape {place.origin.there.shape} "
                        "whose value was read, and then its backward has run or what it was computed from "
                        "was updated: its history is gone\n"
                        "hint: detach() it, or call backward once, on the sum"
                    )
                if (total := _sum(waiting.get(place), g)) is not None:
                    waiting[place] = total
        if first := hooks.ready(waiting) if MARKED[0] else []:
            grads = {node: waiting.pop(node) for node in first}
            known = within[first[0]]  # of a graph that it is in: those of what was given to its call, too
            roots = [(t, g, known) for t, g in hooks.called(grads, outputs, targets, leading, self)]
        elif waiting:
            youngest = max([w for w in waiting if w.__class__ is Leaf], key=lambda leaf: leaf.origin.number)
            o = youngest.origin
            roots = [(make(self, (o.expr, o.leaves)), waiting.pop(youngest).to(o.expr.device), None)]
        else:
            return found


def between_hooks(targets: Sequence[TensorBase]) -> list[Any]:
    """Return the tensors with hooks that are no targets and were computed from one."""
    known = {id(t) for t in targets}
    found = [t for t in wanting() if state_of(t).hooks and id(t) not in known]
    ends = {(t.expr, t.leaves) for t in targets}
    return [t for t in found if behind(t.leaves) or not ends.isdisjoint(nodes((t.expr, t.leaves)))]


def _sum(a: T | None, b: T | None) -> T | None:
    return b if a is None else a if b is None else elementwise.add(a, b)


def _leading(moved: list[Leaf], targets: Sequence[TensorBase]) -> set[Leaf]:
    """Return the moved leaves that may depend on a target; `moved` is ordered oldest first."""
    useful: set[Leaf] = set()
    for leaf in moved:
        leaves = set(leaf.origin.leaves)
        if (
            leaf.origin.spent
            or not useful.isdisjoint(leaves)
            or any(t.leaves and leaves.issuperset(t.leaves) for t in targets)
            or written_since(leaf.origin.leaves)
        ):
            useful.add(leaf)
    return useful


def _of_versions(
    self: T, targets: Sequence[T], seed: T | None, ends: Sequence[tuple[TensorExpr, Leaves]] = ()
) -> list[T | None]:
    """Return the gradient for each target, added to the gradients of its values before writes in place."""
    found = _gradients_now(self, targets, seed, ends)
    before = written_since(self.leaves)
    if before:
        places = {id(t): i for i, t in enumerate(targets)}
        pairs = [(places[id(t)], part) for t, part in _versions(self, before) if id(t) in places]
        current = [(t.expr, t.leaves) for t in before.values()]
        parts = [make(self, part) for _, part in pairs]
        stops = [*current, *[part for _, part in pairs], *ends]
        each = _gradients_now(self, parts, seed, stops) if pairs else []
        for (i, _), g in zip(pairs, each, strict=True):
            found[i] = _sum(found[i], g)
    return found


def _versions(self: T, before: Mapping[Leaf, T]) -> list[tuple[T, tuple[TensorExpr, Leaves]]]:
    """Return (tensor, part) for each value in self that a tensor of `before` had before a write."""
    key = ("versions", self.expr)
    versions = TABLE.get(key)
    if versions is None:
        root = (self.expr, tuple(range(len(self.leaves))))
        versions = TABLE[key] = [node for node in nodes(root) if node[0].op is VERSION]
    found = [(t, (t.expr.leaf, (leaf,))) for leaf, t in before.items()]
    for node in versions:
        owner = before.get(self.leaves[inside(node, 1)[1][0]])
        if owner is not None:
            found.append((owner, (node[0], tuple([self.leaves[i] for i in node[1]]))))
    return [(t, part) for t, part in found if part != (t.expr, t.leaves)]


def _refreshed(*tensors: TensorBase) -> None:
    """Rebuild tensors that were built from a tensor whose value was read since, which becomes their leaf."""
    for t in tensors:
        if t.epoch != EPOCH[0] and t.epoch:
            refresh(t)


def _gradients_now(
    self: T, targets: Sequence[T], seed: T | None, ends: Sequence[tuple[TensorExpr, Leaves]] = ()
) -> list[T | None]:
    """Return the gradient for each target at its present value; none flows through a part of `ends`."""
    _refreshed(self, *targets)
    index: dict[Any, int] = {leaf: i for i, leaf in enumerate(self.leaves)}
    if seed is not None:
        seed.used = True
    for leaf in seed.leaves if seed is not None else ():
        index.setdefault(leaf, len(index))
    wanted = [_place(t, index) for t in targets]
    start = None if seed is None else (seed.expr, tuple([index[leaf] for leaf in seed.leaves]))
    stops = [(e, tuple([index[leaf] for leaf in on])) for e, on in ends if all(leaf in index for leaf in on)]
    key = ("gradient", self.expr, len(self.leaves), start, tuple(stops), *wanted)
    found = TABLE.get(key)
    if found is None:
        root = (self.expr, tuple(range(len(self.leaves))))
        first = start if start is not None else _one(self)
        found = TABLE[key] = traced(
            _vjp, self, root, first, [w for w in wanted if w is not None], frozenset(stops)
        )
    real = tuple(index)
    results = iter(found)
    out: list[T | None] = []
    for w in wanted:
        part = None if w is None else next(results)
        found_one = None if part is None else make(self, (part[0], tuple([real[i] for i in part[1]])))
        if found_one is not None and found_one.expr.op is PARAM:
            found_one.recipe = Rebound(None, BORROWED)  # the leaf of another tensor
        out.append(found_one)
    return out


def _place(t: TensorBase, index: dict[Any, int]) -> Node | None:
    """Return a target as a node over the leaves of the root; None when it has other leaves."""
    if any(leaf not in index for leaf in t.leaves):
        return None
    return t.expr, tuple([index[leaf] for leaf in t.leaves])


def _one(x: TensorBase) -> Node:
    one = constant(x, 1.0, x.expr.dtype, x.expr.shape)
    return one.expr, one.leaves


def backward(
    self: T,
    gradient: T | None = None,
    retain_graph: bool | None = None,  # noqa: FBT001 - the field's signature; histories always stay
    create_graph: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    inputs: T | Sequence[T] | None = None,
) -> T:
    """Add the gradient of self to `.grad` of every tensor with requires_grad that it depends on; return self.

    Self is a float tensor of shape (); with `gradient`, the gradient of self, it may have any shape.
    Gradients are lazy tensors with the shape, dtype and device of their tensor. A second call adds to them;
    the step of an optimiser and `zero_grad` remove them.

        loss = (model(x) - y).square().mean()
        loss.backward()
        weight.grad.realize()

    The value of self may be read before (`item`, `numpy`, ...). `realize()` ends its history, and so does
    reading its value after `backward`. `retain_graph` changes nothing: what is pending keeps its history.
    With `create_graph` gradients flow through the gradients, too, and self keeps its history. Of `inputs`,
    leaves, only these get a gradient.

    Raises `UsageError` when self is realized, no float, not of shape () without `gradient`, or does not
    depend on a tensor with requires_grad, and for a `gradient` of another shape or dtype. Raises
    `UsageTypeError` for a flag that is no bool and an input that is no tensor. No `.grad` is changed by a
    call that raises.
    """
    if retain_graph is not None:
        flag(retain_graph, "backward, retain_graph")
    kept = flag(create_graph, "backward, create_graph")
    for t in () if inputs is None else inputs if isinstance(inputs, (list, tuple)) else (inputs,):
        tensor(t, "backward, inputs", self)
    with LOCK:
        changed_ones = _add_gradients(self, gradient, kept=kept, inputs=inputs)
    for call in tuple(AFTER_BACKWARD):
        call(changed_ones)
    with no_grad():
        for t in changed_ones:
            for hook in tuple(state_of(t).after.values()):
                hook(t)
    return self


def _apart(g: T) -> T:
    """Return the same value as another tensor: a hook may keep the one that it was given, or gave."""
    found = make(g, (g.expr, g.leaves))
    found.recipe, found.epoch = g.recipe, g.epoch
    return found


def _accumulated(state: GradientState, g: TensorBase, *, kept: bool) -> TensorBase:
    """Return the gradient after `g` was added; unless `kept`, a tensor that was there is changed in place.

    The gradient of the last step is replaced, in place if other tensors share its elements.
    """
    before, used = state.value, state.used
    if before is not None:
        total = elementwise.add(before, g)
        return total if kept else assignment.store(before, total)
    return assignment.store(used, g) if used is not None and not kept and others(used) else g


def _add_gradients(self: T, gradient: T | None, *, kept: bool, inputs: Any = None) -> list[TensorBase]:
    """Add the gradients; return the tensors that got one."""
    realize_written(self)
    _refreshed(self)
    e = self.expr
    moved = behind(self.leaves)
    leaves = {*self.leaves, *[leaf for m in moved for leaf in m.origin.leaves]}
    written = {id(t) for t in written_since(tuple(leaves)).values()}
    targets = [t for t in wanting() if leaves.issuperset(t.leaves) or id(t) in written]
    if inputs is not None:
        chosen = {id(t): t for t in (inputs if isinstance(inputs, (list, tuple)) else [inputs])}
        for t in chosen.values():
            if not any(t is other for other in wanting()):
                what = f"backward, inputs: wanted leaves with requires_grad, saw {described(t)}"
                raise UsageError(f"{what}\nhint: autograd.grad gives the gradients of other tensors")
        targets = [t for t in targets if id(t) in chosen]
    if e.op is PARAM and not moved and not any(t.expr is e and t.leaves == self.leaves for t in targets):
        label = self.leaves[0].buffer.label
        if label.startswith(RESULT):
            raise UsageError(
                f"backward of {described(self)}: it is the {label}, whose replays keep no history\n"
                "hint: call backward() inside the function, before its result is returned"
            )
        raise UsageError(
            f"backward of {described(self)}: it is realized, so its history is gone\n"
            "hint: call backward() first, then realize(); item() and numpy() may come before"
        )
    found = gradients_or_none(self, targets, gradient)
    if inputs is None and all(g is None for g in found):
        raise UsageError(
            f"backward of {described(self)}: it depends on no tensor with requires_grad\n"
            "hint: make one with requires_grad=True, or set it, before computing with it"
        )
    group(found)  # for hooks
    for t, g in zip(targets, found, strict=True) if ANOMALY[0] else ():
        known: Any = g
        if known is not None and known.isnan().any().item():
            where = anomaly.origin(
                (self.expr, self.leaves),
                {(t.expr, t.leaves)},
                lambda parts: gradients_or_none(self, [make(self, n) for n in parts], gradient),
            )
            raise UsageError(
                f"backward of {described(self)}: the gradient of {described(t)} has NaN; {where}\n"
                "hint: roots and divisions of 0, and 0 times infinity, give it; where(...) passes NaN on"
            )
    for t, g in zip(targets, found, strict=True):
        if g is not None:
            if CAPTURE.now is not None:
                depend(CAPTURE.now.modes, t)
                grad_from_outside(t)
            changed((GRAD, id(t)))
            state = state_of(t)
            if "," in t.expr.device and t.expr.op is PARAM:  # divided as its memory: a reduce-scatter
                g = _placement.placed_as(g, t)  # noqa: PLW2901 - the gradient from here on
            if state.hooks:
                g = _apart(hooked(t, g))  # noqa: PLW2901 - as above
            state.value, state.used = _accumulated(state, g, kept=kept), None
            state.of = weakref.ref(self)
            state_of(state.value).past = KeptHistory.KEPT if kept else KeptHistory.CUT
    if ANOMALY[0] and not kept:
        anomaly.forget()
    if kept:
        pass  # gradients of gradients need the history of self
    elif e.op is not PARAM:
        state_of(self).past = KeptHistory.SPENT
    elif self.leaves[0].origin is not None and self.leaves[0].origin.read:
        self.leaves[0].origin = self.leaves[0].origin.after()
    changed_ones = [t for t, g in zip(targets, found, strict=True) if g is not None]
    group([self, *[state_of(t).value for t in changed_ones]])
    return changed_ones
