"""Views: tensors that share their elements with the tensor that they were taken from.

Indexing by slices and whole numbers, reshape, permute, transpose, expand, shrink, ... return a view. A write
to a view changes the tensor that it was taken from and all other views of that tensor; a write to that tensor
changes the views. A tensor is an expression over leaves, so views share no memory. Instead, a write builds
the new value of the root (`put_back`) and recomputes the expression of every other tensor of the family.

A *family* is the set of all tensors that share elements, referenced weakly; its first member is the *root*,
which is no view. A view has a `FamilyLink`: the family, the link of the tensor that it was taken from, and
the function and arguments that took it. A view therefore keeps neither its root nor other views alive. A
tensor without views has no family. A view is *detached* if `detach` is among its functions.

Not here: views of buffers (`hcq.memory`). Next: `frontend.assignment`, the write. Decision: ADR 12.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from math import prod
from operator import mul
from types import NoneType
from typing import Any, Concatenate, Final, ParamSpec

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.device import LOCK
from frontend.evaluation.base import BORROWED, THREAD, Family, FamilyLink, Rebound, T, TensorBase
from frontend.evaluation.constants import constant, ruled
from frontend.evaluation.expr import PARAM, RULED, STOP, TABLE, TensorExpr, inside, leaf_expr
from frontend.evaluation.trace import abstract, apply, become, composite, make, method, traced
from frontend.later import later
from hcq.errors import UsageError

history = later("frontend.evaluation.history")  # it needs this module
P = ParamSpec("P")
_tuple = tuple.__new__
_ref = weakref.ref
SWEEP: Final = 64
"""Dead references are removed each time that the length of a family is a multiple of this number."""


BACK: Final[dict[Any, Callable[..., TensorBase]]] = {}
"""View function that `put_back` cannot invert -> inverse(parent, value, *arguments), the new parent."""
LAYOUTS: Final[dict[Any, Callable[..., tuple[tuple[int, ...], tuple[int, ...]]]]] = {}
"""View function that is no movement -> function of the parent's shape and strides, and the arguments."""


def share(base: TensorBase, view: TensorBase, read: Any, args: tuple[Any, ...], names: Any = None) -> None:
    """Add `view`, the result of `read(base, *args, **names)`, to the family of `base`.

    A view of floats that is taken inside `Tensor.no_grad` becomes a detached view.
    """
    try:
        link = base.link
    except AttributeError:
        link = base.link = FamilyLink(deque([_ref(base)]), None, base.expr.leaf)
    family = link[0]
    view.link = _tuple(FamilyLink, (family, link, read, args, names))
    if THREAD.cut and view.expr.dtype.is_float:
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
        for _ in range(len(link.family)):  # not by ==, which compares elements
            ref = link.family.popleft()
            if ref() is not t:
                link.family.append(ref)
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
    """Return the groups of `tensors` that share elements: (index, link) of each, a root first.

    Tensors that share elements with none of the others are left out.
    """
    found: dict[int, list[tuple[int, FamilyLink]]] = {}
    for i, t in enumerate(tensors):
        link = link_of(t)
        if link is not None:
            found.setdefault(id(link.family), []).append((i, link))
    return [
        sorted(members, key=lambda m: m[1].parent is not None) for members in found.values() if members[1:]
    ]


def relate(tensors: Sequence[TensorBase], relations: Sequence[Sequence[tuple[int, FamilyLink]]]) -> None:
    """Make tensors share elements as the tensors did from which `relations` were taken.

    If the first tensor of a group is a root, it may have a family already, which the others join.
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
    """Return the copy of a link in another family; `new`, which is extended, has id of a link -> its copy."""
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


def rederive_views(root: TensorBase) -> None:
    """Recompute the expression of every view after `root` got a new leaf; for a view, do nothing.

    Views with memory of their own are left as they are. Detached views keep the history of what was written
    to them.
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


def strides(t: TensorBase) -> tuple[int, ...]:
    """Return how many elements neighbours along each axis are apart in memory: of a view, in its root's.

    They do not depend on what was computed so far.
    """
    link = link_of(t)
    if link is None or link.parent is None or 0 in t.expr.shape:
        return row_major(t.expr.shape)
    return _layout(t, link)[1]


