"""PyTorch's name for activation checkpoints: `from frontend.utils.checkpoint import checkpoint`.

Not here: the functions themselves (`frontend.autograd.checkpoint`).
"""

from __future__ import annotations

from frontend.autograd.checkpoint import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
