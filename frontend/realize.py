"""Computing pending tensors: one by its expression's plan, several by one of their own, assignment in place.

Plans are made in `frontend.plan`.

Assignment: a tensor with a pending `assign` stores into the buffer it had (`Rebound.home`). Copy-on-write: if
tensors other than those being realized still alias the old contents, these are copied to new memory first,
and their leaf is given the copy. A leaf is one version of a buffer's contents: the tensors being realized go
on to the leaf of the next version; an old leaf that is still alive is aliased (`frontend.storage.keep`).
Nothing counts references: a reference too many costs a copy, never a wrong value.

Threads: building expressions takes no lock. Whatever makes plans, launches, differentiates, or gives a tensor
another value holds `LOCK`, a capture from its first to its last line; waiting for results is done without it.

Not here: assigning (`assignment`), captured functions (`captured`).
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from frontend.device import LOCK, Device, OpenDevice
from frontend.expr import PARAM
from frontend.plan import CAPTURE, PLANS, Plan, build_run, plan_of, verify
from frontend.storage import UNDERWAY, Home, Leaf, keep
from frontend.tensor_base import BORROWED, EPOCH, Rebound
from frontend.trace import become, refresh
from frontend.views import follow
from hcq.errors import HcqError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import hcq
    from frontend.expr import Expr
    from frontend.tensor_base import TensorBase


PENDING: Final[dict[int, tuple[int, Any]]] = {}
"""Tensors with a pending assign by id: the thread that assigned, and a weak reference."""


def pending() -> list[TensorBase]:
    """Return the tensors that are assigned but not computed yet; in a capture, those of its thread."""
    thread = 0 if CAPTURE.now is None else threading.get_ident()
    found = [ref() for by, ref in list(PENDING.values()) if not thread or by == thread]
    return [t for t in found if t is not None]


# -- one tensor ----------------------------------------------------------------------------------------
def realize_one(t: TensorBase) -> None:
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
        old = t.leaves  # kept alive between the two lines, so that no other thread sees only the first
        t.leaves = new = run(old)
        t.expr = e.leaf
        if t.recipe.__class__ is Rebound:
            PENDING.pop(id(t), None)
            t.recipe = Rebound(None, BORROWED if new is old else 0)
            follow(t)
        else:
            t.recipe = None if new is not old else Rebound(None, BORROWED)
        if t.used:
            EPOCH[0] += 1
            t.epoch = EPOCH[0]


def check_concrete(t: TensorBase) -> None:
    """Refuse to realize a stand-in inside a traced method."""
    if any(leaf.__class__ is not Leaf for leaf in t.leaves):
        raise UsageError(
            "a value was read inside a traced method or a gradient rule, whose result "
            "must not depend on values\n"
            "hint: do it outside, or express it with where()"
        )


# -- several tensors -----------------------------------------------------------------------------------
def realize_many(tensors: Sequence[TensorBase]) -> None:
    """Compute several pending tensors, with their assigns, in one launch a device."""
    with LOCK:
        _realize_many(tensors)


def _realize_many(tensors: Sequence[TensorBase]) -> None:
    todo: dict[str, list[TensorBase]] = {}
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


def _home(t: TensorBase) -> Home | None:
    recipe = t.recipe
    return recipe.home if recipe.__class__ is Rebound else None


def _realize_group(group: list[TensorBase], device: OpenDevice) -> None:
    _separate_homes(group, device)
    index: dict[Leaf | Home, int] = {}
    key: list[Any] = []
    for t in group:
        check_concrete(t)
        where = tuple([index.setdefault(leaf, len(index)) for leaf in t.leaves])
        home = _home(t)
        key += (t.expr, where, -1 if home is None else index.setdefault(home.leaf() or home, len(index)))
    plan = plan_of(tuple(key), device)
    if plan.limits is not None:
        verify(plan, tuple(index))
    memory = [owner.buffer for owner in index]
    index.clear()  # it means the old contents of what is written
    _launch(plan, group, memory)


def _separate_homes(group: list[TensorBase], device: OpenDevice) -> None:
    """Give a tensor memory of its own where its buffer went, or goes now, to another tensor's value."""
    seen: set[Home] = set()
    for t in group:
        recipe = t.recipe
        if recipe.__class__ is not Rebound or recipe.home is None:
            continue
        if recipe.home in seen or recipe.home.version != recipe.version:
            t.recipe = recipe = Rebound(Home(device.alloc(recipe.home.buffer.size)))
        seen.add(recipe.home)


