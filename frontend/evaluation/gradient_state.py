"""Gradient state of tensors: `requires_grad`, and the gradients that `backward` stored in `grad`.

Not here: switching gradients off in a block (`Tensor.no_grad`, `frontend.tensor`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self

from compiler.ir.ops import Ops
from frontend.arguments.conversion import flag, shown
from frontend.device import LOCK
from frontend.evaluation.base import EPOCH, GradientState, Rebound, T, TensorBase
from frontend.evaluation.constants import ruled
from frontend.evaluation.expr import PARAM, STOP, VERSION, Leaves, join
from frontend.evaluation.modes import GRAD, Modes, changed, read
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.realize import realize_many
from frontend.evaluation.refresh import USES, refresh
from frontend.evaluation.storage import Leaf, behind
from frontend.evaluation.trace import apply, become, make, method, traced
from hcq.errors import UsageError, UsageTypeError

_wanting: Final[dict[int, weakref.ref[Any]]] = {}
"""id of a tensor with requires_grad -> a weak reference to it, in the order in which they were marked."""


AFTER_BACKWARD: Final[list[Callable[[Sequence[TensorBase]], None]]] = []
"""Callbacks with the tensors to which a `backward` gave gradients, called at its end."""
GROUPED: Final = [False]
"""Whether gradients were taken: there may be groups."""
MARKED: Final = [False]
"""Whether a `Function`, or a module with hooks of gradients, was called; see `frontend.autograd.hooks`."""
_FOLDED: Final = frozenset({PARAM, Ops.RESHAPE, Ops.PERMUTE, Ops.NEG})
"""Operations that `join` merges with an operation of the same kind on their result."""


class HookHandle:
    """A registered hook; `remove` ends it. Also a `with` block."""

    @classmethod
    def of(cls, hooks: dict[int, Any], hook: Any, *, first: bool = False) -> Self:
        """Add a hook as the last, or as the first; return its handle."""
        added = {max(hooks, default=0) + 1: hook}
        before = dict(hooks)
        hooks.clear()
        hooks.update(added | before if first else before | added)
        return cls(hooks)

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks, self._number = hooks, max(hooks, default=0)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@method
def recomputed(self: T) -> T:
    """Return the same value as another expression, which is computed anew and passes gradients on."""
    return ruled("beside", self, self) if self.expr.dtype.is_float else apply(STOP, None, self)


def distinct(value: T) -> T:
    """Return the same value as an expression that remains a node of every expression built from it.

    A gradient is that of a node. `y = x.reshape(4)` is no node of `y.reshape(2, 2)`, which `join` simplifies
    to one reshape of x, so that y could get no gradient.
    """
    return traced(recomputed, value) if value.expr.op in _FOLDED else value


def version(t: T, leaf: Leaf, value: T) -> T:
    """Return `value`, which is about to be assigned to t, as a node that no other tensor has.

    `leaf` is the present memory of t. It is part of the node, because nodes of equal structure are one: two
    tensors that are set to zeros would be one node otherwise.
    """
    return make(value, join(VERSION, None, (value.expr, value.leaves), (t.expr.leaf, (leaf,))))


def written_since(leaves: Leaves) -> dict[Leaf, TensorBase]:
    """Return leaf -> tensor for tensors with requires_grad that had the leaf before a write in place."""
    found = {}
    for leaf in leaves:
        t = leaf.of() if leaf.__class__ is Leaf and leaf.of is not None else None
        if t is not None and wants(t):
            found[leaf] = t
    return found


def want(tensors: Sequence[TensorBase], wanted: bool | None, *, cut: bool = False) -> None:  # noqa: FBT001 - a property
    """Set requires_grad of tensors; None: as if it was never set. `cut`: they have no history.

    Nodes are identified by structure, and two pending tensors of zeros would be one node. Tensors that are to
    require a gradient are therefore realized, in one launch. Those that were computed from others with
    requires_grad stay pending, and become nodes of their own (`distinct`). Raises `UsageError` for a tensor
    that is no float, if `wanted` is true.
    """
    if wanted:
        wrong = next((t for t in tensors if not t.expr.dtype.is_float), None)
        if wrong is not None:
            raise UsageError(
                f"only floats have gradients, this tensor is {wrong.expr.dtype.name}; cast it with .float()"
            )
        inner = {leaf for t in wanting() for leaf in t.leaves}
        alone = [t for t in tensors if cut or (inner.isdisjoint(t.leaves) and not behind(t.leaves))]
        realize_many([t for t in alone if t.expr.op is not PARAM])
        for t in tensors:
            if t.expr.op is not PARAM:
                _become_distinct(t)
    changed(*[("requires_grad", id(t)) for t in tensors])
    for t in tensors:
        state_of(t).wanted = wanted
        if wanted:
            _wanting[id(t)] = weakref.ref(t, partial(_forget, id(t)))
        else:
            _wanting.pop(id(t), None)


def _become_distinct(t: TensorBase) -> None:
    """Make a pending tensor a node of every expression that is built from it; see `distinct`."""
    before = make(t, (t.expr, t.leaves))
    before.recipe, before.epoch = t.recipe, t.epoch
    new = distinct(before)
    if new is not before:
        become(t, new.expr, new.leaves)
        if t.recipe.__class__ is not Rebound:
            t.recipe = new.recipe


def _forget(number: int, ref: weakref.ref[Any]) -> None:
    if _wanting.get(number) is ref:
        del _wanting[number]


_NONE: Final = GradientState()
"""The state of a tensor whose own was never used; not written to."""


def state_of(t: TensorBase) -> GradientState:
    """Return the gradient state of a tensor, made at its first use."""
    try:
        return t.state
    except AttributeError:
        t.state = GradientState()
        return t.state


def group(tensors: Sequence[TensorBase | None]) -> None:
    """Let the host's first read of one of these tensors compute all that are still referenced."""
    found = [t for t in tensors if t is not None]
    refs: list[weakref.ref[TensorBase]] = [weakref.ref(t) for t in found]
    for t in found:
        state_of(t).group = refs
    GROUPED[0] = True


