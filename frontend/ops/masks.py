"""Bool tensors as an index: the places where they are true, read on the host.

How many there are depends on values, so the mask is computed, and the index waits for it. Inside a captured
function that is refused: `where` and `masked_fill` keep the shape, and `masked_select` and `nonzero` accept a
`size`.

Not here: the elements at these places (`indexing`), methods (`selection`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.plan import CAPTURE
from hcq.errors import UsageError, UsageIndexError

if TYPE_CHECKING:
    from frontend.ops.arguments import Shape
    from frontend.tensor_base import T, TensorBase


def is_mask(part: Any, like: TensorBase) -> bool:
    """Return whether a part of a key is a bool tensor."""
    return part.__class__ is like.__class__ and part.expr.dtype is dtypes.bool


def places_of(mask: T) -> list[T]:
    """Return an int32 tensor for each axis of a mask: the coordinates where it is true, in row-major order.

    Computes the mask and waits for it. Raises `UsageError` inside a captured function.
    """
    if CAPTURE.now is not None:
        raise UsageError(
            "a bool tensor as index inside a captured function: the size depends on values, and a replay has "
            "one size\nhint: where and masked_fill keep the shape; nonzero and masked_select accept size="
        )
    known: Any = mask
    kind: Any = mask.__class__
    found = known.numpy().nonzero() if mask.expr.shape else ()
    return [kind(axis.astype("int32"), device=mask.expr.device) for axis in found]


def unmasked(x: TensorBase, key: Any) -> Any:
    """Return a key with each mask replaced by integer tensors, one for each axis that it covers.

    Raises `UsageIndexError` for a mask that has not the sizes of these axes.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    if not any(is_mask(p, x) for p in parts):
        return key
    shape = x.expr.shape
    ranks = [len(p.expr.shape) if is_mask(p, x) else int(p is not None and p is not Ellipsis) for p in parts]
    found: list[Any] = []
    axis = 0
    for p, rank in zip(parts, ranks, strict=True):
        if is_mask(p, x):
            _check(p, shape, axis)
            found += places_of(p)
        else:
            found.append(p)
        axis += len(shape) - sum(ranks) if p is Ellipsis else rank
    return tuple(found)


def _check(mask: TensorBase, shape: Shape, axis: int) -> None:
    own = mask.expr.shape
    if not own:
        raise UsageIndexError("a mask of shape () names no axis: wanted it alone, as x[mask]")
    if own != shape[axis : axis + len(own)]:
        raise UsageIndexError(
            f"a mask of shape {own} at axis {axis} of {shape}: wanted {shape[axis : axis + len(own)]}"
        )
