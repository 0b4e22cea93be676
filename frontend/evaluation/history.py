"""The history of a tensor whose value was read (`item`, `numpy`, ...) before `backward`.

Reading the value of a pending tensor computes it, and the tensor is a leaf afterwards. If a gradient would
flow through the tensor to one with requires_grad, the leaf keeps the expression that it was computed from
(`frontend.evaluation.storage.LeafOrigin`), so that `backward` continues there. `realize()` keeps no history:
gradients end at a realized tensor.

A history is released with its leaf, after `backward` of its tensor, and, when another value that was computed
from it is read, once no tensor with requires_grad has the value any more from which it was computed, as after
a step of an optimiser. Histories of the steps of a loop therefore form no chain. A gradient that would flow
through a released history raises an error. A tensor that an operation in place changed keeps its history,
too, and a copy of its old contents where the history needs them; `assign` ends it.

Not here: realizing (`realize`). Next: `frontend.autograd.engine`, gradients. Decision: ADR 14.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from math import prod
from typing import Any, Final

from compiler.ir.ops import MOVEMENT, Ops
from frontend.device import LOCK, Device
from frontend.evaluation.base import EPOCH, THREAD, KeptHistory, Rebound, TensorBase
from frontend.evaluation.expr import (
    LIMIT, PARAM, RULED, SEGMENT, STOP, TABLE, VERSION, Leaves, TensorExpr, inside,
)  # fmt: skip
from frontend.evaluation.gradient_state import (
    GROUPED, anyone, group_of, wanting, wants, written_since,
)  # fmt: skip
from frontend.evaluation.plan import CAPTURE, aliased, refuse
from frontend.evaluation.realize import check_concrete, pending, realize_many, realize_one
from frontend.evaluation.refresh import USES, refresh
from frontend.evaluation.storage import NUMBERS, Leaf, LeafOrigin, behind
from frontend.evaluation.trace import DEEP, become

Node = tuple[TensorExpr, Leaves]
"""An expression and its leaves: a node of the graph that gradients are taken of."""
FIRST: Final = frozenset({SEGMENT, VERSION, Ops.AFTER})
"""Operations whose values are those of their first source; the others only order or mark it."""
KEPT_BYTES: Final = 64 << 20
"""The largest tensor that is kept because values that are computed from it are read."""
OPAQUE: Final = frozenset({STOP, LIMIT, Ops.BITCAST, Ops.FLOORDIV, Ops.MOD})
"""Operations of floats, with results that may be floats, through which no gradient flows."""


def realize_for_reading(t: TensorBase) -> None:
    """Compute a pending tensor so that its value can be read, keeping its history for gradients.

    What `realize_grouped` computes is computed with it, and what an earlier read computed on its way and did
    not keep: a loop that reads a value in each turn computes each turn once. Raises as `realize_one`.
    """
    realize_grouped(t)
    again = _reached_again(t)
    if again:
        realize_beside((), [t, *again])
        return
    if not anyone() or not t.expr.dtype.is_float:
        realize_one(t)
        return
    with LOCK:
        read = _Reading(t, _current())
        realize_one(t)
        read.done()


def shortened(args: Sequence[Any]) -> bool:
    """Compute the pending tensors among arguments that are deep (`trace.DEEP`), as if their values were read.

    Return False, and do nothing, in captures, traces and assignments.
    """
    if THREAD.depth or CAPTURE.now is not None or CAPTURE.notes is not None or USES.now is not None:
        return False
    deep = [t for t in args if isinstance(t, TensorBase) and t.expr.depth > DEEP]
    if not deep or any(leaf.__class__ is not Leaf for t in deep for leaf in t.leaves):
        return False
    if LOCK._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - what holds it rebuilds tensors
        return False
    for t in deep:
        readable(t)
    return all(t.expr.depth <= DEEP for t in deep)


def realize_beside(tensors: Sequence[TensorBase], others: Sequence[TensorBase]) -> None:
    """Compute tensors in one launch with others, which keep their histories, as if their values were read.

    Raises as `realize_many`.
    """
    with LOCK:
        current = _current() if others and anyone() and CAPTURE.now is None else None
        reads = [] if current is None else [_Reading(t, current) for t in others]
        realize_many([*tensors, *others])
        for read in reads:
            read.done()


def realize_grouped(t: TensorBase) -> None:
    """Compute a tensor that the host reads with its group, or with the groups that it was computed from.

    So the gradients of a `backward`, and the forward pass behind them, are computed once. All pending
    assignments are computed with them, as by the step of an optimiser. Nothing happens while a captured
    function is recorded. Raises as `realize_many`.
    """
    if not GROUPED[0] or CAPTURE.now is not None or USES.now is not None or t.expr.op is PARAM:
        return
    with LOCK:
        realize_written(t)
        found = [m for u in _behind(t, ended=True) for m in group_of(u) if m.expr.op is not PARAM]
        if any(m is not t for m in found):
            realize_beside((), list({id(u): u for u in (t, *found, *pending())}.values()))


def _reached_again(t: TensorBase) -> list[Any]:
    """Return the nearest pending tensors behind t that a read computed before; note those that t computes.

    Views and constants are no work, except for numbers, as sums of steps; what is larger than `KEPT_BYTES` is
    not kept.
    """
    if CAPTURE.now is not None or USES.now is not None or not t.epoch:
        return []
    found: dict[int, TensorBase] = {}
    seen = {id(t)}
    stack = [t]
    while stack:
        for p in _made_from(stack.pop()):
            if id(p) in seen:
                continue
            seen.add(id(p))
            e = p.expr
            size = prod(e.shape)
            if e.op not in MOVEMENT and (p.leaves or size == 1) and size * e.dtype.itemsize <= KEPT_BYTES:
                if hasattr(p, "reached"):
                    found[id(p)] = p
                    continue
                p.reached = True
            stack.append(p)
    return list(found.values())


def _made_from(t: TensorBase) -> list[Any]:
    """Return the pending tensors that a pending one was built from, also if it was written since."""
    recipe: Any = t.recipe
    if recipe.__class__ is Rebound:
        return [p for p in [ref() for ref in recipe.behind] if p is not None and p.expr.op is not PARAM]
    every = recipe[1:] if recipe.__class__ is tuple else ()
    return [p for p in every if p.__class__ is t.__class__ and p.expr.op is not PARAM]


def note_behind(t: TensorBase, new: TensorBase, recipe: Any) -> None:
    """Note in the new recipe of a tensor, which has no memory yet, what its new value was computed from.

    The recipe that it had is given up: the value is rebuilt here for the last time, and a read of what is
    computed from it would not find what it was computed from.
    """
    if t.recipe.__class__ is not tuple and not (t.recipe.__class__ is Rebound and t.recipe.behind):
        return
    if new.epoch not in {0, EPOCH[0]}:
        refresh(new)
    found = {id(t): t}
    stack = [new, t]
    while stack:
        more = [p for p in _made_from(stack.pop()) if id(p) not in found]
        found.update([(id(p), p) for p in more])
        stack += more
    del found[id(t)]
    recipe.behind = [weakref.ref(p) for p in found.values()]


def realize_written(t: TensorBase) -> None:
    """Compute the written tensors with requires_grad that t was computed from; rebuild t from their memory.

    Otherwise each step of a loop that updates parameters itself would extend their expressions. All pending
    assignments and the last gradients are computed in the same launch. What was computed before a write
    keeps the old value. Nothing happens while a captured function is recorded, and where t has a history of
    values that were read before a write. Raises as `realize_many`.
    """
    now = GROUPED[0] and CAPTURE.now is None and USES.now is None and t.epoch  # 0: abstract
    waiting = pending() if now else []
    ids = {id(p) for p in waiting if wants(p) and not _leads_on(p)}
    if not ids or any(written_since(leaf.origin.leaves) for leaf in behind(t.leaves)):
        return
    refresh(t)
    order = _behind(t)
    losses = [u.state.of and u.state.of() for u in order if id(u) in ids]
    if not losses:
        return
    cut, THREAD.cut = THREAD.cut, False
    try:
        again = [(u, u.recipe, u.recipe[0](*u.recipe[1:])) for u in order if u.recipe.__class__ is tuple]
        again = [r for r in again if (r[2].expr, r[2].leaves) == (r[0].expr, r[0].leaves)]  # after the write
        found = [m for loss in losses for m in group_of(loss)]
        realize_beside((), list({id(u): u for u in (*waiting, *found)}.values()))
        for u, recipe, _ in again:
            if u.expr.op is not PARAM:
                new = recipe[0](*recipe[1:])
                become(u, new.expr, new.leaves)
    finally:
        THREAD.cut = cut


def _behind(t: TensorBase, *, ended: bool = False) -> list[Any]:
    """Return t and the pending tensors of its recipe and theirs, oldest first; `ended`: up to groups."""
    order: dict[int, TensorBase] = {}
    stack = [t]
    while stack:
        u = stack[-1]
        recipe: Any = u.recipe if u.recipe.__class__ is tuple and not (ended and group_of(u)) else ()
        found = [p for p in recipe[1:] if p.__class__ is u.__class__ and p.expr.op is not PARAM]
        further = [p for p in found if id(p) not in order]
        stack += further
        if not further:
            order[id(stack.pop())] = u
    return list(order.values())


class _Reading:
    """A pending tensor that is about to be computed, and the history that its leaf gets."""

    def __init__(self, t: TensorBase, current: set[Leaf]) -> None:
        self.t = t
        self.origin: LeafOrigin | None = None
        self._before: tuple[Any, ...] = ()
        """The leaves that may be the result's; not those of an overwritten memory, which would be copied."""
        recipe: Any = t.recipe
        assigned = recipe.__class__ is Rebound and recipe.home is not None
        if t.expr.op is PARAM or not t.expr.dtype.is_float:
            return
        if recipe.__class__ is Rebound and not _leads_on(t) and (wants(t) or (assigned and not recipe.kept)):
            return
        check_concrete(t)
        if t.epoch != EPOCH[0]:
            refresh(t)
        e, past = t.expr, _past(t)
        kept = _kept(e, t.leaves, current) if past is KeptHistory.KEPT else ()
        if kept or past is KeptHistory.SPENT:
            origin = LeafOrigin(next(NUMBERS), e.leaf, e, kept, read=True)
            self.origin = origin if kept else origin.after()
            self._before = () if assigned else t.leaves

    def done(self) -> None:
        """Give the computed tensor its history."""
        if self.origin is not None and self.t.leaves[0] not in self._before:
            self.t.leaves[0].origin = self.origin