def offset(t: TensorBase) -> int:
    """Return the place of the first element in the memory of the root; see `strides`."""
    link = link_of(t)
    return 0 if link is None or link.parent is None or 0 in t.expr.shape else _layout(t, link)[2]


def _layout(t: TensorBase, link: FamilyLink) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the shape, the strides and the offset of the view of a link; `t` has its dtype and device."""
    if link.parent is None:
        return link.read.shape, row_major(link.read.shape), 0
    shape, apart, start = _layout(t, link.parent)
    if link.read in LAYOUTS:
        own, steps = LAYOUTS[link.read](shape, apart, *link.args)
        return own, steps, start * prod(own) // max(1, prod(shape))
    found: tuple[tuple[int, ...], tuple[int, ...], int] | None = None
    key: Any = None
    if not link.names and all(map(_is_number, link.args)):
        key = strides, link.read, link.args, shape, apart
        found = TABLE.get(key)
    if found is None:
        parent = abstract(t, leaf_expr(shape, t.expr.dtype, t.expr.device), (0,))
        e = traced(link.read, parent, *link.args, **link.names or {}).expr
        origin, axes = _place(e, [0] * len(e.shape), apart), range(len(e.shape))
        units = [[int(i == axis) for i in axes] for axis in axes]
        found = e.shape, tuple([_place(e, unit, apart) - origin for unit in units]), origin
        if key is not None:
            TABLE[key] = found
    return *found[:2], start + found[2]


def _is_number(value: object) -> bool:
    """Return whether an argument is a number, None, or a tuple of these."""
    return all(map(_is_number, value)) if isinstance(value, tuple) else isinstance(value, (int, NoneType))


def _place(e: TensorExpr, index: list[int], apart: tuple[int, ...]) -> int:
    """Return the place in memory of an element of a view, of a tensor with strides `apart`."""
    while e.src:
        source = e.src[0]
        if e.op is Ops.RESHAPE:
            number, index = sum(map(mul, index, row_major(e.shape))), [0] * len(source.shape)
            for axis in range(len(index) - 1, -1, -1):
                number, index[axis] = divmod(number, source.shape[axis]) if axis else (0, number)
        elif e.op is Ops.PERMUTE:
            index = [index[e.arg.index(axis)] for axis in range(len(index))]
        elif e.op is Ops.EXPAND:
            index = [0 if n != m else i for i, n, m in zip(index, e.shape, source.shape, strict=True)]
        elif e.op is Ops.SHRINK:
            index = [i + low for i, (low, _) in zip(index, e.arg, strict=True)]
        elif e.op is Ops.PAD:
            index = [i - before for i, (before, _) in zip(index, e.arg, strict=True)]
        elif e.op is Ops.WINDOW:
            outer, inner = index[: len(source.shape)], index[len(source.shape) :]
            for i, axis, step, spacing in zip(inner, e.arg[0], *e.arg[2:], strict=True):
                outer[axis] = outer[axis] * step + i * spacing
            index = outer
        else:  # a part that begins at a bound variable has its place, and the strides, of the first one
            assert e.op in {STOP, Ops.GATHER}, e
        e = source
    return sum(map(mul, index, apart))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a shape in row-major order."""
    found, step = [], 1
    for n in reversed(shape):
        found.append(step)
        step *= n or 1
    return tuple(reversed(found))


