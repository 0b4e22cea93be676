"""PyTorch's `utils._foreach_utils`, which optimisers of packages use beside `_foreach_mul_` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontend.tensor import Tensor


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]],
    with_indices: bool = False,  # noqa: FBT001, FBT002 - the field's signature
) -> dict[tuple[str, Any], tuple[list[list[Tensor | None]], list[int]]]:
    """Return (device, dtype) of the tensors of the first list -> the lists of these places, and the places.

    The places are left out unless `with_indices`.
    """
    found: dict[tuple[str, Any], list[int]] = {}
    for i, t in enumerate(tensorlistlist[0]):
        assert t is not None  # the first list has no gaps
        found.setdefault((t.device, t.dtype), []).append(i)
    return {
        key: ([[r[i] if r else None for i in at] for r in tensorlistlist], at if with_indices else [])
        for key, at in found.items()
    }
