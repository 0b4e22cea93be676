"""Assignment: a new value for a tensor, and for all tensors that share elements with it.

Only this module changes the value of a tensor. The new value is pending until it is computed, and is then
stored in the memory that the tensor has (`frontend.evaluation.realize`). A tensor that borrows the memory of
another (`Tensor(x)` of a computed tensor) gets memory of its own. A write to a view also writes the root, the
tensor that the view was taken from, and all other views of the root get their elements of the new value.

Not here: the store and copy-on-write (`frontend.evaluation.realize`), `x[key] = value`
(`frontend.ops.writing`). Next: `frontend.evaluation.views`, families of tensors that share elements.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from compiler.dtype import dtypes
from frontend.arguments import checks
from frontend.device import LOCK
from frontend.evaluation.base import BORROWED, THREAD, FamilyLink, Rebound, TensorBase
from frontend.evaluation.constants import constant, ruled
from frontend.evaluation.expr import PARAM
from frontend.evaluation.gradient_state import anyone, distinct, recomputed, version, wants
from frontend.evaluation.history import flowing_of, has_history, note_behind
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.realize import PENDING
from frontend.evaluation.refresh import USES, refresh
from frontend.evaluation.storage import Home, home_of
from frontend.evaluation.trace import become
from frontend.evaluation.varying import PLAIN
from frontend.evaluation.views import alias_of, beside, derived, leave, link_of, others, owns, written
from frontend.ops import movement
from frontend.ops.casts import cast as converted
from frontend.ops.elementwise import where
from hcq.errors import UsageError

if TYPE_CHECKING:
    import hcq

Kind = TypeVar("Kind", bound="TensorBase")
LEAVING: Final[list[Callable[[TensorBase, hcq.Buffer], None]]] = []
"""Callbacks (tensor, its old memory), called before a tensor is made to refer to another value."""


def assign(self: Kind, value: Any) -> Kind:
    """Give this tensor a new value; return self.

    `value` has the dtype and device of this tensor, and its shape or one that broadcasts to it. It is
    computed at the next realize, and stored in the memory of this tensor. Tensors that were built from the
    old value keep it. Raises `UsageError` for another dtype or device, and for a shape that does not
    broadcast; `UsageTypeError` for a value that is neither a tensor nor numbers.
    """
    return _assign(self, value)


def update(self: Kind, value: Kind) -> Kind:
    """Assign a value whose expression no other tensor can have; return self. Raises `UsageError` as `assign`.

    Such a value, as the old value less a gradient, needs no VERSION node to be told from others.
    """
    return _assign(self, value, unique=True)


def store(self: Kind, new: Kind) -> Kind:
    """Assign a value of this shape, dtype and device without trace, as a write to `detach()`; return self."""
    return _assign(self, new, traceless=True)


def shares_gradient(t: Any) -> bool:
    """Return whether other tensors share elements with the gradient of a tensor."""
    return t.grad is not None and bool(others(t.grad))


def renew_gradient(t: Any, new: TensorBase, *, shared: bool) -> None:
    """Give a tensor another gradient; in place if the one before was `shared`."""
    t.grad = store(t.grad, new) if shared else new


def clear_gradient(t: Any, *, set_to_none: bool) -> None:
    """Remove the gradient of a tensor; without `set_to_none`, set it to zeros in place."""
    t.grad = None if set_to_none or t.grad is None else store(t.grad, t.grad.zeros_like())


def _assign(self: Kind, value: Any, *, traceless: bool = False, unique: bool = False) -> Kind:
    """Assign a value; with `traceless`, gradients flow as if nothing was written, as for a `detach()`."""
    new = self.operand(value)
    e = self.expr
    if new.__class__ is not self.__class__:
        common = new in PLAIN or CAPTURE.now is not None
        new = constant(self, new, e.dtype, e.shape) if common else self.parameter(new)
    if new.expr.device != e.device:
        raise UsageError(
            f"assign: this tensor is on {e.device}, the value on {new.expr.device}\n"
            f"hint: move it with .to({e.device!r})"
        )
    if new.expr.dtype is not e.dtype:
        raise UsageError(
            f"assign: this tensor is {e.dtype.name}, the value {new.expr.dtype.name}; cast it first"
        )
    if new.expr.shape != e.shape:
        if checks.broadcast((e.shape, new.expr.shape), "assign") != e.shape:
            raise UsageError(
                f"assign: this tensor has the shape {e.shape}, the value {new.expr.shape}; "
                "wanted one that broadcasts to it"
            )
        new = movement.expand(new, e.shape)
    if new is not self:
        if USES.now is not None:
            _note(new, USES.now)
        if traceless and has_history(self) and not (owns(self) and wants(self)):
            new = beside(self, new)
        new.used = True
        with LOCK:
            write(self, new, unique=unique)
    return self


def _note(new: TensorBase, uses: list[weakref.ref[TensorBase]]) -> None:
    """Record that a captured function uses an assigned value and the tensors that it is built from.

    It is done here because `refresh` finds them only through recipes, and an assigned tensor has none.
    """
    with LOCK:
        refresh(new)
    uses.append(weakref.ref(new))


def change(self: Kind, value: Any) -> Kind:
    """Assign a value as an operation in place does: `x += 1`, `x[0] = 1`, `x.zero_()`; return self.

    Raises as `assign`. As in PyTorch, it also raises `UsageError` for a tensor with requires_grad that was
    not computed from others, and for a view of one, unless gradients are switched off (`Tensor.no_grad`).
    Where they are switched off, gradients of self flow as if nothing was written.
    """
    if not anyone():
        return _assign(self, value)
    if not THREAD.cut:
        _refuse_leaf(self)
        if isinstance(value, TensorBase) and wants(value) and value is not self:
            value = recomputed(value)  # not the leaf itself: this tensor is computed from it
        value = _after(self, value)
    _assign(self, value, traceless=THREAD.cut)
    family: list[TensorBase] = [self, *others(self)]
    for t in family:
        if isinstance(t.recipe, Rebound):
            t.recipe.kept = True
    return self


def _after(t: TensorBase, value: Any) -> Any:
    """Return a value that t gets, with gradients of 0 for what t alone was computed from, as in PyTorch."""
    if not has_history(t):
        return value
    old = {t.leaves[i] for i in flowing_of(t.expr)}
    new = t.operand(value)
    if new.__class__ is not t.__class__:
        new = constant(t, new, t.expr.dtype, t.expr.shape)
    if old <= {new.leaves[i] for i in flowing_of(new.expr)} or new.expr.device != t.expr.device:
        return new
    return ruled("beside", new, new, t)


def _refuse_leaf(t: TensorBase) -> None:
    root = None if alias_of(t) is not None else root_of(t)
    for what, x in (("", t), ("a view of ", root)):
        if x is not None and (what == "" or x is not t) and wants(x) and owns(x):
            raise UsageError(
                f"{what}{described(x)} with requires_grad is changed in place: its gradient would be that of "
                "no value that was computed with\n"
                "hint: change it inside `with Tensor.no_grad():`, compute a new tensor, or use assign()"
            )


def write(t: TensorBase, new: TensorBase, *, unique: bool = False) -> None:
    """Give a tensor a new value of its shape and dtype, and all that share elements with it their part of it.

    The caller holds `LOCK`.
    """
    root = root_of(t) if anyone() else None
    if root is not None and wants(root):
        _write_node(t, root, new, unique=unique)
        return
    changes = _changes(t, new)
    _rebind(t, new)
    for m, value in changes:
        _rebind(m, value)


def _write_node(t: TensorBase, root: TensorBase, new: TensorBase, *, unique: bool) -> None:
    """Write a family whose root has requires_grad: the new root is a node of its views' expressions."""
    link = link_of(t)
    whole = new if link is None else written(link, root, new)
    home, _ = _claim(root)
    leaf = None if home is None else home.leaf()
    if leaf is not None and leaf.origin is None:
        leaf.of = weakref.ref(root)
    whole = distinct(whole) if leaf is None or unique else version(root, leaf, whole)
    detached = alias_of(t) is not None
    views = [(m, new if m is t and detached else derived(m.link, whole)) for m in others(root)]
    changes = _with_histories(t, new, views)
    _rebind(root, whole)
    for m, value in changes:
        _rebind(m, value)


