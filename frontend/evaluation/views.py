"""Views: tensors that share their elements with the tensor that they were taken from.

Indexing by slices and whole numbers, reshape, permute, transpose, expand, shrink, ... return a view. A write
to a view changes the tensor that it was taken from and all other views of that; a write to that tensor
changes the views. As a tensor is an expression over leaves, no memory is shared: a write builds the new value
of the root (`put_back`), and derives every other tensor of the family again (`frontend.assignment`).

A *family* is the set of all tensors that share elements, referenced weakly; its first member is the *root*. A
view has a `FamilyLink`: the family, the link of the tensor that it was taken from, and the function and
arguments that took it. A view therefore keeps neither its root nor other views alive. A tensor without views
has no family.

Not here: the write (`frontend.assignment`), views of buffers (`hcq.memory`). Decision: ADR 12.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Concatenate, Final, ParamSpec

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.device import LOCK
from frontend.evaluation.base import BORROWED, Family, FamilyLink, Rebound, T, TensorBase
from frontend.evaluation.constants import constant, ruled
from frontend.evaluation.expr import PARAM, RULED, STOP, TensorExpr, inside, leaf_expr
from frontend.evaluation.trace import CUT, abstract, apply, become, composite, make, method, traced
from frontend.later import later
from hcq.errors import UsageError

history = later("frontend.evaluation.history")  # it needs this module
P = ParamSpec("P")
_tuple = tuple.__new__
_ref = weakref.ref
SWEEP: Final = 64
"""Dead references are removed each time that a family has grown by so many members."""


BACK: Final[dict[Any, Callable[..., TensorBase]]] = {}
"""View functions that `put_back` cannot invert -> inverse(parent, value, *arguments), the new parent."""


def share(base: TensorBase, view: TensorBase, read: Any, args: tuple[Any, ...], names: Any = None) -> None:
    """Add `view`, the result of `read(base, *args, **names)`, to the family of `base`.

    A view that is taken inside `Tensor.no_grad` is a detached one.
    """
    try:
        link = base.link
    except AttributeError:
        link = base.link = FamilyLink(deque([_ref(base)]), None, base.expr.leaf)
    family = link[0]
    view.link = _tuple(FamilyLink, (family, link, read, args, names))
    if CUT and view.expr.dtype.is_float:
        view.link = FamilyLink(family, view.link, detach)
    family.append(_ref(view))
    if not len(family) % SWEEP:
        _sweep(family)


def _sweep(family: Family) -> None:
    """Remove dead references, unless another thread holds `LOCK` and may be iterating over the family."""
    if LOCK.acquire(blocking=False):
        try:
            for _ in range(len(family)):
                ref = family.popleft()
                if ref() is not None:
                    family.append(ref)
        finally:
            LOCK.release()


def leave(t: TensorBase) -> None:
    """Remove a tensor from its family: it shares no elements from now on."""
    link = link_of(t)
    if link is not None:
        link.family.remove(_ref(t))
        del t.link


def link_of(t: TensorBase) -> FamilyLink | None:
    """Return the link of a tensor; None when it has no views and is none."""
    try:
        return t.link
    except AttributeError:
        return None


def others(t: TensorBase) -> list[TensorBase]:
    """Return the other living tensors that share elements with t."""
    link = link_of(t)
    if link is None:
        return []
    found = [ref() for ref in list(link.family)]
    return [m for m in found if m is not None and m is not t]


def relations(tensors: Sequence[TensorBase]) -> list[list[tuple[int, FamilyLink]]]:
    """Return (index, link) of the tensors that share elements with others of them, by family."""
    found: dict[int, list[tuple[int, FamilyLink]]] = {}
    for i, t in enumerate(tensors):
        link = link_of(t)
        if link is not None:
            found.setdefault(id(link.family), []).append((i, link))
    return [
        sorted(members, key=lambda m: m[1].parent is not None) for members in found.values() if members[1:]
    ]


def relate(tensors: Sequence[TensorBase], relations: Sequence[Sequence[tuple[int, FamilyLink]]]) -> None:
    """Let tensors share elements as those did of which `relations` were taken.

    The first of each family may have a family already, which the others join.
    """
    for members in relations:
        first, link = members[0]
        base = tensors[first]
        if link.parent is None and link_of(base) is None:
            base.link = FamilyLink(deque([_ref(base)]), None, base.expr.leaf)
        now = link_of(base) if link.parent is None else None
        family: Family = deque() if now is None else now.family
        new: dict[int, FamilyLink] = {} if now is None else {id(link): now}
        for i, link in members[now is not None :]:
            before = link_of(tensors[i])
            if before is None or before.family is not family:
                tensors[i].link = _moved(link, family, new)
                family.append(_ref(tensors[i]))
                if not len(family) % SWEEP:
                    _sweep(family)


def _moved(link: FamilyLink, family: Family, new: dict[int, FamilyLink]) -> FamilyLink:
    """Return a link in another family; `new` are the links there by the ids of those that they stand for."""
    if id(link) not in new:
        parent = None if link.parent is None else _moved(link.parent, family, new)
        new[id(link)] = link._replace(family=family, parent=parent)
    return new[id(link)]


def owns(t: TensorBase) -> bool:
    """Return whether a tensor has memory of its own, which an assignment writes."""
    recipe = t.recipe
    if recipe.__class__ is Rebound:
        return recipe.home is not None or (t.expr.op is PARAM and recipe.version != BORROWED)
    return t.expr.op is PARAM and recipe is None


def follow(root: TensorBase) -> None:
    """Derive the views of a root with a new leaf again, except those with memory of their own.

    Detached ones keep the history of what was written to them.
    """
    link = link_of(root)
    if link is None or link.parent is not None:
        return
    for m in others(root):
        if not owns(m):
            new = derived(m.link, root)
            if alias_of(m) is not None and history.has_history(m):
                new = beside(m, new)
            become(m, new.expr, new.leaves)
            m.epoch = new.epoch
            m.recipe = Rebound(None, BORROWED)


def viewing(fn: Callable[Concatenate[T, P], T]) -> Callable[Concatenate[T, P], T]:
    """Memoise a method whose results are views of its first argument; see `trace.method`."""
    return method(fn, share)


@viewing
def detach(self: T) -> T:
    """Return the same value, through which no gradient flows. A view.

    A write through it changes self without a trace in its history: gradients flow as before the write. It is
    allowed for tensors with requires_grad, too. The result, and views of it, have the history of what is
    written to them; a write to self changes their values and leaves that history.
    """
    return apply(STOP, None, self)


def beside(parent: T, value: T) -> T:
    """Return a value with the history of `parent`, which is written without a trace."""
    e = parent.expr
    if e.op is RULED and e.arg[0] == "beside":  # the history of one value, however often it is written
        parent = make(parent, inside((e, parent.leaves), 1))
    return ruled("beside", value, parent)


BACK[detach] = beside


def alias_of(t: TensorBase) -> FamilyLink | None:
    """Return the link at which a view was detached, the last one; None for a tensor that was not.

    The views of one `detach` share a history of gradients.
    """
    link = link_of(t)
    while link is not None and link.read is not detach:
        link = link.parent
    return link


def derived(link: FamilyLink, root: TensorBase, top: FamilyLink | None = None) -> TensorBase:
    """Return the view that a link describes, taken of `root`; gradients flow inside `no_grad`, too.

    With `top`, a link behind the first one, `root` is the view of that.
    """
    if link.parent is None or link is top:
        return root
    found: TensorBase = traced(link.read, derived(link.parent, root, top), *link.args, **link.names or {})
    return found


def written(
    link: FamilyLink, root: TensorBase, value: TensorBase, top: FamilyLink | None = None
) -> TensorBase:
    """Return the new value of the root when the view of a link has the value `value`.

    With `top`, a link behind the first one, `root` is the view of that. Raises `UsageError` when several
    elements of the view are one element of the root.
    """
    if link.parent is None or link is top:
        return value
    parent = derived(link.parent, root, top)
    back = BACK.get(link.read)
    if back is not None:
        new = traced(back, parent, value, *link.args)
    else:
        e = parent.expr
        stand_in = abstract(parent, leaf_expr(e.shape, e.dtype, e.device), (0,))
        new = traced(
            put_back, parent, value, traced(link.read, stand_in, *link.args, **link.names or {}).expr
        )
    return written(link.parent, root, new, top)


@composite
def put_back(self: TensorBase, value: TensorBase, chain: TensorExpr) -> TensorBase:
    """Return self with `value` in a view of it; `chain` is the expression of the view of a leaf."""
    if 0 in value.expr.shape:
        return self
    whole = prod(value.expr.shape) == prod(self.expr.shape)
    mask = constant(value, True, dtypes.bool, value.expr.shape)
    while chain.op is not PARAM:
        value = _undone(chain, value)
        if not whole:
            mask = _undone(chain, mask)
        chain = chain.src[0]
    return value if whole else apply(Ops.WHERE, None, mask, value, self)


def _undone(e: TensorExpr, x: TensorBase) -> TensorBase:
    """Return x, which has the shape of a movement's result, in the shape of its source, padded by 0."""
    shape = e.src[0].shape
    if e.op is Ops.RESHAPE or (e.op is Ops.EXPAND and prod(shape) == prod(e.shape)):
        return apply(Ops.RESHAPE, shape, x)
    if e.op is Ops.PERMUTE:
        return apply(Ops.PERMUTE, tuple(sorted(range(len(e.arg)), key=e.arg.__getitem__)), x)
    if e.op is Ops.FLIP:
        return apply(Ops.FLIP, e.arg, x)
    if e.op is Ops.SHRINK:
        pairs = [(begin, n - end) for (begin, end), n in zip(e.arg, shape, strict=True)]
        return apply(Ops.PAD, tuple(pairs), x)
    if e.op is Ops.PAD:
        return apply(Ops.SHRINK, tuple([(lo, lo + n) for (lo, _), n in zip(e.arg, shape, strict=True)]), x)
    raise UsageError(
        f"several elements of a view of shape {e.shape} are one element of the tensor of shape {shape} that "
        "it was taken from: a write is ambiguous\n"
        "hint: clone() the view first, or write to the tensor"
    )
