"""Methods that place a tensor on several devices, and functions that look at the parts.

Not here: what operations do with placed tensors (`rules`). Next: `layout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, cast

from frontend.arguments.checks import axis_of, tensor
from frontend.assignment import refer
from frontend.device import LOCK, Device
from frontend.distributed.layout import WHOLE, Spread, TensorLayout, even
from frontend.distributed.mesh import Mesh
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.expr import PARAM, PLACE, leaf_expr
from frontend.evaluation.gradient_state import give_gradients
from frontend.evaluation.history import readable
from frontend.evaluation.realize import realize_one
from frontend.evaluation.storage import Leaf
from frontend.evaluation.trace import apply, make, method
from frontend.transfer import move, to
from hcq.errors import UsageError, UsageTypeError

Devices = str | Sequence[str]


def mesh_of(devices: Devices) -> Mesh:
    """Return the mesh of devices, given by their names or by the name of the mesh.

    Raises `UsageTypeError` for anything but names, `UsageError` for fewer than two devices, for one device
    twice, and as `Device[name]`.
    """
    if not isinstance(devices, (str, list, tuple)) or not all(isinstance(name, str) for name in devices):
        raise UsageTypeError(f"devices: wanted names such as ('cpu:0', 'cpu:1'), saw {devices!r}")
    found = Device[devices if isinstance(devices, str) else ",".join(devices)]
    if not isinstance(found, Mesh):
        raise UsageError(f"devices: wanted at least two, as in ('cpu:0', 'cpu:1'), saw {devices!r}")
    return found


@method
def _placed(x: T, axis: int | None) -> T:
    return apply(PLACE, axis, x)


def shard(self: T, devices: Devices, axis: int = 0, *, sizes: Sequence[int] | None = None) -> T:
    """Return the value divided along an axis over several devices; gradients flow back.

    `devices` are names, ("cpu:0", "cpu:1"), or the name of their mesh, "cpu:0,cpu:1". `sizes`, if given, is
    how much of the axis each device gets; by default the parts are equal, and the first ones larger by one
    where they cannot be. From another device the tensor is computed and copied, and only then `sizes` may be
    given. On the mesh itself the result is pending.

        x = x.shard(("cpu:0", "cpu:1"), axis=0)

    Raises `UsageError` for sizes that do not add up to the axis, and as `to`; `UsageIndexError` for an axis
    that does not exist.
    """
    mesh, shape = mesh_of(devices), self.expr.shape
    axis = axis_of(axis, shape, "shard")
    if self.expr.device == mesh.name:
        if sizes is not None:
            raise UsageError("shard, sizes: this tensor is on the mesh already, where parts are equal")
        return _placed(self, axis)
    layout = TensorLayout(axis, even(shape[axis], len(mesh.devices)))
    if sizes is not None:
        layout = TensorLayout(axis, _bounds(sizes, shape[axis], len(mesh.devices)))

    return move(self, mesh.name, lambda e, leaf: mesh.part_of(e, leaf, layout))


def _bounds(sizes: Sequence[int], size: int, count: int) -> tuple[tuple[int, int], ...]:
    if len(sizes) != count or sum(sizes) != size or min(sizes) < 0:
        raise UsageError(f"shard, sizes: wanted {count} sizes that add up to {size}, saw {list(sizes)}")
    ends = [sum(sizes[:i]) for i in range(count + 1)]
    return tuple(pairwise(ends))


def replicate(self: T, devices: Devices) -> T:
    """Return the value whole on each of several devices; gradients flow back. Raises as `to` and `shard`."""
    mesh = mesh_of(devices)
    return _placed(self, None) if self.expr.device == mesh.name else to(self, mesh.name)


def shard_(self: T, devices: Devices, axis: int = 0) -> T:
    """Divide this tensor over several devices, in place, as a module's `to` moves it; return self.

    Its gradient is divided, too. Views that were taken of it before keep the old value. Raises as `shard`.
    """
    return _in_place(self, lambda t: shard(t, devices, axis))


def replicate_(self: T, devices: Devices) -> T:
    """Place this tensor whole on each of several devices, in place; return self. See `shard_`."""
    return _in_place(self, lambda t: replicate(t, devices))


def _in_place(t: T, place: Any) -> T:
    placed = place(t.detach() if hasattr(t, "detach") else t).realize()
    refer(t, placed)
    give_gradients(t, t, place)
    return t


def layout_of(t: TensorBase) -> TensorLayout:
    """Return how a tensor on a mesh lies on its devices; it is computed first.

    Raises `UsageError` for a tensor on one device, and as `realize`.
    """
    return _spread(t).layout or WHOLE


def placed_as(x: T, t: TensorBase) -> T:
    """Return x, on the mesh of t, divided along the same axis as t if t is. Raises as `layout_of`."""
    memory = t.expr.op is PARAM  # inside a captured function too, as no value is read
    axis = cast("Any", t.leaves[0]).buffer.layout.axis if memory else layout_of(t).axis
    return x if axis is None else _placed(x, axis)


def shards(t: T) -> list[T]:
    """Return a copy of the part of each device, as tensors on these devices; the tensor is computed first.

    Raises `UsageError` for a tensor on one device, and as `realize`.
    """
    spread = _spread(t)
    mesh, layout = spread.device, spread.layout or WHOLE
    with LOCK:
        return [
            t.of_part(
                (
                    leaf_expr(layout.shape_on(i, t.expr.shape), t.expr.dtype, device.name),
                    (Leaf(device.copied(b)),),
                )
            )
            for i, (device, b) in enumerate(zip(mesh.devices, spread.parts, strict=True))
        ]


def _spread(t: TensorBase) -> Spread:
    tensor(t, "layout_of", t)
    if not Device[t.expr.device].devices:
        raise UsageError(
            f"this tensor is on one device, {t.expr.device}\nhint: shard() or replicate() it first"
        )
    readable(t)
    seen = make(t, (t.expr, t.leaves))
    realize_one(seen)  # a reshape of memory, whose layout is that of another shape
    found = cast("Any", seen.leaves[0].buffer)
    assert isinstance(found, Spread), found
    return found


def from_shards(parts: Sequence[T], axis: int = 0) -> T:
    """Return a tensor divided over the devices of `parts`, which has copies of them.

    The parts agree in dtype and in all sizes but that of `axis`. No gradient flows back. Raises `UsageError`
    for other parts, and as `realize`.
    """
    mesh = mesh_of([t.expr.device for t in parts])
    first, axis = parts[0].expr, axis_of(axis, parts[0].expr.shape, "from_shards")
    sizes = []
    for t in parts:
        e = t.expr
        if e.dtype is not first.dtype or [*e.shape[:axis], *e.shape[axis + 1 :]] != [
            *first.shape[:axis], *first.shape[axis + 1 :],
        ]:  # fmt: skip
            raise UsageError(
                f"from_shards, axis {axis}: {first.dtype.name}{list(first.shape)} and "
                f"{e.dtype.name}{list(e.shape)} are no parts of one tensor"
            )
        sizes.append(e.shape[axis])
    buffers = [d.copied(readable(t)[1].buffer) for t, d in zip(parts, mesh.devices, strict=True)]
    shape = (*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :])
    layout = TensorLayout(axis, _bounds(sizes, sum(sizes), len(sizes)))
    spread = Spread(mesh, prod(shape) * first.dtype.itemsize)
    spread.fill(layout, tuple(buffers), shape, first.dtype.itemsize)
    return parts[0].of_part((leaf_expr(shape, first.dtype, mesh.name), (Leaf(cast("Any", spread)),)))