def _with_histories(
    t: TensorBase, new: TensorBase, changes: list[tuple[TensorBase, TensorBase]]
) -> list[tuple[TensorBase, TensorBase]]:
    """Return (view, new value) with the histories of detached views, when t becomes `new`.

    Views of the same `detach` as t get the history of the written value. Views of another `detach` keep their
    own history.
    """
    if not anyone():
        return changes
    alias, found = alias_of(t), []
    for m, value in changes:
        at = None if m is t else alias_of(m)
        if at is not None and at is alias and (has_history(m) or has_history(new)):
            found.append((m, _of_alias(t, at, new, m, value)))
        elif at is not None and at is not alias and has_history(m):
            found.append((m, beside(m, value)))
        else:
            found.append((m, value))
    return found


def _of_alias(
    t: TensorBase, alias: FamilyLink, new: TensorBase, m: TensorBase, value: TensorBase
) -> TensorBase:
    """Return `value` of a view m with its history, when t, a view of the same `detach`, becomes `new`."""
    own, link = link_of(t), link_of(m)
    assert own is not None  # both are views of the alias
    assert link is not None
    base = next((x for x in (t, *others(t)) if link_of(x) is alias), None)
    if base is not None:
        return derived(link, new if base is t else written(own, base, new, alias), alias)
    root = alias
    while root.parent is not None:
        root = root.parent
    shape, true = root.read.shape, constant(t, True, dtypes.bool, t.expr.shape)
    whole, mask = (
        written(own, derived(alias, constant(t, 0, x.expr.dtype, shape)), x, alias) for x in (new, true)
    )
    return where(derived(link, mask, alias), derived(link, whole, alias), beside(m, value))


