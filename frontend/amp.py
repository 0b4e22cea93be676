"""Mixed precision under the names of `torch.amp`.

Not here: names of GPUs (`frontend.cuda`). Next: `frontend.nn.amp`, the mode and the scaler.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.device import DeviceName
from frontend.evaluation import modes
from frontend.nn import amp
from frontend.nn.amp import GradScaler
from hcq.registry import GPU_NAMES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = [
    "GradScaler", "autocast", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cpu_enabled", "is_autocast_enabled",
]  # fmt: skip


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Return whether layers compute in sixteen bits; the mode is the same for all devices."""
    del device_type
    return modes.mixed() is not None


def get_autocast_dtype(device_type: str) -> Any:
    """Return the dtype of the mode; outside of one that which `autocast` has by default for a device."""
    return modes.mixed() or (dtypes.bfloat16 if device_type == "cpu" else dtypes.float16)


is_autocast_cpu_enabled = is_autocast_enabled
get_autocast_cpu_dtype, get_autocast_gpu_dtype = (partial(get_autocast_dtype, d) for d in ("cpu", "cuda"))


def autocast(
    device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
) -> AbstractContextManager[None]:
    """Return the mode of `nn.amp.autocast`, for a `with` block or as a decorator.

    The mode holds for all devices; `device_type` chooses the default of `dtype`: bfloat16 for "cpu", float16
    for GPUs. `cache_enabled` has no effect. Raises `UsageError` for an unknown device, for "cuda" without a
    GPU unless `enabled` is false, and as `nn.amp.autocast`.
    """
    del cache_enabled
    unused = not enabled and device_type in GPU_NAMES
    kind = "cpu" if unused else DeviceName(device_type).type
    return amp.autocast(dtype or (dtypes.bfloat16 if kind == "cpu" else dtypes.float16), enabled=enabled)
