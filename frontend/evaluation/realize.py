"""Realization: computes pending tensors, one by the plan of its expression or a group by a joint plan.

Assignment is copy-on-write. A tensor with a pending `assign` stores into the buffer that it had
(`Rebound.home`). A leaf is one version of the contents of a buffer. The tensors being realized get the leaf
of the new version. If the leaf of the old version is still alive, another tensor aliases the old contents.
They are then copied to new memory, which becomes the buffer of the old leaf (`storage.preserve`). Liveness is
read from weak references, not from reference counts: a reference that is kept too long costs a copy, never a
wrong value.

Threads: building expressions takes no lock. `LOCK` is held while plans are made, kernels launched, gradients
computed, or values of tensors changed, and during a whole capture. Waiting for results does not hold it.

Not here: assigning (`frontend.assignment`), captured functions (`frontend.capture`). Next: `plan`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from frontend.device import LOCK, Device, TensorDevice
from frontend.evaluation.base import BORROWED, EPOCH, Rebound, TensorBase
from frontend.evaluation.expr import LEAVES, PARAM, TABLE, TensorExpr
from frontend.evaluation.plan import CAPTURE, PLANS, LaunchPlan, build_run, plan_of, verify
from frontend.evaluation.refresh import USES, refresh
from frontend.evaluation.storage import UNSUBMITTED, Home, Leaf, preserve
from frontend.evaluation.trace import become
from frontend.evaluation.views import rederive_views
from hcq.errors import HcqError, UsageError

if TYPE_CHECKING:
    import hcq


PENDING: Final[dict[int, tuple[int, Any]]] = {}
"""id of a tensor with a pending assignment -> (assigning thread, weak reference to the tensor)."""


def pending() -> list[TensorBase]:
    """Return the tensors with a pending assignment; during a capture only those of its thread."""
    thread = 0 if CAPTURE.now is None else threading.get_ident()
    found = [ref() for by, ref in list(PENDING.values()) if not thread or by == thread]
    return [t for t in found if t is not None]


def _recorded() -> list[TensorBase]:
    """Return the tensors that this thread assigned to inside a captured function; [] outside of one.

    All of them are computed before the function's end. Computed in the launch of a tensor that the function
    realizes itself, they share its work: running statistics of a layer, for example, use means of its input.
    """
    if CAPTURE.now is None and USES.now is None:
        return []
    thread = threading.get_ident()
    found = [ref() for by, ref in list(PENDING.values()) if by == thread]
    return [t for t in found if t is not None]


def realize_one(t: TensorBase, *, alone: bool = False) -> None:
    """Compute a pending tensor, without waiting. A known structure costs one lookup and one launch.

    Inside a captured function, pending assignments are computed in the same launch, unless `alone` is true.
    Raises `UsageError` for an abstract tensor, and as `plan.build` and `hcq.Executable.replay`.
    """
    if t.expr.op is PARAM:
        return
    with LOCK:
        e = t.expr
        if e.op is PARAM:  # another thread has realized it
            return
        if t.recipe.__class__ is Rebound and t.recipe.home is not None:
            realize_many((t,))
            return
        if PENDING and not alone and _recorded():
            realize_many((t,))
            return
        if t.epoch != EPOCH[0]:
            check_concrete(t)  # an abstract tensor has epoch 0, which is never current
            refresh(t)
            e = t.expr
            if e.op is PARAM:
                return
        run = e.run
        if run is None:
            check_concrete(t)
            run = build_run(e)
        old = t.leaves  # kept until both are set, as freeing them may run other code
        t.leaves = new = run(old)
        t.expr = e.leaf
        if t.recipe.__class__ is Rebound:
            PENDING.pop(id(t), None)
            t.recipe = Rebound(None, BORROWED if new is old else 0, first=t.recipe.first)
            rederive_views(t)
        else:
            t.recipe = None if new is not old else Rebound(None, BORROWED)
        if t.used:
            EPOCH[0] += 1
            t.epoch = EPOCH[0]


def check_concrete(t: TensorBase) -> None:
    """Raise `UsageError` for an abstract tensor: an argument of a traced method, which has no value."""
    if any(leaf.__class__ is not Leaf for leaf in t.leaves):
        raise UsageError(
            "a value was read inside a traced method or a gradient rule, whose result "
            "must not depend on values\n"
            "hint: do it outside, or express it with where()"
        )


def realize_many(tensors: Sequence[TensorBase]) -> None:
    """Compute several pending tensors, without waiting, in one launch for each device.

    Their pending assignments are stored. Inside a captured function, all pending assignments of the thread
    are computed with them. Raises as `realize_one`; a launch that fails leaves its tensors pending.
    """
    with LOCK:
        if PENDING and any([t.expr.op is not PARAM for t in tensors]):  # noqa: C419 - no frame that lives on
            tensors = [*tensors, *_recorded()]
        _realize_many(tensors)


def keys_of(tensors: Sequence[TensorBase]) -> dict[str, tuple[Any, ...]]:
    """Return device -> key of the joint plan (`plan.plan_of`) of pending tensors; compute nothing.

    Tools use it to look at the kernels of a launch.
    """
    with LOCK:
        return {device: _joint(group)[0] for device, group in _waiting(tensors).items()}


def _realize_many(tensors: Sequence[TensorBase]) -> None:
    todo = _waiting(tensors)
    del tensors
    for name, group in todo.items():
        if len(group) == 1 and _home(group[0]) is None:
            realize_one(group[0], alone=True)
        else:
            _realize_group(group, Device[name])


def _waiting(tensors: Sequence[TensorBase]) -> dict[str, list[TensorBase]]:
    """Return device -> the tensors that are not computed yet, each once."""
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
    return todo


def _home(t: TensorBase) -> Home | None:
    recipe = t.recipe
    return recipe.home if recipe.__class__ is Rebound else None


def _realize_group(group: list[TensorBase], device: TensorDevice) -> None:
    _separate_homes(group, device)
    key, index = _joint(group)
    plan = plan_of(key, device)
    if plan.limits is not None:
        verify(plan, (*index, *plan.numbers))
    memory = [owner.buffer for owner in index]
    memory += [leaf.buffer for leaf in plan.numbers]
    index.clear()  # a leaf referenced here would count as an alias of the old contents
    _launch(plan, group, memory)


def _joint(group: Sequence[TensorBase]) -> tuple[tuple[Any, ...], dict[Leaf | Home, int]]:
    """Return the key of the joint plan of a group, and leaf or home -> its number among the joint leaves."""
    index: dict[Leaf | Home, int] = {}
    key: list[Any] = []
    for t in group:
        check_concrete(t)
        where = tuple([index.setdefault(leaf, len(index)) for leaf in t.leaves])
        home = _home(t)
        key += (t.expr, where, -1 if home is None else index.setdefault(home.leaf() or home, len(index)))
    return tuple(key), index


def _separate_homes(group: list[TensorBase], device: TensorDevice) -> None:
    """Give a tensor a new buffer if its own contains, or will receive, the value of another tensor."""
    seen: set[Home] = set()
    for t in group:
        recipe = t.recipe
        if recipe.__class__ is not Rebound or recipe.home is None:
            continue
        if recipe.home in seen or recipe.home.version != recipe.version:
            before = recipe.home
            t.recipe = recipe = Rebound(Home(device.alloc(before.buffer.size)))
            recipe.home.writes, recipe.home.replayed = before.writes, before.replayed
        seen.add(recipe.home)


def _launch(plan: LaunchPlan, group: list[TensorBase], memory: list[hcq.Buffer]) -> None:
    """Launch a joint plan on the memory of its leaves and homes, and give the tensors their new leaves.

    The tensors get the new leaves before the submission. An old leaf that is still alive then belongs to a
    tensor outside the group, and gets a copy of the old contents. If the launch fails, the tensors get their
    old state again.
    """
    device = plan.device
    alloc = device.alloc_partial if plan.partial else device.alloc
    outs = {n: alloc(nbytes) for n, nbytes in plan.outputs}
    for t in group:
        if t.recipe.__class__ is not Rebound:
            t.recipe = None  # a recipe keeps the tensor's parents alive
    swap = _Swap(group, outs)
    if plan.partial:
        for home in swap.homes:
            if home is not None:
                home.buffer.count_as_written()
    capture = CAPTURE.now
    ring, taken = device.queue.ring, -1
    try:
        swap.apply()
        for home, old in zip(swap.homes, swap.replaced, strict=True):
            copied = preserve(old, device)
            if copied is not None and home is not None and capture is not None:
                capture.copied(copied, home.buffer)
        taken = ring.taken
        plan.replay([*[memory[i] for i in plan.inputs], *[outs[n] for n in plan.stored]])
    except BaseException as error:
        # After an interrupt the launch may be submitted already, and must not be undone.
        compared = plan.check is not None and not plan.check.launched
        if isinstance(error, HcqError) or compared or taken in {-1, ring.taken}:
            swap.undo(error)
        raise
    finally:
        UNSUBMITTED.difference_update(swap.new)
    if capture is not None:
        capture.record(plan, memory, list(outs.values()))
    used = False
    for t, home, leaf in zip(group, swap.homes, swap.new, strict=True):
        if capture is not None:
            if home is None:
                capture.made(leaf)
            else:
                capture.assigned(t, leaf)
        used = used or t.used
    if used:
        EPOCH[0] += 1
        for t in group:
            t.epoch = EPOCH[0]


class _Swap:
    """The change of a group of tensors from pending to computed, which is undone if the launch fails."""

    def __init__(self, group: list[TensorBase], outs: dict[int, hcq.Buffer]) -> None:
        self.group = group
        self.homes = [_home(t) for t in group]
        self.replaced = [None if home is None else home.current for home in self.homes]
        """Weak references to the leaves whose contents are overwritten, or None."""
        self.new: list[Leaf] = []
        self._outs = outs
        written: dict[Leaf | None, Home] = {home.leaf(): home for home in self.homes if home is not None}
        self._before: list[tuple[TensorExpr, list[Any], Any, Any]] = [
            (t.expr, [written.get(leaf, leaf) for leaf in t.leaves], t.recipe, PENDING.get(id(t)))
            for t in group
        ]
        """Expression, leaves, recipe and pending entry of each; a home replaces an overwritten leaf."""

    def apply(self) -> None:
        """Give each tensor the leaf of its new value."""
        for i, (t, home) in enumerate(zip(self.group, self.homes, strict=True)):
            leaf = Leaf(self._outs[i]) if home is None else home.advance()
            self.new.append(leaf)
            UNSUBMITTED.add(leaf)
            become(t, t.expr.leaf, (leaf,))
            if t.recipe.__class__ is Rebound:
                t.recipe = Rebound(None)
                PENDING.pop(id(t), None)
        for t in self.group:
            if t.recipe.__class__ is Rebound:  # views of others are rebuilt by their recipes
                rederive_views(t)

    def undo(self, error: BaseException) -> None:
        """Restore the tensors.

        Tensors that other threads built from the new leaves raise `UsageError` when read. `error` is the
        failure of the launch, named in that error.
        """
        reason = partial(UsageError, f"the launch that computes this tensor failed: {error!r}")
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
            rederive_views(t)
        for leaf in self.new:
            if not leaf.buffer.closed and not leaf.buffer.device.closed:
                leaf.buffer = leaf.buffer.view(0)
                leaf.buffer.close(reason=reason)


def _drop_lost(name: str) -> None:
    """Drop pending assignments of a device that write or read memory whose contents a fault destroyed."""
    for t in pending():
        home = _home(t)
        owners = (*t.leaves, *([] if home is None else [home]))
        if t.expr.device == name and any(x.__class__ in {Leaf, Home} and x.buffer.closed for x in owners):
            PENDING.pop(id(t), None)


def _drop_plans(name: str) -> None:
    """Drop the plans, the launches and the pending assignments of a closed device."""
    for t in pending():
        if t.expr.device == name:
            PENDING.pop(id(t), None)
    PLANS.drop(name)
    for found in (*TABLE.values(), *LEAVES.values()):
        if found.__class__ is TensorExpr and found.device == name:
            found.run = None


Device.closing.append(_drop_plans)
Device.recovered.append(_drop_lost)