def write_rest(t: TensorBase, known: Collection[int]) -> None:
    """Write the value of t, which a launch changed, to the tensors that share elements with it.

    `known` are the ids of other tensors that the launch changed, which are left out. A view without memory of
    its own is left out where the root is t, as `rederive_views` has updated it.
    """
    root = root_of(t)
    if root is not None and root is not t and id(root) in known:
        return
    for m, value in _changes(t, t):
        if id(m) not in known and (root is not t or owns(m)):
            _rebind(m, value)


def root_of(t: TensorBase) -> TensorBase | None:
    """Return the root of t's family; t itself when it is no view, None when the root was freed."""
    link = link_of(t)
    if link is None or link.parent is None:
        return t
    return next((m for m in others(t) if m.link.parent is None), None)


def _changes(t: TensorBase, new: TensorBase) -> list[tuple[TensorBase, TensorBase]]:
    """Return (tensor, new value) of all other tensors that share elements with t, when t becomes `new`."""
    link = link_of(t)
    if link is None:
        return []
    rest = others(t)
    root = root_of(t)
    if root is None:
        return _with_histories(t, new, _beside(t, link, new, rest))
    whole = written(link, root, new)
    return _with_histories(t, new, [(m, whole if m is root else derived(m.link, whole)) for m in rest])


def _beside(
    t: TensorBase, link: FamilyLink, new: TensorBase, rest: list[TensorBase]
) -> list[tuple[TensorBase, TensorBase]]:
    """Return (view, new value) of the other views when t, a view whose root was freed, becomes `new`."""
    first = link
    while first.parent is not None:
        first = first.parent
    shape = first.read.shape
    true = constant(t, True, dtypes.bool, t.expr.shape)
    whole = written(link, constant(t, 0, t.expr.dtype, shape), new)
    mask = written(link, constant(t, False, dtypes.bool, shape), true)
    return [(m, where(derived(m.link, mask), derived(m.link, whole), m)) for m in rest]