def _reshaped(old: tuple[int, ...], apart: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides of elements in another shape; None if that needs a copy of them."""
    if 0 in old or not old:
        return None
    found: list[int] = []
    axis, count, inner = len(new) - 1, 1, apart[-1]
    for a in range(len(old) - 1, -1, -1):  # blocks of axes that are one axis in memory
        count *= old[a]
        if a and (old[a - 1] == 1 or apart[a - 1] == count * inner):
            continue
        size = 1
        while axis >= 0 and (size < count or new[axis] == 1):
            found.append(size * inner)
            size, axis = size * new[axis], axis - 1
        if size != count:
            return None
        count, inner = 1, apart[a - 1]
    return tuple(reversed(found))


def is_dense(t: TensorBase) -> bool:
    """Return whether elements follow in memory in row-major order, as for all tensors but some views."""
    link = link_of(t)
    if link is None or link.parent is None:
        return True
    shape = t.expr.shape
    return 0 in shape or all(
        n == 1 or a == b for n, a, b in zip(shape, strides(t), row_major(shape), strict=True)
    )


def reshaping(fn: Callable[Concatenate[T, P], T]) -> Callable[Concatenate[T, P], T]:
    """Memoise a method whose results are views of its first argument, or copies where PyTorch copies."""

    def share_unless_copied(base: TensorBase, view: TensorBase, *how: Any) -> None:
        before, shape = base.expr.shape, view.expr.shape
        if is_dense(base) or shape == before or _reshaped(before, strides(base), shape) is not None:
            share(base, view, *how)

    return method(fn, share_unless_copied)


def flattening(fn: Callable[Concatenate[T, P], T]) -> Callable[Concatenate[T, P], T]:
    """Memoise a method whose results are views of a first argument that is dense, else copies."""

    def share_if_dense(base: TensorBase, view: TensorBase, *how: Any) -> None:
        if is_dense(base):
            share(base, view, *how)

    return method(fn, share_if_dense)


def viewing(fn: Callable[Concatenate[T, P], T]) -> Callable[Concatenate[T, P], T]:
    """Memoise a method whose results are views of its first argument; see `trace.method`."""
    return method(fn, share)


@viewing
def detach(self: T) -> T:
    """Return the same value, through which no gradient flows. A view.

    A write to the result changes the values of self, but not its history: gradients of self flow as before
    the write. Such a write is allowed for tensors with requires_grad, too. The result and views of it get the
    history of values that are written to them. A write to self changes their values, not their history.
    """
    return apply(STOP, None, self)


def beside(parent: T, value: T) -> T:
    """Return `value` with the history of `parent`: gradients flow to `parent` alone."""
    e = parent.expr
    if e.op is RULED and e.arg[0] == "beside":  # the history of one value, however often it is written
        parent = make(parent, inside((e, parent.leaves), 1))
    return ruled("beside", value, parent)


BACK[detach] = beside


def alias_of(t: TensorBase) -> FamilyLink | None:
    """Return the last link of `detach` on the way from a view to its root; None if there is none.

    Views with the same such link share one history of gradients.
    """
    return _last_link(t, detached=True)


def _last_link(t: TensorBase, *, detached: bool = False) -> FamilyLink | None:
    """Return the last link of other methods than `detach`, or with `detached` of it; None without one."""
    link = link_of(t)
    while link is not None and (link.read is detach) is not detached:
        link = link.parent
    return link


def is_alias(a: TensorBase, b: TensorBase) -> bool:
    """Return whether two tensors have the same elements: one was taken of the other by `detach` alone."""
    link = _last_link(a)
    return a is b or (link is not None and link is _last_link(b))


def attached(t: T) -> T:
    """Return the tensor that `t` was taken of by `detach` alone, while it is alive; else `t`."""
    link = _last_link(t)
    found: T = next((m for m in others(t) if link_of(m) is link), t)  # type: ignore[assignment]  # of one class
    return found


def derived(link: FamilyLink, root: TensorBase, top: FamilyLink | None = None) -> TensorBase:
    """Return the view that a link describes, taken of `root`; gradients flow inside `no_grad`, too.

    With `top`, a link between the root and `link`, `root` is the view that `top` describes.
    """
    if link.parent is None or link is top:
        return root
    found: TensorBase = traced(link.read, derived(link.parent, root, top), *link.args, **link.names or {})
    return found


def written(
    link: FamilyLink, root: TensorBase, value: TensorBase, top: FamilyLink | None = None
) -> TensorBase:
    """Return the new value of the root when the view of a link has the value `value`.

    `top` as for `derived`. Raises `UsageError` when several elements of the view are one element of the root.
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
    """Return self with `value` written to a view; `chain` is the view as an expression over one leaf."""
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
    """Return x, of the shape of a movement e, moved back to the shape of e's source and padded with 0."""
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
