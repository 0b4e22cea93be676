"""Views: tensors that share their elements with the tensor that they were taken from.

Indexing by slices and whole numbers, reshape, permute, transpose, expand, shrink, ... return a view: a write
to it changes the tensor that it was taken from and all other views of that, and a write to that changes the
view. A tensor stays an expression over leaves, so nothing is shared in memory: a write builds the new whole
(`put_back`), and every other tensor of the family is derived anew (`frontend.assignment`).

A *family* is the set of all living tensors that share elements, held weakly; its first is the *root*. A view
keeps a `Link`: the family, the link of the tensor that it was taken from, and the function and arguments that
took it. So a view keeps neither its root nor other views alive, and a tensor without views has no family.

Not here: the write (`frontend.assignment`), views of buffers (`hcq.memory`). Decision: ADR 12.
"""

from __future__ import annotations

import weakref
from collections import deque
from math import prod
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.device import LOCK
from frontend.expr import PARAM, Expr, leaf_expr
from frontend.ops.sources import constant
from frontend.tensor_base import BORROWED, Link, Rebound
from frontend.trace import abstract, apply, become, composite, method
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.tensor_base import Family, T, TensorBase

P = ParamSpec("P")
_tuple = tuple.__new__
_ref = weakref.ref
SWEEP: Final = 64


BACK: Final[dict[Any, Callable[..., TensorBase]]] = {}
"""For functions whose views are not put back by `put_back`: (parent, value, *arguments) to the new parent."""


def share(base: TensorBase, view: TensorBase, read: Any, args: tuple[Any, ...], names: Any = None) -> None:
    """Make `view`, which `read(base, *args, **names)` gave, one of base's family."""
    try:
        link = base.link
    except AttributeError:
        link = base.link = Link(deque([_ref(base)]), None, base.expr.leaf)
    family = link[0]
    view.link = _tuple(Link, (family, link, read, args, names))
    family.append(_ref(view))
    if not len(family) % SWEEP:
        _sweep(family)


def _sweep(family: Family) -> None:
    """Drop dead references; not while another thread writes to the family, which iterates over it."""
    if LOCK.acquire(blocking=False):
        try:
            for _ in range(len(family)):
                ref = family.popleft()
                if ref() is not None:
                    family.append(ref)
        finally:
            LOCK.release()


def leave(t: TensorBase) -> None:
    """Take a tensor out of its family: its elements are its own from now on."""
    link = link_of(t)
    if link is not None:
        link.family.remove(_ref(t))
        del t.link


def link_of(t: TensorBase) -> Link | None:
    """Return how a tensor belongs to a family, None when it never had views nor is one."""
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


def owns(t: TensorBase) -> bool:
    """Return whether a tensor has memory of its own: then an assign stores there."""
    recipe = t.recipe
    if recipe.__class__ is Rebound:
        return recipe.home is not None or (t.expr.op is PARAM and recipe.version != BORROWED)
    return t.expr.op is PARAM and recipe is None


def follow(root: TensorBase) -> None:
    """Derive the views of a root that has another leaf anew where they have no memory of their own."""
    link = link_of(root)
    if link is None or link.parent is not None:
        return
    for m in others(root):
        if not owns(m):
            new = derived(m.link, root)
            become(m, new.expr, new.leaves)
            m.epoch = new.epoch
            m.recipe = Rebound(None, BORROWED)


def viewing(fn: Callable[Concatenate[T, P], T]) -> Callable[Concatenate[T, P], T]:
    """Memoise a method whose results are views of its tensor: see `frontend.trace.method`."""
    return method(fn, share)


def derived(link: Link, root: TensorBase) -> TensorBase:
    """Return what a view of that link is of a root."""
    if link.parent is None:
        return root
    found: TensorBase = link.read(derived(link.parent, root), *link.args, **link.names or {})
    return found


def written(link: Link, root: TensorBase, value: TensorBase) -> TensorBase:
    """Return the root with a view of that link having another value.

    Raises `UsageError` where several elements of the view are one element of the root.
    """
    if link.parent is None:
        return value
    parent = derived(link.parent, root)
    back = BACK.get(link.read)
    if back is not None:
        new = back(parent, value, *link.args)
    else:
        e = parent.expr
        stand_in = abstract(parent, leaf_expr(e.shape, e.dtype, e.device), (0,))
        new = put_back(parent, value, link.read(stand_in, *link.args, **link.names or {}).expr)
    return written(link.parent, root, new)


@composite
def put_back(self: TensorBase, value: TensorBase, chain: Expr) -> TensorBase:
    """Return self with the value of a view of it; `chain` is the view of a leaf of self's shape."""
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


def _undone(e: Expr, x: TensorBase) -> TensorBase:
    """Return x, of the shape of a movement's result, moved back to that of its source, among zeros."""
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
        f"writing to a view of shape {e.shape} in which several elements are one element of the tensor of "
        f"shape {shape} that it was taken from: which value is meant?\n"
        "hint: clone() the view first, or write to the tensor"
    )