def replace(self: Kind, other: TensorBase) -> Kind:
    """Make this tensor refer to the value of another one, without copying; return self.

    Views that were taken of this tensor before keep the old value. Raises `UsageError` for another shape or
    dtype, `UsageTypeError` for anything that is no tensor.
    """
    checks.tensor(other, "replace, other", self)
    if other.expr.shape != self.expr.shape or other.expr.dtype is not self.expr.dtype:
        raise UsageError(
            f"replace: wanted {self.expr.dtype.name}{list(self.expr.shape)} as this tensor has, saw "
            f"{other.expr.dtype.name}{list(other.expr.shape)}; cast or reshape it"
        )
    refer(self, other)
    self.recipe = Rebound(None, BORROWED)
    other.used = True
    return self


def refer(t: TensorBase, other: TensorBase) -> None:
    """Make a tensor refer to the value of another one, of any shape, dtype and device.

    Views that were taken of it before keep the old value. Afterwards t owns the memory of `other`: the caller
    drops `other`, or marks t as a borrower by `t.recipe = Rebound(None, BORROWED)`.
    """
    with LOCK:
        if t.expr.op is PARAM:
            for leaving in LEAVING:
                leaving(t, t.leaves[0].buffer)
        become(t, other.expr, other.leaves)
        t.epoch = other.epoch
        t.recipe = None
        PENDING.pop(id(t), None)
        leave(t)


_CATEGORY: Final = {"bool": 0, "int": 1, "uint": 1, "float": 2}


def in_place(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that assigns the result of `operation` to its first operand, as `+=` does.

    The result is converted to the dtype of the operand. The operator raises as `change`, and `UsageError`
    where the operand's dtype is of a lower category (bool < integer < float) than the result's.
    """

    @wraps(operation)
    def call(self: Kind, *args: Any, **names: Any) -> Kind:
        with LOCK:  # no other thread writes between reading the old value and writing the new one
            new, dtype = operation(self, *args, **names), self.expr.dtype
            if new.expr.dtype is not dtype:
                if _CATEGORY[new.expr.dtype.kind] > _CATEGORY[dtype.kind]:
                    raise UsageError(
                        f"{operation.__name__} in place: the result is {new.expr.dtype.name}, this tensor "
                        f"{dtype.name}; cast it first"
                    )
                new = converted(new, dtype)
            return change(self, new)

    return call


def _rebind(t: TensorBase, new: TensorBase) -> None:
    """Give a tensor a new expression; its value will be stored in the memory of the tensor, if any."""
    home, version = _claim(t)
    if home is not None and home.buffer.lost and not home.buffer.device.closed:
        home = None  # its contents were lost to a fault: use new memory
    if home is not None:
        home.buffer.live()  # raise now, not at the next realize
        home.writes += 1
        if new.expr.op is PARAM:
            new = recomputed(new)  # an expression that is computed into this tensor's memory
    recipe = Rebound(home, version if home is not None else BORROWED, first=not t.used)
    note_behind(t, new, recipe)
    become(t, new.expr, new.leaves)
    t.epoch, t.recipe = new.epoch, recipe
    link = link_of(t)
    number = id(t)
    if home is None and (new.expr.op is PARAM or (link is not None and link.parent is not None)):
        PENDING.pop(number, None)
        return
    PENDING[number] = threading.get_ident(), weakref.ref(t, lambda _: PENDING.pop(number, None))


def _claim(t: TensorBase) -> tuple[Home | None, int]:
    """Return the memory that an assignment to t writes, and its version; (None, 0) without own memory."""
    if not owns(t):
        return None, 0
    recipe = t.recipe
    if recipe.__class__ is Rebound and recipe.home is not None:
        return recipe.home, recipe.version
    home = home_of(t.leaves[0])
    return home, home.version