def _leads_on(t: TensorBase) -> bool:
    """Return whether a gradient of a tensor flows on that was written in place, and marked afterwards."""
    recipe: Any = t.recipe
    if t.expr.op is VERSION or not (recipe.__class__ is Rebound and recipe.kept):
        return False
    through = {t.leaves[i] for i in flowing_of(t.expr, written=False)}
    return any(leaf.origin is not None for leaf in through) or not _current().isdisjoint(through)


def _current() -> set[Leaf]:
    """Return the leaves of all tensors with requires_grad."""
    return {leaf for t in wanting() for leaf in t.leaves}


def readable(t: TensorBase) -> tuple[TensorExpr, Leaf]:
    """Compute a pending tensor; return the expression and the leaf of its value, for `storage.read`.

    They belong together even if another thread changes the tensor meanwhile. Raises `UsageError` inside a
    captured function, and as `realize_one`.
    """
    if CAPTURE.now is not None or CAPTURE.notes is not None:
        refuse(
            "the value of a tensor was read inside a captured function: a replay could not do that\n"
            "hint: return the tensor and read it outside"
        )
    e, leaves = t.expr, t.leaves
    if e.op is not PARAM and (t.recipe.__class__ is Rebound or not aliased(e)):
        with LOCK:
            realize_for_reading(t)
            e, leaves = t.expr, t.leaves
    else:
        check_concrete(t)
    return e, leaves[0]


