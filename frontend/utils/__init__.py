"""PyTorch's names for data sets (`utils.data`) and activation checkpoints (`utils.checkpoint`).

Not here: the code (`frontend.nn.data`, `frontend.autograd.checkpoint`).
"""

from __future__ import annotations

from frontend.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
