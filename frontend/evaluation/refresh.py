"""Rebuilding of pending tensors after a tensor that they were built from was realized.

A pending tensor keeps a recipe: the function that made it, and its arguments. After an argument was realized,
the function called again gives an expression over the realized memory, so that nothing is computed twice.

Not here: making recipes (`trace`). Next: `realize`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from frontend.evaluation.base import BORROWED, EPOCH, THREAD, Rebound, TensorBase
from frontend.evaluation.expr import PARAM
from frontend.evaluation.trace import become


class _UsesOfThread(threading.local):
    """The record, for each thread, of the tensors that its computations are built from."""

    now: list[weakref.ref[TensorBase]] | None = None
    """The list to which `refresh` appends; None: nothing is recorded."""


USES: Final = _UsesOfThread()


@contextmanager
def recorded_uses() -> Iterator[list[weakref.ref[TensorBase]]]:
    """Record the tensors that the computations of this thread inside the `with` block are built from.

    The caller increments `EPOCH` first, so that `refresh` visits all of them.
    """
    outer, found = USES.now, list[Any]()
    USES.now = found
    try:
        yield found
    finally:
        USES.now = outer
        if outer is not None:
            outer.extend(found)


def refresh(root: TensorBase) -> None:
    """Rebuild a pending tensor from its recipe if a tensor that it was built from was realized since.

    A tensor built from a tensor that was assigned to since is not rebuilt: it has the value before. What was
    built with gradients is rebuilt with them, also inside `no_grad`. The caller holds `LOCK`.
    """
    cut, THREAD.cut = THREAD.cut, False
    try:
        _rebuild(root)
    finally:
        THREAD.cut = cut


def _as_it_was(p: TensorBase, t: TensorBase) -> bool:
    """Return whether an assigned tensor still has the value from which t was built: t reads its last leaf.

    A tensor gets a leaf once, when its value is stored. Memory that it borrows may have an older one.
    """
    recipe: Any = p.recipe
    own = recipe.first or recipe.version != BORROWED
    return own and p.expr.op is PARAM and any(leaf is p.leaves[0] for leaf in t.leaves)


def _rebuild(root: TensorBase) -> None:
    now = EPOCH[0]
    uses = USES.now
    stack = [root]
    while stack:
        t = stack[-1]
        recipe = t.recipe
        if t.epoch == now or recipe is None or recipe.__class__ is Rebound:
            if uses is not None and t is not root:
                uses.append(weakref.ref(t))
            t.epoch = now
            stack.pop()
            continue
        assert recipe.__class__ is tuple
        parents = [p for p in recipe[1:] if p.__class__ is t.__class__]
        stale = [p for p in parents if p.epoch != now]
        if stale:
            stack += stale
            continue
        if not any(p.recipe.__class__ is Rebound and not _as_it_was(p, t) for p in parents):
            new = recipe[0](*recipe[1:])
            become(t, new.expr, new.leaves)
        if uses is not None and t is not root:
            uses.append(weakref.ref(t))
        t.epoch = now
        stack.pop()