def _past(t: TensorBase) -> KeptHistory:
    try:
        return t.state.past
    except AttributeError:
        return KeptHistory.KEPT


def _kept(e: TensorExpr, leaves: tuple[Any, ...], current: Collection[Leaf]) -> tuple[Any, ...]:
    """Return the leaves that the history of an expression keeps; () if no gradient can reach a tensor.

    A leaf through which no gradient flows is replaced by a copy without history.
    """
    current = {*current, *written_since(leaves)}
    spent: set[Leaf] = set()
    for leaf in behind(leaves):  # oldest first
        origin = leaf.origin
        if not current.isdisjoint(origin.leaves):
            current.add(leaf)
        elif origin.spent or not spent.isdisjoint(origin.leaves) or written_since(origin.leaves):
            spent.add(leaf)
            if origin.read and not origin.spent:
                leaf.origin = origin.after()
        elif origin.read:
            leaf.origin = None  # it leads to no tensor with requires_grad any more
    flowing = flowing_of(e)
    if not any(leaves[i] in current or leaves[i] in spent for i in flowing):
        return ()
    device = Device[e.device]
    return tuple(
        [
            leaf if i in flowing or leaf.origin is None else Leaf(device.copied(leaf.buffer))
            for i, leaf in enumerate(leaves)
        ]
    )


