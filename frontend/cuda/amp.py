"""PyTorch's older names of mixed precision: `torch.cuda.amp.autocast` and `GradScaler`.

Not here: the mode and the scaler (`frontend.amp`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend import amp
from frontend.amp import GradScaler
from frontend.cuda import is_available

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["GradScaler", "autocast"]


def autocast(
    enabled: bool = True,  # noqa: FBT001, FBT002 - PyTorch's signature
    dtype: Any = dtypes.float16,
    cache_enabled: bool = True,  # noqa: FBT001, FBT002 - as above
) -> AbstractContextManager[None]:
    """Return `frontend.amp.autocast` for a GPU; without one it has no effect, as in PyTorch."""
    return amp.autocast("cuda", dtype, enabled and is_available(), cache_enabled)
