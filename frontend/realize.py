"""Computing pending tensors: one by its expression's plan, several by one of their own, assignment in place.

What a plan is, `frontend.plan` says.

Assignment: a tensor with a pending `assign` stores into the buffer it had (`Rebound.home`). If anything
but the tensors being realized still means the old contents, those are copied to new memory first and its
leaf is given the copy; who means what is known exactly, because a leaf is referred to by nothing but leaf
tuples.

Threads: building expressions takes no lock. Whatever makes plans, launches, differentiates, or gives a tensor
another value holds `LOCK`, a capture from its first to its last line; waiting for results is done without it.
"""

from __future__ import annotations

import threading
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

from frontend.device import LOCK, Device, OpenDevice
from frontend.expr import PARAM, Leaves
from frontend.lazy import EPOCH, Rebound, refresh
from frontend.plan import CAPTURE, Plan, build_run, drop_plans, plan_of
from frontend.storage import Leaf
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontend.tensor import Tensor


PENDING: Final[dict[int, tuple[int, Any]]] = {}
"""Tensors with a pending assign by id: the thread that assigned, and a weak reference."""
def pending() -> list[Tensor]:
    """Return the tensors that are assigned but not computed yet; in a capture, those of its thread."""
    thread = 0 if CAPTURE.now is None else threading.get_ident()
    found = [ref() for by, ref in list(PENDING.values()) if not thread or by == thread]
    return [t for t in found if t is not None]


# -- one tensor ----------------------------------------------------------------------------------------
def realize_one(t: Tensor) -> None:
    """Compute a pending tensor: one lookup and one launch when its structure is known."""
    if t.expr.op is PARAM:
        return
    with LOCK:
        e = t.expr
        if e.op is PARAM:  # by another thread, meanwhile
            return
        if t.recipe.__class__ is Rebound and t.recipe.home is not None:
            realize_many((t,))
            return
        if t.epoch != EPOCH[0]:
            check_concrete(t)  # a stand-in is of no epoch
            refresh(t)
            e = t.expr
            if e.op is PARAM:
                return
        run = e.run
        if run is None:
            check_concrete(t)
            run = build_run(e)
        old = t.leaves  # not let go of between the two lines, so that no other thread sees only the first
        t.leaves = run(old)
        t.expr = e.leaf
        if t.recipe.__class__ is Rebound:
            PENDING.pop(id(t), None)
        else:
            t.recipe = None
        if t.used:
            EPOCH[0] += 1
            t.epoch = EPOCH[0]


def check_concrete(t: Tensor) -> None:
    """Refuse to realize a stand-in inside a traced method."""
    if any(leaf.__class__ is not Leaf for leaf in t.leaves):
        raise UsageError(
            "a value was asked for inside a traced method or a gradient rule, whose result "
            "must not depend on values\n"
            "hint: do it outside, or express it with where()"
        )


# -- several tensors -----------------------------------------------------------------------------------
def realize_many(tensors: Sequence[Tensor]) -> None:
    """Compute several pending tensors, with their assigns, in one launch a device."""
    with LOCK:
        _realize_many(tensors)


def _realize_many(tensors: Sequence[Tensor]) -> None:
    todo: dict[str, list[Tensor]] = {}
    seen: set[int] = set()
    for t in tensors:
        if id(t) in seen:
            continue
        seen.add(id(t))
        if t.epoch != EPOCH[0]:
            refresh(t)
        if t.expr.op is not PARAM or _home(t) is not None:
            todo.setdefault(t.expr.device, []).append(t)
    del tensors
    for name, group in todo.items():
        if len(group) == 1 and _home(group[0]) is None:
            realize_one(group[0])
        else:
            _realize_group(group, Device[name])


def _home(t: Tensor) -> Leaf | None:
    recipe = t.recipe
    return recipe.home if recipe.__class__ is Rebound else None


def _realize_group(group: list[Tensor], device: OpenDevice) -> None:
    _separate_homes(group, device)
    index: dict[Leaf, int] = {}
    key: list[Any] = []
    for t in group:
        check_concrete(t)
        where = tuple([index.setdefault(leaf, len(index)) for leaf in t.leaves])
        recipe: Any = t.recipe  # its home must not get a name: every reference counts
        key += (t.expr, where, -1 if _home(t) is None else index.setdefault(recipe.home, len(index)))
    _launch(plan_of(tuple(key), device), group, index)


