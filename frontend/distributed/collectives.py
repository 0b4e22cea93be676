"""Collectives over tensors, one on each of several devices of this process.

A list of tensors, in the order of their devices, is one tensor divided over their mesh, so each collective is
a reduction, a change of layout, or both: `rules` has the algorithms. Additions are made in the order of the
list, so a result is the same on every device, and the same each time.

Not here: collectives between processes (`ranks`). Next: `placement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compiler.ir.ops import Ops
from frontend.arguments.checks import axis_of
from frontend.distributed.placement import from_shards, replicate, shard, shards
from frontend.evaluation.base import T
from frontend.ops.arithmetic import div
from frontend.ops.casts import cast
from frontend.ops.movement import permute, reshape
from frontend.ops.reductions import fold
from frontend.transfer import to
from hcq.errors import UsageError

REDUCTIONS: Final = {"sum": Ops.ADD, "mean": Ops.ADD, "prod": Ops.MUL, "max": Ops.MAX, "min": Ops.MIN}


def _reduced(parts: Sequence[T], op: str) -> T:
    """Return the reduction of tensors of one shape and dtype, pending on the mesh of their devices."""
    if op not in REDUCTIONS:
        raise UsageError(f"op: wanted one of {', '.join(REDUCTIONS)}, saw {op!r}")
    first = parts[0].expr
    if any(t.expr.shape != first.shape or t.expr.dtype is not first.dtype for t in parts):
        seen = ", ".join(f"{t.expr.dtype.name}{list(t.expr.shape)}" for t in parts)
        raise UsageError(f"a reduction over devices needs tensors of one shape and dtype, saw {seen}")
    if op == "mean" and not first.dtype.is_float:
        raise UsageError(f"mean: wanted floats, saw {first.dtype.name}")
    row = [reshape(t, (1, *first.shape)) for t in parts]
    found = fold(REDUCTIONS[op], from_shards(row), (0,), keepdim=False)
    return div(found, len(parts)) if op == "mean" else found


def all_reduce_of(parts: Sequence[T], op: str = "sum") -> list[T]:
    """Return the elementwise reduction of all tensors, on each of their devices.

    `parts` have one shape and dtype, and are on different devices. `op` is "sum", "mean" (floats), "prod",
    "max" or "min". The dtype stays; integers wrap. Below 64 KiB, of two devices below 4 MiB, every device
    reduces all contributions; larger tensors are reduced a piece on each device, and the pieces are gathered.
    Raises `UsageError` for other arguments, and as `realize`.
    """
    return shards(replicate(_reduced(parts, op), [t.expr.device for t in parts]))


def reduce_scatter_of(parts: Sequence[T], op: str = "sum", axis: int = 0) -> list[T]:
    """Return the reduction of all tensors, divided along an axis over their devices as by `shard`.

    Arguments and errors as of `all_reduce_of`.
    """
    axis = axis_of(axis, parts[0].expr.shape, "reduce_scatter_of")
    return shards(shard(_reduced(parts, op), [t.expr.device for t in parts], axis))


def all_gather_of(parts: Sequence[T], axis: int = 0) -> list[T]:
    """Return the tensors joined along an axis, on each of their devices. Raises as `from_shards`."""
    return shards(replicate(from_shards(parts, axis), [t.expr.device for t in parts]))


def all_to_all_of(parts: Sequence[T], split: int = 0, join: int = 0) -> list[T]:
    """Return for each device its part of every tensor along the axis `split`, joined along `join`.

    With two devices, device 0 gets the first half of every tensor, and device 1 the second half. Parts are
    divided as by `shard`. Raises `UsageIndexError` for an axis that does not exist, and as `from_shards`.
    """
    split = axis_of(split, parts[0].expr.shape, "all_to_all_of, split")
    join = axis_of(join, parts[0].expr.shape, "all_to_all_of, join")
    row = [reshape(t, (1, *t.expr.shape)) for t in parts]
    moved = shards(shard(from_shards(row), [t.expr.device for t in parts], split + 1))
    return [_joined(t, join) for t in moved]


def _joined(t: T, axis: int) -> T:
    """Return the rows of axis 0 joined along another axis."""
    shape = t.expr.shape[1:]
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
    size = t.expr.shape[0] * shape[axis]
    return reshape(permute(t, *order), (*shape[:axis], size, *shape[axis + 1 :]))


def broadcast_of(t: T, devices: Sequence[str]) -> list[T]:
    """Return the value of a tensor on each of several devices. Raises as `to`."""
    return [send_to(t, device) for device in devices]


def send_to(t: T, device: str) -> T:
    """Return a copy of the value on another device. Raises as `to`."""
    return cast(to(t, device, copy=True), t.expr.dtype)
