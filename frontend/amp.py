"""Mixed precision under the names of `torch.amp`.

Not here: the modes and the scaler themselves (`frontend.nn.amp`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.device import DeviceName
from frontend.nn import amp
from frontend.nn.amp import GradScaler

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["GradScaler", "autocast"]


def autocast(
    device_type: str,
    dtype: Any = None,
    enabled: bool = True,  # noqa: FBT001, FBT002 - PyTorch's signature
    cache_enabled: bool | None = None,  # noqa: FBT001 - as above
) -> AbstractContextManager[None]:
    """Return the mode of `nn.amp.autocast`, for a `with` block or as a decorator.

    The mode holds for all devices; `device_type` chooses the default of `dtype`: bfloat16 for "cpu", float16
    for GPUs. `cache_enabled` changes nothing. Errors as `nn.amp.autocast`, and `UsageError` for an unknown
    device.
    """
    del cache_enabled
    kind = DeviceName(device_type).type
    return amp.autocast(dtype or (dtypes.bfloat16 if kind == "cpu" else dtypes.float16), enabled=enabled)
