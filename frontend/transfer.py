"""Moving a tensor to another device: by its queue where it sees the memory, else through host memory.

The result is realized: a leaf. If the tensor depends on one with requires_grad, the leaf keeps the expression
that it was moved from and that expression's memory (`frontend.evaluation.storage.LeafOrigin`), so that
gradients flow back. Otherwise the leaf keeps nothing on the other device.

Not here: copies on one device (`copies`). Next: `frontend.autograd.engine`, gradients between devices.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any
from typing import cast as cast_type

from compiler.dtype import DType
from frontend.arguments.conversion import flag
from frontend.device import LOCK, Device
from frontend.evaluation.base import EPOCH, Rebound, T, TensorBase
from frontend.evaluation.expr import PARAM, Leaves, Part, TensorExpr, leaf_expr
from frontend.evaluation.gradient_state import wanting, wants, written_since
from frontend.evaluation.history import between, flowing_of, readable, realize_for_reading, realize_grouped
from frontend.evaluation.plan import refuse
from frontend.evaluation.realize import realize_one
from frontend.evaluation.refresh import refresh
from frontend.evaluation.storage import NUMBERS, Leaf, LeafOrigin, read, stored
from frontend.evaluation.trace import make
from frontend.later import later
from frontend.ops.casts import cast
from frontend.ops.movement import contiguous

_transport = later("frontend.distributed.transport")


def to(
    self: T,
    device: str | DType | TensorBase | None = None,
    dtype: DType | str | bool | None = None,  # noqa: FBT001 - PyTorch's second form
    non_blocking: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    copy: bool = False,  # noqa: FBT001, FBT002 - as above
) -> T:
    """Return the value on another device, as a realized tensor through which gradients flow back.

    `device` is a name, None for the default device, a dtype, to which self is cast, or a tensor, whose device
    and dtype are used. `dtype` casts the result; None does not, and a bool is `non_blocking`, as in PyTorch.
    If nothing changes, the result is self, unless `copy` is true. `non_blocking` changes nothing. Gradients
    reach the tensors that have requires_grad at the time of the call.

    A move to another device computes a pending tensor. The queue of a device that sees the other's memory
    copies, after what computes the tensor and before what overwrites it, and the host waits for nothing. Else
    the host waits for the tensor. Raises `UsageError` for an unknown
    device and for a move inside a captured function, `UsageTypeError` for flags that are no bools, and as
    `realize`, `cast` and `stored`.
    """
    if isinstance(dtype, bool):  # PyTorch's to(dtype or tensor, non_blocking, copy)
        return to(self, device, None, dtype, non_blocking)
    flag(non_blocking, "to, non_blocking")
    if flag(copy, "to, copy"):
        moved = to(self, device, dtype)
        return contiguous(moved) if moved is self else moved
    if isinstance(device, self.__class__):
        return cast(to(self, device.expr.device), device.expr.dtype)
    if dtype is not None:
        return cast(self if device is None else to(self, device), dtype)
    if isinstance(device, DType):
        return cast(self, device)
    name = Device.named(cast_type("str | None", device))
    if name == self.expr.device:
        return self
    return move(self, name, lambda e, leaf: _stored(e, leaf, name))


def _stored(e: TensorExpr, leaf: Leaf, name: str) -> Part:
    target = Device[name]
    if target.devices:
        return cast_type("Any", target).part_of(e, leaf, None)  # type: ignore[no-any-return]  # a mesh
    source, size = Device[e.device], prod(e.shape) * e.dtype.itemsize
    if size and not source.devices:
        with LOCK:  # the launch of the leaf is submitted, and its memory stays its own
            leaf.buffer.live()
            made = _transport.copied(source, leaf.buffer, size, target)
        if made is not None:
            return leaf_expr(e.shape, e.dtype, target.name), (Leaf(made),)
    return read(e, leaf, lambda data: stored(data, e.shape, e.dtype, name))


def move(self: T, name: str, put: Callable[[TensorExpr, Leaf], Part]) -> T:
    """Return the value on the device `name`, where `put` copies the memory of a leaf; see `to`.

    Raises `UsageError` inside a captured function, and as `realize` and `put`.
    """
    refuse(
        f"a tensor was moved to {name} inside a captured function: a replay could not do that\n"
        "hint: move it outside"
    )
    source, differentiable = _source(self)
    realize_one(source)
    e, leaf = readable(source)
    new = self.of_part(put(e, leaf))
    if differentiable is not None:
        expr, leaves = differentiable
        new.leaves[0].origin = LeafOrigin(next(NUMBERS), new.expr, expr, leaves)
    return new


def flows(t: T, *, beyond: bool = False) -> bool:
    """Return whether gradients flow through a tensor to one with requires_grad; `beyond`: to another one."""
    if not t.expr.dtype.is_float:
        return False
    if t.recipe.__class__ is not Rebound and t.epoch != EPOCH[0] and t.epoch:
        refresh(t)
    return _wanted((t.expr, t.leaves), beyond=t if beyond else None)


def _source(t: T) -> tuple[T, tuple[Any, Leaves] | None]:
    """Return the tensor to realize and copy, and the part to which gradients flow back, None if to none.

    Realizing t would end its history. If a gradient needs the history, another tensor of the same expression
    is returned to be realized.
    """
    with LOCK:
        realize_grouped(t)
        if not t.expr.dtype.is_float:
            return t, None
        if t.recipe.__class__ is Rebound:
            realize_for_reading(t)
        elif t.epoch != EPOCH[0]:
            refresh(t)
        part = t.expr, t.leaves
        t.used = True
        if not _wanted(part):
            return t, None
        return (t if part[0].op is PARAM else make(t, part)), part


def _wanted(part: tuple[Any, Leaves], *, beyond: Any = None) -> bool:
    """Return whether a gradient of this part would reach a tensor with requires_grad other than `beyond`."""
    leaves = set(part[1])
    marked = {(t.expr, t.leaves) for t in wanting() if leaves.issuperset(t.leaves)}
    if beyond is not None and wants(beyond):
        marked.discard(part)
    moved = {(leaf.origin.there, (leaf,)) for leaf in part[1] if leaf.origin is not None}
    through = tuple([part[1][i] for i in flowing_of(part[0])])
    if beyond is not None:
        through = tuple([leaf for leaf in through if leaf.of is None or leaf.of() is not beyond])
    return bool(written_since(through) or between(part, marked | moved))