def _launch(plan: Plan, group: list[TensorBase], memory: list[hcq.Buffer]) -> None:
    """Run a plan of several outputs on the memory of its leaves and homes; give the tensors their leaves.

    They have them before the launch is submitted: what then still refers to the old contents of a buffer that
    is written is not part of the group, and is given a copy.
    """
    device = plan.device
    outs = {n: device.alloc(nbytes) for n, nbytes in plan.outputs}
    for t in group:
        if t.recipe.__class__ is not Rebound:
            t.recipe = None  # with it, its parents
    swap = _Swap(group, outs)
    seen = CAPTURE.now
    ring, taken = device.queue.ring, -1
    try:
        swap.take_over()
        for home, old in zip(swap.homes, swap.replaced, strict=True):
            copied = keep(old, device)
            if copied is not None and home is not None and seen is not None:
                seen.copied(copied, home.buffer)
        taken = ring.taken
        plan.replay([*[memory[i] for i in plan.inputs], *[outs[n] for n in plan.stored]])
    except BaseException as error:
        # An interrupt may come when the launch is on its way: undone then, it would be done twice.
        if isinstance(error, HcqError) or taken in {-1, ring.taken}:
            swap.undo(error)
        raise
    finally:
        UNDERWAY.difference_update(swap.new)
    if seen is not None:
        seen.record(plan, memory, list(outs.values()))
    used = False
    for t, home, leaf in zip(group, swap.homes, swap.new, strict=True):
        if seen is not None:
            if home is None:
                seen.made(leaf)
            else:
                seen.assigned(t, leaf)
        used = used or t.used
    if used:
        EPOCH[0] += 1
        for t in group:
            t.epoch = EPOCH[0]


class _Swap:
    """The change of some tensors from pending to computed, which can be undone while the launch may fail."""

    def __init__(self, group: list[TensorBase], outs: dict[int, hcq.Buffer]) -> None:
        self.group = group
        self.homes = [_home(t) for t in group]
        self.replaced = [None if home is None else home.current for home in self.homes]
        """The versions that are written over, weakly."""
        self.new: list[Leaf] = []
        self._outs = outs
        written: dict[Leaf | None, Home] = {home.leaf(): home for home in self.homes if home is not None}
        self._before: list[tuple[Expr, list[Any], Any, Any]] = [
            (t.expr, [written.get(leaf, leaf) for leaf in t.leaves], t.recipe, PENDING.get(id(t)))
            for t in group
        ]
        """Expressions, leaves (those of contents that are written over by their home), recipes, pending."""

    def take_over(self) -> None:
        """Give each tensor the leaf of its new value."""
        for i, (t, home) in enumerate(zip(self.group, self.homes, strict=True)):
            leaf = Leaf(self._outs[i]) if home is None else home.advance()
            self.new.append(leaf)
            UNDERWAY.add(leaf)
            become(t, t.expr.leaf, (leaf,))
            if t.recipe.__class__ is Rebound:
                t.recipe = Rebound(None)
                PENDING.pop(id(t), None)
        for t in self.group:
            follow(t)

    def undo(self, error: BaseException) -> None:
        """Give the tensors what they had before.

        What other threads built from the new values meanwhile raises that they were not computed.
        """
        reason = partial(UsageError, f"this was to be computed by a launch that failed: {error!r}")
        current: dict[Home, Leaf] = {}
        for home, before in zip(self.homes, self.replaced, strict=True):
            leaf = None if before is None else before()
            if home is not None and (leaf is None or leaf.buffer is not home.buffer):
                leaf = Leaf(home.buffer)
                leaf.home = home
            if home is not None and leaf is not None:
                home.current = weakref.ref(leaf)
                current[home] = leaf
        for t, (expr, leaves, recipe, entry) in zip(self.group, self._before, strict=True):
            become(t, expr, tuple([current[x] if x.__class__ is Home else x for x in leaves]))
            t.recipe = recipe
            if entry is not None:
                PENDING[id(t)] = entry
            if recipe.__class__ is Rebound and recipe.home is not None:
                recipe.version = recipe.home.version
            follow(t)
        for leaf in self.new:
            if not leaf.buffer.closed and not leaf.buffer.device.closed:
                leaf.buffer = leaf.buffer.view(0)
                leaf.buffer.close(reason=reason)


def _drop_lost(name: str) -> None:
    """Drop assignments to, and results computed from, memory that was lost to a fault."""
    for t in pending():
        home = _home(t)
        owners = (*t.leaves, *([] if home is None else [home]))
        if t.expr.device == name and any(x.__class__ in {Leaf, Home} and x.buffer.closed for x in owners):
            PENDING.pop(id(t), None)


def _void_plans(name: str) -> None:
    """Drop the plans of a closed device and its pending assignments."""
    for t in pending():
        if t.expr.device == name:
            PENDING.pop(id(t), None)
    PLANS.drop(name)


Device.closing.append(_void_plans)
Device.recovered.append(_drop_lost)