def group_of(t: TensorBase | None) -> list[TensorBase]:
    """Return the tensors of the group of a tensor that are still referenced; [] if it is in none."""
    found = [ref() for ref in t.state.group] if t is not None and hasattr(t, "state") else []
    return [m for m in found if m is not None]


def grad_of(t: TensorBase) -> TensorBase | None:
    """Return the gradient of a tensor, None if there is none."""
    return getattr(t, "state", _NONE).value


def depend(modes: Modes, t: TensorBase) -> None:
    """Record that a captured function depends on whether a tensor requires a gradient."""
    modes.depend(("requires_grad", id(t)), f"requires_grad of {described(t)}", t, wants)


def grad_for_step(t: TensorBase) -> TensorBase | None:
    """Return the gradient of a tensor, None if there is none; a capture under way records the dependence.

    Outside of captures a gradient that was clipped is rebuilt after its norm was read.
    """
    found = grad_of(t)
    if CAPTURE.now is not None:
        read((GRAD, id(t)), f"the gradient of {described(t)}", t, grad_of)
    elif found is not None and found.epoch != EPOCH[0] and USES.now is None:
        with LOCK:
            refresh(found)
    return found


def grad_from_outside(t: TensorBase) -> TensorBase | None:
    """Return `grad_for_step`, else, outside of captures, the gradient of the last step, else None."""
    found = grad_for_step(t)
    return t.state.used if found is None and CAPTURE.now is None and hasattr(t, "state") else found


def give_gradients(t: TensorBase, source: TensorBase, change: Callable[[Any], Any]) -> None:
    """Give a tensor what `change` returns of the gradient of `source` and of that of its last step."""
    state = state_of(source)
    changed((GRAD, id(t)))
    found = [g if g is None else change(g) for g in (state.value, state.used)]
    state_of(t).value, state_of(t).used = found


def marked(t: T, wanted: bool | None) -> T:  # noqa: FBT001 - the value of a property
    """Set requires_grad of a new tensor, unless `wanted` is None; return the tensor.

    Raises `UsageError` for a tensor that is no float, if `wanted` is true, `UsageTypeError` for no bool.
    """
    if wanted is not None:
        want((t,), flag(wanted, "requires_grad"))
    return t


def wants(t: TensorBase) -> bool:
    """Return whether `backward` gives a tensor a gradient."""
    try:
        return bool(t.state.wanted)
    except AttributeError:
        return False


def add_hook(t: TensorBase, hook: Callable[[Any], Any]) -> HookHandle:
    """Let `backward` call `hook` with the gradient of a tensor; see `Tensor.register_hook`.

    Raises `UsageTypeError` for no function, `UsageError` for a tensor that is no float.
    """
    if not callable(hook):
        raise UsageTypeError(f"register_hook: wanted a function of the gradient, saw {shown(hook)}")
    if not wants(t):
        want((t,), wanted=True)
    hooks = state_of(t).hooks
    hooks[max(hooks, default=0) + 1] = hook
    return HookHandle(hooks)


def hooked(t: TensorBase, g: T) -> T:
    """Return the gradient of a tensor after its hooks.

    Raises `UsageError` where a hook replaces the gradient of a tensor that was computed from others: theirs
    are computed together with it. A leaf's value under another name (`x * 1`, `x.view(3)`) is such a tensor.
    """
    for hook in list(t.state.hooks.values()) if hasattr(t, "state") else ():
        found = hook(g)
        if found is not None and not _own_leaf(t):
            raise UsageError(
                f"register_hook: a hook of {described(t)}, which is no leaf, returned another gradient\n"
                "hint: register it at a leaf, or use a `Function` with a backward of its own"
            )
        g = g if found is None else found
    return g


def _own_leaf(t: TensorBase) -> bool:
    """Return whether no gradient flows on from a tensor with requires_grad: a leaf, or a detached value.

    An older tensor that is the same node is the leaf instead.
    """
    same = (u for u in wanting() if u.leaves == t.leaves and u.expr is t.expr)
    return t.expr.op in {PARAM, STOP} and next(same, t) is t


def is_parameter(t: TensorBase) -> bool:
    """Return whether a tensor is a parameter: requires_grad is not False, or a module has listed it."""
    return was_listed(t) or decided(t) is not False


def decided(t: TensorBase) -> bool | None:
    """Return the requires_grad that was set; None: it was never set."""
    return getattr(t, "state", _NONE).wanted


def was_marked(t: TensorBase) -> bool:
    """Return whether a module has listed a tensor, or its requires_grad is True."""
    return was_listed(t) or bool(decided(t))


def was_listed(t: TensorBase) -> bool:
    """Return whether a module has listed a tensor."""
    return getattr(t, "state", _NONE).parameter


def listed(t: T) -> T:
    """Make a tensor a parameter, also when its requires_grad becomes False; return it."""
    state_of(t).parameter = True
    return t


def anyone() -> bool:
    """Return whether any tensor has requires_grad."""
    return bool(_wanting)


def wanting() -> list[TensorBase]:
    """Return all tensors with requires_grad."""
    found = [ref() for ref in list(_wanting.values())]
    return [t for t in found if t is not None]