def _separate_homes(group: list[Tensor], device: OpenDevice) -> None:
    """Give a tensor that shares its buffer with an earlier one of the group a buffer of its own."""
    seen: set[int] = set()
    for t in group:
        home = _home(t)
        if home is None:
            continue
        if id(home) in seen:
            t.recipe = Rebound(Leaf(device.alloc(home.buffer.size)))
        seen.add(id(home))


def _launch(plan: Plan, group: list[Tensor], index: dict[Leaf, int]) -> None:
    """Run a plan of several outputs and give the tensors their new leaves."""
    buffers = [leaf.buffer for leaf in index]
    homes = [_home(t) for t in group]
    if any(home is not None for home in homes):
        _keep_old(group, homes, plan.device)
    del index
    outs = {n: plan.device.alloc(nbytes) for n, nbytes in plan.outputs}
    plan.replay([*[buffers[i] for i in plan.inputs], *[outs[n] for n in plan.stored]])
    seen = CAPTURE.now
    if seen is not None:
        seen.record(plan, buffers, list(outs.values()))
    used = False
    gone: list[Leaves] = []  # as in `_realize_one`
    for i, t in enumerate(group):
        home = homes[i]
        if home is None:
            leaf = Leaf(outs[i])
            if t.recipe.__class__ is Rebound:
                PENDING.pop(id(t), None)
            else:
                t.recipe = None
            if seen is not None:
                seen.made(leaf)
        else:
            leaf = home
            t.recipe = Rebound(None)
            PENDING.pop(id(t), None)
            if seen is not None:
                seen.assigned(t, leaf)
        gone.append(t.leaves)
        t.leaves = (leaf,)
        t.expr = t.expr.leaf
        used = used or t.used
    if used:
        EPOCH[0] += 1
        for t in group:
            t.epoch = EPOCH[0]


def _keep_old(group: list[Tensor], homes: list[Leaf | None], device: OpenDevice) -> None:
    """Where others still mean the old contents of a buffer about to be written, give their leaf a copy.

    First the tensors being realized let go of their parents. What then refers to a leaf is: the caller's
    index, `homes`, the Rebound that names it, and leaf tuples; of those, only the ones that belong to the
    group alone are not someone else's.
    """
    for t in group:
        if t.recipe.__class__ is not Rebound:
            t.recipe = None
    own: dict[int, tuple[Leaves, int]] = {}
    for t in group:
        leaves, count = own.get(id(t.leaves), (t.leaves, 0))
        own[id(leaves)] = (leaves, count + 1)
        del leaves
    inside: dict[Leaf, int] = {}
    for entry in own.values():
        if getrefcount(entry[0]) == entry[1] + 2:  # the tensors of the group, this entry, the call
            for leaf in entry[0]:
                inside[leaf] = inside.get(leaf, 0) + 1
    leaf = None
    for i, home in enumerate(homes):
        if home is None:
            continue
        # index, homes, Rebound.home, `home`, the call; `inside` when it is a key there; tuples of the group
        expected = 5 + (1 + inside[home] if home in inside else 0)
        if getrefcount(home) > expected:
            original = home.buffer
            home.buffer = device.copied(original)
            if CAPTURE.now is not None:
                CAPTURE.now.copied(home.buffer, original)
            fresh = Leaf(original)
            homes[i] = fresh
            _rehome(group[i], fresh)


def _rehome(t: Tensor, leaf: Leaf) -> None:
    t.recipe = Rebound(leaf)


def _drop_lost(name: str) -> None:
    """Forget what was to be assigned to, or computed from, memory that was lost to a fault."""
    for t in pending():
        home = _home(t)
        leaves = (*t.leaves, *([] if home is None else [home]))
        if t.device == name and any(leaf.__class__ is Leaf and leaf.buffer.closed for leaf in leaves):
            PENDING.pop(id(t), None)


def _void_plans(name: str) -> None:
    """Forget the plans of a device that was closed, and what was to be assigned there."""
    for t in pending():
        if t.device == name:
            PENDING.pop(id(t), None)
    drop_plans(name)


Device.closing.append(_void_plans)
Device.recovered.append(_drop_lost)