def has_history(t: TensorBase) -> bool:
    """Return whether a gradient flows through a tensor to one with requires_grad, or to its earlier value."""
    if not (anyone() and t.expr.dtype.is_float):
        return False
    through = [t.leaves[i] for i in flowing_of(t.expr)]
    if any([leaf.__class__ is Leaf and leaf.origin is not None for leaf in through]):  # noqa: C419 - few
        return True
    return not _current().isdisjoint(through) or bool(written_since(tuple(through)))


def flowing_of(e: TensorExpr, *, written: bool = True) -> frozenset[int]:
    """Return the numbers of the leaves to which a gradient of an expression flows.

    `written`: also those that stand for tensors that were written in place.
    """
    key = ("flowing", e, written)
    found: frozenset[int] | None = TABLE.get(key)
    if found is None:
        seen = set()
        stack: list[Any] = [(e, tuple(range(e.n)))]
        numbers = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node[0].op is PARAM:
                numbers.add(node[1][0])
            elif written and node[0].op is VERSION:
                numbers.add(inside(node, 1)[1][0])  # its memory stands for the tensor that was written
            stack += sources(node)
        found = TABLE[key] = frozenset(numbers)
    return found


def between(root: Node, wanted: set[Node], ends: Collection[Node] = ()) -> list[Node]:
    """Return the nodes on paths from the root to the wanted nodes, users before sources.

    A node of `ends` ends a path.
    """
    reaches: dict[Node, bool] = {}
    order: list[Node] = []
    stack = [root]
    while stack:
        node = stack[-1]
        if node in reaches:
            stack.pop()
            continue
        under = [] if node in ends else sources(node)
        waiting = [s for s in under if s not in reaches]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        reaches[node] = node in wanted or any(reaches[s] for s in under)
        if reaches[node]:
            order.append(node)
    order.reverse()
    return order


def nodes(root: Node) -> list[Node]:
    """Return all nodes of an expression."""
    seen: dict[Node, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack += [inside(node, i) for i in range(len(node[0].src))]
    return list(seen)


def sources(node: Node) -> list[Node]:
    """Return the sources of a node to which gradients flow: floats, of an operation that passes gradients on.

    For RULED these are all sources but the first; for operations of `FIRST` it is the first source alone.
    """
    e = node[0]
    if e.op in OPAQUE:
        return []
    numbers = range(1) if e.op in FIRST else range(1 if e.op is RULED else 0, len(e.src))
    return [s for s in (inside(node, i) for i in numbers) if s[0].dtype.is_float]
